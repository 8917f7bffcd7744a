//! The ledger by whom: every interval of a node's life, cut by kind and by job, as charges that leave the state with their batch.
//!
//! ```text
//! a node changes -> its interval since the last change -> cut at slots -> shares of its jobs, what is free, what others hold -> charges
//! batch closed   -> charges merged -> the journal takes them in the transaction of the batch, and the next tick forgets them
//! a run ends     -> its work since the last checkpoint moves from `Worked` to `Lost`
//! ```
//!
//! A charge is `share x milliseconds` of a node at a price. Shares are thousandths of a GPU where the node has GPUs, millionths of the node
//! where it has none, and add up to the whole node at any time; so the charges of a node add up to price x time exactly, however its time
//! was cut. Amounts are never rounded; a share of a node without GPUs is a whole number of millionths, rounded down.
//!
//! What stays in the state is what may still move: work of runs since their last checkpoint, a number a run and slot.
//!
//! Never: money of its own (a charge has its price), a walk over all nodes but where a policy enters, a charge of a try that was taken back.

use super::State;
use super::jobs::{Job, Phase};
use super::nodes::{Node, NodePhase};
use super::places::{Hold, WorkerNeeds};
use super::table::Table;
use super::undo::{Undo, Was};
use crate::catalog::{CapacityType, Offering};
use crate::effect::WorkerPlace;
use crate::ids::{Attempt, JobId, NodeId, OfferingId, PoolId};
use crate::policy::Policy;
use crate::units::{GpuTime, Mib, MilliCpu, Rate, Spend, Timestamp};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// A quarter of an hour: the midnights of all time zones in use lie on one.
pub const QUARTER_MS: u64 = 900_000;

/// The shares of a node without GPUs: millionths of it.
pub const CPU_NODE_SHARES: u64 = 1_000_000;

/// Slots into which one interval is cut: nearly two years of hours. What lies before them counts in the slot in which the interval begins.
const MOST_SLOTS: u64 = 16_384;

/// A slot of the ledger, by its beginning in quarters of an hour since 1970. It lasts an hour, or less where the billing zone's clock does
/// not differ from UTC by whole hours.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct LedgerSlot(pub u32);

impl LedgerSlot {
    /// When it begins.
    #[must_use]
    pub fn begins(self) -> Timestamp {
        Timestamp(u64::from(self.0) * QUARTER_MS)
    }
}

/// What an interval of a node, or of a share of it, was.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum ChargeKind {
    /// Held by a run.
    Worked,
    /// Held by a run that ended before its job was done, since its last verified checkpoint.
    Lost,
    /// Held by a run whose GPUs were reported idle.
    Lingering,
    /// Kept for a booked gang whose other nodes were not ready yet.
    Booked,
    /// Not ready yet.
    Boot,
    /// Ready, with nothing on the node.
    Idle,
    /// Free, with something on the node.
    Fragmentation,
    /// Held by pods that are not Forebay's, on an owned node.
    Foreign,
}

impl ChargeKind {
    /// All kinds.
    pub const ALL: [ChargeKind; 8] = [
        ChargeKind::Worked,
        ChargeKind::Lost,
        ChargeKind::Lingering,
        ChargeKind::Booked,
        ChargeKind::Boot,
        ChargeKind::Idle,
        ChargeKind::Fragmentation,
        ChargeKind::Foreign,
    ];

    /// As tables, the API and metrics name it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            ChargeKind::Worked => "worked",
            ChargeKind::Lost => "lost",
            ChargeKind::Lingering => "lingering",
            ChargeKind::Booked => "booked",
            ChargeKind::Boot => "boot",
            ChargeKind::Idle => "idle",
            ChargeKind::Fragmentation => "fragmentation",
            ChargeKind::Foreign => "foreign",
        }
    }
}

/// The pool of a charge: a position in [`BillingLedger::pools`], which stays when policies change.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct BilledPool(pub u16);

