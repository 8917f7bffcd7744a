//! Runs by pool, in orders that time does not change, from which it is told which of them are expected to end first without a look at all of them.
//!
//! ```text
//! learned   by what the length of their work is learned by: since when it would have gone on, had it never stopped
//! stated    by when the work that they stated is done
//! limits    by when they have to be over
//! others    booked, starting, stopping: each is looked at
//! ```
//!
//! A run that states how long it takes is not among those by what is learned, even once that is over.
//!
//! Never: says when a run is expected to end.

use super::jobs::{Job, Phase};
use super::observed_stats::FamilyOfWork;
use crate::ids::{JobId, PoolId};
use crate::job::JobSpec;
use crate::units::Timestamp;
use alloc::collections::{BTreeMap, BTreeSet};
use core::ops::Bound::{Excluded, Unbounded};

/// A run by an instant of its.
pub type RunKey = (Timestamp, JobId);

/// All that hold places, by pool.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RunEnds {
    pools: BTreeMap<PoolId, RunsOfPool>,
}

/// What holds places in a pool.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RunsOfPool {
    learned: BTreeMap<FamilyOfWork, BTreeSet<RunKey>>,
    stated: BTreeSet<RunKey>,
    limits: BTreeSet<RunKey>,
    others: BTreeSet<JobId>,
}

/// Where a run is among them.
enum Among {
    Learned(FamilyOfWork, Timestamp),
    Stated(Timestamp),
    Others,
}

impl Among {
    fn of(job: &Job, spec: &JobSpec) -> Among {
        let since = job.running_since.filter(|since| job.phase == Phase::Running && since.0 >= job.resume_from.0);
        let Some(since) = since else { return Among::Others };
        let begun = since - job.resume_from;
        match spec.expected {
            Some(expected) => Among::Stated(begun + expected + spec.restart),
            None => Among::Learned(FamilyOfWork::of(job.queue, spec), begun),
        }
    }
}

impl RunEnds {
    /// Those of a pool.
    #[must_use]
    pub fn of(&self, pool: PoolId) -> Option<&RunsOfPool> {
        self.pools.get(&pool)
    }

    pub(super) fn add(&mut self, job: &Job, spec: &JobSpec) {
        let Some(pool) = job.pool.filter(|_| !job.places.is_empty()) else { return };
        let runs = self.pools.entry(pool).or_default();
        match Among::of(job, spec) {
            Among::Learned(by, begun) => _ = runs.learned.entry(by).or_default().insert((begun, job.id)),
            Among::Stated(over) => _ = runs.stated.insert((over, job.id)),
            Among::Others => {
                runs.others.insert(job.id);
                return;
            }
        }
        runs.limits.insert((job.must_end_by, job.id));
    }

    pub(super) fn remove(&mut self, job: &Job, spec: &JobSpec) {
        let Some(pool) = job.pool.filter(|_| !job.places.is_empty()) else { return };
        let Some(runs) = self.pools.get_mut(&pool) else { return };
        match Among::of(job, spec) {
            Among::Learned(by, begun) => {
                if let Some(row) = runs.learned.get_mut(&by) {
                    row.remove(&(begun, job.id));
                    if row.is_empty() {
                        runs.learned.remove(&by);
                    }
                }
            }
            Among::Stated(over) => _ = runs.stated.remove(&(over, job.id)),
            Among::Others => _ = runs.others.remove(&job.id),
        }
        runs.limits.remove(&(job.must_end_by, job.id));
        if *runs == RunsOfPool::default() {
            self.pools.remove(&pool);
        }
    }
}

impl RunsOfPool {
    /// By what the lengths of those are learned that state none, with the first of each that began.
    pub fn families(&self) -> impl Iterator<Item = (FamilyOfWork, RunKey)> + '_ {
        self.learned.iter().filter_map(|(by, runs)| Some((*by, *runs.first()?)))
    }

    /// The next of those whose length is learned by the same, of what began after this key.
    #[must_use]
    pub fn begun_after(&self, by: FamilyOfWork, key: RunKey) -> Option<RunKey> {
        after(self.learned.get(&by)?, key)
    }

    /// The next of those whose stated work is done after this key.
    #[must_use]
    pub fn stated_after(&self, key: RunKey) -> Option<RunKey> {
        after(&self.stated, key)
    }

    /// The next that has to be over after this key.
    #[must_use]
    pub fn limit_after(&self, key: RunKey) -> Option<RunKey> {
        after(&self.limits, key)
    }

    /// Those of which none of the orders says anything at an instant: what has not begun or is being stopped, and what outlasts what it stated.
    pub fn unordered(&self, now: Timestamp) -> impl Iterator<Item = JobId> + '_ {
        let over = self.stated.range(..=(now, JobId(u64::MAX))).map(|key| key.1);
        self.others.iter().copied().chain(over)
    }
}

fn after(keys: &BTreeSet<RunKey>, key: RunKey) -> Option<RunKey> {
    keys.range((Excluded(key), Unbounded)).next().copied()
}
