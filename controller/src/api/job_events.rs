//! `GET /v1/jobs/{id}/events`: the statuses of one job from its first on, until it is over.
//!
//! ```text
//! segments of its time up to what is in memory -> memory -> as they become durable -> the terminal one -> end
//! ```
//!
//! Never: a status of another job; the segments where memory has them all; a second time what the reader says it had.

use super::Api;
use super::auth::Reader;
use super::error::ApiError;
use super::find::{Name, Place, find_anywhere};
use super::history::{History, Past};
use super::jobs::query;
use super::status::{Asked, Line, Sender};
use crate::driver::{HeldShare, StatusStream, StreamEnd};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::response::Response;
use forebay_kernel::effect::Status;
use forebay_kernel::ids::JobId;
use forebay_kernel::units::Timestamp;
use forebay_wire::status::cloud_event;
use std::sync::Arc;

/// Statuses of memory that are looked at before others on this thread have their turn.
const A_TURN: u32 = 4_096;

pub(super) async fn stream(
    State(api): State<Api>,
    Reader(who): Reader,
    Name(name): Name,
    headers: HeaderMap,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Result<Response, ApiError> {
    let line = Line::asked(&query(asked)?, &headers);
    let found = find_anywhere(&api, &who, &name).await?;
    let place = api.room.stream(&who.name)?;
    let (job, over, said, accepted) = match found {
        Place::State(job) => {
            let look = move |engine: &forebay_engine::engine::Engine, _: &_| {
                let row = engine.state().job(job).map(|(row, _)| row);
                row.map_or((true, 0, Timestamp(0)), |row| (row.done(), u64::from(row.status_seq), row.arrival))
            };
            let (over, said, accepted) = api.ask(&who, look).await?;
            (job, over, said, accepted)
        }
        Place::Archive(found) => {
            let accepted = found.view.submit_s.map(Timestamp::from).unwrap_or_default();
            (found.id, true, found.statuses, accepted)
        }
    };
    let (to, answer) = line.answer();
    let sending = Sending { api, job, accepted, line, to, over, had: line.after, number: 0, history: None };
    tokio::spawn(sending.run(said, place));
    Ok(answer)
}

/// A stream on its way.
struct Sending {
    api: Api,
    job: JobId,
    accepted: Timestamp,
    line: Line,
    to: Sender,
    /// The job was over when the stream began.
    over: bool,
    /// The last `seq` that the reader has.
    had: u64,
    /// All statuses up to this number have been looked at.
    number: u64,
    history: Option<History>,
}

impl Sending {
    /// `said`: how many statuses the job has so far.
    async fn run(mut self, said: u64, _place: HeldShare) {
        if let Err(StreamEnd::Missed { before }) = self.api.handle.statuses(0).try_next() {
            let all_there = said <= self.had || self.first_in_memory(before).is_some_and(|seq| seq <= self.had + 1);
            self.number = if all_there { before.saturating_sub(1) } else { 0 };
        }
        loop {
            let mut stream = self.api.handle.statuses(self.number);
            let Some(before) = self.send_kept(&mut stream).await else { return };
            let Some(read) = self.send_past(before).await else { return };
            self = read;
        }
    }

    /// The first status of the job that is in memory.
    fn first_in_memory(&self, from: u64) -> Option<u64> {
        let mut stream = self.api.handle.statuses(from.saturating_sub(1));
        while let Ok(Some(status)) = stream.try_next() {
            if status.job == Some(self.job) {
                return Some(u64::from(status.seq));
            }
        }
        None
    }

    /// Sends what is in memory. What follows may not be: then memory begins with the returned number. `None`: nothing is to follow.
    async fn send_kept(&mut self, stream: &mut StatusStream) -> Option<u64> {
        let (mut next, mut turn) = (stream.try_next(), 0);
        loop {
            match next {
                Ok(Some(status)) => {
                    self.number = status.number;
                    self.send(&status).await?;
                    turn += 1;
                    if turn % A_TURN == 0 {
                        tokio::task::yield_now().await;
                    }
                    next = stream.try_next();
                }
                Ok(None) if self.over || !self.line.follow => return None,
                Ok(None) => next = self.line.wait(&self.api, stream, &self.to).await?,
                Err(StreamEnd::Missed { before }) => return Some(before),
                Err(StreamEnd::Stopped) => return None,
            }
        }
    }

    /// Sends a status, if it is one of this job that the reader has not had. `None`: nothing is to follow.
    async fn send(&mut self, status: &Arc<Status>) -> Option<()> {
        let seq = u64::from(status.seq);
        if status.job != Some(self.job) || seq <= self.had {
            return Some(());
        }
        self.had = seq;
        let kind = format!("status.{}", status.kind.as_str());
        let event = cloud_event(status, self.api.handle.journal());
        self.to.send(Ok(self.line.text(seq, &kind, &event))).await.ok()?;
        (!status.kind.terminal()).then_some(())
    }

    /// Sends what the segments have of the job up to what is in memory. `None`: nothing is to follow.
    async fn send_past(mut self, before: u64) -> Option<Sending> {
        let read = tokio::task::spawn_blocking(move || {
            let mut over = false;
            let mut take = |had: &mut u64, past: &Past<'_>| {
                if past.seq <= *had {
                    return true;
                }
                *had = past.seq;
                let sent = self.to.blocking_send(Ok(self.line.text(past.seq, &past.kind, past.event)));
                over = past.terminal || sent.is_err();
                !over
            };
            let history = match self.history.take() {
                Some(history) => Ok(history),
                None => History::of_job(self.api.handle.folder(), self.job, self.accepted),
            };
            let had = &mut self.had;
            let read = history.and_then(|mut history| {
                history.read(before, |past| take(had, &past))?;
                self.history = Some(history);
                Ok(())
            });
            if let Err(e) = read {
                tracing::warn!("a stream of {} ends: {e}", self.job);
                return None;
            }
            self.number = before.saturating_sub(1);
            (!over).then_some(self)
        });
        read.await.ok().flatten()
    }
}
