//! Brakes: what an operator has stopped for a time, who did, why, and until when.
//!
//! ```text
//! BrakeSet, BrakeReleased, a tick past its end -> brakes -> queued jobs leave the order or join it again
//!                                                        -> who would be rejected for being late has its whole start target again
//!                                                        -> nodes are open for work, or not
//! ```
//!
//! Never: stops what runs. A brake keeps the next decision of its kind from being made, and nothing else.

use super::State;
use super::jobs::Phase;
use crate::ids::{JobId, NodeId, PoolId, QueueId};
use crate::policy::WhenLate;
use crate::units::Timestamp;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Brakes in force at once: more than anybody sets by hand.
pub const MOST_BRAKES: usize = 1024;

/// What is stopped.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Brake {
    /// No node is bought.
    Buying,
    /// No job gets places.
    Admission,
    /// No run is stopped for another job.
    Preemption,
    /// No job of this queue, and of those below it, gets places.
    Queue(String),
    /// No node of this pool takes work, and none is bought into it. It is drained.
    Pool(String),
    /// This node takes no work. It is drained.
    Node(NodeId),
}

impl Brake {
    /// Its kind, as the API names it.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Brake::Buying => "buying",
            Brake::Admission => "admission",
            Brake::Preemption => "preemption",
            Brake::Queue(_) => "queue",
            Brake::Pool(_) => "pool",
            Brake::Node(_) => "node",
        }
    }

    /// Which queue, pool or node. `None`: it is for everything.
    #[must_use]
    pub fn target(&self) -> Option<String> {
        match self {
            Brake::Buying | Brake::Admission | Brake::Preemption => None,
            Brake::Queue(name) | Brake::Pool(name) => Some(name.clone()),
            Brake::Node(id) => Some(alloc::format!("{id}")),
        }
    }

    /// Whether it keeps the jobs of a queue from being admitted.
    fn holds(&self, path: &str) -> bool {
        match self {
            Brake::Admission => true,
            Brake::Queue(of) => {
                path.strip_prefix(of.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }
            _ => false,
        }
    }
}

/// Who has set a brake.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BrakeOrder {
    /// Who.
    pub by: String,
    /// Why. Empty: nobody said.
    pub why: String,
    /// Since when.
    pub since: Timestamp,
    /// It ends by itself then. `None`: when it is released.
    pub until: Option<Timestamp>,
}

impl State {
    /// The brakes in force.
    pub fn brakes(&self) -> impl Iterator<Item = (&Brake, &BrakeOrder)> {
        self.brakes.iter()
    }

    /// Who has set a brake that is in force.
    #[must_use]
    pub fn brake(&self, brake: &Brake) -> Option<&BrakeOrder> {
        self.brakes.get(brake)
    }

    /// The brake that keeps the jobs of a queue from being admitted: the one for all queues before the queue's own, and that before those of the
    /// queues above it.
    #[must_use]
    pub fn queue_brake(&self, queue: QueueId) -> Option<(&Brake, &BrakeOrder)> {
        if self.brakes.is_empty() {
            return None;
        }
        self.queue_brake_of(&self.queues.get(queue)?.path)
    }

    /// The same, of a queue by its path.
    #[must_use]
    pub fn queue_brake_of(&self, path: &str) -> Option<(&Brake, &BrakeOrder)> {
        let holds = self.brakes.iter().filter(|(brake, _)| brake.holds(path));
        holds.max_by_key(|(brake, _)| (**brake == Brake::Admission, brake.target().map_or(0, |of| of.len())))
    }

    /// The brake under which a pool is drained.
    #[must_use]
    pub fn pool_brake(&self, pool: PoolId) -> Option<(&Brake, &BrakeOrder)> {
        if self.brakes.is_empty() {
            return None;
        }
        let name = &self.policy.as_deref()?.pools.get(pool.index())?.name;
        self.brakes.get_key_value(&Brake::Pool(name.clone()))
    }

