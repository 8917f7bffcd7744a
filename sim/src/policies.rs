//! Small policies made in code: for tests, for the sweep, and to try the engine without a file. The ready-made policies that
//! people use are YAML and belong to the controller.
//!
//! Never: read from a file.

pub(crate) mod features;

use std::collections::BTreeMap;

use forebay_kernel::catalog::{CapacityType, Offering};
use forebay_kernel::ids::{PoolId, QuotaId, TierId};
use forebay_kernel::policy::{
    Buys, Ceiling, Consolidation, Drain, Lifecycle, OnLinger, Policy, Pool, PreemptWithin, QueueRule, QuotaLimit,
    QuotaNode, Reclaim, Sharing, Tier, Undeclared, WhenImpossible,
};
use forebay_kernel::units::{MilliGpu, Rate, Span};

use crate::world::hash::{Draw, below, draw};

/// Spot first, on-demand when there is none; whole 8-GPU and single-GPU nodes in three zones; every queue welcome.
#[must_use]
pub fn spot_first() -> Policy {
    one_pool("spot-first", Buys::SpotThenOnDemand)
}

/// The same nodes, on-demand only.
#[must_use]
pub fn on_demand_only() -> Policy {
    one_pool("on-demand-only", Buys::OnDemand)
}

fn one_pool(name: &str, buys: Buys) -> Policy {
    let zones = ["us-east-1a", "us-east-1b", "us-east-1c"];
    let offerings = offerings(&["g4dn.xlarge", "g4dn.12xlarge", "g4dn.metal", "c6i.2xlarge"], &zones);
    let rule = rule(QuotaId(0), TierId(0), vec![PoolId(0)]);
    Policy {
        name: name.to_owned(),
        limits: Ceiling { nodes: Some(2000), ..Ceiling::default() },
        tiers: vec![tier("normal", 500, buys, Vec::new())],
        quotas: vec![quota("all", None)],
        queues: BTreeMap::new(),
        undeclared: Undeclared::Under { rule, at_most: 10_000 },
        pools: vec![Pool {
            name: "all".to_owned(),
            offerings: (0..offerings.len()).map(|i| u32::try_from(i).unwrap_or(0)).collect(),
            sharing: Some(Sharing { time_slices: 10, smallest: 1 }),
            ..Pool::default()
        }],
        offerings,
        ..Policy::default()
    }
}

/// Spot and on-demand offerings of these types in these zones, from the built-in catalogue. Types that it lacks are left out.
#[must_use]
pub fn offerings(types: &[&str], zones: &[&str]) -> Vec<Offering> {
    let rows = forebay_catalog::builtin();
    let mut all = Vec::new();
    for row in types.iter().filter_map(|t| rows.iter().find(|r| r.instance_type == **t)) {
        for zone in zones {
            for capacity in [CapacityType::Spot, CapacityType::OnDemand] {
                all.push(forebay_catalog::offering(row, zone, capacity, 1000));
            }
        }
    }
    all
}

fn tier(name: &str, priority: i32, buys: Buys, stoppable_by: Vec<TierId>) -> Tier {
    Tier { name: name.to_owned(), priority, buys, stoppable_by, min_run: Span::mins(2), ..Tier::default() }
}

fn quota(name: &str, parent: Option<QuotaId>) -> QuotaNode {
    QuotaNode { name: name.to_owned(), parent, ..QuotaNode::default() }
}

fn rule(quota: QuotaId, tier: TierId, pools: Vec<PoolId>) -> QueueRule {
    QueueRule { quota, tier, pools, ..QueueRule::default() }
}

/// The queues of a random policy. A workload may also name others, which it declares or rejects.
pub const QUEUES: [&str; 4] = ["org/a", "org/b", "org/c", "low"];

