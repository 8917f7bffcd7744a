//! The state: plain tables, their indices, the ledger. Changed only by `apply`, row by row, through the edits in this file, so that
//! indices, totals and ledger never lag behind and a try can be undone.
//!
//! ```text
//! edit_job, edit_node, ...  ->  undo log  ->  row  ->  index, totals, ledger
//! ```
//!
//! Never: decides. Never changed from outside the engine.

pub mod ahead;
pub mod budget;
pub mod early;
pub mod fair;
pub mod index;
pub mod jobs;
pub mod ledger;
pub mod mix;
pub mod names;
pub mod nodes;
pub(crate) mod places;
pub mod quota;
pub mod seen;
pub mod services;
pub(crate) mod shares;
pub mod undo;

use crate::catalog::CapacityType;
use crate::effect::Status;
use crate::ids::{BatchId, JobId, ModelId, NodeId, OfferingId, PoolId, PurchaseId, QueueId, TierId};
use crate::job::{Gang, JobSpec, Within};
use crate::policy::{Lifecycle, Policy, QueueRule};
use crate::units::{Millis, Rate, Span};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use index::Index;
use jobs::Job;
use ledger::Ledger;
use nodes::{Node, OfferingRow, Purchase};
use quota::QuotaTree;
use serde::{Deserialize, Serialize};
use undo::{Undo, Was};

/// Everything the engine knows.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct State {
    pub(crate) now: Millis,
    pub(crate) policy: Option<Box<Policy>>,
    pub(crate) counters: Counters,
    pub(crate) specs: Vec<JobSpec>,
    pub(crate) jobs: Vec<Job>,
    pub(crate) classes: Vec<Class>,
    pub(crate) queues: Vec<Queue>,
    pub(crate) models: Vec<String>,
    /// Batch keys, each with its queue.
    pub(crate) batches: Vec<(QueueId, String)>,
    /// Racks by the cloud's names.
    pub(crate) racks: Vec<String>,
    /// What has been asked for of late.
    pub(crate) mix: mix::Mix,
    pub(crate) offerings: Vec<OfferingRow>,
    pub(crate) nodes: BTreeMap<NodeId, Node>,
    pub(crate) purchases: BTreeMap<PurchaseId, Purchase>,
    pub(crate) quota: QuotaTree,
    pub(crate) fair: fair::Fair,
    pub(crate) budgets: budget::Budgets,
    pub(crate) totals: Totals,
    pub(crate) ledger: Ledger,
    /// What was seen so far of durations, boots, reclaims and needs.
    pub(crate) seen: seen::Seen,
    pub(crate) stream: VecDeque<Status>,
    /// Services that are not over.
    pub(crate) services: BTreeMap<JobId, services::Serving>,
    /// Cancels kept for submissions that may still come.
    pub(crate) early_cancels: BTreeMap<early::EarlyKey, early::EarlyCancel>,
    /// Running work is looked at again then, to move it.
    pub(crate) consolidate_at: Millis,
    /// By position in the policy's list of offerings.
    pub(crate) listed: Vec<OfferingId>,
    /// What is kept ahead of time, by pool.
    pub(crate) ahead: BTreeMap<PoolId, ahead::Ahead>,
    #[serde(skip)]
    pub(crate) ix: Index,
    #[serde(skip)]
    pub(crate) undo: Undo,
    /// Grows whenever something was given back that a waiting job could use. Not part of the state's meaning.
    #[serde(skip)]
    pub(crate) freed: u64,
    /// Booked jobs with a node that became ready since they were last looked at. Not part of the state's meaning.
    #[serde(skip)]
    pub(crate) woken: BTreeSet<JobId>,
    /// Queues, models, offerings and classes by name, to find them again.
    #[serde(skip)]
    pub(crate) names: names::Names,
}

