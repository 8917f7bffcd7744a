//! Room under a ceiling: nodes are given back, with what is on them taken, so that what a head needs can be bought. Where it lacks quota or money
//! as well, what is taken has to bring that too.
//!
//! Never: a node that is kept for somebody, or one with anything on it that the head may not take.

use super::search::{Found, Part, Way, comes_back, keep, lift, price, roll_back, spares_any, to_empty, undo};
use super::spared::is_in_vain;
use super::{Trial, bound, refused};
use crate::effect::WorkerPlace;
use crate::ids::{JobId, NodeId, OfferingId, PoolId};
use crate::policy::{Buys, Ceiling};
use crate::reason::Reason;
use crate::rules::launch::LaunchOption;
use crate::rules::rank::Taker;
use crate::rules::relocation::holders;
use crate::rules::supply::{self, Doubt};
use crate::rules::{budget, placement, protection, quota, rank, reservations, settings};
use crate::state::State;
use crate::state::nodes::{Node, NodePhase};
use crate::units::{MilliGpu, Rate, Spend};
use alloc::vec::Vec;
use core::cmp::Reverse;

/// Launch options looked at for one head at most.
const MOST_OPTIONS: usize = 16;

/// Nodes that are looked at for a part of a gang at most.
const MOST_NODES: usize = 16;

/// A node that a head may have emptied. The least is given back first: of the lowest tier, with the least lost, the dearest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Emptied {
    /// The highest priority of the tiers that lose something.
    tier: i32,
    lost: Spend,
    rate: Reverse<Rate>,
    node: NodeId,
}

/// What is given back, and what is bought then.
struct Room {
    nodes: Vec<Emptied>,
    bought: Vec<(OfferingId, u32)>,
}

/// Nodes that stand empty and are given back, and what is bought then.
pub(super) struct RoomOfEmpty {
    nodes: Vec<NodeId>,
    bought: Vec<(OfferingId, u32)>,
    /// Where a part of the gang goes beside it.
    places: Vec<WorkerPlace>,
}

impl RoomOfEmpty {
    /// The doubt whether what is bought can be had.
    pub(super) fn doubt(&self, state: &State) -> Option<Doubt> {
        supply::doubt_of(state, &self.bought)
    }

    fn found(mut self, taken: Found) -> Found {
        self.nodes.sort_unstable();
        Found { nodes: self.nodes, room: self.bought, places: self.places, ..taken }
    }
}

impl Room {
    fn cost(&self) -> (Option<i32>, u128) {
        (self.nodes.iter().map(|one| one.tier).max(), self.nodes.iter().map(|one| one.lost.0).sum())
    }
}

/// Takes what is on the nodes whose ceiling a head needs, where that is enough. It stays taken in the trial.
pub(super) fn make_room(trial: &mut Trial<'_>, taker: &Taker) -> Option<Found> {
    let state = &trial.engine.state;
    let pool = taker.pool;
    if settings::tier(state, taker.tier).is_none_or(|tier| tier.buys == Buys::Nothing) {
        return None;
    }
    let kept = state.reservations().get(&pool).map(|kept| kept.job);
    let stays =
        |holder: &JobId| *holder != taker.job && !reservations::gives_way(state, *holder, pool, taker.job, pool);
    let Some(holder) = kept.filter(stays) else { return find(trial, taker) };
    if !trial.held.get(&holder).is_some_and(|held| held.promised) {
        return None;
    }
    let promised = trial.yields(taker, holder)?;
    let found = if trial.stands_by(taker, &promised) { find(trial, taker) } else { None };
    match found {
        Some(_) => _ = trial.broken.insert(holder),
        None => trial.hold(promised),
    }
    found
}

fn find(trial: &mut Trial<'_>, taker: &Taker) -> Option<Found> {
    of_nodes(trial, taker).or_else(|| of_all(trial, taker))
}

