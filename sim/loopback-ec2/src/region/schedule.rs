//! The scheduled changes, in the order of their times and then of their insertion.

use std::collections::BTreeMap;

use forebay_kernel::units::Timestamp;

/// A scheduled change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TimedChange {
    /// An instance has booted.
    Boot(u64),
    /// An instance fails to boot.
    FailBoot(u64),
    /// A warned instance is reclaimed.
    Reclaim(u64),
    /// An instance has shut down.
    Terminate(u64),
    /// An instance is retired.
    Retire(u64),
    /// An instance has stopped.
    Stop(u64),
    /// A terminated instance is no longer described.
    Forget(u64),
    /// The availability or price of a market pair may change.
    Market(usize),
    /// The warning of a Capacity Block is sent.
    WarnOfBlockEnd(String),
    /// The instances of a Capacity Block are terminated.
    EndBlockInstances(String),
}

#[derive(Clone, Debug, Default)]
pub(super) struct Schedule {
    queue: BTreeMap<(Timestamp, u64), TimedChange>,
    inserted: u64,
}

impl Schedule {
    pub(super) fn at(&mut self, when: Timestamp, due: TimedChange) {
        self.inserted += 1;
        self.queue.insert((when, self.inserted), due);
    }

    pub(super) fn next(&self) -> Option<Timestamp> {
        self.queue.first_key_value().map(|((at, _), _)| *at)
    }

    pub(super) fn pop(&mut self, until: Timestamp) -> Option<(Timestamp, TimedChange)> {
        let first = self.queue.first_entry()?;
        let at = first.key().0;
        (at <= until).then(|| (at, first.remove()))
    }
}
