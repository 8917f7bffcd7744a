//! What the engine's state says: nodes, GPUs and money by pool and capacity type, stock, jobs. One look at a state between two batches.
//!
//! Never: a look at every job. Those that hold places are as few as GPUs; those that wait, maybe a million, are counted by class.

use super::family::{Family, MOST_VALUES, OTHER};
use crate::document::write::{QueueCounts, dollars, gpus, queue_counts};
use forebay_engine::engine::Engine;
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::event::LaunchError;
use forebay_kernel::ids::PoolId;
use forebay_kernel::reason::Reason;
use forebay_kernel::state::State;
use forebay_kernel::state::jobs::Phase;
use forebay_kernel::units::{MilliGpu, Rate};
use std::collections::BTreeMap;

const CAPACITY_TYPES: [CapacityType; 4] =
    [CapacityType::Reserved, CapacityType::Spot, CapacityType::OnDemand, CapacityType::Owned];

const NODE_PHASES: [&str; 5] = ["requested", "booting", "ready", "draining", "terminating"];

const LAUNCH_ERRORS: [LaunchError; 8] = [
    LaunchError::Capacity,
    LaunchError::Throttled,
    LaunchError::Quota,
    LaunchError::Auth,
    LaunchError::Config,
    LaunchError::Server,
    LaunchError::Contested,
    LaunchError::Boot,
];

const BRAKES: [&str; 6] = ["buying", "admission", "preemption", "queue", "pool", "node"];

/// Sets of like jobs that are asked why they wait. It bounds what a scrape takes on the driver's thread.
const MOST_ASKED: usize = 1000;

/// The reason of those that are not asked.
const NOT_ASKED: &str = "NotAsked";

const OUTCOMES: [&str; 4] = ["completed", "failed", "cancelled", "rejected"];

/// What there is of one capacity type in one pool.
#[derive(Default)]
struct Held {
    nodes: BTreeMap<&'static str, u64>,
    gpus: u64,
    running: MilliGpu,
    booked: MilliGpu,
    rate: Rate,
    purchases: u64,
}

fn error(error: LaunchError) -> &'static str {
    match error {
        LaunchError::Capacity => "capacity",
        LaunchError::Throttled => "throttled",
        LaunchError::Quota => "quota",
        LaunchError::Auth => "auth",
        LaunchError::Config => "config",
        LaunchError::Server => "server",
        LaunchError::Contested => "contested",
        LaunchError::Boot => "boot",
    }
}

/// Nodes, GPUs, money and stock: figures that name nobody.
#[must_use]
pub fn cluster(state: &State) -> Vec<Family> {
    let mut families = places(state);
    families.extend(stock(state));
    families.extend(brakes(state));
    let counters = state.counters();
    let reclaims = Family::counter("node_reclaims", "Nodes that the cloud took back or announced to take back.");
    families.push(reclaims.with(&[], counters.reclaims));
    let ledger = state.ledger_now();
    let spend = Family::counter("spend", "What all nodes have cost, by how they were paid for.").unit("usd");
    families.push(CAPACITY_TYPES.into_iter().fold(spend, |family, capacity| {
        let cost = ledger.account(capacity).cost.micro_dollars();
        family.with(&[("capacity_type", capacity.as_str())], dollars(cost))
    }));
    families
}

/// By pool and capacity type: all that the policy offers, zeros too, and what there still is of others.
fn held(state: &State) -> BTreeMap<(PoolId, CapacityType), Held> {
    let mut held: BTreeMap<_, Held> = BTreeMap::new();
    for (policy, at, pool) in
        state.policy().iter().flat_map(|p| (0..).zip(&p.pools).map(move |(at, pool)| (p, at, pool)))
    {
        for offer in pool.offerings.iter().filter_map(|&offer| policy.offerings.get(offer as usize)) {
            held.entry((PoolId(at), offer.capacity)).or_default();
        }
        if pool.owned.is_some() {
            held.entry((PoolId(at), CapacityType::Owned)).or_default();
        }
    }
    for node in state.nodes() {
        let held = held.entry((node.pool, state.capacity_of(node))).or_default();
        *held.nodes.entry(node.phase.as_str()).or_default() += 1;
        held.gpus += node.slots.len() as u64;
        held.running = held.running + node.allocated;
        held.booked = held.booked + node.booked;
        held.rate = held.rate + node.price;
    }
    for purchase in state.purchases() {
        if let Some(row) = state.offerings().get(purchase.offering.index()) {
            held.entry((purchase.pool, row.offer.capacity)).or_default().purchases += 1;
        }
    }
    held
}

