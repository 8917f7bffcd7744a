//! Workers of an elastic gang that are gone while the rest of it goes on.
//!
//! ```text
//! RunShrunk, NodeGone -> places, share, quota of the gone are free -> the rest keeps its numbers
//!                                                                  -> or: all that are left have finished
//! ```
//!
//! Never: ends a run with a worker alive. Who was asked to leave holds its place until it is known to be gone.

use super::{end_run, events};
use crate::decision::StopCause;
use crate::event::EventOutcome;
use crate::ids::{Attempt, JobId, NodeId};
use crate::reason::Reason;
use crate::state::State;
use crate::state::jobs::{Ending, Phase};
use crate::state::places::{Hold, share_of};
use alloc::vec::Vec;

/// Workers have left a run. Said again, or after the run has ended, it says nothing new.
pub(super) fn shrunk(
    state: &mut State,
    id: JobId,
    attempt: Attempt,
    left: &[u32],
    blame: Option<NodeId>,
) -> EventOutcome {
    let known = state.jobs.get(id).filter(|job| job.attempt == attempt && job.phase == Phase::Running);
    let gone: Vec<u32> =
        known.map_or(Vec::new(), |job| job.numbers.iter().copied().filter(|n| left.contains(n)).collect());
    if gone.is_empty() {
        return events::ignore(state);
    }
    if let Some(node) = blame {
        let _ = events::blamed(state, id, node);
    }
    if state.jobs[id].goes_on_without(&state.specs[id], &gone) {
        drop_workers(state, id, &gone);
        return EventOutcome::Applied;
    }
    // Too few are left: what is gone is let go with the rest of it, when that has stopped.
    state.edit_job(id, |job| {
        if job.broken.is_none() {
            job.broken = Some(StopCause::NodeLost);
        }
    });
    EventOutcome::Applied
}

/// Lets go of what gone workers held. The run goes on with the rest, or is completed if all of that has finished.
pub(super) fn drop_workers(state: &mut State, id: JobId, gone: &[u32]) {
    let job = &state.jobs[id];
    let (class, queue, pool) = (job.class, job.queue, job.pool);
    let workers = job.places.iter().zip(&job.numbers);
    let places: Vec<_> = workers.filter(|(_, n)| gone.contains(n)).map(|(place, _)| place.clone()).collect();
    let share = share_of(&places);
    state.cost_out(id);
    state.release_places(id, class, &places, Hold::Running);
    if let Some(pool) = pool {
        state.give_quota_back(queue, pool, share);
    }
    state.edit_job(id, |job| {
        let mut stays = job.numbers.iter().map(|n| !gone.contains(n)).collect::<Vec<_>>().into_iter();
        job.places.retain(|_| stays.next().unwrap_or(true));
        job.numbers.retain(|n| !gone.contains(n));
        job.workers_done.retain(|n| !gone.contains(n));
        job.left.extend(gone);
        job.left.sort_unstable();
        job.share = job.share - share;
        if !job.leaving().iter().any(|n| job.numbers.contains(n)) {
            job.leaving = None;
            job.effect = None;
            job.reason = Some(Reason::Shrunk { workers: job.numbers.len() as u32 });
        }
    });
    state.cost_in(id);
    if state.jobs[id].all_finished() {
        end_run(state, id, Ending::Completed);
    }
}
