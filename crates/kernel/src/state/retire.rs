//! What is over leaves the state: jobs when enough others have ended after them, names once nothing refers to them.
//!
//! ```text
//! batch n          a job ends: the archive takes it in the transaction of that batch
//! batch n+1 ..     the state still knows it, for whoever asks at once
//! some tick later  1,024 others have ended since: its row goes
//! ```
//!
//! Names (classes, queues, batch keys, models, racks) are swept when there are more of them than twice what refers to them and then
//! some, so a sweep costs each of them a constant. The number that is spared keeps small sets of names stable.
//!
//! Never: takes out what is open, or a service before its last replica.

use super::State;
use super::names::Names;
use crate::decision::Outcome;
use crate::event::EarlierJob;
use crate::ids::{BatchId, ClassId, JobId, ModelId, QueueId, RackId};
use crate::state::SharedSpec;
use crate::state::jobs::{Job, Phase};
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Jobs that are over and stay: those that somebody is most likely to ask about, without a word from the archive. At some 2 KiB each
/// (what only an executor needed is gone already) they are 2 MiB.
pub const KEPT_FINISHED: usize = 1024;

/// Names that are kept although nothing may refer to them: some 1 MiB, and no sweep in a small installation.
const SPARED: usize = 4096;

/// A job that is over, as the archive keeps it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FinishedJob {
    /// Its row as it ended.
    pub job: Job,
    /// What was asked for, without what only its executor needed.
    pub spec: SharedSpec,
    /// The name of its tier when it ended: a later policy may give the number in [`Job::tier`] to another.
    pub tier: String,
}

impl FinishedJob {
    /// What stays known of it for ever. `None`: a replica, which has no identity.
    #[must_use]
    pub fn identity(&self) -> Option<EarlierJob> {
        let FinishedJob { job, spec, .. } = self;
        let service = spec.service.is_some();
        job.service.is_none().then_some(EarlierJob { job: job.id, digest: spec.digest, sent: spec.sent, service })
    }

    /// How it ended. `None`: it has not.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        match self.job.phase {
            Phase::Done { outcome } => Some(outcome),
            _ => None,
        }
    }
}

impl State {
    /// The jobs that ended in the open batch, or in the last one when none is open: what the archive takes. Replicas are nobody's jobs.
    #[must_use]
    pub fn finished(&self) -> Vec<FinishedJob> {
        let tiers = self.policy.as_deref().map_or(&[][..], |policy| &policy.tiers);
        let copy = |id: &JobId| {
            let (job, spec) = (self.jobs.get(*id)?.clone(), self.specs.get(*id)?.clone());
            let tier = tiers.get(job.tier.index()).map(|tier| tier.name.clone()).unwrap_or_default();
            Some(FinishedJob { job, spec, tier })
        };
        self.ended_in_batch.iter().filter_map(copy).collect()
    }

    /// Takes out the jobs that ended first, beyond those that stay.
    pub(crate) fn retire(&mut self) {
        let surplus = self.index.finished.len().saturating_sub(self.kept_finished());
        let waits = |id: &JobId| self.index.replicas.contains_key(id);
        let oldest = self.index.finished.iter().map(|(_, id)| *id).take(surplus);
        let over: Vec<JobId> = oldest.filter(|id| !waits(id)).collect();
        for id in over {
            self.remove_job(id);
        }
        let names = self.classes.len() + self.queues.len() + self.batches.len() + self.models.len() + self.racks.len();
        if names > SPARED + 2 * (self.jobs.len() + self.nodes.len() + self.declared_names()) {
            self.sweep_names();
        }
    }

    fn kept_finished(&self) -> usize {
        self.keeps_finished.map_or(KEPT_FINISHED, |n| n as usize)
    }

    fn remove_job(&mut self, id: JobId) {
        let Some(job) = self.jobs.remove(id) else { return };
        self.woken.remove(&id);
        if job.service.is_none() {
            self.counters.retired += 1;
        } else {
            self.counters.replicas_retired += 1;
        }
        let Some(spec) = self.specs.remove(id) else { return };
        self.index.job_out(&job, &spec);
        let identity = (spec.tenant.clone(), spec.subject.clone());
        if job.service.is_none() && self.index.by_identity.get(&identity) == Some(&id) {
            self.index.by_identity.remove(&identity);
        }
    }

    fn declared_names(&self) -> usize {
        let policy = self.policy.as_deref();
        policy.map_or(0, |p| p.queues.len()) + self.offerings.len()
    }

    /// Takes out every name that no row and no policy refers to.
    fn sweep_names(&mut self) {
        let classes: BTreeSet<ClassId> = self.jobs.rows().map(|job| job.class).collect();
        let unused: Vec<ClassId> = self.classes.ids().filter(|id| !classes.contains(id)).collect();
        for id in unused {
            self.classes.remove(id);
            self.index.lines.class_out(id);
        }
        let shapes = || self.classes.rows().map(|class| &class.shape);
        let batches: BTreeSet<BatchId> = shapes().filter_map(|shape| shape.batch).collect();
        let listed = self.offerings.iter().flat_map(|row| row.models.iter().copied());
        let models: BTreeSet<ModelId> = shapes().flat_map(|shape| shape.models.iter().copied()).chain(listed).collect();
        let racks: BTreeSet<RackId> = self.nodes.values().filter_map(|node| node.rack).collect();
        let of_jobs = self.jobs.rows().map(|job| job.queue);
        let of_shapes = shapes().map(|shape| shape.queue);
        let of_batches = self.batches.iter().filter(|(id, _)| batches.contains(id)).map(|(_, (queue, _))| *queue);
        let mut queues: BTreeSet<QueueId> = of_jobs.chain(of_shapes).chain(of_batches).collect();
        if let Some(policy) = self.policy.as_deref() {
            queues.extend(self.queues.iter().filter(|(_, q)| policy.queues.contains_key(&q.path)).map(|(id, _)| id));
        }
        self.batches.retain(|id| batches.contains(&id));
        self.models.retain(|id| models.contains(&id));
        self.racks.retain(|id| racks.contains(&id));
        self.queues.retain(|id| queues.contains(&id));
        self.observed.retain_queues(|id| queues.contains(&id));
        self.names = Names::rebuilt(self);
    }
}
