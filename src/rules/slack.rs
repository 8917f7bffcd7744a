//! How long a job may wait for spot, and be on it, until its deadline takes it where it stays.
//!
//! ```text
//! move      boot of the cheapest on-demand that fits + restart + checkpoint grace
//! urgent    deadline - left - restart - 2 x (boot + grace)
//! line      urgent - one move for each hour of the work that is left
//! ```
//!
//! Never: looks at stock. Until when a job may wait does not depend on what it waits for.

use super::capacity::{is_bought_as, is_spot};
use super::demand;
use crate::ids::{JobId, OfferingId};
use crate::state::State;
use crate::state::jobs::Phase;
use crate::state::nodes::Node;
use crate::units::{Span, Timestamp};

/// Slack is kept for moves between spot and what stays: one for so much of the work that is left. Recorded spot (eight series of two weeks and more)
/// comes and goes about every three and a half hours, two moves each time, but often much sooner.
const MOVE_EVERY: Span = Span::mins(60);

/// How long it takes to get a job's work to capacity that stays.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MoveTime {
    /// Saving, and a boot of the cheapest that fits: where several pools have one, the longest of these.
    boot: Span,
    restart: Span,
}

impl MoveTime {
    pub(crate) fn of(state: &State, job: JobId) -> MoveTime {
        let (row, spec) = (&state.jobs[job], &state.specs[job]);
        let price = |id: &OfferingId| state.offerings[id.index()].offer.price;
        // Which of its pools it goes to depends on what they have then.
        let cheapest = |fits: &[OfferingId]| {
            let stays = fits.iter().filter(|id| is_bought_as(state, **id, false));
            stays.map(|id| (price(id), demand::boot_p90(state, *id))).min()
        };
        let pools = state.classes[row.class].fits.iter().filter_map(|(_, fits)| cheapest(fits));
        let boot = pools.map(|stays| stays.1).max().unwrap_or_default();
        MoveTime { boot: boot + spec.checkpoint.map_or(Span::ZERO, |c| c.grace), restart: spec.restart }
    }

    /// What one move costs.
    pub(crate) fn whole(self) -> Span {
        self.boot + self.restart
    }

    /// From when on a job with so much left has no time for another reclaim: for a move, and a second boot where the first one comes to nothing.
    pub(crate) fn urgent_at(self, deadline: Timestamp, left: Span) -> Timestamp {
        deadline - left - self.restart - self.boot.times(2)
    }

    /// Until when it waits for spot: what is left after the moves that the work left is expected to take is for waiting.
    pub(crate) fn line_at(self, deadline: Timestamp, left: Span) -> Timestamp {
        let kept = u128::from(self.whole().0) * u128::from(left.0) / u128::from(MOVE_EVERY.0);
        self.urgent_at(deadline, left) - Span(u64::try_from(kept).unwrap_or(u64::MAX))
    }
}

/// The deadline that a job is to meet, and how long its work is expected to take. `None`: it has none, or it is out of reach.
pub(crate) fn to_meet(state: &State, job: JobId) -> Option<(Timestamp, Span)> {
    let spec = &state.specs[job];
    spec.deadline.zip(spec.expected).filter(|_| !state.jobs[job].hopeless)
}

/// Whether a job that moves now saves on its new node before it is urgent there: a sooner move would end in another one. What its run has done is saved
/// with it.
pub(crate) fn has_time_to_move(state: &State, job: JobId) -> bool {
    let Some((deadline, expected)) = to_meet(state, job) else { return true };
    let (row, spec) = (&state.jobs[job], &state.specs[job]);
    let worked = row.running_since.map_or(Span::ZERO, |since| state.now.since(since) - spec.restart);
    let left = expected - row.progress.max(row.resume_from + worked);
    let saves = spec.checkpoint.map_or(Span::ZERO, |c| c.every);
    let takes = MoveTime::of(state, job);
    state.now + takes.whole() + saves < takes.urgent_at(deadline, left)
}

/// Whether a job runs, and nothing of it on spot. It is not taken back there, and loses no slack: no time that passes makes it urgent.
pub(crate) fn runs_where_it_stays(state: &State, job: JobId) -> bool {
    let row = &state.jobs[job];
    let stays = |node: &Node| !is_spot(state, node.offering);
    row.phase == Phase::Running && row.places.iter().all(|p| state.nodes.get(&p.node).is_none_or(stays))
}
