//! Start targets against arithmetic on arrivals alone: with stock and ceilings to spare, at no time has more been bought than jobs had
//! come due by then (where a job says how long it lasts, it may be bought for as soon as another waits behind it), and every job starts by its target, or a boot later where something was promised to it.
//!
//! Never: which job gets which node.

use super::holds;
use crate::cluster::Cluster;
use crate::making::{self, ask, workers};
use alloc::collections::BTreeSet;
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::decision::Decision;
use forebay_kernel::policy::{Drain, StartTarget, WhenLate};
use forebay_kernel::units::Span;
use proptest::prelude::*;

/// What the world takes: a launch and a boot, and a start.
const NODE: u64 = 62_000;
const START: u64 = 5_000;
/// What is left for the answer while no boots were seen.
const ANSWER: u64 = 30_000;

#[test]
fn nothing_is_bought_early_and_nobody_starts_late() {
    let job = (0u64..120, 1u64..400, 0usize..3, any::<bool>());
    let inputs = (prop::collection::vec(job, 1..30), prop::collection::vec(0u64..900, 2), any::<bool>());
    holds("nothing_is_bought_early", 384, &inputs, |(jobs, within, auto)| {
        let mut policy = making::policy(vec![making::offering("spot", CapacityType::Spot, 1, 1)]);
        policy.pools[0].drain = if auto { Drain::Auto } else { Drain::After(Span::mins(5)) };
        let mut within = within;
        within.push(0);
        for (name, secs) in ["one", "two", "none"].into_iter().zip(&within) {
            let target = StartTarget { within: Span::secs(*secs), when_late: WhenLate::Wait };
            let start = (*secs > 0).then_some(target);
            policy.queues.insert(name.into(), forebay_kernel::policy::QueueRule { start, ..making::rule(1) });
        }
        let mut world = Cluster::new(policy);
        let mut due = Vec::new();
        for (n, (gap, work, queue, says)) in jobs.iter().enumerate() {
            world.run_until(world.now + gap * 1000);
            let mut spec = making::job(&format!("j{n}"), workers(1, ask(1)));
            spec.queue = ["one", "two", "none"][*queue].into();
            spec.expected = says.then(|| Span::secs(*work));
            world.work.insert(spec.subject.clone(), work * 1000);
            let by = world.now + within[*queue] * 1000;
            // The catalogue says 60 s, what is seen 62 s.
            let from =
                if *says && within[*queue] > 0 { world.now } else { by.saturating_sub(NODE + ANSWER).max(world.now) };
            due.push((from, by.max(world.now + NODE)));
            world.submit(spec);
        }
        world.run_until(world.now + 4 * 3_600_000);
        let mut bought = 0;
        let mut promised = BTreeSet::new();
        for batch in &world.log.batches {
            for decision in &batch.decisions {
                match decision {
                    Decision::Buy { count, .. } => {
                        bought += *count as usize;
                        let now = batch.tick.now.0;
                        let all = due.iter().filter(|(from, _)| *from <= now).count();
                        prop_assert!(bought <= all, "{bought} bought, {all} due at {now} ms");
                    }
                    // The places of a run, or a turn on the node of its lane: another may come before it.
                    Decision::Defer { job, run, until } => {
                        let turn = until.0 > due[job.0 as usize].1.saturating_sub(NODE + ANSWER);
                        promised.extend((run.is_some() || turn).then_some(*job));
                    }
                    _ => {}
                }
            }
        }
        for ((row, spec), (_, by)) in world.state().jobs().zip(&due) {
            let broken = if promised.contains(&row.id) { NODE } else { 0 };
            let first = row.first_start.map_or(u64::MAX, |at| at.0);
            let latest = by + broken + START;
            prop_assert!(first <= latest, "{} started at {first} ms, not by {latest} ms", &spec.subject);
        }
        Ok(())
    });
}
