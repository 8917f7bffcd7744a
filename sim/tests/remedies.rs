//! What `why` says helps, helps: waits are sampled from lives of the fault sweep, what their reason names is done by program, the engine decides
//! anew at the same moment, and the same bound does not keep the job any more.
//!
//! ```text
//! FOREBAY_WAITS=500      500 waits instead of 60
//! ```
//!
//! Each sample has a control: the same moment decided anew with nothing changed. Where the bound is gone in that too, the wait is not counted.
//! A reason with a figure is first given what the figure says is missing, and only where others took that, plenty.
//!
//! Never: a remedy for what only time, a cloud or another job's end changes.
#![expect(clippy::disallowed_methods, reason = "how many waits are sampled is said from outside")]

use forebay_driver::step::{self, BatchStep};
use forebay_engine::engine::Engine;
use forebay_kernel::catalog::{CapacityType, Offering};
use forebay_kernel::decision::Outcome;
use forebay_kernel::event::{Event, Tick};
use forebay_kernel::ids::{JobId, PoolId, QuotaId};
use forebay_kernel::job::{Gang, JobSpec, TopologyConstraint};
use forebay_kernel::journal::Batch;
use forebay_kernel::policy::{Buys, Ceiling, Policy, Pool, QueueRule, QuotaLimit, StartTarget, Undeclared, WhenLate};
use forebay_kernel::reason::{Bound, Reason};
use forebay_kernel::state::State;
use forebay_kernel::state::brakes::Brake;
use forebay_kernel::state::jobs::{Job, Phase};
use forebay_kernel::units::{MilliCpu, MilliGpu, Rate, Span, Timestamp};
use forebay_sim::sweep::{BatchWatch, run_watched};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// One batch in so many is sampled before.
const STRIDE: u64 = 5;
/// Waits of one life at most, so that they are of many policies.
const MOST_OF_A_LIFE: usize = 6;
/// Codes that have to come up: none has more than this part of all waits.
const CODES: usize = 8;
/// More lives than it takes to find the waits.
const MOST_LIVES: u64 = 4_000;
/// Plenty of nodes or GPUs.
const PLENTY: u32 = 1_000;
/// Plenty of money, in micro-dollars: a million dollars.
const PLENTY_OF_MONEY: u64 = 1_000_000_000_000;
/// A priority above all others of a workload, ageing over days included.
const FIRST: i32 = 10_000;

/// How much is given of what is missing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Amount {
    /// What the reason's figures say, where it has any.
    AsSaid,
    Plenty,
}

impl Amount {
    fn of(self, missing: u64, plenty: u64) -> u64 {
        if self == Amount::AsSaid { missing } else { plenty }
    }
}

/// What is done about a reason: another policy, what an operator does, what is submitted in place of the job, or how long is waited.
struct Remedy {
    at: Timestamp,
    policy: Policy,
    events: Vec<Event>,
    instead: Option<JobSpec>,
}

