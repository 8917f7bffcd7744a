//! What an engine remembers beyond what its views show, written down: see `forebay_wire::document::memory`.
//!
//! Never: anything that follows from the rest of the document, such as what is free on a node. Read back by `recall`.

use forebay_kernel::decision::StopCause;
use forebay_kernel::ids::{JobId, NodeId, OfferingId, PoolId};
use forebay_kernel::job::{Gang, JobSpec};
use forebay_kernel::state::State;
use forebay_kernel::state::Urgency;
use forebay_kernel::state::allowances::{Allowance, AllowanceReservation};
use forebay_kernel::state::jobs::{Ending, Job, JobStartTarget, OpenEffect, Phase, Wait};
use forebay_kernel::state::node_reserves::NodeReserve;
use forebay_kernel::state::nodes::{Node, NodePhase, OfferingRow};
use forebay_kernel::state::observed_stats::Lives;
use forebay_kernel::state::places::share_of;
use forebay_kernel::state::services::ServiceState;
use forebay_kernel::state::streaks::Streak;
use forebay_kernel::units::{GpuTime, Span, Timestamp};
use forebay_wire::document::memory::{
    AllowanceKind, AllowanceView, BlameView, CancelView, DurationsView, EndHow, EndView, FamilyView, JobMemory,
    KeptView, KindView, LeavingView, NeedView, NodeMemory, NodeReservationView, NodeReserveView, OfferingName,
    OfferingStats, PlaceView, PoolStats, PurchaseView, PutBackView, RequestView, ReservationView, RetryView, RoomView,
    ServiceMemory, SliceView, StartTargetView, StateMemory, StockMemory, StopCauseView, StopView, StreakView,
    UrgencyView, UseView, WaitView,
};
use forebay_wire::document::seconds::Seconds;
use forebay_wire::document::views::{JobView, NodeView, OfferingView};
use std::collections::BTreeMap;

/// A time, unless it is never.
fn time(at: Timestamp) -> Option<Seconds> {
    (at != Timestamp::NEVER).then(|| at.into())
}

fn above_zero(at: Timestamp) -> Option<Seconds> {
    (at > Timestamp(0)).then(|| at.into())
}

fn request(effect: Option<OpenEffect>) -> Option<RequestView> {
    effect.map(|effect| RequestView { again_s: time(effect.next_try), tries: effect.tries })
}

/// A view of a job with what is remembered of it.
#[must_use]
pub fn job(state: &State, view: JobView, row: &Job, spec: &JobSpec) -> JobView {
    let plain = spec.retry == forebay_kernel::job::Retry::default();
    let retry = RetryView {
        attempts: spec.retry.attempts,
        backoff_s: spec.retry.backoff.into(),
        never: spec.retry.never.clone(),
        start_failures: spec.retry.start_failures,
    };
    let stop = match row.phase {
        Phase::Stopping { cause, checkpoint, deadline } => {
            Some(StopView { checkpoint: Some(checkpoint), deadline_s: time(deadline), ..stop(cause) })
        }
        _ => None,
    };
    let elastic = matches!(spec.gang, Gang::Workers { min, max, .. } if max > min) && !row.places.is_empty();
    let mut view = view;
    if let Some(service) = &mut view.service {
        service.memory = state.services.get(&row.id).map(self::service);
    }
    JobView {
        grace_s: spec.checkpoint.map(|c| c.grace.into()),
        max_run_s: spec.max_run.map(Seconds::from),
        retry: (!plain).then_some(retry),
        completion: (spec.completion != forebay_kernel::job::Completion::All).then_some(spec.completion),
        workers_now: elastic.then_some(row.places.len() as u32),
        places: places(row),
        stop,
        memory: if row.done() { standing_of_done(state, row) } else { Some(Box::new(memory(state, row, spec))) },
        ..view
    }
}

fn places(row: &Job) -> Vec<PlaceView> {
    let place = |(at, place): (usize, &forebay_kernel::effect::WorkerPlace)| PlaceView {
        worker: row.numbers.get(at).copied(),
        node: place.node.to_string(),
        gpus: (0..64).filter(|gpu| place.gpus & (1 << gpu) != 0).collect(),
        share_milli: place.share,
        slice: place.slice,
    };
    row.places.iter().enumerate().map(place).collect()
}

