//! What comes into a driver's mailbox: a client's events or a source's parcel, decoded, with the way back to whoever waits.
//!
//! Never: more than its slot has room for.

use super::handle::{Accepted, Busy};
use crate::intake::{EventId, Rejected};
use crate::sources::figures::SourceFigures;
use forebay_engine::event::Event;
use forebay_source::{Receipt, Slot, Stream};
use std::sync::Arc;
use tokio::sync::oneshot;

/// Events that become durable together.
#[derive(Debug)]
pub struct Post {
    /// In order.
    pub items: Vec<Item>,
    /// The log that they were read from, and how far.
    pub stream: Option<Stream>,
    /// Their room in memory, given back when they are durable.
    pub slot: Slot,
    /// Whom to tell.
    pub answer: Answer,
}

/// One event, or what was sent instead of one.
#[derive(Debug, Default)]
pub struct Item {
    /// What it says.
    pub content: Content,
    /// By which it is known when it comes again; not remembered where the event is refused.
    pub id: Option<EventId>,
    /// By which its transport tells it; remembered whatever becomes of it.
    pub transport_id: Option<EventId>,
    /// As it was sent, for the rejected; `None` where the sender is told by the answer.
    pub original: Option<Box<Original>>,
}

/// What was sent.
#[derive(Debug, Default)]
pub enum Content {
    /// Nothing any more: it has been taken.
    #[default]
    Taken,
    /// An event.
    Event(Event),
    /// Something that is none.
    Unreadable(Rejected),
}

/// A letter as it was received.
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

/// Whom to tell that a post is durable. Dropped without a word: it never will be.
#[derive(Debug)]
pub enum Answer {
    /// A client that waits.
    Client(oneshot::Sender<Result<Accepted, Busy>>),
    /// A source, and the figures that are kept of it.
    Source(oneshot::Sender<Receipt>, Arc<SourceFigures>),
}
