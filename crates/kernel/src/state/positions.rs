//! How many jobs of a class wait in front of one, without going through them: counts of neighbouring keys.
//!
//! ```text
//! a class's waiting jobs, in order   a b c d | e f g | h i j k l        marks: a (4), e (3), h (5)
//! position of g                      4 + those from e to g              at most one block is gone through
//! ```
//!
//! Never: a key of its own beyond where a block begins; `Index::queued` has the keys.

use super::index::OrderKey;
use crate::ids::ClassId;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Keys of a block at most: going through them takes a microsecond, and a million jobs have some 4,000 blocks, whose counts take another.
const MOST: u32 = 512;

/// The blocks of one class.
#[derive(Clone, Debug, Default)]
struct Blocks {
    /// Where each begins: no key of it is before that. The first one begins before every key.
    starts: Vec<OrderKey>,
    counts: Vec<u32>,
}

/// Counts by class. Two of them are equal where they count the same, wherever their blocks begin.
#[derive(Clone, Debug, Default)]
pub struct QueuePositions {
    by_class: BTreeMap<ClassId, Blocks>,
}

impl PartialEq for QueuePositions {
    fn eq(&self, other: &QueuePositions) -> bool {
        self.totals().eq(other.totals())
    }
}

impl Eq for QueuePositions {}

impl Blocks {
    /// The block that a key is in, or would be.
    fn block(&self, key: &OrderKey) -> usize {
        self.starts.partition_point(|start| start <= key).saturating_sub(1)
    }
}

impl QueuePositions {
    fn totals(&self) -> impl Iterator<Item = (ClassId, u64)> + '_ {
        self.by_class.iter().map(|(class, blocks)| (*class, blocks.counts.iter().map(|n| u64::from(*n)).sum()))
    }

    /// How many are counted of a class.
    #[must_use]
    pub fn total(&self, class: ClassId) -> u64 {
        self.by_class.get(&class).map_or(0, |blocks| blocks.counts.iter().map(|n| u64::from(*n)).sum())
    }

    /// A key has come. `queued`: those of its class, with it.
    pub(super) fn insert(&mut self, class: ClassId, key: OrderKey, queued: &BTreeSet<OrderKey>) {
        let blocks = self.by_class.entry(class).or_default();
        if blocks.starts.is_empty() {
            blocks.starts.push(key);
            blocks.counts.push(0);
        }
        let at = blocks.block(&key);
        if key < blocks.starts[at] {
            blocks.starts[at] = key;
        }
        blocks.counts[at] += 1;
        if blocks.counts[at] > MOST {
            let half = MOST / 2;
            if let Some(middle) = queued.range(blocks.starts[at]..).nth(half as usize) {
                blocks.starts.insert(at + 1, *middle);
                blocks.counts.insert(at + 1, blocks.counts[at] - half);
                blocks.counts[at] = half;
            }
        }
    }

    /// A key has gone.
    pub(super) fn remove(&mut self, class: ClassId, key: &OrderKey) {
        let Some(blocks) = self.by_class.get_mut(&class) else { return };
        let at = blocks.block(key);
        blocks.counts[at] = blocks.counts[at].saturating_sub(1);
        if blocks.counts[at] == 0 {
            blocks.starts.remove(at);
            blocks.counts.remove(at);
        }
        if blocks.starts.is_empty() {
            self.by_class.remove(&class);
        }
    }

    /// How many of a class are before a key. `queued`: those of its class.
    #[must_use]
    pub fn before(&self, class: ClassId, key: &OrderKey, queued: &BTreeSet<OrderKey>) -> usize {
        let Some(blocks) = self.by_class.get(&class) else { return 0 };
        let at = blocks.block(key);
        let whole: usize = blocks.counts.iter().take(at).map(|n| *n as usize).sum();
        match blocks.starts.get(at) {
            Some(start) if start < key => whole + queued.range(*start..*key).count(),
            _ => whole,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::JobId;
    use crate::units::Timestamp;
    use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

    fn key(n: u64) -> OrderKey {
        OrderKey { start_by: Timestamp(0), rank: i128::from(n), arrival: Timestamp(n), job: JobId(n) }
    }

    proptest! {
        /// Against counting them: whatever comes and goes, each has as many before it as there are, within one block's reads.
        #[test]
        fn a_position_is_what_counting_says(steps in proptest::collection::vec(0u64..4_000, 0..6_000)) {
            let (mut positions, mut queued) = (QueuePositions::default(), BTreeSet::new());
            for step in steps {
                let key = key(step);
                if queued.remove(&key) {
                    positions.remove(ClassId(1), &key);
                } else {
                    queued.insert(key);
                    positions.insert(ClassId(1), key, &queued);
                }
            }
            prop_assert_eq!(positions.total(ClassId(1)), queued.len() as u64);
            for n in (0..4_000).step_by(37) {
                let key = key(n);
                prop_assert_eq!(positions.before(ClassId(1), &key, &queued), queued.range(..key).count());
            }
            let blocks = positions.by_class.get(&ClassId(1)).map_or(0, |blocks| blocks.starts.len());
            prop_assert_eq!(positions.by_class.values().flat_map(|b| &b.counts).filter(|n| **n > MOST || **n == 0).count(), 0);
            prop_assert!(queued.len() <= MOST as usize || blocks > 1);
        }
    }
}
