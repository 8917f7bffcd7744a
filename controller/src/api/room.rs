//! How much is served at once, and of that how much to one caller: connections, bytes of bodies and answers, streams, waits, reads of the archive
//! and beside the loop, bills, exports.
//!
//! ```text
//! connections, bytes, streams, waits   a part of them, or 429 at once
//! archive, rows, bills                 the caller's own turn -> a turn among all -> a thread that may take its time; 429 after a while
//! ```
//!
//! Never: a bound that a client can lift; all of something for one principal while others want it.

use super::MOST_BYTES;
use super::answers::HeldAnswer;
use super::error::ApiError;
use super::listen::{most_connections, part, too_many_connections};
use super::waiters::MOST_WAITERS;
use crate::config::tokens::Who;
use crate::driver::{HeldShare, Shares};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinError;

/// Bodies at once, in KiB. As JSON they take up to ten times as much: 640 MiB.
const MOST_BODIES_KIB: usize = 64 * 1024;

/// Answers that are not read yet, in KiB: with what they are made of, twice as much.
const MOST_ANSWERS_KIB: usize = 128 * 1024;

/// Streams of statuses at once. Each has a task, a channel of 256 lines and maybe an open file.
pub(super) const MOST_STREAMS: usize = 256;

/// Connections beyond all others at once, for health and metrics alone. Each has a task and a head.
pub(super) const MOST_RESERVED: usize = 128;

/// Connections on which figures were asked for last, beside those of all other requests: as many as are for health and figures alone.
const MOST_SCRAPES: usize = MOST_RESERVED;

/// Reads that go through rows beside the loop at once: each keeps the rows as they were, and a processor busy.
const MOST_SCANS: usize = 4;

/// Reads of the archive at once, over all callers. They take turns at one connection: with more, they would only hold threads that others
/// need.
const MOST_READS: usize = 4;

/// Bills that are read and computed at once, over all callers: each keeps a processor busy, and all charges of its range in memory.
const MOST_BILLS: usize = 2;

/// How long a request waits for its turn at most: as long as a client has for its body.
const LONGEST_TURN: Duration = Duration::from_secs(60);

/// Exports of the whole state at once: each makes lookups of its own for all jobs.
const MOST_EXPORTS: usize = 1;

/// What is left.
#[derive(Clone)]
pub(super) struct Room {
    connections: Shares,
    scrapes: Shares,
    bodies: Shares,
    answers: Shares,
    streams: Shares,
    waiters: Shares,
    reads: Arc<Semaphore>,
    scans: Arc<Semaphore>,
    bills: Arc<Semaphore>,
    exports: Arc<Semaphore>,
}

/// A turn at what few do at once; given back when dropped.
pub(super) struct HeldTurn {
    _own: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

impl HeldTurn {
    /// Does a step of something on a thread that may take its time. The turn goes on after it; where whoever asked goes away, it ends with the step.
    ///
    /// # Errors
    /// The work ended by a panic, or the process ends.
    pub async fn step<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<(HeldTurn, T), JoinError> {
        let working = tokio::task::spawn_blocking(move || {
            let done = work();
            (self, done)
        });
        working.await
    }

    /// Does something on a thread that may take its time. The turn lasts until it is done, although whoever asked goes away.
    ///
    /// # Errors
    /// The work ended by a panic, or the process ends.
    pub async fn spend<T: Send + 'static>(self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, JoinError> {
        let working = tokio::task::spawn_blocking(move || {
            let _turn = self;
            work()
        });
        working.await
    }
}

impl Default for Room {
    fn default() -> Room {
        Room {
            connections: Shares::new(most_connections()),
            scrapes: Shares::new(MOST_SCRAPES),
            bodies: Shares::new(MOST_BODIES_KIB),
            answers: Shares::new(MOST_ANSWERS_KIB),
            streams: Shares::new(MOST_STREAMS),
            waiters: Shares::new(MOST_WAITERS),
            reads: Arc::new(Semaphore::new(MOST_READS)),
            scans: Arc::new(Semaphore::new(MOST_SCANS)),
            bills: Arc::new(Semaphore::new(MOST_BILLS)),
            exports: Arc::new(Semaphore::new(MOST_EXPORTS)),
        }
    }
}

impl Room {
    /// The usual room, but for so many connections.
    #[cfg(test)]
    pub fn with_connections(most: usize) -> Room {
        Room { connections: Shares::new(most), ..Room::default() }
    }

    /// A part of all connections, for one on which a caller asks.
    ///
    /// # Errors
    /// `TooManyConnections` (429) when this caller, or all, have the most that can be.
    pub fn connection(&self, who: &Arc<str>) -> Result<HeldShare, ApiError> {
        self.connections.take(who, 1).ok_or_else(|| too_many_connections("this caller"))
    }

    /// The same, for one on which a caller asks for figures.
    ///
    /// # Errors
    /// The same.
    pub fn scrape(&self, who: &Arc<str>) -> Result<HeldShare, ApiError> {
        self.scrapes.take(who, 1).ok_or_else(|| too_many_connections("this caller"))
    }

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

    /// The turn of a read of the archive. It waits behind the caller's own.
    ///
    /// # Errors
    /// `Busy` (429) when it has not come for too long.
    pub async fn read(&self, who: &Who) -> Result<HeldTurn, ApiError> {
        turn(&who.reads, &self.reads).await
    }

    /// The turn of a request that goes through rows. It waits behind the caller's own.
    ///
    /// # Errors
    /// The same.
    pub async fn scan(&self, who: &Who) -> Result<HeldTurn, ApiError> {
        turn(&who.scans, &self.scans).await
    }

