//! Responds to whole HTTP requests without a socket: EC2's Query calls, instance metadata, the message queue, and control requests.
//!
//! ```text
//! POST / with a form -> Region::call          POST with X-Amz-Target: AmazonSQS.* -> sqs
//! /i-ID/latest/...   -> metadata              /control/...                        -> control
//! ```
//!
//! It has no clock. A test may call it in its own process, and gets the same bytes as over HTTP.

mod control;
mod metadata;
mod queue;
mod sqs;

use forebay_kernel::units::{Span, Timestamp};

use crate::params::Params;
use crate::region::{ApiReply, EventMessage, Region};
use queue::MessageQueue;

/// An HTTP request.
#[derive(Clone, Copy, Debug)]
pub struct HttpRequest<'a> {
    /// The method, such as `POST`.
    pub method: &'a str,
    /// The path with the query, if there is one.
    pub target: &'a str,
    /// The headers, with names in lower case.
    pub headers: &'a [(String, String)],
    /// The complete body.
    pub body: &'a [u8],
}

/// An HTTP response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpResponse {
    /// The HTTP status.
    pub status: u16,
    /// The type of the body.
    pub content_type: &'static str,
    /// Other headers.
    pub headers: Vec<(&'static str, String)>,
    /// The complete body.
    pub body: String,
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HttpOutcome {
    /// The response.
    Response(HttpResponse),
    /// The connection is closed without a response.
    Dropped,
    /// There is no message yet. The request is repeated when there is one, and after this time with [`EmptyReceive::Respond`].
    Wait(Span),
}

/// What a receive request without a message does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmptyReceive {
    /// It waits if the request says so, with [`HttpOutcome::Wait`].
    Wait,
    /// It responds without messages.
    Respond,
}

/// A region with the queue of its messages.
#[derive(Debug)]
pub struct HttpFrontend {
    region: Region,
    queue: MessageQueue,
}

impl HttpFrontend {
    /// A frontend with an empty queue.
    #[must_use]
    pub fn new(region: Region) -> HttpFrontend {
        HttpFrontend { region, queue: MessageQueue::default() }
    }

    /// The region.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// The region, for changes by a test. Its messages enter the queue with the next [`HttpFrontend::advance`] or request.
    pub fn region_mut(&mut self) -> &mut Region {
        &mut self.region
    }

    /// Advances the region and puts its messages into the queue. Returns their number.
    pub fn advance(&mut self, now: Timestamp) -> usize {
        let messages = self.region.advance(now);
        let count = messages.len();
        for EventMessage { at, id, body } in messages {
            self.queue.push(at, id, body);
        }
        count
    }

    /// Puts a text into the queue, as EventBridge does.
    pub fn send(&mut self, now: Timestamp, body: &str) {
        self.advance(now);
        self.queue.push_text(now, body);
    }

    /// Handles a request.
    pub fn respond(&mut self, now: Timestamp, request: &HttpRequest<'_>, empty: EmptyReceive) -> HttpOutcome {
        self.advance(now);
        let (path, query) = request.target.split_once('?').unwrap_or((request.target, ""));
        let outcome = if let Some(action) = request.header("x-amz-target") {
            sqs::respond(&mut self.queue, now, request, action, empty)
        } else if let Some(rest) = path.strip_prefix("/control/") {
            HttpOutcome::Response(control::respond(&mut self.region, now, request.method, rest, &Params::parse(query)))
        } else if path.starts_with("/i-") {
            HttpOutcome::Response(metadata::respond(&mut self.region, now, request, path))
        } else {
            self.call(now, request, query)
        };
        // The messages of the call itself are there for the next receive.
        self.advance(now);
        outcome
    }

    fn call(&mut self, now: Timestamp, request: &HttpRequest<'_>, query: &str) -> HttpOutcome {
        let Ok(form) = std::str::from_utf8(if request.body.is_empty() { query.as_bytes() } else { request.body })
        else {
            return HttpOutcome::Response(HttpResponse::text(400, "the body is not UTF-8"));
        };
        match self.region.call(now, &Params::parse(form)) {
            ApiReply::Response { status, body } => HttpOutcome::Response(HttpResponse {
                status,
                content_type: "text/xml;charset=UTF-8",
                headers: Vec::new(),
                body,
            }),
            ApiReply::Dropped => HttpOutcome::Dropped,
        }
    }
}

impl HttpRequest<'_> {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }
}

impl HttpResponse {
    pub(crate) fn text(status: u16, body: impl Into<String>) -> HttpResponse {
        HttpResponse { status, content_type: "text/plain", headers: Vec::new(), body: body.into() }
    }
}
