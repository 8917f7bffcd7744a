//! ahead: a gang that nothing can be had for reserves ahead, so that smaller jobs cannot keep it waiting for ever; what is certain to
//! be over before it starts may go first.
//!
//! ```text
//! first gang in the order that has quota, was told no, and that preemption does not help:
//!   places    the nodes where it fits soonest, by the expected ends of what runs there
//!   room      or, under a full ceiling, the nodes that are given back soonest, so that what it needs can be bought
//! until `from`  those behind it are let in where they end (p90) by then: backfill
//! at `from`     backfill that overran is stopped; what was there before may go on, and the time is estimated again
//! ```
//!
//! Source: EASY backfilling (Lifka 1995). One reservation a pool.
//!
//! Never: keeps out a job that comes before the gang in tier, priority and arrival; never stops what ran there before; never keeps
//! anything for a gang whose quota is in use.

use super::cart::{self, Cart};
use super::order;
use super::place::{self, Reach};
use super::{admit, afford, patience, provision, settle};
use crate::decision::{Decision, StopCause};
use crate::demand;
use crate::engine::Engine;
use crate::ids::{ClassId, JobId, NodeId, PoolId};
use crate::plan::PlanReport;
use crate::policy::Buys;
use crate::reason::Reason;
use crate::state::ahead::Ahead;
use crate::state::index::OrderKey;
use crate::state::jobs::Phase;
use crate::state::nodes::{Node, NodePhase};
use crate::state::{Held, Hurry, State};
use crate::units::{MilliGpu, Millis, Span};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// A run of which nothing is known is taken to last so long: longer than nearly all, so that its node is the last to be chosen.
const UNKNOWN: Span = Span::mins(24 * 60);
/// What has outlasted its estimate is expected to go on for half as long again as it has lasted, and at least for this.
const AT_LEAST: Span = Span::mins(1);
/// Gangs for which a reservation is sought in one pass at most, and carts looked at for each: bounds a pass.
const MOST_TRIES: u32 = 4;
const MOST_CARTS: usize = 16;

/// Runs the stage.
pub(crate) fn run(engine: &mut Engine, report: &mut PlanReport) {
    let pools: Vec<PoolId> = engine.state.ahead.keys().copied().collect();
    let mut kept = BTreeMap::new();
    for pool in &pools {
        if let Some(job) = look(engine, *pool, report) {
            kept.insert(*pool, job);
        }
    }
    claim(engine, &mut kept);
    for pool in pools {
        if !kept.contains_key(&pool) {
            engine.decide(Decision::ReleaseAhead { pool });
        }
    }
}

/// Whether a node takes a job as far as reservations ahead go: it is not kept, or not from this job, or the job will be gone in time.
pub(crate) fn lets_in(state: &State, node: &Node, job: JobId) -> bool {
    let Some(ahead) = state.ahead.get(&node.pool).filter(|a| a.nodes.binary_search(&node.id).is_ok()) else {
        return true;
    };
    if ahead.job == job || before(state, job, ahead.job) {
        return true;
    }
    // Unknown, or its estimate is used up already: no promise that it ends in time.
    let lasts = demand::remaining_p90(state, job).filter(|span| *span > Span::ZERO);
    node.phase == NodePhase::Ready && lasts.is_some_and(|span| state.now + span <= ahead.from)
}

/// What is held against the ceilings as one who asks has to see it: room kept for a gang before it counts as taken.
pub(crate) fn held(state: &State, pool: PoolId, asker: Option<JobId>) -> (Held, Held) {
    let mut all = state.totals.all;
    let mut own = state.totals.pools.get(pool.ix()).copied().unwrap_or_default();
    for (at, ahead) in state.ahead.iter().filter(|(_, a)| !a.room.is_empty()) {
        if asker.is_some_and(|job| job == ahead.job || before(state, job, ahead.job)) {
            continue;
        }
        // What still has to leave holds a part of the room until it does.
        let more = state.held_by(&ahead.room).less(state.held_on(&ahead.nodes));
        all = all.plus(more);
        if *at == pool {
            own = own.plus(more);
        }
    }
    (all, own)
}

