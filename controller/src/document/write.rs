//! From an engine to views: what is shown of what it knows.
//!
//! Never: keeps anything, or changes the engine.

use super::lacks::Holders;
use super::reason::{reason_view, reason_with_holders};
use crate::show::figures::short;
use forebay_engine::engine::Engine;
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::decision::Outcome;
use forebay_kernel::ids::{JobId, PoolId, QueueId, QuotaId};
use forebay_kernel::job::{Gang, JobSpec, Service, WorkerAsk};
use forebay_kernel::policy::{Policy, QueueRule, Undeclared};
use forebay_kernel::reason::Reason;
use forebay_kernel::state::brakes::{Brake, BrakeOrder};
use forebay_kernel::state::jobs::Job;
use forebay_kernel::state::nodes::{Node, NodePhase, OfferingRow};
use forebay_kernel::state::quota::QuotaTree;
use forebay_kernel::state::retire::FinishedJob;
use forebay_kernel::state::{Class, State};
use forebay_kernel::units::{MilliGpu, Rate, Span};
use forebay_wire::document::seconds::Seconds;
use forebay_wire::document::views::{
    BrakeView, JobPhase, JobView, NodePhaseView, NodeView, OfferingView, OwnedNodeView, QueueView, QuotaView,
    ServiceView, Summary,
};
use forebay_wire::document::within::WithinView;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// A million GPUs: from there on a quota bounds nobody.
const NO_BOUND_MILLI: u64 = 1_000_000_000;

/// Thousandths of a GPU as GPUs.
#[must_use]
pub fn gpus(milli: u64) -> f64 {
    milli as f64 / 1000.0
}

/// Micro-dollars as dollars.
#[must_use]
pub fn dollars(micro: u64) -> f64 {
    micro as f64 / 1e6
}

fn price(rate: Rate) -> f64 {
    dollars(rate.0)
}

/// A job by its id.
#[must_use]
pub fn job(engine: &Engine, id: JobId) -> Option<JobView> {
    let (row, spec) = engine.state().job(id)?;
    Some(job_view(engine, row, spec))
}

/// A job by its id, with who holds what it lacks: for those who may see everybody's queues.
#[must_use]
pub fn job_with_holders(engine: &Engine, id: JobId) -> Option<JobView> {
    let view = job(engine, id)?;
    let reason = reason_of(engine, engine.state().job(id)?.0);
    let reason = reason.map(|reason| reason_with_holders(reason, engine.state(), id, &mut Holders::default()));
    Some(JobView { reason, ..view })
}

/// Why a job waits, was stopped or is over.
fn reason_of(engine: &Engine, job: &Job) -> Option<Reason> {
    let completed = JobPhase::from(&job.phase) == JobPhase::Completed;
    if completed { None } else { engine.why(job.id).or(job.reason) }
}

