//! drain: the check before a node is given back. A node that takes no new work has waited longer than a binding can take to
//! arrive. If it is still empty it is given back; if its work is being moved, that goes on; otherwise it takes work again.
//! A boot that nobody needs is ended at once where that is cheaper (rules/idle.rs): nothing can be bound to what is not ready.
//!
//! Never: terminates a node with work on it, or ends a boot that a floor needs.

use crate::decision::{Decision, DrainWhy, EffectOf};
use crate::engine::Engine;
use crate::ids::{JobId, NodeId};
use crate::moves;
use crate::plan::PlanReport;
use crate::rules::relocation::{Elsewhere, Leaving, together, worth_leaving};
use crate::rules::{floors, idle, settings};
use crate::state::jobs::Phase;
use crate::state::nodes::NodePhase;
use alloc::vec::Vec;

/// Runs the stage.
pub(crate) fn run(engine: &mut Engine, report: &mut PlanReport) {
    check_drained(engine, report);
    end_boots(engine, report);
}

/// Ends boots that nobody needs, those with the most left of them first.
fn end_boots(engine: &mut Engine, report: &mut PlanReport) {
    let now = engine.state.now;
    let needless = idle::needless_boots(&engine.state);
    for (_, node) in needless.into_iter().rev().filter(|(until, _)| *until <= now) {
        let Some(row) = engine.state.nodes.get(&node) else { continue };
        let floor = settings::pool(&engine.state, row.pool).map_or(0, |p| p.emptied_above(now));
        if floor == 0 || !floors::counts(&engine.state, row) || floors::filled(&engine.state, row.pool) > floor {
            report.terminated += 1;
            engine.decide(Decision::Terminate { node });
        }
    }
}

/// Nodes that have taken no work for long enough.
fn check_drained(engine: &mut Engine, report: &mut PlanReport) {
    let now = engine.state.now;
    let due = engine.state.index.timers.iter().take_while(|t| t.0 <= now);
    let nodes: Vec<NodeId> = due
        .filter_map(|(_, row)| match row {
            EffectOf::Node(node) => Some(*node),
            _ => None,
        })
        .collect();
    for id in nodes {
        let Some(node) = engine.state.nodes.get(&id) else {
            continue;
        };
        let NodePhase::Draining { why, check_at } = node.phase else {
            continue;
        };
        if check_at > now {
            continue;
        }
        if node.holds.is_empty() {
            report.terminated += 1;
            engine.decide(Decision::Terminate { node: id });
        } else if why == DrainWhy::Moved {
            go_on_leaving(engine, id, report);
        } else {
            engine.decide(Decision::Undrain { node: id });
        }
    }
}

/// Reviews a node whose work is being moved: goes on, unless the move is no longer worth it.
fn go_on_leaving(engine: &mut Engine, id: NodeId, report: &mut PlanReport) {
    let rules = engine.state.policy.as_deref().map(|p| p.consolidation).unwrap_or_default();
    let Some(node) = engine.state.nodes.get(&id) else {
        return;
    };
    let leaving = |job: &JobId| matches!(engine.state.jobs[*job].phase, Phase::Stopping { .. });
    let nodes = together(&engine.state, node);
    let still = node.holds.iter().all(leaving)
        || matches!(worth_leaving(&engine.state, &nodes, rules, &mut Elsewhere::new()), Leaving::Leaves { .. });
    if still {
        moves::leave_node(engine, id, report);
    } else {
        engine.decide(Decision::Undrain { node: id });
    }
}
