//! Lookups derived from the rows: who waits, who is free, what is due. Rebuilt from nothing after a restore; the audit compares
//! the kept index with a rebuilt one.
//!
//! Never: holds anything that the rows do not say.

use super::jobs::{Job, Kept, Phase, Wait};
use super::kept::KeptQuota;
use super::known::KnownClasses;
use super::lines::ClassLines;
use super::nodes::{Node, NodePhase, Purchase};
use super::pending_cancels::PendingCancelKey;
use super::positions::QueuePositions;
use super::replica_counts::ReplicaCounts;
use super::run_ends::RunEnds;
use super::table::Table;
use super::{Class, State};
use crate::decision::{EffectOf, Outcome, StopCause};
use crate::ids::{ClassId, JobId, NodeId, OfferingId, PoolId, QueueId, TierId};
use crate::job::JobSpec;
use crate::reason::Reason;
use crate::units::{Mib, MilliCpu, MilliGpu, Span, Timestamp};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;

/// Order within a queue: who has to start by a time before who has not, the earliest first; then higher priority, then earlier arrival, then lower id. With ageing, priority counts as earlier arrival: as all
/// age alike, the order of two jobs never changes while they wait.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct OrderKey {
    /// The latest start that meets its deadline.
    pub start_by: Timestamp,
    /// Negated priority, so that higher comes first; with ageing the arrival less priority x what a point of it is worth.
    pub rank: i128,
    /// Kept through requeues, but for runs that shorter jobs of their queue have stopped: see [`Job::stands_from`].
    pub arrival: Timestamp,
    /// Which job.
    pub job: JobId,
}

impl OrderKey {
    /// The key of a job. `ageing`: what a point of priority is worth in waiting; `None`: priority is strict.
    #[must_use]
    pub fn of(job: &Job, ageing: Option<Span>) -> OrderKey {
        let priority = i128::from(job.priority);
        let from = job.stands_from();
        let rank = ageing.map_or(-priority, |point| i128::from(from.0) - priority * i128::from(point.0));
        OrderKey { start_by: job.start_by, rank, arrival: from, job: job.id }
    }
}

