//! Batches as they became durable: how long the journal took, what the cloud answered to launches, and what start targets decided.
//!
//! Never: a batch that is not durable; what a recovery read again.

use super::catalogue;
use super::engine::{LAUNCH_ERRORS, error_label};
use super::family::{Family, Number};
use super::histogram::Histogram;
use forebay_kernel::decision::Decision;
use forebay_kernel::event::{Event, LaunchError};
use forebay_kernel::journal::Batch;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// From what a fast disk takes to what makes every answer late.
const COMMITS_MS: &[u64] = &[1, 3, 10, 30, 100, 300, 1_000, 3_000];

/// A launch that brought all that it asked for.
const COMPLETE: &str = "complete";

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
    launches: BTreeMap<&'static str, u64>,
    decisions: BTreeMap<&'static str, u64>,
}

impl Default for CommitCounts {
    fn default() -> CommitCounts {
        // The cloud never says of a launch that its node did not boot.
        let errors = LAUNCH_ERRORS.into_iter().filter(|error| *error != LaunchError::Boot);
        let answers = errors.map(error_label).chain([COMPLETE]);
        let inside = Inside {
            took: Histogram::new(COMMITS_MS),
            launches: answers.map(|answer| (answer, 0)).collect(),
            decisions: DECISIONS.map(|decision| (decision, 0)).into(),
        };
        CommitCounts { inside: Mutex::new(inside) }
    }
}

impl CommitCounts {
    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// These batches became durable in one transaction that took so long.
    pub fn committed<'b>(&self, batches: impl IntoIterator<Item = &'b Batch>, took: Duration) {
        let mut inside = self.lock();
        inside.took.observe(took);
        for batch in batches {
            for answer in batch.events.iter().filter_map(answer) {
                *inside.launches.entry(answer).or_default() += 1;
            }
            for decision in batch.decisions.iter().filter_map(target_decision) {
                *inside.decisions.entry(decision).or_default() += 1;
            }
        }
    }

    /// The counts as metrics.
    #[must_use]
    pub fn families(&self) -> Vec<Family> {
        let inside = self.lock();
        let took = Family::of(&catalogue::JOURNAL_COMMIT).with(&[], Number::Spread(inside.took.clone()));
        let mut launches = Family::of(&catalogue::LAUNCHES);
        for (outcome, count) in &inside.launches {
            launches.set(&[("outcome", outcome)], *count);
        }
        let mut decisions = Family::of(&catalogue::START_TARGET_DECISIONS);
        for (decision, count) in &inside.decisions {
            decisions.set(&[("decision", decision)], *count);
        }
        vec![took, launches, decisions]
    }
}

/// What the cloud answered to a launch. `None`: another event.
fn answer(event: &Event) -> Option<&'static str> {
    match event {
        Event::LaunchOutcome { error, .. } => Some(error.map_or(COMPLETE, error_label)),
        _ => None,
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
    use forebay_kernel::ids::{JobId, NodeId, PurchaseId, Seq};
    use forebay_kernel::journal::APPLY_VERSION;
    use forebay_kernel::units::Timestamp;

    fn batch(events: Vec<Event>, decisions: Vec<Decision>) -> Batch {
        let tick = Tick { now: Timestamp(1), resumed: false, delivered: 0 };
        Batch { version: APPLY_VERSION, first_seq: Seq(0), tick, events, decisions }
    }

    fn launch(error: Option<LaunchError>) -> Event {
        Event::LaunchOutcome { purchase: PurchaseId(1), instances: Vec::new(), error }
    }

    #[test]
    fn what_is_not_there_yet_is_a_count_of_zero() {
        let text = text(CommitCounts::default().families()).unwrap();
        for line in [
            "forebay_journal_commit_seconds_count 0",
            "forebay_launches_total{outcome=\"capacity\"} 0",
            "forebay_launches_total{outcome=\"complete\"} 0",
            "forebay_start_target_decisions_total{decision=\"due\"} 0",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in {text}");
        }
        assert!(!text.contains("boot"), "the cloud never answers that: {text}");
    }

    #[test]
    fn each_commit_is_timed_and_its_launches_and_start_targets_are_counted() {
        let counts = CommitCounts::default();
        let (job, until) = (JobId(7), Timestamp(9));
        let first = batch(vec![launch(None), launch(Some(LaunchError::Capacity))], Vec::new());
        let decisions = vec![
            Decision::Defer { job, until, run: None },
            Decision::Defer { job, until, run: Some((NodeId(1), JobId(2))) },
            Decision::Due { job },
            Decision::Due { job },
            Decision::Late { job },
            Decision::Start { job },
        ];
        let second = batch(vec![launch(Some(LaunchError::Capacity))], decisions);
        counts.committed([&first, &second], Duration::from_millis(250));
        counts.committed([&batch(Vec::new(), Vec::new())], Duration::from_secs(5));
        let text = text(counts.families()).unwrap();
        for line in [
            "forebay_journal_commit_seconds_count 2",
            "forebay_journal_commit_seconds_sum 5.25",
            "forebay_journal_commit_seconds_bucket{le=\"0.1\"} 0",
            "forebay_journal_commit_seconds_bucket{le=\"0.3\"} 1",
            "forebay_journal_commit_seconds_bucket{le=\"3.0\"} 1",
            "forebay_journal_commit_seconds_bucket{le=\"+Inf\"} 2",
            "forebay_launches_total{outcome=\"complete\"} 1",
            "forebay_launches_total{outcome=\"capacity\"} 2",
            "forebay_start_target_decisions_total{decision=\"deferred\"} 1",
            "forebay_start_target_decisions_total{decision=\"promised\"} 1",
            "forebay_start_target_decisions_total{decision=\"due\"} 2",
            "forebay_start_target_decisions_total{decision=\"late\"} 1",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in {text}");
        }
    }
}
