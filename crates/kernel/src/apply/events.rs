//! What happened outside: one arm an event.
//!
//! Never: trusts. Reports count only for the attempt that is alive; repeats and late ones change nothing.

use super::requests::{self, Earlier, Identity};
use super::shrunk::{drop_workers, shrunk};
use super::{end_run, may_become_ready, say, take_seq, unbook_all_on};
use crate::catalog::CapacityType;
use crate::decision::StopCause;
use crate::effect::{StatusKind, Terms};
use crate::event::{Event, EventOutcome, GoneWhy, LaunchError};
use crate::ids::{Attempt, ClassId, JobId, NodeId, OfferingId, PurchaseId};
use crate::job::{Completion, JobSpec};
use crate::policy::PreemptWithin;
use crate::state::State;
use crate::state::brakes::{Brake, BrakeOrder};
use crate::state::jobs::{Ending, Job, Phase};
use crate::state::node_reserves::NodeReserve;
use crate::state::nodes::{Node, NodePhase, OfferingRow, Partition, Slot, WIDE_OPEN, pauses_after};
use crate::units::{MilliGpu, Rate, Span, Timestamp};
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

/// Who saves more seldom than this is not left alone until it has.
const LONGEST_SAVE: Span = Span::mins(30);
/// Times of one reclaim that differ by less are one: clouds name whole seconds, and adapters put them on the engine's clock.
const SAME_RECLAIM: Span = Span::secs(1);

/// Applies an event.
pub(crate) fn event(state: &mut State, event: &Event) -> EventOutcome {
    let _ = take_seq(state);
    match event {
        Event::Configured(policy) => configured(state, policy),
        Event::JobSubmitted(spec) => requests::submitted(state, spec, None),
        Event::JobCancelled { tenant, subject, by, sent } => {
            requests::cancelled(state, Identity { tenant, subject }, by.as_deref(), *sent, Earlier::Unknown)
        }
        Event::LaunchOutcome { purchase, instances, error } => launched(state, *purchase, instances, *error),
        Event::NodeReady { instance } => node_ready(state, instance),
        Event::ReclaimNotice { instance, at } => reclaim_notice(state, instance, *at),
        Event::NodeGone { instance, why } => node_gone(state, instance, *why),
        Event::OrphanSeen { instance, offering } => orphan(state, instance, *offering),
        Event::RunStarted { job, attempt } => started(state, *job, *attempt),
        Event::RunCheckpointed { job, attempt, progress } => checkpointed(state, *job, *attempt, *progress),
        Event::RunCompleted { job, attempt, worker } => completed(state, *job, *attempt, *worker),
        Event::RunFailed { job, attempt, exit_code, node_fault } => {
            failed(state, *job, *attempt, *exit_code, *node_fault)
        }
        Event::RunStopped { job, attempt, progress } => stopped(state, *job, *attempt, *progress),
        Event::RunDenied { job, attempt } => denied(state, *job, *attempt),
        Event::RunIdle { job, attempt, idle } => idle_run(state, *job, *attempt, *idle),
        Event::ServiceDemand { tenant, subject, by, concurrency } => {
            requests::demanded(state, Identity { tenant, subject }, by.as_deref(), *concurrency)
        }
        Event::JobSubmittedAgain { spec, earlier } => requests::submitted(state, spec, Some(*earlier)),
        Event::FinishedJobCancelled { tenant, subject, by, sent } => {
            requests::cancelled(state, Identity { tenant, subject }, by.as_deref(), *sent, Earlier::Archived)
        }
        Event::RunShrunk { job, attempt, left, node_fault } => shrunk(state, *job, *attempt, left, *node_fault),
        Event::NodePlaced { instance, rack } => placed(state, instance, rack),
        Event::BootFailed { instance } => boot_failed(state, instance),
        Event::PriceChanged { offering, price } => price_changed(state, *offering, *price),
        Event::OwnedNodeSeen(seen) => super::owned::seen(state, seen),
        Event::OwnedNodeLeft { name } => super::owned::left(state, name),
        Event::DeathConfirmed { job, attempt, workers, .. } => death_confirmed(state, *job, *attempt, workers),
        Event::NodeReserved { instance_type, reserve } => reserved(state, instance_type, *reserve),
        Event::BrakeSet { brake, by, why, until } => {
            let (by, why, since) = (by.clone(), why.clone(), state.now);
            brake_set(state, brake, BrakeOrder { by, why, since, until: *until })
        }
        Event::BrakeReleased { brake, .. } => {
            if state.release_brake(brake) {
                EventOutcome::Applied
            } else {
                ignore(state)
            }
        }
    }
}