/// All lookups.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Index {
    /// Jobs that wait, by class.
    pub queued: BTreeMap<ClassId, BTreeSet<OrderKey>>,
    /// How many of a class are before one of them.
    pub positions: QueuePositions,
    /// Their classes, by what all but CPU and memory are.
    pub lines: ClassLines,
    /// Jobs that hold places which are not all ready, by class.
    pub booked: BTreeMap<ClassId, BTreeSet<OrderKey>>,
    /// Those of them that have a start target.
    pub booked_by_target: BTreeSet<JobId>,
    /// Jobs that settle has to look at.
    pub unsettled: BTreeSet<JobId>,
    /// Claims that settle has to look at.
    pub unsettled_nodes: BTreeSet<NodeId>,
    /// Runs that could be stopped for others.
    pub running: BTreeMap<TierId, BTreeSet<JobId>>,
    /// Free capacity by pool and offering.
    pub free: BTreeMap<(PoolId, OfferingId), Free>,
    /// Ready nodes with nothing on them. Owned ones are not among them: nobody pays for less by giving them back.
    pub idle: BTreeSet<NodeId>,
    /// Those of them that are not kept for a job, by the end of the time that each may be idle.
    pub idle_until: BTreeMap<(PoolId, OfferingId), BTreeSet<(Timestamp, NodeId)>>,
    /// Nodes that take no new work and are looked at again.
    pub draining: BTreeSet<NodeId>,
    /// Claims in flight that nothing is booked on.
    pub unbooked: BTreeSet<NodeId>,
    /// Owned nodes that have left and that nothing runs on any more.
    pub left: BTreeSet<NodeId>,
    /// When to look at which row again.
    pub timers: BTreeSet<(Timestamp, EffectOf)>,
    /// When the deadline of which job is looked at again.
    pub reassess: BTreeSet<(Timestamp, JobId)>,
    /// Claims by the cloud's id.
    pub by_instance: BTreeMap<String, NodeId>,
    /// Jobs by identity: (tenant, subject).
    pub by_identity: BTreeMap<(String, String), JobId>,
    /// When the protection of each run ends: it may be stopped for others from then on.
    pub protection_ends: BTreeSet<(Timestamp, JobId)>,
    /// Jobs that are not over.
    pub open_jobs: BTreeSet<JobId>,
    /// Jobs that are over and have not left the state, in the order of their ends.
    pub finished: BTreeSet<(Timestamp, JobId)>,
    /// Jobs that hold places, by pool and by what tells which of them end first.
    pub run_ends: RunEnds,
    /// Jobs that hold places, by class.
    pub holding: BTreeMap<ClassId, BTreeSet<JobId>>,
    /// What a point of priority is worth in waiting, under the policy in force.
    pub ageing: Option<Span>,
    /// Waiting jobs that are not bought for yet, by class.
    pub deferred: BTreeMap<ClassId, BTreeSet<OrderKey>>,
    /// Those of them that nobody has looked at.
    pub newly_deferred: BTreeSet<JobId>,
    /// Those of them to whom the places of a run are promised, by its node.
    pub pledges: BTreeSet<(NodeId, JobId)>,
    /// Replicas that are not over, by service.
    pub replicas: BTreeMap<JobId, BTreeSet<JobId>>,
    /// Where they stand.
    pub replica_counts: ReplicaCounts,
    /// Runs that could be stopped for others, by queue.
    pub running_in: BTreeMap<QueueId, BTreeSet<JobId>>,
    /// Runs that are being stopped, or of which workers are leaving.
    pub ending: BTreeSet<JobId>,
    /// For how many of them it is that a job gets what they hold, by that job.
    pub ending_for: BTreeMap<JobId, u32>,
    /// Waiting jobs for which quota is kept.
    pub kept: BTreeSet<JobId>,
    /// What quota that is.
    pub kept_quota: KeptQuota,
    /// Jobs that the policy in force makes impossible.
    pub held: BTreeSet<JobId>,
    /// Those of them that another price would make possible, by class.
    pub held_by_price: BTreeMap<ClassId, BTreeSet<JobId>>,
    /// How many jobs there are of each class, with those that are over and have not left the state. None that was rejected.
    pub known: KnownClasses,
    /// How many jobs of each queue are accepted and not over.
    pub in_use_by_queue: BTreeMap<QueueId, u32>,
    /// Where in their lives the jobs of each class are.
    pub progress: BTreeMap<ClassId, ClassProgress>,
    /// What each tier holds: booked, running and stopping.
    pub in_use: BTreeMap<TierId, InUse>,
    /// How many jobs hold places and no GPU share, by pool. They use no quota.
    pub without_share: BTreeMap<PoolId, u32>,
    /// Nodes of which what frees is kept for a job, by that job.
    pub reserved: BTreeSet<(JobId, NodeId)>,
    /// Queues whose jobs an operator keeps from being admitted.
    pub held_queues: BTreeSet<QueueId>,
    /// Jobs of them that would wait in the order. They are in no lookup of those that wait.
    pub held_back: BTreeSet<JobId>,
    /// Cancels that are kept, oldest first.
    pub pending_cancels: BTreeSet<(Timestamp, PendingCancelKey)>,
}

/// How many jobs of a class are where in their lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClassProgress {
    /// Not over, and without a worker that may be alive.
    pub waiting: u32,
    /// With workers that may be alive, or serving.
    pub running: u32,
    /// Over, and not out of the state.
    pub over: u32,
}

impl ClassProgress {
    fn of(&mut self, job: &Job) -> &mut u32 {
        match job.phase {
            Phase::Done { .. } => &mut self.over,
            Phase::Starting | Phase::Running | Phase::Stopping { .. } | Phase::Serving => &mut self.running,
            _ => &mut self.waiting,
        }
    }
}

/// GPU share that the jobs of a tier hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InUse {
    /// All of it.
    pub all: MilliGpu,
    /// Without what is being stopped or is leaving.
    pub staying: MilliGpu,
}

/// 0 ready, 1 in flight; binary digits of the CPU left, and of the memory left; CPU left; node. Who asks for so many digits of both finds room
/// in every node that has more of both, and may find it where it has as many.
pub type BareKey = (u8, u8, u8, MilliCpu, NodeId);

