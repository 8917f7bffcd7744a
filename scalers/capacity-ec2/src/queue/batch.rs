//! The batches that a reader hands out, and their acknowledgement. Messages of a batch that is dropped are received again.

use crate::clock::ClockReading;
use crate::notice::{NoticeError, QueueMessage};
use forebay_kernel::units::{Span, Timestamp};
use std::time::Instant;
use tokio::sync::oneshot;

/// The messages of one response, at most ten.
#[derive(Debug)]
pub struct NoticeBatch {
    /// The queue's name.
    pub queue: String,
    /// The messages in the order in which they were received.
    pub messages: Vec<ReceivedMessage>,
    pub(super) acknowledgement: oneshot::Sender<()>,
}

/// A message of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedMessage {
    /// The message id of SQS, which stays the same when the message is received again.
    pub id: String,
    /// When it was sent to SQS, if SQS says so.
    pub sent: Option<Timestamp>,
    /// When it was received, on AWS's clock, at the earliest.
    pub received: Timestamp,
    /// When it arrived here, for how long it has waited since.
    pub arrived: Instant,
    /// The decoded body.
    pub content: Result<QueueMessage, NoticeError>,
    /// The body as it was received, for a log of rejected messages.
    pub body: String,
}

impl ReceivedMessage {
    /// Now, by AWS's clock and by the engine's, whose time is `engine`. AWS's time comes from the message alone: the clock of this machine, which may
    /// be wrong, makes no warning seem past or far away.
    #[must_use]
    pub fn clock_reading(&self, engine: Timestamp) -> ClockReading {
        let event_sent = match &self.content {
            Ok(QueueMessage::Notice(notice)) => notice.sent,
            _ => None,
        };
        // It was received after it was sent, whatever the times in it say.
        let received = self.sent.into_iter().chain(event_sent).fold(self.received, Timestamp::max);
        let waited = Span(u64::try_from(self.arrived.elapsed().as_millis()).unwrap_or(u64::MAX));
        ClockReading { aws: received + waited, engine }
    }
}

impl NoticeBatch {
    /// Lets the reader delete the messages, because their content is durable: in the journal, or in the log of rejected messages.
    pub fn acknowledge(self) {
        // A stopped reader deletes nothing. The messages are then received again, and ignored as known.
        let _ = self.acknowledgement.send(());
    }
}
