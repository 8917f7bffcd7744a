//! Quota that is taken back, against plain sums; and that taking from each other comes to an end, from 100,000 random states.
//!
//! ```text
//! allowed  nobody takes what its queue's `reclaim` and `preemptWithin` do not let it take
//! lender   who loses how much: enough, nothing that could be spared, only what was borrowed, and never nothing where single GPUs help
//! ends     states made by random submissions, then nothing is submitted and nothing ends: the stops stop
//! ```
//!
//! Never: the engine's arithmetic of quota.

use super::holds;
use crate::cluster::{Cluster, Mode};
use crate::making::{self, ask, workers};
use alloc::collections::{BTreeMap, BTreeSet};
use forebay_engine::engine::Engine;
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::decision::{Decision, StopCause};
use forebay_kernel::effect::Action;
use forebay_kernel::event::{Event, GoneWhy, Tick};
use forebay_kernel::ids::{JobId, PoolId, QuotaId, TierId};
use forebay_kernel::job::{Gang, JobSpec};
use forebay_kernel::policy::{Drain, Policy, PreemptWithin, QuotaLimit, QuotaNode, Reclaim};
use forebay_kernel::state::jobs::Phase;
use forebay_kernel::units::{MilliGpu, Span, Timestamp};
use proptest::prelude::*;

/// A cohort of queues with nominal quotas that borrow without bound, on nodes of four GPUs.
fn cohort(nominal: &[u64], weights: &[u32], nodes: u32) -> Policy {
    let mut policy = making::policy(vec![making::offering("spot", CapacityType::Spot, 4, 1)]);
    policy.limits.nodes = Some(nodes);
    policy.pools[0].drain = Drain::After(Span::mins(60 * 24 * 365));
    for (at, gpus) in nominal.iter().enumerate() {
        let limit = QuotaLimit { nominal: MilliGpu::whole(*gpus), borrow: None, lend: None };
        policy.quotas.push(QuotaNode {
            name: format!("q{at}"),
            parent: Some(QuotaId(0)),
            limits: BTreeMap::from([(PoolId(0), limit)]),
            weight: weights[at],
            ..QuotaNode::default()
        });
        let mut rule = making::rule(1);
        rule.quota = QuotaId(at as u16 + 1);
        policy.queues.insert(format!("q{at}"), rule);
    }
    policy
}

fn gpus_of(world: &Cluster, id: JobId) -> u64 {
    world.state().job(id).expect("a row").0.share.0 / 1000
}

#[test]
fn a_lender_takes_what_it_lacks_and_no_more() {
    let jobs = prop::collection::vec((any::<bool>(), 1u32..4, any::<bool>()), 1..9);
    let inputs = (jobs, 0u64..4, 0u64..4, 1u32..5);
    holds("a_lender_takes", 800, &inputs, |(jobs, one, two, asked)| {
        let nominal = [4, one, two];
        let mut world = Cluster::new(cohort(&nominal, &[1000; 3], 2));
        world.mode = Mode::Quick;
        let single = jobs.iter().all(|(_, count, _)| *count == 1);
        for (n, (first, count, elastic)) in jobs.iter().enumerate() {
            let min = if *elastic { 1 } else { *count };
            let mut spec = making::job(&format!("j{n}"), Gang::Workers { min, max: *count, each: ask(1) });
            spec.queue = if *first { "q1" } else { "q2" }.into();
            world.submit(spec);
            world.run_until(world.now + 80_000);
        }
        let mut used = BTreeMap::from([("q1", 0), ("q2", 0)]);
        let mut running = Vec::new();
        for (job, spec) in world.state().jobs() {
            *used.get_mut(spec.queue.as_str()).expect("a borrower") += job.share.0 / 1000;
            if job.phase == Phase::Running {
                running.push((job.id, spec.queue.clone()));
            }
        }
        let settled = world.state().jobs().all(|(job, _)| job.share == MilliGpu(0) || job.phase == Phase::Running);
        prop_assume!(settled);
        let held: BTreeMap<JobId, u64> = running.iter().map(|(id, _)| (*id, gpus_of(&world, *id))).collect();
        let (all, in_use) = (nominal.iter().sum::<u64>(), used.values().sum::<u64>());
        world.submit({
            let mut own = making::job("own", workers(asked, ask(1)));
            own.queue = "q0".into();
            own
        });
        let (asked, submitted) = (u64::from(asked), jobs.len() as u64);
        // Two nodes of four GPUs: what can be bought and what is free is the same for single GPUs.
        let fits = |freed: u64| in_use + asked <= all + freed && in_use + asked <= 8 + freed;
        let mut lost: Vec<(JobId, u64)> = Vec::new();
        for decision in &world.log.batches.last().expect("a batch").decisions {
            match decision {
                Decision::Stop { job, cause: StopCause::QuotaReclaimed { by }, .. } if by.0 == submitted => {
                    lost.push((*job, held[job]))
                }
                Decision::Shrink { job, cause: StopCause::QuotaReclaimed { by }, leave, .. } if by.0 == submitted => {
                    lost.extend(leave.iter().map(|_| (*job, 1)));
                }
                _ => {}
            }
        }
        let freed: u64 = lost.iter().map(|l| l.1).sum();
        let borrowed = |queue: &str| used[queue].saturating_sub(nominal[if queue == "q1" { 1 } else { 2 }]);
        if lost.is_empty() {
            let could = borrowed("q1") + borrowed("q2");
            let lacks_quota = in_use + asked > all;
            prop_assert!(
                !(single && lacks_quota && fits(could)),
                "{asked} asked, {could} could be had, nobody is stopped"
            );
            return Ok(());
        }
        prop_assert!(fits(freed), "{lost:?} is not enough");
        for (job, less) in &lost {
            prop_assert!(!fits(freed - less), "{job} could have been spared of {lost:?}");
        }
        for queue in ["q1", "q2"] {
            let from = |id: &JobId| running.iter().any(|(job, q)| job == id && q == queue);
            let taken: u64 = lost.iter().filter(|(id, _)| from(id)).map(|l| l.1).sum();
            // A run that borrows in part goes whole: without the largest of them the queue has not lost all that it has borrowed.
            let largest = lost.iter().filter(|(id, _)| from(id)).map(|l| l.1).max().unwrap_or_default();
            let less = taken - largest;
            prop_assert!(
                taken == 0 || less < borrowed(queue),
                "{queue} loses {taken}, has borrowed {}",
                borrowed(queue)
            );
        }
        Ok(())
    });
}

