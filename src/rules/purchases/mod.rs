//! Purchases for all who may buy, together: what a set of nodes costs, and a cheaper one for the same work.
//!
//! ```text
//! cost of a set   sum of (price + the policy's overhead a node) x (boot + busy time), reclaims counted
//! busy time       the longest p90 of what is on a node; 1 h where unknown
//! blocks          whole GPUs or CPU only, a gang on one node: these are packed (pack.rs). All else is bought for alone. Where a ceiling leaves
//!                 somebody out, replicas, elastic gangs at their smallest and parts of GPUs are packed too: it is the last that it says how
//! ```
//!
//! It reads what jobs were given in a try, and says what to buy instead. Never: buys, or looks at free places. That is admit's.

mod pack;

use super::order::place;
use super::{
    allowances, batch, budget, demand, launch, placement, protection, quota, reservations, settings, start_targets,
    supply,
};
use crate::catalog::CapacityType;
use crate::ids::{ClassId, JobId, NodeId, OfferingId, PoolId, QuotaId};
use crate::job::{Gang, Level, WorkerAsk};
use crate::policy::Buys;
use crate::state::State;
use crate::state::index::OrderKey;
use crate::state::nodes::Node;
use crate::state::places::slot_mem;
use crate::state::{Held, Shape};
use crate::units::{MilliGpu, Rate, Span};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::Reverse;
use pack::{Alone, Counts, Kind, NodeType, Problem, Room, Set, WHOLE};

/// Waiting jobs that a purchase under a ceiling looks at beside those that were served. Bounds a pass.
const MOST_WAITING: usize = 4096;

/// Work is packed otherwise if that saves one part in so many. What is compared rests on estimates.
const LEAST_SAVED: u128 = 25;

/// The same where it takes as many nodes as before: then other types are cheaper by their expected boots and ends alone.
const LEAST_SAVED_ON_AS_MANY: u128 = 12;

/// Work that is bought for alike: of one class, and about as long.
pub(crate) type KindKey = (ClassId, Span);

/// Equal nodes to buy, and what goes on each of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Lot {
    pub offering: OfferingId,
    pub count: u32,
    pub content: Vec<(KindKey, u32)>,
}

/// What was bought in a try, pool by pool.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bought {
    /// Nodes whose work could be packed otherwise.
    nodes: Vec<NodeId>,
    /// That work, in the order in which jobs are served.
    jobs: Vec<JobId>,
    /// Elastic gangs among it that have more than their fewest workers.
    pub larger: BTreeSet<JobId>,
    /// What those nodes cost.
    cost: u128,
}

/// The kind that a job is of.
pub(crate) fn kind_of(state: &State, job: JobId) -> KindKey {
    (state.jobs[job].class, lasts(state, job))
}

/// How long a job is expected to last, rounded up by an eighth at most, so that there are few kinds.
fn lasts(state: &State, job: JobId) -> Span {
    let known = demand::remaining_p90(state, job).filter(|span| *span > Span::ZERO);
    let millis = known.unwrap_or(demand::UNKNOWN).0.max(1000);
    let step = 1u64 << (millis.ilog2() - 3);
    Span(millis.div_ceil(step) * step)
}

/// What all nodes of a purchase cost, with what is booked on them. One that nothing is booked on costs as if unknown work were.
pub(crate) fn cost_of(state: &State, nodes: impl Iterator<Item = NodeId>) -> u128 {
    let of = |node: &Node| {
        let lasts = node.holds.iter().map(|job| lasts(state, *job)).max().unwrap_or(demand::UNKNOWN);
        let loses = |job: &JobId| state.classes[state.jobs[*job].class].shape.loses;
        let loses = node.holds.iter().filter_map(loses).max().unwrap_or_default();
        pack::node_cost(&node_type(state, node.offering, u32::MAX), lasts, loses)
    };
    nodes.filter_map(|id| state.nodes.get(&id)).map(of).fold(0, u128::saturating_add)
}

