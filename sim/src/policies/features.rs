//! What a random policy names beyond tiers, quotas and ceilings: fairness, budgets, start targets, floors, layouts, networks,
//! life cycles. Each with a chance of its own, so that any of them meet.
//!
//! ```text
//! seed -> chances (one in four or so) -> fields of a policy that holds without them
//! ```
//!
//! Never: a floor that holds for ever, or a budget so large that it never matters.

use forebay_kernel::policy::{
    BillingRule, Budget, Buys, Fairness, Floor, Layout, Lifecycle, Period, Policy, Pool, PreemptWithin, QueueOrder,
    Slice, StartTarget, WhenLate, WhenSpent,
};
use forebay_kernel::units::{Mib, Span, Timestamp};

use super::index;
use crate::world::hash::{Draw, below, draw};

/// Draws of one thing: (which draw, bound).
type Pick<'a> = &'a dyn Fn(u64, u64) -> u64;

/// Adds features to a policy.
pub(super) fn add(policy: &mut Policy, seed: u64) {
    // Apart from the policy's own draws, so that a new feature changes nothing else.
    let of = |what: u64| move |nth: u64, bound: u64| below(draw(seed, Draw::Made, 100 + what, nth), bound);
    fairness(policy, &of(0));
    shares(policy, &of(1));
    budgets(policy, &of(2));
    starts(policy, &of(3));
    for (nth, pool) in (10..).zip(&mut policy.pools) {
        floors(pool, &of(nth));
        layouts(pool, &of(nth + 10));
        network(pool, &of(nth + 20));
    }
    lifecycle(&mut policy.lifecycle, &of(4));
    groups(policy, &of(5));
    orders(policy, &of(6));
    billing(policy, seed);
}

/// Every second policy says how to bill, which decides nothing. Some zones are half an hour off or change their offset, so that slots are shorter.
fn billing(policy: &mut Policy, seed: u64) {
    let offsets = match seed % 6 {
        1 => vec![(Timestamp(0), 19_800)],
        3 => vec![(Timestamp(0), 3_600), (Timestamp(7_200_000), 7_200)],
        _ => Vec::new(),
    };
    policy.billing = (seed % 2 == 1).then(|| BillingRule { offsets, ..BillingRule::default() });
}

/// Queues whose shortest job goes first, and stops longer runs.
fn orders(policy: &mut Policy, pick: Pick<'_>) {
    if pick(0, 3) > 0 {
        return;
    }
    for (nth, rule) in (1..).zip(policy.queues.values_mut()) {
        match pick(nth, 3) {
            0 => (rule.preempt_within, rule.order) = (PreemptWithin::LongerExpected, QueueOrder::ShortestExpected),
            1 => rule.order = QueueOrder::ShortestExpected,
            _ => {}
        }
    }
}

fn fairness(policy: &mut Policy, pick: Pick<'_>) {
    let minutes = |nth: u64, list: [u64; 4]| Span::mins(list[index(pick(nth, 4))]);
    if pick(0, 3) == 0 {
        policy.fairness = Fairness {
            half_life: minutes(1, [10, 60, 600, 7 * 24 * 60]),
            ageing: (pick(2, 2) == 0).then(|| minutes(3, [1, 5, 20, 60])),
            entry: minutes(4, [0, 1, 10, 60]),
        };
    }
    if pick(5, 3) == 0 {
        for (nth, node) in (10..).zip(&mut policy.quotas) {
            node.weight = [500, 1000, 2000, 5000][index(pick(nth, 4))];
        }
    }
}

/// A part for the lower tiers, a longest run, and a lowest tier that buys nothing.
fn shares(policy: &mut Policy, pick: Pick<'_>) {
    if let Some(lowest) = policy.tiers.last_mut().filter(|_| pick(5, 6) == 0) {
        lowest.buys = Buys::Nothing;
    }
    let share = |nth: u64| [100, 200, 300][index(pick(nth, 3))];
    for (nth, tier) in (0..).zip(&mut policy.tiers).skip(1) {
        if pick(10 * nth, 5) == 0 {
            tier.min_share = share(10 * nth + 1);
        }
        if pick(10 * nth + 2, 5) == 0 {
            tier.max_run_while_others_wait = Some(tier.min_run + Span::mins(5 + pick(10 * nth + 3, 20)));
        }
    }
}

