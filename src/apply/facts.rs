//! What happened outside: one arm an event.
//!
//! Never: trusts. Reports count only for the attempt that is alive; repeats and late ones change nothing.

use super::{end_run, may_become_ready, say, say_refused, take_seq, unbook_all_on};
use crate::catalog::CapacityType;
use crate::decision::StopCause;
use crate::effect::StatusKind;
use crate::event::{Event, GoneWhy, LaunchError};
use crate::ids::{Attempt, JobId, NodeId, OfferingId, PurchaseId};
use crate::job::{Completion, JobSpec};
use crate::reason::Reason;
use crate::state::jobs::{Ending, Job, Phase};
use crate::state::nodes::{Node, NodePhase, Slot};
use crate::state::{Hurry, Shape, State};
use crate::units::{MilliGpu, Millis, Rate, Span};
use alloc::string::String;
use alloc::vec::Vec;

/// Applies an event.
pub(crate) fn event(state: &mut State, event: &Event) {
    let _ = take_seq(state);
    match event {
        Event::Configured(policy) => state.configure(policy),
        Event::JobSubmitted(spec) => submitted(state, spec),
        Event::JobCancelled { tenant, subject } => cancelled(state, tenant, subject),
        Event::LaunchOutcome { purchase, instances, error } => launched(state, *purchase, instances, *error),
        Event::NodeReady { instance } => node_ready(state, instance),
        Event::ReclaimNotice { instance, at } => reclaim_notice(state, instance, *at),
        Event::NodeGone { instance, why } => node_gone(state, instance, *why),
        Event::OrphanSeen { instance, offering } => orphan(state, instance, *offering),
        Event::RunStarted { job, attempt } => started(state, *job, *attempt),
        Event::RunCheckpointed { job, attempt, progress } => checkpointed(state, *job, *attempt, *progress),
        Event::RunCompleted { job, attempt, worker } => completed(state, *job, *attempt, *worker),
        Event::RunFailed { job, attempt, exit_code, node_fault } => {
            failed(state, *job, *attempt, *exit_code, *node_fault);
        }
        Event::RunStopped { job, attempt, progress } => stopped(state, *job, *attempt, *progress),
        Event::RunIdle { job, attempt, idle } => idle_run(state, *job, *attempt, *idle),
        // Nothing asks for these yet.
        Event::RunShrunk { .. } | Event::ServiceDemand { .. } | Event::NodePlaced { .. } => ignore(state),
        Event::PriceChanged { offering, price } => price_changed(state, *offering, *price),
    }
}

fn ignore(state: &mut State) {
    state.counters.ignored_events += 1;
}

fn submitted(state: &mut State, spec: &JobSpec) {
    if let Some(id) = state.job_of(&spec.tenant, &spec.subject) {
        let done = state.jobs[id.ix()].done();
        let same = state.specs[id.ix()].digest == spec.digest;
        match (done && spec.rerun, same) {
            (true, _) => {}
            (false, true) => return ignore(state),
            (false, false) => {
                state.counters.refused += 1;
                return say_refused(state, spec, Reason::Conflict);
            }
        }
    }
    let id = JobId(state.jobs.len() as u64);
    let queue = state.queue_id(&spec.queue);
    let tier = tier_of(state, spec, queue);
    let models = spec.models.iter().map(|m| state.model_id(m)).collect();
    let batch = spec.batch.as_deref().map(|key| state.batch_id(queue, key));
    let shape = Shape {
        queue,
        tier,
        gang: spec.gang.clone(),
        models,
        spot: spec.spot,
        shares: spec.shares,
        within: spec.within,
        batch,
        service: None,
        hurry: Hurry::Ordinary,
        loses: spec.lost_at_a_reclaim(),
        late: false,
    };
    let class = state.class_id(shape);
    let job = Job {
        id,
        class,
        queue,
        tier,
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
        protected_until: Millis(0),
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
        must_end_by: Millis::NEVER,
        share: MilliGpu(0),
        admitted_said: false,
        reserved_until: None,
        interruptions: 0,
        patience: state.patience(queue, state.now),
    };
    state.ix.job_in(&job);
    state.ix.by_identity.insert((spec.tenant.clone(), spec.subject.clone()), id);
    state.specs.push(spec.clone());
    state.jobs.push(job);
}

/// The tier that the job names, if the policy has it; else its queue's.
fn tier_of(state: &State, spec: &JobSpec, queue: crate::ids::QueueId) -> crate::ids::TierId {
    let named = spec.tier.as_deref().and_then(|name| state.policy.as_deref()?.tier_named(name));
    let own = state.queues[queue.ix()].rule.as_ref().map(|rule| rule.tier);
    named.or(own).unwrap_or_default()
}