impl Remedy {
    /// `None`: nothing that a program can do about this reason, or about this job.
    fn of(engine: &Engine, id: JobId, reason: Reason, amount: Amount) -> Option<Remedy> {
        let state = engine.state();
        let (row, spec) = state.job(id)?;
        let mut remedy = Remedy::nothing(state)?;
        let policy = &mut remedy.policy;
        let path = &state.queues()[row.queue].path;
        let rule = state.queues()[row.queue].rule.as_ref();
        let instead = &mut remedy.instead;
        match reason {
            Reason::UnknownQueue => {
                let like = policy.queues.values().next()?.clone();
                policy.queues.insert(path.clone(), like);
            }
            Reason::TooManyQueues { most } => {
                let Undeclared::Under { at_most, .. } = &mut policy.undeclared else { return None };
                *at_most = most + 1;
            }
            Reason::ForbiddenTier { .. } => *instead = Some(JobSpec { tier: None, ..again(spec) }),
            Reason::NoMatchingPool => *instead = Some(nearest(state, row, rule?, spec)?),
            Reason::TopologyUnsatisfied { .. } => {
                let within = spec.within.map(|within| TopologyConstraint { required: false, ..within });
                *instead = Some(JobSpec { within, ..again(spec) });
            }
            Reason::ExceedsMaxQuota { asked, most } => {
                raise_quota(policy, rule?, amount.of((asked - most).0, MilliGpu::whole(PLENTY.into()).0))?;
            }
            Reason::WaitingForQuota { asked, available } => {
                raise_quota(policy, rule?, amount.of((asked - available).0, MilliGpu::whole(PLENTY.into()).0))?;
            }
            Reason::ExceedsCeiling => {
                policy.limits = Ceiling::default();
                for pool in &rule?.pools {
                    policy.pools.get_mut(pool.index())?.ceiling = Ceiling::default();
                }
            }
            Reason::Ceiling { bound } if bound.is_of_pool() => {
                for pool in &rule?.pools {
                    raise_ceiling(&mut policy.pools.get_mut(pool.index())?.ceiling, bound);
                }
            }
            Reason::Ceiling { bound } => raise_ceiling(&mut policy.limits, bound),
            Reason::Budget { .. } => raise_budgets(policy, rule?.quota, PLENTY_OF_MONEY),
            Reason::NodeBeyondBudget { least, budget } | Reason::BeyondBudget { least, budget, .. } => {
                raise_budgets(policy, rule?.quota, amount.of((least - budget).0, PLENTY_OF_MONEY));
            }
            Reason::NothingIdle => policy.tiers.get_mut(row.tier.index())?.buys = Buys::SpotThenOnDemand,
            Reason::Stockout { .. } => add_zones(policy, rule?),
            Reason::WaitingByDesign { .. } | Reason::BurstIsNoise { .. } => {
                let start = rule_of(policy, path)?.start.as_mut()?;
                // Where who is late is rejected, a job has the whole of a shorter target from the new policy on.
                let waited =
                    if start.when_late == WhenLate::Reject { Span::ZERO } else { state.now().since(row.arrival) };
                start.within = waited + Span(1);
            }
            Reason::Batched { running, .. } => {
                // The batch widens by one each time that this has passed.
                let from = if row.first_start.is_none() { row.arrival } else { row.since };
                let within = state.now().since(from).0.checked_div(running.into()).filter(|within| *within > 0)?;
                rule_of(policy, path)?.start = Some(StartTarget { within: Span(within), when_late: WhenLate::Wait });
            }
            Reason::BehindInQueue { position: 2.. } => *instead = Some(JobSpec { priority: FIRST, ..again(spec) }),
            Reason::BackOff { until } | Reason::ClusterQuota { until } => remedy.at = until,
            Reason::BuyingPaused { .. } => remedy.events.push(released(&Brake::Buying)),
            Reason::PreemptionPaused { .. } => remedy.events.push(released(&Brake::Preemption)),
            Reason::AdmissionPaused { .. } | Reason::QueueHeld { .. } => {
                remedy.events.push(released(state.queue_brake(row.queue)?.0));
            }
            Reason::PoolDraining { pool, .. } => remedy.events.push(released(state.pool_brake(pool)?.0)),
            _ => return None,
        }
        Some(remedy)
    }

    fn nothing(state: &State) -> Option<Remedy> {
        let policy = state.policy()?.clone();
        Some(Remedy { at: state.now(), policy, events: Vec::new(), instead: None })
    }

    /// What keeps the job, or the one that is submitted in its place, when the engine has decided with this done.
    fn bound(self, engine: &Engine, id: JobId) -> Option<String> {
        let mut engine = engine.clone();
        let tick = Tick { now: self.at, resumed: false, delivered: 0 };
        let _ = step::configure(&mut engine, tick, self.policy);
        let mut events = self.events;
        let identity = self.instead.as_ref().map(|spec| (spec.tenant.clone(), spec.subject.clone()));
        events.extend(self.instead.map(|spec| Event::JobSubmitted(Box::new(spec))));
        if !events.is_empty() {
            let mut step = BatchStep::open(&mut engine, tick);
            for event in events {
                step.handle_event(event);
            }
            let _ = step.plan();
        }
        let state = engine.state();
        let id = match identity {
            Some((tenant, subject)) => state.job_of(&tenant, &subject).expect("it was submitted just now"),
            None => id,
        };
        Some(bound(state, id, engine.why(id)?))
    }
}

/// The same specification under a name of its own.
fn again(spec: &JobSpec) -> JobSpec {
    let subject = format!("{}-again", spec.subject);
    JobSpec { subject, digest: spec.digest + 1, rerun: false, sent: None, ..spec.clone() }
}

