//! A market out of recorded probes: `dataset,t_s,zone,instance_type,available,capacity,price_permille`, where a row is a change.
//! It never mixes two data sets in one series, and never invents a change that was not recorded.

use std::collections::BTreeMap;
use std::path::Path;

use forebay_catalog::input::{CsvRow, CsvTable, InputError, open};

use super::{Market, MarketState, Pair, Series};

/// The most instances that one probe may ask for.
const MAX_CAPACITY: u64 = 1_000_000;
/// The highest price in 1/1000 of the mean: far above on-demand.
pub const MAX_PRICE: u16 = 60_000;
/// The most series of one file: they are searched by name for each pair.
const MAX_SERIES: usize = 10_000;
/// The golden ratio in 1/1000: pairs that share a series start this far apart in it, so that no two move together.
const APART_PERMILLE: u64 = 618;

/// One (data set, zone, instance type) of the file, as read.
struct Recording {
    zone: String,
    instance_type: String,
    /// What there was from a time in ms on.
    points: Vec<(u64, MarketState)>,
}

impl Market {
    /// A market that follows the recorded series in the CSV at `path`.
    ///
    /// A pair with a recorded (type, zone) follows that series from its start. The others are dealt out over all series in
    /// the file's order, one each in turn; pairs that share a series begin at different places in it. A series that ends
    /// begins again. Counts are scaled to the part of the probe's capacity. Prices stay at the mean where
    /// the file has no column `price_permille`, in 1/1000 of it.
    ///
    /// # Errors
    /// Whatever is wrong with the file, with its line, column and value: see [`InputError`].
    pub fn recorded(path: impl AsRef<Path>, pairs: &[(String, String)]) -> Result<Self, InputError> {
        let path = path.as_ref();
        let recordings = recordings(path)?;
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
}

fn recordings(path: &Path) -> Result<Vec<Recording>, InputError> {
    let mut table = CsvTable::new(open(path)?)?;
    table.require(&["t_s", "zone", "instance_type", "available", "capacity"])?;
    let mut places: BTreeMap<(String, String, String), usize> = BTreeMap::new();
    let mut out: Vec<Recording> = Vec::new();
    while let Some(row) = table.next_row()? {
        let (t, state) = (row.ms("t_s")?, state(&row)?);
        let set = row.text("dataset").to_owned();
        let (zone, instance_type) = (row.id("zone")?, row.id("instance_type")?);
        let place = *places.entry((set, zone.clone(), instance_type.clone())).or_insert(out.len());
        if place == out.len() {
            if place == MAX_SERIES {
                let problem = format!("more than {MAX_SERIES} series");
                return Err(InputError::line(path, row.line, problem, "split the file"));
            }
            out.push(Recording { zone, instance_type, points: Vec::new() });
        }
        let Some(points) = out.get_mut(place).map(|r| &mut r.points) else {
            continue;
        };
        if points.last().is_some_and(|(before, _)| *before > t) {
            return Err(row.fault("t_s", "earlier than the row before it in its series", "sort each series by t_s"));
        }
        points.push((t, state));
    }
    table.not_empty("the file has a header but no probes")?;
    Ok(out)
}

fn state(row: &CsvRow) -> Result<MarketState, InputError> {
    let price_permille =
        row.maybe("price_permille").map(|_| row.small("price_permille", MAX_PRICE.into())).transpose()?;
    Ok(MarketState {
        available_permille: u16::try_from(permille(row)?).unwrap_or(1000),
        price_permille: price_permille.and_then(|price| u16::try_from(price).ok()).unwrap_or(1000),
    })
}

fn permille(row: &CsvRow) -> Result<u64, InputError> {
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
fn to_series(points: &[(u64, MarketState)]) -> Series {
    let zero = points.first().map_or(0, |(t, _)| *t);
    let end = points.last().map_or(0, |(t, _)| t - zero);
    let open = points.split_last().map_or(&[][..], |(_, rest)| rest);
    // A series of one point, or of no length, never changes.
    let open = if end == 0 { points } else { open };
    let mut changes: Vec<(u64, MarketState)> = Vec::new();
    for (t, state) in open {
        let next = (t - zero, *state);
        match changes.last_mut() {
            // Two rows at one time: the later one holds.
            Some(last) if last.0 == next.0 => *last = next,
            _ => changes.push(next),
        }
    }
    Series::new(changes, Some(end))
}
