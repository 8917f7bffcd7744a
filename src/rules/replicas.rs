//! How many replicas services are to have, which stand, and which of them is given back first.
//!
//! Never: counts a replica that is being given back.

use crate::decision::StopCause;
use crate::ids::JobId;
use crate::state::State;
use crate::state::jobs::{Job, Phase};
use crate::state::places::nodes_of;
use crate::units::{Rate, Timestamp};
use alloc::vec::Vec;
use core::cmp::Reverse;

/// How readily a replica is given back: the least first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Grade {
    /// Holds nothing.
    Waits,
    /// Being stopped for something else: it is given back when it waits again.
    BeingStopped,
    /// Holds places where nothing has started.
    Booked,
    /// Being started or running.
    Runs,
}

/// What a replica is judged by: the least is given back first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Standing {
    pub grade: Grade,
    /// The dearest first.
    price: Reverse<Rate>,
    /// The youngest first.
    since: Reverse<Timestamp>,
    replica: Reverse<JobId>,
}

impl Standing {
    pub(crate) fn replica(&self) -> JobId {
        self.replica.0
    }
}

/// Whether some service has not the replicas that it is to have.
pub(crate) fn due(state: &State) -> bool {
    let differs = |service: &JobId| standing(state, *service).len() != wanted(state, *service);
    state.services.keys().any(differs)
}

/// How many replicas a service is to have now.
pub(crate) fn wanted(state: &State, service: JobId) -> usize {
    let Some(row) = state.services.get(&service).filter(|_| !state.jobs[service].cancel_asked) else {
        return 0;
    };
    row.wanted(&state.lifecycle(), state.now) as usize
}

/// The replicas of a service but those that are being given back.
pub(crate) fn standing(state: &State, service: JobId) -> Vec<Standing> {
    let of = |id: JobId| {
        let job = &state.jobs[id];
        let price = nodes_of(&job.places).into_iter().filter_map(|n| state.nodes.get(&n)).map(|n| n.price);
        let price = price.fold(Rate(0), |a, b| a + b);
        let since = job.running_since.unwrap_or(Timestamp::NEVER);
        Some(Standing { grade: grade(job)?, price: Reverse(price), since: Reverse(since), replica: Reverse(id) })
    };
    state.replicas(service).filter_map(of).collect()
}

fn grade(job: &Job) -> Option<Grade> {
    match job.phase {
        Phase::Stopping { cause: StopCause::Scaled, .. } | Phase::Done { .. } => None,
        Phase::Stopping { .. } => Some(Grade::BeingStopped),
        Phase::Booked => Some(Grade::Booked),
        Phase::Starting | Phase::Running => Some(Grade::Runs),
        Phase::New | Phase::BackingOff { .. } | Phase::Queued | Phase::Ended { .. } | Phase::Serving | Phase::Held => {
            Some(Grade::Waits)
        }
    }
}
