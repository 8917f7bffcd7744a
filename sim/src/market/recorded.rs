//! A market out of recorded probes: `dataset,t_s,zone,instance_type,available,capacity`, where a row is a change.
//! It never mixes two data sets in one series, and never invents a change that was not recorded.

use std::collections::BTreeMap;
use std::path::Path;

use super::{Market, MarketState, Pair, Series};
use crate::trace::TraceError;
use crate::trace::file::open;
use crate::trace::rows::{Row, Table};

/// The most instances that one probe may ask for.
const MAX_CAPACITY: u64 = 1_000_000;
/// The most series of one file: they are searched by name for each pair.
const MAX_SERIES: usize = 10_000;
/// The golden ratio in 1/1000: pairs that share a series start this far apart in it, so that no two move together.
const APART_PERMILLE: u64 = 618;

/// One (data set, zone, instance type) of the file, as read.
struct Recording {
    zone: String,
    instance_type: String,
    /// (time in ms, value): permille of the capacity, or a price in micro-dollars an hour.
    points: Vec<(u64, u64)>,
}

impl Market {
    /// A market that follows the recorded series in the CSV at `path`.
    ///
    /// A pair with a recorded (type, zone) follows that series from its start. The others are dealt out over all series in
    /// the file's order, one each in turn; pairs that share a series begin at different places in it. A series that ends
    /// begins again. Counts are scaled to the part of the probe's capacity. Prices stay at the mean: see [`Self::with_prices`].
    ///
    /// # Errors
    /// Whatever is wrong with the file, with its line, column and value: see [`TraceError`].
    pub fn recorded(path: impl AsRef<Path>, pairs: &[(String, String)]) -> Result<Self, TraceError> {
        let path = path.as_ref();
        let recordings = recordings(path, &["available", "capacity"], permille)?;
        let series: Vec<Series> = recordings.iter().map(|r| to_series(&r.points)).collect();
        let (mut dealt, mut own) = (0usize, 0usize);
        let mut users = vec![0u64; series.len()];
        let pairs = pairs.iter().map(|(t, z)| {
            let found = recordings.iter().position(|r| r.instance_type == *t && r.zone == *z);
            own += usize::from(found.is_some());
            let at = found.unwrap_or_else(|| {
                dealt += 1;
                (dealt - 1) % series.len().max(1)
            });
            let turn = users.get(at).copied().unwrap_or(0);
            if let (None, Some(users)) = (found, users.get_mut(at)) {
                *users += 1;
            }
            let period = series.get(at).and_then(|s| s.period_ms).unwrap_or(0);
            // The first that was dealt a series starts inside it too, as its own pair starts at its beginning.
            let turn = if found.is_some() { 0 } else { (turn + 1) * APART_PERMILLE % 1000 };
            Pair::new(t, z, at, period / 1000 * turn)
        });
        let pairs: Vec<Pair> = pairs.collect();
        let file = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let origin = format!("recorded in {file}, {} series, {own} pairs with one of their own", series.len());
        Ok(Self { pairs, series, droughts: Vec::new(), origin })
    }

    /// Adds recorded prices (`dataset,t_s,zone,instance_type,usd_per_hour`) to the pairs that the file has a (type, zone) for.
    ///
    /// A recording's mean over time is the pair's mean spot price. Where availability repeats, so do its prices.
    ///
    /// # Errors
    /// Whatever is wrong with the file, with its line, column and value: see [`TraceError`].
    pub fn with_prices(mut self, path: impl AsRef<Path>) -> Result<Self, TraceError> {
        let path = path.as_ref();
        let recordings = recordings(path, &["usd_per_hour"], micros)?;
        let mut priced = 0;
        for pair in &mut self.pairs {
            let found = recordings.iter().find(|r| r.instance_type == pair.instance_type && r.zone == pair.zone);
            let (Some(found), Some(base)) = (found, self.series.get(pair.series)) else {
                continue;
            };
            let merged = base.priced(&permille_of_mean(&found.points));
            pair.series = self.series.len();
            self.series.push(merged);
            priced += 1;
        }
        let file = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        self.origin = format!("{}; prices recorded in {file} for {priced} pairs", self.origin);
        Ok(self)
    }
}

