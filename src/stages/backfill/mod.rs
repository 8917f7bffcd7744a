//! backfill: a gang that cannot be served gets a reservation, so that smaller jobs cannot keep it waiting for ever. What is certain
//! to be over before it starts may go first.
//!
//! ```text
//! first gang in the order that has quota, cannot be served, and that preemption does not help:
//!   its reservation (rules/forecast.rs)   nodes that are expected to be free at `from`, or room under a ceiling then
//! until `from`  those behind it are let in where they end (p90) by then: backfill
//! at `from`     what was there before may go on, and the time is estimated again; once it is gone, backfill that overran is stopped
//! ```
//!
//! Source: EASY backfilling (Lifka 1995). One reservation a pool.
//!
//! Never: keeps out a job that goes before the gang in the order of service: who owns what it asks where the gang would borrow, then by tier, one below
//! its `minShare` first, priority and arrival; never stops what ran there before; never keeps anything for a gang whose quota is in use.

mod allowances;

use crate::decision::{Decision, StopCause};
use crate::engine::Engine;
use crate::ids::{ClassId, JobId, PoolId};
use crate::moves;
use crate::plan::PlanReport;
use crate::reason::Reason;
use crate::rules::forecast::{expected, goes_without, holders, once_given_back, soonest, soonest_of};
use crate::rules::launch::LaunchOption;
use crate::rules::order::{Head, StrictHeads};
use crate::rules::rank::{Borrows, Ranks, Taker};
use crate::rules::reservations::{Room, comes_first, holds_gang, is_large, may_reserve, nodes_differ};
use crate::rules::{demand, protection, quota, settings, supply};
use crate::state::State;
use crate::state::allowances::Allowance;
use crate::state::brakes::Brake;
use crate::state::jobs::{Job, Phase};
use crate::state::nodes::Node;
use crate::state::reservations::Reservation;
use crate::units::{MilliGpu, Span, Timestamp};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Gangs, and other jobs, for which a reservation is sought in one pass at most: bounds a pass.
const MOST_TRIES: u32 = 4;

/// Jobs that are no gangs that are looked at in one pass at most.
const MOST_LOOKS: u32 = 4096;

/// Runs the stage. `broken`: jobs that lost what they were promised to others, which have not been served yet.
pub(crate) fn run(engine: &mut Engine, broken: &BTreeSet<JobId>, report: &mut PlanReport) {
    allowances::run(engine, broken, report);
    let pools: Vec<PoolId> = engine.state.reservations.keys().copied().collect();
    let mut kept = BTreeMap::new();
    for pool in &pools {
        if let Some(job) = review(engine, *pool, report) {
            kept.insert(*pool, job);
        }
    }
    claim(engine, &mut kept);
    for pool in pools {
        if !kept.contains_key(&pool) {
            engine.decide(Decision::EndReservation { pool });
        }
    }
}

/// Looks at what is kept in a pool. Returns for whom, if it still is.
fn review(engine: &mut Engine, pool: PoolId, report: &mut PlanReport) -> Option<JobId> {
    let reservation = engine.state.reservations.get(&pool)?.clone();
    if supply::is_unanswered(&engine.state, reservation.job) {
        return Some(reservation.job);
    }
    if !good(engine, pool, &reservation) {
        return None;
    }
    let (job, now) = (reservation.job, engine.state.now);
    // Who has not ended in time may have ended while nobody watched.
    if engine.state.is_unseen() {
        return Some(job);
    }
    let over = reservation.from <= now;
    if over || reservation.delayed {
        let late = holders(&engine.state, &reservation.nodes);
        if over && late.is_empty() {
            return Some(job);
        }
        let due = Due { by: job, own: true, again: !over };
        let stops = match reservation.room.is_empty() {
            true => due.found(engine, pool, &late, None),
            false => due.all(engine, pool, &late),
        };
        if over || !stops.is_empty() {
            due.stop(engine, &stops, report);
            return renew(engine, pool, &reservation, stops.is_empty(), &late);
        }
    }
    let (from, known) = expected(&engine.state, &reservation.nodes);
    // Runs that ended early. Small steps are not worth a record.
    if reservation.from.since(from).0 > reservation.from.since(now).0 / 8 {
        engine.decide(Decision::MakeReservation { pool, reservation: Reservation { from, known, ..reservation } });
    }
    Some(job)
}

/// Its time has come, and there is work left: the time is estimated again. `goes_on`: nothing is stopped for it.
fn renew(
    engine: &mut Engine,
    pool: PoolId,
    reservation: &Reservation,
    goes_on: bool,
    late: &BTreeSet<JobId>,
) -> Option<JobId> {
    let state = &engine.state;
    let stays = |id: &JobId| !matches!(state.jobs[*id].phase, Phase::Stopping { .. } | Phase::Queued);
    let delayed = goes_on && late.iter().any(stays);
    let taken = state.jobs[reservation.job].kept.is_some() && !reservation.room.is_empty();
    let renewed = if taken {
        // What others were stopped for stays what it was.
        let (from, known) = expected(state, &reservation.nodes);
        Reservation { from, known, ..reservation.clone() }
    } else {
        soonest(engine, reservation.job, pool)?
    };
    let renewed = Reservation { delayed, ..renewed };
    if renewed != *reservation {
        engine.decide(Decision::MakeReservation { pool, reservation: renewed });
    }
    Some(reservation.job)
}

