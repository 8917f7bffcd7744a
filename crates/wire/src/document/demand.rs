//! The demand model as JSON: `forebay demand --json`. docs/DEMAND.md defines each figure.
//!
//! Never: a figure of what was not measured. Such an input is null, and `notMeasured` says why.

use super::seconds::Seconds;
use serde::{Deserialize, Serialize};

/// The seven inputs of the demand model. GPUs have at most three decimals, hours six.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DemandDocument {
    /// `forebay/v1`.
    pub api_version: String,
    /// `Demand`.
    pub kind: String,
    /// What was measured: a trace's file or a data folder.
    pub source: String,
    /// `trace`: times count from the trace's own zero. `unix`: since 1970.
    pub clock: String,
    /// When the window begins.
    #[serde(rename = "from_s")]
    pub from_s: Seconds,
    /// When it ends.
    #[serde(rename = "to_s")]
    pub to_s: Seconds,
    /// Jobs that ask for GPUs.
    pub jobs: u64,
    /// Jobs that do not: they are in no figure.
    pub cpu_only_jobs: u64,
    /// Jobs of which nobody knows for how long they ask: they are in no figure of GPUs over time.
    pub unknown_jobs: u64,
    /// GPU-hours that jobs ask for, those of services not counted.
    #[serde(rename = "gpu_hours")]
    pub gpu_hours: f64,
    /// GPUs at once.
    pub concurrency: ConcurrencyDocument,
    /// What waits.
    pub queue_depth: Option<QueueDepthDocument>,
    /// Bursts and noise.
    pub bursts: BurstsDocument,
    /// What may wait, and how long.
    pub latency_tolerance: Option<ToleranceDocument>,
    /// Batch and inference.
    pub mix: Option<MixDocument>,
    /// GPU memory held against computing.
    pub vram_residency: Option<ResidencyDocument>,
    /// How long jobs last.
    pub durations: Option<DurationsDocument>,
    /// What was not measured, and why.
    pub not_measured: Vec<NotMeasured>,
    /// What a reader should know, a sentence each.
    pub notes: Vec<String>,
}

/// An input that the data cannot tell.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct NotMeasured {
    /// Its key in this document, such as `queueDepth` or `concurrency.held`.
    pub input: String,
    /// Why, and what would tell it.
    pub why: String,
}

/// GPUs at once.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ConcurrencyDocument {
    /// Asked for, as if each job had started when it was submitted.
    pub asked: ConcurrencyFigures,
    /// Held by runs.
    pub held: Option<ConcurrencyFigures>,
}

/// GPUs at once over a window.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConcurrencyFigures {
    /// The most that the mean of 95 of 100 hours reaches.
    pub floor: f64,
    /// The mean.
    pub mean: f64,
    /// Half of the time it is at most this.
    pub p50: f64,
    /// 9/10 of the time.
    pub p90: f64,
    /// 99/100 of the time.
    pub p99: f64,
    /// The most.
    pub peak: f64,
    /// By hour of day, UTC or the trace's.
    pub by_hour: Vec<HourFigures>,
    /// Its course.
    pub course: Vec<CourseFigures>,
}

/// An hour of the day.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct HourFigures {
    /// 0 to 23.
    pub hour: u8,
    /// The mean.
    pub mean: f64,
    /// The most.
    pub peak: f64,
}

/// A part of a window.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CourseFigures {
    /// When it begins.
    #[serde(rename = "from_s")]
    pub from_s: Seconds,
    /// The mean.
    pub mean: f64,
    /// The most.
    pub peak: f64,
}

/// What waits at once for its first start.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueDepthDocument {
    /// Jobs.
    pub jobs: OverTime,
    /// The GPUs that they ask for.
    pub gpus: OverTime,
    /// How long those waited that started.
    #[serde(rename = "wait_s")]
    pub wait_s: Option<SpanFigures>,
    /// Jobs that wait at the end.
    pub waiting: u64,
    /// Jobs that were over without a start.
    pub gave_up: u64,
}

/// So much at once over a window.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct OverTime {
    /// The mean.
    pub mean: f64,
    /// Half of the time it is at most this.
    pub p50: f64,
    /// 9/10 of the time.
    pub p90: f64,
    /// 99/100 of the time.
    pub p99: f64,
    /// The most.
    pub peak: f64,
}

/// Lengths of time.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct SpanFigures {
    /// How many.
    pub count: u64,
    /// The mean.
    pub mean: Seconds,
    /// Half are at most this.
    pub p50: Seconds,
    /// 9 of 10.
    pub p90: Seconds,
    /// 99 of 100.
    pub p99: Seconds,
    /// The longest.
    pub longest: Seconds,
}