fn node_type(state: &State, id: OfferingId, most: u32) -> NodeType {
    let row = &state.offerings[id.index()];
    let (offer, room) = (&row.offer, row.room());
    let reserved = offer.capacity == CapacityType::Reserved;
    NodeType {
        room: [u64::from(offer.gpus) * WHOLE, room.cpu.0, room.mem.0],
        paid: if reserved { Rate(0) } else { offer.price },
        overhead: settings::node_overhead(state),
        booked: offer.max_price,
        reclaims: if offer.capacity == CapacityType::Spot { demand::reclaims_per_hour(state, id) } else { 0 },
        boot: demand::boot_p90(state, id),
        on_demand: offer.capacity == CapacityType::OnDemand,
        most,
    }
}

/// For what nodes are bought together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Aim {
    /// The same work for less. What is better spread, at its best size or beside others that come is bought for alone.
    Cheaper,
    /// More work under a ceiling.
    Carries,
}

fn is_elastic(gang: &Gang) -> bool {
    matches!(gang, Gang::Workers { min, max, .. } if min != max)
}

/// What a gang of a class takes as one block on one node. `None`: it is bought for alone.
fn block(state: &State, class: ClassId, pool: PoolId, aim: Aim) -> Option<Room> {
    let shape = &state.classes[class].shape;
    let near = shape.within.is_some_and(|w| w.level < Level::Node);
    let cut = settings::pool(state, pool).is_none_or(|p| !p.layouts.is_empty());
    if near || cut || (shape.batch.is_some() && shape.shares) {
        return None;
    }
    let (each, count) = match &shape.gang {
        Gang::Workers { min, each, .. } => (*each, *min),
        Gang::Spanning { gpus, per_gpu } => (WorkerAsk { gpus: 1, share: 1000, ..*per_gpu }, *gpus),
    };
    let share = placement::effective_share(state, shape, pool, &each);
    let whole = each.gpus == 0 || share == 1000;
    if aim == Aim::Cheaper && (shape.service.is_some() || is_elastic(&shape.gang) || !whole) {
        return None;
    }
    // As many parts of a GPU go on it as fit: what is left beside them is theirs.
    let gpu = WHOLE / parts_a_gpu(state, class, pool, (&each, share));
    let times = |n: u64| n.saturating_mul(u64::from(count));
    Some([times(u64::from(each.gpus) * gpu), times(each.cpu.0), times(each.mem.0)])
}

/// How many workers of a class with such a share go on a GPU, on whichever of its offerings fewest do.
fn parts_a_gpu(state: &State, class: ClassId, pool: PoolId, (each, share): (&WorkerAsk, u16)) -> u64 {
    if share == 1000 {
        return 1;
    }
    let by_mem = |id: &OfferingId| {
        let gpu_mem = state.offerings[id.index()].offer.gpu_mem;
        gpu_mem.0.checked_div(slot_mem(each.gpu_mem, share, gpu_mem).0)
    };
    let by_mem = supply::fits(state, class, pool).iter().filter_map(by_mem).min().unwrap_or(u64::MAX);
    launch::parts(share, launch::sharing_slices(state, pool)).min(by_mem).max(1)
}

/// What was bought since a try began could be bought otherwise, by pool.
pub(crate) fn bought_since(state: &State, first: NodeId, aim: Aim) -> BTreeMap<PoolId, Bought> {
    let new: Vec<&Node> = state.nodes.range(first..).map(|(_, node)| node).collect();
    let mut fixed: BTreeSet<NodeId> = BTreeSet::new();
    let movable = |job: JobId, pool: PoolId| {
        let row = &state.jobs[job];
        row.places.iter().all(|p| p.node >= first) && block(state, row.class, pool, aim).is_some()
    };
    for node in &new {
        if node.partition.is_some() || !node.holds.iter().all(|job| movable(*job, node.pool)) {
            fixed.insert(node.id);
        }
    }
    // What is on a node that stays keeps its other nodes too.
    loop {
        let stays = |job: &&JobId| state.jobs[**job].places.iter().any(|p| fixed.contains(&p.node));
        let more = |node: &&&Node| !fixed.contains(&node.id) && node.holds.iter().any(|job| stays(&job));
        let more: Vec<NodeId> = new.iter().filter(more).map(|node| node.id).collect();
        if more.is_empty() {
            break;
        }
        fixed.extend(more);
    }
    let mut pools: BTreeMap<PoolId, Bought> = BTreeMap::new();
    for node in new.iter().filter(|node| !fixed.contains(&node.id)) {
        let bought = pools.entry(node.pool).or_default();
        bought.nodes.push(node.id);
        bought.jobs.extend(&node.holds);
    }
    for bought in pools.values_mut() {
        bought.cost = cost_of(state, bought.nodes.iter().copied());
        in_order(state, &mut bought.jobs);
        let larger = |job: &&JobId| {
            let (row, gang) = (&state.jobs[**job], &state.specs[**job].gang);
            is_elastic(gang) && row.places.len() > gang.fewest() as usize
        };
        bought.larger = bought.jobs.iter().filter(larger).copied().collect();
    }
    pools
}

