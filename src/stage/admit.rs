//! admit: may this job have what it asks, by quota and by what exists at all?
//!
//! Quota is taken when places are booked and given back when they are: a job that can have no places holds no quota.
//!
//! Never: looks at what is free. That is place's.

use super::{place, provision};
use crate::catalog::CapacityType;
use crate::engine::Engine;
use crate::ids::{ClassId, JobId, PoolId};
use crate::job::Gang;
use crate::policy::Buys;
use crate::reason::Reason;
use crate::state::{Hurry, State};
use crate::units::MilliGpu;

/// Why a job can never run under the policy in force, if it cannot.
pub(crate) fn impossible(engine: &Engine, id: JobId) -> Option<Reason> {
    let state = &engine.state;
    let (job, spec) = (&state.jobs[id.ix()], &state.specs[id.ix()]);
    let Some(rule) = &state.queues[job.queue.ix()].rule else {
        return Some(Reason::UnknownQueue);
    };
    if !rule.submitters.is_empty() && !rule.submitters.contains(&spec.principal) {
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
    if matches!(&spec.gang, Gang::Spanning { gpus: 0, .. }) {
        return Some(Reason::Misconfigured);
    }
    never_fits(state, job.class)
}

/// Whether no pool of the class's queue could hold a gang of it with nothing else running.
fn never_fits(state: &State, class: ClassId) -> Option<Reason> {
    let shape = &state.classes[class.ix()].shape;
    let rule = state.queues[shape.queue.ix()].rule.as_ref()?;
    let mut best = Reason::NoMatchingPool;
    for (pool, fits) in &state.classes[class.ix()].fits {
        if !fits.iter().any(|id| wanted(state, class, state.offerings[id.ix()].offer.capacity)) {
            continue;
        }
        let asked = share(state, class, *pool);
        let most = state.quota.potential(rule.quota, *pool);
        if asked > most {
            best = best.max_progress(Reason::ExceedsMaxQuota { asked, most });
        } else if !provision::possible_on_empty(state, class, *pool) {
            best = best.max_progress(Reason::ExceedsCeiling);
        } else {
            return None;
        }
    }
    Some(best)
}

/// Whether a tier that buys would buy, or a tier that does not buy would use, capacity of this type.
pub(crate) fn wanted(state: &State, class: ClassId, capacity: CapacityType) -> bool {
    let shape = &state.classes[class.ix()].shape;
    let buys = state.policy.as_deref().and_then(|p| p.tiers.get(shape.tier.ix())).map_or(Buys::Nothing, |t| t.buys);
    match (buys, capacity) {
        (_, CapacityType::Reserved) | (Buys::Nothing, _) => true,
        (Buys::OnDemand, c) => c == CapacityType::OnDemand,
        (Buys::SpotThenOnDemand, c) if shape.hurry == Hurry::Relaxed => c == CapacityType::Spot && shape.spot,
        (Buys::SpotThenOnDemand, c) if shape.hurry == Hurry::Urgent => c == CapacityType::OnDemand,
        (Buys::SpotThenOnDemand, c) => c == CapacityType::OnDemand || shape.spot,
        (Buys::Spot, c) => c == CapacityType::Spot && shape.spot,
    }
}

/// The GPU share that the smallest gang of a class takes in a pool, after the pool's sharing rules.
pub(crate) fn share(state: &State, class: ClassId, pool: PoolId) -> MilliGpu {
    let shape = &state.classes[class.ix()].shape;
    match &shape.gang {
        Gang::Spanning { gpus, .. } => MilliGpu::whole(u64::from(*gpus)),
        Gang::Workers { min, each, .. } => {
            let one = u64::from(each.gpus) * u64::from(place::effective_share(state, shape, pool, each));
            MilliGpu(one.saturating_mul(u64::from(*min)))
        }
    }
}

/// What quota leaves to a class in a pool. Nothing where its queue is not known.
pub(crate) fn available(state: &State, class: ClassId, pool: PoolId) -> MilliGpu {
    let rule = state.queues[state.classes[class.ix()].shape.queue.ix()].rule.as_ref();
    rule.map_or(MilliGpu(0), |r| state.quota.available(r.quota, pool))
}

/// What quota says to a gang of this share: `None` is yes.
pub(crate) fn quota_says(state: &State, class: ClassId, pool: PoolId, asked: MilliGpu) -> Option<Reason> {
    if state.queues[state.classes[class.ix()].shape.queue.ix()].rule.is_none() {
        return Some(Reason::UnknownQueue);
    }
    let available = available(state, class, pool);
    (asked > available).then_some(Reason::WaitingForQuota { asked, available })
}

impl Reason {
    /// The reason that tells more: the one that a job meets later.
    fn max_progress(self, other: Reason) -> Reason {
        if other > self { other } else { self }
    }
}
