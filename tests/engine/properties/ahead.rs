//! Reservations ahead and deadlines against plain bounds: a big gang in a random stream of small jobs starts in time, whatever comes;
//! a deadline that could be met is met, whatever spot does.
//!
//! Never: the engine's own estimates. A bound is reckoned from the true lengths alone.

use super::holds;
use crate::cluster::{Cluster, Mode};
use crate::making::{self, ask, workers};
use core::sync::atomic::{AtomicUsize, Ordering};
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::decision::Decision;
use forebay_kernel::event::{Event, GoneWhy, LaunchError};
use forebay_kernel::ids::{OfferingId, PoolId};
use forebay_kernel::job::JobSpec;
use forebay_kernel::policy::Pool;
use forebay_kernel::state::nodes::NodePhase;
use forebay_kernel::units::{Span, Timestamp};
use proptest::prelude::*;

/// A small job: comes so long after the one before, works so long, and says so or nothing.
type Small = (u64, u64, bool);

fn small(n: usize, (_, work, says): Small) -> JobSpec {
    let mut spec = making::job(&format!("s{n}"), workers(1, ask(1)));
    spec.expected = says.then_some(Span::secs(work));
    spec
}

#[test]
fn a_big_gang_starts_in_a_stream_of_small_jobs() {
    let stream = prop::collection::vec((1u64..90, 20u64..500, any::<bool>()), 20..60);
    holds("a_big_gang_starts", 150, &(stream, 2u32..5, 0usize..12), |(stream, nodes, after)| {
        let mut policy = making::policy(vec![making::offering("spot", CapacityType::Spot, 1, 1)]);
        policy.limits.nodes = Some(nodes);
        let mut world = Cluster::new(policy);
        world.mode = Mode::Careful;
        let (mut came, mut longest) = (0, 0);
        for (n, job) in stream.iter().enumerate() {
            world.run_until(world.now + job.0 * 1000);
            if n == after {
                let mut big = making::job("big", workers(nodes, ask(1)));
                big.expected = Some(Span::secs(60));
                came = world.now;
                // All that are in front of it, one after the other on one node each.
                let before = stream[..n].iter().map(|s| s.1).sum::<u64>();
                longest = before + stream.iter().map(|s| s.1).max().unwrap_or(0);
                world.work.insert("big".into(), 60_000);
                world.submit(big);
            }
            let spec = small(n, *job);
            world.work.insert(spec.subject.clone(), job.1 * 1000);
            world.submit(spec);
        }
        world.run_until(world.now + 3 * 3_600_000);
        let big = world.id("big").expect("accepted");
        let started = world.state().job(big).expect("a row").0.first_start;
        // A boot, a launch and the start of each of those in front, and its own.
        let by = came + longest * 1000 + (after as u64 + 2) * 70_000;
        prop_assert!(started.is_some_and(|at| at.0 <= by), "started {started:?}, by {by}");
        Ok(())
    });
}

/// Without anyone who would reserve, nothing is reserved.
#[test]
fn single_gpus_reserve_nothing() {
    let stream = prop::collection::vec((1u64..90, 20u64..500, any::<bool>()), 1..40);
    holds("single_gpus_reserve_nothing", 60, &stream, |stream| {
        let mut policy = making::policy(vec![making::offering("spot", CapacityType::Spot, 2, 1)]);
        policy.limits.nodes = Some(2);
        let mut world = Cluster::new(policy);
        world.mode = Mode::Quick;
        for (n, job) in stream.iter().enumerate() {
            world.run_until(world.now + job.0 * 1000);
            world.work.insert(format!("s{n}"), job.1 * 1000);
            world.submit(small(n, *job));
        }
        let ahead = |d: &&Decision| matches!(d, Decision::MakeReservation { .. } | Decision::Backfill { .. });
        let made = world.log.batches.iter().flat_map(|b| &b.decisions).filter(ahead).count();
        prop_assert_eq!(made, 0);
        Ok(())
    });
}

/// Comes so long after the one before, works so long, asks so many GPUs, says how long or nothing, may run so long, and whose it is.
type Mixed = (u64, u64, u16, bool, Option<u64>, u8);

/// A reservation goes by the runs that end first. Where they are found without a look at all of them they are the same, whether their ends are
/// stated, learned by who submits them or bounded.
#[test]
fn what_ends_first_is_found_without_a_look_at_all() {
    let limit = prop::option::weighted(0.2, 30u64..400);
    let one = (1u64..30, 10u64..900, 1u16..5, prop::bool::weighted(0.3), limit, 0u8..3);
    let stream = prop::collection::vec(one, 40..90);
    let made = AtomicUsize::new(0);
    holds("what_ends_first_is_found", 120, &(stream, 4u32..10, 6usize..14), |(stream, nodes, every)| {
        let live = |mode| {
            let mut policy = making::policy(vec![making::offering("spot", CapacityType::Spot, 4, 1)]);
            policy.limits.nodes = Some(nodes);
            let mut world = Cluster::new(policy);
            world.mode = mode;
            for (n, job) in stream.iter().enumerate() {
                world.run_until(world.now + job.0 * 1000);
                world.work.insert(format!("s{n}"), job.1 * 1000 * u64::from(job.5 + 1));
                world.submit(mixed(n, *job, every, nodes));
            }
            world.run_until(world.now + 2 * 3_600_000);
            world
        };
        let (one, plain) = (live(Mode::Quick), live(Mode::NoMemos));
        for (a, b) in one.log.batches.iter().zip(&plain.log.batches) {
            prop_assert_eq!(&a.decisions, &b.decisions, "at {}", a.tick.now.0);
        }
        let reserves = |d: &&Decision| matches!(d, Decision::MakeReservation { .. });
        made.fetch_add(one.log.batches.iter().flat_map(|b| &b.decisions).filter(reserves).count(), Ordering::Relaxed);
        Ok(())
    });
    assert!(made.into_inner() > 0, "nothing was reserved");
}

