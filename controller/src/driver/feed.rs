//! What a replay feeds in: the events of a file in order of time, each with its position, so that a resumed replay knows where it was.
//!
//! ```text
//! file -> items (time, position) -> intake -> Event, or a rejected event            position -> journaled with the batch
//! ```
//!
//! Never: skips an item, or lets a bad one stop the stream.

use super::Original;
use forebay_driver::live::{EventFeed, FedItem, Rejection};
use forebay_kernel::event::Event;
use forebay_kernel::job::JobSpec;
use forebay_kernel::policy::Policy;
use forebay_kernel::units::{Span, Timestamp};
use forebay_wire::intake::{Caller, Intake, NoRoutes, Router};
use serde_json::Value;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// How many different warnings a replay says; what is beyond is in the log of level debug.
const MOST_WARNED: usize = 20;

/// One record of a feed.
#[derive(Clone, Debug)]
pub struct FeedItem {
    /// When, by the engine's time.
    pub at: Timestamp,
    /// What.
    pub content: FeedContent,
}

/// What is fed.
#[derive(Clone, Debug)]
pub enum FeedContent {
    /// An event.
    Event {
        /// The line of the file that it begins on.
        line: u64,
        /// As written.
        event: Value,
    },
    /// A job of a trace.
    Job(Box<JobSpec>),
}

/// A file to replay, in memory.
pub struct Feed {
    name: String,
    /// Items that are still to come, and how many have been taken.
    items: VecDeque<FeedItem>,
    taken: u64,
    jobs: u64,
    start: Timestamp,
    /// When no spot is to be had, in ms after the start.
    droughts: Vec<(u64, u64)>,
    /// Whoever wrote the file may submit to every queue.
    caller: Caller,
    routes: Arc<dyn Router>,
    /// What was warned of.
    warned: BTreeSet<String>,
}

impl std::fmt::Debug for Feed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Feed");
        shown.field("name", &self.name).field("taken", &self.taken).finish_non_exhaustive()
    }
}

impl Feed {
    /// A feed of records in order of time.
    #[must_use]
    pub fn new(name: &str, start: Timestamp, items: Vec<FeedItem>, droughts: Vec<(u64, u64)>) -> Feed {
        let is_job = |i: &&FeedItem| match &i.content {
            FeedContent::Job(_) => true,
            FeedContent::Event { event, .. } => event.get("type").and_then(Value::as_str) == Some("job.submitted"),
        };
        let jobs = items.iter().filter(is_job).count() as u64;
        let (caller, routes) = (Caller::local(), Arc::new(NoRoutes));
        let (name, items, warned) = (name.to_owned(), items.into(), BTreeSet::new());
        Feed { name, items, taken: 0, jobs, start, droughts, caller, routes, warned }
    }

    /// The same, with the policy's routes.
    #[must_use]
    pub(super) fn routed_by(self, routes: Arc<dyn Router>) -> Feed {
        Feed { routes, ..self }
    }

    /// The time of the first item of all.
    #[must_use]
    pub fn start(&self) -> Timestamp {
        self.start
    }

    /// When no spot is to be had, by the market's time, whose 0 is the feed's start: intervals in ms.
    pub(super) fn market_droughts(&self) -> Vec<(u64, u64)> {
        self.droughts.clone()
    }

    fn decode(&mut self, item: FeedItem, policy: Option<&Policy>) -> FedItem {
        let (line, value) = match item.content {
            FeedContent::Job(spec) => return FedItem::Event(Event::JobSubmitted(spec)),
            FeedContent::Event { line, event } => (line, event),
        };
        // What a file has on the market is known to the world already.
        if value.get("type").and_then(Value::as_str) == Some("simulation.market") {
            return FedItem::Nothing;
        }
        let position = self.taken;
        let intake = Intake { caller: &self.caller, routes: self.routes.as_ref(), key: None };
        match intake.decode_value(&value) {
            Ok(decoded) => {
                decoded.warnings.into_iter().for_each(|warning| self.warn(line, warning, value.get("subject")));
                FedItem::Event(as_submitter(decoded.event, policy))
            }
            Err(why) => {
                tracing::warn!(code = why.code.as_str(), "{}, line {line}: rejected: {why}", self.name);
                let bytes = value.to_string().into_bytes();
                let original = Original { source: self.name.as_str().into(), position, bytes, ..Original::default() };
                FedItem::Rejected(Box::new(Rejection::unreadable(original, why)))
            }
        }
    }

    /// Says what is carried along and has no effect: each different thing once, with the line and the first job of which it is so.
    fn warn(&mut self, line: u64, warning: String, subject: Option<&Value>) {
        let subject = subject.and_then(Value::as_str).unwrap_or_default();
        if self.warned.len() >= MOST_WARNED || self.warned.contains(&warning) {
            tracing::debug!(subject, "{}, line {line}: {warning}", self.name);
        } else {
            tracing::warn!(subject, "{}, line {line}: {warning}", self.name);
            self.warned.insert(warning);
        }
    }
}

impl EventFeed for Feed {
    fn name(&self) -> &str {
        &self.name
    }

    fn records(&self) -> u64 {
        self.taken + self.items.len() as u64
    }

    fn jobs(&self) -> u64 {
        self.jobs
    }

    fn position(&self) -> u64 {
        self.taken
    }

    fn skip_to(&mut self, position: u64) {
        let skipped = usize::try_from(position).unwrap_or(usize::MAX).min(self.items.len());
        self.items.drain(..skipped);
        self.taken = position;
    }

    fn next(&self) -> Option<Timestamp> {
        self.items.front().map(|i| i.at)
    }

    fn take(&mut self, now: Timestamp, policy: Option<&Policy>) -> Option<FedItem> {
        let item = self.items.pop_front_if(|item| item.at <= now)?;
        self.taken += 1;
        Some(self.decode(item, policy))
    }
}

/// In a replay a job enters as its queue's first submitter: the file's owner could have been any of them.
fn as_submitter(event: Event, policy: Option<&Policy>) -> Event {
    let (Event::JobSubmitted(mut spec), Some(policy)) = (event.clone(), policy) else { return event };
    let rule = crate::document::write::rule_of(policy, &spec.queue);
    if let Some(first) = rule.and_then(|rule| rule.submitters.first()) {
        spec.principal.clone_from(first);
    }
    Event::JobSubmitted(spec)
}

/// Times of a file as the engine's.
pub(super) fn after(start: Timestamp, ms: u64) -> Timestamp {
    start + Span(ms)
}
