//! Whole lives: random submissions, changes of policy, faults, stock, deafness and down time in the small world of `cluster`, which checks after every
//! batch that nothing is above a ceiling, no gang is in parts, no attempt doubled, no message missing, and that a replay and a
//! restored engine agree to the byte. Here: everything ends, and four engines decide the same.
//!
//! Never: an expectation about which node or when.

use super::holds;
use crate::cluster::{Cluster, Mode};
use crate::making::{self, ask, workers};
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::event::{Event, GoneWhy, LaunchError};
use forebay_kernel::ids::{JobId, OfferingId, QuotaId};
use forebay_kernel::job::{Completion, Gang, JobSpec, WorkerAsk};
use forebay_kernel::policy::{
    Budget, Drain, Floor, OnLinger, Period, Policy, QuotaNode, Sharing, StartTarget, WhenLate, WhenSpent,
};
use forebay_kernel::state::brakes::Brake;
use forebay_kernel::state::jobs::Phase;
use forebay_kernel::units::{MilliCpu, Rate, Span, Timestamp};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

/// One thing that happens: which kind, to whom, how much.
type Op = (u8, u8, u16);

const KINDS: u8 = 26;

fn lives(longest: usize) -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec((0..KINDS, any::<u8>(), any::<u16>()), 1..longest)
}

/// Three offerings of two models, sharing, all ceilings, three tiers, preemption, a floor in every other policy.
fn policy(variant: u16) -> Policy {
    let mut offerings = vec![
        making::offering("spot", CapacityType::Spot, 4, 2),
        making::offering("pair", CapacityType::Spot, 2, 1),
        making::offering("dear", CapacityType::OnDemand, 4, 6),
        making::offering("plain", CapacityType::OnDemand, 0, 1),
    ];
    offerings[1].models = vec!["a10g".into()];
    offerings[0].max_price = Rate(4 * making::DOLLAR);
    let mut policy = making::policy(offerings);
    policy.limits.nodes = Some(5);
    policy.limits.spend = Some(Rate(18 * making::DOLLAR));
    let pool = &mut policy.pools[0];
    pool.ceiling.on_demand_nodes = Some(2);
    pool.ceiling.gpus = Some(14);
    pool.drain = if variant & 1 == 0 { Drain::Auto } else { Drain::After(Span::secs(30)) };
    pool.sharing = Some(Sharing { time_slices: 3, smallest: 200 });
    pool.keep_ready = u32::from(variant & 2 != 0);
    policy.tiers[1].min_run = Span::secs(u64::from(variant & 4) * 10);
    policy.lifecycle.on_linger = OnLinger::Stop;
    policy.consolidation.worth_it = if variant & 8 == 0 { 0 } else { 2000 };
    policy.lifecycle.start_timeout = Span::secs(90);
    fairness(&mut policy, variant);
    let targets = [WhenLate::Wait, WhenLate::BuyOnDemand, WhenLate::Reject];
    for (at, queue) in (0u16..).zip(["critical", "normal", "scavenger"]) {
        let on = variant >> (4 + at) & 1 != 0;
        let within = Span::secs(u64::from(variant % 7) * 40 + u64::from(at) * 30 + 10);
        let when_late = targets[usize::from((variant % 3 + at) % 3)];
        let rule = policy.queues.get_mut(queue).expect("a queue of making's");
        rule.start = on.then_some(StartTarget { within, when_late });
    }
    if variant & 128 != 0 {
        let offsets = vec![(Timestamp(0), 0), (Timestamp(200_000), 60)];
        policy.pools[0].floors.push(Floor { nodes: 2, days: 0x7f, from: 2, to: 5 + variant % 9, offsets });
    }
    policy
}

