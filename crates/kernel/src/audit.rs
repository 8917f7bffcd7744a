//! What must always hold, checked from the rows alone: independent of the indices, totals and sums that the stages use.
//!
//! ```text
//! rows(batch)   after every pass: the rows that the batch touched, ceilings, ledger
//! full          every so often, at crashes and at the end: everything, and the index against a rebuilt one
//! ```
//!
//! Never: repairs. A finding is a bug; it is reported in words with the row's id.

use crate::catalog::CapacityType;
use crate::decision::{Decision, EffectOf};
use crate::effect::WorkerPlace;
use crate::ids::{JobId, NodeId, PoolId};
use crate::job::Gang;
use crate::journal::Batch;
use crate::policy::Ceiling;
use crate::state::brakes::Brake;
use crate::state::index::Index;
use crate::state::jobs::{Job, Phase};
use crate::state::nodes::{Node, NodePhase};
use crate::state::pending_cancels::{MOST_PENDING_CANCELS, PENDING_CANCEL_HORIZON};
use crate::state::quota::QuotaTree;
use crate::state::{Held, State};
use crate::units::{MilliGpu, Rate};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Everything.
#[must_use]
pub fn full(state: &State) -> Vec<String> {
    let mut found = Vec::new();
    for job in state.jobs.rows() {
        job_row(state, job, &mut found);
    }
    for node in state.nodes.values() {
        node_row(state, node, &mut found);
    }
    purchases(state, &mut found);
    totals(state, &mut found);
    ceilings(state, &mut found);
    quota(state, &mut found);
    fair(state, &mut found);
    costs(state, &mut found);
    ledger(state, &mut found);
    parts(state, &mut found);
    replicas_on_nodes(state, &mut found);
    counts(state, &mut found);
    services(state, &mut found);
    early(state, &mut found);
    reservations(state, &mut found);
    held(state, &mut found);
    stream(state, &mut found);
    brakes(state, &mut found);
    let rebuilt = Index::rebuilt(state);
    if rebuilt != state.index {
        found.push(format!("the index differs from a rebuilt one: {}", index_difference(&state.index, &rebuilt)));
    }
    found
}

/// The rows that a batch touched, and what is cheap to check of the rest.
#[must_use]
pub fn rows(state: &State, batch: &Batch) -> Vec<String> {
    let mut found = Vec::new();
    let (jobs, nodes) = touched(batch);
    for job in jobs.iter().filter_map(|id| state.jobs.get(*id)) {
        job_row(state, job, &mut found);
    }
    for node in nodes.iter().filter_map(|id| state.nodes.get(id)) {
        node_row(state, node, &mut found);
    }
    braked(state, batch, &mut found);
    ceilings(state, &mut found);
    ledger(state, &mut found);
    found
}

/// Nothing is decided that an operator has stopped. What was admitted before may be booked elsewhere.
fn braked(state: &State, batch: &Batch, found: &mut Vec<String>) {
    if state.brakes.is_empty() {
        return;
    }
    let mut rebooked = BTreeSet::new();
    for decision in &batch.decisions {
        let against = match decision {
            Decision::Buy { pool, .. } => state.brake(&Brake::Buying).is_some() || state.pool_brake(*pool).is_some(),
            Decision::Repeat { of: EffectOf::Purchase(_), .. } => state.brake(&Brake::Buying).is_some(),
            Decision::Unbook { job } => {
                rebooked.insert(*job);
                false
            }
            Decision::Book { job, .. } => {
                let held = |row: &Job| state.index.held_queues.contains(&row.queue);
                state.jobs.get(*job).is_some_and(held) && !rebooked.contains(job)
            }
            Decision::Stop { cause, .. } | Decision::Shrink { cause, .. } => {
                cause.is_for_another() && state.brake(&Brake::Preemption).is_some()
            }
            _ => false,
        };
        if against {
            found.push(format!("a brake is on, and yet: {decision:?}"));
        }
    }
}

