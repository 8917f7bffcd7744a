//! Why a driver could not start, or had to end.
//!
//! Never: hides what was lost (nothing that was answered ever is).

use crate::journal::JournalError;
use crate::status::StatusError;
use forebay_sim::trace::TraceError;
use std::path::PathBuf;

/// Why a driver could not start, or had to end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DriverError {
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The status file.
    #[error(transparent)]
    Status(#[from] StatusError),
    /// The file to replay.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A file beside the journal.
    #[error("{}: {source}; check the folder, its permissions and the disk under it", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A new journal without a policy.
    #[error("no policy: a new journal begins with one; give it by `--policy`")]
    NoPolicy,
    /// Resumed with another file than the journal was fed from.
    #[error(
        "{file} has {items} events, and the journal in {} has consumed {position}: it was fed from another file; \
         give the one that it was begun with", .folder.display()
    )]
    OtherFile {
        /// The file given.
        file: String,
        /// What it holds.
        items: u64,
        /// What was consumed.
        position: u64,
        /// The journal's folder.
        folder: PathBuf,
    },
    /// Open jobs, nothing running, and nothing that could change it.
    #[error(
        "{open} jobs can never start: nothing runs and nothing has changed for {days} days of the replay; ask `forebay why JOB`"
    )]
    Stalled {
        /// Jobs that are not over.
        open: usize,
        /// For how long.
        days: u64,
    },
    /// The system has no thread left.
    #[error("no thread for the driver: {0}; check the limits of the process")]
    Thread(std::io::Error),
    /// A fault of this program.
    #[error(
        "the driver ended by a fault of this program; what was answered is in the journal: start again and report this"
    )]
    Panicked,
}

impl DriverError {
    /// Whether it goes away when there is room on the disk.
    #[must_use]
    pub fn is_full(&self) -> bool {
        match self {
            DriverError::Journal(e) => e.is_full(),
            DriverError::Status(e) => e.is_full(),
            DriverError::Io { source, .. } => source.kind() == std::io::ErrorKind::StorageFull,
            _ => false,
        }
    }

    /// The exit code that the command line ends with: 2 for what the caller can mend, 1 for the rest.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            DriverError::Journal(e) => e.exit_code(),
            DriverError::Stalled { .. } | DriverError::Panicked | DriverError::Thread(_) => 1,
            DriverError::Status(e) if e.is_full() => 1,
            _ => 2,
        }
    }
}
