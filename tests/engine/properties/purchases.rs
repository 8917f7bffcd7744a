//! Purchases of a pass, against what each job would be bought alone and against first-fit-decreasing on each type.
//!
//! Never: gangs over several nodes, ceilings, budgets. The stories have those.

use super::holds;
use crate::cluster::{Cluster, Mode};
use crate::making::{self, workers};
use forebay_kernel::catalog::{CapacityType, Offering};
use forebay_kernel::job::{JobSpec, WorkerAsk};
use forebay_kernel::units::{Mib, MilliCpu, Rate, Span};
use proptest::prelude::*;

/// GPUs, CPU, memory.
type Room = [u64; 3];

/// A node type: what it has, micro-dollars an hour with the overhead, seconds to boot.
#[derive(Clone, Copy, Debug)]
struct Type {
    room: Room,
    rate: u64,
    boot: u64,
}

/// What a job needs, and how many seconds it is said to last.
#[derive(Clone, Copy, Debug)]
struct Asked {
    need: Room,
    lasts: u64,
}

impl Type {
    fn takes(&self, room: &Room, need: &Room) -> bool {
        room.iter().zip(need).all(|(room, need)| room >= need)
    }

    /// Until the last of what is on it is done.
    fn cost(&self, lasts: u64) -> u128 {
        u128::from(self.rate) * u128::from(self.boot + lasts)
    }
}

/// Each job on the cheapest node that holds it, alone.
fn each_alone(types: &[Type], jobs: &[Asked]) -> Option<u128> {
    let alone = |job: &Asked| {
        let costs = types.iter().filter(|of| of.takes(&of.room, &job.need)).map(|of| of.cost(job.lasts));
        costs.min()
    };
    jobs.iter().map(alone).sum()
}

/// The largest first, each on the first node of this type that has room left.
fn first_fit_decreasing(of: &Type, jobs: &[Asked]) -> Option<u128> {
    let part = |job: &Asked| job.need.iter().zip(of.room).map(|(need, room)| need * 1_000_000 / room.max(1)).max();
    let mut sorted = jobs.to_vec();
    sorted.sort_by_key(|job| core::cmp::Reverse(part(job)));
    let mut nodes: Vec<(Room, u64)> = Vec::new();
    for job in sorted {
        let at = match nodes.iter().position(|(room, _)| of.takes(room, &job.need)) {
            Some(at) => at,
            None if of.takes(&of.room, &job.need) => {
                nodes.push((of.room, 0));
                nodes.len() - 1
            }
            None => return None,
        };
        let (room, lasts) = &mut nodes[at];
        room.iter_mut().zip(job.need).for_each(|(room, need)| *room -= need);
        *lasts = job.lasts.max(*lasts);
    }
    Some(nodes.iter().map(|(_, lasts)| of.cost(*lasts)).sum())
}

/// The cheapest of those.
fn simple(types: &[Type], jobs: &[Asked]) -> Option<u128> {
    let packed = types.iter().filter_map(|of| first_fit_decreasing(of, jobs));
    packed.chain(each_alone(types, jobs)).min()
}

fn offering(at: usize, of: &Type, overhead: u64) -> Offering {
    let rate = Rate(of.rate - overhead);
    Offering {
        cpu: MilliCpu(of.room[1]),
        mem: Mib(of.room[2]),
        price: rate,
        max_price: rate,
        on_demand: rate,
        boot: Span::secs(of.boot),
        ..making::offering(&format!("type-{at}"), CapacityType::OnDemand, of.room[0] as u16, 1)
    }
}

fn spec(at: usize, job: &Asked) -> JobSpec {
    let [gpus, cpu, mem] = job.need;
    let each = WorkerAsk { gpus: gpus as u16, share: 1000, cpu: MilliCpu(cpu), mem: Mib(mem), ..WorkerAsk::default() };
    let expected = (job.lasts > 0).then(|| Span::secs(job.lasts));
    JobSpec { expected, ..making::job(&format!("j{at}"), workers(1, each)) }
}

