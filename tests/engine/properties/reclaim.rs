//! Quota that is taken back, against plain sums; and that taking from each other comes to an end, from thousands of random states.
//!
//! ```text
//! allowed  nobody takes what its queue's `reclaim` and `preemptWithin` do not let it take
//! lender   who loses how much: enough, nothing that could be spared, only what was borrowed, and never nothing where single GPUs help
//! ends     states made by random submissions, then nothing is submitted and nothing ends: the stops stop
//! ```
//!
//! `FOREBAY_STARTS=100000` makes so many of these states; 10,000 by default.
//!
//! Never: the engine's arithmetic of quota.

use super::lacks::world::{Dice, Loop};
use super::{holds, number};
use crate::cluster::{Cluster, Mode};
use crate::making::{self, ask, workers};
use alloc::collections::BTreeMap;
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::decision::{Decision, StopCause};
use forebay_kernel::event::Event;
use forebay_kernel::ids::{JobId, PoolId, QuotaId, TierId};
use forebay_kernel::job::{Gang, JobSpec};
use forebay_kernel::policy::{Drain, Policy, PreemptWithin, QueueOrder, QuotaLimit, QuotaNode, Reclaim};
use forebay_kernel::state::jobs::{Job, Phase};
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

/// A run as its queue's quota is filled: since when, which, in which queue, what it holds, and what of that it cannot do without.
type Filled = (Option<Timestamp>, JobId, usize, u64, u64);

/// What runs, in the order in which the quotas of their queues are filled.
fn filled(world: &Cluster) -> Vec<Filled> {
    let runs = world.state().jobs().filter(|(job, _)| job.phase == Phase::Running);
    let row = |(job, spec): (&Job, &JobSpec)| {
        let queue = spec.queue.trim_start_matches('q').parse().expect("a queue's number");
        (job.holds_since(), job.id, queue, job.share.0 / 1000, u64::from(spec.gang.fewest()))
    };
    let mut runs: Vec<Filled> = runs.map(row).collect();
    runs.sort_unstable();
    runs
}

