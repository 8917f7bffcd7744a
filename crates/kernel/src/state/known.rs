//! How many jobs there are of each class, and which classes have most: nobody walks all classes for the few that are frequent.
//!
//! Never: a class without a job.

use crate::ids::ClassId;
use alloc::collections::{BTreeMap, BTreeSet};
use core::cmp::Reverse;

/// Classes by how many jobs of each there are.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KnownClasses {
    counts: BTreeMap<ClassId, u32>,
    by_count: BTreeSet<(Reverse<u32>, ClassId)>,
}

impl KnownClasses {
    /// All of them, by their id.
    pub fn classes(&self) -> impl Iterator<Item = ClassId> {
        self.counts.keys().copied()
    }

    /// All of them with how many there are, those with most jobs first and those with as many by their id.
    pub fn most_frequent(&self) -> impl Iterator<Item = (ClassId, u32)> {
        self.by_count.iter().map(|(Reverse(count), class)| (*class, *count))
    }

    pub(super) fn add(&mut self, class: ClassId) {
        let count = self.counts.entry(class).or_default();
        self.by_count.remove(&(Reverse(*count), class));
        *count += 1;
        self.by_count.insert((Reverse(*count), class));
    }

    pub(super) fn remove(&mut self, class: ClassId) {
        let Some(count) = self.counts.get_mut(&class) else { return };
        self.by_count.remove(&(Reverse(*count), class));
        *count -= 1;
        if *count == 0 {
            self.counts.remove(&class);
        } else {
            self.by_count.insert((Reverse(*count), class));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn the_most_frequent_come_first_whatever_came_and_went() {
        let mut known = KnownClasses::default();
        for class in [3, 1, 2, 1, 3, 1, 9] {
            known.add(ClassId(class));
        }
        let seen = |known: &KnownClasses| known.most_frequent().map(|(id, n)| (id.0, n)).collect::<Vec<_>>();
        assert_eq!(seen(&known), [(1, 3), (3, 2), (2, 1), (9, 1)]);
        for class in [1, 1, 9, 9] {
            known.remove(ClassId(class));
        }
        assert_eq!(seen(&known), [(3, 2), (1, 1), (2, 1)]);
        assert_eq!(known.classes().map(|id| id.0).collect::<Vec<_>>(), [1, 2, 3]);
        let mut again = KnownClasses::default();
        for class in [3, 2, 1, 3] {
            again.add(ClassId(class));
        }
        assert_eq!(known, again);
    }
}
