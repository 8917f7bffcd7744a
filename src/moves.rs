//! Moves that several stages make alike: stop a run, shrink a gang, hold a job back, leave a node, buy nodes.
//!
//! Never: decides whether. That is the stage's.

use crate::decision::{Decision, DrainWhy, StopCause};
use crate::effect::Terms;
use crate::engine::Engine;
use crate::ids::{JobId, NodeId, OfferingId, PoolId, PurchaseId};
use crate::plan::PlanReport;
use crate::reason::Reason;
use crate::rules::relocation::holders;
use crate::rules::{feasibility, settings};
use crate::state::State;
use crate::state::jobs::Phase;
use crate::units::{Span, Timestamp};
use alloc::vec::Vec;

/// Stops a run, with a checkpoint where it can save one and the stop is not its end.
pub(crate) fn stop(engine: &mut Engine, id: JobId, cause: StopCause) {
    let grace = engine.state.lifecycle().grace;
    let state = &engine.state;
    let job = &state.jobs[id];
    let worth_saving = !matches!(
        cause,
        StopCause::Completed
            | StopCause::Cancelled
            | StopCause::Scaled
            | StopCause::Failed { .. }
            | StopCause::StartTimeout
    );
    let saves = if worth_saving { saves_within(state, id) } else { None };
    let checkpoint = saves.is_some();
    let mut deadline = state.now + saves.unwrap_or(grace);
    if cause == StopCause::Reclaimed {
        let taken = job.places.iter().filter_map(|p| state.nodes.get(&p.node)?.reclaim_at).min();
        deadline = taken.map_or(deadline, |at| deadline.min(at));
    }
    engine.decide(Decision::Stop { job: id, cause, checkpoint, deadline });
}

/// In what time a run that is stopped saves, if it can.
fn saves_within(state: &State, id: JobId) -> Option<Span> {
    let job = &state.jobs[id];
    // A gang that has lost a worker can save nothing.
    let can = job.broken.is_none() && job.running_since.is_some();
    state.specs[id].checkpoint.filter(|_| can).map(|rule| rule.grace)
}

/// How long a run holds what it has at most once it is asked to give it up.
pub(crate) fn ends_within(state: &State, id: JobId) -> Span {
    if state.jobs[id].phase == Phase::Booked {
        return Span::ZERO;
    }
    saves_within(state, id).unwrap_or(state.lifecycle().grace)
}

/// Asks workers of an elastic gang to leave, within its grace.
pub(crate) fn shrink(engine: &mut Engine, id: JobId, cause: StopCause, leave: Vec<u32>) -> Timestamp {
    let state = &engine.state;
    let (job, spec) = (&state.jobs[id], &state.specs[id]);
    let grace = spec.checkpoint.map_or(state.lifecycle().grace, |c| c.grace);
    let places = job.places.iter().zip(&job.numbers).filter(|(_, n)| leave.contains(n));
    let taken = places.filter_map(|(p, _)| state.nodes.get(&p.node)?.reclaim_at).min();
    let deadline = (state.now + grace).min(taken.unwrap_or(Timestamp::NEVER));
    engine.decide(Decision::Shrink { job: id, cause, leave, deadline });
    deadline
}

/// Takes a node out of placement, stops what can be moved off it now, and sets when the rest is reviewed.
pub(crate) fn leave_node(engine: &mut Engine, id: NodeId, report: &mut PlanReport) {
    let state = &engine.state;
    let Some(node) = state.nodes.get(&id) else {
        return;
    };
    let (mut now, mut later) = (Vec::new(), Vec::new());
    for job in holders(node) {
        let row = &state.jobs[job];
        match row.phase {
            Phase::Running if row.broken.is_none() && row.protected_until <= state.now => now.push(job),
            Phase::Running => later.push(row.protected_until),
            _ => {}
        }
    }
    let settle_for = state.lifecycle().drain_settle;
    let soon = state.now + settle_for;
    let check_at = if now.is_empty() { later.into_iter().min().map_or(soon, |at| at.max(soon)) } else { soon };
    engine.decide(Decision::Drain { node: id, why: DrainWhy::Moved, check_at });
    for job in now {
        report.stopped += 1;
        stop(engine, job, StopCause::Moved);
    }
}

/// Nodes to buy in one request to the cloud.
pub(crate) struct Purchase {
    pub pool: PoolId,
    pub offering: OfferingId,
    pub count: u32,
    /// Fewer than this are of no use: the cloud gives none then.
    pub at_least: u32,
    /// They go into one placement group, whatever the pool asks for.
    pub close: bool,
    /// How their GPUs are partitioned.
    pub layout: Option<u8>,
}

/// Buys one node that nothing is booked on, with the layout that its pool prefers.
pub(crate) fn buy_spare(engine: &mut Engine, pool: PoolId, offering: OfferingId, report: &mut PlanReport) {
    let layouts = settings::pool(&engine.state, pool).map(|p| p.layouts.len());
    let layout = layouts.filter(|n| *n > 0).map(|_| 0);
    buy(engine, Purchase { pool, offering, count: 1, at_least: 1, close: false, layout }, report);
}

/// Sends out a purchase.
pub(crate) fn buy(engine: &mut Engine, bought: Purchase, report: &mut PlanReport) {
    let Purchase { pool, offering, count, at_least, close, layout } = bought;
    let purchase = PurchaseId(engine.state.counters.next_purchase);
    report.bought += count;
    let network = settings::pool(&engine.state, pool).map(|p| p.network).unwrap_or_default();
    let terms = Terms { cluster: (network.cluster || close) && at_least > 1, efa: network.efa, layout };
    engine.decide(Decision::Buy { purchase, pool, offering, count, at_least, terms });
}

/// A job cannot run for now, or never: it is held, or rejected where the policy says so and only another policy would help.
pub(crate) fn hold_back(engine: &mut Engine, job: JobId, reason: Reason) {
    let rejected = feasibility::rejects(&engine.state, job);
    engine.decide(if rejected { Decision::Reject { job, reason } } else { Decision::Hold { job, reason } });
}
