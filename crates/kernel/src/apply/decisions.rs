//! What a stage decided: one arm a decision. Returns the effect that the decision frees, frozen as its record has it.
//!
//! Never: asks whether the decision was right. The stage that made it did; the audit looks after it.

use super::events::{never_ready, new_job, new_node, probe_lost};
use super::{say, take_seq, unbook, unbook_all_on, vacate};
use crate::decision::{Decision, EffectOf, Outcome, StopCause};
use crate::effect::{Effect, StatusKind, Terms, WorkerPlace};
use crate::ids::{Attempt, ClassId, JobId, NodeId, OfferingId, PoolId, PurchaseId, Seq};
use crate::outbox::{launch, start_or_stop, terminate};
use crate::policy::{PreemptWithin, WhenLate};
use crate::reason::Reason;
use crate::state::allowances::{Allowance, AllowanceReservation};
use crate::state::jobs::{Ending, Job, Leaving, OpenEffect, Phase, PutBack, Wait};
use crate::state::nodes::{NodePhase, Purchase};
use crate::state::places::{Hold, nodes_of, share_of};
use crate::state::reservations::Reservation;
use crate::state::services::replica;
use crate::state::{Shape, SharedSpec, State, Urgency};
use crate::units::Timestamp;
use alloc::vec::Vec;

/// Applies a decision.
pub(crate) fn decision(state: &mut State, decision: &Decision) -> Option<Effect> {
    let seq = take_seq(state);
    state.counters.decisions += 1;
    match decision {
        Decision::Reject { job, reason } => finish(state, *job, Outcome::Rejected, Some(*reason)),
        Decision::Resume { job } => resume(state, *job),
        Decision::Requeue { job, reason, not_before } => requeue(state, *job, *reason, *not_before),
        Decision::Finish { job, outcome, reason } => finish(state, *job, *outcome, *reason),
        Decision::Replicate { service } => replicate(state, *service),
        Decision::GiveUp { job } => give_up(state, *job),
        Decision::Repeat { of, next } => return repeat(state, *of, *next),
        Decision::Defer { job, until, run } => {
            let until = *until;
            let wait = run.map_or(Wait::Noise { until }, |(node, run)| Wait::Promised { node, run, until });
            set_wait(state, *job, wait);
        }
        Decision::Due { job } => {
            set_wait(state, *job, Wait::Over);
            // What is bought for it, nobody could have asked for before.
            state.capacity_epoch += 1;
        }
        Decision::Late { job } => late(state, *job),
        Decision::Reassess { job, urgency, again, late } => reassess(state, *job, *urgency, *again, *late),
        Decision::Book { job, pool, places } => book(state, *job, *pool, places),
        Decision::Unbook { job } => unbook(state, *job),
        Decision::Start { job } => return start(state, *job, seq),
        Decision::Buy { purchase, pool, offering, count, at_least, terms } => {
            return Some(buy(state, *purchase, (*pool, *offering), (*count, *at_least), *terms, seq));
        }
        Decision::Stop { job, cause, checkpoint, deadline } => {
            return stop(state, *job, *cause, (*checkpoint, *deadline), seq);
        }
        Decision::Shrink { job, cause, leave, deadline } => {
            return shrink(state, *job, *cause, (leave, *deadline), seq);
        }
        Decision::Keep { job, kept } => {
            state.edit_job(*job, |row| row.kept = Some(*kept));
            state.end_allowances(*job);
            // A reservation of a job for which something is kept gives way to others than one for which nothing is.
            state.capacity_epoch += u64::from(state.apply_version >= 3);
        }
        Decision::Reserve { job, nodes, until } => reserve(state, *job, nodes, *until),
        Decision::Unreserve { job } => unreserve(state, *job),
        Decision::Release { node } => {
            release(state, *node);
            state.capacity_epoch += 1;
        }
        Decision::MakeReservation { pool, reservation } => make_reservation(state, *pool, reservation),
        Decision::EndReservation { pool } => {
            state.set_reservation(*pool, None);
            state.capacity_epoch += 1;
        }
        Decision::Backfill { job, ahead_of } => {
            state.edit_job_quietly(*job, |row| row.backfill_for = Some(*ahead_of));
            state.ends_before_allowances(*job, *ahead_of);
        }
        Decision::KeepAllowance { of, reservation } => keep_allowance(state, *of, reservation),
        Decision::ReleaseAllowance { of } => {
            state.set_allowance(*of, None);
            state.capacity_epoch += 1;
        }
        Decision::Drain { node, why, check_at } => {
            let (now, why, check_at) = (state.now, *why, *check_at);
            state.edit_node(*node, |row| {
                row.phase = NodePhase::Draining { why, check_at };
                row.since = now;
            });
        }
        Decision::Consolidated { next } => state.consolidate_at = *next,
        Decision::Undrain { node } => undrain(state, *node),
        Decision::Terminate { node } => return give_back(state, *node, seq),
        Decision::WarnLingering { job, .. } => state.edit_job(*job, |row| row.idle_reported = None),
        Decision::Judge { impossible } => judge(state, impossible),
        Decision::Hold { job, reason } => hold(state, *job, *reason),
        Decision::Suspect { node } => {
            if let Some(node) = state.node(*node).cloned() {
                never_ready(state, &node);
            }
        }
    }
    None
}

