//! Nodes that nobody bought, beside bought ones: they come, change, close and leave, others take GPUs, CPU and memory there and give them
//! back, and gangs run, are preempted and fail. Of bought nodes, more and less is not for work. The small world of `cluster` checks at every start that it fits beside what others hold, at
//! every termination that it is not of an owned node, and that ceilings count none.
//!
//! Never: an expectation about which node or when.

use super::holds;
use crate::cluster::{Cluster, Deaf, Mode};
use crate::making::{self, ask, workers};
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::decision::Decision;
use forebay_kernel::event::{Event, GoneWhy};
use forebay_kernel::ids::{JobId, NodeId, PoolId};
use forebay_kernel::job::{Gang, JobSpec, WorkerAsk};
use forebay_kernel::policy::{Policy, Pool};
use forebay_kernel::state::node_reserves::{NodeReserve, NodeRoom};
use forebay_kernel::state::owned::{ForeignUse, OwnedNode, OwnedPool, OwnedShape};
use forebay_kernel::units::{Mib, MilliCpu, Rate, Span};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

/// One thing that happens: which kind, to whom, how much.
type Op = (u8, u8, u16);

fn lives() -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec((0..20u8, any::<u8>(), any::<u16>()), 1..40)
}

/// One pool of bought nodes under tight ceilings, and one of owned nodes that comes first.
fn policy(variant: u16) -> Policy {
    let spot = making::offering("spot", CapacityType::Spot, 4, 2);
    let dear = making::offering("dear", CapacityType::OnDemand, 4, 6);
    let mut policy = making::policy(vec![spot, dear]);
    policy.limits.nodes = Some(2);
    policy.pools[0].ceiling.gpus = Some(8);
    policy.consolidation.worth_it = if variant & 1 == 0 { 0 } else { 2000 };
    let price = Rate(u64::from(variant % 3) * making::DOLLAR);
    let owned = OwnedPool { labels: [("team".into(), vec!["lab".into()])].into(), price };
    policy.pools.push(Pool { name: "lab".into(), owned: Some(owned), ..Pool::default() });
    for (at, queue) in ["critical", "normal", "scavenger"].into_iter().enumerate() {
        let rule = policy.queues.get_mut(queue).expect("a queue of making's");
        rule.pools = if at == 2 { vec![PoolId(1)] } else { vec![PoolId(1), PoolId(0)] };
    }
    policy
}

fn node(a: u8, b: u16) -> OwnedNode {
    let gpus = [4, 8, 8, 2][usize::from(a % 4)];
    let each = u64::from(gpus);
    let shape = OwnedShape {
        instance_type: format!("lab-{gpus}"),
        zone: "home".into(),
        gpus,
        gpu_mem: Mib(40_960),
        models: vec!["h100".into()],
        cpu: MilliCpu(8_000 * each),
        mem: Mib(65_536 * each - u64::from(b / 4096 % 2)),
        nvlink: 0,
    };
    let taken = u64::from(b) % (each + 1);
    let foreign = ForeignUse {
        gpus: taken as u16,
        cpu: MilliCpu(taken * 6_000 + u64::from(b % 3) * 1_000),
        mem: Mib(taken * 50_000),
        by: if taken > 0 { format!("others/{taken}") } else { String::new() },
    };
    OwnedNode { name: format!("home-{}", a % 4), pool: "lab".into(), shape, open: !(b / 64).is_multiple_of(8), foreign }
}

fn spec(n: usize, a: u8, b: u16) -> JobSpec {
    let each = WorkerAsk { cpu: MilliCpu(u64::from(b % 4) * 2_000), mem: Mib(u64::from(b % 5) * 10_000), ..ask(1) };
    let gang = match a % 6 {
        0 => workers(1, WorkerAsk { gpus: 4, ..each }),
        1 => workers(u32::from(b % 6) + 1, each),
        2 => Gang::Spanning { gpus: u32::from(b % 11) + 1, per_gpu: each },
        3 => Gang::Workers { min: 1, max: 4, each },
        4 => workers(1, WorkerAsk { gpus: 0, ..each }),
        _ => workers(2, WorkerAsk { gpus: 2, ..each }),
    };
    let mut spec = making::job(&format!("j{n}"), gang);
    spec.queue = ["critical", "normal", "scavenger", "normal"][usize::from(a / 16 % 4)].into();
    spec.spot = !b.is_multiple_of(4);
    spec.checkpoint = b.is_multiple_of(2).then(|| making::saves(Span::secs(60), Span::secs(20))).flatten();
    spec.expected = (b % 5 < 3).then(|| Span(u64::from(b) * 5));
    spec
}