/// A policy that puts another pool first renames those of runs: what ends first in a pool is still known, and nothing of what it was before.
#[test]
fn runs_follow_their_pools_into_another_policy() {
    let pool = |name: &str, at| Pool { offerings: vec![at], ..making::pool(name, 0) };
    let policy = |first: u16| {
        let offerings = ["one", "two"].map(|name| making::offering(name, CapacityType::Spot, 2, 1));
        let mut policy = making::policy(offerings.to_vec());
        policy.limits.nodes = Some(2);
        policy.pools = vec![pool("one", 0), pool("two", 1)];
        policy.pools.rotate_left(usize::from(first));
        for rule in policy.queues.values_mut() {
            rule.pools = vec![PoolId(first), PoolId(1 - first)];
        }
        policy
    };
    let mut world = Cluster::new(policy(0));
    world.mode = Mode::Careful;
    for n in 0..4u64 {
        world.work.insert(format!("s{n}"), 600_000 + n * 60_000);
        world.submit(making::job(&format!("s{n}"), workers(1, ask(1))));
    }
    world.run_until(world.now + 120_000);
    world.happens(Event::Configured(Box::new(policy(1))));
    world.work.insert("gang".into(), 600_000);
    world.submit(making::job("gang", workers(1, ask(2))));
    world.run_until(world.now + 60_000);
    assert!(!world.state().reservations().is_empty(), "it waits for the first that end");
    world.run_until(world.now + 3_600_000);
    let done = |subject: &str| world.state().job(world.id(subject)?).map(|(row, _)| row.done());
    let all: Vec<_> = ["s0", "s1", "s2", "s3", "gang"].iter().map(|subject| done(subject)).collect();
    assert_eq!(all, [Some(true); 5]);
}

fn mixed(n: usize, (_, work, gpus, says, limit, whose): Mixed, every: usize, nodes: u32) -> JobSpec {
    let gang = if n.is_multiple_of(every) { workers(nodes / 2 + 1, ask(gpus)) } else { workers(1, ask(gpus)) };
    let mut spec = making::job(&format!("s{n}"), gang);
    spec.principal = format!("p{whose}");
    spec.expected = says.then_some(Span::secs(work));
    spec.max_run = limit.map(Span::secs);
    spec
}

#[test]
fn a_deadline_in_reach_is_met_whatever_spot_does() {
    // What befalls spot: so long after the last, and what.
    let fates = prop::collection::vec((1u64..400, 0u8..5), 0..40);
    let inputs = (fates, 60u64..2000, 0u64..4000, 0u64..60, any::<bool>());
    holds("a_deadline_in_reach", 400, &inputs, |(fates, work, slack, restart, saves)| {
        let offerings = vec![
            making::offering("spot", CapacityType::Spot, 1, 1),
            making::offering("dear", CapacityType::OnDemand, 1, 5),
        ];
        let mut world = Cluster::new(making::policy(offerings));
        world.mode = Mode::Careful;
        let mut spec = making::job("job", workers(1, ask(1)));
        // Twice a boot, a restart and a grace of 30 s; launches, starts and stops of the world take 17 s in all.
        let least = work + 2 * (60 + restart + 30) + restart + 17;
        let deadline = (least + slack) * 1000;
        spec.expected = Some(Span::secs(work));
        spec.deadline = Some(Timestamp(deadline));
        spec.restart = Span::secs(restart);
        spec.checkpoint = making::saves(Span::mins(10), Span::secs(30));
        world.work.insert("job".into(), work * 1000);
        world.submit(spec);
        for (wait, fate) in fates {
            world.run_until(world.now + wait * 1000);
            befall(&mut world, fate, saves);
        }
        world.run_until(deadline + 3_600_000);
        let row = world.state().job(world.id("job").expect("accepted")).expect("a row").0;
        let ended = row.ended.map(|at| at.0);
        prop_assert!(ended.is_some_and(|at| at <= deadline), "ended {ended:?}, deadline {deadline}");
        Ok(())
    });
}

/// Stock of spot goes or comes, or the cloud takes back what it has sold of it, with or without a warning.
fn befall(world: &mut Cluster, fate: u8, warned: bool) {
    let spot = OfferingId(0);
    match fate {
        0 => world.stock.entry(spot).or_default().refuses = Some(LaunchError::Capacity),
        1 => world.stock.entry(spot).or_default().refuses = None,
        _ => {
            let up = |n: &&forebay_kernel::state::nodes::Node| n.offering == spot && n.phase == NodePhase::Ready;
            let Some(instance) = world.state().nodes().find(up).and_then(|n| n.instance.clone()) else {
                return;
            };
            let why = GoneWhy::Reclaimed;
            if warned {
                let at = Timestamp(world.now + 120_000);
                world.soon(120_000, Event::NodeGone { instance: instance.clone(), why });
                world.happens(Event::ReclaimNotice { instance, at });
            } else {
                world.happens(Event::NodeGone { instance, why });
            }
        }
    }
}