/// A cohort of two weighted queues, ageing, a `minShare`, budgets and start targets, each in every other policy.
fn fairness(policy: &mut Policy, variant: u16) {
    let root = policy.quotas[0].clone();
    policy.quotas.push(QuotaNode { name: "other".into(), weight: 2500, ..root });
    let on = |bit: u16| variant & bit != 0;
    policy.fairness.ageing = on(16).then(|| Span::secs(20));
    policy.fairness.half_life = Span::mins(1);
    policy.tiers[2].min_share = if on(32) { 300 } else { 0 };
    let budget = |dollars, per| Budget { amount: dollars * making::DOLLAR, per, when_spent: WhenSpent::Hold };
    // A day's budget opens from moment to moment in the last hour of the day.
    let day = on(1024).then(|| budget(3, Period::Day));
    policy.quotas[0].budget = if on(64) { Some(budget(5, Period::Hour)) } else { day };
    policy.quotas[1].budget = on(128).then(|| budget(3, Period::Day));
    if let Some(rule) = policy.queues.get_mut("scavenger") {
        rule.quota = QuotaId(1);
    }
    if let Some(rule) = policy.queues.get_mut("normal") {
        rule.start = on(256).then_some(StartTarget { within: Span::secs(40), when_late: WhenLate::Wait });
    }
}

fn spec(n: usize, a: u8, b: u16) -> JobSpec {
    let gang = match a % 9 {
        0 => workers(1, ask(4)),
        1 => workers(u32::from(b % 6) + 1, ask(1)),
        2 => workers(2, ask(2)),
        3 => Gang::Spanning {
            gpus: u32::from(b % 11) + 1,
            per_gpu: WorkerAsk { cpu: MilliCpu(u64::from(b % 3) * 4000), ..ask(1) },
        },
        4 => workers(1, WorkerAsk { cpu: MilliCpu(3000), ..ask(0) }),
        5 => Gang::Workers { min: 1, max: 4, each: ask(1) },
        6 => workers(u32::from(b % 3) + 1, WorkerAsk { share: 300, ..ask(1) }),
        _ => workers(1, ask(b % 2 + 1)),
    };
    let mut spec = making::job(&format!("j{n}"), gang);
    spec.shares = true;
    spec.queue = ["critical", "normal", "scavenger", "normal"][usize::from(a / 16 % 4)].into();
    spec.priority = i32::from(b / 16 % 2);
    spec.spot = !(b / 32).is_multiple_of(4);
    if (b / 128).is_multiple_of(2) {
        spec.checkpoint = making::saves(Span::secs(60), Span::secs(20));
    }
    if a.is_multiple_of(3) {
        spec.expected = Some(Span(u64::from(b) * 5));
    }
    spec.restart = Span::secs(u64::from(b / 256 % 3) * 10);
    spec.completion = [Completion::All, Completion::Leader, Completion::Any][usize::from(b % 3)];
    if (b / 1024).is_multiple_of(4) {
        spec.batch = Some("k".into());
    }
    // It works for five times `b` milliseconds: true to its word, or a third of that.
    spec.expected = (b % 5 < 3).then(|| Span(u64::from(b) * 5 / if b.is_multiple_of(5) { 3 } else { 1 }));
    spec.deadline = (b % 7 < 3).then(|| Timestamp(u64::from(b) * 40));
    if a / 64 == 3 {
        spec.models = vec!["a10g".into()];
    }
    spec
}

fn pick<T: Clone>(all: &[T], a: u8) -> Option<T> {
    (!all.is_empty()).then(|| all[usize::from(a) % all.len()].clone())
}

fn alive(world: &Cluster) -> Vec<JobId> {
    let ids = world.state().open_job_ids();
    ids.filter(|id| world.alive(*id).is_some()).collect()
}

fn instances(world: &Cluster) -> Vec<String> {
    world.state().nodes().filter_map(|n| n.instance.clone()).collect()
}

