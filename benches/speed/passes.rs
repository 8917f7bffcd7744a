//! The workloads of one pass: work that waits, nodes that are there or can be bought, and the pass that serves it.
//!
//! ```text
//! armada-32k  yunikorn-10k  kai-fill        onto nodes that are ready
//! karpenter-10k(-generic)  cas-51k          onto nodes that are bought
//! kai-cycle  kai-reclaim  kai-negative      nodes are full: nothing, somebody, or in vain
//! ```
//!
//! Each runs three times on a state of its own, and the least counts.
//!
//! Never: an answer of the world within what is timed.

use forebay_kernel::ids::TierId;
use forebay_kernel::job::{Gang, JobSpec, Level, Service, TopologyConstraint, WorkerAsk};
use forebay_kernel::policy::{Policy, Reclaim, Tier};
use forebay_kernel::units::{Mib, MilliCpu, Rate};

use super::fleet::{Draws, Fleet, Took, ask, gpus, job, offering, policy, queue, quota, submissions};
use super::report::{Figure, Peer, Report};

const NORMAL: TierId = TierId(0);
const HIGH: TierId = TierId(1);
const TIMES: u32 = 3;
const GIB: u64 = 1024;

/// What a workload is: its nodes and policy, what waits already, and what is submitted in the timed batch.
struct Case {
    policy: Policy,
    nodes: u32,
    /// What runs, in waves: each has its places before the next comes.
    running: Vec<Vec<JobSpec>>,
    submitted: Vec<JobSpec>,
    /// How many of the submitted jobs hold places after the pass.
    served: Option<usize>,
}

/// Runs a case and returns the cheapest of its runs, with the state that it left.
fn run(case: impl Fn() -> Case) -> (Took, Fleet) {
    let mut best: Option<(Took, Fleet)> = None;
    for _ in 0..TIMES {
        let Case { policy, nodes, running, submitted, served } = case();
        let mut fleet = if nodes > 0 { Fleet::ready(policy, nodes) } else { Fleet::empty(policy) };
        let mut runs = 0;
        for wave in running {
            runs += wave.len();
            fleet.step(submissions(wave.into_iter()));
            fleet.answer();
            assert_eq!(fleet.served(), runs, "all that is to run runs");
        }
        fleet.now.0 += 3_600_000;
        let took = fleet.step(submissions(submitted.into_iter()));
        if let Some(served) = served {
            assert_eq!(fleet.served(), runs + served, "jobs that hold places");
        }
        if best.as_ref().is_none_or(|(least, _)| took.plan < least.plan) {
            best = Some((took, fleet));
        }
    }
    best.unwrap_or_else(|| unreachable!("it runs {TIMES} times"))
}

fn figures(report: &mut Report, name: &str, took: Took, peers: &[Peer]) {
    report.push(Figure::ms(name, "submit_ms", took.events, &[]));
    report.push(Figure::ms(name, "ms", took.plan, peers));
}

fn queues(policy: &mut Policy, count: u64) {
    for at in 0..count {
        let node = quota(policy, &format!("q{at}"), None, None);
        queue(policy, &format!("q{at}"), node, NORMAL);
    }
}

/// 32,000 one-CPU jobs in 10 queues, on 1,000 nodes of 32 CPU; then the same with a GPU for each CPU.
pub fn armada(report: &mut Report, size: u64) {
    for (name, gpu) in [("armada-32k", 0), ("armada-32k-gpu", 1)] {
        let case = || {
            let of = offering("node", 32 * gpu, 32_000, 256 * GIB, 1_000_000);
            let mut policy = policy(vec![of], Some(size as u32));
            queues(&mut policy, 10);
            let jobs = (0..32 * size).map(|n| job(n, &format!("q{}", n % 10), ask(gpu, 1000, 4 * GIB)));
            Case {
                policy,
                nodes: size as u32,
                running: Vec::new(),
                submitted: jobs.collect(),
                served: Some(32 * size as usize),
            }
        };
        figures(report, name, run(case).0, &[("armada", 3100.0), ("armada published, index alone", 654.0)]);
    }
}