/// Whether an idle node stays because a gang will go on it. A tier that buys nothing keeps no node either.
pub(crate) fn keeps(state: &State, node: &Node) -> bool {
    let keeps = |a: &Ahead| {
        let tier = state.jobs[a.job.ix()].tier;
        let buys = state.policy.as_deref().and_then(|p| p.tiers.get(tier.ix())).map_or(Buys::Nothing, |t| t.buys);
        buys != Buys::Nothing && a.room.is_empty() && a.nodes.binary_search(&node.id).is_ok()
    };
    state.ahead.get(&node.pool).is_some_and(keeps)
}

/// Whether an idle node is given back at once, because its room is kept for a gang.
pub(crate) fn vacates(state: &State, node: &Node) -> bool {
    let of = |a: &Ahead| !a.room.is_empty() && a.nodes.binary_search(&node.id).is_ok();
    state.ahead.get(&node.pool).is_some_and(of)
}

/// Whether nodes of a pool are given back so that a gang finds room.
pub(crate) fn makes_room(state: &State, pool: PoolId) -> bool {
    state.ahead.get(&pool).is_some_and(|a| !a.room.is_empty())
}

/// A job was just booked: whether it was let in ahead of a reservation, or took what was kept for one behind it.
pub(crate) fn booked(engine: &mut Engine, job: JobId) {
    if engine.state.ahead.is_empty() {
        return;
    }
    let row = &engine.state.jobs[job.ix()];
    let Some(pool) = row.pool else { return };
    let Some(ahead) = engine.state.ahead.get(&pool) else { return };
    let holder = ahead.job;
    if !row.places.iter().any(|p| ahead.nodes.binary_search(&p.node).is_ok()) {
        return;
    }
    if !before(&engine.state, job, holder) {
        return engine.decide(Decision::Backfill { job, ahead_of: holder });
    }
    match make(engine, holder, pool) {
        Some(ahead) => engine.decide(Decision::ReserveAhead { pool, ahead }),
        None => engine.decide(Decision::ReleaseAhead { pool }),
    }
}

/// What a job for which something is kept is told. Where nothing is known of the time, what it was told before tells more.
pub(crate) fn says(state: &State, job: JobId) -> Option<Reason> {
    // Once that time has come there is nothing to say of it: the job is about to start, or is estimated anew.
    let ahead = state.ahead.values().find(|a| a.job == job && a.from > state.now)?;
    let (from, until) = (ahead.from, ahead.from);
    match (ahead.delayed, ahead.known) {
        (true, _) => Some(Reason::ReservationDelayed { until }),
        (false, true) => Some(Reason::Reserved { from }),
        (false, false) => None,
    }
}

impl State {
    /// When a reservation comes of age next.
    pub(crate) fn ahead_due(&self) -> Option<Millis> {
        self.ahead.values().map(|a| a.from).filter(|from| *from > self.now).min()
    }
}

/// Whether a job comes before another whatever the shares of their queues: by tier, priority, arrival. This never changes while
/// both wait, so that who was kept out stays out until something is given back.
fn before(state: &State, one: JobId, other: JobId) -> bool {
    let key = |id: JobId| {
        let row = &state.jobs[id.ix()];
        let tier = state.policy.as_deref().and_then(|p| p.tiers.get(row.tier.ix())).map_or(0, |t| t.priority);
        (-i64::from(tier), OrderKey::of(row, None))
    };
    key(one) < key(other)
}

/// Looks at what is kept in a pool. Returns for whom, if it still is.
fn look(engine: &mut Engine, pool: PoolId, report: &mut PlanReport) -> Option<JobId> {
    let ahead = engine.state.ahead.get(&pool)?.clone();
    if !good(&engine.state, pool, &ahead) {
        return None;
    }
    let (job, now) = (ahead.job, engine.state.now);
    if ahead.from <= now {
        let late = holders(&engine.state, &ahead.nodes);
        return if late.is_empty() { Some(job) } else { renew(engine, pool, &ahead, &late, report) };
    }
    let (from, known) = expected(&engine.state, &ahead.nodes);
    // Runs that ended early. Small steps are not worth a record.
    if ahead.from.since(from).0 > ahead.from.since(now).0 / 8 {
        engine.decide(Decision::ReserveAhead { pool, ahead: Ahead { from, known, ..ahead } });
    }
    Some(job)
}