/// A T4 costs half a dollar an hour and the work lasts an hour or two: some of these are spent within minutes, some never.
fn budgets(policy: &mut Policy, pick: Pick<'_>) {
    for (nth, node) in (0..).zip(&mut policy.quotas) {
        let at = 10 * nth;
        let (per, most) = match pick(at, 12) {
            0 | 1 => (Period::Hour, 4_000_000),
            2 => (Period::Day, 12_000_000),
            3 => (Period::Month, 60_000_000),
            _ => continue,
        };
        let when_spent = if pick(at + 1, 3) == 0 { WhenSpent::Warn } else { WhenSpent::Hold };
        node.budget = Some(Budget { amount: 200_000 + pick(at + 2, most), per, when_spent });
    }
}

fn starts(policy: &mut Policy, pick: Pick<'_>) {
    for (nth, rule) in (0..).zip(policy.queues.values_mut()) {
        if pick(10 * nth, 3) == 0 {
            let when_late = [WhenLate::Wait, WhenLate::BuyOnDemand, WhenLate::Reject][index(pick(10 * nth + 1, 3))];
            rule.start = Some(StartTarget { within: Span::secs(90 + pick(10 * nth + 2, 1800)), when_late });
        }
    }
}

/// Some hours of the day, on a Thursday (the first day of all) and others; at night and over midnight too.
fn floors(pool: &mut Pool, pick: Pick<'_>) {
    if pick(0, 8) == 0 {
        pool.keep_ready = 1;
    }
    if pick(1, 4) > 0 {
        return;
    }
    for nth in 0..1 + pick(2, 2) {
        let at = 10 + 10 * nth;
        let minute = |draw: u64, bound: u64| u16::try_from(pick(draw, bound)).unwrap_or(0);
        let from = if pick(at, 4) == 0 { 1380 + minute(at + 1, 60) } else { minute(at + 1, 150) };
        let offsets = match pick(at + 2, 3) {
            0 => vec![(Timestamp(0), 3600)],
            1 => vec![(Timestamp(0), 3600), (Timestamp(pick(at + 3, 7_200_000)), -1800)],
            _ => Vec::new(),
        };
        pool.floors.push(Floor {
            nodes: 1 + u32::try_from(pick(at + 4, 2)).unwrap_or(0),
            days: [0b111_1111, 0b000_1000, 0b001_1111][index(pick(at + 5, 3))],
            from,
            to: (from + 20 + minute(at + 6, 160)) % 1440,
            offsets,
        });
    }
}

/// In place of time slices: sevenths, quarters and halves of a GPU, with memory that every model here has.
fn layouts(pool: &mut Pool, pick: Pick<'_>) {
    if pick(0, 4) > 0 {
        return;
    }
    let slice = |profile: &str, share: u16, mem: u64| Slice { profile: profile.to_owned(), share, mem: Mib(mem) };
    let sevenths = Layout { slices: vec![slice("1g.2gb", 143, 2048); 7] };
    let halves = Layout { slices: vec![slice("3g.8gb", 500, 8192); 2] };
    let whole = Layout { slices: Vec::new() };
    let mixed =
        Layout { slices: vec![slice("3g.8gb", 500, 8192), slice("2g.4gb", 286, 4096), slice("1g.2gb", 143, 2048)] };
    pool.sharing = None;
    pool.layouts = match pick(1, 4) {
        0 => vec![sevenths],
        1 => vec![halves, sevenths],
        2 => vec![mixed, whole],
        _ => vec![mixed, halves],
    };
}

fn network(pool: &mut Pool, pick: Pick<'_>) {
    pool.network.cluster = pick(0, 4) == 0;
    pool.network.efa = pick(1, 4) == 0;
}

fn lifecycle(rules: &mut Lifecycle, pick: Pick<'_>) {
    if pick(0, 3) == 0 {
        rules.hang_after = Span::secs(30 + pick(1, 600));
    }
    if pick(2, 3) == 0 {
        rules.max_residency_over_compute = Some(1000 + u32::try_from(pick(3, 4000)).unwrap_or(0));
    }
    if pick(4, 3) == 0 {
        rules.scale_down_after = Span::secs(30 + pick(5, 900));
    }
}

/// GPUs of one node joined in twos or fours, and two NUMA nodes in the larger ones.
fn groups(policy: &mut Policy, pick: Pick<'_>) {
    if pick(0, 3) > 0 {
        return;
    }
    let pairs = pick(1, 2) == 0;
    for offer in policy.offerings.iter_mut().filter(|o| o.gpus > 1) {
        offer.nvlink = if pairs { 2 } else { offer.gpus };
        offer.numa = offer.gpus / 2;
    }
}

