//! Batches: how long they were planned, what the cloud answered in them, and as they became durable how long the journal took and what start
//! targets decided.
//!
//! Never: a decision that is not durable; what a recovery read again.

use super::catalogue;
use super::family::{Family, Number};
use super::histogram::Histogram;
use super::launches::CloudAnswers;
use forebay_driver::step::BatchObserver;
use forebay_kernel::decision::Decision;
use forebay_kernel::event::Event;
use forebay_kernel::journal::Batch;
use forebay_kernel::state::State;
use forebay_kernel::units::Timestamp;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// From what a fast disk takes to what makes every answer late.
const COMMITS_MS: &[u64] = &[1, 3, 10, 30, 100, 300, 1_000, 3_000];

/// From a batch of one event to one that keeps everybody waiting.
const PASSES_MS: &[u64] = &[1, 3, 10, 30, 100, 300, 1_000, 3_000];

/// What start targets decide of a waiting job.
const DECISIONS: [&str; 4] = ["deferred", "promised", "due", "late"];

/// What has been counted since this process started.
#[derive(Debug)]
pub struct CommitCounts {
    inside: Mutex<Inside>,
}

#[derive(Debug)]
struct Inside {
    took: Histogram,
    passes: Histogram,
    cloud: CloudAnswers,
    decisions: BTreeMap<&'static str, u64>,
}

impl Default for CommitCounts {
    fn default() -> CommitCounts {
        let inside = Inside {
            took: Histogram::new(COMMITS_MS),
            passes: Histogram::new(PASSES_MS),
            cloud: CloudAnswers::default(),
            decisions: DECISIONS.map(|decision| (decision, 0)).into(),
        };
        CommitCounts { inside: Mutex::new(inside) }
    }
}

impl CommitCounts {
    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An earlier process drove the journal up to this time: how long the nodes boot that it bought, nobody has watched.
    pub fn resumed(&self, last: Timestamp) {
        self.lock().cloud.resumed(last);
    }

    /// These batches became durable in one transaction that took so long.
    pub fn committed<'b>(&self, batches: impl IntoIterator<Item = &'b Batch>, took: Duration) {
        let mut inside = self.lock();
        inside.took.observe(took);
        for batch in batches {
            for decision in batch.decisions.iter().filter_map(target_decision) {
                *inside.decisions.entry(decision).or_default() += 1;
            }
        }
    }

    /// Launches that the cloud answered, with zeros of all that the policy's pools sell.
    #[must_use]
    pub fn launches(&self, state: &State) -> Family {
        self.lock().cloud.launches(state)
    }

    /// The other counts as metrics.
    #[must_use]
    pub fn families(&self) -> Vec<Family> {
        let inside = self.lock();
        let took = Family::of(&catalogue::JOURNAL_COMMIT).with(&[], Number::Spread(inside.took.clone()));
        let passes = Family::of(&catalogue::PLAN_PASS).with(&[], Number::Spread(inside.passes.clone()));
        let mut decisions = Family::of(&catalogue::START_TARGET_DECISIONS);
        for (decision, count) in &inside.decisions {
            decisions.set(&[("decision", decision)], *count);
        }
        vec![took, passes, inside.cloud.boots(), decisions]
    }
}

impl BatchObserver for CommitCounts {
    fn enters(&self, state: &State, event: &Event) {
        // Most events are of jobs, and need no lock.
        if matches!(event, Event::LaunchOutcome { .. } | Event::NodeReady { .. }) {
            self.lock().cloud.enters(state, event);
        }
    }

    fn planned(&self, took: Duration) {
        self.lock().passes.observe(took);
    }
}

/// What was decided of a job for its start target. `None`: another decision.
fn target_decision(decision: &Decision) -> Option<&'static str> {
    match decision {
        Decision::Defer { run: None, .. } => Some("deferred"),
        Decision::Defer { run: Some(_), .. } => Some("promised"),
        Decision::Due { .. } => Some("due"),
        Decision::Late { .. } => Some("late"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::family::text;
    use super::*;
    use forebay_kernel::event::Tick;
    use forebay_kernel::ids::{JobId, NodeId, Seq};
    use forebay_kernel::journal::APPLY_VERSION;

    fn batch(decisions: Vec<Decision>) -> Batch {
        let tick = Tick { now: Timestamp(1), resumed: false, delivered: 0 };
        Batch { version: APPLY_VERSION, first_seq: Seq(0), tick, events: Vec::new(), decisions }
    }

    #[test]
    fn what_is_not_there_yet_is_a_count_of_zero() {
        let text = text(CommitCounts::default().families()).unwrap();
        for line in [
            "forebay_journal_commit_seconds_count 0",
            "forebay_plan_pass_seconds_count 0",
            "forebay_start_target_decisions_total{decision=\"due\"} 0",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in {text}");
        }
        assert!(!text.contains("boot_seconds_count"), "which pools there are is not known yet: {text}");
    }

    #[test]
    fn each_commit_is_timed_and_its_start_targets_are_counted() {
        let counts = CommitCounts::default();
        let (job, until) = (JobId(7), Timestamp(9));
        let decisions = vec![
            Decision::Defer { job, until, run: None },
            Decision::Defer { job, until, run: Some((NodeId(1), JobId(2))) },
            Decision::Due { job },
            Decision::Due { job },
            Decision::Late { job },
            Decision::Start { job },
        ];
        counts.committed([&batch(Vec::new()), &batch(decisions)], Duration::from_millis(250));
        counts.committed([&batch(Vec::new())], Duration::from_secs(5));
        let text = text(counts.families()).unwrap();
        for line in [
            "forebay_journal_commit_seconds_count 2",
            "forebay_journal_commit_seconds_sum 5.25",
            "forebay_journal_commit_seconds_bucket{le=\"0.1\"} 0",
            "forebay_journal_commit_seconds_bucket{le=\"0.3\"} 1",
            "forebay_journal_commit_seconds_bucket{le=\"3.0\"} 1",
            "forebay_journal_commit_seconds_bucket{le=\"+Inf\"} 2",
            "forebay_start_target_decisions_total{decision=\"deferred\"} 1",
            "forebay_start_target_decisions_total{decision=\"promised\"} 1",
            "forebay_start_target_decisions_total{decision=\"due\"} 2",
            "forebay_start_target_decisions_total{decision=\"late\"} 1",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in {text}");
        }
    }

    #[test]
    fn each_pass_is_timed() {
        let counts = CommitCounts::default();
        counts.planned(Duration::from_millis(2));
        counts.planned(Duration::from_millis(400));
        let text = text(counts.families()).unwrap();
        for line in [
            "forebay_plan_pass_seconds_count 2",
            "forebay_plan_pass_seconds_sum 0.402",
            "forebay_plan_pass_seconds_bucket{le=\"0.003\"} 1",
            "forebay_plan_pass_seconds_bucket{le=\"0.3\"} 1",
            "forebay_plan_pass_seconds_bucket{le=\"1.0\"} 2",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in {text}");
        }
    }
}
