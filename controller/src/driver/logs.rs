//! The logs of statuses and of rejected events as the live loop sees them, each with its retention.
//!
//! Never: a format of its own.

use crate::intake::rejected::{self, RejectedLog};
use crate::journal::JournalRetention;
use crate::segments::{SegmentError, SegmentRetention};
use crate::status::{self, StatusError, StatusLog};
use forebay_driver::journal::StorageFailure;
use forebay_driver::live::{Rejection, RejectionWriter, StatusWriter};
use forebay_kernel::effect::Status;
use forebay_kernel::units::Timestamp;

/// How long what is over is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retention {
    /// In the journal.
    pub journal: JournalRetention,
    /// Statuses.
    pub statuses: SegmentRetention,
    /// Rejected events.
    pub rejected: SegmentRetention,
}

impl Default for Retention {
    fn default() -> Retention {
        let journal = JournalRetention::default();
        Retention { journal, statuses: status::RETENTION, rejected: rejected::RETENTION }
    }
}

impl StorageFailure for StatusError {
    fn is_full(&self) -> bool {
        StatusError::is_full(self)
    }
}

impl StorageFailure for SegmentError {
    fn is_full(&self) -> bool {
        SegmentError::is_full(self)
    }
}

fn boxed(error: impl StorageFailure) -> Box<dyn StorageFailure> {
    Box::new(error)
}

/// The log of statuses, and how long they are kept.
pub(super) struct Statuses {
    pub log: StatusLog,
    pub keep: SegmentRetention,
}

impl StatusWriter for Statuses {
    fn write(&mut self, statuses: &mut dyn Iterator<Item = &Status>) -> Result<(), Box<dyn StorageFailure>> {
        self.log.write(statuses).map_err(boxed)
    }

    fn sync(&mut self) -> Result<(), Box<dyn StorageFailure>> {
        self.log.sync().map_err(boxed)
    }

    fn last(&self) -> u64 {
        self.log.last()
    }

    fn delivered(&self) -> u64 {
        self.log.delivered()
    }

    fn cut(&self) -> u64 {
        self.log.ahead()
    }

    fn retain(&mut self, now: Timestamp, read: Option<u64>) -> Result<Option<u64>, Box<dyn StorageFailure>> {
        Ok(self.log.retain(now.0, self.keep, read).map_err(boxed)?.held_at)
    }
}

/// The log of rejected events, and how long they are kept.
pub(super) struct Rejections {
    pub log: RejectedLog,
    pub keep: SegmentRetention,
}

impl RejectionWriter for Rejections {
    fn write(&mut self, at: Timestamp, rejections: &[Rejection]) -> Result<(), Box<dyn StorageFailure>> {
        self.log.write(at, rejections).map_err(boxed)
    }

    fn sync(&mut self) -> Result<(), Box<dyn StorageFailure>> {
        self.log.sync().map_err(boxed)
    }

    fn last(&self) -> u64 {
        self.log.last()
    }

    fn retain(&mut self, now: Timestamp, read: Option<u64>) -> Result<Option<u64>, Box<dyn StorageFailure>> {
        Ok(self.log.retain(now.0, self.keep, read).map_err(boxed)?.held_at)
    }
}
