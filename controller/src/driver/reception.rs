//! What a driver does with what comes in: drops what it has seen, refuses what the sender may not ask, counts how far sources and
//! sinks have come, and keeps what it could not take.
//!
//! ```text
//! item -> below its stream's position? -> id known? -> allowed? -> engine -> outcome
//!                                                                               | refused, unreadable: with its bytes into rejected.jsonl
//! ```
//!
//! Never: lets a position move without the batch that holds what was read.

use super::cycle::Cycle;
use super::error::DriverError;
use super::handle::{Accepted, Outcome};
use super::post::{Answer, Content, Item, Original, Post};
use super::seen::Seen;
use crate::intake::{RejectedFile, Rejection};
use crate::journal::Positions;
use forebay_engine::decision::Outcome as Ended;
use forebay_engine::event::Event;
use forebay_engine::ids::{JobId, Seq};
use forebay_engine::reason::Reason;
use forebay_engine::state::jobs::Phase;
use forebay_engine::units::Millis;
use forebay_source::{Receipt, Stream};
use std::collections::BTreeMap;

/// The key in the journal's positions under which the lines of `rejected.jsonl` are counted.
pub const REJECTED: &str = "rejected";

/// How far everything has been read, what was seen, and what could not be taken.
#[derive(Debug)]
pub(super) struct Reception {
    positions: Positions,
    moved: Positions,
    seen: Seen,
    file: RejectedFile,
    /// Of the open batch, not in the file yet.
    rejected: Vec<Rejection>,
}

impl Reception {
    pub fn new(positions: Positions, seen: Vec<u128>, file: RejectedFile) -> Reception {
        Reception { positions, moved: Positions::new(), seen: Seen::new(seen), file, rejected: Vec::new() }
    }

    fn position(&self, key: &str) -> u64 {
        self.positions.get(key).copied().unwrap_or(0)
    }

    /// A source has been read so far.
    pub fn reached(&mut self, key: &str, at: u64) {
        self.positions.insert(key.to_owned(), at);
        self.moved.insert(key.to_owned(), at);
    }

    /// Sinks have come so far. Whether that is news.
    pub fn note(&mut self, cursors: BTreeMap<String, u64>) -> bool {
        let mut news = false;
        for (sink, number) in cursors {
            if self.position(&sink) < number {
                self.reached(&sink, number);
                news = true;
            }
        }
        news
    }

    pub fn reject(&mut self, rejection: Rejection) {
        self.rejected.push(rejection);
    }

    /// Writes what could not be taken. Nothing is lost where that fails: it is tried again.
    pub fn write_rejected(&mut self, at: Millis) -> Result<(), DriverError> {
        if self.rejected.is_empty() {
            return Ok(());
        }
        let written = self.file.write(at, &self.rejected);
        written.map_err(|source| DriverError::Io { path: self.file.path().to_owned(), source })?;
        self.rejected.clear();
        self.reached(REJECTED, self.file.last());
        Ok(())
    }

    pub fn sync_rejected(&mut self) -> Result<(), DriverError> {
        let synced = self.file.sync();
        synced.map_err(|source| DriverError::Io { path: self.file.path().to_owned(), source })
    }

    /// What the batch that is being closed is to be journaled with.
    pub fn moved(&mut self) -> (Positions, Vec<u128>) {
        (std::mem::take(&mut self.moved), self.seen.take_new())
    }

    pub fn rejections(&self) -> u64 {
        self.file.last()
    }
}

impl Cycle {
    /// Takes a post into the open batch. One outcome an item.
    pub(super) fn receive(&mut self, post: &mut Post) -> Vec<Outcome> {
        let from = post.stream.as_ref().map_or(0, |stream| self.reception.position(&stream.key));
        let streamed = post.stream.is_some();
        let below = |item: &Item| streamed && item.original.as_ref().is_some_and(|o| o.position < from);
        let outcomes = post.items.iter_mut().map(|item| match below(item) {
            true => Outcome::Seen(None),
            false => self.receive_item(item),
        });
        let outcomes = outcomes.collect();
        if let Some(Stream { key, next, mark }) = &post.stream
            && *next > from
        {
            self.reception.reached(key, *next);
            self.reception.reached(&format!("{key}#mark"), *mark);
        }
        outcomes
    }

    fn receive_item(&mut self, item: &mut Item) -> Outcome {
        if self.reception.seen.knows(item.transport_id) || self.reception.seen.knows(item.id) {
            let Content::Event(event) = &item.content else { return Outcome::Seen(None) };
            return Outcome::Seen(self.job_about(event));
        }
        self.reception.seen.remember(item.transport_id);
        let event = match std::mem::take(&mut item.content) {
            Content::Event(event) => event,
            other => {
                item.content = other;
                return Outcome::Unreadable;
            }
        };
        let job = self.job_about(&event);
        let outcome = match self.forbidden(&event, job) {
            Some(reason) => Outcome::Refused(reason),
            None => self.take_in(event, job),
        };
        // What is refused may be sent again once the refusal's reason is gone.
        if !matches!(outcome, Outcome::Refused(_)) {
            self.reception.seen.remember(item.id);
        }
        outcome
    }

