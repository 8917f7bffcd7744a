//! Floors (`keepReady`): which nodes those that a pool serves could use.
//!
//! ```text
//! jobs are known      the node that costs least for each class of jobs that it serves, of those that no spare node serves yet;
//!                     of all of them where each has one
//! none is known yet   the cheapest that a tier of the pool's queues buys
//! ```
//!
//! A spare node that serves nobody fills no floor. Never: buys, or gives back. Those are provision's and consolidate's.

use super::launch::LaunchOption;
use super::{capacity, launch, reservations, settings, supply};
use crate::ids::{ClassId, NodeId, OfferingId, PoolId, TierId};
use crate::policy::{Buys, Tier};
use crate::state::State;
use crate::state::nodes::Node;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// What the next node of a floor is to be. `None`: nothing can be had, or what costs least is being tried.
pub(crate) fn next(state: &State, pool: PoolId) -> Option<OfferingId> {
    if supply::no_purchase(state, pool).is_some() {
        return None;
    }
    let rules = settings::pool(state, pool)?;
    let listed = rules.offerings.iter().filter_map(|at| state.listed.get(*at as usize).copied());
    let (all, own) = reservations::held(state, pool, None);
    let gpus = |id: &OfferingId| state.offerings[id.index()].offer.gpus;
    // A pool with GPUs is not kept ready by nodes without.
    let without = listed.clone().all(|id| gpus(&id) == 0);
    let good = |id: &OfferingId| {
        (without || gpus(id) > 0)
            && supply::is_to_be_had(state, *id)
            && launch::bound_hit(state, pool, &LaunchOption::of(*id, 1), all, own).is_none()
    };
    let good: Vec<OfferingId> = listed.filter(good).collect();
    let price = |id: &OfferingId| state.offerings[id.index()].offer.price;
    let cheapest = if is_known(state, pool) {
        let missing = missing(state, pool);
        // Price by how many it serves, compared without a fraction: prices and counts fit 128 bits.
        let of = |id: &OfferingId| (u128::from(price(id).0), missing.get(id).copied().unwrap_or(0));
        good.into_iter().filter(|id| of(id).1 > 0).min_by(|a, b| {
            let ((a_price, a_serves), (b_price, b_serves)) = (of(a), of(b));
            (a_price * b_serves).cmp(&(b_price * a_serves)).then(a.cmp(b))
        })
    } else {
        let bought = |id: &OfferingId| is_bought_by_tiers(state, pool, *id);
        let any = good.iter().any(bought);
        good.into_iter().filter(|id| !any || bought(id)).min_by_key(|id| (price(id), *id))
    };
    cheapest.filter(|id| !supply::is_tried(state, *id))
}

/// How many spare nodes of a pool count for its floor.
pub(crate) fn filled(state: &State, pool: PoolId) -> u32 {
    supply::spare_nodes(state, pool).filter(|node| counts(state, node)).count() as u32
}

/// The same, and those on which there is nothing but runs of tiers that buy nothing: what they are on was to spare, and they make way.
pub(crate) fn filled_or_lent(state: &State, pool: PoolId, enough: u32) -> u32 {
    let filled = filled(state, pool);
    let lends = |tier: &Tier| tier.buys == Buys::Nothing && !tier.stoppable_by.is_empty();
    let lends_any = || state.policy.as_deref().is_some_and(|policy| policy.tiers.iter().any(lends));
    if filled >= enough || !lends_any() {
        return filled;
    }
    let makes_way = |tier: TierId| settings::tier(state, tier).is_some_and(lends);
    let tier = |class: ClassId| state.classes[class].shape.tier;
    let runs = state.index.holding.iter().filter(|(class, _)| makes_way(tier(**class))).flat_map(|(_, jobs)| jobs);
    let nodes = runs.flat_map(|id| &state.jobs[*id].places).map(|place| place.node).collect::<BTreeSet<NodeId>>();
    let alone = |node: &&Node| node.holds.iter().all(|job| makes_way(state.jobs[*job].tier));
    let lent = nodes.iter().filter_map(|id| state.nodes.get(id)).filter(|node| node.pool == pool && node.open());
    filled + lent.filter(alone).filter(|node| counts(state, node)).count() as u32
}

/// Whether a spare node counts for the floor of its pool: it serves somebody, or nobody is known yet.
pub(crate) fn counts(state: &State, node: &Node) -> bool {
    let serves = |class| may_use(state, class, node.pool, node.offering);
    known(state).any(serves) || !is_known(state, node.pool)
}

/// Whether a spare node is the only one that serves somebody, beside those that go.
pub(crate) fn serves_alone(state: &State, node: &Node, go: &[NodeId]) -> bool {
    let stays = supply::spare_nodes(state, node.pool).filter(|other| other.id != node.id && !go.contains(&other.id));
    let others: BTreeSet<OfferingId> = stays.map(|other| other.offering).collect();
    let may_use = |class, id| may_use(state, class, node.pool, id);
    !others.contains(&node.offering)
        && known(state).any(|class| may_use(class, node.offering) && !others.iter().any(|id| may_use(class, *id)))
}

/// Whether a node of an offering would be bought for a class. What a deadline or a reclaim asks for a time counts for no floor.
fn may_use(state: &State, class: ClassId, pool: PoolId, id: OfferingId) -> bool {
    let buys = settings::buys(state, &state.classes[class].shape) != Buys::Nothing;
    let fits = || supply::fits(state, class, pool).binary_search(&id).is_ok();
    buys && fits() && capacity::wanted_ordinarily(state, class, state.offerings[id.index()].offer.capacity)
}

/// Classes of jobs that the state has: those that are not over, and the last ones that are.
fn known(state: &State) -> impl Iterator<Item = ClassId> {
    state.index.known.classes()
}

/// Whether any job is known that nodes of a pool are bought for.
fn is_known(state: &State, pool: PoolId) -> bool {
    let any = |class| supply::fits(state, class, pool).iter().any(|id| may_use(state, class, pool, *id));
    known(state).any(any)
}

/// How many classes each offering would serve, of those that no spare node serves, or else of all.
fn missing(state: &State, pool: PoolId) -> BTreeMap<OfferingId, u128> {
    let spare: BTreeSet<OfferingId> = supply::spare_nodes(state, pool).map(|node| node.offering).collect();
    let (mut missing, mut all) = (BTreeMap::new(), BTreeMap::new());
    for class in known(state) {
        let served = spare.iter().any(|id| may_use(state, class, pool, *id));
        for id in supply::fits(state, class, pool).iter().filter(|id| may_use(state, class, pool, **id)) {
            *all.entry(*id).or_default() += 1;
            if !served {
                *missing.entry(*id).or_default() += 1;
            }
        }
    }
    if missing.is_empty() { all } else { missing }
}

/// Whether a tier that the pool's queues may use, and that buys something, buys an offering.
fn is_bought_by_tiers(state: &State, pool: PoolId, id: OfferingId) -> bool {
    let Some(policy) = state.policy.as_deref() else { return false };
    let capacity = state.offerings[id.index()].offer.capacity;
    let rules = || policy.rules().filter(|rule| rule.pools.contains(&pool));
    let used = |at: u16| rules().any(|rule| policy.may_ask(rule, TierId(at)));
    (0..).zip(&policy.tiers).any(|(at, tier)| used(at) && capacity::is_bought(tier.buys, capacity))
}