/// No brake is past its end, and nodes take work as brakes say.
fn brakes(state: &State, found: &mut Vec<String>) {
    for (brake, order) in state.brakes() {
        if order.until.is_some_and(|until| until <= state.now) {
            found.push(format!("{brake:?} has ended and is in force"));
        }
    }
    for node in state.nodes.values().filter(|node| node.cordoned != state.is_cordoned(node.id, node.pool)) {
        found.push(format!("{} takes work against its brake, or none without one", node.id));
    }
}

fn touched(batch: &Batch) -> (BTreeSet<JobId>, BTreeSet<NodeId>) {
    let (mut jobs, mut nodes) = (BTreeSet::new(), BTreeSet::new());
    for decision in &batch.decisions {
        match decision {
            Decision::Reject { job, .. }
            | Decision::Resume { job }
            | Decision::Requeue { job, .. }
            | Decision::Finish { job, .. }
            | Decision::Unbook { job }
            | Decision::Unreserve { job }
            | Decision::Reassess { job, .. }
            | Decision::Start { job }
            | Decision::Stop { job, .. }
            | Decision::Defer { job, .. }
            | Decision::Due { job }
            | Decision::Late { job }
            | Decision::Shrink { job, .. }
            | Decision::Keep { job, .. }
            | Decision::Hold { job, .. }
            | Decision::WarnLingering { job, .. } => {
                jobs.insert(*job);
            }
            Decision::Book { job, places, .. } => {
                jobs.insert(*job);
                nodes.extend(places.iter().map(|p| p.node));
            }
            Decision::MakeReservation { reservation, .. } => {
                jobs.insert(reservation.job);
            }
            Decision::KeepAllowance { reservation, .. } => {
                jobs.insert(reservation.job);
            }
            Decision::Backfill { job, .. } => {
                jobs.insert(*job);
            }
            Decision::Reserve { job, nodes: kept, .. } => {
                jobs.insert(*job);
                nodes.extend(kept);
            }
            Decision::Release { node }
            | Decision::Drain { node, .. }
            | Decision::Undrain { node }
            | Decision::Suspect { node }
            | Decision::Terminate { node } => {
                nodes.insert(*node);
            }
            Decision::GiveUp { job } => {
                jobs.insert(*job);
            }
            Decision::Replicate { service } => {
                jobs.insert(*service);
            }
            Decision::EndReservation { .. }
            | Decision::ReleaseAllowance { .. }
            | Decision::Repeat { .. }
            | Decision::Buy { .. }
            | Decision::Judge { .. }
            | Decision::Consolidated { .. } => {}
        }
    }
    (jobs, nodes)
}

fn job_row(state: &State, job: &Job, found: &mut Vec<String>) {
    let id = job.id;
    let holds = matches!(job.phase, Phase::Booked | Phase::Starting | Phase::Running | Phase::Stopping { .. });
    if holds == job.places.is_empty() {
        found.push(format!("{id} is {:?} with {} places", job.phase, job.places.len()));
    }
    if holds != job.pool.is_some() {
        found.push(format!("{id} is {:?} but its quota is in {:?}", job.phase, job.pool));
    }
    let out = matches!(job.phase, Phase::Starting | Phase::Stopping { .. }) || job.leaving.is_some();
    if out != job.effect.is_some() {
        found.push(format!("{id} is {:?} and its effect is {:?}", job.phase, job.effect));
    }
    for place in &job.places {
        match state.nodes.get(&place.node) {
            None => found.push(format!("{id} has a place on {}, which is gone", place.node)),
            // A run that has hung is ended with its node: that is the proof of its death.
            Some(node) if node.phase == NodePhase::Terminating && !job.hung => {
                found.push(format!("{id} has a place on {}, which is being terminated", place.node));
            }
            Some(node) if job.phase != Phase::Booked && node.phase == NodePhase::Requested => {
                found.push(format!("{id} runs on {}, which does not exist yet", place.node));
            }
            Some(_) => {}
        }
    }
    if job.alive() && job.numbers.len() != job.places.len() {
        found.push(format!("{id} has places {:?} for the workers {:?}", job.places, job.numbers));
    }
    if job.leaving.is_some() && job.phase != Phase::Running {
        found.push(format!("{id} is {:?} and workers are to leave it: {:?}", job.phase, job.leaving));
    }
    let whole = matches!(job.phase, Phase::Booked | Phase::Starting | Phase::Running) && job.broken.is_none();
    if whole && !gang_whole(state, job) {
        found.push(format!("{id} is {:?} with a part of its gang: {:?}", job.phase, job.places));
    }
}

