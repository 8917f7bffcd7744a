//! The state: plain tables, their indices, the ledger. Changed only by `apply`, row by row, through the edits in this file, so that
//! indices, totals and ledger never lag behind and a try can be undone.
//!
//! ```text
//! edit_job, edit_node, ...  ->  undo log  ->  row  ->  index, totals, ledger
//! ```
//!
//! Never: decides. Never changed from outside the engine.

pub mod allowances;
pub mod billing;
pub mod brakes;
pub mod budget;
pub mod fair;
pub mod freeze;
pub mod index;
pub mod jobs;
pub mod kept;
pub mod known;
pub mod ledger;
pub mod lines;
pub mod mix;
pub mod names;
pub mod node_reserves;
pub mod nodes;
pub mod observed_stats;
pub mod owned;
pub mod pending_cancels;
pub mod places;
mod pools;
pub mod positions;
pub mod quota;
mod reason_names;
pub mod replica_counts;
pub mod reservations;
pub mod retire;
pub mod run_ends;
pub mod services;
pub mod shares;
pub mod streaks;
pub mod table;
mod tiers;
pub mod undo;

use crate::catalog::CapacityType;
use crate::effect::Status;
use crate::grown;
use crate::ids::{BatchId, ClassId, JobId, ModelId, NodeId, OfferingId, PoolId, PurchaseId, QueueId, RackId, TierId};
use crate::job::{Gang, JobSpec, TopologyConstraint};
use crate::policy::{Lifecycle, Policy, QueueRule};
use crate::reason::Reason;
use crate::reconcile::SETTLED;
use crate::units::{Rate, Span, Timestamp};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Deref;
use index::Index;
use jobs::Job;
use ledger::Ledger;
use node_reserves::NodeReserve;
use nodes::{Node, OfferingRow, Purchase};
use quota::QuotaTree;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use table::Table;
use undo::{Undo, Was};

