//! admit: the heads of all class queues in order. Each gets its places, or a reason why it waits.
//!
//! ```text
//! booked head   ready places elsewhere                                    -> Unbook, Book, Start
//! queued head   batch, then pool by pool: quota -> budget -> places that are ready -> places in flight
//!               -> an empty node on its way out -> a purchase              -> Book, and Start if all is ready
//! no place      its class rests until something that could help happens
//! ```
//!
//! What heads are bought is tried first, each for itself. Where another set of nodes is cheaper for all of them together, or carries more under
//! a ceiling, it is taken back and that set is bought instead (together.rs).
//!
//! Quota is taken when places are booked and given back when they are: a job that can have no places holds no quota.
//!
//! Never: stops anything. What stops could help with is left to preempt.

mod purchase;
mod together;

use crate::decision::Decision;
use crate::effect::WorkerPlace;
use crate::engine::Engine;
use crate::ids::{ClassId, JobId, NodeId, PoolId};
use crate::memo::Parked;
use crate::plan::PlanReport;
use crate::reason::Reason;
use crate::rules::allowances::Backfill;
use crate::rules::forecast::soonest;
use crate::rules::order::{self, ClassQueue, FairShareOrder, Head};
use crate::rules::placement::{self, NodeScope};
use crate::rules::{
    allowances, batch, budget, demand, protection, quota, reservations, settings, start_targets, supply, timing,
};
use crate::state::State;
use crate::state::allowances::Allowance;
use crate::state::places::nodes_of;
use crate::state::reservations::Reservation;
use crate::units::{MilliGpu, Timestamp};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use together::Together;

/// How far heads are served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Until {
    /// Up to the first that lacks something: what is behind it must not get what it needs.
    Lack,
    /// All of them.
    End,
}

/// How far it came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Came {
    /// A head that was asked now lacks something.
    ToLack,
    /// All have been asked, or rest.
    ToEnd,
}

/// The heads that have not been asked yet, in their order.
pub(crate) struct Serving {
    order: FairShareOrder,
    woke_at: Timestamp,
    together: Together,
}

impl Serving {
    /// All heads. Without one that could be helped by anything, none is asked.
    pub(crate) fn new(engine: &Engine) -> Serving {
        let woke_at = timing::woke_at(&engine.state);
        let all_rest = order::all_rest(engine, woke_at);
        let order = if all_rest { FairShareOrder::default() } else { FairShareOrder::new(engine) };
        Serving { order, woke_at, together: Together::default() }
    }

    /// Runs the stage.
    pub(crate) fn run(&mut self, engine: &mut Engine, until: Until, report: &mut PlanReport) -> Came {
        let mut came = self.serve_heads(engine, until, report);
        while together::revise(&mut self.together, engine, report) {
            self.order = FairShareOrder::new(engine);
            came = self.serve_heads(engine, until, report);
        }
        came
    }

    fn serve_heads(&mut self, engine: &mut Engine, until: Until, report: &mut PlanReport) -> Came {
        while let Some(head) = self.order.next_head(engine) {
            if let Some(parked) = engine.memo.resting(&engine.state, &head, self.woke_at) {
                self.together.note_refused(&head, parked.reason);
                self.order.refused(engine, &head, parked.of_more);
                if until == Until::Lack && head.class_queue == ClassQueue::Queued && !parked.reason.by_design() {
                    return Came::ToLack;
                }
                continue;
            }
            let answer = match head.class_queue {
                ClassQueue::Booked => rebook(engine, head.key.job, report).map_err(Refusal::of_one),
                ClassQueue::Queued => serve(engine, head.key.job, head.class, &mut self.together, report),
            };
            match answer {
                Ok(()) => {
                    self.together.note_served(&head);
                    self.order.served(engine, &head);
                }
                Err(Refusal { reason, of_more }) => {
                    self.together.note_refused(&head, reason);
                    park(engine, &head, reason, of_more);
                    self.order.refused(engine, &head, of_more);
                    if reason.by_design() {
                        // Those behind it that may wait no longer are not held up by it.
                        self.order.pass_by(engine, &head);
                    } else if until == Until::Lack && head.class_queue == ClassQueue::Queued {
                        return Came::ToLack;
                    }
                }
            }
        }
        Came::ToEnd
    }
}

