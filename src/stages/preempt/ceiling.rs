//! Room under a ceiling: nodes are given back, with what is on them taken, so that what a head needs can be bought. Where it lacks quota or money
//! as well, what is taken has to bring that too.
//!
//! Never: a node that is kept for somebody, or one with anything on it that the head may not take.

use super::search::{Found, Part, Way, keep, lift, price, undo};
use super::{Trial, refused};
use crate::ids::{JobId, NodeId, OfferingId, PoolId};
use crate::policy::Buys;
use crate::reason::{Bound, Reason};
use crate::rules::launch::LaunchOption;
use crate::rules::rank::Taker;
use crate::rules::relocation::holders;
use crate::rules::{protection, quota, rank, reservations, settings, supply};
use crate::state::State;
use crate::state::nodes::{Node, NodePhase};
use crate::units::{MilliGpu, Rate, Spend};
use alloc::vec::Vec;
use core::cmp::Reverse;

/// Launch options looked at for one head at most.
const MOST_OPTIONS: usize = 16;

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
    let stays = |holder| holder != taker.job && !reservations::gives_way(state, holder, taker.job, pool);
    if kept.is_some_and(stays) || trial.deals.iter().any(|deal| deal.taker.pool == pool && !deal.room.is_empty()) {
        return None;
    }
    let Some(Reason::Ceiling { bound }) = supply::refusal(state, taker.job, pool) else { return None };
    let of = if matches!(bound, Bound::Nodes | Bound::Gpus | Bound::Spend) { None } else { Some(pool) };
    let free = emptiable(trial, taker, of);
    let room = cheapest(trial, taker, &free)?;
    let mut found = Found { room: room.bought, ..Found::default() };
    for one in room.nodes {
        let mut way = Way::default();
        let _ = is_emptied(trial, taker, one.node, &mut way);
        undo(trial, &way);
        found.nodes.push(one.node);
        found.losses.extend(keep(trial, taker, way).losses);
    }
    found.nodes.sort_unstable();
    Some(found)
}

/// Nodes that a head may have emptied, in a pool or in all, in their order.
fn emptiable(trial: &mut Trial<'_>, taker: &Taker, of: Option<PoolId>) -> Vec<Emptied> {
    let state = &trial.engine.state;
    if trial.emptiable.is_none() {
        trial.emptiable = Some(state.nodes.values().filter(|node| leaves(state, node)).map(|node| node.id).collect());
    }
    let may = |id: &NodeId| {
        let node = state.nodes.get(id).filter(|node| of.is_none_or(|pool| node.pool == pool));
        node.is_some_and(|node| holders(node).iter().all(|job| may_yield(trial, taker, *job)))
    };
    let nodes: Vec<NodeId> = trial.emptiable.iter().flatten().copied().filter(may).collect();
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
    let nodes = reservations::fewest(free, |gone| {
        let ids: Vec<NodeId> = gone.iter().map(|one| one.node).collect();
        room.holds(&trial.engine.state, &option, &ids) && all_give_way(trial, taker, gone, lacks_share)
    })?;
    Some(Room { nodes, bought: option.counts })
}

/// Whether all that is on some nodes may be taken together, and brings the quota and the money too where a head lacks these.
fn all_give_way(trial: &mut Trial<'_>, taker: &Taker, nodes: &[Emptied], lacks_share: bool) -> bool {
    let mark = trial.engine.state.checkpoint();
    let mut way = Way::default();
    let emptied = nodes.iter().all(|one| is_emptied(trial, taker, one.node, &mut way));
    let enough = emptied && !(lacks_share && refused(&trial.engine.state, taker));
    undo(trial, &way);
    trial.engine.state.rollback(mark);
    enough
}

/// Whether a node may be given back, as far as itself and the protection of what is on it go.
fn leaves(state: &State, node: &Node) -> bool {
    let there = matches!(node.phase, NodePhase::Ready) && node.open() && node.reserved.is_empty();
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
