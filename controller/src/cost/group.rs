//! A bill by one thing: its rows, in the order of their keys.
//!
//! What belongs to no job is in rows of its own, by cause and pool, wherever rows are those of jobs: `(idle, pool a10g)`.
//!
//! Never: a key that could be taken for such a row. A label's value that begins with `(` or `\` is written after a `\`.

use super::basis::CostBasis;
use forebay_journal::SpendTotals;
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::ids::JobId;
use forebay_kernel::state::billing::{BilledJob, ChargeKey, EarlierSpend};
use forebay_kernel::units::Timestamp;
use forebay_sim::score::money::{Exact, decimal, rounded_rows};
use forebay_wire::document::cost::{CostDocument, CostRow, JobCost, JobCostRow};
use std::collections::BTreeMap;
use std::str::FromStr;

/// By what a bill has its rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CostBy {
    /// Queues, by path.
    Queue,
    /// Tenants.
    Tenant,
    /// Tiers, as they were when jobs were submitted.
    Tier,
    /// Values of a label that the policy bills by.
    Label(String),
    /// Pools.
    Pool,
    /// How capacity is paid for.
    Capacity,
    /// Instance types.
    Type,
    /// What it was: worked, idle, lost ...
    Kind,
    /// Days of the billing zone.
    Day,
    /// Jobs.
    Job,
}

/// A word that is nothing by which a bill can have its rows.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` is not known: write queue, tenant, tier, label:NAME, pool, capacity, type, kind, day or job")]
pub struct CostByFault(String);

impl CostBy {
    /// Whether its rows are those of jobs, so that what belongs to no job has rows of its own.
    #[must_use]
    pub fn has_rows_of_jobs(&self) -> bool {
        matches!(self, CostBy::Queue | CostBy::Tenant | CostBy::Tier | CostBy::Label(_) | CostBy::Job)
    }
}

/// A label that a bill has no rows by.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("label:{name}: the policy bills by no such label, and no job of this bill has it: {remedy}")]
pub struct UnknownLabel {
    name: String,
    remedy: String,
}

/// Whether a bill of these jobs can have its rows by this: by a label of the policy in force, or one that a job has from a policy before.
///
/// # Errors
/// It is a label that nobody knows.
pub fn check_label(by: &CostBy, basis: &CostBasis, jobs: &BTreeMap<JobId, BilledJob>) -> Result<(), UnknownLabel> {
    let CostBy::Label(name) = by else { return Ok(()) };
    let labels = basis.labels();
    if labels.contains(name) || jobs.values().any(|job| job.labels.contains_key(name)) {
        return Ok(());
    }
    let remedy = match labels {
        [] => "name it under `billing.labels` in the policy".to_owned(),
        labels => forebay_policy::meant(name, labels.iter().map(String::as_str)),
    };
    Err(UnknownLabel { name: name.chars().take(80).collect(), remedy })
}

impl FromStr for CostBy {
    type Err = CostByFault;

    fn from_str(word: &str) -> Result<CostBy, CostByFault> {
        Ok(match word {
            "queue" => CostBy::Queue,
            "tenant" => CostBy::Tenant,
            "tier" => CostBy::Tier,
            "pool" => CostBy::Pool,
            "capacity" => CostBy::Capacity,
            "type" => CostBy::Type,
            "kind" => CostBy::Kind,
            "day" => CostBy::Day,
            "job" => CostBy::Job,
            other => match other.strip_prefix("label:").filter(|name| !name.is_empty()) {
                Some(name) => CostBy::Label(name.to_owned()),
                None => return Err(CostByFault(other.chars().take(80).collect())),
            },
        })
    }
}

impl std::fmt::Display for CostBy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            CostBy::Queue => "queue",
            CostBy::Tenant => "tenant",
            CostBy::Tier => "tier",
            CostBy::Label(name) => return write!(f, "label:{name}"),
            CostBy::Pool => "pool",
            CostBy::Capacity => "capacity",
            CostBy::Type => "type",
            CostBy::Kind => "kind",
            CostBy::Day => "day",
            CostBy::Job => "job",
        })
    }
}

/// A row while it is being added up.
#[derive(Clone, Debug, Default)]
pub(super) struct Sum {
    /// What it cost.
    pub(super) cost: Exact,
    /// Thousandths of a GPU x milliseconds.
    pub(super) gpu_time: i128,
    /// Of this, on nodes that were bought.
    pub(super) bought: i128,
    /// Of that, on spot.
    pub(super) spot: i128,
}