/// Why a head is not served.
#[derive(Clone, Copy, Debug)]
struct Refusal {
    reason: Reason,
    /// Whoever asks no less would be told the same.
    of_more: bool,
}

impl Refusal {
    fn of_one(reason: Reason) -> Refusal {
        Refusal { reason, of_more: false }
    }
}

/// Whether what a job lacks is lacked by whoever asks no less of the same: not where anything is kept for anybody, who may be served in this pass and
/// leave the rest, and not the answer to what was asked for the job.
fn is_of_more(state: &State, reason: Reason) -> bool {
    let lacks = matches!(
        reason,
        Reason::Ceiling { .. }
            | Reason::Stockout { .. }
            | Reason::NothingIdle
            | Reason::BuyingPaused { .. }
            | Reason::PoolDraining { .. }
            | Reason::OwnedNodesFull { .. }
            | Reason::NoMatchingPool
            | Reason::TopologyUnsatisfied { .. }
            | Reason::WaitingForQuota { .. }
            | Reason::Budget { .. }
            | Reason::NodeBeyondBudget { .. }
    );
    let keeps = !state.reservations().is_empty() || !state.allowances().is_empty() || state.index.keeps_anything();
    lacks && !keeps
}

/// The class of a head rests until something that could help happens.
fn park(engine: &mut Engine, head: &Head, reason: Reason, of_more: bool) {
    let (capacity_epoch, at) = (engine.state.capacity_epoch, engine.state.now);
    let opens = (head.class_queue == ClassQueue::Queued).then(|| budget::opens(&engine.state, head.class)).flatten();
    let until = reason.ask_again_at().into_iter().chain(opens).min();
    let of_batch = batch::runs(&engine.state, head.class);
    let open_pools = if reason.by_design() { allowances::open_pools(&engine.state, head.key.job) } else { 0 };
    let parked = Parked { head: head.key.job, capacity_epoch, at, reason, of_more, until, open_pools, of_batch };
    engine.memo.note_holders(&engine.state);
    match head.class_queue {
        ClassQueue::Booked => engine.memo.rebooked.park(head.class, parked),
        ClassQueue::Queued => engine.memo.parked.park(head.class, parked),
    };
}

/// A booked job that could start now on other nodes than those it waits for.
fn rebook(engine: &mut Engine, job: JobId, report: &mut PlanReport) -> Result<(), Reason> {
    let row = &engine.state.jobs[job];
    let (Some(pool), share) = (row.pool, row.share) else {
        return Ok(());
    };
    let stays = batch::stays_beside(&engine.state, job);
    let places = if stays { None } else { placement::find(engine, job, pool, NodeScope::Ready, share) };
    let better = places.and_then(|places| placement::spare::or_stay(&engine.state, job, pool, share, places));
    let Some(places) = better else {
        return Err(Reason::AwaitingNodes { eta: supply::eta(&engine.state, job) });
    };
    let holds = |of: &JobId| engine.state.allowances().values().any(|kept| kept.job == *of);
    let ahead_of = engine.state.jobs[job].backfill_for.filter(holds);
    engine.decide(Decision::Unbook { job });
    book(engine, job, pool, places, report);
    if let Some(ahead_of) = ahead_of {
        engine.decide(Decision::Backfill { job, ahead_of });
    }
    Ok(())
}