fn set_wait(state: &mut State, job: JobId, wait: Wait) {
    state.edit_job(job, |row| {
        if let Some(start_target) = &mut row.start_target {
            start_target.wait = wait;
        }
    });
}

fn late(state: &mut State, job: JobId) {
    let class = state.jobs[job].class;
    let shape = Shape { late: true, ..state.classes[class].shape.clone() };
    let class = state.class_id(shape);
    state.edit_job(job, |row| {
        row.class = class;
        if let Some(start_target) = &mut row.start_target {
            start_target.when_late = WhenLate::Wait;
            start_target.wait = Wait::Over;
        }
    });
    state.capacity_epoch += 1;
}

/// An effect that is out, to be released again after the policy's pause.
fn out(state: &State, id: Seq) -> OpenEffect {
    let pause = state.lifecycle().launch_retry;
    OpenEffect { id, next_try: state.now + pause, tries: 1 }
}

fn resume(state: &mut State, job: JobId) {
    let now = state.now;
    let was = state.jobs[job].phase;
    let serves = state.services.contains_key(&job);
    state.renew_target(job);
    // A pause after a failure goes on where it was held in it.
    let pause = Some(state.jobs[job].not_before).filter(|until| *until > now);
    state.edit_job(job, |row| {
        let waits = pause.map_or(Phase::Queued, |until| Phase::BackingOff { until });
        row.phase = if serves { Phase::Serving } else { waits };
        row.since = now;
        row.reason = row.reason.filter(|_| was != Phase::Held).or(pause.map(|until| Reason::BackOff { until }));
        row.not_before = Timestamp(0);
    });
    if matches!(was, Phase::New | Phase::Held) {
        let spec = &state.specs[job];
        let counted = spec.deadline.is_some() && spec.expected.is_none() && !serves && state.apply_version >= 3;
        let reason = pause.map(|until| Reason::BackOff { until });
        say(state, job, StatusKind::Queued, reason.or(counted.then_some(Reason::DeadlineOnlyCounted)));
    } else if state.index.deferred.contains_key(&state.jobs[job].class) {
        // Its line may rest with a head that is not bought for. It is.
        state.capacity_epoch += 1;
    }
}

