//! Classes whose heads cannot be served, so that a pass finds those of now, and a time-out the next one due, without a look at all others.
//!
//! A class stays here with what it was last told when more has been freed since: when it is tried again by time still counts then.
//!
//! Never: says whether a class still rests. That is [`super::Memo::resting`].

use super::Parked;
use crate::ids::ClassId;
use crate::units::Timestamp;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Classes whose heads cannot be served.
#[derive(Clone, Debug, Default)]
pub(crate) struct ParkedClasses {
    rows: BTreeMap<ClassId, Parked>,
    by_epoch: BTreeSet<(u64, ClassId)>,
    by_time: BTreeSet<(Timestamp, ClassId)>,
    /// What was known of a class before it was parked in a try that is open, the first change first.
    undo: Vec<(ClassId, Option<Parked>)>,
    tries: usize,
}

/// A place in the changes of a try to come back to.
#[derive(Debug)]
#[must_use = "a try is taken back or kept"]
pub(crate) struct ParkedMark(usize);

impl ParkedClasses {
    /// What a class was last told.
    pub(crate) fn get(&self, class: ClassId) -> Option<&Parked> {
        self.rows.get(&class)
    }

    /// A class is told this.
    pub(crate) fn park(&mut self, class: ClassId, parked: Parked) {
        let was = self.put(class, Some(parked));
        if self.tries > 0 {
            self.undo.push((class, was));
        }
    }

    /// The classes that have been parked since something was last freed.
    pub(crate) fn at(&self, capacity_epoch: u64) -> impl Iterator<Item = ClassId> + '_ {
        let of_epoch = (capacity_epoch, ClassId(0))..=(capacity_epoch, ClassId(u32::MAX));
        self.by_epoch.range(of_epoch).map(|(_, class)| *class)
    }

    /// The classes that are tried again after an instant, the first first.
    pub(crate) fn due_after(&self, now: Timestamp) -> impl Iterator<Item = (Timestamp, ClassId)> + '_ {
        self.by_time.range((now, ClassId(u32::MAX))..).copied().filter(move |(at, _)| *at > now)
    }

    /// Nothing of what was told holds any more. What a try that is open parked is taken back with it all the same.
    pub(crate) fn forget(&mut self) {
        self.rows.clear();
        self.by_epoch.clear();
        self.by_time.clear();
    }

    /// From here on changes can be taken back.
    pub(crate) fn open_try(&mut self) -> ParkedMark {
        self.tries += 1;
        ParkedMark(self.undo.len())
    }

    /// Who was parked in a try may rest on what the try did: it is as it was.
    pub(crate) fn take_back(&mut self, mark: ParkedMark) {
        for (class, was) in self.undo.split_off(mark.0).into_iter().rev() {
            self.put(class, was);
        }
        self.end_try();
    }

    /// What was parked in a try stays so.
    pub(crate) fn keep(&mut self, _: ParkedMark) {
        self.end_try();
    }

    fn end_try(&mut self) {
        self.tries = self.tries.saturating_sub(1);
        if self.tries == 0 {
            self.undo.clear();
        }
    }

    fn put(&mut self, class: ClassId, parked: Option<Parked>) -> Option<Parked> {
        let was = match parked {
            Some(parked) => self.rows.insert(class, parked),
            None => self.rows.remove(&class),
        };
        if let Some(was) = &was {
            self.by_epoch.remove(&(was.capacity_epoch, class));
            self.by_time.remove(&(was.until.unwrap_or_default(), class));
        }
        if let Some(parked) = &parked {
            self.by_epoch.insert((parked.capacity_epoch, class));
            self.by_time.extend(parked.until.map(|until| (until, class)));
        }
        was
    }
}
