//! What a caller may act on: jobs of its own tenant that are its own, or whose queue takes jobs from it. Operators: everything.
//!
//! ```text
//! cancel, read, list, stream -> sees(state, who, job)      subject -> own_subject: in the caller's own tenant
//! submit, demand             -> refusal(state, who, event)
//! ```
//!
//! Never: a difference that can be told between a job that may not be seen and one that is not there.

use crate::config::tokens::Who;
use crate::document::write;
use crate::driver::ItemOutcome;
use forebay_kernel::event::Event;
use forebay_kernel::ids::JobId;
use forebay_kernel::job::JobSpec;
use forebay_kernel::reason::Reason;
use forebay_kernel::state::State;
use forebay_wire::document::views::BrakeView;

/// Whether a queue takes jobs from a caller.
pub(super) fn queue_takes(state: &State, who: &Who, queue: &str) -> bool {
    who.operates() || state.policy().is_some_and(|policy| policy.may_act(&who.caller.principal, queue))
}

/// Whether a caller may see a job, and cancel it.
pub(super) fn sees(state: &State, who: &Who, job: JobId) -> bool {
    let own_tenant = || state.job(job).is_some_and(|(_, spec)| spec.tenant == who.caller.tenant);
    who.operates() || own_tenant() && state.may_act(&who.caller.principal, job)
}

/// Whether a caller may see a job that has left the state.
pub(super) fn sees_finished(state: &State, who: &Who, spec: &JobSpec) -> bool {
    let principal = &who.caller.principal;
    who.operates() || spec.tenant == who.caller.tenant && state.may_act_for(principal, &spec.principal, &spec.queue)
}

/// Whether a caller may see a brake: that of a queue, where it takes jobs from them; all others may keep anybody waiting.
pub(super) fn sees_brake(state: &State, who: &Who, brake: &BrakeView) -> bool {
    let queue = brake.target.as_deref().filter(|_| brake.brake == "queue");
    queue.is_none_or(|queue| queue_takes(state, who, queue))
}

/// A job, or the replica of a service, by its subject in the caller's tenant.
pub(super) fn own_subject(state: &State, who: &Who, name: &str) -> Option<JobId> {
    let seen = |id: &JobId| state.job(*id).is_some() && sees(state, who, *id);
    let tenant = &who.caller.tenant;
    state.job_of(tenant, name).or_else(|| replica(state, tenant, name)).filter(seen)
}

/// The open replica of this name: `chat/0` is one of `chat`.
fn replica(state: &State, tenant: &str, name: &str) -> Option<JobId> {
    let (service, _) = name.rsplit_once('/')?;
    let mut replicas = state.index().replicas.get(&state.job_of(tenant, service)?)?.iter();
    replicas.find(|id| state.job(**id).is_some_and(|(_, spec)| spec.subject == name)).copied()
}

/// The answer to an event that is not for the engine, because of who sends it. `None`: it is for the engine.
pub(super) fn refusal(state: &State, who: &Who, event: &Event) -> Option<ItemOutcome> {
    let hidden = |tenant: &str, subject: &str| state.job_of(tenant, subject).is_some_and(|id| !sees(state, who, id));
    match event {
        Event::JobSubmitted(spec) => {
            let known = state.policy().is_some_and(|policy| write::rule_of(policy, &spec.queue).is_some());
            // A queue that is not known is the engine's to refuse: it says which there are.
            if known && !queue_takes(state, who, &spec.queue) {
                return Some(ItemOutcome::Refused(Reason::ForbiddenQueue));
            }
            hidden(&spec.tenant, &spec.subject).then_some(ItemOutcome::Refused(Reason::Conflict))
        }
        // As for one that nobody knows: a cancel is taken, for it may come before its job; demand means nothing.
        Event::JobCancelled { tenant, subject, .. } => hidden(tenant, subject).then_some(ItemOutcome::Taken),
        Event::ServiceDemand { tenant, subject, .. } => hidden(tenant, subject).then_some(ItemOutcome::Ignored),
        _ => None,
    }
}