/// Nodes with all that is on them.
fn of_nodes(trial: &mut Trial<'_>, taker: &Taker) -> Option<Found> {
    let (state, pool) = (&trial.engine.state, taker.pool);
    let Some(Reason::Ceiling { bound }) = supply::refusal(state, taker.job, pool) else { return None };
    let of = bound.is_of_pool().then_some(pool);
    let free = emptiable(trial, taker, of);
    let Some(room) = cheapest(trial, taker, &free) else { return of_part(trial, taker, &free) };
    let lacks = !trial.engine.state.budgets.none() || refused(&trial.engine.state, taker);
    let spare = |trial: &mut Trial<'_>, way: &mut Way| {
        let any = spares_any(trial, taker, way);
        any.then(|| room_of_empty(trial, taker)).flatten()
    };
    let fewer = if lacks { with_emptied(trial, taker, &room.nodes, spare) } else { None };
    if let Some((way, fewer)) = fewer {
        return Some(fewer.found(keep(trial, taker, way)));
    }
    let (way, ()) = with_emptied(trial, taker, &room.nodes, |_, _| Some(()))?;
    let room = RoomOfEmpty { nodes: ids(&room.nodes), bought: room.bought, places: Vec::new() };
    Some(room.found(keep(trial, taker, way)))
}

/// Nodes with all that is on them, for what of a gang has no places beside them.
fn of_part(trial: &mut Trial<'_>, taker: &Taker, free: &[Emptied]) -> Option<Found> {
    if trial.engine.state.classes[taker.class].shape.gang.fewest() <= 1 {
        return None;
    }
    let few = &free[..free.len().min(MOST_NODES)];
    let part = |trial: &mut Trial<'_>, gone: &[Emptied]| {
        with_emptied(trial, taker, gone, |trial, _| beside(trial, taker, &ids(gone)))
    };
    let nodes = fewest(few, 1, |gone| part(trial, gone).is_some())?;
    let (way, room) = part(trial, &nodes)?;
    if is_in_vain(&trial.engine.state, way.runs(), &room.bought) {
        return None;
    }
    Some(room.found(keep(trial, taker, way)))
}

/// What is bought where these nodes are given back, and where the rest of the gang goes.
fn beside(trial: &Trial<'_>, taker: &Taker, nodes: &[NodeId]) -> Option<RoomOfEmpty> {
    let (engine, pool) = (&*trial.engine, taker.pool);
    let state = &engine.state;
    if !trial.has_share(taker) {
        return None;
    }
    let carried = placement::carried_beside(engine, taker.job, taker.class, pool, nodes);
    let room = reservations::Room::of(state, pool, taker.job);
    let fits = |option: &LaunchOption| {
        option.part && room.holds(state, option, nodes) && budget::pays(state, taker.class, option.bill(state))
    };
    let option = supply::options_beside(state, taker.class, pool, &carried).into_iter().find(fits)?;
    let places = placement::part_beside(engine, taker.job, pool, nodes, option.counts.first()?.0);
    Some(RoomOfEmpty { nodes: nodes.to_vec(), bought: option.counts, places })
}

/// Nodes with all that is on them, and what runs elsewhere for the quota and the money that it holds.
fn of_all(trial: &mut Trial<'_>, taker: &Taker) -> Option<Found> {
    find_emptiable(trial);
    if bound::rules_out(trial, taker, bound::may_stand_empty) {
        return None;
    }
    let way = to_empty(trial, taker)?;
    let found = keep(trial, taker, way);
    Some(room_of_empty(trial, taker)?.found(found))
}

/// The nodes that stand empty in the trial and are given back, and what is bought then.
pub(super) fn room_of_empty(trial: &Trial<'_>, taker: &Taker) -> Option<RoomOfEmpty> {
    let state = &trial.engine.state;
    let is_empty = |id: &NodeId| state.nodes.get(id).is_some_and(|node| node.holds.is_empty());
    let empty: Vec<NodeId> = trial.emptiable.iter().flatten().copied().filter(is_empty).collect();
    let room = reservations::Room::of(state, taker.pool, taker.job);
    let without = room.without(state, &empty);
    let of = |option: LaunchOption| {
        if !budget::pays(state, taker.class, option.bill(state)) {
            return None;
        }
        let nodes = without.fewest(state, &option)?;
        Some(RoomOfEmpty { nodes, bought: option.counts, places: Vec::new() })
    };
    let options = supply::options_in_stock(state, taker.class, taker.pool);
    options.into_iter().take(MOST_OPTIONS).find_map(of).or_else(|| fewest_beside(trial, taker, empty))
}

