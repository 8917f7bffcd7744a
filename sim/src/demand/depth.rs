//! Queue depth: how many jobs, and how many GPUs, wait at once for a first start, and for how long.
//!
//! Never: a wait of what never started among those of what did.

use super::steps::per;
use super::{DemandJob, DemandSteps, DemandWindow, HeldSpell, SpanPercentiles};
use forebay_kernel::units::{MilliGpu, Span, Timestamp};

/// What is known of a job's wait for its first start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitSeen {
    /// Nothing.
    Unknown,
    /// It started.
    Started(Timestamp),
    /// It was over without a start.
    GaveUp(Timestamp),
    /// It waits.
    Waiting,
}

/// How much of something there is at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DepthFigures {
    /// The mean, in 1/1000.
    pub mean: u64,
    /// Half of the time it is at most this, in 1/1000; likewise below.
    pub p50: u64,
    /// 9/10 of the time.
    pub p90: u64,
    /// 99/100 of the time.
    pub p99: u64,
    /// The most.
    pub peak: u64,
}

/// What waits at once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DepthProfile {
    /// Jobs.
    pub jobs: DepthFigures,
    /// The GPUs that they ask for.
    pub gpus: DepthFigures,
    /// How long those waited that started. `None`: none has.
    pub waits: Option<SpanPercentiles>,
    /// Jobs that wait at the end.
    pub waiting: u64,
    /// Jobs that were over without a start.
    pub gave_up: u64,
}

impl DepthFigures {
    fn of(steps: &DemandSteps) -> DepthFigures {
        let over_time = |permille| steps.over_time(permille).0;
        DepthFigures {
            mean: per(steps.time(), steps.window().length()).0,
            p50: over_time(500),
            p90: over_time(900),
            p99: over_time(990),
            peak: steps.peak().0,
        }
    }
}

impl DepthProfile {
    /// Of these jobs. `None`: of none the wait is known.
    pub(super) fn of(jobs: &[&DemandJob], window: DemandWindow) -> Option<DepthProfile> {
        let spell = |job: &DemandJob, gpus| {
            let to = match job.wait {
                WaitSeen::Unknown => return None,
                WaitSeen::Started(at) | WaitSeen::GaveUp(at) => at,
                WaitSeen::Waiting => window.to,
            };
            Some(HeldSpell { from: job.submitted, to, gpus })
        };
        if jobs.iter().all(|job| job.wait == WaitSeen::Unknown) {
            return None;
        }
        let count = |is: fn(WaitSeen) -> bool| jobs.iter().filter(|job| is(job.wait)).count() as u64;
        let started = |job: &&DemandJob| match job.wait {
            WaitSeen::Started(at) => Some(at.since(job.submitted)),
            _ => None,
        };
        let waits: Vec<Span> = jobs.iter().copied().filter_map(|job| started(&job)).collect();
        let each = jobs.iter().filter_map(|job| spell(job, MilliGpu::whole(1)));
        let gpus = jobs.iter().filter_map(|job| spell(job, job.share));
        Some(DepthProfile {
            jobs: DepthFigures::of(&DemandSteps::of(each, window)),
            gpus: DepthFigures::of(&DemandSteps::of(gpus, window)),
            waits: SpanPercentiles::of(waits),
            waiting: count(|wait| wait == WaitSeen::Waiting),
            gave_up: count(|wait| matches!(wait, WaitSeen::GaveUp(_))),
        })
    }
}