/// A queued job: beside others of its batch, or in the first of its pools that has what it takes.
fn serve(
    engine: &mut Engine,
    job: JobId,
    class: ClassId,
    together: &mut Together,
    report: &mut PlanReport,
) -> Result<(), Refusal> {
    if let Some(no) = batch::refusal(&engine.state, job) {
        let no = Refusal::of_one(no);
        let (pool, place) = placement::beside(&engine.state, job, class).ok_or(no)?;
        let places = alloc::vec![place];
        let backfill = allowances::backfill(&engine.state, job, pool);
        if !in_time(&engine.state, &places, backfill) {
            return Err(no);
        }
        book_beside(engine, job, pool, places, backfill, report);
        return Ok(());
    }
    let pools: Vec<PoolId> = settings::pools(&engine.state, class).collect();
    let (mut no, mut of_more) = (Reason::NoMatchingPool, true);
    for pool in pools {
        match serve_in(engine, job, pool, together, report) {
            Ok(()) => return Ok(()),
            // What the next pool has is dearer, or would have been asked for first.
            Err(reason) if reason.is_tried() => return Err(Refusal::of_one(reason)),
            Err(reason) => {
                of_more &= is_of_more(&engine.state, reason);
                no = no.or_more(quota::as_told(&engine.state, class, pool, reason));
            }
        }
    }
    if !no.by_design() && engine.state.jobs[job].reserved_until.is_some_and(|until| until > engine.state.now) {
        no = Reason::WaitingForPreemption { victims: protection::stopping_for(&engine.state, job) };
    }
    Err(Refusal { reason: no, of_more })
}

/// A queued job in one pool.
fn serve_in(
    engine: &mut Engine,
    job: JobId,
    pool: PoolId,
    together: &mut Together,
    report: &mut PlanReport,
) -> Result<(), Reason> {
    let most = permitted(engine, job, pool)?;
    let backfill = allowances::backfill(&engine.state, job, pool);
    let places = match start_targets::reason_to_wait(&engine.state, job) {
        Some(waits) => places_while_waiting(engine, job, pool, most, backfill, together, report).ok_or(waits)?,
        None => places_now(engine, job, pool, most, backfill, together, report)?,
    };
    book_beside(engine, job, pool, places, backfill, report);
    Ok(())
}

/// Books a job beside what is kept of quotas and budgets.
fn book_beside(
    engine: &mut Engine,
    job: JobId,
    pool: PoolId,
    places: Vec<WorkerPlace>,
    backfill: Option<Backfill>,
    report: &mut PlanReport,
) {
    book(engine, job, pool, places, report);
    if let Some(Backfill { of, .. }) = backfill {
        engine.decide(Decision::Backfill { job, ahead_of: of });
    }
}

/// The share that quota and budgets leave to a job.
fn permitted(engine: &Engine, job: JobId, pool: PoolId) -> Result<MilliGpu, Reason> {
    let (state, class) = (&engine.state, engine.state.jobs[job].class);
    let no = allowances::no_share(state, job, pool);
    let most = budget::most(state, class, pool);
    no.map_or_else(|| Ok(allowances::most(state, job, pool).map_or(most, |left| left.min(most))), Err)
}

/// Places for a job that has to start: ready ones, those in flight, a node that was to leave, a purchase.
fn places_now(
    engine: &mut Engine,
    job: JobId,
    pool: PoolId,
    most: MilliGpu,
    backfill: Option<Backfill>,
    together: &mut Together,
    report: &mut PlanReport,
) -> Result<Vec<WorkerPlace>, Reason> {
    // An elastic gang leaves to others what is kept for them beside it. While others wait it gets what was taken for it: what is more may be what
    // they lack.
    let class = engine.state.jobs[job].class;
    let beside = || reservations::kept_beside(&engine.state, job);
    let shares = engine.state.jobs[job].kept.is_some() && order::others_wait(&engine.state, class);
    let least = shares || beside().next().is_some();
    let most = if least { quota::share(&engine.state, class, pool) } else { most };
    let victims = protection::stopping_for(&engine.state, job);
    // Those of its own class take what is free in their order.
    if victims > 0 && beside().any(|other| engine.state.jobs[other].class != class) {
        // Before what it takes is free it would use up what is kept beside it for others.
        return Err(Reason::WaitingForPreemption { victims });
    }
    if let Some(places) = placement::find(engine, job, pool, NodeScope::Ready, most) {
        // Backfill has no time for another place.
        let detour = backfill
            .is_none()
            .then(|| purchase::spare_large_node(engine, job, pool, most, &places, together, report))
            .flatten();
        return Ok(detour.unwrap_or(places));
    }
    if let Some(places) = together.places(engine, job, pool, most)
        && in_time(&engine.state, &places, backfill)
    {
        return Ok(places);
    }
    let in_flight = placement::find(engine, job, pool, NodeScope::InFlight, most)
        .filter(|places| in_time(&engine.state, places, backfill));
    if let Some(places) = in_flight.filter(|places| victims == 0 || reservations::own(&engine.state, job, places)) {
        return Ok(places);
    }
    if victims > 0 {
        return Err(Reason::WaitingForPreemption { victims });
    }
    if let Some(places) = purchase::keep_leaving_node(engine, job, pool, most) {
        return Ok(places);
    }
    if let Some(no) = backfill.and_then(|b| comes_too_late(&engine.state, job, pool, b)) {
        return Err(no);
    }
    purchase::buy_for(engine, job, pool, together, report)?;
    placement::find(engine, job, pool, NodeScope::InFlight, most).ok_or(Reason::NoMatchingPool)
}

