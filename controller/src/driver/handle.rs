//! The way to a running driver from other threads: submit events, ask, watch, stop. Everything goes through one bounded mailbox.
//!
//! ```text
//! HTTP, CLI --submit--> mailbox --> driver thread: batch -> journal -> answer (durable by then)
//!           --query --> mailbox --> driver thread: runs between batches on &Engine
//!           <--watch--- Progress after every batch        <--statuses--- every status after it is durable
//! ```
//!
//! Never: touches the engine itself, or keeps anything that is not bounded.

use super::mailbox::Mailbox;
use super::post::{Answer, Content, Item, Post};
use super::stream::{StatusStream, Tail};
use crate::intake::EventId;
use forebay_engine::engine::Engine;
use forebay_engine::event::Event;
use forebay_engine::ids::{JobId, Seq};
use forebay_engine::plan::PlanReport;
use forebay_engine::reason::Reason;
use forebay_engine::units::Millis;
use forebay_source::{Desk, Durable, Incoming};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use uuid::Uuid;

/// A way to a running driver. Cheap to clone; works from any thread, async or not.
#[derive(Clone)]
pub struct Handle {
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) progress: watch::Receiver<Progress>,
    pub(super) tail: Arc<Tail>,
    pub(super) journal: Uuid,
    pub(super) folder: Arc<PathBuf>,
    pub(super) durable: Durable,
}

/// A submission that is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Position of the batch that holds it.
    pub seq: Seq,
    /// The engine's time at that batch.
    pub at: Millis,
    /// What became of each event, in the order given.
    pub outcomes: Vec<Outcome>,
}

/// What became of one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A submission became this job.
    Job(JobId),
    /// A submission said again what is known: this job exists with the same specification.
    Known(JobId),
    /// A submission became this job, and the job can never run: it is rejected already.
    Rejected(JobId, Reason),
    /// A submission was refused and is no job; a status `rejected` says so too.
    Refused(Reason),
    /// The same event came before; this is its job, where it is about one.
    Seen(Option<JobId>),
    /// What was sent is no event; the sender is told elsewhere.
    Unreadable,
    /// Any other event, taken.
    Taken,
    /// Any other event that said nothing new: a cancellation of a job that is over or unknown, a report of a run that is not current.
    Ignored,
}

