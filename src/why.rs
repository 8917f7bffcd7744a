//! Why jobs are where they are: by class for the report of a pass, and for one job when somebody asks.
//!
//! Never: decides anything.

use crate::engine::Engine;
use crate::ids::{ClassId, JobId};
use crate::memo::Parked;
use crate::reason::Reason;
use crate::rules::{allowances, feasibility, protection, quota, reservations, settings, start_targets, supply};
use crate::state::State;
use crate::state::brakes::Brake;
use crate::state::index::OrderKey;
use crate::state::jobs::Phase;
use alloc::vec::Vec;

/// The classes that were told no, with the reasons of their heads. A head that became one since and may wait has a reason of its own.
pub(crate) fn waiting(engine: &Engine) -> Vec<(ClassId, Reason)> {
    let of = |class: ClassId| {
        let head = engine.state.index.first_queued(class)?.job;
        let Some(parked) = told(engine, class) else { return Some((class, as_one_before(&engine.state, head)?)) };
        let reason = match start_targets::reason_to_wait(&engine.state, head) {
            Some(waits) if parked.reason.by_design() => waits,
            None if parked.reason.by_design() => return None,
            _ => kept(&engine.state, head).unwrap_or_else(|| exactly(&engine.state, class, parked.reason)),
        };
        Some((class, reason))
    };
    engine.memo.parked.at(engine.state.capacity_epoch).filter_map(of).collect()
}

/// A ceiling that keeps a job from what its budget would pay for, as prices have become, is told with both figures.
fn exactly(state: &State, class: ClassId, reason: Reason) -> Reason {
    if let Reason::OwnedNodesFull { pool, .. } = reason {
        // What others hold changes, and nobody is asked again where they take more.
        return supply::owned_full(state, pool).unwrap_or(reason);
    }
    if state.budgets.none() || !matches!(reason, Reason::Ceiling { .. }) {
        return reason;
    }
    let never = feasibility::class_impossible(state, class).map(feasibility::Impossible::reason);
    never.filter(|never| matches!(never, Reason::BeyondBudget { .. })).unwrap_or(reason)
}

/// Why a job is where it is.
pub(crate) fn why(engine: &Engine, id: JobId) -> Option<Reason> {
    let job = engine.state.jobs.get(id)?;
    match job.phase {
        Phase::New => None,
        Phase::BackingOff { until } => {
            let denied = job.reason.filter(|reason| matches!(reason, Reason::ClusterQuota { .. }));
            Some(denied.unwrap_or(Reason::BackOff { until }))
        }
        Phase::Queued => Some(why_queued(engine, id)),
        Phase::Booked => Some(Reason::AwaitingNodes { eta: supply::eta_as_told(&engine.state, id) }),
        Phase::Starting => Some(Reason::Starting),
        Phase::Serving => why_serving(engine, id),
        Phase::Running | Phase::Stopping { .. } | Phase::Ended { .. } | Phase::Held | Phase::Done { .. } => job.reason,
    }
}

/// Why a job waits for which something is kept: places, or quota and money.
fn kept(state: &State, job: JobId) -> Option<Reason> {
    reservations::reason(state, job).or_else(|| allowances::reason(state, job))
}

/// Why a job waits that an operator keeps from being admitted.
fn held_back(state: &State, job: JobId) -> Option<Reason> {
    let queue = state.jobs.get(job).filter(|_| state.is_held_back(job))?.queue;
    let (brake, order) = state.queue_brake(queue)?;
    let until = order.until;
    Some(if *brake == Brake::Admission { Reason::AdmissionPaused { until } } else { Reason::QueueHeld { until } })
}

/// A service with a loaded replica needs no reason; another has its first replica's.
fn why_serving(engine: &Engine, id: JobId) -> Option<Reason> {
    let loaded = engine.state.services.get(&id).is_some_and(|row| row.loaded > 0);
    let first = engine.state.replicas(id).next().filter(|_| !loaded)?;
    why(engine, first)
}

/// The head of a class queue has the reason of its class; those behind it have their position.
fn why_queued(engine: &Engine, id: JobId) -> Reason {
    let job = &engine.state.jobs[id];
    if let Some(held) = held_back(&engine.state, id) {
        return held;
    }
    let paused = engine.state.brake(&Brake::Preemption).filter(|_| engine.memo.would_preempt.contains(&id));
    if let Some(order) = paused {
        return Reason::PreemptionPaused { until: order.until };
    }
    let victims = if job.kept.is_some() { protection::stopping_for(&engine.state, id) } else { 0 };
    if victims > 0 || job.reserved_until.is_some_and(|until| until > engine.state.now) {
        return Reason::WaitingForPreemption { victims: protection::stopping_for(&engine.state, id) };
    }
    let waits = start_targets::reason_to_wait(&engine.state, id);
    if let Some(kept) = kept(&engine.state, id).filter(|_| waits.is_none()) {
        return kept;
    }
    let key = OrderKey::of(job, engine.state.index.ageing);
    let in_front = engine.state.index.position(job.class, &key);
    let parked = told(engine, job.class).filter(|_| in_front == 0);
    match (parked, waits) {
        (Some(parked), None) => exactly(&engine.state, job.class, parked.reason),
        (Some(parked), Some(_)) if parked.head == id && !parked.reason.by_design() => parked.reason,
        (_, Some(waits)) => waits,
        (None, None) => {
            let own = if in_front == 0 { as_one_before(&engine.state, id) } else { None };
            own.unwrap_or(Reason::BehindInQueue { position: in_front as u32 + 1 })
        }
    }
}

/// What a class was told. `None`: it was not asked, for one before it in its line was told no. What it was told before may have been until a time
/// that is past.
fn told(engine: &Engine, class: ClassId) -> Option<&Parked> {
    let parked = engine.memo.parked.get(class)?;
    let holds = parked.reason.ask_again_at().is_none_or(|at| at > engine.state.now);
    (parked.capacity_epoch == engine.state.capacity_epoch && holds).then_some(parked)
}

/// Why a job waits that was not asked, for one before it asks no more and was told no: what it would be told itself.
fn as_one_before(state: &State, id: JobId) -> Option<Reason> {
    let class = state.jobs[id].class;
    let no = |pool| {
        let share = allowances::no_share(state, id, pool).map(|no| quota::as_told(state, class, pool, no));
        share.or_else(|| supply::refusal(state, id, pool))
    };
    settings::pools(state, class).filter_map(no).reduce(Reason::or_more).map(|reason| exactly(state, class, reason))
}
