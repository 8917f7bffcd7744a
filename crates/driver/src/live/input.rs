//! What the driver does with what comes in: drops what it has seen, refuses what the sender may not ask, counts how far sources and
//! sinks have come, and keeps what could not be taken.
//!
//! ```text
//! item -> below its stream's position? -> may its sender? -> id known? -> whose job, in the state or in the archive? -> allowed? -> engine -> outcome
//!                                                       refused, unreadable: with its bytes to RejectionWriter <---------------'
//! ```
//!
//! Never: lets a position move without the batch that holds what was read.

use super::clock::wall_ms;
use super::error::DriverError;
use super::feed::{EventFeed, FedItem, REPLAY};
use super::handle::{Accepted, ItemOutcome};
use super::output::RejectionWriter;
use super::recent_ids::RecentIds;
use super::submission::{ItemContent, Original, Rejection, ReplyTo, SenderRule, Submission, SubmittedItem};
use super::tenants::TenantUse;
use crate::archive::{EventIdentity, identity_of, with_earlier_job};
use crate::journal::{ArchivedIdentity, Journal, Positions, StorageFailure};
use crate::step::{BatchStep, PlannedBatch, SideRecords};
use forebay_kernel::decision::Decision;
use forebay_kernel::event::{Event, EventOutcome};
use forebay_kernel::ids::{JobId, Seq};
use forebay_kernel::reason::Reason;
use forebay_kernel::state::State;
use forebay_kernel::units::Timestamp;
use forebay_source::{Receipt, StreamPosition};
use std::collections::BTreeMap;

/// The key in the journal's positions under which the rejected messages are counted.
pub const REJECTED: &str = "rejected";

/// How far everything has been read, what was seen, and what could not be taken.
pub(super) struct InputTracker {
    positions: Positions,
    moved: Positions,
    recent: RecentIds,
    pub log: Box<dyn RejectionWriter>,
    /// Of the open batch, not in the log yet.
    rejected: Vec<Rejection>,
    /// Jobs that the open batch accepted.
    accepted: Vec<JobId>,
    /// What tenants have open.
    pub tenants: TenantUse,
}

impl InputTracker {
    pub fn new(
        positions: Positions,
        seen: Vec<u128>,
        log: Box<dyn RejectionWriter>,
        tenants: TenantUse,
    ) -> InputTracker {
        InputTracker {
            positions,
            moved: Positions::new(),
            recent: RecentIds::new(seen),
            log,
            rejected: Vec::new(),
            accepted: Vec::new(),
            tenants,
        }
    }

    fn position(&self, key: &str) -> u64 {
        self.positions.get(key).copied().unwrap_or(0)
    }

    /// A source has been read so far.
    fn reached(&mut self, key: &str, at: u64) {
        self.positions.insert(key.to_owned(), at);
        self.moved.insert(key.to_owned(), at);
    }

    /// Sinks have come so far.
    pub fn record_cursors(&mut self, cursors: BTreeMap<String, u64>) {
        for (sink, number) in cursors {
            if self.position(&sink) < number {
                self.reached(&sink, number);
            }
        }
    }

    /// Whether a source or sink has come further than the last batch says.
    pub fn has_moved(&self) -> bool {
        !self.moved.is_empty()
    }

    /// Writes what could not be taken. Nothing is lost where that fails: it is tried again.
    ///
    /// # Errors
    /// The log could not be written.
    pub fn write_rejected(&mut self, at: Timestamp) -> Result<(), Box<dyn StorageFailure>> {
        if self.rejected.is_empty() {
            return Ok(());
        }
        self.log.write(at, &self.rejected)?;
        self.rejected.clear();
        self.reached(REJECTED, self.log.last());
        Ok(())
    }

    /// What the batch that is being closed is to be journaled with.
    pub fn side_records(&mut self, requests: Vec<(Seq, Vec<u8>)>) -> SideRecords {
        let positions = std::mem::take(&mut self.moved);
        SideRecords { positions, policy: None, seen: self.recent.take_new(), requests }
    }

    /// Jobs that were accepted since the last call.
    pub fn take_accepted(&mut self) -> Vec<JobId> {
        std::mem::take(&mut self.accepted)
    }

    /// Feeds what is due by `now`, at most so many records.
    ///
    /// # Errors
    /// The archive cannot be read.
    pub fn take_from_feed<J: Journal>(
        &mut self,
        step: &mut BatchStep<'_>,
        journal: &J,
        feed: &mut dyn EventFeed,
        now: Timestamp,
        most: usize,
    ) -> Result<(), DriverError> {
        for _ in 0..most {
            let Some(item) = feed.take(now, step.state().policy()) else { return Ok(()) };
            self.reached(REPLAY, feed.position());
            match item {
                FedItem::Event(event) => {
                    let known = KnownJob::of(step.state(), journal, &event)?;
                    self.take_in(step, event, known);
                }
                FedItem::Nothing => {}
                FedItem::Rejected(rejection) => self.rejected.push(*rejection),
            }
        }
        Ok(())
    }

