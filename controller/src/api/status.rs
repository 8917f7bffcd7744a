//! `GET /v1/status?after=N`: every status with a number above N, in order and without a gap, as it becomes durable.
//! Server-sent events for `Accept: text/event-stream`, else one CloudEvent a line.
//!
//! Never: a gap in silence. Who asks for older ones than are kept is told where they are.

use super::Api;
use super::error::ApiError;
use crate::driver::{StatusStream, StreamEnd};
use crate::status::cloud_event;
use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use forebay_engine::effect::Status;
use serde::Deserialize;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

/// Statuses on their way to one reader that is slower than the driver.
const ON_THE_WAY: usize = 256;

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

pub(super) async fn stream(
    State(api): State<Api>,
    headers: HeaderMap,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Result<Response, ApiError> {
    let Query(asked) = asked
        .map_err(|e| ApiError::bad("BadQuery", e.body_text(), "write after=N, and follow=false to stop at the end"))?;
    let text = |name| headers.get(name).and_then(|v: &axum::http::HeaderValue| v.to_str().ok());
    let events = text(header::ACCEPT).is_some_and(|a| a.contains("text/event-stream"));
    // A browser that reconnects says what it had last.
    let after =
        text(header::HeaderName::from_static("last-event-id")).and_then(|id| id.parse().ok()).unwrap_or(asked.after);
    let mut stream = api.handle.statuses(after);
    let first = match stream.try_next() {
        Err(StreamEnd::Missed { before }) => {
            let message = StreamEnd::Missed { before }.to_string();
            return Err(ApiError::new(
                410,
                "Missed",
                message,
                format!("read status.jsonl, then ask for after={}", before.saturating_sub(1)),
            ));
        }
        first => first,
    };
    let (sender, receiver) = mpsc::channel::<Result<Bytes, Infallible>>(ON_THE_WAY);
    let follow = asked.follow.unwrap_or(true);
    tokio::spawn(send(api, stream, first, Line { events, follow }, sender));
    let kind = if events { "text/event-stream" } else { "application/x-ndjson" };
    let headers = [(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, Body::from_stream(ReceiverStream::new(receiver))).into_response())
}

/// How statuses are written.
#[derive(Clone, Copy)]
struct Line {
    events: bool,
    follow: bool,
}

type Sender = mpsc::Sender<Result<Bytes, Infallible>>;

async fn send(
    api: Api,
    mut stream: StatusStream,
    first: Result<Option<Arc<Status>>, StreamEnd>,
    line: Line,
    to: Sender,
) {
    let journal = api.handle.journal();
    let mut next = first;
    loop {
        match next {
            Ok(Some(status)) => {
                let event = cloud_event(&status, journal);
                let text = if line.events {
                    format!("id: {}\nevent: status.{}\ndata: {event}\n\n", status.number, status.kind.as_str())
                } else {
                    format!("{event}\n")
                };
                if to.send(Ok(Bytes::from(text))).await.is_err() {
                    return;
                }
            }
            Ok(None) if !line.follow => return,
            Ok(None) => {}
            // The reader sees the end of the stream and asks again from where it was.
            Err(_) => return,
        }
        next = stream.try_next();
        if line.follow && matches!(next, Ok(None)) {
            next = tokio::select! {
                status = stream.next() => status.map(Some),
                () = super::ended(api.ending.clone()) => return,
                () = tokio::time::sleep(BEAT) => {
                    let nothing = if line.events { ": \n\n" } else { "\n" };
                    if to.send(Ok(Bytes::from_static(nothing.as_bytes()))).await.is_err() {
                        return;
                    }
                    Ok(None)
                }
            };
        }
    }
}
