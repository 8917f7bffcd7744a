//! What a reason names, in words: its ids are of one state alone.
//!
//! Never: a name that is not the policy's or the state's own.

use super::State;
use crate::ids::QueueId;
use crate::reason::Reason;
use alloc::string::{String, ToString};

impl State {
    /// The name of what a reason has by its id: a queue, an offering or a pool; of a job that something is kept for, its queue.
    #[must_use]
    pub fn named_by(&self, reason: Reason) -> Option<String> {
        let queue = |id: QueueId| self.queues.get(id).map(|queue| queue.path.clone());
        match reason {
            Reason::PreemptedBy { queue: id }
            | Reason::QuotaReclaimed { queue: id }
            | Reason::ForbiddenTier { queue: id } => queue(id),
            Reason::KeptForAnother { job, .. } => queue(self.jobs.get(job)?.queue),
            Reason::Stockout { offering, .. }
            | Reason::LaunchRefused { offering, .. }
            | Reason::AwaitingProbe { offering, .. } => {
                self.offerings.get(offering.index()).map(|row| row.offer.to_string())
            }
            Reason::OwnedNodesFull { pool, .. } | Reason::PoolDraining { pool, .. } => {
                Some(self.policy()?.pools.get(pool.index())?.name.clone())
            }
            _ => None,
        }
    }
}
