//! An observer of our own: recomputes what is held against ceilings and quotas from the rows, and checks each start, apart
//! from the engine's own totals.
//!
//! ```text
//! batch with Buy   -> claims, GPUs, spend by pool and over all   against every ceiling
//! batch with Book  -> GPU share by quota node, rolled up         against quota, borrowing, lending
//! Start effects    -> workers                                    against the gang
//! ```
//!
//! Never: uses `State::totals` or `State::quota`. Those are what it checks.

use std::collections::{BTreeMap, BTreeSet};

use forebay_kernel::catalog::CapacityType;
use forebay_kernel::decision::Decision;
use forebay_kernel::effect::{Action, Effect, WorkerPlace};
use forebay_kernel::event::Event;
use forebay_kernel::ids::{JobId, OfferingId, PoolId, QuotaId};
use forebay_kernel::job::Gang;
use forebay_kernel::journal::Batch;
use forebay_kernel::policy::{Ceiling, Policy};
use forebay_kernel::state::State;
use forebay_kernel::state::billing::{BatchCharges, Charge, ChargeKind, all_shares};
use forebay_kernel::state::jobs::{Job, Phase};
use forebay_kernel::state::nodes::{Node, NodePhase};
use forebay_kernel::units::{MilliGpu, Rate, Span, Timestamp};

use super::money::Exact;

/// Messages kept; beyond it only the counts go on.
const KEPT: usize = 20;

/// Nodes that are awaited are counted so often.
const TICK: Span = Span::mins(10);

/// What was seen to go above its bound.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observer {
    pub ceilings: u64,
    pub quotas: u64,
    pub gangs: u64,
    pub messages: Vec<String>,
    /// What each job holds, as of the last batch that touched it.
    holding: BTreeMap<JobId, (QuotaId, PoolId, MilliGpu)>,
    /// Of these, those that have not started: they can lose their places without being named.
    booked: BTreeSet<JobId>,
    own: BTreeMap<(QuotaId, PoolId), MilliGpu>,
    /// Share x ms x price of each kind of node time, by offering.
    charged: BTreeMap<(ChargeKind, OfferingId), i128>,
    /// Instants at which nodes were launched.
    pub wake_ups: u64,
    /// Nodes that were not ready for the job that holds them, at each tick.
    pub node_ticks_short: u64,
}

/// What is held against a ceiling.
#[derive(Clone, Copy, Default)]
struct Usage {
    nodes: u32,
    on_demand: u32,
    gpus: u32,
    spend: Rate,
}

impl Observer {
    /// Checks a batch against the state after it.
    pub fn batch(&mut self, batch: &Batch, state: &State) {
        let Some(policy) = state.policy() else { return };
        self.touch(batch, state);
        let launched = |e: &Event| matches!(e, Event::LaunchOutcome { instances, .. } if !instances.is_empty());
        self.wake_ups += u64::from(batch.events.iter().any(launched));
        if batch.decisions.iter().any(|d| matches!(d, Decision::Buy { .. })) {
            self.ceilings(batch, policy, state);
        }
        if batch.decisions.iter().any(|d| matches!(d, Decision::Book { .. })) {
            self.quotas(policy, state);
        }
    }

    /// Checks the starts that a batch released.
    pub fn starts(&mut self, effects: &[Effect], state: &State) {
        for effect in effects {
            if let Action::Start { job, workers, .. } = &effect.action {
                self.gang(*job, workers, state);
            }
        }
    }

    /// Takes what a batch adds to the bill.
    pub fn charged(&mut self, charges: &BatchCharges) {
        for Charge { key, amount } in &charges.charges {
            *self.charged.entry((key.kind, key.offering)).or_default() += amount * i128::from(key.price.0);
        }
    }