/// What services needed too long ago by the old policy does not count again by the new one.
fn configured(state: &mut State, policy: &crate::policy::Policy) -> EventOutcome {
    let (keep, now) = (state.lifecycle().scale_down_after, state.now);
    state.services.values_mut().for_each(|row| row.forget(keep, now));
    let bills = state.bill_under(policy);
    state.configure(policy);
    if state.brakes().next().is_some() {
        state.renew_brakes().into_iter().for_each(|node| unbook_all_on(state, node));
    }
    if bills {
        state.renew_billing();
    }
    EventOutcome::Applied
}

pub(super) fn ignore(state: &mut State) -> EventOutcome {
    state.counters.ignored_events += 1;
    EventOutcome::Ignored
}

/// A job that was just accepted.
pub(super) fn new_job(state: &State, id: JobId, class: ClassId, spec: &JobSpec) -> Job {
    let shape = &state.classes[class].shape;
    Job {
        id,
        class,
        queue: shape.queue,
        tier: shape.tier,
        priority: spec.priority,
        arrival: state.now,
        phase: Phase::New,
        since: state.now,
        pool: None,
        places: Vec::new(),
        attempt: Attempt(0),
        failures: 0,
        progress: Span::ZERO,
        running_since: None,
        saved_at: state.now,
        protected_until: Timestamp(0),
        resume_from: Span::ZERO,
        workers: 0,
        workers_done: Vec::new(),
        first_start: None,
        ended: None,
        effect: None,
        reason: None,
        status_seq: 0,
        cancel_asked: false,
        idle_reported: None,
        idle_seen: Span::ZERO,
        broken: None,
        must_end_by: Timestamp::NEVER,
        share: MilliGpu(0),
        rate: Rate(0),
        admitted_said: false,
        reserved_until: None,
        backfill_for: None,
        reassess_at: reassessed_at(spec, state.now),
        hopeless: false,
        interruptions: 0,
        start_target: state.start_target(shape.queue, state.now, spec),
        service: None,
        hung: false,
        numbers: Vec::new(),
        left: Vec::new(),
        leaving: None,
        kept: None,
        overdue_at: Timestamp::NEVER,
        turn_over_at: Timestamp::NEVER,
        put_back: None,
        not_before: Timestamp(0),
        denials: 0,
        start_by: Timestamp::NEVER,
        last_run: None,
        confirmed_dead: BTreeSet::new(),
    }
}

/// When the deadline of a job is looked at, if it has one that can be reckoned with.
pub(super) fn reassessed_at(spec: &JobSpec, now: Timestamp) -> Timestamp {
    if spec.deadline.is_some() && spec.expected.is_some() && spec.service.is_none() { now } else { Timestamp::NEVER }
}

