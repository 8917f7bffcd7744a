//! provision: the cheapest offering that fits under every ceiling, spot and on-demand alike, for a job that has quota and no place.
//!
//! ```text
//! candidates = offerings of the pool that the class fits, that its tier may buy, that are not out of stock
//! plan       = how many of each for the whole gang, and what that costs an hour
//! the cheapest plan under every ceiling is bought; single-node jobs behind it in its line are bought for at once
//! ```
//!
//! Never: above a ceiling, in flight included, spot at its maximum price. Never on unknown stock twice: what failed is left alone for
//! a while, and tried again with one node, then two, then four.

use super::{admit, place};
use crate::catalog::{CapacityType, Offering};
use crate::decision::Decision;
use crate::engine::Engine;
use crate::event::LaunchError;
use crate::ids::{ClassId, JobId, OfferingId, PoolId, PurchaseId};
use crate::job::{Gang, WorkerAsk};
use crate::plan::PlanReport;
use crate::policy::{Buys, Ceiling};
use crate::reason::{Bound, Reason};
use crate::state::{Held, Shape, State};
use crate::units::{MilliGpu, Millis, Rate};
use alloc::vec::Vec;

/// Nodes that one purchase asks for at most.
const MOST_AT_ONCE: u32 = 100;

/// Nodes for one gang: so many of each offering.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Cart {
    lines: Vec<(OfferingId, u32)>,
}

/// Buys for a job. `Ok`: the claims are in the table and the job will fit on them.
pub(crate) fn buy_for(
    engine: &mut Engine,
    job: JobId,
    pool: PoolId,
    report: &mut PlanReport,
) -> Result<(), Reason> {
    let class = engine.state.jobs[job.ix()].class;
    let cart = choose(&engine.state, class, pool)?;
    let more = if single(&cart) {
        worth_adding(engine, class, pool, cart.lines[0].0)
    } else {
        0
    };
    for (offering, count) in cart.lines {
        let at_least = count;
        let count = count + more;
        let at_least = if more > 0 { 1 } else { at_least };
        let purchase = PurchaseId(engine.state.counters.next_purchase);
        report.bought += count;
        engine.decide(Decision::Buy {
            purchase,
            pool,
            offering,
            count,
            at_least,
        });
    }
    Ok(())
}

/// Whether a gang of a class could be had with nothing else running.
pub(crate) fn possible_on_empty(state: &State, class: ClassId, pool: PoolId) -> bool {
    let held = Held::default();
    let fits = fits(state, class, pool);
    carts(state, class, pool, fits)
        .into_iter()
        .any(|cart| bound_hit(state, pool, &cart, held, held).is_none())
}

/// What an hour of the cheapest capacity for one more gang of a class costs now, where its stock has last been found good.
pub(crate) fn cheapest_proven(state: &State, class: ClassId, pool: PoolId) -> Option<Rate> {
    let cart = choose(state, class, pool).ok()?;
    let proven = |(id, _): &(OfferingId, u32)| state.offerings[id.ix()].failures == 0;
    cart.lines.iter().all(proven).then(|| cost(state, &cart))
}

fn fits(state: &State, class: ClassId, pool: PoolId) -> &[OfferingId] {
    state.classes[class.ix()]
        .fits
        .iter()
        .find(|(p, _)| *p == pool)
        .map_or(&[], |(_, f)| f)
}

/// The cheapest cart that can be had now.
fn choose(state: &State, class: ClassId, pool: PoolId) -> Result<Cart, Reason> {
    let shape = &state.classes[class.ix()].shape;
    let buys = state
        .policy
        .as_deref()
        .and_then(|p| p.tiers.get(shape.tier.ix()))
        .map_or(Buys::Nothing, |t| t.buys);
    if buys == Buys::Nothing {
        return Err(Reason::NothingIdle);
    }
    let held = (
        state.totals.all,
        state
            .totals
            .pools
            .get(pool.ix())
            .copied()
            .unwrap_or_default(),
    );
    if let Some(bound) = no_room(state, pool, held) {
        return Err(Reason::Ceiling { bound });
    }
    let all = fits(state, class, pool).iter().copied();
    let wanted: Vec<OfferingId> = all
        .filter(|id| admit::wanted(state, class, state.offerings[id.ix()].offer.capacity))
        .collect();
    let stocked: Vec<OfferingId> = wanted
        .iter()
        .copied()
        .filter(|id| in_stock(state, *id))
        .collect();
    let mut carts = carts(state, class, pool, &stocked);
    carts.sort_by_cached_key(|cart| {
        (
            nodes_first(shape, cart),
            cost(state, cart),
            cart.lines.clone(),
        )
    });
    let held = (
        state.totals.all,
        state
            .totals
            .pools
            .get(pool.ix())
            .copied()
            .unwrap_or_default(),
    );
    let mut hit = None;
    for cart in carts {
        match bound_hit(state, pool, &cart, held.0, held.1) {
            None => return Ok(cart),
            Some(bound) => hit = hit.or(Some(bound)),
        }
    }
    Err(match hit {
        Some(bound) => Reason::Ceiling { bound },
        None => out_of_stock(state, &wanted),
    })
}