    /// Whether a brake keeps a job that waits from being admitted.
    #[must_use]
    pub fn is_held_back(&self, job: JobId) -> bool {
        self.index.held_back.contains(&job)
    }

    /// When the next brake ends by itself.
    #[must_use]
    pub fn next_brake_end(&self) -> Option<Timestamp> {
        self.brakes.values().filter_map(|order| order.until).min()
    }

    /// Whether a node takes no work, by its own brake or its pool's.
    pub(crate) fn is_cordoned(&self, id: NodeId, pool: PoolId) -> bool {
        !self.brakes.is_empty() && (self.brakes.contains_key(&Brake::Node(id)) || self.pool_brake(pool).is_some())
    }

    /// Sets a brake, or changes who has set it. Returns the nodes that take no work from now on, or `None` if nothing is new, or it is over.
    pub(crate) fn set_brake(&mut self, brake: &Brake, order: BrakeOrder) -> Option<Vec<NodeId>> {
        let over = order.until.is_some_and(|until| until <= self.now);
        let there = self.brakes.get(brake);
        let full = there.is_none() && self.brakes.len() >= MOST_BRAKES;
        let gone = matches!(brake, Brake::Node(id) if !self.nodes.contains_key(id));
        let since = there.map_or(order.since, |there| there.since);
        let order = BrakeOrder { since, ..order };
        if over || full || gone || there == Some(&order) {
            return None;
        }
        self.brakes.insert(brake.clone(), order);
        Some(self.renew_brakes())
    }

    /// Takes a brake off. Returns whether it was on.
    pub(crate) fn release_brake(&mut self, brake: &Brake) -> bool {
        let was = self.brakes.contains_key(brake);
        if was {
            self.take_off(core::slice::from_ref(brake));
        }
        was
    }

    /// Brakes whose time is over end, and those of nodes that are gone.
    pub(crate) fn end_brakes(&mut self) {
        let (now, nodes) = (self.now, &self.nodes);
        let is_over = |brake: &Brake, order: &BrakeOrder| {
            let gone = matches!(brake, Brake::Node(id) if !nodes.contains_key(id));
            gone || order.until.is_some_and(|until| until <= now)
        };
        let over: Vec<Brake> =
            self.brakes.iter().filter(|(brake, order)| is_over(brake, order)).map(|(brake, _)| brake.clone()).collect();
        if !over.is_empty() {
            self.take_off(&over);
        }
    }

    /// Takes these brakes off, that are on. Time in which nothing could be bought for a queue counts against none of its jobs, as time in which it was held.
    fn take_off(&mut self, over: &[Brake]) {
        let mut bought_again = self.unbought_queues();
        over.iter().for_each(|brake| _ = self.brakes.remove(brake));
        self.renew_brakes();
        bought_again.retain(|queue| !self.is_unbought(*queue) && !self.index.held_queues.contains(queue));
        self.restart_targets(&bought_again);
    }

    /// Which nodes take no work is said by their rows again, before lookups are made of them.
    pub(super) fn cordon_anew(&mut self) {
        let cordoned = |node: &&super::nodes::Node| self.is_cordoned(node.id, node.pool);
        let cordoned: Vec<NodeId> = self.nodes.values().filter(cordoned).map(|node| node.id).collect();
        for id in cordoned {
            self.nodes.entry(id).and_modify(|node| node.cordoned = true);
        }
    }