fn cancelled(state: &mut State, tenant: &str, subject: &str) {
    match state.job_of(tenant, subject) {
        Some(id) if !state.jobs[id.ix()].done() => state.edit_job(id, |job| job.cancel_asked = true),
        _ => ignore(state),
    }
}

fn launched(state: &mut State, id: PurchaseId, instances: &[String], error: Option<LaunchError>) {
    let Some(purchase) = state.remove_purchase(id) else {
        return ignore(state);
    };
    let now = state.now;
    let timeout = state.lifecycle().boot_timeout;
    let price = state.offerings[purchase.offering.ix()].offer.price;
    for (at, node) in purchase.nodes.iter().enumerate() {
        match instances.get(at) {
            Some(instance) => state.edit_node(*node, |row| {
                row.phase = NodePhase::Booting;
                row.since = now;
                row.instance = Some(instance.clone());
                row.price = price;
                row.due = now + timeout;
            }),
            None => {
                unbook_all_on(state, *node);
                state.remove_node(*node);
            }
        }
    }
    let (asked, missing) = (purchase.nodes.len(), instances.len() < purchase.nodes.len());
    let block = if missing { Some(error.unwrap_or(LaunchError::Capacity)) } else { None };
    state.edit_offering(purchase.offering, |row| {
        row.in_flight = row.in_flight.saturating_sub(asked as u32);
        match block {
            Some(error) => blocked(row, error, purchase.at_least, now),
            None => {
                row.failures = 0;
                row.blocked_by = None;
                row.window = row.window.saturating_mul(2).min(1024);
            }
        }
    });
    state.freed += 1;
}

/// Nothing is asked of an offering for a while. Failed windows are counted, not failed calls: what was in flight together counts once.
fn blocked(row: &mut crate::state::nodes::OfferingRow, error: LaunchError, at_least: u32, now: Millis) {
    if now < row.blocked_until {
        if error == LaunchError::Capacity {
            row.refused_size = row.refused_size.min(at_least);
        }
        return;
    }
    row.refused_size = at_least;
    row.failures = row.failures.saturating_add(1);
    row.blocked_by = Some(error);
    let (first, cap) = match error {
        LaunchError::Capacity => (Span::mins(1), Span::mins(10)),
        LaunchError::Throttled | LaunchError::Server => (Span::secs(5), Span::mins(2)),
        LaunchError::Quota | LaunchError::Auth | LaunchError::Config => (Span::mins(5), Span::mins(30)),
    };
    row.blocked_until = now + first.doubled(row.failures - 1, cap);
    if error == LaunchError::Capacity {
        row.window = 1;
    }
}

fn node_ready(state: &mut State, instance: &str) {
    let Some(node) = state.node_of(instance) else {
        return ignore(state);
    };
    if node.phase != NodePhase::Booting {
        return ignore(state);
    }
    let (id, now) = (node.id, state.now);
    let (offering, booted) = (node.offering, now.since(node.decided_at));
    let holds = node.holds.clone();
    state.seen.booted(offering, booted);
    let due = now + state.idle_allowed(id);
    state.edit_node(id, |node| {
        node.phase = NodePhase::Ready;
        node.since = now;
        if node.holds.is_empty() {
            node.idle_since = Some(now);
            node.due = due;
        }
    });
    state.woken.extend(holds);
    state.freed += 1;
}

fn reclaim_notice(state: &mut State, instance: &str, at: Millis) {
    let Some(node) = state.node_of(instance) else {
        return ignore(state);
    };
    if node.reclaim_at.is_some() || node.phase == NodePhase::Terminating {
        return ignore(state);
    }
    let id = node.id;
    state.counters.reclaims += 1;
    state.edit_node(id, |node| node.reclaim_at = Some(at));
    unbook_all_on(state, id);
}

fn node_gone(state: &mut State, instance: &str, why: GoneWhy) {
    let Some(node) = state.node_of(instance) else {
        return ignore(state);
    };
    let id = node.id;
    unbook_all_on(state, id);
    let Some(node) = state.remove_node(id) else {
        return;
    };
    let cause = if why == GoneWhy::Reclaimed { StopCause::Reclaimed } else { StopCause::NodeLost };
    if state.capacity_of(&node) == CapacityType::Spot {
        let reclaimed = why == GoneWhy::Reclaimed || node.reclaim_at.is_some();
        state.seen.lived(node.offering, state.now.since(node.decided_at), reclaimed);
    }
    // An announced one is counted already.
    state.counters.reclaims += u64::from(why == GoneWhy::Reclaimed && node.reclaim_at.is_none());
    let mut holds = node.holds;
    holds.sort_unstable();
    holds.dedup();
    for job in holds {
        lose_workers(state, job, id, cause);
    }
}