    /// What each kind of node time cost up to now. They add up to the bill.
    pub fn cost_by_kind(&self, state: &State) -> BTreeMap<&'static str, Exact> {
        let mut charged = self.charged.clone();
        for Charge { key, amount } in state.open_charges() {
            *charged.entry((key.kind, key.offering)).or_default() += amount * i128::from(key.price.0);
        }
        let mut kinds: BTreeMap<&'static str, Exact> = BTreeMap::new();
        for ((kind, offering), amount) in charged {
            let shares = state.offerings().get(offering.index()).map_or(1, |row| all_shares(&row.offer));
            // Prices are in the amounts already.
            kinds.entry(kind.as_str()).or_default().add(1, amount, shares);
        }
        kinds
    }

    /// Every ten minutes: how many nodes are not ready that a job holds already.
    pub fn tick(&mut self, now: Timestamp, state: &State) {
        if now.0.is_multiple_of(TICK.0) {
            let comes = |node: &&Node| matches!(node.phase, NodePhase::Requested | NodePhase::Booting);
            let short = state.bought_nodes().filter(comes).filter(|node| !node.holds.is_empty());
            self.node_ticks_short += short.count() as u64;
        }
    }

    /// What jobs hold by quota and pool, from nothing: to show that nothing was missed on the way.
    pub fn recounted(&self, state: &State) -> bool {
        let mut own: BTreeMap<(QuotaId, PoolId), MilliGpu> = BTreeMap::new();
        for id in state.open_job_ids() {
            if let Some((quota, pool, share)) = held_by(state, id) {
                let sum = own.entry((quota, pool)).or_default();
                *sum = *sum + share;
            }
        }
        let mut kept = self.own.clone();
        kept.retain(|_, share| share.0 > 0);
        own.retain(|_, share| share.0 > 0);
        own == kept
    }

    fn record(&mut self, message: String) {
        if self.messages.len() < KEPT {
            self.messages.push(message);
        }
    }

    fn touch(&mut self, batch: &Batch, state: &State) {
        let jobs = batch.decisions.iter().filter_map(job_of_decision);
        let jobs = jobs.chain(batch.events.iter().filter_map(job_of_event));
        let mut jobs: BTreeSet<JobId> = jobs.collect();
        let claims = |e: &Event| {
            matches!(
                e,
                Event::NodeGone { .. }
                    | Event::ReclaimNotice { .. }
                    | Event::LaunchOutcome { .. }
                    | Event::BootFailed { .. }
                    | Event::BrakeSet { .. }
                    | Event::NodeReserved { .. }
                    | Event::OwnedNodeSeen(_)
                    | Event::OwnedNodeLeft { .. }
                    | Event::Configured(_)
            )
        };
        let gives_back = |d: &Decision| matches!(d, Decision::Terminate { .. } | Decision::GiveUp { .. });
        if batch.events.iter().any(claims) || batch.decisions.iter().any(gives_back) {
            // Whoever was booked on a claim that went, or where no work goes any more, is named nowhere in the batch.
            jobs.extend(&self.booked);
        }
        if batch.events.iter().any(|e| matches!(e, Event::NodeGone { .. })) {
            // A run that goes on without what it had there is named nowhere either.
            jobs.extend(self.holding.keys());
        }
        for job in jobs {
            if let Some((quota, pool, share)) = self.holding.remove(&job) {
                let sum = self.own.entry((quota, pool)).or_default();
                *sum = *sum - share;
            }
            if let Some((quota, pool, share)) = held_by(state, job) {
                let sum = self.own.entry((quota, pool)).or_default();
                *sum = *sum + share;
                self.holding.insert(job, (quota, pool, share));
            }
            let booked = |j: &Job| j.phase == Phase::Booked;
            if state.job(job).is_some_and(|(row, _)| booked(row)) {
                self.booked.insert(job);
            } else {
                self.booked.remove(&job);
            }
        }
    }

    /// A purchase breaks a ceiling when it raises what the ceiling bounds, and that is above it afterwards. What an adoption or a
    /// price brought above it breaks nothing, as long as nothing is bought on top.
    fn ceilings(&mut self, batch: &Batch, policy: &Policy, state: &State) {
        let (mut all, mut pools) = (Usage::default(), vec![Usage::default(); policy.pools.len()]);
        let (mut more, mut pools_more) = (all, pools.clone());
        for node in state.bought_nodes() {
            if let Some(one) = Usage::of(state, node.offering, Some(node.price)) {
                all.add(one, 1);
                pools.get_mut(node.pool.index()).into_iter().for_each(|held| held.add(one, 1));
            }
        }
        for decision in &batch.decisions {
            let Decision::Buy { pool, offering, count, .. } = decision else { continue };
            if let Some(one) = Usage::of(state, *offering, None) {
                more.add(one, *count);
                pools_more.get_mut(pool.index()).into_iter().for_each(|held| held.add(one, *count));
            }
        }
        let bounds = policy.pools.iter().map(|p| (p.name.as_str(), &p.ceiling)).zip(pools).zip(pools_more);
        for (((name, ceiling), held), more) in bounds.chain([((("limits", &policy.limits), all), more)]) {
            if let Some(over) = above(ceiling, held, more) {
                self.ceilings += 1;
                self.record(format!("at {}: {name}: {over}", state.now().0));
            }
        }
    }

    /// The recurrence of lending and borrowing, from the leaves up: what a node uses beyond what it keeps for itself is the
    /// parent's use.
    fn quotas(&mut self, policy: &Policy, state: &State) {
        for at in 0..policy.pools.len() {
            let pool = PoolId(u16::try_from(at).unwrap_or(u16::MAX));
            let count = policy.quotas.len();
            let mut usage = vec![0u64; count];
            let mut subtree = vec![0u64; count];
            let mut bounded = vec![false; count];
            // Children come after their parents, so that the way back sums them first.
            for nth in (0..count).rev() {
                let node = &policy.quotas[nth];
                let id = QuotaId(u16::try_from(nth).unwrap_or(u16::MAX));
                let limit = node.limits.get(&pool);
                usage[nth] += self.own.get(&(id, pool)).map_or(0, |m| m.0);
                subtree[nth] += limit.map_or(0, |l| l.nominal.0);
                bounded[nth] |= limit.is_some();
                let keeps = limit.and_then(|l| l.lend).map_or(0, |lend| subtree[nth].saturating_sub(lend.0));
                let most = match (node.parent, limit.map(|l| l.borrow)) {
                    (None, _) => bounded[nth].then_some(subtree[nth]),
                    (Some(_), Some(Some(borrow))) => Some(subtree[nth].saturating_add(borrow.0)),
                    (Some(_), _) => None,
                };
                if let Some(most) = most.filter(|most| usage[nth] > *most) {
                    self.quotas += 1;
                    let (name, used) = (&node.name, MilliGpu(usage[nth]));
                    let most = MilliGpu(most);
                    self.record(format!("at {}: {name} uses {used} of {most} GPUs", state.now().0));
                }
                if let Some(parent) = node.parent {
                    usage[parent.index()] += usage[nth].saturating_sub(keeps);
                    subtree[parent.index()] += subtree[nth].saturating_sub(keeps);
                    bounded[parent.index()] |= bounded[nth];
                }
            }
        }
    }

    fn gang(&mut self, job: JobId, workers: &[WorkerPlace], state: &State) {
        let Some((_, spec)) = state.job(job) else { return };
        let whole = match &spec.gang {
            Gang::Workers { min, max, each } => {
                let count = u32::try_from(workers.len()).unwrap_or(u32::MAX);
                let one = |w: &WorkerPlace| w.gpus.count_ones() == u32::from(each.gpus) && w.share >= each.share;
                (*min..=*max).contains(&count) && workers.iter().all(one)
            }
            Gang::Spanning { gpus, .. } => {
                let total: u32 = workers.iter().map(|w| w.gpus.count_ones()).sum();
                total == *gpus && workers.iter().all(|w| w.share == 1000)
            }
        };
        if !whole {
            self.gangs += 1;
            self.record(format!("{job} starts with {} workers, asked {:?}", workers.len(), spec.gang));
        }
    }
}

