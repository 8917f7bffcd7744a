//! `GET /v1/status?after=N`: every status with a number above N that the caller may see, in order, as it becomes durable.
//! Server-sent events for `Accept: text/event-stream`, else one CloudEvent a line.
//!
//! ```text
//! segments up to what is in memory -> memory -> as they become durable
//! ```
//!
//! Never: a gap in silence. Who asks for older ones than are kept is told from where on they are.

use super::auth::Reader;
use super::error::ApiError;
use super::jobs::query;
use super::{Api, archive, visible};
use crate::config::tokens::Who;
use crate::document::write;
use crate::driver::{HeldShare, StatusStream, StreamEnd};
use crate::journal::{ArchiveReader, JournalId};
use crate::segments::{SegmentError, SegmentLine, SegmentReader};
use crate::status::FOLDER;
use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderName, header};
use axum::response::{IntoResponse, Response};
use forebay_engine::engine::Engine;
use forebay_kernel::effect::Status;
use forebay_kernel::ids::JobId;
use forebay_wire::status::cloud_event;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

/// Statuses on their way to one reader that is slower than the driver; as many are looked at together.
pub(super) const ON_THE_WAY: usize = 256;

/// A line of nothing, so that both sides notice a connection that is gone.
const BEAT: Duration = Duration::from_secs(15);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    /// Default: from the oldest on that is kept.
    after: Option<u64>,
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
    /// Whether the reader has had none, and takes what is kept.
    all_kept: bool,
}

impl Line {
    /// As the request asks for it.
    pub fn asked(asked: &Asked, headers: &HeaderMap) -> Line {
        let text = |name| headers.get(name).and_then(|v: &axum::http::HeaderValue| v.to_str().ok());
        let events = text(header::ACCEPT).is_some_and(|a| a.contains("text/event-stream"));
        // A browser that reconnects says what it had last.
        let had = text(HeaderName::from_static("last-event-id")).and_then(|id| id.trim().parse().ok());
        let after = had.or(asked.after);
        Line { events, follow: asked.follow.unwrap_or(true), after: after.unwrap_or(0), all_kept: after.is_none() }
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
    let mut line = Line::asked(&query(asked)?, &headers);
    let place = api.room.stream(&who.name)?;
    if let Err(StreamEnd::Missed { before }) = api.handle.statuses(line.after).try_next() {
        line.after = kept_from(&api, line, before).await?;
    }
    let (sender, answer) = line.answer();
    tokio::spawn(Following { api, who, line, to: sender, number: line.after, _place: place }.run());
    Ok(answer)
}

/// The number after which the segments have every one that is not in memory any more: the reader's, or that before the oldest.
async fn kept_from(api: &Api, line: Line, before: u64) -> Result<u64, ApiError> {
    let after = line.after;
    let folder = api.handle.folder().join(FOLDER);
    let first = tokio::task::spawn_blocking(move || SegmentReader::new(&folder, after).next_up_to(before - 1));
    let failed = |why: String| {
        ApiError::new(500, "Statuses", why, "see the controller's log, then the folder `status` beside the journal")
    };
    let first = match first.await.map_err(|e| failed(e.to_string()))? {
        Ok(first) => first.map_or(before, |line| line.number),
        Err(SegmentError::Forgotten { first, .. }) => first,
        Err(error) => return Err(failed(error.to_string())),
    };
    if line.all_kept || first == after + 1 {
        return Ok(first.saturating_sub(1));
    }
    let message = format!("statuses up to {} are not kept any more", first.saturating_sub(1));
    let remedy =
        format!("ask for after={}; `statuses` in forebay.yaml says how long they are kept", first.saturating_sub(1));
    Err(ApiError::new(410, "Missed", message, remedy))
}

/// A stream on its way.
struct Following {
    api: Api,
    who: Arc<Who>,
    line: Line,
    to: Sender,
    /// Every status up to this number has been looked at.
    number: u64,
    _place: HeldShare,
}

/// A status, from memory or from its segment.
struct Known {
    number: u64,
    kind: String,
    event: String,
    tenant: String,
    subject: String,
    job: Option<JobId>,
}

#[derive(Deserialize)]
struct Written {
    #[serde(rename = "type")]
    kind: String,
    subject: String,
    data: WrittenData,
}

#[derive(Deserialize)]
struct WrittenData {
    tenant: String,
    job: Option<String>,
}

impl Known {
    fn of(status: &Status, journal: JournalId) -> Known {
        Known {
            number: status.number,
            kind: format!("status.{}", status.kind.as_str()),
            event: cloud_event(status, journal),
            tenant: status.tenant.clone(),
            subject: status.subject.clone(),
            job: status.job,
        }
    }

    fn read(line: SegmentLine) -> Option<Known> {
        let event = String::from_utf8(line.bytes).ok()?;
        let Written { kind, subject, data } = serde_json::from_str(&event).ok()?;
        let job = data.job.as_deref().and_then(write::job_number);
        Some(Known { number: line.number, kind, event, tenant: data.tenant, subject, job })
    }
}

impl Following {
    async fn run(mut self) {
        loop {
            let mut stream = self.api.handle.statuses(self.number);
            let Some(before) = self.send_kept(&mut stream).await else { return };
            if self.send_past(before).await.is_none() {
                return;
            }
        }
    }

