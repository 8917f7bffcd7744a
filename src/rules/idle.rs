//! Idle nodes: how long a node with nothing on it stays. Ski rental, with what is known of arrivals.
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
//! Never: goes below a floor, which is consolidate's to keep; never guesses from fewer than eight needs.

use super::{demand, reservations, settings};
use crate::catalog::CapacityType;
use crate::ids::{NodeId, PoolId};
use crate::policy::Drain;
use crate::state::State;
use crate::state::nodes::Node;
use crate::units::Timestamp;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// When each idle node has stayed long enough. One that is kept for a job is not among them.
pub(crate) fn leaving(state: &State) -> Vec<(Timestamp, NodeId)> {
    let mut pools: BTreeMap<PoolId, Vec<&Node>> = BTreeMap::new();
    for node in state.index.idle.iter().filter_map(|id| state.nodes.get(id)) {
        if node.idle_since.is_some() && node.reserved.is_empty() && !reservations::keeps(state, node) {
            pools.entry(node.pool).or_default().push(node);
        }
    }
    let mut all = Vec::new();
    for (pool, mut nodes) in pools {
        nodes.sort_unstable_by_key(|n| (n.price, n.id));
        all.extend((1..).zip(nodes).map(|(nth, node)| (leaves(state, pool, node, nth), node.id)));
    }
    all
}

/// The next instant at which an idle node has stayed long enough.
pub(crate) fn next(state: &State) -> Option<Timestamp> {
    leaving(state).into_iter().map(|(at, _)| at).filter(|at| *at > state.now).min()
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
    let boot = state.offerings[node.offering.index()].offer.boot;
    if needs.gap.0.saturating_mul(nth) > boot.0 {
        return node.idle_since.unwrap_or(state.now);
    }
    node.due.min(Timestamp(needs.last.0.saturating_add(boot.0 / nth)))
}
