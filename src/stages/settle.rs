//! settle: outcomes, time-outs, lingering work. After it every row has been judged.
//!
//! ```text
//! timers that are due  ->  repeat effects, end pauses, stop what ran or started too long
//! another policy       ->  hold what it makes impossible, resume what it no longer does
//! unsettled jobs       ->  accept or reject, finish, requeue, stop what is broken
//! unsettled claims     ->  empty what the cloud takes back, give back what is condemned, or drained and empty
//! ```
//!
//! Never: looks for places or money. Own failures cost an attempt; reclaims, preemption and node faults never do.

use crate::decision::{Decision, EffectOf, Outcome, StopCause};
use crate::engine::Engine;
use crate::ids::{ClassId, JobId, NodeId, QueueId};
use crate::moves;
use crate::plan::PlanReport;
use crate::policy::OnLinger;
use crate::reason::Reason;
use crate::rules::feasibility::{self, Impossible};
use crate::rules::timing::repeat_pause;
use crate::rules::{demand, fruitless};
use crate::state::brakes::Brake;
use crate::state::jobs::{Ending, Phase};
use crate::state::nodes::NodePhase;
use crate::state::{State, Urgency};
use crate::units::{Span, Timestamp};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// The longest pause before a retry.
const LONGEST_BACKOFF: Span = Span::mins(30);
/// The pause after a failed start; it doubles.
const FIRST_PAUSE: Span = Span::secs(10);
/// The longest of these.
const LONGEST_PAUSE: Span = Span::mins(5);
/// After a start that a full quota of the cluster's own denied.
const FIRST_PAUSE_OF_DENIED: Span = Span::secs(30);
/// After many of them.
const LONGEST_PAUSE_OF_DENIED: Span = Span::mins(60);

/// Runs the stage.
pub(crate) fn run(engine: &mut Engine, report: &mut PlanReport) {
    if engine.state.unjudged {
        judge_classes(engine);
        judge_waiting(engine, report);
    }
    judge_prices(engine, report);
    give_up_promises(engine);
    let due: Vec<EffectOf> = due(engine);
    for row in due {
        report.settled += 1;
        match row {
            EffectOf::Purchase(_) => repeat(engine, row),
            EffectOf::Node(node) => due_node(engine, node),
            EffectOf::Job(job) => due_job(engine, job),
        }
    }
    let unsettled: Vec<NodeId> = engine.state.index.unsettled_nodes.iter().copied().collect();
    for node in unsettled {
        report.settled += 1;
        empty_node(engine, node);
    }
    let unsettled: Vec<JobId> = engine.state.index.unsettled.iter().copied().collect();
    for job in unsettled {
        report.settled += 1;
        settle_job(engine, job);
    }
}

/// What is kept for jobs that an operator keeps from being admitted is free for others.
fn give_up_promises(engine: &mut Engine) {
    let index = &engine.state.index;
    if index.held_back.is_empty() {
        return;
    }
    let promised = index.kept.iter().copied().chain(index.reserved.iter().map(|(job, _)| *job));
    let promised: BTreeSet<JobId> = promised.filter(|job| index.held_back.contains(job)).collect();
    for job in promised {
        engine.decide(Decision::Unreserve { job });
    }
}

/// What the policy in force makes of each class.
fn judge_classes(engine: &mut Engine) {
    let state = &engine.state;
    let reason = |class| feasibility::class_impossible(state, class).map(Impossible::reason);
    let judged = state.classes.ids().map(|class| (class, reason(class)));
    let impossible = judged.filter(|(class, reason)| *reason != state.classes[*class].impossible).collect();
    engine.decide(Decision::Judge { impossible });
}

/// Jobs that wait are held or rejected, or wait in their queues again. A service is not: its replicas say why they wait.
fn judge_waiting(engine: &mut Engine, report: &mut PlanReport) {
    let open: Vec<JobId> = engine.state.index.open_jobs.iter().copied().collect();
    for id in open {
        let (was, now) = (engine.state.jobs[id].phase, engine.state.jobs[id].reason);
        match (was, feasibility::held_by_class(&engine.state, id)) {
            (Phase::Held, None) => engine.decide(Decision::Resume { job: id }),
            (Phase::Held, Some(reason)) if now == Some(reason) && !feasibility::rejects(&engine.state, id) => continue,
            (Phase::Held | Phase::Queued | Phase::Booked | Phase::BackingOff { .. }, Some(reason)) => {
                moves::hold_back(engine, id, reason);
            }
            _ => continue,
        }
        report.settled += 1;
    }
}

