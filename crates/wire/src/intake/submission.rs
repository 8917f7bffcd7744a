//! The events that may be sent, as types: what `forebay schema event` describes and what the decoder reads.
//!
//! Each field is declared once, with its name, its shape and its description. Rules about several fields are in `rules`.
//! Never: a value that is only checked and then carried along: of such a field there is the shape, and nothing is kept.

use super::rules;
use super::run::{Environment, ReferenceName, RunRequest};
use super::scalar::{
    AnyText, BoundedList, Carried, CheckpointUri, CompletionChoice, ExitCode, GpuShare, LabelTexts, MOST_NAME,
    MOST_U32, MemorySize, MigSlice, PositiveSpanText, QueuePath, Rfc3339, SharingChoice, SpanText, SpecVersion,
    SpreadLevel, Thousandths, Whole, Word, WorkerGpus,
};
use super::shape::object;
use super::workers::WorkerCount;
use super::{MOST_SCHEMA, MOST_SUBJECT};
use crate::document::within::WithinView;
use schemars::JsonSchema;

/// Most workers of a gang: ten times the largest cluster that one controller holds.
pub(super) const MOST_WORKERS: u32 = 100_000;

/// Most replicas of one service, as the engine has it.
pub(super) const MOST_REPLICAS: u32 = 10_000;

/// Most models that a gang lists: more than any cloud has. Each is compared with each.
const MOST_MODELS: usize = 64;

/// Most exit codes that are never retried: there are 256.
const MOST_CODES: usize = 256;

/// An event about a job: CloudEvents 1.0 in JSON. A bare object with `type`, `subject` and `data` will do.
#[derive(Clone, PartialEq, Debug, JsonSchema)]
#[schemars(title = "Forebay event", tag = "type")]
pub enum JobEvent {
    /// A pipeline wants a job run.
    #[schemars(rename = "job.submitted")]
    Submitted(Box<SubmittedEvent>),
    /// A pipeline wants a job stopped for good.
    #[schemars(rename = "job.cancelled")]
    Cancelled(CancelledEvent),
    /// So many requests at once are a service's demand now.
    #[schemars(rename = "service.demand")]
    Demand(DemandEvent),
}

/// A pipeline wants a job run.
#[derive(Clone, PartialEq, Debug, JsonSchema)]
pub struct SubmittedEvent {
    /// The attributes that every event has.
    #[schemars(flatten)]
    pub envelope: EventAttributes,
    /// What the job asks for.
    pub data: JobSubmission,
}

/// A pipeline wants a job stopped for good.
#[derive(Clone, PartialEq, Debug, JsonSchema)]
pub struct CancelledEvent {
    /// The attributes that every event has.
    #[schemars(flatten)]
    pub envelope: EventAttributes,
    /// Free; nothing reads it.
    pub data: Option<Carried>,
}

/// So many requests at once are a service's demand now.
#[derive(Clone, PartialEq, Debug, JsonSchema)]
pub struct DemandEvent {
    /// The attributes that every event has.
    #[schemars(flatten)]
    pub envelope: EventAttributes,
    /// What is asked of it.
    pub data: Demand,
}

object! {
    /// The attributes that every event has, as CloudEvents names them.
    EventAttributes, unknown: missing;
    /// `1.0`, with `source` and `id`. Without it, a bare object.
    specversion: Option<SpecVersion> = "specversion";
    /// Who sends it, such as `//airflow/prod`.
    source: Option<Word<MOST_SUBJECT>> = "source";
    /// Unique in its source.
    id: Option<Word<MOST_SUBJECT>> = "id";
    /// Name of the job or the service; it is its identity.
    #[schemars(required)]
    subject: Option<Word<MOST_SUBJECT>> = "subject";
    /// When, as RFC 3339.
    time: Option<Rfc3339> = "time";
    /// `urn:forebay:`, its type and its version, such as `urn:forebay:job.submitted:1`.
    dataschema: Option<Word<MOST_SCHEMA>> = "dataschema";
}