fn requeue(state: &mut State, job: JobId, reason: Reason, not_before: Timestamp) {
    let now = state.now;
    let how = match state.jobs[job].phase {
        Phase::Ended { how } => how,
        _ => return,
    };
    // Only a replica waits again when it is done: it was not to end.
    let failed = matches!(how, Ending::Failed { .. } | Ending::Stopped { cause: StopCause::Failed { .. } });
    let own_failure = failed || how.is_done();
    let taken = matches!(how, Ending::Stopped { cause } if cause.takes());
    state.counters.reclaimed_runs += u64::from(matches!(how, Ending::Stopped { cause: StopCause::Reclaimed }));
    state.edit_job(job, |row| {
        row.phase = if not_before > now { Phase::BackingOff { until: not_before } } else { Phase::Queued };
        row.since = now;
        row.reason = Some(reason);
        row.admitted_said = false;
        row.must_end_by = Timestamp::NEVER;
        row.failures += u32::from(own_failure);
        row.interruptions += u32::from(!own_failure);
    });
    if taken {
        say(state, job, StatusKind::Preempted, Some(reason));
    }
    say(state, job, StatusKind::Requeued, Some(reason));
}

fn judge(state: &mut State, impossible: &[(ClassId, Option<Reason>)]) {
    for (class, reason) in impossible {
        state.classes[*class].impossible = *reason;
    }
    state.unjudged = false;
}

fn hold(state: &mut State, job: JobId, reason: Reason) {
    give_up_all_for(state, job);
    let (now, remembers) = (state.now, state.apply_version >= 5);
    state.edit_job(job, |row| {
        if let Phase::BackingOff { until } = row.phase
            && remembers
        {
            row.not_before = until;
        }
        row.phase = Phase::Held;
        row.since = now;
        row.reason = Some(reason);
        row.admitted_said = false;
        row.kept = None;
    });
    say(state, job, StatusKind::Held, Some(reason));
}

/// What is booked, reserved and kept for a job is free again.
fn give_up_all_for(state: &mut State, job: JobId) {
    if state.jobs[job].phase == Phase::Booked {
        vacate(state, job, Hold::Booked);
    }
    if state.jobs[job].reserved_until.is_some() {
        release_all(state, job);
    }
    if state.jobs[job].kept.is_some() {
        state.capacity_epoch += 1;
    }
    state.end_reservation(job);
    state.end_allowances(job);
}

fn finish(state: &mut State, job: JobId, outcome: Outcome, reason: Option<Reason>) {
    give_up_all_for(state, job);
    if matches!(reason, Some(Reason::StartFailures { .. })) {
        state.let_off_where_others_run(job);
    }
    state.end_streak(job);
    let now = state.now;
    state.edit_job(job, |row| {
        row.phase = Phase::Done { outcome };
        row.since = now;
        row.ended = Some(now);
        row.reason = reason;
        row.must_end_by = Timestamp::NEVER;
        row.kept = None;
    });
    // What the executor needed is not needed any more; the identity and its digest stay.
    state.specs[job].edit().run = Vec::new();
    state.services.remove(&job);
    if state.jobs[job].service.is_some() {
        state.counters.replicas_over += 1;
        return;
    }
    state.ended_in_batch.push(job);
    state.counters.outcomes[outcome as usize] += 1;
    let late = state.specs[job].deadline.is_some_and(|by| now > by);
    let missed = late || outcome != Outcome::Completed;
    state.counters.deadline_misses += u64::from(state.specs[job].deadline.is_some() && missed);
    let kind = match outcome {
        Outcome::Completed => StatusKind::Completed,
        Outcome::Failed => StatusKind::Failed,
        Outcome::Cancelled => StatusKind::Cancelled,
        Outcome::Rejected => StatusKind::Rejected,
    };
    say(state, job, kind, reason);
    state.edit_job_quietly(job, |row| row.last_run = None);
}

/// One more replica of a service: a job of its own without an identity.
fn replicate(state: &mut State, service: JobId) {
    let Some(row) = state.services.get_mut(&service) else { return };
    let number = row.made;
    row.made += 1;
    let id = state.jobs.next_id();
    let spec = replica(&state.specs[service], number);
    let class = state.jobs[service].class;
    let mut job = new_job(state, id, class, &spec);
    job.phase = Phase::Queued;
    job.service = Some(service);
    if let Some(start_target) = job.start_target.as_mut().filter(|p| p.when_late == WhenLate::Reject) {
        // One that is late is not replaced by another that is.
        start_target.when_late = WhenLate::Wait;
    }
    state.counters.replicas += 1;
    state.index.job_in(&job, &spec);
    state.specs.push(SharedSpec::new(spec));
    let _ = state.jobs.push(job);
}