/// Sorts jobs by tier, priority and arrival.
fn in_order(state: &State, jobs: &mut Vec<JobId>) {
    jobs.sort_unstable();
    jobs.dedup();
    jobs.sort_by_cached_key(|job| order(state, *job));
}

fn order(state: &State, job: JobId) -> (Reverse<i32>, OrderKey) {
    (Reverse(settings::priority(state, state.jobs[job].tier)), place(state, job))
}

/// Whether of two sets of jobs the first leaves out one that comes before all that the second leaves out. `None`: they are the same.
pub(crate) fn is_before(state: &State, one: &BTreeSet<JobId>, other: &BTreeSet<JobId>) -> Option<bool> {
    let first = one.symmetric_difference(other).min_by_key(|job| order(state, **job))?;
    Some(one.contains(first))
}

/// Jobs that wait for nothing but room under a ceiling, beside those that were served, in their order.
fn waiting(state: &State, pool: PoolId) -> Vec<JobId> {
    let mut jobs = Vec::new();
    for (class, queued) in &state.index.queued {
        let shape = &state.classes[*class].shape;
        let fits = settings::pools(state, *class).any(|of| of == pool);
        if !fits || block(state, *class, pool, Aim::Carries).is_none() || settings::buys(state, shape) == Buys::Nothing
        {
            continue;
        }
        let asked = quota::share(state, *class, pool);
        let by_quota = quota::available(state, *class, pool).0.checked_div(asked.0).unwrap_or(u64::MAX);
        if budget::refusal(state, *class, pool).is_some() {
            continue;
        }
        let may = |job: &JobId| {
            start_targets::reason_to_wait(state, *job).is_none()
                && batch::refusal(state, *job).is_none()
                && protection::stopping_for(state, *job) == 0
        };
        // Beside what is kept for others quota is left to more of those that end in time.
        let mut taken = MilliGpu(0);
        let fits = |job: &JobId| {
            let fits = allowances::most(state, *job, pool).is_none_or(|left| taken + asked <= left);
            taken = if fits { taken + asked } else { taken };
            fits
        };
        let let_in = |job: &JobId| allowances::refusal(state, *job, pool).is_none();
        let most = usize::try_from(by_quota).unwrap_or(usize::MAX);
        let first = queued.iter().map(|key| key.job).filter(may).take(MOST_WAITING);
        jobs.extend(first.filter(let_in).filter(fits).take(most));
        if jobs.len() > 4 * MOST_WAITING {
            break;
        }
    }
    in_order(state, &mut jobs);
    jobs.truncate(MOST_WAITING);
    jobs
}

/// A set that carries more than was bought for, where a ceiling left some out. `gone`: what was bought was taken back already, and is not in the
/// state.
pub(crate) fn larger(state: &State, pool: PoolId, bought: &Bought, gone: bool) -> Option<Vec<Lot>> {
    let new: &[NodeId] = if gone { &[] } else { &bought.nodes };
    let mut all = bought.jobs.clone();
    // A gang is bought smaller for nobody below it.
    let above = bought.jobs.iter().filter(|job| bought.larger.contains(job));
    let least = above.map(|job| settings::priority(state, state.jobs[*job].tier)).max().unwrap_or(i32::MIN);
    all.extend(
        waiting(state, pool).into_iter().filter(|job| settings::priority(state, state.jobs[*job].tier) >= least),
    );
    in_order(state, &mut all);
    let more = all.len() > bought.jobs.len();
    more.then(|| most_in_order(state, pool, &all, bought.jobs.len(), new)).flatten()
}

