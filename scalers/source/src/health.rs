//! How a source or a sink is, as it tells itself: for `GET /v1/sources`, `forebay doctor` and the page.
//!
//! Never: a zero for what is not known.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Remarks kept: enough for a night, small enough for a page.
const MOST_REMARKS: usize = 32;

/// What a source or a sink does now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    /// It connects.
    #[default]
    Starting,
    /// It receives or sends.
    Working,
    /// It receives nothing because there is no room: the journal or the engine is behind.
    HeldBack,
    /// It tries again after a pause.
    Failing {
        /// What is wrong, and what to do.
        why: String,
    },
    /// It has ended.
    Stopped,
}

/// Messages that wait on the other side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backlog {
    /// So many.
    Known(u64),
    /// Nobody can say.
    Unknown {
        /// Why.
        why: String,
    },
}

/// What there is to see of a source or a sink.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// What it does now.
    pub condition: Condition,
    /// Messages that wait, by partition or queue.
    pub backlog: BTreeMap<String, Backlog>,
    /// How often it was started again because it had stopped or failed.
    pub restarts: u64,
    /// Messages that the broker dropped before they were read (retention, deleted topics), as far as it tells.
    pub missed: u64,
    /// What an operator should know, oldest first, with the time in ms since 1970.
    pub remarks: VecDeque<(u64, String)>,
}

/// Where a source or a sink tells how it is. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Health {
    inside: Arc<Mutex<Seen>>,
}

impl Health {
    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything, as it is now.
    #[must_use]
    pub fn seen(&self) -> Seen {
        self.lock().clone()
    }

    /// What it does now. True: it did something else before.
    pub fn is(&self, condition: Condition) -> bool {
        let mut seen = self.lock();
        let new = seen.condition != condition;
        seen.condition = condition;
        new
    }

    /// What waits in a partition or queue.
    pub fn backlog(&self, of: &str, backlog: Backlog) {
        self.lock().backlog.insert(of.to_owned(), backlog);
    }

    /// A partition or queue that is no more.
    pub fn forget(&self, of: &str) {
        self.lock().backlog.remove(of);
    }

    /// It was started again.
    pub fn restarted(&self) {
        self.lock().restarts += 1;
    }

    /// The broker dropped messages before they were read.
    pub fn missed(&self, messages: u64) {
        self.lock().missed += messages;
    }

    /// Something that an operator should know.
    pub fn remark(&self, at_ms: u64, text: impl Into<String>) {
        let mut seen = self.lock();
        if seen.remarks.len() == MOST_REMARKS {
            seen.remarks.pop_front();
        }
        seen.remarks.push_back((at_ms, text.into()));
    }
}