    /// The job that an event names by its subject, if there is one.
    pub(super) fn job_about(&self, event: &Event) -> Option<JobId> {
        let (tenant, subject) = match event {
            Event::JobSubmitted(spec) => (&spec.tenant, &spec.subject),
            Event::JobCancelled { tenant, subject, .. } | Event::ServiceDemand { tenant, subject, .. } => {
                (tenant, subject)
            }
            _ => return None,
        };
        self.engine.state().job_of(tenant, subject)
    }

    /// Who may not act on a job may neither cancel it, nor speak of its demand, nor run its subject again. The engine ignores the first
    /// two itself; here their sender is told.
    fn forbidden(&self, event: &Event, job: Option<JobId>) -> Option<Reason> {
        let (by, reason) = match event {
            Event::JobCancelled { by: Some(by), .. } | Event::ServiceDemand { by: Some(by), .. } => {
                (by, Reason::ForbiddenQueue)
            }
            Event::JobSubmitted(spec) => (&spec.principal, Reason::Conflict),
            _ => return None,
        };
        (!self.engine.state().may_act(by, job?)).then_some(reason)
    }

    /// Takes an event from outside into the open batch, and tells what became of it. `known`: the job that it names.
    pub(super) fn take_in(&mut self, event: Event, known: Option<JobId>) -> Outcome {
        let submission = matches!(event, Event::JobSubmitted(_));
        let before = *self.engine.state().counters();
        self.engine.handle_event(event);
        let state = self.engine.state();
        let ignored = state.counters().ignored_events > before.ignored_events;
        if !submission {
            return if ignored { Outcome::Ignored } else { Outcome::Taken };
        }
        match known {
            _ if state.counters().refused > before.refused => Outcome::Refused(Reason::Conflict),
            Some(known) if ignored => Outcome::Known(known),
            _ => match state.jobs().next_back().filter(|_| !ignored) {
                Some((job, spec)) => {
                    self.executor.learn(spec);
                    Outcome::Job(job.id)
                }
                None => Outcome::Ignored,
            },
        }
    }

    /// The final word on a post's items after the pass, and what is rejected of them.
    pub(super) fn judge(&mut self, post: &mut Post, outcomes: &mut [Outcome]) {
        for (item, outcome) in post.items.iter_mut().zip(outcomes) {
            *outcome = self.final_outcome(*outcome);
            let rejection = match (*outcome, std::mem::take(&mut item.content)) {
                (Outcome::Unreadable, Content::Unreadable(why)) => {
                    item.original.take().map(|original| Rejection::unreadable(*original, why))
                }
                (Outcome::Refused(reason) | Outcome::Rejected(_, reason), _) => {
                    item.original.take().map(|original| Rejection::refused(*original, reason))
                }
                _ => None,
            };
            if let Some(rejection) = rejection {
                post.answer.rejected(rejection.code);
                self.reception.reject(rejection);
            }
        }
    }

    /// What the pass made of it: a job that can never run is rejected in the pass that sees it first.
    fn final_outcome(&self, outcome: Outcome) -> Outcome {
        let Outcome::Job(id) = outcome else { return outcome };
        match self.engine.state().job(id) {
            Some((job, _)) if matches!(job.phase, Phase::Done { outcome: Ended::Rejected }) => {
                Outcome::Rejected(id, job.reason.unwrap_or(Reason::Misconfigured))
            }
            _ => outcome,
        }
    }
}

impl Post {
    /// Tells whoever waits. To be called when the batch is durable, and only then. Whoever sent it may have gone; that is their
    /// business.
    pub(super) fn answer(self, seq: Seq, at: Millis, outcomes: Vec<Outcome>) {
        let (to, figures) = match self.answer {
            Answer::Client(to) => return drop(to.send(Ok(Accepted { seq, at, outcomes }))),
            Answer::Source(to, figures) => (to, figures),
        };
        let mut receipt = Receipt::default();
        for outcome in outcomes {
            *match outcome {
                Outcome::Seen(_) => &mut receipt.seen,
                Outcome::Unreadable | Outcome::Refused(_) | Outcome::Rejected(..) => &mut receipt.rejected,
                _ => &mut receipt.taken,
            } += 1;
        }
        figures.durable(receipt.taken, receipt.seen);
        let now = super::clock::wall_ms().0;
        for Original { sent_ms, .. } in self.items.iter().filter_map(|item| item.original.as_deref()) {
            figures.took(now.saturating_sub(sent_ms.unwrap_or(now)));
        }
        let _ = to.send(receipt);
    }
}

impl Answer {
    fn rejected(&self, code: &'static str) {
        if let Answer::Source(_, figures) = self {
            figures.rejected(code);
        }
    }
}
