//! GPUs at once: how many over time, the floor, and by hour of day.
//!
//! Never: an hour that was only seen in part, but where there is no whole one.

use super::steps::{DemandSteps, StepBucket, per};
use forebay_kernel::units::{GpuTime, HOUR_MS, MilliGpu, Span, Timestamp};

/// Hours in which the floor is reached, in thousandths of all.
const FLOOR_HOURS: usize = 950;

/// Columns of the course of a window, at most.
const COLUMNS: u64 = 360;

/// GPUs at once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConcurrencyProfile {
    /// The most that the mean of 95 of 100 hours reaches.
    pub floor: MilliGpu,
    /// The mean.
    pub mean: MilliGpu,
    /// Half of the time it is at most this.
    pub p50: MilliGpu,
    /// 9/10 of the time it is at most this.
    pub p90: MilliGpu,
    /// 99/100 of the time it is at most this.
    pub p99: MilliGpu,
    /// The most.
    pub peak: MilliGpu,
    /// By hour of day, those that were seen.
    pub by_hour: Vec<HourOfDay>,
    /// Its course, in parts of one length.
    pub course: Vec<StepBucket>,
}

/// An hour of the day, over all days.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HourOfDay {
    /// 0 to 23.
    pub hour: u8,
    /// The mean.
    pub mean: MilliGpu,
    /// The most.
    pub peak: MilliGpu,
}

impl ConcurrencyProfile {
    /// Of steps.
    #[must_use]
    pub fn of(steps: &DemandSteps) -> ConcurrencyProfile {
        ConcurrencyProfile {
            floor: floor(steps),
            mean: per(steps.time(), steps.window().length()),
            p50: steps.over_time(500),
            p90: steps.over_time(900),
            p99: steps.over_time(990),
            peak: steps.peak(),
            by_hour: by_hour(steps),
            course: course(steps),
        }
    }
}

fn floor(steps: &DemandSteps) -> MilliGpu {
    let window = steps.window();
    let hours = steps.buckets(window.from, Span(HOUR_MS));
    let whole: Vec<&StepBucket> = hours.iter().filter(|hour| hour.length == Span(HOUR_MS)).collect();
    let hours = if whole.is_empty() { hours.iter().collect() } else { whole };
    let mut means: Vec<MilliGpu> = hours.into_iter().map(StepBucket::mean).collect();
    means.sort_unstable();
    let below = means.len() * (1000 - FLOOR_HOURS) / 1000;
    means.get(below).copied().unwrap_or(MilliGpu(0))
}

fn by_hour(steps: &DemandSteps) -> Vec<HourOfDay> {
    let mut hours = [(GpuTime::default(), Span::ZERO, MilliGpu(0)); 24];
    for bucket in steps.buckets(Timestamp(0), Span(HOUR_MS)) {
        let (time, length, peak) = &mut hours[(bucket.from.0 / HOUR_MS % 24) as usize];
        *time += bucket.time;
        *length += bucket.length;
        *peak = (*peak).max(bucket.peak);
    }
    let seen = (0..).zip(hours).filter(|(_, (_, length, _))| *length > Span::ZERO);
    seen.map(|(hour, (time, length, peak))| HourOfDay { hour, mean: per(time, length), peak }).collect()
}

/// In whole minutes a part where it can be.
fn course(steps: &DemandSteps) -> Vec<StepBucket> {
    let window = steps.window();
    let length = window.length().0.div_ceil(COLUMNS).max(1);
    let length = if length > 60_000 { length.next_multiple_of(60_000) } else { length };
    steps.buckets(window.from, Span(length))
}
