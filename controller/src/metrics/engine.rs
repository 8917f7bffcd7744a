//! What the engine's state says: nodes, GPUs and money by pool and capacity type, stock, jobs. One look at a state between two batches.
//!
//! Never: a look at every job. Those that hold places are as few as GPUs; those that wait, maybe a million, are counted by class.

use super::catalogue;
use super::family::{Family, MOST_VALUES, OTHER};
use crate::document::write::{QueueCounts, dollars, gpus, queue_counts};
use forebay_engine::engine::Engine;
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::event::LaunchError;
use forebay_kernel::ids::{OfferingId, PoolId};
use forebay_kernel::reason::Reason;
use forebay_kernel::state::State;
use forebay_kernel::state::jobs::Phase;
use forebay_kernel::state::nodes::OfferingRow;
use forebay_kernel::units::{MilliGpu, Rate, Span, Timestamp};
use std::collections::BTreeMap;

const NODE_PHASES: [&str; 5] = ["requested", "booting", "ready", "draining", "terminating"];

/// What an offering may be blocked by.
pub(super) const LAUNCH_ERRORS: [LaunchError; 8] = [
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

/// Whether an offering is asked for now.
const STOCK: [&str; 3] = ["open", "out-of-stock", "refused"];

/// Parts of the boots that were seen, in thousandths, and how they are called.
const BOOT_PERCENTILES: [(&str, usize); 2] = [("50", 500), ("90", 900)];

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

/// An error of the cloud, as a label.
pub(super) fn error_label(error: LaunchError) -> &'static str {
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
    families.push(pool_stock(state));
    families.push(boots(state));
    families.extend(brakes(state));
    let counters = state.counters();
    let reclaims = Family::of(&catalogue::NODE_RECLAIMS);
    families.push(reclaims.with(&[], counters.reclaims));
    let ledger = state.ledger_now();
    let spend = Family::of(&catalogue::SPEND);
    families.push(CapacityType::ALL.into_iter().fold(spend, |family, capacity| {
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
    let mut nodes = Family::of(&catalogue::NODES);
    let mut all = Family::of(&catalogue::GPUS);
    let mut running = Family::of(&catalogue::GPUS_RUNNING);
    let mut booked = Family::of(&catalogue::GPUS_BOOKED);
    let mut rate = Family::of(&catalogue::SPEND_RATE);
    let mut purchases = Family::of(&catalogue::PURCHASES_OPEN);
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
    let offerings = Family::of(&catalogue::OFFERINGS);
    let refused = Family::of(&catalogue::OFFERINGS_BLOCKED);
    let refused =
        blocked.into_iter().fold(refused, |family, (kind, count)| family.with(&[("error", error_label(kind))], count));
    [offerings.with(&[], listed), refused]
}

/// The offerings of each pool by whether they are asked for now.
fn pool_stock(state: &State) -> Family {
    let mut counts: BTreeMap<(&str, CapacityType, &'static str), u64> = BTreeMap::new();
    let now = state.now();
    for pool in state.policy().into_iter().flat_map(|policy| &policy.pools) {
        for row in offerings_of(state, &pool.offerings).filter_map(|id| state.offerings().get(id.index())) {
            for kind in STOCK {
                counts.entry((&pool.name, row.offer.capacity, kind)).or_default();
            }
            *counts.entry((&pool.name, row.offer.capacity, stock_of(row, now))).or_default() += 1;
        }
    }
    let mut offerings = Family::of(&catalogue::POOL_OFFERINGS);
    for ((pool, capacity, kind), count) in counts {
        offerings.set(&[("pool", pool), ("capacity_type", capacity.as_str()), ("state", kind)], count);
    }
    offerings
}

fn stock_of(row: &OfferingRow, now: Timestamp) -> &'static str {
    match row.blocked_by.filter(|_| row.blocked_until > now) {
        None => "open",
        Some(LaunchError::Capacity) => "out-of-stock",
        Some(_) => "refused",
    }
}

/// Offerings by their positions in the policy's list.
fn offerings_of<'s>(state: &'s State, positions: &'s [u32]) -> impl Iterator<Item = OfferingId> + 's {
    positions.iter().filter_map(move |&at| state.listed.get(at as usize).copied())
}

/// How long nodes took to boot, of the last of each offering of a pool. A pool whose nodes have not booted yet is left out.
fn boots(state: &State) -> Family {
    let seen: BTreeMap<OfferingId, Vec<Span>> =
        state.observed.all_boots().map(|(offering, boots)| (offering, boots.collect())).collect();
    let mut family = Family::of(&catalogue::BOOT);
    for pool in state.policy().into_iter().flat_map(|policy| &policy.pools) {
        let of_pool = offerings_of(state, &pool.offerings).filter_map(|id| seen.get(&id));
        let mut boots: Vec<Span> = of_pool.flatten().copied().collect();
        boots.sort_unstable();
        for (percentile, permille) in BOOT_PERCENTILES {
            // The least that so many of them did not exceed.
            let at = (boots.len() * permille).div_ceil(1000).saturating_sub(1);
            if let Some(boot) = boots.get(at) {
                family.set(&[("pool", &pool.name), ("percentile", percentile)], boot.0 as f64 / 1000.0);
            }
        }
    }
    family
}

/// How long ago the runs of each queue that save have saved, of the one that has not for longest: of the queues that `shows`, the declared
/// ones before others as far as there are labels.
#[must_use]
pub fn checkpoint_ages(state: &State, shows: impl Fn(&str) -> bool) -> Family {
    let saves = state.alive_jobs().filter(|(job, spec)| {
        job.phase == Phase::Running && job.service.is_none() && spec.checkpoint.is_some() && shows(&spec.queue)
    });
    let mut oldest: BTreeMap<(bool, &str), Span> = BTreeMap::new();
    for (job, spec) in saves {
        let declared = state.policy().is_some_and(|policy| policy.queues.contains_key(&spec.queue));
        let age = oldest.entry((!declared, &spec.queue)).or_default();
        *age = state.now().since(job.saved_at).max(*age);
    }
    let mut labelled: BTreeMap<&str, Span> = BTreeMap::new();
    for (at, ((_, queue), more)) in oldest.into_iter().enumerate() {
        let age = labelled.entry(if at < MOST_VALUES { queue } else { OTHER }).or_default();
        *age = more.max(*age);
    }
    let family = Family::of(&catalogue::CHECKPOINT_AGE);
    labelled.into_iter().fold(family, |family, (queue, age)| family.with(&[("queue", queue)], age.0 as f64 / 1000.0))
}

/// What operators have stopped. Zeros too, so that an alert can wait for one.
fn brakes(state: &State) -> [Family; 2] {
    let mut on = BTreeMap::from(BRAKES.map(|kind| (kind, 0u64)));
    for (brake, _) in state.brakes() {
        *on.entry(brake.kind()).or_default() += 1;
    }
    let brakes = Family::of(&catalogue::BRAKES);
    let brakes = on.into_iter().fold(brakes, |family, (kind, count)| family.with(&[("kind", kind)], count));
    let held = state.index().held_back.len() as u64;
    [brakes, Family::of(&catalogue::JOBS_HELD_BACK).with(&[], held)]
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
    let mut jobs = Family::of(&catalogue::QUEUE_JOBS);
    let mut gpus_waiting = Family::of(&catalogue::QUEUE_GPUS_WAITING);
    let mut first = Family::of(&catalogue::QUEUE_HEAD_WAIT);
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
    let family = Family::of(&catalogue::JOBS_WAITING);
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
    let open = Family::of(&catalogue::JOBS);
    let open = counts.into_iter().fold(open, |family, (state, count)| family.with(&[("state", state)], count));
    let counters = state.counters();
    let over = Family::of(&catalogue::JOBS_OVER);
    let outcomes = OUTCOMES.into_iter().zip(counters.outcomes);
    let over = outcomes.fold(over, |family, (outcome, count)| family.with(&[("outcome", outcome)], count));
    let single = |metric, count| Family::of(metric).with(&[], count);
    vec![
        open,
        over,
        single(&catalogue::SUBMISSIONS_REFUSED, counters.refused),
        single(&catalogue::STATUSES, counters.statuses),
        single(&catalogue::EVENTS_IGNORED, counters.ignored_events),
        single(&catalogue::DECISIONS, counters.decisions),
    ]
}