/// A cheaper set than what was bought. `full`: a ceiling left some out.
pub(crate) fn cheaper(state: &State, pool: PoolId, bought: &Bought, full: bool, gone: bool) -> Option<Vec<Lot>> {
    let new: &[NodeId] = if gone { &[] } else { &bought.nodes };
    let (problem, keys, types) = problem(state, pool, &bought.jobs, new, Aim::Cheaper)?;
    if !(full || settings::node_overhead(state) > Rate(0) || bought.jobs.iter().all(|job| lasts_as_stated(state, *job)))
    {
        return None;
    }
    let worth = bought.cost - bought.cost / LEAST_SAVED;
    if problem.at_least().is_some_and(|least| least >= worth) {
        return None;
    }
    let set = problem.solve()?;
    let same = set.held.nodes == bought.nodes.len() as u64;
    let worth = if same { worth.min(bought.cost - bought.cost / LEAST_SAVED_ON_AS_MANY) } else { worth };
    (set.cost < worth && within_budgets(state, &problem, &set, &keys)).then(|| lots(&set, &keys, &types))
}

/// Whether it is known how long a job lasts. Where nothing binds, work of which that is not known goes on nodes of its own: on the Philly
/// trace, what seemed to save a fifth on large nodes came out dearer, for they wait for the last that runs there.
fn lasts_as_stated(state: &State, job: JobId) -> bool {
    state.specs.get(job).is_some_and(|spec| spec.expected.is_some())
}

/// The set that carries the most of these in their order, if it is more than were served before.
fn most_in_order(state: &State, pool: PoolId, all: &[JobId], served: usize, new: &[NodeId]) -> Option<Vec<Lot>> {
    let carries = |count: usize| {
        let (problem, keys, types) = problem(state, pool, &all[..count], new, Aim::Carries)?;
        let set = problem.solve()?;
        within_budgets(state, &problem, &set, &keys).then(|| lots(&set, &keys, &types))
    };
    let mut found = carries(all.len());
    if found.is_some() {
        return found;
    }
    let (mut works, mut fails) = (served, all.len());
    while works + 1 < fails {
        let half = works.midpoint(fails);
        match carries(half) {
            Some(lots) => (works, found) = (half, Some(lots)),
            None => fails = half,
        }
    }
    found
}

type Asked = (Problem, Vec<KindKey>, Vec<OfferingId>);

fn problem(state: &State, pool: PoolId, jobs: &[JobId], new: &[NodeId], aim: Aim) -> Option<Asked> {
    let mut counts: BTreeMap<KindKey, u32> = BTreeMap::new();
    for job in jobs {
        *counts.entry(kind_of(state, *job)).or_default() += 1;
    }
    let mut in_flight: BTreeMap<OfferingId, u32> = BTreeMap::new();
    for node in new.iter().filter_map(|id| state.nodes.get(id)) {
        *in_flight.entry(node.offering).or_default() += 1;
    }
    let classes: BTreeSet<ClassId> = counts.keys().map(|key| key.0).collect();
    let open: BTreeMap<ClassId, Vec<OfferingId>> =
        classes.iter().map(|class| (*class, supply::open(state, *class, pool, &in_flight))).collect();
    let mut types: Vec<OfferingId> = open.values().flatten().copied().collect();
    types.sort_unstable();
    types.dedup();
    let gone = state.held_on(new);
    let (all, own) = reservations::held(state, pool, None);
    let left = left(state, pool, all.less(gone), own.less(gone));
    let mut kinds = Vec::new();
    for ((class, lasts), count) in &counts {
        let need = block(state, *class, pool, aim)?;
        let may = &open[class];
        let shape = &state.classes[*class].shape;
        let loses = shape.loses.unwrap_or_default();
        let alone = alone(state, *class, pool, may, (*lasts, loses));
        // A gang that may span nodes goes to as few as can be had.
        let fits = types.iter().map(|id| may.binary_search(id).is_ok()).collect();
        kinds.push(Kind { need, count: *count, lasts: *lasts, loses, fits, alone });
    }
    let room = |id: &OfferingId| node_type(state, *id, supply::room(state, *id, &in_flight));
    let problem = Problem { types: types.iter().map(room).collect(), kinds, left };
    Some((problem, counts.into_keys().collect(), types))
}