/// Binary digits of a number.
#[must_use]
pub fn digits(number: u64) -> u8 {
    (u64::BITS - number.leading_zeros()) as u8
}

fn bare(node: &Node) -> BareKey {
    let (cpu, mem) = (node.cpu_left(), node.mem_left());
    (rank(node), digits(cpu.0), digits(mem.0), cpu, node.id)
}

/// Free capacity of one offering in one pool.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Free {
    /// (0 ready, 1 in flight; whole GPUs free; node): all open nodes.
    pub whole: BTreeSet<(u8, u16, NodeId)>,
    /// Those of them that have no GPUs, by what they have left: see [`BareKey`].
    pub bare: BTreeSet<BareKey>,
    /// (0 ready, 1 in flight; free share; node; GPU): GPUs in part taken.
    pub part: BTreeSet<(u8, u16, NodeId, u8)>,
    /// (0 ready, 1 in flight; stated share; memory; node; GPU; slice): free slices of partitioned GPUs.
    pub slices: BTreeSet<(u8, u16, Mib, NodeId, u8, u8)>,
    /// GPUs of all open nodes.
    pub gpus: u32,
    /// Those of them that others hold.
    pub foreign: u32,
}

impl Index {
    /// The index of a state, from nothing.
    #[must_use]
    pub fn rebuilt(state: &State) -> Index {
        let ageing = state.policy.as_deref().and_then(|p| p.fairness.ageing);
        let (pending_cancels, held_queues) = (state.pending_cancels_by_age(), state.held_queues());
        let mut index = Index { ageing, pending_cancels, held_queues, ..Index::default() };
        for (id, class) in state.classes.iter() {
            index.lines.class_in(id, &class.shape);
        }
        for (id, job) in state.jobs.iter() {
            index.job_in(job, &state.specs[id]);
        }
        for (job, spec) in state.jobs().filter(|(job, _)| job.service.is_none()) {
            // The latest job of an identity is the one that counts.
            index.by_identity.insert((spec.tenant.clone(), spec.subject.clone()), job.id);
        }
        for node in state.nodes.values() {
            index.node_in(node);
            index.name_in(node);
        }
        for purchase in state.purchases.values() {
            index.purchase_in(purchase);
        }
        index
    }

    /// GPU share that the jobs of a tier hold, booked or running.
    #[must_use]
    pub fn used_by_tier(&self, tier: TierId) -> MilliGpu {
        self.in_use.get(&tier).copied().unwrap_or_default().all
    }

    /// GPU share that all jobs hold.
    #[must_use]
    pub fn used_by_all(&self) -> MilliGpu {
        self.in_use.values().fold(MilliGpu(0), |all, one| all + one.all)
    }

    /// A job comes.
    pub(crate) fn job_in(&mut self, job: &Job, spec: &JobSpec) {
        self.recount(None, counts_as(job));
        self.row_in(job, spec);
    }

    /// A job leaves.
    pub(super) fn job_out(&mut self, job: &Job, spec: &JobSpec) {
        self.row_out(job, spec);
        self.recount(counts_as(job), None);
    }

    /// A job that counted as one of a class counts as one of another.
    pub(super) fn recount(&mut self, before: Option<ClassId>, after: Option<ClassId>) {
        if before != after {
            before.into_iter().for_each(|class| self.known.remove(class));
            after.into_iter().for_each(|class| self.known.add(class));
        }
    }