object! {
    /// What is asked of a service.
    #[derive(Copy, Eq)]
    Demand, unknown: missing;
    /// Requests at once: being served and waiting.
    concurrency: Whole<0, MOST_U32> = "concurrency",
        needed "say how many requests it has at once, those that wait included";
}

object! {
    /// What a job asks for.
    #[schemars(rename = "Submission")]
    JobSubmission, unknown: warn, rules: rules::submission;
    /// The workers, started all or none.
    gang: GangShape = "gang", needed "say what it needs, such as {\"workers\":1,\"each\":{\"gpus\":1}}";
    /// `exclusive`, or `shared` with others on a GPU.
    sharing: Option<SharingChoice> = "sharing";
    /// It serves: replicas of `gang` follow its demand, and it ends only when it is cancelled.
    service: Option<ServiceShape> = "service";
    /// Whether it may run on spot where its tier would. Default: yes, and no for a service.
    spot: Option<bool> = "spot";
    /// What runs: `template`, `image`, `args`, `env`, and the names of `secrets` and `volumes`.
    run: Option<RunRequest> = "run";
    /// Free names and values; routes may read them.
    labels: Option<LabelTexts> = "labels";
    /// Within its queue and tier, higher goes first.
    priority: Option<Whole<-1_000_000, 1_000_000>> = "priority";
    /// Its queue. Default: `default`; routes of the policy may choose another.
    queue: Option<QueuePath> = "queue";
    /// A tier of the policy. Default: its queue's.
    tier: Option<Word<MOST_NAME>> = "tier";
    /// How it saves its progress. Without it, it starts again from nothing.
    checkpoint: Option<CheckpointShape> = "checkpoint";
    /// Time lost at each start, such as `1m`.
    restart: Option<SpanText> = "restart";
    /// What its own failures cost.
    retry: Option<RetryShape> = "retry";
    /// When it is done: `all`, `leader` or `any` of its workers.
    completion: Option<CompletionChoice> = "completion";
    /// What it is expected to run, such as `9h`.
    expected_run: Option<SpanText> = "expectedRun";
    /// Longer than this it fails, such as `20h`.
    max_run: Option<PositiveSpanText> = "maxRun";
    /// It is wanted by then, as RFC 3339.
    deadline: Option<Rfc3339> = "deadline";
    /// A finished job of this subject runs again.
    rerun: Option<bool> = "rerun";
    /// Jobs of one queue and shape with the same key are a batch: one after the other on the same capacity.
    batch_key: Option<Word<MOST_NAME>> = "batchKey";
    /// What the simulated cluster runs, such as `{"durationS": 600}`. Real clusters do not read it.
    simulation: Option<Carried> = "simulation";
    /// What sort of work it is; routes may read it.
    kind: Option<Carried> = "kind";
    /// For whom it runs; routes may read it.
    user: Option<Carried> = "user";
}

object! {
    /// The workers of a job.
    GangShape, unknown: warn, rules: rules::gang;
    /// What each needs on its node.
    each: Option<EachShape> = "each";
    /// Instead of `workers`: whole GPUs that may span nodes, fewest nodes first.
    gpus: Option<Whole<1, { MOST_WORKERS as i64 }>> = "gpus";
    /// How many: a number, or `{"min": 2, "max": 4}`.
    workers: Option<WorkerCount> = "workers";
    /// How close together its workers go: `zone`, `rack`, `node`, `nvlink` or `numa` (or not at all), or `{"prefer": "rack"}`.
    within: Option<WithinView> = "within";
}

object! {
    /// What one worker needs on its node.
    EachShape, unknown: warn, rules: rules::worker;
    /// Instead of `gpus`: one slice of a partitioned GPU, such as `3g.40gb`. It is isolated from the others on that GPU.
    mig: Option<MigSlice> = "mig";
    /// GPUs: `8`, or a share of one such as `0.25`.
    gpus: Option<WorkerGpus> = "gpus";
    /// With `gpus: 1`: the share of it, such as `0.25`.
    share: Option<GpuShare> = "share";
    /// Instead of `share`: the same in thousandths.
    gpu_milli: Option<Whole<1, 1000>> = "gpuMilli";
    /// CPU cores, such as `3` or `0.5`.
    cpu: Option<Thousandths> = "cpu";
    /// Memory that it needs on each GPU, such as `20GiB`.
    gpu_memory: Option<MemorySize> = "gpuMemory";
    /// Memory, such as `900GiB`.
    memory: Option<MemorySize> = "memory";
    /// GPU models that will do, such as `H100`. Default: any.
    models: Option<BoundedList<Word<64>, MOST_MODELS>> = "models";
}

