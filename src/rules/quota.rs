//! Quota: what a gang takes of it, what the tree leaves, and what is a queue's own.
//!
//! Quota is taken when places are booked and given back when they are: a job that can have no places holds no quota.
//!
//! Never: looks at what is free. That is placement's.

use super::placement;
use crate::ids::{ClassId, PoolId, QueueId, QuotaId};
use crate::job::Gang;
use crate::reason::Reason;
use crate::state::State;
use crate::state::jobs::Job;
use crate::units::MilliGpu;
use alloc::vec::Vec;

/// The most that the queue of a class could ever have in a pool, with all borrowing and nothing else in use. `None`: the policy does not know the queue.
pub(crate) fn most_ever(state: &State, class: ClassId, pool: PoolId) -> Option<MilliGpu> {
    node_of(state, state.classes[class].shape.queue).map(|quota| state.quota.potential(quota, pool))
}

/// Whether that would hold the smallest gang of the class.
pub(crate) fn ever_holds(state: &State, class: ClassId, pool: PoolId) -> bool {
    most_ever(state, class, pool).is_some_and(|most| share(state, class, pool) <= most)
}

/// The GPU share that the smallest gang of a class takes in a pool, after the pool's sharing rules.
pub(crate) fn share(state: &State, class: ClassId, pool: PoolId) -> MilliGpu {
    let shape = &state.classes[class].shape;
    match &shape.gang {
        Gang::Spanning { gpus, .. } => MilliGpu::whole(u64::from(*gpus)),
        Gang::Workers { min, each, .. } => {
            let one = u64::from(each.gpus) * u64::from(placement::effective_share(state, shape, pool, each));
            MilliGpu(one.saturating_mul(u64::from(*min)))
        }
    }
}

/// The GPU share that one worker of the smallest gang takes, or one GPU of a spanning gang.
pub(crate) fn share_of_one(state: &State, class: ClassId, pool: PoolId) -> MilliGpu {
    MilliGpu(share(state, class, pool).0 / u64::from(state.classes[class].shape.gang.fewest().max(1)))
}

/// What quota leaves to a class in a pool, beside what is kept for others. Nothing where its queue is not known. Jobs of a class ask the same:
/// what is kept for one is for all of them.
pub(crate) fn available(state: &State, class: ClassId, pool: PoolId) -> MilliGpu {
    let Some(rule) = state.queues[state.classes[class].shape.queue].rule.as_ref() else {
        return MilliGpu(0);
    };
    let kept = state.index.kept_quota.besides(pool, class);
    let kept: Vec<_> = kept.filter_map(|(queue, share)| Some((node_of(state, queue)?, share))).collect();
    state.quota.available_beside(rule.quota, pool, &kept)
}

/// Why quota lets no gang of this share start in a pool. `None`: it does.
pub(crate) fn refusal(state: &State, class: ClassId, pool: PoolId, asked: MilliGpu) -> Option<Reason> {
    if state.queues[state.classes[class].shape.queue].rule.is_none() {
        return Some(Reason::UnknownQueue);
    }
    let available = available(state, class, pool);
    (asked > available).then_some(Reason::WaitingForQuota { asked, available })
}

/// A refusal of quota as it is told: to who asks for more than its queue could ever have in a pool, with all borrowing, nobody gives it back.
pub(crate) fn as_told(state: &State, class: ClassId, pool: PoolId, no: Reason) -> Reason {
    let Reason::WaitingForQuota { asked, .. } = no else { return no };
    let most = most_ever(state, class, pool);
    most.filter(|most| asked > *most).map_or(no, |most| Reason::ExceedsMaxQuota { asked, most })
}

/// Whether a job that waits asks for what its queue owns: as when quota was kept for it, or by what its queue has in use.
pub(crate) fn asks_own(state: &State, job: &Job, pool: PoolId) -> bool {
    job.kept.map_or_else(|| !borrows(state, job.class, pool), |kept| kept.own)
}

/// Whether a gang of a class would borrow nothing, at no level of the tree.
pub(crate) fn is_own(state: &State, class: ClassId, pool: PoolId, asked: MilliGpu) -> bool {
    let rule = state.queues[state.classes[class].shape.queue].rule.as_ref();
    let Some(quota) = rule.map(|r| r.quota) else { return false };
    if !is_within_named(state, quota, pool, class, asked) {
        return false;
    }
    let mut at = quota;
    while let Some(above) = state.quota.parent(at) {
        let kept = kept_under(state, at, pool, class);
        let used = state.quota.usage_with(quota, pool, asked, at) + kept;
        if !state.within_own(at, pool, used) {
            return false;
        }
        at = above;
    }
    true
}

