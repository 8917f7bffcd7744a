//! `GET /v1/status?after=N`: every status with a number above N that the caller may see, in order, as it becomes durable.
//! Server-sent events for `Accept: text/event-stream`, else one CloudEvent a line.
//!
//! Never: a gap in silence. Who asks for older ones than are kept is told where they are.

use super::Api;
use super::auth::Reader;
use super::error::ApiError;
use super::jobs::query;
use super::visible;
use crate::config::tokens::Who;
use crate::driver::{StatusStream, StreamEnd};
use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderName, header};
use axum::response::{IntoResponse, Response};
use forebay_engine::engine::Engine;
use forebay_kernel::effect::Status;
use forebay_wire::status::cloud_event;
use serde::Deserialize;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_stream::wrappers::ReceiverStream;

/// Statuses on their way to one reader that is slower than the driver; as many are looked at together.
pub(super) const ON_THE_WAY: usize = 256;

/// A line of nothing, so that both sides notice a connection that is gone.
const BEAT: Duration = Duration::from_secs(15);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    #[serde(default)]
    after: u64,
    /// Whether to go on when all that there is has been sent. Default: yes.
    follow: Option<bool>,
}

/// The way to a reader.
pub(super) type Sender = mpsc::Sender<Result<Bytes, Infallible>>;

/// What a stream has next.
type Next = Result<Option<Arc<Status>>, StreamEnd>;

/// How statuses are written, and from where on.
#[derive(Clone, Copy)]
pub(super) struct Line {
    events: bool,
    /// Whether to go on when all that there is has been sent.
    pub follow: bool,
    /// The number that the reader had last.
    pub after: u64,
}

impl Line {
    /// As the request asks for it.
    pub fn asked(asked: &Asked, headers: &HeaderMap) -> Line {
        let text = |name| headers.get(name).and_then(|v: &axum::http::HeaderValue| v.to_str().ok());
        let events = text(header::ACCEPT).is_some_and(|a| a.contains("text/event-stream"));
        // A browser that reconnects says what it had last.
        let had = text(HeaderName::from_static("last-event-id")).and_then(|id| id.trim().parse().ok());
        Line { events, follow: asked.follow.unwrap_or(true), after: had.unwrap_or(asked.after) }
    }

    /// A status as a CloudEvent, under the number that a reader comes back with. `kind`: `status.queued` and the like.
    pub fn text(self, number: u64, kind: &str, event: &str) -> Bytes {
        Bytes::from(if self.events {
            format!("id: {number}\nevent: {kind}\ndata: {event}\n\n")
        } else {
            format!("{event}\n")
        })
    }

    /// The answer, and the way to fill it.
    pub fn answer(self) -> (Sender, Response) {
        let (sender, receiver) = mpsc::channel(ON_THE_WAY);
        let kind = if self.events { "text/event-stream" } else { "application/x-ndjson" };
        let headers = [(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-store")];
        (sender, (headers, Body::from_stream(ReceiverStream::new(receiver))).into_response())
    }

    /// Waits for the next status. `None`: the reader or the server has gone.
    pub async fn wait(self, api: &Api, stream: &mut StatusStream, to: &Sender) -> Option<Next> {
        tokio::select! {
            status = stream.next() => Some(status.map(Some)),
            () = super::ended(api.ending.clone()) => None,
            () = tokio::time::sleep(BEAT) => {
                let nothing = if self.events { ": \n\n" } else { "\n" };
                to.send(Ok(Bytes::from_static(nothing.as_bytes()))).await.ok().map(|()| Ok(None))
            }
        }
    }
}

pub(super) async fn stream(
    State(api): State<Api>,
    Reader(who): Reader,
    headers: HeaderMap,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Result<Response, ApiError> {
    let line = Line::asked(&query(asked)?, &headers);
    let mut stream = api.handle.statuses(line.after);
    let first = match stream.try_next() {
        Err(StreamEnd::Missed { before }) => {
            let message = StreamEnd::Missed { before }.to_string();
            let remedy =
                format!("read the folder `status` beside the journal, then ask for after={}", before.saturating_sub(1));
            return Err(ApiError::new(410, "Missed", message, remedy));
        }
        first => first,
    };
    let place = api.room.stream()?;
    let (sender, answer) = line.answer();
    tokio::spawn(send(api, who, (stream, first), line, sender, place));
    Ok(answer)
}

async fn send(
    api: Api,
    who: Arc<Who>,
    (mut stream, first): (StatusStream, Next),
    line: Line,
    to: Sender,
    _place: OwnedSemaphorePermit,
) {
    let journal = api.handle.journal();
    let mut next = first;
    loop {
        let mut batch = Vec::new();
        while let Ok(Some(status)) = next {
            batch.push(status);
            next = if batch.len() < ON_THE_WAY { stream.try_next() } else { Ok(None) };
        }
        let full = batch.len() == ON_THE_WAY;
        let Ok(batch) = seen(&api, &who, batch).await else { return };
        for status in batch {
            let kind = format!("status.{}", status.kind.as_str());
            let text = line.text(status.number, &kind, &cloud_event(&status, journal));
            if to.send(Ok(text)).await.is_err() {
                return;
            }
        }
        next = match next {
            // The reader sees the end of the stream and asks again from where it was.
            Err(_) => return,
            _ if full => stream.try_next(),
            _ if !line.follow => return,
            _ => match line.wait(&api, &mut stream, &to).await {
                Some(next) => next,
                None => return,
            },
        };
    }
}

/// Of these statuses, those that a caller may see. One that never became a job is seen by whoever sees the job of its subject.
async fn seen(api: &Api, who: &Arc<Who>, mut batch: Vec<Arc<Status>>) -> Result<Vec<Arc<Status>>, ApiError> {
    if who.operates() {
        return Ok(batch);
    }
    batch.retain(|status| status.tenant == who.caller.tenant);
    if batch.is_empty() {
        return Ok(batch);
    }
    let who = Arc::clone(who);
    let ask = move |engine: &Engine, _: &_| {
        let state = engine.state();
        let job = |status: &Status| status.job.or_else(|| state.job_of(&status.tenant, &status.subject));
        batch.retain(|status| job(status).is_some_and(|id| visible::sees(state, &who, id)));
        batch
    };
    Ok(api.handle.query_async(ask).await?)
}
