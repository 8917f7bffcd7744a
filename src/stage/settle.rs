//! settle: outcomes, time-outs, lingering work. After it, no row waits for a verdict.
//!
//! ```text
//! timers that are due  ->  repeat effects, end pauses, stop what ran or started too long
//! unsettled jobs       ->  accept or reject, finish, requeue, stop what is broken
//! unsettled claims     ->  empty what the cloud takes back, give back what is condemned
//! ```
//!
//! Never: looks for places or money. Own failures cost an attempt; reclaims, preemption and node faults never do.

use super::{admit, serve};
use crate::decision::{Decision, EffectOf, Outcome, StopCause};
use crate::engine::{Engine, repeat_pause};
use crate::ids::{JobId, NodeId};
use crate::plan::PlanReport;
use crate::policy::OnLinger;
use crate::reason::Reason;
use crate::state::jobs::{Ending, Phase};
use crate::state::nodes::NodePhase;
use crate::units::{Millis, Span};
use alloc::vec::Vec;

/// The longest pause before a retry.
const LONGEST_BACKOFF: Span = Span::mins(30);

/// Runs the stage.
pub(crate) fn run(engine: &mut Engine, report: &mut PlanReport) {
    let due: Vec<EffectOf> = due(engine);
    for row in due {
        report.settled += 1;
        match row {
            EffectOf::Purchase(_) => repeat(engine, row),
            EffectOf::Node(node) => due_node(engine, node),
            EffectOf::Job(job) => due_job(engine, job),
        }
    }
    let unsettled: Vec<NodeId> = engine.state.ix.unsettled_nodes.iter().copied().collect();
    for node in unsettled {
        report.settled += 1;
        empty_node(engine, node);
    }
    let unsettled: Vec<JobId> = engine.state.ix.unsettled.iter().copied().collect();
    for job in unsettled {
        report.settled += 1;
        settle_job(engine, job);
    }
    serve::run(engine, report);
}

fn due(engine: &Engine) -> Vec<EffectOf> {
    let now = engine.state.now;
    engine.state.ix.timers.iter().take_while(|t| t.0 <= now).map(|t| t.1).collect()
}

fn repeat(engine: &mut Engine, of: EffectOf) {
    let effect = match of {
        EffectOf::Purchase(id) => engine.state.purchases.get(&id).map(|p| p.effect),
        EffectOf::Node(id) => engine.state.nodes.get(&id).and_then(|n| n.effect),
        EffectOf::Job(id) => engine.state.jobs[id.ix()].effect,
    };
    let Some(effect) = effect.filter(|e| e.next_try <= engine.state.now) else {
        return;
    };
    let pause = repeat_pause(engine.state.lifecycle().launch_retry, effect.tries);
    let next = engine.state.now + pause;
    engine.decide(Decision::Repeat { of, next });
}

fn due_node(engine: &mut Engine, id: NodeId) {
    let now = engine.state.now;
    let Some(node) = engine.state.nodes.get(&id) else {
        return;
    };
    if let Some((job, until)) = node.reserved
        && (until <= now || engine.state.jobs[job.ix()].done())
    {
        engine.decide(Decision::Release { node: id });
    }
    let Some(node) = engine.state.nodes.get(&id) else {
        return;
    };
    match node.phase {
        NodePhase::Booting if node.due <= now => {
            engine.decide(Decision::Suspect { node: id });
            engine.decide(Decision::Terminate { node: id });
        }
        NodePhase::Terminating => repeat(engine, EffectOf::Node(id)),
        // Idle and draining nodes are consolidate's and drain's.
        _ => {}
    }
}

fn due_job(engine: &mut Engine, id: JobId) {
    let now = engine.state.now;
    let job = &engine.state.jobs[id.ix()];
    match job.phase {
        // Its request is not what it was: it is stopped further down, not asked for again.
        Phase::Starting | Phase::Running if job.broken.is_some() => {}
        Phase::BackingOff { .. } => engine.decide(Decision::Resume { job: id }),
        Phase::Queued if job.reserved_until.is_some_and(|until| until <= now) => {
            engine.decide(Decision::Unreserve { job: id });
        }
        Phase::Stopping { .. } if job.must_end_by <= now => {
            engine.decide(Decision::GiveUp { job: id });
            repeat(engine, EffectOf::Job(id));
        }
        Phase::Starting if job.must_end_by <= now => stop(engine, id, StopCause::StartTimeout),
        Phase::Running if job.must_end_by <= now => stop(engine, id, StopCause::MaxRun),
        _ => repeat(engine, EffectOf::Job(id)),
    }
}