    /// What brakes mean for rows is made anew. Returns the nodes that take no work from now on.
    pub(crate) fn renew_brakes(&mut self) -> Vec<NodeId> {
        let held = self.held_queues();
        if held != self.index.held_queues {
            let changed: BTreeSet<QueueId> = held.symmetric_difference(&self.index.held_queues).copied().collect();
            let released = self.index.held_queues.difference(&held).copied();
            let released: BTreeSet<QueueId> = released.filter(|queue| !self.is_unbought(*queue)).collect();
            let waits = |id: &JobId| self.jobs[*id].phase == Phase::Queued && changed.contains(&self.jobs[*id].queue);
            let waiting: Vec<JobId> = self.index.open_jobs.iter().copied().filter(waits).collect();
            waiting.iter().for_each(|id| self.index.row_out(&self.jobs[*id], &self.specs[*id]));
            self.index.held_queues = held;
            waiting.iter().for_each(|id| self.index.row_in(&self.jobs[*id], &self.specs[*id]));
            self.restart_targets(&released);
        }
        let mut closed = Vec::new();
        let differs = |node: &&super::nodes::Node| node.cordoned != self.is_cordoned(node.id, node.pool);
        let nodes: Vec<NodeId> = self.nodes.values().filter(differs).map(|node| node.id).collect();
        for id in nodes {
            self.edit_node(id, |node| node.cordoned = !node.cordoned);
            closed.extend(self.nodes.get(&id).filter(|node| node.cordoned).map(|node| node.id));
        }
        // Who rests may be helped by what is no longer stopped, and is told another reason by what is.
        self.capacity_epoch += 1;
        closed
    }

    /// Time in which a brake held a queue counts against none of its jobs: who would be rejected for being late has the whole of its start target
    /// from now on. Up to version 4 it counted, and the end of a brake rejected all of them at once.
    fn restart_targets(&mut self, released: &BTreeSet<QueueId>) {
        if self.apply_version < 5 || released.is_empty() {
            return;
        }
        let of_them = |id: &JobId| released.contains(&self.jobs[*id].queue);
        let open: Vec<JobId> = self.index.open_jobs.iter().copied().filter(of_them).collect();
        for id in open {
            let job = &self.jobs[id];
            if job.start_target.is_none_or(|target| target.when_late != WhenLate::Reject) {
                continue;
            }
            let Some(whole) = self.start_target(job.queue, self.now, &self.specs[id]) else { continue };
            self.edit_job(id, |row| {
                row.start_target.iter_mut().for_each(|target| target.by = target.by.max(whole.by));
            });
        }
    }

    /// Whether brakes keep everything from being bought for a queue: buying is paused, or each of its pools is drained.
    #[must_use]
    pub fn is_unbought(&self, queue: QueueId) -> bool {
        if self.brakes.is_empty() {
            return false;
        }
        let drained = |pool: &PoolId| self.pool_brake(*pool).is_some();
        let rule = self.queues.get(queue).and_then(|queue| queue.rule.as_ref());
        let pools = rule.map_or(&[][..], |rule| &rule.pools);
        self.brakes.contains_key(&Brake::Buying) || (!pools.is_empty() && pools.iter().all(drained))
    }

    fn unbought_queues(&self) -> BTreeSet<QueueId> {
        if self.brakes.is_empty() {
            return BTreeSet::new();
        }
        self.queues.iter().map(|(id, _)| id).filter(|id| self.is_unbought(*id)).collect()
    }

    /// The queues whose jobs are kept from being admitted.
    pub(super) fn held_queues(&self) -> BTreeSet<QueueId> {
        if self.brakes.is_empty() {
            return BTreeSet::new();
        }
        let held = |path: &str| self.brakes.keys().any(|brake| brake.holds(path));
        self.queues.iter().filter(|(_, queue)| held(&queue.path)).map(|(id, _)| id).collect()
    }

    /// A queue was named for the first time, and no job of it is there yet.
    pub(super) fn note_queue_brake(&mut self, id: QueueId) {
        if self.brakes.keys().any(|brake| brake.holds(&self.queues[id].path)) {
            self.index.held_queues.insert(id);
        }
    }

    /// Takes in a brake of a state that is put together again.
    pub(crate) fn recall_brake(&mut self, brake: Brake, order: BrakeOrder) {
        self.brakes.insert(brake, order);
        self.renew_brakes();
    }
}