fn places(state: &State) -> Vec<Family> {
    let mut nodes = Family::gauge("nodes", "Nodes from the decision to buy them until they are gone.");
    let mut all = Family::gauge("gpus", "Whole GPUs on all nodes, on those that do not exist yet too.");
    let mut running = Family::gauge("gpus_running", "GPUs and parts of GPUs that started runs hold.");
    let mut booked =
        Family::gauge("gpus_booked", "GPUs and parts of GPUs that jobs hold whose workers have not started.");
    let mut rate = Family::gauge("spend_rate", "What all nodes cost now, in US dollars an hour.").unit("usd_per_hour");
    let mut purchases = Family::gauge("purchases_open", "Purchases whose outcome is not known yet.");
    let pools = state.policy().map(|policy| policy.pools.as_slice()).unwrap_or_default();
    for ((pool, capacity), held) in held(state) {
        let pool = pools.get(pool.index()).map_or("", |pool| pool.name.as_str());
        let place = [("pool", pool), ("capacity_type", capacity.as_str())];
        for phase in NODE_PHASES {
            let count = held.nodes.get(phase).copied().unwrap_or(0);
            nodes.set(&[place[0], place[1], ("state", phase)], count);
        }
        all.set(&place, held.gpus);
        running.set(&place, gpus(held.running.0));
        booked.set(&place, gpus(held.booked.0));
        rate.set(&place, dollars(held.rate.0));
        purchases.set(&place, held.purchases);
    }
    vec![nodes, all, running, booked, rate, purchases]
}

/// Offerings of the policy in force, and those of them that are not asked for now, by what the cloud said last.
fn stock(state: &State) -> [Family; 2] {
    let mut blocked = BTreeMap::from(LAUNCH_ERRORS.map(|kind| (kind, 0u64)));
    let mut listed = 0u64;
    for row in state.offerings().iter().filter(|row| row.listed) {
        listed += 1;
        if let Some(kind) = row.blocked_by.filter(|_| row.blocked_until > state.now()) {
            *blocked.entry(kind).or_default() += 1;
        }
    }
    let offerings = Family::gauge("offerings", "What the policy lets be bought: instance type x zone x capacity type.");
    let refused = Family::gauge(
        "offerings_blocked",
        "Offerings that are not asked for now, by what the cloud said last; `capacity` is out of stock.",
    );
    let refused =
        blocked.into_iter().fold(refused, |family, (kind, count)| family.with(&[("error", error(kind))], count));
    [offerings.with(&[], listed), refused]
}

/// What operators have stopped. Zeros too, so that an alert can wait for one.
fn brakes(state: &State) -> [Family; 2] {
    let mut on = BTreeMap::from(BRAKES.map(|kind| (kind, 0u64)));
    for (brake, _) in state.brakes() {
        *on.entry(brake.kind()).or_default() += 1;
    }
    let brakes = Family::gauge("brakes", "What operators have stopped for a time, by kind.");
    let brakes = on.into_iter().fold(brakes, |family, (kind, count)| family.with(&[("kind", kind)], count));
    let held = state.index().held_back.len() as u64;
    let help = "Jobs that would wait in the order, had an operator not paused admission or held their queue.";
    [brakes, Family::gauge("jobs_held_back", help).with(&[], held)]
}

