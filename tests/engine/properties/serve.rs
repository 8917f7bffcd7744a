//! Services against a brute-force oracle: how many replicas there are to be is found by looking at the demand of every second that
//! still counts.
//!
//! Never: the engine's list of needs. The oracle knows only what was asked when.

use super::holds;
use crate::cluster::{Cluster, Mode};
use crate::making::{self, ask, workers};
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::decision::StopCause;
use forebay_kernel::event::{Event, GoneWhy};
use forebay_kernel::ids::JobId;
use forebay_kernel::job::{JobSpec, Service};
use forebay_kernel::state::jobs::Phase;
use forebay_kernel::units::Span;
use proptest::prelude::*;

/// What happens after so many seconds.
#[derive(Clone, Debug)]
enum Step {
    Asked(u32),
    Fails(prop::sample::Index),
    Loses(prop::sample::Index),
    Nothing,
}

fn steps() -> impl Strategy<Value = Vec<(u64, Step)>> {
    let step = prop_oneof![
        6 => (0u32..40).prop_map(Step::Asked),
        1 => any::<prop::sample::Index>().prop_map(Step::Fails),
        1 => any::<prop::sample::Index>().prop_map(Step::Loses),
        2 => Just(Step::Nothing),
    ];
    prop::collection::vec((0u64..400, step), 1..25)
}

fn services() -> impl Strategy<Value = Service> {
    (0u32..4, 0u32..5, 1u32..12).prop_map(|(min, more, target)| {
        let max = (min + more).max(1);
        Service { min, max, target, spread: None }
    })
}

/// The most that was needed at a second of the last `keep` seconds, this one included.
fn wanted(rule: &Service, asked: &[(u64, u32)], keep: u64, now: u64) -> usize {
    let at = |second: u64| asked.iter().rev().find(|(from, _)| *from <= second).map_or(0, |(_, demand)| *demand);
    let needed = |demand: u32| {
        let mut replicas = 0;
        while replicas * rule.target < demand && replicas < rule.max {
            replicas += 1;
        }
        replicas.max(rule.min) as usize
    };
    (now.saturating_sub(keep)..=now).map(|second| needed(at(second))).max().unwrap_or_default()
}

/// Replicas that are not being given back.
fn standing(world: &Cluster, service: JobId) -> Vec<JobId> {
    let stays = |id: &JobId| {
        let row = world.state().job(*id).expect("a row").0;
        !matches!(row.phase, Phase::Stopping { cause: StopCause::Scaled, .. })
    };
    world.state().replicas(service).filter(stays).collect()
}

fn happens(world: &mut Cluster, service: JobId, step: &Step) {
    let runs: Vec<JobId> = standing(world, service).into_iter().filter(|id| world.alive(*id).is_some()).collect();
    let event = match step {
        Step::Asked(concurrency) => {
            Event::ServiceDemand { tenant: "t".into(), subject: "svc".into(), by: None, concurrency: *concurrency }
        }
        Step::Fails(which) if !runs.is_empty() => {
            let job = *which.get(&runs);
            let attempt = world.alive(job).expect("a run");
            Event::RunFailed { job, attempt, exit_code: 1, node_fault: None }
        }
        Step::Loses(which) if !runs.is_empty() => {
            let row = world.state().job(*which.get(&runs)).expect("a row").0;
            let instance = world.instance(row.places[0].node).expect("an instance");
            Event::NodeGone { instance, why: GoneWhy::Lost }
        }
        _ => return,
    };
    world.happens(event);
}

#[test]
fn replicas_are_what_the_last_demand_takes() {
    let inputs = (services(), steps(), 0u64..600, prop::option::of(1usize..5));
    holds("replicas_are_what_the_last_demand_takes", 96, &inputs, |(rule, steps, keep, crashes)| {
        let mut policy = making::policy(vec![making::offering("spot", CapacityType::Spot, 2, 1)]);
        policy.lifecycle.scale_down_after = Span::secs(keep);
        let mut world = Cluster::new(policy);
        world.mode = crashes.map_or(Mode::Plain, Mode::Crashes);
        let spec = JobSpec { service: Some(rule), ..making::job("svc", workers(1, ask(1))) };
        world.submit(spec);
        let service = world.id("svc").expect("a service");
        let mut asked: Vec<(u64, u32)> = Vec::new();
        let mut now = 0;
        for (delay, step) in &steps {
            // Half way, and then where it happens.
            for at in [now + delay / 2, now + delay] {
                world.run_until(at * 1000);
                let found = standing(&world, service).len();
                prop_assert_eq!(found, wanted(&rule, &asked, keep, at), "at {} s of {:?}", at, &asked);
            }
            now += delay;
            if let Step::Asked(demand) = step {
                asked.push((now, *demand));
            }
            happens(&mut world, service, step);
            prop_assert_eq!(standing(&world, service).len(), wanted(&rule, &asked, keep, now));
        }
        let counters = *world.state().counters();
        prop_assert_eq!(world.state().open_jobs(), 1);
        prop_assert_eq!(counters.outcomes, [0; 4]);
        world
            .step(vec![Event::JobCancelled { tenant: "t".into(), subject: "svc".into(), by: None, sent: None }], false);
        world.run_until((now + 3600) * 1000);
        prop_assert_eq!(world.state().counters().outcomes, [0, 0, 1, 0]);
        prop_assert_eq!(world.state().open_jobs() + world.state().nodes().count(), 0);
        Ok(())
    });
}
