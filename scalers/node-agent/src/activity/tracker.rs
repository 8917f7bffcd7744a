//! The bookkeeping of observations: how long each worker has computed, held memory, and been idle without a pause.
//!
//! ```text
//! sample     B   I   I   I   ?   I   I         B computes, I idle, ? not known
//! idle       0   0   1   2   -   0   1         counted between two idle samples, from the start after anything else
//! ```
//!
//! Time counts only between two samples that are near each other. After a longer gap (the agent or the driver was stopped) nobody knows what
//! was done in it, so idleness begins again. What the controller has not acknowledged is kept as one sum a worker, within bounds.
//! Never: a clock. The caller says what time it is, from the start of the agent.

use super::judge::WorkerReading;
use super::report::{ActivityReport, MOST_WORKERS_REPORTED, WorkerActivity};
use crate::worker::WorkerName;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// So many intervals may pass between two samples that are near each other: a read now and then takes longer.
const NEAR: u32 = 3;
/// Workers that have ended and are not acknowledged yet. More than end on a node while a controller is restarted.
const MOST_ENDED: usize = 256;

/// The observations of one start of the agent.
#[derive(Debug)]
pub(crate) struct ActivityTracker {
    near: Duration,
    last: Option<Duration>,
    workers: BTreeMap<WorkerName, Tracked>,
    /// All that was ever counted, for the agent's own metrics.
    totals: ActivityTotals,
    dropped: u64,
    /// Workers in the last sample for which there was no room. They are counted already.
    left_out: BTreeSet<WorkerName>,
    sequence: u64,
    since: u64,
    /// What the last report contained.
    reported: BTreeMap<WorkerName, (ActivityTotals, bool)>,
}

/// Sums of times in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ActivityTotals {
    pub observed: u64,
    pub busy: u64,
    pub resident: u64,
}

#[derive(Debug)]
struct Tracked {
    reading: WorkerReading,
    /// Not acknowledged yet.
    sums: ActivityTotals,
    idle: Option<Duration>,
    /// When it was seen last.
    seen: Duration,
    ended: bool,
    /// The controller knows of it.
    acknowledged: bool,
}

impl ActivityTracker {
    /// For samples at this interval.
    pub fn new(interval: Duration) -> ActivityTracker {
        ActivityTracker {
            near: interval * NEAR,
            last: None,
            workers: BTreeMap::new(),
            totals: ActivityTotals::default(),
            dropped: 0,
            left_out: BTreeSet::new(),
            sequence: 0,
            since: 0,
            reported: BTreeMap::new(),
        }
    }

    /// Takes a sample: what the workers that are there do at this time.
    pub fn observe(&mut self, now: Duration, readings: &BTreeMap<WorkerName, WorkerReading>) {
        let step = self.last.map(|last| now.saturating_sub(last)).filter(|step| *step <= self.near);
        self.last = Some(now);
        for (name, tracked) in &mut self.workers {
            match readings.get(name) {
                Some(reading) => {
                    let counted = tracked.observe(*reading, step.filter(|_| !tracked.ended));
                    tracked.seen = now;
                    self.totals.add(counted);
                }
                None => {
                    (tracked.ended, tracked.idle) = (true, None);
                }
            }
        }
        let before = std::mem::take(&mut self.left_out);
        for (name, reading) in readings {
            if self.workers.contains_key(name) {
                continue;
            }
            if self.workers.values().filter(|tracked| !tracked.ended).count() >= MOST_WORKERS_REPORTED - MOST_ENDED {
                self.dropped += u64::from(!before.contains(name));
                self.left_out.insert(*name);
                continue;
            }
            let idle = (reading.computes == Some(false)).then_some(Duration::ZERO);
            let sums = ActivityTotals::default();
            self.workers
                .insert(*name, Tracked { reading: *reading, sums, idle, seen: now, ended: false, acknowledged: false });
        }
        self.forget_ended();
    }

    /// There are no figures at this time: nothing is known of any worker.
    pub fn observe_nothing(&mut self) {
        self.last = None;
        for tracked in self.workers.values_mut() {
            (tracked.idle, tracked.reading) = (None, WorkerReading::default());
        }
    }