fn gang_whole(state: &State, job: &Job) -> bool {
    match &state.specs[job.id].gang {
        Gang::Workers { min, max, .. } => (*min as usize..=*max as usize).contains(&job.places.len()),
        Gang::Spanning { gpus, .. } => job.places.iter().map(|p| p.gpus.count_ones()).sum::<u32>() == *gpus,
    }
}

fn node_row(state: &State, node: &Node, found: &mut Vec<String>) {
    let id = node.id;
    let offer = &state.offerings[node.offering.index()].offer;
    let (mut booked, mut allocated) = (MilliGpu(0), MilliGpu(0));
    let all = node.partition.as_ref().map_or(0, |p| p.all_free());
    let mut taken: Vec<(u64, u16, u8)> = alloc::vec![(0, 0, all); node.slots.len()];
    let (mut workers, mut cpu, mut mem) = (0, 0, 0);
    let mut holders: Vec<JobId> = node.holds.clone();
    holders.sort_unstable();
    holders.dedup();
    for holder in holders {
        let job = &state.jobs[holder];
        for place in job.places.iter().filter(|p| p.node == id) {
            workers += 1;
            let share = place.gpu_share();
            let held = if job.phase == Phase::Booked { &mut booked } else { &mut allocated };
            *held = *held + share;
            let needs = crate::state::places::WorkerNeeds::of(&state.specs[holder].gang, place);
            cpu += needs.cpu.0;
            mem += needs.mem.0;
            slice_row(node, holder, place, found);
            for (_, slot) in taken.iter_mut().enumerate().filter(|(at, _)| place.gpus & (1 << at) != 0) {
                slot.0 += u64::from(place.share);
                slot.1 += 1;
                let slice = place.slice.map_or(0, |at| 1u8.checked_shl(u32::from(at)).unwrap_or(0));
                if slot.2 & slice != slice {
                    found.push(format!("{id}: a slice is given out twice, once to {holder} at {place:?}"));
                }
                slot.2 &= !slice;
            }
        }
    }
    if workers != node.holds.len() {
        found.push(format!("{id} holds {} workers, the jobs say {workers}", node.holds.len()));
    }
    if (booked, allocated) != (node.booked, node.allocated) {
        found.push(format!("{id} counts {:?}, the jobs say {:?}", (node.booked, node.allocated), (booked, allocated)));
    }
    for (at, (slot, (share, count, slices))) in node.slots.iter().zip(&taken).enumerate() {
        if u64::from(slot.free) + share != 1000 || slot.workers != *count || slot.slices != *slices {
            found.push(format!("{id} GPU {at} has {slot:?}, the jobs take {share} in {count} workers"));
        }
    }
    if node.cpu_free.0 + cpu != offer.cpu.0 || node.mem_free.0 + mem != offer.mem.0 {
        found.push(format!("{id} has {:?} and {:?} free, the jobs take {cpu} and {mem}", node.cpu_free, node.mem_free));
    }
    owned_row(node, offer.capacity, found);
    let reserve = state.offerings[node.offering.index()].reserve;
    if node.reserve != reserve {
        found.push(format!("{id} keeps {:?} from work, its type {reserve:?}", node.reserve));
    }
    if (node.phase == NodePhase::Terminating) != node.effect.is_some() {
        found.push(format!("{id} is {:?} and its effect is {:?}", node.phase, node.effect));
    }
    let idle = node.phase == NodePhase::Ready && node.holds.is_empty() && node.owned.is_none();
    if idle != node.idle_since.is_some() && !matches!(node.phase, NodePhase::Draining { .. }) {
        found.push(format!("{id} is {:?}, holds {}, idle since {:?}", node.phase, node.holds.len(), node.idle_since));
    }
}

