//! serve: services have as many replicas as their demand takes. Part of settle.
//!
//! ```text
//! wanted (state::services) > replicas  ->  Replicate: a job of its own that books, starts and is preempted like any other
//! wanted < replicas                    ->  Finish what waits, then what is booked; Stop what costs most, the youngest first
//! cancelled                            ->  wanted is 0; with the last replica gone the service is over
//! ```
//!
//! Never: places anything, buys anything, or stops a replica that is being stopped already.

use super::settle;
use crate::decision::{Decision, Outcome, StopCause};
use crate::engine::Engine;
use crate::ids::JobId;
use crate::plan::PlanReport;
use crate::reason::Reason;
use crate::state::State;
use crate::state::jobs::{Job, Phase};
use crate::state::places::nodes_of;
use crate::units::{Millis, Rate};
use alloc::vec::Vec;
use core::cmp::Reverse;

/// How readily a replica is given back: the least first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Grade {
    /// Holds nothing.
    Waits,
    /// Being stopped for something else: it is given back when it waits again.
    BeingStopped,
    /// Holds places where nothing has started.
    Booked,
    /// Being started or running.
    Runs,
}

/// What a replica is judged by.
type Standing = (Grade, Reverse<Rate>, Reverse<Millis>, Reverse<JobId>);

/// Runs the stage.
pub(super) fn run(engine: &mut Engine, report: &mut PlanReport) {
    let services: Vec<JobId> = engine.state.services.keys().copied().collect();
    for service in services {
        if engine.state.jobs[service.ix()].phase == Phase::Serving {
            balance(engine, service, report);
        }
    }
}

/// Whether some service has not the replicas that it is to have.
pub(crate) fn due(state: &State) -> bool {
    let differs = |service: &JobId| standing(state, *service).len() != wanted(state, *service);
    state.services.keys().any(differs)
}

fn balance(engine: &mut Engine, service: JobId, report: &mut PlanReport) {
    let wanted = wanted(&engine.state, service);
    let mut standing = standing(&engine.state, service);
    for _ in standing.len()..wanted {
        report.settled += 1;
        engine.decide(Decision::Replicate { service });
    }
    standing.sort_unstable();
    let too_many = standing.len().saturating_sub(wanted);
    for (grade, _, _, Reverse(replica)) in standing.into_iter().take(too_many) {
        report.settled += 1;
        give_back(engine, replica, grade);
    }
    let cancelled = engine.state.jobs[service.ix()].cancel_asked;
    if cancelled && engine.state.replicas(service).next().is_none() {
        let (outcome, reason) = (Outcome::Cancelled, Some(Reason::Asked));
        engine.decide(Decision::Finish { job: service, outcome, reason });
    }
}

fn give_back(engine: &mut Engine, replica: JobId, grade: Grade) {
    match grade {
        Grade::BeingStopped => {}
        Grade::Runs => settle::stop(engine, replica, StopCause::Scaled),
        Grade::Waits | Grade::Booked => {
            let (outcome, reason) = (Outcome::Completed, Some(Reason::Scaled));
            engine.decide(Decision::Finish { job: replica, outcome, reason });
        }
    }
}

fn wanted(state: &State, service: JobId) -> usize {
    let Some(row) = state.services.get(&service).filter(|_| !state.jobs[service.ix()].cancel_asked) else {
        return 0;
    };
    row.wanted(&state.lifecycle(), state.now) as usize
}

/// The replicas of a service but those that are being given back.
fn standing(state: &State, service: JobId) -> Vec<Standing> {
    let of = |id: JobId| {
        let job = &state.jobs[id.ix()];
        let price = nodes_of(&job.places).into_iter().filter_map(|n| state.nodes.get(&n)).map(|n| n.price);
        let price = price.fold(Rate(0), |a, b| a + b);
        Some((grade(job)?, Reverse(price), Reverse(job.running_since.unwrap_or(Millis::NEVER)), Reverse(id)))
    };
    state.replicas(service).filter_map(of).collect()
}

fn grade(job: &Job) -> Option<Grade> {
    match job.phase {
        Phase::Stopping { cause: StopCause::Scaled, .. } | Phase::Done { .. } => None,
        Phase::Stopping { .. } => Some(Grade::BeingStopped),
        Phase::Booked => Some(Grade::Booked),
        Phase::Starting | Phase::Running => Some(Grade::Runs),
        Phase::New | Phase::BackingOff { .. } | Phase::Queued | Phase::Ended { .. } | Phase::Serving => {
            Some(Grade::Waits)
        }
    }
}