/// Running numbers. Rolled back with everything else.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Position of the next record.
    pub next_seq: u64,
    /// The next claim.
    pub next_node: u64,
    /// The next purchase.
    pub next_purchase: u64,
    /// Status messages so far.
    pub statuses: u64,
    /// Events that said nothing new or came too late.
    pub ignored_events: u64,
    /// Submissions refused before they became a job.
    pub refused: u64,
    /// Jobs by outcome: completed, failed, cancelled, rejected.
    pub outcomes: [u64; 4],
    /// Runs stopped for another job: of a higher tier, of a lender, or of a reservation.
    pub preemptions: u64,
    /// Runs moved to cheaper capacity.
    pub moves: u64,
    /// Nodes that the cloud took back, or announced to.
    pub reclaims: u64,
    /// Runs that ended because the cloud took back a node.
    pub reclaimed_runs: u64,
    /// Decisions so far.
    pub decisions: u64,
    /// Times that the number of claims came back to zero.
    pub times_at_zero: u64,
    /// The most claims at once.
    pub nodes_peak: u64,
    /// Times that a policy was put in force.
    pub configured: u64,
    /// Instances taken in that nobody had bought.
    pub orphans: u64,
    /// Jobs that ended after their deadline, or not at all by then.
    pub deadline_misses: u64,
    /// Jobs that got places above a budget which only warns.
    pub over_budget: u64,
    /// Replicas of services so far. They are no jobs in any other count.
    pub replicas: u64,
    /// Of these, those that are over.
    pub replicas_over: u64,
    /// Times that workers of an elastic gang were asked to leave.
    pub shrinks: u64,
}

/// What is held against ceilings, over all and by pool.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Totals {
    /// Over all pools.
    pub all: Held,
    /// By pool.
    pub pools: Vec<Held>,
}

/// What is held against a ceiling: everything from the decision to buy until gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Held {
    /// Claims.
    pub nodes: u32,
    /// On-demand claims.
    pub on_demand_nodes: u32,
    /// Whole GPUs on them.
    pub gpus: u32,
    /// At booked prices.
    pub spend: Rate,
}

/// A queue by its path.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Queue {
    /// As events name it.
    pub path: String,
    /// What the policy in force says of it. `None`: nothing.
    pub rule: Option<QueueRule>,
}

/// An equivalence class: jobs of one shape in one queue and tier. One "no" for one is a "no" for all.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Shape {
    /// Which queue.
    pub queue: QueueId,
    /// Which tier.
    pub tier: TierId,
    /// Which workers.
    pub gang: Gang,
    /// Acceptable models; empty: any.
    pub models: Vec<ModelId>,
    /// Whether it may run on spot.
    pub spot: bool,
    /// Whether it consents to sharing.
    pub shares: bool,
    /// How close together its workers go.
    pub within: Option<Within>,
    /// Its batch.
    pub batch: Option<BatchId>,
    /// The service whose replica it is.
    pub service: Option<JobId>,
    /// How its deadline bears on what it may run on.
    pub hurry: Hurry,
    /// What a reclaim would cost it on average, coarsely. `None`: it can save, or does not run on what can be taken back.
    pub loses: Option<Span>,
    /// It has not started by its queue's target, and may be bought on-demand for that.
    pub late: bool,
}

/// How a deadline bears on what a job may run on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub enum Hurry {
    /// Well ahead of it: spot only, where its tier would have on-demand too.
    Relaxed,
    /// None, or no better than even with it: what its tier says.
    #[default]
    Ordinary,
    /// No time for another reclaim: nothing that the cloud may take back.
    Urgent,
}

/// A class and what fits it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Class {
    /// What its jobs have in common.
    pub shape: Shape,
    /// Offerings that can hold at least one of its workers, by pool in order of preference, sorted.
    pub fits: Vec<(PoolId, Vec<OfferingId>)>,
}

impl State {
    /// The time of the last tick.
    #[must_use]
    pub fn now(&self) -> Millis {
        self.now
    }

    /// The policy in force.
    #[must_use]
    pub fn policy(&self) -> Option<&Policy> {
        self.policy.as_deref()
    }