/// Why events or a question were not taken. None of them was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Busy {
    /// The mailbox is full.
    #[error("the mailbox is full: try again in {retry_after:?}")]
    Full {
        /// When there may be room again.
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
    Stopped(#[from] Stopped),
}

/// The driver does not run any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the controller has stopped: see its log, start it again, and send what was not answered once more")]
pub struct Stopped;

/// What a query sees beside the engine.
#[derive(Clone, Debug)]
pub struct Context {
    /// The journal's UUID: the first half of every effect's and status event's id.
    pub journal: Uuid,
    /// Where the journal is.
    pub folder: PathBuf,
    /// The written policy in force, where one is journaled.
    pub policy_source: Option<Arc<str>>,
    /// What the last pass that did anything said.
    pub report: PlanReport,
    /// Whether the driver's clock is the wall's (else times are the replayed file's).
    pub wall_clock: bool,
}

/// The figures that matter, after every batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The engine's time.
    pub now: Millis,
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
    /// Jobs to come in all, where the input says so (a replay's file); else those accepted so far.
    pub total: u64,
    /// Jobs stopped for others, nodes taken back by the cloud.
    pub preemptions: u64,
    /// Nodes that the cloud took back.
    pub reclaims: u64,
    /// The number of the last status.
    pub statuses: u64,
    /// Events read from a replay's file so far.
    pub fed: u64,
    /// A replay's file is at its end and nothing is left to do.
    pub drained: bool,
    /// Nothing is received: why (the disk is full). Goes away by itself when there is room.
    pub paused: Option<String>,
    /// The driver has stopped; no further change comes.
    pub stopped: bool,
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle").field("journal", &self.journal).field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl Handle {
    /// Takes events into one batch and returns when that batch is durable. Blocks; not for async code.
    pub fn submit(&self, events: Vec<Event>) -> Result<Accepted, Busy> {
        self.send(events.into_iter().map(|event| (event, None)))?.blocking_recv().map_err(|_| Stopped)?
    }

    /// [`Handle::submit`] for async code.
    pub async fn submit_async(&self, events: Vec<Event>) -> Result<Accepted, Busy> {
        self.submit_known(events.into_iter().map(|event| (event, None)).collect()).await
    }

    /// Takes events with the ids by which they are known when they come again.
    pub async fn submit_known(&self, events: Vec<(Event, Option<EventId>)>) -> Result<Accepted, Busy> {
        self.send(events.into_iter())?.await.map_err(|_| Stopped)?
    }

    /// Takes what came from outside by another way than a source's: events, and what was sent instead of one with its bytes.
    pub async fn submit_items(&self, items: Vec<Item>) -> Result<Accepted, Busy> {
        let (answer, answered) = oneshot::channel();
        self.mailbox.submit(items, Answer::Client(answer))?;
        answered.await.map_err(|_| Stopped)?
    }

    /// Takes what a source handed in. Its slot is held, and its answer told, when it is durable.
    pub fn post(&self, post: Post) -> Result<(), Stopped> {
        self.mailbox.post(post)
    }

    /// A desk for a source, over the mailbox's room and the journal's positions, and its other side.
    #[must_use]
    pub fn desk(&self) -> (Desk, Incoming) {
        forebay_source::desk(Arc::clone(&self.mailbox.room), self.durable.clone())
    }

    /// How far sources have been read and sinks have come, as the journal has it.
    #[must_use]
    pub fn durable(&self) -> &Durable {
        &self.durable
    }

    /// Notes how far a sink has come; it is in the journal with the next batch.
    pub fn note(&self, sink: &str, number: u64) {
        self.mailbox.note(sink, number);
    }

    /// Runs `ask` on the driver's thread between two batches. Blocks; not for async code.
    pub fn query<R, F>(&self, ask: F) -> Result<R, Busy>
    where
        R: Send + 'static,
        F: FnOnce(&Engine, &Context) -> R + Send + 'static,
    {
        Ok(self.ask(ask)?.blocking_recv().map_err(|_| Stopped)?)
    }

    /// [`Handle::query`] for async code.
    pub async fn query_async<R, F>(&self, ask: F) -> Result<R, Busy>
    where
        R: Send + 'static,
        F: FnOnce(&Engine, &Context) -> R + Send + 'static,
    {
        Ok(self.ask(ask)?.await.map_err(|_| Stopped)?)
    }

    /// The figures that matter, new after every batch.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Progress> {
        self.progress.clone()
    }

    /// Every status with a number above `after`, in order and without a gap, as far back as it is kept in memory.
    #[must_use]
    pub fn statuses(&self, after: u64) -> StatusStream {
        StatusStream::new(Arc::clone(&self.tail), after)
    }

    /// The journal's UUID.
    #[must_use]
    pub fn journal(&self) -> Uuid {
        self.journal
    }

    /// The folder with the journal, `status.jsonl` and `rejected.jsonl`.
    #[must_use]
    pub fn folder(&self) -> &std::path::Path {
        &self.folder
    }

    /// Asks the driver to end after what it has at hand. Returns at once; `Running::join` waits for the end.
    pub fn stop(&self) {
        self.mailbox.stop();
    }

    fn send(
        &self,
        events: impl Iterator<Item = (Event, Option<EventId>)>,
    ) -> Result<oneshot::Receiver<Result<Accepted, Busy>>, Busy> {
        let (answer, answered) = oneshot::channel();
        let items = events.map(|(event, id)| Item { content: Content::Event(event), id, ..Item::default() });
        self.mailbox.submit(items.collect(), Answer::Client(answer))?;
        Ok(answered)
    }

    fn ask<R, F>(&self, ask: F) -> Result<oneshot::Receiver<R>, Busy>
    where
        R: Send + 'static,
        F: FnOnce(&Engine, &Context) -> R + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let run = Box::new(move |engine: &Engine, context: &Context| {
            // Whoever asked may have gone; that is their business.
            let _ = answer.send(ask(engine, context));
        });
        self.mailbox.ask(run)?;
        Ok(answered)
    }
}
