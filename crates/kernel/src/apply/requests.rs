//! What pipelines ask of a job, in whatever order it comes: submissions, cancels, demand.
//!
//! ```text
//! submission -> known? the same again, a conflict, or a rerun    -> a job -> cancels that overtook it
//! cancel     -> known and open: cancelled, unless it was asked for again later than the cancel was sent
//!            -> unknown, or with a time: kept for what may still come (`state::early`)
//! ```
//!
//! What a sender's time says counts only where both have one: a cancel is for what was asked before it. A job is asked for as of its
//! last rerun; without one, as of its first submission.
//!
//! Never: takes a word from who may not say it. `Policy::may_act` is the rule, for submissions at admission, for the rest here.

use super::events::{ignore, new_job};
use super::say_refused;
use crate::event::{EarlierJob, EventOutcome};
use crate::ids::{JobId, QueueId, TierId};
use crate::job::JobSpec;
use crate::reason::Reason;
use crate::state::pending_cancels::PendingCancelKey;
use crate::state::services::ServiceState;
use crate::state::{Shape, SharedSpec, State, Urgency};
use crate::units::Timestamp;

/// Whose job, and which.
#[derive(Clone, Copy)]
pub(super) struct Identity<'a> {
    pub tenant: &'a str,
    pub subject: &'a str,
}

/// What is known of an identity beside the state.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Earlier {
    /// Nothing.
    Unknown,
    /// A job of it is over and in the archive.
    Archived,
}

pub(super) fn submitted(state: &mut State, spec: &JobSpec, earlier: Option<EarlierJob>) -> EventOutcome {
    let known = state.job_of(&spec.tenant, &spec.subject);
    let (last, over) = match (known, earlier) {
        (Some(id), _) => {
            let last = &state.specs[id];
            (
                Some(EarlierJob { job: id, digest: last.digest, sent: last.sent, service: last.service.is_some() }),
                state.jobs[id].done(),
            )
        }
        (None, earlier) => (earlier, true),
    };
    if let Some(last) = last {
        let again = spec.rerun && over && is_newer(spec.sent, last.sent);
        if !again && last.digest == spec.digest {
            if let Some(id) = known {
                asked_again(state, id, spec);
            }
            let _ = ignore(state);
            return EventOutcome::Known(last.job);
        }
        if !again {
            state.counters.refused += 1;
            say_refused(state, spec, Reason::Conflict);
            return EventOutcome::Refused(Reason::Conflict);
        }
    }
    let id = accept(state, spec);
    overtaken(state, id, last.is_none());
    EventOutcome::Submitted(id)
}

/// A rerun that was not sent after what ran last is a late word about that.
fn is_newer(sent: Option<Timestamp>, last: Option<Timestamp>) -> bool {
    sent.zip(last).is_none_or(|(sent, last)| sent > last)
}

fn accept(state: &mut State, spec: &JobSpec) -> JobId {
    let id = state.jobs.next_id();
    let queue = state.queue_id(&spec.queue);
    let tier = tier_of(state, spec, queue);
    let models = spec.models.iter().map(|m| state.model_id(m)).collect();
    // What serves does not follow one after the other.
    let batch = spec.batch.as_deref().filter(|_| spec.service.is_none()).map(|key| state.batch_id(queue, key));
    let shape = state.mix_in(Shape {
        queue,
        tier,
        gang: spec.gang.clone(),
        models,
        spot: spec.spot,
        shares: spec.shares,
        within: spec.within,
        batch,
        service: spec.service.map(|_| id),
        urgency: Urgency::Ordinary,
        loses: spec.lost_at_a_reclaim(state.apply_version),
        late: false,
    });
    let class = state.class_id(shape);
    let job = new_job(state, id, class, spec);
    state.index.job_in(&job, spec);
    state.index.by_identity.insert((spec.tenant.clone(), spec.subject.clone()), id);
    if let Some(rule) = spec.service {
        state.services.insert(id, ServiceState::new(rule, state.now));
    }
    state.specs.push(SharedSpec::new(spec.clone()));
    state.jobs.push(job)
}

/// The tier that the job names, if the policy has it; else its queue's.
fn tier_of(state: &State, spec: &JobSpec, queue: QueueId) -> TierId {
    let named = spec.tier.as_deref().and_then(|name| state.declared_tier(name));
    let own = state.queues[queue].rule.as_ref().map(|rule| rule.tier);
    named.or(own).unwrap_or_default()
}

/// The same job is asked for again while it is there. As of when it was asked for does not depend on which word came first.
fn asked_again(state: &mut State, id: JobId, spec: &JobSpec) {
    if state.jobs[id].done() || !state.may_act(&spec.principal, id) {
        return;
    }
    let (Some(was), Some(sent)) = (state.specs[id].sent, spec.sent) else { return };
    let known = state.specs[id].edit();
    known.sent = Some(match (known.rerun, spec.rerun) {
        (true, true) => was.max(sent),
        (true, false) => was,
        (false, true) => sent,
        (false, false) => was.min(sent),
    });
    known.rerun |= spec.rerun;
    overtaken(state, id, false);
}

/// Cancels that came before a submission which they are about. `first`: nothing was known of the identity.
fn overtaken(state: &mut State, id: JobId, first: bool) {
    let spec = &state.specs[id];
    for (key, sent) in state.cancels_of(&spec.tenant, &spec.subject) {
        let about = match (sent, state.specs[id].sent) {
            (Some(cancel), Some(asked)) => cancel >= asked,
            _ => first,
        };
        if about && is_allowed(state, key.by.as_deref(), id) {
            state.edit_job(id, |job| job.cancel_asked = true);
        }
        // It was for the first submission, whether it counted or not.
        if !key.timed {
            state.forget_cancel(&key);
        }
    }
}

fn is_allowed(state: &State, by: Option<&str>, id: JobId) -> bool {
    by.is_none_or(|principal| state.may_act(principal, id))
}

pub(super) fn cancelled(
    state: &mut State,
    identity: Identity<'_>,
    by: Option<&str>,
    sent: Option<Timestamp>,
    earlier: Earlier,
) -> EventOutcome {
    let Identity { tenant, subject } = identity;
    let known = state.job_of(tenant, subject);
    let over = earlier == Earlier::Archived;
    let open = known.filter(|id| !state.jobs[*id].done());
    if open.is_some_and(|id| !is_allowed(state, by, id)) {
        return ignore(state);
    }
    if (known.is_none() && !over) || sent.is_some() {
        let by = by.map(Into::into);
        let key = PendingCancelKey { tenant: tenant.into(), subject: subject.into(), by, timed: sent.is_some() };
        state.keep_cancel(key, sent);
    }
    let about = |id: &JobId| sent.zip(state.specs[*id].sent).is_none_or(|(cancel, asked)| cancel >= asked);
    match open.filter(about) {
        Some(id) => {
            state.edit_job(id, |job| job.cancel_asked = true);
            EventOutcome::Applied
        }
        None if known.is_some() || over => ignore(state),
        None => EventOutcome::Applied,
    }
}

pub(super) fn demanded(state: &mut State, identity: Identity<'_>, by: Option<&str>, concurrency: u32) -> EventOutcome {
    let (keep, now) = (state.lifecycle().scale_down_after, state.now);
    let known = state.job_of(identity.tenant, identity.subject).filter(|id| is_allowed(state, by, *id));
    match known.and_then(|id| state.services.get_mut(&id)) {
        Some(row) => {
            row.asked(concurrency, keep, now);
            EventOutcome::Applied
        }
        None => ignore(state),
    }
}
