//! A bill as a FOCUS 1.2 dataset (the FinOps Open Cost and Usage Specification): its rows, and these as CSV.
//!
//! ```text
//! charges -> by hour (UTC), month, job or nobody, kind, pool, offering -> exact sums -> micro-dollars by largest remainder -> one row each
//! ```
//!
//! These are Forebay's charges for capacity, not the cloud's invoice: provider, publisher and issuer say so.
//!
//! Never: a float; a total that is not the bill's.

use super::basis::{BilledOffering, CostBasis};
use super::csv_field;
use super::group::gpu_micro_hours;
use super::range::{local_date, midnight};
use crate::clock;
use forebay_journal::SpendTotals;
use forebay_kernel::ids::{JobId, OfferingId};
use forebay_kernel::state::billing::{BilledJob, BilledPool, ChargeKey, ChargeKind, LedgerSlot, QUARTER_MS};
use forebay_kernel::units::{HOUR_MS, Timestamp};
use forebay_sim::score::money::{Exact, rounded_rows};
use jiff::ToSpan;
use std::collections::BTreeMap;

/// The columns, in the order that they are written in. Those that begin with `x_` are Forebay's own, as FOCUS asks.
pub const FOCUS_COLUMNS: [&str; 36] = [
    "BilledCost",
    "BillingAccountId",
    "BillingAccountName",
    "BillingCurrency",
    "BillingPeriodEnd",
    "BillingPeriodStart",
    "ChargeCategory",
    "ChargeClass",
    "ChargeDescription",
    "ChargeFrequency",
    "ChargePeriodEnd",
    "ChargePeriodStart",
    "ConsumedQuantity",
    "ConsumedUnit",
    "ContractedCost",
    "EffectiveCost",
    "InvoiceId",
    "InvoiceIssuerName",
    "ListCost",
    "PricingQuantity",
    "PricingUnit",
    "ProviderName",
    "PublisherName",
    "ServiceCategory",
    "ServiceName",
    "ServiceSubcategory",
    "Tags",
    "x_CapacityType",
    "x_InstanceType",
    "x_Job",
    "x_Kind",
    "x_Pool",
    "x_Queue",
    "x_Subject",
    "x_Tenant",
    "x_Tier",
];

/// Who charges. It is not the cloud, whose own export has the invoice.
const FOREBAY: &str = "Forebay";

/// What a row is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct FocusKey {
    /// Full hours since 1970. Slots that are shorter lie within one.
    hour: u64,
    /// When the month begins that it is billed in: one of the billing zone may begin within an hour.
    month: Timestamp,
    job: Option<JobId>,
    kind: ChargeKind,
    pool: BilledPool,
    offering: OfferingId,
}

/// A row while it is being added up.
#[derive(Default)]
struct FocusSum {
    cost: Exact,
    list: Exact,
    amount: i128,
}

/// What a row says beside its money.
struct FocusRow {
    from: Timestamp,
    to: Timestamp,
    description: String,
    quantity: String,
    unit: &'static str,
    tags: String,
    own: [String; 9],
}

/// The bill of these charges as CSV (RFC 4180): an empty field is null.
#[must_use]
pub fn focus_csv(basis: &CostBasis, charges: &SpendTotals, jobs: &BTreeMap<JobId, BilledJob>) -> String {
    // No text has as many bytes.
    focus_csv_within(basis, charges, jobs, usize::MAX).unwrap_or_default()
}