/// A job from its row. Jobs that wait or are over carry their reason.
#[must_use]
pub fn job_view(engine: &Engine, job: &Job, spec: &JobSpec) -> JobView {
    let state = engine.state();
    let phase = JobPhase::from(&job.phase);
    let above_zero = |n: u64| (n > 0).then_some(n);
    let (each, total, workers, workers_max) = shape(&spec.gang);
    let nodes: BTreeSet<_> = job.places.iter().map(|p| p.node).collect();
    // A job that was refused for its queue has no tier but one that it asks for.
    let has_tier = spec.tier.is_some()
        || phase != JobPhase::Rejected
        || state.queues().get(job.queue).is_some_and(|queue| queue.rule.is_some());
    let tier = state.policy().filter(|_| has_tier).and_then(|p| p.tiers.get(job.tier.index())).map(|t| t.name.clone());
    let reason = reason_of(engine, job);
    JobView {
        job: job.id.to_string(),
        subject: Some(spec.subject.clone()),
        tenant: Some(spec.tenant.clone()),
        queue: spec.queue.clone(),
        tier,
        priority: job.priority,
        phase,
        gpus: total,
        workers,
        workers_max,
        gpu_milli: (each.share > 0 && each.share < 1000).then_some(each.share),
        gpu_mem_mib: above_zero(each.gpu_mem.0),
        cpu_milli: above_zero(each.cpu.0),
        mem_mib: above_zero(each.mem.0),
        models: spec.models.clone(),
        within: spec.within.map(WithinView),
        batch_key: spec.batch.clone(),
        spot: (!spec.spot).then_some(false),
        shares: Some(spec.shares),
        checkpoint_every_s: spec.checkpoint.map(|c| c.every.into()),
        restart_s: (spec.restart.0 > 0).then(|| spec.restart.into()),
        expected_s: spec.expected.map(Seconds::from),
        deadline_s: spec.deadline.map(Seconds::from),
        submit_s: Some(job.arrival.into()),
        since_s: Some(job.since.into()),
        nodes: nodes.iter().map(ToString::to_string).collect(),
        pool: job.pool.and_then(|p| pool_name(state.policy(), p)),
        attempt: Some(job.attempt.0),
        failures: Some(job.failures),
        interruptions: Some(job.interruptions),
        progress_s: Some(job.progress.into()),
        first_start_s: job.first_start.map(Seconds::from),
        ended_s: job.ended.map(Seconds::from),
        reason: reason.map(|r| reason_view(r, state, Some(job.id))),
        service: spec.service.map(|rule| service_view(state, job.id, rule)),
        of: job.service.map(|service| service.to_string()),
        grace_s: None,
        max_run_s: None,
        retry: None,
        completion: None,
        workers_now: None,
        places: Vec::new(),
        stop: None,
        labels: spec.labels.clone(),
        memory: None,
    }
}

/// A job that has left the state: its tier is the one that it had, whatever the policy in force calls so.
#[must_use]
pub fn finished_view(engine: &Engine, finished: &FinishedJob) -> JobView {
    let tier = Some(finished.tier.clone()).filter(|tier| !tier.is_empty());
    JobView { tier, ..job_view(engine, &finished.job, &finished.spec) }
}

fn service_view(state: &State, id: JobId, rule: Service) -> ServiceView {
    let row = state.service(id);
    ServiceView {
        min: rule.min,
        max: rule.max,
        target: rule.target,
        spread: rule.spread.map(|level| level.as_str().to_owned()),
        demand: row.map_or(0, |r| r.demand),
        replicas: row.map(|_| state.replicas(id).count() as u32),
        loaded: row.map(|r| r.loaded),
        memory: None,
    }
}

/// What one worker asks, all GPUs, workers at least and at most (where that is more).
fn shape(gang: &Gang) -> (&WorkerAsk, u32, Option<u32>, Option<u32>) {
    match gang {
        Gang::Workers { min, max, each } => {
            let total = u32::from(each.gpus).saturating_mul(*min);
            (each, total, Some(*min), (max > min).then_some(*max))
        }
        Gang::Spanning { gpus, per_gpu } => (per_gpu, *gpus, None, None),
    }
}

/// The name of a pool of the policy in force.
#[must_use]
pub fn pool_name(policy: Option<&Policy>, id: PoolId) -> Option<String> {
    policy?.pools.get(id.index()).map(|p| p.name.clone())
}

/// A node from its row.
#[must_use]
pub fn node_view(state: &State, node: &Node) -> NodeView {
    let offer = &state.offerings()[node.offering.index()].offer;
    let phase = match node.phase {
        NodePhase::Requested => NodePhaseView::Requested,
        NodePhase::Booting => NodePhaseView::Booting,
        NodePhase::Ready => NodePhaseView::Ready,
        NodePhase::Draining { .. } => NodePhaseView::Draining,
        NodePhase::Terminating => NodePhaseView::Terminating,
    };
    let jobs: BTreeSet<JobId> = node.holds.iter().copied().collect();
    let free = node.free_share() - u64::from(node.foreign_gpus()) * 1000;
    NodeView {
        node: node.id.to_string(),
        instance_type: offer.instance_type.clone(),
        zone: offer.zone.clone(),
        capacity_type: offer.capacity.into(),
        phase,
        pool: pool_name(state.policy(), node.pool),
        since_s: Some(node.idle_since.unwrap_or(node.since).into()),
        instance: node.instance.clone(),
        gpus: Some(u32::from(offer.gpus)),
        gpus_free: Some(gpus(free)),
        jobs: Some(jobs.iter().map(ToString::to_string).collect()),
        price_usd_per_hour: Some(price(node.price)),
        reclaim_s: node.reclaim_at.map(Seconds::from),
        reserved_for: node.reserved.first().map(|(job, _)| job.to_string()),
        layout: None,
        rack: None,
        owned: owned_view(state, node),
        drained: drained_view(state, node),
        memory: None,
    }
}