/// Jobs that were held for want of a price that a budget can pay wait in their queues again when there is one.
fn judge_prices(engine: &mut Engine, report: &mut PlanReport) {
    let state = &engine.state;
    if state.index.held_by_price.is_empty() || engine.memo.priced_at(state) {
        return;
    }
    let epoch = state.capacity_epoch;
    let possible = |class: &&ClassId| feasibility::class_impossible(state, **class).is_none();
    let classes: Vec<ClassId> = state.index.held_by_price.keys().filter(possible).copied().collect();
    let held = classes.iter().filter_map(|class| state.index.held_by_price.get(class)).flatten();
    let held: Vec<JobId> = held.copied().collect();
    if !classes.is_empty() {
        engine.decide(Decision::Judge { impossible: classes.into_iter().map(|class| (class, None)).collect() });
    }
    for job in held {
        engine.decide(Decision::Resume { job });
        report.settled += 1;
    }
    engine.memo.priced = Some(epoch);
}

fn due(engine: &Engine) -> Vec<EffectOf> {
    let now = engine.state.now;
    engine.state.index.timers.iter().take_while(|t| t.0 <= now).map(|t| t.1).collect()
}

fn repeat(engine: &mut Engine, of: EffectOf) {
    let effect = match of {
        EffectOf::Purchase(id) => engine.state.purchases.get(&id).map(|p| p.effect),
        EffectOf::Node(id) => engine.state.nodes.get(&id).and_then(|n| n.effect),
        EffectOf::Job(id) => engine.state.jobs[id].effect,
    };
    let Some(effect) = effect.filter(|e| e.next_try <= engine.state.now) else {
        return;
    };
    // No launch is asked for again either: whoever asked looks whether it is there.
    if matches!(of, EffectOf::Purchase(_)) && engine.state.brake(&Brake::Buying).is_some() {
        return;
    }
    let pause = repeat_pause(engine.state.lifecycle().launch_retry, effect.tries);
    let next = engine.state.now + pause;
    engine.decide(Decision::Repeat { of, next });
}