/// The policy without what it keeps whatever happens: under it the nodes go back to zero.
pub(crate) fn without_floors(policy: &Policy) -> Option<Policy> {
    let keeps = |p: &Pool| p.keep_ready > 0 || !p.floors.is_empty();
    if !policy.pools.iter().any(keeps) {
        return None;
    }
    let mut without = policy.clone();
    for pool in &mut without.pools {
        pool.keep_ready = 0;
        pool.watermarks = None;
        pool.floors.clear();
    }
    Some(without)
}

/// A feature, and whether a policy names it.
pub(crate) type Named = (&'static str, fn(&Policy) -> bool);

/// Every feature that a policy can name.
pub(crate) const NAMED: [Named; 35] = [
    ("a tier that buys nothing", |p| p.tiers.iter().any(|t| t.buys == Buys::Nothing)),
    ("weights", |p| p.quotas.iter().any(|q| q.weight != 1000)),
    ("ageing", |p| p.fairness.ageing.is_some()),
    ("half-life", |p| p.fairness.half_life != Fairness::default().half_life),
    ("minShare", |p| p.tiers.iter().any(|t| t.min_share > 0)),
    ("longest run", |p| p.tiers.iter().any(|t| t.max_run_while_others_wait.is_some())),
    ("borrowing", |p| limits(p).any(|l| l.borrow.is_none_or(|b| b.0 > 0))),
    ("lending bounded", |p| limits(p).any(|l| l.lend.is_some())),
    ("hourly budget", |p| budget(p, Period::Hour)),
    ("daily budget", |p| budget(p, Period::Day)),
    ("monthly budget", |p| budget(p, Period::Month)),
    ("budget holds", |p| spent(p, WhenSpent::Hold)),
    ("budget warns", |p| spent(p, WhenSpent::Warn)),
    ("late waits", |p| late(p, WhenLate::Wait)),
    ("late buys", |p| late(p, WhenLate::BuyOnDemand)),
    ("late is rejected", |p| late(p, WhenLate::Reject)),
    ("keepReady", |p| p.pools.iter().any(|p| p.keep_ready > 0)),
    ("floors by the hour", |p| p.pools.iter().any(|p| !p.floors.is_empty())),
    ("time slices", |p| p.pools.iter().any(|p| p.sharing.is_some())),
    ("layouts", |p| p.pools.iter().any(|p| !p.layouts.is_empty())),
    ("placement groups", |p| p.pools.iter().any(|p| p.network.cluster)),
    ("efa", |p| p.pools.iter().any(|p| p.network.efa)),
    ("nvlink", |p| p.offerings.iter().any(|o| o.nvlink > 0)),
    ("numa in two", |p| p.offerings.iter().any(|o| o.numa > 0 && o.numa < o.gpus)),
    ("two zones", |p| zones(p) == 2),
    ("three zones", |p| zones(p) == 3),
    ("two pools", |p| p.pools.len() == 2),
    ("residency bound", |p| p.lifecycle.max_residency_over_compute.is_some()),
    ("hangAfter", |p| p.lifecycle.hang_after != Lifecycle::default().hang_after),
    ("scaleDownAfter", |p| p.lifecycle.scale_down_after != Lifecycle::default().scale_down_after),
    ("shortest first", |p| p.rules().any(|rule| rule.order == QueueOrder::ShortestExpected)),
    ("longer runs make way", |p| p.rules().any(|rule| rule.preempt_within == PreemptWithin::LongerExpected)),
    ("billing", |p| p.billing.is_some()),
    ("moves", |p| p.consolidation.worth_it > 0),
    ("undeclared queues", |p| matches!(p.undeclared, forebay_kernel::policy::Undeclared::Under { .. })),
];

fn limits(policy: &Policy) -> impl Iterator<Item = &forebay_kernel::policy::QuotaLimit> {
    policy.quotas.iter().flat_map(|q| q.limits.values())
}

fn budget(policy: &Policy, per: Period) -> bool {
    policy.quotas.iter().filter_map(|q| q.budget).any(|b| b.per == per)
}

fn spent(policy: &Policy, when: WhenSpent) -> bool {
    policy.quotas.iter().filter_map(|q| q.budget).any(|b| b.when_spent == when)
}

fn late(policy: &Policy, when: WhenLate) -> bool {
    policy.queues.values().filter_map(|q| q.start).any(|s| s.when_late == when)
}

fn zones(policy: &Policy) -> usize {
    let zones: std::collections::BTreeSet<&str> = policy.offerings.iter().map(|o| o.zone.as_str()).collect();
    zones.len()
}
