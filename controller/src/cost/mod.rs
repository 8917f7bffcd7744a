//! What was spent, by whom and on what: the ledger's charges grouped, priced and rounded once.
//!
//! ```text
//! charges of closed batches (journal) + open charges (state) = all of it, at one position
//!   -> by queue, tenant, tier, label, pool, capacity, type, kind, day, job -> exact sums -> micro-dollars by largest remainder
//! ```
//!
//! Sums that only grow are kept up with beside it, batch by batch (accounts.rs), for who asks every few seconds.
//!
//! A server and a folder go the same way from here on, so they give the same figures.
//!
//! Never: a float in a sum, a row that is left out, money that the ledger has not.

mod accounts;
mod basis;
mod daily;
mod focus;
mod group;
mod range;
mod spread;
mod subset;
mod timeline;

pub use accounts::{AccountLine, AccountSum, AccountsRead, SpendAccounts};
pub use basis::{BalanceCheck, CostBasis};
pub use daily::DailyFocus;
pub use focus::{FOCUS_COLUMNS, focus_csv, focus_csv_within};
pub use group::{CostBy, CostByFault, UnknownLabel, bill, check_label, job_cost};
pub use range::{CostRange, CostRangeFault, Slots};
pub use spread::{SpreadFault, spread_bill};
pub use subset::{CostSubset, CostSubsetFault};
pub use timeline::{PriceComparison, Timeline, TimelinePeriod};

use crate::journal::{JournalError, SpendTotals, read_folder_spend};
use forebay_kernel::ids::JobId;
use forebay_kernel::state::billing::BilledJob;
use forebay_sim::score::money::largest_remainders;
use forebay_wire::document::cost::{CostDocument, JobCost};
use std::collections::BTreeMap;
use std::path::Path;