/// How a job stood that is over: floors know by it what is asked for. `None`: as any other.
fn standing_of_done(state: &State, row: &Job) -> Option<Box<JobMemory>> {
    let standing = standing(state, row);
    (standing != JobMemory::default()).then(|| Box::new(standing))
}

/// How its deadline, what was taken from it and its start target bear on a job.
fn standing(state: &State, row: &Job) -> JobMemory {
    let shape = state.classes().get(row.class).map(|class| &class.shape);
    let urgency = match shape.map(|shape| shape.urgency) {
        Some(Urgency::Relaxed) => Some(UrgencyView::Relaxed),
        Some(Urgency::Urgent) => Some(UrgencyView::Urgent),
        Some(Urgency::Dated) => Some(UrgencyView::Dated),
        Some(Urgency::Avoids(_)) => Some(UrgencyView::Avoids),
        Some(Urgency::AvoidsSpot) => Some(UrgencyView::AvoidsSpot),
        Some(Urgency::Ordinary) | None => None,
    };
    let avoids = match shape.map(|shape| shape.urgency) {
        Some(Urgency::Avoids(offering)) => offering_name(state, offering),
        _ => None,
    };
    JobMemory { urgency, avoids, late: shape.is_some_and(|shape| shape.late), ..JobMemory::default() }
}

fn memory(state: &State, row: &Job, spec: &JobSpec) -> JobMemory {
    let standing = standing(state, row);
    let (pauses_until_s, end) = match row.phase {
        Phase::BackingOff { until } => (time(until), None),
        Phase::Held if row.not_before > Timestamp(0) => (time(row.not_before), None),
        Phase::Ended { how } => (None, Some(end(how))),
        _ => (None, None),
    };
    let keeps = row
        .kept
        .and_then(|kept| Some(KeptView { pool: pool(state, kept.pool)?, gpu_milli: kept.share.0, own: kept.own }));
    let leaving = row.leaving.as_ref().map(|leaving| LeavingView {
        workers: leaving.workers.clone(),
        stop: StopView { deadline_s: time(leaving.deadline), ..stop(leaving.cause) },
    });
    JobMemory {
        digest: Some(format!("{:032x}", spec.digest)),
        principal: Some(spec.principal.clone()),
        sent_s: spec.sent.map(Seconds::from),
        pauses_until_s,
        denials: row.denials,
        phase_since_s: Some(row.since.into()),
        end,
        keeps,
        reserved_until_s: row.reserved_until.map(Seconds::from),
        start_target: row.start_target.map(start_target),
        urgency: standing.urgency,
        avoids: standing.avoids,
        streak: state.streak(row.id).map(|streak| self::streak(state, streak)),
        late: standing.late,
        reassess_s: time(row.reassess_at),
        impossible: state.classes().get(row.class).is_some_and(|class| class.impossible.is_some()),
        unreachable: row.hopeless,
        admitted: row.admitted_said,
        cancel_asked: row.cancel_asked,
        backfill_for: row.backfill_for.map(|id| id.to_string()),
        running_since_s: row.running_since.map(Seconds::from),
        saved_at_s: above_zero(row.saved_at),
        resumed_from_s: above_zero(Timestamp(row.resume_from.0)),
        protected_until_s: above_zero(row.protected_until),
        must_end_by_s: time(row.must_end_by),
        overdue_at_s: time(row.overdue_at),
        turn_over_at_s: time(row.turn_over_at),
        put_back: row.put_back.map(|last| PutBackView { at_s: Seconds::from(last.at), times: last.times }),
        workers: row.workers,
        workers_done: row.workers_done.clone(),
        workers_left: row.left.clone(),
        leaving,
        held_gpu_milli: (row.share != share_of(&row.places)).then_some(row.share.0),
        idle_reported_s: row.idle_reported.map(Seconds::from),
        idle_seen_s: above_zero(Timestamp(row.idle_seen.0)),
        broken: row.broken.map(stop),
        hung: row.hung,
        request: request(row.effect),
    }
}

