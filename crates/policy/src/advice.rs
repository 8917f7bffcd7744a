//! Advice: what is allowed but unwise.
//!
//! Never: refuses; what cannot be is a fault and belongs to `check`.

use super::check::PoolStock;
use super::compile::NO_QUOTA;
use super::defaults::ancestors;
use super::fault::{Pos, listed};
use super::metered::MOST_ROUTE_STEPS;
use super::promises::{Promises, undeclared_node};
use super::tree::YamlNode;
use super::undeclared::{UndeclaredRule, undeclared_rule};
use super::written::{WrittenBuys, WrittenPolicy, WrittenPool, WrittenPreemptWithin, WrittenQueue, WrittenWhenLate};
use super::{Compiled, check};
use forebay_kernel::catalog::{CapacityType, Offering};
use forebay_kernel::ids::PoolId;
use forebay_kernel::policy::{Ceiling, Policy, Pool};
use forebay_kernel::units::{MilliGpu, Rate};
use forebay_quantity::{GpuBound, GpuCount, PerHour, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// One line of advice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Advice {
    /// Where it stands in the file; line 0: the file as a whole.
    pub pos: Pos,
    /// The keys that lead there. Empty: the file as a whole.
    pub path: Vec<String>,
    /// What, and what to do about it.
    pub text: String,
}

/// All advice about a policy that compiled, in the order of the file.
/// `routes`: of each, the steps that it takes on the largest event where these are too many.
pub(super) fn advise(
    tree: &YamlNode,
    filled: &WrittenPolicy,
    policy: &Policy,
    stock: &[PoolStock],
    routes: &[Option<u64>],
) -> Vec<Advice> {
    let pools = filled.pools.iter().flatten().zip(&policy.pools).zip(stock).enumerate();
    let pools = pools.map(|(at, (((name, written), compiled), stock))| {
        let id = PoolId(u16::try_from(at).unwrap_or(u16::MAX));
        PoolFacts { id, name, written, compiled, stock }
    });
    let undeclared = undeclared_rule(filled);
    let mut lints = Lints { tree, filled, policy, pools: pools.collect(), undeclared, out: Vec::new() };
    lints.unbounded();
    lints.pools();
    lints.spellings();
    lints.queues();
    lints.undeclared();
    lints.taking();
    lints.tiers();
    lints.starts();
    lints.routes(routes);
    lints.out.sort_by_key(|a| a.pos.line);
    lints.out
}

/// What is known about one pool.
#[derive(Clone, Copy)]
struct PoolFacts<'a> {
    id: PoolId,
    name: &'a String,
    written: &'a WrittenPool,
    compiled: &'a Pool,
    stock: &'a PoolStock,
}

struct Lints<'a> {
    tree: &'a YamlNode,
    filled: &'a WrittenPolicy,
    policy: &'a Policy,
    pools: Vec<PoolFacts<'a>>,
    undeclared: Option<UndeclaredRule<'a>>,
    out: Vec<Advice>,
}

impl<'a> Lints<'a> {
    /// Loops within loops over what an event brings.
    fn routes(&mut self, routes: &[Option<u64>]) {
        for (at, steps) in routes.iter().enumerate() {
            let Some(steps) = steps else { continue };
            let text = format!(
                "the route goes through lists within lists: up to {steps} steps on the largest event, and {MOST_ROUTE_STEPS} are the most: an event \
                 on which they run out is rejected with `Route`; ask for each list by itself"
            );
            self.say(&["routes", &at.to_string(), "when"], text);
        }
    }

    fn say(&mut self, path: &[&str], text: String) {
        let keys = path.iter().map(|key| (*key).to_owned()).collect();
        self.out.push(Advice { pos: self.tree.key_pos(path), path: keys, text });
    }