/// 10,000 equal pods in 2 queues, on 5,000 nodes; then the same with a GPU each.
pub fn yunikorn(report: &mut Report, size: u64) {
    for (name, gpu) in [("yunikorn-10k", 0), ("yunikorn-10k-gpu", 1)] {
        let case = || {
            let of = offering("node", 8 * gpu, 16_000, 64 * GIB, 1_000_000);
            let mut policy = policy(vec![of], Some(size as u32));
            queues(&mut policy, 2);
            let jobs = (0..2 * size).map(|n| job(n, &format!("q{}", n % 2), ask(gpu, 100, 512)));
            Case {
                policy,
                nodes: size as u32,
                running: Vec::new(),
                submitted: jobs.collect(),
                served: Some(2 * size as usize),
            }
        };
        figures(report, name, run(case).0, &[("yunikorn", 2050.0)]);
    }
}

/// 4,000 one-GPU jobs onto 500 nodes of 8.
pub fn kai_fill(report: &mut Report, size: u64) {
    let case = || {
        let mut policy = kai_policy(size, None);
        queues(&mut policy, 1);
        let jobs = (0..8 * size).map(|n| job(n, "q0", ask(1, 1000, GIB)));
        Case {
            policy,
            nodes: size as u32,
            running: Vec::new(),
            submitted: jobs.collect(),
            served: Some(8 * size as usize),
        }
    };
    figures(report, "kai-fill", run(case).0, &[("kai published, end to end", 398_000.0)]);
}

fn kai_policy(nodes: u64, high: Option<Tier>) -> Policy {
    let mut policy = policy(vec![offering("node", 8, 96_000, 1024 * GIB, 30_000_000)], Some(nodes as u32));
    policy.tiers.extend(high);
    policy
}

/// 500 nodes of 8, as many one-GPU jobs running, and as many more that wait.
pub fn kai_cycle(report: &mut Report, size: u64) {
    let case = || {
        let mut policy = kai_policy(size, None);
        queues(&mut policy, 4);
        let of = |n: u64| job(n, &format!("q{}", n % 4), ask(1, 1000, GIB));
        Case {
            policy,
            nodes: size as u32,
            running: vec![(0..8 * size).map(of).collect()],
            submitted: (8 * size..16 * size).map(of).collect(),
            served: Some(0),
        }
    };
    figures(report, "kai-cycle", run(case).0, &[("kai", 129_000.0), ("kai published", 59_000.0)]);
}

fn gang(number: u64, queue: &str, workers: u64, gpus: u16) -> JobSpec {
    let workers = workers as u32;
    JobSpec {
        gang: Gang::Workers { min: workers, max: workers, each: ask(gpus, 0, 0) },
        ..job(number, queue, ask(1, 0, 0))
    }
}

/// A gang of N/2 x 8 GPU of an owner evicts 4N of the 8N one-GPU jobs that borrow what it owns.
pub fn kai_reclaim(report: &mut Report, size: u64) {
    let sizes = [(size / 5, 1_390.0), (size / 2, 7_100.0), (size, 30_100.0)];
    for (nodes, peer) in sizes {
        let case = || {
            let mut policy = kai_policy(nodes, None);
            let all = quota(&mut policy, "all", None, None);
            let borrower = quota(&mut policy, "all/borrower", Some(all), Some(gpus(4 * nodes, None)));
            let owner = quota(&mut policy, "all/owner", Some(all), Some(gpus(4 * nodes, Some(0))));
            queue(&mut policy, "all/borrower", borrower, NORMAL);
            queue(&mut policy, "all/owner", owner, NORMAL);
            Case {
                policy,
                nodes: nodes as u32,
                running: vec![(0..8 * nodes).map(|n| job(n, "all/borrower", ask(1, 0, 0))).collect()],
                submitted: vec![gang(u64::MAX, "all/owner", nodes / 2, 8)],
                served: None,
            }
        };
        let (took, mut fleet) = run(case);
        fleet.answer();
        let evicted = 8 * nodes as usize + 1 - fleet.served();
        assert_eq!(evicted, 8 * (nodes / 2) as usize, "so many are stopped, and the gang runs");
        figures(report, &format!("kai-reclaim-{nodes}"), took, &[("kai", peer)]);
    }
}

/// A policy for so many nodes.
type MakePolicy = fn(u64) -> Policy;