    /// Those that ended first are dropped first.
    fn forget_ended(&mut self) {
        let mut ended: Vec<(Duration, WorkerName)> = self
            .workers
            .iter()
            .filter(|(_, tracked)| tracked.ended)
            .map(|(name, tracked)| (tracked.seen, *name))
            .collect();
        ended.sort_unstable();
        for (_, name) in ended.iter().take(ended.len().saturating_sub(MOST_ENDED)) {
            self.workers.remove(name);
            self.dropped += 1;
        }
    }

    /// The next report, of all that is not acknowledged. It takes the place of those before it.
    pub fn report(&mut self, now: Duration, about: ActivityReport) -> ActivityReport {
        self.sequence += 1;
        let fresh = self.last.is_some_and(|last| now.saturating_sub(last) <= self.near);
        self.reported = self.workers.iter().map(|(name, tracked)| (*name, (tracked.sums, tracked.ended))).collect();
        let workers = self.workers.iter().map(|(name, tracked)| tracked.activity(*name, fresh)).collect();
        ActivityReport { sequence: self.sequence, since: self.since, dropped: self.dropped, workers, ..about }
    }

    /// The controller has taken a report.
    pub fn acknowledge(&mut self, sequence: u64) {
        if sequence != self.sequence || sequence == self.since {
            return;
        }
        self.since = sequence;
        for (name, (sums, ended)) in std::mem::take(&mut self.reported) {
            if let Some(tracked) = self.workers.get_mut(&name) {
                tracked.sums.subtract(sums);
                tracked.acknowledged = true;
                if ended && tracked.ended {
                    self.workers.remove(&name);
                }
            }
        }
    }

    /// Whether some worker is idle now, or new. Then its controller should know soon.
    pub fn is_urgent(&self) -> bool {
        self.workers.values().any(|tracked| tracked.idle.is_some() || !tracked.acknowledged)
    }

    /// Whether there is no worker to report.
    pub fn is_empty(&self) -> bool {
        self.workers.is_empty()
    }

    /// Workers that compute, are idle, and of which that is not known.
    pub fn counts(&self) -> [usize; 3] {
        let of = |computes: Option<bool>| {
            self.workers.values().filter(|tracked| !tracked.ended && tracked.reading.computes == computes).count()
        };
        [of(Some(true)), of(Some(false)), of(None)]
    }

    /// All that was counted since the start.
    pub fn totals(&self) -> ActivityTotals {
        self.totals
    }

    /// Workers whose observations were dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

impl ActivityTotals {
    fn add(&mut self, more: ActivityTotals) {
        self.observed += more.observed;
        self.busy += more.busy;
        self.resident += more.resident;
    }

    fn subtract(&mut self, less: ActivityTotals) {
        self.observed = self.observed.saturating_sub(less.observed);
        self.busy = self.busy.saturating_sub(less.busy);
        self.resident = self.resident.saturating_sub(less.resident);
    }
}

impl Tracked {
    /// Counts the time since the sample before. `step` is `None` where that is unknown or was long ago.
    fn observe(&mut self, reading: WorkerReading, step: Option<Duration>) -> ActivityTotals {
        let ms = step.map_or(0, |step| u64::try_from(step.as_millis()).unwrap_or(u64::MAX));
        let of = |counts: bool| if counts { ms } else { 0 };
        let counted = ActivityTotals {
            observed: of(reading.computes.is_some()),
            busy: of(reading.computes == Some(true)),
            resident: of(reading.resident == Some(true)),
        };
        self.sums.add(counted);
        self.idle = match (reading.computes, self.idle, step) {
            (Some(false), Some(idle), Some(step)) => Some(idle + step),
            (Some(false), ..) => Some(Duration::ZERO),
            _ => None,
        };
        (self.reading, self.ended) = (reading, false);
        counted
    }

    fn activity(&self, worker: WorkerName, fresh: bool) -> WorkerActivity {
        let computes = self.reading.computes.filter(|_| fresh && !self.ended);
        let idle = self.idle.map(|idle| u64::try_from(idle.as_millis()).unwrap_or(u64::MAX));
        WorkerActivity {
            worker,
            gpus: self.reading.gpus,
            memory_mib: self.reading.memory_mib,
            observed_ms: self.sums.observed,
            busy_ms: self.sums.busy,
            resident_ms: self.sums.resident,
            computes,
            idle_ms: idle.filter(|_| computes == Some(false)),
            ended: self.ended,
        }
    }
}

#[cfg(test)]
#[path = "tracker_tests.rs"]
mod tests;
