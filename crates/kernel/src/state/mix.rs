//! What has been asked for of late: how many workers of which size. The typical mix that fragmentation is measured against.
//!
//! ```text
//! each submission counts for its kind; past 1,024 all counts are halved, so that what is new weighs more than what is old
//! ```
//!
//! Never: a clock. It moves with submissions, so that equal journals have equal mixes.

use super::{Shape, State};
use crate::job::Gang;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Kinds at most. Beyond them the rarest gives way.
const MOST_KINDS: usize = 16;
/// Counts are halved when they add up to more.
const FULL: u32 = 1024;
/// Fewer say nothing about what comes next.
const ENOUGH: u32 = 32;
/// GPUs that make a kind a big one: the size that a node has to be kept whole for.
const BIG: u16 = 8;

/// A size of work.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct WorkKind {
    /// GPUs that have to be free on one node; of a gang that may span nodes, all of it.
    pub gpus: u16,
    /// Share of each in thousandths.
    pub share: u16,
}

/// Recent submissions by kind.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Mix {
    /// In order of kind.
    kinds: Vec<(WorkKind, u32)>,
}

impl Mix {
    /// Each kind and its count, in order of kind.
    #[must_use]
    pub fn kinds(&self) -> &[(WorkKind, u32)] {
        &self.kinds
    }

    /// Sets what has been seen. Kinds with nothing in them are left out.
    pub(crate) fn recall(&mut self, mut kinds: Vec<(WorkKind, u32)>) {
        kinds.retain(|kind| kind.1 > 0);
        kinds.sort_unstable();
        kinds.dedup_by_key(|kind| kind.0);
        kinds.truncate(MOST_KINDS);
        self.kinds = kinds;
    }

    /// Whether enough has been seen to go by.
    #[must_use]
    pub fn known(&self) -> bool {
        self.total() >= ENOUGH
    }

    /// Whether work of eight GPUs and more is among it.
    #[must_use]
    pub fn has_big(&self) -> bool {
        self.kinds.iter().any(|(kind, _)| kind.gpus >= BIG)
    }

    fn total(&self) -> u32 {
        self.kinds.iter().map(|k| k.1).sum()
    }

    /// Counts one more of a kind.
    pub fn add(&mut self, kind: WorkKind) {
        match self.kinds.binary_search_by_key(&kind, |k| k.0) {
            Ok(at) => self.kinds[at].1 += 1,
            Err(_) if self.kinds.len() == MOST_KINDS => {
                let rarest = self.kinds.iter().enumerate().min_by_key(|(_, k)| (k.1, core::cmp::Reverse(k.0)));
                if let Some((at, _)) = rarest {
                    self.kinds.remove(at);
                }
                self.add(kind);
            }
            Err(at) => self.kinds.insert(at, (kind, 1)),
        }
        if self.total() > FULL {
            self.kinds.iter_mut().for_each(|k| k.1 /= 2);
            self.kinds.retain(|k| k.1 > 0);
        }
    }
}

impl WorkKind {
    /// Of the workers of a shape. `None`: without GPUs.
    #[must_use]
    pub fn of(shape: &Shape) -> Option<WorkKind> {
        let (gpus, share) = match &shape.gang {
            Gang::Workers { min, each, .. } if each.share >= 1000 || !shape.shares => {
                // A gang is best on one node, so it counts as large as it is.
                (u32::from(each.gpus).saturating_mul((*min).max(1)), 1000)
            }
            Gang::Workers { each, .. } => (u32::from(each.gpus), each.share),
            Gang::Spanning { gpus, .. } => (*gpus, 1000),
        };
        let gpus = u16::try_from(gpus.min(64)).unwrap_or(64);
        (gpus > 0 && share > 0).then_some(WorkKind { gpus, share })
    }
}

impl State {
    /// Counts a submission of a shape.
    pub(crate) fn mix_in(&mut self, shape: Shape) -> Shape {
        let before = self.mix.has_big();
        if let Some(kind) = WorkKind::of(&shape) {
            self.mix.add(kind);
        }
        if before != self.mix.has_big() {
            // What is kept whole for big gangs may be had now, or the other way round.
            self.capacity_epoch += 1;
        }
        shape
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(gpus: u16) -> WorkKind {
        WorkKind { gpus, share: 1000 }
    }

    #[test]
    fn the_rarest_gives_way_and_old_ones_fade() {
        let mut mix = Mix::default();
        for gpus in 1..=16 {
            mix.add(kind(gpus));
            mix.add(kind(gpus));
        }
        mix.add(kind(17));
        assert_eq!(mix.kinds().len(), MOST_KINDS);
        assert!(mix.kinds().iter().all(|k| k.0 != kind(16)) && mix.has_big());
        for _ in 0..4 * FULL {
            mix.add(kind(1));
        }
        assert!(!mix.has_big() && mix.total() <= FULL && mix.known());
    }
}