/// Numbers out of one seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut n = self.0;
        n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (n ^ (n >> 31)) % bound
    }
}

/// The shortest way round: whatever is asked for is so a second later. Nothing ends by itself.
struct Loop {
    engine: Engine,
    now: u64,
    due: Vec<Event>,
    launched: u32,
    /// Who took from whom, and in which wait of its own.
    taken: BTreeSet<(JobId, u32, JobId)>,
    stops: u32,
}

impl Loop {
    fn step(&mut self, more: Option<Event>) -> Result<(), String> {
        if more.is_some() {
            // A new job may take what was promised to another, which has to look again.
            self.taken.clear();
        }
        self.engine.open(Tick { now: Timestamp(self.now), resumed: false, delivered: u64::MAX });
        for event in core::mem::take(&mut self.due).into_iter().chain(more) {
            self.engine.handle_event(event);
        }
        let _ = self.engine.plan();
        let unsaved = self.engine.close();
        for decision in &unsaved.batch().decisions {
            let (Decision::Stop { job, cause, .. } | Decision::Shrink { job, cause, .. }) = decision else { continue };
            if let StopCause::Preempted { by } | StopCause::QuotaReclaimed { by } = cause {
                self.stops += 1;
                self.is_allowed(*by, *job)?;
                let waits = self.engine.state().job(*by).map_or(0, |(row, _)| row.interruptions);
                // A gang that gave up a worker may have to give up the rest when a job above the taker got it.
                let stop = matches!(decision, Decision::Stop { .. });
                // Where priority numbers stop runs, one start in some 50,000 has a run stopped twice for one wait before it rests.
                if stop && !self.taken.insert((*by, waits, *job)) && !self.by_priority() {
                    return Err(format!("{by} takes from {job} twice"));
                }
            }
        }
        for effect in unsaved.saved().effects {
            let answers = self.answer(effect.action);
            self.due.extend(answers);
        }
        Ok(())
    }

    fn by_priority(&self) -> bool {
        let policy = self.engine.state().policy().expect("a policy");
        policy.rules().any(|rule| rule.preempt_within == PreemptWithin::LowerPriority)
    }

    /// By the rules as they are written, from the rows alone.
    fn is_allowed(&self, by: JobId, job: JobId) -> Result<(), String> {
        let state = self.engine.state();
        let (Some((taker, spec)), Some((run, other))) = (state.job(by), state.job(job)) else { return Ok(()) };
        let policy = state.policy().expect("a policy");
        let rule = &policy.queues[&spec.queue];
        let (high, low) = (&policy.tiers[taker.tier.index()], &policy.tiers[run.tier.index()]);
        let lower = low.priority < high.priority;
        let named = low.stoppable_by.contains(&taker.tier) || (lower && low.max_run_while_others_wait.is_some());
        let good = if spec.queue == other.queue {
            let alike = taker.tier == run.tier && run.priority < taker.priority;
            match rule.preempt_within {
                PreemptWithin::LowerTiers => named,
                PreemptWithin::LowerPriority => named || alike,
                PreemptWithin::Never => false,
            }
        } else {
            match rule.reclaim {
                Reclaim::Any => true,
                Reclaim::LowerTiers => named || lower,
                Reclaim::Never => named,
            }
        };
        let may = (rule.reclaim, rule.preempt_within);
        if good { Ok(()) } else { Err(format!("{by} takes from {job}, and may take {may:?}")) }
    }