/// So much of each node of a type is not for work.
fn reserve(a: u8, b: u16) -> Event {
    let daemons = NodeRoom { cpu: MilliCpu(u64::from(b % 9) * 2_000), mem: Mib(u64::from(b / 16 % 5) * 20_000) };
    let system = NodeRoom { cpu: MilliCpu(u64::from(b % 2) * 500), mem: Mib(0) };
    let instance_type = ["spot", "dear", "unknown"][usize::from(a % 3)].into();
    Event::NodeReserved { instance_type, reserve: NodeReserve { system, daemons } }
}

fn pick<T: Clone>(all: &[T], a: u8) -> Option<T> {
    (!all.is_empty()).then(|| all[usize::from(a) % all.len()].clone())
}

fn alive(world: &Cluster) -> Vec<JobId> {
    world.state().open_job_ids().filter(|id| world.alive(*id).is_some()).collect()
}

fn happen(world: &mut Cluster, n: usize, (kind, a, b): Op) {
    let run = pick(&alive(world), a).and_then(|job| Some((job, world.alive(job)?)));
    let event = match kind {
        0..=5 => {
            let spec = spec(n, a, b);
            world.work.insert(spec.subject.clone(), u64::from(b) * 5);
            Some(Event::JobSubmitted(Box::new(spec)))
        }
        6..=11 => Some(Event::OwnedNodeSeen(Box::new(node(a, b)))),
        12 => Some(Event::OwnedNodeLeft { name: format!("home-{}", a % 4) }),
        13 => run.map(|(job, attempt)| {
            let node_fault = world.state().job(job).and_then(|row| row.0.places.first()).map(|place| place.node);
            Event::RunFailed { job, attempt, exit_code: 1, node_fault: node_fault.filter(|_| a > 90) }
        }),
        14 => run.map(|(job, attempt)| Event::RunStopped { job, attempt, progress: None }),
        15 => pick(&world.state().nodes().filter_map(|n| n.instance.clone()).collect::<Vec<_>>(), a)
            .map(|instance| Event::NodeGone { instance, why: GoneWhy::Lost }),
        16 => Some(Event::Configured(Box::new(policy(b)))),
        17 => {
            world.deaf = Deaf { start: b % 4 == 0, stop: b % 4 == 1, ..Deaf::default() };
            None
        }
        18 => Some(reserve(a, b)),
        _ => return world.run_until(world.now + u64::from(b) * 4),
    };
    if let Some(event) = event {
        world.happens(event);
    }
}

fn live(ops: &[Op], mode: Mode) -> Cluster {
    let mut world = Cluster::new(policy(ops.first().map_or(0, |op| op.2 / 7)));
    world.mode = mode;
    for (n, op) in ops.iter().enumerate() {
        happen(&mut world, n, *op);
    }
    world
}

/// All owned nodes are there, open, and nobody else's.
fn heal(world: &mut Cluster) {
    world.deaf = Deaf::default();
    for instance_type in ["spot", "dear"] {
        let reserve = NodeReserve::default();
        world.happens(Event::NodeReserved { instance_type: instance_type.into(), reserve });
    }
    for a in 0..4 {
        let free = OwnedNode { foreign: ForeignUse::default(), open: true, ..node(a, 1) };
        let closed = OwnedNode { open: false, ..free.clone() };
        // Whoever closes and opens a node has looked after it.
        world.happens(Event::OwnedNodeSeen(Box::new(closed)));
        world.happens(Event::OwnedNodeSeen(Box::new(free)));
    }
    for _ in 0..2 {
        world.run_until(world.now + 8 * 3_600_000);
        for job in alive(world) {
            let attempt = world.alive(job).expect("just seen");
            world.happens(Event::RunCompleted { job, attempt, worker: None });
        }
        for a in 0..4 {
            let free = OwnedNode { foreign: ForeignUse::default(), open: true, ..node(a, 1) };
            world.happens(Event::OwnedNodeSeen(Box::new(free)));
        }
    }
    world.run_until(world.now + 8 * 3_600_000);
}

/// What is decided on nodes names bought ones only; nothing is bought into a pool of owned nodes.
fn decisions(world: &Cluster) -> TestCaseResult {
    let owned = |id: &NodeId| world.state().node(*id).is_some_and(|row| row.owned.is_some());
    for decision in world.log.batches.iter().flat_map(|batch| &batch.decisions) {
        match decision {
            Decision::Drain { node, .. }
            | Decision::Undrain { node }
            | Decision::Suspect { node }
            | Decision::Terminate { node } => prop_assert!(!owned(node), "{decision:?}"),
            Decision::Buy { pool, .. } => prop_assert_eq!(*pool, PoolId(0)),
            _ => {}
        }
    }
    Ok(())
}

