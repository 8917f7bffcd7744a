//! What is written down: one batch is one journal transaction. The engine defines the records, their bytes and the chain
//! between them; where the bytes go is the business of whoever implements [`Journal`].
//!
//! ```text
//! batch = tick + events + decisions        first_seq, first_seq + 1, ...
//! ```
//!
//! Never: IO of its own. The meaning of a record is frozen by [`APPLY_VERSION`]: a new meaning is a new variant.

use crate::decision::Decision;
use crate::event::{Event, Tick};
use crate::ids::Seq;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// The newest version of the records' meaning that this build writes and understands.
pub const APPLY_VERSION: u32 = 1;

/// One journal transaction: all inputs of one pass and all that was decided on them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Batch {
    /// Position of the tick. Event `i` is at `first_seq + 1 + i`; decisions follow the events.
    pub first_seq: Seq,
    /// When.
    pub tick: Tick,
    /// What entered, in order.
    pub events: Vec<Event>,
    /// What was decided, in order.
    pub decisions: Vec<Decision>,
}

impl Batch {
    /// The position after this batch's last record.
    #[must_use]
    pub fn next_seq(&self) -> Seq {
        Seq(self.first_seq.0 + 1 + self.events.len() as u64 + self.decisions.len() as u64)
    }

    /// The bytes that are journaled.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_allocvec(self).unwrap_or_default()
    }

    /// Reads journaled bytes back. An error means damage or a record of a newer version.
    pub fn decode(bytes: &[u8]) -> Result<Batch, postcard::Error> {
        postcard::from_bytes(bytes)
    }
}

/// A durable log of batches. Small enough for an embedded database now and for a replicated log later.
pub trait Journal {
    /// Why it could not be written or read.
    type Error;

    /// Makes a batch durable. When this returns, a crash keeps it; when it fails, the process must end and recover.
    fn append(&mut self, batch: &Batch) -> Result<(), Self::Error>;

    /// Keeps a snapshot of the state as it is after the last appended batch, so that recovery starts there.
    fn snapshot(&mut self, state: &[u8]) -> Result<(), Self::Error>;
}
