//! drain: the second look. A node that takes no new work has waited longer than a binding can be under way; if it is still empty it
//! is given back, if its work is being moved that goes on, otherwise it takes work again.
//!
//! Never: terminates a node with work on it.

use super::consolidate;
use crate::decision::{Decision, DrainWhy};
use crate::engine::Engine;
use crate::ids::NodeId;
use crate::plan::PlanReport;
use crate::state::nodes::NodePhase;
use alloc::vec::Vec;

/// Runs the stage.
pub(crate) fn run(engine: &mut Engine, report: &mut PlanReport) {
    let now = engine.state.now;
    let due = engine.state.ix.timers.iter().take_while(|t| t.0 <= now);
    let nodes: Vec<NodeId> = due
        .filter_map(|(_, row)| match row {
            crate::decision::EffectOf::Node(node) => Some(*node),
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
            consolidate::go_on_leaving(engine, id, report);
        } else {
            engine.decide(Decision::Undrain { node: id });
        }
    }
}
