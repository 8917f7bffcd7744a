//! The policy with every default filled in. What `--explain` prints and what is compiled are the same value.
//!
//! Never: overwrites what is written, depends on anything but the written policy.

use super::words::{InstanceTypes, KeepReady, TimeZone, UndeclaredQueues, WrittenDrain};
use super::written::*;
use forebay_kernel::policy::{Consolidation, Fairness, Lifecycle, OnLinger};
use forebay_kernel::units::{MilliGpu, Rate, Span};
use forebay_quantity::{Factor, GpuBound, PerHour, Percent, Time};
use indexmap::IndexMap;

/// The tier of a queue that names none, where a tier of this name exists.
pub const DEFAULT_TIER: &str = "normal";
/// The pool of a policy that declares none.
pub const DEFAULT_POOL: &str = "default";
/// How many undeclared queues there may be, unless the policy says otherwise.
pub const DEFAULT_AT_MOST: u32 = 100;

/// The parent's path: `research` of `research/vision`.
pub fn parent(path: &str) -> Option<&str> {
    path.rsplit_once('/').map(|(parent, _)| parent)
}

/// A path and those above it, upwards: `research/vision`, `research`.
pub fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| parent(path))
}

/// Fills every default.
pub fn filled(written: &WrittenPolicy) -> WrittenPolicy {
    let mut out = written.clone();
    let tiers = out.tiers.get_or_insert_with(default_tiers);
    for tier in tiers.values_mut() {
        tier.buys.get_or_insert(WrittenBuys::SpotThenOnDemand);
        tier.stoppable_by.get_or_insert_default();
        tier.min_run.get_or_insert(Time(Span::ZERO));
    }
    let tier = default_tier(tiers);
    let ranks: Vec<(String, i32)> = tiers.iter().map(|(name, tier)| (name.clone(), tier.priority)).collect();
    let pools = out.pools.get_or_insert_with(|| IndexMap::from([(DEFAULT_POOL.to_owned(), WrittenPool::default())]));
    pools.values_mut().for_each(fill_pool);
    let pool_names: Vec<String> = pools.keys().cloned().collect();

    let declared = written.queues.clone().unwrap_or_default();
    let queues = out.queues.get_or_insert_default();
    for (path, queue) in queues.iter_mut() {
        queue.tier = inherited(&declared, path, |q| q.tier.clone()).or_else(|| tier.clone());
        queue.tiers = inherited(&declared, path, |q| q.tiers.clone());
        if let Some(own) = &queue.tier {
            queue.tiers = Some(tiers_of(own, queue.tiers.take(), &ranks));
        }
        queue.reclaim = inherited(&declared, path, |q| q.reclaim).or(Some(WrittenReclaim::Any));
        queue.preempt_within =
            inherited(&declared, path, |q| q.preempt_within).or(Some(WrittenPreemptWithin::LowerTiers));
        queue.order = inherited(&declared, path, |q| q.order);
        queue.pools = inherited(&declared, path, |q| q.pools.clone()).or_else(|| Some(pool_names.clone()));
        queue.submitters = inherited(&declared, path, |q| q.submitters.clone());
        queue.start = inherited(&declared, path, |q| q.start);
        queue.weight.get_or_insert(Factor(1000));
        queue.quota.iter_mut().flat_map(|q| q.values_mut()).for_each(fill_quota);
        if let Some(start) = &mut queue.start {
            start.when_late.get_or_insert(WrittenWhenLate::Wait);
        }
        if let Some(budget) = &mut queue.budget {
            budget.when_spent.get_or_insert(WrittenWhenSpent::Hold);
        }
    }
    if let UndeclaredQueues::Shared(under) = out.undeclared_queues.get_or_insert(UndeclaredQueues::Reject) {
        under.at_most.get_or_insert(DEFAULT_AT_MOST);
        under.quota_together.iter_mut().flat_map(|q| q.values_mut()).for_each(fill_quota);
    }
    out.impossible.get_or_insert(WrittenImpossible::Hold);
    out.node_overhead.get_or_insert(PerHour(Rate(0)));
    let consolidation = out.consolidation.get_or_insert_default();
    let engine = Consolidation::default();
    consolidation.worth_it.get_or_insert(Factor(u64::from(engine.worth_it)));
    let moves = u16::try_from(engine.moves_per_hour).unwrap_or(1000);
    consolidation.moves_per_hour.get_or_insert(Percent(moves));
    consolidation.every.get_or_insert(Time(engine.every));
    out.fairness.get_or_insert_default().half_life.get_or_insert(Time(Fairness::default().half_life));
    fill_lifecycle(out.lifecycle.get_or_insert_default());
    let billing = out.billing.get_or_insert_default();
    billing.labels.get_or_insert_default();
    billing.zone.get_or_insert_with(TimeZone::utc);
    out
}