/// A spanning gang takes the fewest nodes before it takes the cheapest.
fn nodes_first(shape: &Shape, cart: &Cart) -> u32 {
    match shape.gang {
        Gang::Spanning { .. } => nodes(cart),
        Gang::Workers { .. } => 0,
    }
}

fn nodes(cart: &Cart) -> u32 {
    cart.lines.iter().map(|l| l.1).sum()
}

fn single(cart: &Cart) -> bool {
    nodes(cart) == 1
}

fn cost(state: &State, cart: &Cart) -> Rate {
    let of =
        |(id, n): &(OfferingId, u32)| state.offerings[id.ix()].offer.price.times(u64::from(*n));
    cart.lines.iter().map(of).fold(Rate(0), |a, b| a + b)
}

/// Nothing is known against its stock, and its window is open.
fn in_stock(state: &State, id: OfferingId) -> bool {
    let row = &state.offerings[id.ix()];
    row.listed && row.blocked_until <= state.now && row.in_flight < row.window
}

/// Which of the offerings is tried again first, and why it is not tried now.
fn out_of_stock(state: &State, wanted: &[OfferingId]) -> Reason {
    let first = wanted
        .iter()
        .min_by_key(|id| (state.offerings[id.ix()].blocked_until, **id));
    let Some(&offering) = first else {
        return Reason::NoMatchingPool;
    };
    let row = &state.offerings[offering.ix()];
    match row.blocked_by {
        // The window is used up: the answers to what is in flight decide.
        _ if row.blocked_until <= state.now => Reason::AwaitingNodes {
            eta: state.now + row.offer.boot,
        },
        Some(LaunchError::Capacity) | None => Reason::Stockout {
            offering,
            until: row.blocked_until,
        },
        Some(error) => Reason::LaunchRefused {
            offering,
            error,
            until: row.blocked_until,
        },
    }
}

/// Every sensible cart for one gang of a class.
fn carts(state: &State, class: ClassId, pool: PoolId, offerings: &[OfferingId]) -> Vec<Cart> {
    let shape = &state.classes[class.ix()].shape;
    match &shape.gang {
        Gang::Workers { min, each, .. } => {
            let share = place::effective_share(state, shape, pool, each);
            let cart = |id: &OfferingId| {
                let offer = &state.offerings[id.ix()].offer;
                let slices = sharing_slices(state, pool);
                let per_node = workers_a_node(offer, each, share, slices);
                (per_node > 0).then(|| Cart {
                    lines: alloc::vec![(*id, min.div_ceil(per_node))],
                })
            };
            offerings
                .iter()
                .filter_map(cart)
                .filter(|c| within_window(state, c))
                .collect()
        }
        Gang::Spanning { gpus, per_gpu } => spanning_carts(state, offerings, *gpus, per_gpu),
    }
}

fn within_window(state: &State, cart: &Cart) -> bool {
    cart.lines.iter().all(|(id, n)| {
        let row = &state.offerings[id.ix()];
        // A gang may be larger than the window of a probe: it is one request, and goes whole or not at all.
        row.in_flight == 0 || row.in_flight + n <= row.window
    })
}

fn sharing_slices(state: &State, pool: PoolId) -> u32 {
    let rules = state
        .policy
        .as_deref()
        .and_then(|p| p.pools.get(pool.ix()))
        .and_then(|p| p.sharing);
    rules.map_or(1, |r| u32::from(r.time_slices))
}

/// How many workers an empty node of an offering holds.
fn workers_a_node(offer: &Offering, each: &WorkerAsk, share: u16, slices: u32) -> u32 {
    let by_gpu = match each.gpus {
        0 => u64::MAX,
        1 if share < 1000 => {
            let mem = place_mem(each, share, offer);
            let a_gpu = (1000 / u64::from(share))
                .min(u64::from(slices))
                .min(offer.gpu_mem.0.checked_div(mem).unwrap_or(u64::MAX));
            u64::from(offer.gpus) * a_gpu
        }
        n => u64::from(offer.gpus / n),
    };
    let by_cpu = offer.cpu.0.checked_div(each.cpu.0).unwrap_or(u64::MAX);
    let by_mem = offer.mem.0.checked_div(each.mem.0).unwrap_or(u64::MAX);
    u32::try_from(by_gpu.min(by_cpu).min(by_mem)).unwrap_or(u32::MAX)
}