    /// A row of a job that stays, as it is now.
    pub(super) fn row_in(&mut self, job: &Job, spec: &JobSpec) {
        self.run_ends.add(job, spec);
        match job.phase {
            Phase::Queued if self.held_queues.contains(&job.queue) => _ = self.held_back.insert(job.id),
            Phase::Queued => self.queued_in(job),
            Phase::Booked => {
                self.booked.entry(job.class).or_default().insert(OrderKey::of(job, self.ageing));
                if job.start_target.is_some() {
                    self.booked_by_target.insert(job.id);
                }
            }
            Phase::Running => {
                self.running.entry(job.tier).or_default().insert(job.id);
                self.running_in.entry(job.queue).or_default().insert(job.id);
                self.protection_ends.insert((job.protected_until, job.id));
                if job.overdue_at != Timestamp::NEVER {
                    self.protection_ends.insert((job.overdue_at, job.id));
                }
                self.protection_ends.extend(job.turn_marks().map(|mark| (mark, job.id)));
            }
            Phase::Held => {
                self.held.insert(job.id);
                if is_held_by_price(job) {
                    self.held_by_price.entry(job.class).or_default().insert(job.id);
                }
            }
            _ => {}
        }
        if !job.places.is_empty() {
            self.holding.entry(job.class).or_default().insert(job.id);
        }
        if needs_settling(job) {
            self.unsettled.insert(job.id);
        }
        if job.done() {
            self.finished.insert((job.since, job.id));
        } else {
            self.open_jobs.insert(job.id);
            if let Some(service) = job.service {
                self.replicas.entry(service).or_default().insert(job.id);
            }
        }
        if is_accepted(job) {
            *self.in_use_by_queue.entry(job.queue).or_default() += 1;
        }
        *self.progress.entry(job.class).or_default().of(job) += 1;
        if ends(job) {
            self.ending.insert(job.id);
        }
        if let Some(by) = ends_for(job) {
            *self.ending_for.entry(by).or_default() += 1;
        }
        if let Some(kept) = keeps(job) {
            self.kept.insert(job.id);
            self.kept_quota.add(job, kept);
        }
        if let Some(more) = in_use(job) {
            let sum = self.in_use.entry(job.tier).or_default();
            *sum = InUse { all: sum.all + more.all, staying: sum.staying + more.staying };
        }
        if let Some(pool) = without_share(job) {
            *self.without_share.entry(pool).or_default() += 1;
        }
        if let Some(at) = self.job_due(job) {
            self.timers.insert((at, EffectOf::Job(job.id)));
        }
        if is_reassessed(job) {
            self.reassess.insert((job.reassess_at, job.id));
        }
    }

    /// A row of a job that stays, as it was.
    pub(super) fn row_out(&mut self, job: &Job, spec: &JobSpec) {
        self.run_ends.remove(job, spec);
        match job.phase {
            Phase::Queued if self.held_queues.contains(&job.queue) => _ = self.held_back.remove(&job.id),
            Phase::Queued => self.queued_out(job),
            Phase::Booked => {
                drop_from(&mut self.booked, job.class, &OrderKey::of(job, self.ageing));
                self.booked_by_target.remove(&job.id);
            }
            Phase::Running => {
                drop_from(&mut self.running, job.tier, &job.id);
                drop_from(&mut self.running_in, job.queue, &job.id);
                self.protection_ends.remove(&(job.protected_until, job.id));
                self.protection_ends.remove(&(job.overdue_at, job.id));
                job.turn_marks().for_each(|mark| _ = self.protection_ends.remove(&(mark, job.id)));
            }
            Phase::Held => {
                self.held.remove(&job.id);
                if is_held_by_price(job) {
                    drop_from(&mut self.held_by_price, job.class, &job.id);
                }
            }
            _ => {}
        }
        if !job.places.is_empty() {
            drop_from(&mut self.holding, job.class, &job.id);
        }
        self.unsettled.remove(&job.id);
        if job.done() {
            self.finished.remove(&(job.since, job.id));
        }
        self.open_jobs.remove(&job.id);
        if let Some(service) = job.service {
            drop_from(&mut self.replicas, service, &job.id);
        }
        if is_accepted(job) {
            less(&mut self.in_use_by_queue, job.queue, 1);
        }
        let progress = self.progress.entry(job.class).or_default();
        *progress.of(job) = progress.of(job).saturating_sub(1);
        if *progress == ClassProgress::default() {
            self.progress.remove(&job.class);
        }
        self.ending.remove(&job.id);
        if let Some(by) = ends_for(job) {
            less(&mut self.ending_for, by, 1);
        }
        if let Some(kept) = keeps(job) {
            self.kept.remove(&job.id);
            self.kept_quota.remove(job, kept);
        }
        if let Some(less) = in_use(job) {
            let sum = self.in_use.entry(job.tier).or_default();
            *sum = InUse { all: sum.all - less.all, staying: sum.staying - less.staying };
            if *sum == InUse::default() {
                self.in_use.remove(&job.tier);
            }
        }
        if let Some(pool) = without_share(job) {
            less(&mut self.without_share, pool, 1);
        }
        if let Some(at) = self.job_due(job) {
            self.timers.remove(&(at, EffectOf::Job(job.id)));
        }
        self.reassess.remove(&(job.reassess_at, job.id));
    }