    /// Limits and defaults of runs under the policy in force.
    #[must_use]
    pub fn lifecycle(&self) -> Lifecycle {
        self.policy.as_deref().map(|p| p.lifecycle).unwrap_or_default()
    }

    /// What the start target of a queue means to a job that arrived then.
    pub(crate) fn patience(&self, queue: QueueId, arrival: Millis) -> Option<jobs::Patience> {
        let target = self.queues[queue.ix()].rule.as_ref()?.start?;
        let by = arrival + target.within;
        Some(jobs::Patience { by, when_late: target.when_late, wait: jobs::Wait::New })
    }

    /// Running numbers.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// All jobs, in order of acceptance, with their specifications.
    pub fn jobs(&self) -> impl DoubleEndedIterator<Item = (&Job, &JobSpec)> + '_ {
        self.jobs.iter().zip(&self.specs)
    }

    /// A job and its specification.
    #[must_use]
    pub fn job(&self, id: JobId) -> Option<(&Job, &JobSpec)> {
        Some((self.jobs.get(id.ix())?, self.specs.get(id.ix())?))
    }

    /// The latest job of an identity.
    #[must_use]
    pub fn job_of(&self, tenant: &str, subject: &str) -> Option<JobId> {
        self.ix.by_identity.get(&(String::from(tenant), String::from(subject))).copied()
    }

    /// Whether a principal may cancel, read or steer a job: its own submitter always, else whom its queue lists in the policy in force.
    /// Nobody else may where there is no such job or its queue is not known.
    #[must_use]
    pub fn may_act(&self, principal: &str, job: JobId) -> bool {
        let Some((job, spec)) = self.job(job) else { return false };
        let path = &self.queues[job.queue.ix()].path;
        spec.principal == principal || self.policy.as_deref().is_some_and(|p| p.may_act(principal, path))
    }

    /// Jobs that are not over. A service is one, its replicas are none.
    #[must_use]
    pub fn open_jobs(&self) -> usize {
        let replicas = self.counters.replicas - self.counters.replicas_over;
        self.ix.open_jobs.len() - replicas as usize
    }

    /// Of these, those with a run that may be alive: services with a replica that is loaded count.
    #[must_use]
    pub fn running_jobs(&self) -> usize {
        let runs = |id: &&JobId| self.jobs[id.ix()].of.is_none() && self.jobs[id.ix()].alive();
        let loaded = self.services.values().filter(|row| row.loaded > 0).count();
        // Whoever is alive holds places, and a million that wait do not.
        self.ix.holding.values().flatten().filter(runs).count() + loaded
    }

    /// Rows that are not over, by id: jobs, services and their replicas.
    pub fn open_job_ids(&self) -> impl Iterator<Item = JobId> + '_ {
        self.ix.open_jobs.iter().copied()
    }

    /// All claims.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> + '_ {
        self.nodes.values()
    }

    /// A claim.
    #[must_use]
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(&id)
    }

    /// The claim of an instance.
    #[must_use]
    pub fn node_of(&self, instance: &str) -> Option<&Node> {
        self.nodes.get(self.ix.by_instance.get(instance)?)
    }

    /// Purchases without an outcome.
    pub fn purchases(&self) -> impl Iterator<Item = &Purchase> + '_ {
        self.purchases.values()
    }

    /// All offerings ever named, `OfferingId` is the position.
    #[must_use]
    pub fn offerings(&self) -> &[OfferingRow] {
        &self.offerings
    }

    /// All queues ever named, `QueueId` is the position.
    #[must_use]
    pub fn queues(&self) -> &[Queue] {
        &self.queues
    }

    /// All classes ever seen, `ClassId` is the position.
    #[must_use]
    pub fn classes(&self) -> &[Class] {
        &self.classes
    }

    /// What has been asked for of late.
    #[must_use]
    pub fn mix(&self) -> &mix::Mix {
        &self.mix
    }

    /// Quota and what is in use of it.
    #[must_use]
    pub fn quota(&self) -> &QuotaTree {
        &self.quota
    }

    /// What is held against ceilings.
    #[must_use]
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Time and money up to the last change of each node. See [`State::ledger_now`].
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Time and money up to the last tick.
    #[must_use]
    pub fn ledger_now(&self) -> Ledger {
        let mut ledger = self.ledger;
        for node in self.nodes.values() {
            let offer = &self.offerings[node.offering.ix()].offer;
            ledger.accrue(node, offer.capacity, offer.on_demand, self.now);
        }
        ledger
    }

    /// Status messages that are not known to be delivered.
    pub fn undelivered(&self) -> impl Iterator<Item = &Status> + '_ {
        self.stream.iter()
    }

    /// How a claim is paid for.
    #[must_use]
    pub fn capacity_of(&self, node: &Node) -> CapacityType {
        self.offerings[node.offering.ix()].offer.capacity
    }

    /// The lookups.
    #[must_use]
    pub fn index(&self) -> &Index {
        &self.ix
    }

    /// The bytes of everything that matters: equal states have equal bytes on any machine.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_allocvec(self).unwrap_or_default()
    }

    /// A state from its bytes, with its lookups rebuilt.
    pub fn decode(bytes: &[u8]) -> Result<State, postcard::Error> {
        let mut state: State = postcard::from_bytes(bytes)?;
        state.ix = Index::rebuilt(&state);
        state.names = names::Names::rebuilt(&state);
        state.woken = state.ix.booked.values().flatten().map(|key| key.job).collect();
        Ok(state)
    }
}