/// Jobs by queue: of those that `shows`, the declared ones before others as far as there are labels, and the rest together.
#[must_use]
pub fn queues(state: &State, shows: impl Fn(&str) -> bool) -> [Family; 3] {
    let counts = queue_counts(state);
    let declared = state.policy().into_iter().flat_map(|policy| policy.queues.keys().map(String::as_str));
    let mut named: BTreeMap<(bool, &str), QueueCounts> =
        declared.map(|path| ((false, path), QueueCounts::default())).collect();
    for (id, queue) in state.queues().iter() {
        let known = named.contains_key(&(false, queue.path.as_str()));
        named.insert((!known, &queue.path), counts.get(&id).copied().unwrap_or_default());
    }
    named.retain(|(_, path), _| shows(path));
    let mut labelled: BTreeMap<&str, QueueCounts> = BTreeMap::new();
    for (at, ((_, path), more)) in named.into_iter().enumerate() {
        let there = labelled.entry(if at < MOST_VALUES { path } else { OTHER }).or_default();
        there.waiting += more.waiting;
        there.running += more.running;
        there.milli_waiting += more.milli_waiting;
        there.head_wait = there.head_wait.max(more.head_wait);
    }
    let mut jobs =
        Family::gauge("queue_jobs", "Jobs of a queue that are not over: those without a worker, and those with one.");
    let mut gpus_waiting = Family::gauge("queue_gpus_waiting", "GPUs and parts of GPUs that jobs of a queue wait for.");
    let help = "For how long the first in order of those that wait has waited, since it was accepted.";
    let mut first = Family::gauge("queue_head_wait", help).unit("seconds");
    for (queue, there) in labelled {
        jobs.set(&[("queue", queue), ("state", "waiting")], there.waiting);
        jobs.set(&[("queue", queue), ("state", "running")], there.running);
        gpus_waiting.set(&[("queue", queue)], gpus(there.milli_waiting));
        first.set(&[("queue", queue)], there.head_wait.0 as f64 / 1000.0);
    }
    [jobs, gpus_waiting, first]
}

/// Jobs that wait, by why the first of those like them does.
#[must_use]
pub fn waiting(engine: &Engine) -> Family {
    let index = engine.state().index();
    let mut counts: BTreeMap<&'static str, u64> = BTreeMap::new();
    for (at, (class, jobs)) in index.queued.iter().enumerate() {
        let first = jobs.first().filter(|_| at < MOST_ASKED);
        let code = first.map_or(NOT_ASKED, |key| engine.why(key.job).map_or(NOT_ASKED, Reason::code));
        *counts.entry(code).or_default() += index.positions.total(*class);
    }
    let help = "Jobs that wait in their order, by the code of the reason of the first of those like them.";
    let family = Family::gauge("jobs_waiting", help);
    counts.into_iter().fold(family, |family, (reason, count)| family.with(&[("reason", reason)], count))
}

/// Jobs, statuses and events of all tenants.
#[must_use]
pub fn jobs(state: &State) -> Vec<Family> {
    let serving = state.services().count() as u64;
    let (mut booked, mut starting, mut running, mut stopping) = (0u64, 0u64, 0u64, 0u64);
    let holding = state.index().holding.values().flatten().filter_map(|&id| state.job(id));
    // A replica is no job of its own: its service is one.
    for (job, _) in holding.filter(|(job, _)| job.service.is_none()) {
        match job.phase {
            Phase::Booked => booked += 1,
            Phase::Starting => starting += 1,
            Phase::Running => running += 1,
            Phase::Stopping { .. } => stopping += 1,
            _ => {}
        }
    }
    let held = state.index().held.len() as u64;
    let waiting = (state.open_jobs() as u64).saturating_sub(serving + held + booked + starting + running + stopping);
    let counts = [
        ("waiting", waiting),
        ("held", held),
        ("booked", booked),
        ("starting", starting),
        ("running", running),
        ("stopping", stopping),
        ("serving", serving),
    ];
    let open = Family::gauge("jobs", "Jobs that are not over, by where they are. A service is one job.");
    let open = counts.into_iter().fold(open, |family, (state, count)| family.with(&[("state", state)], count));
    let counters = state.counters();
    let over = Family::counter("jobs_over", "Jobs that are over, by outcome.");
    let outcomes = OUTCOMES.into_iter().zip(counters.outcomes);
    let over = outcomes.fold(over, |family, (outcome, count)| family.with(&[("outcome", outcome)], count));
    let single = |name, help, count| Family::counter(name, help).with(&[], count);
    vec![
        open,
        over,
        single("submissions_refused", "Submissions that were refused before they became a job.", counters.refused),
        single("statuses", "Status messages to submitters.", counters.statuses),
        single("events_ignored", "Events that said nothing new or came too late.", counters.ignored_events),
        single("decisions", "Decisions of the engine.", counters.decisions),
    ]
}
