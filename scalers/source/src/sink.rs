//! What a sink takes: statuses and rejected events, each with an id that stays the same however often it is sent.
//!
//! Never: a gap. The controller sends again from the last that was acknowledged.

/// One message to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Its number in its file, from 1 without a gap.
    pub number: u64,
    /// Its id: the same when it is sent again.
    pub id: String,
    /// Messages with one key stay in order: the tenant and the subject of a job.
    pub key: String,
    /// Its CloudEvents type, such as `status.queued`.
    pub kind: String,
    /// One structured CloudEvent as JSON.
    pub bytes: Vec<u8>,
}

/// Why notes were not sent. None of them counts as sent; they are sent again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SinkError {
    /// It passes, or somebody mends it: tried again after a pause.
    #[error("{why}")]
    Passing {
        /// What is wrong, and what to do.
        why: String,
    },
    /// This one note is never taken; the controller makes it smaller or leaves it to its file.
    #[error("note {number} is not taken: {why}")]
    Refused {
        /// Which.
        number: u64,
        /// What is wrong.
        why: String,
    },
}

/// Where notes are sent.
pub trait Sink: Send {
    /// Its name in the journal and in logs, such as `kafka:jobs.status`. Never changes: its cursor is kept under it.
    fn name(&self) -> &str;

    /// Bytes that one note may have.
    fn most_bytes(&self) -> usize;

    /// Sends them in order and returns when every one is acknowledged. Blocks for some 10 s at most.
    ///
    /// # Errors
    /// They are sent again, all of them.
    fn send(&mut self, notes: &[Note]) -> Result<(), SinkError>;
}