/// Its time has come, and there is work left: backfill is stopped, and for the rest the time is estimated again.
fn renew(
    engine: &mut Engine,
    pool: PoolId,
    ahead: &Ahead,
    late: &BTreeSet<JobId>,
    report: &mut PlanReport,
) -> Option<JobId> {
    for job in late {
        let row = &engine.state.jobs[job.ix()];
        if row.backfill_for != Some(ahead.job) {
            continue;
        }
        match row.phase {
            Phase::Booked => engine.decide(Decision::Unbook { job: *job }),
            Phase::Running if row.broken.is_none() && may_stop(&engine.state, *job, ahead.job) => {
                report.stopped += 1;
                settle::stop(engine, *job, StopCause::Overran { by: ahead.job });
            }
            _ => {}
        }
    }
    let state = &engine.state;
    let stays = |id: &JobId| !matches!(state.jobs[id.ix()].phase, Phase::Stopping { .. } | Phase::Queued);
    let delayed = late.iter().any(stays);
    let renewed = make(engine, ahead.job, pool).map(|new| Ahead { delayed, ..new })?;
    if renewed != *ahead {
        engine.decide(Decision::ReserveAhead { pool, ahead: renewed });
    }
    Some(ahead.job)
}

/// Past its protection, and of the gang's tier, a lower one, or one that the gang's may stop.
fn may_stop(state: &State, victim: JobId, by: JobId) -> bool {
    let (row, gang) = (&state.jobs[victim.ix()], &state.jobs[by.ix()]);
    let Some(policy) = state.policy.as_deref() else { return false };
    let priority = |tier: crate::ids::TierId| policy.tiers.get(tier.ix()).map_or(0, |t| t.priority);
    let named = policy.tiers.get(row.tier.ix()).is_some_and(|t| t.stoppable_by.contains(&gang.tier));
    row.protected_until <= state.now && (named || priority(row.tier) <= priority(gang.tier))
}

/// Whether a reservation still is what it was made for.
fn good(state: &State, pool: PoolId, ahead: &Ahead) -> bool {
    let row = &state.jobs[ahead.job.ix()];
    if row.phase != Phase::Queued || !may_reserve(state, ahead.job, row.class, pool) {
        return false;
    }
    let fits = provision::fits(state, row.class, pool);
    if ahead.room.is_empty() {
        let there = |n: &Node| n.open() && n.pool == pool && fits.binary_search(&n.offering).is_ok();
        return ahead.nodes.iter().all(|id| state.nodes.get(id).is_some_and(there));
    }
    let refused = provision::refusal(state, ahead.job, pool);
    let cart = Cart { lines: ahead.room.clone(), ..Cart::default() };
    let (all, own) = held(state, pool, Some(ahead.job));
    let gone = state.held_on(&ahead.nodes);
    matches!(refused, Some(Reason::Ceiling { .. }))
        && provision::carts_in_stock(state, row.class, pool).iter().any(|c| c.lines == cart.lines)
        && cart::bound_hit(state, pool, &cart, all.less(gone), own.less(gone)).is_none()
}

/// Whether a job is of the kind that reserves, has quota, and waits for nothing but capacity. One GPU or less needs no reservation:
/// the first that frees is its own. A job that is ahead of its deadline waits because it wants to.
fn may_reserve(state: &State, job: JobId, class: ClassId, pool: PoolId) -> bool {
    let asked = admit::share(state, class, pool);
    let large = asked > MilliGpu::whole(1) || (asked == MilliGpu::whole(1) && cart::sharing_slices(state, pool) > 1);
    let waits = state.jobs[job.ix()].reserved_until.is_some_and(|until| until > state.now);
    let relaxed = state.classes[class.ix()].shape.hurry == Hurry::Relaxed;
    large
        && !waits
        && !relaxed
        && patience::waits(state, job).is_none()
        && admit::batch_says(state, job).is_none()
        && admit::quota_says(state, class, pool, asked).is_none()
        && afford::says(state, class, pool).is_none()
}

