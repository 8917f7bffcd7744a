//! Why a driver could not start, or had to end.
//!
//! Never: hides what was lost (nothing that was answered ever is).

use crate::journal::StorageFailure;
use std::path::PathBuf;

/// Why a driver could not start, or had to end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DriverError {
    /// The journal, the log of statuses or the log of the rejected.
    #[error("{0}")]
    Storage(Box<dyn StorageFailure>),
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
        /// How many events it holds.
        items: u64,
        /// How many were consumed.
        position: u64,
        /// The data folder.
        folder: PathBuf,
    },
    /// A start whose time nothing confirms.
    #[error(
        "{jump}, {by}; {others}: time that has moved on never goes back, so nothing was changed: set this machine's clock (NTP), or take \
         its time once by `--accept-time`"
    )]
    ClockJump {
        /// Both times.
        jump: String,
        /// How far they are apart.
        by: String,
        /// What clocks outside say.
        others: String,
    },
    /// A loss was accepted where there is none.
    #[error("{}: nothing that was acknowledged is missing; leave `--accept-loss` out", .folder.display())]
    NothingLost {
        /// The data folder.
        folder: PathBuf,
    },
    /// Open jobs, nothing running, and nothing that could change it.
    #[error(
        "{open} jobs can never start: nothing runs and nothing has changed for {days} days of the replay; ask `forebay why JOB`"
    )]
    Stalled {
        /// Jobs that are not over.
        open: usize,
        /// For how many days of the replay's time.
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

impl<E: StorageFailure> From<E> for DriverError {
    fn from(error: E) -> DriverError {
        DriverError::Storage(Box::new(error))
    }
}

impl DriverError {
    /// Whether it goes away when there is room on the disk.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self, DriverError::Storage(error) if error.is_full())
    }

    /// Whether whoever started the driver can mend it.
    #[must_use]
    pub fn is_for_the_caller(&self) -> bool {
        match self {
            DriverError::Storage(error) => error.is_for_the_caller(),
            DriverError::NoPolicy
            | DriverError::OtherFile { .. }
            | DriverError::ClockJump { .. }
            | DriverError::NothingLost { .. } => true,
            DriverError::Stalled { .. } | DriverError::Thread(_) | DriverError::Panicked => false,
        }
    }
}