    /// Takes a submission into the open batch. One outcome an item; [`InputTracker::judge`] completes them after the plan pass.
    ///
    /// # Errors
    /// The archive cannot be read.
    pub fn receive<J: Journal>(
        &mut self,
        step: &mut BatchStep<'_>,
        journal: &J,
        submission: &mut Submission,
    ) -> Result<Vec<ItemOutcome>, DriverError> {
        let from = submission.stream.as_ref().map_or(0, |stream| self.position(&stream.key));
        let streamed = submission.stream.is_some();
        let below = |item: &SubmittedItem| streamed && item.original.as_ref().is_some_and(|o| o.position < from);
        let rule = submission.sender.rule.as_ref();
        let outcomes = submission.items.iter_mut().map(|item| match below(item) {
            true => Ok(ItemOutcome::Seen(None)),
            false => self.receive_item(step, journal, rule, item),
        });
        let outcomes = outcomes.collect::<Result<Vec<_>, _>>()?;
        if let Some(StreamPosition { key, next, fingerprint }) = &submission.stream
            && *next > from
        {
            self.reached(key, *next);
            self.reached(&format!("{key}#mark"), *fingerprint);
        }
        Ok(outcomes)
    }

    fn receive_item<J: Journal>(
        &mut self,
        step: &mut BatchStep<'_>,
        journal: &J,
        rule: Option<&SenderRule>,
        item: &mut SubmittedItem,
    ) -> Result<ItemOutcome, DriverError> {
        // First of all: what is known of an event's id is not for everybody.
        if let (Some(rule), ItemContent::Event(event)) = (rule, &item.content)
            && let Some(outcome) = rule(step.state(), event)
        {
            return Ok(outcome);
        }
        if self.recent.contains(item.transport_id) || self.recent.contains(item.id) {
            let ItemContent::Event(event) = &item.content else { return Ok(ItemOutcome::Seen(None)) };
            return Ok(ItemOutcome::Seen(KnownJob::of(step.state(), journal, event)?.id()));
        }
        self.recent.insert(item.transport_id);
        let event = match std::mem::take(&mut item.content) {
            ItemContent::Event(event) => event,
            other => {
                item.content = other;
                return Ok(ItemOutcome::Unreadable);
            }
        };
        let known = KnownJob::of(step.state(), journal, &event)?;
        let refused = forbidden(step.state(), &event, &known);
        let outcome = match refused.or_else(|| self.beyond_its_tenant(step.state(), &event, &known)) {
            Some(reason) => ItemOutcome::Refused(reason),
            None => self.take_in(step, event, known),
        };
        // What is refused may be sent again once the refusal's reason is gone.
        if !matches!(outcome, ItemOutcome::Refused(_)) {
            self.recent.insert(item.id);
        }
        Ok(outcome)
    }

    /// Why a submission that would become a job is beyond what its tenant may have open.
    fn beyond_its_tenant(&self, state: &State, event: &Event, known: &KnownJob) -> Option<Reason> {
        let Event::JobSubmitted(spec) = event else { return None };
        // A job that is not over is not run again: it is known.
        let is_open = |job| state.job(job).is_some_and(|(row, _)| !row.done());
        let is_new = match known {
            KnownJob::Unknown => true,
            KnownJob::InState(job) => spec.rerun && !is_open(*job),
            KnownJob::Archived(_) => spec.rerun,
        };
        is_new.then(|| self.tenants.refusal(state, spec)).flatten()
    }

    /// Takes an event from outside into the open batch.
    fn take_in(&mut self, step: &mut BatchStep<'_>, event: Event, known: KnownJob) -> ItemOutcome {
        match step.handle_event(known.complete(event)) {
            EventOutcome::Submitted(job) => {
                self.accepted.push(job);
                if let Some((_, spec)) = step.state().job(job) {
                    self.tenants.accepted(step.state(), job, spec);
                }
                ItemOutcome::Job(job)
            }
            EventOutcome::Known(job) => ItemOutcome::Known(job),
            EventOutcome::Refused(reason) => ItemOutcome::Refused(reason),
            EventOutcome::Applied => ItemOutcome::Taken,
            EventOutcome::Ignored => ItemOutcome::Ignored,
        }
    }