fn launched(state: &mut State, id: PurchaseId, instances: &[String], error: Option<LaunchError>) -> EventOutcome {
    let Some(purchase) = state.remove_purchase(id) else {
        return ignore(state);
    };
    let now = state.now;
    let timeout = state.lifecycle().boot_timeout;
    let price = state.offerings[purchase.offering.index()].offer.price;
    for (at, node) in purchase.nodes.iter().enumerate() {
        match instances.get(at) {
            Some(instance) => {
                state.edit_node(*node, |row| {
                    row.phase = NodePhase::Booting;
                    row.since = now;
                    row.instance = Some(instance.clone());
                    row.due = now + timeout;
                });
                state.reprice(*node, price);
            }
            None => {
                unbook_all_on(state, *node);
                state.remove_node(*node);
            }
        }
    }
    let (asked, missing) = (purchase.nodes.len(), instances.len() < purchase.nodes.len());
    let block = if missing { Some(error.unwrap_or(LaunchError::Capacity)) } else { None };
    let remembers = state.apply_version >= 5;
    state.edit_offering(purchase.offering, |row| {
        row.in_flight = row.in_flight.saturating_sub(asked as u32);
        match block {
            Some(error) => blocked(row, error, purchase.at_least, now, remembers),
            // That they start is known: nothing more is asked for until this one is ready, is given up, or should have been.
            None if row.blocked_by == Some(LaunchError::Boot) => {
                row.window = 0;
                row.blocked_until = now + timeout;
            }
            None => {
                row.failures = 0;
                row.blocked_by = None;
                row.window = row.window.max(1).saturating_mul(2).min(WIDE_OPEN);
            }
        }
    });
    state.capacity_epoch += 1;
    EventOutcome::Applied
}

/// Nothing is asked of an offering for a while. Failed windows are counted, not failed calls: what was in flight together counts once.
///
/// In a row of refusals for want of stock the smallest size that was refused is remembered (`remembers`: as records from version 5 on mean), so that a part of a
/// gang is not bought, and nobody is stopped, each time for a rest that was refused as well. With the second, the fourth, the eighth in a row and so on less may
/// be asked for again: then there may be stock for less, and no more than that.
fn blocked(row: &mut OfferingRow, error: LaunchError, at_least: u32, now: Timestamp, remembers: bool) {
    if now < row.blocked_until {
        if error == LaunchError::Capacity {
            row.refused_size = row.refused_size.min(at_least);
        }
        return;
    }
    let in_a_row = error == LaunchError::Capacity && row.blocked_by == Some(LaunchError::Capacity);
    row.failures = row.failures.saturating_add(1);
    let keeps = remembers && in_a_row && !row.failures.is_power_of_two();
    row.refused_size = if keeps { row.refused_size.min(at_least) } else { at_least };
    row.blocked_by = Some(error);
    let (first, cap) = pauses_after(error);
    row.blocked_until = now + first.doubled(row.failures - 1, cap);
    if matches!(error, LaunchError::Capacity | LaunchError::Boot) {
        row.window = 1;
    }
}

/// A node was over before it was ready. Where none of its offering that was decided on with it or later is up, and none has got ready since,
/// the next would be as this one: one request at a time is tried, with growing pauses, until a node is ready.
pub(super) fn never_ready(state: &mut State, failed: &Node) {
    let excuses = |node: &Node| match node.phase {
        NodePhase::Ready => node.decided_at.max(node.since) >= failed.decided_at,
        NodePhase::Draining { .. } => node.decided_at >= failed.decided_at,
        NodePhase::Requested | NodePhase::Booting | NodePhase::Terminating => false,
    };
    let others = state.nodes.values().filter(|node| node.id != failed.id && node.offering == failed.offering);
    if others.into_iter().any(excuses) {
        return probe_lost(state, failed.offering);
    }
    let now = state.now;
    state.edit_offering(failed.offering, |row| {
        // The one that was tried: what went with the first of them counts with it.
        if row.window == 0 {
            row.blocked_until = now;
        }
        blocked(row, LaunchError::Boot, 1, now, true);
    });
}

/// The one that was tried to see whether any boots is over, and has not shown it: another may be tried.
pub(super) fn probe_lost(state: &mut State, offering: OfferingId) {
    if state.offerings[offering.index()].window > 0 {
        return;
    }
    let now = state.now;
    state.edit_offering(offering, |row| {
        row.window = 1;
        row.blocked_until = now;
    });
    state.capacity_epoch += 1;
}

