//! Lookups derived from the rows: who waits, who is free, what is due. Rebuilt from nothing after a restore; the audit compares
//! the kept index with a rebuilt one.
//!
//! Never: holds anything that the rows do not say.

use super::State;
use super::jobs::{Job, Phase};
use super::nodes::{Node, NodePhase, Purchase};
use crate::decision::EffectOf;
use crate::ids::{ClassId, JobId, NodeId, OfferingId, PoolId, TierId};
use crate::units::Millis;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;

/// Order within a class: higher priority, then earlier arrival, then lower id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct OrderKey {
    /// Negated priority, so that higher comes first.
    pub rank: i64,
    /// Kept through requeues.
    pub arrival: Millis,
    /// Which job.
    pub job: JobId,
}

impl OrderKey {
    /// The key of a job.
    #[must_use]
    pub fn of(job: &Job) -> OrderKey {
        OrderKey { rank: -i64::from(job.priority), arrival: job.arrival, job: job.id }
    }
}

/// All lookups.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Index {
    /// Jobs that wait, by class.
    pub queued: BTreeMap<ClassId, BTreeSet<OrderKey>>,
    /// Jobs that hold places which are not all ready, by class.
    pub booked: BTreeMap<ClassId, BTreeSet<OrderKey>>,
    /// Jobs that settle has to look at.
    pub unsettled: BTreeSet<JobId>,
    /// Claims that settle has to look at.
    pub unsettled_nodes: BTreeSet<NodeId>,
    /// Runs that could be stopped for others.
    pub running: BTreeMap<TierId, BTreeSet<JobId>>,
    /// Free capacity by pool and offering.
    pub free: BTreeMap<(PoolId, OfferingId), Free>,
    /// Ready nodes with nothing on them.
    pub idle: BTreeSet<NodeId>,
    /// Nodes that take no new work and are looked at again.
    pub draining: BTreeSet<NodeId>,
    /// Claims in flight that nothing is booked on.
    pub unbooked: BTreeSet<NodeId>,
    /// When to look at which row again.
    pub timers: BTreeSet<(Millis, EffectOf)>,
    /// When the deadline of which job is looked at again.
    pub hasten: BTreeSet<(Millis, JobId)>,
    /// Claims by the cloud's id.
    pub by_instance: BTreeMap<String, NodeId>,
    /// Jobs by identity: (tenant, subject).
    pub by_identity: BTreeMap<(String, String), JobId>,
    /// When the protection of each run ends: it may be stopped for others from then on.
    pub guards: BTreeSet<(Millis, JobId)>,
    /// Jobs that are not over.
    pub open_jobs: BTreeSet<JobId>,
}

/// Free capacity of one offering in one pool.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Free {
    /// (0 ready, 1 in flight; whole GPUs free; node): all open nodes.
    pub whole: BTreeSet<(u8, u16, NodeId)>,
    /// (0 ready, 1 in flight; free share; node; GPU): GPUs in part taken.
    pub part: BTreeSet<(u8, u16, NodeId, u8)>,
}

impl Index {
    /// The index of a state, from nothing.
    #[must_use]
    pub fn rebuilt(state: &State) -> Index {
        let mut ix = Index::default();
        for job in &state.jobs {
            ix.job_in(job);
        }
        for (job, spec) in state.jobs.iter().zip(&state.specs) {
            // The latest job of an identity is the one that counts.
            ix.by_identity.insert((spec.tenant.clone(), spec.subject.clone()), job.id);
        }
        for node in state.nodes.values() {
            ix.node_in(node);
            ix.name_in(node);
        }
        for purchase in state.purchases.values() {
            ix.purchase_in(purchase);
        }
        ix
    }

    pub(crate) fn job_in(&mut self, job: &Job) {
        match job.phase {
            Phase::Queued => {
                self.queued.entry(job.class).or_default().insert(OrderKey::of(job));
            }
            Phase::Booked => {
                self.booked.entry(job.class).or_default().insert(OrderKey::of(job));
            }
            Phase::Running => {
                self.running.entry(job.tier).or_default().insert(job.id);
                self.guards.insert((job.protected_until, job.id));
            }
            _ => {}
        }
        if needs_settling(job) {
            self.unsettled.insert(job.id);
        }
        if !job.done() {
            self.open_jobs.insert(job.id);
        }
        if let Some(at) = job_due(job) {
            self.timers.insert((at, EffectOf::Job(job.id)));
        }
        if hastens(job) {
            self.hasten.insert((job.hasten_at, job.id));
        }
    }