/// What was bought for all of them in one pass: by type.
fn bought(types: &[Type], overhead: u64, jobs: &[Asked]) -> Cluster {
    let offerings = types.iter().enumerate().map(|(at, of)| offering(at, of, overhead)).collect();
    let mut policy = making::policy(offerings);
    policy.node_overhead = Rate(overhead);
    let mut world = Cluster::new(policy);
    world.mode = Mode::Quick;
    // One pass sees them all.
    world.submit_all(jobs.iter().enumerate().map(|(at, job)| spec(at, job)).collect());
    world
}

/// What nodes cost until the last of what is booked on each is done.
fn cost(world: &Cluster, types: &[Type], jobs: &[Asked]) -> u128 {
    let of = |node: &forebay_kernel::state::nodes::Node| {
        let lasts = node.holds.iter().map(|job| jobs[job.0 as usize].lasts).max().unwrap_or(3600);
        types[node.offering.index()].cost(lasts)
    };
    world.state().nodes().map(of).sum()
}

#[test]
fn bought_together_is_no_dearer_than_what_is_simple() {
    let kind = (prop::sample::select(vec![1u64, 1, 2, 4, 8]), 1u64..5, prop::sample::select(vec![600u64, 3600, 7200]));
    let of = (prop::sample::select(vec![1u64, 2, 4, 8, 16]), 80u64..130, 60u64..300);
    let inputs = (prop::collection::vec(of, 1..6), prop::collection::vec((kind, 1usize..6), 1..6), 0u64..3);
    holds("bought_together_is_no_dearer_than_what_is_simple", 256, &inputs, |(types, kinds, overhead)| {
        let overhead = overhead * 250_000;
        // About a dollar a GPU.
        let of = |(gpus, percent, boot): &(u64, u64, u64)| Type {
            room: [*gpus, gpus * 8_000, gpus * 65_536],
            rate: gpus * percent * 10_000 + overhead,
            boot: *boot,
        };
        let types: Vec<Type> = types.iter().map(of).collect();
        let jobs = kinds.iter().flat_map(|((gpus, cpu, lasts), count)| {
            let job = Asked { need: [*gpus, gpus * cpu * 1_000, 1_024], lasts: *lasts };
            core::iter::repeat_n(job, *count)
        });
        let jobs: Vec<Asked> = jobs.collect();
        let Some(simple) = simple(&types, &jobs) else { return Ok(()) };
        let world = bought(&types, overhead, &jobs);
        prop_assert!(world.state().jobs().all(|(job, _)| !job.places.is_empty()), "all are bought for");
        let cost = cost(&world, &types, &jobs);
        prop_assert!(cost * 10 <= simple * 11, "{} against {}", cost, simple);
        Ok(())
    });
}

/// Ten thousand jobs of CPU and memory, four hundred types: type i has i + 1 CPUs and twice as many GiB, 0.10 USD/h each.
#[test]
fn ten_thousand_small_jobs_take_few_nodes() {
    let overhead = 100_000;
    let types: Vec<Type> = (1..=400u64)
        .map(|n| Type { room: [0, n * 1_000, 2 * n * 1_024], rate: 100_000 * 3 * n + overhead, boot: 60 })
        .collect();
    let cpu = [100u64, 250, 500, 1_000, 1_500];
    let mem = [100u64, 256, 512, 1_024, 2_048, 4_096];
    let job = |at: usize| Asked { need: [0, cpu[at * 7 % 5], mem[at * 11 % 6]], lasts: 3_600 };
    let jobs: Vec<Asked> = (0..10_000).map(job).collect();
    let unknown: Vec<Asked> = jobs.iter().map(|job| Asked { lasts: 0, ..*job }).collect();
    let world = bought(&types, overhead, &unknown);
    let nodes = world.state().nodes().count();
    let cost = cost(&world, &types, &jobs);
    let packed = types.iter().filter_map(|of| first_fit_decreasing(of, &jobs)).min();
    assert!(world.state().jobs().all(|(job, _)| !job.places.is_empty()), "all are bought for");
    let hourly = |cost: u128| cost / 3_660;
    println!("{nodes} nodes, {} micro-USD/h; first-fit-decreasing {:?}", hourly(cost), packed.map(hourly));
    assert!(nodes <= 40, "{nodes} nodes");
    assert!(packed.is_some_and(|packed| cost <= packed), "{cost} against {packed:?}");
}