fn node_ready(state: &mut State, instance: &str) -> EventOutcome {
    let Some(node) = state.node_of(instance) else {
        return ignore(state);
    };
    if node.phase != NodePhase::Booting {
        return ignore(state);
    }
    let (id, now) = (node.id, state.now);
    let (offering, decided_at, booted) = (node.offering, node.decided_at, now.since(node.decided_at));
    let holds = node.holds.clone();
    // How long it took is known only where somebody watched.
    if state.apply_version < 3 || decided_at >= state.resumed_at {
        state.observed.booted(offering, booted);
    }
    let due = now + state.idle_allowed(id);
    if state.offerings[offering.index()].blocked_by == Some(LaunchError::Boot) {
        state.edit_offering(offering, |row| {
            row.failures = 0;
            row.blocked_by = None;
            row.blocked_until = now;
            row.window = 2;
        });
    }
    state.edit_node(id, |node| {
        node.phase = NodePhase::Ready;
        node.since = now;
        if node.holds.is_empty() {
            node.idle_since = Some(now);
            node.due = due;
        }
    });
    state.woken.extend(holds);
    state.capacity_epoch += 1;
    EventOutcome::Applied
}

/// Kept as long as the run is alive: its cluster is told again after a restart.
fn death_confirmed(state: &mut State, id: JobId, attempt: Attempt, workers: &[u32]) -> EventOutcome {
    if !current(state, id, attempt) {
        return ignore(state);
    }
    let job = &state.jobs[id];
    let new = |worker: &&u32| job.numbers.contains(worker) && !job.confirmed_dead.contains(worker);
    let new: Vec<u32> = workers.iter().filter(new).copied().collect();
    if new.is_empty() {
        return ignore(state);
    }
    state.edit_job_quietly(id, |job| job.confirmed_dead.extend(new));
    EventOutcome::Applied
}

/// What was booked where it has no room any more is booked anew. What runs there goes on.
fn reserved(state: &mut State, instance_type: &str, reserve: NodeReserve) -> EventOutcome {
    let Some(over) = state.set_node_reserve(instance_type, reserve) else { return ignore(state) };
    over.into_iter().for_each(|node| unbook_all_on(state, node));
    EventOutcome::Applied
}

/// What was booked where no work goes any more is booked anew. What runs there goes on.
fn brake_set(state: &mut State, brake: &Brake, order: BrakeOrder) -> EventOutcome {
    let Some(closed) = state.set_brake(brake, order) else { return ignore(state) };
    closed.into_iter().for_each(|node| unbook_all_on(state, node));
    EventOutcome::Applied
}

/// Where a node stands may bring it together with others.
fn placed(state: &mut State, instance: &str, rack: &str) -> EventOutcome {
    let Some(node) = state.node_of(instance) else {
        return ignore(state);
    };
    let (id, before) = (node.id, node.rack);
    let rack = Some(state.rack_id(rack));
    if rack == before {
        return ignore(state);
    }
    state.edit_node(id, |node| node.rack = rack);
    state.capacity_epoch += 1;
    EventOutcome::Applied
}

fn reclaim_notice(state: &mut State, instance: &str, at: Timestamp) -> EventOutcome {
    let Some(node) = state.node_of(instance) else {
        return ignore(state);
    };
    if node.phase == NodePhase::Terminating || node.owned.is_some() {
        return ignore(state);
    }
    if let Some(known) = node.reclaim_at {
        let (id, sooner) = (node.id, state.apply_version >= 5 && at + SAME_RECLAIM <= known);
        return if sooner { reclaimed_sooner(state, id, at) } else { ignore(state) };
    }
    let (id, offering, boots) = (node.id, node.offering, node.phase.is_coming());
    state.counters.reclaims += 1;
    state.edit_node(id, |node| node.reclaim_at = Some(at));
    unbook_all_on(state, id);
    if boots {
        probe_lost(state, offering);
    }
    EventOutcome::Applied
}

/// A node goes before the time that was announced first: what is being stopped there has no longer than that. Up to version 4 the first
/// announcement counted, whichever was earlier.
fn reclaimed_sooner(state: &mut State, id: NodeId, at: Timestamp) -> EventOutcome {
    state.edit_node(id, |node| node.reclaim_at = Some(at));
    let mut holds = state.nodes.get(&id).map_or(Vec::new(), |node| node.holds.clone());
    holds.sort_unstable();
    holds.dedup();
    for job in holds {
        stop_sooner(state, job, id, at);
    }
    EventOutcome::Applied
}

