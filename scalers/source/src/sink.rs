//! What the controller asks of a sink: to send statuses and rejected events, each under an id that stays the same however often it is
//! sent. The controller resends from the last acknowledged message, so a sink never leaves a gap.

/// One message to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutgoingMessage {
    /// Its number in the file that it comes from; numbers start at 1 and have no gaps.
    pub number: u64,
    /// Stays the same when the message is sent again.
    pub id: String,
    /// Messages with the same key keep their order. It is made of a job's tenant and subject.
    pub key: String,
    /// Its CloudEvents type, such as `status.queued`.
    pub kind: String,
    /// One structured CloudEvent as JSON.
    pub bytes: Vec<u8>,
}

/// Why a call of [`Sink::send`] failed. None of its messages counts as sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SinkError {
    /// The failure may pass by itself or be fixed; the controller retries after a delay.
    #[error("{why}")]
    Transient {
        /// What is wrong, and what to do.
        why: String,
    },
    /// This message will never be accepted. The controller shrinks it, or leaves it in its file.
    #[error("message {number} is not accepted: {why}")]
    Refused {
        /// [`OutgoingMessage::number`] of the message.
        number: u64,
        /// What is wrong.
        why: String,
    },
}

/// A destination for statuses or rejected events.
pub trait Sink: Send {
    /// The name in the journal and in logs, such as `kafka:jobs.status`. It must never change, because the sink's cursor is stored
    /// under it.
    fn name(&self) -> &str;

    /// The largest body that is accepted, in bytes.
    fn max_bytes(&self) -> usize;

    /// Sends the messages in order and returns once each of them is acknowledged. Blocks for at most about 10 s.
    ///
    /// # Errors
    /// Some messages were not acknowledged. All of them are sent again.
    fn send(&mut self, messages: &[OutgoingMessage]) -> Result<(), SinkError>;
}