/// Whether places are all ready when backfill has to start.
fn in_time(state: &State, places: &[WorkerPlace], backfill: Option<Backfill>) -> bool {
    let mut nodes = places.iter().filter_map(|place| state.nodes.get(&place.node));
    backfill.is_none_or(|backfill| nodes.all(|node| supply::ready_at(state, node) <= backfill.by))
}

/// Backfill that is bought for has to end in time after a boot as well.
fn comes_too_late(state: &State, job: JobId, pool: PoolId, backfill: Backfill) -> Option<Reason> {
    let bought = supply::bought(state, state.jobs[job].class, pool);
    let boot = bought.into_iter().map(|id| demand::boot_p90(state, id)).max().unwrap_or_default();
    (state.now + boot > backfill.by).then_some(Reason::KeptForAnother { job: backfill.of, from: backfill.from })
}

/// Places for a job that may wait. It takes what is ready: what is on its way was bought for others.
fn places_while_waiting(
    engine: &mut Engine,
    job: JobId,
    pool: PoolId,
    most: MilliGpu,
    backfill: Option<Backfill>,
    together: &mut Together,
    report: &mut PlanReport,
) -> Option<Vec<WorkerPlace>> {
    let ready = placement::find(engine, job, pool, NodeScope::Ready, most);
    let whole = ready.and_then(|p| placement::spare::or_wait(&engine.state, job, pool, most, p));
    match whole {
        Some(places) if backfill.is_some() => Some(places),
        Some(places) => {
            Some(purchase::spare_large_node(engine, job, pool, most, &places, together, report).unwrap_or(places))
        }
        None => purchase::keep_leaving_node(engine, job, pool, most),
    }
}

fn book(engine: &mut Engine, job: JobId, pool: PoolId, places: Vec<WorkerPlace>, report: &mut PlanReport) {
    let ready = placement::all_ready(&engine.state, &places);
    report.booked += 1;
    let instead = kept_instead(&engine.state, job, &places);
    let passed = passed(&engine.state, job, pool, &places);
    let kept = kept_while_unanswered(&engine.state, job, pool);
    engine.decide(Decision::Book { job, pool, places });
    for (job, (nodes, until)) in instead {
        engine.decide(Decision::Reserve { job, nodes, until });
    }
    note_passed(engine, job, &passed);
    if supply::is_unanswered(&engine.state, job) {
        kept.into_iter().for_each(|again| engine.decide(again));
    }
    if ready {
        report.started += 1;
        engine.decide(Decision::Start { job });
    }
}

/// What is kept for a job that waits, and stays kept while the cloud has not answered the launch that it is booked on: places, and quota in other pools.
/// Not room, which the nodes that were asked for hold, and not money, which it has as one that is booked.
fn kept_while_unanswered(state: &State, job: JobId, pool: PoolId) -> Vec<Decision> {
    let places = state.reservations().iter().filter(|(_, kept)| kept.job == job && kept.room.is_empty());
    let places = places.map(|(pool, kept)| Decision::MakeReservation { pool: *pool, reservation: kept.clone() });
    let elsewhere = |of: &Allowance| matches!(of, Allowance::Quota(_, at) if *at != pool);
    let quota = state.allowances().iter().filter(|(of, kept)| kept.job == job && elsewhere(of));
    let quota = quota.map(|(of, kept)| Decision::KeepAllowance { of: *of, reservation: kept.clone() });
    places.chain(quota).collect()
}

