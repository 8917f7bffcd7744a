//! From a checked policy to the engine's: names become positions, cohorts' totals become their own quotas.
//!
//! Never: refuses anything. What cannot be compiled was refused by `check`.

use super::check::{PoolStock, layouts, total};
use super::defaults::{default_tier, parent};
use super::words::{KeepReady, ReadyLine, TimeZone, UndeclaredQueues, Under, WrittenDrain};
use super::written::{self, WrittenPolicy};
use forebay_kernel::catalog::{CapacityType, Offering};
use forebay_kernel::ids::{PoolId, QuotaId, TierId};
use forebay_kernel::policy::{
    self as engine, Buys, Ceiling, Consolidation, Fairness, Floor, Lifecycle, Network, Policy, Pool, QueueRule,
    QuotaLimit, QuotaNode, Sharing, Tier, Undeclared,
};
use forebay_kernel::units::{MilliGpu, Span};
use forebay_quantity::{GpuBound, GpuCount};
use indexmap::IndexMap;
use std::collections::BTreeMap;

/// Stands for "no quota" at a root: more than any cloud has, small enough for sums of thousands of them.
pub(super) const NO_QUOTA: MilliGpu = MilliGpu(1_000_000_000_000);

/// Compiles a policy whose defaults are filled and whose checks passed.
pub fn build(filled: &WrittenPolicy, stock: &[PoolStock]) -> Policy {
    let builder = Builder::new(filled);
    let (quotas, ids) = builder.quota_tree();
    let (offerings, of_pool) = offerings(stock);
    let queues = filled
        .queues
        .iter()
        .flatten()
        .map(|(path, _)| (path.clone(), builder.rule(path, quota_of(&ids, path))))
        .collect();
    Policy {
        name: filled.metadata.name.clone(),
        limits: ceiling(filled.limits),
        tiers: builder.tiers(),
        quotas,
        queues,
        undeclared: builder.undeclared(&ids),
        pools: filled
            .pools
            .iter()
            .flatten()
            .zip(of_pool.into_iter().zip(stock))
            .map(|((name, pool), (offerings, stock))| compiled_pool(name, pool, offerings, stock))
            .collect(),
        offerings,
        consolidation: consolidation(filled),
        lifecycle: lifecycle(filled),
        fairness: fairness(filled),
    }
}

struct Builder<'a> {
    filled: &'a WrittenPolicy,
    tiers: Vec<&'a str>,
    pools: Vec<&'a str>,
}

impl<'a> Builder<'a> {
    fn new(filled: &'a WrittenPolicy) -> Builder<'a> {
        Builder {
            filled,
            tiers: filled.tiers.iter().flat_map(|t| t.keys()).map(String::as_str).collect(),
            pools: filled.pools.iter().flat_map(|p| p.keys()).map(String::as_str).collect(),
        }
    }

    fn tier_id(&self, name: &str) -> TierId {
        TierId(position(&self.tiers, name))
    }

    fn pool_id(&self, name: &str) -> PoolId {
        PoolId(position(&self.pools, name))
    }

    fn tiers(&self) -> Vec<Tier> {
        let compiled = |(name, tier): (&String, &written::WrittenTier)| Tier {
            name: name.clone(),
            priority: tier.priority,
            buys: match tier.buys {
                Some(written::WrittenBuys::OnDemand) => Buys::OnDemand,
                Some(written::WrittenBuys::Spot) => Buys::Spot,
                Some(written::WrittenBuys::Nothing) => Buys::Nothing,
                Some(written::WrittenBuys::SpotThenOnDemand) | None => Buys::SpotThenOnDemand,
            },
            stoppable_by: tier.stoppable_by.iter().flatten().map(|t| self.tier_id(t)).collect(),
            min_run: tier.min_run.map_or(Span::ZERO, |t| t.0),
            max_run_while_others_wait: tier.max_run_while_others_wait.map(|t| t.0),
            min_share: tier.min_share.map_or(0, |p| p.0),
        };
        self.filled.tiers.iter().flatten().map(compiled).collect()
    }

    /// The rule of a path: its own, or of one that is not declared, that of its nearest declared ancestor.
    fn rule(&self, path: &str, quota: QuotaId) -> QueueRule {
        let queues = self.filled.queues.as_ref();
        let mut at = Some(path);
        let queue = loop {
            match (at, at.and_then(|p| queues?.get(p))) {
                (None, _) => break None,
                (_, Some(queue)) => break Some(queue),
                (Some(p), None) => at = parent(p),
            }
        };
        let tier = queue.and_then(|q| q.tier.clone()).or_else(|| default_tier(self.filled.tiers.as_ref()?));
        let pools: Vec<&str> = match queue.and_then(|q| q.pools.as_ref()) {
            Some(pools) => pools.iter().map(String::as_str).collect(),
            None => self.pools.clone(),
        };
        QueueRule {
            quota,
            tier: tier.map_or(TierId(0), |t| self.tier_id(&t)),
            pools: pools.iter().map(|p| self.pool_id(p)).collect(),
            submitters: queue.and_then(|q| q.submitters.clone()).unwrap_or_default(),
            start: queue.and_then(|q| q.start).map(start),
        }
    }

    fn shared(&self) -> Option<&'a Under> {
        match &self.filled.undeclared_queues {
            Some(UndeclaredQueues::Shared(under)) => Some(under),
            _ => None,
        }
    }