object! {
    /// What a service asks.
    #[schemars(deny_unknown_fields)]
    ServiceShape, unknown: refuse "is not a field of a service; write min, max, target, spread or spot",
    rules: rules::service;
    /// Replicas at least. Default: 1. With 0 it has none while nothing is asked of it.
    min: Option<Whole<0, { MOST_REPLICAS as i64 }>> = "min";
    /// Replicas at most.
    max: Whole<1, { MOST_REPLICAS as i64 }> = "max", needed "say how many replicas it may have at most";
    /// Requests at once that one replica is to have.
    target: Whole<1, MOST_U32> = "target", needed "say how many requests at once one replica is to have";
    /// No two replicas in one `node`, `rack` or `zone` while there is another. Default: `node`.
    spread: Option<SpreadLevel> = "spread";
    /// Whether its replicas may run on spot. Default: no.
    spot: Option<bool> = "spot";
}

object! {
    /// What runs. The rest is in a template of the operator's.
    RunShape, unknown: ignore;
    /// A template that the operator keeps.
    template: Option<Word<1024>> = "template";
    /// A container image.
    image: Option<Word<1024>> = "image";
    /// Arguments.
    args: Option<Vec<AnyText>> = "args";
    /// Names of secrets that the template allows, never their content.
    secrets: Option<Vec<ReferenceName>> = "secrets";
    /// Names of volumes that the template allows.
    volumes: Option<Vec<ReferenceName>> = "volumes";
    /// Environment variables. What holds a secret is named in `secrets` instead.
    env: Option<Environment> = "env";
}

object! {
    /// What failures cost.
    RetryShape, unknown: ignore;
    /// Exit codes that are final.
    never: Option<BoundedList<ExitCode, MOST_CODES>> = "never";
    /// Starts in all: 1 is no retry.
    attempts: Option<Whole<1, 1000>> = "attempts";
    /// Pause before the first retry, such as `30s`; it doubles.
    backoff: Option<SpanText> = "backoff";
    /// Starts in a row that may fail, whatever is to blame, before the job fails with `StartFailures`. Default: 5.
    start_failures: Option<Whole<1, 1000>> = "startFailures";
}

object! {
    /// The checkpoint contract.
    CheckpointShape, unknown: ignore;
    /// Where: `s3://bucket/path/`, `gs://bucket/path/` or `file:///path/`.
    uri: CheckpointUri = "uri", needed "say where it saves, such as s3://bucket/path/";
    /// How often. Default: `10m`.
    every: Option<PositiveSpanText> = "every";
    /// How long it needs to save before it is stopped, such as `90s`.
    grace: Option<SpanText> = "grace";
}

impl GangShape {
    /// Whether its workers have a share of a GPU each.
    pub(super) fn is_part_of_a_gpu(&self) -> bool {
        let Some(each) = self.each.as_ref().filter(|_| self.gpus.is_none()) else { return false };
        each.mig.is_some() || each.gpus_and_share().1 < 1000
    }
}

impl EachShape {
    /// GPUs and the share of each in thousandths: `gpus: 8`, `gpus: 0.25`, or `gpus: 1` with `share: 0.25` or `gpuMilli: 250`.
    pub(super) fn gpus_and_share(&self) -> (u16, u16) {
        let Some(WorkerGpus(milli)) = self.gpus else { return (0, 1000) };
        let stated = self.share.map(|share| share.0).or(self.gpu_milli.map(|milli| milli.as_u32() as u16));
        match milli {
            1..1000 => (1, stated.unwrap_or(milli)),
            _ => (milli / 1000, stated.unwrap_or(1000)),
        }
    }
}
