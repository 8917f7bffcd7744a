//! Runs that were stopped before they were done, by the queue of their job and by cause.
//!
//! Never: more queues than there may be labels; those that no policy names share one label then.

use super::catalogue;
use super::family::{Exemplar, Family, MOST_VALUES, Number, OTHER};
use forebay_kernel::effect::{Status, StatusKind};
use forebay_kernel::ids::{Attempt, JobId};
use forebay_kernel::reason::Reason;
use forebay_kernel::units::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

/// What has been counted since this process started.
#[derive(Debug, Default)]
pub(super) struct Preemptions {
    counts: BTreeMap<(String, &'static str), Count>,
    undeclared: BTreeSet<String>,
}

/// How many, and the last of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Count {
    count: u64,
    last: Preempted,
}

/// One run that was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Preempted {
    pub job: JobId,
    pub attempt: Attempt,
    /// `None`: the clock is not the wall's.
    pub at: Option<Timestamp>,
}

/// Why a run was stopped, as a label. `None`: this status is of something else.
pub(super) fn cause(status: &Status) -> Option<&'static str> {
    if status.kind != StatusKind::Preempted {
        return None;
    }
    Some(match status.reason {
        Some(Reason::PreemptedBy { .. }) => "preempted",
        Some(Reason::Reclaimed) => "reclaimed",
        Some(Reason::Moved) => "moved",
        Some(Reason::QuotaReclaimed { .. }) => "quota-reclaimed",
        Some(Reason::Overran) => "overran",
        Some(Reason::Hurried) => "hurried",
        Some(Reason::NodeHung) => "node-hung",
        _ => OTHER,
    })
}

impl Preemptions {
    /// One more, of a job of this queue, which the policy in force declares or not.
    pub fn count(&mut self, queue: String, declared: bool, cause: &'static str, last: Preempted) {
        let own = declared || self.undeclared.contains(&queue) || self.undeclared.len() < MOST_VALUES;
        let label = if own { queue } else { OTHER.to_owned() };
        if own && !declared && !self.undeclared.contains(&label) {
            self.undeclared.insert(label.clone());
        }
        let count = self.counts.entry((label, cause)).or_insert(Count { count: 0, last });
        *count = Count { count: count.count + 1, last };
    }

    /// The counts. Of queues only those that `shows`, of exemplars only those of jobs that `sees`.
    pub fn family(&self, shows: impl Fn(&str) -> bool, sees: impl Fn(JobId) -> bool) -> Family {
        let mut preemptions = Family::of(&catalogue::PREEMPTIONS);
        for ((queue, cause), Count { count, last }) in self.counts.iter().filter(|((queue, _), _)| shows(queue)) {
            let number = if sees(last.job) { Number::Shown(*count, last.exemplar()) } else { Number::Whole(*count) };
            preemptions.set(&[("queue", queue), ("cause", cause)], number);
        }
        preemptions
    }
}

impl Preempted {
    fn exemplar(self) -> Exemplar {
        let labels = vec![("job", self.job.to_string()), ("attempt", self.attempt.0.to_string())];
        Exemplar { labels, at: self.at.map(|at| SystemTime::UNIX_EPOCH + Duration::from_millis(at.0)) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::family::text;
    use super::*;
    use forebay_kernel::ids::QueueId;

    fn preempted(job: u64) -> Preempted {
        Preempted { job: JobId(job), attempt: Attempt(3), at: None }
    }

    fn status(kind: StatusKind, reason: Option<Reason>) -> Status {
        let (tenant, subject) = (String::new(), String::new());
        let (at, attempt) = (Timestamp(1), Attempt(3));
        Status {
            number: 1,
            at,
            tenant,
            subject,
            job: Some(JobId(12)),
            attempt,
            seq: 1,
            kind,
            reason,
            named: None,
            run: None,
            labels: BTreeMap::new(),
        }
    }

    #[test]
    fn each_reason_of_a_preempted_run_has_its_cause_and_nothing_else_counts() {
        let queue = QueueId(0);
        for (reason, named) in [
            (Reason::PreemptedBy { queue }, "preempted"),
            (Reason::Reclaimed, "reclaimed"),
            (Reason::Moved, "moved"),
            (Reason::QuotaReclaimed { queue }, "quota-reclaimed"),
            (Reason::Overran, "overran"),
            (Reason::Hurried, "hurried"),
            (Reason::NodeHung, "node-hung"),
            (Reason::Asked, "other"),
        ] {
            assert_eq!(cause(&status(StatusKind::Preempted, Some(reason))), Some(named));
            assert_eq!(cause(&status(StatusKind::Preempting, Some(reason))), None);
        }
        assert_eq!(cause(&status(StatusKind::Preempted, None)), Some(OTHER));
    }

    #[test]
    fn queues_that_nobody_declared_share_a_label_past_their_bound() {
        let mut preemptions = Preemptions::default();
        for n in 0..MOST_VALUES as u64 + 100 {
            preemptions.count(format!("wild/{n:03}"), false, "moved", preempted(n));
        }
        for declared in ["a", "b"] {
            preemptions.count(declared.to_owned(), true, "moved", preempted(7));
        }
        preemptions.count("wild/000".to_owned(), false, "moved", preempted(8));
        let text = text(vec![preemptions.family(|_| true, |_| true)]).unwrap();
        let has = |line: &str| assert!(text.contains(line), "{line}: {text}");
        has("forebay_preemptions_total{queue=\"other\",cause=\"moved\"} 100 # {job=\"job-299\",attempt=\"3\"} 1.0\n");
        has("forebay_preemptions_total{queue=\"wild/000\",cause=\"moved\"} 2 # {job=\"job-8\",attempt=\"3\"} 1.0\n");
        has("{queue=\"a\",cause=\"moved\"} 1 # ");
        assert_eq!(text.lines().filter(|l| l.contains("{queue=")).count(), MOST_VALUES + 3);
    }

    #[test]
    fn of_others_queues_and_jobs_nothing_is_shown() {
        let mut preemptions = Preemptions::default();
        preemptions.count("mine".into(), true, "reclaimed", preempted(1));
        preemptions.count("shared".into(), true, "reclaimed", preempted(2));
        preemptions.count("theirs".into(), true, "reclaimed", preempted(3));
        let family = preemptions.family(|queue| queue != "theirs", |job| job == JobId(1));
        let text = text(vec![family]).unwrap();
        assert!(text.contains("{queue=\"mine\",cause=\"reclaimed\"} 1 # {job=\"job-1\""), "{text}");
        assert!(text.contains("{queue=\"shared\",cause=\"reclaimed\"} 1\n"), "{text}");
        assert!(!text.contains("theirs") && !text.contains("job-2") && !text.contains("job-3"), "{text}");
    }
}