/// The same, of so many bytes at most, and a line.
///
/// # Errors
/// It would have more: the slot of the first row that there is no room for. Rows are in the order of their hours.
pub fn focus_csv_within(
    basis: &CostBasis,
    charges: &SpendTotals,
    jobs: &BTreeMap<JobId, BilledJob>,
    most: usize,
) -> Result<String, LedgerSlot> {
    let mut sums: BTreeMap<FocusKey, FocusSum> = BTreeMap::new();
    // Charges are in the order of their slots: months are found once for each.
    let mut latest: Option<(LedgerSlot, Timestamp)> = None;
    for (key, amount) in charges {
        let Some(offer) = basis.offering(key.offering) else { continue };
        let ChargeKey { slot, job, kind, pool, offering, .. } = *key;
        let billed_in = match latest {
            Some((of, begins)) if of == slot => begins,
            _ => month(basis, slot.begins()).begins,
        };
        latest = Some((slot, billed_in));
        let hour = slot.begins().0 / HOUR_MS;
        let sum = sums.entry(FocusKey { hour, month: billed_in, job, kind, pool, offering }).or_default();
        sum.cost.add(i128::from(key.price.0), *amount, offer.shares);
        sum.list.add(i128::from(offer.on_demand.0), *amount, offer.shares);
        sum.amount += amount;
    }
    let (before, mut costs, mut lists) = earlier(basis);
    let mut amounts = Vec::with_capacity(sums.len());
    for (key, sum) in sums {
        amounts.push((key, sum.amount));
        costs.push(sum.cost);
        lists.push(sum.list);
    }
    let ((costs, _), (lists, _)) = (rounded_rows(&costs), rounded_rows(&lists));
    let mut money = costs.into_iter().zip(lists);
    let mut out = format!("{}\r\n", FOCUS_COLUMNS.join(","));
    for (row, (cost, list)) in before.into_iter().zip(&mut money) {
        out.push_str(&line(basis, row, &decimal_text(cost, 6), &decimal_text(list, 6)));
    }
    for ((key, amount), (cost, list)) in amounts.into_iter().zip(money) {
        if out.len() > most {
            return Err(key.slot());
        }
        let Some(offer) = basis.offering(key.offering) else { continue };
        let row = row(basis, &key, offer, amount, key.job.and_then(|id| jobs.get(&id)));
        out.push_str(&line(basis, row, &decimal_text(cost, 6), &decimal_text(list, 6)));
    }
    Ok(out)
}

impl FocusKey {
    /// Its hour, as the ledger has it.
    fn slot(&self) -> LedgerSlot {
        LedgerSlot(u32::try_from(self.hour * (HOUR_MS / QUARTER_MS)).unwrap_or(u32::MAX))
    }
}

fn row(basis: &CostBasis, key: &FocusKey, offer: &BilledOffering, amount: i128, job: Option<&BilledJob>) -> FocusRow {
    let (from, to) = charge_period(basis, key.hour, key.month);
    let (pool, kind, capacity) = (basis.pool(key.pool), key.kind.as_str(), offer.capacity.as_str());
    let of = |text: fn(&BilledJob) -> &str| job.map(text).unwrap_or_default().to_owned();
    FocusRow {
        from,
        to,
        description: format!("{kind} on {} ({capacity}) in pool {pool}", offer.instance_type),
        quantity: node_hours(amount, offer.shares),
        unit: "Hours",
        tags: job.map(|job| tags(&job.labels)).unwrap_or_default(),
        own: [
            capacity.to_owned(),
            offer.instance_type.clone(),
            key.job.map(|id| id.to_string()).unwrap_or_default(),
            kind.to_owned(),
            pool.to_owned(),
            of(|job| &job.queue),
            of(|job| &job.subject),
            of(|job| &job.tenant),
            of(|job| &job.tier),
        ],
    }
}

/// From when to when a row is: an hour, or what of it is in the month that begins then.
fn charge_period(basis: &CostBasis, hour: u64, billed_in: Timestamp) -> (Timestamp, Timestamp) {
    let from = Timestamp((hour * HOUR_MS).max(billed_in.0));
    (from, Timestamp(((hour + 1) * HOUR_MS).min(month(basis, from).ends.0)))
}

/// What was spent before the ledger knew by whom: a row a capacity type, in the month in which that began. Its list price is not known:
/// it counts as what was paid.
fn earlier(basis: &CostBasis) -> (Vec<FocusRow>, Vec<Exact>, Vec<Exact>) {
    let (mut rows, mut costs) = (Vec::new(), Vec::new());
    let began = basis.began.at;
    let BillingPeriod { begins: from, .. } = month(basis, began);
    // Up to the end of the hour in which it began.
    let (_, to) = charge_period(basis, began.0 / HOUR_MS, from);
    for (capacity, spent) in basis.earlier() {
        let gpu_time = i128::try_from(spent.gpu_time.0).unwrap_or(i128::MAX);
        let mut own: [String; 9] = Default::default();
        own[0] = capacity.as_str().to_owned();
        rows.push(FocusRow {
            from,
            to,
            description: format!("all {} capacity before the ledger knew by whom", capacity.as_str()),
            quantity: decimal_text(gpu_micro_hours(gpu_time), 6),
            unit: "GPU-Hours",
            tags: String::new(),
            own,
        });
        let mut cost = Exact::default();
        cost.add_spend(spent.cost);
        costs.push(cost);
    }
    let lists = costs.clone();
    (rows, costs, lists)
}