/// The workers of a run on a node that is gone are dead. The run ends with the last of them.
fn lose_workers(state: &mut State, job: JobId, node: NodeId, cause: StopCause) {
    let row = &state.jobs[job.ix()];
    if !row.alive() {
        return;
    }
    let others = row.places.iter().any(|p| p.node != node);
    if others {
        // Its share and quota stay until the run has ended; its time since the last checkpoint is lost whatever follows.
        state.edit_job(job, |job| {
            job.places.retain(|p| p.node != node);
            if job.broken.is_none() {
                job.broken = Some(cause);
            }
        });
        return;
    }
    let how = match row.phase {
        Phase::Stopping { cause, .. } => Ending::Stopped { cause },
        _ => Ending::Stopped { cause: row.broken.unwrap_or(cause) },
    };
    end_run(state, job, how);
}

/// A tagged instance that no claim knows: nobody's, so it is taken into the table to be given back.
fn orphan(state: &mut State, instance: &str, offering: OfferingId) {
    if state.node_of(instance).is_some() || offering.ix() >= state.offerings.len() {
        return ignore(state);
    }
    let id = NodeId(state.counters.next_node);
    state.counters.next_node += 1;
    let mut node = new_node(state, id, PurchaseId(u64::MAX), offering, crate::ids::PoolId(0));
    node.phase = NodePhase::Booting;
    node.instance = Some(instance.into());
    node.condemned = true;
    state.counters.orphans += 1;
    node.due = Millis::NEVER;
    state.add_node(node);
}

/// A claim with nothing on it.
pub(super) fn new_node(
    state: &State,
    id: NodeId,
    purchase: PurchaseId,
    offering: OfferingId,
    pool: crate::ids::PoolId,
) -> Node {
    let offer = &state.offerings[offering.ix()].offer;
    let slot = Slot { free: 1000, mem_free: offer.gpu_mem, workers: 0 };
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
        cpu_free: offer.cpu,
        mem_free: offer.mem,
        holds: Vec::new(),
        idle_since: None,
        reserved: None,
        reclaim_at: None,
        allocated: MilliGpu(0),
        booked: MilliGpu(0),
        due: Millis::NEVER,
        condemned: false,
        faults: 0,
        price: offer.price,
        booked_price: offer.max_price,
        accrued_to: state.now,
        effect: None,
    }
}

/// Whether a report is about the run that is alive.
fn current(state: &State, job: JobId, attempt: Attempt) -> bool {
    state.jobs.get(job.ix()).is_some_and(|row| row.attempt == attempt && row.alive())
}

fn started(state: &mut State, id: JobId, attempt: Attempt) {
    if !current(state, id, attempt) || state.jobs[id.ix()].phase != Phase::Starting {
        return ignore(state);
    }
    let now = state.now;
    let lifecycle = state.lifecycle();
    let spec = &state.specs[id.ix()];
    let max_run = spec.max_run.unwrap_or(lifecycle.max_run);
    let tier = state.policy.as_deref().and_then(|p| p.tiers.get(state.jobs[id.ix()].tier.ix()));
    let min_run = tier.map_or(Span::ZERO, |t| t.min_run);
    let longest = tier.and_then(|t| t.max_run_while_others_wait).unwrap_or(Span(u64::MAX));
    // A restarted victim is left alone until it is past its restart and has saved something: so it gets on.
    let again = spec.restart + spec.checkpoint.map_or(Span::ZERO, |c| c.every);
    let protect = if attempt.0 > 1 { Span(min_run.0.max(again.0)) } else { min_run };
    let protect = protect.min(longest);
    state.edit_job(id, |job| {
        job.phase = Phase::Running;
        job.since = now;
        job.running_since = Some(now);
        job.idle_seen = Span::ZERO;
        job.saved_at = now;
        job.effect = None;
        job.first_start = job.first_start.or(Some(now));
        job.patience = None;
        job.must_end_by = now + max_run;
        job.protected_until = now + protect;
    });
    if protect == Span::ZERO {
        // It may be stopped for others from this very moment on.
        state.freed += 1;
    }
    say(state, id, StatusKind::Started, None);
}

