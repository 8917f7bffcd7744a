//! provision: the cheapest offering that fits under every ceiling, spot and on-demand alike, for a job that has quota and no place.
//!
//! ```text
//! candidates = offerings of the pool that the class fits, that its tier may buy, that are not known to be out of stock
//! carts      = how many of each for the whole gang, or for the part that free places do not carry (cart.rs)
//! the cart that costs least in the end, reclaims counted, under every ceiling is bought; with it for the single-node jobs of its
//! line that are due
//! ```
//!
//! Never: above a ceiling, in flight included, spot at its maximum price. Never on unknown stock twice: what failed is left alone for
//! a while, and tried again with one node, then two, then four. Throttling is not stock: the same is asked again, not something dearer.

use super::cart::{self, Cart};
use super::place::Carried;
use super::{admit, afford, ahead, place};
use crate::catalog::CapacityType;
use crate::decision::{Decision, DrainWhy};
use crate::effect::Terms;
use crate::engine::Engine;
use crate::event::LaunchError;
use crate::ids::{ClassId, JobId, NodeId, OfferingId, PoolId, PurchaseId};
use crate::job::{Gang, Level};
use crate::plan::PlanReport;
use crate::policy::Buys;
use crate::reason::Reason;
use crate::state::nodes::{Node, NodePhase, OfferingRow};
use crate::state::{Held, Shape, State};
use crate::units::{MilliGpu, Millis};
use alloc::vec::Vec;

/// Nodes that one purchase asks for at most on behalf of several jobs.
const MOST_AT_ONCE: u32 = 100;

/// Buys for a job. `Ok`: the claims are in the table and the job will fit on them.
pub(crate) fn buy_for(engine: &mut Engine, job: JobId, pool: PoolId, report: &mut PlanReport) -> Result<(), Reason> {
    buy_of(engine, job, pool, ANY, report).map_err(|no| place::too_far(&engine.state, job, pool, no))
}

/// Buys for a job, of these offerings only.
pub(crate) fn buy_of(
    engine: &mut Engine,
    job: JobId,
    pool: PoolId,
    these: These<'_>,
    report: &mut PlanReport,
) -> Result<(), Reason> {
    let class = engine.state.jobs[job.ix()].class;
    let carried = place::carried(engine, job, class, pool);
    let cart = choose(&engine.state, Some(job), class, pool, &carried, these)?;
    let close = engine.state.classes[class.ix()].shape.within.is_some_and(|w| w.level == Level::Rack);
    let more = if cart.nodes() == 1 && !cart.part { worth_adding(engine, job, pool, cart.lines[0].0) } else { 0 };
    for (offering, count) in cart.lines {
        let at_least = if more > 0 { 1 } else { count };
        buy(engine, pool, offering, (count + more, at_least), (close, cart.layout), report);
    }
    Ok(())
}

/// `close`: its nodes go into one placement group, whatever the pool says.
fn buy(
    engine: &mut Engine,
    pool: PoolId,
    offering: OfferingId,
    (count, at_least): (u32, u32),
    (close, layout): (bool, Option<u8>),
    report: &mut PlanReport,
) {
    let purchase = PurchaseId(engine.state.counters.next_purchase);
    report.bought += count;
    let network = engine.state.policy.as_deref().and_then(|p| p.pools.get(pool.ix())).map(|p| p.network);
    let network = network.unwrap_or_default();
    let terms = Terms { cluster: (network.cluster || close) && at_least > 1, efa: network.efa, layout };
    engine.decide(Decision::Buy { purchase, pool, offering, count, at_least, terms });
}

/// An empty node on its way out that would hold the whole gang: it stays instead. Not for one that may wait and would split it.
pub(crate) fn keep_for(engine: &mut Engine, job: JobId, pool: PoolId, most: MilliGpu, waits: bool) -> bool {
    let state = &engine.state;
    let class = state.jobs[job.ix()].class;
    let fits = fits(state, class, pool);
    let good = |node: &&Node| {
        let leaving = matches!(node.phase, NodePhase::Draining { why: DrainWhy::Idle, .. });
        leaving
            && ahead::lets_in(state, node, job)
            && node.pool == pool
            && node.reclaim_at.is_none()
            && !node.condemned
            && node.holds.is_empty()
            && fits.binary_search(&node.offering).is_ok()
            && afford::affordable(state, job, class, pool, node.offering)
            && place::would_hold(state, job, node, most)
            && !(waits && place::spare::would_split(state, job, node))
    };
    let draining = state.ix.draining.iter().filter_map(|id| state.nodes.get(id));
    let best: Option<NodeId> = draining.filter(good).min_by_key(|n| (n.price, n.id)).map(|n| n.id);
    if let Some(node) = best {
        engine.decide(Decision::Undrain { node });
    }
    best.is_some()
}

