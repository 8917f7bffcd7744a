//! Advice: what is allowed but unwise.
//!
//! Never: refuses; what cannot be is a fault and belongs to `check`.

use super::check::PoolStock;
use super::fault::listed;
use super::tree::YamlNode;
use super::written::{WrittenBuys, WrittenPolicy, WrittenQueue, WrittenWhenLate};
use super::{Compiled, check};
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::policy::{Policy, Pool};
use forebay_kernel::units::MilliGpu;
use forebay_quantity::{GpuCount, Time};
use std::fmt::Write as _;

/// One line of advice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Advice {
    /// Where it stands in the file; 0: the file as a whole.
    pub line: u32,
    /// What, and what to do about it.
    pub text: String,
}

/// All advice about a policy that compiled, in the order of the file.
pub(super) fn advise(
    tree: &YamlNode,
    written: &WrittenPolicy,
    filled: &WrittenPolicy,
    policy: &Policy,
    stock: &[PoolStock],
) -> Vec<Advice> {
    let mut lints = Lints { tree, out: Vec::new() };
    lints.unbounded(written);
    lints.pools(filled, policy, stock);
    lints.queues(filled, policy);
    lints.tiers(filled);
    lints.starts(filled, policy, stock);
    lints.out.sort_by_key(|a| a.line);
    lints.out
}

struct Lints<'a> {
    tree: &'a YamlNode,
    out: Vec<Advice>,
}

