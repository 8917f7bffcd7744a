//! From a checked policy to the engine's: names become positions, cohorts' totals become their own quotas.
//!
//! Never: refuses anything. What cannot be compiled was refused by `check`.

use super::check::{PoolStock, layouts};
use super::defaults::{ancestors, default_tier, lifecycle_times, parent};
use super::promises::{Promises, undeclared_node};
use super::words::{KeepReady, ReadyLine, TimeZone, WrittenDrain};
use super::written::{self, WrittenPolicy};
use forebay_kernel::catalog::{CapacityType, Offering};
use forebay_kernel::ids::{PoolId, QuotaId, TierId};
use forebay_kernel::policy::{
    self as engine, BillingRule, Buys, Ceiling, Consolidation, Fairness, Floor, Lifecycle, Network, Policy, Pool,
    PreemptWithin, QueueOrder, QueueRule, QuotaLimit, QuotaNode, Reclaim, Sharing, Tier, Undeclared, Watermarks,
    WhenImpossible,
};
use forebay_kernel::state::owned::OwnedPool;
use forebay_kernel::units::{MilliGpu, Rate, Span};
use forebay_quantity::{GpuBound, GpuCount};
use indexmap::IndexMap;
use std::collections::BTreeMap;

/// Stands for "no quota" at a root: more than any cloud has, small enough for sums of thousands of them.
pub(super) const NO_QUOTA: MilliGpu = MilliGpu(1_000_000_000_000);

/// Compiles a policy whose defaults are filled and whose checks passed.
pub fn build(written: &WrittenPolicy, filled: &WrittenPolicy, stock: &[PoolStock]) -> Policy {
    let builder = Builder { written, filled, promises: Promises::new(filled) };
    let (offerings, of_pool) = offerings(stock);
    let pools = filled.pools.iter().flatten().zip(of_pool.into_iter().zip(stock));
    Policy {
        name: filled.metadata.name.clone(),
        limits: ceiling(filled.limits),
        tiers: builder.tiers(),
        quotas: builder.promises.nodes().map(|path| builder.quota_node(path)).collect(),
        queues: filled.queues.iter().flatten().map(|(path, _)| (path.clone(), builder.rule(path, path))).collect(),
        undeclared: builder.undeclared(),
        pools: pools.map(|((name, pool), (own, stock))| compiled_pool(name, pool, own, stock)).collect(),
        offerings,
        consolidation: consolidation(filled),
        lifecycle: lifecycle(filled),
        fairness: fairness(filled),
        node_overhead: filled.node_overhead.map_or(Rate(0), |rate| rate.0),
        impossible: match filled.impossible {
            Some(written::WrittenImpossible::Reject) => WhenImpossible::Reject,
            Some(written::WrittenImpossible::Hold) | None => WhenImpossible::Hold,
        },
        billing: Some(billing(filled)),
    }
}

struct Builder<'a> {
    /// As written: what a queue lists itself.
    written: &'a WrittenPolicy,
    filled: &'a WrittenPolicy,
    promises: Promises<'a>,
}

impl<'a> Builder<'a> {
    fn tier_id(&self, name: &str) -> TierId {
        TierId(id(self.filled.tiers.as_ref().and_then(|tiers| tiers.get_index_of(name))))
    }

    fn pool_id(&self, name: &str) -> PoolId {
        PoolId(id(self.filled.pools.as_ref().and_then(|pools| pools.get_index_of(name))))
    }

    fn is_owned(&self, pool: PoolId) -> bool {
        let pools = self.filled.pools.as_ref();
        pools.and_then(|pools| pools.get_index(pool.index())).is_some_and(|(_, pool)| pool.owned.is_some())
    }

    fn quota_id(&self, path: &str) -> QuotaId {
        QuotaId(id(self.promises.position(path)))
    }

    fn pools(&self) -> impl Iterator<Item = &'a String> {
        self.filled.pools.iter().flatten().map(|(name, _)| name)
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

