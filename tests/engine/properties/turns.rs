//! Runs that make way for shorter jobs of their queue (`preemptWithin: longer-expected`), on random streams.
//!
//! ```text
//! each such stop   the run has had its turn: half an hour, twice as long after each stop before; the rows are not asked for that
//!                  its priority is no higher; where both state how long they take and the job is new, it takes less than half the GPU time
//! all of them      every job ends, also one that saves nothing
//! four engines     without memos, dropped and restored: the same decisions
//! ```
//!
//! Never: an expectation about who goes first.

use super::holds;
use crate::cluster::{Cluster, Mode};
use crate::making::{self, ask, workers};
use alloc::collections::BTreeMap;
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::decision::{Decision, StopCause};
use forebay_kernel::event::{Event, GoneWhy};
use forebay_kernel::ids::JobId;
use forebay_kernel::job::{Gang, JobSpec, WorkerAsk};
use forebay_kernel::policy::{Policy, PreemptWithin, QueueOrder};
use forebay_kernel::units::{MilliCpu, Span};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

const MINUTE: u64 = 60_000;

/// A job or a lost node: minutes since the one before, minutes of work, and what else is drawn.
type Op = (u8, u16, u16);

fn streams() -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec((0u8..90, 0u16..1000, any::<u16>()), 2..24)
}

/// Four GPUs for one queue.
fn policy(draw: u16) -> Policy {
    let mut policy = making::policy(vec![making::offering("spot", CapacityType::Spot, 2, 1)]);
    policy.limits.nodes = Some(2);
    policy.fairness.ageing = draw.is_multiple_of(3).then(|| Span::mins(10));
    let rule = policy.queues.get_mut("normal").expect("a queue of making's");
    (rule.order, rule.preempt_within) = (QueueOrder::ShortestExpected, PreemptWithin::LongerExpected);
    policy
}

fn spec(n: usize, (_, minutes, draw): Op) -> (JobSpec, u64) {
    // One in four is long, most are over within the hour.
    let work = MINUTE * (1 + u64::from(if draw.is_multiple_of(4) { minutes } else { minutes % 40 }));
    let gang = match draw / 4 % 6 {
        0 => Gang::Workers { min: 1, max: 3, each: ask(1) },
        1 => workers(1, WorkerAsk { cpu: MilliCpu(3000), ..ask(0) }),
        n => workers(1 + u32::from(n % 2), ask(1 + draw / 16 % 2)),
    };
    let mut spec = making::job(&format!("j{n}"), gang);
    spec.expected = (draw / 32).is_multiple_of(2).then_some(Span(work));
    spec.priority = i32::from((draw / 64).is_multiple_of(8));
    if (draw / 512).is_multiple_of(2) {
        spec.checkpoint = making::saves(Span::mins(5), Span::secs(20));
    }
    (spec, work)
}

fn live(ops: &[Op], mode: Mode) -> Cluster {
    let mut world = Cluster::new(policy(ops[0].2));
    world.mode = mode;
    for (n, op) in ops.iter().enumerate() {
        world.run_until(world.now + MINUTE * u64::from(op.0));
        let node = world.state().nodes().find_map(|node| node.instance.clone());
        if let Some(instance) = node.filter(|_| op.2 / 1024 == 9) {
            world.happens(Event::NodeGone { instance, why: GoneWhy::Lost });
            continue;
        }
        let (spec, work) = spec(n, *op);
        world.work.insert(spec.subject.clone(), work);
        world.submit(spec);
    }
    world.run_until(world.now + 60 * 24 * 60 * MINUTE);
    world
}

/// What one life shows of stops for shorter jobs. Returns how many there were.
fn stops_hold(world: &Cluster) -> Result<u32, TestCaseError> {
    let state = world.state();
    let mut began: BTreeMap<JobId, u64> = BTreeMap::new();
    let mut stops: BTreeMap<JobId, u32> = BTreeMap::new();
    for batch in &world.log.batches {
        let now = batch.tick.now.0;
        for event in &batch.events {
            if let Event::RunStarted { job, .. } = event {
                began.insert(*job, now);
            }
        }
        for decision in &batch.decisions {
            let (Decision::Stop { job, cause, .. } | Decision::Shrink { job, cause, .. }) = decision else { continue };
            let StopCause::Preempted { by } = cause else { continue };
            let (Some((_, run)), Some((_, taker))) = (state.job(*job), state.job(*by)) else { continue };
            let times = stops.entry(*job).or_default();
            let ran = now - began.get(job).copied().unwrap_or(now);
            prop_assert!(
                ran >= (30 * MINUTE) << *times,
                "{job} had {ran} ms of its turn, stopped {times} times before"
            );
            *times += 1;
            // What goes on after it has given up workers has another turn.
            began.insert(*job, now);
            prop_assert!(run.priority <= taker.priority, "{job} is stopped for {by} of a lower priority");
            let size = |spec: &JobSpec| spec.expected.map(|span| span.0 * spec.gang.gpu_share().0.max(1000));
            if let (Some(theirs), Some(own), false) = (size(run), size(taker), began.contains_key(by)) {
                prop_assert!(theirs > 2 * own, "{job} of {theirs} is stopped for {by} of {own}");
            }
        }
    }
    let open = state.jobs().filter(|(job, _)| !job.done()).count();
    prop_assert_eq!(open, 0, "jobs do not end");
    Ok(stops.values().sum())
}

#[test]
fn longer_runs_have_their_turn_and_all_end() {
    let stops = core::cell::Cell::new(0);
    holds("longer_runs_have_their_turn", 120, &streams(), |ops| {
        stops.set(stops.get() + stops_hold(&live(&ops, Mode::Careful))?);
        Ok(())
    });
    assert!(stops.get() > 50, "the streams say something: {} stops", stops.get());
}

fn same(ops: &[Op], mode: Mode) -> TestCaseResult {
    let (one, other) = (live(ops, Mode::Quick), live(ops, mode));
    for (a, b) in one.log.batches.iter().zip(&other.log.batches) {
        prop_assert_eq!(&a.decisions, &b.decisions, "{:?} at {}", mode, a.tick.now.0);
    }
    prop_assert!(one.engine.snapshot() == other.engine.snapshot());
    Ok(())
}

#[test]
fn turns_are_the_same_without_memos() {
    holds("turns_are_the_same_without_memos", 100, &streams(), |ops| same(&ops, Mode::NoMemos));
}

#[test]
fn turns_are_the_same_after_a_crash() {
    let inputs = (streams(), 1usize..9);
    holds("turns_are_the_same_after_a_crash", 100, &inputs, |(ops, every)| same(&ops, Mode::Crashes(every)));
}
