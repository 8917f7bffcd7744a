//! Whether a job can ever run under the policy in force.
//!
//! Never: looks at what is free or in use. That is a question of today.

use super::budget::{Beyond, Lasts};
use super::{budget, capacity, quota, settings, supply};
use crate::ids::{ClassId, JobId, QueueId};
use crate::job::Gang;
use crate::policy::{Undeclared, WhenImpossible};
use crate::reason::Reason;
use crate::state::{State, Urgency};

/// Replicas of one service at most: beyond it lies a typing error, not a service.
const MOST_REPLICAS: u32 = 10_000;

/// Why a job cannot run, and for how long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Impossible {
    /// Never under the policy in force.
    Always(Reason),
    /// Not while prices are as they are.
    AsPricesAre(Reason),
}

impl Impossible {
    pub(crate) fn reason(self) -> Reason {
        let (Impossible::Always(reason) | Impossible::AsPricesAre(reason)) = self;
        reason
    }
}

/// Why a job can never run under the policy in force, if it cannot. Asked once, when it comes.
pub(crate) fn impossible(state: &State, id: JobId) -> Option<Impossible> {
    match refused(state, id) {
        Some(reason) => Some(Impossible::Always(reason)),
        None => never_fits(state, state.jobs[id].class),
    }
}

/// What its submitter did wrong, whatever there is to run on.
fn refused(state: &State, id: JobId) -> Option<Reason> {
    let (job, spec) = (&state.jobs[id], &state.specs[id]);
    let queue = &state.queues[job.queue];
    let (Some(rule), Some(policy)) = (queue.rule.as_ref(), state.policy()) else { return Some(Reason::UnknownQueue) };
    if !policy.may_act(&spec.principal, &queue.path) {
        return Some(Reason::ForbiddenQueue);
    }
    if let Some(most) = too_many_queues(state, job.queue) {
        return Some(Reason::TooManyQueues { most });
    }
    let asked = spec.tier.as_deref().map(|name| state.declared_tier(name));
    if asked.is_some_and(|tier| !tier.is_some_and(|tier| policy.may_ask(rule, tier))) {
        return Some(Reason::ForbiddenTier { queue: job.queue });
    }
    if let Gang::Workers { min, max, each } = &spec.gang
        && (*min == 0
            || max < min
            || each.share == 0
            || each.share > 1000
            || (each.share < 1000 && each.gpus != 1 && each.gpus != 0))
    {
        return Some(Reason::Misconfigured);
    }
    if spec.service.is_some_and(|s| s.max == 0 || s.min > s.max || s.target == 0 || s.max > MOST_REPLICAS) {
        return Some(Reason::Misconfigured);
    }
    matches!(&spec.gang, Gang::Spanning { gpus: 0, .. }).then_some(Reason::Misconfigured)
}

/// How many undeclared queues the policy allows, where a queue without jobs would be one more. Names that nobody uses do not count.
fn too_many_queues(state: &State, queue: QueueId) -> Option<u32> {
    let policy = state.policy()?;
    let Undeclared::Under { at_most, .. } = &policy.undeclared else { return None };
    let known =
        policy.queues.contains_key(&state.queues[queue].path) || state.index.in_use_by_queue.contains_key(&queue);
    let most = *at_most as usize;
    (!known && state.undeclared_in_use(queue).take(most).count() == most).then_some(*at_most)
}

/// Why no job of a class can ever run under the policy in force, if none can. The urgency of deadlines changes, so what only an urgent
/// class lacks does not count.
pub(crate) fn class_impossible(state: &State, class: ClassId) -> Option<Impossible> {
    let shape = &state.classes[class].shape;
    if state.queues[shape.queue].rule.is_none() {
        return Some(Impossible::Always(Reason::UnknownQueue));
    }
    let never = never_fits(state, class)?;
    let for_all = matches!(never.reason(), Reason::ExceedsMaxQuota { .. }) || shape.urgency != Urgency::Urgent;
    for_all.then_some(never)
}

/// What a change of policy put in the way of a job, for good.
pub(crate) fn held_by_class(state: &State, id: JobId) -> Option<Reason> {
    let job = &state.jobs[id];
    state.classes[job.class].impossible.filter(|_| job.service.is_none() && !job.cancel_asked)
}

/// Whether an impossible job is rejected instead of being held.
pub(crate) fn rejects(state: &State, id: JobId) -> bool {
    let lasts = || class_impossible(state, state.jobs[id].class);
    state.policy().is_some_and(|policy| policy.impossible == WhenImpossible::Reject)
        && matches!(lasts(), Some(Impossible::Always(_)))
}

/// Whether no pool of the class's queue could hold a gang of it with nothing else running.
fn never_fits(state: &State, class: ClassId) -> Option<Impossible> {
    let mut best = Reason::NoMatchingPool;
    let mut priced = None;
    for (pool, fits) in &state.classes[class].fits {
        // Which nodes such a pool has is not ours to say: they come and go.
        let owned = settings::pool(state, *pool).is_some_and(|rules| rules.owned.is_some());
        if !owned && !fits.iter().any(|id| capacity::wanted(state, class, state.offerings[id.index()].offer.capacity)) {
            continue;
        }
        let asked = quota::share(state, class, *pool);
        let most = quota::most_ever(state, class, *pool)?;
        if asked > most {
            best = best.max(Reason::ExceedsMaxQuota { asked, most });
        } else if owned {
            return None;
        } else if !supply::possible_on_empty(state, class, *pool) {
            let apart = supply::only_apart(state, class, *pool);
            let no = apart.map_or(Reason::ExceedsCeiling, |level| Reason::TopologyUnsatisfied { level });
            best = best.max(no);
        } else {
            let Beyond { reason, lasts } = budget::beyond(state, class, *pool)?;
            best = best.max(reason);
            priced = priced.or((lasts == Lasts::AsPricesAre).then_some(reason));
        }
    }
    Some(priced.map_or(Impossible::Always(best), Impossible::AsPricesAre))
}
