//! When places are expected to be given back, and where a gang that nothing can be had for would start soonest.
//!
//! ```text
//! places    the nodes where it fits soonest, by the expected ends of what runs there
//! room      or, under a full ceiling, the nodes that are given back soonest, so that what it needs can be bought
//! ```
//!
//! Tries are made on the undo log and rolled back. Never: decides that anything is kept.

use super::ending::Ending;
use super::launch::LaunchOption;
use super::placement::{self, NodeScope};
use super::reservations::{Room, bounds_all_pools, is_large, may_claim};
use super::{allowances, budget, demand, quota, supply};
use crate::effect::WorkerPlace;
use crate::engine::Engine;
use crate::ids::{JobId, NodeId, PoolId, QuotaId};
use crate::machine::StateMachine;
use crate::reason::Reason;
use crate::state::State;
use crate::state::allowances::{Allowance, AllowanceReservation};
use crate::state::jobs::{Job, Phase};
use crate::state::nodes::Node;
use crate::state::places::{Hold, nodes_of};
use crate::state::reservations::Reservation;
use crate::units::{MilliGpu, Rate, Span, Timestamp};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::Reverse;

/// A run of which nothing is known is taken to last so long: longer than nearly all, so that its node is the last to be chosen.
pub(crate) const UNKNOWN: Span = Span::mins(24 * 60);

/// What has outlasted its estimate is expected to go on for half as long again as it has lasted, and at least for this.
const AT_LEAST: Span = Span::mins(1);

/// Nodes that are put in order first, and so many times as many if they are too few.
const FEW: usize = 16;

/// Launch options looked at for one gang at most: bounds a pass.
const MOST_OPTIONS: usize = 16;

/// The reservation by which a gang starts soonest, found on the undo log without what is kept in the pool now. For one that is not large only room is
/// kept: the first place that frees is its own.
pub(crate) fn soonest(engine: &mut Engine, job: JobId, pool: PoolId) -> Option<Reservation> {
    let mark = engine.state.checkpoint();
    engine.state.set_reservation(pool, None);
    let refused = supply::refusal(&engine.state, job, pool);
    let places = if refused.is_some() { places(engine, job, pool) } else { None };
    let full = matches!(refused, Some(Reason::Ceiling { .. }));
    // Room that is bought for is used after a boot at the earliest.
    let sooner =
        places.as_ref().is_some_and(|places| places.from <= engine.state.now + least_boot(&engine.state, job, pool));
    let room = if full && !sooner { room(&engine.state, job, pool) } else { None };
    engine.state.rollback(mark);
    let soonest = match (places, room) {
        (Some(places), Some(room)) => {
            let boots = room.room.iter().map(|(id, _)| demand::boot_p90(&engine.state, *id)).max();
            let later = room.from + boots.unwrap_or_default();
            Some(if places.from <= later { places } else { room })
        }
        (places, room) => places.or(room),
    };
    let large = is_large(&engine.state, engine.state.jobs[job].class, pool);
    soonest.filter(|made| large || !made.room.is_empty())
}

/// The soonest of what a job may claim in some pools, each with who has the reservation there; and in how many it was sought.
pub(crate) fn soonest_of(
    engine: &mut Engine,
    job: JobId,
    pools: &[(PoolId, Option<JobId>)],
) -> (u32, Option<(PoolId, Reservation)>) {
    let (mut tries, mut best) = (0, None::<(PoolId, Reservation)>);
    for (pool, holder) in pools {
        if may_claim(&engine.state, job, *pool, *holder) {
            tries += 1;
            let made = soonest(engine, job, *pool);
            let sooner = |made: &Reservation| best.as_ref().is_none_or(|(_, best)| made.from < best.from);
            best = made.filter(sooner).map(|made| (*pool, made)).or(best);
        }
    }
    (tries, best)
}

/// The shortest boot of anything that fits a job.
fn least_boot(state: &State, job: JobId, pool: PoolId) -> Span {
    let fits = supply::fits(state, state.jobs[job].class, pool).iter();
    fits.map(|id| demand::boot_p90(state, *id)).min().unwrap_or_default()
}

