//! What was spent over time: hours or days, each split by one thing, in cents that add up both ways to the bill's total.
//!
//! Never: a period left out in which nothing was spent, for a plot would close the gap.

use super::basis::CostBasis;
use super::cents;
use super::group::{CostBy, Sum, earlier, row_key};
use super::range::{CostRange, first_instant};
use forebay_journal::SpendTotals;
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::ids::JobId;
use forebay_kernel::state::billing::BilledJob;
use forebay_kernel::units::{HOUR_MS, Timestamp};
use forebay_sim::score::money::{Exact, rounded_rows};
use std::collections::BTreeMap;

/// Columns of their own at most: as many as people can tell apart by colour. The rest is one column.
const MOST_COLUMNS: usize = 7;

/// Up to this many hours the periods are hours: three days.
const MOST_HOURS: i64 = 72;

/// What was spent over time.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Timeline {
    /// What the columns are, dearest first; the last may be all others.
    pub columns: Vec<String>,
    /// Hours or days, in order.
    pub periods: Vec<TimelinePeriod>,
}

/// How long a period is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TimelineStep {
    /// An hour.
    Hour,
    /// A day of the billing zone.
    Day,
}

impl TimelineStep {
    fn seconds(self) -> i64 {
        match self {
            TimelineStep::Hour => 3_600,
            TimelineStep::Day => 86_400,
        }
    }
}

/// An hour or a day of the billing zone.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct TimelinePeriod {
    /// When it begins, in seconds of local time since 1970. `None`: what was spent before the ledger knew when.
    pub begins_local_s: Option<i64>,
    /// The same for people.
    pub name: String,
    /// The range of a bill that has just this. `None`: there is none that begins and ends there.
    pub range: Option<CostRange>,
    /// By column.
    pub cents: Vec<i128>,
    /// Thousandths of a GPU x milliseconds that were bought.
    pub bought: i128,
    /// Of that, on spot.
    pub spot: i128,
}

impl TimelinePeriod {
    /// All columns together.
    #[must_use]
    pub fn total_cents(&self) -> i128 {
        self.cents.iter().sum()
    }

    /// Spot of what was bought. `None`: nothing was.
    #[must_use]
    #[allow(clippy::float_arithmetic)] // Rendering only.
    pub fn spot_ratio(&self) -> Option<f64> {
        (self.bought > 0).then(|| self.spot as f64 / self.bought as f64)
    }
}

/// A cell while it is being added up: in which period, under which key.
type Cells = BTreeMap<Option<i64>, BTreeMap<String, Sum>>;

impl Timeline {
    /// Of these charges, split by something.
    #[must_use]
    pub fn of(
        by: &CostBy,
        basis: &CostBasis,
        charges: &SpendTotals,
        jobs: &BTreeMap<JobId, BilledJob>,
        asked: &CostRange,
    ) -> Timeline {
        let local = |at: Timestamp| i64::try_from(at.0 / 1000).unwrap_or(i64::MAX) + i64::from(basis.offset(at));
        let hours = || charges.keys().map(|key| local(key.slot.begins()).div_euclid(3_600));
        let span = hours().max().unwrap_or(0) - hours().min().unwrap_or(0);
        let step = if span < MOST_HOURS { TimelineStep::Hour } else { TimelineStep::Day };
        let mut cells = Cells::new();
        for (key, amount) in charges {
            let begins = local(key.slot.begins()).div_euclid(step.seconds()) * step.seconds();
            let job = key.job.map(|id| (id, jobs.get(&id)));
            let row = cells.entry(Some(begins)).or_default();
            row.entry(row_key(by, basis, key, job)).or_default().add_charge(basis, key, *amount);
        }
        let mut before = BTreeMap::new();
        earlier(by, basis, &mut before);
        if !before.is_empty() {
            cells.insert(None, before);
        }
        // Periods without a charge are there too, but for an hour that a clock has left out.
        let first = cells.keys().flatten().min().copied();
        let last = cells.keys().flatten().max().copied();
        if let (Some(first), Some(last)) = (first, last) {
            let all = (0..=(last - first) / step.seconds()).map(|at| first + at * step.seconds());
            for begins in all.filter(|begins| bounds(basis, *begins, step).is_some_and(|[from, to]| from < to)) {
                cells.entry(Some(begins)).or_default();
            }
        }
        let mut timeline = table(cells, step);
        for period in &mut timeline.periods {
            period.range = period.begins_local_s.and_then(|begins| range(basis, begins, step, asked));
        }
        timeline
    }
}

