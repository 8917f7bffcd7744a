//! Runs that were stopped before they were done, by the queue of their job and by cause: counted from the stream of statuses.
//!
//! ```text
//! statuses `preempted` -> which queue (asked of the engine, many at once) -> counts, the last of each kept as its exemplar
//! ```
//!
//! Never: more queues than there may be labels; those that no policy names share one label then. Never a gap in silence: statuses that
//! were not read in time are counted too.

use super::catalogue;
use super::family::{Exemplar, Family, MOST_VALUES, Number, OTHER};
use crate::driver::{DriverHandle, MailboxError, QueryContext, StatusStream, StreamEnd};
use forebay_engine::engine::Engine;
use forebay_kernel::effect::{Status, StatusKind};
use forebay_kernel::ids::{Attempt, JobId};
use forebay_kernel::reason::Reason;
use forebay_kernel::units::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// Preemptions that are looked up together.
const MOST_TOGETHER: usize = 256;

/// What has been counted since this process started.
#[derive(Debug, Default)]
pub struct Preemptions {
    inside: Mutex<Inside>,
}

#[derive(Debug, Default)]
struct Inside {
    counts: BTreeMap<(String, &'static str), Count>,
    undeclared: BTreeSet<String>,
    unread: u64,
}

/// How many, and the last of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Count {
    count: u64,
    last: Preempted,
}

/// One run that was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Preempted {
    job: JobId,
    attempt: Attempt,
    /// `None`: the clock is not the wall's.
    at: Option<Timestamp>,
}

/// A status that counts: the run and why.
type Counted = (Preempted, &'static str);

/// Why a run was stopped, as a label. `None`: this status is of something else.
fn cause(status: &Status) -> Option<&'static str> {
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
    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts what is said from the start of this process on, until the driver stops.
    pub async fn follow(self: Arc<Self>, handle: DriverHandle) {
        let (mut stream, mut due) = from_the_start(&handle);
        loop {
            match stream.next().await {
                Ok(status) => {
                    due = status.number + 1;
                    let mut counted: Vec<Counted> = Vec::from_iter(counts(&status));
                    while !counted.is_empty() && counted.len() < MOST_TOGETHER {
                        // What ends the stream comes again with the next look.
                        let Ok(Some(status)) = stream.try_next() else { break };
                        due = status.number + 1;
                        counted.extend(counts(&status));
                    }
                    if !counted.is_empty() && self.take(&handle, counted).await.is_none() {
                        return;
                    }
                }
                Err(StreamEnd::Missed { before }) => {
                    self.lock().unread += before.saturating_sub(due);
                    due = before;
                    stream = handle.statuses(before.saturating_sub(1));
                }
                Err(StreamEnd::Stopped) => return,
            }
        }
    }

    /// Counts these under their queues. `None`: the driver has stopped.
    async fn take(&self, handle: &DriverHandle, counted: Vec<Counted>) -> Option<()> {
        let ids: Arc<[JobId]> = counted.iter().map(|(of, _)| of.job).collect();
        let (queues, wall_clock) = loop {
            let ids = Arc::clone(&ids);
            match handle.query_async(move |engine, context| queues(engine, context, &ids)).await {
                Ok(queues) => break queues,
                // The stream keeps what comes meanwhile, as much of it as it keeps; what it drops is counted as unread.
                Err(MailboxError::Full { retry_after }) => tokio::time::sleep(retry_after).await,
                Err(MailboxError::TooMany { .. } | MailboxError::Stopped(_)) => return None,
            }
        };
        for ((of, cause), (queue, declared)) in counted.into_iter().zip(queues) {
            let at = of.at.filter(|_| wall_clock);
            self.lock().count(queue, declared, cause, Preempted { at, ..of });
        }
        Some(())
    }

    /// The counts as metrics. Of queues only those that `shows`, of exemplars only those of jobs that `sees`.
    #[must_use]
    pub fn families(&self, shows: impl Fn(&str) -> bool, sees: impl Fn(JobId) -> bool) -> Vec<Family> {
        let inside = self.lock();
        let mut preemptions = Family::of(&catalogue::PREEMPTIONS);
        for ((queue, cause), Count { count, last }) in inside.counts.iter().filter(|((queue, _), _)| shows(queue)) {
            let number = if sees(last.job) { Number::Shown(*count, last.exemplar()) } else { Number::Whole(*count) };
            preemptions.set(&[("queue", queue), ("cause", cause)], number);
        }
        let unread = Family::of(&catalogue::PREEMPTION_STATUSES_UNREAD);
        vec![preemptions, unread.with(&[], inside.unread)]
    }
}