impl Usage {
    /// One node of an offering, spot at its maximum price.
    fn of(state: &State, offering: OfferingId, price: Option<Rate>) -> Option<Usage> {
        let offer = &state.offerings().get(offering.index())?.offer;
        let spot = offer.capacity == CapacityType::Spot;
        let spend = if spot { offer.max_price } else { price.unwrap_or(offer.price) };
        let on_demand = u32::from(offer.capacity == CapacityType::OnDemand);
        Some(Usage { nodes: 1, on_demand, gpus: u32::from(offer.gpus), spend })
    }

    fn add(&mut self, one: Usage, count: u32) {
        self.nodes += one.nodes * count;
        self.on_demand += one.on_demand * count;
        self.gpus += one.gpus * count;
        self.spend = self.spend + one.spend.times(u64::from(count));
    }
}

/// Which bound is exceeded in something that was just raised.
fn above(ceiling: &Ceiling, held: Usage, more: Usage) -> Option<String> {
    let over = |bound: Option<u32>, held: u32, more: u32, what: &str| {
        bound.filter(|b| more > 0 && held > *b).map(|b| format!("{held} {what} of {b}"))
    };
    over(ceiling.nodes, held.nodes, more.nodes, "nodes")
        .or_else(|| over(ceiling.on_demand_nodes, held.on_demand, more.on_demand, "on-demand nodes"))
        .or_else(|| over(ceiling.gpus, held.gpus, more.gpus, "GPUs"))
        .or_else(|| {
            let most = ceiling.spend.filter(|most| more.spend > Rate(0) && held.spend > *most)?;
            Some(format!("{} of {most}", held.spend))
        })
}

