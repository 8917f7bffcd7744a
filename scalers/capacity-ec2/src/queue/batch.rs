//! The batches that a reader hands out, and their acknowledgement. Messages of a batch that is dropped are received again.

use crate::notice::{NoticeError, QueueMessage};
use forebay_kernel::units::Timestamp;
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
    /// The decoded body.
    pub content: Result<QueueMessage, NoticeError>,
    /// The body as it was received, for a log of rejected messages.
    pub body: String,
}

impl NoticeBatch {
    /// Lets the reader delete the messages, because their content is durable: in the journal, or in the log of rejected messages.
    pub fn acknowledge(self) {
        // A stopped reader deletes nothing. The messages are then received again, and ignored as known.
        let _ = self.acknowledgement.send(());
    }
}
