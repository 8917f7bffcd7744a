//! scale: services have as many replicas as their demand takes.
//!
//! ```text
//! wanted (state::services) > replicas  ->  Replicate: a job of its own that books, starts and is preempted like any other
//! wanted < replicas                    ->  Finish what waits, then what is booked; Stop what costs most, the youngest first
//! cancelled                            ->  wanted is 0; with the last replica gone the service is over
//! ```
//!
//! Never: places anything, buys anything, or stops a replica that is being stopped already.

use crate::decision::{Decision, Outcome, StopCause};
use crate::engine::Engine;
use crate::ids::JobId;
use crate::moves;
use crate::plan::PlanReport;
use crate::reason::Reason;
use crate::rules::replicas::{self, Grade};
use crate::state::jobs::Phase;
use alloc::vec::Vec;

/// Runs the stage.
pub(crate) fn run(engine: &mut Engine, report: &mut PlanReport) {
    let services: Vec<JobId> = engine.state.services.keys().copied().collect();
    for service in services {
        if engine.state.jobs[service].phase == Phase::Serving {
            balance(engine, service, report);
        }
    }
}

fn balance(engine: &mut Engine, service: JobId, report: &mut PlanReport) {
    let wanted = replicas::wanted(&engine.state, service);
    let mut standing = replicas::standing(&engine.state, service);
    for _ in standing.len()..wanted {
        report.settled += 1;
        engine.decide(Decision::Replicate { service });
    }
    standing.sort_unstable();
    let too_many = standing.len().saturating_sub(wanted);
    for one in standing.into_iter().take(too_many) {
        report.settled += 1;
        give_back(engine, one.replica(), one.grade);
    }
    let cancelled = engine.state.jobs[service].cancel_asked;
    if cancelled && engine.state.replicas(service).next().is_none() {
        let (outcome, reason) = (Outcome::Cancelled, Some(Reason::Asked));
        engine.decide(Decision::Finish { job: service, outcome, reason });
    }
}

fn give_back(engine: &mut Engine, replica: JobId, grade: Grade) {
    match grade {
        Grade::BeingStopped => {}
        Grade::Runs => moves::stop(engine, replica, StopCause::Scaled),
        Grade::Waits | Grade::Booked => {
            let (outcome, reason) = (Outcome::Completed, Some(Reason::Scaled));
            engine.decide(Decision::Finish { job: replica, outcome, reason });
        }
    }
}