/// An owned node is ready as long as it is here: nobody bought it, and nobody gives it back.
fn owned_row(node: &Node, capacity: CapacityType, found: &mut Vec<String>) {
    let id = node.id;
    if node.owned.is_some() != (capacity == CapacityType::Owned) {
        found.push(format!("{id} is {capacity}, and is owned: {:?}", node.owned));
    }
    if node.owned.is_some() && (node.phase != NodePhase::Ready || node.partition.is_some()) {
        found.push(format!("{id} is owned and {:?}, partitioned: {}", node.phase, node.partition.is_some()));
    }
    let foreign = node.owned.as_ref().map_or(0, |owned| usize::from(owned.foreign.gpus));
    let free = node.slots.iter().filter(|slot| slot.workers == 0).count().saturating_sub(foreign);
    if node.owned.is_some() && (usize::from(node.whole_free()), node.whole_mask().count_ones() as usize) != (free, free)
    {
        found.push(format!("{id} has {} whole GPUs free, others leave {free}", node.whole_free()));
    }
}

/// On a partitioned node a worker with a GPU holds one slice, whole; on any other none.
fn slice_row(node: &Node, holder: JobId, place: &WorkerPlace, found: &mut Vec<String>) {
    let cuts = node.partition.as_ref().map(|p| &p.slices);
    let right = match (cuts, place.slice) {
        (Some(cuts), Some(at)) => {
            let cut = cuts.get(usize::from(at));
            place.gpus.count_ones() == 1 && cut.is_some_and(|cut| cut.held == place.share)
        }
        (Some(_), None) => place.gpus == 0,
        (None, at) => at.is_none(),
    };
    if !right {
        found.push(format!("{}: {holder} has {place:?} of {:?}", node.id, node.partition));
    }
}

fn purchases(state: &State, found: &mut Vec<String>) {
    let mut waiting: BTreeSet<NodeId> = BTreeSet::new();
    let mut in_flight: BTreeMap<crate::ids::OfferingId, u32> = BTreeMap::new();
    for purchase in state.purchases.values() {
        waiting.extend(&purchase.nodes);
        *in_flight.entry(purchase.offering).or_default() += purchase.nodes.len() as u32;
    }
    for node in state.nodes.values() {
        if (node.phase == NodePhase::Requested) != waiting.contains(&node.id) {
            found.push(format!("{} is {:?}, open purchases say otherwise", node.id, node.phase));
        }
    }
    for (at, row) in state.offerings.iter().enumerate() {
        let id = crate::ids::OfferingId(at as u32);
        if row.in_flight != in_flight.get(&id).copied().unwrap_or_default() {
            found.push(format!("{id} counts {} in flight", row.in_flight));
        }
    }
}

fn recount(state: &State) -> (Held, BTreeMap<PoolId, Held>) {
    let mut all = Held::default();
    let mut pools: BTreeMap<PoolId, Held> = BTreeMap::new();
    for node in state.nodes.values().filter(|node| node.owned.is_none()) {
        let offer = &state.offerings[node.offering.index()].offer;
        for held in [&mut all, pools.entry(node.pool).or_default()] {
            held.nodes += 1;
            held.on_demand_nodes += u32::from(offer.capacity == CapacityType::OnDemand);
            held.gpus += u32::from(offer.gpus);
            held.spend = held.spend + node.booked_price;
        }
    }
    (all, pools)
}

fn totals(state: &State, found: &mut Vec<String>) {
    let (all, pools) = recount(state);
    if all != state.totals.all {
        found.push(format!("totals are {:?}, the claims say {all:?}", state.totals.all));
    }
    for (at, held) in state.totals.pools.iter().enumerate() {
        let says = pools.get(&PoolId(at as u16)).copied().unwrap_or_default();
        if says != *held {
            found.push(format!("pool {at} counts {held:?}, the claims say {says:?}"));
        }
    }
}