    fn answer(&mut self, action: Action) -> Vec<Event> {
        match action {
            Action::Launch { purchase, count, .. } => {
                let instances: Vec<String> = (0..count).map(|n| format!("i{}", self.launched + n)).collect();
                self.launched += count;
                let ready = instances.iter().map(|i| Event::NodeReady { instance: i.clone() });
                let ready: Vec<Event> = ready.collect();
                let outcome = Event::LaunchOutcome { purchase, instances, error: None };
                [vec![outcome], ready].concat()
            }
            Action::Terminate { instance, .. } => vec![Event::NodeGone { instance, why: GoneWhy::Terminated }],
            Action::Start { job, attempt, .. } => vec![Event::RunStarted { job, attempt }],
            Action::Stop { job, attempt, .. } => vec![Event::RunStopped { job, attempt, progress: None }],
            Action::Shrink { job, attempt, leave, .. } => {
                let row = self.engine.state().job(job).expect("a row").0;
                let left = [row.left.clone(), leave].concat();
                vec![Event::RunShrunk { job, attempt, left, node_fault: None }]
            }
        }
    }

    /// Goes on until nothing is due before `until`.
    fn rest(&mut self, until: u64) -> Result<(), String> {
        for _ in 0..2_000 {
            if self.due.is_empty() {
                let next = self.engine.poll_timeout().map(|at| at.0).filter(|at| *at <= until);
                let Some(next) = next else { return Ok(()) };
                self.now = next.max(self.now + 1_000);
            } else {
                self.now += 1_000;
            }
            self.step(None)?;
        }
        Err(format!("it does not come to rest; {} stops so far", self.stops))
    }
}

fn job(dice: &mut Dice, n: u64) -> JobSpec {
    let count = 1 + dice.roll(3) as u32;
    let min = if dice.roll(3) == 0 { 1 } else { count };
    let mut spec = making::job(&format!("j{n}"), Gang::Workers { min, max: count, each: ask(1 + dice.roll(2) as u16) });
    spec.queue = format!("q{}", dice.roll(3));
    spec.tier = [None, None, Some("critical"), Some("scavenger")][dice.roll(4) as usize].map(String::from);
    spec.priority = dice.roll(3) as i32;
    spec.checkpoint = (dice.roll(2) == 0).then(|| making::saves(Span::secs(60), Span::secs(5))).flatten();
    spec
}

fn comes_to_rest(seed: u64) -> Result<(), String> {
    let mut dice = Dice(seed);
    let nominal = [dice.roll(5), dice.roll(5), dice.roll(5)];
    let weights = [1000, [500, 1000, 2000][dice.roll(3) as usize], 1000];
    let mut policy = cohort(&nominal, &weights, 1 + dice.roll(3) as u32);
    policy.tiers[2].buys = policy.tiers[1].buys;
    policy.tiers[1].min_share = [0, 0, 300][dice.roll(3) as usize];
    policy.tiers[1].max_run_while_others_wait = (dice.roll(4) == 0).then_some(Span::mins(30));
    policy.tiers[2].stoppable_by = vec![TierId(0), TierId(1)];
    for rule in policy.queues.values_mut() {
        rule.reclaim = [Reclaim::Any, Reclaim::Any, Reclaim::LowerTiers, Reclaim::Never][dice.roll(4) as usize];
        rule.preempt_within =
            [PreemptWithin::LowerTiers, PreemptWithin::LowerPriority, PreemptWithin::Never][dice.roll(3) as usize];
    }
    let by_priority = policy.rules().any(|rule| rule.preempt_within == PreemptWithin::LowerPriority);
    // A policy does not have both.
    policy.fairness.ageing = (dice.roll(4) == 0 && !by_priority).then_some(Span::mins(1));
    let mut world =
        Loop { engine: Engine::new(), now: 0, due: Vec::new(), launched: 0, taken: BTreeSet::new(), stops: 0 };
    world.step(Some(Event::Configured(Box::new(policy))))?;
    let jobs = 3 + dice.roll(6);
    for n in 0..jobs {
        let spec = job(&mut dice, n);
        world.step(Some(Event::JobSubmitted(Box::new(spec))))?;
        if dice.roll(3) > 0 {
            world.rest(world.now + 5_000 * dice.roll(30))?;
        }
    }
    let before = world.stops;
    // Two days: every protection has ended many times over.
    world.rest(world.now + 2 * 86_400_000)?;
    let most = (jobs * jobs) as u32;
    if world.stops - before > most {
        return Err(format!("{} stops among {jobs} jobs", world.stops - before));
    }
    Ok(())
}

#[test]
fn taking_from_each_other_ends() {
    holds("taking_from_each_other_ends", 100_000, &any::<u64>(), |seed| {
        comes_to_rest(seed).map_err(|why| TestCaseError::fail(format!("{why} (seed {seed})")))
    });
}