impl Lints<'_> {
    fn say(&mut self, path: &[&str], text: String) {
        self.out.push(Advice { line: self.tree.key_pos(path).line, text });
    }

    fn unbounded(&mut self, written: &WrittenPolicy) {
        let limits = written.limits.unwrap_or_default();
        let missing: Vec<&str> = [("nodes", limits.nodes.is_none()), ("spend", limits.spend.is_none())]
            .iter()
            .filter(|(_, m)| *m)
            .map(|(n, _)| *n)
            .collect();
        if !missing.is_empty() {
            let text = format!(
                "`limits` names no bound for {}: a real cloud is not touched without one",
                missing.join(" and ")
            );
            let line = if self.tree.has(&["limits"]) { self.tree.key_pos(&["limits"]).line } else { 0 };
            self.out.push(Advice { line, text });
        }
    }

    fn pools(&mut self, filled: &WrittenPolicy, policy: &Policy, stock: &[PoolStock]) {
        for (((name, written), pool), stock) in filled.pools.iter().flatten().zip(&policy.pools).zip(stock) {
            if !stock.outbid.is_empty() {
                let bid = written.spot.and_then(|s| s.max_price).map_or_else(String::new, |p| p.to_string());
                let types: Vec<&str> = stock.outbid.iter().map(String::as_str).collect();
                let text = format!(
                    "pool `{name}` bids {bid}, less than the usual spot price of {}: these are not bought as spot",
                    listed(&types)
                );
                self.say(&["pools", name, "spot", "maxPrice"], text);
            }
            if let Some(sharing) = &written.sharing
                && let (Some(slices), Some(smallest)) = (sharing.time_slices, sharing.smallest)
                && u32::from(slices) * u32::from(smallest.0) > 1000
            {
                let fit = 1000 / u32::from(smallest.0.max(1));
                let text =
                    format!("pool `{name}` allows {slices} jobs a GPU, but shares of {smallest} leave room for {fit}");
                self.say(&["pools", name, "sharing"], text);
            }
            if pool.keep_ready > 0 {
                let kept = count(pool.keep_ready as usize, "node");
                let text = format!("pool `{name}` keeps {kept} for ever: it never drains to zero");
                self.say(&["pools", name, "keepReady"], text);
            }
            if pool.ceiling.nodes == Some(0) {
                self.say(&["pools", name, "ceiling"], format!("pool `{name}` can hold no node"));
            }
            self.quota_against_ceiling(name, pool, policy);
        }
    }

    /// A ceiling that no quota can reach, and a quota that no ceiling lets be.
    fn quota_against_ceiling(&mut self, name: &str, pool: &Pool, policy: &Policy) {
        let Some(at) = policy.pools.iter().position(|p| p.name == *name).and_then(|at| u16::try_from(at).ok()) else {
            return;
        };
        let id = forebay_kernel::ids::PoolId(at);
        let largest = pool
            .offerings
            .iter()
            .filter_map(|o| policy.offerings.get(*o as usize))
            .map(|o| u64::from(o.gpus))
            .max()
            .unwrap_or(0);
        let by_nodes = pool.ceiling.nodes.map(|n| u64::from(n) * largest);
        let ceiling = [pool.ceiling.gpus.map(u64::from), by_nodes].into_iter().flatten().min();
        let Some(ceiling) = ceiling else { return };
        // What each tree is promised: a root's own quota and that of all below it.
        let quotas = policy.quotas.iter().filter_map(|q| q.limits.get(&id)).map(|l| l.nominal);
        let promised = quotas.fold(MilliGpu(0), |a, b| a + b);
        let everywhere =
            policy.quotas.iter().filter(|q| q.parent.is_none()).all(|root| is_bounded(policy, &root.name, id));
        if promised > MilliGpu::whole(ceiling) && everywhere {
            let text = format!(
                "pool `{name}` can hold {ceiling} GPUs at most, but quotas promise {}: not all can have theirs at once",
                GpuCount(promised)
            );
            self.say(&["pools", name, "ceiling"], text);
        } else if everywhere && pool.ceiling.gpus.is_some_and(|g| MilliGpu::whole(u64::from(g)) > promised) {
            let text = format!(
                "pool `{name}` may hold {ceiling} GPUs, but all quotas together are {}: the ceiling is never reached",
                GpuCount(promised)
            );
            self.say(&["pools", name, "ceiling"], text);
        }
    }

    fn queues(&mut self, filled: &WrittenPolicy, policy: &Policy) {
        let buys = |tier: &Option<String>| filled.tiers.as_ref().and_then(|t| t.get(tier.as_ref()?)?.buys);
        for (path, queue) in filled.queues.iter().flatten() {
            let pools = queue.pools.as_deref().unwrap_or_default();
            let fed = filled.queues.iter().flatten().any(|(_, other)| {
                buys(&other.tier).is_some_and(|b| b != WrittenBuys::Nothing)
                    && other.pools.iter().flatten().any(|p| pools.contains(p))
            });
            let keeps = |p: &forebay_kernel::policy::Pool| p.keep_ready > 0 || !p.floors.is_empty();
            let kept = policy.pools.iter().any(|p| keeps(p) && pools.contains(&p.name));
            let shared = matches!(policy.undeclared, forebay_kernel::policy::Undeclared::Under { .. });
            if buys(&queue.tier) == Some(WrittenBuys::Nothing) && !kept {
                let tier = queue.tier.as_deref().unwrap_or_default();
                let text = if fed || shared {
                    format!(
                        "queue `{path}` can starve: nothing is bought for tier `{tier}`, it waits for what others leave idle"
                    )
                } else {
                    format!(
                        "queue `{path}` will starve: nothing is bought for tier `{tier}`, and no other queue buys in its pools"
                    )
                };
                self.say(&["queues", path], text);
            }
            for (pool, quota) in queue.quota.iter().flatten() {
                if !may_use(filled, path, pool) {
                    self.say(
                        &["queues", path, "quota", pool],
                        format!("queue `{path}` has a quota in pool `{pool}`, which it may not use"),
                    );
                }
                let closed = check::total(filled, path, pool) == Some(MilliGpu(0))
                    && quota.borrow.is_some_and(|b| b.to_string() == "0");
                if closed {
                    let text = format!(
                        "queue `{path}` has no quota in pool `{pool}` and may borrow none: its GPU jobs never start there"
                    );
                    self.say(&["queues", path, "quota", pool], text);
                }
            }
        }
    }

    /// A share that nothing is bought for.
    fn tiers(&mut self, filled: &WrittenPolicy) {
        for (name, tier) in filled.tiers.iter().flatten() {
            if let Some(share) = tier.min_share.filter(|s| s.0 > 0 && tier.buys == Some(WrittenBuys::Nothing)) {
                let text = format!(
                    "tier `{name}` is promised {share} of the GPUs in use, but nothing is bought for it: it gets that part of what others leave idle only"
                );
                self.say(&["tiers", name, "minShare"], text);
            }
        }
    }

    /// Start targets that nothing can meet, and what is to happen then but cannot.
    fn starts(&mut self, filled: &WrittenPolicy, policy: &Policy, stock: &[PoolStock]) {
        for (path, queue) in
            filled.queues.iter().flatten().filter(|(path, _)| self.tree.has(&["queues", path, "start"]))
        {
            let Some(start) = queue.start else { continue };
            let buys = queue.tier.as_ref().and_then(|t| filled.tiers.as_ref()?.get(t)?.buys);
            if let Some(boot) = quickest_boot(filled, queue, policy, stock).filter(|boot| *boot > start.within) {
                let text = format!(
                    "queue `{path}` wants starts within {}, but no node of its pools boots in less than {boot}: only what is there already can be in time; `keepReady` keeps nodes",
                    start.within
                );
                self.say(&["queues", path, "start"], text);
            }
            if buys == Some(WrittenBuys::Spot) && start.when_late == Some(WrittenWhenLate::Reject) {
                let text = format!(
                    "queue `{path}` rejects its jobs after {} and its tier buys spot only: a spell without spot rejects them all",
                    start.within
                );
                self.say(&["queues", path, "start"], text);
            }
            let pools = filled.pools.iter().flatten().zip(stock);
            let mut own = pools.filter(|((name, _), _)| queue.pools.iter().flatten().any(|p| p == *name));
            let rescues = start.when_late == Some(WrittenWhenLate::BuyOnDemand);
            if rescues && !own.any(|((_, pool), stock)| check::can_hold_on_demand(pool, filled.limits, stock)) {
                let text =
                    format!("queue `{path}` is to get on-demand nodes when late, but none of its pools may hold one");
                self.say(&["queues", path, "start"], text);
            }
        }
    }
}

