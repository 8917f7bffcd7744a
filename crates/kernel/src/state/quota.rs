//! Quota arithmetic: a tree a pool, with borrowing and lending, in O(depth).
//!
//! Source: the recurrences of Kueue's resource tree. For each node and pool:
//! `local = max(0, subtree - lend)`, 0 without a lending limit; `subtree = nominal + sum over children (subtree - local)`;
//! `available = max(0, local - usage) + min(parent.available, (subtree - local) - max(0, usage - local) + borrow)`, without the
//! second term when borrowing is unbounded; at the root `subtree - usage`. Use rises to the parent only past `local`.
//!
//! Never: looks at jobs. It knows numbers only.

use crate::ids::{PoolId, QuotaId};
use crate::policy::{Policy, QuotaLimit};
use crate::units::MilliGpu;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// The tree of one policy, with what each node may use.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct QuotaTree {
    nodes: Vec<Node>,
    /// Use by node and pool, as it rose to that node.
    usage: BTreeMap<(QuotaId, PoolId), MilliGpu>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Node {
    parent: Option<QuotaId>,
    /// Others are below it.
    inner: bool,
    cells: BTreeMap<PoolId, Cell>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
struct Cell {
    /// `None`: no bound here at all (a root that names no quota for this pool).
    subtree: Option<MilliGpu>,
    local: MilliGpu,
    borrow: Option<MilliGpu>,
}

/// More than any quota: stands for "no bound".
const UNBOUNDED: MilliGpu = MilliGpu(u64::MAX / 4);

impl QuotaTree {
    /// The tree of a policy, with nothing in use.
    #[must_use]
    pub fn new(policy: &Policy) -> QuotaTree {
        let pools: Vec<PoolId> = (0..policy.pools.len()).map(|i| PoolId(i as u16)).collect();
        let mut nodes: Vec<Node> =
            policy.quotas.iter().map(|q| Node { parent: q.parent, inner: false, cells: BTreeMap::new() }).collect();
        for parent in policy.quotas.iter().filter_map(|q| q.parent) {
            if let Some(node) = nodes.get_mut(parent.index()) {
                node.inner = true;
            }
        }
        // Parents come before children, so children are summed on the way back.
        let mut lent: BTreeMap<(usize, PoolId), MilliGpu> = BTreeMap::new();
        for at in (0..policy.quotas.len()).rev() {
            let quota = &policy.quotas[at];
            for &pool in &pools {
                let children = lent.get(&(at, pool)).copied();
                let limit = quota.limits.get(&pool).copied();
                let cell = cell(limit, children, quota.parent.is_none());
                if let (Some(parent), Some(subtree)) = (quota.parent, cell.subtree) {
                    let sum = lent.entry((parent.index(), pool)).or_default();
                    *sum = *sum + (subtree - cell.local);
                }
                nodes[at].cells.insert(pool, cell);
            }
        }
        QuotaTree { nodes, usage: BTreeMap::new() }
    }

    /// What a queue at `quota` may still take in `pool`.
    #[must_use]
    pub fn available(&self, quota: QuotaId, pool: PoolId) -> MilliGpu {
        self.available_given(quota, pool, &|quota| self.usage(quota, pool))
    }

    /// What a queue at `quota` could ever take in `pool`, with nothing else in use.
    #[must_use]
    pub fn potential(&self, quota: QuotaId, pool: PoolId) -> MilliGpu {
        self.available_given(quota, pool, &|_| MilliGpu(0))
    }

    /// What a queue at `quota` may still take in `pool` beside what is kept there for others.
    #[must_use]
    pub fn available_beside(&self, quota: QuotaId, pool: PoolId, kept: &[(QuotaId, MilliGpu)]) -> MilliGpu {
        if kept.is_empty() {
            return self.available(quota, pool);
        }
        let mut used: BTreeMap<QuotaId, MilliGpu> = BTreeMap::new();
        for (at, share) in kept {
            self.change(&mut used, pool, (*at, *share), |used, more| used + more);
        }
        self.available_given(quota, pool, &|id| used.get(&id).copied().unwrap_or_else(|| self.usage(id, pool)))
    }

    /// What would be in use in `pool` without so much at some nodes, and above them as it rises there: of the nodes at which that is less.
    #[must_use]
    pub fn used_without(
        &self,
        pool: PoolId,
        gone: impl Iterator<Item = (QuotaId, MilliGpu)>,
    ) -> BTreeMap<QuotaId, MilliGpu> {
        let mut used: BTreeMap<QuotaId, MilliGpu> = BTreeMap::new();
        for gone in gone {
            self.change(&mut used, pool, gone, |used, less| used - less);
        }
        used
    }

    /// Changes what is in use at a node by so much, and above it as that rises there.
    fn change(
        &self,
        used: &mut BTreeMap<QuotaId, MilliGpu>,
        pool: PoolId,
        (at, by): (QuotaId, MilliGpu),
        becomes: fn(MilliGpu, MilliGpu) -> MilliGpu,
    ) {
        let (mut at, mut by) = (Some(at), by);
        while let Some(id) = at.filter(|_| by > MilliGpu(0)) {
            let sum = used.entry(id).or_insert_with(|| self.usage(id, pool));
            let (before, local) = (*sum, self.cell(id, pool).local);
            *sum = becomes(before, by);
            let (was, is) = (before - local, *sum - local);
            by = is.max(was) - is.min(was);
            at = self.parent(id);
        }
    }

    /// What a queue at `quota` could still take in `pool` if so much were in use at each node.
    #[must_use]
    pub fn available_given(&self, quota: QuotaId, pool: PoolId, used: &dyn Fn(QuotaId) -> MilliGpu) -> MilliGpu {
        let Some(node) = self.nodes.get(quota.index()) else {
            return MilliGpu(0);
        };
        let cell = node.cells.get(&pool).copied().unwrap_or_default();
        let usage = used(quota);
        let Some(parent) = node.parent else {
            return match cell.subtree {
                Some(subtree) => subtree - usage,
                None => UNBOUNDED,
            };
        };
        let subtree = cell.subtree.unwrap_or_default();
        let own = cell.local - usage;
        let above = self.available_given(parent, pool, used);
        let shared = match cell.borrow {
            None => above,
            Some(borrow) => {
                let used_above = usage - cell.local;
                above.min(((subtree - cell.local) + borrow) - used_above)
            }
        };
        own + shared
    }

    /// The node above.
    #[must_use]
    pub fn parent(&self, quota: QuotaId) -> Option<QuotaId> {
        self.nodes.get(quota.index()).and_then(|n| n.parent)
    }

    /// Whether a node has others below it.
    #[must_use]
    pub fn inner(&self, quota: QuotaId) -> bool {
        self.nodes.get(quota.index()).is_some_and(|n| n.inner)
    }

    /// The nodes right below one.
    pub fn children(&self, quota: QuotaId) -> impl Iterator<Item = QuotaId> + '_ {
        // Parents come before their children.
        let behind = self.nodes.iter().enumerate().skip(quota.index() + 1);
        behind.filter(move |(_, n)| n.parent == Some(quota)).map(|(at, _)| QuotaId(at as u16))
    }

    /// What a node keeps to itself: use up to here does not rise.
    pub fn kept(&self, quota: QuotaId, pool: PoolId) -> MilliGpu {
        self.cell(quota, pool).local
    }

    /// What is in use at `quota` in `pool`, as it rose there.
    #[must_use]
    pub fn usage(&self, quota: QuotaId, pool: PoolId) -> MilliGpu {
        self.usage.get(&(quota, pool)).copied().unwrap_or_default()
    }

    /// What is borrowed: in use above the subtree's own quota.
    #[must_use]
    pub fn borrowed(&self, quota: QuotaId, pool: PoolId) -> MilliGpu {
        self.borrowed_with(quota, pool, MilliGpu(0))
    }

    /// What would be borrowed with so much more in use.
    pub fn borrowed_with(&self, quota: QuotaId, pool: PoolId, more: MilliGpu) -> MilliGpu {
        let subtree = self.nodes.get(quota.index()).and_then(|n| n.cells.get(&pool)).and_then(|c| c.subtree);
        self.usage(quota, pool) + more - subtree.unwrap_or_default()
    }

    /// What a node names for itself. Its own jobs stand beside its children, and this is what they own.
    #[must_use]
    pub fn named(&self, quota: QuotaId, pool: PoolId) -> MilliGpu {
        let lent = |child| self.subtree(child, pool).unwrap_or_default() - self.kept(child, pool);
        let below = self.children(quota).map(lent).fold(MilliGpu(0), |all, one| all + one);
        self.subtree(quota, pool).unwrap_or_default() - below
    }

    /// What the jobs at a node itself use, without what rises from its children.
    #[must_use]
    pub fn own_usage(&self, quota: QuotaId, pool: PoolId) -> MilliGpu {
        self.own_usage_given(quota, pool, &|at| self.usage(at, pool))
    }

    /// What the jobs at a node itself would use if so much were in use at each node.
    #[must_use]
    pub fn own_usage_given(&self, quota: QuotaId, pool: PoolId, used: &dyn Fn(QuotaId) -> MilliGpu) -> MilliGpu {
        let rises = |child| used(child) - self.kept(child, pool);
        let below = self.children(quota).map(rises).fold(MilliGpu(0), |all, one| all + one);
        used(quota) - below
    }

    /// What the jobs at each inner node use themselves, where anything is in use there.
    #[must_use]
    pub fn own_in_use(&self) -> BTreeMap<(QuotaId, PoolId), MilliGpu> {
        let mut own: BTreeMap<_, _> = self.in_use().filter(|((quota, _), _)| self.inner(*quota)).collect();
        for ((quota, pool), usage) in self.in_use() {
            let above = self.parent(quota).and_then(|above| own.get_mut(&(above, pool)));
            if let Some(left) = above {
                *left = *left - (usage - self.kept(quota, pool));
            }
        }
        own
    }

    /// Whether a queue at `quota`, or a cohort above it, uses more than its subtree's own quota. The jobs of a cohort itself borrow beyond what it names.
    #[must_use]
    pub fn borrows(&self, quota: QuotaId, pool: PoolId) -> bool {
        if self.inner(quota) && self.own_usage(quota, pool) > self.named(quota, pool) {
            return true;
        }
        let mut at = Some(quota);
        while let Some(id) = at {
            let parent = self.parent(id);
            if parent.is_some() && self.borrowed(id, pool) > MilliGpu(0) {
                return true;
            }
            at = parent;
        }
        false
    }

    /// What a node's subtree owns. `None`: it has no bound.
    #[must_use]
    pub fn subtree(&self, quota: QuotaId, pool: PoolId) -> Option<MilliGpu> {
        self.nodes.get(quota.index())?.cells.get(&pool)?.subtree
    }

    /// Whether a node is `above`, or has it on its way up.
    pub fn is_below(&self, quota: QuotaId, above: QuotaId) -> bool {
        let mut at = Some(quota);
        while let Some(id) = at.filter(|id| *id != above) {
            at = self.parent(id);
        }
        at.is_some()
    }

    /// What would be in use at `at` if a queue at `quota` below it took `more`.
    pub fn usage_with(&self, quota: QuotaId, pool: PoolId, more: MilliGpu, at: QuotaId) -> MilliGpu {
        let (mut id, mut more) = (quota, more);
        while id != at {
            let (before, local) = (self.usage(id, pool), self.cell(id, pool).local);
            more = (before + more - local) - (before - local);
            let Some(parent) = self.parent(id) else { break };
            id = parent;
        }
        self.usage(at, pool) + more
    }

    fn cell(&self, quota: QuotaId, pool: PoolId) -> Cell {
        self.nodes.get(quota.index()).and_then(|n| n.cells.get(&pool)).copied().unwrap_or_default()
    }

    /// All cells in use, for the audit.
    pub fn in_use(&self) -> impl Iterator<Item = ((QuotaId, PoolId), MilliGpu)> + '_ {
        self.usage.iter().map(|(k, v)| (*k, *v))
    }

    /// Uses above what may be used: the node's subtree and what it may borrow, or the root's subtree.
    pub(crate) fn above_bounds(&self) -> Vec<(QuotaId, PoolId, MilliGpu)> {
        let over = |(&(quota, pool), &usage): (&(QuotaId, PoolId), &MilliGpu)| {
            let most = self.bound(quota, pool)?;
            (usage > most).then(|| (quota, pool, usage - most))
        };
        self.usage.iter().filter_map(over).collect()
    }

    /// The most that may be in use at a node: its subtree's own and what it may borrow. `None`: it has no bound.
    #[must_use]
    pub fn bound(&self, quota: QuotaId, pool: PoolId) -> Option<MilliGpu> {
        let node = self.nodes.get(quota.index())?;
        let cell = node.cells.get(&pool)?;
        let subtree = cell.subtree?;
        match (node.parent, cell.borrow) {
            (Some(_), None) => None,
            (Some(_), Some(borrow)) => Some(subtree + borrow),
            (None, _) => Some(subtree),
        }
    }

    pub(crate) fn take(&mut self, quota: QuotaId, pool: PoolId, amount: MilliGpu) {
        let before = self.usage(quota, pool);
        self.set(quota, pool, before + amount);
        self.pass_up(quota, pool, before, before + amount);
    }

    pub(crate) fn give_back(&mut self, quota: QuotaId, pool: PoolId, amount: MilliGpu) {
        let before = self.usage(quota, pool);
        self.set(quota, pool, before - amount);
        self.pass_up(quota, pool, before, before - amount);
    }

    fn pass_up(&mut self, quota: QuotaId, pool: PoolId, before: MilliGpu, after: MilliGpu) {
        let Some(node) = self.nodes.get(quota.index()) else {
            return;
        };
        let Some(parent) = node.parent else { return };
        let local = node.cells.get(&pool).map(|c| c.local).unwrap_or_default();
        let (was, is) = (before - local, after - local);
        if is > was {
            self.take(parent, pool, is - was);
        } else if was > is {
            self.give_back(parent, pool, was - is);
        }
    }

    fn set(&mut self, quota: QuotaId, pool: PoolId, amount: MilliGpu) {
        if amount == MilliGpu(0) {
            self.usage.remove(&(quota, pool));
        } else {
            self.usage.insert((quota, pool), amount);
        }
    }
}

fn cell(limit: Option<QuotaLimit>, children: Option<MilliGpu>, root: bool) -> Cell {
    let Some(limit) = limit else {
        // No quota named here: a cohort passes its children's on; a root without any bounds nothing.
        let subtree = if root && children.is_none() { None } else { Some(children.unwrap_or_default()) };
        return Cell { subtree, local: MilliGpu(0), borrow: None };
    };
    let subtree = limit.nominal + children.unwrap_or_default();
    let local = limit.lend.map_or(MilliGpu(0), |lend| subtree - lend);
    Cell { subtree: Some(subtree), local, borrow: limit.borrow }
}