/// What a charge is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ChargeKey {
    /// When.
    pub slot: LedgerSlot,
    /// For which job; replicas are charged to their service. `None`: for nobody's.
    pub job: Option<JobId>,
    /// For which attempt of it. 0: of a service, or of nobody's.
    pub attempt: Attempt,
    /// What it was.
    pub kind: ChargeKind,
    /// In which pool.
    pub pool: BilledPool,
    /// On what.
    pub offering: OfferingId,
    /// At which price of the whole node.
    pub price: Rate,
}

/// Share of a node x milliseconds. Less than nothing: a correction of what was charged before.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Charge {
    /// What for.
    pub key: ChargeKey,
    /// How much.
    pub amount: i128,
}

/// Who a job is, as bills name it: frozen when it was submitted.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct BilledJob {
    /// Which.
    pub job: JobId,
    /// Whose namespace its subject lives in.
    pub tenant: String,
    /// Its name there.
    pub subject: String,
    /// Who submitted it.
    pub principal: String,
    /// Its queue, by path.
    pub queue: String,
    /// Its tier.
    pub tier: String,
    /// The labels that the policy bills by.
    pub labels: BTreeMap<String, String>,
    /// When it was accepted.
    pub submitted: Timestamp,
}

/// What a batch adds to the ledger.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct BatchCharges {
    /// The charges, merged and in order.
    pub charges: Vec<Charge>,
    /// Jobs that were given places: from now on they may be charged.
    pub jobs: Vec<BilledJob>,
}

impl BatchCharges {
    /// Whether it adds nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.charges.is_empty() && self.jobs.is_empty()
    }
}

/// Adds up charges for the same; what comes to nothing is left out.
#[must_use]
pub fn merged(charges: impl IntoIterator<Item = Charge>) -> Vec<Charge> {
    let mut sums: BTreeMap<ChargeKey, i128> = BTreeMap::new();
    for Charge { key, amount } in charges {
        *sums.entry(key).or_default() += amount;
    }
    sums.into_iter().filter(|(_, amount)| *amount != 0).map(|(key, amount)| Charge { key, amount }).collect()
}

/// All shares of a node of an offering together.
#[must_use]
pub fn all_shares(offer: &Offering) -> u64 {
    if offer.gpus > 0 { u64::from(offer.gpus) * 1000 } else { CPU_NODE_SHARES }
}

/// The share that one worker holds of a node.
pub(crate) fn share_of_worker(place: &WorkerPlace, needs: WorkerNeeds, offer: &Offering) -> u64 {
    if offer.gpus > 0 { place.gpu_share().0 } else { dominant_share(needs.cpu, needs.mem, offer) }
}

/// The share that pods of others hold of a node, at most what workers leave of it.
fn share_of_others(node: &Node, offer: &Offering, left: u64) -> u64 {
    let Some(owned) = &node.owned else { return 0 };
    let (gpus, cpu, mem) = (u64::from(node.foreign_gpus()), owned.foreign.cpu, owned.foreign.mem);
    let share = if offer.gpus > 0 { gpus * 1000 } else { dominant_share(cpu, mem, offer) };
    share.min(left)
}

/// So much CPU and memory in millionths of a node without GPUs: its part of the one or of the other, whichever is more.
fn dominant_share(cpu: MilliCpu, mem: Mib, offer: &Offering) -> u64 {
    let part = |of: u64, all: u64| u128::from(of) * u128::from(CPU_NODE_SHARES) / u128::from(all.max(1));
    let dominant = part(cpu.0, offer.cpu.0).max(part(mem.0, offer.mem.0));
    u64::try_from(dominant).unwrap_or(CPU_NODE_SHARES).min(CPU_NODE_SHARES)
}

/// What one job holds of a node. Made from the rows again after a restart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeldPart {
    /// Which job.
    pub job: JobId,
    /// Workers of it there.
    workers: u32,
    /// Shares of those that run.
    running: u64,
    /// Shares of those that are booked.
    booked: u64,
}

