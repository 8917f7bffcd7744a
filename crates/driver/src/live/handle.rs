//! The way to a running driver from other threads: submit events, query, watch, stop. Everything goes through one bounded mailbox.
//!
//! ```text
//! HTTP, CLI --submit--> mailbox --> driver thread: batch -> journal -> answer (durable by then)
//!           --query --> mailbox --> driver thread: runs between batches on &Engine
//!           <--watch--- LiveProgress after every batch    <--statuses--- every status after it is durable
//! ```
//!
//! Never: touches the engine itself, or keeps anything that is not bounded.

use super::clock::ClockOffset;
use super::holds::LoopHolds;
use super::mailbox::Mailbox;
use super::policy::{PolicyChange, PolicyOutcome};
use super::retention::LogReaders;
use super::start::PolicySource;
use super::stream::{StatusStream, StatusTail};
use super::submission::{ReplyTo, SenderRule, Submission, SubmittedItem};
use crate::journal::{JournalId, JournalIdentity};
use forebay_engine::engine::Engine;
use forebay_engine::plan::PlanReport;
use forebay_kernel::event::Event;
use forebay_kernel::ids::{JobId, Seq};
use forebay_kernel::reason::Reason;
use forebay_kernel::units::Timestamp;
use forebay_source::{DurablePositions, IncomingBatches, SourceHandle};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{oneshot, watch};

/// A way to a running driver. Cheap to clone; works from any thread, async or not.
#[derive(Clone)]
pub struct DriverHandle {
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) progress: watch::Receiver<LiveProgress>,
    pub(super) tail: Arc<StatusTail>,
    pub(super) journal: Arc<JournalIdentity>,
    pub(super) folder: Arc<PathBuf>,
    pub(super) durable: DurablePositions,
    pub(super) readers: LogReaders,
    pub(super) holds: LoopHolds,
    pub(super) clock: ClockOffset,
}

/// The process itself, as a sender.
fn own() -> Arc<str> {
    static OWN: OnceLock<Arc<str>> = OnceLock::new();
    Arc::clone(OWN.get_or_init(|| Arc::from("")))
}

/// A submission that is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Position of the batch that holds it.
    pub seq: Seq,
    /// The engine's time at that batch.
    pub at: Timestamp,
    /// What became of each item, in the order given.
    pub outcomes: Vec<ItemOutcome>,
}

/// What became of one item of a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemOutcome {
    /// A submitted job was accepted under this id.
    Job(JobId),
    /// The job is known already, with the same specification.
    Known(JobId),
    /// A submitted job was accepted under this id and can never run: it is rejected already.
    Rejected(JobId, Reason),
    /// A submitted job was refused and has no id; a status `rejected` reports it too.
    Refused(Reason),
    /// The same event came before; this is its job, where it is about one.
    Seen(Option<JobId>),
    /// What was sent is no event; the log of the rejected has it.
    Unreadable,
    /// Any other event, taken.
    Taken,
    /// Any other event that changed nothing: a cancellation of a job that is over or unknown, a report of a run that is not current.
    Ignored,
}

/// Why events or a query were not taken. None of them was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MailboxError {
    /// The mailbox is full.
    #[error("the mailbox is full: try again in {retry_after:?}")]
    Full {
        /// When to try again.
        retry_after: Duration,
    },
    /// More events at once than the mailbox ever holds.
    #[error("{events} events at once are too many: send at most {most}")]
    TooMany {
        /// How many were sent.
        events: usize,
        /// How many can be sent.
        most: usize,
    },
    /// The driver does not run any more.
    #[error(transparent)]
    Stopped(#[from] DriverStopped),
}

/// The driver does not run any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the controller has stopped: see its log, start it again, and send what was not answered once more")]
pub struct DriverStopped;

/// What a query sees beside the engine.
#[derive(Clone, Debug)]
pub struct QueryContext {
    /// The journal's id: the first half of every effect's and status event's id.
    pub journal: JournalId,
    /// Where the journal is.
    pub folder: PathBuf,
    /// The written policy in force, where one is journaled.
    pub policy_source: Option<Arc<str>>,
    /// The report of the last pass that did anything.
    pub report: PlanReport,
    /// Whether the driver follows the wall clock (else times are those of the replayed file).
    pub wall_clock: bool,
    /// The driver's time. The state's may be up to 5 s before it.
    pub now: Timestamp,
}