#[test]
fn work_fits_beside_what_others_hold() {
    holds("work_fits_beside_what_others_hold", 320, &lives(), |ops| {
        let mut world = live(&ops, Mode::Plain);
        decisions(&world)?;
        heal(&mut world);
        decisions(&world)?;
        let open = world.state().jobs().filter(|(job, _)| !job.done());
        let open: Vec<_> = open.map(|(job, _)| (job, world.engine.why(job.id))).collect();
        prop_assert!(open.is_empty(), "still open: {open:?}");
        prop_assert_eq!(world.state().bought_nodes().count(), 0, "bought nodes are left");
        prop_assert_eq!(world.state().nodes().count(), 4, "owned nodes stay");
        Ok(())
    });
}

fn same(ops: &[Op], mode: Mode) -> TestCaseResult {
    let (one, other) = (live(ops, Mode::Quick), live(ops, mode));
    for (a, b) in one.log.batches.iter().zip(&other.log.batches) {
        prop_assert_eq!(&a.decisions, &b.decisions, "{:?} at {}", mode, a.tick.now.0);
    }
    prop_assert_eq!(one.log.batches.len(), other.log.batches.len());
    prop_assert!(one.engine.snapshot() == other.engine.snapshot());
    Ok(())
}

#[test]
fn memos_change_nothing_beside_owned_nodes() {
    holds("memos_change_nothing_beside_owned_nodes", 240, &lives(), |ops| same(&ops, Mode::NoMemos));
}

#[test]
fn recovered_is_the_same_beside_owned_nodes() {
    let inputs = (lives(), 1usize..9);
    holds("recovered_is_the_same_beside_owned_nodes", 240, &inputs, |(ops, every)| same(&ops, Mode::Crashes(every)));
}

fn story() -> Cluster {
    let mut world = Cluster::new(policy(1));
    let full =
        OwnedNode { foreign: ForeignUse { gpus: 4, by: "ml/notebook".into(), ..ForeignUse::default() }, ..node(0, 64) };
    world.happens(Event::OwnedNodeSeen(Box::new(full)));
    world
}

/// Full at the start, freed by a foreign pod, taken: nothing is bought for who runs there, and nothing is overcommitted.
#[test]
fn full_at_the_start_then_freed_then_taken() {
    let mut world = story();
    world.work.insert("a".into(), 600_000);
    let queue = |subject: &str| JobSpec { queue: "scavenger".into(), ..making::job(subject, workers(1, ask(3))) };
    world.submit(queue("a"));
    let a = world.id("a").expect("a job");
    let why = world.engine.why(a).expect("it waits");
    assert_eq!(why.code(), "OwnedNodesFull");
    assert!(why.to_string().contains("4 GPUs of which 4 are held"), "{why}");
    let with = |gpus| {
        let by = String::from("ml/notebook");
        let foreign = ForeignUse { gpus, by, ..ForeignUse::default() };
        Event::OwnedNodeSeen(Box::new(OwnedNode { foreign, ..node(0, 64) }))
    };
    world.happens(with(1));
    world.run_until(world.now + 60_000);
    assert!(world.alive(a).is_some(), "{:?}", world.engine.why(a));
    // More is taken than is left: what runs goes on, and nothing is added.
    world.happens(with(4));
    world.submit(queue("b"));
    world.run_until(world.now + 60_000);
    assert!(world.alive(a).is_some());
    let b = world.id("b").expect("a job");
    assert_eq!(world.engine.why(b).map(|why| why.code()), Some("OwnedNodesFull"));
    let ledger = world.state().ledger_now();
    assert_eq!(
        ledger.owned.bought.0 + ledger.foreign.0,
        u128::from(world.state().now().0) * 4_000,
        "all of its time is somebody's"
    );
    assert_eq!(ledger.bought(), forebay_kernel::state::ledger::Account::default());
    assert_eq!(world.state().counters().nodes_peak, 0);
}

/// What was bought for while others held the owned nodes comes back to them once they are free, with nothing else on them, and what was bought goes.
#[test]
fn bought_work_comes_home_to_owned_nodes() {
    let comes = |price| {
        let mut world = story();
        let mut policy = policy(1);
        policy.pools[1].owned.as_mut().expect("the owned pool").price = Rate(price * making::DOLLAR);
        world.happens(Event::Configured(Box::new(policy)));
        world.work.insert("a".into(), 36_000_000);
        let checkpoint = making::saves(Span::secs(600), Span::secs(30));
        world.submit(JobSpec { checkpoint, ..making::job("a", workers(1, ask(2))) });
        world.run_until(world.now + 3_600_000);
        let a = world.id("a").expect("a job");
        let at_home = |world: &Cluster| {
            let row = world.state().job(a).expect("a row").0;
            let node = row.places.first().and_then(|place| world.state().node(place.node));
            node.expect("it runs").owned.is_some()
        };
        assert!(!at_home(&world) && world.state().bought_nodes().count() == 1);
        world.happens(Event::OwnedNodeSeen(Box::new(OwnedNode { foreign: ForeignUse::default(), ..node(0, 64) })));
        world.run_until(world.now + 3_600_000);
        (at_home(&world), world.state().bought_nodes().count())
    };
    assert_eq!(comes(1), (true, 0));
    assert_eq!(comes(30), (true, 0), "what an owned node is said to cost is paid whether it is used or not");
}