/// What operators have stopped for a time.
#[must_use]
pub fn brakes(state: &State) -> Vec<BrakeView> {
    state.brakes().map(|(brake, order)| brake_view(brake, order)).collect()
}

/// A brake, and who has set it.
#[must_use]
pub fn brake_view(brake: &Brake, order: &BrakeOrder) -> BrakeView {
    BrakeView {
        brake: brake.kind().to_owned(),
        target: brake.target(),
        by: order.by.clone(),
        why: order.why.clone(),
        since_s: order.since.into(),
        until_s: order.until.map(Seconds::from),
    }
}

/// Who drains a node: itself before its pool.
fn drained_view(state: &State, node: &Node) -> Option<BrakeView> {
    let own = Brake::Node(node.id);
    let of_node = state.brake(&own).map(|order| brake_view(&own, order));
    of_node.or_else(|| state.pool_brake(node.pool).map(|(brake, order)| brake_view(brake, order)))
}

/// What is said of an owned node beside what is said of others.
fn owned_view(state: &State, node: &Node) -> Option<OwnedNodeView> {
    let (owned, offer) = (node.owned.as_ref()?, &state.offerings()[node.offering.index()].offer);
    Some(OwnedNodeView {
        models: offer.models.clone(),
        gpu_memory_mib: offer.gpu_mem.0,
        cpu_milli: offer.cpu.0,
        memory_mib: offer.mem.0,
        nvlink: offer.nvlink,
        open: owned.open && !owned.leaves,
        foreign_gpus: owned.foreign.gpus,
        foreign_cpu_milli: owned.foreign.cpu.0,
        foreign_memory_mib: owned.foreign.mem.0,
        foreign: owned.foreign.by.clone(),
    })
}

/// All offerings.
#[must_use]
pub fn offerings(state: &State) -> Vec<OfferingView> {
    state.offerings().iter().map(|row| offering_view(state, row)).collect()
}

fn offering_view(state: &State, row: &OfferingRow) -> OfferingView {
    let blocked = (row.blocked_until > state.now()).then_some(row.blocked_until);
    OfferingView {
        instance_type: row.offer.instance_type.clone(),
        zone: row.offer.zone.clone(),
        capacity_type: row.offer.capacity.into(),
        gpus: u32::from(row.offer.gpus),
        price_usd_per_hour: price(row.offer.price),
        on_demand_usd_per_hour: price(row.offer.on_demand),
        listed: row.listed,
        blocked_until_s: blocked.map(Seconds::from),
        memory: None,
    }
}

/// Counts of a queue's jobs.
#[derive(Clone, Copy, Debug, Default)]
pub struct QueueCounts {
    /// Those without a worker.
    pub waiting: u64,
    /// Those with one.
    pub running: u64,
    /// Those that are over, and not out of the state.
    pub over: u64,
    /// Thousandths of GPUs that those that wait ask for, replicas of services with them.
    pub milli_waiting: u64,
    /// How long the first of those in a class that wait has waited, of all classes the longest.
    pub head_wait: Span,
    /// Which that is. `None`: nobody waits.
    pub head: Option<JobId>,
}

/// Counts by queue, of those that jobs have named.
#[must_use]
pub fn queue_counts(state: &State) -> BTreeMap<QueueId, QueueCounts> {
    let mut counts: BTreeMap<QueueId, QueueCounts> = BTreeMap::new();
    // By class: a million jobs have a few of them.
    for (id, progress) in &state.index().progress {
        let Some(Class { shape, .. }) = state.classes.get(*id) else { continue };
        let count = counts.entry(shape.queue).or_default();
        count.milli_waiting += u64::from(progress.waiting) * shape.gang.gpu_share().0;
        // A replica is no job of its own: its service is one. What it waits for counts all the same.
        if shape.service.is_none() {
            count.waiting += u64::from(progress.waiting);
            count.running += u64::from(progress.running);
            count.over += u64::from(progress.over);
        }
        let Some((head, _)) = state.index().first_queued(*id).and_then(|key| state.job(key.job)) else { continue };
        // A job that has run before waits since it came back.
        let from = if head.first_start.is_none() { head.arrival } else { head.since };
        let wait = state.now().since(from);
        if count.head.is_none() || wait > count.head_wait {
            (count.head_wait, count.head) = (wait, Some(head.id));
        }
    }
    counts
}

