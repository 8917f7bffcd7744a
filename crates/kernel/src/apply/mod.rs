//! Apply: the only thing that changes state. Ticks and events bring facts, decisions bring what was decided on them.
//!
//! ```text
//! tick     -> time, delivered statuses
//!             resumed.rs    nobody watched: clocks go on from where they stood
//! event    -> events.rs     what happened outside
//!             requests.rs   what pipelines ask of a job
//! decision -> decisions.rs  what a stage decided, and the effect that it frees
//! ```
//!
//! Never: fails, and never decides. What does not fit the state (a report of an old attempt, an unknown instance) is counted and
//! ignored. The meaning of a record is frozen: see `journal::APPLY_VERSION`.

mod decisions;
mod events;
mod owned;
mod requests;
mod resumed;
mod shrunk;
#[cfg(test)]
mod tests;

pub(crate) use decisions::decision;
pub(crate) use events::{event, new_node};

use crate::decision::StopCause;
use crate::effect::{MOST_RUN_NODES, RunFacts, RunNode, Status, StatusKind};
use crate::event::Tick;
use crate::ids::{Attempt, JobId, NodeId, Seq};
use crate::job::JobSpec;
use crate::reason::Reason;
use crate::state::State;
use crate::state::billing::WorkEnd;
use crate::state::jobs::{Ending, Job, Phase};
use crate::state::nodes::NodePhase;
use crate::state::places::Hold;
use crate::state::streaks::RECOVERED;
use crate::units::Timestamp;
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

/// Opens a batch whose records mean what they mean in `version`.
pub(crate) fn tick(state: &mut State, tick: Tick, version: u32) {
    let _ = take_seq(state);
    state.ended_in_batch.clear();
    state.forget_charges();
    state.apply_version = version;
    if version >= 2 {
        state.retire();
    }
    let before = state.now;
    state.now = state.now.max(tick.now);
    state.drop_left_nodes();
    state.end_brakes();
    while state.stream.front().is_some_and(|s| s.number <= tick.delivered) {
        state.stream.pop_front();
    }
    if tick.resumed {
        restart_idle_clocks(state);
        restart_patience(state, before);
        if version >= 3 {
            resumed::run(state, before);
        }
        state.unobserved_cancels(state.now.since(before));
    }
    state.forget_old_cancels();
}

/// Idle clocks count observations: down time never reads as idle.
fn restart_idle_clocks(state: &mut State) {
    let now = state.now;
    state.observed.resumed(now);
    let idle: Vec<NodeId> = state.index.idle.iter().copied().collect();
    for id in idle {
        let due = now + state.idle_allowed(id);
        state.edit_node(id, |node| {
            node.idle_since = Some(now);
            node.due = due;
        });
    }
}

/// Neither does it read as a service without demand, or as a run whose end was not reported.
fn restart_patience(state: &mut State, before: Timestamp) {
    let (rules, now) = (state.lifecycle(), state.now);
    state.services.values_mut().for_each(|row| row.unobserved(&rules, before, now));
    let stopping = |job: &Job| matches!(job.phase, Phase::Stopping { .. }) && !job.hung;
    let open = state.index.open_jobs.iter().copied();
    let stopping: Vec<JobId> = open.filter(|id| stopping(&state.jobs[*id])).collect();
    for id in stopping {
        state.edit_job(id, |job| job.must_end_by = job.must_end_by.max(now + rules.hang_after));
    }
}

/// The position of the record that is being applied.
fn take_seq(state: &mut State) -> Seq {
    let seq = Seq(state.counters.next_seq);
    state.counters.next_seq += 1;
    seq
}

/// Appends a message to the status stream.
fn say(state: &mut State, job: JobId, kind: StatusKind, reason: Option<Reason>) {
    // A replica is nobody's job: its service speaks.
    if state.jobs[job].service.is_some() {
        return;
    }
    state.edit_job_quietly(job, |row| row.status_seq += 1);
    let (row, spec) = (&state.jobs[job], &state.specs[job]);
    let status = Status {
        number: state.counters.statuses + 1,
        at: state.now,
        tenant: spec.tenant.clone(),
        subject: spec.subject.clone(),
        job: Some(job),
        attempt: row.attempt,
        seq: row.status_seq,
        kind,
        reason,
        named: reason.and_then(|reason| state.named_by(reason)).map(String::into_boxed_str),
        run: said_of_a_run(kind).then(|| run_facts(state, job)).flatten(),
        labels: spec.labels.clone(),
    };
    push_status(state, status);
}

/// Whether a status is about a run.
fn said_of_a_run(kind: StatusKind) -> bool {
    !matches!(kind, StatusKind::Queued | StatusKind::Held | StatusKind::Rejected)
}

/// Where the run of a job is, or was as it ended.
fn run_facts(state: &State, id: JobId) -> Option<Box<RunFacts>> {
    let job = &state.jobs[id];
    if job.places.is_empty() {
        return job.last_run.clone().filter(|run| run.attempt == job.attempt);
    }
    let ids: BTreeSet<NodeId> = job.places.iter().map(|place| place.node).collect();
    let nodes = ids.iter().take(MOST_RUN_NODES).filter_map(|id| {
        let node = state.nodes.get(id)?;
        let offer = &state.offerings[node.offering.index()].offer;
        let (instance, instance_type) = (node.instance.clone(), offer.instance_type.clone());
        Some(RunNode { node: *id, instance, instance_type, capacity: offer.capacity })
    });
    let (nodes, more) = (nodes.collect(), ids.len().saturating_sub(MOST_RUN_NODES) as u32);
    Some(Box::new(RunFacts { attempt: job.attempt, nodes, more, exit_code: None }))
}