fn place_mem(each: &WorkerAsk, share: u16, offer: &Offering) -> u64 {
    crate::state::places::slot_mem(each.gpu_mem, share, offer.gpu_mem).0
}

/// GPUs of a spanning gang that one node of an offering carries.
fn gpus_a_node(offer: &Offering, per_gpu: &WorkerAsk) -> u32 {
    let by_cpu = offer.cpu.0.checked_div(per_gpu.cpu.0).unwrap_or(u64::MAX);
    let by_mem = offer.mem.0.checked_div(per_gpu.mem.0).unwrap_or(u64::MAX);
    u32::try_from(u64::from(offer.gpus).min(by_cpu).min(by_mem)).unwrap_or(u32::MAX)
}

/// For each GPU model: one node that holds all; else the biggest nodes, and one more for what is left.
fn spanning_carts(
    state: &State,
    offerings: &[OfferingId],
    gpus: u32,
    per_gpu: &WorkerAsk,
) -> Vec<Cart> {
    let sized: Vec<(OfferingId, u32)> = offerings
        .iter()
        .map(|id| (*id, gpus_a_node(&state.offerings[id.ix()].offer, per_gpu)))
        .filter(|(_, n)| *n > 0)
        .collect();
    let mut carts: Vec<Cart> = sized
        .iter()
        .filter(|(_, n)| *n >= gpus)
        .map(|(id, _)| Cart {
            lines: alloc::vec![(*id, 1)],
        })
        .collect();
    if !carts.is_empty() {
        return carts;
    }
    for &(big, size) in &sized {
        let (full, rest) = (gpus / size, gpus % size);
        let mut lines = alloc::vec![(big, full)];
        if rest > 0 {
            let model = state.offerings[big.ix()].models.first();
            let same = |(id, n): &&(OfferingId, u32)| {
                *n >= rest && state.offerings[id.ix()].models.first() == model
            };
            let price = |(id, _): &&(OfferingId, u32)| (state.offerings[id.ix()].offer.price, *id);
            let Some(&(small, _)) = sized.iter().filter(same).min_by_key(price) else {
                continue;
            };
            if small == big {
                lines[0].1 += 1;
            } else {
                lines.push((small, 1));
            }
        }
        let cart = Cart { lines };
        if within_window(state, &cart) {
            carts.push(cart);
        }
    }
    carts
}

/// Which ceiling a cart would break.
fn bound_hit(state: &State, pool: PoolId, cart: &Cart, all: Held, own: Held) -> Option<Bound> {
    let policy = state.policy.as_deref()?;
    let mut add = Held::default();
    for (id, n) in &cart.lines {
        let offer = &state.offerings[id.ix()].offer;
        add.nodes += n;
        add.on_demand_nodes += if offer.capacity == CapacityType::OnDemand {
            *n
        } else {
            0
        };
        add.gpus += n * u32::from(offer.gpus);
        add.spend = add.spend + offer.max_price.times(u64::from(*n));
    }
    let own_ceiling = policy
        .pools
        .get(pool.ix())
        .map_or(Ceiling::default(), |p| p.ceiling);
    let overall = broken(
        &policy.limits,
        all,
        add,
        [
            Bound::Nodes,
            Bound::OnDemandNodes,
            Bound::Gpus,
            Bound::Spend,
        ],
    );
    let pools = [
        Bound::PoolNodes,
        Bound::OnDemandNodes,
        Bound::PoolGpus,
        Bound::PoolSpend,
    ];
    overall.or_else(|| broken(&own_ceiling, own, add, pools))
}

/// The ceiling that leaves no room for even one more node of any kind.
fn no_room(state: &State, pool: PoolId, (all, own): (Held, Held)) -> Option<Bound> {
    let policy = state.policy.as_deref()?;
    let full = |most: Option<u32>, held: Held| most.is_some_and(|m| held.nodes >= m);
    let pools = policy.pools.get(pool.ix()).and_then(|p| p.ceiling.nodes);
    if full(policy.limits.nodes, all) {
        Some(Bound::Nodes)
    } else {
        full(pools, own).then_some(Bound::PoolNodes)
    }
}

fn broken(ceiling: &Ceiling, held: Held, add: Held, names: [Bound; 4]) -> Option<Bound> {
    let over =
        |most: Option<u32>, held: u32, add: u32| most.is_some_and(|m| add > 0 && held + add > m);
    if over(ceiling.nodes, held.nodes, add.nodes) {
        Some(names[0])
    } else if over(
        ceiling.on_demand_nodes,
        held.on_demand_nodes,
        add.on_demand_nodes,
    ) {
        Some(names[1])
    } else if over(ceiling.gpus, held.gpus, add.gpus) {
        Some(names[2])
    } else if ceiling
        .spend
        .is_some_and(|m| add.spend > Rate(0) && held.spend + add.spend > m)
    {
        Some(names[3])
    } else {
        None
    }
}

