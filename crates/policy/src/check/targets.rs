//! Budgets that could never start a job, and whether a pool may hold what a late job is to get.
//!
//! Never: guesses what jobs will come. What no job could meet is a fault; what few could is advice.

use super::super::fault::shown;
use super::super::written::{WrittenCeiling, WrittenPeriod, WrittenPolicy, WrittenPool};
use super::pools::forbids;
use super::{Check, PoolStock};
use forebay_kernel::catalog::{CapacityType, Offering};
use forebay_kernel::units::Rate;
use forebay_quantity::{Money, PerHour};

impl Check<'_> {
    pub(super) fn budgets(&mut self, stock: &[PoolStock]) {
        for (path, queue) in self.written.queues.iter().flatten() {
            let Some(budget) = queue.budget else { continue };
            let at = ["queues", path.as_str(), "budget", "amount"];
            if budget.amount.0 == 0 {
                let what = format!("queue `{}` has a budget of nothing, so none of its jobs can start", shown(path));
                self.at(&at, what, "write what its work may cost, or remove the budget");
            } else if budget.per == WrittenPeriod::Hour
                && let Some(least) = cheapest_hour(self.filled, path, stock)
                && least.0 > budget.amount.0
            {
                let least = PerHour(least);
                let what = format!(
                    "queue `{}` may spend {} an hour, but the least that it may use costs {least}",
                    shown(path),
                    budget.amount
                );
                self.at(&at, what, format!("write {} or more", Money(least.0.0)));
            }
        }
    }
}

/// The price of an hour of the smallest share of a GPU (of a node without one) that a queue or one below it may use. `None`: it is not known.
#[must_use]
pub fn cheapest_hour(filled: &WrittenPolicy, path: &str, stock: &[PoolStock]) -> Option<Rate> {
    let pools: Vec<&String> = filled.family(path).flat_map(|q| q.pools.iter().flatten()).collect();
    let all = || filled.pools.iter().flatten().zip(stock).filter(|((name, _), _)| pools.contains(name));
    if let Some(owned) = all().filter_map(|((_, pool), _)| pool.owned.as_ref()).next() {
        // A part of a node: how large it is, the cluster says.
        return owned.price.is_none_or(|price| price.0 == Rate(0)).then_some(Rate(0));
    }
    let hours = |pool: &WrittenPool, stock: &PoolStock| {
        let smallest = smallest(pool, stock);
        stock.offerings.iter().map(|offering| hour(offering, smallest)).min()
    };
    all().filter_map(|((_, pool), stock)| hours(pool, stock)).min().map(Rate)
}

/// Rounded down: a budget is refused only where nothing could fit.
fn hour(offering: &Offering, smallest: u64) -> u64 {
    let gpu = offering.price.0 / u64::from(offering.gpus.max(1));
    if offering.gpus == 0 { gpu } else { gpu * smallest / 1000 }
}

/// The smallest share of a GPU in a pool, in thousandths.
fn smallest(pool: &WrittenPool, stock: &PoolStock) -> u64 {
    let layouts = super::layouts(pool, stock);
    let of_slices = layouts.iter().flat_map(|l| &l.slices).map(|s| s.share);
    let of_time = pool.sharing.as_ref().and_then(|s| s.smallest).map(|p| p.0);
    u64::from(of_slices.chain(of_time).min().unwrap_or(1000))
}

/// Whether a pool may hold at least one on-demand node.
#[must_use]
pub fn can_hold_on_demand(pool: &WrittenPool, limits: Option<WrittenCeiling>, stock: &PoolStock) -> bool {
    let (own, all) = (pool.ceiling.unwrap_or_default(), limits.unwrap_or_default());
    let on_demand = stock.offerings.iter().filter(|o| o.capacity == CapacityType::OnDemand);
    on_demand.into_iter().any(|o| forbids(&own, o).is_none() && forbids(&all, o).is_none())
}