    /// When a job has to be looked at again. What is held back waits for no start target.
    fn job_due(&self, job: &Job) -> Option<Timestamp> {
        let held_back = job.phase == Phase::Queued && self.held_queues.contains(&job.queue);
        if held_back { job.reserved_until } else { job_due(job) }
    }

    /// The shapes of classes are others now.
    pub(super) fn line_up(&mut self, classes: &Table<ClassId, Class>) {
        self.lines = ClassLines::default();
        for (id, class) in classes.iter() {
            self.lines.class_in(id, &class.shape);
            self.lines.head(id, None, self.first_queued(id));
        }
    }

    /// How many of a class wait before one of them.
    #[must_use]
    pub fn position(&self, class: ClassId, key: &OrderKey) -> usize {
        self.queued.get(&class).map_or(0, |queued| self.positions.before(class, key, queued))
    }

    /// The first of a class that waits.
    #[must_use]
    pub fn first_queued(&self, class: ClassId) -> Option<OrderKey> {
        self.queued.get(&class)?.first().copied()
    }

    fn queued_in(&mut self, job: &Job) {
        let was = self.first_queued(job.class);
        let (key, queued) = (OrderKey::of(job, self.ageing), self.queued.entry(job.class).or_default());
        if queued.insert(key) {
            self.positions.insert(job.class, key, queued);
        }
        self.lines.head(job.class, was, self.first_queued(job.class));
        self.wait_in(job);
    }

    fn queued_out(&mut self, job: &Job) {
        let was = self.first_queued(job.class);
        let key = OrderKey::of(job, self.ageing);
        if self.queued.get(&job.class).is_some_and(|queued| queued.contains(&key)) {
            self.positions.remove(job.class, &key);
        }
        drop_from(&mut self.queued, job.class, &key);
        self.lines.head(job.class, was, self.first_queued(job.class));
        self.wait_out(job);
    }

    fn wait_in(&mut self, job: &Job) {
        let Some(wait) = job.start_target.map(|p| p.wait).filter(|wait| *wait != Wait::Over) else {
            return;
        };
        self.deferred.entry(job.class).or_default().insert(OrderKey::of(job, self.ageing));
        match wait {
            Wait::New => _ = self.newly_deferred.insert(job.id),
            Wait::Promised { node, .. } => _ = self.pledges.insert((node, job.id)),
            Wait::Noise { .. } | Wait::Over => {}
        }
    }

    fn wait_out(&mut self, job: &Job) {
        let Some(wait) = job.start_target.map(|p| p.wait).filter(|wait| *wait != Wait::Over) else {
            return;
        };
        drop_from(&mut self.deferred, job.class, &OrderKey::of(job, self.ageing));
        match wait {
            Wait::New => _ = self.newly_deferred.remove(&job.id),
            Wait::Promised { node, .. } => _ = self.pledges.remove(&(node, job.id)),
            Wait::Noise { .. } | Wait::Over => {}
        }
    }

    /// Jobs of a class that wait and are bought for.
    pub fn bought_for(&self, class: ClassId) -> usize {
        let count = |lines: &BTreeMap<ClassId, BTreeSet<OrderKey>>| lines.get(&class).map_or(0, BTreeSet::len);
        count(&self.queued).saturating_sub(count(&self.deferred))
    }

    /// The first of them.
    pub fn first_bought_for(&self, class: ClassId) -> Option<OrderKey> {
        let deferred = self.deferred.get(&class);
        let line = self.queued.get(&class)?;
        if deferred.is_some_and(|deferred| deferred.len() == line.len()) {
            return None;
        }
        line.iter().find(|key| deferred.is_none_or(|d| !d.contains(key))).copied()
    }