// Edits. Every change of a row goes through one of these.
impl State {
    pub(crate) fn edit_job(&mut self, id: JobId, edit: impl FnOnce(&mut Job)) {
        let at = id.ix();
        let row = &mut self.jobs[at];
        self.undo.note(|| Was::Job(Box::new(row.clone())));
        self.ix.job_out(row);
        edit(row);
        self.ix.job_in(row);
    }

    /// Edits what no lookup is made from.
    pub(crate) fn edit_job_quietly(&mut self, id: JobId, edit: impl FnOnce(&mut Job)) {
        let row = &mut self.jobs[id.ix()];
        self.undo.note(|| Was::Job(Box::new(row.clone())));
        edit(row);
    }

    /// Edits a claim after counting its time so far. Does nothing when it is gone.
    pub(crate) fn edit_node(&mut self, id: NodeId, edit: impl FnOnce(&mut Node)) {
        let Some(row) = self.nodes.get_mut(&id) else {
            return;
        };
        self.undo.note(|| Was::Node(id, Some(Box::new(row.clone()))));
        self.ix.node_out(row);
        let offer = &self.offerings[row.offering.ix()].offer;
        let booked_before = row.booked_price;
        self.ledger.accrue(row, offer.capacity, offer.on_demand, self.now);
        row.accrued_to = self.now;
        let named = row.instance.is_some();
        edit(row);
        let (pool, booked_after) = (row.pool, row.booked_price);
        self.ix.node_in(row);
        if !named {
            self.ix.name_in(row);
        }
        self.totals.reprice(pool, booked_before, booked_after);
    }

    pub(crate) fn add_node(&mut self, node: Node) {
        self.undo.note(|| Was::Node(node.id, None));
        let offer = &self.offerings[node.offering.ix()].offer;
        self.totals.add(node.pool, offer.capacity, offer.gpus, node.booked_price);
        self.ix.node_in(&node);
        self.ix.name_in(&node);
        self.nodes.insert(node.id, node);
        self.counters.nodes_peak = self.counters.nodes_peak.max(self.nodes.len() as u64);
    }