/// How far the driver is, after every batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveProgress {
    /// The engine's time.
    pub now: Timestamp,
    /// Position of the next record.
    pub seq: Seq,
    /// Jobs that wait: accepted, not over, no worker alive.
    pub queued: usize,
    /// Jobs with workers alive.
    pub running: usize,
    /// Claims by capacity type: reserved, spot, on-demand.
    pub nodes: [usize; 3],
    /// Whole GPUs on them.
    pub gpus: u32,
    /// What all nodes have cost so far, in micro-dollars.
    pub spend_micro: u64,
    /// Jobs that are over, whatever their outcome.
    pub done: u64,
    /// Jobs by outcome: completed, failed, cancelled, rejected.
    pub outcomes: [u64; 4],
    /// All jobs of the input, where their number is known (a replay's file); else those accepted so far.
    pub total: u64,
    /// Runs that were stopped for other jobs.
    pub preemptions: u64,
    /// Nodes that the cloud took back.
    pub reclaims: u64,
    /// The number of the last status.
    pub statuses: u64,
    /// Events read from a replay's file so far.
    pub fed: u64,
    /// A replay's file is at its end and nothing is left to do.
    pub drained: bool,
    /// Why nothing is received (the disk is full). `None` again when there is room.
    pub paused: Option<String>,
    /// The driver has stopped; no further change comes.
    pub stopped: bool,
}