fn happen(world: &mut Cluster, n: usize, (kind, a, b): Op) {
    let run = pick(&alive(world), a).and_then(|job| Some((job, world.alive(job)?)));
    let instance = pick(&instances(world), a);
    let offering = OfferingId(u32::from(a % 4));
    let event = match kind {
        0..=7 => {
            let spec = spec(n, a, b);
            world.work.insert(spec.subject.clone(), u64::from(b) * 5);
            Some(Event::JobSubmitted(Box::new(spec)))
        }
        8 => {
            // Some come before their job.
            let subject = format!("j{}", usize::from(a) % (n + 4));
            let sent = (b % 2 == 0).then_some(Timestamp(world.now));
            Some(Event::JobCancelled { tenant: "t".into(), subject, by: None, sent })
        }
        9 => run.map(|(job, attempt)| Event::RunFailed { job, attempt, exit_code: 1, node_fault: None }),
        10 => run.map(|(job, attempt)| {
            let places = &world.state().job(job).expect("a row").0.places;
            let node_fault = places.first().map(|p| p.node);
            Event::RunFailed { job, attempt, exit_code: 1, node_fault }
        }),
        11 => run.map(|(job, attempt)| Event::RunCheckpointed { job, attempt, progress: Span(u64::from(b)) }),
        12 => run.map(|(job, attempt)| Event::RunIdle { job, attempt, idle: Span::secs(u64::from(b % 1200)) }),
        13 => run.map(|(job, attempt)| Event::RunStopped { job, attempt, progress: None }),
        14 => instance.map(|instance| Event::NodeGone { instance, why: GoneWhy::Lost }),
        15 => instance.map(|instance| {
            let why = GoneWhy::Reclaimed;
            let gone = Event::NodeGone { instance: instance.clone(), why };
            world.soon(120_000, gone);
            Event::ReclaimNotice { instance, at: Timestamp(world.now + 120_000) }
        }),
        16 => {
            let stock = world.stock.entry(offering).or_default();
            stock.refuses = match b % 4 {
                0 => Some(LaunchError::Capacity),
                1 => Some(LaunchError::Throttled),
                _ => None,
            };
            stock.left = (b % 4 == 3).then_some(u32::from(b / 4 % 3));
            stock.never_ready = b / 64 % 8 == 0;
            None
        }
        17 => {
            let on = b % 2 == 0;
            match a % 4 {
                0 => world.deaf.launch = on,
                1 => world.deaf.start = on,
                2 => world.deaf.stop = on,
                _ => world.deaf.terminate = on,
            }
            None
        }
        18 => {
            world.now += u64::from(b) * 10;
            return world.step(Vec::new(), true);
        }
        22 => Some(Event::Configured(Box::new(policy(b)))),
        23 => Some(brake(world, a, b)),
        24 => run.map(|(job, attempt)| Event::RunCompleted { job, attempt, worker: Some(u32::from(b % 4)) }),
        25 => {
            let node_of = |(job, _)| world.state().job(job)?.0.places.first().map(|place| place.node);
            if let Some((run, instance)) = run.and_then(|run| Some((run, world.instance(node_of(run)?)?))) {
                world.fails_with(instance, run);
            }
            None
        }
        _ => {
            let until = world.now + u64::from(b) * 4;
            return world.run_until(until);
        }
    };
    if let Some(event) = event {
        world.happens(event);
    }
}

/// An operator stops something for a while, or lets it go on.
fn brake(world: &Cluster, a: u8, b: u16) -> Event {
    let node = world.state().nodes().map(|node| node.id).nth(usize::from(b % 5));
    let brake = match a % 8 {
        0 | 1 => Brake::Buying,
        2 => Brake::Admission,
        3 => Brake::Preemption,
        4 => Brake::Queue("normal".into()),
        5 => Brake::Pool(world.state().policy().expect("a policy").pools[0].name.clone()),
        _ => node.map_or(Brake::Queue("critical".into()), Brake::Node),
    };
    if (a / 8).is_multiple_of(3) {
        return Event::BrakeReleased { brake, by: "ops".into() };
    }
    let until = Some(Timestamp(world.now + 1 + u64::from(b) * 8));
    Event::BrakeSet { brake, by: "ops".into(), why: String::new(), until }
}

fn live(ops: &[Op], mode: Mode) -> Cluster {
    let variant = ops.first().map_or(0, |op| op.2 / 7);
    let mut world = Cluster::new(policy(variant));
    world.mode = mode;
    if variant & 512 != 0 {
        world.run_until(23 * 3_600_000);
    }
    for (n, op) in ops.iter().enumerate() {
        happen(&mut world, n, *op);
    }
    world
}

