//! consolidate: which empty nodes are not worth their price. Idle past their time, dearest first, floors kept.
//!
//! Never: moves work, never takes a node that a job has reserved, never below a pool's `keepReady`.

use super::provision;
use crate::decision::{Decision, DrainWhy};
use crate::engine::Engine;
use crate::ids::{NodeId, PoolId};
use crate::plan::PlanReport;
use crate::units::Rate;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Runs the stage.
pub(crate) fn run(engine: &mut Engine, report: &mut PlanReport) {
    let state = &engine.state;
    let now = state.now;
    let mut over: Vec<(core::cmp::Reverse<Rate>, NodeId, PoolId)> = Vec::new();
    for id in &state.ix.idle {
        let Some(node) = state.nodes.get(id) else {
            continue;
        };
        if node.idle_since.is_some() && node.due <= now && node.reserved.is_none() {
            over.push((core::cmp::Reverse(node.price), *id, node.pool));
        }
    }
    if over.is_empty() {
        return;
    }
    over.sort_unstable();
    let Some(policy) = state.policy.as_deref() else {
        return;
    };
    let settle = policy.lifecycle.drain_settle;
    let floor = |pool: PoolId| policy.pools.get(pool.ix()).map_or(0, |p| p.keep_ready);
    let mut spare: BTreeMap<PoolId, u32> = BTreeMap::new();
    let mut leave: Vec<NodeId> = Vec::new();
    for (_, id, pool) in over {
        let left = spare
            .entry(pool)
            .or_insert_with(|| provision::spare(state, pool));
        if *left > floor(pool) {
            *left -= 1;
            leave.push(id);
        }
    }
    for node in leave {
        report.drained += 1;
        engine.decide(Decision::Drain {
            node,
            why: DrainWhy::Idle,
            check_at: now + settle,
        });
    }
}