fn streak(state: &State, row: &Streak) -> StreakView {
    let blame = |(node, times): &(NodeId, u32)| BlameView { node: node.to_string(), times: *times };
    StreakView {
        start_failures: row.start_failures,
        blamed: row.blamed.iter().map(blame).collect(),
        reclaims: row.reclaims,
        reclaimed_from: row.reclaimed_from.and_then(|(offering, _)| offering_name(state, offering)),
        reclaimed_there: row.reclaimed_from.map_or(0, |(_, times)| times),
        taken: row.taken.and_then(|offering| offering_name(state, offering)),
    }
}

fn start_target(target: JobStartTarget) -> StartTargetView {
    let (waits_for, until, promised) = match target.wait {
        Wait::New => (WaitView::New, None, None),
        Wait::Noise { until } => (WaitView::Noise, time(until), None),
        Wait::Promised { node, run, until } => (WaitView::Promised, time(until), Some((node, run))),
        Wait::Over => (WaitView::Over, None, None),
    };
    StartTargetView {
        by_s: time(target.by),
        when_late: target.when_late,
        waits_for,
        until_s: until,
        run: promised.map(|p| p.1.to_string()),
        node: promised.map(|p| p.0.to_string()),
    }
}

fn stop(cause: StopCause) -> StopView {
    let by = |by: JobId| Some(by.to_string());
    let (cause, by, exit_code, idle) = match cause {
        StopCause::Preempted { by: id } => (StopCauseView::Preempted, by(id), None, None),
        StopCause::QuotaReclaimed { by: id } => (StopCauseView::QuotaReclaimed, by(id), None, None),
        StopCause::Overran { by: id } => (StopCauseView::Overran, by(id), None, None),
        StopCause::Failed { code } => (StopCauseView::Failed, None, Some(code), None),
        StopCause::Lingering { idle } => (StopCauseView::Lingering, None, None, Some(idle)),
        StopCause::Reclaimed => (StopCauseView::Reclaimed, None, None, None),
        StopCause::Moved => (StopCauseView::Moved, None, None, None),
        StopCause::Grows => (StopCauseView::Grows, None, None, None),
        StopCause::Hurried => (StopCauseView::Hurried, None, None, None),
        StopCause::NodeHung => (StopCauseView::NodeHung, None, None, None),
        StopCause::Scaled => (StopCauseView::Scaled, None, None, None),
        StopCause::NodeLost => (StopCauseView::NodeLost, None, None, None),
        StopCause::StartTimeout => (StopCauseView::StartTimeout, None, None, None),
        StopCause::Completed => (StopCauseView::Completed, None, None, None),
        StopCause::Cancelled => (StopCauseView::Cancelled, None, None, None),
        StopCause::MaxRun => (StopCauseView::MaxRun, None, None, None),
    };
    StopView { cause, by, exit_code, idle_s: idle.map(Seconds::from), checkpoint: None, deadline_s: None }
}

fn end(how: Ending) -> EndView {
    let (how, exit_code, stopped) = match how {
        Ending::Completed => (EndHow::Completed, None, None),
        Ending::Failed { code } => (EndHow::Failed, Some(code), None),
        Ending::NodeFault => (EndHow::NodeFault, None, None),
        Ending::Stopped { cause } => (EndHow::Stopped, None, Some(stop(cause))),
        Ending::Dropped => (EndHow::Dropped, None, None),
        Ending::Denied => (EndHow::Denied, None, None),
    };
    EndView { how, exit_code, stop: stopped }
}

fn service(row: &ServiceState) -> ServiceMemory {
    let need =
        |need: &forebay_kernel::state::services::Need| NeedView { replicas: need.replicas, last_s: time(need.last) };
    ServiceMemory {
        needs: row.needs.iter().map(need).collect(),
        made: row.made,
        unasked_since_s: row.unasked_since.map(Seconds::from),
        resident: row.resident.to_string(),
        busy: row.busy.to_string(),
        counted_to_s: row.counted_to.into(),
    }
}

fn pool(state: &State, id: PoolId) -> Option<String> {
    state.policy()?.pools.get(id.index()).map(|p| p.name.clone())
}

fn offering_name(state: &State, id: OfferingId) -> Option<OfferingName> {
    let offer = &state.offerings().get(id.index())?.offer;
    Some(OfferingName {
        instance_type: offer.instance_type.clone(),
        zone: offer.zone.clone(),
        capacity_type: offer.capacity.into(),
    })
}

