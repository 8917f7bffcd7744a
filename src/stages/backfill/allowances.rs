//! What is kept of quotas and budgets: for each that is too little, the first in the order that lacks it and that preemption did not help.
//!
//! ```text
//! review   still short: made anew when its time has come, or when it would not be enough any more; at its time backfill is stopped
//!          enough: it stays while the holder waits for nothing but room
//! claim    every other lack goes to the first in the order; who goes before a holder takes it from that one
//! ```
//!
//! Never: for who waits by choice, or could not go anywhere with it.

use crate::decision::{Decision, StopCause};
use crate::engine::Engine;
use crate::ids::{ClassId, JobId, PoolId};
use crate::moves;
use crate::plan::PlanReport;
use crate::rules::order::{ClassQueue, FairShareOrder, Head};
use crate::rules::placement::{self, NodeScope};
use crate::rules::{allowances, forecast, protection, reservations, supply};
use crate::state::State;
use crate::state::allowances::{Allowance, AllowanceReservation};
use crate::state::jobs::Phase;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

pub(super) fn run(engine: &mut Engine, report: &mut PlanReport) {
    let held: Vec<Allowance> = engine.state.allowances().keys().copied().collect();
    for of in held {
        review(engine, of, report);
    }
    claim(engine);
}

/// Looks at what is kept: it ends, stays as it is, or is estimated again.
fn review(engine: &mut Engine, of: Allowance, report: &mut PlanReport) {
    let Some(kept) = engine.state.allowances().get(&of).cloned() else { return };
    let state = &engine.state;
    let row = &state.jobs[kept.job];
    if row.phase != Phase::Queued || row.kept.is_some() || !reservations::waits_for_others(state, kept.job) {
        return engine.decide(Decision::ReleaseAllowance { of });
    }
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
    let over = kept.from <= state.now;
    if over {
        stop_overrunners(engine, &kept, report);
    }
    if over || !allowances::suffices(&engine.state, of, &kept) {
        let stays =
            |id: &JobId| matches!(engine.state.jobs[*id].phase, Phase::Booked | Phase::Starting | Phase::Running);
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

/// Backfill that has not ended when what it used is due.
fn stop_overrunners(engine: &mut Engine, kept: &AllowanceReservation, report: &mut PlanReport) {
    for job in &kept.runs {
        let row = &engine.state.jobs[*job];
        match row.phase {
            _ if row.backfill_for.is_none() => {}
            Phase::Booked => engine.decide(Decision::Unbook { job: *job }),
            Phase::Running if row.broken.is_none() && protection::yields_reservation(&engine.state, *job, kept.job) => {
                report.stopped += 1;
                moves::stop(engine, *job, StopCause::Overran { by: kept.job });
            }
            _ => {}
        }
    }
}

/// Whether a job that has quota and money will have places: there are some, or it waits for what ends by itself.
fn finds_room(engine: &mut Engine, job: JobId, pool: PoolId) -> bool {
    let asked = allowances::asked(&engine.state, job, pool);
    supply::comes(&engine.state, job, pool) || placement::find(engine, job, pool, NodeScope::InFlight, asked).is_some()
}

/// Gives each lack that is nobody's to the first in the order.
fn claim(engine: &mut Engine) {
    let mut claims: BTreeMap<ClassId, JobId> = BTreeMap::new();
    let state = &engine.state;
    for (class, jobs) in &state.index.queued {
        let Some(job) = jobs.first().map(|key| key.job) else { continue };
        if lacking(state, job, *class).into_iter().flatten().any(|(pool, of)| allowances::is_open(state, of, job, pool))
        {
            claims.insert(*class, job);
        }
    }
    if claims.is_empty() {
        return;
    }
    let mut order = FairShareOrder::new(engine);
    while let Some(Head { class, class_queue, .. }) = order.next_head(engine) {
        if class_queue == ClassQueue::Queued
            && let Some(job) = claims.remove(&class)
        {
            claim_for(engine, job, class);
        }
        if claims.is_empty() {
            return;
        }
    }
}

/// What a job lacks of quotas and budgets, by pool. `None`: in one of its pools nothing.
fn lacking(state: &State, job: JobId, class: ClassId) -> Option<Vec<(PoolId, Allowance)>> {
    let mut all = Vec::new();
    for (pool, _) in &state.classes[class].fits {
        let lacks = allowances::lacks(state, job, *pool);
        if lacks.is_empty() {
            return None;
        }
        all.extend(lacks.into_iter().map(|of| (*pool, of)));
    }
    let waits = state.jobs[job].kept.is_none() && reservations::waits_for_others(state, job);
    waits.then_some(all)
}

/// Keeps what a job lacks in the pool where it is there first.
fn claim_for(engine: &mut Engine, job: JobId, class: ClassId) {
    let mut best: Option<Vec<(Allowance, AllowanceReservation)>> = None;
    let from = |made: &[(Allowance, AllowanceReservation)]| made.iter().map(|(_, kept)| kept.from).max();
    let holds = engine.state.allowances().values().find(|kept| kept.job == job).map(|kept| kept.pool);
    let mut lacks = lacking(&engine.state, job, class).unwrap_or_default();
    lacks.retain(|(pool, _)| holds.is_none_or(|own| own == *pool));
    for pool in engine.state.classes[class].fits.iter().map(|(pool, _)| *pool).collect::<Vec<_>>() {
        let own = lacks.iter().filter(|(at, _)| *at == pool).map(|(_, of)| *of);
        let open: Vec<Allowance> = own.filter(|of| allowances::is_open(&engine.state, *of, job, pool)).collect();
        let made = open.into_iter().map(|of| Some((of, forecast::allowance(engine, job, pool, of)?)));
        let Some(made) = made.collect::<Option<Vec<_>>>().filter(|made| !made.is_empty()) else { continue };
        if best.as_ref().is_none_or(|best| from(&made) < from(best)) {
            best = Some(made);
        }
    }
    for (of, reservation) in best.into_iter().flatten() {
        engine.decide(Decision::KeepAllowance { of, reservation });
    }
}