    /// Whether quota or places are kept for anybody who waits.
    #[must_use]
    pub fn keeps_anything(&self) -> bool {
        !self.kept.is_empty() || !self.reserved.is_empty()
    }

    /// The nodes of which what frees is kept for a job.
    #[must_use]
    pub fn reserved_for(&self, job: JobId) -> alloc::vec::Vec<NodeId> {
        self.reserved.range((job, NodeId(0))..=(job, NodeId(u64::MAX))).map(|(_, node)| *node).collect()
    }

    /// The cloud's id of a claim. Apart from the rest, for it changes once in a claim's life.
    pub(super) fn name_in(&mut self, node: &Node) {
        if let Some(instance) = &node.instance {
            self.by_instance.insert(instance.clone(), node.id);
        }
    }

    pub(super) fn name_out(&mut self, node: &Node) {
        if let Some(instance) = &node.instance {
            self.by_instance.remove(instance);
        }
    }

    pub(super) fn node_in(&mut self, node: &Node) {
        if node.open() {
            let rank = rank(node);
            let free = self.free.entry((node.pool, node.offering)).or_default();
            free.whole.insert((rank, node.whole_free(), node.id));
            free.gpus += node.slots.len() as u32;
            free.foreign += u32::from(node.foreign_gpus());
            if node.slots.is_empty() {
                free.bare.insert(bare(node));
            }
            for (at, slot) in parts(node) {
                free.part.insert((rank, slot, node.id, at));
            }
            self.replica_counts.node_in(node);
            free.slices.extend(slices(node).map(|(share, mem, gpu, at)| (rank, share, mem, node.id, gpu, at)));
            if node.holds.is_empty() && node.owned.is_none() {
                let list = if node.phase == NodePhase::Ready { &mut self.idle } else { &mut self.unbooked };
                list.insert(node.id);
            }
        }
        if let Some(until) = idle_until(node) {
            self.idle_until.entry((node.pool, node.offering)).or_default().insert((until, node.id));
        }
        if has_left(node) {
            self.left.insert(node.id);
        }
        self.reserved.extend(node.reserved.iter().map(|(job, _)| (*job, node.id)));
        if matches!(node.phase, NodePhase::Draining { .. }) {
            self.draining.insert(node.id);
        }
        if node_needs_settling(node) {
            self.unsettled_nodes.insert(node.id);
        }
        if let Some(at) = node_due(node) {
            self.timers.insert((at, EffectOf::Node(node.id)));
        }
    }

    pub(super) fn node_out(&mut self, node: &Node) {
        if node.open() {
            let rank = rank(node);
            let key = (node.pool, node.offering);
            if let Some(free) = self.free.get_mut(&key) {
                free.whole.remove(&(rank, node.whole_free(), node.id));
                free.gpus = free.gpus.saturating_sub(node.slots.len() as u32);
                free.foreign = free.foreign.saturating_sub(u32::from(node.foreign_gpus()));
                if node.slots.is_empty() {
                    free.bare.remove(&bare(node));
                }
                for (at, slot) in parts(node) {
                    free.part.remove(&(rank, slot, node.id, at));
                }
                for (share, mem, gpu, at) in slices(node) {
                    free.slices.remove(&(rank, share, mem, node.id, gpu, at));
                }
                if free.whole.is_empty() && free.part.is_empty() {
                    self.free.remove(&key);
                }
            }
            self.replica_counts.node_out(node);
            self.idle.remove(&node.id);
            self.unbooked.remove(&node.id);
        }
        if let Some(until) = idle_until(node) {
            drop_from(&mut self.idle_until, (node.pool, node.offering), &(until, node.id));
        }
        self.left.remove(&node.id);
        for (job, _) in &node.reserved {
            self.reserved.remove(&(*job, node.id));
        }
        self.draining.remove(&node.id);
        self.unsettled_nodes.remove(&node.id);
        if let Some(at) = node_due(node) {
            self.timers.remove(&(at, EffectOf::Node(node.id)));
        }
    }