    pub(super) fn job_out(&mut self, job: &Job) {
        match job.phase {
            Phase::Queued => drop_from(&mut self.queued, job.class, &OrderKey::of(job)),
            Phase::Booked => drop_from(&mut self.booked, job.class, &OrderKey::of(job)),
            Phase::Running => {
                drop_from(&mut self.running, job.tier, &job.id);
                self.guards.remove(&(job.protected_until, job.id));
            }
            _ => {}
        }
        self.unsettled.remove(&job.id);
        self.open_jobs.remove(&job.id);
        if let Some(at) = job_due(job) {
            self.timers.remove(&(at, EffectOf::Job(job.id)));
        }
        self.hasten.remove(&(job.hasten_at, job.id));
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
            for (at, slot) in parts(node) {
                free.part.insert((rank, slot, node.id, at));
            }
            if node.holds.is_empty() {
                let list = if node.phase == NodePhase::Ready { &mut self.idle } else { &mut self.unbooked };
                list.insert(node.id);
            }
        }
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
                for (at, slot) in parts(node) {
                    free.part.remove(&(rank, slot, node.id, at));
                }
                if free.whole.is_empty() && free.part.is_empty() {
                    self.free.remove(&key);
                }
            }
            self.idle.remove(&node.id);
            self.unbooked.remove(&node.id);
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

fn drop_from<K: Ord + Copy, V: Ord>(map: &mut BTreeMap<K, BTreeSet<V>>, key: K, value: &V) {
    if let Some(set) = map.get_mut(&key) {
        set.remove(value);
        if set.is_empty() {
            map.remove(&key);
        }
    }
}

fn rank(node: &Node) -> u8 {
    u8::from(node.phase != NodePhase::Ready)
}

fn parts(node: &Node) -> impl Iterator<Item = (u8, u16)> + '_ {
    let in_part = |s: &super::nodes::Slot| s.workers > 0 && s.free > 0;
    node.slots.iter().enumerate().filter(move |(_, s)| in_part(s)).map(|(at, s)| (at as u8, s.free))
}

/// Whether settle has something to decide on a job.
fn needs_settling(job: &Job) -> bool {
    if job.done() {
        return false;
    }
    let stopping = matches!(job.phase, Phase::Stopping { .. });
    matches!(job.phase, Phase::New | Phase::Ended { .. })
        || (job.cancel_asked && !stopping)
        || (job.broken.is_some() && !stopping)
        || (job.idle_reported.is_some() && !stopping)
}

/// Whether settle has something to decide on a claim.
fn node_needs_settling(node: &Node) -> bool {
    let alive = matches!(node.phase, NodePhase::Booting | NodePhase::Ready);
    alive && (node.reclaim_at.is_some() || node.condemned)
}

/// Whether a job's deadline bears on where it goes, or on where it is.
fn hastens(job: &Job) -> bool {
    let waits = matches!(job.phase, Phase::Queued | Phase::BackingOff { .. });
    job.hasten_at != Millis::NEVER && (waits || matches!(job.phase, Phase::Booked | Phase::Starting | Phase::Running))
}

/// When a job has to be looked at again. The bounds that need the policy are in the row already.
fn job_due(job: &Job) -> Option<Millis> {
    match job.phase {
        Phase::BackingOff { until } => Some(until),
        Phase::Starting => Some(job.must_end_by.min(job.effect.map_or(Millis::NEVER, |e| e.next_try))),
        Phase::Running => Some(job.must_end_by),
        Phase::Stopping { .. } => job.effect.map(|e| e.next_try),
        _ => None,
    }
}

/// When a claim has to be looked at again. A reserved one is not drained before its reservation is over.
fn node_due(node: &Node) -> Option<Millis> {
    match node.phase {
        NodePhase::Requested => None,
        NodePhase::Booting => Some(node.due),
        NodePhase::Ready => match node.reserved {
            Some((_, until)) => Some(until),
            None => node.idle_since.map(|_| node.due),
        },
        NodePhase::Draining { check_at, .. } => Some(check_at),
        NodePhase::Terminating => node.effect.map(|e| e.next_try),
    }
}