/// Jobs of a class take what is free in their order, whichever of them it is kept for, and a job takes of its nodes those that suit it best, though
/// they are kept for another beside it. Whoever loses a node so to one that has others kept has one of those instead: what is kept for it then, and
/// until when. It is kept once the job has its places: these end what was kept before.
fn kept_instead(state: &State, job: JobId, places: &[WorkerPlace]) -> BTreeMap<JobId, (Vec<NodeId>, Timestamp)> {
    let mut instead: BTreeMap<JobId, (Vec<NodeId>, Timestamp)> = BTreeMap::new();
    let taken = nodes_of(places);
    let mut left: Vec<NodeId> = state.index.reserved_for(job);
    left.retain(|node| !taken.contains(node));
    for node in taken {
        let Some(other) = loses(state, job, places, node) else { continue };
        let Some(until) = state.jobs[other].reserved_until else { continue };
        let Some(next) = left.pop() else { break };
        let until = state.jobs[job].reserved_until.map_or(until, |own| own.max(until));
        let (nodes, _) = instead.entry(other).or_insert_with(|| (state.index.reserved_for(other), until));
        nodes.retain(|kept| *kept != node);
        nodes.push(next);
        nodes.sort_unstable();
        nodes.dedup();
    }
    instead
}

/// For whom a node was kept that a job takes: all of its GPUs where it is kept for the job too.
fn loses(state: &State, job: JobId, places: &[WorkerPlace], node: NodeId) -> Option<JobId> {
    let row = state.nodes.get(&node)?;
    let is_own = row.reserved.iter().any(|kept| kept.0 == job);
    let taken = places.iter().filter(|place| place.node == node).fold(0, |mask, place| mask | place.gpus);
    let full = row.whole_mask() & !taken == 0;
    let alike = |other: JobId| state.jobs[other].class == state.jobs[job].class;
    let others = row.reserved.iter().map(|kept| kept.0).filter(|other| *other != job);
    others.filter(|other| if is_own { full } else { alike(*other) }).max()
}

/// A job takes places that are kept for another: in which pool that is, for whom, from when on, and whether the job goes before that one.
struct Passed {
    from: Timestamp,
    pool: PoolId,
    holder: JobId,
    first: bool,
}

/// The others for whom any of these places is kept, as a job stands before it holds anything.
fn passed(state: &State, job: JobId, pool: PoolId, places: &[WorkerPlace]) -> Vec<Passed> {
    let goes_first = |of: PoolId, holder| reservations::passes(state, job, pool, holder, of);
    let on = |kept: &Reservation| places.iter().any(|p| kept.nodes.binary_search(&p.node).is_ok());
    let kept = state.reservations.iter().filter(|(_, kept)| kept.job != job && on(kept));
    kept.map(|(of, kept)| Passed { from: kept.from, pool: *of, holder: kept.job, first: goes_first(*of, kept.job) })
        .collect()
}

/// A job was just booked: it was let in ahead of a reservation, or took what was kept for one behind it.
fn note_passed(engine: &mut Engine, job: JobId, passed: &[Passed]) {
    let there = |state: &State, one: &Passed| state.reservations.get(&one.pool).is_some_and(|a| a.job == one.holder);
    for one in passed.iter().filter(|one| one.first) {
        if there(&engine.state, one) {
            match soonest(engine, one.holder, one.pool) {
                Some(reservation) => engine.decide(Decision::MakeReservation { pool: one.pool, reservation }),
                None => engine.decide(Decision::EndReservation { pool: one.pool }),
            }
        }
    }
    // What was promised first is the promise that it has to keep.
    let ahead = passed.iter().filter(|one| !one.first && there(&engine.state, one)).min_by_key(|one| one.from);
    if let Some(one) = ahead {
        engine.decide(Decision::Backfill { job, ahead_of: one.holder });
    }
}