/// All queues: those that the policy names, and those that jobs named.
#[must_use]
pub fn queues(state: &State) -> Vec<QueueView> {
    counted_queues(state, &queue_counts(state))
}

/// The same, by counts that are known already.
#[must_use]
pub fn counted_queues(state: &State, counts: &BTreeMap<QueueId, QueueCounts>) -> Vec<QueueView> {
    let mut views: BTreeMap<&str, QueueView> = BTreeMap::new();
    for (path, rule) in state.policy().iter().flat_map(|p| &p.queues) {
        views.insert(path, queue_view(state, path, true, Some(rule), QueueCounts::default()));
    }
    for (id, queue) in state.queues().iter() {
        // Every job of a name without a rule was refused, unless it had one under an earlier policy and is not over.
        let has_open = |count: &QueueCounts| count.waiting + count.running > 0;
        if queue.rule.is_none() && !counts.get(&id).is_some_and(has_open) {
            continue;
        }
        let declared = state.policy().is_some_and(|p| p.queues.contains_key(&queue.path));
        let view =
            queue_view(state, &queue.path, declared, queue.rule.as_ref(), counts.get(&id).copied().unwrap_or_default());
        views.insert(&queue.path, view);
    }
    views.into_values().collect()
}

fn queue_view(state: &State, path: &str, declared: bool, rule: Option<&QueueRule>, count: QueueCounts) -> QueueView {
    let policy = state.policy();
    let tier = rule.and_then(|r| policy?.tiers.get(r.tier.index())).map(|t| t.name.clone());
    let quota = rule.iter().flat_map(|r| r.pools.iter().map(|&pool| quota_view(state, r, pool))).collect();
    QueueView {
        queue: path.to_owned(),
        declared,
        tier,
        waiting: count.waiting,
        running: count.running,
        over: count.over,
        gpus_waiting: gpus(count.milli_waiting),
        held: state.queue_brake_of(path).map(|(brake, order)| brake_view(brake, order)),
        quota,
    }
}

fn quota_view(state: &State, rule: &QueueRule, pool: PoolId) -> QuotaView {
    let (tree, quota) = (state.quota(), rule.quota);
    let available = tree.available(quota, pool);
    let own = tree.subtree(quota, pool);
    let idle = own.map_or(MilliGpu(0), |own| own - tree.usage(quota, pool));
    QuotaView {
        pool: pool_name(state.policy(), pool).unwrap_or_else(|| pool.to_string()),
        gpus: promised(state, quota, pool).map(|promised| gpus(promised.0)),
        used: gpus(used_below(tree, quota, pool).0),
        borrowed: gpus(own.map_or(MilliGpu(0), |_| tree.borrowed(quota, pool)).0),
        lent: gpus((idle - available).0),
        available: (available.0 < NO_BOUND_MILLI).then(|| gpus(available.0)),
    }
}

/// What the policy promises a node of the quota tree: its own and that of all below it, as it was written.
fn promised(state: &State, quota: QuotaId, pool: PoolId) -> Option<MilliGpu> {
    let limit = state.policy()?.quotas.get(quota.index())?.limits.get(&pool).map(|limit| limit.nominal);
    let below = state.quota().children(quota).filter_map(|child| promised(state, child, pool));
    let sum = limit.into_iter().chain(below).reduce(|sum, more| sum + more);
    sum.filter(|sum| sum.0 < NO_BOUND_MILLI)
}

/// What a node of the quota tree and all below it use. What rose to it from below is counted there.
fn used_below(tree: &QuotaTree, quota: QuotaId, pool: PoolId) -> MilliGpu {
    tree.children(quota).fold(tree.usage(quota, pool), |used, child| {
        let rose = tree.usage(child, pool) - tree.kept(child, pool);
        used + (used_below(tree, child, pool) - rose)
    })
}