impl Sum {
    /// Adds a charge.
    pub(super) fn add_charge(&mut self, basis: &CostBasis, key: &ChargeKey, amount: i128) {
        let Some(offer) = basis.offering(key.offering) else { return };
        self.cost.add(i128::from(key.price.0), amount, offer.shares);
        if offer.gpus {
            self.add_gpu_time(amount, offer.capacity);
        }
    }

    /// Adds what was spent before the ledger knew by whom.
    pub(super) fn add_earlier(&mut self, spent: &EarlierSpend, capacity: CapacityType) {
        self.cost.add_spend(spent.cost);
        self.add_gpu_time(i128::try_from(spent.gpu_time.0).unwrap_or(i128::MAX), capacity);
    }

    fn add_gpu_time(&mut self, amount: i128, capacity: CapacityType) {
        self.gpu_time += amount;
        self.bought += if capacity == CapacityType::Owned { 0 } else { amount };
        self.spot += if capacity == CapacityType::Spot { amount } else { 0 };
    }
}

/// The bill of these charges.
#[must_use]
pub fn bill(by: &CostBy, basis: &CostBasis, charges: &SpendTotals, jobs: &BTreeMap<JobId, BilledJob>) -> CostDocument {
    let mut sums: BTreeMap<String, Sum> = BTreeMap::new();
    for (key, amount) in charges {
        let job = key.job.map(|id| (id, jobs.get(&id)));
        sums.entry(row_key(by, basis, key, job)).or_default().add_charge(basis, key, *amount);
    }
    earlier(by, basis, &mut sums);
    document(sums)
}

/// What a job was charged for: amounts by attempt, kind, type and how that is paid for, rounded so that they add up.
#[must_use]
pub fn job_cost(basis: &CostBasis, id: JobId, charges: &SpendTotals) -> JobCost {
    let mut sums: BTreeMap<(u32, &str, &str, &str), Sum> = BTreeMap::new();
    for (key, amount) in charges.iter().filter(|(key, _)| key.job == Some(id)) {
        let Some(offer) = basis.offering(key.offering) else { continue };
        let row = (key.attempt.0, key.kind.as_str(), offer.instance_type.as_str(), offer.capacity.as_str());
        sums.entry(row).or_default().add_charge(basis, key, *amount);
    }
    let costs: Vec<Exact> = sums.values().map(|sum| sum.cost.clone()).collect();
    let (micro, total) = rounded_rows(&costs);
    let gpu_time = sums.values().map(|sum| sum.gpu_time).sum();
    let row = |(((attempt, kind, instance_type, capacity), sum), micro): ((_, Sum), i128)| {
        let (attempt, kind, instance_type, capacity): (u32, &str, &str, &str) =
            (attempt, kind, instance_type, capacity);
        JobCostRow {
            attempt,
            kind: kind.to_owned(),
            instance_type: instance_type.to_owned(),
            capacity_type: capacity.to_owned(),
            cost_usd: decimal(micro),
            gpu_hours: gpu_hours(sum.gpu_time),
        }
    };
    JobCost {
        now_s: basis.now.into(),
        job: id.to_string(),
        rows: sums.into_iter().zip(micro).map(row).collect(),
        cost_usd: decimal(total),
        gpu_hours: gpu_hours(gpu_time),
    }
}

/// Thousandths of a GPU x milliseconds as millionths of a GPU-hour: 3,600 of the former are one of the latter.
fn gpu_hours(gpu_time: i128) -> f64 {
    decimal(gpu_micro_hours(gpu_time))
}

/// The same as a whole number of millionths.
pub(super) fn gpu_micro_hours(gpu_time: i128) -> i128 {
    (gpu_time * 2 + 3_600).div_euclid(7_200)
}

/// What was spent before the ledger knew by whom.
pub(super) fn earlier(by: &CostBy, basis: &CostBasis, sums: &mut BTreeMap<String, Sum>) {
    for (capacity, spent) in basis.earlier() {
        sums.entry(earlier_key(by, basis, capacity)).or_default().add_earlier(spent, capacity);
    }
}

