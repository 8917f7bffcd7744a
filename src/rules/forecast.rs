//! When places are expected to be given back, and where a gang that nothing can be had for would start soonest.
//!
//! ```text
//! places    the nodes where it fits soonest, by the expected ends of what runs there
//! room      or, under a full ceiling, the nodes that are given back soonest, so that what it needs can be bought
//! ```
//!
//! Tries are made on the undo log and rolled back. Never: decides that anything is kept.

use super::placement::{self, NodeScope};
use super::reservations::{Room, fewest};
use super::{demand, quota, supply};
use crate::effect::WorkerPlace;
use crate::engine::Engine;
use crate::ids::{JobId, NodeId, PoolId};
use crate::machine::StateMachine;
use crate::reason::Reason;
use crate::state::State;
use crate::state::jobs::Phase;
use crate::state::nodes::Node;
use crate::state::places::{Hold, nodes_of};
use crate::state::reservations::Reservation;
use crate::units::{MilliGpu, Rate, Span, Timestamp};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// A run of which nothing is known is taken to last so long: longer than nearly all, so that its node is the last to be chosen.
const UNKNOWN: Span = Span::mins(24 * 60);

/// What has outlasted its estimate is expected to go on for half as long again as it has lasted, and at least for this.
const AT_LEAST: Span = Span::mins(1);

/// Launch options looked at for one gang at most: bounds a pass.
const MOST_OPTIONS: usize = 16;

/// The reservation by which a gang starts soonest, found on the undo log without what is kept in the pool now.
pub(crate) fn soonest(engine: &mut Engine, job: JobId, pool: PoolId) -> Option<Reservation> {
    let mark = engine.state.checkpoint();
    engine.state.set_reservation(pool, None);
    let refused = supply::refusal(&engine.state, job, pool);
    let places = if refused.is_some() { places(engine, job, pool) } else { None };
    let full = matches!(refused, Some(Reason::Ceiling { .. }));
    let room = if full { room(&engine.state, job, pool) } else { None };
    engine.state.rollback(mark);
    match (places, room) {
        (Some(places), Some(room)) => {
            let boots = room.room.iter().map(|(id, _)| engine.state.offerings[id.index()].offer.boot).max();
            let later = room.from + boots.unwrap_or_default();
            Some(if places.from <= later { places } else { room })
        }
        (places, room) => places.or(room),
    }
}

/// The nodes where it fits with the fewest of the runs gone that end first.
fn places(engine: &mut Engine, job: JobId, pool: PoolId) -> Option<Reservation> {
    let class = engine.state.jobs[job].class;
    let fits = supply::fits(&engine.state, class, pool);
    let useful = |n: &&Node| n.pool == pool && n.open() && fits.binary_search(&n.offering).is_ok();
    let on: BTreeSet<JobId> =
        engine.state.nodes.values().filter(useful).flat_map(|n| n.holds.iter().copied()).collect();
    let mut runs: Vec<(Timestamp, JobId)> = on.into_iter().map(|id| (ends(&engine.state, id).0, id)).collect();
    runs.sort_unstable();
    let asked = quota::share(&engine.state, class, pool);
    let (mut fails, mut works, mut found) = first_fit(engine, job, pool, &runs, asked)?;
    while fails + 1 < works {
        let half = fails.midpoint(works);
        let mark = engine.state.checkpoint();
        release(&mut engine.state, &runs[..half]);
        let fits = placement::find(engine, job, pool, NodeScope::InFlight, asked);
        engine.state.rollback(mark);
        match fits {
            Some(places) => (works, found) = (half, places),
            None => fails = half,
        }
    }
    let nodes = nodes_of(&found);
    let (from, known) = expected(&engine.state, &nodes);
    Some(Reservation { job, from, known, delayed: false, nodes, room: Vec::new() })
}

