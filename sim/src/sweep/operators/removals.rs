//! Policies that lack something which another has: one of its pools, a pool's name, its budgets. Made as if each had been written so: what refers to
//! a pool refers to it by its new position, and offerings of no pool are not listed.
//!
//! Never: a policy without a pool that buys, or a queue without a pool.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use forebay_kernel::ids::PoolId;
use forebay_kernel::policy::{Policy, QueueRule, Undeclared};

/// The end of the name of a pool that has another for a while.
const RENAMED: &str = "-renamed";

/// The name that a pool has in the seed's own policy.
pub(in crate::sweep) fn first_name(pool: &str) -> &str {
    pool.strip_suffix(RENAMED).unwrap_or(pool)
}

/// The name that a pool has for a while.
pub(super) fn other_name(pool: &str) -> String {
    format!("{pool}{RENAMED}")
}

/// The policy without one of its pools that buy. `None`: it has no other.
pub(super) fn without_pool(policy: &Policy, nth: u64) -> Option<Policy> {
    let gone = pool_that_buys(policy, nth)?;
    let mut policy = policy.clone();
    policy.pools.remove(gone);
    let instead = PoolId(u16::try_from(pool_that_buys(&policy, 0)?).ok()?);
    let moved = |pool: PoolId| match pool.index().cmp(&gone) {
        Ordering::Less => Some(pool),
        Ordering::Equal => None,
        Ordering::Greater => Some(PoolId(pool.0 - 1)),
    };
    let follow = |rule: &mut QueueRule| {
        rule.pools = rule.pools.iter().filter_map(|pool| moved(*pool)).collect();
        if rule.pools.is_empty() {
            rule.pools.push(instead);
        }
    };
    policy.queues.values_mut().for_each(&follow);
    if let Undeclared::Under { rule, .. } = &mut policy.undeclared {
        follow(rule);
    }
    for node in &mut policy.quotas {
        let limits = std::mem::take(&mut node.limits);
        node.limits = limits.into_iter().filter_map(|(pool, limit)| Some((moved(pool)?, limit))).collect();
    }
    unlist(&mut policy);
    Some(policy)
}

/// The policy with another name for one of its pools that buy, and the same offerings in it.
pub(super) fn with_renamed_pool(policy: &Policy, nth: u64) -> Option<Policy> {
    let at = pool_that_buys(policy, nth)?;
    let mut policy = policy.clone();
    policy.pools[at].name = other_name(&policy.pools[at].name);
    Some(policy)
}

/// The policy without some of its budgets. `None`: none of them goes.
pub(super) fn without_budgets(policy: &Policy, goes: impl Fn(u64) -> bool) -> Option<Policy> {
    let mut without = policy.clone();
    let budgets = without.quotas.iter_mut().filter(|node| node.budget.is_some());
    for (nth, node) in (0..).zip(budgets) {
        if goes(nth) {
            node.budget = None;
        }
    }
    (without != *policy).then_some(without)
}

/// The position of a pool whose nodes are bought.
fn pool_that_buys(policy: &Policy, nth: u64) -> Option<usize> {
    let buy: Vec<usize> = (0..policy.pools.len()).filter(|at| policy.pools[*at].owned.is_none()).collect();
    buy.get(usize::try_from(nth.checked_rem(buy.len() as u64)?).ok()?).copied()
}

/// Leaves out offerings of no pool.
fn unlist(policy: &mut Policy) {
    let used: BTreeSet<u32> = policy.pools.iter().flat_map(|pool| pool.offerings.iter().copied()).collect();
    let positions: BTreeMap<u32, u32> = used.iter().copied().zip(0..).collect();
    let offerings = used.iter().filter_map(|at| policy.offerings.get(usize::try_from(*at).ok()?).cloned());
    policy.offerings = offerings.collect();
    for pool in &mut policy.pools {
        pool.offerings = pool.offerings.iter().filter_map(|at| positions.get(at).copied()).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies;

    #[test]
    fn a_policy_without_a_pool_refers_only_to_what_it_has() {
        let mut without = 0;
        for policy in (0..100).map(policies::random) {
            for nth in 0..2 {
                let Some(less) = without_pool(&policy, nth) else {
                    assert_eq!(policy.pools.len(), 1, "{}", policy.name);
                    continue;
                };
                without += 1;
                let gone = &policy.pools[usize::try_from(nth).unwrap()];
                assert!(less.pools.iter().all(|pool| pool.name != gone.name), "{}", policy.name);
                for pool in &less.pools {
                    let before = policy.pools.iter().find(|other| other.name == pool.name).unwrap();
                    let offers = |of: &Policy, list: &[u32]| -> Vec<_> {
                        list.iter().map(|at| of.offerings[usize::try_from(*at).unwrap()].clone()).collect()
                    };
                    assert_eq!(offers(&less, &pool.offerings), offers(&policy, &before.offerings), "{}", policy.name);
                }
                for rule in less.rules() {
                    assert!(!rule.pools.is_empty() && rule.pools.iter().all(|pool| pool.index() < less.pools.len()));
                }
                let limits = less.quotas.iter().flat_map(|node| node.limits.keys());
                assert!(limits.into_iter().all(|pool| pool.index() < less.pools.len()), "{}", policy.name);
            }
        }
        assert!(without > 20, "{without} policies without a pool");
    }

    #[test]
    fn a_renamed_pool_is_as_it_was() {
        let policy = policies::random(3);
        let renamed = with_renamed_pool(&policy, 0).unwrap();
        assert_ne!(renamed.pools[0].name, policy.pools[0].name);
        assert_eq!(first_name(&renamed.pools[0].name), policy.pools[0].name);
        assert_eq!(renamed.pools[0].offerings, policy.pools[0].offerings);
    }

    #[test]
    fn budgets_go_and_nothing_else_does() {
        let has = |policy: &Policy| policy.quotas.iter().filter(|node| node.budget.is_some()).count();
        let policy = (0..).map(policies::random).find(|policy| has(policy) > 1).unwrap();
        let without = without_budgets(&policy, |nth| nth == 0).unwrap();
        assert_eq!((has(&without), without.pools == policy.pools), (has(&policy) - 1, true));
        assert_eq!(without_budgets(&policy, |_| false), None);
    }
}