/// A gang of 10 x 8 GPU that can never fit: every node has a run on it that it may not have.
pub fn kai_negative(report: &mut Report, size: u64) {
    let variants: [(&str, MakePolicy, &str); 4] = [
        ("own-quota", negative_own_quota, "all/other"),
        ("same-tier", negative_same_tier, "all/other"),
        ("borrowers", negative_borrowers, "all/borrower"),
        ("min-share", negative_min_share, "all/low"),
    ];
    for (variant, policy, seven) in variants {
        let case = || {
            // One of eight is on each node, for two of them do not fit beside each other, and stays.
            let stay = (0..size).map(|n| job(n, "all/other", ask(1, 0, 600 * GIB)));
            let others = (size..8 * size).map(|n| job(n, seven, ask(1, 0, 0)));
            Case {
                policy: policy(size),
                nodes: size as u32,
                running: vec![stay.collect(), others.collect()],
                submitted: vec![gang(u64::MAX, "all/taker", 10, 8)],
                served: Some(0),
            }
        };
        let peers: &[Peer] = &[("kai, 200 nodes", 84_500.0), ("kai published, end to end", 249_500.0)];
        let (took, mut fleet) = run(case);
        fleet.answer();
        assert_eq!(fleet.served(), 8 * size as usize, "nobody is stopped");
        figures(report, &format!("kai-negative-{variant}"), took, peers);
    }
}

/// All runs are within what their queue owns; the gang's queue owns nothing.
fn negative_own_quota(nodes: u64) -> Policy {
    let mut policy = kai_policy(nodes, None);
    let all = quota(&mut policy, "all", None, None);
    for (name, own) in [("all/other", 8 * nodes), ("all/taker", 0)] {
        let node = quota(&mut policy, name, Some(all), Some(gpus(own, None)));
        queue(&mut policy, name, node, NORMAL);
    }
    policy
}

/// There are no quotas, and all are of one tier.
fn negative_same_tier(nodes: u64) -> Policy {
    let mut policy = kai_policy(nodes, None);
    for name in ["all/other", "all/taker"] {
        let node = quota(&mut policy, name, None, None);
        queue(&mut policy, name, node, NORMAL);
    }
    policy
}

/// Seven of the runs on each node borrow what the gang's queue owns, and one owns what it has.
fn negative_borrowers(nodes: u64) -> Policy {
    let mut policy = kai_policy(nodes, None);
    let all = quota(&mut policy, "all", None, None);
    for (name, own) in [("all/other", nodes), ("all/borrower", 0), ("all/taker", 7 * nodes)] {
        let node = quota(&mut policy, name, Some(all), Some(gpus(own, None)));
        queue(&mut policy, name, node, NORMAL);
    }
    policy
}

/// Seven of the runs on each node are of a tier that the gang's may stop and that is kept its share, and one is of the gang's own.
fn negative_min_share(nodes: u64) -> Policy {
    let high = Tier { name: "high".to_owned(), priority: 900, ..Tier::default() };
    let mut policy = kai_policy(nodes, Some(high));
    policy.tiers[1].buys = policy.tiers[0].buys;
    policy.tiers[0].stoppable_by = vec![HIGH];
    policy.tiers[0].min_share = 500;
    for (name, tier) in [("all/other", HIGH), ("all/low", NORMAL), ("all/taker", HIGH)] {
        let node = quota(&mut policy, name, None, None);
        queue(&mut policy, name, node, tier);
    }
    policy.queues.values_mut().for_each(|rule| rule.reclaim = Reclaim::Any);
    policy
}

/// 50,000 small and 1,000 larger pods onto nodes that are bought: 2,595 is the bound, in whatever order they come.
pub fn cas(report: &mut Report, size: u64) {
    for (name, large_first) in [("cas-51k", true), ("cas-51k-small-first", false)] {
        let case = || {
            let mut policy = policy(vec![offering("node", 0, 1000, 5000, 100_000)], None);
            queues(&mut policy, 1);
            let small = (0..size).map(|n| job(n, "q0", ask(0, 50, 100)));
            let large = (size..size + size / 50).map(|n| job(n, "q0", ask(0, 95, 190)));
            let jobs = if large_first { large.chain(small).collect() } else { small.chain(large).collect::<Vec<_>>() };
            Case { policy, nodes: 0, running: Vec::new(), served: Some(jobs.len()), submitted: jobs }
        };
        let (took, fleet) = run(case);
        figures(report, name, took, &[("cluster autoscaler", 3920.0), ("cluster autoscaler, fast path", 33.0)]);
        report.push(Figure::count(name, "nodes", fleet.nodes(), &[("bound", 2595.0)]));
    }
}

