//! Jobs that can never start among jobs that work: each one ends, and what they blame is not held against nodes that work for others.
//!
//! Never: which job gets which node, or when.

use super::holds;
use crate::cluster::{Cluster, Mode};
use crate::making::{self, ask, workers};
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::decision::Outcome;
use forebay_kernel::event::Event;
use forebay_kernel::ids::JobId;
use forebay_kernel::state::jobs::Phase;
use forebay_kernel::units::Span;
use proptest::prelude::*;

/// Starts that may fail in a row.
const STARTS: u32 = 5;

/// What becomes of the runs of a job.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Works,
    /// The cluster lets them drop.
    Drops,
    /// They blame the node that they are on.
    Blames,
    /// They never start.
    Mute,
    /// By turns.
    Varies,
}

#[test]
fn what_never_starts_ends_and_nodes_that_work_stay() {
    let kinds = vec![Kind::Works, Kind::Works, Kind::Drops, Kind::Blames, Kind::Mute, Kind::Varies];
    let job = (0u64..90, prop::sample::select(kinds), 1u32..3, 30u64..600);
    let inputs = (prop::collection::vec(job, 1..14), 2u16..5);
    holds("what_never_starts_ends", 96, &inputs, |(jobs, gpus)| {
        let mut policy = making::policy(vec![making::offering("a", CapacityType::OnDemand, gpus, 1)]);
        policy.limits.nodes = Some(30);
        policy.lifecycle.start_timeout = Span::secs(90);
        let mut world = Cluster::new(policy);
        world.mode = Mode::Quick;
        // Work that lasts, so that something runs well beside them.
        let mut kind_of = Vec::new();
        for (n, (gap, kind, size, work)) in jobs.iter().enumerate() {
            let until = world.now + gap * 1000;
            pass(&mut world, until, &kind_of);
            let spec = making::job(&format!("j{n}"), workers(*size, ask(1)));
            match kind {
                Kind::Works => _ = world.work.insert(spec.subject.clone(), work * 20_000),
                Kind::Mute => _ = world.mute.insert(spec.subject.clone()),
                _ => {}
            }
            kind_of.push(*kind);
            world.submit(spec);
        }
        let until = world.now + 3 * 3_600_000;
        pass(&mut world, until, &kind_of);
        for (n, kind) in kind_of.iter().enumerate() {
            let (row, _) = world.state().job(JobId(n as u64)).expect("a job");
            if *kind == Kind::Works {
                prop_assert_eq!((row.attempt.0, row.interruptions), (1, 0), "j{} works", n);
                continue;
            }
            prop_assert_eq!(row.phase, Phase::Done { outcome: Outcome::Failed }, "j{} is {:?}", n, kind);
            prop_assert!(row.attempt.0 <= STARTS, "j{} is {:?}: {}", n, kind, row.attempt.0);
        }
        for node in world.state().nodes() {
            prop_assert!(!node.condemned, "{} works for {:?}", node.id, &node.holds);
        }
        world.run_until(world.now + 4 * 3_600_000);
        prop_assert_eq!(world.state().nodes().count(), 0, "nothing is left");
        Ok(())
    });
}

/// Lets time pass, and the runs that cannot start come to nothing.
fn pass(world: &mut Cluster, until: u64, kind_of: &[Kind]) {
    while world.now < until {
        world.run_until(until.min(world.now + 7_000));
        for (n, kind) in kind_of.iter().enumerate() {
            let job = JobId(n as u64);
            let Some(attempt) = world.alive(job) else { continue };
            let (row, _) = world.state().job(job).expect("a job");
            let Some(place) = row.places.first().filter(|_| !matches!(row.phase, Phase::Stopping { .. })) else {
                continue;
            };
            let drops = Event::RunStopped { job, attempt, progress: None };
            let blames = Event::RunFailed { job, attempt, exit_code: 1, node_fault: Some(place.node) };
            match kind {
                Kind::Works | Kind::Mute => {}
                Kind::Drops => world.happens(drops),
                Kind::Blames => world.happens(blames),
                Kind::Varies if attempt.0.is_multiple_of(2) => world.happens(drops),
                Kind::Varies => world.happens(blames),
            }
        }
    }
}
