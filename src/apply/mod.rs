//! Apply: the only thing that changes state. Ticks and events bring facts, decisions bring what was decided on them.
//!
//! ```text
//! tick     -> time, delivered statuses
//! event    -> facts.rs     what happened outside
//! decision -> decided.rs   what a stage decided, and the effect that it frees
//! ```
//!
//! Never: fails, and never decides. What does not fit the state (a report of an old attempt, an unknown instance) is counted and
//! ignored. The meaning of a record is frozen: see `journal::APPLY_VERSION`.

mod decided;
mod facts;

pub(crate) use decided::decision;
pub(crate) use facts::event;

use crate::effect::{Status, StatusKind};
use crate::event::Tick;
use crate::ids::{Attempt, JobId, NodeId, Seq};
use crate::job::JobSpec;
use crate::reason::Reason;
use crate::state::State;
use crate::state::jobs::{Ending, Phase};
use crate::state::nodes::NodePhase;
use alloc::vec::Vec;

/// Opens a batch.
pub(crate) fn tick(state: &mut State, tick: Tick) {
    let _ = take_seq(state);
    state.now = state.now.max(tick.now);
    while state.stream.front().is_some_and(|s| s.number <= tick.delivered) {
        state.stream.pop_front();
    }
    if tick.resumed {
        restart_idle_clocks(state);
    }
}

/// Idle clocks count observations: down time never reads as idle.
fn restart_idle_clocks(state: &mut State) {
    let now = state.now;
    let idle: Vec<NodeId> = state.ix.idle.iter().copied().collect();
    for id in idle {
        let due = now + state.idle_allowed(id);
        state.edit_node(id, |node| {
            node.idle_since = Some(now);
            node.due = due;
        });
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
    state.edit_job_quietly(job, |row| row.status_seq += 1);
    let (row, spec) = (&state.jobs[job.ix()], &state.specs[job.ix()]);
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
    };
    push_status(state, status);
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
    };
    push_status(state, status);
}

fn push_status(state: &mut State, status: Status) {
    state.counters.statuses += 1;
    state.stream.push_back(status);
}

/// Gives a job's places and quota back.
fn vacate(state: &mut State, id: JobId, running: bool) {
    let job = &state.jobs[id.ix()];
    let (class, queue, pool, share) = (job.class, job.queue, job.pool, job.share);
    let places = job.places.clone();
    state.let_go(id, class, &places, running);
    if let Some(pool) = pool {
        state.give_quota_back(queue, pool, share);
    }
    state.edit_job(id, |job| {
        job.places.clear();
        job.pool = None;
        job.share = crate::units::MilliGpu(0);
        job.backfill_for = None;
    });
}

/// A booked job loses its places before anything has started: it waits again, at no cost to it.
fn unbook(state: &mut State, id: JobId) {
    vacate(state, id, false);
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
        if state.jobs[job.ix()].phase == Phase::Booked {
            unbook(state, job);
        }
    }
}

/// No worker of a run is alive any more: its places and quota are free, and settle says what follows.
fn end_run(state: &mut State, id: JobId, how: Ending) {
    let job = &state.jobs[id.ix()];
    if !matches!(how, Ending::Completed) {
        let lost = job.share.over(job.unsaved(state.now));
        state.ledger.lost += lost;
    }
    vacate(state, id, true);
    let now = state.now;
    let hasten = facts::hastens(&state.specs[id.ix()], now);
    state.edit_job(id, |job| {
        job.hasten_at = hasten;
        job.phase = Phase::Ended { how };
        job.since = now;
        job.effect = None;
        job.broken = None;
        job.idle_reported = None;
        job.running_since = None;
        job.workers_done.clear();
    });
}

/// Whether a claim is up or coming up.
fn may_become_ready(phase: NodePhase) -> bool {
    matches!(phase, NodePhase::Requested | NodePhase::Booting | NodePhase::Ready)
}