/// What of some runs was let in ahead of a job and has to end, now that the time of what is kept for the job has come.
#[derive(Clone, Copy)]
struct Due {
    /// For whom it is kept.
    by: JobId,
    /// Only what was let in ahead of that job.
    own: bool,
    /// The time came before, and something else kept the job waiting: what was let in since may go on for what it states.
    again: bool,
}

impl Due {
    /// Those that are stopping, have not started, or may be stopped.
    fn ending(self, state: &State, runs: &BTreeSet<JobId>) -> Vec<JobId> {
        let ends = |row: &&Job| match row.phase {
            Phase::Stopping { .. } => true,
            Phase::Booked => self.takes(row) && !self.again,
            _ => self.may_stop(state, row),
        };
        runs.iter().filter_map(|id| state.jobs.get(*id)).filter(ends).map(|row| row.id).collect()
    }

    /// What is to end. None where the job would still lack its places, or `of`, without them: to stop them would be in vain.
    fn found(self, engine: &mut Engine, pool: PoolId, runs: &BTreeSet<JobId>, of: Option<Allowance>) -> Vec<JobId> {
        let ending = self.for_good(engine, pool, self.ending(&engine.state, runs));
        let stops = still_there(&engine.state, &ending);
        // With none of them gone it may go as well, beside them: then it has not been asked in this pass.
        let goes = !stops.is_empty()
            && !goes_without(engine, self.by, pool, of, &[])
            && goes_without(engine, self.by, pool, of, &ending);
        if goes { stops } else { Vec::new() }
    }

    /// The same where nodes are to be given back: none while anything else is on them.
    fn all(self, engine: &mut Engine, pool: PoolId, runs: &BTreeSet<JobId>) -> Vec<JobId> {
        let ending = self.for_good(engine, pool, self.ending(&engine.state, runs));
        if ending.len() == runs.len() { still_there(&engine.state, &ending) } else { Vec::new() }
    }

    /// Those that would not take back what they lose: an owner does from who borrows, and to stop it would be in vain, again and again.
    fn for_good(self, engine: &mut Engine, pool: PoolId, mut ending: Vec<JobId>) -> Vec<JobId> {
        if still_there(&engine.state, &ending).is_empty() {
            return ending;
        }
        let mark = engine.state.checkpoint();
        let mut ranks = Ranks::new(&engine.state);
        let there = |state: &State, id: &JobId| state.jobs[*id].pool == Some(pool);
        let least =
            |state: &State, id: JobId| quota::share(state, state.jobs[id].class, pool).min(state.jobs[id].share);
        let runs: Vec<JobId> = ending.iter().copied().filter(|id| there(&engine.state, id)).collect();
        // Each is judged as it stands, as the smallest that it could be: as such it would come back.
        for id in &runs {
            let (queue, share, least) =
                (engine.state.jobs[*id].queue, engine.state.jobs[*id].share, least(&engine.state, *id));
            engine.state.give_quota_back(queue, pool, share - least);
            ranks.set(&engine.state, *id, pool, least);
        }
        let stood: BTreeMap<JobId, Borrows> = runs.iter().map(|id| (*id, ranks.of_run(&engine.state, *id))).collect();
        for id in &runs {
            let (queue, least) = (engine.state.jobs[*id].queue, least(&engine.state, *id));
            engine.state.give_quota_back(queue, pool, least);
            ranks.set(&engine.state, *id, pool, MilliGpu(0));
        }
        if let Some(taker) = Taker::of(&engine.state, self.by, pool) {
            let back =
                |id: &JobId| stood.get(id).is_some_and(|stood| ranks.takes_back(&engine.state, &taker, *id, *stood));
            let back: BTreeSet<JobId> = ending.iter().copied().filter(back).collect();
            ending.retain(|id| !back.contains(id));
        }
        engine.state.rollback(mark);
        ending
    }

    fn takes(self, row: &Job) -> bool {
        row.backfill_for.is_some_and(|of| !self.own || of == self.by)
    }

    fn may_stop(self, state: &State, row: &Job) -> bool {
        let used_up = || demand::remaining_p90(state, row.id).is_none_or(|left| left <= Span::ZERO);
        row.phase == Phase::Running
            && self.takes(row)
            && state.brake(&Brake::Preemption).is_none()
            && row.broken.is_none()
            && protection::yields_reservation(state, row.id, self.by)
            && (!self.again || used_up())
    }

    /// What has not started waits again, and what runs is stopped.
    fn stop(self, engine: &mut Engine, runs: &[JobId], report: &mut PlanReport) {
        for id in runs {
            if engine.state.jobs[*id].phase == Phase::Booked {
                engine.decide(Decision::Unbook { job: *id });
            } else {
                report.stopped += 1;
                moves::stop(engine, *id, StopCause::Overran { by: self.by });
            }
        }
    }
}

