//! Pools through a change of policy: nodes, purchases and runs stay in the pool that they are in, by its name.
//!
//! ```text
//! policy of before   0 large   1 small          runs: a in large, b in small
//! new policy         0 other   1 huge           huge offers what large did, and nobody offers what small did
//!                    -> a is in huge; small is kept behind the new pools as 2, for b
//! ```
//!
//! A pool under another name is known by what it offers. A pool that went stays for what is left in it, until a change of policy finds nothing there.
//! It has the drain rule and the partitioning that its nodes have, and no more: nothing to buy, no ceiling, floor or quota, and no queue that lists it.
//! Up to version 4 all that was in a pool that went counted in the first one.
//!
//! Never: takes two pools together, or gives a run to a pool that its nodes are not in.

use super::State;
use super::brakes::Brake;
use crate::catalog::{CapacityType, Offering};
use crate::ids::PoolId;
use crate::policy::{Policy, Pool};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

/// Where the pools of the policy of before are under a new one.
pub(super) struct PoolMoves {
    /// By position in the policy of before. `None`: gone.
    to: Vec<Option<PoolId>>,
    /// So many pools, the first ones, are not only kept.
    declared: usize,
}

impl PoolMoves {
    /// Where a pool is now. `None`: it is gone.
    pub(super) fn of(&self, pool: PoolId) -> Option<PoolId> {
        self.to.get(pool.index()).copied().flatten()
    }

    /// The same, as long as the new policy declares it.
    pub(super) fn declared(&self, pool: PoolId) -> Option<PoolId> {
        self.of(pool).filter(|pool| pool.index() < self.declared)
    }
}

/// What makes a pool the same under another name.
#[derive(PartialEq, Eq)]
enum Supply<'a> {
    /// What is bought: instance type, zone and capacity type.
    Bought(BTreeSet<(&'a str, &'a str, CapacityType)>),
    /// The labels of owned nodes, with the values that each may have.
    Owned(BTreeMap<&'a str, BTreeSet<&'a str>>),
}

impl<'a> Supply<'a> {
    /// `None`: there is nothing to know it by.
    fn of(policy: &'a Policy, pool: &'a Pool) -> Option<Supply<'a>> {
        if let Some(owned) = &pool.owned {
            let labels = owned.labels.iter().map(|(label, values)| {
                let values: BTreeSet<&str> = values.iter().map(String::as_str).collect();
                (label.as_str(), values)
            });
            return Some(Supply::Owned(labels.collect()));
        }
        let offers = pool.offerings.iter().filter_map(|at| policy.offerings.get(*at as usize));
        let bought: BTreeSet<_> = offers.map(Offering::key).collect();
        (!bought.is_empty()).then_some(Supply::Bought(bought))
    }
}

fn pool_named(policy: &Policy, name: &str) -> Option<PoolId> {
    let at = policy.pools.iter().position(|pool| pool.name == name)?;
    u16::try_from(at).ok().map(PoolId)
}

/// The pool that has what another one had, by its new name: the only one that is new and has it, of the only one that is gone and had it.
fn renamed(before: &Policy, policy: &Policy, gone: &Pool) -> Option<PoolId> {
    fn only_there<'a>(here: &'a Policy, elsewhere: &'a Policy, what: &Supply<'_>) -> Option<&'a Pool> {
        let alone = |pool: &&Pool| pool_named(elsewhere, &pool.name).is_none();
        let mut same = here.pools.iter().filter(alone).filter(|pool| Supply::of(here, pool).as_ref() == Some(what));
        same.next().filter(|_| same.next().is_none())
    }
    let what = Supply::of(before, gone)?;
    only_there(before, policy, &what)?;
    pool_named(policy, &only_there(policy, before, &what)?.name)
}

/// What is left of a pool that a policy does not declare any more.
fn kept(pool: &Pool) -> Pool {
    Pool {
        name: pool.name.clone(),
        drain: pool.drain,
        sharing: pool.sharing,
        layouts: pool.layouts.clone(),
        network: pool.network,
        ..Pool::default()
    }
}

impl State {
    /// How many pools the policy in force declares. They are the first ones; those behind them are kept for what is left there.
    #[must_use]
    pub fn declared_pools(&self) -> usize {
        let all = self.policy.as_deref().map_or(0, |policy| policy.pools.len());
        all.saturating_sub(usize::from(self.kept_pools))
    }

    /// Whether the policy in force does not declare a pool: nothing new comes to it.
    #[must_use]
    pub fn is_kept_pool(&self, pool: PoolId) -> bool {
        pool.index() >= self.declared_pools()
    }

    /// Whether any quota bounds what is held in a pool.
    #[must_use]
    pub fn has_quotas(&self, pool: PoolId) -> bool {
        let nodes = self.policy.as_deref().map_or(&[][..], |policy| &policy.quotas);
        nodes.iter().any(|node| node.limits.contains_key(&pool))
    }

    /// Adds the pools behind a new policy's own in which something is left, from version 5 on. Where is each pool of the policy of before now?
    pub(super) fn keep_pools(&mut self, policy: &mut Policy) -> PoolMoves {
        let declared = policy.pools.len();
        let Some(before) = self.policy.as_deref() else { return PoolMoves { to: Vec::new(), declared } };
        let mut to: Vec<Option<PoolId>> = before.pools.iter().map(|pool| pool_named(policy, &pool.name)).collect();
        if self.apply_version < 5 {
            return PoolMoves { to, declared };
        }
        let used = self.pools_in_use();
        let (mut behind, mut renames) = (Vec::new(), Vec::new());
        for (at, pool) in before.pools.iter().enumerate() {
            if to[at].is_some() {
                continue;
            }
            if let Some(is) = renamed(before, policy, pool) {
                to[at] = Some(is);
                renames.push((pool.name.clone(), policy.pools[is.index()].name.clone()));
            } else if used.contains(&PoolId(at as u16)) {
                to[at] = Some(PoolId((declared + behind.len()) as u16));
                behind.push(kept(pool));
            }
        }
        self.kept_pools = behind.len() as u16;
        policy.pools.extend(behind);
        self.rename_pool_brakes(renames);
        PoolMoves { to, declared }
    }

    /// Pools with a node, a purchase without an outcome, or a job that has places there.
    fn pools_in_use(&self) -> BTreeSet<PoolId> {
        let nodes = self.nodes.values().map(|node| node.pool);
        let purchases = self.purchases.values().map(|purchase| purchase.pool);
        nodes.chain(purchases).chain(self.jobs.rows().filter_map(|job| job.pool)).collect()
    }

    /// A pool that is drained is drained under its new name. The caller renews what brakes mean.
    fn rename_pool_brakes(&mut self, renames: Vec<(String, String)>) {
        for (was, is) in renames {
            if let Some(order) = self.brakes.remove(&Brake::Pool(was)) {
                self.brakes.entry(Brake::Pool(is)).or_insert(order);
            }
        }
    }
}

#[cfg(test)]
mod tests;
