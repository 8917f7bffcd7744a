//! What reservations mean for all other jobs: which are let in, which nodes stay, what counts as taken.
//!
//! Never: makes one, or gives one up.

use super::{demand, settings};
use crate::ids::{JobId, PoolId};
use crate::policy::Buys;
use crate::reason::Reason;
use crate::state::index::OrderKey;
use crate::state::nodes::{Node, NodePhase};
use crate::state::reservations::Reservation;
use crate::state::{Held, State};
use crate::units::Span;

/// Whether a node takes a job as far as reservations ahead go: it is not kept, or not from this job, or the job will be gone in time.
pub(crate) fn lets_in(state: &State, node: &Node, job: JobId) -> bool {
    let Some(reservation) = state.reservations.get(&node.pool).filter(|a| a.nodes.binary_search(&node.id).is_ok())
    else {
        return true;
    };
    if reservation.job == job || before(state, job, reservation.job) {
        return true;
    }
    // Unknown, or its estimate is used up already: no promise that it ends in time.
    let lasts = demand::remaining_p90(state, job).filter(|span| *span > Span::ZERO);
    node.phase == NodePhase::Ready && lasts.is_some_and(|span| state.now + span <= reservation.from)
}

/// What is held against the ceilings as one who asks has to see it: room kept for a gang before it counts as taken.
pub(crate) fn held(state: &State, pool: PoolId, asker: Option<JobId>) -> (Held, Held) {
    let mut all = state.totals.all;
    let mut own = state.totals.pools.get(pool.index()).copied().unwrap_or_default();
    for (at, reservation) in state.reservations.iter().filter(|(_, a)| !a.room.is_empty()) {
        if asker.is_some_and(|job| job == reservation.job || before(state, job, reservation.job)) {
            continue;
        }
        // What still has to leave holds a part of the room until it does.
        let more = state.held_by(&reservation.room).less(state.held_on(&reservation.nodes));
        all = all.plus(more);
        if *at == pool {
            own = own.plus(more);
        }
    }
    (all, own)
}

/// Whether an idle node stays because a gang will go on it. A tier that buys nothing keeps no node either.
pub(crate) fn keeps(state: &State, node: &Node) -> bool {
    let keeps = |a: &Reservation| {
        let tier = state.jobs[a.job].tier;
        let buys = settings::tier(state, tier).map_or(Buys::Nothing, |t| t.buys);
        buys != Buys::Nothing && a.room.is_empty() && a.nodes.binary_search(&node.id).is_ok()
    };
    state.reservations.get(&node.pool).is_some_and(keeps)
}

/// Whether an idle node is given back at once, because its room is kept for a gang.
pub(crate) fn vacates(state: &State, node: &Node) -> bool {
    let of = |a: &Reservation| !a.room.is_empty() && a.nodes.binary_search(&node.id).is_ok();
    state.reservations.get(&node.pool).is_some_and(of)
}

/// Whether nodes of a pool are given back so that a gang finds room.
pub(crate) fn makes_room(state: &State, pool: PoolId) -> bool {
    state.reservations.get(&pool).is_some_and(|a| !a.room.is_empty())
}

/// Why a job that has a reservation waits. `None`: it has none, or nothing is known of its time.
pub(crate) fn reason(state: &State, job: JobId) -> Option<Reason> {
    // When that time has come the job is about to start, or its time is estimated anew.
    let reservation = state.reservations.values().find(|a| a.job == job && a.from > state.now)?;
    let (from, until) = (reservation.from, reservation.from);
    match (reservation.delayed, reservation.known) {
        (true, _) => Some(Reason::ReservationDelayed { until }),
        (false, true) => Some(Reason::Reserved { from }),
        (false, false) => None,
    }
}

/// Whether a job comes before another whatever the shares of their queues: by tier, priority, arrival. This never changes while
/// both wait, so that who was kept out stays out until something is given back.
pub(crate) fn before(state: &State, one: JobId, other: JobId) -> bool {
    let key = |id: JobId| {
        let row = &state.jobs[id];
        let tier = settings::priority(state, row.tier);
        (-i64::from(tier), OrderKey::of(row, None))
    };
    key(one) < key(other)
}