/// The nodes where it fits with the fewest of the runs gone that end first.
fn places(engine: &mut Engine, job: JobId, pool: PoolId) -> Option<Reservation> {
    let class = engine.state.jobs[job].class;
    let mut runs = Ending::of(engine, class, pool);
    let asked = quota::share(&engine.state, class, pool);
    let (mut fails, mut works, mut found) = first_fit(engine, job, pool, &mut runs, asked)?;
    while fails + 1 < works {
        let half = fails.midpoint(works);
        let mark = engine.state.checkpoint();
        let gone = runs.first(&engine.state, half).to_vec();
        release(&mut engine.state, &gone);
        let fits = placement::find(engine, job, pool, NodeScope::InFlight, asked);
        engine.state.rollback(mark);
        match fits {
            Some(places) => (works, found) = (half, places),
            None => fails = half,
        }
    }
    let nodes = nodes_of(&found);
    // What is there beside it may stay.
    let there = holders(&engine.state, &nodes);
    let gone = runs.first(&engine.state, works).iter().map(|(_, id)| *id);
    let gone: Vec<JobId> = gone.filter(|id| there.contains(id)).collect();
    let (from, known) = ends_of(&engine.state, &gone);
    Some(Reservation { job, from, known, delayed: false, nodes, room: Vec::new() })
}

/// When a quota or a budget is expected to be enough for a job: the runs that end first are gone by then. `None`: it
/// never is, or the job could not go anywhere even then.
pub(crate) fn allowance(engine: &mut Engine, job: JobId, pool: PoolId, of: Allowance) -> Option<AllowanceReservation> {
    let state = &engine.state;
    let below = |row: &Job| {
        let at = quota::quota_of(state, row);
        let uses = !matches!(of, Allowance::Quota(_, its) if row.pool != Some(its));
        uses && at.is_some_and(|at| state.quota.is_below(at, of.node()))
    };
    let holders = state.index.holding.values().flatten().copied();
    let holders = holders.filter(|id| below(&state.jobs[*id]) && allowances::still_holds(state, *id));
    let mut runs: Vec<(Timestamp, JobId)> = holders.map(|id| (ends(state, id).0, id)).collect();
    runs.sort_unstable();
    if let Allowance::Quota(..) = of {
        runs = making_way(state, job, pool, of.node(), runs);
    }
    let (from, count) = match of {
        Allowance::Quota(..) => gone_for_quota(engine, job, pool, of, &runs),
        Allowance::Budget(node) => gone_for_money(&engine.state, job, pool, node, &runs),
    }?;
    let runs: Vec<JobId> = runs.into_iter().take(count).map(|(_, id)| id).collect();
    let known = runs.iter().all(|id| ends(&engine.state, *id).1);
    Some(AllowanceReservation { job, pool, from, known, delayed: false, runs })
}

/// Those of a job's own queue and what others borrow come first: what others own goes to their next ones.
fn making_way(
    state: &State,
    job: JobId,
    pool: PoolId,
    node: QuotaId,
    runs: Vec<(Timestamp, JobId)>,
) -> Vec<(Timestamp, JobId)> {
    let own = quota::quota_of(state, &state.jobs[job]);
    let mut borrowed: BTreeMap<QuotaId, MilliGpu> = BTreeMap::new();
    let (mut first, then): (Vec<_>, Vec<_>) = runs.into_iter().partition(|(_, id)| {
        let row = &state.jobs[*id];
        let Some(at) = quota::quota_of(state, row).filter(|at| Some(*at) != own) else { return true };
        let Some(child) = state.lineage(at).find(|at| state.quota.parent(*at) == Some(node)) else { return true };
        if own.is_some_and(|own| state.quota.is_below(own, child)) {
            return true;
        }
        let left = borrowed.entry(child).or_insert_with(|| state.quota.borrowed(child, pool));
        let more = *left > MilliGpu(0);
        *left = *left - row.share;
        more
    });
    first.extend(then);
    first
}

/// When so many of the runs are gone that a quota is enough, and how many. `None`: it never is, or there would be no place.
fn gone_for_quota(
    engine: &mut Engine,
    job: JobId,
    pool: PoolId,
    of: Allowance,
    runs: &[(Timestamp, JobId)],
) -> Option<(Timestamp, usize)> {
    let mut lacks = allowances::missing(&engine.state, of, job, pool);
    let enough = runs.iter().position(|(_, id)| {
        let was = lacks;
        lacks = lacks - engine.state.jobs[*id].share;
        was == MilliGpu(0)
    });
    let count = enough.or((lacks == MilliGpu(0)).then_some(runs.len()))?;
    let from = runs[..count].iter().map(|(at, _)| *at).max().unwrap_or(engine.state.now);
    let comes = supply::comes(&engine.state, job, pool)
        || budget::refusal(&engine.state, engine.state.jobs[job].class, pool).is_some()
        || fits_without(engine, job, pool, &runs[..count]);
    comes.then_some((from, count))
}