/// A stop that is out, or workers that leave a node, end by then, and are asked to again at once. What runs on is settled by the node's time.
fn stop_sooner(state: &mut State, id: JobId, node: NodeId, at: Timestamp) {
    let now = state.now;
    let hangs_at = at.max(now) + state.lifecycle().hang_after;
    let row = &state.jobs[id];
    let on_node = row.numbers_on(node);
    let deadline = match row.phase {
        Phase::Stopping { deadline, .. } => Some(deadline),
        _ => row.leaving.as_ref().filter(|l| l.workers.iter().any(|n| on_node.contains(n))).map(|l| l.deadline),
    };
    if row.hung || deadline.is_none_or(|deadline| deadline <= at) {
        return;
    }
    state.edit_job(id, |job| {
        if let Phase::Stopping { deadline, .. } = &mut job.phase {
            *deadline = at;
            job.must_end_by = job.must_end_by.min(hangs_at);
        } else if let Some(leaving) = &mut job.leaving {
            leaving.deadline = at;
        }
        job.effect.iter_mut().for_each(|effect| effect.next_try = now);
    });
}

/// It is given back whatever becomes of it, and holds its ceilings until it is gone.
fn boot_failed(state: &mut State, instance: &str) -> EventOutcome {
    let Some(node) = state.node_of(instance).filter(|node| node.phase.is_coming() && !node.condemned).cloned() else {
        return ignore(state);
    };
    never_ready(state, &node);
    unbook_all_on(state, node.id);
    state.edit_node(node.id, |node| node.condemned = true);
    EventOutcome::Applied
}

fn node_gone(state: &mut State, instance: &str, why: GoneWhy) -> EventOutcome {
    let Some(node) = state.node_of(instance) else {
        return ignore(state);
    };
    let id = node.id;
    unbook_all_on(state, id);
    let Some(node) = state.remove_node(id) else {
        return EventOutcome::Applied;
    };
    if node.phase.is_coming() && node.reclaim_at.is_none() && !node.condemned {
        if why == GoneWhy::NeverReady {
            never_ready(state, &node);
        } else {
            probe_lost(state, node.offering);
        }
    }
    let cause = if why == GoneWhy::Reclaimed { StopCause::Reclaimed } else { StopCause::NodeLost };
    if state.capacity_of(&node) == CapacityType::Spot {
        let reclaimed = why == GoneWhy::Reclaimed || node.reclaim_at.is_some();
        state.observed.lived(node.offering, state.now.since(node.decided_at), reclaimed);
    }
    // An announced one is counted already.
    state.counters.reclaims += u64::from(why == GoneWhy::Reclaimed && node.reclaim_at.is_none());
    let mut holds = node.holds;
    holds.sort_unstable();
    holds.dedup();
    for job in holds {
        if cause == StopCause::Reclaimed {
            state.note_taken(job, node.offering);
        }
        lose_workers(state, job, id, cause);
    }
    EventOutcome::Applied
}

/// The workers of a run on a node that is gone are dead. The run ends with the last of them.
fn lose_workers(state: &mut State, job: JobId, node: NodeId, cause: StopCause) {
    let row = &state.jobs[job];
    if !row.alive() {
        return;
    }
    let others = row.places.iter().any(|p| p.node != node);
    let gone = row.numbers_on(node);
    if others && row.goes_on_without(&state.specs[job], &gone) {
        return drop_workers(state, job, &gone);
    }
    if others {
        // Its share and quota stay until the run has ended; its time since the last checkpoint is lost whatever follows.
        state.cost_out(job);
        state.edit_job(job, |job| {
            job.places.retain(|p| p.node != node);
            job.numbers.retain(|n| !gone.contains(n));
            if job.broken.is_none() {
                job.broken = Some(cause);
            }
        });
        state.cost_in(job);
        return;
    }
    let how = match row.phase {
        Phase::Stopping { cause, .. } => Ending::Stopped { cause },
        _ => Ending::Stopped { cause: row.broken.unwrap_or(cause) },
    };
    end_run(state, job, how);
}

