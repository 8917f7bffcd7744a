//! What is kept of quotas and budgets: for each that is too little, the first in the order that lacks it and that preemption did not help.
//!
//! ```text
//! review   the holder lacks something else for good: given up
//!          still short: made anew when its time has come, or when it would not be enough any more; at its time backfill is stopped
//!          enough: it stays while the holder waits for nothing but room
//! claim    every other lack goes to the first in the order; who goes before a holder takes it from that one
//! give up  what was taken from others for a job that nothing is in stock for serves who could keep it
//! ```
//!
//! Never: for who waits by choice, or could not go anywhere with it.

use super::Due;
use crate::decision::Decision;
use crate::engine::Engine;
use crate::ids::{ClassId, JobId, PoolId};
use crate::plan::PlanReport;
use crate::rules::order::{ClassQueue, FairShareOrder};
use crate::rules::placement::{self, NodeScope};
use crate::rules::rank::{Ranks, Taker};
use crate::rules::{allowances, forecast, protection, reservations, settings, supply};
use crate::state::State;
use crate::state::allowances::{Allowance, AllowanceReservation};
use crate::state::jobs::Phase;
use crate::state::lines::Line;
use crate::units::MilliGpu;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Claims that are settled in one pass at most: bounds a pass.
const MOST_ROUNDS: u32 = 64;

pub(super) fn run(engine: &mut Engine, broken: &BTreeSet<JobId>, report: &mut PlanReport) {
    give_up_in_vain(engine);
    let held: Vec<Allowance> = engine.state.allowances().keys().copied().collect();
    for of in held {
        review(engine, of, report);
    }
    claim(engine, broken);
}

/// Looks at what is kept: it ends, stays as it is, or is estimated again.
fn review(engine: &mut Engine, of: Allowance, report: &mut PlanReport) {
    let Some(kept) = engine.state.allowances().get(&of).cloned() else { return };
    if supply::is_unanswered(&engine.state, kept.job) {
        return;
    }
    let state = &engine.state;
    let row = &state.jobs[kept.job];
    if row.phase != Phase::Queued || row.kept.is_some() || !reservations::waits_for_others(state, kept.job) {
        return engine.decide(Decision::ReleaseAllowance { of });
    }
    if lacks_for_good(engine, kept.job, kept.pool) {
        return engine.decide(Decision::ReleaseAllowance { of });
    }
    let state = &engine.state;
    if !allowances::is_short(state, of, kept.job, kept.pool) {
        if !finds_room(engine, kept.job, kept.pool) {
            engine.decide(Decision::ReleaseAllowance { of });
        }
        return;
    }
    // Who has not ended in time may have ended while nobody watched.
    if state.is_unseen() {
        return;
    }
    let past = allowances::begins(state, &kept) <= state.now;
    let runs: BTreeSet<JobId> = kept.runs.iter().copied().filter(|id| allowances::still_holds(state, *id)).collect();
    let due = Due { by: kept.job, own: false, again: !past };
    let stops = if past || kept.delayed { due.found(engine, kept.pool, &runs, Some(of)) } else { Vec::new() };
    due.stop(engine, &stops, report);
    let over = past || !stops.is_empty();
    if over || !allowances::suffices(&engine.state, of, &kept) {
        let stays = |id: &JobId| {
            let row = engine.state.jobs.get(*id);
            row.is_some_and(|row| matches!(row.phase, Phase::Booked | Phase::Starting | Phase::Running))
        };
        let delayed = over && kept.runs.iter().any(stays);
        match forecast::allowance(engine, kept.job, kept.pool, of) {
            Some(made) if made != kept => {
                engine.decide(Decision::KeepAllowance { of, reservation: AllowanceReservation { delayed, ..made } });
            }
            Some(_) => {}
            None => engine.decide(Decision::ReleaseAllowance { of }),
        }
        return;
    }
    let (from, known) = forecast::ends_of(&engine.state, &kept.runs);
    // Runs that ended early. Small steps are not worth a record. What waits for a period to begin ends no sooner.
    if matches!(of, Allowance::Quota(..)) && kept.from.since(from).0 > kept.from.since(engine.state.now).0 / 8 {
        engine.decide(Decision::KeepAllowance { of, reservation: AllowanceReservation { from, known, ..kept } });
    }
}

/// Whether a job lacks something in a pool that is kept for nobody, and that would not be enough with all gone that it could wait for.
fn lacks_for_good(engine: &mut Engine, job: JobId, pool: PoolId) -> bool {
    let state = &engine.state;
    let lacks = allowances::all_lacks(state, job, pool).into_iter();
    let open: Vec<Allowance> = lacks.filter(|of| !state.allowances().contains_key(of)).collect();
    open.into_iter().any(|of| forecast::allowance(engine, job, pool, of).is_none())
}