/// A small random policy: three tiers, a cohort with quotas that lend and borrow, one or two pools with tight ceilings, and
/// each feature that a policy can name in one of ten at least.
#[must_use]
pub fn random(seed: u64) -> Policy {
    let pick = |nth: u64, bound: u64| below(draw(seed, Draw::Made, 1, nth), bound);
    let zones: &[&str] = [&["za"][..], &["za", "zb"], &["za", "zb", "zc"]][index(pick(0, 3))];
    let kinds: [&[&str]; 3] = [&["g4dn.xlarge"], &["g4dn.12xlarge"], &["g4dn.xlarge", "g4dn.metal"]];
    let first = offerings(kinds[index(pick(1, 3))], zones);
    let second = offerings(&["g5.xlarge", "g5.12xlarge"], zones);
    let pools = 1 + pick(2, 2);
    let mut all = first.clone();
    if pools == 2 {
        all.extend(second);
    }
    let split = first.len();
    let pool = |nth: u64, from: usize, to: usize| Pool {
        name: format!("pool{nth}"),
        offerings: (from..to).map(|i| u32::try_from(i).unwrap_or(0)).collect(),
        ceiling: Ceiling {
            nodes: Some(u32::try_from(2 + pick(10 + nth, 8)).unwrap_or(2)),
            on_demand_nodes: (pick(12 + nth, 3) == 0).then_some(2),
            gpus: (pick(14 + nth, 3) == 0).then_some(u32::try_from(8 + pick(16 + nth, 24)).unwrap_or(8)),
            spend: (pick(18 + nth, 4) == 0).then_some(Rate(40_000_000)),
        },
        drain: if pick(20 + nth, 2) == 0 { Drain::Auto } else { Drain::After(Span::secs(30 + pick(22 + nth, 300))) },
        sharing: (pick(24 + nth, 2) == 0).then_some(Sharing { time_slices: 4, smallest: 100 }),
        ..Pool::default()
    };
    let mut made = vec![pool(0, 0, split)];
    if pools == 2 {
        made.push(pool(1, split, all.len()));
    }
    let ids: Vec<PoolId> = (0..made.len()).map(|i| PoolId(u16::try_from(i).unwrap_or(0))).collect();
    let mut policy = Policy {
        name: format!("random-{seed}"),
        limits: Ceiling { nodes: Some(u32::try_from(3 + pick(3, 10)).unwrap_or(3)), ..Ceiling::default() },
        tiers: tiers(&pick),
        quotas: quotas(&pick, &ids),
        queues: queues(&pick, &ids),
        undeclared: match pick(4, 2) {
            0 => Undeclared::Reject,
            _ => Undeclared::Under { rule: rule(QuotaId(4), TierId(1), ids.clone()), at_most: 1 },
        },
        pools: made,
        offerings: all,
        lifecycle: lifecycle(&pick),
        consolidation: Consolidation {
            worth_it: [0, 100, 2000][index(pick(500, 3))],
            moves_per_hour: 1000,
            every: Span::mins(1 + pick(501, 15)),
        },
        impossible: [WhenImpossible::Hold, WhenImpossible::Reject][index(pick(502, 2))],
        ..Policy::default()
    };
    features::add(&mut policy, seed);
    if policy.fairness.ageing.is_some() {
        // A policy does not have both.
        let rules = policy.queues.values_mut().filter(|rule| rule.preempt_within == PreemptWithin::LowerPriority);
        rules.for_each(|rule| rule.preempt_within = PreemptWithin::LowerTiers);
    }
    policy
}

fn index(n: u64) -> usize {
    usize::try_from(n).unwrap_or(0)
}

/// Critical may stop normal and low, normal may stop low; `low` buys nothing or spot.
fn tiers(pick: &dyn Fn(u64, u64) -> u64) -> Vec<Tier> {
    let normal = [Buys::SpotThenOnDemand, Buys::Spot, Buys::OnDemand][index(pick(30, 3))];
    let low = [Buys::Spot, Buys::SpotThenOnDemand][index(pick(31, 2))];
    let mut tiers = vec![
        tier("critical", 1000, [Buys::OnDemand, Buys::SpotThenOnDemand][index(pick(32, 2))], Vec::new()),
        tier("normal", 500, normal, vec![TierId(0)]),
        tier("low", 0, low, vec![TierId(0), TierId(1)]),
    ];
    for (nth, tier) in (33u64..).zip(&mut tiers) {
        tier.min_run = Span::secs(60 * pick(nth, 5));
    }
    tiers
}

