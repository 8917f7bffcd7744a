//! What a reader, its consumer's callbacks and the watch tell each other.
//!
//! Never: a queue that grows: each thing told replaces the last, or is taken with the next poll.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A partition by its channel (the topic's index in the settings) and number.
pub(crate) type Which = (usize, i32);

/// What the group or the broker told, for the reader to act on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// These partitions are ours, and no others.
    Assigned(Vec<(String, i32)>),
    /// None are ours any more.
    Revoked,
    /// The topic has another id than before: it was deleted and made again.
    Recreated(String),
}

/// How far the reader is in a partition.
#[derive(Clone, Debug)]
pub(crate) struct View {
    /// The key of its position.
    pub(crate) key: Arc<str>,
    /// The offset after the last message handed in.
    pub(crate) next: u64,
    /// When that last moved.
    pub(crate) moved: Instant,
}

/// Why it does not work now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    /// What is wrong, and what to do.
    pub(crate) why: String,
    /// Over as soon as any client reaches the broker again; else when the reader is given partitions.
    pub(crate) of_reach: bool,
}

/// One reader's side of the story. Each reader has its own.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// The reader is to end, whatever it does.
    pub(crate) abandoned: AtomicBool,
    dirty: AtomicBool,
    changes: Mutex<Vec<Change>>,
    trouble: Mutex<Option<Trouble>>,
    partial: Mutex<Option<String>>,
    /// Durable offsets that are not committed yet, by topic and partition.
    commits: Mutex<BTreeMap<(String, i32), i64>>,
    views: Mutex<BTreeMap<Which, View>>,
    /// When the reader last was held back, or got its partitions.
    excused: Mutex<Option<Instant>>,
    /// For tests: it stands still, as a consumer that lost its way.
    #[cfg(test)]
    pub(crate) frozen: AtomicBool,
    /// For tests: it panics.
    #[cfg(test)]
    pub(crate) panics: AtomicBool,
}

fn open<T>(inside: &Mutex<T>) -> MutexGuard<'_, T> {
    inside.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Something was told.
    pub(crate) fn tell(&self, change: Change) {
        let mut changes = open(&self.changes);
        // With the eager protocol each assignment is whole: what was told before it no longer matters.
        if matches!(change, Change::Assigned(_) | Change::Revoked) {
            changes.clear();
        }
        changes.push(change);
        self.dirty.store(true, Ordering::Release);
    }

    /// Whether something was told since [`Self::told`].
    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty.load(Ordering::Acquire)
    }

    /// What was told, in order.
    pub(crate) fn told(&self) -> Vec<Change> {
        if !self.is_dirty() {
            return Vec::new();
        }
        let mut changes = open(&self.changes);
        self.dirty.store(false, Ordering::Release);
        std::mem::take(&mut changes)
    }

    pub(crate) fn trouble(&self) -> Option<String> {
        let trouble = open(&self.trouble).as_ref().map(|trouble| trouble.why.clone());
        trouble.or_else(|| open(&self.partial).clone())
    }

    pub(crate) fn fails(&self, why: String, of_reach: bool) {
        *open(&self.trouble) = Some(Trouble { why, of_reach });
    }

    /// Whatever was wrong is over.
    pub(crate) fn works(&self) {
        *open(&self.trouble) = None;
    }

    /// A broker answers.
    pub(crate) fn reached(&self) {
        let mut trouble = open(&self.trouble);
        if trouble.as_ref().is_some_and(|trouble| trouble.of_reach) {
            *trouble = None;
        }
    }

    /// Whether brokers cannot be reached now.
    pub(crate) fn is_out_of_reach(&self) -> bool {
        open(&self.trouble).as_ref().is_some_and(|trouble| trouble.of_reach)
    }

    /// Others hold partitions; `None`: nobody does. True: that is news.
    pub(crate) fn shares(&self, partial: Option<String>) -> bool {
        let mut old = open(&self.partial);
        let new = *old != partial;
        *old = partial;
        new
    }

    pub(crate) fn commits(&self) -> MutexGuard<'_, BTreeMap<(String, i32), i64>> {
        open(&self.commits)
    }

    pub(crate) fn views(&self) -> MutexGuard<'_, BTreeMap<Which, View>> {
        open(&self.views)
    }

    /// From now on it may be expected to receive.
    pub(crate) fn excuse(&self) {
        *open(&self.excused) = Some(Instant::now());
    }

    pub(crate) fn excused(&self) -> Option<Instant> {
        *open(&self.excused)
    }
}
