//! Latency tolerance: how long work may wait for its start, by share of it, as far as somebody has said.
//!
//! ```text
//! max_wait_s of the job                                  that
//! a deadline                                             deadline - submission - duration; none left: 0, and out of reach
//! the start target of its queue in the policy in force   that
//! several of them                                        the least
//! ```
//!
//! Never: patience that nobody has stated.

use super::DemandJob;
use forebay_kernel::units::{GpuTime, Span};

/// Upper ends of the bands: at once, then what a person, a meal and a night wait for.
const BANDS: [Span; 5] = [Span::ZERO, Span::mins(1), Span::mins(15), Span::mins(60), Span::mins(8 * 60)];

/// Who says it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ToleranceSource {
    /// The job's own longest wait.
    MaxWait,
    /// Its deadline.
    Deadline,
    /// Its deadline, which it could not have met.
    OutOfReach,
    /// Its queue's start target.
    StartTarget,
}

/// How long a job may wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tolerance {
    /// So long.
    pub wait: Span,
    /// Who says it.
    pub source: ToleranceSource,
}

impl Tolerance {
    /// What is left before a deadline, as seen at submission, `before` it by so long.
    #[must_use]
    pub fn until_deadline(before: Span, lasts: Span) -> Tolerance {
        match before.0.checked_sub(lasts.0) {
            Some(left) => Tolerance { wait: Span(left), source: ToleranceSource::Deadline },
            None => Tolerance { wait: Span::ZERO, source: ToleranceSource::OutOfReach },
        }
    }
}

/// What may wait so long.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ToleranceBand {
    /// At most this. `None`: any longer.
    pub up_to: Option<Span>,
    /// Jobs.
    pub jobs: u64,
    /// The GPU time that they ask for.
    pub work: GpuTime,
}

/// How long work may wait.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ToleranceProfile {
    /// 1/10 of the stated work may wait at most this long; likewise below.
    pub p10: Span,
    /// Half of it.
    pub p50: Span,
    /// 9/10 of it.
    pub p90: Span,
    /// All bands, the shortest first.
    pub bands: Vec<ToleranceBand>,
    /// Work of which somebody has said it.
    pub stated: ToleranceBand,
    /// Work of which nobody has.
    pub unstated: ToleranceBand,
    /// Jobs by who says it.
    pub sources: Vec<(ToleranceSource, u64)>,
}

impl ToleranceProfile {
    /// Of these jobs. `None`: nobody has said it of any.
    pub(super) fn of(jobs: &[&DemandJob]) -> Option<ToleranceProfile> {
        let ends = BANDS.iter().map(|end| Some(*end)).chain([None]);
        let mut bands: Vec<ToleranceBand> =
            ends.map(|up_to| ToleranceBand { up_to, ..ToleranceBand::default() }).collect();
        let (mut stated, mut unstated) = (ToleranceBand::default(), ToleranceBand::default());
        let mut sources = std::collections::BTreeMap::new();
        let mut waits: Vec<(Span, GpuTime)> = Vec::new();
        for job in jobs {
            let work = job.work().unwrap_or_default();
            let Some(Tolerance { wait, source }) = job.tolerance else {
                unstated.add(work);
                continue;
            };
            *sources.entry(source).or_default() += 1;
            stated.add(work);
            waits.push((wait, work));
            if let Some(band) = bands.iter_mut().find(|band| band.up_to.is_none_or(|end| wait <= end)) {
                band.add(work);
            }
        }
        if waits.is_empty() {
            return None;
        }
        waits.sort_unstable();
        let by_work = |permille: u128| {
            let mut passed = 0;
            let found = waits.iter().find(|(_, work)| {
                passed += work.0;
                passed * 1000 >= stated.work.0 * permille
            });
            found.map_or(Span::ZERO, |(wait, _)| *wait)
        };
        let (p10, p50, p90) = (by_work(100), by_work(500), by_work(900));
        let sources = sources.into_iter().collect();
        Some(ToleranceProfile { p10, p50, p90, bands, stated, unstated, sources })
    }
}

impl ToleranceBand {
    fn add(&mut self, work: GpuTime) {
        self.jobs += 1;
        self.work += work;
    }
}