    pub(super) fn purchase_in(&mut self, purchase: &Purchase) {
        self.timers.insert((purchase.effect.next_try, EffectOf::Purchase(purchase.id)));
    }

    pub(super) fn purchase_out(&mut self, purchase: &Purchase) {
        self.timers.remove(&(purchase.effect.next_try, EffectOf::Purchase(purchase.id)));
    }
}

impl State {
    /// Ranks the jobs of all lines again, under the policy in force.
    pub(super) fn rank_anew(&mut self) {
        let ageing = self.policy.as_deref().and_then(|p| p.fairness.ageing);
        if ageing == self.index.ageing {
            return;
        }
        let open: alloc::vec::Vec<JobId> = self.index.open_jobs.iter().copied().collect();
        for id in &open {
            self.index.row_out(&self.jobs[*id], &self.specs[*id]);
        }
        self.index.ageing = ageing;
        for id in &open {
            self.index.row_in(&self.jobs[*id], &self.specs[*id]);
        }
    }
}

fn drop_from<K: Ord + Copy, V: Ord>(map: &mut BTreeMap<K, BTreeSet<V>>, key: K, value: &V) {
    if let Some(set) = map.get_mut(&key) {
        set.remove(value);
        if set.is_empty() {
            map.remove(&key);
        }
    }
}

/// Counts so many less. What is none has no entry.
pub(super) fn less<K: Ord>(counts: &mut BTreeMap<K, u32>, at: K, by: u32) {
    let Some(count) = counts.get_mut(&at) else { return };
    *count = count.saturating_sub(by);
    if *count == 0 {
        counts.remove(&at);
    }
}

/// Of which class a job is known. `None`: it was rejected.
pub(super) fn counts_as(job: &Job) -> Option<ClassId> {
    (!matches!(job.phase, Phase::Done { outcome: Outcome::Rejected })).then_some(job.class)
}

/// Whether a run, or a part of it, is about to give back what it holds.
fn ends(job: &Job) -> bool {
    matches!(job.phase, Phase::Stopping { .. }) || job.leaving.is_some()
}

/// For which job a run, or a part of it, is about to give back what it holds. One that has hung gives no place back: its node goes with it, or stays
/// with it where it is owned.
fn ends_for(job: &Job) -> Option<JobId> {
    let cause = match job.phase {
        _ if job.hung => None,
        Phase::Stopping { cause, .. } => Some(cause),
        _ => job.leaving.as_ref().map(|leaving| leaving.cause),
    };
    match cause? {
        StopCause::Preempted { by } | StopCause::QuotaReclaimed { by } => Some(by),
        _ => None,
    }
}

/// The quota that is kept for a job beside what jobs hold.
fn keeps(job: &Job) -> Option<Kept> {
    job.kept.filter(|_| job.pool.is_none() && !job.done())
}

/// Where a job is that holds places and no GPU share.
fn without_share(job: &Job) -> Option<PoolId> {
    job.pool.filter(|_| !job.places.is_empty() && job.share == MilliGpu(0))
}

fn in_use(job: &Job) -> Option<InUse> {
    if job.share == MilliGpu(0) {
        return None;
    }
    let stays = |number: &u32| !job.leaving().contains(number);
    let staying = match job.phase {
        Phase::Stopping { .. } => MilliGpu(0),
        _ if job.leaving.is_none() => job.share,
        _ => {
            let workers = job.places.iter().zip(&job.numbers).filter(|(_, number)| stays(number));
            workers.fold(MilliGpu(0), |sum, (place, _)| sum + place.gpu_share())
        }
    };
    Some(InUse { all: job.share, staying })
}

fn rank(node: &Node) -> u8 {
    u8::from(node.phase != NodePhase::Ready)
}

fn parts(node: &Node) -> impl Iterator<Item = (u8, u16)> + '_ {
    let whole = node.partition.is_none();
    let in_part = move |s: &super::nodes::Slot| whole && s.workers > 0 && s.free > 0;
    node.slots.iter().enumerate().filter(move |(_, s)| in_part(s)).map(|(at, s)| (at as u8, s.free))
}