/// A tagged instance that no claim knows: nobody's, so it is taken into the table to be given back.
fn orphan(state: &mut State, instance: &str, offering: OfferingId) -> EventOutcome {
    if state.node_of(instance).is_some() || offering.index() >= state.offerings.len() {
        return ignore(state);
    }
    let id = NodeId(state.counters.next_node);
    state.counters.next_node += 1;
    let mut node = new_node(state, id, PurchaseId(u64::MAX), offering, crate::ids::PoolId(0), Terms::default());
    node.phase = NodePhase::Booting;
    node.instance = Some(instance.into());
    node.condemned = true;
    state.counters.orphans += 1;
    node.due = Timestamp::NEVER;
    state.add_node(node);
    EventOutcome::Applied
}

/// A claim with nothing on it.
pub(crate) fn new_node(
    state: &State,
    id: NodeId,
    purchase: PurchaseId,
    offering: OfferingId,
    pool: crate::ids::PoolId,
    terms: Terms,
) -> Node {
    let offer = &state.offerings[offering.index()].offer;
    let partition = terms.layout.and_then(|at| {
        let layout = state.policy.as_deref()?.pools.get(pool.index())?.layouts.get(usize::from(at))?;
        Partition::of(at, layout, offer.gpu_mem)
    });
    let slices = partition.as_ref().map_or(0, Partition::all_free);
    let slot = Slot { free: 1000, mem_free: offer.gpu_mem, workers: 0, slices };
    Node {
        id,
        purchase,
        offering,
        pool,
        phase: NodePhase::Requested,
        since: state.now,
        decided_at: state.now,
        instance: None,
        slots: alloc::vec![slot; usize::from(offer.gpus)],
        partition,
        rack: None,
        cluster: terms.cluster,
        cpu_free: offer.cpu,
        mem_free: offer.mem,
        holds: Vec::new(),
        idle_since: None,
        reserved: Vec::new(),
        reclaim_at: None,
        allocated: MilliGpu(0),
        booked: MilliGpu(0),
        due: Timestamp::NEVER,
        condemned: false,
        faults: 0,
        price: offer.price,
        booked_price: offer.max_price,
        accrued_to: state.now,
        effect: None,
        owned: None,
        cordoned: state.is_cordoned(id, pool),
        reserve: state.offerings[offering.index()].reserve,
        parts: Vec::new(),
        replicas: Vec::new(),
    }
}

/// Whether a report is about the run that is alive.
fn current(state: &State, job: JobId, attempt: Attempt) -> bool {
    state.jobs.get(job).is_some_and(|row| row.attempt == attempt && row.alive())
}

/// A restarted victim is left alone until it is past its restart and has saved something, or for as long as the policy says: so it gets on.
fn protected_again(state: &State, spec: &JobSpec) -> Span {
    let every = spec.checkpoint.map_or(Span::ZERO, |c| c.every);
    if state.apply_version < 3 {
        return spec.restart + every;
    }
    spec.restart + every.min(LONGEST_SAVE).max(state.lifecycle().protect)
}

