//! The bounded mailbox in front of the driver: submissions, queries, cursors and policies from any thread, taken by one, in turns by who sent them.
//!
//! Never: grows beyond its capacity, or makes a client wait for capacity (the error has a time to try again at; sources wait for slots).

use super::handle::{DriverStopped, MailboxError, QueryContext};
use super::policy::PolicyChange;
use super::shares::{HeldShare, Shares};
use super::submission::{ReplyTo, SenderRule, Submission, SubmissionSender, SubmittedItem};
use super::turns::Turns;
use forebay_engine::engine::Engine;
use forebay_source::MessagePermit;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;

/// Events that may wait. At some 300 bytes a job it is a few MiB, and a second's work for the driver.
pub const MOST_EVENTS: usize = 16_384;

/// Queries that may wait. Each is a closure; the web page makes about ten at once.
pub const MOST_QUERIES: usize = 1_024;

/// Events of those who have none here, beside the rest: one request of many events keeps nobody with a few from being taken.
const RESERVE: usize = MOST_EVENTS / 15;

/// Events of one client in a batch at most, or one submission that has more: whoever comes while a batch is worked on waits for what
/// others have in it. The rest has its turn in the next one.
const PART_OF_ONE: usize = 256;

/// Something to run on the engine.
pub(super) type Query = Box<dyn FnOnce(&Engine, &QueryContext) + Send>;

/// The mailbox.
pub(super) struct Mailbox {
    /// One permit an event: taken before it comes, given back when it is durable.
    pub capacity: Arc<Semaphore>,
    /// Permits for those who have nothing here, where there are no others.
    reserve: Arc<Semaphore>,
    /// The same events, by who sent them.
    events: Shares,
    /// Queries that are not answered, by who asked.
    asked: Shares,
    inside: Mutex<Inside>,
    arrived: Condvar,
}

#[derive(Default)]
struct Inside {
    submissions: Turns<Submission>,
    queries: Turns<(Query, HeldShare)>,
    cursors: BTreeMap<String, u64>,
    /// At most one: who brings the next one is asked to come again.
    policy: Option<PolicyChange>,
    stopping: bool,
    closed: bool,
}

impl Inside {
    /// Whether the driver has nothing to take out.
    fn is_empty(&self) -> bool {
        self.submissions.is_empty()
            && self.queries.is_empty()
            && self.cursors.is_empty()
            && self.policy.is_none()
            && !self.stopping
    }

    /// Submissions in turns, of each client at most its part.
    fn take_submissions(&mut self, most_events: usize) -> Vec<Submission> {
        let (mut events, mut submissions) = (0, Vec::new());
        let mut parts: BTreeMap<Arc<str>, usize> = BTreeMap::new();
        while let Some((sender, next)) = self.submissions.peek()
            && (submissions.is_empty() || events + next.items.len() <= most_events)
        {
            // What a source may have is bounded by its slots: it is read as fast as it can be worked on. What the process itself has to say,
            // the cloud's notices and the cluster's reports, waits for nobody.
            if next.sender.share.is_some() && !sender.is_empty() {
                let part = parts.entry(Arc::clone(sender)).or_default();
                if *part > 0 && *part + next.items.len() > PART_OF_ONE {
                    self.submissions.stand_aside();
                    continue;
                }
                *part += next.items.len();
            }
            events += next.items.len();
            submissions.extend(self.submissions.pop());
        }
        self.submissions.resume();
        submissions
    }
}

/// What the driver took out.
#[derive(Default)]
pub(super) struct Taken {
    /// Submissions, in order, together at most as many events as asked for (one submission is never split).
    pub submissions: Vec<Submission>,
    /// Somebody asks something.
    pub asked: bool,
    /// How far sinks have come since the last time.
    pub cursors: BTreeMap<String, u64>,
    /// Another policy.
    pub policy: Option<PolicyChange>,
    /// Somebody asked the driver to end.
    pub stopping: bool,
}

