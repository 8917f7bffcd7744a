//! The events that may be sent, as a shape: where `forebay schema event` comes from. Intake reads events itself, with its own faults.
//!
//! Never: used to read one. Tests hold it against what intake takes.

use super::within::WithinView;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// An event about a job: CloudEvents 1.0 in JSON. A bare object with `type`, `subject` and `data` will do.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type")]
#[schemars(title = "Forebay event")]
pub enum JobEvent {
    /// A pipeline wants a job run.
    #[serde(rename = "job.submitted")]
    Submitted(Box<SubmittedEvent>),
    /// A pipeline wants a job stopped for good.
    #[serde(rename = "job.cancelled")]
    Cancelled(CancelledEvent),
    /// So many requests at once are a service's demand now.
    #[serde(rename = "service.demand")]
    Demand(DemandEvent),
}

/// What every event says of itself, in CloudEvents' words.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Envelope {
    /// `1.0`, with `source` and `id`. Without it, a bare object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub specversion: Option<String>,
    /// `urn:forebay:`, its type and its version, such as `urn:forebay:job.submitted:1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dataschema: Option<String>,
    /// Who sends it, such as `//airflow/prod`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Unique in its source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// When, as RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub time: Option<String>,
    /// Name of the job or the service; it is its identity.
    #[schemars(length(min = 1, max = 512))]
    pub subject: String,
}

/// A pipeline wants a job run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SubmittedEvent {
    /// What every event says of itself.
    #[serde(flatten)]
    pub envelope: Envelope,
    /// What the job asks for.
    pub data: Submission,
}

/// A pipeline wants a job stopped for good.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CancelledEvent {
    /// What every event says of itself.
    #[serde(flatten)]
    pub envelope: Envelope,
    /// Free; nothing reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<BTreeMap<String, Value>>,
}

/// So many requests at once are a service's demand now.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DemandEvent {
    /// What every event says of itself.
    #[serde(flatten)]
    pub envelope: Envelope,
    /// What is asked of it.
    pub data: Demand,
}

/// What is asked of a service.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Demand {
    /// Requests at once: being served and waiting.
    pub concurrency: u32,
}

/// What a job asks for.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Submission {
    /// Its queue. Default: `default`; routes of the policy may choose another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// A tier of the policy. Default: its queue's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// Within its queue and tier, higher goes first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = -1_000_000, max = 1_000_000))]
    pub priority: Option<i32>,
    /// Free names and values; routes may read them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// What runs: `template`, `image`, `args`, `env`, and the names of `secrets` and `volumes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<BTreeMap<String, Value>>,
    /// The workers, started all or none.
    pub gang: GangShape,
    /// `exclusive`, or `shared` with others on a GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["exclusive", "shared"]))]
    pub sharing: Option<String>,
    /// It serves: replicas of `gang` follow its demand, and it ends only when it is cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceShape>,
    /// Whether it may run on spot where its tier would. Default: yes, and no for a service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spot: Option<bool>,
    /// Time lost at each start, such as `1m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<String>,
    /// Jobs of one queue and shape with the same key are a batch: one after the other on the same capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub batch_key: Option<String>,
    /// What the simulated cluster runs, such as `{"durationS": 600}`. Real clusters do not read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulation: Option<BTreeMap<String, Value>>,
    /// When it is done: `all`, `leader` or `any` of its workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion: Option<String>,
    /// What its own failures cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryShape>,
    /// How it saves its progress. Without it, it starts again from nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<CheckpointShape>,
    /// What it is expected to run, such as `9h`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_run: Option<String>,
    /// Longer than this it fails, such as `20h`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_run: Option<String>,
    /// It is wanted by then, as RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub deadline: Option<String>,
    /// A finished job of this subject runs again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rerun: Option<bool>,
}

/// What a service asks.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ServiceShape {
    /// Replicas at least. Default: 1. With 0 it has none while nothing is asked of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 10_000))]
    pub min: Option<u32>,
    /// Replicas at most.
    #[schemars(range(min = 1, max = 10_000))]
    pub max: u32,
    /// Requests at once that one replica is to have.
    #[schemars(range(min = 1))]
    pub target: u32,
    /// No two replicas in one `node`, `rack` or `zone` while there is another. Default: `node`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["node", "rack", "zone"]))]
    pub spread: Option<String>,
    /// Whether its replicas may run on spot. Default: no.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spot: Option<bool>,
}

/// The workers of a job.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct GangShape {
    /// How many: a number, or `{"min": 2, "max": 4}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<Value>,
    /// What each needs on its node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub each: Option<EachShape>,
    /// Instead of `workers`: whole GPUs that may span nodes, fewest nodes first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub gpus: Option<u32>,
    /// How close together its workers go: `zone`, `rack`, `node`, `nvlink` or `numa` (or not at all), or `{"prefer": "rack"}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<WithinView>,
}

/// What one worker needs on its node.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EachShape {
    /// GPUs: `8`, or a share of one such as `0.25`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 64))]
    pub gpus: Option<f64>,
    /// Instead of `gpus`: one slice of a partitioned GPU, such as `3g.40gb`. It is isolated from the others on that GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mig: Option<String>,
    /// GPU models that will do, such as `H100`. Default: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
    /// Memory that it needs on each GPU, such as `20GiB`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_memory: Option<String>,
    /// CPU cores, such as `3` or `0.5`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Value>,
    /// Memory, such as `900GiB`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
}

/// What failures cost.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RetryShape {
    /// Starts in all: 1 is no retry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// Pause before the first retry, such as `30s`; it doubles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff: Option<String>,
    /// Exit codes that are final.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub never: Vec<i32>,
}

/// The checkpoint contract.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CheckpointShape {
    /// Where: `s3://bucket/path/`, `gs://bucket/path/` or `file:///path/`.
    pub uri: String,
    /// How often. Default: `10m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<String>,
    /// How long it needs when told to, such as `90s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace: Option<String>,
}