/// When so many of the runs are gone, and so much of the period is over, that a budget is enough. `None`: as prices are, the whole of one never is, or
/// there would be no place.
fn gone_for_money(
    state: &State,
    job: JobId,
    pool: PoolId,
    node: QuotaId,
    runs: &[(Timestamp, JobId)],
) -> Option<(Timestamp, usize)> {
    let ends: Vec<(Timestamp, Rate)> = runs.iter().map(|(at, id)| (*at, state.jobs[*id].rate)).collect();
    let class = state.jobs[job].class;
    let least = budget::least(state, class, pool);
    if !budget::ever_pays(state, class, least) || !supply::could_have_places(state, class, pool) {
        return None;
    }
    Some(state.budgets.holding(node)?.opens_after(state.now, least, &ends))
}

/// When all of these runs are expected to be over, and whether estimates of all of them say so.
pub(crate) fn ends_of(state: &State, runs: &[JobId]) -> (Timestamp, bool) {
    let there = runs.iter().filter(|id| state.jobs.get(**id).is_some_and(|row| !row.places.is_empty()));
    let there = there.map(|id| ends(state, *id));
    there.fold((state.now, true), |a, b| (a.0.max(b.0), a.1 && b.1))
}

/// The more are gone, the better it fits. Twice as many are let go each time, so that it takes no more than it needs: so many were too few,
/// with so many it fits, there.
fn first_fit(
    engine: &mut Engine,
    job: JobId,
    pool: PoolId,
    runs: &mut Ending,
    asked: MilliGpu,
) -> Option<(usize, usize, Vec<WorkerPlace>)> {
    let mark = engine.state.checkpoint();
    let (mut gone, mut found) = (0, None);
    while found.is_none() {
        let more = runs.first(&engine.state, (gone * 2).max(1))[gone..].to_vec();
        if more.is_empty() {
            break;
        }
        let next = gone + more.len();
        release(&mut engine.state, &more);
        found = placement::find(engine, job, pool, NodeScope::InFlight, asked).map(|places| (gone, next, places));
        gone = next;
    }
    engine.state.rollback(mark);
    found
}

/// Whether a job has places when these runs are gone.
fn fits_without(engine: &mut Engine, job: JobId, pool: PoolId, gone: &[(Timestamp, JobId)]) -> bool {
    let asked = allowances::asked(&engine.state, job, pool);
    let mark = engine.state.checkpoint();
    release(&mut engine.state, gone);
    let fits = placement::find(engine, job, pool, NodeScope::InFlight, asked).is_some();
    engine.state.rollback(mark);
    fits
}

/// Whether a job would have places, or be bought for, and no longer lack `of`, with these runs gone.
pub(crate) fn goes_without(
    engine: &mut Engine,
    job: JobId,
    pool: PoolId,
    of: Option<Allowance>,
    gone: &[JobId],
) -> bool {
    let asked = allowances::asked(&engine.state, job, pool);
    let mark = engine.state.checkpoint();
    let ends: Vec<(Timestamp, JobId)> = gone.iter().map(|id| (engine.state.now, *id)).collect();
    release(&mut engine.state, &ends);
    if of.is_some() {
        gone.iter().for_each(|id| give_back(&mut engine.state, *id));
    }
    let goes = !of.is_some_and(|of| allowances::is_short(&engine.state, of, job, pool))
        && (placement::find(engine, job, pool, NodeScope::InFlight, asked).is_some()
            || supply::can_be_had(engine, job, pool));
    engine.state.rollback(mark);
    goes
}

/// Whether something holds once these runs have given back what they have of quotas and budgets.
pub(crate) fn once_given_back(engine: &mut Engine, gone: &[JobId], holds: impl FnOnce(&State) -> bool) -> bool {
    let mark = engine.state.checkpoint();
    gone.iter().for_each(|id| give_back(&mut engine.state, *id));
    let holds = holds(&engine.state);
    engine.state.rollback(mark);
    holds
}

/// Gives back what a run has of quotas and budgets, in a trial.
fn give_back(state: &mut StateMachine, id: JobId) {
    let row = &state.jobs[id];
    let (Some(pool), queue, share, rate) = (row.pool, row.queue, row.share, row.rate) else { return };
    state.give_quota_back(queue, pool, share);
    state.discharge(id, rate, Span::ZERO);
}

fn release(state: &mut StateMachine, gone: &[(Timestamp, JobId)]) {
    for (_, id) in gone {
        let row = &state.jobs[*id];
        let (class, places) = (row.class, row.places.clone());
        let hold = if row.phase == Phase::Booked { Hold::Booked } else { Hold::Running };
        state.release_places(*id, class, &places, hold);
    }
}