impl HeldPart {
    fn held(&mut self, hold: Hold) -> &mut u64 {
        if hold == Hold::Running { &mut self.running } else { &mut self.booked }
    }
}

fn part_in(parts: &mut Vec<HeldPart>, job: JobId, share: u64, hold: Hold) {
    let at = parts.binary_search_by_key(&job, |part| part.job).unwrap_or_else(|at| {
        parts.insert(at, HeldPart { job, workers: 0, running: 0, booked: 0 });
        at
    });
    let part = &mut parts[at];
    part.workers += 1;
    *part.held(hold) += share;
}

impl Node {
    /// A worker takes a share.
    pub(super) fn part_in(&mut self, job: JobId, share: u64, hold: Hold) {
        part_in(&mut self.parts, job, share, hold);
    }

    /// A worker gives its share back.
    pub(super) fn part_out(&mut self, job: JobId, share: u64, hold: Hold) {
        let Ok(at) = self.parts.binary_search_by_key(&job, |part| part.job) else { return };
        let part = &mut self.parts[at];
        part.workers = part.workers.saturating_sub(1);
        let held = part.held(hold);
        *held = held.saturating_sub(share);
        if part.workers == 0 {
            self.parts.remove(at);
        }
    }

    /// A booked worker runs.
    pub(super) fn part_starts(&mut self, job: JobId, share: u64) {
        let Ok(at) = self.parts.binary_search_by_key(&job, |part| part.job) else { return };
        let part = &mut self.parts[at];
        part.booked = part.booked.saturating_sub(share);
        part.running += share;
    }
}

/// A share of a node, for whom, and what it is while nothing changes there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct NodeShare {
    kind: ChargeKind,
    job: Option<JobId>,
    share: u64,
}

/// The shares of a node as it is: all of it, in order of jobs, then what is nobody's.
fn shares(node: &Node, offer: &Offering) -> Vec<NodeShare> {
    let mut shares = Vec::with_capacity(node.parts.len() + 2);
    for part in &node.parts {
        let job = Some(part.job);
        shares.push(NodeShare { kind: ChargeKind::Worked, job, share: part.running });
        shares.push(NodeShare { kind: ChargeKind::Booked, job, share: part.booked });
    }
    let all = all_shares(offer);
    let held: u64 = shares.iter().map(|one| one.share).sum();
    if held > all {
        squeeze(&mut shares, held, all);
    }
    let left = all.saturating_sub(held);
    let foreign = share_of_others(node, offer, left);
    let free = left - foreign;
    let kind = if node.phase == NodePhase::Booting {
        // Booked or not, what boots does nothing yet.
        for one in shares.iter_mut().filter(|one| one.kind == ChargeKind::Booked) {
            (one.kind, one.job) = (ChargeKind::Boot, None);
        }
        ChargeKind::Boot
    } else if node.holds.is_empty() {
        ChargeKind::Idle
    } else {
        ChargeKind::Fragmentation
    };
    shares.push(NodeShare { kind, job: None, share: free });
    shares.push(NodeShare { kind: ChargeKind::Foreign, job: None, share: foreign });
    shares.retain(|one| one.share > 0);
    shares
}

/// Shares of more than there is, in proportion: each up to where the sum so far, rounded down, ends. So they add up to all of it.
fn squeeze(shares: &mut [NodeShare], held: u64, all: u64) {
    let (mut before, mut sum) = (0, 0);
    for one in shares {
        sum += u128::from(one.share);
        let upto = u64::try_from(sum * u128::from(all) / u128::from(held.max(1))).unwrap_or(all);
        one.share = upto - before;
        before = upto;
    }
}

/// Work of a run since its last checkpoint, that may still be lost.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(crate) struct WorkKey {
    /// The row of the run: of a replica its own.
    pub job: JobId,
    pub slot: LedgerSlot,
    pub pool: BilledPool,
    pub offering: OfferingId,
    pub price: Rate,
}

