//! The second view of a bill: what was nobody's, spread over the jobs of its pool by what their use cost.
//!
//! ```text
//! rows by pool, rounded once:  vision 6.00  nlp 2.00  (idle) 1.00  (boot) 0.20
//! by use (6 : 2):              vision 6.90  nlp 2.30
//! ```
//!
//! Never: another total than the first view; what pods of others held of owned nodes, or what a pool cost that no job used: those stay rows of
//! their own.

use super::basis::CostBasis;
use super::group::{CostBy, Sum, earlier, row, row_key};
use forebay_journal::SpendTotals;
use forebay_kernel::ids::JobId;
use forebay_kernel::state::billing::{BilledJob, BilledPool, ChargeKind};
use forebay_sim::score::money::{Exact, decimal, largest_remainders, rounded_rows};
use forebay_wire::document::cost::CostDocument;
use std::collections::BTreeMap;

/// Whose a row is while its pool's rows are spread.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum RowOwner {
    /// Jobs'.
    Jobs(BilledPool),
    /// Nobody's: it is spread.
    Nobody(BilledPool),
    /// It stays as it is.
    Fixed,
}

/// Micro-dollars, GPU time, that of nodes that were bought, that of spot.
type Amounts = [i128; 4];

/// Rows over which nothing can be spread.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "rows by {0} are not those of jobs, so nothing can be spread over them: ask by queue, tenant, tier, label:NAME or job"
)]
pub struct SpreadFault(String);

/// The bill of these charges with what was nobody's spread by use.
///
/// # Errors
/// Its rows are not those of jobs.
pub fn spread_bill(
    by: &CostBy,
    basis: &CostBasis,
    charges: &SpendTotals,
    jobs: &BTreeMap<JobId, BilledJob>,
) -> Result<CostDocument, SpreadFault> {
    if !by.has_rows_of_jobs() {
        return Err(SpreadFault(by.to_string()));
    }
    let mut sums: BTreeMap<(RowOwner, String), Sum> = BTreeMap::new();
    for (key, amount) in charges {
        let owner = match key.job {
            Some(_) => RowOwner::Jobs(key.pool),
            None if key.kind == ChargeKind::Foreign => RowOwner::Fixed,
            None => RowOwner::Nobody(key.pool),
        };
        let name = row_key(by, basis, key, key.job.map(|id| (id, jobs.get(&id))));
        sums.entry((owner, name)).or_default().add_charge(basis, key, *amount);
    }
    let mut before = BTreeMap::new();
    earlier(by, basis, &mut before);
    sums.extend(before.into_iter().map(|(name, sum)| ((RowOwner::Fixed, name), sum)));
    let costs: Vec<Exact> = sums.values().map(|sum| sum.cost.clone()).collect();
    let (micro, total) = rounded_rows(&costs);
    let amounts = |(sum, micro): (Sum, i128)| [micro, sum.gpu_time, sum.bought, sum.spot];
    let (names, sums): (Vec<_>, Vec<Sum>) = sums.into_iter().unzip();
    let rows = names.into_iter().zip(sums.into_iter().zip(micro).map(amounts)).collect();
    let all = added_up(rows);
    let rows = all.into_iter().map(|(name, amounts)| row(name, amounts)).collect();
    Ok(CostDocument { rows, total_usd: decimal(total) })
}

/// Rows by name, with nobody's given to those of jobs in the same pool.
fn added_up(rows: Vec<((RowOwner, String), Amounts)>) -> BTreeMap<String, Amounts> {
    let mut users: BTreeMap<BilledPool, Vec<(String, i128)>> = BTreeMap::new();
    for ((owner, name), amounts) in &rows {
        if let RowOwner::Jobs(pool) = owner {
            users.entry(*pool).or_default().push((name.clone(), amounts[0].max(0)));
        }
    }
    let mut all: BTreeMap<String, Amounts> = BTreeMap::new();
    let mut add = |name: &str, amounts: Amounts| {
        let sums = all.entry(name.to_owned()).or_default();
        sums.iter_mut().zip(amounts).for_each(|(sum, more)| *sum += more);
    };
    for ((owner, name), amounts) in rows {
        let users = match owner {
            RowOwner::Nobody(pool) => users.get(&pool).filter(|users| users.iter().any(|(_, weight)| *weight > 0)),
            RowOwner::Jobs(_) | RowOwner::Fixed => None,
        };
        let Some(users) = users else {
            add(&name, amounts);
            continue;
        };
        let weights: Vec<i128> = users.iter().map(|(_, weight)| *weight).collect();
        let parts = amounts.map(|amount| shared_out(amount, &weights));
        for (at, (name, _)) in users.iter().enumerate() {
            add(name, [0, 1, 2, 3].map(|of| parts[of][at]));
        }
    }
    all
}

/// An amount in parts that are as their weights, and add up to it.
fn shared_out(amount: i128, weights: &[i128]) -> Vec<i128> {
    let all: i128 = weights.iter().sum();
    let parts: Vec<(i128, i128)> =
        weights.iter().map(|weight| ((amount * weight).div_euclid(all), (amount * weight).rem_euclid(all))).collect();
    largest_remainders(&parts, amount)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_nobodys_goes_to_who_used_the_pool_and_nothing_is_lost() {
        let (a, b) = (BilledPool(0), BilledPool(1));
        let of = |owner, name: &str, micro| ((owner, name.to_owned()), [micro, micro * 10, micro, 0]);
        let rows = vec![
            of(RowOwner::Jobs(a), "nlp", 2_000),
            of(RowOwner::Jobs(a), "vision", 6_000),
            of(RowOwner::Jobs(b), "vision", 500),
            of(RowOwner::Nobody(a), "(boot, pool a)", 201),
            of(RowOwner::Nobody(a), "(idle, pool a)", 1_000),
            of(RowOwner::Nobody(BilledPool(2)), "(idle, pool c)", 70),
            of(RowOwner::Fixed, "(foreign, pool a)", 9),
        ];
        let all = added_up(rows);
        let micro = |name: &str| all.get(name).map(|amounts| amounts[0]);
        assert_eq!((micro("nlp"), micro("vision")), (Some(2_000 + 50 + 250), Some(6_500 + 151 + 750)));
        assert_eq!((micro("(idle, pool c)"), micro("(foreign, pool a)")), (Some(70), Some(9)));
        assert_eq!(all.len(), 4);
        let sum = |at: usize| all.values().map(|amounts| amounts[at]).sum::<i128>();
        assert_eq!((sum(0), sum(1), sum(2)), (9_780, 97_800, 9_780));
    }

    #[test]
    fn parts_add_up_whatever_their_weights() {
        for (amount, weights) in [(100, vec![1, 1, 1]), (7, vec![0, 5, 9]), (0, vec![3]), (1_000_003, vec![7, 11, 13])]
        {
            assert_eq!(shared_out(amount, &weights).iter().sum::<i128>(), amount);
        }
        assert_eq!(shared_out(100, &[1, 1, 1]), [34, 33, 33]);
    }
}
