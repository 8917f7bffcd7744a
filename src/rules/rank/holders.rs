//! What runs hold in one queue, in the order in which its quota is filled: by tier, then start.
//!
//! They are kept in blocks of a few dozen with what each holds in all, so that one run more or less moves few others, and what goes before a
//! place is added up by blocks.
//!
//! Never: in which order quota is filled above a queue. That is rank.rs.

use crate::ids::JobId;
use crate::units::{MilliGpu, Timestamp};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// When a run counts as started, among those of its tier.
pub(super) type Turn = (Timestamp, JobId);

/// After all that have started.
pub(super) const LAST: Turn = (Timestamp::NEVER, JobId(u64::MAX));

/// A place in the order of a queue.
pub(super) type Place = (Reverse<i32>, Turn);

/// Entries of a block when it is split, and of the two that it is split into.
const MOST: usize = 128;

/// What a run holds of a node's quota.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// Above what a child owns.
    pub beyond: bool,
    pub tier: Reverse<i32>,
    /// Where it may stop others of its queue and tier.
    pub priority: Reverse<i32>,
    pub turn: Turn,
    pub job: JobId,
    pub share: MilliGpu,
    /// All of it is filled in within what the node owns.
    pub within: bool,
}

impl Entry {
    fn place(&self) -> Place {
        (self.tier, self.turn)
    }
}

/// What is within a node's own of these, in their order.
pub(super) fn fill(entries: &mut [Entry], own: Option<MilliGpu>) {
    let mut filled = MilliGpu(0);
    for entry in entries {
        entry.within = own.is_none_or(|own| filled + entry.share <= own);
        filled = if entry.within { filled + entry.share } else { filled };
    }
}

/// What some of them hold within what the queue owns, and beyond it.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Sums {
    pub within: MilliGpu,
    pub beyond: MilliGpu,
}

impl Sums {
    /// So much is filled in next: it is within, or leaves its place to those behind it.
    fn add(&mut self, share: MilliGpu, own: Option<MilliGpu>) {
        if own.is_none_or(|own| self.within + share <= own) {
            self.within = self.within + share;
        } else {
            self.beyond = self.beyond + share;
        }
    }
}

/// Entries one after the other.
#[derive(Debug, Default)]
struct Block {
    entries: Vec<Entry>,
    sum: MilliGpu,
    least: MilliGpu,
}

impl Block {
    fn of(entries: Vec<Entry>) -> Block {
        let mut block = Block { entries, ..Block::default() };
        block.count();
        block
    }

    fn count(&mut self) {
        let shares = || self.entries.iter().map(|entry| entry.share);
        self.sum = shares().fold(MilliGpu(0), |sum, share| sum + share);
        self.least = shares().min().unwrap_or_default();
    }

    fn last(&self) -> Option<Place> {
        self.entries.last().map(Entry::place)
    }
}

/// What runs hold in one queue.
#[derive(Debug, Default)]
pub(super) struct Holders {
    /// None is empty.
    blocks: Vec<Block>,
    /// Where each job stands in them, and what it holds.
    places: BTreeMap<JobId, (Place, MilliGpu)>,
    /// How many of them stop others by their number: the order is another one then.
    pub numbered: usize,
}

impl Holders {
    pub(super) fn of(mut entries: Vec<Entry>) -> Holders {
        entries.sort_unstable_by_key(Entry::place);
        let numbered = entries.iter().filter(|entry| entry.priority != Reverse(0)).count();
        let places = entries.iter().map(|entry| (entry.job, (entry.place(), entry.share))).collect();
        let blocks = entries.chunks(MOST / 2).map(|part| Block::of(part.to_vec())).collect();
        Holders { blocks, places, numbered }
    }

    /// All of them in their order. What is within is not filled in.
    pub(super) fn to_vec(&self) -> Vec<Entry> {
        self.blocks.iter().flat_map(|block| &block.entries).copied().collect()
    }

    /// A job holds so much from now on.
    pub(super) fn set(&mut self, entry: Entry) {
        self.remove(entry.job);
        if entry.share > MilliGpu(0) {
            self.insert(entry);
        }
    }

    fn remove(&mut self, job: JobId) {
        let Some((place, _)) = self.places.remove(&job) else { return };
        let at = self.blocks.partition_point(|block| block.last() < Some(place));
        let Some(block) = self.blocks.get_mut(at) else { return };
        let Ok(within) = block.entries.binary_search_by_key(&place, Entry::place) else { return };
        let old = block.entries.remove(within);
        self.numbered -= usize::from(old.priority != Reverse(0));
        block.sum = block.sum - old.share;
        if block.entries.is_empty() {
            self.blocks.remove(at);
        } else if old.share == block.least {
            block.count();
        }
    }

    fn insert(&mut self, entry: Entry) {
        let place = entry.place();
        self.places.insert(entry.job, (place, entry.share));
        self.numbered += usize::from(entry.priority != Reverse(0));
        let at = self.blocks.partition_point(|block| block.last() < Some(place));
        let at = at.min(self.blocks.len().saturating_sub(1));
        let Some(block) = self.blocks.get_mut(at) else {
            self.blocks.push(Block::of(alloc::vec![entry]));
            return;
        };
        let within = block.entries.partition_point(|other| other.place() < place);
        block.entries.insert(within, entry);
        block.sum = block.sum + entry.share;
        block.least = block.least.min(entry.share);
        if block.entries.len() > MOST {
            let behind = block.entries.split_off(MOST / 2);
            block.count();
            self.blocks.insert(at + 1, Block::of(behind));
        }
    }

    /// What those before a place hold, filled in in their order. `None`: all.
    pub(super) fn before(&self, place: Option<Place>, own: Option<MilliGpu>) -> Sums {
        let mut sums = Sums::default();
        for block in &self.blocks {
            let whole = place.is_none_or(|place| block.last() < Some(place));
            if whole && own.is_none_or(|own| sums.within + block.sum <= own) {
                sums.within = sums.within + block.sum;
            } else if whole && own.is_some_and(|own| sums.within + block.least > own) {
                sums.beyond = sums.beyond + block.sum;
            } else {
                let before = |entry: &&Entry| whole || Some(entry.place()) < place;
                block.entries.iter().take_while(before).for_each(|entry| sums.add(entry.share, own));
            }
            if !whole {
                break;
            }
        }
        sums
    }

    /// Whether a job holds anything that is not within what the queue owns.
    pub(super) fn exceeds(&self, job: JobId, own: MilliGpu) -> bool {
        let Some((place, share)) = self.places.get(&job) else { return false };
        self.before(Some(*place), Some(own)).within + *share > own
    }
}