impl std::fmt::Debug for DriverHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("DriverHandle");
        shown.field("journal", &self.journal).field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl DriverHandle {
    /// Takes events into one batch and returns when that batch is durable. Blocks; not for async code.
    ///
    /// # Errors
    /// There is no capacity, or the driver has stopped.
    pub fn submit(&self, events: Vec<Event>) -> Result<Accepted, MailboxError> {
        let items = events.into_iter().map(SubmittedItem::from).collect();
        self.send(&own(), None, items)?.blocking_recv().map_err(|_| DriverStopped)?
    }

    /// Takes events, and what was sent instead of one with its bytes, into one batch, and returns when that batch is durable.
    ///
    /// # Errors
    /// There is no capacity, or the driver has stopped.
    pub async fn submit_items(&self, items: Vec<SubmittedItem>) -> Result<Accepted, MailboxError> {
        self.submit_as(&own(), None, items).await
    }

    /// [`DriverHandle::submit_items`] in the turn of a sender, of which only a part may wait at once, and as far as its rule lets it.
    ///
    /// # Errors
    /// There is no capacity, or none for this sender, or the driver has stopped.
    pub async fn submit_as(
        &self,
        sender: &Arc<str>,
        rule: Option<SenderRule>,
        items: Vec<SubmittedItem>,
    ) -> Result<Accepted, MailboxError> {
        self.send(sender, rule, items)?.await.map_err(|_| DriverStopped)?
    }

    /// Takes a source's submission. Its slot is held until it is durable, and then it is answered.
    ///
    /// # Errors
    /// The driver has stopped.
    pub fn put(&self, submission: Submission) -> Result<(), DriverStopped> {
        self.mailbox.put(submission)
    }

    /// A desk for a source, over the mailbox's capacity and the journal's positions, and its other side.
    #[must_use]
    pub fn source(&self) -> (SourceHandle, IncomingBatches) {
        SourceHandle::new(Arc::clone(&self.mailbox.capacity), self.durable.clone())
    }

    /// How far sources have been read and sinks have come, as the journal has it.
    #[must_use]
    pub fn durable(&self) -> &DurablePositions {
        &self.durable
    }

    /// Records how far a sink has come; it is in the journal with the next batch.
    pub fn record_cursor(&self, sink: &str, number: u64) {
        self.mailbox.record_cursor(sink, number);
    }

    /// Runs `query` on the driver's thread between two batches. Blocks; not for async code.
    ///
    /// # Errors
    /// There is no capacity, or the driver has stopped.
    pub fn query<R: Send + 'static>(
        &self,
        query: impl FnOnce(&Engine, &QueryContext) -> R + Send + 'static,
    ) -> Result<R, MailboxError> {
        Ok(self.enqueue(&own(), query)?.blocking_recv().map_err(|_| DriverStopped)?)
    }

    /// [`DriverHandle::query`] for async code.
    ///
    /// # Errors
    /// There is no capacity, or the driver has stopped.
    pub async fn query_async<R: Send + 'static>(
        &self,
        query: impl FnOnce(&Engine, &QueryContext) -> R + Send + 'static,
    ) -> Result<R, MailboxError> {
        self.query_as(&own(), query).await
    }

    /// [`DriverHandle::query_async`] in the turn of whoever asks, of whose queries only a part may wait at once.
    ///
    /// # Errors
    /// There is no capacity, or none for this one, or the driver has stopped.
    pub async fn query_as<R: Send + 'static>(
        &self,
        sender: &Arc<str>,
        query: impl FnOnce(&Engine, &QueryContext) -> R + Send + 'static,
    ) -> Result<R, MailboxError> {
        Ok(self.enqueue(sender, query)?.await.map_err(|_| DriverStopped)?)
    }

    /// Puts another policy in force between two batches, and returns when that is durable. Nothing that runs is stopped for it.
    ///
    /// # Errors
    /// Another one waits to be put in force, or the driver has stopped.
    pub async fn change_policy(&self, source: PolicySource) -> Result<PolicyOutcome, MailboxError> {
        let (answer, answered) = oneshot::channel();
        self.mailbox.change_policy(PolicyChange { source, answer })?;
        Ok(answered.await.map_err(|_| DriverStopped)?)
    }

    /// For how long work has held the driver's thread at most.
    #[must_use]
    pub fn holds(&self) -> &LoopHolds {
        &self.holds
    }

    /// How far the host's clock is ahead of the driver's time, in ms; behind it, below zero. `None`: the driver's time does not pass as the host's
    /// does, as in a replay.
    #[must_use]
    pub fn clock_offset_ms(&self) -> Option<i64> {
        self.clock.now_ms()
    }

    /// The driver's progress, new after every batch.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<LiveProgress> {
        self.progress.clone()
    }

    /// Every status with a number above `after`, in order and without a gap, as far back as it is kept in memory.
    #[must_use]
    pub fn statuses(&self, after: u64) -> StatusStream {
        StatusStream::new(Arc::clone(&self.tail), after)
    }

    /// Who the journal is.
    #[must_use]
    pub fn journal(&self) -> JournalId {
        self.journal.id
    }

    /// Who the journal is and was: its incarnations, and what each of them knows.
    #[must_use]
    pub fn identity(&self) -> &JournalIdentity {
        &self.journal
    }

    /// Names who reads statuses and rejected events: the keys of their cursors in the journal's positions. What they have not read is
    /// kept. Nothing is taken away before this is known.
    pub fn set_log_readers(&self, cursors: Vec<String>) {
        self.readers.set(cursors);
    }

    /// The data folder: the journal and the logs of statuses and of the rejected.
    #[must_use]
    pub fn folder(&self) -> &std::path::Path {
        &self.folder
    }

    /// Asks the driver to end after what it is working on. Returns at once; [`super::RunningDriver::join`] waits for the end.
    pub fn stop(&self) {
        self.mailbox.stop();
    }

    fn send(
        &self,
        sender: &Arc<str>,
        rule: Option<SenderRule>,
        items: Vec<SubmittedItem>,
    ) -> Result<oneshot::Receiver<Result<Accepted, MailboxError>>, MailboxError> {
        let (answer, answered) = oneshot::channel();
        self.mailbox.submit(sender, rule, items, ReplyTo::Client(answer))?;
        Ok(answered)
    }

    fn enqueue<R: Send + 'static>(
        &self,
        sender: &Arc<str>,
        query: impl FnOnce(&Engine, &QueryContext) -> R + Send + 'static,
    ) -> Result<oneshot::Receiver<R>, MailboxError> {
        let (answer, answered) = oneshot::channel();
        let run = Box::new(move |engine: &Engine, context: &QueryContext| {
            // Whoever asked may have gone; that is their business.
            let _ = answer.send(query(engine, context));
        });
        self.mailbox.query(sender, run)?;
        Ok(answered)
    }
}
