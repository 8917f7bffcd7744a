//! Victims against brute force on small clusters: who is stopped is enough, nobody of them could have been spared, and somebody is
//! stopped whenever stopping could help.
//!
//! Never: the order of victims; cheaper sets of the same kind are the story's business.

use super::holds;
use super::lacks::world::Loop;
use crate::cluster::{Cluster, Mode};
use crate::making::{self, ask, workers};
use alloc::collections::{BTreeMap, BTreeSet};
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::decision::{Decision, StopCause};
use forebay_kernel::event::Event;
use forebay_kernel::ids::{JobId, NodeId};
use forebay_kernel::job::{JobSpec, WorkerAsk};
use forebay_kernel::state::State;
use forebay_kernel::state::jobs::{Job, Phase};
use forebay_kernel::units::{MilliCpu, Span};
use proptest::prelude::*;

/// The ceiling.
const MOST_NODES: u64 = 3;
/// How often the runs save.
const SAVES: Span = Span::secs(30);

/// Free GPUs by node once these jobs are gone.
fn free_without(state: &State, gone: &BTreeSet<JobId>) -> BTreeMap<NodeId, u64> {
    let mut free: BTreeMap<NodeId, u64> = BTreeMap::new();
    for node in state.nodes() {
        free.insert(node.id, node.slots.iter().filter(|s| s.workers == 0).count() as u64);
    }
    // What may still be bought beside them: nodes of four GPUs.
    for n in free.len() as u64..MOST_NODES {
        free.insert(NodeId(1_000 + n), 4);
    }
    for job in gone {
        for place in &state.job(*job).expect("a row").0.places {
            *free.entry(place.node).or_default() += u64::from(place.gpus.count_ones());
        }
    }
    free
}

/// Whether a gang of `count` workers of `gpus` fits.
fn fits(free: &BTreeMap<NodeId, u64>, count: u32, gpus: u16) -> bool {
    free.values().map(|n| n / u64::from(gpus)).sum::<u64>() >= u64::from(count)
}

#[test]
fn victims_are_enough_and_none_too_many() {
    let low = prop::collection::vec((1u32..4, 1u16..4, any::<bool>()), 1..9);
    let inputs = (low, 1u32..4, 1u16..5, any::<bool>());
    holds("victims_are_enough", 1800, &inputs, |(low, count, gpus, normal)| {
        let offering = making::offering("spot", CapacityType::Spot, 4, 1);
        let mut policy = making::policy(vec![offering]);
        policy.limits.nodes = Some(MOST_NODES as u32);
        let mut world = Cluster::new(policy);
        world.mode = Mode::Quick;
        for (n, (count, gpus, scavenges)) in low.iter().enumerate() {
            let mut spec = making::job(&format!("j{n}"), workers(*count, ask(*gpus)));
            spec.checkpoint = making::saves(SAVES, Span::secs(9));
            // Nodes come by the normal ones; scavengers fill what is left.
            spec.queue = if *scavenges { "scavenger" } else { "normal" }.into();
            world.submit(spec);
        }
        world.run_until(100_000);
        let before = world.state().clone();
        let mut spec = making::job("high", workers(count, ask(gpus)));
        spec.queue = if normal { "normal" } else { "critical" }.into();
        world.submit(spec);
        let high = world.id("high").expect("accepted");
        let batch = world.log.batches.last().expect("a batch");
        let victims: BTreeSet<JobId> = batch
            .decisions
            .iter()
            .filter_map(|d| match d {
                Decision::Stop { job, cause: StopCause::Preempted { by }, .. } if *by == high => Some(*job),
                _ => None,
            })
            .collect();
        // What is kept for a gang before it is nothing to it.
        let in_front = |job: JobId| normal && before.job(job).is_some_and(|(job, _)| job.tier.index() < 2);
        let kept = |id: &NodeId| before.reservations().values().any(|a| in_front(a.job) && a.nodes.contains(id));
        let free_without = |gone: &BTreeSet<JobId>| {
            let mut free = free_without(&before, gone);
            free.retain(|id, _| !kept(id));
            free
        };
        // A restarted run is left alone until it has saved something again.
        let fresh = |job: &Job| {
            let again = job.running_since.is_some_and(|at| before.now().since(at) < SAVES);
            job.attempt.0 > 1 && again
        };
        let reach = |job: &Job| job.phase == Phase::Running && job.tier.index() > usize::from(normal) && !fresh(job);
        let running: BTreeSet<JobId> = before.jobs().filter(|(job, _)| reach(job)).map(|(job, _)| job.id).collect();
        prop_assert!(victims.is_subset(&running), "{victims:?} out of reach");
        let row = world.state().job(high).expect("a row").0;
        if victims.is_empty() {
            let helps = fits(&free_without(&running), count, gpus);
            let waits = row.phase == Phase::Queued;
            let full = before.nodes().count() as u64 == MOST_NODES;
            prop_assert!(!(waits && helps && full), "stopping would help, nobody is stopped");
        } else {
            prop_assert!(fits(&free_without(&victims), count, gpus), "not enough");
            for spared in &victims {
                let rest = victims.iter().copied().filter(|v| v != spared).collect();
                let enough = fits(&free_without(&rest), count, gpus);
                prop_assert!(!enough, "{spared} could have been spared of {victims:?}");
            }
        }
        Ok(())
    });
}

/// Sixty-four over as many runs, which take from no time to 80 s to stop: what one run frees is taken at once by whoever comes first, and the
/// last of them starts when the last run has stopped. Nobody is stopped twice.
#[test]
fn the_last_starts_when_the_last_has_stopped() {
    const RUNS: u32 = 64;
    let mut policy = making::policy(vec![making::offering("a", CapacityType::OnDemand, 8, 16)]);
    policy.limits.nodes = Some(RUNS / 8);
    let mut world = Loop::new(policy, 60_000).expect("a world");
    for (queue, at) in [("normal", 0), ("critical", 3_000_000)] {
        world.now = at;
        for n in 0..RUNS {
            let mut spec = making::job(&format!("{queue}{n}"), workers(1, ask(1)));
            spec.queue = queue.into();
            spec.checkpoint = making::saves(Span::mins(10), Span::mins(2));
            // Of three classes, so that what is kept for one is beside what is kept for the other.
            spec.gang = workers(1, WorkerAsk { cpu: MilliCpu(u64::from(n % 3) * 100), ..ask(1) });
            world.step(Some(Event::JobSubmitted(Box::new(spec)))).expect("a step");
        }
        world.slowest_stop = 80_000;
        let running = |world: &Loop| world.engine.state().jobs().filter(|(job, _)| job.phase == Phase::Running).count();
        if at == 0 {
            world.rest(at + 200_000).expect("rest");
            assert_eq!(running(&world), RUNS as usize, "all of them run");
            continue;
        }
        assert_eq!(world.stops, RUNS, "one run for each");
        // It goes on until the last has stopped.
        world.rest(at + 85_000).expect("rest");
        let critical = |(job, spec): &(&Job, &JobSpec)| job.phase == Phase::Running && spec.queue == "critical";
        let count = world.engine.state().jobs().filter(critical).count();
        assert_eq!((count, world.stops), (RUNS as usize, RUNS), "all of them run, and nobody was stopped twice");
    }
}