/// Whether the jobs at an inner node itself would be within what it names with so much more, and with what is kept for those of other classes.
pub(crate) fn is_within_named(state: &State, quota: QuotaId, pool: PoolId, class: ClassId, asked: MilliGpu) -> bool {
    names(state, quota, pool, state.index.kept_quota.besides(pool, class), asked)
}

/// The same with what is kept for these: they stand beside its children, and that is theirs. Where nothing is below a node, all of it is its queue's.
fn names(
    state: &State,
    quota: QuotaId,
    pool: PoolId,
    kept: impl Iterator<Item = (QueueId, MilliGpu)>,
    asked: MilliGpu,
) -> bool {
    if !state.quota.inner(quota) {
        return true;
    }
    let kept = kept.filter(|(queue, _)| node_of(state, *queue) == Some(quota));
    let kept = kept.fold(MilliGpu(0), |sum, (_, share)| sum + share);
    state.quota.own_usage(quota, pool) + kept + asked <= state.quota.named(quota, pool)
}

/// Whether a gang of a class would borrow somewhere. A queue without a quota borrows where its pool has quotas.
pub(crate) fn borrows(state: &State, class: ClassId, pool: PoolId) -> bool {
    let rule = state.queues[state.classes[class].shape.queue].rule.as_ref();
    let Some(quota) = rule.map(|r| r.quota) else { return false };
    is_unowned(state, quota, pool) || !is_own(state, class, pool, share(state, class, pool))
}

/// Whether no quota is named for a queue where its pool has quotas.
pub(crate) fn is_unowned(state: &State, quota: QuotaId, pool: PoolId) -> bool {
    let root = state.lineage(quota).last();
    root.is_some_and(|root| state.quota.subtree(root, pool).is_none()) && state.has_quotas(pool)
}

/// Whether a queue has anything left of what it and all above it own, beside all that is promised there: the same for each of its jobs, however much
/// it asks.
pub(crate) fn has_own_left(state: &State, quota: QuotaId, pool: PoolId) -> bool {
    let promised = |at: QuotaId| below(state, at, state.index.kept_quota.all(pool));
    let with = |at: QuotaId| state.quota.usage_with(quota, pool, MilliGpu(1), at) + promised(at);
    let mut way = state.lineage(quota).filter(|at| state.quota.parent(*at).is_some());
    way.all(|at| state.within_own(at, pool, with(at)))
        && names(state, quota, pool, state.index.kept_quota.all(pool), MilliGpu(1))
        && !is_unowned(state, quota, pool)
}

/// What is kept in a pool for the jobs of other classes below a node of the tree: as good as in use there.
pub(crate) fn kept_under(state: &State, node: QuotaId, pool: PoolId, class: ClassId) -> MilliGpu {
    below(state, node, state.index.kept_quota.besides(pool, class))
}

/// The same for all jobs but one.
pub(crate) fn kept_under_for_others(state: &State, node: QuotaId, pool: PoolId, job: &Job) -> MilliGpu {
    let own = job
        .kept
        .filter(|kept| kept.pool == pool && state.index.kept.contains(&job.id))
        .map(|kept| (job.queue, kept.share));
    below(state, node, state.index.kept_quota.all(pool)) - below(state, node, own.into_iter())
}

fn below(state: &State, node: QuotaId, kept: impl Iterator<Item = (QueueId, MilliGpu)>) -> MilliGpu {
    let below = |queue: QueueId| node_of(state, queue).is_some_and(|quota| state.quota.is_below(quota, node));
    kept.filter(|(queue, _)| below(*queue)).fold(MilliGpu(0), |sum, (_, share)| sum + share)
}

/// The node of the quota tree that a queue is at. `None`: the policy does not know the queue.
pub(crate) fn node_of(state: &State, queue: QueueId) -> Option<QuotaId> {
    state.queues[queue].rule.as_ref().map(|rule| rule.quota)
}

/// The node of the quota tree that the queue of a job is at. `None`: the policy does not know the queue.
pub(crate) fn quota_of(state: &State, job: &Job) -> Option<QuotaId> {
    node_of(state, job.queue)
}