fn released(brake: &Brake) -> Event {
    Event::BrakeReleased { brake: brake.clone(), by: "operator".to_owned() }
}

/// The rule of a queue in a policy: its own, or the one that undeclared queues share.
fn rule_of<'a>(policy: &'a mut Policy, path: &str) -> Option<&'a mut QueueRule> {
    let shared = match &mut policy.undeclared {
        Undeclared::Under { rule, .. } => Some(rule),
        Undeclared::Reject => None,
    };
    policy.queues.get_mut(path).or(shared)
}

/// `None`: the queue has no quota of its own in any of its pools.
fn raise_quota(policy: &mut Policy, rule: &QueueRule, by: u64) -> Option<()> {
    let cohort = policy.quotas.get(rule.quota.index())?.parent.is_some();
    let bounds = |pool: &&PoolId| cohort || policy.quotas.iter().any(|node| node.limits.contains_key(*pool));
    let pools: Vec<PoolId> = rule.pools.iter().filter(bounds).copied().collect();
    let node = policy.quotas.get_mut(rule.quota.index())?;
    for pool in &pools {
        // In a pool where others have a quota and this node has none, or its cohort has none, its own is nothing.
        let limit = node.limits.entry(*pool).or_insert(QuotaLimit { nominal: MilliGpu(0), borrow: None, lend: None });
        limit.nominal = limit.nominal + MilliGpu(by);
    }
    (!pools.is_empty()).then_some(())
}

/// The budgets of a queue and of those above it.
fn raise_budgets(policy: &mut Policy, quota: QuotaId, by: u64) {
    let mut at = Some(quota);
    while let Some(id) = at {
        let Some(node) = policy.quotas.get_mut(id.index()) else { return };
        if let Some(budget) = &mut node.budget {
            budget.amount = budget.amount.saturating_add(by);
        }
        at = node.parent;
    }
}

fn raise_ceiling(ceiling: &mut Ceiling, bound: Bound) {
    let more = |most: Option<u32>| most.map(|most| most.saturating_add(PLENTY));
    match bound {
        Bound::Nodes | Bound::PoolNodes => ceiling.nodes = more(ceiling.nodes),
        Bound::OnDemandNodes | Bound::PoolOnDemandNodes => ceiling.on_demand_nodes = more(ceiling.on_demand_nodes),
        Bound::Gpus | Bound::PoolGpus => ceiling.gpus = more(ceiling.gpus),
        Bound::Spend | Bound::PoolSpend => ceiling.spend = ceiling.spend.map(|most| most + Rate(PLENTY_OF_MONEY)),
    }
}

/// The same instance types in zones that nothing is known of.
fn add_zones(policy: &mut Policy, rule: &QueueRule) {
    for pool in &rule.pools {
        let Some(rules) = policy.pools.get_mut(pool.index()) else { continue };
        let listed = rules.offerings.iter().filter_map(|at| policy.offerings.get(*at as usize));
        let more: Vec<Offering> =
            listed.map(|offer| Offering { zone: format!("{}-new", offer.zone), ..offer.clone() }).collect();
        let first = policy.offerings.len();
        policy.offerings.extend(more);
        rules.offerings.extend((first..policy.offerings.len()).filter_map(|at| u32::try_from(at).ok()));
    }
}