/// Why there is no bill.
#[derive(Debug, thiserror::Error)]
pub enum CostFault {
    /// The journal cannot be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// From or to is no time that a bill can begin or end at.
    #[error(transparent)]
    Range(#[from] CostRangeFault),
    /// The rows are not what the nodes cost.
    #[error(transparent)]
    Unbalanced(#[from] Unbalanced),
    /// It cannot have the rows that were asked for.
    #[error(transparent)]
    Rows(#[from] RowsFault),
}

/// Why a bill cannot have the rows that were asked for.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RowsFault {
    /// What was nobody's cannot be spread over them.
    #[error(transparent)]
    Spread(#[from] SpreadFault),
    /// They are by a label that nobody knows.
    #[error(transparent)]
    Label(#[from] UnknownLabel),
}

/// What a bill is of.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum BillScope {
    /// Everything. What was nobody's has rows of its own.
    #[default]
    All,
    /// Everything. What was nobody's is spread over the jobs of its pool by use.
    Spread,
    /// What is in each of these rows of other bills.
    Of(Vec<CostSubset>),
}

impl BillScope {
    /// Of these rows; or, where there are none, this.
    #[must_use]
    pub fn of_or(of: Vec<CostSubset>, otherwise: BillScope) -> BillScope {
        if of.is_empty() { otherwise } else { BillScope::Of(of) }
    }
}

/// The rows of a whole bill are not what the ledger says that all nodes cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "the bill has {rows_micro} micro-dollars and all nodes cost {nodes_micro}: a fault of this program or a journal that another program \
     changed: run `forebay journal verify`, and report it"
)]
pub struct Unbalanced {
    /// What the rows add up to.
    pub rows_micro: i128,
    /// What the nodes cost.
    pub nodes_micro: i128,
}

/// Of each row of a bill its cents, which add up to those of the total, and the total's.
#[must_use]
pub fn cents_of_rows(bill: &CostDocument) -> (Vec<i128>, i128) {
    let micro = |usd: f64| (usd * 1e6).round() as i128;
    let rows: Vec<i128> = bill.rows.iter().map(|row| micro(row.cost_usd)).collect();
    cents(&rows, micro(bill.total_usd))
}

/// Micro-dollars that add up to a total, in cents that add up to it in cents, and that.
fn cents(micro: &[i128], total: i128) -> (Vec<i128>, i128) {
    let parts: Vec<(i128, i128)> = micro.iter().map(|m| (m.div_euclid(10_000), m.rem_euclid(10_000))).collect();
    let total = (total + 5_000).div_euclid(10_000);
    (largest_remainders(&parts, total), total)
}

/// All charges of a range: those of closed batches and the open ones, compared with what all nodes cost before any is left out.
///
/// # Errors
/// The range is none, or the bill does not add up.
pub fn ranged(
    basis: &CostBasis,
    charges: SpendTotals,
    jobs: BTreeMap<JobId, BilledJob>,
    range: &CostRange,
) -> Result<(SpendTotals, BTreeMap<JobId, BilledJob>), CostFault> {
    Ok(basis.complete(charges, jobs, &range.slots(basis)?, BalanceCheck::Checked)?)
}

/// A field of CSV (RFC 4180) that is quoted where it has to be. What a spreadsheet would take for a formula is a text.
#[must_use]
pub fn csv_field(text: &str) -> String {
    let text = if text.starts_with(['=', '+', '-', '@']) { format!("'{text}") } else { text.to_owned() };
    forebay_sim::trace::csv_field(&text)
}

/// The bill of a folder as a FOCUS dataset in CSV.
///
/// # Errors
/// There is no sound journal, the range is none, or the bill does not add up.
pub fn focus_of_folder(folder: &Path, range: &CostRange) -> Result<String, CostFault> {
    let found = read_folder_spend(folder)?;
    let basis = CostBasis::of(&found.machine);
    let (charges, jobs) = ranged(&basis, found.charges, found.jobs, range)?;
    let slots = range.slots(&basis)?;
    Ok(focus_csv(&basis.within(&slots), &charges, &jobs))
}

/// The bill of a folder, which a server may write meanwhile.
///
/// # Errors
/// There is no sound journal, the range is none, the bill does not add up, or it cannot have the rows that were asked for.
pub fn of_folder(folder: &Path, by: &CostBy, range: &CostRange, scope: &BillScope) -> Result<CostDocument, CostFault> {
    let found = read_folder_spend(folder)?;
    let basis = CostBasis::of(&found.machine);
    let (charges, jobs) = ranged(&basis, found.charges, found.jobs, range)?;
    let slots = range.slots(&basis)?;
    Ok(scoped_bill(by, scope, basis.within(&slots), charges, &jobs)?)
}

/// What one job of a folder cost, open or over.
///
/// # Errors
/// There is no sound journal, or the bill does not add up.
pub fn folder_job_cost(folder: &Path, id: JobId) -> Result<JobCost, CostFault> {
    let found = read_folder_spend(folder)?;
    let basis = CostBasis::of(&found.machine);
    let (charges, _) = ranged(&basis, found.charges, found.jobs, &CostRange::default())?;
    Ok(job_cost(&basis, id, &charges))
}

/// The bill of these charges, or of a part of them.
///
/// # Errors
/// What was nobody's is to be spread over rows that are not those of jobs, or rows are by a label that nobody knows.
pub fn scoped_bill(
    by: &CostBy,
    scope: &BillScope,
    mut basis: CostBasis,
    mut charges: SpendTotals,
    jobs: &BTreeMap<JobId, BilledJob>,
) -> Result<CostDocument, RowsFault> {
    check_label(by, &basis, jobs)?;
    match scope {
        BillScope::All => {}
        BillScope::Spread => return Ok(spread_bill(by, &basis, &charges, jobs)?),
        BillScope::Of(rows) => {
            for row in rows {
                check_label(&row.by, &basis, jobs)?;
                row.keep(&mut basis, &mut charges, jobs);
            }
        }
    }
    Ok(bill(by, &basis, &charges, jobs))
}