/// Stops a run, with a checkpoint where it can save one and the stop is not its end.
pub(super) fn stop(engine: &mut Engine, id: JobId, cause: StopCause) {
    let grace = engine.state.lifecycle().grace;
    let state = &engine.state;
    let (job, spec) = (&state.jobs[id.ix()], &state.specs[id.ix()]);
    let worth_saving = !matches!(
        cause,
        StopCause::Completed
            | StopCause::Cancelled
            | StopCause::Scaled
            | StopCause::Failed { .. }
            | StopCause::StartTimeout
    );
    // A gang that has lost a worker can save nothing.
    let whole = job.broken.is_none();
    let checkpoint = worth_saving && whole && job.running_since.is_some() && spec.checkpoint.is_some();
    let grace = if checkpoint { spec.checkpoint.map_or(grace, |c| c.grace) } else { grace };
    let mut deadline = state.now + grace;
    if cause == StopCause::Reclaimed {
        let taken = job.places.iter().filter_map(|p| state.nodes.get(&p.node)?.reclaim_at).min();
        deadline = taken.map_or(deadline, |at| deadline.min(at));
    }
    engine.decide(Decision::Stop { job: id, cause, checkpoint, deadline });
}

/// A claim that the cloud takes back, or that is condemned.
fn empty_node(engine: &mut Engine, id: NodeId) {
    let Some(node) = engine.state.nodes.get(&id) else {
        return;
    };
    let reclaimed = node.reclaim_at.is_some();
    let mut holds = node.holds.clone();
    holds.sort_unstable();
    holds.dedup();
    let hung = |job: &JobId| engine.state.jobs[job.ix()].hung;
    let given_up = holds.iter().any(hung);
    // Only what cannot be stopped is left on it, or nothing.
    if holds.iter().all(hung) {
        return engine.decide(Decision::Terminate { node: id });
    }
    for job in holds {
        let phase = engine.state.jobs[job.ix()].phase;
        match phase {
            Phase::Booked => engine.decide(Decision::Unbook { job }),
            Phase::Running if reclaimed && leave_node(engine, job, id) => {}
            Phase::Starting | Phase::Running if reclaimed || given_up => {
                // That its criterion is met, or that it has lost a worker already, comes first.
                let broken = engine.state.jobs[job.ix()].broken;
                let cause = if reclaimed { StopCause::Reclaimed } else { StopCause::NodeHung };
                stop(engine, job, broken.unwrap_or(cause));
            }
            // A quarantined node keeps what runs on it, and gets nothing new.
            _ => {}
        }
    }
}

/// Takes the workers of an elastic gang off a node that the cloud takes back, where the rest can go on. While others are leaving it
/// waits for these: if it is too late then, the run goes on all the same when the node is gone.
fn leave_node(engine: &mut Engine, id: JobId, node: NodeId) -> bool {
    let state = &engine.state;
    let (job, spec) = (&state.jobs[id.ix()], &state.specs[id.ix()]);
    let leave = job.numbers_on(node);
    if job.cancel_asked || !job.goes_on_without(spec, &leave) {
        return false;
    }
    if job.leaving.is_none() {
        shrink(engine, id, StopCause::Reclaimed, leave);
    }
    true
}

/// Asks workers of an elastic gang to leave, within its grace.
pub(super) fn shrink(engine: &mut Engine, id: JobId, cause: StopCause, leave: Vec<u32>) -> Millis {
    let state = &engine.state;
    let (job, spec) = (&state.jobs[id.ix()], &state.specs[id.ix()]);
    let grace = spec.checkpoint.map_or(state.lifecycle().grace, |c| c.grace);
    let places = job.places.iter().zip(&job.numbers).filter(|(_, n)| leave.contains(n));
    let taken = places.filter_map(|(p, _)| state.nodes.get(&p.node)?.reclaim_at).min();
    let deadline = (state.now + grace).min(taken.unwrap_or(Millis::NEVER));
    engine.decide(Decision::Shrink { job: id, cause, leave, deadline });
    deadline
}

fn settle_job(engine: &mut Engine, id: JobId) {
    let job = &engine.state.jobs[id.ix()];
    match job.phase {
        Phase::Ended { how } => after_run(engine, id, how),
        _ if job.cancel_asked => cancel(engine, id),
        Phase::New => accept(engine, id),
        _ => match (job.broken, job.idle_reported) {
            (Some(cause), _) => stop(engine, id, cause),
            (None, Some(idle)) => linger(engine, id, idle),
            (None, None) => {}
        },
    }
}

fn accept(engine: &mut Engine, id: JobId) {
    match admit::impossible(engine, id) {
        Some(reason) => engine.decide(Decision::Reject { job: id, reason }),
        None => engine.decide(Decision::Resume { job: id }),
    }
}

fn cancel(engine: &mut Engine, id: JobId) {
    if engine.state.jobs[id.ix()].alive() {
        stop(engine, id, StopCause::Cancelled);
    } else {
        finish(engine, id, Outcome::Cancelled, Reason::Asked);
    }
}