/// The name of the row of what was spent before the ledger knew by whom.
pub(super) fn earlier_key(by: &CostBy, basis: &CostBasis, capacity: CapacityType) -> String {
    match by {
        CostBy::Capacity => capacity.as_str().to_owned(),
        _ => format!("(before {})", day(basis, basis.began.at)),
    }
}

fn document(sums: BTreeMap<String, Sum>) -> CostDocument {
    let costs: Vec<Exact> = sums.values().map(|sum| sum.cost.clone()).collect();
    let (micro, total) = rounded_rows(&costs);
    let row = |((key, sum), micro): ((String, Sum), i128)| row(key, [micro, sum.gpu_time, sum.bought, sum.spot]);
    CostDocument { rows: sums.into_iter().zip(micro).map(row).collect(), total_usd: decimal(total) }
}

/// A row of micro-dollars, GPU time, that of nodes that were bought, and that of spot.
pub(super) fn row(key: String, [micro, gpu_time, bought, spot]: [i128; 4]) -> CostRow {
    let spot_ratio = (spot * 1_000_000).checked_div(bought).map(decimal);
    CostRow { key, cost_usd: decimal(micro), gpu_hours: gpu_hours(gpu_time), spot_ratio }
}

/// The name of the row of a charge.
pub(super) fn row_key(
    by: &CostBy,
    basis: &CostBasis,
    key: &ChargeKey,
    job: Option<(JobId, Option<&BilledJob>)>,
) -> String {
    let of_node = match by {
        CostBy::Pool => Some(basis.pool(key.pool).to_owned()),
        CostBy::Capacity => Some(basis.offering(key.offering).map_or("", |o| o.capacity.as_str()).to_owned()),
        CostBy::Type => Some(basis.offering(key.offering).map_or(String::new(), |o| o.instance_type.clone())),
        CostBy::Kind => Some(key.kind.as_str().to_owned()),
        CostBy::Day => Some(day(basis, key.slot.begins())),
        _ => None,
    };
    if let Some(key) = of_node {
        return key;
    }
    let Some((id, job)) = job else { return format!("({}, pool {})", key.kind.as_str(), basis.pool(key.pool)) };
    let Some(job) = job else { return format!("(unknown {id})") };
    match by {
        CostBy::Queue => apart(&job.queue),
        CostBy::Tenant => apart(&job.tenant),
        CostBy::Tier => apart(&job.tier),
        CostBy::Label(name) => label(job, name).map_or_else(|| format!("(no {name})"), |value| apart(value)),
        _ => id.to_string(),
    }
}

/// A label of a job. An empty one is none.
pub(super) fn label<'a>(job: &'a BilledJob, name: &str) -> Option<&'a String> {
    job.labels.get(name).filter(|value| !value.is_empty())
}

/// A text that cannot be taken for a row of nobody's.
pub(super) fn apart(value: &str) -> String {
    if value.starts_with(['(', '\\']) { format!("\\{value}") } else { value.to_owned() }
}

/// The day of the billing zone.
fn day(basis: &CostBasis, at: Timestamp) -> String {
    let local = i64::try_from(at.0).unwrap_or(i64::MAX).saturating_add(i64::from(basis.offset(at)) * 1000);
    jiff::Timestamp::from_millisecond(local)
        .map_or_else(|_| "(no day)".to_owned(), |at| at.strftime("%Y-%m-%d").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_that_nobody_knows_is_no_row_of_a_bill() {
        let mut basis = CostBasis::with_offsets(&[(0, 0)]);
        basis.labels = vec!["costCenter".to_owned(), "team".to_owned()];
        let labels = BTreeMap::from([("group".to_owned(), "vision".to_owned())]);
        let jobs = BTreeMap::from([(JobId(1), BilledJob { labels, ..BilledJob::default() })]);
        let check = |by: &str, jobs: &BTreeMap<JobId, BilledJob>| check_label(&by.parse().unwrap(), &basis, jobs);
        for by in ["queue", "label:team", "label:costCenter", "label:group"] {
            assert_eq!(check(by, &jobs), Ok(()), "{by}");
        }
        let refused = check("label:taem", &jobs).unwrap_err().to_string();
        assert!(refused.starts_with("label:taem: ") && refused.contains("`team`"), "{refused}");
        assert!(check("label:group", &BTreeMap::new()).is_err(), "no job of this bill has it");
    }
}
