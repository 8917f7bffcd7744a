//! grow: elastic gangs that run with fewer workers than they may have get more, where that is worth a restart (rules/growth.rs).
//!
//! ```text
//! ready places for more   kept for the gang, and it is stopped with a checkpoint: it starts again on them
//! none                    nodes are bought and kept for it; when they are ready, as above
//! ```
//!
//! Never: takes what anybody waits for, or what a floor keeps. Never grows one gang twice at a time.

use crate::decision::{Decision, StopCause};
use crate::engine::Engine;
use crate::ids::{JobId, NodeId};
use crate::moves::{self, Purchase};
use crate::plan::PlanReport;
use crate::rules::{demand, growth};
use crate::state::jobs::Phase;
use crate::state::places::nodes_of;
use crate::units::Span;
use alloc::vec::Vec;

/// What is free, or was bought, is kept for a gang for so long past the time at which it should start on it.
const KEPT_FOR: Span = Span::mins(5);

/// Runs the stage.
pub(crate) fn run(engine: &mut Engine, report: &mut PlanReport) {
    // It would be stopped, and could not be admitted again.
    let held = |job: &JobId| engine.state.queue_brake(engine.state.jobs[*job].queue).is_some();
    if engine.state.is_unseen() {
        return;
    }
    let now = engine.state.now;
    let due = growth::candidates(&engine.state).into_iter().filter(|c| c.0 <= now).map(|c| c.1);
    let due: Vec<JobId> = due.filter(|job| !held(job)).collect();
    for job in due {
        let kept = engine.state.index.reserved_for(job);
        if !kept.is_empty() && growth::anybody_waits_beside(&engine.state, job) {
            // It does not grow now, and they may have what was bought for that.
            engine.decide(Decision::Unreserve { job });
            continue;
        }
        let comes = |id: &NodeId| engine.state.nodes.get(id).is_some_and(|node| node.phase.is_coming());
        if kept.iter().any(comes) {
            continue;
        }
        if let Some(places) = growth::places(engine, job) {
            restart(engine, job, nodes_of(&places), report);
        } else if kept.is_empty() {
            buy(engine, job, report);
        }
    }
}

/// It is stopped, and all nodes that it will be on are kept for it.
fn restart(engine: &mut Engine, job: JobId, nodes: Vec<NodeId>, report: &mut PlanReport) {
    report.stopped += 1;
    moves::stop(engine, job, StopCause::Grows);
    let stopped = match engine.state.jobs[job].phase {
        Phase::Stopping { deadline, .. } => deadline,
        _ => engine.state.now,
    };
    engine.decide(Decision::Reserve { job, nodes, until: stopped + KEPT_FOR });
}

fn buy(engine: &mut Engine, job: JobId, report: &mut PlanReport) {
    let Some((offering, count)) = growth::purchase(engine, job) else { return };
    let Some(pool) = engine.state.jobs[job].pool else { return };
    let first = engine.state.counters.next_node;
    moves::buy(engine, Purchase { pool, offering, count, at_least: 1, close: false, layout: None }, report);
    let nodes = (first..first + u64::from(count)).map(NodeId).collect();
    let ready = engine.state.now + demand::boot_p90(&engine.state, offering).times(2);
    engine.decide(Decision::Reserve { job, nodes, until: ready + KEPT_FOR });
}
