//! The reports that wait for the store: the newest of each job, verified again after delays that double. Their number and size are bounded.
//! What is dropped is still in the store, and found with the next report or the end of the run.

use super::{CheckpointReport, Checkpoints, MAX_CONCURRENT};
use crate::driver::{
    DriverHandle, DriverStopped, ItemContent, Original, ReplyTo, Submission, SubmissionSender, SubmittedItem,
};
use crate::sources::metrics::SourceMetrics;
use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use forebay_driver::live::SourceObserver as _;
use forebay_kernel::event::Event;
use forebay_kernel::ids::JobId;
use forebay_source::Receipt;
use forebay_wire::intake::{EventId, Rejected};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;

/// The most pending jobs, which is more than run at once under one controller.
const MAX_JOBS: usize = 65_536;

/// The most bytes of their messages. One has about 500.
const MAX_BYTES: usize = 64 << 20;

/// The first and the longest delay.
const FIRST_DELAY: Duration = Duration::from_secs(1);
const LONGEST_DELAY: Duration = Duration::from_secs(60);

/// The message of a report, for its outcome.
#[derive(Debug)]
pub struct PendingMessage {
    /// The event id, by which a repeated event is known.
    pub id: Option<EventId>,
    /// The message id of its transport.
    pub transport_id: Option<EventId>,
    /// The message as it was sent, for the log of rejected events.
    pub original: Box<Original>,
    /// The metrics of its source.
    pub metrics: Arc<SourceMetrics>,
}

/// Where a report came from.
#[derive(Debug)]
pub(super) enum ReportOrigin {
    /// A message of a source.
    Source(Box<PendingMessage>),
    /// The start of this process.
    Start,
}

impl ReportOrigin {
    /// Posts the result to the driver: an event, or a rejected message.
    pub async fn post(
        self,
        handle: &DriverHandle,
        job: JobId,
        content: Result<Event, Rejected>,
    ) -> Result<(), DriverStopped> {
        let (item, reply_to) = match (self, content) {
            (ReportOrigin::Source(message), content) => {
                let content = content.map_or_else(ItemContent::Unreadable, ItemContent::Event);
                let PendingMessage { id, transport_id, original, metrics } = *message;
                let item = SubmittedItem { content, id, transport_id, original: Some(original) };
                (item, ReplyTo::Source(oneshot::channel().0, metrics))
            }
            (ReportOrigin::Start, Ok(event)) => (event.into(), ReplyTo::Client(oneshot::channel().0)),
            (ReportOrigin::Start, Err(why)) => {
                tracing::debug!(%job, "no checkpoint of it counts at this start: {}", why.message);
                return Ok(());
            }
        };
        let (source, _) = handle.source();
        let slot = source.reserve(1).await.map_err(|_| DriverStopped)?;
        // Nobody waits for the answer: the source got its receipt when the report was enqueued.
        let sender = SubmissionSender::source(Arc::from("checkpoints"));
        handle.put(Submission { items: vec![item], stream: None, slot, reply_to, sender })
    }
}

/// A pending report.
#[derive(Debug)]
pub(super) struct PendingReport {
    pub report: CheckpointReport,
    pub origin: ReportOrigin,
    delays: ExponentialBackoff,
    at: Instant,
}

impl PendingReport {
    pub fn new(report: CheckpointReport, origin: ReportOrigin) -> PendingReport {
        let delays =
            ExponentialBuilder::new().with_min_delay(FIRST_DELAY).with_max_delay(LONGEST_DELAY).without_max_times();
        PendingReport { report, origin, delays: delays.build(), at: Instant::now() }
    }

    fn bytes(&self) -> usize {
        match &self.origin {
            ReportOrigin::Source(message) => message.original.bytes.len(),
            ReportOrigin::Start => 0,
        }
    }

    /// Whether the other report replaces this one: that of a later attempt, or one of a run in place of one at the start.
    fn is_replaced_by(&self, newer: &PendingReport) -> bool {
        let rank = |entry: &PendingReport| (entry.report.attempt, matches!(entry.origin, ReportOrigin::Source(_)));
        rank(self) <= rank(newer)
    }

    /// Drops a report that is replaced, and counts its message as one with a known event.
    fn drop_counted(self) {
        if let ReportOrigin::Source(message) = self.origin {
            message.metrics.durable(Receipt { seen: 1, ..Receipt::default() });
        }
    }

    /// The delay before the next verification: doubled each time, and up to a fifth longer, so that jobs are not verified all at once.
    fn next_delay(&mut self) -> Duration {
        let step = self.delays.next().unwrap_or(LONGEST_DELAY);
        step + step * (self.report.job.0 % 64) as u32 / 320
    }
}

/// All pending reports.
#[derive(Debug, Default)]
pub(super) struct PendingReports {
    table: Mutex<Table>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Table {
    jobs: BTreeMap<JobId, PendingReport>,
    due: BTreeSet<(Instant, JobId)>,
    bytes: usize,
    full: bool,
}

impl PendingReports {
    fn lock(&self) -> MutexGuard<'_, Table> {
        // No change under this lock can panic half-way.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn len(&self) -> usize {
        self.lock().jobs.len()
    }