/// Karpenter's 400 instance types: type i has i+1 CPU and 2(i+1) GiB, at 0.1 USD/h for each CPU and GiB.
fn karpenter_policy() -> Policy {
    let types = (1..=400).map(|n| offering(&format!("type-{n:03}"), 0, n * 1000, n * 2 * GIB, n * 300_000));
    let mut policy = policy(types.collect(), None);
    policy.node_overhead = Rate(100_000);
    queues(&mut policy, 1);
    policy
}

fn karpenter_pod(draws: &mut Draws) -> WorkerAsk {
    let cpu = [100, 250, 500, 1000, 1500][draws.below(5) as usize];
    let mem = [100, 256, 512, 1024, 2048, 4096][draws.below(6) as usize];
    WorkerAsk { cpu: MilliCpu(cpu), mem: Mib(mem), ..ask(0, 0, 0) }
}

/// 10,000 pods of 30 shapes, bought for on 400 instance types.
pub fn karpenter_generic(report: &mut Report, size: u64) {
    let case = || {
        let mut draws = Draws(1);
        let jobs = (0..size).map(|n| job(n, "q0", karpenter_pod(&mut draws))).collect();
        Case { policy: karpenter_policy(), nodes: 0, running: Vec::new(), submitted: jobs, served: Some(size as usize) }
    };
    bought(report, "karpenter-10k-generic", run(case), &[("karpenter", 3110.0)], &[("karpenter", 24.0)]);
}

/// The same in fifths. Zone and host spread are replicas of services, one service a shape; zone affinity is a gang of one worker within a zone;
/// host anti-affinity is not sayable for jobs of different shapes, and its fifth is as generic as the first.
pub fn karpenter(report: &mut Report, size: u64) {
    let fifth = size / 5;
    let case = || {
        let mut draws = Draws(1);
        let mut jobs: Vec<JobSpec> = (0..2 * fifth).map(|n| job(n, "q0", karpenter_pod(&mut draws))).collect();
        jobs.extend((2 * fifth..3 * fifth).map(|n| JobSpec {
            within: Some(TopologyConstraint { level: Level::Zone, required: true }),
            ..job(n, "q0", karpenter_pod(&mut draws))
        }));
        for (kind, level) in [(0, Level::Zone), (1, Level::Node)] {
            for shape in 0..30 {
                let replicas = (fifth / 30 + u64::from(shape < fifth % 30)) as u32;
                let service = Service { min: replicas, max: replicas, target: 1, spread: Some(level) };
                let number = 1_000_000 + kind * 1000 + shape;
                jobs.push(JobSpec { service: Some(service), ..job(number, "q0", karpenter_pod(&mut draws)) });
            }
        }
        let mut policy = karpenter_policy();
        let zones =
            policy.offerings.clone().into_iter().flat_map(|of| ["z1", "z2", "z3"].map(|zone| (zone, of.clone())));
        policy.offerings =
            zones.map(|(zone, of)| forebay_kernel::catalog::Offering { zone: zone.to_owned(), ..of }).collect();
        policy.pools[0].offerings = (0..policy.offerings.len() as u32).collect();
        Case { policy, nodes: 0, running: Vec::new(), submitted: jobs, served: None }
    };
    bought(report, "karpenter-10k", run(case), &[("karpenter", 25_300.0), ("karpenter published", 8_100.0)], &[]);
}

fn bought(report: &mut Report, name: &str, (took, fleet): (Took, Fleet), peers: &[Peer], nodes: &[Peer]) {
    figures(report, name, took, peers);
    report.push(Figure::count(name, "nodes", fleet.nodes(), nodes));
    report.push(Figure::of(name, "cost_usd_per_hour", fleet.cost_per_hour().0 as f64 / 1e6, "USD/h", &[]));
}
