//! Who owns quota: a node of the quota tree with all below it, and beside the children of a node the jobs of that node's own queue.
//!
//! ```text
//! cohort             a subtree: what it names, and what its children lend
//!   its own jobs     what the cohort names: they stand as one more child, which keeps nothing to itself
//!   child            a subtree
//! ```
//!
//! Never: says who of those that hold its quota is within it. That is rank.rs.

use crate::ids::{PoolId, QuotaId};
use crate::state::State;
use crate::units::MilliGpu;
use alloc::vec::Vec;

/// Who owns quota of a pool.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum QuotaOwner {
    /// A node with all below it.
    Subtree(QuotaId),
    /// The jobs of an inner node's own queue.
    OwnJobs(QuotaId),
}

impl QuotaOwner {
    /// Those whose quota the jobs of a queue use, from the root down.
    pub(super) fn lineage(state: &State, quota: QuotaId) -> Vec<QuotaOwner> {
        let own = Some(quota).filter(|at| state.quota.inner(*at)).map(QuotaOwner::OwnJobs);
        let mut up: Vec<QuotaOwner> = own.into_iter().chain(state.lineage(quota).map(QuotaOwner::Subtree)).collect();
        up.reverse();
        up
    }

    /// Those right below it.
    pub(super) fn children(self, state: &State) -> impl Iterator<Item = QuotaOwner> + '_ {
        let node = match self {
            QuotaOwner::Subtree(node) => Some(node),
            QuotaOwner::OwnJobs(_) => None,
        };
        let own = node.filter(|at| state.quota.inner(*at)).map(QuotaOwner::OwnJobs);
        let below = node.into_iter().flat_map(move |at| state.quota.children(at)).map(QuotaOwner::Subtree);
        own.into_iter().chain(below)
    }

    /// The node whose own jobs alone use its quota. `None`: others are below it.
    pub(super) fn queue(self, state: &State) -> Option<QuotaId> {
        match self {
            QuotaOwner::Subtree(node) => Some(node).filter(|at| !state.quota.inner(*at)),
            QuotaOwner::OwnJobs(node) => Some(node),
        }
    }

    /// What it owns. `None`: it has no bound.
    pub(super) fn owns(self, state: &State, pool: PoolId) -> Option<MilliGpu> {
        match self {
            QuotaOwner::Subtree(node) => state.quota.subtree(node, pool),
            QuotaOwner::OwnJobs(node) => Some(state.quota.named(node, pool)),
        }
    }

    /// What it keeps to itself: use up to here does not rise.
    pub(super) fn kept(self, state: &State, pool: PoolId) -> MilliGpu {
        match self {
            QuotaOwner::Subtree(node) => state.quota.kept(node, pool),
            QuotaOwner::OwnJobs(_) => MilliGpu(0),
        }
    }

    /// What is in use of its quota.
    pub(super) fn usage(self, state: &State, pool: PoolId) -> MilliGpu {
        match self {
            QuotaOwner::Subtree(node) => state.quota.usage(node, pool),
            QuotaOwner::OwnJobs(node) => state.quota.own_usage(node, pool),
        }
    }

    /// What would be in use of it if a queue below it took so much more.
    pub(super) fn usage_with(self, state: &State, pool: PoolId, queue: QuotaId, more: MilliGpu) -> MilliGpu {
        match self {
            QuotaOwner::Subtree(node) => state.quota.usage_with(queue, pool, more, node),
            QuotaOwner::OwnJobs(node) => state.quota.own_usage(node, pool) + more,
        }
    }
}