/// org -> a, b, c with borrowing and lending; `low` beside it without any bound.
fn quotas(pick: &dyn Fn(u64, u64) -> u64, pools: &[PoolId]) -> Vec<QuotaNode> {
    let mut nodes = vec![quota("org", None)];
    for (nth, name) in (0u64..).zip(["org/a", "org/b", "org/c"]) {
        let mut node = quota(name, Some(QuotaId(0)));
        for &pool in pools {
            let at = 40 + nth * 10 + u64::from(pool.0) * 100;
            node.limits.insert(
                pool,
                QuotaLimit {
                    nominal: MilliGpu::whole(4 + pick(at, 12)),
                    borrow: [Some(MilliGpu(0)), Some(MilliGpu::whole(4)), None][index(pick(at + 1, 3))],
                    lend: [None, Some(MilliGpu(0)), Some(MilliGpu::whole(2))][index(pick(at + 2, 3))],
                },
            );
        }
        nodes.push(node);
    }
    nodes.push(quota("low", None));
    nodes
}

fn queues(pick: &dyn Fn(u64, u64) -> u64, pools: &[PoolId]) -> BTreeMap<String, QueueRule> {
    let places = [(QUEUES[0], 1, 0), (QUEUES[1], 2, 1), (QUEUES[2], 3, 1), (QUEUES[3], 4, 2)];
    let made = places.into_iter().map(|(name, quota, tier)| {
        let only = pools.get(index(pick(300 + quota, 2) % pools.len() as u64)).copied();
        let allowed = if pick(310 + quota, 2) == 0 { pools.to_vec() } else { only.into_iter().collect() };
        let own = rule(QuotaId(u16::try_from(quota).unwrap_or(0)), TierId(tier), allowed);
        // Most let their jobs ask for any tier; some list none, so that theirs cannot raise themselves.
        let tiers = (pick(320 + quota, 4) > 0).then(|| vec![TierId(0), TierId(1), TierId(2)]);
        let reclaim = [Reclaim::Any, Reclaim::Any, Reclaim::LowerTiers, Reclaim::Never][index(pick(330 + quota, 4))];
        let within = [PreemptWithin::LowerTiers, PreemptWithin::LowerPriority, PreemptWithin::Never];
        let preempt_within = within[index(pick(340 + quota, 3))];
        (name.to_owned(), QueueRule { tiers, reclaim, preempt_within, ..own })
    });
    made.collect()
}

fn lifecycle(pick: &dyn Fn(u64, u64) -> u64) -> Lifecycle {
    Lifecycle {
        linger_after: Span::mins(2 + pick(400, 10)),
        on_linger: [OnLinger::Warn, OnLinger::Stop][index(pick(401, 2))],
        max_run: if pick(402, 6) == 0 { Span::mins(30) } else { Span::mins(60 * 24 * 365) },
        boot_timeout: Span::mins(8 + pick(403, 10)),
        ..Lifecycle::default()
    }
}

#[cfg(test)]
mod tests {
    use super::{on_demand_only, random, spot_first};

    #[test]
    fn policies_refer_only_to_what_they_have() {
        for policy in (0..50).map(random).chain([spot_first(), on_demand_only()]) {
            assert!(!policy.offerings.is_empty(), "{}", policy.name);
            for pool in &policy.pools {
                assert!(pool.offerings.iter().all(|o| (*o as usize) < policy.offerings.len()), "{}", policy.name);
                assert!(!pool.offerings.is_empty(), "{}", policy.name);
            }
            for rule in policy.queues.values() {
                assert!(rule.quota.index() < policy.quotas.len() && rule.tier.index() < policy.tiers.len());
                assert!(!rule.pools.is_empty() && rule.pools.iter().all(|p| p.index() < policy.pools.len()));
            }
        }
    }

    #[test]
    fn each_feature_is_in_one_random_policy_of_ten_at_least() {
        let policies: Vec<_> = (0..200).map(random).collect();
        for (name, named) in super::features::NAMED {
            let count = policies.iter().filter(|policy| named(policy)).count();
            assert!(count >= 20, "{name}: {count} of 200");
        }
    }

    #[test]
    fn random_policies_differ_and_come_again() {
        assert_eq!(random(3), random(3));
        assert_ne!(random(3), random(4));
    }
}