impl Inside {
    fn count(&mut self, queue: String, declared: bool, cause: &'static str, last: Preempted) {
        let own = declared || self.undeclared.contains(&queue) || self.undeclared.len() < MOST_VALUES;
        let label = if own { queue } else { OTHER.to_owned() };
        if own && !declared && !self.undeclared.contains(&label) {
            self.undeclared.insert(label.clone());
        }
        let count = self.counts.entry((label, cause)).or_insert(Count { count: 0, last });
        *count = Count { count: count.count + 1, last };
    }
}

impl Preempted {
    fn exemplar(self) -> Exemplar {
        let labels = vec![("job", self.job.to_string()), ("attempt", self.attempt.0.to_string())];
        Exemplar { labels, at: self.at.map(|at| SystemTime::UNIX_EPOCH + Duration::from_millis(at.0)) }
    }
}

/// From the oldest status that is kept, with its number: a process that has just started has dropped none of its own.
fn from_the_start(handle: &DriverHandle) -> (StatusStream, u64) {
    match handle.statuses(0).try_next() {
        Err(StreamEnd::Missed { before }) => (handle.statuses(before.saturating_sub(1)), before),
        _ => (handle.statuses(0), 1),
    }
}

fn counts(status: &Status) -> Option<Counted> {
    let cause = cause(status)?;
    Some((Preempted { job: status.job?, attempt: status.attempt, at: Some(status.at) }, cause))
}

/// The queue of each job, whether the policy names it, and whether times are the wall's.
fn queues(engine: &Engine, context: &QueryContext, jobs: &[JobId]) -> (Vec<(String, bool)>, bool) {
    let state = engine.state();
    let queue = |id: &JobId| {
        let queue = state.job(*id).map_or(OTHER, |(_, spec)| spec.queue.as_str());
        (queue.to_owned(), state.policy().is_some_and(|policy| policy.queues.contains_key(queue)))
    };
    (jobs.iter().map(queue).collect(), context.wall_clock)
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
            assert_eq!(counts(&status(StatusKind::Preempted, Some(reason))).map(|(_, cause)| cause), Some(named));
            assert_eq!(counts(&status(StatusKind::Preempting, Some(reason))), None);
        }
        let (of, cause) = counts(&status(StatusKind::Preempted, None)).unwrap();
        assert_eq!((of.job, of.attempt, cause), (JobId(12), Attempt(3), "other"));
    }

    #[test]
    fn queues_that_nobody_declared_share_a_label_past_their_bound() {
        let preemptions = Preemptions::default();
        for n in 0..MOST_VALUES as u64 + 100 {
            preemptions.lock().count(format!("wild/{n:03}"), false, "moved", preempted(n));
        }
        for declared in ["a", "b"] {
            preemptions.lock().count(declared.to_owned(), true, "moved", preempted(7));
        }
        preemptions.lock().count("wild/000".to_owned(), false, "moved", preempted(8));
        let text = text(preemptions.families(|_| true, |_| true)).unwrap();
        let has = |line: &str| assert!(text.contains(line), "{line}: {text}");
        has("forebay_preemptions_total{queue=\"other\",cause=\"moved\"} 100 # {job=\"job-299\",attempt=\"3\"} 1.0\n");
        has("forebay_preemptions_total{queue=\"wild/000\",cause=\"moved\"} 2 # {job=\"job-8\",attempt=\"3\"} 1.0\n");
        has("{queue=\"a\",cause=\"moved\"} 1 # ");
        assert_eq!(text.lines().filter(|l| l.contains("{queue=")).count(), MOST_VALUES + 3);
    }

    #[test]
    fn of_others_queues_and_jobs_nothing_is_shown() {
        let preemptions = Preemptions::default();
        preemptions.lock().count("mine".into(), true, "reclaimed", preempted(1));
        preemptions.lock().count("shared".into(), true, "reclaimed", preempted(2));
        preemptions.lock().count("theirs".into(), true, "reclaimed", preempted(3));
        let families = preemptions.families(|queue| queue != "theirs", |job| job == JobId(1));
        let text = text(families).unwrap();
        assert!(text.contains("{queue=\"mine\",cause=\"reclaimed\"} 1 # {job=\"job-1\""), "{text}");
        assert!(text.contains("{queue=\"shared\",cause=\"reclaimed\"} 1\n"), "{text}");
        assert!(!text.contains("theirs") && !text.contains("job-2") && !text.contains("job-3"), "{text}");
    }
}
