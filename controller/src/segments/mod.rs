//! Numbered lines of JSON in a folder of segments: statuses and rejected events. Written at the end, read from any number on, forgotten
//! from the beginning.
//!
//! ```text
//! status/00000000000000000001.jsonl   numbers 1 to 31,204     the first number is the file's name
//! status/00000000000000031205.jsonl   from 31,205 on          the last one is written
//! each line: {..., "crc32c":"1a2b3c4d"}
//! ```
//!
//! Never: a gap between segments; a line that is handed on without its checksum being verified. The checksum stays in the file: readers
//! get the line as it was given.

mod line;
mod look;
mod read;
mod upgrade;
mod write;

pub use look::{LookedLog, SegmentHole, forget_before_holes, holes, look_at};
pub use read::{SegmentLine, SegmentReader};
pub use upgrade::split_into_segments;
pub use write::{LogPosition, NumberedLine, Retained, SegmentLog, SegmentRetention};

use forebay_driver::journal::StorageFailure;
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// Why numbered lines cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentError {
    /// The file system said no.
    #[error("{}: {source}; check the folder, its permissions and the disk under it", .path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A line is not as it was written, and it is not the last one.
    #[error(
        "{}: line {line}: {what}; nothing was changed: restore the file from a backup, or move it away: the next start says what that loses \
         and how to go on; of the oldest segment it says nothing, for that goes by itself some day", .path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// What does not agree.
        what: String,
    },
    /// Lines that are asked for are not kept any more.
    #[error("{}: begins at number {first}, and {asked} was asked for: what is older is not kept; go on from {first}", .folder.display())]
    Forgotten {
        /// The folder of segments.
        folder: PathBuf,
        /// The first number that is there.
        first: u64,
        /// The number that was asked for.
        asked: u64,
    },
}

impl SegmentError {
    fn io(path: &Path) -> impl FnOnce(std::io::Error) -> SegmentError + '_ {
        |source| SegmentError::Io { path: path.to_owned(), source }
    }
}

impl StorageFailure for SegmentError {
    fn is_full(&self) -> bool {
        matches!(self, SegmentError::Io { source, .. } if crate::journal::is_out_of_room(source))
    }
}

/// What a line says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LineHead {
    /// Its number.
    pub number: u64,
    /// When it was written, in ms since 1970, by the engine's time.
    pub at_ms: u64,
}

/// An error as the driver takes it.
pub(crate) fn boxed(error: impl StorageFailure) -> Box<dyn StorageFailure> {
    Box::new(error)
}

/// Reads what a line says of itself. `None`: it is not one that could have been written.
pub type ReadHead = fn(&[u8]) -> Option<LineHead>;

pub(crate) fn file_name(first: u64) -> String {
    format!("{first:020}.jsonl")
}

/// The segments of a folder by their first numbers, in order. None where there is no folder.
fn segments(folder: &Path) -> Result<Vec<u64>, SegmentError> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(SegmentError::io(folder)(e)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let name = entry.map_err(SegmentError::io(folder))?.file_name();
        let first = name.to_str().and_then(|name| name.strip_suffix(".jsonl")).filter(|digits| digits.len() == 20);
        found.extend(first.and_then(|digits| digits.parse::<u64>().ok()));
    }
    found.sort_unstable();
    Ok(found)
}

/// Every line of a folder of segments, verified, without its checksum. For tests and tools; a follower uses [`SegmentReader`].
///
/// # Errors
/// What the file system says, or a damaged line.
pub fn read_all(folder: &Path) -> Result<Vec<Vec<u8>>, SegmentError> {
    let mut reader = SegmentReader::new(folder, 0);
    let mut lines = Vec::new();
    while let Some(line) = reader.next_line()? {
        lines.push(line.bytes);
    }
    Ok(lines)
}

#[cfg(test)]
mod tests;