/// Jobs are held where the policy has made their class impossible, and nowhere else.
fn held(state: &State, found: &mut Vec<String>) {
    if state.unjudged {
        return;
    }
    for job in state.jobs.rows().filter(|job| job.service.is_none() && !job.cancel_asked) {
        let waits = matches!(job.phase, Phase::Queued | Phase::Booked | Phase::BackingOff { .. });
        let impossible = state.classes[job.class].impossible;
        if (job.phase == Phase::Held && impossible != job.reason) || (waits && impossible.is_some()) {
            found.push(format!("{} is {:?} for {:?}, its class has {impossible:?}", job.id, job.phase, job.reason));
        }
    }
}

/// Above a ceiling: a violation unless the policy changed under what was bought before, or nobody bought it.
fn ceilings(state: &State, found: &mut Vec<String>) {
    let Some(policy) = state.policy.as_deref() else {
        return;
    };
    if state.counters.configured > 1 || state.counters.orphans > 0 {
        return;
    }
    above("limits", &policy.limits, &state.totals.all, found);
    for (pool, held) in policy.pools.iter().zip(&state.totals.pools) {
        above(&pool.name, &pool.ceiling, held, found);
    }
}

fn above(name: &str, ceiling: &Ceiling, held: &Held, found: &mut Vec<String>) {
    let over = |most: Option<u32>, held: u32| most.is_some_and(|m| held > m);
    let spend = ceiling.spend.unwrap_or(Rate(u64::MAX));
    if over(ceiling.nodes, held.nodes)
        || over(ceiling.on_demand_nodes, held.on_demand_nodes)
        || over(ceiling.gpus, held.gpus)
        || held.spend > spend
    {
        found.push(format!("{name}: {held:?} is above {ceiling:?}"));
    }
}

fn quota(state: &State, found: &mut Vec<String>) {
    let Some(policy) = state.policy.as_deref() else {
        return;
    };
    let mut tree = QuotaTree::new(policy);
    for job in state.jobs.rows() {
        let rule = state.queues[job.queue].rule.as_ref();
        if let (Some(pool), Some(rule)) = (job.pool, rule) {
            tree.take(rule.quota, pool, job.share);
        }
    }
    if tree != state.quota {
        found.push(String::from("quota in use differs from what the jobs hold"));
    }
    if state.counters.configured <= 1 {
        for (quota, pool, over) in state.quota.above_bounds() {
            found.push(format!("{quota} in {pool} uses {over} GPUs more than it may"));
        }
    }
}

/// What each subtree is said to hold, against its jobs.
fn fair(state: &State, found: &mut Vec<String>) {
    let quotas = state.policy.as_deref().map_or(0, |p| p.quotas.len());
    let mut held = alloc::vec![MilliGpu(0); quotas];
    for job in state.jobs.rows().filter(|j| j.pool.is_some()) {
        let rule = state.queues[job.queue].rule.as_ref();
        for quota in rule.into_iter().flat_map(|r| state.lineage(r.quota)) {
            if let Some(held) = held.get_mut(quota.index()) {
                *held = *held + job.share;
            }
        }
    }
    for (at, held) in held.into_iter().enumerate() {
        let id = crate::ids::QuotaId(at as u16);
        let says = state.fair.counted(id);
        if says.held != held || says.counted_to > state.now {
            found.push(format!("{id} counts {says:?}, its jobs hold {held}"));
        }
    }
}

/// What runs cost, against their places, and what budgets count, against their runs.
fn costs(state: &State, found: &mut Vec<String>) {
    for job in state.jobs.rows() {
        let rate = state.cost_of(job.class, &job.places);
        if rate != job.rate {
            found.push(format!("{} costs {}, its places {rate}", job.id, job.rate));
        }
    }
    for (quota, account) in state.budgets.accounts() {
        let (mut started, mut booked) = (Rate(0), Rate(0));
        for job in state.jobs.rows() {
            let rule = state.queues[job.queue].rule.as_ref();
            if rule.is_some_and(|r| state.lineage(r.quota).any(|at| at == quota)) {
                let rate = if job.phase == Phase::Booked { &mut booked } else { &mut started };
                *rate = *rate + job.rate;
            }
        }
        if (started, booked) != (account.started, account.booked) {
            found.push(format!("{quota} counts {account:?}, its jobs cost {started} and {booked} booked"));
        }
        if account.since > state.now {
            found.push(format!("{quota} is counted up to {:?}, ahead of time", account.since));
        }
    }
}

