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

use super::facts::{ignore, new_job};
use super::say_refused;
use crate::ids::{JobId, QueueId, TierId};
use crate::job::JobSpec;
use crate::reason::Reason;
use crate::state::early::EarlyKey;
use crate::state::services::Serving;
use crate::state::{Hurry, Shape, State};
use crate::units::Millis;

pub(super) fn submitted(state: &mut State, spec: &JobSpec) {
    let known = state.job_of(&spec.tenant, &spec.subject);
    if let Some(id) = known {
        let last = &state.specs[id.ix()];
        let again = spec.rerun && state.jobs[id.ix()].done() && is_newer(spec.sent, last.sent);
        let same = last.digest == spec.digest;
        match (again, same) {
            (true, _) => {}
            (false, true) => {
                asked_again(state, id, spec);
                return ignore(state);
            }
            (false, false) => {
                state.counters.refused += 1;
                return say_refused(state, spec, Reason::Conflict);
            }
        }
    }
    let id = accept(state, spec);
    overtaken(state, id, known.is_none());
}

/// A rerun that was not sent after what ran last is a late word about that.
fn is_newer(sent: Option<Millis>, last: Option<Millis>) -> bool {
    sent.zip(last).is_none_or(|(sent, last)| sent > last)
}

fn accept(state: &mut State, spec: &JobSpec) -> JobId {
    let id = JobId(state.jobs.len() as u64);
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
        hurry: Hurry::Ordinary,
        loses: spec.lost_at_a_reclaim(),
        late: false,
    });
    let class = state.class_id(shape);
    let job = new_job(state, id, class, spec);
    state.ix.job_in(&job);
    state.ix.by_identity.insert((spec.tenant.clone(), spec.subject.clone()), id);
    if let Some(rule) = spec.service {
        state.services.insert(id, Serving::new(rule, state.now));
    }
    state.specs.push(spec.clone());
    state.jobs.push(job);
    id
}

/// The tier that the job names, if the policy has it; else its queue's.
fn tier_of(state: &State, spec: &JobSpec, queue: QueueId) -> TierId {
    let named = spec.tier.as_deref().and_then(|name| state.policy.as_deref()?.tier_named(name));
    let own = state.queues[queue.ix()].rule.as_ref().map(|rule| rule.tier);
    named.or(own).unwrap_or_default()
}

/// The same job is asked for again while it is there. As of when it was asked for does not depend on which word came first.
fn asked_again(state: &mut State, id: JobId, spec: &JobSpec) {
    if state.jobs[id.ix()].done() || !state.may_act(&spec.principal, id) {
        return;
    }
    let known = &mut state.specs[id.ix()];
    let (Some(was), Some(sent)) = (known.sent, spec.sent) else { return };
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
    let spec = &state.specs[id.ix()];
    for (key, sent) in state.cancels_of(&spec.tenant, &spec.subject) {
        let about = match (sent, state.specs[id.ix()].sent) {
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

pub(super) fn cancelled(state: &mut State, (tenant, subject): (&str, &str), by: Option<&str>, sent: Option<Millis>) {
    let known = state.job_of(tenant, subject);
    let open = known.filter(|id| !state.jobs[id.ix()].done());
    if open.is_some_and(|id| !is_allowed(state, by, id)) {
        return ignore(state);
    }
    if known.is_none() || sent.is_some() {
        let by = by.map(Into::into);
        let key = EarlyKey { tenant: tenant.into(), subject: subject.into(), by, timed: sent.is_some() };
        state.keep_cancel(key, sent);
    }
    let about = |id: &JobId| sent.zip(state.specs[id.ix()].sent).is_none_or(|(cancel, asked)| cancel >= asked);
    match (open.filter(about), known) {
        (Some(id), _) => state.edit_job(id, |job| job.cancel_asked = true),
        (None, Some(_)) => ignore(state),
        (None, None) => {}
    }
}

pub(super) fn demanded(state: &mut State, (tenant, subject): (&str, &str), by: Option<&str>, concurrency: u32) {
    let (keep, now) = (state.lifecycle().scale_down_after, state.now);
    let known = state.job_of(tenant, subject).filter(|id| is_allowed(state, by, *id));
    match known.and_then(|id| state.services.get_mut(&id)) {
        Some(row) => row.asked(concurrency, keep, now),
        None => ignore(state),
    }
}
