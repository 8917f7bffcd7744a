//! The order of the stages, nothing else, and what a pass reports.
//!
//! Never: a rule of its own. Each stage is a file in `stage/`.

use crate::decision::StopCause;
use crate::engine::{Engine, Parked};
use crate::ids::{ClassId, JobId, PoolId};
use crate::reason::Reason;
use crate::stage::order::{self, Head, Line, LineUp};
use crate::stage::place::{self, Reach};
use crate::stage::{admit, afford, ahead, consolidate, deadline, drain, patience, preempt, provision, settle};
use crate::state::index::OrderKey;
use crate::state::jobs::Phase;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// What one pass did and what it waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "a report says why jobs wait"]
pub struct PlanReport {
    /// settle: rows looked at.
    pub settled: u32,
    /// admit, place: jobs that got quota and places.
    pub booked: u32,
    /// place: gangs whose start was sent out.
    pub started: u32,
    /// provision: claims decided on.
    pub bought: u32,
    /// preempt: runs that are to stop.
    pub stopped: u32,
    /// consolidate: nodes that take no more work.
    pub drained: u32,
    /// drain: nodes given back.
    pub terminated: u32,
    /// Classes that wait, and why, as their heads were told.
    pub waiting: Vec<(ClassId, Reason)>,
}

/// Rounds of a pass at most. Two or three are the rule; the bound is for the case that nobody thought of.
const MOST_ROUNDS: u32 = 16;

/// One pass.
pub(crate) fn pass(engine: &mut Engine) -> PlanReport {
    let mut report = PlanReport::default();
    for _ in 0..MOST_ROUNDS {
        let before = engine.state.freed;
        round(engine, &mut report);
        if engine.state.freed == before {
            break;
        }
    }
    report.waiting = waiting(engine);
    report
}

/// All stages once. What one job gave up may be what one before it waits for, so rounds are made until none gives anything up.
fn round(engine: &mut Engine, report: &mut PlanReport) {
    settle::run(engine, report);
    deadline::run(engine, report);
    start_woken(engine, report);
    patience::greet(engine);
    let before = engine.state.freed;
    let told_no = serve(engine, report);
    // Nothing is taken from anyone while there is still something to be given out.
    if engine.state.freed == before {
        preempt::run(engine, &told_no, report);
    }
    provision::keep_ready(engine, report);
    consolidate::run(engine, report);
    drain::run(engine, report);
    patience::look(engine, report);
    // Last, for what the others take away it has to make anew.
    ahead::run(engine, report);
}

/// The classes that wait, with what their heads were told. One that came forward since and may wait has a word of its own.
fn waiting(engine: &Engine) -> Vec<(ClassId, Reason)> {
    let told = |(class, line): (&ClassId, &BTreeSet<OrderKey>)| {
        let (parked, head) = (engine.memo.parked.get(class)?, line.first()?.job);
        let says = match patience::waits(&engine.state, head) {
            Some(waits) if parked.reason.by_design() => waits,
            None if parked.reason.by_design() => return None,
            _ => ahead::says(&engine.state, head).unwrap_or(parked.reason),
        };
        Some((*class, says))
    };
    engine.state.ix.queued.iter().filter_map(told).collect()
}

/// Starts booked gangs whose last node became ready.
fn start_woken(engine: &mut Engine, report: &mut PlanReport) {
    let woken = core::mem::take(&mut engine.state.woken);
    for job in woken {
        let row = &engine.state.jobs[job.ix()];
        if row.phase == Phase::Booked && place::all_ready(&engine.state, &row.places) {
            report.started += 1;
            engine.decide(crate::decision::Decision::Start { job });
        }
    }
}

/// A head that was told no, what it was told, and if it rests since: what had been freed by then.
pub(crate) type ToldNo = (Head, Reason, Option<u64>);

