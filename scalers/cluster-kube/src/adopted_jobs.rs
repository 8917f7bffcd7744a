//! The jobs of adopted objects in the engine's state: found once, and then looked at where they may have changed.
//!
//! ```text
//! jobs accepted since, jobs that are or were alive, those that wait where a job has ended or all are asked for -> changes of EngineView::adopted
//! ```
//!
//! Never: a walk over all jobs but for the first time.

use crate::adoption::WorkloadId;
use crate::view::{AdoptedView, adopted_view};
use forebay_kernel::ids::JobId;
use forebay_kernel::job::JobSpec;
use forebay_kernel::state::State;
use forebay_kernel::state::jobs::Job;
use std::collections::{BTreeMap, BTreeSet};

/// Which jobs that wait are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitingScope {
    /// All, where any job has ended: what else changes of one that waits is why it does.
    IfEnded,
    /// All.
    All,
}

/// What was found so far. Bounded by the jobs of adopted objects that the state has.
#[derive(Clone, Debug, Default)]
pub struct AdoptedJobs {
    /// All jobs up to this one were looked at.
    last: Option<JobId>,
    waiting: BTreeSet<JobId>,
    alive: BTreeSet<JobId>,
    over: BTreeSet<JobId>,
    /// The uid of each job's object, and the latest job of each uid.
    uid_of: BTreeMap<JobId, String>,
    job_of: BTreeMap<String, JobId>,
    /// Jobs that had ended, by outcome, and those that had left the state.
    ended: [u64; 4],
    retired: u64,
}

impl AdoptedJobs {
    /// What has changed of adopted objects since the last time, by uid. `None`: the engine does not know it any more. The first time it is all of them.
    /// A change of one that is alive may be none.
    pub fn changes(&mut self, state: &State, scope: WaitingScope) -> BTreeMap<String, Option<AdoptedView>> {
        let counters = state.counters();
        let mut jobs = std::mem::take(&mut self.alive);
        let adopted = |(_, spec): &(&Job, &JobSpec)| WorkloadId::of_job(&spec.principal, &spec.subject).is_some();
        jobs.extend(state.alive_jobs().filter(adopted).map(|(job, _)| job.id));
        let accepted = state.jobs().rev().take_while(|(job, _)| self.last.is_none_or(|last| job.id > last));
        jobs.extend(accepted.filter(adopted).map(|(job, _)| job.id));
        if scope == WaitingScope::All || counters.outcomes != self.ended {
            jobs.extend(&self.waiting);
        }
        if counters.retired != self.retired {
            jobs.extend(self.over.iter().filter(|job| state.job(**job).is_none()));
        }
        self.last = state.jobs().next_back().map(|(job, _)| job.id).max(self.last);
        (self.ended, self.retired) = (counters.outcomes, counters.retired);
        let mut changes = BTreeMap::new();
        // In order of acceptance: where an object has two jobs, the later one counts.
        for job in jobs {
            self.examine(state, job, &mut changes);
        }
        changes
    }

    fn examine(&mut self, state: &State, id: JobId, changes: &mut BTreeMap<String, Option<AdoptedView>>) {
        for known in [&mut self.waiting, &mut self.alive, &mut self.over] {
            known.remove(&id);
        }
        let found = state.job(id);
        let found =
            found.and_then(|(job, spec)| Some((job, spec, WorkloadId::of_job(&spec.principal, &spec.subject)?)));
        let Some((job, spec, object)) = found else { return self.forget(id, changes) };
        let known = match (job.alive(), job.done()) {
            (true, _) => &mut self.alive,
            (false, true) => &mut self.over,
            (false, false) => &mut self.waiting,
        };
        known.insert(id);
        self.uid_of.insert(id, object.uid.clone());
        let latest = self.job_of.entry(object.uid.clone()).or_insert(id);
        if *latest <= id {
            *latest = id;
            changes.insert(object.uid.clone(), Some(adopted_view(state, job, spec, object)));
        }
    }

    /// A job has left the state.
    fn forget(&mut self, id: JobId, changes: &mut BTreeMap<String, Option<AdoptedView>>) {
        let Some(uid) = self.uid_of.remove(&id) else { return };
        if self.job_of.get(&uid) == Some(&id) {
            self.job_of.remove(&uid);
            changes.insert(uid, None);
        }
    }
}