    pub(crate) fn remove_node(&mut self, id: NodeId) -> Option<Node> {
        let node = self.nodes.remove(&id)?;
        self.undo.note(|| Was::Node(id, Some(Box::new(node.clone()))));
        self.ix.node_out(&node);
        self.ix.name_out(&node);
        let offer = &self.offerings[node.offering.ix()].offer;
        self.ledger.accrue(&node, offer.capacity, offer.on_demand, self.now);
        self.totals.remove(node.pool, offer.capacity, offer.gpus, node.booked_price);
        self.freed += 1;
        if self.nodes.is_empty() {
            self.counters.times_at_zero += 1;
        }
        Some(node)
    }

    pub(crate) fn add_purchase(&mut self, purchase: Purchase) {
        self.undo.note(|| Was::Purchase(purchase.id, None));
        self.ix.purchase_in(&purchase);
        self.purchases.insert(purchase.id, purchase);
    }

    pub(crate) fn edit_purchase(&mut self, id: PurchaseId, edit: impl FnOnce(&mut Purchase)) {
        let Some(row) = self.purchases.get_mut(&id) else {
            return;
        };
        self.undo.note(|| Was::Purchase(id, Some(Box::new(row.clone()))));
        self.ix.purchase_out(row);
        edit(row);
        self.ix.purchase_in(row);
    }

    pub(crate) fn remove_purchase(&mut self, id: PurchaseId) -> Option<Purchase> {
        let purchase = self.purchases.remove(&id)?;
        self.undo.note(|| Was::Purchase(id, Some(Box::new(purchase.clone()))));
        self.ix.purchase_out(&purchase);
        Some(purchase)
    }

    pub(crate) fn edit_offering(&mut self, id: OfferingId, edit: impl FnOnce(&mut OfferingRow)) {
        let row = &mut self.offerings[id.ix()];
        self.undo.note(|| Was::Offering(id, Box::new(row.clone())));
        edit(row);
    }

    /// Takes a job's quota in a pool, or gives it back.
    pub(crate) fn take_quota(&mut self, queue: QueueId, pool: PoolId, amount: crate::units::MilliGpu) {
        let Some(rule) = &self.queues[queue.ix()].rule else {
            return;
        };
        let quota = rule.quota;
        self.undo.note(|| Was::QuotaTaken(quota, pool, amount));
        self.quota.take(quota, pool, amount);
        self.use_more(quota, amount);
    }

    pub(crate) fn give_quota_back(&mut self, queue: QueueId, pool: PoolId, amount: crate::units::MilliGpu) {
        let Some(rule) = &self.queues[queue.ix()].rule else {
            return;
        };
        let quota = rule.quota;
        self.undo.note(|| Was::QuotaGiven(quota, pool, amount));
        self.quota.give_back(quota, pool, amount);
        self.use_less(quota, amount);
        self.freed += 1;
    }
}

impl Totals {
    fn both(&mut self, pool: PoolId) -> [Option<&mut Held>; 2] {
        [Some(&mut self.all), self.pools.get_mut(pool.ix())]
    }

    fn add(&mut self, pool: PoolId, capacity: CapacityType, gpus: u16, price: Rate) {
        for held in self.both(pool).into_iter().flatten() {
            held.nodes += 1;
            held.on_demand_nodes += u32::from(capacity == CapacityType::OnDemand);
            held.gpus += u32::from(gpus);
            held.spend = held.spend + price;
        }
    }

    fn remove(&mut self, pool: PoolId, capacity: CapacityType, gpus: u16, price: Rate) {
        for held in self.both(pool).into_iter().flatten() {
            held.nodes = held.nodes.saturating_sub(1);
            held.on_demand_nodes = held.on_demand_nodes.saturating_sub(u32::from(capacity == CapacityType::OnDemand));
            held.gpus = held.gpus.saturating_sub(u32::from(gpus));
            held.spend = held.spend - price;
        }
    }

    fn reprice(&mut self, pool: PoolId, before: Rate, after: Rate) {
        if before != after {
            for held in self.both(pool).into_iter().flatten() {
                held.spend = held.spend - before + after;
            }
        }
    }
}