/// Gives the first gangs in the order what they can reserve.
fn claim(engine: &mut Engine, kept: &mut BTreeMap<PoolId, JobId>) {
    let state = &engine.state;
    let large = |class: &ClassId| {
        let fits = &state.classes[class.ix()].fits;
        fits.iter().any(|(pool, _)| admit::share(state, *class, *pool) >= MilliGpu::whole(1))
    };
    if !state.ix.queued.keys().any(large) {
        return;
    }
    let mut tries = 0;
    for head in order::strict_heads(&engine.state) {
        let job = head.key.job;
        if kept.values().any(|holder| *holder == job) {
            continue;
        }
        let pools: Vec<PoolId> = engine.state.classes[head.class.ix()].fits.iter().map(|f| f.0).collect();
        for pool in pools {
            let state = &engine.state;
            let taken = kept.get(&pool).is_some_and(|holder| !before(state, job, *holder));
            if taken || !may_reserve(state, job, head.class, pool) || !told_no(state, job, pool) {
                continue;
            }
            tries += 1;
            if let Some(ahead) = make(engine, job, pool) {
                if engine.state.ahead.get(&pool) != Some(&ahead) {
                    engine.decide(Decision::ReserveAhead { pool, ahead });
                }
                kept.insert(pool, job);
                break;
            }
        }
        if tries >= MOST_TRIES {
            return;
        }
    }
}

/// Whether nothing but more capacity, ceiling or stock would help.
fn told_no(state: &State, job: JobId, pool: PoolId) -> bool {
    let reason = provision::refusal(state, job, pool);
    matches!(reason, Some(Reason::Ceiling { .. } | Reason::Stockout { .. } | Reason::NothingIdle))
}

/// The reservation by which a gang starts soonest, found on the undo log without what is kept in the pool now.
fn make(engine: &mut Engine, job: JobId, pool: PoolId) -> Option<Ahead> {
    let mark = engine.state.checkpoint();
    engine.state.set_ahead(pool, None);
    let refused = provision::refusal(&engine.state, job, pool);
    let places = if refused.is_some() { places(engine, job, pool) } else { None };
    let full = matches!(refused, Some(Reason::Ceiling { .. }));
    let room = if full { room(&engine.state, job, pool) } else { None };
    engine.state.rollback(mark);
    match (places, room) {
        (Some(places), Some(room)) => {
            let boots = room.room.iter().map(|(id, _)| engine.state.offerings[id.ix()].offer.boot).max();
            let later = room.from + boots.unwrap_or_default();
            Some(if places.from <= later { places } else { room })
        }
        (places, room) => places.or(room),
    }
}

/// The nodes where it fits with the fewest of the runs gone that end first.
fn places(engine: &mut Engine, job: JobId, pool: PoolId) -> Option<Ahead> {
    let class = engine.state.jobs[job.ix()].class;
    let fits = provision::fits(&engine.state, class, pool);
    let useful = |n: &&Node| n.pool == pool && n.open() && fits.binary_search(&n.offering).is_ok();
    let on: BTreeSet<JobId> =
        engine.state.nodes.values().filter(useful).flat_map(|n| n.holds.iter().copied()).collect();
    let mut runs: Vec<(Millis, JobId)> = on.into_iter().map(|id| (ends(&engine.state, id).0, id)).collect();
    runs.sort_unstable();
    let asked = admit::share(&engine.state, class, pool);
    // The more are gone, the better it fits: the least number is found by halving.
    let (mut fails, mut works) = (0, runs.len());
    let mut found = fits_without(engine, job, pool, &runs, asked)?;
    while fails + 1 < works {
        let half = fails.midpoint(works);
        match fits_without(engine, job, pool, &runs[..half], asked) {
            Some(nodes) => (works, found) = (half, nodes),
            None => fails = half,
        }
    }
    let (from, known) = expected(&engine.state, &found);
    (works > 0).then(|| Ahead { job, from, known, delayed: false, nodes: found, room: Vec::new() })
}