/// What others gave up for a job is its own until it runs. While nothing that it fits is in stock it gives that up to who is served with it, and from
/// whom it could not take it back.
fn give_up_in_vain(engine: &mut Engine) {
    let promised: Vec<JobId> = engine.state.index.kept.iter().copied().collect();
    for job in promised {
        let Some(kept) = engine.state.jobs[job].kept.filter(|_| waits_for_stock(&engine.state, job)) else { continue };
        if !finds_room(engine, job, kept.pool) && serves_another(engine, job, kept.pool) {
            engine.decide(Decision::Unreserve { job });
        }
    }
}

/// Whether a job has what was taken for it of quotas and budgets, and no places: none are kept for it, and nothing is being stopped.
fn waits_for_stock(state: &State, job: JobId) -> bool {
    let row = &state.jobs[job];
    row.phase == Phase::Queued
        && row.reserved_until.is_none()
        && protection::stopping_for(state, job) == 0
        && reservations::reserved_from(state, job).is_none()
        && reservations::waits_for_others(state, job)
}

/// Whether somebody lacks what a job keeps, goes somewhere with it, and would keep it.
fn serves_another(engine: &mut Engine, job: JobId, pool: PoolId) -> bool {
    let state = &engine.state;
    let Some(taker) = Taker::of(state, job, pool) else { return false };
    let lacks = |other: &JobId| {
        let row = &state.jobs[*other];
        let fits = !supply::fits(state, row.class, pool).is_empty();
        row.class != taker.class
            && fits
            && row.kept.is_none()
            && allowances::no_share(state, *other, pool).is_some()
            && reservations::waits_for_others(state, *other)
    };
    let heads = state.index.queued.keys().filter_map(|class| state.index.first_queued(*class));
    let lack: Vec<JobId> = heads.map(|key| key.job).filter(lacks).collect();
    let mark = engine.state.checkpoint();
    engine.state.set_kept(job, None);
    let mut ranks = Ranks::new(&engine.state);
    let serves = lack.into_iter().any(|other| {
        allowances::no_share(&engine.state, other, pool).is_none()
            && finds_place(engine, other, pool)
            && !takes_back(engine, &mut ranks, &taker, other)
    });
    engine.state.rollback(mark);
    serves
}

/// Whether a job that waits has places, or can be bought for.
fn finds_place(engine: &mut Engine, job: JobId, pool: PoolId) -> bool {
    let asked = allowances::asked(&engine.state, job, pool);
    placement::find(engine, job, pool, NodeScope::InFlight, asked).is_some() || supply::can_be_had(engine, job, pool)
}

/// Whether a taker could take from another job what that one asks for, once it has it.
fn takes_back(engine: &mut Engine, ranks: &mut Ranks, taker: &Taker, other: JobId) -> bool {
    let (queue, asked) = (engine.state.jobs[other].queue, allowances::asked(&engine.state, other, taker.pool));
    engine.state.take_quota(queue, taker.pool, asked);
    ranks.set(&engine.state, other, taker.pool, asked);
    let stood = ranks.of_holder(&engine.state, other, taker.pool);
    engine.state.give_quota_back(queue, taker.pool, asked);
    ranks.set(&engine.state, other, taker.pool, MilliGpu(0));
    ranks.ground(&engine.state, taker, other, stood).is_some()
}

/// Whether a job that has quota and money will have places: there are some, or it waits for what ends by itself.
fn finds_room(engine: &mut Engine, job: JobId, pool: PoolId) -> bool {
    let asked = allowances::asked(&engine.state, job, pool);
    supply::comes(&engine.state, job, pool) || placement::find(engine, job, pool, NodeScope::InFlight, asked).is_some()
}

/// A job that lacks quota or money: the first of its class.
struct Claim {
    job: JobId,
    class: ClassId,
    lacks: Vec<(PoolId, Allowance)>,
}

/// Gives each lack to the first that has it.
fn claim(engine: &mut Engine, broken: &BTreeSet<JobId>) {
    let mut claims: BTreeMap<ClassId, Claim> = BTreeMap::new();
    let state = &engine.state;
    let mut open = false;
    for (key, class) in state.index.lines.all().filter(|line| may_lack(state, line)).flat_map(Line::heads) {
        // Those for whom a promise was broken are served first: nothing is kept from them on its account.
        let job = key.job;
        if broken.contains(&job) {
            continue;
        }
        let Some(mut lacks) = lacking(state, job, class).filter(|lacks| !lacks.is_empty()) else { continue };
        let own = state.allowances().values().find(|kept| kept.job == job).map(|kept| kept.pool);
        lacks.retain(|(pool, _)| own.is_none_or(|own| own == *pool));
        open |= lacks.iter().any(|(pool, of)| allowances::is_open(state, *of, job, *pool));
        claims.insert(class, Claim { job, class, lacks });
    }
    if !open {
        return;
    }
    let mut claims = in_order(engine, claims);
    for _ in 0..MOST_ROUNDS {
        if !claim_once(engine, &mut claims) {
            return;
        }
    }
}

