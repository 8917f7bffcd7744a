//! Launch options: what could be bought for one gang, what it costs, which ceiling it would break.
//!
//! ```text
//! workers    for each offering: as many nodes as the gang needs, or as the part needs that free places do not carry
//! spanning   for each offering: as many nodes as hold all, or with a smaller one of its model for what is left over;
//!            the fewest nodes are tried first, and on-demand that costs more than spot last
//! ```
//!
//! A gang that requires one zone is bought there whole, with the part that is there; one that requires a rack or less in one
//! purchase. Never: buys, and never asks what is in stock. That is supply's.

use super::placement::{self, Carried, slices, topology};
use super::{demand, settings};
use crate::catalog::{CapacityType, Offering};
use crate::ids::{ClassId, OfferingId, PoolId};
use crate::job::{Gang, Level, TopologyConstraint, WorkerAsk};
use crate::policy::Ceiling;
use crate::reason::Bound;
use crate::state::node_reserves::NodeRoom;
use crate::state::places::slot_mem;
use crate::state::{Held, Shape, State};
use crate::units::{HOUR_MS, Rate, Span};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Nodes that one gang may take at most: beyond it lies a typing error, not a job.
const MOST_NODES: u32 = 4096;

/// Nodes for one gang: so many of each offering.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct LaunchOption {
    pub counts: Vec<(OfferingId, u32)>,
    /// The rest of the gang goes where there is room already.
    pub part: bool,
    /// How the GPUs of its nodes are partitioned.
    pub layout: Option<u8>,
    /// Not as close together as the gang prefers.
    pub apart: bool,
    /// Of an elastic gang, where it is bought for by what its work costs.
    pub size: Option<GangSize>,
}

/// An elastic gang at one of its sizes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GangSize {
    pub workers: u32,
    /// How long it holds its nodes for its work.
    pub lasts: Span,
    /// So many of the nodes hold the smallest gang.
    pub fewest: u32,
}

impl LaunchOption {
    pub(crate) fn of(offering: OfferingId, count: u32) -> LaunchOption {
        LaunchOption { counts: alloc::vec![(offering, count)], ..LaunchOption::default() }
    }

    pub(crate) fn nodes(&self) -> u32 {
        self.counts.iter().map(|l| l.1).sum()
    }

    pub(crate) fn cost(&self, state: &State) -> Rate {
        let of = |(id, n): &(OfferingId, u32)| state.offerings[id.index()].offer.price.times(u64::from(*n));
        self.counts.iter().map(of).fold(Rate(0), |a, b| a + b)
    }

    /// How long its nodes take until they are ready.
    pub(crate) fn boot(&self, state: &State) -> Span {
        self.counts.iter().map(|(id, _)| demand::boot_p90(state, *id)).max().unwrap_or_default()
    }

    /// What an hour of it adds to the bill: what is reserved is paid for already.
    pub(crate) fn bill(&self, state: &State) -> Rate {
        let of = |(id, n): &(OfferingId, u32)| {
            let offer = &state.offerings[id.index()].offer;
            let reserved = offer.capacity == CapacityType::Reserved;
            if reserved { Rate(0) } else { offer.price.times(u64::from(*n)) }
        };
        self.counts.iter().map(of).fold(Rate(0), |a, b| a + b)
    }

    /// What an hour of it is expected to cost: its price, and for each reclaim the time of the whole option that is lost with it: the work
    /// since the last checkpoint (half of all the work, where it cannot save), the restart and the boot of another node. What is reserved
    /// is paid for already.
    ///
    /// A gang over nodes of one offering counts one reclaim, not one a node: what is short of stock takes its nodes back together. Each node counts the
    /// policy's overhead as well.
    pub(crate) fn expected(&self, state: &State, shape: &Shape) -> Rate {
        let (mut paid, mut lost) = (Rate(0), 0u128);
        for &(id, n) in &self.counts {
            let offer = &state.offerings[id.index()].offer;
            if offer.capacity != CapacityType::Reserved {
                paid = paid + offer.price.times(u64::from(n));
            }
            if let Some(work) = shape.loses.filter(|_| offer.capacity == CapacityType::Spot) {
                let each = work + demand::boot_p90(state, id);
                lost += u128::from(demand::reclaims_per_hour(state, id)) * u128::from(each.0);
            }
        }
        // Reclaims an hour in millionths x milliseconds: the part of each hour that is lost, rounded down.
        let millionths = 1_000_000 + lost / u128::from(HOUR_MS);
        let rate = Rate(u64::try_from(u128::from(paid.0).saturating_mul(millionths) / 1_000_000).unwrap_or(u64::MAX));
        rate + settings::node_overhead(state).times(u64::from(self.nodes()))
    }

