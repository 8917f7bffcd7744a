//! How much is served at once, and of that how much to one caller: bytes of bodies and answers, streams, waits, reads beside the loop, exports.
//!
//! Never: a bound that a client can lift; all of something for one principal while others want it.

use super::MOST_BYTES;
use super::answers::HeldAnswer;
use super::error::ApiError;
use super::listen::part;
use super::waiters::MOST_WAITERS;
use crate::driver::{HeldShare, Shares};
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bodies at once, in KiB. As JSON they take up to ten times as much: 640 MiB.
const MOST_BODIES_KIB: usize = 64 * 1024;

/// Answers that are not read yet, in KiB: with what they are made of, twice as much.
const MOST_ANSWERS_KIB: usize = 128 * 1024;

/// Streams of statuses at once. Each has a task, a channel of 256 lines and maybe an open file.
pub(super) const MOST_STREAMS: usize = 256;

/// Reads that go through rows beside the loop at once: each keeps the rows as they were, and a processor busy.
const MOST_SCANS: usize = 4;

/// Exports of the whole state at once: each makes lookups of its own for all jobs.
const MOST_EXPORTS: usize = 1;

/// What is left.
#[derive(Clone)]
pub(super) struct Room {
    bodies: Shares,
    answers: Shares,
    streams: Shares,
    waiters: Shares,
    scans: Arc<Semaphore>,
    exports: Arc<Semaphore>,
}

impl Default for Room {
    fn default() -> Room {
        Room {
            bodies: Shares::new(MOST_BODIES_KIB),
            answers: Shares::new(MOST_ANSWERS_KIB),
            streams: Shares::new(MOST_STREAMS),
            waiters: Shares::new(MOST_WAITERS),
            scans: Arc::new(Semaphore::new(MOST_SCANS)),
            exports: Arc::new(Semaphore::new(MOST_EXPORTS)),
        }
    }
}

impl Room {
    /// Room for a body. `said`: its length by its header; without one it counts as the longest.
    ///
    /// # Errors
    /// `Busy` (429) when the bodies of this caller, or those of all, take what is set aside for them.
    pub fn body(&self, who: &Arc<str>, said: Option<usize>) -> Result<HeldShare, ApiError> {
        let kib = said.unwrap_or(MOST_BYTES).min(MOST_BYTES).div_ceil(1024).max(1);
        self.bodies.take(who, kib).ok_or_else(|| busy("too many requests with bodies at once", 1))
    }

    /// Room for an answer of at most so many bytes, taken before it is made.
    ///
    /// # Errors
    /// `Busy` (429) while this caller, or all, have not read as much as there is room for.
    pub fn answer(&self, who: &Arc<str>, bytes: usize) -> Result<HeldAnswer, ApiError> {
        let share = self.answers.take(who, kib(bytes as u64));
        share.map(HeldAnswer::new).ok_or_else(unread)
    }

    /// Room for an answer to a peer that is made already.
    ///
    /// # Errors
    /// The same.
    pub fn answer_to(&self, from: IpAddr, bytes: u64, proxies: &[IpAddr]) -> Result<HeldAnswer, ApiError> {
        let share = part(&self.answers, from, kib(bytes), proxies);
        share.map(HeldAnswer::new).ok_or_else(unread)
    }

    /// Room for a stream.
    ///
    /// # Errors
    /// `Busy` (429) when this caller, or all, have the most that can be open.
    pub fn stream(&self, who: &Arc<str>) -> Result<HeldShare, ApiError> {
        let full =
            || busy(&format!("too many streams of statuses are open: {MOST_STREAMS} can be, over all callers"), 5);
        self.streams.take(who, 1).ok_or_else(full)
    }

    /// Room for a request that waits for a job.
    ///
    /// # Errors
    /// `Busy` (429) when this caller, or all, have the most that can wait.
    pub fn waiter(&self, who: &Arc<str>) -> Result<HeldShare, ApiError> {
        let full = || busy(&format!("too many requests wait for jobs: {MOST_WAITERS} can, over all callers"), 5);
        self.waiters.take(who, 1).ok_or_else(full)
    }

    /// The turn of a read that goes through rows. It waits for the others.
    pub async fn scan(&self) -> Option<OwnedSemaphorePermit> {
        // It is never closed.
        Arc::clone(&self.scans).acquire_owned().await.ok()
    }

    /// Room for an export.
    ///
    /// # Errors
    /// `Busy` (429) while another one is being written.
    pub fn export(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        let full = |_| busy("another export of the state is being written", 5);
        Arc::clone(&self.exports).try_acquire_owned().map_err(full)
    }
}

fn kib(bytes: u64) -> usize {
    usize::try_from(bytes.div_ceil(1024)).unwrap_or(usize::MAX)
}

fn unread() -> ApiError {
    busy("too many answers wait to be read", 1)
}

pub(super) fn busy(message: &str, seconds: u64) -> ApiError {
    ApiError::new(429, "Busy", message, "send it again after the time in Retry-After").retry_after(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> Arc<str> {
        Arc::from(name)
    }

    #[test]
    fn slow_bodies_of_one_leave_half_of_the_room_to_others() {
        let room = Room::default();
        // Without a length, and with one that is too long, a body counts as the longest.
        let greedy: Vec<_> =
            (0..16).filter_map(|n| room.body(&name("greedy"), (n % 2 == 0).then_some(usize::MAX)).ok()).collect();
        assert_eq!(greedy.len(), 7, "half of what is beside the reserve");
        let other: Vec<_> = (0..4096).filter_map(|_| room.body(&name("other"), Some(800)).ok()).collect();
        assert_eq!(other.len(), 4096);
        drop((greedy, other));
        assert!(room.body(&name("greedy"), None).is_ok());
    }

    #[test]
    fn streams_waits_and_exports_are_bounded_and_make_room_when_they_end() {
        let room = Room::default();
        let mine: Vec<_> = (0..MOST_STREAMS).filter_map(|_| room.stream(&name("a")).ok()).collect();
        assert!((MOST_STREAMS / 3..=MOST_STREAMS / 2).contains(&mine.len()), "{}", mine.len());
        assert!(room.stream(&name("b")).is_ok());
        drop(mine);
        assert!(room.stream(&name("a")).is_ok());
        let waits: Vec<_> = (0..MOST_WAITERS).filter_map(|_| room.waiter(&name("a")).ok()).collect();
        assert!(waits.len() < MOST_WAITERS && room.waiter(&name("b")).is_ok());
        let unread: Vec<_> = (0..64).filter_map(|_| room.answer(&name("a"), 16 << 20).ok()).collect();
        assert!((1..=4).contains(&unread.len()), "{}", unread.len());
        let from = IpAddr::from([127, 0, 0, 1]);
        assert!(room.answer(&name("b"), 4 << 20).is_ok() && room.answer_to(from, u64::MAX, &[from]).is_err());
        let export = room.export().expect("room");
        assert!(room.export().is_err());
        drop(export);
        assert!(room.export().is_ok());
    }
}
