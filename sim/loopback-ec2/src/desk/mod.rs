//! Requests as HTTP has them, answered without a socket: EC2's Query calls, the metadata, the queue of messages, what people do by hand.
//!
//! ```text
//! POST / with a form -> Region::call          POST with X-Amz-Target: AmazonSQS.* -> queue
//! /i-ID/latest/...   -> metadata              /control/...                        -> by hand
//! ```
//!
//! Never: a clock, a socket. A test may ask it in its own process, and gets the same bytes.

mod by_hand;
mod metadata;
mod queue;
mod sqs;

use forebay_engine::units::{Millis, Span};

use crate::params::Params;
use crate::region::{Message, Region, Reply};
use queue::Queue;

/// A request, borrowed from whoever has it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Such as `POST`.
    pub method: &'a str,
    /// The path, with the query where there is one.
    pub target: &'a str,
    /// Names in lower case, with their values.
    pub headers: &'a [(String, String)],
    /// The whole body.
    pub body: &'a [u8],
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// What the body is.
    pub content_type: &'static str,
    /// Other headers.
    pub headers: Vec<(&'static str, String)>,
    /// The whole body.
    pub body: String,
}

/// What comes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// This is the answer.
    Answer(Response),
    /// The connection closes without an answer.
    Dropped,
    /// Nothing to receive yet: ask again when something has come, or, after so long, for an answer without waiting.
    Wait(Span),
}

/// A region with the queue that its messages go to.
#[derive(Debug)]
pub struct Desk {
    region: Region,
    queue: Queue,
}

impl Desk {
    /// A desk before a region.
    #[must_use]
    pub fn new(region: Region) -> Desk {
        Desk { region, queue: Queue::default() }
    }

    /// The region.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// The region, for a test's hands. What it says goes to the queue with the next [`Desk::advance`] or request.
    pub fn region_mut(&mut self) -> &mut Region {
        &mut self.region
    }

    /// Lets everything happen that is due, and puts what the region says into the queue. How many messages came.
    pub fn advance(&mut self, now: Millis) -> usize {
        let messages = self.region.advance(now);
        let came = messages.len();
        for Message { at, id, body } in messages {
            self.queue.push(at, id, body);
        }
        came
    }

    /// Puts any text into the queue, as if EventBridge had.
    pub fn send(&mut self, now: Millis, body: &str) {
        self.advance(now);
        self.queue.push_text(now, body);
    }

    /// Messages that are in the queue, taken or not.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Answers a request. Where `may_wait` is not set, a receive that finds nothing answers so at once.
    pub fn answer(&mut self, now: Millis, request: &Request<'_>, may_wait: bool) -> Outcome {
        self.advance(now);
        let (path, query) = request.target.split_once('?').unwrap_or((request.target, ""));
        let outcome = if let Some(action) = request.header("x-amz-target") {
            sqs::answer(&mut self.queue, now, request, action, may_wait)
        } else if let Some(rest) = path.strip_prefix("/control/") {
            Outcome::Answer(by_hand::answer(&mut self.region, now, request.method, rest, &Params::parse(query)))
        } else if path.starts_with("/i-") {
            Outcome::Answer(metadata::answer(&mut self.region, now, request, path))
        } else {
            self.call(now, request, query)
        };
        // What the call itself made known is there for the next receive.
        self.advance(now);
        outcome
    }

    fn call(&mut self, now: Millis, request: &Request<'_>, query: &str) -> Outcome {
        let Ok(form) = std::str::from_utf8(if request.body.is_empty() { query.as_bytes() } else { request.body })
        else {
            return Outcome::Answer(Response::text(400, "the body is not UTF-8"));
        };
        match self.region.call(now, &Params::parse(form)) {
            Reply::Answer { status, body } => {
                Outcome::Answer(Response { status, content_type: "text/xml;charset=UTF-8", headers: Vec::new(), body })
            }
            Reply::Dropped => Outcome::Dropped,
        }
    }
}

impl Request<'_> {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(has, _)| has == name).map(|(_, value)| value.as_str())
    }
}

impl Response {
    pub(crate) fn text(status: u16, body: impl Into<String>) -> Response {
        Response { status, content_type: "text/plain", headers: Vec::new(), body: body.into() }
    }
}