/// What becomes of a run's work since its last checkpoint when the run ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WorkEnd {
    /// Its job is done, or it had not begun to work.
    Kept,
    /// It has to be done again, or never will be.
    Lost,
}

/// What had been spent of a capacity type when the ledger began to know by whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct EarlierSpend {
    /// Money.
    pub cost: Spend,
    /// GPU time.
    pub gpu_time: GpuTime,
}

/// Since when the ledger knows by whom, and what had been spent before: of reserved, spot, on-demand and owned nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct BillingBegan {
    /// When.
    pub at: Timestamp,
    /// What had been spent.
    pub earlier: [EarlierSpend; 4],
}

/// The ledger by whom, as far as it is in the state.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BillingLedger {
    /// Since when, and what was before.
    pub(crate) began: BillingBegan,
    /// Every pool that was ever charged, by name.
    pub(crate) pools: Vec<String>,
    /// What may still be lost, in shares x milliseconds.
    pub(crate) unsaved: BTreeMap<WorkKey, u64>,
    /// Of the pools of the policy in force. Made from the names.
    pool_of: Vec<BilledPool>,
    /// How long a slot is, in quarters of an hour. Made from the policy.
    quarters: u32,
    /// Those of the open batch, or of the last one when none is open. Not part of the state's meaning.
    pub(super) charges: Vec<Charge>,
    /// Jobs that were given places in it. Not part of the state's meaning.
    pub(super) booked: Vec<JobId>,
}

impl BillingLedger {
    /// Since when the ledger knows by whom, and what was spent before.
    #[must_use]
    pub fn began(&self) -> &BillingBegan {
        &self.began
    }

    /// The names of pools, by [`BilledPool`].
    #[must_use]
    pub fn pools(&self) -> &[String] {
        &self.pools
    }

    /// What goes into a snapshot.
    pub(crate) fn frozen(&self) -> BillingLedger {
        BillingLedger { charges: Vec::new(), booked: Vec::new(), ..self.clone() }
    }

    /// Follows the policy in force.
    fn renew(&mut self, policy: Option<&Policy>) {
        let rule = policy.and_then(|policy| policy.billing.as_ref());
        self.quarters = rule.map_or(4, |rule| quarters(rule.offsets.iter().map(|(_, seconds)| *seconds)));
        let names = policy.map_or(&[][..], |policy| &policy.pools).iter().map(|pool| &pool.name);
        self.pool_of = names.map(|name| named(&mut self.pools, name)).collect();
    }

    fn pool_of(&self, pool: PoolId) -> BilledPool {
        self.pool_of.get(pool.index()).copied().unwrap_or(BilledPool(u16::MAX))
    }
}

fn named(pools: &mut Vec<String>, name: &str) -> BilledPool {
    let at = pools.iter().position(|known| known == name).unwrap_or_else(|| {
        pools.push(name.into());
        pools.len() - 1
    });
    BilledPool(u16::try_from(at).unwrap_or(u16::MAX))
}

/// The longest slots, in quarters of an hour, at whose ends every midnight of a zone with these offsets lies.
fn quarters(offsets: impl Iterator<Item = i32>) -> u32 {
    let (mut hours, mut halves) = (true, true);
    for seconds in offsets {
        hours &= seconds % 3_600 == 0;
        halves &= seconds % 1_800 == 0;
    }
    if hours {
        4
    } else if halves {
        2
    } else {
        1
    }
}