/// The rule of a queue by its path, as the policy in force has it.
#[must_use]
pub fn rule_of<'a>(policy: &'a Policy, path: &str) -> Option<&'a QueueRule> {
    policy.queues.get(path).or(match &policy.undeclared {
        Undeclared::Under { rule, .. } => Some(rule),
        Undeclared::Reject => None,
    })
}

/// The figures that matter.
#[must_use]
pub fn summary(state: &State) -> Summary {
    let counters = state.counters();
    let running = state.running_jobs() as u64;
    let mut summary = Summary {
        now_s: state.now().into(),
        policy: state.policy().map(|p| p.name.clone()).unwrap_or_default(),
        jobs: state.open_jobs() as u64 + counters.outcomes.iter().sum::<u64>() + counters.refused,
        queued: state.open_jobs() as u64 - running,
        running,
        completed: counters.outcomes[Outcome::Completed as usize],
        failed: counters.outcomes[Outcome::Failed as usize],
        cancelled: counters.outcomes[Outcome::Cancelled as usize],
        rejected: counters.outcomes[Outcome::Rejected as usize] + counters.refused,
        ..Summary::default()
    };
    let mut hourly = Rate(0);
    for node in state.nodes() {
        let count = match state.capacity_of(node) {
            CapacityType::Reserved => &mut summary.reserved_nodes,
            CapacityType::Spot => &mut summary.spot_nodes,
            CapacityType::OnDemand => &mut summary.on_demand_nodes,
            CapacityType::Owned => &mut summary.owned_nodes,
        };
        *count += 1;
        summary.booting_nodes += u64::from(node.phase.is_coming());
        hourly = hourly + node.price;
    }
    let ledger = state.ledger_now();
    summary.spend_usd_per_hour = price(hourly);
    summary.cost_usd = dollars(ledger.total().cost.micro_dollars());
    summary.brakes = brakes(state);
    summary
}

/// The number in a job's name, such as job-17, as it is written here: `job-017` and `job-+17` are other names.
#[must_use]
pub fn job_number(name: &str) -> Option<JobId> {
    canonical_number(name.strip_prefix("job-")?)
}

/// The number in `#17`, the form of a job's number that no subject has.
#[must_use]
pub fn hash_number(name: &str) -> Option<JobId> {
    canonical_number(name.strip_prefix('#')?)
}

fn canonical_number(digits: &str) -> Option<JobId> {
    let number: u64 = digits.parse().ok()?;
    (number.to_string() == digits).then_some(JobId(number))
}

/// The tenants that have jobs here: a lookup each, whatever number of jobs they have.
fn tenants(state: &State) -> impl Iterator<Item = &str> + '_ {
    let mut last: Option<&str> = None;
    std::iter::from_fn(move || {
        let from = match last {
            None => Bound::Unbounded,
            // No tenant's name ends with a control character: this is before every other name, and after all of its jobs.
            Some(tenant) => Bound::Included((format!("{tenant}\0"), String::new())),
        };
        let next = state.index().by_identity.range((from, Bound::Unbounded)).next()?;
        last = Some(&next.0.0);
        last
    })
}

/// The jobs of a subject with their tenants, of each that has one the latest, in the order of their numbers.
#[must_use]
pub fn find_by_subject<'a>(state: &'a State, name: &str) -> Vec<(JobId, &'a str)> {
    let mut all: Vec<_> = tenants(state).filter_map(|tenant| Some((state.job_of(tenant, name)?, tenant))).collect();
    all.sort_unstable();
    all
}

/// Jobs of one name that a sentence lists.
const MOST_NAMED: usize = 8;

/// That several tenants have a job of this name, and which: who acts on one of them must not hit another.
#[must_use]
pub fn several_jobs(name: &str, jobs: &[(JobId, &str)]) -> String {
    let one = |(id, tenant): &(JobId, &str)| format!("#{} of {}", id.0, short(tenant, 60));
    let listed: Vec<String> = jobs.iter().take(MOST_NAMED).map(one).collect();
    let more = jobs.len() - listed.len();
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("{} tenants have a job `{}`: {}{more}", jobs.len(), short(name, 80), listed.join(", "))
}