/// The same for a part of a gang, without nodes that need not be given back for it.
fn fewest_beside(trial: &Trial<'_>, taker: &Taker, empty: Vec<NodeId>) -> Option<RoomOfEmpty> {
    if trial.engine.state.classes[taker.class].shape.gang.fewest() <= 1 || empty.is_empty() || empty.len() > MOST_NODES
    {
        return None;
    }
    // Where all are given back none of them is a place for a part of it: then the first of them are, or the last.
    let (mut empty, mut found) = (1..=empty.len()).rev().find_map(|count| {
        let (first, last) = (&empty[..count], &empty[empty.len() - count..]);
        [first, last].into_iter().find_map(|some| Some((some.to_vec(), beside(trial, taker, some)?)))
    })?;
    for at in (0..empty.len()).rev() {
        let node = empty.remove(at);
        match beside(trial, taker, &empty) {
            Some(fewer) => found = fewer,
            None => empty.insert(at, node),
        }
    }
    Some(found)
}

/// Finds the nodes that may be given back at all, once.
fn find_emptiable(trial: &mut Trial<'_>) {
    let state = &trial.engine.state;
    if trial.emptiable.is_none() {
        trial.emptiable = Some(state.nodes.values().filter(|node| leaves(state, node)).map(|node| node.id).collect());
    }
}

/// Whether a head may have any node emptied.
pub(super) fn any_emptiable(trial: &mut Trial<'_>, taker: &Taker) -> bool {
    find_emptiable(trial);
    trial.emptiable.iter().flatten().any(|id| may_empty(trial, taker, *id))
}

/// Whether all that is on a node could be a taker's.
fn may_empty(trial: &Trial<'_>, taker: &Taker, id: NodeId) -> bool {
    let node = trial.engine.state.nodes.get(&id);
    node.is_some_and(|node| holders(node).iter().all(|job| may_yield(trial, taker, *job)))
}

/// Nodes that a head may have emptied, in a pool or in all, in their order.
fn emptiable(trial: &mut Trial<'_>, taker: &Taker, of: Option<PoolId>) -> Vec<Emptied> {
    find_emptiable(trial);
    let nodes = &trial.engine.state.nodes;
    let there = |id: &NodeId| of.is_none_or(|pool| nodes.get(id).is_some_and(|node| node.pool == pool));
    let all = trial.emptiable.iter().flatten().copied();
    let nodes: Vec<NodeId> = all.filter(|id| there(id) && may_empty(trial, taker, *id)).collect();
    let mut free = Vec::new();
    let mark = trial.engine.state.checkpoint();
    for node in nodes {
        let mut way = Way::default();
        if is_emptied(trial, taker, node, &mut way) {
            let state = &trial.engine.state;
            let (tiers, lost) = price(state, &way);
            let tier = tiers.first().map_or(i32::MIN, |(tier, _)| tier.0);
            let rate = Reverse(state.nodes.get(&node).map_or(Rate(0), |row| row.price));
            free.push(Emptied { tier, lost, rate, node });
        }
        undo(trial, &way);
    }
    trial.engine.state.rollback(mark);
    free.sort_unstable();
    free
}

/// The cheapest nodes to give back so that one of the options in stock may be bought.
fn cheapest(trial: &mut Trial<'_>, taker: &Taker, free: &[Emptied]) -> Option<Room> {
    if free.is_empty() {
        return None;
    }
    let options = supply::options_in_stock(&trial.engine.state, taker.class, taker.pool);
    let rooms = options.into_iter().take(MOST_OPTIONS).filter_map(|option| for_option(trial, taker, free, option));
    rooms.min_by_key(Room::cost)
}

/// The first nodes that make room for an option, without those that it does not need.
fn for_option(trial: &mut Trial<'_>, taker: &Taker, free: &[Emptied], option: LaunchOption) -> Option<Room> {
    let state = &trial.engine.state;
    let room = reservations::Room::of(state, taker.pool, taker.job);
    let lacks_share = refused(state, taker);
    let on = |one: &Emptied| state.nodes.get(&one.node).map(holders).unwrap_or_default();
    let free: Vec<Emptied> = free.iter().filter(|one| !is_in_vain(state, on(one), &option.counts)).copied().collect();
    let free = free.as_slice();
    let least = room.without(state, &ids(free)).count(state, &option)?;
    let nodes = fewest(free, least, |gone| {
        room.holds(&trial.engine.state, &option, &ids(gone)) && all_give_way(trial, taker, gone, &option, lacks_share)
    })?;
    Some(Room { nodes, bought: option.counts })
}