/// Everything the engine knows.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct State {
    /// Time of the last tick.
    pub now: Timestamp,
    /// The compiled policy in force; `None` until the first `Configured`.
    pub policy: Option<Box<Policy>>,
    /// Running numbers.
    pub counters: Counters,
    /// Specifications of the jobs.
    pub specs: Table<JobId, SharedSpec>,
    /// Jobs that are open, and until the next tick those that are over.
    pub jobs: Table<JobId, Job>,
    /// Classes of jobs.
    pub classes: Table<ClassId, Class>,
    /// Queues that the policy declares or a job names.
    pub queues: Table<QueueId, Queue>,
    /// GPU models by name.
    pub models: Table<ModelId, String>,
    /// Batch keys, each with its queue.
    pub batches: Table<BatchId, (QueueId, String)>,
    /// Racks by the cloud's names.
    pub racks: Table<RackId, String>,
    /// What has been asked for of late.
    pub mix: mix::Mix,
    /// Offerings with what is known of their stock; `OfferingId` is the position.
    pub offerings: Vec<OfferingRow>,
    /// Claims, from the decision to buy until they are gone.
    pub nodes: BTreeMap<NodeId, Node>,
    /// Purchases without an outcome.
    pub purchases: BTreeMap<PurchaseId, Purchase>,
    /// Quota and its use.
    pub quota: QuotaTree,
    /// Decayed use by node of the quota tree.
    pub fair: fair::Fair,
    /// Money spent and committed by budget.
    pub budgets: budget::Budgets,
    /// What is held against ceilings.
    pub totals: Totals,
    /// Time and money up to the last change of each node.
    pub ledger: Ledger,
    /// What was seen so far of durations, boots, reclaims and needs.
    pub observed: observed_stats::ObservedStats,
    /// Statuses that are not known to be delivered, oldest first.
    pub stream: VecDeque<Status>,
    /// Services that are not over.
    pub services: BTreeMap<JobId, services::ServiceState>,
    /// Cancels kept for submissions that may still come.
    pub pending_cancels: BTreeMap<pending_cancels::PendingCancelKey, pending_cancels::PendingCancel>,
    /// Running work is looked at again then, to move it.
    pub consolidate_at: Timestamp,
    /// By position in the policy's list of offerings.
    pub listed: Vec<OfferingId>,
    /// Reservations by pool.
    pub reservations: BTreeMap<PoolId, reservations::Reservation>,
    /// Jobs that are over and stay at most. `None`: [`retire::KEPT_FINISHED`].
    pub(crate) keeps_finished: Option<u32>,
    /// Tiers at the end of the policy's that it does not declare: they are kept for their jobs.
    pub(crate) kept_tiers: u16,
    /// The policy has changed, and settle has not judged yet what it makes impossible.
    pub unjudged: bool,
    /// The first tick after the last time in which nobody watched. Zero: there was none.
    #[serde(skip)]
    pub(crate) resumed_at: Timestamp,
    /// Runs in a row without verified progress, by job.
    #[serde(skip)]
    pub(crate) streaks: BTreeMap<JobId, streaks::Streak>,
    /// What is kept of quotas and budgets, each for one job.
    #[serde(skip)]
    pub(crate) allowances: BTreeMap<allowances::Allowance, allowances::AllowanceReservation>,
    /// What of each node is not for work, by instance type.
    #[serde(skip)]
    pub(crate) node_reserves: BTreeMap<String, NodeReserve>,
    /// What operators have stopped for a time.
    #[serde(skip)]
    pub(crate) brakes: BTreeMap<brakes::Brake, brakes::BrakeOrder>,
    /// The ledger by whom, from the first policy on that says how to bill.
    #[serde(skip)]
    pub(crate) billing: Option<Box<billing::BillingLedger>>,
    /// Pools at the end of the policy's that it does not declare: they are kept for what is left there.
    #[serde(skip)]
    pub(crate) kept_pools: u16,
    /// What the records of the open batch mean.
    #[serde(skip)]
    pub(crate) apply_version: u32,
    /// Jobs that ended in the open batch. Not part of the state's meaning.
    #[serde(skip)]
    pub(crate) ended_in_batch: Vec<JobId>,
    /// Lookups made from the rows.
    #[serde(skip)]
    pub index: Index,
    #[serde(skip)]
    pub(crate) undo: Undo,
    /// Grows whenever something was given back that a waiting job could use. Not part of the state's meaning.
    #[serde(skip)]
    pub capacity_epoch: u64,
    /// Booked jobs with a node that became ready since they were last looked at. Not part of the state's meaning.
    #[serde(skip)]
    pub woken: BTreeSet<JobId>,
    /// Queues, models, offerings and classes by name, to find them again.
    /// Lookups made from the rows.
    #[serde(skip)]
    pub(crate) names: names::Names,
}

/// A specification, shared by every copy of the state that still needs it: it may be megabytes long and never changes much.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SharedSpec(Arc<JobSpec>);

impl SharedSpec {
    /// Shares a specification.
    #[must_use]
    pub fn new(spec: JobSpec) -> SharedSpec {
        SharedSpec(Arc::new(spec))
    }

    pub(crate) fn edit(&mut self) -> &mut JobSpec {
        Arc::make_mut(&mut self.0)
    }
}

impl Deref for SharedSpec {
    type Target = JobSpec;

    fn deref(&self) -> &JobSpec {
        &self.0
    }
}

impl Serialize for SharedSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for SharedSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        JobSpec::deserialize(deserializer).map(SharedSpec::new)
    }
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
    /// Jobs that are over and have left the state.
    pub retired: u64,
    /// Replicas that are over and have left the state.
    pub replicas_retired: u64,
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
    pub within: Option<TopologyConstraint>,
    /// Its batch.
    pub batch: Option<BatchId>,
    /// The service whose replica it is.
    pub service: Option<JobId>,
    /// How its deadline, or what was taken from it, bears on what it may run on.
    pub urgency: Urgency,
    /// What a reclaim would cost it on average, coarsely. `None`: it does not run on what can be taken back.
    pub loses: Option<Span>,
    /// It has not started by its queue's target, and may be bought on-demand for that.
    pub late: bool,
}