/// The world heals, and everything that was asked for is let go.
fn heal(world: &mut Cluster) {
    world.stock.clear();
    world.deaf = crate::cluster::Deaf::default();
    let mut policy = world.state().policy().expect("a policy").clone();
    policy.pools[0].keep_ready = 0;
    policy.pools[0].floors.clear();
    for node in &mut policy.quotas {
        node.budget = None;
    }
    world.step(vec![Event::Configured(Box::new(policy))], false);
    world.run_until(world.now + 8 * 3_600_000);
    for job in alive(world) {
        // What the submitter's process never reports ends by its hand.
        let attempt = world.alive(job).expect("just seen");
        let done = Event::RunCompleted { job, attempt, worker: None };
        world.happens(done);
    }
    world.run_until(world.now + 8 * 3_600_000);
}

#[test]
fn every_life_ends_and_nodes_reach_zero() {
    holds("every_life_ends", 960, &lives(40), |ops| {
        let mut world = live(&ops, Mode::Careful);
        heal(&mut world);
        let queue = |job: &forebay_kernel::state::jobs::Job| world.state().queues()[job.queue].path.clone();
        let jobs = world.state().jobs();
        let open = jobs.filter(|(job, _)| !job.done() && queue(job) != "scavenger");
        let open: Vec<_> = open.map(|(job, _)| (job, world.engine.why(job.id))).collect();
        prop_assert!(open.is_empty(), "still open: {open:?}");
        let waits = |job: &forebay_kernel::state::jobs::Job| job.done() || job.phase == Phase::Queued;
        prop_assert!(world.state().jobs().all(|(job, _)| waits(job)));
        prop_assert_eq!(world.state().nodes().count(), 0, "nodes are left");
        let statuses = &world.log.statuses;
        for (job, spec) in world.state().jobs().filter(|(job, _)| job.done()) {
            let own = statuses.iter().filter(|s| s.job == Some(job.id) && s.kind.terminal());
            prop_assert_eq!(own.count(), 1, "{} ends once", &spec.subject);
        }
        Ok(())
    });
}

#[test]
fn a_pass_leaves_nothing_undone() {
    holds("a_pass_leaves_nothing_undone", 640, &lives(40), |ops| {
        let mut world = live(&ops, Mode::Plain);
        heal(&mut world);
        Ok(())
    });
}

fn same(ops: &[Op], mode: Mode) -> TestCaseResult {
    let (one, other) = (live(ops, Mode::Quick), live(ops, mode));
    for (a, b) in one.log.batches.iter().zip(&other.log.batches) {
        prop_assert_eq!(&a.tick, &b.tick, "{:?}", mode);
        prop_assert_eq!(&a.decisions, &b.decisions, "{:?} at {}", mode, a.tick.now.0);
        prop_assert_eq!(a.encode(), b.encode());
    }
    prop_assert_eq!(one.log.batches.len(), other.log.batches.len());
    prop_assert!(one.engine.snapshot() == other.engine.snapshot());
    Ok(())
}

#[test]
fn same_inputs_same_bytes() {
    holds("same_inputs_same_bytes", 480, &lives(40), |ops| same(&ops, Mode::Quick));
}

#[test]
fn memos_change_nothing() {
    holds("memos_change_nothing", 960, &lives(40), |ops| same(&ops, Mode::NoMemos));
}

#[test]
fn recovered_is_the_same() {
    let inputs = (lives(40), 1usize..9);
    holds("recovered_is_the_same", 960, &inputs, |(ops, every)| same(&ops, Mode::Crashes(every)));
}