/// How many more nodes of this offering the jobs behind the head of a line would fill at once.
fn worth_adding(engine: &Engine, class: ClassId, pool: PoolId, offering: OfferingId) -> u32 {
    let state = &engine.state;
    let shape = &state.classes[class.ix()].shape;
    let offer = &state.offerings[offering.ix()].offer;
    let per_node = match &shape.gang {
        Gang::Workers { min: 1, each, .. } => {
            let share = place::effective_share(state, shape, pool, each);
            workers_a_node(offer, each, share, sharing_slices(state, pool))
        }
        Gang::Spanning { gpus, per_gpu } => gpus_a_node(offer, per_gpu) / (*gpus).max(1),
        Gang::Workers { .. } => return 0,
    };
    let waiting = state.ix.queued.get(&class).map_or(0, |line| line.len()) as u64;
    let asked = admit::share(state, class, pool);
    let available = state.queues[shape.queue.ix()]
        .rule
        .as_ref()
        .map_or(MilliGpu(0), |r| state.quota.available(r.quota, pool));
    let by_quota = available.0.checked_div(asked.0).unwrap_or(u64::MAX);
    let jobs = waiting.min(by_quota);
    let nodes = u32::try_from(jobs.div_ceil(u64::from(per_node.max(1)))).unwrap_or(u32::MAX);
    let row = &state.offerings[offering.ix()];
    let window = row.window.saturating_sub(row.in_flight);
    let mut count = nodes.min(window).clamp(1, MOST_AT_ONCE);
    let held = (
        state.totals.all,
        state
            .totals
            .pools
            .get(pool.ix())
            .copied()
            .unwrap_or_default(),
    );
    while count > 1 {
        let cart = Cart {
            lines: alloc::vec![(offering, count)],
        };
        if bound_hit(state, pool, &cart, held.0, held.1).is_none() {
            break;
        }
        count /= 2;
    }
    count.saturating_sub(1)
}

/// Buys what a pool's floor asks for and does not have.
pub(crate) fn keep_ready(engine: &mut Engine, report: &mut PlanReport) {
    let Some(policy) = engine.state.policy.as_deref() else {
        return;
    };
    let floors: Vec<(PoolId, u32)> = policy
        .pools
        .iter()
        .enumerate()
        .map(|(at, p)| (PoolId(at as u16), p.keep_ready))
        .filter(|f| f.1 > 0)
        .collect();
    for (pool, floor) in floors {
        let have = spare(&engine.state, pool);
        for _ in have..floor {
            let Some(offering) = cheapest_for_floor(&engine.state, pool) else {
                break;
            };
            let purchase = PurchaseId(engine.state.counters.next_purchase);
            report.bought += 1;
            engine.decide(Decision::Buy {
                purchase,
                pool,
                offering,
                count: 1,
                at_least: 1,
            });
        }
    }
}

/// Claims of a pool with nothing on them that can still take work.
pub(crate) fn spare(state: &State, pool: PoolId) -> u32 {
    let both = state.ix.idle.iter().chain(&state.ix.unbooked);
    both.filter(|id| state.nodes.get(id).is_some_and(|n| n.pool == pool))
        .count() as u32
}

fn cheapest_for_floor(state: &State, pool: PoolId) -> Option<OfferingId> {
    let rules = state.policy.as_deref()?.pools.get(pool.ix())?;
    let listed = rules
        .offerings
        .iter()
        .filter_map(|at| state.listed.get(*at as usize).copied());
    let held = (
        state.totals.all,
        state
            .totals
            .pools
            .get(pool.ix())
            .copied()
            .unwrap_or_default(),
    );
    let good = |id: &OfferingId| {
        let cart = Cart {
            lines: alloc::vec![(*id, 1)],
        };
        state.offerings[id.ix()].offer.gpus > 0
            && in_stock(state, *id)
            && bound_hit(state, pool, &cart, held.0, held.1).is_none()
    };
    listed
        .filter(good)
        .min_by_key(|id| (state.offerings[id.ix()].offer.price, *id))
}

/// When the nodes that a booked job waits for are expected.
pub(crate) fn eta(state: &State, job: JobId) -> Millis {
    let of = |node: &crate::state::nodes::Node| {
        let boot = state.offerings[node.offering.ix()].offer.boot;
        node.since + boot
    };
    let nodes = state.jobs[job.ix()]
        .places
        .iter()
        .filter_map(|p| state.nodes.get(&p.node));
    nodes
        .filter(|n| n.phase != crate::state::nodes::NodePhase::Ready)
        .map(of)
        .max()
        .unwrap_or(state.now)
}
