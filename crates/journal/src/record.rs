//! The bytes of a batch in its row: the version of the record, then the batch as that version has it.
//!
//! ```text
//! payload = version (varint) + batch (postcard)
//! ```
//!
//! Never: reads a version that it does not know, or writes any but the newest. A version's meaning never changes.

use forebay_kernel::journal::{APPLY_VERSION, Batch};

/// Why the bytes of a batch cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordFault {
    /// They are no batch.
    Unreadable,
    /// They were written by a newer release.
    Newer {
        /// The version that they have.
        found: u32,
    },
}

impl RecordFault {
    /// As an error message has it.
    #[must_use]
    pub fn text(self) -> String {
        match self {
            RecordFault::Unreadable => "its records cannot be read".to_owned(),
            RecordFault::Newer { found } => {
                format!("its records have version {found}, this program reads up to {APPLY_VERSION}")
            }
        }
    }
}

/// The payload of a batch, in the newest version.
///
/// # Errors
/// The batch cannot be encoded: a fault of this program.
pub fn encode(batch: &Batch) -> Result<Vec<u8>, postcard::Error> {
    batch.encode()
}

/// The batch in a payload of format 2 or newer.
///
/// # Errors
/// The bytes are damaged, or newer than this program.
pub fn decode(payload: &[u8]) -> Result<Batch, RecordFault> {
    let (version, _) = postcard::take_from_bytes::<u32>(payload).map_err(|_| RecordFault::Unreadable)?;
    match version {
        1..=APPLY_VERSION => Batch::decode(payload).map_err(|_| RecordFault::Unreadable),
        0 => Err(RecordFault::Unreadable),
        found => Err(RecordFault::Newer { found }),
    }
}