    /// The turn of a bill, from its read of the ledger to its answer or page. It waits behind the caller's own.
    ///
    /// # Errors
    /// The same.
    pub async fn bill(&self, who: &Who) -> Result<HeldTurn, ApiError> {
        turn(&who.bills, &self.bills).await
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

/// A turn of a caller, and then one among all: so only a few of each caller stand before those of others.
async fn turn(own: &Arc<Semaphore>, all: &Arc<Semaphore>) -> Result<HeldTurn, ApiError> {
    let wait = async {
        let own = Arc::clone(own).acquire_owned().await?;
        let all = Arc::clone(all).acquire_owned().await?;
        Ok::<HeldTurn, AcquireError>(HeldTurn { _own: own, _all: all })
    };
    // Neither of them is ever closed.
    let turn = tokio::time::timeout(LONGEST_TURN, wait).await.ok().and_then(Result::ok);
    turn.ok_or_else(|| busy("too many such requests wait for their turn", 5))
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
    use std::sync::mpsc::{Sender, channel};
    use tokio::runtime::Runtime;
    use tokio::task::JoinHandle;
    use tokio::time::timeout;

    fn name(name: &str) -> Arc<str> {
        Arc::from(name)
    }

    fn who(name: &str) -> Arc<Who> {
        Arc::new(Who::agent(name, vec!["i-1".to_owned()]))
    }

    fn runtime() -> Runtime {
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap()
    }

    /// A read that says its number when it has its turn, and goes on until its gate is dropped.
    fn read(
        runtime: &Runtime,
        room: &Room,
        who: &Arc<Who>,
        number: usize,
        begun: &Sender<usize>,
    ) -> (Sender<()>, JoinHandle<()>) {
        let (open, gate) = channel::<()>();
        let (room, who, begun) = (room.clone(), Arc::clone(who), begun.clone());
        let asked = runtime.spawn(async move {
            let turn = room.read(&who).await.expect("a turn");
            let work = move || {
                let _ = begun.send(number);
                let _ = gate.recv();
            };
            turn.spend(work).await.expect("no panic");
        });
        (open, asked)
    }

    #[test]
    fn a_read_whose_asker_went_away_keeps_its_turn_and_those_beyond_wait() {
        let (runtime, room, (begun, begins)) = (runtime(), Room::default(), channel());
        let callers = [who("a"), who("b"), who("c")];
        let reads: Vec<_> = (0..6).map(|number| read(&runtime, &room, &callers[number % 3], number, &begun)).collect();
        let first: Vec<usize> = begins.iter().take(MOST_READS).collect();
        assert_eq!(room.reads.available_permits(), 0);
        for number in &first {
            reads[*number].1.abort();
        }
        assert_eq!(room.reads.available_permits(), 0, "their threads are still at it");
        drop(reads);
        assert_eq!(begins.iter().take(2).count(), 2, "the others have their turn");
    }

    #[test]
    fn reads_of_one_caller_wait_behind_its_own_and_not_before_those_of_others() {
        let (runtime, room, (begun, begins)) = (runtime(), Room::default(), channel());
        let (greedy, other) = (who("greedy"), who("other"));
        let reads: Vec<_> = (0..6).map(|number| read(&runtime, &room, &greedy, number, &begun)).collect();
        assert_eq!(begins.iter().take(2).count(), 2);
        let another = read(&runtime, &room, &other, 6, &begun);
        assert_eq!(begins.recv_timeout(LONGEST_TURN), Ok(6), "the next to begin is the other's");
        drop((reads, another));
        assert_eq!(begins.iter().take(4).count(), 4, "its own go on when it is their turn");
    }

    #[tokio::test]
    async fn scans_and_bills_of_one_leave_turns_to_others() {
        let (room, a, b) = (Room::default(), who("a"), who("b"));
        let now = Duration::ZERO;
        let scans = [room.scan(&a).await.expect("a turn"), room.scan(&a).await.expect("a turn")];
        assert!(timeout(now, room.scan(&a)).await.is_err(), "its third scan waits behind its own");
        assert!(timeout(now, room.scan(&b)).await.is_ok_and(|turn| turn.is_ok()));
        let bill = room.bill(&a).await.expect("a turn");
        assert!(timeout(now, room.bill(&a)).await.is_err(), "its second bill waits behind its own");
        assert!(timeout(now, room.bill(&b)).await.is_ok_and(|turn| turn.is_ok()));
        let (bill, read) = bill.step(|| 7).await.expect("no panic");
        assert!(read == 7 && timeout(now, room.bill(&a)).await.is_err(), "a bill has its turn from step to step");
        drop((scans, bill));
        assert!(timeout(now, room.scan(&a)).await.is_ok_and(|turn| turn.is_ok()));
        assert!(timeout(now, room.bill(&a)).await.is_ok_and(|turn| turn.is_ok()));
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
    fn scrapes_of_one_caller_leave_those_of_others_theirs_whoever_has_all_other_connections() {
        let room = Room::with_connections(1);
        let _all = room.connection(&name("greedy")).expect("room");
        assert!(room.connection(&name("other")).is_err());
        let greedy: Vec<_> = std::iter::from_fn(|| room.scrape(&name("greedy")).ok()).collect();
        assert!((MOST_SCRAPES / 3..=MOST_SCRAPES / 2).contains(&greedy.len()), "{}", greedy.len());
        assert!(room.scrape(&name("other")).is_ok());
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