/// How soon a node of a queue's pools can be there; `None` where one may be there already, or none ever is.
fn quickest_boot(filled: &WrittenPolicy, queue: &WrittenQueue, policy: &Policy, stock: &[PoolStock]) -> Option<Time> {
    let pools = filled.pools.iter().flatten().zip(&policy.pools).zip(stock);
    let own = pools.filter(|(((name, _), _), _)| queue.pools.iter().flatten().any(|p| p == *name));
    let mut quickest = None;
    for ((_, pool), stock) in own {
        if keeps(pool) {
            return None;
        }
        let boot = stock.offerings.iter().map(|o| o.boot).min();
        quickest = quickest.into_iter().chain(boot).min();
    }
    quickest.map(Time)
}

/// Whether a pool keeps nodes ready, always or at times.
fn keeps(pool: &Pool) -> bool {
    pool.keep_ready > 0 || pool.floors.iter().any(|f| f.nodes > 0)
}

/// Whether a queue or one below it may use the pool.
fn may_use(filled: &WrittenPolicy, path: &str, pool: &str) -> bool {
    let below = format!("{path}/");
    let family = filled.queues.iter().flatten().filter(|(p, _)| *p == path || p.starts_with(&below));
    family.flat_map(|(_, q)| q.pools.iter().flatten()).any(|p| p == pool)
}

/// Whether somebody in the tree of `root` names a quota for the pool; else the tree is unbounded there.
fn is_bounded(policy: &Policy, root: &str, pool: forebay_kernel::ids::PoolId) -> bool {
    let below = format!("{root}/");
    let family = policy.quotas.iter().filter(|q| q.name == root || q.name.starts_with(&below));
    family.filter_map(|q| q.limits.get(&pool)).any(|l| l.nominal < super::compile::NO_QUOTA)
}

/// What `forebay check` prints for a good policy.
pub(super) fn report(compiled: &Compiled, source_name: &str) -> String {
    let policy = &compiled.policy;
    let types: std::collections::BTreeSet<&str> = policy.offerings.iter().map(|o| o.instance_type.as_str()).collect();
    let zones: std::collections::BTreeSet<&str> = policy.offerings.iter().map(|o| o.zone.as_str()).collect();
    let spot = policy.offerings.iter().filter(|o| o.capacity == CapacityType::Spot).count();
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "{source_name}: policy `{}` is good: {}, {}, {}, {}; {} in {} ({spot} offerings of spot, {} of on-demand)",
        policy.name,
        count(policy.tiers.len(), "tier"),
        count(policy.queues.len(), "queue"),
        count(compiled.routes.len(), "route"),
        count(policy.pools.len(), "pool"),
        count(types.len(), "instance type"),
        count(zones.len(), "zone"),
        policy.offerings.len() - spot,
    );
    for advice in &compiled.advice {
        let _ = match advice.line {
            0 => writeln!(out, "advice: {source_name}: {}", advice.text),
            line => writeln!(out, "advice: {source_name}:{line}: {}", advice.text),
        };
    }
    out
}

fn count(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}
