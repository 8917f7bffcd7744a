//! The example's events as they are written: structs whose fields keep their order, so that the bytes never move.
//! It never reads events; intake and replay do.

use serde::Serialize;
use serde_json::Value;

/// A CloudEvent around some data.
#[derive(Clone, Serialize)]
pub(super) struct Event<D> {
    pub specversion: &'static str,
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub dataschema: &'static str,
    pub source: String,
    pub id: String,
    pub time: String,
    pub subject: String,
    pub data: D,
}

/// The data of a `job.submitted`.
#[derive(Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Job {
    pub queue: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<&'static str>,
    pub labels: Labels,
    pub run: Run,
    pub gang: Gang,
    pub sharing: &'static str,
    pub completion: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Checkpoint>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_run: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<String>,
    pub simulation: Simulation,
}

#[derive(Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Labels {
    pub team: &'static str,
    pub class: &'static str,
    pub cost_center: &'static str,
}

#[derive(Clone, Serialize)]
pub(super) struct Run {
    pub template: &'static str,
    pub image: String,
    pub args: Vec<String>,
}

#[derive(Clone, Serialize)]
pub(super) struct Gang {
    pub workers: Workers,
    pub each: Each,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within: Option<&'static str>,
}

#[derive(Clone, Serialize)]
pub(super) struct Workers {
    pub min: u32,
    pub max: u32,
}

/// What each worker needs: `gpus` is a whole number or a share, `cpu` counts cores.
#[derive(Clone, Serialize)]
pub(super) struct Each {
    pub gpus: Value,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<&'static str>,
    pub cpu: u32,
    pub memory: String,
}

#[derive(Clone, Serialize)]
pub(super) struct Retry {
    pub attempts: u32,
    pub backoff: &'static str,
}

#[derive(Clone, Serialize)]
pub(super) struct Checkpoint {
    pub uri: String,
    pub every: &'static str,
    pub grace: &'static str,
}

/// What only the simulated world knows.
#[derive(Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Simulation {
    pub duration_s: u64,
    #[serde(skip_serializing_if = "Value::is_null")]
    pub gpu_util: Value,
    /// How often the job's attempts fail before one succeeds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failures: Option<u32>,
}

/// The data of a `job.cancelled`.
#[derive(Clone, Serialize)]
pub(super) struct Cancelled {
    pub reason: &'static str,
}

/// The data of a `simulation.market`: read by the simulated cloud, never by the engine.
#[derive(Clone, Serialize)]
pub(super) struct Market {
    pub drought: Drought,
}

/// From when to when no spot is to be had anywhere.
#[derive(Clone, Serialize)]
pub(super) struct Drought {
    pub from: String,
    pub to: String,
}
