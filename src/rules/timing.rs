//! When a pass is due although no event has entered.
//!
//! Never: a timer of its own. The driver asks [`crate::engine::Engine::poll_timeout`] and opens a batch then.

use super::{floors, start_targets};
use crate::ids::{JobId, PoolId};
use crate::policy::Pool;
use crate::state::State;
use crate::units::{Span, Timestamp};

/// When the next reservation begins.
pub(crate) fn reservation_due(state: &State) -> Option<Timestamp> {
    let allowances = state.allowances().values().map(|kept| kept.from);
    let from = state.reservations.values().map(|a| a.from).chain(allowances);
    from.filter(|from| *from > state.now).min()
}

/// When what happened while nobody watched is known.
pub(crate) fn seen_at(state: &State) -> Option<Timestamp> {
    state.is_unseen().then(|| state.unseen_until())
}

/// When running work is reviewed next, to move it. `None`: there is none, or it is never moved.
pub(crate) fn consolidation_due(state: &State) -> Option<Timestamp> {
    let rules = state.policy.as_deref()?.consolidation;
    (rules.worth_it > 0 && !state.index.running.is_empty()).then_some(state.consolidate_at)
}

/// Whether a pool has fewer ready or coming nodes to spare than its floor asks for.
pub(crate) fn floor_short(state: &State) -> bool {
    let pools = state.policy.as_deref().map_or(&[][..], |p| &p.pools);
    let short = |(at, pool): (usize, &Pool)| {
        let floor = pool.filled_below(state.now);
        floor > 0 && floors::filled_or_lent(state, PoolId(at as u16), floor) < floor
    };
    pools.iter().enumerate().any(short)
}

/// While there is doubt about any stock, who may be stopped for it is looked at again at each multiple of this.
const LOOKS_AGAIN: Span = Span::mins(10);

/// When it was last looked at who may be stopped for what there is doubt about.
pub(crate) fn looked_at(state: &State) -> Timestamp {
    Timestamp(state.now.0 - state.now.0 % LOOKS_AGAIN.0)
}

/// The same, where there is any.
fn looked(state: &State) -> Option<Timestamp> {
    let doubt = state.offerings.iter().any(|offering| offering.blocked_by.is_some() || offering.is_probed());
    doubt.then(|| looked_at(state))
}

/// When time alone next changes something that could help a job that waits: stock is tried again, a run may be stopped.
pub(crate) fn wakes_at(state: &State) -> Option<Timestamp> {
    if state.index.queued.is_empty() && !floor_short(state) && !start_targets::any_comes_late(state) {
        return None;
    }
    let after = Timestamp(state.now.0.saturating_add(1));
    let protection_end = state.index.protection_ends.range((after, JobId(0))..).next().map(|g| g.0);
    let stock = state.offerings.iter().map(|o| o.blocked_until).filter(|at| *at > state.now).min();
    let looks = looked(state).map(|at| at + LOOKS_AGAIN);
    protection_end.into_iter().chain(stock).chain(looks).min()
}

/// When time alone last changed something of that kind.
pub(crate) fn woke_at(state: &State) -> Timestamp {
    let now = (state.now, JobId(u64::MAX));
    let protection_end = state.index.protection_ends.range(..=now).next_back().map(|g| g.0);
    let stock = state.offerings.iter().map(|o| o.blocked_until).filter(|at| *at <= state.now).max();
    protection_end.into_iter().chain(stock).chain(looked(state)).max().unwrap_or_default()
}

/// The pause before an effect without an outcome is released again: 30 s, doubling, at most 5 min.
pub(crate) fn repeat_pause(first: Span, tries: u32) -> Span {
    first.doubled(tries.saturating_sub(1), Span::mins(5))
}