    /// The node that undeclared queues count against: `under` itself, or a child of it where it has a quota of its own.
    fn undeclared_node(&self, under: &Under) -> String {
        let declared = self.filled.queues.as_ref().is_some_and(|q| q.contains_key(&under.under));
        if declared && under.quota_together.is_some() {
            format!("{}/(undeclared)", under.under)
        } else {
            under.under.clone()
        }
    }

    fn undeclared(&self, ids: &IndexMap<String, QuotaId>) -> Undeclared {
        match self.shared() {
            None => Undeclared::Reject,
            Some(under) => Undeclared::Under {
                rule: self.rule(&under.under, quota_of(ids, &self.undeclared_node(under))),
                at_most: under.at_most.unwrap_or(super::defaults::DEFAULT_AT_MOST),
            },
        }
    }

    /// All nodes, parents before children, and their positions by path.
    fn quota_tree(&self) -> (Vec<QuotaNode>, IndexMap<String, QuotaId>) {
        let mut ids: IndexMap<String, QuotaId> = IndexMap::new();
        let declared = self.filled.queues.iter().flat_map(|q| q.keys()).cloned();
        let undeclared = self.shared().map(|u| self.undeclared_node(u));
        for path in declared.chain(undeclared) {
            let above = path.match_indices('/').map(|(at, _)| path[..at].to_owned());
            for node in above.chain([path.clone()]) {
                let next = QuotaId(u16::try_from(ids.len()).unwrap_or(u16::MAX));
                ids.entry(node).or_insert(next);
            }
        }
        let nodes = ids.keys().map(|path| QuotaNode {
            name: path.clone(),
            parent: parent(path).map(|p| quota_of(&ids, p)),
            limits: self.limits(path, &ids),
            weight: self.weight(path),
            budget: self.filled.queues.as_ref().and_then(|q| q.get(path)).and_then(|q| q.budget).map(budget),
        });
        (nodes.collect(), ids.clone())
    }

    fn weight(&self, path: &str) -> u32 {
        let written = self.filled.queues.as_ref().and_then(|q| q.get(path)).and_then(|q| q.weight);
        written.map_or(1000, |f| u32::try_from(f.0).unwrap_or(u32::MAX))
    }

