//! Who is not stopped for what stock may refuse: a run that began after it had been refused, or that has been interrupted before.
//!
//! Never: what else keeps a run from being stopped. That is protection's and the rank's.

use super::Lack;
use super::search::Way;
use crate::ids::{JobId, OfferingId};
use crate::rules::rank::Taker;
use crate::rules::supply::{self, Doubt};
use crate::rules::timing;
use crate::state::State;
use crate::state::jobs::Phase;
use crate::units::{Span, Timestamp};
use alloc::vec::Vec;

/// Runs that are not stopped for the rest of a gang that would have to be bought: they began after stock had refused it. Who was stopped for such a purchase
/// once, and has come back because it was refused too, is left alone: where all of the gang is asked for at once meanwhile until some of it is had, and else
/// for a time that grows with each refusal.
pub(super) fn stopped_for_nothing(state: &State, taker: &Taker, lack: Lack, way: &Way) -> Vec<JobId> {
    if !way.places.is_empty() {
        return Vec::new();
    }
    let asked_anyway = if lack == Lack::Room { supply::refused_since(state, taker.class, taker.pool) } else { None };
    let spared = |job: &JobId| {
        let stays = asked_anyway.is_some_and(|refused| began(state, *job) > Some(refused));
        stays || way.doubt.is_some_and(|doubt| is_left_alone(state, *job, doubt))
    };
    way.runs().filter(spared).collect()
}

/// A run that was interrupted is left alone for so long after the first time; it doubles with each up to the second of these.
const AFTER_INTERRUPTIONS: (Span, Span) = (Span::mins(1), Span::mins(360));

/// Whether a run is left alone by who needs what there is doubt about: it began after that was refused, and has not gone on for as long as stock had refused then; or
/// it has been interrupted before, and has not gone on for a time that doubles with each interruption. So it has longer each time that it is stopped in vain,
/// also where less is had in between.
fn is_left_alone(state: &State, job: JobId, doubt: Doubt) -> bool {
    let Some(began) = began(state, job) else { return false };
    let as_refused = doubt.refused.filter(|refused| began > *refused).map(|refused| began.since(refused));
    let (first, longest) = AFTER_INTERRUPTIONS;
    let times = state.jobs[job].interruptions;
    let as_interrupted = times.checked_sub(1).map(|more| first.doubled(more, longest));
    as_refused.max(as_interrupted).is_some_and(|alone| timing::looked_at(state) < began + alone)
}

/// Whether one of some runs is left alone, because there is doubt about what is bought in its stead.
pub(super) fn is_in_vain(state: &State, runs: impl IntoIterator<Item = JobId>, bought: &[(OfferingId, u32)]) -> bool {
    let doubt = supply::doubt_of(state, bought);
    doubt.is_some_and(|doubt| runs.into_iter().any(|job| is_left_alone(state, job, doubt)))
}

/// When a run began, or was told to. `None`: it only has its places booked.
fn began(state: &State, job: JobId) -> Option<Timestamp> {
    let row = &state.jobs[job];
    (row.phase != Phase::Booked).then(|| row.running_since.unwrap_or(row.since))
}