fn started(state: &mut State, id: JobId, attempt: Attempt) -> EventOutcome {
    if !current(state, id, attempt) || state.jobs[id].phase != Phase::Starting {
        return ignore(state);
    }
    let now = state.now;
    let lifecycle = state.lifecycle();
    let spec = &state.specs[id];
    let max_run = spec.max_run.unwrap_or(lifecycle.max_run);
    let tier = state.policy.as_deref().and_then(|p| p.tiers.get(state.jobs[id].tier.index()));
    let min_run = tier.map_or(Span::ZERO, |t| t.min_run);
    let longest = tier.and_then(|t| t.max_run_while_others_wait).unwrap_or(Span(u64::MAX));
    let protect = if attempt.0 > 1 { Span(min_run.0.max(protected_again(state, spec).0)) } else { min_run };
    let protect = protect.min(longest);
    let reassess = reassessed_at(spec, now);
    let takes_turns = state.rule_for(id).is_some_and(|rule| rule.preempt_within == PreemptWithin::LongerExpected);
    state.edit_job(id, |job| {
        job.phase = Phase::Running;
        job.reassess_at = reassess;
        job.since = now;
        job.running_since = Some(now);
        job.idle_seen = Span::ZERO;
        job.saved_at = now;
        job.effect = None;
        job.first_start = job.first_start.or(Some(now));
        job.denials = 0;
        job.start_target = None;
        job.must_end_by = now + max_run;
        job.protected_until = now + protect;
        job.overdue_at = if longest == Span(u64::MAX) { Timestamp::NEVER } else { now + longest };
        job.turn_over_at = if takes_turns { now + job.turn() } else { Timestamp::NEVER };
        job.kept = None;
    });
    loaded(state, id);
    state.work_saved(id);
    if protect == Span::ZERO {
        // It may be stopped for others from this very moment on.
        state.capacity_epoch += 1;
    }
    say(state, id, StatusKind::Started, None);
    EventOutcome::Applied
}

/// A replica's service counts what is loaded, and has started with its first.
fn loaded(state: &mut State, id: JobId) {
    let now = state.now;
    let Some(service) = state.jobs[id].service else { return };
    if let Some(row) = state.services.get_mut(&service) {
        row.load(now);
    }
    if state.jobs[service].first_start.is_none() {
        state.edit_job_quietly(service, |job| job.first_start = Some(now));
        say(state, service, StatusKind::Started, None);
    }
}

fn checkpointed(state: &mut State, id: JobId, attempt: Attempt, progress: Span) -> EventOutcome {
    if !current(state, id, attempt) || progress <= state.jobs[id].progress {
        return ignore(state);
    }
    let now = state.now;
    let reassess = reassessed_at(&state.specs[id], now);
    state.edit_job(id, |job| {
        job.progress = progress;
        job.saved_at = now;
        job.reassess_at = reassess;
    });
    state.end_streak(id);
    state.work_saved(id);
    say(state, id, StatusKind::Checkpointed, None);
    EventOutcome::Applied
}

fn completed(state: &mut State, id: JobId, attempt: Attempt, worker: Option<u32>) -> EventOutcome {
    if !current(state, id, attempt) {
        return ignore(state);
    }
    let Some(worker) = worker else {
        end_run(state, id, Ending::Completed);
        return EventOutcome::Applied;
    };
    let (completion, workers) = (state.specs[id].completion, state.jobs[id].workers);
    // Who has left and had finished before still counts where anyone does.
    let left = state.jobs[id].left.contains(&worker);
    if worker >= workers || (left && completion != Completion::Any) {
        return ignore(state);
    }
    state.edit_job(id, |job| {
        if let Err(at) = job.workers_done.binary_search(&worker)
            && !left
        {
            job.workers_done.insert(at, worker);
        }
        let met = match completion {
            Completion::All => job.all_finished(),
            Completion::Leader => job.workers_done.contains(&0),
            Completion::Any => true,
        };
        if met {
            job.broken = Some(StopCause::Completed);
        }
    });
    // All that ever ran have finished: nobody is left to be stopped.
    if state.jobs[id].all_finished() {
        end_run(state, id, Ending::Completed);
    }
    EventOutcome::Applied
}

fn failed(state: &mut State, id: JobId, attempt: Attempt, code: i32, blame: Option<NodeId>) -> EventOutcome {
    if !current(state, id, attempt) {
        return ignore(state);
    }
    let own = blame.is_some_and(|node| blamed(state, id, node));
    // Who has lost a node fails for want of it. Up to version 2 it was its own failure, unless it was being stopped already.
    let broken = state.jobs[id].broken.filter(|_| state.apply_version >= 3);
    let how = match (state.jobs[id].phase, broken, blame) {
        (Phase::Stopping { cause, .. }, ..) | (_, Some(cause), _) => Ending::Stopped { cause },
        (.., Some(_)) if !own => Ending::NodeFault,
        _ => Ending::Failed { code },
    };
    end_run(state, id, how);
    EventOutcome::Applied
}