/// Those that are not stopping yet.
fn still_there(state: &State, runs: &[JobId]) -> Vec<JobId> {
    runs.iter().copied().filter(|id| !matches!(state.jobs[*id].phase, Phase::Stopping { .. })).collect()
}

/// Whether a job will have quota and money again once those have ended that were let in ahead of it.
fn may_once_backfill_ends(engine: &mut Engine, pool: PoolId, reservation: &Reservation) -> bool {
    let state = &engine.state;
    let ahead = |id: &JobId| state.jobs[*id].backfill_for == Some(reservation.job);
    let ahead: Vec<JobId> = holders(state, &reservation.nodes).into_iter().filter(ahead).collect();
    !ahead.is_empty() && once_given_back(engine, &ahead, |state| may_reserve(state, reservation.job, pool))
}

/// Whether a reservation still is what it was made for.
fn good(engine: &mut Engine, pool: PoolId, reservation: &Reservation) -> bool {
    let state = &engine.state;
    let row = &state.jobs[reservation.job];
    let alone = reservation.room.is_empty() && !is_large(state, row.class, pool);
    // Places for a part of it may be kept beside the room for the rest.
    let beside = row.kept.is_some() && row.reserved_until.is_some() && !reservation.room.is_empty();
    if row.phase != Phase::Queued || alone {
        return false;
    }
    if !(beside || may_reserve(state, reservation.job, pool) || may_once_backfill_ends(engine, pool, reservation)) {
        return false;
    }
    let state = &engine.state;
    let row = &state.jobs[reservation.job];
    let fits = supply::fits(state, row.class, pool);
    if reservation.room.is_empty() {
        let there = |n: &Node| n.open() && n.pool == pool && fits.binary_search(&n.offering).is_ok();
        return reservation.nodes.iter().all(|id| state.nodes.get(id).is_some_and(there));
    }
    let refused = supply::refusal(state, reservation.job, pool);
    let option = LaunchOption { counts: reservation.room.clone(), ..LaunchOption::default() };
    // Of what is being stopped for it, quota and money are not its own yet.
    let waits = match row.kept {
        Some(_) => supply::may_be_had(state, &option),
        None => {
            let options = supply::options_in_stock(state, row.class, pool);
            matches!(refused, Some(Reason::Ceiling { .. })) && options.iter().any(|c| c.counts == option.counts)
        }
    };
    waits
        && holds_gang(state, pool, reservation)
        && Room::of(state, pool, reservation.job).holds(state, &option, &reservation.nodes)
}

/// Whether what all pools have kept is for jobs before a head, and so before all that come after it in the strict order.
fn nobody_gives_way(state: &State, kept: &BTreeMap<PoolId, JobId>, head: &Head) -> bool {
    let stays = |holder: JobId| state.jobs[holder].kept.is_some() || !comes_first(state, head.key.job, holder);
    head.key.start_by == Timestamp::NEVER
        && kept.len() == state.declared_pools()
        && kept.values().all(|holder| stays(*holder))
}

/// Whether the jobs of a class, or of others in its line, are large in any pool: those of a line differ in the pools that fit them.
fn may_be_large(state: &State, class: ClassId) -> bool {
    (0..state.declared_pools()).any(|pool| is_large(state, class, PoolId(pool as u16)))
}

/// Gives the first in the order what they can reserve: gangs, and smaller jobs where of what frees nothing is their own.
fn claim(engine: &mut Engine, kept: &mut BTreeMap<PoolId, JobId>) {
    let state = &engine.state;
    let mut gangs = StrictHeads::new(state, |class| may_be_large(state, class));
    let mixed = nodes_differ(state);
    let mut others = StrictHeads::new(state, |class| mixed && !may_be_large(state, class));
    let (mut tries, mut of_others, mut looks) = (0, 0, 0);
    loop {
        let small = looks < MOST_LOOKS && of_others < MOST_TRIES && others.goes_before(&gangs);
        let Some(head) = (if small { others.next(&engine.state) } else { gangs.next(&engine.state) }) else { return };
        let job = head.key.job;
        if nobody_gives_way(&engine.state, kept, &head) {
            return;
        }
        if kept.values().any(|holder| *holder == job) {
            continue;
        }
        looks += u32::from(small);
        let tried = claim_for(engine, &head, kept);
        if small {
            of_others += tried;
        } else {
            tries += tried;
        }
        if tries >= MOST_TRIES {
            return;
        }
    }
}

/// Keeps for a head what it can reserve, in the pool where that is soonest. In how many was it sought?
fn claim_for(engine: &mut Engine, head: &Head, kept: &mut BTreeMap<PoolId, JobId>) -> u32 {
    let job = head.key.job;
    let pools = settings::pools(&engine.state, head.class);
    let pools: Vec<(PoolId, Option<JobId>)> = pools.map(|pool| (pool, kept.get(&pool).copied())).collect();
    let (tries, best) = soonest_of(engine, job, &pools);
    if let Some((pool, reservation)) = best {
        if engine.state.reservations.get(&pool) != Some(&reservation) {
            engine.decide(Decision::MakeReservation { pool, reservation });
        }
        kept.insert(pool, job);
    }
    tries
}
