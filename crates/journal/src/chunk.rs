//! The state as a snapshot takes it: a sequence of chunks, each encoded for itself, so that what has not changed is not written again and
//! no size is too large.
//!
//! ```text
//! driver: freeze (shares the chunks, copies none) -> iterator of StateChunk -> background: encode -> a row a chunk
//! ```
//!
//! Never: says what is in a chunk. That is the business of whoever makes them.

use std::sync::Arc;

pub use forebay_kernel::journal::{ChunkContent, ChunkId, StateChunk};

/// The chunks of a frozen state, in the order in which a recovery gets them back.
pub type FrozenChunks = Box<dyn Iterator<Item = StateChunk> + Send>;

/// A chunk as it comes back from a snapshot, its checksum verified.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredChunk {
    /// Which.
    pub id: ChunkId,
    /// As it was encoded.
    pub bytes: Vec<u8>,
}

/// A state of which nobody knows the parts: its bytes in pieces of 256 KiB.
#[must_use]
pub fn chunks_of(state: &[u8]) -> FrozenChunks {
    struct Bytes(Vec<u8>);
    impl ChunkContent for Bytes {
        fn encode(&self) -> Result<Vec<u8>, postcard::Error> {
            Ok(self.0.clone())
        }
    }
    let pieces: Vec<_> = state.chunks(256 << 10).map(<[u8]>::to_vec).collect();
    Box::new(
        pieces
            .into_iter()
            .zip(0..)
            .map(|(bytes, number)| StateChunk { id: ChunkId { kind: 0, number }, content: Arc::new(Bytes(bytes)) }),
    )
}