fn line(basis: &CostBasis, row: FocusRow, cost: &str, list: &str) -> String {
    let BillingPeriod { begins, ends, name } = month(basis, row.from);
    let description = csv_field(&row.description);
    // A month's bill is what comes nearest to an invoice here.
    let invoice = format!("forebay-{name}");
    let mut fields: Vec<String> = [
        cost,
        "forebay",
        FOREBAY,
        "USD",
        &instant(ends),
        &instant(begins),
        "Usage",
        "",
        &description,
        "Usage-Based",
        &instant(row.to),
        &instant(row.from),
        &row.quantity,
        row.unit,
        cost,
        cost,
        &invoice,
        FOREBAY,
        list,
        &row.quantity,
        row.unit,
        FOREBAY,
        FOREBAY,
        "Compute",
        "Capacity for jobs",
        "Virtual Machines",
        &csv_field(&row.tags),
    ]
    .map(str::to_owned)
    .into();
    fields.extend(row.own.iter().map(|text| csv_field(text)));
    format!("{}\r\n", fields.join(","))
}

/// Labels as a JSON object, nothing where there are none.
fn tags(labels: &BTreeMap<String, String>) -> String {
    if labels.is_empty() {
        return String::new();
    }
    serde_json::Value::from_iter(labels.iter().map(|(key, value)| (key.clone(), value.clone()))).to_string()
}

/// Share of a node x milliseconds in hours of the whole node, to a billionth.
fn node_hours(amount: i128, shares: u64) -> String {
    let all = i128::from(shares.max(1)) * i128::from(HOUR_MS);
    decimal_text((amount * 2_000_000_000 + all).div_euclid(all * 2), 9)
}

/// So many units of 10 to the power of `-places`, as a decimal number.
fn decimal_text(units: i128, places: usize) -> String {
    let sign = if units < 0 { "-" } else { "" };
    let digits = format!("{:0>width$}", units.unsigned_abs(), width = places + 1);
    let (whole, fraction) = digits.split_at(digits.len() - places);
    format!("{sign}{whole}.{fraction}")
}

/// The month of the billing zone that an instant lies in.
fn month(basis: &CostBasis, at: Timestamp) -> BillingPeriod {
    let bounds = || {
        let local = local_date(basis, at)?;
        let (first, next) = (local.first_of_month(), local.first_of_month().checked_add(1.month()).ok()?);
        let name = first.strftime("%Y-%m").to_string();
        Some(BillingPeriod {
            begins: Timestamp(midnight(basis, first)?),
            ends: Timestamp(midnight(basis, next)?),
            name,
        })
    };
    bounds().unwrap_or_else(|| BillingPeriod { begins: at, ends: at, name: "none".to_owned() })
}

/// A month of the billing zone.
struct BillingPeriod {
    begins: Timestamp,
    ends: Timestamp,
    /// Such as `2026-11`.
    name: String,
}