fn ledger(state: &State, found: &mut Vec<String>) {
    for (at, account) in state.ledger.accounts().enumerate() {
        if account.sum_of_kinds() != account.bought {
            let (kinds, bought) = (account.sum_of_kinds(), account.bought);
            found.push(format!("ledger account {at}: kinds add up to {kinds:?}, bought is {bought:?}"));
        }
    }
}

/// Replicas of each service on a node: what it holds says.
fn replicas_on_nodes(state: &State, found: &mut Vec<String>) {
    for node in state.nodes.values() {
        let counted = state.replicas_counted(node);
        if node.replicas != counted {
            found.push(format!("{} has replicas {:?}, it holds {counted:?}", node.id, node.replicas));
        }
    }
}

/// Who is charged for a node: what the rows of the jobs say.
fn parts(state: &State, found: &mut Vec<String>) {
    for (id, parts) in state.parts_of_nodes() {
        if state.nodes.get(&id).is_some_and(|node| node.parts != parts) {
            found.push(format!("{id} is held by {:?}, the jobs say {parts:?}", state.nodes[&id].parts));
        }
    }
    let over = |job: JobId| state.jobs.get(job).is_none_or(|job| !job.alive());
    for work in state.billing.iter().flat_map(|billing| billing.unsaved.keys()).filter(|work| over(work.job)) {
        found.push(format!("{} is over, and work of it may still be lost: {work:?}", work.job));
    }
}

fn counts(state: &State, found: &mut Vec<String>) {
    let count = |replicas: bool, over: bool| {
        let is = |j: &&Job| j.service.is_some() == replicas && (j.done() || !over);
        state.jobs.rows().filter(is).count() as u64
    };
    let (all, done) = (count(false, false), count(false, true));
    let outcomes: u64 = state.counters.outcomes.iter().sum();
    let open = state.open_jobs() as u64;
    let retired = state.counters.retired;
    if done + retired != outcomes || done + open != all {
        found.push(format!("{all} jobs: {done} are over, {retired} have left, {outcomes} outcomes, {open} open"));
    }
    let (made, over) = (count(true, false), count(true, true));
    let left = state.counters.replicas_retired;
    if (made + left, over + left) != (state.counters.replicas, state.counters.replicas_over) {
        let counters = (state.counters.replicas, state.counters.replicas_over);
        found.push(format!("{made} replicas, {over} are over, {left} have left; {counters:?} are counted"));
    }
    let ever = state.jobs.next_id().0;
    if ever != all + made + retired + left {
        found.push(format!(
            "{ever} rows were made; {all} jobs and {made} replicas are there, {retired} and {left} have left"
        ));
    }
}

/// A service has a row in its table while it is not over, and counts its own replicas.
fn services(state: &State, found: &mut Vec<String>) {
    for (job, spec) in state.jobs() {
        let row = state.services.get(&job.id);
        if (spec.service.is_some() && !job.done()) != row.is_some() {
            found.push(format!("{} is {:?}, its service is {row:?}", job.id, job.phase));
        }
        if job.service.is_some_and(|of| !job.done() && !state.services.contains_key(&of)) {
            found.push(format!("{} is {:?}, its service is over", job.id, job.phase));
        }
    }
    for (id, row) in &state.services {
        let loaded = state.replicas(*id).filter(|r| state.jobs[*r].running_since.is_some()).count();
        if loaded != row.loaded as usize {
            found.push(format!("{id} counts {} loaded replicas, their rows say {loaded}", row.loaded));
        }
        if !row.needs.windows(2).all(|w| w[0].replicas > w[1].replicas && w[0].last <= w[1].last) {
            found.push(format!("{id} has needs out of order: {:?}", row.needs));
        }
    }
}

