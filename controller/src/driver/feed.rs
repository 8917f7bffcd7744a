//! What a replay feeds in: the events of a file in order of time, each with its position, so that a resumed replay knows where it was.
//!
//! ```text
//! file -> items (time, position) -> intake -> Event, or a line in rejected.jsonl      position -> journaled with the batch
//! ```
//!
//! Never: skips an item, or lets a bad one stop the stream.

use super::post::Original;
use crate::intake::{Caller, Intake, Rejection, Router};
use forebay_engine::event::Event;
use forebay_engine::job::JobSpec;
use forebay_engine::policy::{Policy, Undeclared};
use forebay_engine::units::{Millis, Span};
use forebay_sim::market::Market;
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::Arc;

/// The name under which the position of a replayed file is journaled.
pub const SOURCE: &str = "replay";

/// One thing to feed.
#[derive(Clone, Debug)]
pub struct Item {
    /// When, by the engine's time.
    pub at: Millis,
    /// What.
    pub what: What,
}

/// What is fed.
#[derive(Clone, Debug)]
pub enum What {
    /// An event as written.
    Event(Value),
    /// A job of a trace.
    Job(Box<JobSpec>),
}

/// A file to replay, in memory.
#[derive(Debug)]
pub struct Feed {
    name: String,
    /// Items that are still to come, and how many have been taken.
    items: VecDeque<Item>,
    taken: u64,
    jobs: u64,
    start: Millis,
    /// When no spot is to be had, in ms after the start.
    droughts: Vec<(u64, u64)>,
}

impl Feed {
    /// A feed of items in order of time.
    #[must_use]
    pub fn new(name: &str, start: Millis, items: Vec<Item>, droughts: Vec<(u64, u64)>) -> Feed {
        let is_job = |i: &&Item| match &i.what {
            What::Job(_) => true,
            What::Event(event) => event.get("type").and_then(Value::as_str) == Some("job.submitted"),
        };
        let jobs = items.iter().filter(is_job).count() as u64;
        Feed { name: name.to_owned(), items: items.into(), taken: 0, jobs, start, droughts }
    }

    /// Leaves out what an earlier run consumed.
    pub(super) fn skip_to(&mut self, position: u64) {
        let skipped = usize::try_from(position).unwrap_or(usize::MAX).min(self.items.len());
        self.items.drain(..skipped);
        self.taken = position;
    }

    /// The time of the first item of all.
    #[must_use]
    pub fn start(&self) -> Millis {
        self.start
    }

    /// When no spot is to be had, by the engine's time. The driver tells its market by itself.
    #[must_use]
    pub fn droughts(&self) -> Vec<(Millis, Millis)> {
        self.droughts.iter().map(|(from, to)| (after(self.start, *from), after(self.start, *to))).collect()
    }

    /// A market with the droughts that the file speaks of. Its time 0 is the feed's start.
    pub(super) fn dry(&self, market: Market) -> Market {
        self.droughts.iter().fold(market, |market, (from, to)| market.with_drought(*from, *to))
    }

    /// Submissions in the file.
    #[must_use]
    pub fn jobs(&self) -> u64 {
        self.jobs
    }

    /// Items consumed so far: its position.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.taken
    }

    /// When the next item is due.
    #[must_use]
    pub fn next(&self) -> Option<Millis> {
        self.items.front().map(|i| i.at)
    }

    /// The next item, if it is due.
    pub(super) fn pop(&mut self, now: Millis) -> Option<Item> {
        let due = self.items.front().is_some_and(|i| i.at <= now);
        self.taken += u64::from(due);
        if due { self.items.pop_front() } else { None }
    }

    /// Items in all, those taken included.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.taken + self.items.len() as u64
    }

    /// Whether there never was an item.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The file's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// The intake of a replay: whoever wrote the file may submit to every queue.
pub(super) struct FeedIntake {
    pub caller: Caller,
    pub routes: Arc<dyn Router>,
}

impl FeedIntake {
    /// The event of an item. `None`: it means nothing to the engine.
    pub fn event(
        &self,
        item: Item,
        (name, position): (&str, u64),
        policy: Option<&Policy>,
    ) -> Result<Option<Event>, Box<Rejection>> {
        let value = match item.what {
            What::Job(spec) => return Ok(Some(Event::JobSubmitted(spec))),
            What::Event(value) => value,
        };
        // What a file says of the market has been told to the world already.
        if value.get("type").and_then(Value::as_str) == Some("simulation.market") {
            return Ok(None);
        }
        let intake = Intake { caller: &self.caller, routes: self.routes.as_ref(), key: None };
        match intake.decode_value(&value) {
            Ok(decoded) => {
                for warning in decoded.warnings {
                    tracing::debug!(line = position, "{warning}");
                }
                Ok(Some(as_submitter(decoded.event, policy)))
            }
            Err(why) => {
                tracing::warn!(position, code = why.code.as_str(), "rejected: {why}");
                let bytes = value.to_string().into_bytes();
                let original = Original { source: name.into(), position, bytes, ..Original::default() };
                Err(Box::new(Rejection::unreadable(original, why)))
            }
        }
    }
}

/// In a replay a job enters as its queue's first submitter: the file's owner could have been any of them.
fn as_submitter(event: Event, policy: Option<&Policy>) -> Event {
    let (Event::JobSubmitted(mut spec), Some(policy)) = (event.clone(), policy) else { return event };
    let shared = match &policy.undeclared {
        Undeclared::Under { rule, .. } => Some(rule),
        Undeclared::Reject => None,
    };
    let rule = policy.queues.get(&spec.queue).or(shared);
    if let Some(first) = rule.and_then(|rule| rule.submitters.first()) {
        spec.principal.clone_from(first);
    }
    Event::JobSubmitted(spec)
}

/// Times of a file as the engine's.
pub(super) fn after(start: Millis, ms: u64) -> Millis {
    start + Span(ms)
}
