//! What comes into the driver's mailbox: events of a client or of a source, decoded, with the way back to whoever waits.
//!
//! Never: more than its slot has room for.

use super::handle::{Accepted, ItemOutcome, MailboxError};
use super::shares::HeldShare;
use forebay_kernel::event::Event;
use forebay_kernel::reason::Reason;
use forebay_kernel::state::State;
use forebay_source::{MessagePermit, Receipt, StreamPosition};
use forebay_wire::intake::{EventId, Rejected};
use std::fmt;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Events that become durable together.
#[derive(Debug)]
pub struct Submission {
    /// In order.
    pub items: Vec<SubmittedItem>,
    /// The log that they were read from, and how far.
    pub stream: Option<StreamPosition>,
    /// Their room in memory, given back when they are durable.
    pub slot: MessagePermit,
    /// Where the answer goes.
    pub reply_to: ReplyTo,
    /// Who sent it: those of one sender are taken in order, and senders in turns.
    pub sender: SubmissionSender,
}

/// What becomes of an event that is not for the engine, because of who sends it: it is neither taken nor remembered. `None`: it is for
/// the engine. Asked when its batch is put together, so that it speaks of the state that the event meets.
pub type SenderRule = Arc<dyn Fn(&State, &Event) -> Option<ItemOutcome> + Send + Sync>;

/// Who sends, and what it holds of the mailbox until that is durable.
pub struct SubmissionSender {
    /// Whose turn it is.
    pub name: Arc<str>,
    /// Given back when the submission is durable. `None`: its slot is its only bound.
    pub share: Option<HeldShare>,
    /// What it may ask. `None`: everything.
    pub rule: Option<SenderRule>,
}

impl fmt::Debug for SubmissionSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubmissionSender").field("name", &self.name).field("share", &self.share).finish_non_exhaustive()
    }
}

impl SubmissionSender {
    /// A source, whose slots bound what it sends.
    #[must_use]
    pub fn source(name: Arc<str>) -> SubmissionSender {
        SubmissionSender { name, share: None, rule: None }
    }
}

/// One event, or what was sent instead of one.
#[derive(Debug, Default)]
pub struct SubmittedItem {
    /// The event.
    pub content: ItemContent,
    /// By which it is recognized when it comes again; forgotten where the event is refused.
    pub id: Option<EventId>,
    /// By which its transport recognizes it; remembered whatever becomes of it.
    pub transport_id: Option<EventId>,
    /// As it was sent, for the log of the rejected; `None` where the answer is enough.
    pub original: Option<Box<Original>>,
}

/// What was sent.
#[derive(Debug, Default)]
pub enum ItemContent {
    /// Nothing any more: it has been taken.
    #[default]
    Taken,
    /// An event.
    Event(Event),
    /// Something that is no event.
    Unreadable(Rejected),
}

impl From<Event> for SubmittedItem {
    fn from(event: Event) -> SubmittedItem {
        SubmittedItem { content: ItemContent::Event(event), ..SubmittedItem::default() }
    }
}

/// A message as it was received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Original {
    /// Where from: `kafka:jobs/3`, `sqs:jobs`, a file's name.
    pub source: Arc<str>,
    /// Its number there: an offset, a line. 0: it has none.
    pub position: u64,
    /// Its transport's own id, where that has one.
    pub message: Option<String>,
    /// Attributes beside the body.
    pub attributes: Vec<(String, String)>,
    /// The body.
    pub bytes: Vec<u8>,
    /// When the broker took it, in ms since 1970.
    pub sent_ms: Option<u64>,
}

/// A message that was not taken, for the log of the rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// As it was received.
    pub original: Original,
    /// A stable code: that of a [`Rejected`] or of a [`Reason`].
    pub code: &'static str,
    /// Where in the message: a JSON path.
    pub path: String,
    /// What is wrong there, and what to do about it.
    pub message: String,
}

impl Rejection {
    /// It could not be read as an event.
    #[must_use]
    pub fn unreadable(original: Original, why: Rejected) -> Rejection {
        let Rejected { code, path, message } = why;
        Rejection { original, code: code.as_str(), path, message }
    }

    /// The engine or the policy refused it.
    #[must_use]
    pub fn refused(original: Original, reason: Reason) -> Rejection {
        let path = refused_path(reason).to_owned();
        Rejection { original, code: reason.code(), path, message: reason.to_string() }
    }
}

/// The place in an event that a refusal is about, as a JSON path.
#[must_use]
pub fn refused_path(reason: Reason) -> &'static str {
    match reason {
        Reason::UnknownQueue | Reason::ForbiddenQueue | Reason::TooManyQueues { .. } => "data.queue",
        Reason::ForbiddenTier { .. } => "data.tier",
        Reason::Conflict => "subject",
        Reason::TenantFull { .. } => "$",
        _ => "data",
    }
}

/// Counts what becomes of a source's messages.
pub trait SourceObserver: Send + Sync {
    /// So many messages became durable: those that were new, and those that were seen before.
    fn durable(&self, counts: Receipt);

    /// A message was not taken, for this stable code.
    fn rejected(&self, code: &str);

    /// A message took so long from its broker to the journal.
    fn took_ms(&self, ms: u64);
}

/// Where the answer goes when a submission is durable. Dropped without an answer: it never will be durable.
pub enum ReplyTo {
    /// A client that waits.
    Client(oneshot::Sender<Result<Accepted, MailboxError>>),
    /// A source, and what counts its messages.
    Source(oneshot::Sender<Receipt>, Arc<dyn SourceObserver>),
}

impl fmt::Debug for ReplyTo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ReplyTo::Client(_) => "Client",
            ReplyTo::Source(..) => "Source",
        })
    }
}