    /// The pools that a queue may use.
    fn pools_of(&self, queue: &WrittenQueue) -> impl Iterator<Item = PoolFacts<'a>> {
        let own = queue.pools.as_deref().unwrap_or_default();
        self.pools.iter().copied().filter(move |pool| own.contains(pool.name))
    }

    /// Costs without a bound of their own. A bound of nodes is not missed where there is one of spend.
    fn unbounded(&mut self) {
        let limits = self.policy.limits;
        if limits.spend.is_some() {
            return;
        }
        let text = if limits.nodes.is_none() && limits.gpus.is_none() {
            "`limits` names no bound for nodes, GPUs or spend: a real cloud is not touched without one of them"
                .to_owned()
        } else {
            let so_far = match self.dearest_hour() {
                Ok(most) => format!("what the other bounds allow costs up to {}", PerHour(most)),
                Err(pool) => format!("the other bounds allow pool `{pool}` any number of nodes without GPUs"),
            };
            format!(
                "`limits` names no bound for spend: {so_far}; add `spend`, the most that all nodes may cost together"
            )
        };
        if self.tree.has(&["limits"]) {
            self.say(&["limits"], text);
        } else {
            self.out.push(Advice { pos: Pos::default(), path: Vec::new(), text });
        }
    }

    /// What all nodes can cost in an hour at most, by `limits` and the pools' own ceilings. `Err`: the pool whose cost they do not bound.
    fn dearest_hour(&self) -> Result<Rate, &'a str> {
        let limits = &self.policy.limits;
        let mut of_pools = 0_u64;
        for pool in &self.pools {
            let offerings = pool.stock.offerings.as_slice();
            let bounds = [dearest(&pool.compiled.ceiling, offerings), dearest(limits, offerings)];
            let least = bounds.into_iter().flatten().min().ok_or(pool.name.as_str())?;
            of_pools = of_pools.saturating_add(least);
        }
        let together = self.pools.iter().flat_map(|pool| &pool.stock.offerings);
        let together = dearest(limits, together);
        Ok(Rate(together.map_or(of_pools, |most| most.min(of_pools))))
    }

    fn pools(&mut self) {
        for pool in self.pools.clone() {
            let PoolFacts { name, written, compiled, stock, .. } = pool;
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
            if compiled.keep_ready > 0 {
                let kept = count(compiled.keep_ready as usize, "node");
                let text = format!("pool `{name}` keeps {kept} for ever: it never drains to zero");
                self.say(&["pools", name, "keepReady"], text);
            }
            if compiled.ceiling.nodes == Some(0) {
                self.say(&["pools", name, "ceiling"], format!("pool `{name}` can hold no node"));
            }
            self.above_limits(pool);
            self.quota_against_ceiling(pool);
        }
    }

    /// A ceiling of a pool above what all pools together may have.
    fn above_limits(&mut self, PoolFacts { name, compiled, .. }: PoolFacts<'_>) {
        let (own, all) = (&compiled.ceiling, &self.policy.limits);
        let counts = [
            ("nodes", own.nodes, all.nodes),
            ("onDemandNodes", own.on_demand_nodes, all.on_demand_nodes),
            ("gpus", own.gpus, all.gpus),
        ];
        let counts = counts.into_iter().filter_map(|(key, own, all)| Some((key, own?, all?)));
        let above: Vec<(&str, String, String)> = counts
            .filter(|(_, own, all)| own > all)
            .map(|(key, own, all)| (key, own.to_string(), all.to_string()))
            .chain(
                own.spend
                    .zip(all.spend)
                    .filter(|(own, all)| own > all)
                    .map(|(own, all)| ("spend", PerHour(own).to_string(), PerHour(all).to_string())),
            )
            .collect();
        for (key, own, all) in above {
            let text = format!(
                "pool `{name}` may have `{key}: {own}`, and `limits` allow `{key}: {all}` over all pools: its ceiling is never reached; lower it, or raise `limits`"
            );
            self.say(&["pools", name, "ceiling", key], text);
        }
    }

    /// Two queues whose names differ in case, `-`, `_` and `.` only.
    fn spellings(&mut self) {
        let mut first: BTreeMap<String, &String> = BTreeMap::new();
        let filled = self.filled;
        for (path, _) in filled.queues.iter().flatten() {
            let plain = path.to_lowercase().replace(['-', '_', '.'], "");
            match first.get(&plain) {
                Some(other) => {
                    let text = format!(
                        "queues `{other}` and `{path}` differ in their spelling only: each has its own quota and order; if one queue is meant, remove the other"
                    );
                    self.say(&["queues", path], text);
                }
                None => {
                    first.insert(plain, path);
                }
            }
        }
    }

    /// A ceiling that no quota can reach, and a quota that no ceiling lets be.
    fn quota_against_ceiling(&mut self, PoolFacts { id, name, compiled, stock, .. }: PoolFacts<'_>) {
        let largest = stock.offerings.iter().map(|o| u64::from(o.gpus)).max().unwrap_or(0);
        let by_nodes = compiled.ceiling.nodes.map(|n| u64::from(n) * largest);
        let by_gpus = compiled.ceiling.gpus.map(u64::from);
        let Some(ceiling) = by_gpus.into_iter().chain(by_nodes).min() else { return };
        // A tree in which nobody names a quota for the pool is unbounded there, and its root says so.
        let limits = || self.policy.quotas.iter().filter_map(|q| q.limits.get(&id));
        if limits().any(|l| l.nominal >= NO_QUOTA) {
            return;
        }
        // What each tree is promised: a root's own quota and that of all below it.
        let promised = limits().fold(MilliGpu(0), |sum, l| sum + l.nominal);
        let text = if promised > MilliGpu::whole(ceiling) {
            format!(
                "pool `{name}` can hold {ceiling} GPUs at most, but quotas promise {}: not all can have theirs at once",
                GpuCount(promised)
            )
        } else if by_gpus.is_some_and(|gpus| MilliGpu::whole(gpus) > promised) {
            format!(
                "pool `{name}` may hold {ceiling} GPUs, but all quotas together are {}: the ceiling is never reached",
                GpuCount(promised)
            )
        } else {
            return;
        };
        self.say(&["pools", name, "ceiling"], text);
    }

    fn queues(&mut self) {
        let filled = self.filled;
        let promises = Promises::new(filled);
        for (path, queue) in filled.queues.iter().flatten() {
            if let Some(how) = self.starving(queue) {
                self.say(&["queues", path], format!("queue `{path}` {how}"));
            }
            for (pool, quota) in queue.quota.iter().flatten() {
                let at = ["queues", path, "quota", pool];
                if !filled.family(path).any(|queue| queue.pools.iter().flatten().any(|p| p == pool)) {
                    self.say(&at, format!("queue `{path}` has a quota in pool `{pool}`, which it may not use"));
                }
                let borrows_none = quota.borrow == Some(GpuBound::GpuCount(GpuCount::default()));
                if borrows_none && promises.total(path, pool) == Some(MilliGpu(0)) {
                    let text = format!(
                        "queue `{path}` has no quota in pool `{pool}` and may borrow none: its GPU jobs never start there"
                    );
                    self.say(&at, text);
                }
            }
        }
    }

    /// That the jobs of a queue may never start, as nothing is bought for them; `None` where something is bought or kept.
    fn starving(&self, queue: &WrittenQueue) -> Option<String> {
        let kept = |pool: PoolFacts<'_>| pool.compiled.keep_ready > 0 || !pool.compiled.floors.is_empty();
        let rescued = queue.start.and_then(|start| start.when_late) == Some(WrittenWhenLate::BuyOnDemand);
        let bought = self.filled.buys(queue) != Some(WrittenBuys::Nothing);
        if bought || rescued || self.pools_of(queue).any(kept) {
            return None;
        }
        let pools = queue.pools.as_deref().unwrap_or_default();
        let feeds = |other: &WrittenQueue| {
            self.filled.buys(other).is_some_and(|buys| buys != WrittenBuys::Nothing)
                && other.pools.iter().flatten().any(|pool| pools.contains(pool))
        };
        let fed_by_declared = self.filled.queues.iter().flatten().any(|(_, other)| feeds(other));
        let (can, why) = if fed_by_declared || self.undeclared.as_ref().is_some_and(|rule| feeds(&rule.queue)) {
            ("can", "it waits for what others leave idle")
        } else {
            ("will", "and no other queue buys in its pools")
        };
        let tier = queue.tier.as_deref().unwrap_or_default();
        Some(format!("{can} starve: nothing is bought for tier `{tier}`, {why}"))
    }

    /// What undeclared queues share: rules that no declared queue states, and quotas.
    fn undeclared(&mut self) {
        let filled = self.filled;
        let Some((shared, rule)) = filled.shared().zip(undeclared_rule(filled)) else { return };
        if let Some(how) = self.starving(&rule.queue).filter(|_| rule.stated_by.is_none()) {
            let text = format!("queue `{}`, which undeclared queues share, {how}", shared.under);
            self.say(&["undeclaredQueues", "under"], text);
        }
        let promises = Promises::new(filled);
        let node = undeclared_node(filled).unwrap_or_default();
        let is_declared = filled.queue(&shared.under).is_some();
        for (pool, quota) in shared.quota_together.iter().flatten() {
            let at = ["undeclaredQueues", "quotaTogether", pool];
            let uses = |queue: &WrittenQueue| queue.pools.iter().flatten().any(|own| own == pool);
            // Declared queues below one that is not declared share its quota.
            if !uses(&rule.queue) && (is_declared || !filled.family(&shared.under).any(uses)) {
                self.say(&at, format!("undeclared queues have a quota in pool `{pool}`, which they may not use"));
            }
            let borrow_none = quota.borrow == Some(GpuBound::GpuCount(GpuCount::default()));
            if borrow_none && promises.total(&node, pool) == Some(MilliGpu(0)) {
                let text = format!(
                    "undeclared queues have no quota in pool `{pool}` and may borrow none: their GPU jobs never start there"
                );
                self.say(&at, text);
            }
        }
    }

    /// `reclaim` and `preemptWithin` that are written and change nothing, or less than they seem to.
    fn taking(&mut self) {
        let filled = self.filled;
        for (path, queue) in filled.queues.iter().flatten() {
            let (reclaim, within) = (["queues", path, "reclaim"], ["queues", path, "preemptWithin"]);
            let root = ancestors(path).last().unwrap_or(path);
            let has_quotas = filled.family(root).any(|queue| queue.quota.iter().any(|quota| !quota.is_empty()));
            let of_tree = |other: &str| ancestors(other).last().unwrap_or(other) == root;
            let declared = filled.queues.iter().flatten().filter(|(other, _)| of_tree(other)).count();
            let alone = declared < 2 && !filled.shared().is_some_and(|shared| of_tree(&shared.under));
            if self.tree.has(&reclaim) && (!has_quotas || alone) {
                let why = if alone { "no other queue shares its quota" } else { "no queue of its tree has a quota" };
                self.say(
                    &reclaim,
                    format!("queue `{path}` states `reclaim`, but {why}: there is nothing to take back"),
                );
            }
            if !self.tree.has(&within) {
                continue;
            }
            let tier = |name: &String| filled.tiers.as_ref().and_then(|tiers| tiers.get(name));
            let asked = queue.tiers.as_deref().unwrap_or_default();
            let may_be_stopped = |name: &String| {
                let by = tier(name).and_then(|tier| tier.stoppable_by.as_ref());
                let overdue = tier(name).is_some_and(|tier| tier.max_run_while_others_wait.is_some());
                overdue || by.is_some_and(|by| by.iter().any(|by| asked.contains(by)))
            };
            let by_tier = asked.iter().any(may_be_stopped);
            match queue.preempt_within {
                Some(WrittenPreemptWithin::LowerTiers) if !by_tier => self.say(
                    &within,
                    format!("queue `{path}` lets its jobs stop runs of lower tiers, but none of its `tiers` may be stopped by another of them: no run of its own is ever stopped"),
                ),
                // Above it another rule may stand, which it would have without its own.
                Some(WrittenPreemptWithin::Never) if !by_tier && !self.rules_above(path) => {
                    self.say(&within, format!("queue `{path}` forbids what its `tiers` do not allow anyway: `preemptWithin: never` changes nothing"));
                }
                _ => {}
            }
        }
    }

    /// Whether a queue above states `preemptWithin`.
    fn rules_above(&self, path: &str) -> bool {
        ancestors(path).any(|above| above != path && self.tree.has(&["queues", above, "preemptWithin"]))
    }

    /// A share that nothing is bought for, and a protection that never ends.
    fn tiers(&mut self) {
        for (name, tier) in self.filled.tiers.iter().flatten() {
            if let Some(share) = tier.min_share.filter(|s| s.0 > 0 && tier.buys == Some(WrittenBuys::Nothing)) {
                let text = format!(
                    "tier `{name}` is promised {share} of the GPUs in use, but nothing is bought for it: it gets that part of what others leave idle only"
                );
                self.say(&["tiers", name, "minShare"], text);
            }
            let longest = self.policy.lifecycle.max_run;
            if let Some(least) = tier.min_run.filter(|least| least.0 >= longest) {
                let text = format!(
                    "tier `{name}` protects its runs for {least}, and a run lasts {} at most (`lifecycle.maxRun`): none is ever stopped for another; lower `minRun`",
                    Time(longest)
                );
                self.say(&["tiers", name, "minRun"], text);
            }
        }
    }

    /// Start targets that nothing can meet, and what is to happen then but cannot.
    fn starts(&mut self) {
        for (path, queue) in self.filled.queues.iter().flatten() {
            let at = ["queues", path, "start"];
            let Some(start) = queue.start.filter(|_| self.tree.has(&at)) else { continue };
            let within = start.within;
            if let Some(boot) = self.quickest_boot(queue).filter(|boot| *boot > within) {
                let text = format!(
                    "queue `{path}` wants starts within {within}, but no node of its pools boots in less than {boot}: only what is there already can be in time; `keepReady` keeps nodes"
                );
                self.say(&at, text);
            }
            let spot_only = self.filled.buys(queue) == Some(WrittenBuys::Spot);
            if spot_only && start.when_late == Some(WrittenWhenLate::Reject) {
                let text = format!(
                    "queue `{path}` rejects its jobs after {within} and its tier buys spot only: a spell without spot rejects them all"
                );
                self.say(&at, text);
            }
            let rescues = start.when_late == Some(WrittenWhenLate::BuyOnDemand);
            let limits = self.filled.limits;
            let may_hold = |pool: PoolFacts<'_>| check::can_hold_on_demand(pool.written, limits, pool.stock);
            if rescues && !self.pools_of(queue).any(may_hold) {
                let text =
                    format!("queue `{path}` is to get on-demand nodes when late, but none of its pools may hold one");
                self.say(&at, text);
            }
        }
    }

    /// How soon a node of a queue's pools can be there; `None` where one may be there already, or none ever is.
    fn quickest_boot(&self, queue: &WrittenQueue) -> Option<Time> {
        let keeps = |pool: &Pool| pool.keep_ready > 0 || pool.floors.iter().any(|f| f.nodes > 0);
        if self.pools_of(queue).any(|pool| keeps(pool.compiled)) {
            return None;
        }
        self.pools_of(queue).flat_map(|pool| &pool.stock.offerings).map(|o| o.boot).min().map(Time)
    }
}

