//! A part of a bill: what is in one row of another bill, such as all that was spent on spot.
//!
//! Never: a row that the bill by the same thing does not have.

use super::basis::CostBasis;
use super::group::{CostBy, CostByFault, earlier_key, row_key};
use forebay_journal::SpendTotals;
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::ids::JobId;
use forebay_kernel::state::billing::{BilledJob, ChargeKind, EarlierSpend};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// A row of a bill, as `BY=KEY`, such as `capacity=spot`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CostSubset {
    /// By what that bill has its rows.
    pub by: CostBy,
    /// Which of them.
    pub key: String,
}

/// A text that names no row.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CostSubsetFault {
    /// There is no `=`.
    #[error(
        "`{0}` names no row: write BY=KEY as in `forebay cost --by BY`, such as capacity=spot or label:team=vision"
    )]
    NoKey(String),
    /// There can be no such row, whatever was spent.
    #[error("`{key}` is no row of a bill by {by}: {remedy}")]
    NoRow {
        /// By what.
        by: CostBy,
        /// What was asked for, short.
        key: String,
        /// What to write.
        remedy: String,
    },
    /// It has rows by nothing that is known.
    #[error(transparent)]
    By(#[from] CostByFault),
}

impl FromStr for CostSubset {
    type Err = CostSubsetFault;

    fn from_str(text: &str) -> Result<CostSubset, CostSubsetFault> {
        let named = text.split_once('=').filter(|(_, key)| !key.is_empty());
        let (by, key) = named.ok_or_else(|| CostSubsetFault::NoKey(text.chars().take(80).collect()))?;
        let subset = CostSubset { by: by.parse()?, key: key.to_owned() };
        match subset.impossible() {
            Some(remedy) => {
                Err(CostSubsetFault::NoRow { by: subset.by, key: subset.key.chars().take(80).collect(), remedy })
            }
            None => Ok(subset),
        }
    }
}

impl fmt::Display for CostSubset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.by, self.key)
    }
}

impl CostSubset {
    /// What to write instead of a key that no row can have. Names of queues, jobs and others are any, and what was spent before is in brackets.
    fn impossible(&self) -> Option<String> {
        let known: Vec<&str> = match self.by {
            _ if self.key.starts_with('(') => return None,
            CostBy::Capacity => CapacityType::ALL.iter().map(|capacity| capacity.as_str()).collect(),
            CostBy::Kind => ChargeKind::ALL.iter().map(|kind| kind.as_str()).collect(),
            CostBy::Day => {
                let day =
                    jiff::civil::Date::strptime("%Y-%m-%d", &self.key).is_ok_and(|day| day.to_string() == self.key);
                return (!day).then(|| "write a day, such as `2026-11-16`".to_owned());
            }
            _ => return None,
        };
        (!known.contains(&self.key.as_str())).then(|| forebay_policy::meant(&self.key, known))
    }

    /// Leaves only what is in this row.
    pub fn keep(&self, basis: &mut CostBasis, charges: &mut SpendTotals, jobs: &BTreeMap<JobId, BilledJob>) {
        charges.retain(|key, _| {
            let job = key.job.map(|id| (id, jobs.get(&id)));
            row_key(&self.by, basis, key, job) == self.key
        });
        let kept = CapacityType::ALL.map(|capacity| earlier_key(&self.by, basis, capacity) == self.key);
        for (earlier, kept) in basis.began.earlier.iter_mut().zip(kept) {
            if !kept {
                *earlier = EarlierSpend::default();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_named_by_its_bill_and_its_key() {
        for text in ["capacity=spot", "label:team=vision=2", "queue=a/b"] {
            assert_eq!(text.parse::<CostSubset>().unwrap().to_string(), text);
        }
        let refused = |text: &str| text.parse::<CostSubset>().unwrap_err().to_string();
        assert!(refused("spot").contains("write BY=KEY"), "{}", refused("spot"));
        assert!(refused("capacity=").contains("names no row"));
        assert!(refused("colour=red").contains("write queue, tenant"));
        assert!(
            refused("capacity=Spot").contains("no row of a bill by capacity")
                && refused("capacity=Spot").contains("`spot`")
        );
        assert!(refused("kind=idel").contains("idle") && refused("day=2026-11-2").contains("write a day"));
        for text in ["kind=(boot, pool cpu)", "day=2026-11-16", "capacity=(before 2026-11-16)"] {
            assert!(text.parse::<CostSubset>().is_ok(), "{text}");
        }
    }
}