/// Whether any class of a line may lack quota or money. Without budgets, and with nothing kept for one class of it, all of them lack the same in a
/// pool; they differ only in the pools that fit them.
fn may_lack(state: &State, line: &Line) -> bool {
    let Some((key, _)) = line.heads().next() else { return false };
    let lacks = |pool: usize| !allowances::lacks(state, key.job, PoolId(pool as u16)).is_empty();
    !state.budgets.none() || !state.index.kept.is_empty() || (0..state.declared_pools()).any(lacks)
}

fn in_order(engine: &Engine, mut claims: BTreeMap<ClassId, Claim>) -> Vec<Claim> {
    let mut all = Vec::new();
    let mut order = FairShareOrder::new(engine);
    while !claims.is_empty()
        && let Some(head) = order.next_head(engine)
    {
        let claim = (head.class_queue == ClassQueue::Queued).then(|| claims.remove(&head.class)).flatten();
        all.extend(claim);
        order.refused(engine, &head, false);
    }
    all
}

/// Who is first gets what it lacks, or lacks it in vain. Whether one did.
fn claim_once(engine: &mut Engine, claims: &mut [Claim]) -> bool {
    let mut by: BTreeMap<Allowance, Vec<(JobId, PoolId)>> = BTreeMap::new();
    for claim in claims.iter() {
        claim.lacks.iter().for_each(|(pool, of)| by.entry(*of).or_default().push((claim.job, *pool)));
    }
    let has = |of: &Allowance, job| engine.state.allowances().get(of).is_some_and(|kept| kept.job == job);
    let first = by.iter().filter_map(|(of, jobs)| Some((*of, allowances::first_of(&engine.state, *of, jobs)?)));
    let first: BTreeMap<Allowance, JobId> = first.filter(|(of, job)| !has(of, *job)).collect();
    let Some(claim) =
        claims.iter_mut().find(|claim| claim.lacks.iter().any(|(_, of)| first.get(of) == Some(&claim.job)))
    else {
        return false;
    };
    let open = claim.lacks.iter().filter(|(_, of)| first.get(of) == Some(&claim.job)).copied().collect();
    let pool = claim_for(engine, claim, open);
    claim.lacks.retain(|(at, _)| Some(*at) == pool);
    true
}

/// What a job lacks of quotas and budgets, by pool. `None`: in one of its pools nothing, and it will have places there. Else it would wait there while
/// others pass it by in the pools where it lacks something.
fn lacking(state: &State, job: JobId, class: ClassId) -> Option<Vec<(PoolId, Allowance)>> {
    let lacks = settings::pools(state, class).map(|pool| (pool, allowances::lacks(state, job, pool)));
    let (free, short): (Vec<_>, Vec<_>) = lacks.partition(|(_, lacks)| lacks.is_empty());
    let reserved = |pool| state.reservations().get(&pool).is_some_and(|kept| kept.job == job);
    if short.is_empty() || free.into_iter().any(|(pool, _)| reserved(pool) || supply::comes(state, job, pool)) {
        return None;
    }
    let all = short.into_iter().flat_map(|(pool, lacks)| lacks.into_iter().map(move |of| (pool, of)));
    let waits = state.jobs[job].kept.is_none() && reservations::waits_for_others(state, job);
    waits.then(|| all.collect())
}

/// Keeps what a job lacks, and is open to it, in the pool where it is there first. In which? `None`: nowhere would it ever be enough.
fn claim_for(engine: &mut Engine, claim: &Claim, open: Vec<(PoolId, Allowance)>) -> Option<PoolId> {
    let mut best: Option<(PoolId, Vec<(Allowance, AllowanceReservation)>)> = None;
    let from = |made: &[(Allowance, AllowanceReservation)]| made.iter().map(|(_, kept)| kept.from).max();
    for pool in settings::pools(&engine.state, claim.class).collect::<Vec<_>>() {
        let own = open.iter().filter(|(at, _)| *at == pool).map(|(_, of)| *of);
        let made = own.map(|of| Some((of, forecast::allowance(engine, claim.job, pool, of)?)));
        let Some(made) = made.collect::<Option<Vec<_>>>().filter(|made| !made.is_empty()) else { continue };
        if lacks_for_good(engine, claim.job, pool) {
            continue;
        }
        if best.as_ref().is_none_or(|(_, best)| from(&made) < from(best)) {
            best = Some((pool, made));
        }
    }
    let (pool, made) = best?;
    for (of, reservation) in made {
        engine.decide(Decision::KeepAllowance { of, reservation });
    }
    Some(pool)
}