/// When a period begins and ends, in seconds since 1970. An hour that a clock shows twice is both, and one that it leaves out is none.
fn bounds(basis: &CostBasis, begins: i64, step: TimelineStep) -> Option<[i64; 2]> {
    let at = |local: i64| i64::try_from(first_instant(basis, local.checked_mul(1_000)?)? / 1_000).ok();
    Some([at(begins)?, at(begins + step.seconds())?])
}

/// What of a period is in the range that was asked for.
fn range(basis: &CostBasis, begins: i64, step: TimelineStep, asked: &CostRange) -> Option<CostRange> {
    let [from, to] = match step {
        TimelineStep::Day => [name(Some(begins), step), name(Some(begins + step.seconds()), step)],
        TimelineStep::Hour => {
            let full_hour = |at: i64| {
                let at = jiff::Timestamp::from_second(at).ok().filter(|_| at % 3_600 == 0)?;
                Some(at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
            };
            let [from, to] = bounds(basis, begins, step)?;
            [full_hour(from)?, full_hour(to)?]
        }
    };
    let mut range = CostRange { from: Some(from), to: Some(to) };
    if let (Ok(own), Ok(all)) = (range.slots(basis), asked.slots(basis)) {
        if own.from < all.from {
            range.from.clone_from(&asked.from);
        }
        if own.to > all.to {
            range.to.clone_from(&asked.to);
        }
    }
    Some(range)
}

fn table(cells: Cells, step: TimelineStep) -> Timeline {
    let mut by_key: BTreeMap<&str, Exact> = BTreeMap::new();
    for (key, sum) in cells.values().flatten() {
        by_key.entry(key).or_default().add_sum(&sum.cost);
    }
    let (names, costs): (Vec<&str>, Vec<Exact>) = by_key.into_iter().unzip();
    let (micro, total) = rounded_rows(&costs);
    let (cents, _) = cents(&micro, total);
    let mut keys: Vec<(i128, &str, i128)> =
        micro.into_iter().zip(names).zip(cents).map(|((m, key), c)| (m, key, c)).collect();
    keys.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
    let shown = if keys.len() > MOST_COLUMNS { MOST_COLUMNS - 1 } else { keys.len() };
    let mut columns: Vec<String> = keys.iter().take(shown).map(|(_, key, _)| (*key).to_owned()).collect();
    let place: BTreeMap<&str, usize> =
        keys.iter().take(shown).enumerate().map(|(at, (_, key, _))| (*key, at)).collect();
    let mut sums: Vec<i128> = keys.iter().take(shown).map(|(.., cents)| *cents).collect();
    if keys.len() > shown {
        columns.push(format!("({} others)", keys.len() - shown));
        sums.push(keys[shown..].iter().map(|(.., cents)| cents).sum());
    }
    // By column, each period after the other.
    let mut costs = vec![vec![Exact::default(); cells.len()]; columns.len()];
    let mut periods = Vec::with_capacity(cells.len());
    for (row, (begins, sums)) in cells.iter().enumerate() {
        let mut period =
            TimelinePeriod { begins_local_s: *begins, name: name(*begins, step), ..TimelinePeriod::default() };
        for (key, sum) in sums {
            let column = place.get(key.as_str()).copied().unwrap_or(shown);
            costs[column][row].add_sum(&sum.cost);
            period.bought += sum.bought;
            period.spot += sum.spot;
        }
        periods.push(period);
    }
    for (costs, cents) in costs.iter().zip(sums) {
        for (period, cents) in periods.iter_mut().zip(spread(costs, cents)) {
            period.cents.push(cents);
        }
    }
    Timeline { columns, periods }
}

/// The cents of a column, which the bill has, over its periods: after each of them as many are spent as its part of the column, rounded down.
fn spread(costs: &[Exact], cents: i128) -> impl Iterator<Item = i128> {
    let (micro, total) = rounded_rows(costs);
    let (mut spent, mut shown) = (0, 0);
    micro.into_iter().map(move |more| {
        spent += more;
        let until_now = if total == 0 { 0 } else { spent * cents / total };
        let now = until_now - shown;
        shown = until_now;
        now
    })
}

fn name(begins: Option<i64>, step: TimelineStep) -> String {
    let Some(begins) = begins else { return "(before)".to_owned() };
    let form = match step {
        TimelineStep::Hour => "%Y-%m-%d %H:%M",
        TimelineStep::Day => "%Y-%m-%d",
    };
    jiff::Timestamp::from_second(begins).map_or_else(|_| "(no time)".to_owned(), |at| at.strftime(form).to_string())
}

/// What the nodes that were bought would have cost otherwise. Owned nodes, and what was spent before the ledger knew on what, are left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PriceComparison {
    /// What was paid for them, in micro-dollars.
    pub paid: i128,
    /// The same nodes for the same time at the on-demand prices of now.
    pub on_demand: i128,
    /// As dear in each hour, from the first to the last, as the dearest hour at these prices: a fleet of that hour's mean size that never shrinks.
    pub static_peak: i128,
    /// Hours from the first to the last.
    pub hours: u64,
}

