//! A part of a bill: what is in one row of another bill, such as all that was spent on spot.
//!
//! Never: a row that the bill by the same thing does not have.

use super::basis::CostBasis;
use super::group::{CostBy, CostByFault, earlier_key, row_key};
use forebay_journal::SpendTotals;
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::ids::JobId;
use forebay_kernel::state::billing::{BilledJob, EarlierSpend};
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
    /// It has rows by nothing that is known.
    #[error(transparent)]
    By(#[from] CostByFault),
}

impl FromStr for CostSubset {
    type Err = CostSubsetFault;

    fn from_str(text: &str) -> Result<CostSubset, CostSubsetFault> {
        let named = text.split_once('=').filter(|(_, key)| !key.is_empty());
        let (by, key) = named.ok_or_else(|| CostSubsetFault::NoKey(text.chars().take(80).collect()))?;
        Ok(CostSubset { by: by.parse()?, key: key.to_owned() })
    }
}

impl fmt::Display for CostSubset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.by, self.key)
    }
}

impl CostSubset {
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
    }
}