    /// What it costs by the hour, or of an elastic gang for all of its work: sizes differ in how long they take.
    pub(crate) fn expected_for_work(&self, state: &State, shape: &Shape) -> Rate {
        let hourly = self.expected(state, shape);
        let Some(size) = self.size else { return hourly };
        // Price x time fits 128 bits; rounded down to a whole micro-dollar.
        Rate(u64::try_from(hourly.over(size.lasts).0 / u128::from(HOUR_MS)).unwrap_or(u64::MAX))
    }

    /// The order in which options are tried. Spanning gangs take the fewest nodes first, but on-demand that costs more than spot after all that is spot; all
    /// others what costs least in the end. `spot`: of [`least_on_spot`].
    fn rank(&self, state: &State, shape: &Shape, spot: Option<Rate>) -> OptionRank {
        let spans = matches!(shape.gang, Gang::Spanning { .. });
        let expected = self.expected_for_work(state, shape);
        let dearer = spans && self.has_on_demand(state) && spot.is_some_and(|least| least < expected);
        let fewest = if spans { self.nodes() } else { 0 };
        (self.apart, spans && self.part, (dearer, fewest), expected, self.cost(state))
    }

    fn has_on_demand(&self, state: &State) -> bool {
        self.counts.iter().any(|(id, _)| state.offerings[id.index()].offer.capacity == CapacityType::OnDemand)
    }
}

/// What an option is tried by, the least first: not as close together as preferred, a part of a gang only, dearer than spot, the fewest nodes; what it is expected
/// to cost, and what it costs.
type OptionRank = (bool, bool, (bool, u32), Rate, Rate);

/// What the cheapest of these options without on-demand nodes is expected to cost.
fn least_on_spot(state: &State, shape: &Shape, options: &[LaunchOption]) -> Option<Rate> {
    let spot = options.iter().filter(|option| !option.part && !option.has_on_demand(state));
    spot.map(|option| option.expected_for_work(state, shape)).min()
}

/// Puts options in the order in which they are tried, those of one rank by `then`.
pub(crate) fn put_in_order<K: Ord>(
    state: &State,
    shape: &Shape,
    options: &mut [LaunchOption],
    then: impl Fn(&LaunchOption) -> K,
) {
    let spot = least_on_spot(state, shape, options);
    options.sort_by_cached_key(|option| (option.rank(state, shape, spot), then(option)));
}

/// The option that is tried first.
pub(crate) fn first_of(state: &State, shape: &Shape, options: Vec<LaunchOption>) -> Option<LaunchOption> {
    let spot = least_on_spot(state, shape, &options);
    options.into_iter().min_by_key(|option| option.rank(state, shape, spot))
}

/// Every sensible option for one gang of a class, as close together as it requires.
pub(crate) fn options(
    state: &State,
    class: ClassId,
    pool: PoolId,
    offerings: &[OfferingId],
    carried: &[Carried],
) -> Vec<LaunchOption> {
    options_for(state, &state.classes[class].shape, pool, offerings, carried)
}

/// The options that the ceilings allow with nothing else running.
pub(crate) fn possible(state: &State, class: ClassId, pool: PoolId, offerings: &[OfferingId]) -> Vec<LaunchOption> {
    let none = Held::default();
    let mut options = options(state, class, pool, offerings, &[]);
    options.retain(|option| bound_hit(state, pool, option, none, none).is_none());
    options
}

fn options_for(
    state: &State,
    shape: &Shape,
    pool: PoolId,
    offerings: &[OfferingId],
    carried: &[Carried],
) -> Vec<LaunchOption> {
    let mut options = match shape.within {
        Some(TopologyConstraint { level, required: true }) => required(state, shape, pool, offerings, carried, level),
        _ => anywhere(state, shape, pool, offerings, carried),
    };
    if let Some(within) = shape.within.filter(|w| !w.required) {
        for option in &mut options {
            option.apart = !keeps(state, shape, pool, option, within.level);
        }
    }
    if let Some(layout) = layout_for(state, shape, pool) {
        options.iter_mut().for_each(|option| option.layout = Some(layout));
    }
    options
}

/// A larger gang may cost one part in so many more for its work: it is done sooner.
pub(crate) const AS_CHEAP: u64 = 10;