/// A run has hung: its nodes take no more work, and end with it.
fn give_up(state: &mut State, job: JobId) {
    let nodes = nodes_of(&state.jobs[job].places);
    state.edit_job(job, |row| {
        row.hung = true;
        row.must_end_by = Timestamp::NEVER;
    });
    for node in nodes {
        state.edit_node(node, |row| {
            row.condemned = true;
            if matches!(row.phase, NodePhase::Draining { .. }) {
                // Settle empties it now, whatever it was to leave for.
                row.phase = NodePhase::Ready;
            }
        });
        unbook_all_on(state, node);
    }
}

fn repeat(state: &mut State, of: EffectOf, next: Timestamp) -> Option<Effect> {
    let again = |effect: &mut OpenEffect| {
        effect.next_try = next;
        effect.tries = effect.tries.saturating_add(1);
    };
    match of {
        EffectOf::Job(job) => {
            state.edit_job(job, |row| row.effect.iter_mut().for_each(again));
            start_or_stop(state, job)
        }
        EffectOf::Node(node) => {
            state.edit_node(node, |row| row.effect.iter_mut().for_each(again));
            terminate(state, node)
        }
        EffectOf::Purchase(purchase) => {
            state.edit_purchase(purchase, |row| again(&mut row.effect));
            Some(launch(state, purchase))
        }
    }
}

fn reassess(state: &mut State, job: JobId, urgency: Urgency, again: Timestamp, late: Option<Timestamp>) {
    let was = state.jobs[job].class;
    let shape = state.classes[was].shape.clone();
    let class = if shape.urgency == urgency { was } else { state.class_id(Shape { urgency, ..shape }) };
    if let Some(reason) = state.classes[was].impossible {
        // More urgency fits less.
        state.classes[class].impossible.get_or_insert(reason);
    }
    state.edit_job(job, |row| {
        row.class = class;
        row.reassess_at = again;
        row.hopeless |= late.is_some();
        row.reason = late.map(|eta| Reason::DeadlineUnreachable { eta }).or(row.reason);
    });
    state.capacity_epoch += u64::from(class != was);
}

fn book(state: &mut State, job: JobId, pool: PoolId, places: &[WorkerPlace]) {
    let (class, queue, now) = (state.jobs[job].class, state.jobs[job].queue, state.now);
    let share = share_of(places);
    let said = state.jobs[job].admitted_said;
    if !said {
        // One that moves to better places needs no node more than before.
        let empty = |id: &NodeId| state.nodes.get(id).is_some_and(|node| node.holds.is_empty());
        let taken = nodes_of(places).iter().filter(|id| empty(id)).count() as u32;
        state.note_needed(pool, taken, now);
    }
    for owner in owners(state, job, places) {
        release_all(state, owner);
    }
    let splits = places.iter().any(|p| state.nodes.get(&p.node).is_some_and(|node| node.split_by(p.gpus)));
    state.hold_places(job, class, places, Hold::Booked);
    state.may_be_charged(job);
    // Whoever left that node whole has no reason to any more.
    state.capacity_epoch += u64::from(splits);
    state.take_quota(queue, pool, share);
    if !said && state.jobs[job].first_start.is_none() {
        state.count_entry(queue, share);
    }
    take_kept(state, job, pool);
    // What was kept for it may have been more than it takes.
    let kept = state.apply_version >= 3 && state.jobs[job].kept.is_some();
    if kept || may_be_taken_back(state, job, pool) {
        state.capacity_epoch += 1;
    }
    if state.jobs[job].reserved_until.is_some() {
        release_all(state, job);
    }
    state.end_reservation(job);
    state.end_allowances(job);
    state.edit_job(job, |row| {
        row.phase = Phase::Booked;
        row.since = now;
        row.pool = Some(pool);
        row.places = places.to_vec();
        row.share = share;
        row.admitted_said = true;
        row.reserved_until = None;
    });
    state.cost_in(job);
    state.count_over_budget(job);
    if !said {
        let reason = state.jobs[job].reason.filter(out_of_reach);
        say(state, job, StatusKind::Admitted, reason);
    }
}