fn recordings(
    path: &Path,
    columns: &[&str],
    value: fn(&Row) -> Result<u64, TraceError>,
) -> Result<Vec<Recording>, TraceError> {
    let mut table = Table::new(open(path)?)?;
    table.require(&["t_s", "zone", "instance_type"])?;
    table.require(columns)?;
    let mut places: BTreeMap<(String, String, String), usize> = BTreeMap::new();
    let mut out: Vec<Recording> = Vec::new();
    while let Some(row) = table.next_row()? {
        let (t, value) = (row.ms("t_s")?, value(&row)?);
        let set = row.text("dataset").to_owned();
        let (zone, instance_type) = (row.id("zone")?, row.id("instance_type")?);
        let place = *places.entry((set, zone.clone(), instance_type.clone())).or_insert(out.len());
        if place == out.len() {
            if place == MAX_SERIES {
                let problem = format!("more than {MAX_SERIES} series");
                return Err(TraceError::line(path, row.line, problem, "split the file"));
            }
            out.push(Recording { zone, instance_type, points: Vec::new() });
        }
        let Some(points) = out.get_mut(place).map(|r| &mut r.points) else {
            continue;
        };
        if points.last().is_some_and(|(before, _)| *before > t) {
            return Err(row.fault("t_s", "earlier than the row before it in its series", "sort each series by t_s"));
        }
        points.push((t, value));
    }
    table.not_empty("the file has a header but no probes")?;
    Ok(out)
}

fn micros(row: &Row) -> Result<u64, TraceError> {
    row.decimal("usd_per_hour", 6, 10_000_000_000, "US dollars an hour, at most 10000")
}

fn permille(row: &Row) -> Result<u64, TraceError> {
    let of = row.whole("capacity", MAX_CAPACITY)?;
    if of == 0 {
        return Err(row.fault("capacity", "nothing was asked for", "write how many instances the probe asked for"));
    }
    let had = row.whole("available", MAX_CAPACITY)?;
    if had > of {
        return Err(row.fault("available", format!("more than the capacity of {of}"), "write at most the capacity"));
    }
    Ok(had * 1000 / of)
}

/// Points to a series from time 0; the last one closes it.
fn to_series(points: &[(u64, u64)]) -> Series {
    let zero = points.first().map_or(0, |(t, _)| *t);
    let end = points.last().map_or(0, |(t, _)| t - zero);
    let open = points.split_last().map_or(&[][..], |(_, rest)| rest);
    // A series of one point, or of no length, never changes.
    let open = if end == 0 { points } else { open };
    let mut changes: Vec<(u64, MarketState)> = Vec::new();
    for (t, value) in open {
        let available_permille = u16::try_from(*value).unwrap_or(1000);
        let next = (t - zero, MarketState { available_permille, price_permille: 1000 });
        match changes.last_mut() {
            // Two rows at one time: the later one holds.
            Some(last) if last.0 == next.0 => *last = next,
            _ => changes.push(next),
        }
    }
    Series::new(changes, Some(end))
}

/// Prices in 1/1000 of their mean over time, from time 0.
fn permille_of_mean(points: &[(u64, u64)]) -> Vec<(u64, u16)> {
    let zero = points.first().map_or(0, |(t, _)| *t);
    let pairs = points.windows(2).filter_map(|w| match w {
        [a, b] => Some((u128::from(b.0 - a.0), u128::from(a.1))),
        _ => None,
    });
    let (span, sum) = pairs.fold((0, 0), |(span, sum), (dt, price)| (span + dt, sum + dt * price));
    let mean = sum.checked_div(span).unwrap_or_else(|| points.first().map_or(1, |(_, p)| u128::from(*p))).max(1);
    let permille = |p: u64| u16::try_from((u128::from(p) * 1000 / mean).clamp(1, 10_000)).unwrap_or(1000);
    points.iter().map(|(t, p)| (t - zero, permille(*p))).collect()
}

impl Series {
    /// The same availability with these prices, which hold from each point to the next and beyond the last.
    fn priced(&self, prices: &[(u64, u16)]) -> Self {
        let mut times: Vec<u64> = self.changes.iter().map(|(t, _)| *t).chain(prices.iter().map(|(t, _)| *t)).collect();
        times.sort_unstable();
        times.dedup();
        times.retain(|t| self.period_ms.is_none_or(|period| *t < period));
        let at = |t: u64| {
            let after = prices.partition_point(|(from, _)| *from <= t);
            let price_permille = prices.get(after.saturating_sub(1)).map_or(1000, |(_, p)| *p);
            (t, MarketState { price_permille, ..self.state(t) })
        };
        Self::new(times.into_iter().map(at).collect(), self.period_ms)
    }
}