impl Taken {
    /// Whether there was nothing.
    pub fn is_empty(&self) -> bool {
        self.submissions.is_empty() && !self.asked && self.cursors.is_empty() && self.policy.is_none() && !self.stopping
    }
}

impl Default for Mailbox {
    fn default() -> Mailbox {
        Mailbox {
            capacity: Arc::new(Semaphore::new(MOST_EVENTS)),
            reserve: Arc::new(Semaphore::new(RESERVE)),
            events: Shares::new(MOST_EVENTS + RESERVE),
            asked: Shares::new(MOST_QUERIES),
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
    pub fn submit(
        &self,
        from: &Arc<str>,
        rule: Option<SenderRule>,
        items: Vec<SubmittedItem>,
        reply_to: ReplyTo,
    ) -> Result<(), MailboxError> {
        let too_many = MailboxError::TooMany { events: items.len(), most: MOST_EVENTS };
        let permits = u32::try_from(items.len().max(1)).ok().filter(|n| *n as usize <= MOST_EVENTS).ok_or(too_many)?;
        let share = self.events.take(from, permits as usize).ok_or_else(|| self.why_not())?;
        let taken = |from: &Arc<Semaphore>| Arc::clone(from).try_acquire_many_owned(permits);
        let permit = taken(&self.capacity).or_else(|_| taken(&self.reserve));
        let slot = MessagePermit::from(permit.map_err(|_| self.why_not())?);
        let sender = SubmissionSender { name: Arc::clone(from), share: Some(share), rule };
        Ok(self.put(Submission { items, stream: None, slot, reply_to, sender })?)
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
        let sender = Arc::clone(&submission.sender.name);
        inside.submissions.push(&sender, submission);
        drop(inside);
        self.arrived.notify_one();
        Ok(())
    }

    /// A query, if there is capacity for it.
    ///
    /// # Errors
    /// There is no capacity, or the driver has stopped.
    pub fn query(&self, from: &Arc<str>, query: Query) -> Result<(), MailboxError> {
        let share = self.asked.take(from, 1).ok_or_else(|| self.why_not())?;
        let mut inside = self.lock();
        if inside.closed {
            return Err(DriverStopped.into());
        }
        inside.queries.push(from, (query, share));
        drop(inside);
        self.arrived.notify_one();
        Ok(())
    }

    /// A sink has come so far. One entry a sink.
    pub fn record_cursor(&self, sink: &str, number: u64) {
        self.lock().cursors.insert(sink.to_owned(), number);
        self.arrived.notify_one();
    }

    /// Another policy, if none waits already.
    ///
    /// # Errors
    /// One waits already, or the driver has stopped.
    pub fn change_policy(&self, change: PolicyChange) -> Result<(), MailboxError> {
        let mut inside = self.lock();
        if inside.closed || inside.stopping {
            return Err(DriverStopped.into());
        }
        if inside.policy.is_some() {
            return Err(MailboxError::Full { retry_after: Duration::from_secs(1) });
        }
        inside.policy = Some(change);
        drop(inside);
        self.arrived.notify_one();
        Ok(())
    }

    /// Asks the driver to end.
    pub fn stop(&self) {
        self.lock().stopping = true;
        self.arrived.notify_one();
    }

    /// Waits until something is there, at most `wait` (`None`: as long as it takes), and takes it.
    pub fn take(&self, wait: Option<Duration>, most_events: usize) -> Taken {
        let empty = |i: &mut Inside| i.is_empty();
        let inside = self.lock();
        let mut inside = match wait {
            Some(Duration::ZERO) => inside,
            Some(wait) => {
                self.arrived.wait_timeout_while(inside, wait, empty).unwrap_or_else(PoisonError::into_inner).0
            }
            None => self.arrived.wait_while(inside, empty).unwrap_or_else(PoisonError::into_inner),
        };
        Taken {
            submissions: inside.take_submissions(most_events),
            asked: !inside.queries.is_empty(),
            cursors: std::mem::take(&mut inside.cursors),
            policy: inside.policy.take(),
            stopping: inside.stopping,
        }
    }

    /// How far sinks have come since the last time.
    pub fn take_cursors(&self) -> BTreeMap<String, u64> {
        std::mem::take(&mut self.lock().cursors)
    }

    /// The next query. Who asked may ask again from now on.
    pub fn next_query(&self) -> Option<Query> {
        self.lock().queries.pop().map(|(query, _)| query)
    }

    /// While nothing is received: waits for queries. Whether somebody asked the driver to end comes with them.
    pub fn wait_for_queries(&self, wait: Duration) -> Taken {
        let empty = |i: &mut Inside| i.queries.is_empty() && !i.stopping;
        let waited = self.arrived.wait_timeout_while(self.lock(), wait, empty);
        let inside = waited.unwrap_or_else(PoisonError::into_inner).0;
        Taken { asked: !inside.queries.is_empty(), stopping: inside.stopping, ..Taken::default() }
    }

    /// Takes no more. Whoever waits for an answer learns it, because the way back is dropped.
    pub fn close(&self) {
        let mut inside = self.lock();
        inside.closed = true;
        let left = (std::mem::take(&mut inside.submissions), std::mem::take(&mut inside.queries), inside.policy.take());
        drop(inside);
        self.capacity.close();
        self.reserve.close();
        drop(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;

    fn events(many: usize) -> Vec<SubmittedItem> {
        (0..many).map(|_| SubmittedItem::default()).collect()
    }

    /// Who has how many events in the next batch.
    fn batch(mailbox: &Mailbox) -> Vec<(String, usize)> {
        let taken = mailbox.take(Some(Duration::ZERO), 4_096);
        taken.submissions.iter().map(|one| (one.sender.name.to_string(), one.items.len())).collect()
    }

    #[test]
    fn a_client_has_a_part_of_a_batch_and_a_source_what_it_has_slots_for() {
        let mailbox = Mailbox::default();
        let [many, few, large, kafka]: [Arc<str>; 4] = ["many", "few", "large", "kafka"].map(Arc::from);
        let submit = |from: &Arc<str>, number: usize| {
            let (answer, _) = oneshot::channel();
            mailbox.submit(from, None, events(number), ReplyTo::Client(answer)).expect("there is room");
        };
        (0..4).for_each(|_| submit(&many, 100));
        (0..2).for_each(|_| submit(&few, 1));
        (0..2).for_each(|_| submit(&large, 1_000));
        (0..3).for_each(|_| submit(&Arc::from(""), 100));
        for _ in 0..300 {
            let slot = MessagePermit::from(Arc::clone(&mailbox.capacity).try_acquire_owned().expect("there is room"));
            let sender = SubmissionSender::source(Arc::clone(&kafka));
            let (answer, _) = oneshot::channel();
            let one = Submission { items: events(1), stream: None, slot, reply_to: ReplyTo::Client(answer), sender };
            mailbox.put(one).expect("it runs");
        }
        let of = |who: &str, batch: &[(String, usize)]| -> Vec<usize> {
            batch.iter().filter(|(name, _)| name == who).map(|(_, number)| *number).collect()
        };
        let first = batch(&mailbox);
        let turns: Vec<&str> = first.iter().take(5).map(|(name, _)| name.as_str()).collect();
        assert_eq!(turns, ["many", "few", "large", "", "kafka"]);
        assert_eq!(
            (of("many", &first), of("few", &first), of("large", &first)),
            (vec![100; 2], vec![1; 2], vec![1_000])
        );
        assert_eq!((of("kafka", &first).len(), of("", &first)), (300, vec![100; 3]));
        submit(&few, 1);
        let second = batch(&mailbox);
        assert_eq!(second.first(), Some(&("large".to_owned(), 1_000)), "who stood aside first is first");
        assert_eq!(
            (of("many", &second), of("few", &second), of("large", &second)),
            (vec![100; 2], vec![1], vec![1_000])
        );
        assert!(batch(&mailbox).is_empty());
    }
}