/// The job as the offering holds it that lacks least of what one worker asks. `None`: its queue has only pools whose GPUs are partitioned, or whose
/// nodes nobody buys.
fn nearest(state: &State, row: &Job, rule: &QueueRule, spec: &JobSpec) -> Option<JobSpec> {
    let policy = state.policy()?;
    let buys = policy.tiers.get(row.tier.index())?.buys;
    let (Gang::Workers { each: asked, .. } | Gang::Spanning { per_gpu: asked, .. }) = spec.gang;
    let whole = |pool: &&Pool| pool.layouts.is_empty() && pool.owned.is_none();
    let pools = rule.pools.iter().filter_map(|pool| policy.pools.get(pool.index())).filter(whole);
    let offers = pools.flat_map(|pool| &pool.offerings).filter_map(|at| policy.offerings.get(*at as usize));
    let bought = |offer: &&Offering| match buys {
        Buys::OnDemand => offer.capacity == CapacityType::OnDemand,
        Buys::Spot => offer.capacity == CapacityType::Spot,
        Buys::SpotThenOnDemand | Buys::Nothing => true,
    };
    let answers =
        |offer: &Offering| spec.models.is_empty() || spec.models.iter().any(|model| offer.models.contains(model));
    let lacks = |offer: &&Offering| {
        let gpus = asked.gpus.saturating_sub(offer.gpus);
        let (gpu_mem, cpu, mem) = (asked.gpu_mem > offer.gpu_mem, asked.cpu > offer.cpu, asked.mem > offer.mem);
        (gpus, !answers(offer), gpu_mem, cpu, mem, offer.capacity == CapacityType::Spot)
    };
    let offer = offers.filter(bought).min_by_key(lacks)?;
    let kept = state.node_reserve(&offer.instance_type).all();
    let mut instead = JobSpec { spot: true, ..again(spec) };
    if !answers(offer) {
        instead.models.clone_from(&offer.models);
    }
    let (Gang::Workers { each, .. } | Gang::Spanning { per_gpu: each, .. }) = &mut instead.gang;
    each.gpus = each.gpus.min(offer.gpus);
    each.gpu_mem = each.gpu_mem.min(offer.gpu_mem);
    each.cpu = each.cpu.min(MilliCpu(offer.cpu.0.saturating_sub(kept.cpu.0)));
    each.mem.0 = each.mem.0.min(offer.mem.0.saturating_sub(kept.mem.0));
    Some(instead)
}

/// A bound that keeps a job: the code, and what of its kind it is.
fn bound(state: &State, id: JobId, reason: Reason) -> String {
    let code = reason.code();
    match reason {
        Reason::Ceiling { bound } => format!("{code} {}", bound.as_str()),
        Reason::BeyondBudget { bound: Some(bound), .. } => format!("{code} {}", bound.as_str()),
        Reason::Stockout { offering, .. }
        | Reason::LaunchRefused { offering, .. }
        | Reason::AwaitingProbe { offering, .. } => format!("{code} {offering}"),
        Reason::PoolDraining { pool, .. } | Reason::OwnedNodesFull { pool, .. } => format!("{code} {pool}"),
        Reason::KeptForAnother { job, .. } => format!("{code} {job}"),
        Reason::BehindInQueue { position } => format!("{code} {position}"),
        Reason::BackOff { until } | Reason::ClusterQuota { until } => format!("{code} {}", until.0),
        Reason::QueueHeld { .. } | Reason::AdmissionPaused { .. } => {
            let brake = state.job(id).and_then(|(row, _)| state.queue_brake(row.queue)).map(|(brake, _)| brake);
            format!("{code} {brake:?}")
        }
        _ => code.to_owned(),
    }
}

/// What a remedy came to.
enum Helped {
    AsSaid,
    WithPlenty,
    /// The bound is still there.
    Not(String),
}

/// `None`: there is no remedy, or the bound is gone without one.
fn helped(engine: &Engine, id: JobId, reason: Reason) -> Option<Helped> {
    let state = engine.state();
    let (row, spec) = state.job(id)?;
    let refused = matches!(row.phase, Phase::Done { .. });
    // What is over is submitted once more.
    let remedy = |amount| {
        let mut remedy = Remedy::of(engine, id, reason, amount)?;
        remedy.instead = remedy.instead.or_else(|| refused.then(|| again(spec)));
        Some(remedy)
    };
    let first = remedy(Amount::AsSaid)?;
    let instead = first.instead.is_some().then(|| again(spec));
    let unchanged = Remedy { instead, ..Remedy::nothing(state)? }.bound(engine, id)?;
    let before = bound(state, id, reason);
    // One that is submitted anew comes last.
    if unchanged != before && !matches!(reason, Reason::BehindInQueue { .. } if unchanged.starts_with(reason.code())) {
        return None;
    }
    if first.bound(engine, id).as_ref() != Some(&unchanged) {
        return Some(Helped::AsSaid);
    }
    if remedy(Amount::Plenty)?.bound(engine, id).as_ref() != Some(&unchanged) {
        return Some(Helped::WithPlenty);
    }
    Some(Helped::Not(format!("at {} ms, {id}, {unchanged}: {reason:?} ({reason})", state.now().0)))
}

