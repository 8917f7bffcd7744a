//! The health of a source or a sink as it reports it itself: for `GET /v1/sources`, `forebay sources` and the web page.
//!
//! A figure that is unknown is never reported as zero.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Remarks that are kept: enough for a night, and few enough to fit on a page.
const MAX_REMARKS: usize = 32;

/// What a source or a sink is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    /// It is connecting.
    #[default]
    Starting,
    /// It receives or sends.
    Working,
    /// It receives nothing because the journal or the engine is behind and no memory is left for more messages.
    HeldBack,
    /// It fails and retries after a delay.
    Failing {
        /// What is wrong, and what to do.
        why: String,
    },
    /// It has ended.
    Stopped,
}

/// How many messages wait at the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backlog {
    /// The number of messages.
    Known(u64),
    /// The broker did not report a number.
    Unknown {
        /// The reason.
        why: String,
    },
}

/// Something that happened and that an operator should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// When it happened, in ms since 1970.
    pub at_ms: u64,
    /// What happened, and what to do about it.
    pub text: String,
}

/// The health of a source or a sink at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HealthSnapshot {
    /// What it is doing.
    pub condition: Condition,
    /// The backlog of each partition or queue.
    pub backlog: BTreeMap<String, Backlog>,
    /// How often it was restarted because it had stopped or failed.
    pub restarts: u64,
    /// Messages that the broker dropped before they were read (retention, deleted topics), as far as it reports them.
    pub missed: u64,
    /// The newest 32 remarks, oldest first.
    pub remarks: VecDeque<Remark>,
}

/// Where a source or a sink reports its health. Clones share one record.
#[derive(Clone, Debug, Default)]
pub struct Health {
    current: Arc<Mutex<HealthSnapshot>>,
}

impl Health {
    fn lock(&self) -> MutexGuard<'_, HealthSnapshot> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A copy of the whole record.
    #[must_use]
    pub fn snapshot(&self) -> HealthSnapshot {
        self.lock().clone()
    }

    /// Records what it is doing. Returns whether that changed.
    pub fn set_condition(&self, condition: Condition) -> bool {
        let mut snapshot = self.lock();
        let new = snapshot.condition != condition;
        snapshot.condition = condition;
        new
    }

    /// Records the backlog of a partition or queue.
    pub fn set_backlog(&self, name: &str, backlog: Backlog) {
        self.lock().backlog.insert(name.to_owned(), backlog);
    }

    /// Drops the backlog of a partition or queue that no longer exists.
    pub fn remove_backlog(&self, name: &str) {
        self.lock().backlog.remove(name);
    }

    /// Counts one restart.
    pub fn count_restart(&self) {
        self.lock().restarts += 1;
    }

    /// Counts messages that the broker dropped before they were read.
    pub fn add_missed(&self, messages: u64) {
        self.lock().missed += messages;
    }

    /// Adds a remark at a time in ms since 1970, and drops the oldest one beyond 32.
    pub fn add_remark(&self, at_ms: u64, text: impl Into<String>) {
        let mut snapshot = self.lock();
        if snapshot.remarks.len() == MAX_REMARKS {
            snapshot.remarks.pop_front();
        }
        snapshot.remarks.push_back(Remark { at_ms, text: text.into() });
    }
}
