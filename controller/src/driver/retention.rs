//! How long the journal, the statuses and the rejected events are kept.
//!
//! Never: takes anything away. Each log does that itself.

use crate::intake::rejected;
use crate::journal::JournalRetention;
use crate::segments::SegmentRetention;
use crate::status;

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