/// Free slices: (stated share, memory, GPU, slice).
fn slices(node: &Node) -> impl Iterator<Item = (u16, Mib, u8, u8)> + '_ {
    let cuts = node.partition.as_ref().map_or(&[][..], |p| &p.slices);
    node.slots.iter().enumerate().flat_map(move |(gpu, slot)| {
        let free = cuts.iter().enumerate().filter(move |(at, _)| slot.slices & (1 << at) != 0);
        free.map(move |(at, cut)| (cut.share, cut.mem, gpu as u8, at as u8))
    })
}

fn is_held_by_price(job: &Job) -> bool {
    matches!(job.reason, Some(Reason::BeyondBudget { .. }))
}

/// Whether a job has been accepted and is not over.
fn is_accepted(job: &Job) -> bool {
    job.phase != Phase::New && !job.done()
}

/// Whether settle has something to decide on a job.
fn needs_settling(job: &Job) -> bool {
    if job.done() || job.phase == Phase::Serving {
        return false;
    }
    let stopping = matches!(job.phase, Phase::Stopping { .. });
    matches!(job.phase, Phase::New | Phase::Ended { .. })
        || (job.cancel_asked && !stopping)
        || (job.broken.is_some() && !stopping)
        || (job.idle_reported.is_some() && !stopping)
}

/// Whether an owned node has left and nothing runs on it any more.
fn has_left(node: &Node) -> bool {
    node.owned.as_ref().is_some_and(|owned| owned.leaves) && node.holds.is_empty()
}

/// Whether settle has something to decide on a claim. Nothing is ever decided on an owned node.
fn node_needs_settling(node: &Node) -> bool {
    // What is being left is looked at again when its drain is; what the cloud takes back cannot wait for that.
    let taken = node.reclaim_at.is_some();
    let left = taken && matches!(node.phase, NodePhase::Draining { .. });
    let alive = left || matches!(node.phase, NodePhase::Booting | NodePhase::Ready);
    let drained = node.cordoned && node.holds.is_empty();
    alive && node.owned.is_none() && (taken || node.condemned || drained)
}

/// Whether a job's deadline bears on where it goes, or on where it is.
fn is_reassessed(job: &Job) -> bool {
    let waits = matches!(job.phase, Phase::Queued | Phase::BackingOff { .. });
    job.reassess_at != Timestamp::NEVER
        && (waits || matches!(job.phase, Phase::Booked | Phase::Starting | Phase::Running))
}

/// When a job has to be looked at again. The bounds that need the policy are in the row already.
fn job_due(job: &Job) -> Option<Timestamp> {
    match job.phase {
        Phase::BackingOff { until } => Some(until),
        Phase::Starting => Some(job.must_end_by.min(job.effect.map_or(Timestamp::NEVER, |e| e.next_try))),
        Phase::Running => Some(job.must_end_by.min(job.effect.map_or(Timestamp::NEVER, |e| e.next_try))),
        Phase::Queued => {
            let waits = job.start_target.map(|p| p.due()).filter(|at| *at != Timestamp::NEVER);
            waits.into_iter().chain(job.reserved_until).min()
        }
        Phase::Stopping { .. } => Some(job.must_end_by.min(job.effect.map_or(Timestamp::NEVER, |e| e.next_try))),
        _ => None,
    }
}

/// Until when an idle node may be idle, if it is bought and not kept for a job.
fn idle_until(node: &Node) -> Option<Timestamp> {
    let idle = node.open() && node.phase == NodePhase::Ready && node.holds.is_empty() && node.owned.is_none();
    (idle && node.idle_since.is_some() && node.reserved.is_empty()).then_some(node.due)
}

/// When a claim has to be looked at again. A reserved one is not drained before its reservation is over.
fn node_due(node: &Node) -> Option<Timestamp> {
    match node.phase {
        NodePhase::Requested => None,
        NodePhase::Booting => Some(node.due),
        NodePhase::Ready => {
            let kept_until = node.reserved.iter().map(|(_, until)| *until).min();
            kept_until.or(node.idle_since.map(|_| node.due))
        }
        NodePhase::Draining { check_at, .. } => Some(check_at),
        NodePhase::Terminating => node.effect.map(|e| e.next_try),
    }
}