/// The most that nodes of these offerings can cost in an hour under a ceiling. `None`: it does not bound that.
fn dearest<'o>(ceiling: &Ceiling, offerings: impl IntoIterator<Item = &'o Offering>) -> Option<u64> {
    let (mut node, mut by_gpus) = (0_u64, Some(0_u64));
    for offering in offerings {
        let price = offering.max_price.0;
        node = price.max(node);
        // A node of more GPUs than there may be is never bought. Rounded up: it is a bound.
        let most = ceiling.gpus.map(u64::from).filter(|_| offering.gpus > 0);
        let has = u64::from(offering.gpus.max(1));
        let most = most.map(|gpus| if gpus < has { 0 } else { price.saturating_mul(gpus).div_ceil(has) });
        by_gpus = by_gpus.zip(most).map(|(before, most)| most.max(before));
    }
    let by_nodes = ceiling.nodes.map(|nodes| node.saturating_mul(nodes.into()));
    let spend = ceiling.spend.map(|spend| spend.0);
    [by_nodes, by_gpus, spend].into_iter().flatten().min()
}

/// What `forebay check` prints for a good policy.
pub(super) fn report(compiled: &Compiled, source_name: &str) -> String {
    let policy = &compiled.policy;
    let types: BTreeSet<&str> = policy.offerings.iter().map(|o| o.instance_type.as_str()).collect();
    let zones: BTreeSet<&str> = policy.offerings.iter().map(|o| o.zone.as_str()).collect();
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
        let _ = match advice.pos.line {
            0 => writeln!(out, "advice: {source_name}: {}", advice.text),
            line => writeln!(out, "advice: {source_name}:{line}: {}", advice.text),
        };
    }
    out
}

fn count(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}
