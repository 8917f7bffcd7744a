//! What decoders take of memory: an allocator that counts by thread, and hands every call on to the system's.
//!
//! ```text
//! allocated, freed -> this thread's bytes -> the most within `decoding` -> `take_peak`: of one input
//!                                         -> in steps of 64 KiB, the bytes of all threads -> `live_bytes`: of a run
//! ```
//!
//! What a decoder allocates on another thread is in the bytes of all threads, and not in its peak.
//! Never: allocates, or gives something else than the system's allocator gives.
#![allow(unsafe_code)] // An allocator is an unsafe trait; what is unsafe here hands on what it was given.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, Ordering};

/// The most bytes that a decoder may have at once for one input: 128 times the largest one.
pub const MOST_DECODING: u64 = 256 << 20;

/// So many bytes a thread counts for itself before they are added to those of all threads, which costs more.
const STEP: i64 = 64 << 10;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// The bytes of all threads, but for less than a step of each.
static LIVE: AtomicI64 = AtomicI64::new(0);

thread_local! {
    static COUNTS: ThreadCounts = const {
        ThreadCounts { live: Cell::new(0), peak: Cell::new(0), unsent: Cell::new(0), decoding: Cell::new(0) }
    };
}

/// Counts of one thread, in bytes. What is freed on another thread than it was allocated on makes `live` drift: only differences count.
struct ThreadCounts {
    live: Cell<i64>,
    /// The most of `live` since a decoder was begun.
    peak: Cell<i64>,
    /// Not yet in the bytes of all threads.
    unsent: Cell<i64>,
    /// The most that decoders had since `take_peak`.
    decoding: Cell<i64>,
}

/// The system's allocator, counted.
struct CountingAllocator;

// SAFETY: each call is handed on to the system's allocator as it came, and counting does not allocate: the counts need no destructor.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(signed(layout.size()));
        // SAFETY: the caller keeps to the contract of this trait, which is the system allocator's too.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(signed(layout.size()));
        // SAFETY: as in `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-signed(layout.size()));
        // SAFETY: as in `alloc`.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(signed(size) - signed(layout.size()));
        // SAFETY: as in `alloc`.
        unsafe { System.realloc(at, layout, size) }
    }
}

/// No layout has more than `isize::MAX` bytes.
fn signed(bytes: usize) -> i64 {
    bytes as i64
}

fn count(bytes: i64) {
    // It has no destructor, so it is there as long as its thread.
    let _ = COUNTS.try_with(|counts| {
        let live = counts.live.get() + bytes;
        counts.live.set(live);
        if live > counts.peak.get() {
            counts.peak.set(live);
        }
        let unsent = counts.unsent.get() + bytes;
        if unsent.abs() < STEP {
            counts.unsent.set(unsent);
        } else {
            counts.unsent.set(0);
            LIVE.fetch_add(unsent, Ordering::Relaxed);
        }
    });
}

/// Runs a decoder, and remembers how many bytes this thread had at most beyond those that it had before. Not within another `decoding`.
pub fn decoding<T>(decode: impl FnOnce() -> T) -> T {
    let before = COUNTS.with(|counts| {
        counts.peak.set(counts.live.get());
        counts.live.get()
    });
    let decoded = decode();
    COUNTS.with(|counts| counts.decoding.set(counts.decoding.get().max(counts.peak.get() - before)));
    decoded
}

/// The most bytes that a decoder had on this thread since this was asked last.
#[must_use]
pub fn take_peak() -> u64 {
    COUNTS.with(|counts| u64::try_from(counts.decoding.replace(0)).unwrap_or(0))
}

/// The bytes that all threads have now, but for less than 64 KiB of each.
#[must_use]
pub fn live_bytes() -> i64 {
    LIVE.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;

    #[test]
    fn the_most_that_a_decoder_had_at_once_is_known_and_what_it_keeps_is_counted() {
        const LARGE: usize = 64 << 20;
        let _ = take_peak();
        decoding(|| drop(black_box(vec![0_u8; LARGE])));
        let kept = decoding(|| black_box(vec![0_u8; LARGE / 2]));
        let (peak, least) = (take_peak(), LARGE as u64);
        assert!((least..least + (1 << 20)).contains(&peak), "{peak}: of two decoders the most counts, not the sum");
        assert_eq!(take_peak(), 0, "taken once");
        let before = live_bytes();
        drop(kept);
        // Other tests allocate at the same time, and far less.
        let freed = before - live_bytes();
        assert!(freed > signed(LARGE / 4), "{freed} of {} bytes", LARGE / 2);
    }
}