/// Whether a gang of a class could be had with nothing else running.
pub(crate) fn possible_on_empty(state: &State, class: ClassId, pool: PoolId) -> bool {
    let held = Held::default();
    let carts = cart::carts(state, class, pool, fits(state, class, pool), &[]);
    carts.iter().any(|c| cart::bound_hit(state, pool, c, held, held).is_none())
}

/// The level at which a gang of a class would have to be split, if that alone keeps it from ever running.
pub(crate) fn only_apart(state: &State, class: ClassId, pool: PoolId) -> Option<Level> {
    cart::only_apart(state, class, pool, fits(state, class, pool))
}

/// The cheapest capacity for one more gang of a class now, where its stock has last been found good.
pub(crate) fn cheapest_proven(state: &State, class: ClassId, pool: PoolId) -> Option<Cart> {
    let cart = choose(state, None, class, pool, &[], ANY).ok()?;
    let proven = |(id, _): &(OfferingId, u32)| state.offerings[id.ix()].failures == 0;
    cart.lines.iter().all(proven).then_some(cart)
}

/// Whether what a gang has no free places for could be bought now.
pub(super) fn can_be_had(engine: &mut Engine, job: JobId, pool: PoolId) -> bool {
    let class = engine.state.jobs[job.ix()].class;
    let carried = place::carried(engine, job, class, pool);
    choose(&engine.state, Some(job), class, pool, &carried, ANY).is_ok()
}

/// Offerings of a pool that can hold a worker of a class, sorted.
pub(super) fn fits(state: &State, class: ClassId, pool: PoolId) -> &[OfferingId] {
    state.classes[class.ix()].fits.iter().find(|(p, _)| *p == pool).map_or(&[], |(_, f)| f)
}

/// Why nothing can be bought for the whole gang of a job now. `None`: it can.
pub(super) fn refusal(state: &State, job: JobId, pool: PoolId) -> Option<Reason> {
    choose(state, Some(job), state.jobs[job.ix()].class, pool, &[], ANY).err()
}

/// Carts for a whole gang that stock has nothing against, as they are tried.
pub(super) fn carts_in_stock(state: &State, class: ClassId, pool: PoolId) -> Vec<Cart> {
    let shape = &state.classes[class.ix()].shape;
    let mut open = bought(state, class, pool);
    open.retain(|id| afford::affordable_anew(state, class, pool, *id) && in_stock(state, *id));
    let mut carts = cart::carts(state, class, pool, &open, &[]);
    carts.retain(|c| within_window(state, c));
    carts.sort_by_cached_key(|c| (c.rank(state, shape), c.lines.first().copied()));
    carts
}

/// Which offerings may be bought.
type These<'a> = &'a dyn Fn(&State, &OfferingId) -> bool;

/// All of them.
const ANY: These<'static> = &|_, _| true;

/// The cheapest cart that can be had now by a job, or by anyone.
fn choose(
    state: &State,
    asker: Option<JobId>,
    class: ClassId,
    pool: PoolId,
    carried: &[Carried],
    these: These<'_>,
) -> Result<Cart, Reason> {
    let shape = &state.classes[class.ix()].shape;
    if buys(state, shape) == Buys::Nothing && !admit::late(state, shape) {
        return Err(Reason::NothingIdle);
    }
    let (all, own) = ahead::held(state, pool, asker);
    if let Some(bound) = cart::no_room(state, pool, all, own) {
        return Err(Reason::Ceiling { bound });
    }
    let mut wanted = bought(state, class, pool);
    wanted.retain(|id| these(state, id) && afford::affordable_anew(state, class, pool, *id));
    let open: Vec<OfferingId> = wanted.iter().copied().filter(|id| in_stock(state, *id)).collect();
    let mut carts = cart::carts(state, class, pool, &open, carried);
    carts.retain(|c| within_window(state, c) && !(c.part && waits(state, c)));
    // Of equally dear ones, where the fewest replicas are.
    let around = shape.service.map(|service| place::spread::Around::of(state, pool, service));
    let near = |c: &Cart| {
        let zone = |(id, _): &(OfferingId, u32)| state.offerings[id.ix()].offer.zone.as_str();
        around.as_ref().map_or(0, |a| c.lines.iter().map(|l| a.in_zone(zone(l))).sum::<u32>())
    };
    carts.sort_by_cached_key(|c| (c.rank(state, shape), near(c), c.lines.first().copied()));
    let mut hit = None;
    for cart in carts {
        match cart::bound_hit(state, pool, &cart, all, own) {
            None => return unless_refused(state, cart),
            Some(bound) => hit = hit.or(Some(bound)),
        }
    }
    Err(hit.map_or_else(|| out_of_stock(state, &wanted), |bound| Reason::Ceiling { bound }))
}