/// The nodes that make room for an option soonest when they are given back: of any pool, where a ceiling bounds all of them.
fn room(state: &State, job: JobId, pool: PoolId) -> Option<Reservation> {
    let class = state.jobs[job].class;
    let room = Room::of(state, pool, job);
    let any = bounds_all_pools(state);
    // A replica does not end: what it holds is counted on by nobody.
    let ends = |n: &Node| n.holds.iter().all(|id| state.jobs[*id].service.is_none());
    let others = |n: &&Node| {
        let here = (n.pool == pool || any) && n.owned.is_none();
        here && ends(n) && n.reserved.iter().all(|(owner, _)| *owner == job)
    };
    let mut leave: Vec<(Timestamp, Reverse<Rate>, NodeId)> =
        state.nodes.values().filter(others).map(|n| (empty_at(state, n), Reverse(n.price), n.id)).collect();
    let paid = |option: &LaunchOption| budget::ever_pays(state, class, option.bill(state));
    let options: Vec<LaunchOption> =
        supply::options_in_stock(state, class, pool).into_iter().filter(paid).take(MOST_OPTIONS).collect();
    // Few have to leave as a rule: only they are put in order.
    let mut first = FEW.min(leave.len());
    loop {
        if first < leave.len() {
            leave.select_nth_unstable(first);
        }
        leave[..first].sort_unstable();
        let soonest: Vec<NodeId> = leave[..first].iter().map(|l| l.2).collect();
        let without = room.without(state, &soonest);
        let fewest = |option: &LaunchOption| without.fewest(state, option);
        let found: Vec<Option<Vec<NodeId>>> = options.iter().map(fewest).collect();
        if first == leave.len() || found.iter().all(Option::is_some) {
            return soonest_option(state, job, options, found);
        }
        first = (first * FEW).min(leave.len());
    }
}

/// The option for which the nodes that have to leave are empty first.
fn soonest_option(
    state: &State,
    job: JobId,
    options: Vec<LaunchOption>,
    leave: Vec<Option<Vec<NodeId>>>,
) -> Option<Reservation> {
    let of = |(option, nodes): (LaunchOption, Option<Vec<NodeId>>)| {
        let mut nodes = nodes?;
        nodes.sort_unstable();
        let (from, known) = expected(state, &nodes);
        Some(Reservation { job, from, known, delayed: false, nodes, room: option.counts })
    };
    options.into_iter().zip(leave).filter_map(of).min_by_key(|made| made.from)
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
    node.holds.iter().map(|id| ends(state, *id).0).fold(state.now, Timestamp::max)
}

/// When a job is expected to give its places back, and whether an estimate says so. Always later than now.
pub(crate) fn ends(state: &State, id: JobId) -> (Timestamp, bool) {
    ends_in(state, id, 900, UNKNOWN)
}

/// When a job is as likely to have given its places back as not. Always later than now.
pub(crate) fn usual_end(state: &State, id: JobId) -> Timestamp {
    ends_in(state, id, 500, demand::UNKNOWN).0
}

/// When what has lasted for so long, and longer than was expected, is expected to be over.
pub(crate) fn once_outlasted(now: Timestamp, lasted: Span) -> Timestamp {
    now + Span((lasted.0 / 2).max(AT_LEAST.0))
}

/// When it is expected to have given them back in so many cases of a thousand. `unknown`: how long a run lasts of which nothing is known.
fn ends_in(state: &State, id: JobId, permille: u64, unknown: Span) -> (Timestamp, bool) {
    let (row, now) = (&state.jobs[id], state.now);
    let again = |lasted: Span| once_outlasted(now, lasted);
    if let Phase::Stopping { deadline, .. } = row.phase {
        return (if deadline > now { deadline } else { again(now.since(row.since)) }, true);
    }
    let begins = if row.phase == Phase::Booked { supply::eta(state, id).max(now) } else { now };
    let ran = row.running_since.map_or(Span::ZERO, |since| now.since(since));
    let estimate = demand::remaining(state, id, permille);
    let left = estimate.unwrap_or(unknown - ran);
    let at = match row.backfill_for {
        _ if left > Span::ZERO => begins + left,
        // It is stopped the moment it may be.
        Some(_) if row.protected_until > now => row.protected_until,
        _ => again(ran),
    };
    // It may not go on for longer than this.
    let longest = match row.phase {
        Phase::Running => row.must_end_by,
        _ => begins + state.specs[id].max_run.unwrap_or(state.lifecycle().max_run),
    };
    (if longest > now { at.min(longest) } else { at }, estimate.is_some())
}