/// A gang that is proven dead nowhere keeps the row of its node, which takes nothing more.
#[test]
fn a_node_that_left_goes_with_its_last_run() {
    let mut world = Cluster::new(policy(0));
    let free = OwnedNode { foreign: ForeignUse::default(), ..node(0, 64) };
    world.happens(Event::OwnedNodeSeen(Box::new(free.clone())));
    world.submit(making::job("a", workers(1, ask(1))));
    world.run_until(world.now + 60_000);
    let a = world.id("a").expect("a job");
    let attempt = world.alive(a).expect("it runs");
    world.happens(Event::OwnedNodeLeft { name: free.name.clone() });
    assert_eq!(world.state().nodes().count(), 1);
    world.submit(making::job("b", workers(1, ask(1))));
    let bought = world.state().bought_nodes().count();
    assert_eq!(bought, 1, "the next one gets a bought node");
    world.happens(Event::RunCompleted { job: a, attempt, worker: None });
    world.step(Vec::new(), false);
    assert!(world.state().node_of(&free.name).is_none());
}

/// What DaemonSets request is left out before a node is bought: four workers of eight cores are one node of 32 cores, and two where one core of
/// each is not for work. Who asks for all of a node is told that no node has it.
#[test]
fn what_is_not_for_work_is_left_out_before_a_node_is_bought() {
    let bought = |reserve: u64| {
        let mut world = Cluster::new(making::policy(vec![making::offering("dear", CapacityType::OnDemand, 4, 6)]));
        let daemons = NodeRoom { cpu: MilliCpu(reserve), mem: Mib(0) };
        let reserve = NodeReserve { daemons, ..NodeReserve::default() };
        world.happens(Event::NodeReserved { instance_type: "dear".into(), reserve });
        let each = WorkerAsk { cpu: MilliCpu(8_000), ..ask(1) };
        world.submit(JobSpec { spot: false, ..making::job("four", workers(4, each)) });
        let all = WorkerAsk { cpu: MilliCpu(32_000), ..ask(1) };
        world.submit(JobSpec { spot: false, ..making::job("all", workers(1, all)) });
        let nodes = world.state().bought_nodes().count();
        let why = world.id("all").and_then(|job| world.engine.why(job)).map(|why| why.code());
        (nodes, why)
    };
    assert_eq!(bought(0), (2, Some("AwaitingNodes")), "a node for the four, and one for all of it");
    assert_eq!(bought(1_000), (2, Some("NoMatchingPool")), "two for the four, none for all of one");
    assert_eq!(bought(33_000), (0, Some("NoMatchingPool")));
}

/// A reserve that grows takes nothing from what runs; what is only booked is booked where it has room.
#[test]
fn a_reserve_that_grows_moves_what_is_booked_and_stops_nothing() {
    let mut world = Cluster::new(making::policy(vec![making::offering("dear", CapacityType::OnDemand, 4, 6)]));
    let each = WorkerAsk { cpu: MilliCpu(8_000), ..ask(1) };
    world.work.insert("runs".into(), 3_600_000);
    world.submit(JobSpec { spot: false, ..making::job("runs", workers(3, each)) });
    world.run_until(world.now + 120_000);
    let runs = world.id("runs").expect("a job");
    assert!(world.alive(runs).is_some());
    let grow = |cpu| {
        let daemons = NodeRoom { cpu: MilliCpu(cpu), mem: Mib(0) };
        Event::NodeReserved { instance_type: "dear".into(), reserve: NodeReserve { daemons, ..NodeReserve::default() } }
    };
    world.happens(grow(1_000));
    world.submit(JobSpec { spot: false, ..making::job("booked", workers(1, each)) });
    assert_eq!(world.state().bought_nodes().count(), 2, "the fourth GPU of the first node has not the cores");
    world.happens(grow(24_000));
    let booked = world.id("booked").expect("a job");
    assert_eq!(world.state().bought_nodes().count(), 2, "eight cores of the second are left");
    world.happens(grow(24_001));
    world.run_until(world.now + 120_000);
    assert!(world.alive(runs).is_some() && world.alive(booked).is_none());
    world.happens(grow(0));
    world.run_until(world.now + 120_000);
    assert!(world.alive(booked).is_some());
}