/// `critical`, `normal`, `scavenger`: what most teams mean by urgent, work, and whenever.
fn default_tiers() -> IndexMap<String, WrittenTier> {
    let tier = |priority, buys, stoppable_by: &[&str]| WrittenTier {
        priority,
        buys: Some(buys),
        stoppable_by: Some(stoppable_by.iter().map(|t| (*t).to_owned()).collect()),
        ..WrittenTier::default()
    };
    IndexMap::from([
        ("critical".to_owned(), tier(1000, WrittenBuys::OnDemand, &[])),
        (
            "normal".to_owned(),
            WrittenTier {
                min_run: Some(Time(Span::mins(10))),
                max_run_while_others_wait: Some(Time(Span::mins(8 * 60))),
                ..tier(500, WrittenBuys::SpotThenOnDemand, &["critical"])
            },
        ),
        ("scavenger".to_owned(), tier(0, WrittenBuys::Nothing, &["critical", "normal"])),
    ])
}

/// `normal`, or the only tier there is. A policy with other tiers must name one for each queue.
pub fn default_tier(tiers: &IndexMap<String, WrittenTier>) -> Option<String> {
    let only = (tiers.len() == 1).then(|| tiers.keys().next()).flatten();
    tiers.get_key_value(DEFAULT_TIER).map(|(name, _)| name).or(only).cloned()
}

/// What the jobs of a queue may ask for: what is listed and its own tier; without a list its own and all of a lower priority.
fn tiers_of(own: &str, listed: Option<Vec<String>>, ranks: &[(String, i32)]) -> Vec<String> {
    if let Some(listed) = listed {
        let missing = (!listed.iter().any(|tier| tier == own)).then(|| own.to_owned());
        return missing.into_iter().chain(listed).collect();
    }
    let priority = ranks.iter().find(|(name, _)| name == own).map(|(_, priority)| *priority);
    let lower = ranks.iter().filter(|(_, other)| Some(*other) < priority).map(|(name, _)| name.clone());
    [own.to_owned()].into_iter().chain(lower).collect()
}

/// A field of the queue, or of its nearest ancestor that states it.
fn inherited<T>(
    queues: &IndexMap<String, WrittenQueue>,
    path: &str,
    field: impl Fn(&WrittenQueue) -> Option<T>,
) -> Option<T> {
    ancestors(path).find_map(|path| queues.get(path).and_then(&field))
}

fn fill_quota(quota: &mut WrittenQuota) {
    quota.borrow.get_or_insert(GpuBound::GpuCount(forebay_quantity::GpuCount(MilliGpu(0))));
    quota.lend.get_or_insert(GpuBound::All);
}

fn fill_pool(pool: &mut WrittenPool) {
    if let Some(owned) = &mut pool.owned {
        owned.price.get_or_insert(PerHour(Rate(0)));
        return;
    }
    pool.instance_types.get_or_insert(InstanceTypes::Any);
    pool.keep_ready.get_or_insert(KeepReady::Always(0));
    pool.drain.get_or_insert(WrittenDrain::Auto);
    pool.spot.get_or_insert_default().max_price.get_or_insert(Percent(1000));
    if let Some(sharing) = &mut pool.sharing
        && let Some(slices) = sharing.time_slices
    {
        // An even slice, rounded down to a whole thousandth: rounded up, fewer than `timeSlices` of them would fit on a GPU. None when there are
        // no slices, which `check` refuses.
        sharing.smallest.get_or_insert(Percent(1000u16.checked_div(slices).unwrap_or(0)));
    }
}

fn fill_lifecycle(lifecycle: &mut WrittenLifecycle) {
    let mut engine = Lifecycle::default();
    for (field, span) in lifecycle_times(lifecycle, &mut engine) {
        field.get_or_insert(Time(*span));
    }
    lifecycle.on_linger.get_or_insert(match engine.on_linger {
        OnLinger::Warn => WrittenOnLinger::Warn,
        OnLinger::Stop => WrittenOnLinger::Stop,
    });
    lifecycle.quarantine_after.get_or_insert(engine.quarantine_after);
}

/// Each time of a lifecycle as it is written, with the engine's.
pub fn lifecycle_times<'a>(
    written: &'a mut WrittenLifecycle,
    engine: &'a mut Lifecycle,
) -> [(&'a mut Option<Time>, &'a mut Span); 10] {
    [
        (&mut written.linger_after, &mut engine.linger_after),
        (&mut written.max_run, &mut engine.max_run),
        (&mut written.launch_retry, &mut engine.launch_retry),
        (&mut written.boot_timeout, &mut engine.boot_timeout),
        (&mut written.start_timeout, &mut engine.start_timeout),
        (&mut written.drain_settle, &mut engine.drain_settle),
        (&mut written.grace, &mut engine.grace),
        (&mut written.scale_down_after, &mut engine.scale_down_after),
        (&mut written.hang_after, &mut engine.hang_after),
        (&mut written.protect, &mut engine.protect),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_even_slices_fit_on_a_gpu_as_are_written() {
        for slices in 1..=64 {
            let sharing = WrittenSharing { time_slices: Some(slices), ..WrittenSharing::default() };
            let mut pool = WrittenPool { sharing: Some(sharing), ..WrittenPool::default() };
            fill_pool(&mut pool);
            let share = pool.sharing.and_then(|sharing| sharing.smallest).map_or(0, |smallest| smallest.0);
            assert!(share > 0 && slices * share <= 1000, "{slices} slices of {share}/1000 are more than a GPU");
            // As the engine counts them: `parts` in src/rules/launch.rs.
            assert_eq!((1000 / share).min(slices), slices, "{slices} slices of {share}/1000");
        }
    }
}