fn fits_without(
    engine: &mut Engine,
    job: JobId,
    pool: PoolId,
    gone: &[(Millis, JobId)],
    asked: MilliGpu,
) -> Option<Vec<NodeId>> {
    let mark = engine.state.checkpoint();
    for (_, id) in gone {
        let row = &engine.state.jobs[id.ix()];
        let (class, places, running) = (row.class, row.places.clone(), row.phase != Phase::Booked);
        engine.state.let_go(*id, class, &places, running);
    }
    let found = place::find(engine, job, pool, Reach::InFlight, asked);
    engine.state.rollback(mark);
    found.map(|places| crate::state::places::nodes_of(&places))
}

/// The nodes that make room for a cart soonest when they are given back.
fn room(state: &State, job: JobId, pool: PoolId) -> Option<Ahead> {
    let class = state.jobs[job.ix()].class;
    let (all, own) = held(state, pool, Some(job));
    let others = |n: &&Node| n.pool == pool && n.reserved.is_none_or(|(owner, _)| owner == job);
    let mut leave: Vec<(Millis, core::cmp::Reverse<crate::units::Rate>, NodeId)> =
        state.nodes.values().filter(others).map(|n| (empty_at(state, n), core::cmp::Reverse(n.price), n.id)).collect();
    leave.sort_unstable();
    let leave: Vec<NodeId> = leave.into_iter().map(|l| l.2).collect();
    let mut best: Option<Ahead> = None;
    for cart in provision::carts_in_stock(state, class, pool).into_iter().take(MOST_CARTS) {
        let without = |gone: &[NodeId]| {
            let gone = state.held_on(gone);
            cart::bound_hit(state, pool, &cart, all.less(gone), own.less(gone)).is_none()
        };
        let Some(count) = (1..=leave.len()).find(|n| without(&leave[..*n])) else {
            continue;
        };
        let mut nodes = leave[..count].to_vec();
        // Tried back, the last to leave first: what is not needed stays.
        for at in (0..nodes.len()).rev() {
            let node = nodes.remove(at);
            if !without(&nodes) {
                nodes.insert(at, node);
            }
        }
        nodes.sort_unstable();
        let (from, known) = expected(state, &nodes);
        if best.as_ref().is_none_or(|b| from < b.from) {
            best = Some(Ahead { job, from, known, delayed: false, nodes, room: cart.lines });
        }
    }
    best
}

/// The jobs with workers on these nodes.
fn holders(state: &State, nodes: &[NodeId]) -> BTreeSet<JobId> {
    nodes.iter().filter_map(|id| state.nodes.get(id)).flat_map(|n| n.holds.iter().copied()).collect()
}

/// When what is on these nodes is expected to be over, and whether estimates of all of it say so.
fn expected(state: &State, nodes: &[NodeId]) -> (Millis, bool) {
    let of = |id: &JobId| ends(state, *id);
    let both = |a: (Millis, bool), b: (Millis, bool)| (a.0.max(b.0), a.1 && b.1);
    holders(state, nodes).iter().map(of).fold((state.now, true), both)
}

fn empty_at(state: &State, node: &Node) -> Millis {
    expected(state, core::slice::from_ref(&node.id)).0
}

/// When a job is expected to give its places back, and whether an estimate says so. Always later than now.
fn ends(state: &State, id: JobId) -> (Millis, bool) {
    let (row, now) = (&state.jobs[id.ix()], state.now);
    let again = |lasted: Span| now + Span((lasted.0 / 2).max(AT_LEAST.0));
    if let Phase::Stopping { deadline, .. } = row.phase {
        return (if deadline > now { deadline } else { again(now.since(row.since)) }, true);
    }
    let begins = if row.phase == Phase::Booked { provision::eta(state, id).max(now) } else { now };
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