/// The more are gone, the better it fits. Twice as many are let go each time, so that it takes no more than it needs: so many were too few,
/// with so many it fits, there.
fn first_fit(
    engine: &mut Engine,
    job: JobId,
    pool: PoolId,
    runs: &[(Timestamp, JobId)],
    asked: MilliGpu,
) -> Option<(usize, usize, Vec<WorkerPlace>)> {
    let mark = engine.state.checkpoint();
    let (mut gone, mut found) = (0, None);
    while found.is_none() && gone < runs.len() {
        let next = (gone * 2).clamp(gone + 1, runs.len());
        release(&mut engine.state, &runs[gone..next]);
        found = placement::find(engine, job, pool, NodeScope::InFlight, asked).map(|places| (gone, next, places));
        gone = next;
    }
    engine.state.rollback(mark);
    found
}

fn release(state: &mut StateMachine, gone: &[(Timestamp, JobId)]) {
    for (_, id) in gone {
        let row = &state.jobs[*id];
        let (class, places) = (row.class, row.places.clone());
        let hold = if row.phase == Phase::Booked { Hold::Booked } else { Hold::Running };
        state.release_places(*id, class, &places, hold);
    }
}

/// The nodes that make room for an option soonest when they are given back.
fn room(state: &State, job: JobId, pool: PoolId) -> Option<Reservation> {
    let class = state.jobs[job].class;
    let room = Room::of(state, pool, job);
    let others = |n: &&Node| n.pool == pool && n.reserved.iter().all(|(owner, _)| *owner == job);
    let mut leave: Vec<(Timestamp, Reverse<Rate>, NodeId)> =
        state.nodes.values().filter(others).map(|n| (empty_at(state, n), Reverse(n.price), n.id)).collect();
    leave.sort_unstable();
    let leave: Vec<NodeId> = leave.into_iter().map(|l| l.2).collect();
    let mut best: Option<Reservation> = None;
    for option in supply::options_in_stock(state, class, pool).into_iter().take(MOST_OPTIONS) {
        if !room.holds(state, &option, &leave) {
            continue;
        }
        let Some(mut nodes) = fewest(&leave, |gone| room.holds(state, &option, gone)) else { continue };
        nodes.sort_unstable();
        let (from, known) = expected(state, &nodes);
        if best.as_ref().is_none_or(|b| from < b.from) {
            best = Some(Reservation { job, from, known, delayed: false, nodes, room: option.counts });
        }
    }
    best
}

/// The jobs with workers on these nodes.
pub(crate) fn holders(state: &State, nodes: &[NodeId]) -> BTreeSet<JobId> {
    nodes.iter().filter_map(|id| state.nodes.get(id)).flat_map(|n| n.holds.iter().copied()).collect()
}

/// When what is on these nodes is expected to be over, and whether estimates of all of it say so.
pub(crate) fn expected(state: &State, nodes: &[NodeId]) -> (Timestamp, bool) {
    let of = |id: &JobId| ends(state, *id);
    let both = |a: (Timestamp, bool), b: (Timestamp, bool)| (a.0.max(b.0), a.1 && b.1);
    holders(state, nodes).iter().map(of).fold((state.now, true), both)
}

fn empty_at(state: &State, node: &Node) -> Timestamp {
    expected(state, core::slice::from_ref(&node.id)).0
}

/// When a job is expected to give its places back, and whether an estimate says so. Always later than now.
fn ends(state: &State, id: JobId) -> (Timestamp, bool) {
    let (row, now) = (&state.jobs[id], state.now);
    let again = |lasted: Span| now + Span((lasted.0 / 2).max(AT_LEAST.0));
    if let Phase::Stopping { deadline, .. } = row.phase {
        return (if deadline > now { deadline } else { again(now.since(row.since)) }, true);
    }
    let begins = if row.phase == Phase::Booked { supply::eta(state, id).max(now) } else { now };
    let ran = row.running_since.map_or(Span::ZERO, |since| now.since(since));
    let estimate = demand::remaining_p90(state, id);
    let left = estimate.unwrap_or(UNKNOWN - ran);
    let at = match row.backfill_for {
        _ if left > Span::ZERO => begins + left,
        // It is stopped the moment it may be.
        Some(_) if row.protected_until > now => row.protected_until,
        _ => again(ran),
    };
    (at, estimate.is_some())
}