/// How its deadline, or what was taken from it, bears on what a job may run on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub enum Urgency {
    /// Well ahead of it: spot only, where its tier would have on-demand too.
    Relaxed,
    /// None, or no better than even with it: what its tier says.
    #[default]
    Ordinary,
    /// No time for another reclaim: nothing that the cloud may take back.
    Urgent,
    /// Taken back in a row without progress: anything but this offering.
    Avoids(OfferingId),
    /// Taken back in a row without progress, on one offering after another: nothing that the cloud may take back.
    AvoidsSpot,
    /// What its tier says, and ahead of those in its queue and tier that have more time.
    Dated,
}

/// A class and what fits it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Class {
    /// What its jobs have in common.
    pub shape: Shape,
    /// Offerings that can hold at least one of its workers, by pool in order of preference, sorted.
    pub fits: Vec<(PoolId, Vec<OfferingId>)>,
    /// What a change of policy put in the way of all its jobs, for good.
    pub impossible: Option<Reason>,
}

impl State {
    /// The time of the last tick.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// After time in which nobody watched, what has happened meanwhile is known by then: a whole listing has been compared with the rows.
    #[must_use]
    pub fn unseen_until(&self) -> Timestamp {
        if self.resumed_at == Timestamp(0) { Timestamp(0) } else { self.resumed_at + SETTLED }
    }

    /// Whether what happened while nobody watched may still be unknown: nothing that a report could contradict is judged.
    #[must_use]
    pub fn is_unseen(&self) -> bool {
        self.now < self.unseen_until()
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
    #[must_use]
    pub fn start_target(&self, queue: QueueId, arrival: Timestamp, spec: &JobSpec) -> Option<jobs::JobStartTarget> {
        let rule = self.queues[queue].rule.as_ref()?;
        let target = rule.start?;
        // Milli-GPUs x milliseconds of work fit 128 bits with the wait for each of their hours.
        let work = || u128::from(spec.gang.gpu_share().0) * u128::from(spec.expected.unwrap_or(Span::mins(60)).0);
        let of = |wait: Span| work() * u128::from(wait.0) / (1000 * u128::from(crate::units::HOUR_MS));
        let worth = rule.wait_per_gpu_hour.map(|wait| Span(u64::try_from(of(wait)).unwrap_or(u64::MAX)));
        let by = arrival + worth.map_or(target.within, |worth| worth.min(target.within));
        Some(jobs::JobStartTarget { by, when_late: target.when_late, wait: jobs::Wait::New })
    }

    /// The queue or cohort of that path.
    pub(crate) fn quota_named(&self, name: &str) -> Option<crate::ids::QuotaId> {
        let at = self.policy.as_deref()?.quotas.iter().position(|node| node.name == name)?;
        u16::try_from(at).ok().map(crate::ids::QuotaId)
    }

    /// Running numbers.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// All jobs, in order of acceptance, with their specifications.
    pub fn jobs(&self) -> impl DoubleEndedIterator<Item = (&Job, &JobSpec)> + '_ {
        self.jobs.iter().map(|(id, job)| (job, &*self.specs[id]))
    }

    /// A job and its specification.
    #[must_use]
    pub fn job(&self, id: JobId) -> Option<(&Job, &JobSpec)> {
        Some((self.jobs.get(id)?, self.specs.get(id)?))
    }

    /// The latest job of an identity.
    #[must_use]
    pub fn job_of(&self, tenant: &str, subject: &str) -> Option<JobId> {
        self.index.by_identity.get(&(String::from(tenant), String::from(subject))).copied()
    }

