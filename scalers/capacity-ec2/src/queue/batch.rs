//! What is handed out: the messages of one answer, and the way to say that they are durable.
//!
//! Never: lost by being dropped. What was not said to be durable comes again.

use crate::notice::{Message, NoticeError};
use forebay_engine::units::Millis;
use tokio::sync::oneshot;

/// The messages of one answer, ten at most.
#[derive(Debug)]
pub struct Batch {
    /// The queue's name.
    pub queue: String,
    /// The messages, in the order in which they came.
    pub letters: Vec<Letter>,
    pub(super) receipt: oneshot::Sender<()>,
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    /// SQS's id of it; the same when it comes again.
    pub id: String,
    /// When SQS took it, since 1970, where it says so.
    pub sent: Option<Millis>,
    /// What it says.
    pub said: Result<Message, NoticeError>,
    /// Its bytes, as they came: for whoever keeps what was rejected.
    pub body: String,
}

impl Batch {
    /// The engine holds what these messages say, or somebody keeps the bytes of those that say nothing: they are deleted now.
    pub fn durable(self) {
        // A reader that has ended deletes nothing more; they come again and are known then.
        let _ = self.receipt.send(());
    }
}
