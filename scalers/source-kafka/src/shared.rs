//! The state that a reader, its consumer's callbacks and the watchdog share.
//!
//! Nothing in it grows without bound: each report replaces an earlier one, or is taken before the next poll.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A partition by its channel (the topic's index in the settings) and number.
pub(crate) type PartitionKey = (usize, i32);

/// A change that the group or the broker reported, and that the reader acts on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GroupChange {
    /// These partitions are assigned to this reader, and no others.
    Assigned(Vec<(String, i32)>),
    /// No partitions are assigned any more.
    Revoked,
    /// The topic has another id than before: it was deleted and created again.
    Recreated(String),
}

/// How far the reader is in a partition.
#[derive(Clone, Debug)]
pub(crate) struct PartitionProgress {
    /// The key of its position in the journal.
    pub(crate) key: Arc<str>,
    /// The offset after the last submitted message.
    pub(crate) next: u64,
    /// When `next` changed last.
    pub(crate) moved: Instant,
}

/// What ends a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClearedBy {
    /// Any response of a broker: brokers could not be reached.
    Response,
    /// The next assignment of partitions, or messages of all of them that have any: brokers respond and refuse something.
    Assignment,
}

#[derive(Debug)]
struct BrokerFailure {
    /// What is wrong, and what to do.
    why: String,
    cleared_by: ClearedBy,
    /// When it was reported last.
    at: Instant,
}

/// The state of one reader. Each reader has its own.
#[derive(Debug, Default)]
pub(crate) struct ReaderState {
    /// The reader has to end and must submit nothing more.
    pub(crate) abandoned: AtomicBool,
    changed: AtomicBool,
    changes: Mutex<Vec<GroupChange>>,
    failure: Mutex<Option<BrokerFailure>>,
    /// What the watchdog was not told at its last check, though brokers respond.
    unanswered: Mutex<Option<String>>,
    other_members: Mutex<Option<String>>,
    /// Durable offsets that are not committed yet, by topic and partition.
    commits: Mutex<BTreeMap<(String, i32), i64>>,
    progress: Mutex<BTreeMap<PartitionKey, PartitionProgress>>,
    /// From when on the reader can be expected to receive: it was held back or got its partitions then.
    stall_clock: Mutex<Option<Instant>>,
    /// For tests: the reader receives nothing, like a consumer that hangs.
    #[cfg(test)]
    pub(crate) frozen: AtomicBool,
    /// For tests: the reader panics.
    #[cfg(test)]
    pub(crate) panics: AtomicBool,
}

fn open<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ReaderState {
    /// Adds a change for the reader.
    pub(crate) fn push_change(&self, change: GroupChange) {
        let mut changes = open(&self.changes);
        // The eager protocol assigns all partitions at once, so earlier changes no longer matter.
        if matches!(change, GroupChange::Assigned(_) | GroupChange::Revoked) {
            changes.clear();
        }
        changes.push(change);
        self.changed.store(true, Ordering::Release);
    }

    /// Whether there are changes since the last [`Self::take_changes`].
    pub(crate) fn has_changes(&self) -> bool {
        self.changed.load(Ordering::Acquire)
    }

    /// Takes the changes, in their order.
    pub(crate) fn take_changes(&self) -> Vec<GroupChange> {
        if !self.has_changes() {
            return Vec::new();
        }
        let mut changes = open(&self.changes);
        self.changed.store(false, Ordering::Release);
        std::mem::take(&mut changes)
    }

    /// What is wrong now, and what to do.
    pub(crate) fn failure(&self) -> Option<String> {
        let failure = open(&self.failure).as_ref().map(|failure| failure.why.clone());
        failure.or_else(|| open(&self.unanswered).clone()).or_else(|| open(&self.other_members).clone())
    }

    pub(crate) fn set_failure(&self, why: String, cleared_by: ClearedBy) {
        *open(&self.failure) = Some(BrokerFailure { why, cleared_by, at: Instant::now() });
    }

    pub(crate) fn clear_failure(&self) {
        *open(&self.failure) = None;
    }

    /// A broker responded: a failure to reach brokers is over.
    pub(crate) fn broker_responded(&self) {
        open(&self.failure).take_if(|failure| failure.cleared_by == ClearedBy::Response);
    }

    /// When brokers refused something that no assignment has followed yet.
    pub(crate) fn refused_at(&self) -> Option<Instant> {
        open(&self.failure).as_ref().filter(|failure| failure.cleared_by == ClearedBy::Assignment).map(|one| one.at)
    }

    /// All partitions that have messages were read since that refusal: it is over, unless there was another one.
    pub(crate) fn read_since(&self, refused_at: Instant) {
        let is_it = |one: &mut BrokerFailure| one.cleared_by == ClearedBy::Assignment && one.at == refused_at;
        open(&self.failure).take_if(is_it);
    }

    /// What the watchdog was not told at its last check, `None` if it was told all.
    pub(crate) fn set_unanswered(&self, why: Option<String>) {
        *open(&self.unanswered) = why;
    }

    /// Whether brokers cannot be reached now.
    pub(crate) fn brokers_are_unreachable(&self) -> bool {
        open(&self.failure).as_ref().is_some_and(|failure| failure.cleared_by == ClearedBy::Response)
    }

    /// Records which other members of the group hold partitions, `None` for nobody. Returns whether that changed.
    pub(crate) fn set_other_members(&self, members: Option<String>) -> bool {
        let mut old = open(&self.other_members);
        let changed = *old != members;
        *old = members;
        changed
    }

    pub(crate) fn commits(&self) -> MutexGuard<'_, BTreeMap<(String, i32), i64>> {
        open(&self.commits)
    }

    pub(crate) fn progress(&self) -> MutexGuard<'_, BTreeMap<PartitionKey, PartitionProgress>> {
        open(&self.progress)
    }

    /// Stalls are measured from now on.
    pub(crate) fn restart_stall_clock(&self) {
        *open(&self.stall_clock) = Some(Instant::now());
    }

    pub(crate) fn stall_clock(&self) -> Option<Instant> {
        *open(&self.stall_clock)
    }
}