/// Sizes of an elastic gang that are looked at between the smallest and the largest. Bounds a pass.
const MOST_SIZES: u32 = 16;

/// Options for an elastic gang at its sizes, the smallest among them. `work`: how long the smallest gang takes; more workers take as much less.
/// Empty for a gang of one size.
pub(crate) fn sized(
    state: &State,
    class: ClassId,
    pool: PoolId,
    offerings: &[OfferingId],
    carried: &[Carried],
    (most, work): (u32, Span),
) -> Vec<LaunchOption> {
    let shape = &state.classes[class].shape;
    let Gang::Workers { min, max, each } = &shape.gang else { return Vec::new() };
    let (min, most) = ((*min).max(1), most.min(*max));
    if min >= *max {
        return Vec::new();
    }
    let step = (most.saturating_sub(min) / MOST_SIZES).max(1) as usize;
    let mut sizes: Vec<u32> = (min..=most.max(min)).step_by(step).chain([most.max(min)]).collect();
    sizes.dedup();
    let mut fewest: BTreeMap<(OfferingId, bool), u32> = BTreeMap::new();
    let mut options = Vec::new();
    for workers in sizes {
        let shape = Shape { gang: Gang::Workers { min: workers, max: *max, each: *each }, ..shape.clone() };
        for option in options_for(state, &shape, pool, offerings, carried) {
            let Some(&(first, nodes)) = option.counts.first() else { continue };
            let fewest = *fewest.entry((first, option.part)).or_insert(nodes);
            let lasts = option.boot(state) + Span(work.0.saturating_mul(u64::from(min)) / u64::from(workers));
            options.push(LaunchOption { size: Some(GangSize { workers, lasts, fewest }), ..option });
        }
    }
    options
}

/// Whether some option would do if the gang did not have to stay together.
pub(crate) fn only_apart(state: &State, class: ClassId, pool: PoolId, offerings: &[OfferingId]) -> Option<Level> {
    let shape = &state.classes[class].shape;
    let within = shape.within.filter(|w| w.required)?;
    let none = options(state, class, pool, offerings, &[]).is_empty();
    (none && !anywhere(state, shape, pool, offerings, &[]).is_empty()).then_some(within.level)
}

fn layout_for(state: &State, shape: &Shape, pool: PoolId) -> Option<u8> {
    match &shape.gang {
        Gang::Workers { each, .. } => slices::chosen(state, pool, shape, each).map(|c| c.layout),
        Gang::Spanning { per_gpu, .. } => {
            let one = WorkerAsk { gpus: 1, share: 1000, ..*per_gpu };
            slices::chosen(state, pool, shape, &one).map(|c| c.layout)
        }
    }
}

fn anywhere(
    state: &State,
    shape: &Shape,
    pool: PoolId,
    offerings: &[OfferingId],
    carried: &[Carried],
) -> Vec<LaunchOption> {
    match &shape.gang {
        Gang::Workers { min, .. } => {
            let mut options = Vec::new();
            for &id in offerings {
                let row = &state.offerings[id.index()];
                let per_node = units_a_node(state, shape, pool, id, row.offer.gpus);
                let model = row.models.first().copied();
                let zone = &row.offer.zone;
                let beside = |c: &&Carried| c.model == model && c.zone.as_ref().is_none_or(|z| z == zone);
                let have = carried.iter().find(beside).map_or(0, |c| c.count);
                options.extend(filled(id, *min, per_node, false));
                if have > 0 && have < *min {
                    options.extend(filled(id, min - have, per_node, true));
                }
            }
            options
        }
        Gang::Spanning { gpus, per_gpu } => {
            let mut options = spanning(state, offerings, *gpus, per_gpu, false);
            for part in carried.iter().filter(|c| c.count > 0 && c.count < *gpus) {
                let beside = |id: &OfferingId| {
                    let row = &state.offerings[id.index()];
                    let there = part.zone.as_ref().is_none_or(|z| *z == row.offer.zone);
                    there && row.models.first().copied() == part.model
                };
                let group: Vec<OfferingId> = offerings.iter().copied().filter(beside).collect();
                options.extend(spanning(state, &group, gpus - part.count, per_gpu, true));
            }
            options
        }
    }
}