    /// Whether a principal may cancel, read or steer a job: see [`State::may_act_for`].
    #[must_use]
    pub fn may_act(&self, principal: &str, job: JobId) -> bool {
        let Some((row, spec)) = self.job(job) else { return false };
        self.may_act_for(principal, &spec.principal, &self.queues[row.queue].path)
    }

    /// Whether a principal may act on what another submitted to a queue: its own always, else where the queue lists it in the policy in
    /// force. The one place where this is asked, for jobs that are here and for those that have left.
    #[must_use]
    pub fn may_act_for(&self, principal: &str, submitter: &str, queue: &str) -> bool {
        submitter == principal || self.policy.as_deref().is_some_and(|p| p.may_act(principal, queue))
    }

    /// Jobs that are not over. A service is one, its replicas are none.
    #[must_use]
    pub fn open_jobs(&self) -> usize {
        let replicas = self.counters.replicas - self.counters.replicas_over;
        self.index.open_jobs.len() - replicas as usize
    }

    /// Of these, those with a run that may be alive: services with a replica that is loaded count.
    #[must_use]
    pub fn running_jobs(&self) -> usize {
        let runs = |id: &&JobId| self.jobs[**id].service.is_none() && self.jobs[**id].alive();
        let loaded = self.services.values().filter(|row| row.loaded > 0).count();
        // Whoever is alive holds places, and a million that wait do not.
        self.index.holding.values().flatten().filter(runs).count() + loaded
    }

    /// Jobs with workers that may be alive, with their specifications. Who waits is not gone through.
    pub fn alive_jobs(&self) -> impl Iterator<Item = (&Job, &JobSpec)> + '_ {
        let holding = self.index.holding.values().flatten().filter_map(|id| self.job(*id));
        holding.filter(|(job, _)| job.alive())
    }

    /// Rows that are not over, by id: jobs, services and their replicas.
    pub fn open_job_ids(&self) -> impl Iterator<Item = JobId> + '_ {
        self.index.open_jobs.iter().copied()
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
        self.nodes.get(self.index.by_instance.get(instance)?)
    }

    /// The claims that were bought: all but owned nodes.
    pub fn bought_nodes(&self) -> impl Iterator<Item = &Node> + '_ {
        self.nodes.values().filter(|node| node.owned.is_none())
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

    /// The queues.
    #[must_use]
    pub fn queues(&self) -> &Table<QueueId, Queue> {
        &self.queues
    }

    /// The classes.
    #[must_use]
    pub fn classes(&self) -> &Table<ClassId, Class> {
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
            let offer = &self.offerings[node.offering.index()].offer;
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
        self.offerings[node.offering.index()].offer.capacity
    }

    /// The lookups.
    #[must_use]
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// The bytes of everything that matters: equal states have equal bytes on any machine.
    ///
    /// # Errors
    ///
    /// A row cannot be encoded, which is a fault of this program.
    pub fn encode(&self) -> Result<Vec<u8>, postcard::Error> {
        let mut bytes = postcard::to_allocvec(self)?;
        grown::say(&mut bytes, self)?;
        Ok(bytes)
    }

    /// The bytes of [`State::encode`], handed on as they are made.
    ///
    /// # Errors
    ///
    /// A row cannot be encoded, which is a fault of this program.
    pub fn encode_into<E: Extend<u8>>(&self, into: E) -> Result<E, postcard::Error> {
        let mut into = postcard::to_extend(self, into)?;
        let mut terms = Vec::new();
        grown::say(&mut terms, self)?;
        into.extend(terms);
        Ok(into)
    }

    /// A state from its bytes, with its lookups rebuilt.
    ///
    /// # Errors
    ///
    /// The bytes are damaged, or another version wrote them.
    pub fn decode(bytes: &[u8]) -> Result<State, postcard::Error> {
        let (mut state, rest) = postcard::take_from_bytes::<State>(bytes)?;
        grown::hear(rest, &mut state)?;
        state.rebuild();
        Ok(state)
    }
}

