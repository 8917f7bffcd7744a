//! What is counted of a source: letters by what became of them, and the time from the broker to the durable decision.
//!
//! Never: a label that a stranger chose; rejections are counted by their stable codes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Buckets of latency: each is within an eighth of what it counts.
const BUCKETS: usize = 256;

/// What is counted of a source since this process started.
#[derive(Debug)]
pub struct SourceFigures {
    taken: AtomicU64,
    seen: AtomicU64,
    rejected: Mutex<BTreeMap<String, u64>>,
    warnings: AtomicU64,
    latency: [AtomicU64; BUCKETS],
}

impl Default for SourceFigures {
    fn default() -> SourceFigures {
        SourceFigures {
            taken: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            rejected: Mutex::default(),
            warnings: AtomicU64::new(0),
            latency: [const { AtomicU64::new(0) }; BUCKETS],
        }
    }
}

/// The figures at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Letters that said something new.
    pub taken: u64,
    /// Letters that had been seen before.
    pub seen: u64,
    /// Letters that were not taken, by code.
    pub rejected: BTreeMap<String, u64>,
    /// Warnings about fields that are not known.
    pub warnings: u64,
    /// From the broker to the durable decision, in ms, rounded up: half, 95 and 99 of 100 took at most so long. `None`: not known.
    pub latency_ms: Option<[u64; 3]>,
}

impl SourceFigures {
    /// Letters that became durable.
    pub(crate) fn durable(&self, taken: u32, seen: u32) {
        self.taken.fetch_add(u64::from(taken), Ordering::Relaxed);
        self.seen.fetch_add(u64::from(seen), Ordering::Relaxed);
    }

    /// A letter that was not taken.
    pub(crate) fn rejected(&self, code: &str) {
        let mut rejected = self.rejected.lock().unwrap_or_else(PoisonError::into_inner);
        match rejected.get_mut(code) {
            Some(count) => *count += 1,
            None => drop(rejected.insert(code.to_owned(), 1)),
        }
    }

    /// Fields that are not known.
    pub(crate) fn warned(&self, warnings: usize) {
        self.warnings.fetch_add(warnings as u64, Ordering::Relaxed);
    }

    /// A letter took so long from the broker to the journal.
    pub(crate) fn took(&self, ms: u64) {
        self.latency[bucket(ms)].fetch_add(1, Ordering::Relaxed);
    }

    /// The figures now.
    #[must_use]
    pub fn counted(&self) -> Counted {
        let counts: Vec<u64> = self.latency.iter().map(|n| n.load(Ordering::Relaxed)).collect();
        Counted {
            taken: self.taken.load(Ordering::Relaxed),
            seen: self.seen.load(Ordering::Relaxed),
            rejected: self.rejected.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            warnings: self.warnings.load(Ordering::Relaxed),
            latency_ms: quantiles(&counts),
        }
    }
}

/// Whole milliseconds to 63, then eight buckets to a doubling.
fn bucket(ms: u64) -> usize {
    if ms < 64 {
        return ms as usize;
    }
    let doubling = ms.ilog2();
    let eighth = (ms >> (doubling - 3)) & 7;
    (64 + (doubling as usize - 6) * 8 + eighth as usize).min(BUCKETS - 1)
}

/// The most that a bucket counts.
fn most(bucket: usize) -> u64 {
    if bucket < 64 {
        return bucket as u64;
    }
    let (doubling, eighth) = ((bucket - 64) / 8 + 6, (bucket - 64) % 8);
    (((9 + eighth as u64) << doubling) >> 3) - 1
}

fn quantiles(counts: &[u64]) -> Option<[u64; 3]> {
    let all: u64 = counts.iter().sum();
    let at = |of_hundred: u64| {
        let rank = (all * of_hundred).div_ceil(100).max(1);
        let mut below = 0;
        counts.iter().position(|n| {
            below += n;
            below >= rank
        })
    };
    Some([most(at(50)?), most(at(95)?), most(at(99)?)]).filter(|_| all > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_within_an_eighth_of_what_it_counts() {
        for ms in (0..100_000).chain([1 << 29]) {
            let upper = most(bucket(ms));
            assert!(upper >= ms && (upper - ms) * 8 <= ms.max(1), "{ms} counts as {upper}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn nothing_counted_is_not_known() {
        let figures = SourceFigures::default();
        assert_eq!(figures.counted().latency_ms, None);
        (1..=100).for_each(|ms| figures.took(if ms == 100 { 900 } else { ms / 10 }));
        assert_eq!(figures.counted().latency_ms, Some([5, 9, 9]));
    }
}