/// Bursts and noise.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BurstsDocument {
    /// GPUs that are asked for in half of the time at most.
    pub usual: f64,
    /// From here on it is a burst.
    pub threshold: f64,
    /// The cold start: what is shorter is noise.
    #[serde(rename = "boot_s")]
    pub boot_s: Seconds,
    /// Where that is from.
    pub boot_from: String,
    /// The highest peak of a burst that is no noise.
    pub ceiling: Option<f64>,
    /// Bursts that are no noise.
    pub lasting: u64,
    /// Those that are.
    pub noise: u64,
    /// GPU-hours above the usual of the lasting ones.
    #[serde(rename = "lasting_gpu_hours")]
    pub lasting_gpu_hours: f64,
    /// GPU-hours above the usual of noise.
    #[serde(rename = "noise_gpu_hours")]
    pub noise_gpu_hours: f64,
    /// In order of time, at most 1,000: those with the most GPU-hours.
    pub listed: Vec<BurstFigures>,
    /// Those that are not listed.
    pub more: u64,
}

/// A burst.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct BurstFigures {
    /// When it begins.
    pub from_s: Seconds,
    /// How long it is.
    pub length_s: Seconds,
    /// GPUs at once at its highest.
    pub peak: f64,
    /// Of that above the usual.
    pub height: f64,
    /// GPU-hours above the usual.
    pub above_gpu_hours: f64,
    /// Whether it is over before a node could help.
    pub noise: bool,
    /// Why it is, or is not.
    pub why: String,
}

/// How long work may wait.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToleranceDocument {
    /// 1/10 of the stated work may wait at most this long.
    #[serde(rename = "p10_s")]
    pub p10_s: Seconds,
    /// Half of it.
    #[serde(rename = "p50_s")]
    pub p50_s: Seconds,
    /// 9/10 of it.
    #[serde(rename = "p90_s")]
    pub p90_s: Seconds,
    /// Jobs of which somebody has said it.
    pub stated_jobs: u64,
    /// Jobs of which nobody has.
    pub unstated_jobs: u64,
    /// The stated part of all GPU-hours that are asked for.
    pub stated_share: f64,
    /// By how long it may wait, the shortest first. `share` is of the stated work.
    pub bands: Vec<ToleranceFigures>,
    /// Jobs by who says it.
    pub sources: Vec<ToleranceSources>,
}

/// Work that may wait so long.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToleranceFigures {
    /// At most. Null: any longer.
    #[serde(rename = "upTo_s")]
    pub up_to_s: Option<Seconds>,
    /// Jobs.
    pub jobs: u64,
    /// GPU-hours that they ask for.
    #[serde(rename = "gpu_hours")]
    pub gpu_hours: f64,
    /// Of the stated work.
    pub share: f64,
}

/// How many jobs have it from where.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ToleranceSources {
    /// `maxWait`, `deadline`, `deadlineOutOfReach` or `startTarget`.
    pub source: String,
    /// Jobs.
    pub jobs: u64,
}

/// Work by kind. The shares add up to 1. A kind that nothing tells of is null as long as there is work of which nothing tells: it may be
/// there.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct MixDocument {
    /// Finite work.
    pub batch: Option<MixFigures>,
    /// Work that answers requests.
    pub inference: Option<MixFigures>,
    /// Work of which nothing tells.
    pub untold: MixFigures,
}

/// A kind of work.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct MixFigures {
    /// Jobs, services not counted.
    pub jobs: u64,
    /// GPU-hours.
    pub gpu_hours: f64,
    /// Of all of them.
    pub share: f64,
}

/// GPU memory held against computing, over all rows.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ResidencyDocument {
    /// GPU-hours held.
    pub resident_gpu_hours: f64,
    /// Of that, computing.
    pub busy_gpu_hours: f64,
    /// Held / computing. Null: nothing computed.
    pub ratio: Option<f64>,
    /// By how it is known.
    pub rows: Vec<ResidencyFigures>,
}

/// Residency that is known in one way.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ResidencyFigures {
    /// `gpuUtil`, `services` or `reportedIdle`.
    pub source: String,
    /// Jobs or services.
    pub count: u64,
    /// GPU-hours held.
    pub resident_gpu_hours: f64,
    /// Of that, computing.
    pub busy_gpu_hours: f64,
    /// Held / computing. Null: nothing computed.
    pub ratio: Option<f64>,
}

/// How long jobs last.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DurationsDocument {
    /// All of them, in seconds.
    pub all: SpanFigures,
    /// By queue, by the GPU-hours that they took, most first.
    pub by_queue: Vec<QueueDurationFigures>,
}

/// How long the jobs of a queue last.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct QueueDurationFigures {
    /// The queue.
    pub queue: String,
    /// GPU-hours that they took.
    pub gpu_hours: f64,
    /// Their durations, in seconds.
    pub durations: SpanFigures,
}
