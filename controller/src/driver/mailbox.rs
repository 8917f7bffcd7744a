//! The bounded mailbox in front of a driver: posts, questions and cursors from any thread, taken by one.
//!
//! Never: grows beyond its room, or keeps a client waiting for some (it is told when to come back; sources wait for slots).

use super::handle::{Busy, Context, Stopped};
use super::post::{Answer, Item, Post};
use forebay_engine::engine::Engine;
use forebay_source::Slot;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;

/// Events that may wait. At some 300 bytes a job it is a few MiB, and a second's work for the driver.
pub const MOST_EVENTS: usize = 16_384;

/// Questions that may wait. Each is a closure; a page asks about ten.
pub const MOST_QUERIES: usize = 1_024;

/// Something to run on the engine.
pub(super) type Question = Box<dyn FnOnce(&Engine, &Context) + Send>;

/// The mailbox.
pub(super) struct Mailbox {
    /// One permit an event: taken before it comes, given back when it is durable.
    pub room: Arc<Semaphore>,
    inside: Mutex<Inside>,
    arrived: Condvar,
}

#[derive(Default)]
struct Inside {
    posts: VecDeque<Post>,
    queries: VecDeque<Question>,
    cursors: BTreeMap<String, u64>,
    stopping: bool,
    closed: bool,
}

/// What the driver took out.
#[derive(Default)]
pub(super) struct Taken {
    /// Posts, in order, together at most as many events as asked for (one post is never split).
    pub posts: Vec<Post>,
    /// Questions, in order.
    pub queries: Vec<Question>,
    /// How far sinks have come since the last time.
    pub cursors: BTreeMap<String, u64>,
    /// Somebody asked the driver to end.
    pub stopping: bool,
}

impl Taken {
    /// Whether there was nothing.
    pub fn is_empty(&self) -> bool {
        self.posts.is_empty() && self.queries.is_empty() && self.cursors.is_empty() && !self.stopping
    }
}

impl Default for Mailbox {
    fn default() -> Mailbox {
        Mailbox { room: Arc::new(Semaphore::new(MOST_EVENTS)), inside: Mutex::default(), arrived: Condvar::default() }
    }
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, Inside> {
        // Nothing under this lock can panic half way through a change.
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client's events, if there is room for them.
    pub fn submit(&self, items: Vec<Item>, answer: Answer) -> Result<(), Busy> {
        let too_many = Busy::TooMany { events: items.len(), most: MOST_EVENTS };
        let permits = u32::try_from(items.len().max(1)).ok().filter(|n| *n as usize <= MOST_EVENTS).ok_or(too_many)?;
        let permit = Arc::clone(&self.room).try_acquire_many_owned(permits);
        let slot = Slot::from(permit.map_err(|_| self.why_not())?);
        Ok(self.post(Post { items, stream: None, slot, answer })?)
    }

    fn why_not(&self) -> Busy {
        if self.lock().closed { Stopped.into() } else { Busy::Full { retry_after: Duration::from_secs(1) } }
    }

    /// What has room already.
    pub fn post(&self, post: Post) -> Result<(), Stopped> {
        let mut inside = self.lock();
        if inside.closed || inside.stopping {
            return Err(Stopped);
        }
        inside.posts.push_back(post);
        drop(inside);
        self.arrived.notify_one();
        Ok(())
    }

    pub fn ask(&self, question: Question) -> Result<(), Busy> {
        let mut inside = self.lock();
        if inside.closed {
            return Err(Stopped.into());
        }
        if inside.queries.len() >= MOST_QUERIES {
            return Err(Busy::Full { retry_after: Duration::from_secs(1) });
        }
        inside.queries.push_back(question);
        drop(inside);
        self.arrived.notify_one();
        Ok(())
    }

    /// A sink has come so far. One entry a sink.
    pub fn note(&self, sink: &str, number: u64) {
        self.lock().cursors.insert(sink.to_owned(), number);
        self.arrived.notify_one();
    }

    pub fn stop(&self) {
        self.lock().stopping = true;
        self.arrived.notify_one();
    }

    /// Waits until something is there, at most `wait` (`None`: as long as it takes), and takes it.
    pub fn take(&self, wait: Option<Duration>, most_events: usize) -> Taken {
        let empty = |i: &mut Inside| i.posts.is_empty() && i.queries.is_empty() && i.cursors.is_empty() && !i.stopping;
        let inside = self.lock();
        let mut inside = match wait {
            Some(Duration::ZERO) => inside,
            Some(wait) => {
                self.arrived.wait_timeout_while(inside, wait, empty).unwrap_or_else(PoisonError::into_inner).0
            }
            None => self.arrived.wait_while(inside, empty).unwrap_or_else(PoisonError::into_inner),
        };
        let mut taken = Taken { stopping: inside.stopping, ..Taken::default() };
        let mut events = 0;
        while let Some(next) = inside.posts.front() {
            if !taken.posts.is_empty() && events + next.items.len() > most_events {
                break;
            }
            events += next.items.len();
            taken.posts.extend(inside.posts.pop_front());
        }
        taken.queries.extend(inside.queries.drain(..));
        taken.cursors = std::mem::take(&mut inside.cursors);
        taken
    }

    /// While nothing is received: waits for questions, and takes only those. Whether somebody asked for the end comes with them.
    pub fn take_queries(&self, wait: Duration) -> Taken {
        let empty = |i: &mut Inside| i.queries.is_empty() && !i.stopping;
        let waited = self.arrived.wait_timeout_while(self.lock(), wait, empty);
        let mut inside = waited.unwrap_or_else(PoisonError::into_inner).0;
        Taken { queries: inside.queries.drain(..).collect(), stopping: inside.stopping, ..Taken::default() }
    }

    /// Takes no more; whoever waits is told, because their answers are dropped.
    pub fn close(&self) {
        let mut inside = self.lock();
        inside.closed = true;
        let left = (std::mem::take(&mut inside.posts), std::mem::take(&mut inside.queries));
        drop(inside);
        self.room.close();
        drop(left);
    }
}