/// What was kept for another job of the class goes to the one that is booked first: they ask the same.
fn take_kept(state: &mut State, job: JobId, pool: PoolId) {
    let (class, own) = (state.jobs[job].class, state.jobs[job].kept);
    let same = |id: &JobId| {
        let row = &state.jobs[*id];
        *id != job && row.class == class && row.kept.is_some_and(|k| k.pool == pool)
    };
    let other = if own.is_some() { None } else { state.index.kept.iter().copied().find(same) };
    let Some(other) = other else { return };
    let kept = state.jobs[other].kept;
    state.edit_job(other, |row| row.kept = None);
    state.edit_job(job, |row| row.kept = kept);
}

/// Whether what a job takes makes somebody more stoppable than before: its queue borrows, or its tier has a share of its own.
fn may_be_taken_back(state: &State, job: JobId, pool: PoolId) -> bool {
    let row = &state.jobs[job];
    let tier = state.policy.as_deref().and_then(|p| p.tiers.get(row.tier.index()));
    let rule = state.queues[row.queue].rule.as_ref();
    tier.is_some_and(|t| t.min_share > 0) || rule.is_some_and(|r| state.quota.borrows(r.quota, pool))
}

fn start(state: &mut State, job: JobId, seq: Seq) -> Option<Effect> {
    let now = state.now;
    let timeout = state.lifecycle().start_timeout;
    let effect = out(state, seq);
    let places = state.jobs[job].places.clone();
    state.start_on(job, &places);
    state.cost_out(job);
    state.edit_job(job, |row| {
        row.phase = Phase::Starting;
        row.since = now;
        row.attempt = Attempt(row.attempt.0 + 1);
        row.workers = row.places.len() as u32;
        row.numbers = (0..row.workers).collect();
        row.resume_from = row.progress;
        row.effect = Some(effect);
        row.must_end_by = now + timeout;
        row.reason = row.reason.filter(out_of_reach);
    });
    state.cost_in(job);
    start_or_stop(state, job)
}

/// The one thing that is still worth saying of a job that runs.
fn out_of_reach(reason: &Reason) -> bool {
    matches!(reason, Reason::DeadlineUnreachable { .. })
}

fn buy(
    state: &mut State,
    id: PurchaseId,
    (pool, offering): (PoolId, OfferingId),
    (count, at_least): (u32, u32),
    terms: Terms,
    seq: Seq,
) -> Effect {
    let mut nodes = Vec::new();
    for _ in 0..count {
        let node = NodeId(state.counters.next_node);
        state.counters.next_node += 1;
        let row = new_node(state, node, id, offering, pool, terms);
        state.add_node(row);
        nodes.push(node);
    }
    state.counters.next_purchase = state.counters.next_purchase.max(id.0 + 1);
    let effect = out(state, seq);
    let decided_at = state.now;
    state.add_purchase(Purchase { id, pool, offering, nodes, at_least, terms, decided_at, effect });
    state.edit_offering(offering, |row| row.in_flight += count);
    // What is bought for one may have room for another.
    state.capacity_epoch += 1;
    launch(state, id)
}

