//! How long work lasts: percentiles by nearest rank, in all and by queue.
//!
//! Never: how long something took that was not completed.

use super::DemandJob;
use forebay_kernel::units::{GpuTime, Span};
use std::collections::BTreeMap;

/// A list of spans in a few figures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpanPercentiles {
    /// How many there are.
    pub count: u64,
    /// The mean, rounded down.
    pub mean: Span,
    /// Half are at most this.
    pub p50: Span,
    /// 9 of 10 are at most this.
    pub p90: Span,
    /// 99 of 100 are at most this.
    pub p99: Span,
    /// The longest.
    pub longest: Span,
}

impl SpanPercentiles {
    /// Of spans in any order. `None`: there are none.
    #[must_use]
    pub fn of(mut spans: Vec<Span>) -> Option<SpanPercentiles> {
        spans.sort_unstable();
        let longest = *spans.last()?;
        let rank = |percent: usize| spans[(spans.len() * percent).div_ceil(100).max(1) - 1];
        let sum: u128 = spans.iter().map(|span| u128::from(span.0)).sum();
        let mean = Span(u64::try_from(sum / spans.len() as u128).unwrap_or(u64::MAX));
        let count = spans.len() as u64;
        Some(SpanPercentiles { count, mean, p50: rank(50), p90: rank(90), p99: rank(99), longest })
    }
}

/// How long jobs last.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DurationProfile {
    /// All of them.
    pub all: SpanPercentiles,
    /// By queue, by the GPU time that they took, most first. Jobs without a queue are in `all` only.
    pub by_queue: Vec<QueueDurations>,
}

/// How long the jobs of a queue last.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueDurations {
    /// The queue.
    pub queue: String,
    /// Their durations.
    pub spans: SpanPercentiles,
    /// GPU time that they took.
    pub work: GpuTime,
}

impl DurationProfile {
    /// Of these jobs. `None`: of none it is known.
    pub(super) fn of(jobs: &[&DemandJob], queues: &[String]) -> Option<DurationProfile> {
        let mut by_queue: BTreeMap<u32, (Vec<Span>, GpuTime)> = BTreeMap::new();
        for (job, lasted, queue) in jobs.iter().filter_map(|job| Some((job, job.lasted?, job.queue?))) {
            let (spans, work) = by_queue.entry(queue).or_default();
            spans.push(lasted);
            *work += job.share.over(lasted);
        }
        let row = |(queue, (spans, work)): (u32, (Vec<Span>, GpuTime))| {
            let queue = queues.get(queue as usize)?.clone();
            Some(QueueDurations { queue, spans: SpanPercentiles::of(spans)?, work })
        };
        let mut by_queue: Vec<QueueDurations> = by_queue.into_iter().filter_map(row).collect();
        by_queue.sort_by(|a, b| b.work.cmp(&a.work).then_with(|| a.queue.cmp(&b.queue)));
        let all = SpanPercentiles::of(jobs.iter().filter_map(|job| job.lasted).collect())?;
        Some(DurationProfile { all, by_queue })
    }
}