/// What a job holds, by its own row.
fn held_by(state: &State, job: JobId) -> Option<(QuotaId, PoolId, MilliGpu)> {
    let (row, _) = state.job(job)?;
    let pool = row.pool?;
    let rule = state.queues().get(row.queue)?.rule.as_ref()?;
    Some((rule.quota, pool, row.share))
}

fn job_of_decision(decision: &Decision) -> Option<JobId> {
    match decision {
        Decision::Reject { job, .. }
        | Decision::Resume { job }
        | Decision::Requeue { job, .. }
        | Decision::Finish { job, .. }
        | Decision::Book { job, .. }
        | Decision::Unbook { job }
        | Decision::Start { job }
        | Decision::Stop { job, .. } => Some(*job),
        _ => None,
    }
}

fn job_of_event(event: &Event) -> Option<JobId> {
    match event {
        Event::RunStarted { job, .. }
        | Event::RunCompleted { job, .. }
        | Event::RunFailed { job, .. }
        | Event::RunShrunk { job, .. }
        | Event::RunDenied { job, .. }
        | Event::RunStopped { job, .. } => Some(*job),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ceiling_is_kept_at_its_bound_and_broken_above_it() {
        let ceiling = Ceiling { nodes: Some(2), spend: Some(Rate(10)), ..Ceiling::default() };
        let more = Usage { nodes: 1, spend: Rate(5), ..Usage::default() };
        let held = Usage { nodes: 2, spend: Rate(10), ..Usage::default() };
        assert_eq!(above(&ceiling, held, more), None);
        assert!(above(&ceiling, Usage { nodes: 3, ..held }, more).is_some());
        assert!(above(&ceiling, Usage { spend: Rate(11), ..held }, more).is_some());
        assert_eq!(above(&ceiling, Usage { nodes: 3, ..held }, Usage::default()), None, "nothing was bought");
    }
}