/// Serves the heads of all lines in order: admit, place, provision. Returns those who were told no, now or before.
fn serve(engine: &mut Engine, report: &mut PlanReport) -> Vec<ToldNo> {
    let woke_at = engine.state.woke_at();
    if order::all_rest(engine, woke_at) {
        return told_before(engine);
    }
    let mut waiting = Vec::new();
    let mut lines = LineUp::new(engine);
    while let Some(head) = lines.next_head(engine) {
        if let Some(parked) = engine.memo.resting(&engine.state, &head, woke_at) {
            waiting.push((head, parked.reason, Some(parked.freed)));
            continue;
        }
        let answer = match head.line {
            Line::Booked => find_ready(engine, head.key.job, report),
            Line::Queued => serve_job(engine, head.key.job, head.class, report),
        };
        match answer {
            Ok(()) => lines.served(engine, &head),
            Err(reason) => {
                park(engine, &head, reason);
                waiting.push((head, reason, None));
                if reason.by_design() {
                    // Those behind it that may wait no longer are not held up by it.
                    lines.pass_by(engine, &head);
                }
            }
        }
    }
    // Fairness and ageing order what is free; for whom others are stopped goes by tier, priority and arrival.
    waiting.sort_by_cached_key(|(head, ..)| order::strictly(&engine.state, head));
    waiting
}

/// Everybody rests: what each head was told before.
fn told_before(engine: &Engine) -> Vec<ToldNo> {
    let told = |head: Head| {
        let parked = engine.memo.parked.get(&head.class)?;
        Some((head, parked.reason, Some(parked.freed)))
    };
    order::strict_heads(&engine.state).into_iter().filter_map(told).collect()
}

fn park(engine: &mut Engine, head: &Head, reason: Reason) {
    let (freed, at) = (engine.state.freed, engine.state.now);
    let opens = (head.line == Line::Queued).then(|| afford::opens(&engine.state, head.class)).flatten();
    let until = reason.ask_again_at().into_iter().chain(opens).min();
    let parked = Parked { head: head.key.job, freed, at, reason, until };
    match head.line {
        Line::Booked => engine.memo.rebooked.insert(head.class, parked),
        Line::Queued => engine.memo.parked.insert(head.class, parked),
    };
}

/// A booked job that could start now on other nodes than those it waits for.
fn find_ready(engine: &mut Engine, job: JobId, report: &mut PlanReport) -> Result<(), Reason> {
    let row = &engine.state.jobs[job.ix()];
    let (Some(pool), share) = (row.pool, row.share) else {
        return Ok(());
    };
    let stays = admit::stays_beside(&engine.state, job);
    let places = if stays { None } else { place::find(engine, job, pool, Reach::Ready, share) };
    let Some(places) = places else {
        return Err(Reason::AwaitingNodes { eta: provision::eta(&engine.state, job) });
    };
    if place::spare::stays(&engine.state, job, &places) {
        return Err(Reason::AwaitingNodes { eta: provision::eta(&engine.state, job) });
    }
    engine.decide(crate::decision::Decision::Unbook { job });
    book(engine, job, pool, places, report);
    Ok(())
}

/// admit -> place -> provision, pool by pool.
fn serve_job(engine: &mut Engine, job: JobId, class: ClassId, report: &mut PlanReport) -> Result<(), Reason> {
    if let Some(no) = admit::batch_says(&engine.state, job) {
        let (pool, place) = place::beside(&engine.state, job, class).ok_or(no)?;
        book(engine, job, pool, alloc::vec![place], report);
        return Ok(());
    }
    let pools: Vec<PoolId> = engine.state.classes[class.ix()].fits.iter().map(|f| f.0).collect();
    let mut says = Reason::NoMatchingPool;
    for pool in pools {
        match serve_in(engine, job, class, pool, report) {
            Ok(()) => return Ok(()),
            Err(reason) => says = says.max(reason),
        }
    }
    if !says.by_design() && engine.state.jobs[job.ix()].reserved_until.is_some_and(|until| until > engine.state.now) {
        says = Reason::WaitingForPreemption { victims: victims_of(engine, job) };
    }
    Err(says)
}