fn linger(engine: &mut Engine, id: JobId, idle: Span) {
    let rules = engine.state.lifecycle();
    // A replica that nobody asks is its service's business.
    let replica = engine.state.jobs[id.ix()].of.is_some();
    if idle >= rules.linger_after && rules.on_linger == OnLinger::Stop && !replica {
        stop(engine, id, StopCause::Lingering { idle });
    } else {
        engine.decide(Decision::WarnLingering { job: id, idle });
    }
}

/// What follows when no worker of a run is alive.
fn after_run(engine: &mut Engine, id: JobId, how: Ending) {
    let cancelled = engine.state.jobs[id.ix()].cancel_asked;
    match how {
        // A replica is not meant to end by itself.
        Ending::Completed | Ending::Stopped { cause: StopCause::Completed }
            if engine.state.jobs[id.ix()].of.is_some() =>
        {
            back_off(engine, id);
        }
        Ending::Completed | Ending::Stopped { cause: StopCause::Completed } => {
            engine.decide(Decision::Finish { job: id, outcome: Outcome::Completed, reason: None });
        }
        _ if cancelled => finish(engine, id, Outcome::Cancelled, Reason::Asked),
        Ending::Failed { code } | Ending::Stopped { cause: StopCause::Failed { code } } => {
            after_failure(engine, id, code);
        }
        Ending::NodeFault => requeue(engine, id, Reason::NodeLost),
        Ending::Dropped => pause(engine, id, Reason::StartTimeout),
        Ending::Stopped { cause } => after_stop(engine, id, cause),
    }
}

fn after_stop(engine: &mut Engine, id: JobId, cause: StopCause) {
    match cause {
        StopCause::Preempted { by } => {
            let queue = engine.state.jobs[by.ix()].queue;
            requeue(engine, id, Reason::PreemptedBy { queue });
        }
        StopCause::Reclaimed => requeue(engine, id, Reason::Reclaimed),
        StopCause::Moved => requeue(engine, id, Reason::Moved),
        StopCause::QuotaReclaimed { by } => {
            let queue = engine.state.jobs[by.ix()].queue;
            requeue(engine, id, Reason::QuotaReclaimed { queue });
        }
        StopCause::Overran { .. } => requeue(engine, id, Reason::Overran),
        StopCause::Hurried => requeue(engine, id, Reason::Hurried),
        StopCause::NodeHung => requeue(engine, id, Reason::NodeHung),
        StopCause::Scaled => finish(engine, id, Outcome::Completed, Reason::Scaled),
        StopCause::NodeLost => requeue(engine, id, Reason::NodeLost),
        StopCause::StartTimeout => pause(engine, id, Reason::StartTimeout),
        StopCause::MaxRun => {
            let own = engine.state.specs[id.ix()].max_run;
            let limit = own.unwrap_or(engine.state.lifecycle().max_run);
            finish(engine, id, Outcome::Failed, Reason::MaxRun { limit });
        }
        StopCause::Lingering { idle } => finish(engine, id, Outcome::Failed, Reason::Lingering { idle }),
        StopCause::Cancelled => finish(engine, id, Outcome::Cancelled, Reason::Asked),
        // Both are handled before.
        StopCause::Completed | StopCause::Failed { .. } => {}
    }
}

fn after_failure(engine: &mut Engine, id: JobId, code: i32) {
    let (job, spec) = (&engine.state.jobs[id.ix()], &engine.state.specs[id.ix()]);
    if job.failures + 1 >= spec.retry.attempts || spec.retry.never.contains(&code) {
        return finish(engine, id, Outcome::Failed, Reason::ExitCode { code });
    }
    back_off(engine, id);
}

/// Queued again after a pause that doubles with each failure.
fn back_off(engine: &mut Engine, id: JobId) {
    let (job, spec) = (&engine.state.jobs[id.ix()], &engine.state.specs[id.ix()]);
    let pause = spec.retry.backoff.doubled(job.failures, LONGEST_BACKOFF);
    let not_before = engine.state.now + pause;
    engine.decide(Decision::Requeue { job: id, reason: Reason::BackOff { until: not_before }, not_before });
}

fn requeue(engine: &mut Engine, id: JobId, reason: Reason) {
    engine.decide(Decision::Requeue { job: id, reason, not_before: Millis(0) });
}

/// Queued again, but not at once: what failed for reasons of the cluster may fail again.
fn pause(engine: &mut Engine, id: JobId, reason: Reason) {
    let tries = engine.state.jobs[id.ix()].interruptions;
    let not_before = engine.state.now + Span::secs(10).doubled(tries, Span::mins(5));
    engine.decide(Decision::Requeue { job: id, reason, not_before });
}

fn finish(engine: &mut Engine, id: JobId, outcome: Outcome, reason: Reason) {
    engine.decide(Decision::Finish { job: id, outcome, reason: Some(reason) });
}