    /// Sends what is in memory, and what comes. What follows may not be there: then memory begins with the returned number. `None`:
    /// nothing is to follow.
    async fn send_kept(&mut self, stream: &mut StatusStream) -> Option<u64> {
        let journal = self.api.handle.journal();
        let mut next = stream.try_next();
        loop {
            let mut batch = Vec::new();
            while let Ok(Some(status)) = &next {
                batch.push(Known::of(status, journal));
                next = if batch.len() < ON_THE_WAY { stream.try_next() } else { Ok(None) };
            }
            let full = batch.len() == ON_THE_WAY;
            self.send(batch).await?;
            next = match next {
                Err(StreamEnd::Missed { before }) => return Some(before),
                // The reader sees the end of the stream and asks again from where it was.
                Err(StreamEnd::Stopped) => return None,
                _ if full => stream.try_next(),
                _ if !self.line.follow => return None,
                _ => self.line.wait(&self.api, stream, &self.to).await?,
            };
        }
    }

    /// Sends what the segments have up to what is in memory. `None`: nothing is to follow.
    async fn send_past(&mut self, before: u64) -> Option<()> {
        let mut reader = SegmentReader::new(&self.api.handle.folder().join(FOLDER), self.number);
        loop {
            let read = tokio::task::spawn_blocking(move || {
                let lines = std::iter::from_fn(|| reader.next_up_to(before - 1).transpose()).take(ON_THE_WAY);
                let lines = lines.collect::<Result<Vec<_>, _>>();
                (reader, lines)
            });
            let (then, lines) = read.await.ok()?;
            reader = then;
            let lines = lines.inspect_err(|e| tracing::warn!("a stream of statuses ends: {e}")).ok()?;
            let follows = lines.first().is_some_and(|line| line.number == self.number + 1);
            if !follows {
                // All there is has been sent, or what follows is not in its log: the reader asks again, and is told.
                return (self.number + 1 >= before).then_some(());
            }
            self.send(lines.into_iter().filter_map(Known::read).collect()).await?;
        }
    }

    /// Sends those of these statuses that the caller may see. `None`: the reader or the driver has gone.
    async fn send(&mut self, batch: Vec<Known>) -> Option<()> {
        let Some(last) = batch.last().map(|status| status.number) else { return Some(()) };
        for status in seen(&self.api, &self.who, batch).await.ok()? {
            let text = self.line.text(status.number, &status.kind, &status.event);
            self.to.send(Ok(text)).await.ok()?;
        }
        self.number = last;
        Some(())
    }
}

/// The last statuses in memory that a caller may see, newest first, so many at most, of the last [`ON_THE_WAY`].
pub(super) async fn recent(api: &Api, who: &Arc<Who>, most: usize) -> Result<Vec<Arc<Status>>, ApiError> {
    let last = api.ask(who, |engine, _| engine.state().counters().statuses).await?;
    let mut stream = api.handle.statuses(last.saturating_sub(ON_THE_WAY as u64));
    let mut next = stream.try_next();
    if let Err(StreamEnd::Missed { before }) = next {
        // Memory begins later, as after a start.
        stream = api.handle.statuses(before.saturating_sub(1));
        next = stream.try_next();
    }
    let mut found = Vec::new();
    while let Ok(Some(status)) = next {
        found.push(status);
        next = if found.len() < 2 * ON_THE_WAY { stream.try_next() } else { Ok(None) };
    }
    let journal = api.handle.journal();
    let known = found.iter().map(|status| Known::of(status, journal)).collect();
    let may: BTreeSet<u64> = seen(api, who, known).await?.iter().map(|status| status.number).collect();
    Ok(found.into_iter().rev().filter(|status| may.contains(&status.number)).take(most).collect())
}

/// Of these statuses, those that a caller may see. One that never became a job is seen by whoever sees the job of its subject.
async fn seen(api: &Api, who: &Arc<Who>, mut batch: Vec<Known>) -> Result<Vec<Known>, ApiError> {
    if who.operates() {
        return Ok(batch);
    }
    batch.retain(|status| status.tenant == who.caller.tenant);
    if batch.is_empty() {
        return Ok(batch);
    }
    let judge = Arc::clone(who);
    let ask = move |engine: &Engine, _: &_| {
        let state = engine.state();
        let mut gone = BTreeSet::new();
        batch.retain(|status| {
            let job = status.job.or_else(|| state.job_of(&status.tenant, &status.subject));
            job.is_some_and(|id| {
                let here = state.job(id).is_some();
                gone.extend((!here).then_some(id));
                !here || visible::sees(state, &judge, id)
            })
        });
        (batch, gone)
    };
    let (mut batch, gone) = api.ask(who, ask).await?;
    let may = seen_of_archive(api, who, gone.clone()).await?;
    batch.retain(|status| status.job.is_none_or(|id| !gone.contains(&id) || may.contains(&id)));
    Ok(batch)
}

/// Of jobs that have left the state, those that a caller may see.
async fn seen_of_archive(api: &Api, who: &Arc<Who>, gone: BTreeSet<JobId>) -> Result<BTreeSet<JobId>, ApiError> {
    if gone.is_empty() {
        return Ok(gone);
    }
    let read =
        move |archive: &ArchiveReader| gone.iter().map(|id| archive.finished(*id)).collect::<Result<Vec<_>, _>>();
    let found = archive::read(api, who, read).await?;
    let judge = Arc::clone(who);
    let ask = move |engine: &Engine, _: &_| {
        let jobs = found.into_iter().flatten().map(|job| job.finished);
        let sees = jobs.filter(|job| visible::sees_finished(engine.state(), &judge, &job.spec));
        sees.map(|job| job.job.id).collect()
    };
    api.ask(who, ask).await
}
