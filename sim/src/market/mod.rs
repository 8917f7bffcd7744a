//! The spot market of the simulated cloud: what can be had of each (instance type, zone), and at what price, over time.
//! It never draws a number once built: every answer is read from a table, the same however often and in whatever order it is asked.
//!
//! ```text
//! seed, or a recorded CSV -> series of changes -> one for each (type, zone) -> state_at, next_change_after
//! ```

mod recorded;
mod seeded;

pub use recorded::MAX_PRICE;

use std::path::{Path, PathBuf};

/// What the market gives for one (type, zone) at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarketState {
    /// The part of the pair's capacity that spot can have, in 1/1000: 0 is none, and running spot is reclaimed.
    pub available_permille: u16,
    /// The spot price in 1/1000 of the pair's mean spot price (the catalogue's).
    pub price_permille: u16,
}

/// Nodes of one (type, zone) that a market with a partial availability is measured against, where no depth is given:
/// at 250 permille, 100 nodes can be had.
pub const DEFAULT_DEPTH: u32 = 400;

impl MarketState {
    /// Everything there, at the mean price.
    pub const CALM: Self = Self { available_permille: 1000, price_permille: 1000 };
    /// Nothing there, at the mean price.
    pub const NOTHING: Self = Self { available_permille: 0, price_permille: 1000 };

    /// How many nodes can be had, with `depth` of them at full availability. `None`: without bound.
    #[must_use]
    pub fn nodes(self, depth: Option<u32>) -> Option<u32> {
        if self.available_permille >= 1000 && depth.is_none() {
            return None;
        }
        let nodes = u64::from(depth.unwrap_or(DEFAULT_DEPTH)) * u64::from(self.available_permille) / 1000;
        Some(u32::try_from(nodes).unwrap_or(u32::MAX))
    }
}

/// A (type, zone) with the series that it follows.
#[derive(Clone, Debug)]
struct Pair {
    instance_type: String,
    zone: String,
    series: usize,
    /// Where in the series time 0 lies, in ms.
    offset_ms: u64,
}

/// States with the time at which each begins; the first begins at 0 and neighbours differ.
#[derive(Clone, Debug)]
struct Series {
    changes: Vec<(u64, MarketState)>,
    /// The length in ms, after which it begins again; `None` lasts for ever.
    period_ms: Option<u64>,
}

/// Availability and prices for a list of (type, zone) pairs.
#[derive(Clone, Debug)]
pub struct Market {
    pairs: Vec<Pair>,
    series: Vec<Series>,
    /// From when to when no spot is to be had at all, in ms: in order, apart from each other.
    droughts: Vec<(u64, u64)>,
    origin: String,
}

impl Market {
    /// A market in which nothing ever changes.
    #[must_use]
    pub fn calm(pairs: &[(String, String)]) -> Self {
        let pairs = pairs.iter().map(|(t, z)| Pair::new(t, z, 0, 0)).collect();
        let series = vec![Series { changes: vec![(0, MarketState::CALM)], period_ms: None }];
        Self {
            pairs,
            series,
            droughts: Vec::new(),
            origin: "calm: everything is always available at its mean price".to_owned(),
        }
    }

    /// A market in which every pair follows the same states, given with the time from which each holds, in ms and in order. What is before the
    /// first is [`MarketState::CALM`]; the last lasts for ever.
    #[must_use]
    pub fn following(pairs: &[(String, String)], changes: Vec<(u64, MarketState)>) -> Self {
        let pairs = pairs.iter().map(|(t, z)| Pair::new(t, z, 0, 0)).collect();
        let series = vec![Series::new(changes, None)];
        Self { pairs, series, droughts: Vec::new(), origin: "given: all pairs follow one series".to_owned() }
    }

    /// How many pairs there are; indices run from 0 in the order given.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Whether there are no pairs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// The type and zone of a pair.
    #[must_use]
    pub fn pair(&self, pair_ix: usize) -> Option<(&str, &str)> {
        self.pairs.get(pair_ix).map(|p| (p.instance_type.as_str(), p.zone.as_str()))
    }

    /// The same market, in which no pair has any spot from `from_ms` until just before `to_ms`, at the mean price.
    #[must_use]
    pub fn with_drought(mut self, from_ms: u64, to_ms: u64) -> Self {
        let mut merged: Vec<(u64, u64)> = Vec::new();
        self.droughts.push((from_ms, to_ms));
        self.droughts.sort_unstable();
        for (from, to) in self.droughts.into_iter().filter(|(from, to)| from < to) {
            match merged.last_mut() {
                Some((_, end)) if *end >= from => *end = to.max(*end),
                _ => merged.push((from, to)),
            }
        }
        self.droughts = merged;
        self
    }