/// Carts that keep a gang as close together as it requires.
fn required(
    state: &State,
    shape: &Shape,
    pool: PoolId,
    offerings: &[OfferingId],
    carried: &[Carried],
    level: Level,
) -> Vec<LaunchOption> {
    if level == Level::Zone {
        let zones = topology::by_zone(state, offerings);
        return zones.iter().flat_map(|(_, own)| anywhere(state, shape, pool, own, carried)).collect();
    }
    let mut options = anywhere(state, shape, pool, offerings, &[]);
    options.retain(|option| keeps(state, shape, pool, option, level));
    options
}

/// Whether a gang on the nodes of an option is within one domain of a level.
fn keeps(state: &State, shape: &Shape, pool: PoolId, option: &LaunchOption, level: Level) -> bool {
    let (min, gpus) = match &shape.gang {
        Gang::Workers { min, each, .. } => (*min, u32::from(each.gpus).saturating_mul(*min)),
        Gang::Spanning { gpus, .. } => (*gpus, *gpus),
    };
    let offer = |id: OfferingId| &state.offerings[id.index()].offer;
    let Some(&(first, _)) = option.counts.first() else { return false };
    match level {
        // Where the rest is, is not known.
        Level::Zone => !option.part && option.counts.iter().all(|l| offer(l.0).zone == offer(first).zone),
        // One purchase into one placement group.
        Level::Rack => !option.part && option.counts.len() == 1,
        Level::Node => !option.part && option.nodes() == 1,
        Level::Numa | Level::Nvlink => {
            let group = topology::groups(offer(first), level).first().map_or(0, |g| g.count_ones() as u16);
            let held = if gpus <= 1 { min } else { units_a_node(state, shape, pool, first, group) };
            !option.part && option.nodes() == 1 && held >= min
        }
    }
}

/// How many workers, or GPUs of a gang that spans nodes, an empty node takes on so many of its GPUs.
pub(crate) fn units_a_node(state: &State, shape: &Shape, pool: PoolId, offering: OfferingId, gpus: u16) -> u32 {
    let row = &state.offerings[offering.index()];
    let (offer, room) = (&row.offer, row.room());
    match &shape.gang {
        Gang::Workers { each, .. } => {
            let share = placement::effective_share(state, shape, pool, each);
            let chosen = slices::chosen(state, pool, shape, each);
            let cut = chosen.filter(|_| each.gpus > 0);
            match cut.and_then(|c| slices::a_gpu(state, pool, shape, each, c, offer.gpu_mem)) {
                Some(a_gpu) => hosted(room, each, u64::from(gpus) * u64::from(a_gpu)),
                None => hosted(room, each, workers_by_gpu(offer, gpus, each, share, sharing_slices(state, pool))),
            }
        }
        Gang::Spanning { per_gpu, .. } => gpus_a_node(room, gpus, per_gpu),
    }
}

fn filled(id: OfferingId, workers: u32, per_node: u32, part: bool) -> Option<LaunchOption> {
    let nodes = workers.checked_div(per_node)? + u32::from(!workers.is_multiple_of(per_node));
    (nodes <= MOST_NODES).then(|| LaunchOption { part, ..LaunchOption::of(id, nodes) })
}

fn spanning(state: &State, offerings: &[OfferingId], gpus: u32, per_gpu: &WorkerAsk, part: bool) -> Vec<LaunchOption> {
    let size = |id: &OfferingId| {
        let row = &state.offerings[id.index()];
        (*id, gpus_a_node(row.room(), row.offer.gpus, per_gpu))
    };
    let sized: Vec<(OfferingId, u32)> = offerings.iter().map(size).filter(|(_, n)| *n > 0).collect();
    let mut options = Vec::new();
    for &(big, size) in &sized {
        // As many as it takes of this one alone: what can be had for a large gang can be had for a smaller one.
        options.extend(filled(big, gpus, size, part));
        let (full, rest) = (gpus / size, gpus % size);
        let small = if full > 0 && rest > 0 { cheapest_for(state, &sized, big, rest) } else { None };
        if let Some(small) = small.filter(|small| *small != big && full <= MOST_NODES) {
            options.push(LaunchOption {
                counts: alloc::vec![(big, full), (small, 1)],
                part,
                ..LaunchOption::of(big, full)
            });
        }
    }
    options
}

/// The cheapest offering of the same model that holds the rest of a spanning gang.
fn cheapest_for(state: &State, sized: &[(OfferingId, u32)], big: OfferingId, rest: u32) -> Option<OfferingId> {
    let model = state.offerings[big.index()].models.first();
    let same = |(id, n): &&(OfferingId, u32)| *n >= rest && state.offerings[id.index()].models.first() == model;
    let price = |(id, _): &&(OfferingId, u32)| (state.offerings[id.index()].offer.price, *id);
    sized.iter().filter(same).min_by_key(price).map(|s| s.0)
}

