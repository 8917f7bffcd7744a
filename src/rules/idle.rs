//! Nodes with nothing on them: how long an idle one stays, and whether the boot of one that nobody needs is worth going on with. Ski rental, with
//! what is known of arrivals.
//!
//! ```text
//! the j-th idle node of a pool, cheapest first, waits for the j-th next need
//! it stays while  j x gap <= one boot,  gap = the usual gap between needs, or the time since the last one if that is longer
//! and never longer than one boot: having it back costs no more
//! a spot node stays for one boot whatever the forecast is: to have it back may cost the on-demand price instead
//! ```
//!
//! All of it is known beforehand, so each node has its instant to leave; nothing is polled. `drain: {after: ..}` is taken literally.
//! Source: ski rental with predictions (Purohit et al., NeurIPS 2018): trust the forecast, bounded by what no forecast would cost.
//!
//! A boot that nobody needs costs what is left of it, and saves what is done of it if the node is needed after all:
//!
//! ```text
//! it goes on while  j x gap < what is done of it       where so much is known of arrivals
//! else              at least half of it is done: either way it costs no more than twice what the better way would; a spot node too
//! drain: {after: ..}   what is left is no longer than a node may be idle
//! ```
//!
//! Never: goes below a floor, which is the stages' to keep; never guesses from fewer than eight needs.

use super::{capacity, demand, reservations, settings, supply};
use crate::catalog::CapacityType;
use crate::ids::{NodeId, OfferingId, PoolId};
use crate::policy::Drain;
use crate::state::State;
use crate::state::nodes::{Node, NodePhase};
use crate::units::{Span, Timestamp};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Bound::{Excluded, Unbounded};

/// Idle nodes that have stayed long enough. One that is kept for a job is not among them.
pub(crate) fn over(state: &State) -> Vec<NodeId> {
    let of = |pool: PoolId| -> Vec<NodeId> {
        if is_by_time(state, pool) {
            return of_pool(state, pool)
                .flat_map(|nodes| nodes.range(..=until_now(state)))
                .map(|node| node.1)
                .collect();
        }
        let leaving = leaving(state, pool).into_iter();
        leaving.filter(|(at, _)| *at <= state.now).map(|(_, id)| id).collect()
    };
    pools(state).flat_map(of).collect()
}

/// The next instant at which an idle node has stayed long enough, or a boot is worth no more.
pub(crate) fn next(state: &State) -> Option<Timestamp> {
    let of = |pool: PoolId| {
        if is_by_time(state, pool) {
            let later = (Excluded(until_now(state)), Unbounded);
            return of_pool(state, pool).filter_map(|nodes| nodes.range(later).next()).map(|node| node.0).min();
        }
        leaving(state, pool).into_iter().map(|(at, _)| at).filter(|at| *at > state.now).min()
    };
    let boots = needless_boots(state).into_iter().map(|(at, _)| at).filter(|at| *at > state.now);
    pools(state).filter_map(of).chain(boots).min()
}

/// Whether an idle node has stayed long enough, or a boot is worth no more.
pub(crate) fn is_due(state: &State) -> bool {
    !over(state).is_empty() || needless_boots(state).iter().any(|(at, _)| *at <= state.now)
}

/// The last key of those whose time is over.
fn until_now(state: &State) -> (Timestamp, NodeId) {
    (state.now, NodeId(u64::MAX))
}

/// The pools in which nodes are idle.
fn pools(state: &State) -> impl Iterator<Item = PoolId> + '_ {
    let all: BTreeSet<PoolId> = state.index.idle_until.keys().map(|of| of.0).collect();
    all.into_iter()
}

/// The idle nodes of a pool, by offering.
fn of_pool(state: &State, pool: PoolId) -> impl Iterator<Item = &BTreeSet<(Timestamp, NodeId)>> {
    let of_pool = (pool, OfferingId(0))..=(pool, OfferingId(u32::MAX));
    state.index.idle_until.range(of_pool).map(|(_, nodes)| nodes)
}

/// Whether each idle node of a pool stays until a time of its own, whatever else is idle: nothing is known of needs, or that does not count.
fn is_by_time(state: &State, pool: PoolId) -> bool {
    let rule = settings::pool(state, pool).map_or(Drain::Auto, |p| p.drain);
    let of_pool = (pool, OfferingId(0))..=(pool, OfferingId(u32::MAX));
    let all_spot = || state.index.idle_until.range(of_pool).all(|((_, id), _)| capacity::is_spot(state, *id));
    state.reservations.is_empty() && (rule != Drain::Auto || demand::needs(state, pool).is_none() || all_spot())
}