#[test]
fn replay_from_any_cut_is_the_same() {
    let inputs = (lives(40), any::<prop::sample::Index>());
    holds("replay_from_any_cut", 480, &inputs, |(ops, cut)| {
        let world = live(&ops, Mode::Quick);
        let batches = &world.log.batches;
        let cut = cut.index(batches.len());
        let mut first = forebay_engine::engine::Engine::new();
        batches[..cut].iter().for_each(|batch| first.replay(batch));
        let restored = forebay_engine::engine::Engine::restore(&first.snapshot().unwrap());
        let mut second = restored.expect("a snapshot can be read back");
        batches[cut..].iter().for_each(|batch| second.replay(batch));
        prop_assert!(second.snapshot() == world.engine.snapshot());
        prop_assert_eq!(second.rebuilt_index(), second.state().index().clone());
        let open = |e: &forebay_engine::engine::Engine| e.open_effects();
        prop_assert_eq!(open(&second), open(&world.engine), "effects without an outcome");
        Ok(())
    });
}
/// Lives that once went wrong, as they were shrunk.
const ONCE_FAILED: [&[Op]; 5] = [
    // A purchase is room for other classes too.
    &[(0, 103, 5320), (0, 0, 0)],
    &[(0, 166, 32564), (0, 0, 0), (0, 0, 0), (18, 0, 0), (0, 0, 0), (0, 0, 0)],
    // What a booked job opens is for those before it.
    &[
        (0, 78, 3346),
        (19, 0, 500),
        (0, 117, 8704),
        (0, 191, 10016),
        (0, 4, 0),
        (18, 0, 5201),
        (0, 4, 0),
        (0, 66, 40891),
        (15, 61, 0),
        (0, 0, 0),
    ],
    // Money that pays a job's part and no node for it brings it nothing: nobody is stopped for that.
    &[
        (0, 97, 38115),
        (0, 194, 11168),
        (9, 0, 0),
        (0, 7, 13600),
        (0, 70, 14987),
        (0, 0, 4188),
        (0, 31, 0),
        (8, 60, 0),
        (0, 220, 21665),
        (19, 0, 26750),
        (0, 59, 2720),
    ],
    // A class that rests is served in its turn when one before it bought.
    &[
        (0, 14, 17850),
        (0, 40, 41856),
        (0, 78, 62464),
        (19, 0, 15500),
        (9, 0, 0),
        (9, 91, 0),
        (0, 99, 2048),
        (0, 167, 11520),
        (18, 0, 3000),
    ],
];

/// Waiting for a throttled offering ends when there is less room, not more.
const THROTTLED: &[Op] = &[
    (0, 85, 6734),
    (0, 0, 544),
    (0, 0, 32),
    (0, 0, 2720),
    (0, 0, 47520),
    (0, 23, 37408),
    (19, 0, 23680),
    (0, 49, 10880),
    (18, 0, 15689),
    (19, 0, 28428),
    (16, 157, 28149),
    (14, 56, 0),
    (0, 96, 32),
    (0, 59, 54272),
    (18, 0, 1),
    (0, 83, 32),
    (0, 148, 0),
];

/// All checks after every batch, and the same decisions without memos and from restored engines.
fn stands_all(ops: &[Op]) {
    let mut world = live(ops, Mode::Plain);
    heal(&mut world);
    for mode in [Mode::NoMemos, Mode::Crashes(1), Mode::Crashes(3)] {
        same(ops, mode).expect("the same decisions");
    }
}

#[test]
fn lives_that_once_failed() {
    ONCE_FAILED.into_iter().for_each(stands_all);
}

#[test]
fn waiting_for_a_throttled_offering() {
    stands_all(THROTTLED);
}

#[path = "../../../crates/kernel/tests/replay/facts.rs"]
mod facts;

/// Writes the golden records of this version, with what this live engine has after them. Not run otherwise: `tests/golden/README.md`.
#[test]
#[ignore = "it writes tests/golden/records: cargo test -p forebay-engine --test engine golden -- --ignored"]
fn golden_records_are_written() {
    let mut random = 12_u64;
    let mut next = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        random >> 33
    };
    let ops: Vec<Op> = (0..1_500).map(|_| ((next() % u64::from(KINDS)) as u8, next() as u8, next() as u16)).collect();
    let world = live(&ops, Mode::Careful);
    let mut kinds = alloc::collections::BTreeMap::new();
    for decision in world.log.batches.iter().flat_map(|b| &b.decisions) {
        let word = format!("{decision:?}");
        *kinds.entry(word.split([' ', '{']).next().unwrap_or_default().to_owned()).or_insert(0) += 1;
    }
    println!("decisions: {kinds:?}");
    let mut bytes = Vec::new();
    for batch in &world.log.batches {
        let batch = batch.encode().expect("a batch");
        bytes.extend((batch.len() as u32).to_le_bytes());
        bytes.extend(batch);
    }
    let path = format!("tests/golden/records/version-{}-lives", forebay_kernel::journal::APPLY_VERSION);
    std::fs::write(format!("{path}.bin"), bytes).expect("written");
    std::fs::write(format!("{path}.txt"), facts::facts(world.state())).expect("written");
}