/// A view of a node with what is remembered of it.
#[must_use]
pub fn node(state: &State, view: NodeView, row: &Node) -> NodeView {
    let slice = |cut: &forebay_kernel::state::nodes::Cut| SliceView {
        share_milli: cut.share,
        held_milli: cut.held,
        mem_mib: cut.mem.0,
    };
    let reserved =
        |(job, until): &(JobId, Timestamp)| NodeReservationView { job: job.to_string(), until_s: time(*until) };
    let (draining, check_at) = match row.phase {
        NodePhase::Draining { why, check_at } => (Some(why), time(check_at)),
        _ => (None, None),
    };
    let memory = NodeMemory {
        decided_s: row.decided_at.into(),
        phase_since_s: row.since.into(),
        idle_since_s: row.idle_since.map(Seconds::from),
        purchase: state.purchases.contains_key(&row.purchase).then_some(row.purchase.0),
        slices: row.partition.iter().flat_map(|p| p.slices.iter().map(slice)).collect(),
        cluster: row.cluster,
        reserved: row.reserved.iter().map(reserved).collect(),
        due_s: time(row.due),
        draining,
        check_at_s: check_at,
        condemned: row.condemned,
        faults: row.faults,
        ceiling_price: row.booked_price.0,
        request: request(row.effect),
    };
    NodeView {
        layout: row.partition.as_ref().map(|p| p.layout),
        rack: row.rack.and_then(|id| state.racks.get(id).cloned()),
        memory: Some(memory),
        ..view
    }
}

/// A view of an offering with what is remembered of its stock.
#[must_use]
pub fn offering(view: OfferingView, row: &OfferingRow) -> OfferingView {
    let memory = StockMemory {
        blocked_by: row.blocked_by,
        blocked_until_s: row.blocked_until.into(),
        refused_size: row.refused_size,
        failures: row.failures,
        window: row.window,
        ceiling_price: row.offer.max_price.0,
    };
    OfferingView { memory: Some(memory), ..view }
}

/// What belongs to no row.
#[must_use]
pub fn state(state: &State) -> StateMemory {
    let kind = |(kind, count): &(forebay_kernel::state::mix::WorkKind, u32)| KindView {
        gpus: kind.gpus,
        share_milli: kind.share,
        count: *count,
    };
    StateMemory {
        queues: state.queues().iter().map(|(_, queue)| queue.path.clone()).collect(),
        reservations: reservations(state),
        allowances: allowances(state),
        purchases: purchases(state),
        used: used(state),
        durations: durations(state),
        offerings: offering_stats(state),
        pools: pool_stats(state),
        mix: state.mix().kinds().iter().map(kind).collect(),
        consolidate_at_s: time(state.consolidate_at),
        resumed_at_s: above_zero(state.resumed_at()),
        unjudged: state.unjudged,
        cancels: cancels(state),
        node_reserves: state.node_reserves().map(|(of, reserve)| node_reserve(of, reserve)).collect(),
        brakes: super::write::brakes(state),
    }
}

fn node_reserve(of: &str, reserve: NodeReserve) -> NodeReserveView {
    NodeReserveView {
        instance_type: of.to_owned(),
        system_cpu_milli: reserve.system.cpu.0,
        system_memory_mib: reserve.system.mem.0,
        daemons_cpu_milli: reserve.daemons.cpu.0,
        daemons_memory_mib: reserve.daemons.mem.0,
    }
}

fn reservations(state: &State) -> Vec<ReservationView> {
    let view = |(at, reservation): (&PoolId, &forebay_kernel::state::reservations::Reservation)| {
        let room = reservation.room.iter().filter_map(|(offering, nodes)| {
            Some(RoomView { offering: offering_name(state, *offering)?, nodes: *nodes })
        });
        Some(ReservationView {
            pool: pool(state, *at)?,
            job: reservation.job.to_string(),
            from_s: time(reservation.from),
            known: reservation.known,
            delayed: reservation.delayed,
            nodes: reservation.nodes.iter().map(ToString::to_string).collect(),
            room: room.collect(),
        })
    };
    state.reservations().iter().filter_map(view).collect()
}