fn stop(
    state: &mut State,
    job: JobId,
    cause: StopCause,
    (checkpoint, deadline): (bool, Timestamp),
    seq: Seq,
) -> Option<Effect> {
    let now = state.now;
    let effect = out(state, seq);
    let reason = why_stopped(state, job, cause);
    let hangs_at = deadline.max(now) + state.lifecycle().hang_after;
    let for_shorter = is_for_shorter(state, job, cause);
    state.edit_job(job, |row| {
        if for_shorter {
            put_back(row, now);
        }
        row.phase = Phase::Stopping { cause, checkpoint, deadline };
        row.since = now;
        row.must_end_by = hangs_at;
        row.effect = Some(effect);
        row.reason = reason;
        // That its criterion is met is not forgotten, whatever it is stopped for.
        row.broken = row.broken.filter(|b| *b == StopCause::Completed);
        row.idle_reported = None;
        row.leaving = None;
    });
    // What is about to be free counts where quota is wanted back.
    state.capacity_epoch += 1;
    let for_another =
        matches!(cause, StopCause::Preempted { .. } | StopCause::QuotaReclaimed { .. } | StopCause::Overran { .. });
    state.counters.preemptions += u64::from(for_another);
    state.counters.moves += u64::from(cause == StopCause::Moved);
    if cause.takes() {
        say(state, job, StatusKind::Preempting, reason);
    }
    start_or_stop(state, job)
}

/// Whether a run is stopped for a shorter job of its queue and tier: no other reason is one for that there.
fn is_for_shorter(state: &State, job: JobId, cause: StopCause) -> bool {
    let StopCause::Preempted { by } = cause else { return false };
    let (Some(rule), Some(taker)) = (state.rule_for(job), state.rule_for(by)) else { return false };
    let alike = rule.quota == taker.quota && state.jobs[job].tier == state.jobs[by].tier;
    alike && taker.preempt_within == PreemptWithin::LongerExpected
}

fn put_back(row: &mut Job, now: Timestamp) {
    let times = row.put_back.map_or(0, |last| last.times);
    row.put_back = Some(PutBack { at: now, times: times.saturating_add(1) });
}

fn shrink(
    state: &mut State,
    job: JobId,
    cause: StopCause,
    (leave, deadline): (&[u32], Timestamp),
    seq: Seq,
) -> Option<Effect> {
    let effect = out(state, seq);
    let reason = why_stopped(state, job, cause);
    let (now, for_shorter) = (state.now, is_for_shorter(state, job, cause));
    state.edit_job(job, |row| {
        if for_shorter {
            // What goes on has a turn again, twice as long.
            put_back(row, now);
            row.turn_over_at = now + row.turn();
        }
        row.leaving = Some(Leaving { workers: leave.to_vec(), cause, deadline });
        row.effect = Some(effect);
        row.reason = reason;
    });
    state.counters.shrinks += 1;
    state.capacity_epoch += 1;
    start_or_stop(state, job)
}

/// What a stop is for, as a reason. Nothing where the job is simply completed.
fn why_stopped(state: &State, job: JobId, cause: StopCause) -> Option<Reason> {
    Some(match cause {
        StopCause::Preempted { by } => Reason::PreemptedBy { queue: state.jobs[by].queue },
        StopCause::Reclaimed => Reason::Reclaimed,
        StopCause::Moved => Reason::Moved,
        StopCause::Grows => Reason::Grows,
        StopCause::QuotaReclaimed { by } => Reason::QuotaReclaimed { queue: state.jobs[by].queue },
        StopCause::Overran { .. } => Reason::Overran,
        StopCause::Hurried => Reason::Hurried,
        StopCause::NodeHung => Reason::NodeHung,
        StopCause::Scaled => Reason::Scaled,
        StopCause::NodeLost => Reason::NodeLost,
        StopCause::StartTimeout => Reason::StartTimeout,
        StopCause::Failed { code } => Reason::ExitCode { code },
        StopCause::Cancelled => Reason::Asked,
        StopCause::Lingering { idle } => Reason::Lingering { idle },
        StopCause::MaxRun => {
            let lifecycle = state.lifecycle();
            Reason::MaxRun { limit: state.specs[job].max_run.unwrap_or(lifecycle.max_run) }
        }
        StopCause::Completed => return None,
    })
}

