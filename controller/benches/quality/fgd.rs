//! Packing pods with shares of GPUs, CPU and memory onto nodes until nothing fits: FGD (ATC 2023) on Alibaba's pods and nodes.
//!
//! ```text
//! pods, shuffled, and more of them drawn up to 130 % of all GPUs -> each tried once -> allocated share of GPUs at 100 and 130 % arrived
//! ```
//!
//! What is approximated: nodes that nobody bought do not share GPUs in a written policy, so the pool of the policy is made one of owned nodes here,
//! its rules for sharing kept. Nodes are given in the order of their names.
//!
//! Never: a pod tried twice, or one that leaves.

use crate::arguments::Arguments;
use crate::figures::ComparedFigure;
use crate::world::InstantWorld;
use crate::{inputs, made};
use forebay_kernel::event::Event;
use forebay_kernel::job::JobSpec;
use forebay_kernel::policy::Policy;
use forebay_kernel::state::owned::OwnedPool;
use forebay_sim::convert::{Assumptions, Converter, TENANT};
use forebay_sim::trace::{self, SplitMix64, TraceJob, TraceNode};
use std::collections::BTreeMap;
use std::time::Instant;

const SEEDS: u64 = 10;
const AT_100: [(&str, f64); 4] = [("random", 86.25), ("packing", 91.80), ("best fit", 92.91), ("FGD", 95.23)];
const AT_130: [(&str, f64); 4] = [("random", 87.38), ("packing", 92.06), ("best fit", 93.11), ("FGD", 95.40)];

pub fn run(arguments: &Arguments) -> Result<Vec<ComparedFigure>, String> {
    let (pods, ours) = inputs::given_or(arguments.trace.as_ref(), "openb_2023_default.csv");
    let (nodes, own_nodes) = inputs::given_or(arguments.nodes.as_ref(), "openb_2023_nodes.csv");
    let (pods, mut nodes) = match (pods, nodes) {
        (Some(pods), Some(nodes)) => (
            trace::read(pods, None).map_err(|e| e.to_string())?.jobs,
            trace::read_nodes(nodes).map_err(|e| e.to_string())?,
        ),
        _ => made::packing(1, 200),
    };
    nodes.sort_by(|a, b| a.id.cmp(&b.id));
    let policy = fleet_policy(inputs::policy("fgd")?)?;
    let (mut at_100, mut at_130, mut wrong) = (Vec::new(), Vec::new(), 0u64);
    for seed in 1..=SEEDS.min(arguments.seeds) {
        let begun = Instant::now();
        let run = pack(&policy, &pods, &nodes, seed)?;
        eprintln!("fgd: seed {seed}: {:.2} s", begun.elapsed().as_secs_f64());
        at_100.push(run.at_100);
        at_130.push(run.at_130);
        wrong += run.refused_though_it_fitted;
    }
    let published = |list: &[(&'static str, f64)]| if ours || own_nodes { Vec::new() } else { list.to_vec() };
    let row =
        |metric: &str, figure, unit, published| ComparedFigure { metric: metric.to_owned(), figure, unit, published };
    Ok(vec![
        row("allocated_at_100_pct", median(at_100), "%", published(&AT_100)),
        row("allocated_at_130_pct", median(at_130), "%", published(&AT_130)),
        row("refused_though_it_fitted", wrong as f64, "pods", published(&[("FGD", 0.0)])),
    ])
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    let mid = of.len() / 2;
    if of.len().is_multiple_of(2) { (of[mid - 1] + of[mid]) / 2.0 } else { of[mid] }
}

#[derive(Debug, Default)]
struct Packed {
    at_100: f64,
    at_130: f64,
    refused_though_it_fitted: u64,
}

/// The pool of the policy with nodes that are there.
fn fleet_policy(mut policy: Policy) -> Result<Policy, String> {
    let pool = policy.pools.first_mut().ok_or("the policy has no pool")?;
    pool.offerings.clear();
    pool.owned =
        Some(OwnedPool { labels: [("fleet".to_owned(), vec!["all".to_owned()])].into(), ..OwnedPool::default() });
    Ok(policy)
}

fn pack(policy: &Policy, pods: &[TraceJob], nodes: &[TraceNode], seed: u64) -> Result<Packed, String> {
    let mut converter = Converter::new(policy, Assumptions { checkpoint_every: None, ..Assumptions::default() });
    let mut world = InstantWorld::new(policy.clone(), 0)?;
    let pool = policy.pools[0].name.clone();
    world.happen(inputs::listed_nodes(nodes, &pool))?;
    let all = nodes.iter().map(|node| u64::from(node.gpus) * 1000).sum::<u64>();
    let mut fleet = Fleet::of(nodes);
    let (mut arrived, mut allocated) = (0u64, 0u64);
    let mut packed = Packed::default();
    let pct = |part: u64| part as f64 * 100.0 / all as f64;
    for (nth, mut pod) in arrivals(pods, all, seed).into_iter().enumerate() {
        let asked = u64::from(pod.gpus) * u64::from(pod.gpu_milli);
        // A pod is on one node, and is another each time it is drawn.
        pod.workers = Some(1);
        pod.id = format!("pod-{nth:06}");
        let (spec, _) = converter.job(&pod);
        world.until(world_ms(nth))?;
        let event = world.submission(spec.clone(), None, 0);
        world.happen(vec![event])?;
        arrived += asked;
        if fleet.took(&world, &spec) {
            allocated += asked;
        } else {
            packed.refused_though_it_fitted += u64::from(fleet.fits(&pod));
            let subject = spec.subject;
            world.happen(vec![Event::JobCancelled { tenant: TENANT.to_owned(), subject, by: None, sent: None }])?;
        }
        if arrived >= all && packed.at_100 == 0.0 {
            packed.at_100 = pct(allocated);
        }
    }
    packed.at_130 = pct(allocated);
    Ok(packed)
}

/// One millisecond for each pod: no time-out comes on the way.
fn world_ms(nth: usize) -> u64 {
    nth as u64
}

/// The pods, shuffled, and more of them with replacement, until they ask for 130 % of all GPUs.
fn arrivals(pods: &[TraceJob], all: u64, seed: u64) -> Vec<TraceJob> {
    let mut rng = SplitMix64::named(seed, "arrivals");
    let below = |rng: &mut SplitMix64, n: usize| usize::try_from(rng.below(n as u64)).unwrap_or(0);
    let mut order: Vec<usize> = (0..pods.len()).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, below(&mut rng, at + 1));
    }
    let (mut asked, mut list) = (0, Vec::new());
    let mut order = order.into_iter();
    while asked * 10 < all * 13 {
        let at = order.next().unwrap_or_else(|| below(&mut rng, pods.len()));
        asked += u64::from(pods[at].gpus) * u64::from(pods[at].gpu_milli);
        list.push(pods[at].clone());
    }
    list
}