impl PriceComparison {
    /// Of these charges.
    #[must_use]
    pub fn of(basis: &CostBasis, charges: &SpendTotals) -> PriceComparison {
        let (mut paid, mut list) = (Exact::default(), Exact::default());
        let mut hourly: BTreeMap<u64, Exact> = BTreeMap::new();
        for (key, amount) in charges {
            let Some(offer) = basis.offering(key.offering).filter(|offer| offer.capacity != CapacityType::Owned) else {
                continue;
            };
            let on_demand = i128::from(offer.on_demand.0);
            paid.add(i128::from(key.price.0), *amount, offer.shares);
            list.add(on_demand, *amount, offer.shares);
            let hour = hourly.entry(key.slot.begins().0 / HOUR_MS).or_default();
            hour.add(on_demand, *amount, offer.shares);
        }
        let ends = hourly.keys().next().copied().zip(hourly.keys().next_back().copied());
        let hours = ends.map_or(0, |(first, last)| last - first + 1);
        let dearest = hourly.values().map(Exact::rounded).max().unwrap_or(0);
        PriceComparison {
            paid: paid.rounded(),
            on_demand: list.rounded(),
            static_peak: dearest * i128::from(hours),
            hours,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(micro: i128) -> Sum {
        let mut sum = Sum::default();
        sum.cost.add(micro, i128::from(HOUR_MS), 1);
        sum
    }

    #[test]
    fn cells_add_up_to_the_total_and_gaps_are_there() {
        let row = |at: Option<i64>, of: &[(&str, i128)]| {
            (at, of.iter().map(|(key, micro)| ((*key).to_owned(), sum(*micro))).collect::<BTreeMap<_, _>>())
        };
        let cells: Cells = [
            row(None, &[("spot", 3_333)]),
            row(Some(0), &[("spot", 13_333), ("on-demand", 23_333)]),
            row(Some(3_600), &[]),
            row(Some(2 * 3_600), &[("spot", 3_333)]),
        ]
        .into();
        let timeline = table(cells, TimelineStep::Hour);
        assert_eq!(timeline.columns, ["on-demand", "spot"]);
        let names: Vec<&str> = timeline.periods.iter().map(|period| period.name.as_str()).collect();
        assert_eq!(names, ["(before)", "1970-01-01 00:00", "1970-01-01 01:00", "1970-01-01 02:00"]);
        // 43,332 micro-dollars are 4 cents: 2 of 23,333, and 2 of 19,999 that come to 0, 1, 1 and 2.
        let cents: Vec<&[i128]> = timeline.periods.iter().map(|period| period.cents.as_slice()).collect();
        assert_eq!(cents, [&[0, 0], &[2, 1], &[0, 0], &[0, 1]]);
        assert_eq!(timeline.periods[2].spot_ratio(), None);
    }

    #[test]
    fn a_period_leads_to_what_is_in_it_alone() {
        let at = |text: &str| text.parse::<jiff::Timestamp>().unwrap().as_second();
        // Berlin, which sets its clock back at 01:00 UTC in October, and on at 01:00 UTC in March.
        let changes = [("2026-10-25T01:00:00Z", 3_600), ("2027-03-28T01:00:00Z", 7_200)];
        let changes = changes.map(|(instant, offset)| (u64::try_from(at(instant)).unwrap(), offset));
        let basis = CostBasis::with_offsets(&[&[(0, 7_200)], &changes[..]].concat());
        let all = CostRange::default();
        let texts = |range: Option<CostRange>| {
            let range = range.expect("a range");
            (range.from.unwrap(), range.to.unwrap())
        };
        let of = |from: &str, to: &str| (from.to_owned(), to.to_owned());
        let hour = |local: &str| texts(range(&basis, at(local), TimelineStep::Hour, &all));
        assert_eq!(hour("2026-10-25T01:00:00Z"), of("2026-10-24T23:00:00Z", "2026-10-25T00:00:00Z"));
        // 02:00 is there twice, and the row has both.
        assert_eq!(hour("2026-10-25T02:00:00Z"), of("2026-10-25T00:00:00Z", "2026-10-25T02:00:00Z"));
        assert_eq!(hour("2026-10-25T03:00:00Z"), of("2026-10-25T02:00:00Z", "2026-10-25T03:00:00Z"));
        // In March it never is.
        let [from, to] = bounds(&basis, at("2027-03-28T02:00:00Z"), TimelineStep::Hour).unwrap();
        assert_eq!((from, to), (at("2027-03-28T01:00:00Z"), at("2027-03-28T01:00:00Z")));
        assert_eq!(hour("2027-03-28T03:00:00Z"), of("2027-03-28T01:00:00Z", "2027-03-28T02:00:00Z"));
        // A day of which a part was asked for.
        let asked = CostRange { from: Some("2026-10-24T12:00:00Z".to_owned()), to: Some("2026-10-25".to_owned()) };
        let begins = at("2026-10-24T00:00:00Z");
        assert_eq!(texts(range(&basis, begins, TimelineStep::Day, &all)), of("2026-10-24", "2026-10-25"));
        assert_eq!(texts(range(&basis, begins, TimelineStep::Day, &asked)), of("2026-10-24T12:00:00Z", "2026-10-25"));
    }

    #[test]
    fn what_has_no_colour_of_its_own_is_one_column() {
        let many = (0..12).map(|n| (format!("q{n:02}"), sum(10_000 * (n + 1)))).collect();
        let timeline = table([(Some(0), many)].into(), TimelineStep::Day);
        assert_eq!(timeline.columns.len(), MOST_COLUMNS);
        assert_eq!(timeline.columns[0], "q11");
        assert_eq!(timeline.columns[MOST_COLUMNS - 1], "(6 others)");
        assert_eq!(timeline.periods[0].cents[MOST_COLUMNS - 1], 1 + 2 + 3 + 4 + 5 + 6);
    }
}