/// A run blames a node. Returns whether it is the job's own fault. Up to version 2 it never was.
pub(super) fn blamed(state: &mut State, job: JobId, node: NodeId) -> bool {
    if state.apply_version < 3 {
        state.fault_of(node);
        return false;
    }
    state.note_blame(job, node)
}

fn stopped(state: &mut State, id: JobId, attempt: Attempt, progress: Option<Span>) -> EventOutcome {
    if !current(state, id, attempt) {
        return ignore(state);
    }
    let now = state.now;
    if let Some(progress) = progress.filter(|p| *p > state.jobs[id].progress) {
        state.edit_job(id, |job| {
            job.progress = progress;
            job.saved_at = now;
        });
        state.work_saved(id);
        say(state, id, StatusKind::Checkpointed, None);
    }
    let job = &state.jobs[id];
    let how = match (job.phase, job.broken) {
        // Up to version 2 only an answered stop remembered it; `end_run` does since then.
        (_, Some(StopCause::Completed)) => Ending::Stopped { cause: StopCause::Completed },
        (Phase::Stopping { cause, .. }, _) | (_, Some(cause)) => Ending::Stopped { cause },
        _ => job.leaving.as_ref().map_or(Ending::Dropped, |l| Ending::Stopped { cause: l.cause }),
    };
    end_run(state, id, how);
    EventOutcome::Applied
}

/// A quota of the cluster's own is full. Of a run that has started, or is being stopped, this says that it is dead.
fn denied(state: &mut State, id: JobId, attempt: Attempt) -> EventOutcome {
    let starts = |job: &Job| job.phase == Phase::Starting && job.broken.is_none();
    if !current(state, id, attempt) || !starts(&state.jobs[id]) {
        return stopped(state, id, attempt, None);
    }
    state.edit_job(id, |job| job.denials = job.denials.saturating_add(1));
    end_run(state, id, Ending::Denied);
    EventOutcome::Applied
}

fn idle_run(state: &mut State, id: JobId, attempt: Attempt, idle: Span) -> EventOutcome {
    if !current(state, id, attempt) || state.jobs[id].phase != Phase::Running {
        return ignore(state);
    }
    let since_last = state.jobs[id].idle_seen;
    let share = state.jobs[id].share;
    // Each report carries the whole idleness so far; what is new of it is counted, from its own observations.
    state.ledger.lingering += share.over(idle - since_last);
    state.work_idle(id, share.over(idle - since_last));
    let bound = state.lifecycle().linger_after;
    state.edit_job(id, |job| {
        job.idle_reported = (idle >= bound).then_some(idle);
        job.idle_seen = job.idle_seen.max(idle);
    });
    EventOutcome::Applied
}

fn price_changed(state: &mut State, offering: OfferingId, price: Rate) -> EventOutcome {
    // What an owned node costs, the policy says.
    let is_priced = |row: &OfferingRow| row.offer.capacity != CapacityType::Owned;
    if !state.offerings.get(offering.index()).is_some_and(is_priced) {
        return ignore(state);
    }
    state.edit_offering(offering, |row| row.offer.price = price);
    // Whoever waits out a throttling of the cheapest may find another one cheaper now.
    state.capacity_epoch += 1;
    let of_it = |n: &&Node| n.offering == offering && may_be_billed(n.phase);
    let nodes: Vec<NodeId> = state.nodes.values().filter(of_it).map(|n| n.id).collect();
    for id in nodes {
        state.reprice(id, price);
    }
    EventOutcome::Applied
}

fn may_be_billed(phase: NodePhase) -> bool {
    may_become_ready(phase) || matches!(phase, NodePhase::Draining { .. } | NodePhase::Terminating)
}
