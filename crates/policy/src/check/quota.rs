//! The quota tree: what a cohort is promised must hold what its queues are promised.
//!
//! A written quota of a cohort is for all below it together. The engine counts a cohort's own quota beside its children's, so
//! the compiler takes theirs off; this is where it is made sure that something is left.
//! Never: reads ceilings.

use super::super::fault::shown;
use super::super::words::UndeclaredQueues;
use super::super::written::WrittenPolicy;
use super::Check;
use forebay_kernel::units::MilliGpu;
use forebay_quantity::GpuCount;
use std::collections::{BTreeMap, BTreeSet};

/// What the children of each path are promised: by (path, pool), with the children's own figures.
type Promises<'a> = BTreeMap<(&'a str, &'a str), Vec<(String, MilliGpu)>>;

impl Check<'_> {
    pub(super) fn quota_tree(&mut self) {
        let filled = self.filled;
        for ((path, pool), children) in promises(filled) {
            let Some(quota) =
                filled.queues.as_ref().and_then(|q| q.get(path)).and_then(|q| q.quota.as_ref()?.get(pool))
            else {
                continue;
            };
            let sum = children.iter().fold(MilliGpu(0), |sum, (_, gpus)| sum + *gpus);
            if sum > quota.gpus.0 {
                let mut parts: Vec<String> = children
                    .iter()
                    .take(6)
                    .map(|(name, gpus)| format!("`{}` {}", shown(name), GpuCount(*gpus)))
                    .collect();
                if children.len() > parts.len() {
                    parts.push(format!("{} more", children.len() - parts.len()));
                }
                let sum = GpuCount(sum);
                let what = format!(
                    "`{path}` is promised {} GPUs of pool `{pool}`, but the queues below it are promised {sum} together ({})",
                    quota.gpus,
                    parts.join(", ")
                );
                let remedy = format!("raise the quota of `{path}` to {sum}, or lower those below it");
                self.at(&["queues", path, "quota", pool, "gpus"], what, remedy);
            }
        }
    }
}

/// What a path and all below it are promised in a pool; `None` where nobody there names a quota for it.
#[must_use]
pub fn total(filled: &WrittenPolicy, path: &str, pool: &str) -> Option<MilliGpu> {
    let mut sums = BTreeMap::new();
    walk(filled, &children_of(filled), path, pool, &mut sums)
}

fn own(filled: &WrittenPolicy, path: &str, pool: &str) -> Option<MilliGpu> {
    let declared = filled.queues.as_ref().and_then(|q| q.get(path));
    if let Some(queue) = declared {
        return queue.quota.as_ref()?.get(pool).map(|q| q.gpus.0);
    }
    match &filled.undeclared_queues {
        Some(UndeclaredQueues::Shared(s)) if s.under == path => s.quota_together.as_ref()?.get(pool).map(|q| q.gpus.0),
        _ => None,
    }
}

/// What undeclared queues are promised below a declared queue: a child of it that has no path of its own.
fn together(filled: &WrittenPolicy, path: &str, pool: &str) -> Option<MilliGpu> {
    let declared = filled.queues.as_ref().is_some_and(|q| q.contains_key(path));
    match &filled.undeclared_queues {
        Some(UndeclaredQueues::Shared(s)) if declared && s.under == path => {
            s.quota_together.as_ref()?.get(pool).map(|q| q.gpus.0)
        }
        _ => None,
    }
}

type Children<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// Children by parent, undeclared cohorts in between included.
fn children_of(filled: &WrittenPolicy) -> Children<'_> {
    let mut out: Children<'_> = BTreeMap::new();
    let under = match &filled.undeclared_queues {
        Some(UndeclaredQueues::Shared(s)) => Some(s.under.as_str()),
        _ => None,
    };
    for path in filled.queues.iter().flat_map(|q| q.keys()).map(String::as_str).chain(under) {
        let mut at = path;
        while let Some(parent) = super::super::defaults::parent(at) {
            if !out.entry(parent).or_default().insert(at) {
                break;
            }
            at = parent;
        }
    }
    out
}

fn walk<'a>(
    filled: &'a WrittenPolicy,
    children: &Children<'a>,
    path: &str,
    pool: &str,
    sums: &mut BTreeMap<String, Option<MilliGpu>>,
) -> Option<MilliGpu> {
    if let Some(known) = sums.get(path) {
        return *known;
    }
    let found = own(filled, path, pool).or_else(|| {
        let below = children.get(path).into_iter().flatten().map(|c| walk(filled, children, c, pool, sums));
        let parts: Vec<MilliGpu> = below.flatten().chain(together(filled, path, pool)).collect();
        (!parts.is_empty()).then(|| parts.into_iter().fold(MilliGpu(0), |a, b| a + b))
    });
    sums.insert(path.to_owned(), found);
    found
}

fn promises(filled: &WrittenPolicy) -> Promises<'_> {
    let children = children_of(filled);
    let mut out: Promises<'_> = BTreeMap::new();
    for pool in filled.pools.iter().flat_map(|p| p.keys()).map(String::as_str) {
        let mut sums = BTreeMap::new();
        for (path, below) in &children {
            for child in below {
                if let Some(gpus) = walk(filled, &children, child, pool, &mut sums) {
                    out.entry((path, pool)).or_default().push(((*child).to_owned(), gpus));
                }
            }
        }
        for path in filled.queues.iter().flat_map(|q| q.keys()).map(String::as_str) {
            if let Some(gpus) = together(filled, path, pool) {
                out.entry((path, pool)).or_default().push(("undeclared queues".to_owned(), gpus));
            }
        }
    }
    out
}