/// Charges a node's time since it was last counted.
pub(super) fn charge(
    billing: &mut BillingLedger,
    undo: &mut Undo,
    jobs: &Table<JobId, Job>,
    (node, offer, now): (&Node, &Offering, Timestamp),
) {
    let from = node.accrued_to;
    if node.phase == NodePhase::Requested || now <= from {
        return;
    }
    let pool = billing.pool_of(node.pool);
    let shares = shares(node, offer);
    let per_slot = u64::from(billing.quarters.max(1)) * QUARTER_MS;
    let first_cut = (now.0 / per_slot).saturating_sub(MOST_SLOTS) + 1;
    let mut begin = from.0;
    while begin < now.0 {
        let end = ((begin / per_slot + 1).max(first_cut) * per_slot).min(now.0);
        let at = begin / per_slot * u64::from(billing.quarters.max(1));
        let slot = LedgerSlot(u32::try_from(at).unwrap_or(u32::MAX));
        for one in &shares {
            let amount = one.share.saturating_mul(end - begin);
            let job = one.job.and_then(|id| jobs.get(id));
            let key = ChargeKey {
                slot,
                job: job.map(billed_as),
                attempt: job.map_or(Attempt(0), |job| billed_attempt(job, one.kind)),
                kind: one.kind,
                pool,
                offering: node.offering,
                price: node.price,
            };
            billing.charges.push(Charge { key, amount: i128::from(amount) });
            if let (ChargeKind::Worked, Some(job)) = (one.kind, job.filter(|job| job.service.is_none())) {
                let work = WorkKey { job: job.id, slot, pool, offering: node.offering, price: node.price };
                let was = billing.unsaved.get(&work).copied();
                undo.note(|| Was::Work(work, was));
                billing.unsaved.insert(work, was.unwrap_or(0).saturating_add(amount));
            }
        }
        begin = end;
    }
}

/// Replicas are nobody's jobs: their service is charged.
fn billed_as(job: &Job) -> JobId {
    job.service.unwrap_or(job.id)
}

/// What is booked is for the next attempt.
fn billed_attempt(job: &Job, kind: ChargeKind) -> Attempt {
    match job.service {
        Some(_) => Attempt(0),
        None => Attempt(job.attempt.0 + u32::from(kind == ChargeKind::Booked)),
    }
}

impl State {
    /// The ledger by whom. `None`: no policy that says how to bill was ever in force.
    #[must_use]
    pub fn billing(&self) -> Option<&BillingLedger> {
        self.billing.as_deref()
    }

    /// What the open batch, or the last one when none is open, adds to the ledger.
    #[must_use]
    pub fn charged(&self) -> BatchCharges {
        let Some(billing) = self.billing.as_deref() else { return BatchCharges::default() };
        let booked: BTreeSet<JobId> = billing.booked.iter().copied().collect();
        let jobs = booked.into_iter().filter_map(|id| self.billed_job(id)).collect();
        BatchCharges { charges: merged(billing.charges.iter().copied()), jobs }
    }

    /// What has been used since each node was last counted, up to the last tick: with everything that was charged it is the whole bill.
    #[must_use]
    pub fn open_charges(&self) -> Vec<Charge> {
        let Some(billing) = self.billing.as_deref() else { return Vec::new() };
        let mut open = BillingLedger { unsaved: BTreeMap::new(), charges: Vec::new(), ..billing.frozen() };
        for node in self.nodes.values() {
            let offer = &self.offerings[node.offering.index()].offer;
            charge(&mut open, &mut Undo::default(), &self.jobs, (node, offer, self.now));
        }
        merged(open.charges)
    }

    /// Who a job is on a bill. `None`: it has left the state.
    #[must_use]
    pub fn billed_job(&self, id: JobId) -> Option<BilledJob> {
        let (job, spec) = self.job(id)?;
        let tier = self.policy.as_deref().and_then(|policy| policy.tiers.get(job.tier.index()));
        Some(BilledJob {
            job: id,
            tenant: spec.tenant.clone(),
            subject: spec.subject.clone(),
            principal: spec.principal.clone(),
            queue: spec.queue.clone(),
            tier: tier.map(|tier| tier.name.clone()).unwrap_or_default(),
            labels: spec.labels.clone(),
            submitted: job.arrival,
        })
    }

    /// Makes again what is not part of the bytes.
    pub(crate) fn rebuild_billing(&mut self) {
        if let Some(billing) = &mut self.billing {
            billing.renew(self.policy.as_deref());
        }
        for (id, parts) in self.parts_of_nodes() {
            if let Some(node) = self.nodes.get_mut(&id) {
                node.parts = parts;
            }
        }
    }

