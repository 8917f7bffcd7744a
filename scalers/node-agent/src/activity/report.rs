//! The body of `POST /v1/agent/activity`, as the agent writes it and the controller reads it.
//!
//! Times are counted from the report that the controller acknowledged last (`since`), so a report that was lost or came twice changes
//! nothing: the next one has all of it again. `idle_ms` is the whole idleness up to now, as the agent has observed it.

use crate::worker::WorkerName;
use serde::{Deserialize, Serialize};

/// The most workers of one report. A kubelet has 250 pods at most, and a bare worker is a process of its own.
pub const MOST_WORKERS_REPORTED: usize = 512;

/// What an agent has observed of the workers on its node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ActivityReport {
    /// The id of the node's instance.
    pub instance: String,
    /// When the agent started, in milliseconds since 1970: later reports of an earlier start are old ones.
    pub start: u64,
    /// The number of the report within this start, from 1.
    pub sequence: u64,
    /// The report that was acknowledged last: times are counted from there. 0: from the start.
    pub since: u64,
    /// The source of the figures: `nvml` or `dcgm`.
    pub source: String,
    /// GPUs that it sees. Absent: it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
    /// Why there are no figures, such as `no GPU: the driver is not loaded`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Workers whose observations were dropped since the start because there were too many at once.
    #[serde(default)]
    pub dropped: u64,
    /// The workers.
    pub workers: Vec<WorkerActivity>,
}

/// What a worker has done with its GPUs since the report that was acknowledged last.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WorkerActivity {
    /// Which worker.
    pub worker: WorkerName,
    /// GPUs that it is on now.
    #[serde(default)]
    pub gpus: u32,
    /// The memory that it holds on them now, in MiB. Absent: it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u64>,
    /// Time in which it was known whether it computes, in milliseconds.
    pub observed_ms: u64,
    /// Of this, the time in which it computed on at least one GPU.
    pub busy_ms: u64,
    /// Time in which it held memory of a GPU.
    pub resident_ms: u64,
    /// Whether it computes now. Absent: it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub computes: Option<bool>,
    /// For how long it has been idle now, up to this report. Absent while it computes, and where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_ms: Option<u64>,
    /// It is no longer there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ended: bool,
}