/// Offerings of a pool that may be bought for a class, whatever is known of their stock.
pub(super) fn bought(state: &State, class: ClassId, pool: PoolId) -> Vec<OfferingId> {
    let shape = &state.classes[class.ix()].shape;
    let nothing = buys(state, shape) == Buys::Nothing;
    let may = |id: &OfferingId| {
        let capacity = state.offerings[id.ix()].offer.capacity;
        let for_late = capacity == CapacityType::OnDemand && admit::late(state, shape);
        if nothing { for_late } else { admit::wanted(state, class, capacity) }
    };
    fits(state, class, pool).iter().copied().filter(may).collect()
}

fn buys(state: &State, shape: &Shape) -> Buys {
    state.policy.as_deref().and_then(|p| p.tiers.get(shape.tier.ix())).map_or(Buys::Nothing, |t| t.buys)
}

/// Too many calls, or the cloud's own fault: the same is asked again in a moment.
fn passing(row: &OfferingRow) -> bool {
    matches!(row.blocked_by, Some(LaunchError::Throttled | LaunchError::Server))
}

/// Whether a cart has to wait out a throttling. One that counts on free places does not: they may be gone by then, and what a class
/// waits for must not change with what others take.
fn waits(state: &State, cart: &Cart) -> bool {
    let row = |(id, _): &(OfferingId, u32)| &state.offerings[id.ix()];
    cart.lines.iter().map(row).any(|row| row.blocked_until > state.now && passing(row))
}

fn unless_refused(state: &State, cart: Cart) -> Result<Cart, Reason> {
    for &(offering, _) in &cart.lines {
        let row = &state.offerings[offering.ix()];
        if row.blocked_until > state.now
            && passing(row)
            && let Some(error) = row.blocked_by
        {
            return Err(Reason::LaunchRefused { offering, error, until: row.blocked_until });
        }
    }
    Ok(cart)
}

/// Nothing is known against its stock, or not against a smaller request, and its window is open.
fn in_stock(state: &State, id: OfferingId) -> bool {
    let row = &state.offerings[id.ix()];
    let asked = row.blocked_until <= state.now || passing(row) || may_have_fewer(row);
    row.listed && asked && row.in_flight < row.window.max(1)
}

/// A large request was refused for want of stock: a smaller one may still be met.
fn may_have_fewer(row: &OfferingRow) -> bool {
    row.blocked_by == Some(LaunchError::Capacity) && row.refused_size > 1
}

/// A gang may be larger than the window of a probe: it is one request, and goes whole or not at all.
fn within_window(state: &State, cart: &Cart) -> bool {
    cart.lines.iter().all(|(id, n)| {
        let row = &state.offerings[id.ix()];
        let refused = row.blocked_until > state.now && row.blocked_by == Some(LaunchError::Capacity);
        let fewer = !refused || *n < row.refused_size;
        fewer && (row.in_flight == 0 || row.in_flight.saturating_add(*n) <= row.window)
    })
}

/// Which of the offerings is tried again first, and why it is not tried now.
fn out_of_stock(state: &State, wanted: &[OfferingId]) -> Reason {
    let first = wanted.iter().min_by_key(|id| (state.offerings[id.ix()].blocked_until, **id));
    let Some(&offering) = first else { return Reason::NoMatchingPool };
    let row = &state.offerings[offering.ix()];
    match row.blocked_by {
        // The window is used up: the answers to what is in flight decide.
        _ if row.blocked_until <= state.now => Reason::AwaitingNodes { eta: state.now + row.offer.boot },
        Some(LaunchError::Capacity) | None => Reason::Stockout { offering, until: row.blocked_until },
        Some(error) => Reason::LaunchRefused { offering, error, until: row.blocked_until },
    }
}