fn instant(at: Timestamp) -> String {
    clock::instant(at.0).map(|at| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::CostRange;
    use forebay_kernel::ids::Attempt;
    use forebay_kernel::state::billing::{BillingBegan, EarlierSpend};
    use forebay_kernel::units::{Rate, Spend};

    #[test]
    fn numbers_are_decimal() {
        assert_eq!((decimal_text(0, 6), decimal_text(1_000_001, 6)), ("0.000000".into(), "1.000001".into()));
        assert_eq!(decimal_text(-5, 6), "-0.000005");
        // An eighth of a node with 8 GPUs for half an hour.
        assert_eq!(node_hours(1000 * 1_800_000, 8000), "0.062500000");
    }

    fn at(text: &str) -> Timestamp {
        Timestamp(u64::try_from(text.parse::<jiff::Timestamp>().unwrap().as_millisecond()).unwrap())
    }

    #[test]
    fn an_hour_in_which_a_month_begins_is_billed_in_both() {
        let kolkata = CostBasis::with_offsets(&[(0, 19_800)]);
        let period = |slot: &str| {
            let slot = at(slot);
            let (from, to) = charge_period(&kolkata, slot.0 / HOUR_MS, month(&kolkata, slot).begins);
            (instant(from), instant(to), month(&kolkata, from).name)
        };
        let of = |from: &str, to: &str, name: &str| {
            (format!("2026-11-30T{from}:00Z"), format!("2026-11-30T{to}:00Z"), name.to_owned())
        };
        assert_eq!(period("2026-11-30T17:30:00Z"), of("17:00", "18:00", "2026-11"));
        assert_eq!(period("2026-11-30T18:00:00Z"), of("18:00", "18:30", "2026-11"));
        assert_eq!(period("2026-11-30T18:30:00Z"), of("18:30", "19:00", "2026-12"));
    }

    #[test]
    fn what_was_spent_before_is_in_the_month_in_which_the_ledger_began_alone() {
        let spent = EarlierSpend { cost: Spend(1_000_000 * u128::from(HOUR_MS)), ..EarlierSpend::default() };
        let mut basis = CostBasis::with_offsets(&[(0, 0)]);
        basis.began = BillingBegan { at: at("2026-11-24T09:20:00Z"), earlier: [spent; 4] };
        let rows = |from: &str, to: &str| {
            let range = CostRange { from: Some(from.to_owned()), to: Some(to.to_owned()) };
            let slots = range.slots(&basis).unwrap();
            focus_csv(&basis.clone().within(&slots), &SpendTotals::new(), &BTreeMap::new())
        };
        let month = rows("2026-11-01", "2026-12-01");
        assert_eq!(month.lines().count(), 1 + 4, "{month}");
        assert!(month.contains("2026-11-24T10:00:00Z,2026-11-01T00:00:00Z"), "{month}");
        for (from, to) in [("2026-10-01", "2026-11-01"), ("2026-12-01", "2027-01-01")] {
            assert_eq!(rows(from, to).lines().count(), 1, "{from}");
        }
    }

    #[test]
    fn a_dataset_that_is_too_long_says_which_hour_there_is_no_room_for() {
        let basis = CostBasis::with_pools(3);
        let charge = |hour: u32, pool: u16| {
            let (slot, pool) = (LedgerSlot(4 * hour), BilledPool(pool));
            let (attempt, offering, price) = (Attempt(0), OfferingId(0), Rate(1_000_000));
            (ChargeKey { slot, job: None, attempt, kind: ChargeKind::Idle, pool, offering, price }, 3_600_000_000)
        };
        // Three rows an hour.
        let charges: SpendTotals = (0..30).map(|n| charge(n / 3, u16::try_from(n % 3).unwrap())).collect();
        let within = |most: usize| focus_csv_within(&basis, &charges, &BTreeMap::new(), most);
        let whole = focus_csv(&basis, &charges, &BTreeMap::new());
        assert_eq!((whole.lines().count(), within(whole.len())), (31, Ok(whole.clone())));
        let header = whole.lines().next().unwrap().len() + 2;
        let line = (whole.len() - header) / 30;
        assert_eq!(header + 30 * line, whole.len(), "each line has as many bytes");
        // A line is begun where what was written before it has not too many bytes.
        for rows in [0, 1, 4, 28] {
            let hour = u32::try_from((rows + 1) / 3).unwrap();
            assert_eq!(within(header + rows * line + line / 2), Err(LedgerSlot(4 * hour)), "{rows} rows");
        }
        assert_eq!(within(header + 29 * line), Ok(whole));
    }

    #[test]
    fn a_month_is_that_of_the_billing_zone() {
        let month = |hours: i32, text: &str| {
            let basis = CostBasis::with_offsets(&[(0, hours * 3_600)]);
            let month = super::month(&basis, at(text));
            assert_eq!(super::month(&basis, month.ends).begins, month.ends);
            (month.name, instant(month.begins), instant(month.ends))
        };
        let of = |name: &str, begins: &str, ends: &str| (name.to_owned(), begins.to_owned(), ends.to_owned());
        assert_eq!(month(0, "2026-12-31T23:00:00Z"), of("2026-12", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"));
        assert_eq!(month(1, "2026-12-31T23:00:00Z"), of("2027-01", "2026-12-31T23:00:00Z", "2027-01-31T23:00:00Z"));
        assert_eq!(month(-5, "2026-12-01T04:00:00Z"), of("2026-11", "2026-11-01T05:00:00Z", "2026-12-01T05:00:00Z"));
    }
}