    fn limits(&self, path: &str, ids: &IndexMap<String, QuotaId>) -> BTreeMap<PoolId, QuotaLimit> {
        let written = self.filled.queues.as_ref().and_then(|q| q.get(path)).and_then(|q| q.quota.as_ref());
        let together =
            self.shared().filter(|u| self.undeclared_node(u) == path).and_then(|u| u.quota_together.as_ref());
        let mut out = BTreeMap::new();
        for pool in &self.pools {
            let quota = written.and_then(|q| q.get(*pool)).or_else(|| together.and_then(|q| q.get(*pool)));
            let limit = match quota {
                Some(quota) => {
                    let below = self.below(path, pool, ids);
                    QuotaLimit { nominal: quota.gpus.0 - below, borrow: bound(quota.borrow), lend: bound(quota.lend) }
                }
                // A whole tree without any quota for this pool is unbounded there: said at its root, for its children borrow from it.
                None if parent(path).is_none() && total(self.filled, path, pool).is_none() => {
                    QuotaLimit { nominal: NO_QUOTA, borrow: None, lend: None }
                }
                None => continue,
            };
            out.insert(self.pool_id(pool), limit);
        }
        out
    }

    /// What the children of a path are promised together.
    fn below(&self, path: &str, pool: &str, ids: &IndexMap<String, QuotaId>) -> MilliGpu {
        let children = ids.keys().filter(|c| parent(c) == Some(path));
        let declared = self.filled.queues.as_ref().is_some_and(|q| q.contains_key(path));
        let together =
            self.shared().filter(|u| declared && u.under == path).and_then(|u| u.quota_together.as_ref()?.get(pool));
        let sum = children.filter_map(|c| total(self.filled, c, pool)).fold(MilliGpu(0), |a, b| a + b);
        sum + together.map_or(MilliGpu(0), |q| q.gpus.0)
    }
}

fn position(names: &[&str], name: &str) -> u16 {
    names.iter().position(|n| *n == name).and_then(|at| u16::try_from(at).ok()).unwrap_or(u16::MAX)
}

fn quota_of(ids: &IndexMap<String, QuotaId>, path: &str) -> QuotaId {
    ids.get(path).copied().unwrap_or_default()
}

/// `all` is no bound.
fn bound(written: Option<GpuBound>) -> Option<MilliGpu> {
    match written {
        Some(GpuBound::GpuCount(GpuCount(gpus))) => Some(gpus),
        Some(GpuBound::All) | None => None,
    }
}

fn start(written: written::WrittenStart) -> engine::StartTarget {
    let when_late = match written.when_late {
        Some(written::WrittenWhenLate::BuyOnDemand) => engine::WhenLate::BuyOnDemand,
        Some(written::WrittenWhenLate::Reject) => engine::WhenLate::Reject,
        Some(written::WrittenWhenLate::Wait) | None => engine::WhenLate::Wait,
    };
    engine::StartTarget { within: written.within.0, when_late }
}

fn budget(written: written::WrittenBudget) -> engine::Budget {
    let per = match written.per {
        written::WrittenPeriod::Hour => engine::Period::Hour,
        written::WrittenPeriod::Day => engine::Period::Day,
        written::WrittenPeriod::Month => engine::Period::Month,
    };
    let when_spent = match written.when_spent {
        Some(written::WrittenWhenSpent::Warn) => engine::WhenSpent::Warn,
        Some(written::WrittenWhenSpent::Hold) | None => engine::WhenSpent::Hold,
    };
    engine::Budget { amount: written.amount.0, per, when_spent }
}

fn fairness(filled: &WrittenPolicy) -> Fairness {
    let base = Fairness::default();
    let written = filled.fairness.unwrap_or_default();
    Fairness {
        half_life: written.half_life.map_or(base.half_life, |t| t.0),
        ageing: written.ageing.map(|t| t.0),
        ..base
    }
}

fn ceiling(written: Option<written::WrittenCeiling>) -> Ceiling {
    let c = written.unwrap_or_default();
    Ceiling { nodes: c.nodes, on_demand_nodes: c.on_demand_nodes, gpus: c.gpus, spend: c.spend.map(|s| s.0) }
}

/// Each offering once, and for each pool the positions of its own.
fn offerings(stock: &[PoolStock]) -> (Vec<Offering>, Vec<Vec<u32>>) {
    let mut all: Vec<Offering> = Vec::new();
    let mut known: BTreeMap<(String, String, CapacityType), u32> = BTreeMap::new();
    let mut of_pool = Vec::new();
    for pool in stock {
        let mut own = Vec::new();
        for offering in &pool.offerings {
            let key = (offering.instance_type.clone(), offering.zone.clone(), offering.capacity);
            let at = *known.entry(key).or_insert_with(|| {
                all.push(offering.clone());
                u32::try_from(all.len() - 1).unwrap_or(u32::MAX)
            });
            own.push(at);
        }
        of_pool.push(own);
    }
    (all, of_pool)
}

