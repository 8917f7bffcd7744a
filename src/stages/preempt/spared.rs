//! Who is not stopped for what stock refuses: a run that began after the refusals had, for what cannot be had without it.
//!
//! Never: what else keeps a run from being stopped. That is protection's and the rank's.

use super::Lack;
use super::search::Way;
use crate::ids::{JobId, OfferingId};
use crate::rules::rank::Taker;
use crate::rules::{supply, timing};
use crate::state::State;
use crate::state::jobs::Phase;
use crate::units::Timestamp;
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
        stays || way.refused.is_some_and(|refused| is_left_alone(state, *job, refused))
    };
    way.runs().filter(spared).collect()
}

/// Whether a run is left alone by who needs what has been refused since then: it began after that, and has not gone on for as long as stock had refused then.
/// So it has longer each time that it is stopped in vain.
fn is_left_alone(state: &State, job: JobId, refused: Timestamp) -> bool {
    let alone = |began: Timestamp| began + began.since(refused);
    began(state, job).is_some_and(|began| began > refused && timing::looked_at(state) < alone(began))
}

/// Whether one of some runs is left alone, because what is bought in its stead has been refused.
pub(super) fn is_in_vain(state: &State, runs: impl IntoIterator<Item = JobId>, bought: &[(OfferingId, u32)]) -> bool {
    let refused = supply::last_refused(state, bought.iter().map(|(id, _)| *id));
    refused.is_some_and(|refused| runs.into_iter().any(|job| is_left_alone(state, job, refused)))
}

/// When a run began, or was told to. `None`: it only has its places booked.
fn began(state: &State, job: JobId) -> Option<Timestamp> {
    let row = &state.jobs[job];
    (row.phase != Phase::Booked).then(|| row.running_since.unwrap_or(row.since))
}
