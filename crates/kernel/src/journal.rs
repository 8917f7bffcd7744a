//! What is written down: one batch is one journal transaction. The engine defines the records, their bytes and the chain
//! between them; where the bytes go is the business of whoever implements [`Journal`](crate::storage::Journal).
//!
//! ```text
//! batch = tick + events + decisions        first_seq, first_seq + 1, ...
//! ```
//!
//! Never: IO of its own. The meaning of a record is frozen by [`APPLY_VERSION`]: a new meaning is a new variant.

use crate::decision::Decision;
use crate::event::{Event, Tick};
use crate::grown;
use crate::ids::Seq;
use alloc::sync::Arc;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// The version of the records' meaning that this build writes.
///
/// | version | since then |
/// | --- | --- |
/// | 1 | |
/// | 2 | a job that is over leaves the state at the next tick; a submission says what the archive knows of its identity |
/// | 3 | a node may be kept for several jobs; `Unreserve` gives up quota that is kept as well; a fault that follows a job is the job's; down time is counted against no clock; work that is done stays done however its run ends; a gang that has lost a node fails for want of it |
/// | 4 | a run that has lasted ten minutes is no start that failed, though a node or somebody else ended it |
/// | 5 | a pool that a policy no longer has keeps its nodes and what runs there; what was spent and used stays known until its period ends, whatever policies say in between; patience counts from where a queue was held or a target was set; of two reclaim notices of a node the earlier time counts |
pub const APPLY_VERSION: u32 = 5;

/// The oldest version that this build can still apply.
pub const OLDEST_APPLY_VERSION: u32 = 1;

/// One journal transaction: all inputs of one pass and all that was decided on them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Batch {
    /// What its records mean: see [`APPLY_VERSION`]. It is written in front of the batch's bytes from version 2 on.
    #[serde(skip)]
    pub version: u32,
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

    /// The bytes that are journaled: the version, then the records.
    ///
    /// # Errors
    ///
    /// A record cannot be encoded, which is a fault of this program: the batch must not be taken for durable.
    pub fn encode(&self) -> Result<Vec<u8>, postcard::Error> {
        let mut bytes = postcard::to_allocvec(&(self.version, self))?;
        grown::say(&mut bytes, &self.events[..])?;
        Ok(bytes)
    }

    /// Reads journaled bytes back.
    ///
    /// # Errors
    ///
    /// The bytes are damaged, or of a version that this build does not know.
    pub fn decode(bytes: &[u8]) -> Result<Batch, postcard::Error> {
        let (version, rest) = postcard::take_from_bytes::<u32>(bytes)?;
        if !(OLDEST_APPLY_VERSION..=APPLY_VERSION).contains(&version) {
            return Err(postcard::Error::SerdeDeCustom);
        }
        let (mut batch, rest) = postcard::take_from_bytes::<Batch>(rest)?;
        grown::hear(rest, &mut batch.events[..])?;
        Ok(Batch { version, ..batch })
    }

    /// Reads the bytes of a batch of version 1, which has no version in front.
    ///
    /// # Errors
    ///
    /// The bytes are damaged.
    pub fn decode_v1(bytes: &[u8]) -> Result<Batch, postcard::Error> {
        Ok(Batch { version: 1, ..postcard::from_bytes(bytes)? })
    }
}

/// Which chunk of the state: its kind, and its number among those. Unique within a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ChunkId {
    /// What it holds: a number that whoever makes the chunks gives a meaning.
    pub kind: u16,
    /// Its number among those of its kind.
    pub number: u64,
}

/// What a chunk holds. It never changes: whoever changes the state makes another one (`Arc::make_mut` does).
pub trait ChunkContent: Send + Sync {
    /// Its bytes. A long chunk may be stored in pieces.
    ///
    /// # Errors
    ///
    /// It cannot be encoded: a fault of this program. No snapshot is made then.
    fn encode(&self) -> Result<Vec<u8>, postcard::Error>;
}

/// A chunk of a frozen state.
#[derive(Clone)]
pub struct StateChunk {
    /// Which.
    pub id: ChunkId,
    /// What is in it. The same allocation as at the last snapshot means that it has not changed.
    pub content: Arc<dyn ChunkContent>,
}
