//! The rules that undeclared queues share, as those of a queue: what `compile` gives the engine for them.
//!
//! Never: their quota, which belongs to a node of the quota tree (`promises`).

use super::defaults::{ancestors, default_tier};
use super::written::{WrittenPolicy, WrittenPreemptWithin, WrittenQueue, WrittenReclaim};

/// The rules of undeclared queues, and where they come from.
pub struct UndeclaredRule<'a> {
    /// The declared queue whose rules they are: `under`, or else the nearest above it. `None`: those of a queue that states nothing.
    pub stated_by: Option<&'a str>,
    /// The rules, without quota, weight and budget.
    pub queue: WrittenQueue,
}

/// The rules that undeclared queues share under a policy whose defaults are filled; `None` where they are rejected.
pub fn undeclared_rule(filled: &WrittenPolicy) -> Option<UndeclaredRule<'_>> {
    let under = filled.shared()?.under.as_str();
    let stated_by = ancestors(under).find(|path| filled.queue(path).is_some());
    let queue = match stated_by.and_then(|path| filled.queue(path)) {
        Some(declared) => WrittenQueue { quota: None, weight: None, budget: None, ..declared.clone() },
        None => stating_nothing(filled),
    };
    Some(UndeclaredRule { stated_by, queue })
}

/// A queue at the root that states nothing: the default tier, and all pools.
fn stating_nothing(filled: &WrittenPolicy) -> WrittenQueue {
    let tiers = filled.tiers.as_ref();
    let tier = tiers.and_then(default_tier);
    let priority = tiers.zip(tier.as_ref()).and_then(|(tiers, own)| tiers.get(own)).map(|own| own.priority);
    let lower = tiers.into_iter().flatten().filter(|(_, other)| Some(other.priority) < priority);
    let asked = tier.iter().chain(lower.map(|(name, _)| name)).cloned().collect();
    WrittenQueue {
        tier,
        tiers: Some(asked),
        pools: Some(filled.pools.iter().flatten().map(|(name, _)| name.clone()).collect()),
        reclaim: Some(WrittenReclaim::Any),
        preempt_within: Some(WrittenPreemptWithin::LowerTiers),
        ..WrittenQueue::default()
    }
}
