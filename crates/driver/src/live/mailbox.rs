//! The bounded mailbox in front of the driver: submissions, queries and cursors from any thread, taken by one.
//!
//! Never: grows beyond its capacity, or makes a client wait for capacity (the error has a time to try again at; sources wait for slots).

use super::handle::{DriverStopped, MailboxError, QueryContext};
use super::submission::{ReplyTo, Submission, SubmittedItem};
use forebay_engine::engine::Engine;
use forebay_source::MessagePermit;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;

/// Events that may wait. At some 300 bytes a job it is a few MiB, and a second's work for the driver.
pub const MOST_EVENTS: usize = 16_384;

/// Queries that may wait. Each is a closure; the web page makes about ten at once.
pub const MOST_QUERIES: usize = 1_024;

/// Something to run on the engine.
pub(super) type Query = Box<dyn FnOnce(&Engine, &QueryContext) + Send>;

/// The mailbox.
pub(super) struct Mailbox {
    /// One permit an event: taken before it comes, given back when it is durable.
    pub capacity: Arc<Semaphore>,
    inside: Mutex<Inside>,
    arrived: Condvar,
}

#[derive(Default)]
struct Inside {
    submissions: VecDeque<Submission>,
    queries: VecDeque<Query>,
    cursors: BTreeMap<String, u64>,
    stopping: bool,
    closed: bool,
}

/// What the driver took out.
#[derive(Default)]
pub(super) struct Taken {
    /// Submissions, in order, together at most as many events as asked for (one submission is never split).
    pub submissions: Vec<Submission>,
    /// Querys, in order.
    pub queries: Vec<Query>,
    /// How far sinks have come since the last time.
    pub cursors: BTreeMap<String, u64>,
    /// Somebody asked the driver to end.
    pub stopping: bool,
}

impl Taken {
    /// Whether there was nothing.
    pub fn is_empty(&self) -> bool {
        self.submissions.is_empty() && self.queries.is_empty() && self.cursors.is_empty() && !self.stopping
    }
}

impl Default for Mailbox {
    fn default() -> Mailbox {
        Mailbox {
            capacity: Arc::new(Semaphore::new(MOST_EVENTS)),
            inside: Mutex::default(),
            arrived: Condvar::default(),
        }
    }
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, Inside> {
        // Nothing under this lock can panic half way through a change.
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client's events, if there is capacity for them.
    ///
    /// # Errors
    /// There is no capacity, or the driver has stopped.
    pub fn submit(&self, items: Vec<SubmittedItem>, reply_to: ReplyTo) -> Result<(), MailboxError> {
        let too_many = MailboxError::TooMany { events: items.len(), most: MOST_EVENTS };
        let permits = u32::try_from(items.len().max(1)).ok().filter(|n| *n as usize <= MOST_EVENTS).ok_or(too_many)?;
        let permit = Arc::clone(&self.capacity).try_acquire_many_owned(permits);
        let slot = MessagePermit::from(permit.map_err(|_| self.why_not())?);
        Ok(self.put(Submission { items, stream: None, slot, reply_to })?)
    }

    fn why_not(&self) -> MailboxError {
        if self.lock().closed {
            DriverStopped.into()
        } else {
            MailboxError::Full { retry_after: Duration::from_secs(1) }
        }
    }

    /// A submission that has its slot already.
    ///
    /// # Errors
    /// The driver has stopped.
    pub fn put(&self, submission: Submission) -> Result<(), DriverStopped> {
        let mut inside = self.lock();
        if inside.closed || inside.stopping {
            return Err(DriverStopped);
        }
        inside.submissions.push_back(submission);
        drop(inside);
        self.arrived.notify_one();
        Ok(())
    }

    /// A query, if there is capacity for it.
    ///
    /// # Errors
    /// There is no capacity, or the driver has stopped.
    pub fn query(&self, query: Query) -> Result<(), MailboxError> {
        let mut inside = self.lock();
        if inside.closed {
            return Err(DriverStopped.into());
        }
        if inside.queries.len() >= MOST_QUERIES {
            return Err(MailboxError::Full { retry_after: Duration::from_secs(1) });
        }
        inside.queries.push_back(query);
        drop(inside);
        self.arrived.notify_one();
        Ok(())
    }

    /// A sink has come so far. One entry a sink.
    pub fn record_cursor(&self, sink: &str, number: u64) {
        self.lock().cursors.insert(sink.to_owned(), number);
        self.arrived.notify_one();
    }

    /// Asks the driver to end.
    pub fn stop(&self) {
        self.lock().stopping = true;
        self.arrived.notify_one();
    }

    /// Waits until something is there, at most `wait` (`None`: as long as it takes), and takes it.
    pub fn take(&self, wait: Option<Duration>, most_events: usize) -> Taken {
        let empty =
            |i: &mut Inside| i.submissions.is_empty() && i.queries.is_empty() && i.cursors.is_empty() && !i.stopping;
        let inside = self.lock();
        let mut inside = match wait {
            Some(Duration::ZERO) => inside,
            Some(wait) => {
                self.arrived.wait_timeout_while(inside, wait, empty).unwrap_or_else(PoisonError::into_inner).0
            }
            None => self.arrived.wait_while(inside, empty).unwrap_or_else(PoisonError::into_inner),
        };
        let mut events = 0;
        let fitting = inside.submissions.iter().enumerate().take_while(|(at, next)| {
            events += next.items.len();
            *at == 0 || events <= most_events
        });
        let fitting = fitting.count();
        Taken {
            submissions: inside.submissions.drain(..fitting).collect(),
            queries: inside.queries.drain(..).collect(),
            cursors: std::mem::take(&mut inside.cursors),
            stopping: inside.stopping,
        }
    }

    /// While nothing is received: waits for queries, and takes only those. Whether somebody asked the driver to end comes with them.
    pub fn take_queries(&self, wait: Duration) -> Taken {
        let empty = |i: &mut Inside| i.queries.is_empty() && !i.stopping;
        let waited = self.arrived.wait_timeout_while(self.lock(), wait, empty);
        let mut inside = waited.unwrap_or_else(PoisonError::into_inner).0;
        Taken { queries: inside.queries.drain(..).collect(), stopping: inside.stopping, ..Taken::default() }
    }

    /// Takes no more. Whoever waits for an answer learns it, because the way back is dropped.
    pub fn close(&self) {
        let mut inside = self.lock();
        inside.closed = true;
        let left = (std::mem::take(&mut inside.submissions), std::mem::take(&mut inside.queries));
        drop(inside);
        self.capacity.close();
        drop(left);
    }
}