/// How many workers may share one GPU of a pool in time slices. 1: the pool shares none.
pub(crate) fn sharing_slices(state: &State, pool: PoolId) -> u32 {
    let rules = settings::pool(state, pool).and_then(|p| p.sharing);
    rules.map_or(1, |r| u32::from(r.time_slices))
}

/// How many workers that take such a share of a GPU go on one, if its memory holds them.
pub(crate) fn parts(share: u16, slices: u32) -> u64 {
    1000u64.checked_div(u64::from(share)).unwrap_or(0).min(u64::from(slices))
}

/// How many workers the GPUs of an empty node of an offering carry.
fn workers_by_gpu(offer: &Offering, gpus: u16, each: &WorkerAsk, share: u16, slices: u32) -> u64 {
    match each.gpus {
        0 => u64::MAX,
        1 if share < 1000 => {
            let mem = slot_mem(each.gpu_mem, share, offer.gpu_mem).0;
            let by_mem = offer.gpu_mem.0.checked_div(mem).unwrap_or(u64::MAX);
            u64::from(gpus) * parts(share, slices).min(by_mem)
        }
        n => u64::from(gpus / n),
    }
}

/// As many workers as the GPUs carry, if CPU and memory do.
fn hosted(room: NodeRoom, each: &WorkerAsk, by_gpu: u64) -> u32 {
    let by_cpu = room.cpu.0.checked_div(each.cpu.0).unwrap_or(u64::MAX);
    let by_mem = room.mem.0.checked_div(each.mem.0).unwrap_or(u64::MAX);
    u32::try_from(by_gpu.min(by_cpu).min(by_mem)).unwrap_or(u32::MAX)
}

/// GPUs of a spanning gang that one node of an offering carries.
fn gpus_a_node(room: NodeRoom, gpus: u16, per_gpu: &WorkerAsk) -> u32 {
    let by_cpu = room.cpu.0.checked_div(per_gpu.cpu.0).unwrap_or(u64::MAX);
    let by_mem = room.mem.0.checked_div(per_gpu.mem.0).unwrap_or(u64::MAX);
    u32::try_from(u64::from(gpus).min(by_cpu).min(by_mem)).unwrap_or(u32::MAX)
}

/// Which ceiling an option would break on top of what is held over all and in its pool.
pub(crate) fn bound_hit(state: &State, pool: PoolId, option: &LaunchOption, all: Held, own: Held) -> Option<Bound> {
    let policy = state.policy.as_deref()?;
    let add = state.held_by(&option.counts);
    let own_ceiling = policy.pools.get(pool.index()).map_or(Ceiling::default(), |p| p.ceiling);
    let overall = broken(&policy.limits, all, add, [Bound::Nodes, Bound::OnDemandNodes, Bound::Gpus, Bound::Spend]);
    let pools = [Bound::PoolNodes, Bound::PoolOnDemandNodes, Bound::PoolGpus, Bound::PoolSpend];
    overall.or_else(|| broken(&own_ceiling, own, add, pools))
}

/// The ceiling that leaves no room for even one more node of any kind.
pub(crate) fn no_room(state: &State, pool: PoolId, all: Held, own: Held) -> Option<Bound> {
    let policy = state.policy.as_deref()?;
    let full = |most: Option<u32>, held: Held| most.is_some_and(|m| held.nodes >= m);
    if full(policy.limits.nodes, all) {
        return Some(Bound::Nodes);
    }
    let most = policy.pools.get(pool.index()).and_then(|p| p.ceiling.nodes);
    full(most, own).then_some(Bound::PoolNodes)
}

fn broken(ceiling: &Ceiling, held: Held, add: Held, names: [Bound; 4]) -> Option<Bound> {
    let over = |most: Option<u32>, held: u32, add: u32| most.is_some_and(|m| add > 0 && held.saturating_add(add) > m);
    if over(ceiling.nodes, held.nodes, add.nodes) {
        Some(names[0])
    } else if over(ceiling.on_demand_nodes, held.on_demand_nodes, add.on_demand_nodes) {
        Some(names[1])
    } else if over(ceiling.gpus, held.gpus, add.gpus) {
        Some(names[2])
    } else if ceiling.spend.is_some_and(|m| add.spend > Rate(0) && held.spend + add.spend > m) {
        Some(names[3])
    } else {
        None
    }
}