// Edits. Every change of a row goes through one of these.
impl State {
    pub(crate) fn edit_job(&mut self, id: JobId, edit: impl FnOnce(&mut Job)) {
        let row = &mut self.jobs[id];
        self.undo.note(|| Was::Job(Box::new(row.clone())));
        let counted = index::counts_as(row);
        self.index.row_out(row, &self.specs[id]);
        let held_since = row.holds_since();
        edit(row);
        row.start_by = start_by(row, &self.specs[id], &self.classes[row.class]);
        self.index.row_in(row, &self.specs[id]);
        self.index.recount(counted, index::counts_as(row));
        let turns = held_since.zip(row.holds_since()).is_some_and(|(was, is)| was != is);
        if turns && row.pool.is_some_and(|pool| self.has_quotas(pool)) {
            // Another borrows in its place.
            self.capacity_epoch += 1;
        }
    }

    /// Edits what no lookup is made from.
    pub(crate) fn edit_job_quietly(&mut self, id: JobId, edit: impl FnOnce(&mut Job)) {
        let row = &mut self.jobs[id];
        self.undo.note(|| Was::Job(Box::new(row.clone())));
        edit(row);
        row.start_by = start_by(row, &self.specs[id], &self.classes[row.class]);
    }

    /// No node is kept for a job any more.
    pub(crate) fn free_reserved(&mut self, job: JobId) {
        for node in self.index.reserved_for(job) {
            self.edit_node(node, |row| row.reserved.retain(|(owner, _)| *owner != job));
        }
    }

    /// Edits a claim after counting its time so far. Does nothing when it is gone.
    pub(crate) fn edit_node(&mut self, id: NodeId, edit: impl FnOnce(&mut Node)) {
        let Some(row) = self.nodes.get_mut(&id) else {
            return;
        };
        self.undo.note(|| Was::Node(id, Some(Box::new(row.clone()))));
        self.index.node_out(row);
        let offer = &self.offerings[row.offering.index()].offer;
        let (booked_before, owned) = (row.booked_price, row.owned.is_some());
        self.ledger.accrue(row, offer.capacity, offer.on_demand, self.now);
        if let Some(billing) = &mut self.billing {
            billing::charge(billing, &mut self.undo, &self.jobs, (row, offer, self.now));
        }
        row.accrued_to = self.now;
        let named = row.instance.is_some();
        edit(row);
        let (pool, booked_after) = (row.pool, row.booked_price);
        self.index.node_in(row);
        if !named {
            self.index.name_in(row);
        }
        if !owned {
            self.totals.reprice(pool, booked_before, booked_after);
        }
    }

    pub(crate) fn add_node(&mut self, node: Node) {
        self.undo.note(|| Was::Node(node.id, None));
        let offer = &self.offerings[node.offering.index()].offer;
        self.totals.add(node.pool, offer.capacity, offer.gpus, node.booked_price);
        self.index.node_in(&node);
        self.index.name_in(&node);
        self.nodes.insert(node.id, node);
        self.counters.nodes_peak = self.counters.nodes_peak.max(u64::from(self.totals.all.nodes));
    }

    pub(crate) fn remove_node(&mut self, id: NodeId) -> Option<Node> {
        let node = self.nodes.remove(&id)?;
        self.undo.note(|| Was::Node(id, Some(Box::new(node.clone()))));
        self.index.node_out(&node);
        self.index.name_out(&node);
        let offer = &self.offerings[node.offering.index()].offer;
        self.ledger.accrue(&node, offer.capacity, offer.on_demand, self.now);
        if let Some(billing) = &mut self.billing {
            billing::charge(billing, &mut self.undo, &self.jobs, (&node, offer, self.now));
        }
        self.totals.remove(node.pool, offer.capacity, offer.gpus, node.booked_price);
        self.capacity_epoch += 1;
        if self.totals.all.nodes == 0 && node.owned.is_none() {
            self.counters.times_at_zero += 1;
        }
        Some(node)
    }