    /// Adds a report, which replaces an older one of its job.
    pub fn insert(&self, entry: PendingReport) {
        self.lock().insert(entry);
        self.changed.notify_one();
    }

    /// Adds a report again that could not be verified, unless there is a newer one of its job.
    pub fn retry_later(&self, mut entry: PendingReport) {
        entry.at = Instant::now() + entry.next_delay();
        let mut table = self.lock();
        if table.jobs.contains_key(&entry.report.job) {
            entry.drop_counted();
        } else {
            table.insert(entry);
        }
        drop(table);
        self.changed.notify_one();
    }

    /// Settles the reports that are due, several concurrently, until the driver has stopped.
    pub async fn run(&self, checkpoints: &Checkpoints) {
        let mut running = JoinSet::new();
        loop {
            while running.len() < MAX_CONCURRENT
                && let Some(entry) = self.lock().take_due(Instant::now())
            {
                running.spawn(checkpoints.clone().settle(entry));
            }
            let next = self.lock().due.first().map(|(at, _)| *at);
            let next_at = tokio::time::Instant::from_std(next.unwrap_or_else(Instant::now));
            tokio::select! {
                ended = running.join_next(), if !running.is_empty() => {
                    if let Some(Ok(None)) = ended {
                        return;
                    }
                }
                () = self.changed.notified() => {}
                () = tokio::time::sleep_until(next_at), if next.is_some() && running.len() < MAX_CONCURRENT => {}
            }
        }
    }
}

impl Table {
    fn insert(&mut self, entry: PendingReport) {
        let job = entry.report.job;
        match self.jobs.get(&job) {
            Some(old) if !old.is_replaced_by(&entry) => return entry.drop_counted(),
            Some(_) => self.remove(job).into_iter().for_each(PendingReport::drop_counted),
            None => {}
        }
        if self.jobs.len() >= MAX_JOBS || self.bytes + entry.bytes() > MAX_BYTES {
            if !std::mem::replace(&mut self.full, true) {
                tracing::warn!(
                    "{} checkpoint reports wait for the store; further ones are dropped, and found with the next reports of their jobs",
                    self.jobs.len()
                );
            }
            return entry.drop_counted();
        }
        self.bytes += entry.bytes();
        self.due.insert((entry.at, job));
        self.jobs.insert(job, entry);
    }

    fn remove(&mut self, job: JobId) -> Option<PendingReport> {
        let entry = self.jobs.remove(&job)?;
        self.due.remove(&(entry.at, job));
        self.bytes -= entry.bytes();
        self.full &= !self.jobs.is_empty();
        Some(entry)
    }

    fn take_due(&mut self, now: Instant) -> Option<PendingReport> {
        let (_, job) = self.due.first().filter(|(at, _)| *at <= now)?;
        self.remove(*job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_kernel::ids::Attempt;

    fn entry(job: u64, attempt: u32, bytes: Option<usize>) -> PendingReport {
        let message = |bytes| PendingMessage {
            id: None,
            transport_id: None,
            original: Box::new(Original { bytes: vec![0; bytes], ..Original::default() }),
            metrics: Arc::default(),
        };
        let origin = bytes.map_or(ReportOrigin::Start, |bytes| ReportOrigin::Source(Box::new(message(bytes))));
        PendingReport::new(CheckpointReport { job: JobId(job), attempt: Attempt(attempt), manifest: None }, origin)
    }

    #[test]
    fn the_newest_report_of_each_job_is_pending_and_bytes_are_bounded() {
        let pending = PendingReports::default();
        pending.insert(entry(1, 2, Some(10)));
        pending.insert(entry(1, 2, Some(20)));
        pending.insert(entry(1, 1, Some(30)));
        pending.insert(entry(1, 2, None));
        pending.insert(entry(2, 1, None));
        assert_eq!((pending.len(), pending.lock().bytes), (2, 20));
        pending.insert(entry(3, 1, Some(MAX_BYTES)));
        assert_eq!((pending.len(), pending.lock().full), (2, true));
        let taken = pending.lock().take_due(Instant::now()).expect("one is due");
        assert_eq!((taken.report.job, taken.bytes(), pending.lock().bytes), (JobId(1), 20, 0));
        // A newer one was added while it was verified.
        pending.insert(entry(1, 3, Some(5)));
        pending.retry_later(taken);
        assert_eq!((pending.len(), pending.lock().bytes), (2, 5));
        let taken = pending.lock().take_due(Instant::now()).expect("one is due");
        pending.retry_later(taken);
        assert_eq!(pending.len(), 2, "it waits for its delay");
        assert_eq!(pending.lock().due.len(), 2);
    }

    #[test]
    fn delays_double_up_to_the_longest() {
        for job in [0, 63, 64] {
            let mut entry = entry(job, 1, None);
            for least in [1, 2, 4, 8, 16, 32, 60, 60] {
                let delay = entry.next_delay().as_secs_f64();
                assert!((f64::from(least)..=f64::from(least) * 1.2).contains(&delay), "{least} {job}: {delay}");
            }
        }
    }
}
