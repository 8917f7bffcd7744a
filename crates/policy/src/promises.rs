//! The quota tree as written: every declared queue, the cohorts above them, and the node of undeclared queues.
//!
//! ```text
//! research: {gpus: 64}            what it and all below it are promised
//!   research/vision: {gpus: 24}   its own part of that
//!   research/(undeclared)         `quotaTogether`, where `under` is declared; else `under` itself has it
//! ```
//!
//! Never: says whether a promise can be kept. That is `check`.

use super::defaults::{ancestors, parent};
use super::written::{WrittenPolicy, WrittenQuota};
use forebay_kernel::units::MilliGpu;
use indexmap::IndexMap;
use std::collections::BTreeMap;

/// The quota tree of a policy whose defaults are filled.
pub struct Promises<'a> {
    /// What is written at each node, by pool. Parents come before their children.
    nodes: IndexMap<String, Option<&'a IndexMap<String, WrittenQuota>>>,
    /// By node and pool, the children that are promised something, with what they and all below them are promised.
    below: BTreeMap<(String, &'a str), Vec<(String, MilliGpu)>>,
}

impl<'a> Promises<'a> {
    pub fn new(filled: &'a WrittenPolicy) -> Promises<'a> {
        let declared = filled.queues.iter().flatten().map(|(path, queue)| (path.clone(), queue.quota.as_ref()));
        let undeclared = undeclared_node(filled).zip(filled.shared());
        // Where `under` is declared and has no quota for undeclared queues, it is in the list already.
        let undeclared = undeclared.filter(|(node, _)| filled.queue(node).is_none());
        let mut nodes = IndexMap::new();
        for (path, quotas) in declared.chain(undeclared.map(|(node, under)| (node, under.quota_together.as_ref()))) {
            let mut above: Vec<&str> = ancestors(&path).skip(1).collect();
            while let Some(cohort) = above.pop() {
                nodes.entry(cohort.to_owned()).or_insert(None);
            }
            nodes.insert(path, quotas);
        }
        let mut tree = Promises { nodes, below: BTreeMap::new() };
        let pools = || filled.pools.iter().flatten().map(|(name, _)| name.as_str());
        for at in (0..tree.nodes.len()).rev() {
            let Some((path, _)) = tree.nodes.get_index(at) else { continue };
            let path = path.clone();
            let Some(parent) = parent(&path) else { continue };
            for pool in pools() {
                if let Some(gpus) = tree.total(&path, pool) {
                    tree.below.entry((parent.to_owned(), pool)).or_default().push((path.clone(), gpus));
                }
            }
        }
        tree
    }

    /// Every node, parents before their children.
    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        self.nodes.keys().map(String::as_str)
    }

    /// The position of a node among them.
    pub fn position(&self, path: &str) -> Option<usize> {
        self.nodes.get_index_of(path)
    }

    /// What is written for a node in a pool.
    pub fn written(&self, path: &str, pool: &str) -> Option<&'a WrittenQuota> {
        self.nodes.get(path).copied().flatten()?.get(pool)
    }

    /// What a node and all below it are promised in a pool; `None` where nobody there names a quota for it.
    pub fn total(&self, path: &str, pool: &'a str) -> Option<MilliGpu> {
        let own = self.written(path, pool).map(|quota| quota.gpus.0);
        own.or_else(|| self.below.contains_key(&(path.to_owned(), pool)).then(|| self.total_below(path, pool)))
    }

    /// What the children of a node are promised together.
    pub fn total_below(&self, path: &str, pool: &'a str) -> MilliGpu {
        let children = self.below.get(&(path.to_owned(), pool));
        children.into_iter().flatten().fold(MilliGpu(0), |sum, (_, gpus)| sum + *gpus)
    }

    /// Each node and pool with the children that are promised something in it.
    pub fn below(&self) -> &BTreeMap<(String, &'a str), Vec<(String, MilliGpu)>> {
        &self.below
    }
}

/// The node that undeclared queues count against: `under` itself, or a child of it where it is declared and they have a quota of their
/// own.
pub fn undeclared_node(filled: &WrittenPolicy) -> Option<String> {
    let under = filled.shared()?;
    let own = filled.queue(&under.under).is_some() && under.quota_together.is_some();
    Some(if own { format!("{}/{UNDECLARED}", under.under) } else { under.under.clone() })
}

/// The last part of the path of undeclared queues with a quota of their own. No queue can be called so.
pub const UNDECLARED: &str = "(undeclared)";