    /// The state of a pair at `t_ms`. O(log n). A pair that does not exist has nothing to sell.
    #[must_use]
    pub fn state_at(&self, pair_ix: usize, t_ms: u64) -> MarketState {
        let Some((series, at)) = self.locate(pair_ix, t_ms) else {
            return MarketState::NOTHING;
        };
        match self.drought_until(t_ms) {
            Some(_) => MarketState::NOTHING,
            None => series.state(series.phase(at)),
        }
    }

    /// The first moment after `t_ms` at which the pair's state is another; `None` if it never changes again. O(log n).
    #[must_use]
    pub fn next_change_after(&self, pair_ix: usize, t_ms: u64) -> Option<u64> {
        let now = self.state_at(pair_ix, t_ms);
        let mut from = t_ms;
        // At most two steps a drought: into it, and out of it.
        loop {
            let (series, at) = self.locate(pair_ix, from)?;
            let next = match self.drought_until(from) {
                Some(end) => Some(end),
                None => {
                    let change = series.until_change(series.phase(at)).map(|ms| from.saturating_add(ms));
                    change.into_iter().chain(self.next_drought(from)).min()
                }
            };
            from = next.filter(|next| *next > from)?;
            if self.state_at(pair_ix, from) != now {
                return Some(from);
            }
        }
    }

    /// What the market is made of, in one line: the source, how many series, the seed.
    #[must_use]
    pub fn describe(&self) -> String {
        let droughts = match self.droughts.len() {
            0 => String::new(),
            n => format!("; {n} droughts"),
        };
        format!("{}; {} pairs{droughts}", self.origin, self.pairs.len())
    }

    /// The end of the drought at `t_ms`, if there is one.
    fn drought_until(&self, t_ms: u64) -> Option<u64> {
        let begun = self.droughts.partition_point(|(from, _)| *from <= t_ms);
        self.droughts.get(begun.checked_sub(1)?).map(|(_, to)| *to).filter(|to| *to > t_ms)
    }

    /// The beginning of the next drought after `t_ms`.
    fn next_drought(&self, t_ms: u64) -> Option<u64> {
        let begun = self.droughts.partition_point(|(from, _)| *from <= t_ms);
        self.droughts.get(begun).map(|(from, _)| *from)
    }

    fn locate(&self, pair_ix: usize, t_ms: u64) -> Option<(&Series, u64)> {
        let pair = self.pairs.get(pair_ix)?;
        Some((self.series.get(pair.series)?, t_ms.saturating_add(pair.offset_ms)))
    }
}

impl Pair {
    fn new(instance_type: &str, zone: &str, series: usize, offset_ms: u64) -> Self {
        Self { instance_type: instance_type.to_owned(), zone: zone.to_owned(), series, offset_ms }
    }
}

impl Series {
    /// Drops what does not change anything.
    fn new(mut changes: Vec<(u64, MarketState)>, period_ms: Option<u64>) -> Self {
        changes.dedup_by_key(|(_, state)| *state);
        Self { changes, period_ms: period_ms.filter(|p| *p > 0) }
    }

    fn phase(&self, at: u64) -> u64 {
        self.period_ms.map_or(at, |period| at % period)
    }

    fn state(&self, phase: u64) -> MarketState {
        let after = self.changes.partition_point(|(t, _)| *t <= phase);
        self.changes.get(after.saturating_sub(1)).map_or(MarketState::CALM, |(_, state)| *state)
    }

    fn until_change(&self, phase: u64) -> Option<u64> {
        let after = self.changes.partition_point(|(t, _)| *t <= phase);
        if let Some((t, _)) = self.changes.get(after) {
            return Some(t - phase);
        }
        // Round the end: the last state goes over into the first, or, if they are equal, lasts until the second.
        let period = self.period_ms.filter(|_| self.changes.len() > 1)?;
        let (first, last) = (self.changes.first()?, self.changes.last()?);
        let wrapped = if first.1 == last.1 { self.changes.get(1)?.0 } else { 0 };
        Some(period.saturating_sub(phase).saturating_add(wrapped))
    }
}

/// A file of recorded availability in the folder of a trace: the first `spot_availability*.csv` by name.
#[must_use]
pub fn find_beside(trace_path: &Path) -> Option<PathBuf> {
    let folder = trace_path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = std::fs::read_dir(folder).ok()?;
    let matches = |p: &PathBuf| {
        let name = p.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        name.starts_with("spot_availability") && name.ends_with(".csv") && p.is_file()
    };
    entries.flatten().map(|e| e.path()).filter(matches).min()
}