/// Whether each run that loses something is not within what its queue owns once all the others have lost what they lose. One that goes whole is
/// judged without the workers that it can do without.
fn all_borrow(filled: &[Filled], nominal: &[u64], lost: &[(JobId, u64)]) -> bool {
    let loses = |id: JobId| lost.iter().filter(|(job, _)| *job == id).map(|(_, less)| less).sum::<u64>();
    let borrows = |(_, judged, queue, held, least): &Filled| {
        let mut left = nominal[*queue];
        for (_, id, _, holds, _) in filled.iter().filter(|run| run.2 == *queue) {
            let whole = loses(*id) == *holds;
            let counts = if id != judged {
                holds - loses(*id)
            } else if whole {
                *least
            } else {
                *held
            };
            let fits = counts <= left;
            if id == judged {
                return !fits;
            }
            left -= if fits { counts } else { 0 };
        }
        true
    };
    filled.iter().filter(|run| loses(run.1) > 0).all(borrows)
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
        let filled = filled(&world);
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
        for (at, (job, less)) in lost.iter().enumerate() {
            let mut rest = lost.clone();
            rest.remove(at);
            // Who is not needed may be what makes the others borrow: without it they could not be taken.
            let spared = fits(freed - less) && all_borrow(&filled, &nominal, &rest);
            prop_assert!(!spared, "{job} could have been spared of {lost:?}");
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

/// What the queues say of what their jobs may take.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Queues {
    SayNothing,
    SayOtherwise,
    /// One of them is the cohort itself: its jobs stand beside the children.
    OneIsTheCohort,
}

/// Random values of `reclaim` and `preemptWithin`.
fn say_otherwise(policy: &mut Policy, dice: &mut Dice) {
    for rule in policy.queues.values_mut() {
        rule.reclaim = [Reclaim::Any, Reclaim::Any, Reclaim::LowerTiers, Reclaim::Never][dice.roll(4) as usize];
        rule.preempt_within =
            [PreemptWithin::LowerTiers, PreemptWithin::LowerPriority, PreemptWithin::Never][dice.roll(3) as usize];
        if dice.roll(4) == 0 {
            (rule.preempt_within, rule.order) = (PreemptWithin::LongerExpected, QueueOrder::ShortestExpected);
        }
    }
    let by_priority = policy.rules().any(|rule| rule.preempt_within == PreemptWithin::LowerPriority);
    // A policy does not have both.
    policy.fairness.ageing = (dice.roll(4) == 0 && !by_priority).then_some(Span::mins(1));
}

fn comes_to_rest(seed: u64, queues: Queues) -> Result<(), String> {
    let mut dice = Dice(seed);
    let nominal = [dice.roll(5), dice.roll(5), dice.roll(5)];
    let weights = [1000, [500, 1000, 2000][dice.roll(3) as usize], 1000];
    let mut policy = cohort(&nominal, &weights, 1 + dice.roll(3) as u32);
    policy.tiers[2].buys = policy.tiers[1].buys;
    policy.tiers[1].min_share = [0, 0, 300][dice.roll(3) as usize];
    policy.tiers[1].max_run_while_others_wait = (dice.roll(4) == 0).then_some(Span::mins(30));
    policy.tiers[2].stoppable_by = vec![TierId(0), TierId(1)];
    if queues == Queues::SayOtherwise {
        say_otherwise(&mut policy, &mut dice);
    }
    if queues == Queues::OneIsTheCohort {
        // What the third queue named is the cohort's now, and so are its jobs.
        policy.quotas[0].limits = core::mem::take(&mut policy.quotas[3].limits);
        policy.queues.get_mut("q2").expect("the third queue").quota = QuotaId(0);
    }
    let by_length = policy.rules().any(|rule| rule.preempt_within == PreemptWithin::LongerExpected);
    let mut world = Loop::new(policy, 0)?;
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
    // In two days a run that never ends has seven turns, each twice as long as the one before.
    let turns = if by_length { 7 * jobs } else { 0 };
    let most = (jobs * jobs + turns) as u32;
    if world.stops - before > most {
        return Err(format!("{} stops among {jobs} jobs", world.stops - before));
    }
    Ok(())
}

/// A promise that went back and forth, a node kept for two jobs of which one used up what was kept for the other, and quota that was kept for
/// one that had just lost its promise to others. Where lengths counted between queues, a run that had grown long came to borrow, and its neighbour after it; where
/// they counted against other runs than the longer one, what a tier took by them was taken back.
#[test]
fn starts_that_once_did_not_rest() {
    let seeds = [
        5_112_399_624_710_388_133,
        9_982_832_350_621_881_520,
        8_904_189_293_265_797_742,
        7_140_474_898_083_433_079,
        5_010_639_554_090_695_592,
        9_019_264_898_559_918_563,
        11_678_434_050_242_175_993,
    ];
    for seed in seeds {
        for queues in [Queues::SayNothing, Queues::SayOtherwise] {
            comes_to_rest(seed, queues).unwrap_or_else(|why| panic!("{why} (seed {seed})"));
        }
    }
}

fn ends(name: &str, queues: Queues) {
    let starts = number("FOREBAY_STARTS").and_then(|starts| starts.try_into().ok()).unwrap_or(10_000);
    holds(name, starts, &any::<u64>(), |seed| {
        comes_to_rest(seed, queues).map_err(|why| TestCaseError::fail(format!("{why} (seed {seed})")))
    });
}

#[test]
fn taking_from_each_other_ends() {
    ends("taking_from_each_other_ends", Queues::SayNothing);
}

#[test]
fn taking_as_queues_say_is_allowed_and_always_ends() {
    ends("taking_as_queues_say_is_allowed_and_always_ends", Queues::SayOtherwise);
}

#[test]
fn taking_between_a_cohorts_own_jobs_and_its_children_ends() {
    ends("taking_between_a_cohorts_own_jobs", Queues::OneIsTheCohort);
}
