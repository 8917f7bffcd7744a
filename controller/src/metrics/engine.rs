//! What the engine's state says: nodes, GPUs and money by pool and capacity type, stock, jobs. One look at a state between two batches.
//!
//! Never: a look at every job. Those that hold places are as few as GPUs; those that wait, maybe a million, are counted already.

use super::family::Family;
use crate::document::write::{dollars, gpus};
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::event::LaunchError;
use forebay_kernel::ids::PoolId;
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