/// What a gang costs as it is bought for alone, where that takes several nodes.
fn alone(
    state: &State,
    class: ClassId,
    pool: PoolId,
    may: &[OfferingId],
    (lasts, loses): (Span, Span),
) -> Option<Alone> {
    let shape = &state.classes[class].shape;
    if is_single(shape) {
        return None;
    }
    let options = launch::options(state, class, pool, may, &[]);
    let best = launch::first_of(state, shape, options)?;
    if best.nodes() <= 1 {
        return None;
    }
    let each = |(id, n): &(OfferingId, u32)| {
        pack::node_cost(&node_type(state, *id, u32::MAX), lasts, loses).saturating_mul(u128::from(*n))
    };
    let cost = best.counts.iter().map(each).fold(0, u128::saturating_add);
    Some(Alone { cost, held: counts(state.held_by(&best.counts)) })
}

fn is_single(shape: &Shape) -> bool {
    matches!(&shape.gang, Gang::Workers { min: 1, .. } | Gang::Spanning { gpus: 1, .. })
}

fn counts(held: Held) -> Counts {
    Counts {
        nodes: u64::from(held.nodes),
        on_demand: u64::from(held.on_demand_nodes),
        gpus: u64::from(held.gpus),
        spend: held.spend.0,
    }
}

/// What the ceilings leave above what is held.
fn left(state: &State, pool: PoolId, all: Held, own: Held) -> Counts {
    let none = Counts { nodes: u64::MAX, on_demand: u64::MAX, gpus: u64::MAX, spend: u64::MAX };
    let Some(policy) = state.policy.as_deref() else { return none };
    let own_ceiling = policy.pools.get(pool.index()).map(|p| p.ceiling).unwrap_or_default();
    let mut least = none;
    for (ceiling, held) in [(policy.limits, counts(all)), (own_ceiling, counts(own))] {
        let left = |most: Option<u64>, held: u64| most.map_or(u64::MAX, |most| most.saturating_sub(held));
        least.nodes = least.nodes.min(left(ceiling.nodes.map(u64::from), held.nodes));
        least.on_demand = least.on_demand.min(left(ceiling.on_demand_nodes.map(u64::from), held.on_demand));
        least.gpus = least.gpus.min(left(ceiling.gpus.map(u64::from), held.gpus));
        least.spend = least.spend.min(left(ceiling.spend.map(|s| s.0), held.spend));
    }
    least
}

/// Whether each budget has left what its queues are charged: their part of the bill of each node, split over those it is bought for. Those from
/// whom some of it is kept for another have less.
fn within_budgets(state: &State, problem: &Problem, set: &Set, keys: &[KindKey]) -> bool {
    let accounts: Vec<QuotaId> = state.budgets.accounts().map(|(quota, _)| quota).collect();
    let quota_of = |kind: usize| Some(state.queues[state.classes[keys[kind].0].shape.queue].rule.as_ref()?.quota);
    let beside: Vec<Option<Rate>> = keys.iter().map(|key| allowances::room(state, key.0)).collect();
    let charged = |account: QuotaId, to: &dyn Fn(usize) -> bool| {
        let below = |kind: usize| to(kind) && quota_of(kind).is_some_and(|quota| state.quota.is_below(quota, account));
        let mut charged = 0u128;
        for nodes in &set.nodes {
            let of = &problem.types[nodes.of];
            let part = |(kind, n): &(usize, u32)| u128::from(problem.part_of(nodes.of, *kind)).max(1) * u128::from(*n);
            let all: u128 = nodes.content.iter().map(part).sum();
            let own: u128 = nodes.content.iter().filter(|c| below(c.0)).map(part).sum();
            let bill = u128::from(of.paid.0) * u128::from(nodes.count);
            charged = charged.saturating_add((bill * own).div_ceil(all.max(1)));
        }
        charged
    };
    accounts.into_iter().all(|account| {
        let has = |room: Rate, to: &dyn Fn(usize) -> bool| charged(account, to) <= u128::from(room.0);
        let all = state.budget_room(account).is_none_or(|room| has(room, &|_| true));
        let left = beside.iter().flatten().min();
        all && left.is_none_or(|room| has(*room, &|kind| beside[kind].is_some()))
    })
}

fn lots(set: &Set, keys: &[KindKey], types: &[OfferingId]) -> Vec<Lot> {
    let lot = |nodes: &pack::Nodes| Lot {
        offering: types[nodes.of],
        count: nodes.count,
        content: nodes.content.iter().map(|(kind, n)| (keys[*kind], *n)).collect(),
    };
    set.nodes.iter().map(lot).collect()
}