/// A message about a submission that never became a job.
fn say_refused(state: &mut State, spec: &JobSpec, reason: Reason) {
    let status = Status {
        number: state.counters.statuses + 1,
        at: state.now,
        tenant: spec.tenant.clone(),
        subject: spec.subject.clone(),
        job: None,
        attempt: Attempt(0),
        seq: 0,
        kind: StatusKind::Rejected,
        reason: Some(reason),
        named: state.named_by(reason).map(String::into_boxed_str),
        run: None,
        labels: spec.labels.clone(),
    };
    push_status(state, status);
}

fn push_status(state: &mut State, status: Status) {
    state.counters.statuses += 1;
    state.stream.push_back(status);
}

/// Gives a job's places and quota back.
fn vacate(state: &mut State, id: JobId, hold: Hold) {
    let job = &state.jobs[id];
    let (class, queue, pool, share) = (job.class, job.queue, job.pool, job.share);
    let places = job.places.clone();
    state.cost_out(id);
    state.release_places(id, class, &places, hold);
    if let Some(pool) = pool {
        state.give_quota_back(queue, pool, share);
    }
    state.edit_job(id, |job| {
        job.places.clear();
        job.numbers.clear();
        job.pool = None;
        job.share = crate::units::MilliGpu(0);
        job.backfill_for = None;
    });
}

/// A booked job loses its places before anything has started: it waits again, at no cost to it.
fn unbook(state: &mut State, id: JobId) {
    vacate(state, id, Hold::Booked);
    let now = state.now;
    state.edit_job(id, |job| {
        job.phase = Phase::Queued;
        job.since = now;
    });
}

/// Takes all booked jobs off a claim that will not take them.
fn unbook_all_on(state: &mut State, node: NodeId) {
    let Some(row) = state.nodes.get(&node) else {
        return;
    };
    let mut holds = row.holds.clone();
    holds.dedup();
    for job in holds {
        if state.jobs[job].phase == Phase::Booked {
            unbook(state, job);
        }
    }
}

/// No worker of a run is alive any more: its places and quota are free, and settle says what follows.
fn end_run(state: &mut State, id: JobId, how: Ending) {
    let how = with_work_done(state, id, how);
    state.note_ending(id, how);
    let job = &state.jobs[id];
    let done = how.is_done();
    // As in the bill. Up to version 2 so was what a service had served, and work that was done when its last worker was stopped.
    let lost_now = if state.apply_version < 3 { how != Ending::Completed } else { !done && job.service.is_none() };
    if lost_now {
        let lost = job.share.over(job.unsaved(state.now));
        state.ledger.lost += lost;
    }
    if done
        && let Some(since) = job.running_since
        && !(state.apply_version >= 3 && state.is_unseen() && since < state.resumed_at)
    {
        let lasted = job.resume_from + state.now.since(since);
        state.observed.completed(job.queue, &state.specs[id], lasted);
    }
    let worked = state.jobs[id].running_since.is_some();
    unload(state, id);
    let exit_code = match how {
        Ending::Completed => Some(0),
        Ending::Failed { code } | Ending::Stopped { cause: StopCause::Failed { code } } => Some(code),
        _ => None,
    };
    let last_run = run_facts(state, id).map(|run| Box::new(RunFacts { exit_code, ..*run }));
    vacate(state, id, Hold::Running);
    state.end_work(id, if worked && !done { WorkEnd::Lost } else { WorkEnd::Kept });
    let now = state.now;
    let reassess = events::reassessed_at(&state.specs[id], now);
    state.edit_job(id, |job| {
        job.reassess_at = reassess;
        job.phase = Phase::Ended { how };
        job.last_run = last_run;
        job.confirmed_dead.clear();
        job.since = now;
        job.effect = None;
        job.broken = None;
        job.idle_reported = None;
        job.running_since = None;
        job.workers_done.clear();
        job.hung = false;
        job.left.clear();
        job.leaving = None;
    });
}

/// How a run has ended. Once its criterion was met its work is done, whatever it was being stopped for and whatever took its last workers.
fn with_work_done(state: &State, id: JobId, how: Ending) -> Ending {
    let met = state.jobs[id].broken == Some(StopCause::Completed) && state.apply_version >= 3;
    if met && how != Ending::Completed { Ending::Stopped { cause: StopCause::Completed } } else { how }
}

/// A replica is no longer loaded.
fn unload(state: &mut State, id: JobId) {
    let now = state.now;
    let job = &state.jobs[id];
    let (Some(service), Some(since)) = (job.service, job.running_since) else { return };
    if let Some(row) = state.services.get_mut(&service) {
        row.unload(now);
    }
    if now.since(since) >= RECOVERED {
        state.edit_job_quietly(id, |job| job.failures = 0);
    }
}

/// Whether a claim is up or coming up.
fn may_become_ready(phase: NodePhase) -> bool {
    matches!(phase, NodePhase::Requested | NodePhase::Booting | NodePhase::Ready)
}