fn due_node(engine: &mut Engine, id: NodeId) {
    let now = engine.state.now;
    let Some(node) = engine.state.nodes.get(&id) else {
        return;
    };
    let over = |(job, until): &(JobId, Timestamp)| *until <= now || engine.state.jobs[*job].done();
    if node.reserved.iter().any(over) {
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
    let job = &engine.state.jobs[id];
    match job.phase {
        // It is broken and will be stopped below: its start is not requested again.
        Phase::Starting | Phase::Running if job.broken.is_some() => {}
        Phase::BackingOff { .. } => engine.decide(Decision::Resume { job: id }),
        Phase::Queued if job.reserved_until.is_some_and(|until| until <= now) => {
            engine.decide(Decision::Unreserve { job: id });
        }
        Phase::Stopping { .. } if job.must_end_by <= now => {
            engine.decide(Decision::GiveUp { job: id });
            repeat(engine, EffectOf::Job(id));
        }
        Phase::Starting if job.must_end_by <= now => moves::stop(engine, id, StopCause::StartTimeout),
        Phase::Running if job.must_end_by <= now => moves::stop(engine, id, StopCause::MaxRun),
        Phase::Running if never_leaves(&engine.state, id) => moves::stop(engine, id, StopCause::NodeHung),
        _ => repeat(engine, EffectOf::Job(id)),
    }
}

/// Whether workers of an elastic gang were asked to leave so long ago that they have hung: it is stopped whole, and hangs as other runs do. That is for
/// nobody: what is taken for another are the workers that were to leave, and the bounds of that are not those of the gang.
fn never_leaves(state: &State, id: JobId) -> bool {
    let patience = state.lifecycle().hang_after;
    // As a stop that was not answered: the answer may be waiting to be read, so it is counted anew after down time.
    let seen = state.unseen_until();
    state.jobs[id].leaving.as_ref().is_some_and(|leaving| leaving.deadline.max(seen) + patience <= state.now)
}

/// A claim that the cloud takes back, that is condemned, or that an operator drains and nothing is on.
fn empty_node(engine: &mut Engine, id: NodeId) {
    let Some(node) = engine.state.nodes.get(&id) else {
        return;
    };
    let reclaimed = node.reclaim_at.is_some();
    let mut holds = node.holds.clone();
    holds.sort_unstable();
    holds.dedup();
    let hung = |job: &JobId| engine.state.jobs[*job].hung;
    let given_up = holds.iter().any(hung);
    // Only what cannot be stopped is left on it, or nothing.
    if holds.iter().all(hung) {
        return engine.decide(Decision::Terminate { node: id });
    }
    for job in holds {
        let phase = engine.state.jobs[job].phase;
        match phase {
            Phase::Booked => engine.decide(Decision::Unbook { job }),
            Phase::Running if reclaimed && ends_before(&engine.state, job, id) => {}
            Phase::Running if reclaimed && leave_node(engine, job, id) => {}
            Phase::Starting | Phase::Running if reclaimed || given_up => {
                // That its criterion is met, or that it has lost a worker already, comes first.
                let broken = engine.state.jobs[job].broken;
                let cause = if reclaimed { StopCause::Reclaimed } else { StopCause::NodeHung };
                moves::stop(engine, job, broken.unwrap_or(cause));
            }
            // A quarantined node keeps what runs on it, and gets nothing new.
            _ => {}
        }
    }
}

/// Whether a run that could save nothing if it was stopped is expected to have ended when the cloud takes a node of it: it is left to end. Should it last
/// longer than its estimate it is stopped when its node is looked at next, at the latest when that is taken.
fn ends_before(state: &State, id: JobId, node: NodeId) -> bool {
    let (job, spec) = (&state.jobs[id], &state.specs[id]);
    let taken = state.nodes.get(&node).and_then(|row| row.reclaim_at);
    let left = demand::remaining_p90(state, id).filter(|left| *left > Span::ZERO);
    let saves_nothing = spec.checkpoint.is_none() && job.service.is_none() && job.broken.is_none() && !job.cancel_asked;
    saves_nothing && left.zip(taken).is_some_and(|(left, taken)| state.now + left <= taken)
}

/// Takes the workers of an elastic gang off a node that the cloud takes back, where the rest can go on. While others are leaving it
/// waits for these: if it is too late then, the run goes on all the same when the node is gone.
fn leave_node(engine: &mut Engine, id: JobId, node: NodeId) -> bool {
    let state = &engine.state;
    let (job, spec) = (&state.jobs[id], &state.specs[id]);
    let leave = job.numbers_on(node);
    if job.cancel_asked || !job.goes_on_without(spec, &leave) {
        return false;
    }
    if job.leaving.is_none() {
        moves::shrink(engine, id, StopCause::Reclaimed, leave);
    }
    true
}

fn settle_job(engine: &mut Engine, id: JobId) {
    let job = &engine.state.jobs[id];
    match job.phase {
        Phase::Ended { how } => after_run(engine, id, how),
        _ if job.cancel_asked => cancel(engine, id),
        Phase::New => accept(engine, id),
        _ => match (job.broken, job.idle_reported) {
            (Some(cause), _) => moves::stop(engine, id, cause),
            (None, Some(idle)) => linger(engine, id, idle),
            (None, None) => {}
        },
    }
}

fn accept(engine: &mut Engine, id: JobId) {
    match feasibility::impossible(&engine.state, id) {
        Some(Impossible::Always(reason)) => engine.decide(Decision::Reject { job: id, reason }),
        // The replicas of a service say why they wait.
        Some(Impossible::AsPricesAre(reason)) if !engine.state.services.contains_key(&id) => {
            let class = engine.state.jobs[id].class;
            let known = engine.state.classes[class].impossible;
            if known.is_none() {
                engine.decide(Decision::Judge { impossible: alloc::vec![(class, Some(reason))] });
            }
            engine.decide(Decision::Hold { job: id, reason: known.unwrap_or(reason) });
        }
        Some(Impossible::AsPricesAre(_)) | None => engine.decide(Decision::Resume { job: id }),
    }
}

fn cancel(engine: &mut Engine, id: JobId) {
    if engine.state.jobs[id].alive() {
        moves::stop(engine, id, StopCause::Cancelled);
    } else {
        finish(engine, id, Outcome::Cancelled, Reason::Asked);
    }
}

fn linger(engine: &mut Engine, id: JobId, idle: Span) {
    let rules = engine.state.lifecycle();
    // Whether an idle replica stays is decided with its service.
    let replica = engine.state.jobs[id].service.is_some();
    if idle >= rules.linger_after && rules.on_linger == OnLinger::Stop && !replica {
        moves::stop(engine, id, StopCause::Lingering { idle });
    } else {
        engine.decide(Decision::WarnLingering { job: id, idle });
    }
}

/// What follows when no worker of a run is alive.
fn after_run(engine: &mut Engine, id: JobId, how: Ending) {
    let cancelled = engine.state.jobs[id].cancel_asked;
    match how {
        // A replica is not meant to end by itself.
        Ending::Completed | Ending::Stopped { cause: StopCause::Completed }
            if engine.state.jobs[id].service.is_some() =>
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
        Ending::NodeFault => after_failed_start(engine, id, Reason::NodeLost),
        Ending::Dropped => after_failed_start(engine, id, Reason::StartTimeout),
        Ending::Denied => after_denial(engine, id),
        Ending::Stopped { cause } => after_stop(engine, id, cause),
    }
}

/// Why a run was stopped, with the queue of the job that it was stopped for. If that job is over and gone, the reason of the stop itself.
fn taken_for(engine: &Engine, id: JobId, by: JobId, reason: impl Fn(QueueId) -> Reason) -> Reason {
    let own = engine.state.jobs[id].reason.unwrap_or(Reason::Asked);
    engine.state.jobs.get(by).map_or(own, |row| reason(row.queue))
}

fn after_stop(engine: &mut Engine, id: JobId, cause: StopCause) {
    match cause {
        StopCause::Preempted { by } => {
            let reason = taken_for(engine, id, by, |queue| Reason::PreemptedBy { queue });
            requeue(engine, id, reason);
        }
        StopCause::QuotaReclaimed { by } => {
            let reason = taken_for(engine, id, by, |queue| Reason::QuotaReclaimed { queue });
            requeue(engine, id, reason);
        }
        StopCause::Reclaimed => after_reclaim(engine, id),
        StopCause::Moved => requeue(engine, id, Reason::Moved),
        StopCause::Grows => requeue(engine, id, Reason::Grows),
        StopCause::Overran { .. } => requeue(engine, id, Reason::Overran),
        StopCause::Hurried => requeue(engine, id, Reason::Hurried),
        StopCause::NodeHung => requeue(engine, id, Reason::NodeHung),
        StopCause::Scaled => finish(engine, id, Outcome::Completed, Reason::Scaled),
        StopCause::NodeLost => requeue(engine, id, Reason::NodeLost),
        StopCause::StartTimeout => after_failed_start(engine, id, Reason::StartTimeout),
        StopCause::MaxRun => {
            let own = engine.state.specs[id].max_run;
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
    let (job, spec) = (&engine.state.jobs[id], &engine.state.specs[id]);
    let starts = engine.state.streak(id).map_or(0, |streak| streak.start_failures);
    if starts >= spec.retry.most_start_failures() {
        return finish(engine, id, Outcome::Failed, Reason::StartFailures { starts });
    }
    if job.failures + 1 >= spec.retry.attempts || spec.retry.never.contains(&code) {
        return finish(engine, id, Outcome::Failed, Reason::ExitCode { code });
    }
    back_off(engine, id);
}

/// Queued again after a pause that doubles with each failure.
fn back_off(engine: &mut Engine, id: JobId) {
    let (job, spec) = (&engine.state.jobs[id], &engine.state.specs[id]);
    let pause = spec.retry.backoff.doubled(job.failures, LONGEST_BACKOFF);
    let not_before = engine.state.now + pause;
    wait_again(engine, id, Reason::BackOff { until: not_before }, not_before);
}

fn requeue(engine: &mut Engine, id: JobId, reason: Reason) {
    wait_again(engine, id, reason, Timestamp(0));
}

/// A start came to nothing, whatever the cause that was told. So many in a row, and the job is given up.
fn after_failed_start(engine: &mut Engine, id: JobId, reason: Reason) {
    let starts = engine.state.streak(id).map_or(0, |streak| streak.start_failures);
    if starts >= engine.state.specs[id].retry.most_start_failures() {
        return finish(engine, id, Outcome::Failed, Reason::StartFailures { starts });
    }
    let not_before = engine.state.now + pause(&engine.state, id, starts, reason);
    wait_again(engine, id, reason, not_before);
}

/// A quota of the cluster's own was full. That is no failure of the job's: it goes on as long as nobody cancels it, and each start in vain costs
/// the boots of its nodes, so that its pauses grow to an hour.
fn after_denial(engine: &mut Engine, id: JobId) {
    let before = engine.state.jobs[id].denials.saturating_sub(1);
    let until = engine.state.now + FIRST_PAUSE_OF_DENIED.doubled(before, LONGEST_PAUSE_OF_DENIED);
    wait_again(engine, id, Reason::ClusterQuota { until }, until);
}

/// Not at once: what failed for reasons of the cluster may fail again. A node's first fault is no such reason, and neither is one that
/// quarantined it: the job goes elsewhere.
fn pause(state: &State, id: JobId, starts: u32, reason: Reason) -> Span {
    let before = match reason {
        Reason::NodeLost => {
            let blamed = state.streak(id).and_then(|streak| streak.blamed.last());
            let gone = |node: &NodeId| state.nodes.get(node).is_none_or(|row| row.condemned);
            if starts < 2 || blamed.is_some_and(|(node, _)| gone(node)) {
                return Span::ZERO;
            }
            starts - 2
        }
        _ => starts.saturating_sub(1),
    };
    FIRST_PAUSE.doubled(before, LONGEST_PAUSE)
}

/// The cloud took it back. Where that happens in a row and nothing is gained, it goes elsewhere, as far as its tier buys elsewhere and anything comes there.
fn after_reclaim(engine: &mut Engine, id: JobId) {
    let urgency = fruitless::urgency(&engine.state, id);
    let row = &engine.state.jobs[id];
    let (was, again) = (engine.state.classes[row.class].shape.urgency, row.reassess_at);
    if urgency == Urgency::AvoidsSpot && was != urgency {
        // Whether anything comes is asked for a class that asks for nothing else. Where nothing does it goes back, in this pass.
        engine.decide(Decision::Reassess { job: id, urgency, again, late: None });
    }
    let stuck = fruitless::is_stuck(&engine.state, id, urgency) || fruitless::avoids_in_vain(engine, id);
    let reclaims = engine.state.streak(id).map_or(0, |streak| streak.reclaims);
    requeue(engine, id, if stuck { Reason::NoProgress { reclaims } } else { Reason::Reclaimed });
}

/// A run is over and its job is not. It waits in its queue, unless the policy has become one that it is impossible under.
fn wait_again(engine: &mut Engine, id: JobId, reason: Reason, not_before: Timestamp) {
    engine.decide(Decision::Requeue { job: id, reason, not_before });
    let row = &engine.state.jobs[id];
    let (was, again) = (engine.state.classes[row.class].shape.urgency, row.reassess_at);
    let urgency = fruitless::urgency(&engine.state, id);
    // Whether anything comes for who avoids spot is asked as soon as it waits.
    let avoids = urgency == Urgency::AvoidsSpot;
    if avoids || urgency != was {
        let again = if avoids { engine.state.now } else { again };
        engine.decide(Decision::Reassess { job: id, urgency, again, late: None });
    }
    if let Some(reason) = feasibility::held_by_class(&engine.state, id) {
        moves::hold_back(engine, id, reason);
    }
}

fn finish(engine: &mut Engine, id: JobId, outcome: Outcome, reason: Reason) {
    engine.decide(Decision::Finish { job: id, outcome, reason: Some(reason) });
}
