//! Quota that is kept for jobs that wait: sums by pool and queue, and what of them is for the jobs of one class.
//!
//! Never: what a job is kept more than once.

use super::jobs::{Job, Kept};
use crate::ids::{ClassId, PoolId, QueueId};
use crate::units::MilliGpu;
use alloc::collections::BTreeMap;

/// The sums. What is nothing has no entry.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KeptQuota {
    by_queue: BTreeMap<(PoolId, QueueId), MilliGpu>,
    by_class: BTreeMap<(PoolId, QueueId, ClassId), MilliGpu>,
}

impl KeptQuota {
    pub(super) fn add(&mut self, job: &Job, kept: Kept) {
        if kept.share == MilliGpu(0) {
            return;
        }
        let queue = self.by_queue.entry((kept.pool, job.queue)).or_default();
        *queue = *queue + kept.share;
        let class = self.by_class.entry((kept.pool, job.queue, job.class)).or_default();
        *class = *class + kept.share;
    }

    pub(super) fn remove(&mut self, job: &Job, kept: Kept) {
        less(&mut self.by_queue, (kept.pool, job.queue), kept.share);
        less(&mut self.by_class, (kept.pool, job.queue, job.class), kept.share);
    }

    /// What is kept in a pool, by queue.
    pub fn all(&self, pool: PoolId) -> impl Iterator<Item = (QueueId, MilliGpu)> + '_ {
        let queues = self.by_queue.range((pool, QueueId(0))..=(pool, QueueId(u32::MAX)));
        queues.map(|((_, queue), share)| (*queue, *share))
    }

    /// What is kept in a pool, by queue, for the jobs of other classes than one.
    pub fn besides(&self, pool: PoolId, class: ClassId) -> impl Iterator<Item = (QueueId, MilliGpu)> + '_ {
        self.all(pool).map(move |(queue, all)| {
            let own = self.by_class.get(&(pool, queue, class)).copied().unwrap_or_default();
            (queue, all - own)
        })
    }
}

fn less<K: Ord>(sums: &mut BTreeMap<K, MilliGpu>, at: K, share: MilliGpu) {
    let Some(sum) = sums.get_mut(&at) else { return };
    *sum = *sum - share;
    if *sum == MilliGpu(0) {
        sums.remove(&at);
    }
}