/// The first of some that are enough, without those that are not needed. Fewer than these are not. `None`: all of them are not enough.
fn fewest(from: &[Emptied], least: usize, mut enough: impl FnMut(&[Emptied]) -> bool) -> Option<Vec<Emptied>> {
    let count = (least..=from.len()).find(|count| enough(&from[..*count]))?;
    let mut taken = from[..count].to_vec();
    // Tried back, the last first: what is not needed stays.
    for at in (0..taken.len()).rev() {
        let one = taken.remove(at);
        if !enough(&taken) {
            taken.insert(at, one);
        }
    }
    Some(taken)
}

/// Whether all that is on some nodes may be taken together, and brings the quota where a head lacks it, and the money for what is bought.
fn all_give_way(
    trial: &mut Trial<'_>,
    taker: &Taker,
    nodes: &[Emptied],
    option: &LaunchOption,
    lacks_share: bool,
) -> bool {
    let enough = |trial: &mut Trial<'_>, _: &mut Way| {
        let state = &trial.engine.state;
        let share = !lacks_share || trial.has_share(taker);
        (share && budget::pays(state, taker.class, option.bill(state))).then_some(())
    };
    with_emptied(trial, taker, nodes, enough).is_some()
}

/// Looks at a trial in which all that is on some nodes is taken, and at what is taken, which may be lessened. `None`: it may not all be taken
/// together. Nothing stays taken.
fn with_emptied<T>(
    trial: &mut Trial<'_>,
    taker: &Taker,
    nodes: &[Emptied],
    look: impl FnOnce(&mut Trial<'_>, &mut Way) -> Option<T>,
) -> Option<(Way, T)> {
    let mark = trial.engine.state.checkpoint();
    let mut way = Way::default();
    let emptied = nodes.iter().all(|one| is_emptied(trial, taker, one.node, &mut way));
    let seen = if emptied { look(trial, &mut way) } else { None };
    roll_back(trial, mark, &way);
    let seen = seen?;
    comes_back(trial, taker, &way).is_empty().then_some((way, seen))
}

fn ids(nodes: &[Emptied]) -> Vec<NodeId> {
    nodes.iter().map(|one| one.node).collect()
}

/// Whether a node may be given back, as far as itself and the protection of what is on it go.
fn leaves(state: &State, node: &Node) -> bool {
    let there = node.phase == NodePhase::Ready && node.owned.is_none() && node.open() && node.reserved.is_empty();
    there && holders(node).iter().all(|job| protection::may_be_stopped(state, *job))
}

/// Whether a run could be a taker's as far as its queue and tier go, and nothing of it is taken yet.
fn may_yield(trial: &Trial<'_>, taker: &Taker, job: JobId) -> bool {
    let state = &trial.engine.state;
    let row = &state.jobs[job];
    let Some(quota) = quota::quota_of(state, row).filter(|_| !trial.taken.any(job)) else { return false };
    if row.pool == Some(taker.pool) {
        return trial.ranks.may_yield(state, taker, quota, row.tier);
    }
    rank::may_stop_from(state, taker, row, quota)
}

/// Takes all that is on a node, if all of it may be taken.
fn is_emptied(trial: &mut Trial<'_>, taker: &Taker, node: NodeId, way: &mut Way) -> bool {
    let Some(row) = trial.engine.state.nodes.get(&node) else { return false };
    let on = holders(row);
    if !on.iter().all(|job| may_yield(trial, taker, *job)) {
        return false;
    }
    on.into_iter().all(|job| lift(trial, taker, job, Part::Whole, way) > MilliGpu(0))
}

/// What was found for a gang of which a part goes where something is taken for it, and with it what is bought for the rest: under a ceiling nobody
/// behind it is bought that meanwhile. A pool has one reservation: beside another's nothing is kept.
pub(super) fn with_rest(trial: &Trial<'_>, taker: &Taker, found: Found) -> Found {
    let state = trial.state();
    let buys = found.room.is_empty() && found.places.is_empty() && !found.nodes.is_empty();
    let others = || state.reservations().get(&taker.pool).is_some_and(|kept| kept.job != taker.job);
    if !buys || !has_ceiling(state, taker.pool) || others() {
        return found;
    }
    match beside(trial, taker, &[]) {
        Some(rest) => rest.found(found),
        None => found,
    }
}

/// Whether anything bounds what is bought in a pool.
fn has_ceiling(state: &State, pool: PoolId) -> bool {
    let bounds = |ceiling: &Ceiling| *ceiling != Ceiling::default();
    state.policy().is_some_and(|policy| bounds(&policy.limits))
        || settings::pool(state, pool).is_some_and(|rules| bounds(&rules.ceiling))
}