    /// The rule of a path: its own, or of one that is not declared, that of its nearest declared ancestor. Its jobs count against `node`.
    fn rule(&self, path: &str, node: &str) -> QueueRule {
        let queue = ancestors(path).find_map(|path| self.filled.queue(path));
        let tier = queue.and_then(|q| q.tier.clone()).or_else(|| default_tier(self.filled.tiers.as_ref()?));
        let mut pools: Vec<PoolId> = match queue.and_then(|q| q.pools.as_ref()) {
            Some(pools) => pools.iter().map(|p| self.pool_id(p)).collect(),
            None => self.pools().map(|p| self.pool_id(p)).collect(),
        };
        // What is there already comes before anything that is bought.
        pools.sort_by_key(|pool| !self.is_owned(*pool));
        QueueRule {
            quota: self.quota_id(node),
            tier: tier.map_or(TierId(0), |t| self.tier_id(&t)),
            pools,
            submitters: queue.and_then(|q| q.submitters.clone()).unwrap_or_default(),
            start: queue.and_then(|q| q.start).map(start),
            wait_per_gpu_hour: queue.and_then(|q| q.start?.per_gpu_hour).map(|wait| wait.0),
            tiers: self.listed_tiers(path),
            reclaim: match queue.and_then(|q| q.reclaim) {
                Some(written::WrittenReclaim::LowerTiers) => Reclaim::LowerTiers,
                Some(written::WrittenReclaim::Never) => Reclaim::Never,
                Some(written::WrittenReclaim::Any) | None => Reclaim::Any,
            },
            preempt_within: match queue.and_then(|q| q.preempt_within) {
                Some(written::WrittenPreemptWithin::LowerPriority) => PreemptWithin::LowerPriority,
                Some(written::WrittenPreemptWithin::LongerExpected) => PreemptWithin::LongerExpected,
                Some(written::WrittenPreemptWithin::Never) => PreemptWithin::Never,
                Some(written::WrittenPreemptWithin::LowerTiers) | None => PreemptWithin::LowerTiers,
            },
            order: match queue.and_then(|q| q.order) {
                Some(written::WrittenOrder::ShortestExpected) => QueueOrder::ShortestExpected,
                Some(written::WrittenOrder::Arrival) | None => QueueOrder::Arrival,
            },
        }
    }

    /// The tiers that a queue's jobs may ask for, where it or a queue above it lists them: the default is the engine's.
    fn listed_tiers(&self, path: &str) -> Option<Vec<TierId>> {
        let lists = |path| self.written.queue(path).is_some_and(|queue| queue.tiers.is_some());
        let queue = ancestors(path).find_map(|path| self.filled.queue(path)).filter(|_| ancestors(path).any(lists))?;
        Some(queue.tiers.iter().flatten().map(|tier| self.tier_id(tier)).collect())
    }

    fn undeclared(&self) -> Undeclared {
        match self.filled.shared().zip(undeclared_node(self.filled)) {
            None => Undeclared::Reject,
            Some((under, node)) => Undeclared::Under {
                rule: self.rule(&under.under, &node),
                at_most: under.at_most.unwrap_or(super::defaults::DEFAULT_AT_MOST),
            },
        }
    }

    fn quota_node(&self, path: &str) -> QuotaNode {
        let queue = self.filled.queue(path);
        QuotaNode {
            name: path.to_owned(),
            parent: parent(path).map(|p| self.quota_id(p)),
            limits: self.limits(path),
            weight: queue.and_then(|q| q.weight).map_or(1000, |f| u32::try_from(f.0).unwrap_or(u32::MAX)),
            budget: queue.and_then(|q| q.budget).map(budget),
        }
    }