/// How many more nodes of this offering the jobs behind the head of a line would fill at once.
fn worth_adding(engine: &Engine, job: JobId, pool: PoolId, offering: OfferingId) -> u32 {
    let state = &engine.state;
    let class = state.jobs[job.ix()].class;
    let shape = &state.classes[class.ix()].shape;
    let offer = &state.offerings[offering.ix()].offer;
    let per_node = match &shape.gang {
        Gang::Workers { min: 1, .. } => cart::units_a_node(state, shape, pool, offer, offer.gpus),
        Gang::Spanning { gpus, .. } => cart::units_a_node(state, shape, pool, offer, offer.gpus) / (*gpus).max(1),
        Gang::Workers { .. } => return 0,
    };
    let waiting = state.ix.bought_for(class) as u64;
    let asked = admit::share(state, class, pool);
    let available = admit::available(state, class, pool);
    let by_quota = available.0.checked_div(asked.0).unwrap_or(u64::MAX);
    let by_budget = afford::how_many(state, class, pool, offering);
    let waiting = waiting.min(admit::batch_room(state, job));
    let nodes = waiting.min(by_quota).min(by_budget).div_ceil(u64::from(per_node.max(1)));
    let row = &state.offerings[offering.ix()];
    let window = row.window.saturating_sub(row.in_flight);
    let mut count = u32::try_from(nodes).unwrap_or(u32::MAX).min(window).clamp(1, MOST_AT_ONCE);
    let (all, own) = ahead::held(state, pool, None);
    while count > 1 && cart::bound_hit(state, pool, &Cart::of(offering, count), all, own).is_some() {
        count /= 2;
    }
    count - 1
}

/// Buys what a pool's floor asks for and does not have.
pub(crate) fn keep_ready(engine: &mut Engine, report: &mut PlanReport) {
    let Some(policy) = engine.state.policy.as_deref() else { return };
    let pools = policy.pools.iter().enumerate();
    let floors: Vec<(PoolId, u32)> =
        pools.map(|(at, p)| (PoolId(at as u16), p.kept(engine.state.now))).filter(|f| f.1 > 0).collect();
    for (pool, floor) in floors {
        // A floor is filled again when a gang that needs the room has started.
        if ahead::makes_room(&engine.state, pool) {
            continue;
        }
        // Of several layouts the one that is preferred.
        let layouts = engine.state.policy.as_deref().and_then(|p| p.pools.get(pool.ix())).map(|p| p.layouts.len());
        let layout = layouts.filter(|n| *n > 0).map(|_| 0);
        for _ in spare(&engine.state, pool)..floor {
            let Some(offering) = cheapest_for_floor(&engine.state, pool) else { break };
            buy(engine, pool, offering, (1, 1), (false, layout), report);
        }
    }
}

/// Claims of a pool with nothing on them that can still take work.
pub(crate) fn spare(state: &State, pool: PoolId) -> u32 {
    let both = state.ix.idle.iter().chain(&state.ix.unbooked);
    both.filter(|id| state.nodes.get(id).is_some_and(|n| n.pool == pool)).count() as u32
}

fn cheapest_for_floor(state: &State, pool: PoolId) -> Option<OfferingId> {
    let rules = state.policy.as_deref()?.pools.get(pool.ix())?;
    let listed = rules.offerings.iter().filter_map(|at| state.listed.get(*at as usize).copied());
    let (all, own) = ahead::held(state, pool, None);
    let good = |id: &OfferingId| {
        let row = &state.offerings[id.ix()];
        row.offer.gpus > 0
            && row.blocked_until <= state.now
            && in_stock(state, *id)
            && cart::bound_hit(state, pool, &Cart::of(*id, 1), all, own).is_none()
    };
    listed.filter(good).min_by_key(|id| (state.offerings[id.ix()].offer.price, *id))
}

/// When a node is expected to be ready.
pub(crate) fn ready_at(state: &State, node: &Node) -> Millis {
    if node.phase == NodePhase::Ready {
        return state.now;
    }
    node.since + state.offerings[node.offering.ix()].offer.boot
}

/// When the nodes that a booked job waits for are expected.
pub(crate) fn eta(state: &State, job: JobId) -> Millis {
    let of = |node: &Node| ready_at(state, node);
    let nodes = state.jobs[job.ix()].places.iter().filter_map(|p| state.nodes.get(&p.node));
    nodes.filter(|n| n.phase != NodePhase::Ready).map(of).max().unwrap_or(state.now)
}
