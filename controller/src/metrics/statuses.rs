//! What statuses say as they become durable: how many there were by kind and reason, runs that were stopped, and first starts.
//!
//! ```text
//! statuses -> by kind and reason
//!          -> preempted, started, rejected as too late -> their jobs (asked of the engine, many at once) -> preemptions, starts
//! ```
//!
//! Never: a gap in silence: statuses that were not read in time, and jobs that had left by then, are counted too.

use super::catalogue;
use super::family::{Family, OTHER};
use super::preemptions::{Preempted, Preemptions, cause};
use super::series::ShownSeries;
use super::starts::JobStarts;
use crate::driver::{DriverHandle, MailboxError, QueryContext, StatusStream, StreamEnd};
use forebay_engine::engine::Engine;
use forebay_kernel::effect::{Status, StatusKind};
use forebay_kernel::ids::JobId;
use forebay_kernel::reason::Reason;
use forebay_kernel::state::State;
use forebay_kernel::units::{Span, Timestamp};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Jobs that are looked up together.
const MOST_TOGETHER: usize = 256;

/// The label of a status without a reason.
const NO_REASON: &str = "(none)";

/// What has been counted since this process started.
#[derive(Debug, Default)]
pub struct StatusCounts {
    inside: Mutex<Inside>,
    shown: ShownSeries,
}

#[derive(Debug, Default)]
struct Inside {
    kinds: BTreeMap<(StatusKind, &'static str), u64>,
    preemptions: Preemptions,
    starts: JobStarts,
    unread: u64,
}

/// A status whose job has to be looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counted {
    /// A run was stopped, for this cause.
    Preempted(Preempted, &'static str),
    /// All workers run, for the first time or again.
    Started { job: JobId, at: Timestamp },
    /// The job was rejected because it had not started by its queue's target.
    TooLate { job: JobId },
}

/// What there is to know of its job.
#[derive(Clone, Debug)]
struct JobFacts {
    queue: String,
    declared: bool,
    tier: String,
    arrival: Timestamp,
    first_start: Option<Timestamp>,
    /// The start target of its queue.
    within: Option<Span>,
}

impl Counted {
    /// `None`: this status is of something else, or of no job.
    fn of(status: &Status) -> Option<Counted> {
        let job = status.job?;
        match (status.kind, status.reason) {
            (StatusKind::Started, _) => Some(Counted::Started { job, at: status.at }),
            (StatusKind::Rejected, Some(Reason::StartTooLate { .. })) => Some(Counted::TooLate { job }),
            _ => {
                let stopped = Preempted { job, attempt: status.attempt, at: Some(status.at) };
                cause(status).map(|cause| Counted::Preempted(stopped, cause))
            }
        }
    }

    fn job(self) -> JobId {
        match self {
            Counted::Preempted(Preempted { job, .. }, _) | Counted::Started { job, .. } | Counted::TooLate { job } => {
                job
            }
        }
    }
}

impl StatusCounts {
    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What answers have shown of these and of all other counts, since this process started.
    #[must_use]
    pub fn shown(&self) -> &ShownSeries {
        &self.shown
    }