fn allowances(state: &State) -> Vec<AllowanceView> {
    let view = |(of, kept): (&Allowance, &AllowanceReservation)| {
        Some(AllowanceView {
            queue: state.policy()?.quotas.get(of.node().index())?.name.clone(),
            of: match of {
                Allowance::Quota(..) => AllowanceKind::Quota,
                Allowance::Budget(_) => AllowanceKind::Budget,
            },
            pool: pool(state, kept.pool)?,
            job: kept.job.to_string(),
            from_s: kept.from.into(),
            known: kept.known,
            delayed: kept.delayed,
            runs: kept.runs.iter().map(ToString::to_string).collect(),
        })
    };
    state.allowances().iter().filter_map(view).collect()
}

fn purchases(state: &State) -> Vec<PurchaseView> {
    let view = |row: &forebay_kernel::state::nodes::Purchase| PurchaseView {
        purchase: row.id.0,
        at_least: row.at_least,
        efa: row.terms.efa,
        cluster: row.terms.cluster,
        request: RequestView { again_s: time(row.effect.next_try), tries: row.effect.tries },
    };
    state.purchases().map(view).collect()
}

fn used(state: &State) -> Vec<UseView> {
    let spent: BTreeMap<_, _> = state.budgets.accounts().collect();
    let quotas = state.policy().map(|p| p.quotas.as_slice()).unwrap_or_default();
    let view = |(at, node): (usize, &forebay_kernel::policy::QuotaNode)| {
        let quota = forebay_kernel::ids::QuotaId(u16::try_from(at).ok()?);
        let used = Some(state.past_use(quota)).filter(|time| *time > GpuTime(0)).map(|time| time.0.to_string());
        let spent = spent.get(&quota).map(|account| account.at(state.now()).spent.0.to_string());
        let some = used.is_some() || spent.is_some();
        some.then(|| UseView { queue: node.name.clone(), used, spent })
    };
    quotas.iter().enumerate().filter_map(view).collect()
}

fn durations(state: &State) -> Vec<DurationsView> {
    let of = state.observed.all_durations().filter_map(|(queue, size, counts)| {
        let queue = state.queues().get(queue)?.path.clone();
        Some(DurationsView { queue, size, family: None, counts: counts.collect() })
    });
    let families = state.observed.all_families().filter_map(|(of, last, counts)| {
        let queue = state.queues().get(of.queue)?.path.clone();
        let family = Some(FamilyView { digest: of.family, last });
        Some(DurationsView { queue, size: of.size, family, counts: counts.collect() })
    });
    of.chain(families).collect()
}

fn offering_stats(state: &State) -> Vec<OfferingStats> {
    let mut all: BTreeMap<OfferingId, (Vec<Span>, Option<Lives>)> = BTreeMap::new();
    for (offering, boots) in state.observed.all_boots() {
        all.entry(offering).or_default().0 = boots.collect();
    }
    for (offering, lives) in state.observed.all_lives() {
        all.entry(offering).or_default().1 = Some(lives);
    }
    let view = |(id, (boots, lives)): (OfferingId, (Vec<Span>, Option<Lives>))| {
        Some(OfferingStats {
            offering: offering_name(state, id)?,
            boots_s: boots.into_iter().map(Seconds::from).collect(),
            spot_time_s: lives.map(|lives| lives.time.into()),
            reclaims: lives.map(|lives| lives.reclaims),
        })
    };
    all.into_iter().filter_map(view).collect()
}

fn pool_stats(state: &State) -> Vec<PoolStats> {
    // The policy of a document does not have the pools that are only kept.
    let declared = state.observed.all_needs().filter(|(id, _)| !state.is_kept_pool(*id));
    let of = declared.filter_map(|(id, needs)| {
        let (last_s, gap_s) = (needs.last.into(), needs.gap.into());
        Some(PoolStats { pool: pool(state, id)?, count: needs.count, last_s, gap_s })
    });
    of.collect()
}

fn cancels(state: &State) -> Vec<CancelView> {
    let of = state.pending_cancels().map(|(key, row)| CancelView {
        tenant: key.tenant.clone(),
        subject: key.subject.clone(),
        by: key.by.clone(),
        timed: key.timed,
        sent_s: row.sent.map(Seconds::from),
        seen_s: row.seen.into(),
    });
    of.collect()
}