/// What is free, kept apart from the engine.
struct Fleet {
    free: Vec<(Vec<u32>, u64, u64, Option<String>)>,
    /// The node of the fleet for each of the engine's.
    by_id: BTreeMap<forebay_kernel::ids::NodeId, usize>,
    by_name: BTreeMap<String, usize>,
}

impl Fleet {
    fn of(nodes: &[TraceNode]) -> Fleet {
        let free = nodes.iter().map(|n| (vec![1000; n.gpus as usize], n.cpu_milli, n.mem_mib, n.gpu_model.clone()));
        let by_name = nodes.iter().enumerate().map(|(at, node)| (node.id.clone(), at)).collect();
        Fleet { free: free.collect(), by_id: BTreeMap::new(), by_name }
    }

    /// Whether a pod was started; what it holds is taken then.
    fn took(&mut self, world: &InstantWorld, spec: &JobSpec) -> bool {
        let Some(job) = world.state().job_of(&spec.tenant, &spec.subject) else { return false };
        let Some(run) = world.runs().get(&job) else { return false };
        let forebay_kernel::job::Gang::Workers { each, .. } = spec.gang else { return false };
        for worker in &run.workers {
            let name = || world.state().node(worker.node).and_then(|node| node.instance.clone()).unwrap_or_default();
            let at = *self.by_id.entry(worker.node).or_insert_with(|| self.by_name[&name()]);
            let (gpus, cpu, mem, _) = &mut self.free[at];
            for (_, gpu) in gpus.iter_mut().enumerate().filter(|(gpu, _)| worker.gpus & (1 << gpu) != 0) {
                *gpu -= u32::from(worker.share);
            }
            (*cpu, *mem) = (*cpu - each.cpu.0, *mem - each.mem.0);
        }
        true
    }

    /// Whether a pod would fit on some node.
    fn fits(&self, pod: &TraceJob) -> bool {
        self.free.iter().any(|(gpus, cpu, mem, model)| {
            let models = pod.gpu_models.is_empty() || model.as_ref().is_some_and(|m| pod.gpu_models.contains(m));
            let least = if pod.gpus == 0 { 0 } else { pod.gpu_milli };
            let enough = gpus.iter().filter(|free| **free >= least).count() >= pod.gpus as usize;
            models && enough && *cpu >= pod.cpu_milli && *mem >= pod.mem_mib
        })
    }
}