    fn limits(&self, path: &str) -> BTreeMap<PoolId, QuotaLimit> {
        let limit = |pool| match self.promises.written(path, pool) {
            Some(quota) => {
                let nominal = quota.gpus.0 - self.promises.total_below(path, pool);
                Some(QuotaLimit { nominal, borrow: bound(quota.borrow), lend: bound(quota.lend) })
            }
            // A whole tree without any quota for this pool is unbounded there: said at its root, for its children borrow from it.
            None if parent(path).is_none() && self.promises.total(path, pool).is_none() => {
                Some(QuotaLimit { nominal: NO_QUOTA, borrow: None, lend: None })
            }
            None => None,
        };
        self.pools().filter_map(|pool| Some((self.pool_id(pool), limit(pool)?))).collect()
    }
}

/// A position as an id. Every name was checked, and ids are wide enough for all that there may be.
fn id(position: Option<usize>) -> u16 {
    position.and_then(|at| u16::try_from(at).ok()).unwrap_or(u16::MAX)
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
    let mut all: IndexMap<(&str, &str, CapacityType), &Offering> = IndexMap::new();
    let mut of_pool = Vec::new();
    for pool in stock {
        let positions = pool.offerings.iter().map(|offering| {
            let entry = all.entry((&offering.instance_type, &offering.zone, offering.capacity));
            let at = entry.index();
            entry.or_insert(offering);
            u32::try_from(at).unwrap_or(u32::MAX)
        });
        of_pool.push(positions.collect());
    }
    (all.into_values().cloned().collect(), of_pool)
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
        watermarks: lines.iter().find_map(|line| Some(Watermarks { low: line.low?, high: line.high? })),
        owned: pool.owned.as_ref().map(|owned| OwnedPool {
            labels: owned.nodes.iter().map(|(key, values)| (key.clone(), values.clone())).collect(),
            price: owned.price.map_or(Rate(0), |price| price.0),
        }),
    }
}

/// A line with hours. Lines without any hold always, and are a number.
fn floor(line: &ReadyLine) -> Option<Floor> {
    let hours = line.when.as_ref()?;
    let offsets = line.zone.as_ref().map(TimeZone::offsets).unwrap_or_default();
    Some(Floor { nodes: line.nodes, days: hours.days, from: hours.from, to: hours.to, offsets })
}

fn billing(filled: &WrittenPolicy) -> BillingRule {
    let written = filled.billing.clone().unwrap_or_default();
    BillingRule {
        labels: written.labels.unwrap_or_default(),
        zone: written.zone.as_ref().map(|zone| zone.name().to_owned()).unwrap_or_default(),
        offsets: written.zone.as_ref().map(TimeZone::offsets).unwrap_or_default(),
    }
}

fn network(written: Option<written::WrittenNetwork>) -> Network {
    let written = written.unwrap_or_default();
    Network { efa: written.efa == Some(true), cluster: written.placement == Some(written::Placement::Cluster) }
}

fn consolidation(filled: &WrittenPolicy) -> Consolidation {
    let base = Consolidation::default();
    let written = filled.consolidation.unwrap_or_default();
    Consolidation {
        // A factor is at most a million, in thousandths: it fits.
        worth_it: written.worth_it.map_or(base.worth_it, |f| u32::try_from(f.0).unwrap_or(u32::MAX)),
        moves_per_hour: written.moves_per_hour.map_or(base.moves_per_hour, |p| u32::from(p.0)),
        every: written.every.map_or(base.every, |t| t.0),
    }
}

fn lifecycle(filled: &WrittenPolicy) -> Lifecycle {
    let mut written = filled.lifecycle.unwrap_or_default();
    let base = Lifecycle::default();
    let mut out = Lifecycle {
        on_linger: match written.on_linger {
            Some(written::WrittenOnLinger::Stop) => engine::OnLinger::Stop,
            Some(written::WrittenOnLinger::Warn) | None => engine::OnLinger::Warn,
        },
        quarantine_after: written.quarantine_after.unwrap_or(base.quarantine_after),
        max_residency_over_compute: written.max_residency_over_compute.map(|f| u32::try_from(f.0).unwrap_or(u32::MAX)),
        ..base
    };
    for (time, span) in lifecycle_times(&mut written, &mut out) {
        *span = time.map_or(*span, |time| time.0);
    }
    out
}