fn compiled_pool(name: &str, pool: &written::WrittenPool, offerings: Vec<u32>, stock: &PoolStock) -> Pool {
    let lines = match &pool.keep_ready {
        Some(KeepReady::Scheduled(lines)) => lines.as_slice(),
        _ => &[],
    };
    let always = lines.iter().filter(|l| l.when.is_none()).map(|l| l.nodes).max().unwrap_or(0);
    let sharing = pool.sharing.clone().unwrap_or_default();
    Pool {
        name: name.to_owned(),
        offerings,
        ceiling: ceiling(pool.ceiling),
        keep_ready: if let Some(KeepReady::Always(nodes)) = pool.keep_ready { nodes } else { always },
        floors: lines.iter().filter_map(floor).collect(),
        drain: match pool.drain {
            Some(WrittenDrain::After(idle)) => engine::Drain::After(idle.after.0),
            Some(WrittenDrain::Auto) | None => engine::Drain::Auto,
        },
        sharing: sharing
            .time_slices
            .map(|time_slices| Sharing { time_slices, smallest: sharing.smallest.map_or(1000, |p| p.0) }),
        layouts: layouts(pool, stock),
        network: network(pool.network),
    }
}

/// A line with hours. Lines without any hold always, and are a number.
fn floor(line: &ReadyLine) -> Option<Floor> {
    let hours = line.when.as_ref()?;
    let offsets = line.zone.as_ref().map(TimeZone::offsets).unwrap_or_default();
    Some(Floor { nodes: line.nodes, days: hours.days, from: hours.from, to: hours.to, offsets })
}

fn network(written: Option<written::WrittenNetwork>) -> Network {
    let written = written.unwrap_or_default();
    Network { efa: written.efa == Some(true), cluster: written.placement == Some(written::Placement::Cluster) }
}

fn consolidation(filled: &WrittenPolicy) -> Consolidation {
    let base = Consolidation::default();
    let Some(w) = filled.consolidation else {
        return base;
    };
    Consolidation {
        // A factor is at most a million, in thousandths: it fits.
        worth_it: w.worth_it.map_or(base.worth_it, |f| u32::try_from(f.0).unwrap_or(u32::MAX)),
        moves_per_hour: w.moves_per_hour.map_or(base.moves_per_hour, |p| u32::from(p.0)),
        every: w.every.map_or(base.every, |t| t.0),
    }
}

fn lifecycle(filled: &WrittenPolicy) -> Lifecycle {
    let base = Lifecycle::default();
    let Some(w) = filled.lifecycle else {
        return base;
    };
    let or = |time: Option<forebay_quantity::Time>, span: Span| time.map_or(span, |t| t.0);
    Lifecycle {
        linger_after: or(w.linger_after, base.linger_after),
        on_linger: match w.on_linger {
            Some(written::WrittenOnLinger::Stop) => engine::OnLinger::Stop,
            Some(written::WrittenOnLinger::Warn) | None => engine::OnLinger::Warn,
        },
        max_run: or(w.max_run, base.max_run),
        launch_retry: or(w.launch_retry, base.launch_retry),
        boot_timeout: or(w.boot_timeout, base.boot_timeout),
        start_timeout: or(w.start_timeout, base.start_timeout),
        drain_settle: or(w.drain_settle, base.drain_settle),
        grace: or(w.grace, base.grace),
        protect: or(w.protect, base.protect),
        quarantine_after: w.quarantine_after.unwrap_or(base.quarantine_after),
        hang_after: or(w.hang_after, base.hang_after),
        scale_down_after: or(w.scale_down_after, base.scale_down_after),
        max_residency_over_compute: w.max_residency_over_compute.map(|f| u32::try_from(f.0).unwrap_or(u32::MAX)),
    }
}
