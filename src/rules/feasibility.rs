//! Whether a job can ever run under the policy in force.
//!
//! Never: looks at what is free or in use. That is a question of today.

use super::{budget, capacity, quota, supply};
use crate::ids::{ClassId, JobId};
use crate::job::Gang;
use crate::reason::Reason;
use crate::state::{State, Urgency};

/// Replicas of one service at most: beyond it lies a typing error, not a service.
const MOST_REPLICAS: u32 = 10_000;

/// Why a job can never run under the policy in force, if it cannot.
pub(crate) fn impossible(state: &State, id: JobId) -> Option<Reason> {
    let (job, spec) = (&state.jobs[id], &state.specs[id]);
    let queue = &state.queues[job.queue];
    if queue.rule.is_none() {
        return Some(Reason::UnknownQueue);
    }
    if !state.policy().is_some_and(|policy| policy.may_act(&spec.principal, &queue.path)) {
        return Some(Reason::ForbiddenQueue);
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
    if matches!(&spec.gang, Gang::Spanning { gpus: 0, .. }) {
        return Some(Reason::Misconfigured);
    }
    never_fits(state, job.class)
}

/// Why no job of a class can ever run under the policy in force, if none can. The urgency of deadlines changes, so what only an urgent
/// class lacks does not count.
pub(crate) fn class_impossible(state: &State, class: ClassId) -> Option<Reason> {
    let shape = &state.classes[class].shape;
    if state.queues[shape.queue].rule.is_none() {
        return Some(Reason::UnknownQueue);
    }
    let reason = never_fits(state, class)?;
    let for_all = matches!(reason, Reason::ExceedsMaxQuota { .. }) || shape.urgency != Urgency::Urgent;
    for_all.then_some(reason)
}

/// Whether no pool of the class's queue could hold a gang of it with nothing else running.
fn never_fits(state: &State, class: ClassId) -> Option<Reason> {
    let shape = &state.classes[class].shape;
    let rule = state.queues[shape.queue].rule.as_ref()?;
    let mut best = Reason::NoMatchingPool;
    for (pool, fits) in &state.classes[class].fits {
        if !fits.iter().any(|id| capacity::wanted(state, class, state.offerings[id.index()].offer.capacity)) {
            continue;
        }
        let asked = quota::share(state, class, *pool);
        let most = state.quota.potential(rule.quota, *pool);
        if asked > most {
            best = best.max(Reason::ExceedsMaxQuota { asked, most });
        } else if !supply::possible_on_empty(state, class, *pool) || budget::never(state, class, *pool) {
            let apart = supply::only_apart(state, class, *pool);
            let no = apart.map_or(Reason::ExceedsCeiling, |level| Reason::TopologyUnsatisfied { level });
            best = best.max(no);
        } else {
            return None;
        }
    }
    Some(best)
}
