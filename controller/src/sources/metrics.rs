//! The metrics of a source: its messages by outcome, and the time from the broker to the durable decision. Rejected messages are counted by
//! stable codes, so that no label is a text of a sender.

use super::registry::{LatencyView, MessageCountsView};
use forebay_driver::live::SourceObserver;
use forebay_source::Receipt;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// The number of latency buckets. The width of each is an eighth of its value.
const BUCKETS: usize = 256;

/// The metrics of a source since this process started.
#[derive(Debug)]
pub struct SourceMetrics {
    taken: AtomicU64,
    seen: AtomicU64,
    rejected: Mutex<BTreeMap<String, u64>>,
    warnings: AtomicU64,
    latency: [AtomicU64; BUCKETS],
}

impl Default for SourceMetrics {
    fn default() -> SourceMetrics {
        SourceMetrics {
            taken: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            rejected: Mutex::default(),
            warnings: AtomicU64::new(0),
            latency: [const { AtomicU64::new(0) }; BUCKETS],
        }
    }
}

impl SourceObserver for SourceMetrics {
    fn durable(&self, counts: Receipt) {
        self.taken.fetch_add(u64::from(counts.taken), Ordering::Relaxed);
        self.seen.fetch_add(u64::from(counts.seen), Ordering::Relaxed);
    }

    fn rejected(&self, code: &str) {
        let mut rejected = self.rejected.lock().unwrap_or_else(PoisonError::into_inner);
        match rejected.get_mut(code) {
            Some(count) => *count += 1,
            None => drop(rejected.insert(code.to_owned(), 1)),
        }
    }

    fn took_ms(&self, ms: u64) {
        self.latency[bucket(ms)].fetch_add(1, Ordering::Relaxed);
    }
}

impl SourceMetrics {
    /// Counts warnings about unknown fields.
    pub(crate) fn record_warnings(&self, warnings: usize) {
        self.warnings.fetch_add(warnings as u64, Ordering::Relaxed);
    }

    /// The present metrics.
    #[must_use]
    pub fn counts(&self) -> MessageCountsView {
        let counts: Vec<u64> = self.latency.iter().map(|n| n.load(Ordering::Relaxed)).collect();
        MessageCountsView {
            taken: self.taken.load(Ordering::Relaxed),
            seen: self.seen.load(Ordering::Relaxed),
            rejected: self.rejected.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            warnings: self.warnings.load(Ordering::Relaxed),
            latency_ms: quantiles(&counts),
        }
    }
}

/// The bucket of a latency: whole milliseconds up to 63, then eight buckets for each doubling.
fn bucket(ms: u64) -> usize {
    if ms < 64 {
        return ms as usize;
    }
    let doubling = ms.ilog2();
    let eighth = (ms >> (doubling - 3)) & 7;
    (64 + (doubling as usize - 6) * 8 + eighth as usize).min(BUCKETS - 1)
}

/// The highest value of a bucket.
fn upper_bound(bucket: usize) -> u64 {
    if bucket < 64 {
        return bucket as u64;
    }
    let (doubling, eighth) = ((bucket - 64) / 8 + 6, (bucket - 64) % 8);
    (((9 + eighth as u64) << doubling) >> 3) - 1
}

fn quantiles(counts: &[u64]) -> Option<LatencyView> {
    let all: u64 = counts.iter().sum();
    let at = |of_hundred: u64| {
        let rank = (all * of_hundred).div_ceil(100).max(1);
        let mut below = 0;
        counts.iter().position(|n| {
            below += n;
            below >= rank
        })
    };
    let latency = LatencyView { p50: upper_bound(at(50)?), p95: upper_bound(at(95)?), p99: upper_bound(at(99)?) };
    (all > 0).then_some(latency)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_width_of_a_bucket_is_an_eighth() {
        for ms in (0..100_000).chain([1 << 29]) {
            let upper = upper_bound(bucket(ms));
            assert!(upper >= ms && (upper - ms) * 8 <= ms.max(1), "{ms} counts as {upper}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn without_messages_the_latency_is_unknown() {
        let metrics = SourceMetrics::default();
        assert_eq!(metrics.counts().latency_ms, None);
        (1..=100).for_each(|ms| metrics.took_ms(if ms == 100 { 900 } else { ms / 10 }));
        assert_eq!(metrics.counts().latency_ms, Some(LatencyView { p50: 5, p95: 9, p99: 9 }));
    }
}
