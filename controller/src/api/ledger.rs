//! How much one read of the ledger may take, of a bill, of the page of money, of what jobs cost and of metrics; and what is answered where that is
//! not enough.
//!
//! ```text
//! before each row: rows, time and memory left? -- yes: it is read
//!                      '-- no: a bill: BillTooLarge, with a range that fits; jobs of a list: without what they cost; metrics: later
//! ```
//!
//! Never: a sum of less than what was asked for.

use super::error::ApiError;
use super::rows::{ReadBudget, ReadCut};
use crate::show::figures::count;
use std::ops::ControlFlow;
use std::time::Duration;

/// Rows that one read looks at: some two seconds. 524,288 that it holds, and what is in no sum yet, which is looked at whatever is asked for: of
/// the 64 MiB of batches between three snapshots up to a million.
const MOST_ROWS: usize = 1 << 21;

/// How long one read looks at rows at most, whatever else the machine does.
const MOST_TIME: Duration = Duration::from_secs(5);

/// Charges and jobs that one read holds: 160 MB, at some 300 bytes for each. Two bills are made at once.
const MOST_HELD: usize = 1 << 19;

/// Bytes of a FOCUS dataset, which is made whole before it leaves: some 110,000 rows. What is free for the answers of one caller is more.
pub(super) const MOST_DATASET: usize = 48 << 20;

/// What one read of the ledger may take.
#[derive(Clone, Copy)]
pub(super) struct LedgerLimits {
    /// Rows that it looks at.
    pub rows: usize,
    /// Charges and jobs that it holds.
    pub held: usize,
    /// How long it looks at rows.
    pub time: Duration,
}

impl Default for LedgerLimits {
    fn default() -> LedgerLimits {
        LedgerLimits { rows: MOST_ROWS, held: MOST_HELD, time: MOST_TIME }
    }
}

impl LedgerLimits {
    /// Of one read.
    pub fn budget(self) -> LedgerBudget {
        LedgerBudget { limits: self, spent: None, cut: None }
    }
}

/// What one read of the ledger may still take.
pub(super) struct LedgerBudget {
    limits: LedgerLimits,
    /// `None`: it has not begun. It is no part of its time that another read is waited for.
    spent: Option<ReadBudget>,
    cut: Option<ReadCut>,
}

impl LedgerBudget {
    /// Whether another row may be looked at while so many charges and jobs are held.
    pub fn go_on(&mut self, held: usize) -> ControlFlow<()> {
        let LedgerLimits { rows, held: most, time } = self.limits;
        let spent = self.spent.get_or_insert_with(|| ReadBudget::of(rows, time));
        self.cut = if held > most { Some(ReadCut::Memory) } else { spent.spend() };
        if self.cut.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// There is no bill of a range: it would have taken more. `end`: where the first of its parts may end.
    pub fn no_bill(&self, end: Option<&str>) -> ApiError {
        too_large(&self.more(), &in_parts(end))
    }

    /// There is no bill of one job: it would have taken more.
    pub fn no_cost(&self) -> ApiError {
        too_large(&self.more(), "ask for it in a folder, or in a backup of it: `forebay job --data` has no such bound")
    }

    /// What it would have taken more of.
    fn more(&self) -> String {
        let LedgerLimits { rows, held, time } = self.limits;
        match self.cut {
            Some(ReadCut::Time) => format!("more than {} s to read", time.as_secs()),
            Some(ReadCut::Memory) => format!("more than {} charges and jobs at once", count(held as u64)),
            Some(ReadCut::Rows) | None => format!("more than {} rows of the ledger", count(rows as u64)),
        }
    }
}

/// There is no dataset of a range: it would have been too long. `end`: where the first of its parts may end.
pub(super) fn no_dataset(end: Option<&str>) -> ApiError {
    too_large(&format!("more than {} MiB of text", MOST_DATASET >> 20), &in_parts(end))
}

/// How to ask for what fits.
fn in_parts(end: Option<&str>) -> String {
    let parts = match end {
        Some(end) => {
            format!("ask for parts of it: the first may end (`to`) at {end}, where the next one begins (`from`)")
        }
        None => "ask for less time (`from`, `to`), down to an hour".to_owned(),
    };
    format!("{parts}; in a folder, or in a backup of it, `forebay cost --data` has no such bound")
}

fn too_large(takes: &str, remedy: &str) -> ApiError {
    ApiError::bad("BillTooLarge", format!("this bill takes {takes}, and no part of it is given for the whole"), remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many rows are looked at while so many are held, and the error then.
    fn looked(limits: LedgerLimits, held: usize) -> (usize, ApiError) {
        let mut budget = limits.budget();
        let rows = (0..).take_while(|_| budget.go_on(held).is_continue()).count();
        (rows, budget.no_bill(Some("2026-11-24")))
    }

    #[test]
    fn a_read_ends_with_its_rows_its_time_or_its_memory_and_says_which_and_what_fits() {
        let limits = LedgerLimits { rows: 2_000, held: 10, time: Duration::from_secs(600) };
        let cases = [
            (limits, 10, 2_000, "more than 2,000 rows"),
            (limits, 11, 0, "more than 10 charges and jobs"),
            // The time is looked at each 1,024 rows that are left.
            (LedgerLimits { time: Duration::ZERO, ..limits }, 0, 2_000 - 1_024 - 1, "more than 0 s"),
        ];
        for (limits, held, expected, takes) in cases {
            let (rows, refused) = looked(limits, held);
            assert_eq!(rows, expected, "{takes}");
            let body = refused.body();
            assert_eq!((refused.status().as_u16(), body.code.as_str()), (400, "BillTooLarge"));
            assert!(body.message.contains(takes) && body.remedy.contains("at 2026-11-24"), "{body:?}");
        }
        assert!(no_dataset(None).body().remedy.contains("`from`, `to`"));
        assert!(limits.budget().no_cost().body().remedy.contains("forebay job --data"));
    }
}