/// Waits of one code.
#[derive(Default)]
struct CodeTally {
    waits: usize,
    /// Where what the reason said was enough.
    as_said: usize,
}

#[derive(Default)]
struct Tally {
    wanted: usize,
    codes: BTreeMap<&'static str, CodeTally>,
    failures: Vec<String>,
}

impl Tally {
    fn waits(&self) -> usize {
        self.codes.values().map(|code| code.waits).sum()
    }

    fn of(&self, code: &str) -> usize {
        self.codes.get(code).map_or(0, |code| code.waits)
    }

    fn wants(&self, code: &str) -> bool {
        self.waits() < self.wanted && self.of(code) < self.wanted.div_ceil(CODES)
    }

    fn take(&mut self, seed: u64, code: &'static str, helped: Helped) {
        let tally = self.codes.entry(code).or_default();
        tally.waits += 1;
        match helped {
            Helped::AsSaid => tally.as_said += 1,
            Helped::WithPlenty => {}
            Helped::Not(what) => self.failures.push(format!("seed {seed}, {what}")),
        }
    }
}

struct Sampler {
    seed: u64,
    batch: u64,
    /// Waits that were looked at.
    seen: BTreeSet<(JobId, &'static str)>,
    left: usize,
    tally: Rc<RefCell<Tally>>,
}

impl BatchWatch for Sampler {
    fn before(&mut self, engine: &Engine) {
        self.batch += 1;
        if (self.batch + self.seed).is_multiple_of(STRIDE) && self.left > 0 {
            self.sample(engine);
        }
    }

    fn after(&mut self, _: &Batch) {}
}

impl Sampler {
    /// One wait, of a code of which there are fewest so far.
    fn sample(&mut self, engine: &Engine) {
        let mut tally = self.tally.borrow_mut();
        let asked = engine.state().jobs().filter(|(row, spec)| waits(row, spec));
        let reasons = asked.filter_map(|(row, _)| Some((row.id, engine.why(row.id)?)));
        let new =
            |(id, reason): &(JobId, Reason)| tally.wants(reason.code()) && !self.seen.contains(&(*id, reason.code()));
        let mut found: Vec<(JobId, Reason)> = reasons.filter(new).collect();
        found.sort_by_key(|(id, reason)| (tally.of(reason.code()), *id));
        for (id, reason) in found {
            self.seen.insert((id, reason.code()));
            if let Some(helped) = helped(engine, id, reason) {
                tally.take(self.seed, reason.code(), helped);
                self.left -= 1;
                return;
            }
        }
    }
}

/// Whether a job waits, or was refused and could be sent once more.
fn waits(row: &Job, spec: &JobSpec) -> bool {
    let waits = matches!(row.phase, Phase::Queued | Phase::Held | Phase::BackingOff { .. });
    let refused = row.phase == Phase::Done { outcome: Outcome::Rejected };
    (waits || refused) && row.service.is_none() && spec.service.is_none() && !row.cancel_asked
}

fn wanted() -> usize {
    std::env::var("FOREBAY_WAITS").ok().and_then(|text| text.parse().ok()).unwrap_or(60)
}

#[test]
fn what_helps_by_its_reason_ends_the_bound() {
    let tally = Rc::new(RefCell::new(Tally { wanted: wanted(), ..Tally::default() }));
    for seed in 0..MOST_LIVES {
        if tally.borrow().waits() >= wanted() {
            break;
        }
        let sampler = Sampler { seed, batch: 0, seen: BTreeSet::new(), left: MOST_OF_A_LIFE, tally: Rc::clone(&tally) };
        // What the sweep itself finds is the sweep's to tell.
        let _ = run_watched(seed, Box::new(sampler));
    }
    let tally = tally.borrow();
    for (code, CodeTally { waits, as_said }) in &tally.codes {
        println!("{code}: {waits} waits, {as_said} of them ended by what the reason said");
    }
    println!("{} waits of {} codes, {} of them kept", tally.waits(), tally.codes.len(), tally.failures.len());
    assert!(tally.waits() >= wanted(), "only {} waits", tally.waits());
    assert!(tally.codes.len() >= CODES, "only {} codes", tally.codes.len());
    assert!(tally.failures.is_empty(), "the same bound still holds:\n{}", tally.failures.join("\n"));
}