/// When each idle node of a pool has stayed long enough.
fn leaving(state: &State, pool: PoolId) -> Vec<(Timestamp, NodeId)> {
    let nodes = of_pool(state, pool).flatten().filter_map(|(_, id)| state.nodes.get(id));
    let mut nodes: Vec<&Node> = nodes.filter(|node| !reservations::keeps(state, node)).collect();
    nodes.sort_unstable_by_key(|n| (n.price, n.id));
    (1..).zip(nodes).map(|(nth, node)| (leaves(state, pool, node, nth), node.id)).collect()
}

/// Until when it is worth going on with each boot that nobody needs. Whatever waits and could use the node needs it.
pub(crate) fn needless_boots(state: &State) -> Vec<(Timestamp, NodeId)> {
    // What it was bought for may have been told while nobody watched.
    if state.index.unbooked.is_empty() || state.is_unseen() {
        return Vec::new();
    }
    let mut pools: BTreeMap<PoolId, Vec<&Node>> = BTreeMap::new();
    let mut needed: BTreeMap<(PoolId, OfferingId), bool> = BTreeMap::new();
    for node in state.index.unbooked.iter().filter_map(|id| state.nodes.get(id)) {
        let kept = !node.reserved.is_empty() || reservations::keeps(state, node);
        let mut needed = || {
            let of = (node.pool, node.offering);
            *needed.entry(of).or_insert_with(|| supply::is_needed(state, of.0, of.1))
        };
        if node.phase == NodePhase::Booting && !kept && !needed() {
            pools.entry(node.pool).or_default().push(node);
        }
    }
    let mut all = Vec::new();
    for (pool, mut nodes) in pools {
        let here = |id: &&NodeId| state.nodes.get(id).is_some_and(|node| node.pool == pool);
        let idle = state.index.idle.iter().filter(here).count() as u64;
        nodes.sort_unstable_by_key(|n| (left_of_boot(state, n), n.price, n.id));
        all.extend((idle + 1..).zip(nodes).map(|(nth, node)| (worth_until(state, pool, node, nth), node.id)));
    }
    all
}

fn left_of_boot(state: &State, node: &Node) -> Span {
    state.usual_boot(node.offering) - state.now.since(node.decided_at)
}

fn worth_until(state: &State, pool: PoolId, node: &Node, nth: u64) -> Timestamp {
    let (done, left) = (state.now.since(node.decided_at), left_of_boot(state, node));
    let while_it = |worth: bool| if worth { Timestamp::NEVER } else { state.now };
    if reservations::vacates(state, node) {
        return state.now;
    }
    if let Drain::After(after) = settings::pool(state, pool).map_or(Drain::Auto, |p| p.drain) {
        return while_it(left <= after);
    }
    // What is known of needs says nothing of stock: a spot node is given back only if both say so.
    let half = left <= done;
    let sure = !half || state.capacity_of(node) != CapacityType::Spot;
    let Some(needs) = demand::needs(state, pool).filter(|_| sure) else {
        return while_it(half);
    };
    if needs.gap.0.saturating_mul(nth) >= done.0 {
        return state.now;
    }
    // Nothing has needed a node since then: at some time that is longer than what has been done of the boot.
    match needs.last.0.saturating_mul(nth).checked_sub(node.decided_at.0) {
        Some(at) if nth > 1 => Timestamp(at.div_ceil(nth - 1)),
        _ => while_it(needs.last > node.decided_at),
    }
}

fn leaves(state: &State, pool: PoolId, node: &Node, nth: u64) -> Timestamp {
    if reservations::vacates(state, node) {
        return node.idle_since.unwrap_or(state.now);
    }
    let rule = settings::pool(state, pool).map_or(Drain::Auto, |p| p.drain);
    let sure = rule == Drain::Auto && state.capacity_of(node) != CapacityType::Spot;
    let Some(needs) = demand::needs(state, pool).filter(|_| sure) else {
        return node.due;
    };
    let boot = state.usual_boot(node.offering);
    if needs.gap.0.saturating_mul(nth) > boot.0 {
        return node.idle_since.unwrap_or(state.now);
    }
    node.due.min(Timestamp(needs.last.0.saturating_add(boot.0 / nth)))
}
