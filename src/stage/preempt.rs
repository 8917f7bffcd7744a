//! preempt: when neither places nor nodes can be had, runs of lower tiers are stopped, from their last checkpoint on.
//!
//! ```text
//! candidates = running, of a tier that this one may stop, past minRun and protection; cheapest loss first
//! take one after the other on the undo log until the gang fits; then try each back, dearest first
//! ```
//!
//! Never: within a tier or upwards, so that no two jobs can stop each other in turn; never more than is needed (each victim is tried
//! back); never twice for one job while the first victims are still stopping.

use super::order::{self, Head};
use super::place::{self, Reach};
use super::{admit, provision, settle};
use crate::decision::{Decision, StopCause};
use crate::engine::Engine;
use crate::ids::{ClassId, JobId, NodeId, PoolId, TierId};
use crate::plan::PlanReport;
use crate::reason::Reason;
use crate::state::nodes::NodePhase;
use crate::state::{Hurry, State};
use crate::units::{GpuTime, MilliGpu, Span};
use alloc::vec::Vec;

/// Candidates looked at for one job: bounds a pass; beyond it lies nothing cheaper.
const MOST_CANDIDATES: usize = 1024;
/// What was freed is kept for the job for so long past the victims' grace.
const RESERVE_FOR: Span = Span::mins(5);

/// Looks at the heads that were told no in this pass, in their order.
pub(crate) fn run(engine: &mut Engine, waiting: &[(Head, Reason)], report: &mut PlanReport) {
    for (head, reason) in waiting {
        let helps = matches!(
            reason,
            Reason::Ceiling { .. } | Reason::Stockout { .. } | Reason::LaunchRefused { .. } | Reason::NothingIdle
        );
        // A job that is ahead of its deadline waits for cheap capacity because it can: nobody is stopped for it.
        let can_wait = engine.state.classes[head.class.ix()].shape.hurry == Hurry::Relaxed;
        if helps && !can_wait && head.line == order::Line::Queued {
            stop_for(engine, head.key.job, head.class, report);
        }
    }
}

fn stop_for(engine: &mut Engine, job: JobId, class: ClassId, report: &mut PlanReport) {
    let now = engine.state.now;
    if engine.state.jobs[job.ix()].reserved_until.is_some_and(|until| until > now) {
        return;
    }
    let pools: Vec<PoolId> = engine.state.classes[class.ix()].fits.iter().map(|f| f.0).collect();
    for pool in pools {
        let asked = admit::share(&engine.state, class, pool);
        if admit::quota_says(&engine.state, class, pool, asked).is_some() {
            continue;
        }
        if let Some((victims, nodes)) = choose(engine, job, class, pool, asked) {
            return stop(engine, job, &victims, nodes, report);
        }
    }
}

fn stop(engine: &mut Engine, job: JobId, victims: &[JobId], nodes: Vec<NodeId>, report: &mut PlanReport) {
    let mut until = engine.state.now;
    for victim in victims {
        report.stopped += 1;
        settle::stop(engine, *victim, StopCause::Preempted { by: job });
        if let crate::state::jobs::Phase::Stopping { deadline, .. } = engine.state.jobs[victim.ix()].phase {
            until = until.max(deadline);
        }
    }
    engine.decide(Decision::Reserve { job, nodes, until: until + RESERVE_FOR });
}

/// The victims and the nodes where the job would go without them.
fn choose(
    engine: &mut Engine,
    job: JobId,
    class: ClassId,
    pool: PoolId,
    asked: MilliGpu,
) -> Option<(Vec<JobId>, Vec<NodeId>)> {
    let candidates = candidates(&engine.state, class, pool);
    if candidates.is_empty() {
        return None;
    }
    let mark = engine.state.checkpoint();
    let mut taken = Vec::new();
    let mut places = None;
    for victim in candidates {
        lift(&mut engine.state, victim);
        taken.push(victim);
        places = place::find(engine, job, pool, Reach::Ready, asked);
        if places.is_some() {
            break;
        }
    }
    if places.is_some() {
        // Tried back, dearest first: whoever is not needed keeps running.
        for at in (0..taken.len()).rev() {
            let victim = taken[at];
            put_down(&mut engine.state, victim);
            match place::find(engine, job, pool, Reach::Ready, asked) {
                Some(found) => {
                    places = Some(found);
                    taken.remove(at);
                }
                None => lift(&mut engine.state, victim),
            }
        }
    }
    engine.state.rollback(mark);
    let nodes = crate::state::places::nodes_of(&places?);
    (!taken.is_empty()).then_some((taken, nodes))
}

/// Takes a run off its nodes, in a try.
fn lift(state: &mut State, id: JobId) {
    let job = &state.jobs[id.ix()];
    let (class, places) = (job.class, job.places.clone());
    state.let_go(id, class, &places, true);
}

/// Puts a run back where it was, in a try. It always fits: nobody took its place.
fn put_down(state: &mut State, id: JobId) {
    let job = &state.jobs[id.ix()];
    let (class, places) = (job.class, job.places.clone());
    state.hold(id, class, &places, true);
}

/// Runs that may be stopped for a class, lowest tier first, then the least work lost.
fn candidates(state: &State, class: ClassId, pool: PoolId) -> Vec<JobId> {
    let Some(policy) = state.policy.as_deref() else {
        return Vec::new();
    };
    let by = state.classes[class.ix()].shape.tier;
    let fits = provision::fits(state, class, pool);
    let mut found: Vec<(i32, GpuTime, JobId)> = Vec::new();
    for (at, tier) in policy.tiers.iter().enumerate() {
        if !tier.stoppable_by.contains(&by) {
            continue;
        }
        let running = state.ix.running.get(&TierId(at as u16));
        for id in running.into_iter().flatten() {
            let job = &state.jobs[id.ix()];
            let helps = job.places.iter().any(|p| useful(state, p.node, fits, pool));
            if helps && may_be_stopped(state, *id) {
                found.push((tier.priority, job.share.over(job.unsaved(state.now)), *id));
            }
        }
    }
    found.sort_unstable();
    found.truncate(MOST_CANDIDATES);
    found.into_iter().map(|f| f.2).collect()
}

fn useful(state: &State, node: NodeId, fits: &[crate::ids::OfferingId], pool: PoolId) -> bool {
    let good = |n: &crate::state::nodes::Node| {
        n.phase == NodePhase::Ready && n.open() && n.pool == pool && fits.contains(&n.offering)
    };
    state.nodes.get(&node).is_some_and(good)
}

/// Past its protection, which holds minRun, a restart's catching up, and ends at `maxRunWhileOthersWait` at the latest.
fn may_be_stopped(state: &State, id: JobId) -> bool {
    let job = &state.jobs[id.ix()];
    job.broken.is_none() && job.running_since.is_some() && job.protected_until <= state.now
}
