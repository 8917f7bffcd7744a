//! Planted optima: 500 runs of one tier, each with its own cost, of which a head needs some. The cheapest set is known without a search.
//!
//! ```text
//! singles   a gang of single GPUs: the cheapest runs
//! nodes     a gang of workers that need whole nodes: the nodes whose runs cost least together, cheap runs standing beside dear ones
//! ```
//!
//! Never: more than one tier or queue. There the sum of money decides alone.

use super::world::{Dice, Loop};
use crate::making::{self, ask, workers};
use alloc::collections::BTreeMap;
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::decision::Decision;
use forebay_kernel::event::Event;
use forebay_kernel::ids::{JobId, NodeId};
use forebay_kernel::units::Span;

const RUNS: u64 = 500;
const A_NODE: u16 = 4;

/// What the head takes and the least that would do, in milliseconds of one GPU.
fn taken_and_least(seed: u64, gpus: u16) -> Result<(u64, u64), String> {
    let mut dice = Dice(seed);
    let mut policy = making::policy(vec![making::offering("spot", CapacityType::Spot, A_NODE, 4)]);
    policy.limits.nodes = Some(RUNS as u32 / u32::from(A_NODE));
    let mut world = Loop::new(policy, 0)?;
    for n in 0..RUNS {
        let mut spec = making::job(&format!("j{n}"), workers(1, ask(1)));
        spec.restart = Span::secs(1 + dice.roll(3_600));
        world.step(Some(Event::JobSubmitted(Box::new(spec))))?;
    }
    world.rest(world.now + 600_000)?;
    let state = world.engine.state();
    let mut costs: BTreeMap<JobId, u64> = BTreeMap::new();
    let mut nodes: BTreeMap<NodeId, u64> = BTreeMap::new();
    for (job, spec) in state.jobs().filter(|(job, _)| job.running_since.is_some()) {
        let cost = world.now - job.saved_at.0 + spec.restart.0;
        costs.insert(job.id, cost);
        *nodes.entry(job.places[0].node).or_default() += cost;
    }
    assert_eq!(costs.len() as u64, RUNS, "all of them run");
    let count = 1 + dice.roll(20) as u32;
    let mut sorted: Vec<u64> =
        if gpus == 1 { costs.values().copied().collect() } else { nodes.into_values().collect() };
    sorted.sort_unstable();
    let least = sorted.iter().take(count as usize).sum();
    let mut head = making::job("head", workers(count, ask(gpus)));
    head.queue = "critical".into();
    world.step(Some(Event::JobSubmitted(Box::new(head))))?;
    let stopped = world.decided.iter().filter_map(|decision| match decision {
        Decision::Stop { job, .. } => costs.get(job),
        _ => None,
    });
    let stopped: Vec<u64> = stopped.copied().collect();
    assert_eq!(stopped.len() as u32, count * u32::from(gpus), "seed {seed}: as many as it needs");
    Ok((stopped.into_iter().sum(), least))
}

#[test]
fn planted_optima_are_found() {
    for seed in 0..12 {
        for gpus in [1, A_NODE] {
            let (taken, least) = taken_and_least(seed, gpus).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
            // At a dollar an hour and GPU, 0.05 USD are three minutes.
            assert!(
                taken * 2 <= least * 3 + 360_000,
                "seed {seed}, {gpus} GPUs a worker: {taken} ms, {least} would do"
            );
        }
    }
}