    /// Counts what is said from the start of this process on, until the driver stops.
    pub async fn follow(self: Arc<Self>, handle: DriverHandle) {
        let (mut stream, mut due) = from_the_start(&handle);
        loop {
            match stream.next().await {
                Ok(status) => {
                    due = status.number + 1;
                    let mut counted: Vec<Counted> = Vec::from_iter(self.lock().read(&status));
                    while !counted.is_empty() && counted.len() < MOST_TOGETHER {
                        // What ends the stream comes again with the next look.
                        let Ok(Some(status)) = stream.try_next() else { break };
                        due = status.number + 1;
                        counted.extend(self.lock().read(&status));
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

    /// Counts these under what their jobs are. `None`: the driver has stopped.
    async fn take(&self, handle: &DriverHandle, counted: Vec<Counted>) -> Option<()> {
        let counted: Arc<[Counted]> = counted.into();
        let (facts, wall_clock) = loop {
            let asked = Arc::clone(&counted);
            match handle.query_async(move |engine, context| facts_of(engine, context, &asked)).await {
                Ok(facts) => break facts,
                // The stream keeps what comes meanwhile, as much of it as it keeps; what it drops is counted as unread.
                Err(MailboxError::Full { retry_after }) => tokio::time::sleep(retry_after).await,
                Err(MailboxError::TooMany { .. } | MailboxError::Stopped(_)) => return None,
            }
        };
        let mut inside = self.lock();
        for (counted, facts) in counted.iter().zip(facts) {
            inside.count(*counted, facts, wall_clock);
        }
        Some(())
    }

    /// Preemptions and start targets. Of queues only those that `shows`, of exemplars only those of jobs that `sees`.
    #[must_use]
    pub fn families(&self, state: &State, shows: impl Fn(&str) -> bool, sees: impl Fn(JobId) -> bool) -> Vec<Family> {
        let inside = self.lock();
        let unread = Family::of(&catalogue::PREEMPTION_STATUSES_UNREAD).with(&[], inside.unread);
        let mut families = vec![inside.preemptions.family(&shows, sees), unread];
        families.extend(inside.starts.targets(state, shows));
        families
    }

    /// Figures of all tenants together.
    #[must_use]
    pub fn overall(&self) -> Vec<Family> {
        let inside = self.lock();
        let mut kinds = Family::of(&catalogue::STATUSES_BY_KIND);
        for ((kind, reason), count) in &inside.kinds {
            kinds.set(&[("kind", kind.as_str()), ("reason", reason)], *count);
        }
        vec![kinds, inside.starts.waits()]
    }
}

impl Inside {
    /// Counts a status by what it says. Returns it where its job has to be looked up.
    fn read(&mut self, status: &Status) -> Option<Counted> {
        let reason = status.reason.map_or(NO_REASON, Reason::code);
        *self.kinds.entry((status.kind, reason)).or_default() += 1;
        Counted::of(status)
    }

    fn count(&mut self, counted: Counted, facts: Option<JobFacts>, wall_clock: bool) {
        match (counted, facts) {
            (Counted::Preempted(stopped, cause), facts) => {
                let at = stopped.at.filter(|_| wall_clock);
                let (queue, declared) = facts.map_or((OTHER.to_owned(), false), |facts| (facts.queue, facts.declared));
                self.preemptions.count(queue, declared, cause, Preempted { at, ..stopped });
            }
            (Counted::Started { at, .. }, Some(facts)) => {
                if facts.first_start == Some(at) {
                    self.starts.started(&facts.queue, &facts.tier, at.since(facts.arrival), facts.within);
                }
            }
            (Counted::TooLate { .. }, Some(facts)) => self.starts.rejected(&facts.queue),
            (Counted::Started { .. } | Counted::TooLate { .. }, None) => self.unread += 1,
        }
    }
}

/// From the oldest status that is kept, with its number: a process that has just started has dropped none of its own.
fn from_the_start(handle: &DriverHandle) -> (StatusStream, u64) {
    match handle.statuses(0).try_next() {
        Err(StreamEnd::Missed { before }) => (handle.statuses(before.saturating_sub(1)), before),
        _ => (handle.statuses(0), 1),
    }
}

/// The facts of the jobs of these, in order, and whether times are the wall's.
fn facts_of(engine: &Engine, context: &QueryContext, counted: &[Counted]) -> (Vec<Option<JobFacts>>, bool) {
    let state = engine.state();
    (counted.iter().map(|one| job_facts(state, one.job())).collect(), context.wall_clock)
}

/// `None`: the job has left the state.
fn job_facts(state: &State, id: JobId) -> Option<JobFacts> {
    let (job, spec) = state.job(id)?;
    let policy = state.policy();
    let tier = policy.and_then(|policy| policy.tiers.get(job.tier.index()));
    let start = state.queues().get(job.queue).and_then(|queue| queue.rule.as_ref()?.start);
    Some(JobFacts {
        queue: spec.queue.clone(),
        declared: policy.is_some_and(|policy| policy.queues.contains_key(&spec.queue)),
        tier: tier.map(|tier| tier.name.clone()).unwrap_or_default(),
        arrival: job.arrival,
        first_start: job.first_start,
        within: start.map(|target| target.within),
    })
}

#[cfg(test)]
mod tests {
    use super::super::family::text;
    use super::*;
    use forebay_kernel::ids::Attempt;

    fn status(kind: StatusKind, reason: Option<Reason>) -> Status {
        Status {
            number: 1,
            at: Timestamp(90_000),
            tenant: String::new(),
            subject: String::new(),
            job: Some(JobId(12)),
            attempt: Attempt(3),
            seq: 1,
            kind,
            reason,
            named: None,
            run: None,
            labels: BTreeMap::new(),
        }
    }

    fn facts(first_start: Timestamp) -> JobFacts {
        JobFacts {
            queue: "q".to_owned(),
            declared: true,
            tier: "normal".to_owned(),
            arrival: Timestamp(30_000),
            first_start: Some(first_start),
            within: Some(Span::secs(60)),
        }
    }

    fn has(families: Vec<Family>, line: &str) {
        let written = text(families).unwrap();
        assert!(written.lines().any(|l| l == line), "{line} in {written}");
    }

    #[test]
    fn each_status_counts_by_kind_and_reason_and_some_need_their_job() {
        let counts = StatusCounts::default();
        let read = |kind, reason| counts.lock().read(&status(kind, reason));
        let (job, at) = (JobId(12), Timestamp(90_000));
        assert_eq!(read(StatusKind::Queued, None), None);
        assert_eq!(read(StatusKind::Queued, Some(Reason::DeadlineOnlyCounted)), None);
        assert_eq!(read(StatusKind::Started, None), Some(Counted::Started { job, at }));
        assert_eq!(read(StatusKind::Rejected, Some(Reason::UnknownQueue)), None);
        let late = Some(Reason::StartTooLate { within: Span::secs(60) });
        assert_eq!(read(StatusKind::Rejected, late), Some(Counted::TooLate { job }));
        let stopped = Preempted { job, attempt: Attempt(3), at: Some(at) };
        assert_eq!(read(StatusKind::Preempted, Some(Reason::Moved)), Some(Counted::Preempted(stopped, "moved")));
        for (kind, reason) in [
            ("queued", "(none)"),
            ("queued", "DeadlineOnlyCounted"),
            ("rejected", "StartTooLate"),
            ("preempted", "Moved"),
        ] {
            has(counts.overall(), &format!("forebay_statuses_by_kind_total{{kind=\"{kind}\",reason=\"{reason}\"}} 1"));
        }
    }

    #[test]
    fn first_starts_count_and_later_ones_do_not_and_what_has_left_is_said() {
        let counts = StatusCounts::default();
        let (job, at) = (JobId(12), Timestamp(90_000));
        counts.lock().count(Counted::Started { job, at }, Some(facts(at)), true);
        counts.lock().count(Counted::Started { job, at }, Some(facts(Timestamp(80_000))), true);
        counts.lock().count(Counted::TooLate { job }, Some(facts(at)), true);
        counts.lock().count(Counted::Started { job, at }, None, true);
        has(counts.overall(), "forebay_start_wait_seconds_sum{tier=\"normal\"} 60.0");
        let families = || counts.families(&State::default(), |_| true, |_| true);
        has(families(), "forebay_start_target_jobs_total{queue=\"q\",outcome=\"in-time\"} 1");
        has(families(), "forebay_start_target_jobs_total{queue=\"q\",outcome=\"late\"} 1");
        has(families(), "forebay_preemption_statuses_unread_total 1");
    }

    #[test]
    fn a_preempted_run_whose_job_has_left_is_of_the_others_queue() {
        let counts = StatusCounts::default();
        let stopped = Preempted { job: JobId(12), attempt: Attempt(3), at: Some(Timestamp(90_000)) };
        counts.lock().count(Counted::Preempted(stopped, "moved"), None, false);
        let families = counts.families(&State::default(), |_| true, |_| true);
        has(
            families,
            "forebay_preemptions_total{queue=\"other\",cause=\"moved\"} 1 # {job=\"job-12\",attempt=\"3\"} 1.0",
        );
    }
}