    /// Work took so many nodes of a pool with nothing on them.
    pub(crate) fn note_needed(&mut self, pool: PoolId, nodes: u32, now: Timestamp) {
        let was = self.observed.needs_row(pool);
        self.undo.note(|| Was::Needs(pool, was));
        self.observed.needed(pool, nodes, now);
    }

    pub(crate) fn add_purchase(&mut self, purchase: Purchase) {
        self.undo.note(|| Was::Purchase(purchase.id, None));
        self.index.purchase_in(&purchase);
        self.purchases.insert(purchase.id, purchase);
    }

    pub(crate) fn edit_purchase(&mut self, id: PurchaseId, edit: impl FnOnce(&mut Purchase)) {
        let Some(row) = self.purchases.get_mut(&id) else {
            return;
        };
        self.undo.note(|| Was::Purchase(id, Some(Box::new(row.clone()))));
        self.index.purchase_out(row);
        edit(row);
        self.index.purchase_in(row);
    }

    pub(crate) fn remove_purchase(&mut self, id: PurchaseId) -> Option<Purchase> {
        let purchase = self.purchases.remove(&id)?;
        self.undo.note(|| Was::Purchase(id, Some(Box::new(purchase.clone()))));
        self.index.purchase_out(&purchase);
        Some(purchase)
    }

    pub(crate) fn edit_offering(&mut self, id: OfferingId, edit: impl FnOnce(&mut OfferingRow)) {
        let row = &mut self.offerings[id.index()];
        self.undo.note(|| Was::Offering(id, Box::new(row.clone())));
        edit(row);
    }

    /// Takes a job's quota in a pool, or gives it back.
    pub(crate) fn take_quota(&mut self, queue: QueueId, pool: PoolId, amount: crate::units::MilliGpu) {
        let Some(rule) = &self.queues[queue].rule else {
            return;
        };
        let quota = rule.quota;
        self.undo.note(|| Was::QuotaTaken(quota, pool, amount));
        self.quota.take(quota, pool, amount);
        self.use_more(quota, amount);
    }

    pub(crate) fn give_quota_back(&mut self, queue: QueueId, pool: PoolId, amount: crate::units::MilliGpu) {
        let Some(rule) = &self.queues[queue].rule else {
            return;
        };
        let quota = rule.quota;
        self.undo.note(|| Was::QuotaGiven(quota, pool, amount));
        self.quota.give_back(quota, pool, amount);
        self.use_less(quota, amount);
        self.capacity_epoch += 1;
    }
}

/// The latest start that meets a job's deadline: what orders it among others of its queue and tier. `NEVER`: it has none, it cannot be met,
/// or it does not count yet.
pub(crate) fn start_by(job: &Job, spec: &JobSpec, class: &Class) -> Timestamp {
    let counts = class.shape.urgency != Urgency::Ordinary && !job.hopeless;
    let (Some(deadline), Some(expected), true) = (spec.deadline, spec.expected, counts) else {
        return Timestamp::NEVER;
    };
    deadline - (expected - job.progress) - spec.restart
}

impl Totals {
    fn both(&mut self, pool: PoolId) -> [Option<&mut Held>; 2] {
        [Some(&mut self.all), self.pools.get_mut(pool.index())]
    }

    /// Ceilings bound what is bought: owned nodes are outside of them.
    fn add(&mut self, pool: PoolId, capacity: CapacityType, gpus: u16, price: Rate) {
        if capacity == CapacityType::Owned {
            return;
        }
        for held in self.both(pool).into_iter().flatten() {
            held.nodes += 1;
            held.on_demand_nodes += u32::from(capacity == CapacityType::OnDemand);
            held.gpus += u32::from(gpus);
            held.spend = held.spend + price;
        }
    }

    fn remove(&mut self, pool: PoolId, capacity: CapacityType, gpus: u16, price: Rate) {
        if capacity == CapacityType::Owned {
            return;
        }
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
