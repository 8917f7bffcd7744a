//! What is due when, in a total order: time, then insertion.
//!
//! Never: two things in an order that depends on anything else.

use std::collections::BTreeMap;

use forebay_engine::units::Millis;

/// What happens by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// An instance has booted.
    Runs(u64),
    /// An instance could not boot.
    Failed(u64),
    /// An instance that was to be reclaimed is.
    Reclaimed(u64),
    /// An instance has shut down.
    Gone(u64),
    /// An instance that was to be retired is.
    Retired(u64),
    /// An instance that was told to stop has.
    Stopped(u64),
    /// An instance's end is an hour ago.
    Forgotten(u64),
    /// A pair's availability or price may have changed.
    Market(usize),
    /// A Capacity Block warns of its end.
    BlockWarns(String),
    /// A Capacity Block's instances are ended.
    BlockClears(String),
}

#[derive(Clone, Debug, Default)]
pub(super) struct Agenda {
    queue: BTreeMap<(Millis, u64), Due>,
    inserted: u64,
}

impl Agenda {
    pub(super) fn at(&mut self, when: Millis, due: Due) {
        self.inserted += 1;
        self.queue.insert((when, self.inserted), due);
    }

    pub(super) fn next(&self) -> Option<Millis> {
        self.queue.first_key_value().map(|((at, _), _)| *at)
    }

    pub(super) fn pop(&mut self, until: Millis) -> Option<(Millis, Due)> {
        let first = self.queue.first_entry()?;
        let at = first.key().0;
        (at <= until).then(|| (at, first.remove()))
    }
}