fn serve_in(
    engine: &mut Engine,
    job: JobId,
    class: ClassId,
    pool: PoolId,
    report: &mut PlanReport,
) -> Result<(), Reason> {
    let asked = admit::share(&engine.state, class, pool);
    if let Some(no) = admit::quota_says(&engine.state, class, pool, asked) {
        return Err(no);
    }
    if let Some(no) = afford::says(&engine.state, class, pool) {
        return Err(no);
    }
    let most = afford::most(&engine.state, class, pool);
    let waits = patience::waits(&engine.state, job);
    let mut places = place::find(engine, job, pool, Reach::Ready, most);
    if waits.is_some() {
        places = places.and_then(|p| place::spare::or_wait(&engine.state, job, pool, most, p));
    }
    if let Some(other) = places.as_ref().and_then(|p| place::spare::elsewhere(engine, job, pool, most, p, report)) {
        places = Some(other);
    }
    if places.is_none() && waits.is_none() {
        // One that may wait takes what is ready: what is on its way was bought for others.
        places = place::find(engine, job, pool, Reach::InFlight, most);
    }
    if places.is_none() && provision::keep_for(engine, job, pool, most, waits.is_some()) {
        places = place::find(engine, job, pool, Reach::Ready, most);
    }
    if places.is_none()
        && let Some(waits) = waits
    {
        return Err(waits);
    }
    if places.is_none() {
        provision::buy_for(engine, job, pool, report)?;
        places = place::find(engine, job, pool, Reach::InFlight, most);
    }
    let Some(places) = places else {
        return Err(Reason::NoMatchingPool);
    };
    book(engine, job, pool, places, report);
    Ok(())
}

fn book(
    engine: &mut Engine,
    job: JobId,
    pool: PoolId,
    places: Vec<crate::effect::WorkerPlace>,
    report: &mut PlanReport,
) {
    let ready = place::all_ready(&engine.state, &places);
    report.booked += 1;
    engine.decide(crate::decision::Decision::Book { job, pool, places });
    ahead::booked(engine, job);
    if ready {
        report.started += 1;
        engine.decide(crate::decision::Decision::Start { job });
    }
}

fn victims_of(engine: &Engine, job: JobId) -> u32 {
    let ends_for = |id: &&JobId| {
        let row = &engine.state.jobs[id.ix()];
        let cause = match row.phase {
            Phase::Stopping { cause, .. } => Some(cause),
            _ => row.leaving.as_ref().map(|l| l.cause),
        };
        matches!(cause, Some(StopCause::Preempted { by } | StopCause::QuotaReclaimed { by }) if by == job)
    };
    engine.state.ix.ending.iter().filter(ends_for).count() as u32
}

/// Why a job is where it is.
pub(crate) fn why(engine: &Engine, id: JobId) -> Option<Reason> {
    let job = engine.state.jobs.get(id.ix())?;
    match job.phase {
        Phase::New => None,
        Phase::BackingOff { until } => Some(Reason::BackOff { until }),
        Phase::Queued => Some(why_queued(engine, id)),
        Phase::Booked => Some(Reason::AwaitingNodes { eta: provision::eta(&engine.state, id) }),
        Phase::Starting => Some(Reason::Starting),
        Phase::Serving => why_serving(engine, id),
        Phase::Running | Phase::Stopping { .. } | Phase::Ended { .. } | Phase::Done { .. } => job.reason,
    }
}

/// A service with a loaded replica needs no reason; another has its first replica's.
fn why_serving(engine: &Engine, id: JobId) -> Option<Reason> {
    let loaded = engine.state.services.get(&id).is_some_and(|row| row.loaded > 0);
    let first = engine.state.replicas(id).next().filter(|_| !loaded)?;
    why(engine, first)
}

/// The head of a line has the line's reason; those behind it have their position.
fn why_queued(engine: &Engine, id: JobId) -> Reason {
    let job = &engine.state.jobs[id.ix()];
    let victims = if job.kept.is_some() { victims_of(engine, id) } else { 0 };
    if victims > 0 || job.reserved_until.is_some_and(|until| until > engine.state.now) {
        return Reason::WaitingForPreemption { victims: victims_of(engine, id) };
    }
    let waits = patience::waits(&engine.state, id);
    if let Some(kept) = ahead::says(&engine.state, id).filter(|_| waits.is_none()) {
        return kept;
    }
    let key = OrderKey::of(job, engine.state.ix.ageing);
    let in_front = engine.state.ix.queued.get(&job.class).map_or(0, |line| line.range(..key).count());
    let told = engine.memo.parked.get(&job.class).filter(|_| in_front == 0);
    match (told, waits) {
        (Some(parked), None) => parked.reason,
        (Some(parked), Some(_)) if parked.head == id && !parked.reason.by_design() => parked.reason,
        (_, Some(waits)) => waits,
        (None, None) => Reason::BehindInQueue { position: in_front as u32 + 1 },
    }
}
