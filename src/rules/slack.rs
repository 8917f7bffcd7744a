//! How long a job may wait for spot, and be on it, until its deadline takes it where it stays.
//!
//! ```text
//! move      boot of the cheapest on-demand that fits + restart + checkpoint grace
//! urgent    deadline - left - restart - 2 x (boot + grace)
//! line      urgent - one move for each hour of the work that is left
//! ```
//!
//! Never: looks at stock. Until when a job may wait does not depend on what it waits for.

use super::demand;
use crate::catalog::CapacityType;
use crate::ids::{JobId, OfferingId};
use crate::state::State;
use crate::state::jobs::Phase;
use crate::state::nodes::Node;
use crate::units::{Span, Timestamp};

/// Slack is kept for moves between spot and what stays: one for so much of the work that is left. Recorded spot (eight series of two weeks and more)
/// comes and goes about every three and a half hours, two moves each time, but often much sooner.
const MOVE_EVERY: Span = Span::mins(60);

pub(crate) fn is_spot(state: &State, id: OfferingId) -> bool {
    state.offerings[id.index()].offer.capacity == CapacityType::Spot
}

/// Whether an offering is bought, as spot or as what stays. Owned nodes are not: others may hold them when they are needed.
pub(crate) fn is_bought_as(state: &State, id: OfferingId, spot: bool) -> bool {
    state.offerings[id.index()].offer.capacity != CapacityType::Owned && is_spot(state, id) == spot
}

/// What getting a job's work to capacity that stays takes: saving, and a boot of the cheapest that fits.
fn boot_time(state: &State, job: JobId) -> Span {
    let (row, spec) = (&state.jobs[job], &state.specs[job]);
    let fits = state.classes[row.class].fits.iter().flat_map(|f| &f.1);
    let price = |id: &OfferingId| state.offerings[id.index()].offer.price;
    let stays = fits.filter(|id| is_bought_as(state, **id, false)).map(|id| (price(id), demand::boot_p90(state, *id)));
    let boot = stays.min().map_or(Span::ZERO, |stays| stays.1);
    boot + spec.checkpoint.map_or(Span::ZERO, |c| c.grace)
}

/// What a move to capacity that stays costs in time.
pub(crate) fn move_time(state: &State, job: JobId) -> Span {
    boot_time(state, job) + state.specs[job].restart
}

/// From when on a job with so much left has no time for another reclaim: for a move, and a second boot where the first one comes to nothing.
pub(crate) fn urgent_at(state: &State, job: JobId, deadline: Timestamp, left: Span) -> Timestamp {
    deadline - left - state.specs[job].restart - boot_time(state, job).times(2)
}

/// Until when it waits for spot: what is left after the moves that the work left is expected to take is for waiting.
pub(crate) fn line_at(state: &State, job: JobId, deadline: Timestamp, left: Span) -> Timestamp {
    let kept = u128::from(move_time(state, job).0) * u128::from(left.0) / u128::from(MOVE_EVERY.0);
    urgent_at(state, job, deadline, left) - Span(u64::try_from(kept).unwrap_or(u64::MAX))
}

/// Whether a job has a deadline that it is to meet.
pub(crate) fn is_dated(state: &State, job: JobId) -> bool {
    let (row, spec) = (&state.jobs[job], &state.specs[job]);
    spec.deadline.is_some() && spec.expected.is_some() && !row.hopeless
}

/// Whether a job that moves now saves on its new node before it is urgent there: a sooner move would end in another one. What its run has done is saved
/// with it.
pub(crate) fn has_time_to_move(state: &State, job: JobId) -> bool {
    let (row, spec) = (&state.jobs[job], &state.specs[job]);
    let (Some(deadline), Some(expected), false) = (spec.deadline, spec.expected, row.hopeless) else { return true };
    let worked = row.running_since.map_or(Span::ZERO, |since| state.now.since(since) - spec.restart);
    let left = expected - row.progress.max(row.resume_from + worked);
    let saves = spec.checkpoint.map_or(Span::ZERO, |c| c.every);
    state.now + move_time(state, job) + saves < urgent_at(state, job, deadline, left)
}

/// Whether a job runs, and nothing of it on spot. It is not taken back there, and loses no slack: no time that passes makes it urgent.
pub(crate) fn runs_where_it_stays(state: &State, job: JobId) -> bool {
    let row = &state.jobs[job];
    let stays = |node: &Node| !is_spot(state, node.offering);
    row.phase == Phase::Running && row.places.iter().all(|p| state.nodes.get(&p.node).is_none_or(stays))
}
