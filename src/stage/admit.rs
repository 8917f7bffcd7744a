//! admit: may this job have what it asks, by quota and by what exists at all?
//!
//! Quota is taken when places are booked and given back when they are: a job that can have no places holds no quota.
//!
//! Never: looks at what is free. That is place's.

use super::{afford, place, provision, reclaim};
use crate::catalog::CapacityType;
use crate::engine::Engine;
use crate::ids::{ClassId, JobId, PoolId};
use crate::job::Gang;
use crate::policy::{Buys, WhenLate};
use crate::reason::Reason;
use crate::state::jobs::Kept;
use crate::state::{Hurry, Shape, State};
use crate::units::{MilliGpu, Millis};
use alloc::vec::Vec;

/// Replicas of one service at most: beyond it lies a slip of the pen, not a service.
const MOST_REPLICAS: u32 = 10_000;

/// Why a job can never run under the policy in force, if it cannot.
pub(crate) fn impossible(engine: &Engine, id: JobId) -> Option<Reason> {
    let state = &engine.state;
    let (job, spec) = (&state.jobs[id.ix()], &state.specs[id.ix()]);
    let queue = &state.queues[job.queue.ix()];
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
        } else if !provision::possible_on_empty(state, class, *pool) || afford::never(state, class, *pool) {
            let apart = provision::only_apart(state, class, *pool);
            let no = apart.map_or(Reason::ExceedsCeiling, |level| Reason::TopologyUnsatisfied { level });
            best = best.max_progress(no);
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
        (_, CapacityType::OnDemand) if late(state, shape) => true,
        (_, CapacityType::Reserved) | (Buys::Nothing, _) => true,
        (Buys::OnDemand, c) => c == CapacityType::OnDemand,
        (Buys::SpotThenOnDemand, c) if shape.hurry == Hurry::Relaxed => c == CapacityType::Spot && shape.spot,
        (Buys::SpotThenOnDemand, c) if shape.hurry == Hurry::Urgent => c == CapacityType::OnDemand,
        (Buys::SpotThenOnDemand, c) => c == CapacityType::OnDemand || shape.spot,
        (Buys::Spot, c) => c == CapacityType::Spot && shape.spot,
    }
}

/// Whether jobs of a shape missed their queue's target, and the queue has on-demand bought for such jobs.
pub(crate) fn late(state: &State, shape: &Shape) -> bool {
    let target = state.queues[shape.queue.ix()].rule.as_ref().and_then(|rule| rule.start);
    shape.late && target.is_some_and(|target| target.when_late == WhenLate::BuyOnDemand)
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
    available_beside(state, class, pool, |_| true)
}

/// The same, beside only some of what is kept for others. Jobs of a class ask the same: what is kept for one is for all of them.
fn available_beside(state: &State, class: ClassId, pool: PoolId, counts: impl Fn(&Kept) -> bool) -> MilliGpu {
    let Some(rule) = state.queues[state.classes[class.ix()].shape.queue.ix()].rule.as_ref() else {
        return MilliGpu(0);
    };
    let of = |id: &JobId| {
        let job = &state.jobs[id.ix()];
        let kept = job.kept.filter(|k| k.pool == pool && job.class != class && counts(k))?;
        Some((state.queues[job.queue.ix()].rule.as_ref()?.quota, kept.share))
    };
    let kept: Vec<_> = state.ix.kept.iter().filter_map(of).collect();
    state.quota.available_beside(rule.quota, pool, &kept)
}

/// What quota says to a gang of this share: `None` is yes.
pub(crate) fn quota_says(state: &State, class: ClassId, pool: PoolId, asked: MilliGpu) -> Option<Reason> {
    if state.queues[state.classes[class.ix()].shape.queue.ix()].rule.is_none() {
        return Some(Reason::UnknownQueue);
    }
    let available = available(state, class, pool);
    if asked <= available {
        return None;
    }
    // Whoever asks for its own goes before those for whom borrowed quota is kept.
    let before = reclaim::is_own(state, class, pool, asked);
    let no = !before || asked > available_beside(state, class, pool, |kept| kept.own);
    no.then_some(Reason::WaitingForQuota { asked, available })
}

/// What its batch says to a job: as many of it hold places at once as its width allows. `None` is yes.
pub(crate) fn batch_says(state: &State, id: JobId) -> Option<Reason> {
    let (width, wider) = batch_width(state, id)?;
    let running = batch_runs(state, state.jobs[id.ix()].class);
    (running >= width).then(|| Reason::Batched { running, until: wider(running) })
}

/// How many more jobs of a batch may have places now, this one counted. Without a batch: all.
pub(crate) fn batch_room(state: &State, id: JobId) -> u64 {
    let running = batch_runs(state, state.jobs[id.ix()].class);
    batch_width(state, id).map_or(u64::MAX, |(width, _)| u64::from(width.saturating_sub(running)))
}

/// Whether a booked job waits for its node beside others of its batch: elsewhere it would take a GPU more.
pub(crate) fn stays_beside(state: &State, id: JobId) -> bool {
    let class = state.jobs[id.ix()].class;
    let shape = &state.classes[class.ix()].shape;
    shape.batch.is_some() && shape.shares && batch_runs(state, class) > 1
}

fn batch_runs(state: &State, class: ClassId) -> u32 {
    state.ix.holding.get(&class).map_or(0, |jobs| jobs.len() as u32)
}

/// How many of a batch may have places at once, and when so many are too few: one, and one more for each start target that has
/// passed while its head waited.
fn batch_width(state: &State, id: JobId) -> Option<(u32, impl Fn(u32) -> Option<Millis>)> {
    let job = &state.jobs[id.ix()];
    let shape = &state.classes[job.class.ix()].shape;
    shape.batch?;
    let rule = state.queues[shape.queue.ix()].rule.as_ref();
    let within = rule.and_then(|r| r.start).map(|s| s.within.0).filter(|within| *within > 0);
    // One that has run before waits since it came back.
    let from = if job.first_start.is_none() { job.arrival } else { job.since };
    let passed = within.map_or(0, |within| state.now.since(from).0 / within);
    let width = u32::try_from(passed).unwrap_or(u32::MAX).saturating_add(1);
    Some((width, move |running| {
        within.map(|within| from + crate::units::Span(within.saturating_mul(u64::from(running))))
    }))
}

impl Reason {
    /// The reason that tells more: the one that a job meets later.
    fn max_progress(self, other: Reason) -> Reason {
        if other > self { other } else { self }
    }
}