/// Cancels are kept within their bounds, and one without a time only while nothing is known of its identity.
fn early(state: &State, found: &mut Vec<String>) {
    if state.pending_cancels.len() > MOST_PENDING_CANCELS {
        found.push(format!("{} cancels are kept, more than {MOST_PENDING_CANCELS}", state.pending_cancels.len()));
    }
    for (key, row) in &state.pending_cancels {
        if state.now.since(row.seen) > PENDING_CANCEL_HORIZON {
            found.push(format!("a cancel of {} is kept past its horizon: {row:?}", key.subject));
        }
        if key.timed != row.sent.is_some() || (!key.timed && state.job_of(&key.tenant, &key.subject).is_some()) {
            found.push(format!("a cancel of {} is kept for nothing: {key:?} {row:?}", key.subject));
        }
    }
}

/// A reservation belongs to one job, which waits, for room or for the answer to a launch; an allowance as well.
fn reservations(state: &State, found: &mut Vec<String>) {
    let asked =
        |place: &WorkerPlace| state.nodes.get(&place.node).is_some_and(|node| node.phase == NodePhase::Requested);
    let waits = |row: &Job| row.phase == Phase::Queued || (row.phase == Phase::Booked && row.places.iter().any(asked));
    let mut holders = BTreeSet::new();
    for (pool, reservation) in &state.reservations {
        let row = &state.jobs[reservation.job];
        if !waits(row) || !holders.insert(reservation.job) {
            found.push(format!("{pool} is kept for {}, which is {:?} or has another", reservation.job, row.phase));
        }
    }
    for (of, kept) in &state.allowances {
        let row = &state.jobs[kept.job];
        if !waits(row) || row.kept.is_some() {
            found.push(format!("{of:?} is kept for {}, which is {:?} or is kept more", kept.job, row.phase));
        }
    }
}

fn stream(state: &State, found: &mut Vec<String>) {
    let mut expected = state.counters.statuses;
    for status in state.stream.iter().rev() {
        if status.number != expected {
            found.push(format!("status {} stands where {expected} should", status.number));
            return;
        }
        expected = expected.saturating_sub(1);
    }
}

/// Which lookup differs, in one word.
fn index_difference(kept: &Index, rebuilt: &Index) -> &'static str {
    let differs = [
        (kept.queued != rebuilt.queued, "queued"),
        (kept.positions != rebuilt.positions, "positions"),
        (kept.progress != rebuilt.progress, "progress"),
        (kept.lines != rebuilt.lines, "lines"),
        (kept.booked != rebuilt.booked, "booked"),
        (kept.unsettled != rebuilt.unsettled, "unsettled"),
        (kept.unsettled_nodes != rebuilt.unsettled_nodes, "unsettled_nodes"),
        (kept.running != rebuilt.running, "running"),
        (kept.free != rebuilt.free, "free"),
        (kept.idle != rebuilt.idle, "idle"),
        (kept.left != rebuilt.left, "left"),
        (kept.unbooked != rebuilt.unbooked, "unbooked"),
        (kept.draining != rebuilt.draining, "draining"),
        (kept.timers != rebuilt.timers, "timers"),
        (kept.reassess != rebuilt.reassess, "hasten"),
        (kept.by_instance != rebuilt.by_instance, "by_instance"),
        (kept.pending_cancels != rebuilt.pending_cancels, "early"),
        (kept.by_identity != rebuilt.by_identity, "by_identity"),
        (kept.open_jobs != rebuilt.open_jobs, "open_jobs"),
        (kept.holding != rebuilt.holding, "holding"),
        (kept.run_ends != rebuilt.run_ends, "run_ends"),
        (kept.ageing != rebuilt.ageing, "ageing"),
        (kept.replicas != rebuilt.replicas, "replicas"),
        (kept.protection_ends != rebuilt.protection_ends, "guards"),
        (kept.running_in != rebuilt.running_in, "running_in"),
        (kept.ending != rebuilt.ending, "ending"),
        (kept.kept != rebuilt.kept, "kept"),
        (kept.held != rebuilt.held, "held"),
        (kept.held_queues != rebuilt.held_queues, "held_queues"),
        (kept.held_back != rebuilt.held_back, "held_back"),
        (kept.in_use != rebuilt.in_use, "in_use"),
    ];
    differs.iter().find(|d| d.0).map_or("nothing", |d| d.1)
}