fn checkpointed(state: &mut State, id: JobId, attempt: Attempt, progress: Span) {
    if !current(state, id, attempt) || progress <= state.jobs[id.ix()].progress {
        return ignore(state);
    }
    let now = state.now;
    state.edit_job_quietly(id, |job| {
        job.progress = progress;
        job.saved_at = now;
    });
    say(state, id, StatusKind::Checkpointed, None);
}

fn completed(state: &mut State, id: JobId, attempt: Attempt, worker: Option<u32>) {
    if !current(state, id, attempt) {
        return ignore(state);
    }
    let Some(worker) = worker else {
        return end_run(state, id, Ending::Completed);
    };
    let (completion, workers) = (state.specs[id.ix()].completion, state.jobs[id.ix()].workers);
    if worker >= workers {
        return ignore(state);
    }
    state.edit_job(id, |job| {
        if let Err(at) = job.workers_done.binary_search(&worker) {
            job.workers_done.insert(at, worker);
        }
        let met = match completion {
            Completion::All => job.workers_done.len() as u32 >= workers,
            Completion::Leader => job.workers_done.contains(&0),
            Completion::Any => true,
        };
        if met {
            job.broken = Some(StopCause::Completed);
        }
    });
    // All that ever ran have finished: nobody is left to be stopped.
    if state.jobs[id.ix()].workers_done.len() as u32 >= workers {
        end_run(state, id, Ending::Completed);
    }
}

fn failed(state: &mut State, id: JobId, attempt: Attempt, code: i32, blame: Option<NodeId>) {
    if !current(state, id, attempt) {
        return ignore(state);
    }
    if let Some(node) = blame {
        let limit = state.lifecycle().quarantine_after;
        state.edit_node(node, |row| {
            row.faults += 1;
            row.condemned |= row.faults >= limit;
        });
    }
    let how = match (state.jobs[id.ix()].phase, blame) {
        (Phase::Stopping { cause, .. }, _) => Ending::Stopped { cause },
        (_, Some(_)) => Ending::NodeFault,
        (_, None) => Ending::Failed { code },
    };
    end_run(state, id, how);
}

fn stopped(state: &mut State, id: JobId, attempt: Attempt, progress: Option<Span>) {
    if !current(state, id, attempt) {
        return ignore(state);
    }
    let now = state.now;
    if let Some(progress) = progress.filter(|p| *p > state.jobs[id.ix()].progress) {
        state.edit_job(id, |job| {
            job.progress = progress;
            job.saved_at = now;
        });
        say(state, id, StatusKind::Checkpointed, None);
    }
    let job = &state.jobs[id.ix()];
    let how = match (job.phase, job.broken) {
        (_, Some(StopCause::Completed)) => Ending::Stopped { cause: StopCause::Completed },
        (Phase::Stopping { cause, .. }, _) | (_, Some(cause)) => Ending::Stopped { cause },
        _ => Ending::Dropped,
    };
    end_run(state, id, how);
}

fn idle_run(state: &mut State, id: JobId, attempt: Attempt, idle: Span) {
    if !current(state, id, attempt) || state.jobs[id.ix()].phase != Phase::Running {
        return ignore(state);
    }
    let since_last = state.jobs[id.ix()].idle_seen;
    let share = state.jobs[id.ix()].share;
    // Each report carries the whole idleness so far; what is new of it is counted, from its own observations.
    state.ledger.lingering += share.over(idle - since_last);
    let bound = state.lifecycle().linger_after;
    state.edit_job(id, |job| {
        job.idle_reported = (idle >= bound).then_some(idle);
        job.idle_seen = job.idle_seen.max(idle);
    });
}

fn price_changed(state: &mut State, offering: OfferingId, price: Rate) {
    if offering.ix() >= state.offerings.len() {
        return ignore(state);
    }
    state.edit_offering(offering, |row| row.offer.price = price);
    // Whoever waits out a throttling of the cheapest may find another one cheaper now.
    state.freed += 1;
    let of_it = |n: &&Node| n.offering == offering && may_be_billed(n.phase);
    let nodes: Vec<NodeId> = state.nodes.values().filter(of_it).map(|n| n.id).collect();
    for id in nodes {
        state.edit_node(id, |node| node.price = price);
    }
}

fn may_be_billed(phase: NodePhase) -> bool {
    may_become_ready(phase) || matches!(phase, NodePhase::Draining { .. } | NodePhase::Terminating)
}