    /// What each job holds of each node, from the rows of the jobs.
    pub(crate) fn parts_of_nodes(&self) -> BTreeMap<NodeId, Vec<HeldPart>> {
        let mut parts: BTreeMap<NodeId, Vec<HeldPart>> = self.nodes.keys().map(|id| (*id, Vec::new())).collect();
        for (id, job) in self.jobs.iter() {
            let hold = if job.phase == Phase::Booked { Hold::Booked } else { Hold::Running };
            for place in &job.places {
                let (Some(node), Some(parts)) = (self.nodes.get(&place.node), parts.get_mut(&place.node)) else {
                    continue;
                };
                let needs = WorkerNeeds::of(&self.classes[job.class].shape.gang, place);
                part_in(parts, id, share_of_worker(place, needs, &self.offerings[node.offering.index()].offer), hold);
            }
        }
        parts
    }

    /// Another policy enters: what was used under the one before is charged as it was then. Billing begins with the first that says how.
    pub(crate) fn bill_under(&mut self, policy: &Policy) -> bool {
        if self.billing.is_none() && policy.billing.is_none() {
            return false;
        }
        let nodes: Vec<NodeId> = self.nodes.keys().copied().collect();
        nodes.into_iter().for_each(|id| self.edit_node(id, |_| {}));
        if self.billing.is_none() {
            let of = |capacity| {
                let account = self.ledger.account(capacity);
                EarlierSpend { cost: account.cost, gpu_time: account.bought }
            };
            let began = BillingBegan { at: self.now, earlier: CapacityType::ALL.map(of) };
            let holding = self.index.holding.values().flatten().map(|id| billed_as(&self.jobs[*id])).collect();
            self.billing =
                Some(alloc::boxed::Box::new(BillingLedger { began, booked: holding, ..BillingLedger::default() }));
        }
        true
    }

    /// The policy in force is another one.
    pub(crate) fn renew_billing(&mut self) {
        if let Some(billing) = &mut self.billing {
            billing.renew(self.policy.as_deref());
        }
    }

    /// A job was given places: it may be charged.
    pub(crate) fn may_be_charged(&mut self, id: JobId) {
        let billed = billed_as(&self.jobs[id]);
        if let Some(billing) = &mut self.billing {
            billing.booked.push(billed);
        }
    }

    /// What a run has done so far is saved, or was before its work began: it cannot be lost any more.
    pub(crate) fn work_saved(&mut self, id: JobId) {
        if self.billing.is_some() {
            self.count_places(id);
            let _ = self.take_work(id);
        }
    }

    /// A run has ended, and its places are counted: nothing of it can be lost any more, or all is since its last checkpoint.
    pub(crate) fn end_work(&mut self, id: JobId, end: WorkEnd) {
        for (work, amount) in self.take_work(id) {
            if end == WorkEnd::Lost {
                self.move_charge(work, amount, ChargeKind::Lost);
            }
        }
    }

    /// The batch before is closed and taken.
    pub(crate) fn forget_charges(&mut self) {
        if let Some(billing) = &mut self.billing {
            billing.charges.clear();
            billing.booked.clear();
        }
    }

    /// A run whose share of GPUs did nothing for a while, as was reported now: its latest work since its last checkpoint was none.
    pub(crate) fn work_idle(&mut self, id: JobId, idle: GpuTime) {
        if self.billing.is_none() {
            return;
        }
        self.count_places(id);
        let mut left = u64::try_from(idle.0).unwrap_or(u64::MAX);
        let Some(billing) = &mut self.billing else { return };
        let mut taken = Vec::new();
        for (work, amount) in billing.unsaved.range_mut(works_of(id)).rev() {
            if left == 0 {
                break;
            }
            if self.offerings[work.offering.index()].offer.gpus == 0 {
                continue;
            }
            let part = left.min(*amount);
            self.undo.note(|| Was::Work(*work, Some(*amount)));
            *amount -= part;
            left -= part;
            taken.push((*work, part));
        }
        for (work, amount) in taken {
            if let Some(billing) = self.billing.as_mut().filter(|billing| billing.unsaved.get(&work) == Some(&0)) {
                billing.unsaved.remove(&work);
            }
            self.move_charge(work, amount, ChargeKind::Lingering);
        }
    }

