//! Changes of policy: whoever waits for what the policy in force can never give is held and told so, at once, and nobody else is.
//!
//! The oracle knows which queues are declared and one number a queue, and compares it with what a job asks.

use super::holds;
use crate::cluster::{Cluster, Mode};
use crate::making::{self, ask, workers};
use alloc::collections::BTreeMap;
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::decision::Outcome;
use forebay_kernel::effect::StatusKind;
use forebay_kernel::event::Event;
use forebay_kernel::ids::{PoolId, QuotaId};
use forebay_kernel::policy::{Policy, QuotaLimit, QuotaNode};
use forebay_kernel::state::jobs::Phase;
use forebay_kernel::units::{MilliGpu, Span};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

const QUEUES: usize = 3;

/// By queue: its quota in GPUs, while it is declared.
type Queues = [Option<u16>; QUEUES];

#[derive(Clone, Debug)]
enum Op {
    Submit { queue: usize, gpus: u16 },
    Configure(Queues),
    Fail(usize),
    Cancel(usize),
    Wait(u64),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let queue = prop::option::weighted(0.8, 0..=8u16);
    let op = prop_oneof![
        4 => (0..QUEUES, 1..=8u16).prop_map(|(queue, gpus)| Op::Submit { queue, gpus }),
        2 => [queue.clone(), queue.clone(), queue].prop_map(Op::Configure),
        1 => (0..20usize).prop_map(Op::Fail),
        1 => (0..20usize).prop_map(Op::Cancel),
        3 => (1..200_000u64).prop_map(Op::Wait),
    ];
    prop::collection::vec(op, 1..40)
}

fn policy(queues: &Queues) -> Policy {
    let mut policy = making::policy(vec![making::offering("spot", CapacityType::Spot, 8, 1)]);
    policy.quotas.clear();
    policy.queues.clear();
    for (at, gpus) in queues.iter().enumerate() {
        let Some(gpus) = gpus else { continue };
        let name = format!("q{at}");
        let limit = QuotaLimit { nominal: MilliGpu::whole(u64::from(*gpus)), borrow: Some(MilliGpu(0)), lend: None };
        let limits = BTreeMap::from([(PoolId(0), limit)]);
        let quota = QuotaId(policy.quotas.len() as u16);
        policy.quotas.push(QuotaNode { name: name.clone(), limits, ..QuotaNode::default() });
        policy.queues.insert(name, forebay_kernel::policy::QueueRule { quota, ..making::rule(1) });
    }
    policy
}

/// What is in the way of a job, whatever is free.
fn oracle(queues: &Queues, (queue, gpus): (usize, u16)) -> Option<&'static str> {
    match queues[queue] {
        None => Some("UnknownQueue"),
        Some(quota) if gpus > quota => Some("ExceedsMaxQuota"),
        Some(_) => None,
    }
}

fn check(world: &Cluster, queues: &Queues, asked: &[(usize, u16)]) -> TestCaseResult {
    for (n, asked) in asked.iter().enumerate() {
        let Some(id) = world.state().job_of("t", &format!("j{n}")) else { continue };
        let Some((job, _)) = world.state().job(id) else { continue };
        let (is, code) = (job.phase, world.engine.why(id).map(forebay_kernel::reason::Reason::code));
        let said = world.log.statuses.iter().rfind(|s| s.job == Some(id)).map(|s| s.kind);
        match is {
            Phase::Done { outcome } => prop_assert!(outcome != Outcome::Failed, "j{n} failed"),
            Phase::Held => {
                prop_assert_eq!(code, oracle(queues, *asked), "j{} is held", n);
                prop_assert_eq!(said, Some(StatusKind::Held), "j{} was told", n);
            }
            Phase::Queued | Phase::Booked | Phase::BackingOff { .. } => {
                prop_assert_eq!(oracle(queues, *asked), None, "j{} waits, {:?}", n, code);
                prop_assert!(said != Some(StatusKind::Held), "j{n} was told when it was set free");
            }
            // What runs is left alone.
            Phase::Starting | Phase::Running | Phase::Stopping { .. } => {}
            Phase::New | Phase::Ended { .. } | Phase::Serving => prop_assert!(false, "j{n} is {is:?} after a pass"),
        }
    }
    Ok(())
}

#[test]
fn what_a_policy_makes_impossible_is_held_and_nothing_else() {
    holds("what_a_policy_makes_impossible_is_held", 480, &ops(), |ops| {
        let mut queues: Queues = [Some(8); QUEUES];
        let mut world = Cluster::new(policy(&queues));
        world.mode = Mode::Crashes(2);
        let mut asked = Vec::new();
        for op in ops {
            match op {
                Op::Submit { queue, gpus } => {
                    let mut spec = making::job(&format!("j{}", asked.len()), workers(1, ask(gpus)));
                    spec.queue = format!("q{queue}");
                    (spec.retry.attempts, spec.retry.backoff) = (100, Span::mins(10));
                    asked.push((queue, gpus));
                    world.happens(Event::JobSubmitted(Box::new(spec)));
                }
                Op::Configure(next) => {
                    queues = next;
                    world.happens(Event::Configured(Box::new(policy(&queues))));
                }
                Op::Fail(n) => {
                    let Some(job) = world.id(&format!("j{n}")) else { continue };
                    let Some(attempt) = world.alive(job) else { continue };
                    world.happens(Event::RunFailed { job, attempt, exit_code: 1, node_fault: None });
                }
                Op::Cancel(n) => {
                    let subject = format!("j{n}");
                    world.happens(Event::JobCancelled { tenant: "t".into(), subject, by: None, sent: None });
                }
                Op::Wait(ms) => world.run_until(world.now + ms),
            }
            check(&world, &queues, &asked)?;
        }
        Ok(())
    });
}