    /// Completes the outcomes of a submission after the plan pass, and keeps what is rejected of it.
    pub fn judge(&mut self, planned: &PlannedBatch, submission: &mut Submission, outcomes: &mut [ItemOutcome]) {
        let never_runs = never_runs(planned);
        for (item, outcome) in submission.items.iter_mut().zip(outcomes) {
            if let ItemOutcome::Job(job) = *outcome
                && let Some(reason) = never_runs.get(&job)
            {
                *outcome = ItemOutcome::Rejected(job, *reason);
            }
            let rejection = match (*outcome, std::mem::take(&mut item.content)) {
                (ItemOutcome::Unreadable, ItemContent::Unreadable(why)) => {
                    item.original.take().map(|original| Rejection::unreadable(*original, why))
                }
                (ItemOutcome::Refused(reason) | ItemOutcome::Rejected(_, reason), _) => {
                    item.original.take().map(|original| Rejection::refused(*original, reason))
                }
                _ => None,
            };
            if let Some(rejection) = rejection {
                if let ReplyTo::Source(_, observer) = &submission.reply_to {
                    observer.rejected(rejection.code);
                }
                self.rejected.push(rejection);
            }
        }
    }
}

/// The jobs that a batch found to be impossible, with the reason of each: a job that can never run is rejected by the first pass.
fn never_runs(planned: &PlannedBatch) -> BTreeMap<JobId, Reason> {
    let rejected = planned.batch().decisions.iter().filter_map(|decision| match decision {
        Decision::Reject { job, reason } => Some((*job, *reason)),
        _ => None,
    });
    rejected.collect()
}

/// What is known of the job that an event names by its identity.
enum KnownJob {
    /// No such job, or the event names none.
    Unknown,
    /// The state has it.
    InState(JobId),
    /// It is over and has left the state.
    Archived(ArchivedIdentity),
}

impl KnownJob {
    fn of<J: Journal>(state: &State, journal: &J, event: &Event) -> Result<KnownJob, DriverError> {
        let Some(EventIdentity { tenant, subject }) = identity_of(event) else { return Ok(KnownJob::Unknown) };
        if let Some(job) = state.job_of(tenant, subject) {
            return Ok(KnownJob::InState(job));
        }
        Ok(journal.archived(tenant, subject)?.map_or(KnownJob::Unknown, KnownJob::Archived))
    }

    fn id(&self) -> Option<JobId> {
        match self {
            KnownJob::Unknown => None,
            KnownJob::InState(job) => Some(*job),
            KnownJob::Archived(identity) => Some(identity.earlier.job),
        }
    }

    /// Whether a principal may act on the job. Where nothing is known of its owner any more, the queue of what is asked decides later.
    fn lets_act(&self, state: &State, principal: &str) -> bool {
        match self {
            KnownJob::Unknown => true,
            KnownJob::InState(job) => state.may_act(principal, *job),
            KnownJob::Archived(identity) => {
                identity.owner.as_ref().is_none_or(|owner| state.may_act_for(principal, &owner.principal, &owner.queue))
            }
        }
    }

    /// The event with what the archive knows.
    fn complete(self, event: Event) -> Event {
        match self {
            KnownJob::Archived(identity) => with_earlier_job(event, identity.earlier),
            KnownJob::Unknown | KnownJob::InState(_) => event,
        }
    }
}

/// Who may not act on a job may neither cancel it, nor report its demand, nor run its subject again. The engine ignores the first two
/// by itself; here their sender learns it.
fn forbidden(state: &State, event: &Event, known: &KnownJob) -> Option<Reason> {
    let (by, reason) = match event {
        Event::JobCancelled { by: Some(by), .. } | Event::ServiceDemand { by: Some(by), .. } => {
            (by, Reason::ForbiddenQueue)
        }
        Event::JobSubmitted(spec) => (&spec.principal, Reason::Conflict),
        _ => return None,
    };
    (!known.lets_act(state, by)).then_some(reason)
}

impl Submission {
    /// Answers whoever waits. To be called when the batch is durable, and only then. Whoever sent it may have gone.
    pub(super) fn answer(self, seq: Seq, at: Timestamp, outcomes: Vec<ItemOutcome>) {
        let (to, observer) = match self.reply_to {
            ReplyTo::Client(to) => return drop(to.send(Ok(Accepted { seq, at, outcomes }))),
            ReplyTo::Source(to, observer) => (to, observer),
        };
        let mut receipt = Receipt::default();
        for outcome in outcomes {
            *match outcome {
                ItemOutcome::Seen(_) => &mut receipt.seen,
                ItemOutcome::Unreadable | ItemOutcome::Refused(_) | ItemOutcome::Rejected(..) => &mut receipt.rejected,
                _ => &mut receipt.taken,
            } += 1;
        }
        observer.durable(receipt);
        let now = wall_ms().0;
        for Original { sent_ms, .. } in self.items.iter().filter_map(|item| item.original.as_deref()) {
            observer.took_ms(now.saturating_sub(sent_ms.unwrap_or(now)));
        }
        let _ = to.send(receipt);
    }
}