/// Others of its class for whom these places were kept, where none was kept for itself.
fn owners(state: &State, job: JobId, places: &[WorkerPlace]) -> Vec<JobId> {
    let class = |id: JobId| state.jobs[id].class;
    let owner = |place: &WorkerPlace| {
        let mut owners = state.nodes.get(&place.node)?.reserved.iter().map(|(owner, _)| *owner);
        let own = owners.clone().any(|owner| owner == job);
        owners.find(|owner| !own && class(*owner) == class(job))
    };
    let mut owners: Vec<JobId> = places.iter().filter_map(owner).collect();
    owners.sort_unstable();
    owners.dedup();
    owners
}

/// What was kept for a job is free for all: it has places now, or has waited for long enough.
fn release_all(state: &mut State, job: JobId) {
    state.free_reserved(job);
    state.edit_job(job, |row| row.reserved_until = None);
    state.capacity_epoch += 1;
}

/// Nothing is kept for a job any more. Up to version 2 its quota was.
fn unreserve(state: &mut State, job: JobId) {
    release_all(state, job);
    if state.apply_version >= 3 {
        state.edit_job(job, |row| row.kept = None);
    }
}

/// A node may be kept for several jobs. Up to version 2 the last one took it from the others.
fn reserve(state: &mut State, job: JobId, nodes: &[NodeId], until: Timestamp) {
    let alone = state.apply_version < 3;
    for node in nodes {
        state.edit_node(*node, |row| {
            row.reserved.retain(|(owner, _)| !alone && *owner != job);
            row.reserved.push((job, until));
        });
    }
    state.edit_job(job, |row| row.reserved_until = Some(until));
}

/// What was kept on a node for jobs that are over, or for long enough, is free for all.
fn release(state: &mut State, node: NodeId) {
    let over = |(owner, until): &(JobId, Timestamp)| *until <= state.now || state.jobs[*owner].done();
    let Some(row) = state.nodes.get(&node) else { return };
    let left: Vec<_> = row.reserved.iter().filter(|kept| !over(kept)).copied().collect();
    state.edit_node(node, |row| row.reserved = left);
}

fn make_reservation(state: &mut State, pool: PoolId, reservation: &Reservation) {
    let same = |was: &Reservation| {
        Reservation { from: reservation.from, known: reservation.known, ..was.clone() } == *reservation
    };
    // An earlier time only keeps more out. Anything else gives something up as well.
    let narrower = state.reservations.get(&pool).is_some_and(|was| same(was) && reservation.from <= was.from);
    state.capacity_epoch += u64::from(!narrower);
    state.set_reservation(pool, Some(reservation.clone()));
}

fn keep_allowance(state: &mut State, of: Allowance, reservation: &AllowanceReservation) {
    // What is kept anew, or from an earlier time on, only keeps more out. Anything else gives something up as well.
    let wider = state.allowances.get(&of).is_some_and(|was| {
        let same = AllowanceReservation { from: reservation.from, known: reservation.known, ..was.clone() };
        same != *reservation || reservation.from > was.from
    });
    state.capacity_epoch += u64::from(wider);
    state.set_allowance(of, Some(reservation.clone()));
}

fn undrain(state: &mut State, node: NodeId) {
    let now = state.now;
    let due = now + state.idle_allowed(node);
    state.edit_node(node, |row| {
        row.phase = NodePhase::Ready;
        row.since = now;
        row.idle_since = row.holds.is_empty().then_some(now);
        row.due = due;
    });
    state.capacity_epoch += 1;
}

fn give_back(state: &mut State, node: NodeId, seq: Seq) -> Option<Effect> {
    unbook_all_on(state, node);
    if let Some(offering) = state.nodes.get(&node).filter(|row| row.phase.is_coming()).map(|row| row.offering) {
        probe_lost(state, offering);
        // Who counted on it, or on giving it back for another, looks again.
        state.capacity_epoch += u64::from(state.apply_version >= 3);
    }
    let now = state.now;
    let effect = out(state, seq);
    state.edit_node(node, |row| {
        row.phase = NodePhase::Terminating;
        row.since = now;
        row.effect = Some(effect);
        row.idle_since = None;
        row.reserved.clear();
    });
    terminate(state, node)
}