    /// Counts the nodes of a job up to now.
    fn count_places(&mut self, id: JobId) {
        let nodes = super::places::nodes_of(&self.jobs[id].places);
        nodes.into_iter().for_each(|node| self.edit_node(node, |_| {}));
    }

    fn take_work(&mut self, id: JobId) -> Vec<(WorkKey, u64)> {
        let Some(billing) = &mut self.billing else { return Vec::new() };
        let works: Vec<(WorkKey, u64)> = billing.unsaved.range(works_of(id)).map(|(k, v)| (*k, *v)).collect();
        for (work, amount) in &works {
            self.undo.note(|| Was::Work(*work, Some(*amount)));
            billing.unsaved.remove(work);
        }
        works
    }

    fn move_charge(&mut self, work: WorkKey, amount: u64, kind: ChargeKind) {
        let WorkKey { job, slot, pool, offering, price } = work;
        let attempt = self.jobs[job].attempt;
        let Some(billing) = &mut self.billing else { return };
        let key = ChargeKey { slot, job: Some(job), attempt, kind: ChargeKind::Worked, pool, offering, price };
        let amount = i128::from(amount);
        billing.charges.push(Charge { key, amount: -amount });
        billing.charges.push(Charge { key: ChargeKey { kind, ..key }, amount });
    }
}

/// All that is kept of a run.
fn works_of(job: JobId) -> core::ops::RangeInclusive<WorkKey> {
    let at =
        |slot, pool, offering, price| WorkKey { job, slot: LedgerSlot(slot), pool: BilledPool(pool), offering, price };
    at(0, 0, OfferingId(0), Rate(0))..=at(u32::MAX, u16::MAX, OfferingId(u32::MAX), Rate(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(share: u64) -> NodeShare {
        NodeShare { kind: ChargeKind::Worked, job: Some(JobId(share)), share }
    }

    #[test]
    fn more_than_there_is_is_squeezed_into_all_of_it() {
        for held in [&[700_000, 700_000][..], &[1_000_000, 1, 1], &[333_333; 7], &[0, 999_999, 2]] {
            let mut shares: Vec<NodeShare> = held.iter().map(|share| one(*share)).collect();
            squeeze(&mut shares, held.iter().sum(), CPU_NODE_SHARES);
            assert_eq!(shares.iter().map(|one| one.share).sum::<u64>(), CPU_NODE_SHARES, "{held:?}");
            assert!(shares.iter().zip(held).all(|(now, was)| now.share <= *was), "{held:?}");
        }
    }

    #[test]
    fn every_midnight_is_the_end_of_a_slot() {
        assert_eq!(quarters([].into_iter()), 4);
        assert_eq!(quarters([3_600, 7_200].into_iter()), 4);
        assert_eq!(quarters([19_800].into_iter()), 2, "Kolkata");
        assert_eq!(quarters([37_800, 39_600].into_iter()), 2, "Lord Howe");
        assert_eq!(quarters([20_700].into_iter()), 1, "Kathmandu");
    }

    #[test]
    fn charges_for_the_same_add_up_and_nothing_is_left_out() {
        let key = ChargeKey {
            slot: LedgerSlot(4),
            job: None,
            attempt: Attempt(0),
            kind: ChargeKind::Idle,
            pool: BilledPool(0),
            offering: OfferingId(0),
            price: Rate(5),
        };
        let boot = ChargeKey { kind: ChargeKind::Boot, ..key };
        let of = |key, amount| Charge { key, amount };
        assert_eq!(merged([of(key, 3), of(boot, 2), of(key, 4), of(boot, -2)]), [of(key, 7)]);
    }
}
