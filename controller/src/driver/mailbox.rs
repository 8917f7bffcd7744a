//! The bounded mailbox in front of a driver: submissions and questions from any thread, taken by one.
//!
//! Never: grows beyond its bounds, or keeps a sender waiting for room (it is told when to come back).

use super::handle::{Accepted, Busy, Context, Stopped};
use forebay_engine::engine::Engine;
use forebay_engine::event::Event;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// Events that may wait. At some 300 bytes a job it is a few MiB, and a second's work for the driver.
pub const MOST_EVENTS: usize = 16_384;

/// Questions that may wait. Each is a closure; a page asks about ten.
pub const MOST_QUERIES: usize = 1_024;

/// Whom to tell that events are durable.
pub(super) type Answer = oneshot::Sender<Result<Accepted, Busy>>;

/// Something to run on the engine.
pub(super) type Question = Box<dyn FnOnce(&Engine, &Context) + Send>;

/// The mailbox.
#[derive(Default)]
pub(super) struct Mailbox {
    inside: Mutex<Inside>,
    arrived: Condvar,
}

#[derive(Default)]
struct Inside {
    submissions: VecDeque<(Vec<Event>, Answer)>,
    events: usize,
    queries: VecDeque<Question>,
    stopping: bool,
    closed: bool,
}

/// What the driver took out.
#[derive(Default)]
pub(super) struct Taken {
    /// Submissions, in order, together at most as many events as asked for (one submission is never split).
    pub submissions: Vec<(Vec<Event>, Answer)>,
    /// Questions, in order.
    pub queries: Vec<Question>,
    /// Somebody asked the driver to end.
    pub stopping: bool,
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, Inside> {
        // Nothing under this lock can panic half way through a change.
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn submit(&self, events: Vec<Event>, answer: Answer) -> Result<(), Busy> {
        if events.len() > MOST_EVENTS {
            return Err(Busy::TooMany { events: events.len(), most: MOST_EVENTS });
        }
        let mut inside = self.lock();
        if inside.closed || inside.stopping {
            return Err(Stopped.into());
        }
        if inside.events + events.len() > MOST_EVENTS || inside.submissions.len() >= MOST_EVENTS {
            return Err(Busy::Full { retry_after: Duration::from_secs(1) });
        }
        inside.events += events.len();
        inside.submissions.push_back((events, answer));
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

    pub fn stop(&self) {
        self.lock().stopping = true;
        self.arrived.notify_one();
    }

    /// Waits until something is there, at most `wait` (`None`: as long as it takes), and takes it.
    pub fn take(&self, wait: Option<Duration>, most_events: usize) -> Taken {
        let empty = |i: &mut Inside| i.submissions.is_empty() && i.queries.is_empty() && !i.stopping;
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
        while let Some((next, _)) = inside.submissions.front() {
            if !taken.submissions.is_empty() && events + next.len() > most_events {
                break;
            }
            events += next.len();
            taken.submissions.extend(inside.submissions.pop_front());
        }
        inside.events -= events;
        taken.queries.extend(inside.queries.drain(..));
        taken
    }

    /// While nothing is received: waits for questions, and takes only those. Whether somebody asked for the end comes with them.
    pub fn take_queries(&self, wait: Duration) -> Taken {
        let empty = |i: &mut Inside| i.queries.is_empty() && !i.stopping;
        let waited = self.arrived.wait_timeout_while(self.lock(), wait, empty);
        let mut inside = waited.unwrap_or_else(PoisonError::into_inner).0;
        Taken { submissions: Vec::new(), queries: inside.queries.drain(..).collect(), stopping: inside.stopping }
    }

    /// Takes no more; whoever waits is told, because their answers are dropped.
    pub fn close(&self) {
        let mut inside = self.lock();
        inside.closed = true;
        let left = (std::mem::take(&mut inside.submissions), std::mem::take(&mut inside.queries));
        drop(inside);
        drop(left);
    }
}
