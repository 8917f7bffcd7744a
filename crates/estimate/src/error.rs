//! How far off estimates of starts were, and the interval that follows for the next one.
//!
//! ```text
//! a start that was estimated and came   (what it waited for, estimated, actual): the latest 1,024 are kept
//! one that is late already              counts as if it came now: else only the lucky would be counted while a backlog grows
//! the next estimate                     those of the same kind of wait whose estimates were nearest to it: (actual + 15 s) / (estimated + 15 s)
//! its interval                          the shortest that holds so many of these ratios, times it: some 92 % at first; after each start that came
//!                                       outside its interval, or is late already, more, after each that came inside fewer, so that eight of ten
//!                                       come inside
//! ```
//!
//! Sources: conformal prediction with nearest neighbours (Papadopoulos, Vovk and Gammerman 2011), its level adapted to what comes (Gibbs and Candes
//! 2021); in integers.
//!
//! Never: an interval from fewer than [`ENOUGH`] starts.

use forebay_kernel::ids::JobId;
use forebay_kernel::state::State;
use forebay_kernel::units::{Span, Timestamp};
use std::collections::{BTreeMap, VecDeque};

/// Added on both sides of a ratio, so that seconds do not count where little is waited for.
const SECONDS_DO_NOT_COUNT: Span = Span(15_000);

/// So many starts are remembered.
const KEPT: usize = 1_024;

/// So many estimates at most wait for their starts.
const MOST_OPEN: usize = 256;

/// Fewer starts say nothing.
pub const ENOUGH: usize = 20;

/// So many are looked at for one estimate: a quarter of those there are, within these.
const NEAREST: (usize, usize) = (ENOUGH, 64);

/// So many of a thousand of them are inside the interval at first. Of those to come fewer are, for the shortest interval is chosen.
const COVERED: usize = 920;

/// By how much this changes with a start that came inside its interval, and with one that came outside. With these 82 of a hundred come inside in the
/// long run.
const STEPS: (usize, usize) = (4, 19);

/// It stays within these.
const LEVELS: (usize, usize) = (800, 980);

/// Starts that were estimated: those that came, and those that are waited for.
#[derive(Clone, Debug, Default)]
pub struct StartErrors {
    seen: VecDeque<Seen>,
    open: BTreeMap<JobId, Asked>,
    /// How many of a thousand are to be inside the interval, by what is waited for.
    levels: BTreeMap<&'static str, usize>,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    at: Timestamp,
    code: &'static str,
    estimated: Span,
    interval: Option<StartInterval>,
    /// It still waits after its interval, and that is counted.
    late: bool,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    code: &'static str,
    estimated: Span,
    actual: Span,
    /// Whether its start came inside the interval that was stated. `None`: none was.
    inside: Option<bool>,
}

/// What ratios of actual to estimated times were like, in thousandths: 2000 is twice as late as estimated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ErrorSpread {
    /// Starts that it is made of.
    pub starts: usize,
    /// Hardly one was below this.
    pub low: u64,
    /// As many below as above.
    pub median: u64,
    /// Hardly one was above this.
    pub high: u64,
}

/// How far off estimates were on the whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ErrorSummary {
    /// Of the ratios as many were below as above, in thousandths.
    pub median: u64,
    /// So many of a thousand came inside the interval that was stated. `None`: none was.
    pub inside: Option<u64>,
}

impl StartErrors {
    /// Whether the start of one more job can be waited for.
    #[must_use]
    pub fn takes(&self, job: JobId) -> bool {
        self.open.len() < MOST_OPEN && !self.open.contains_key(&job)
    }

    /// The first start of a job is estimated, which waits for what its reason's `code` says.
    pub fn ask(&mut self, job: JobId, code: &'static str, at: Timestamp, estimated: Span) {
        if self.takes(job) {
            let interval = self.spread(code, estimated, at).map(|spread| spread.interval(estimated));
            self.open.insert(job, Asked { at, code, estimated, interval, late: false });
        }
    }

    /// Looks which of them have started. A job that ended or left without a start says nothing, unless its interval was over.
    pub fn settle(&mut self, state: &State) {
        let over = |id: &JobId| {
            let row = state.job(*id).map(|(row, _)| row);
            match row {
                Some(row) if row.first_start.is_none() && row.ended.is_none() => None,
                row => Some((*id, row.and_then(|row| row.first_start))),
            }
        };
        let over: Vec<(JobId, Option<Timestamp>)> = self.open.keys().filter_map(over).collect();
        for (id, started) in over {
            let asked = self.open.remove(&id);
            if let (Some(asked), Some(started)) = (asked, started) {
                self.came(asked, started);
            }
        }
        self.count_late(state.now());
    }

    /// Those whose interval is over have come outside it, whenever they will start: who waits for that start learns of it too late.
    fn count_late(&mut self, now: Timestamp) {
        for asked in self.open.values_mut() {
            if !asked.late && asked.interval.is_some_and(|interval| asked.at + interval.latest < now) {
                asked.late = true;
                adapt(&mut self.levels, asked.code, false);
            }
        }
    }

    fn came(&mut self, asked: Asked, started: Timestamp) {
        let seen = asked.seen(started);
        if let Some(inside) = seen.inside.filter(|_| !asked.late) {
            adapt(&mut self.levels, asked.code, inside);
        }
        if self.seen.len() == KEPT {
            self.seen.pop_front();
        }
        self.seen.push_back(seen);
    }

    /// How far off estimates like this one were: of jobs that waited for the same, or of all where too few of those have started. `None`: too few
    /// have.
    #[must_use]
    pub fn spread(&self, code: &str, estimated: Span, now: Timestamp) -> Option<ErrorSpread> {
        let late = self.open.values().filter(|asked| asked.at + asked.estimated < now).map(|asked| asked.seen(now));
        let all: Vec<Seen> = self.seen.iter().copied().chain(late).collect();
        let same: Vec<Seen> = all.iter().filter(|seen| seen.code == code).copied().collect();
        let mut like = if same.len() >= ENOUGH { same } else { all };
        if like.len() < ENOUGH {
            return None;
        }
        let nearest = (like.len() / 4).clamp(NEAREST.0, NEAREST.1);
        like.sort_by_key(|seen| ratio(seen.estimated.max(estimated), seen.estimated.min(estimated)));
        let mut ratios: Vec<u64> = like.iter().take(nearest).map(|seen| ratio(seen.actual, seen.estimated)).collect();
        ratios.sort_unstable();
        let level = self.levels.get(code).copied().unwrap_or(COVERED);
        let covered = ((ratios.len() + 1) * level).div_ceil(1000).min(ratios.len());
        let intervals = (0..=ratios.len() - covered).map(|from| (ratios[from], ratios[from + covered - 1]));
        let (low, high) = intervals.min_by_key(|(low, high)| high - low)?;
        Some(ErrorSpread { starts: ratios.len(), low, median: ratios[ratios.len() / 2], high })
    }

    /// How far off estimates were on the whole. `None`: too few starts have come.
    #[must_use]
    pub fn summary(&self) -> Option<ErrorSummary> {
        let mut ratios: Vec<u64> = self.seen.iter().map(|seen| ratio(seen.actual, seen.estimated)).collect();
        ratios.sort_unstable();
        let median = *ratios.get(ratios.len() / 2).filter(|_| ratios.len() >= ENOUGH)?;
        let judged = self.seen.iter().filter_map(|seen| seen.inside);
        let inside = judged.clone().filter(|inside| *inside).count() as u64 * 1000;
        Some(ErrorSummary { median, inside: inside.checked_div(judged.count() as u64) })
    }
}

/// A start came inside its interval, or outside.
fn adapt(levels: &mut BTreeMap<&'static str, usize>, code: &'static str, inside: bool) {
    let level = levels.entry(code).or_insert(COVERED);
    *level = if inside { *level - STEPS.0 } else { *level + STEPS.1 }.clamp(LEVELS.0, LEVELS.1);
}

impl Asked {
    fn seen(self, started: Timestamp) -> Seen {
        let actual = started.since(self.at);
        let inside = self.interval.map(|interval| interval.holds(actual));
        Seen { code: self.code, estimated: self.estimated, actual, inside }
    }
}

/// When a job is expected to start, from now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StartInterval {
    /// Hardly before.
    pub earliest: Span,
    /// As likely before as after.
    pub expected: Span,
    /// Hardly after.
    pub latest: Span,
}

impl StartInterval {
    /// Whether a start after so long is inside.
    #[must_use]
    pub fn holds(&self, after: Span) -> bool {
        self.earliest <= after && after <= self.latest
    }
}

impl ErrorSpread {
    /// When a job starts of which so long a wait is estimated.
    #[must_use]
    pub fn interval(&self, estimated: Span) -> StartInterval {
        let base = u128::from((estimated + SECONDS_DO_NOT_COUNT).0);
        let of = |ratio: u64| {
            let at = u64::try_from(base * u128::from(ratio) / 1000).unwrap_or(u64::MAX);
            Span(at) - SECONDS_DO_NOT_COUNT
        };
        StartInterval { earliest: of(self.low), expected: of(self.median), latest: of(self.high) }
    }
}

/// In thousandths.
fn ratio(actual: Span, estimated: Span) -> u64 {
    (actual + SECONDS_DO_NOT_COUNT).0.saturating_mul(1000) / (estimated + SECONDS_DO_NOT_COUNT).0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn came(errors: &mut StartErrors, estimated: u64, actual: u64) {
        let (at, job) = (Timestamp(1_000_000), JobId(7));
        errors.ask(job, "Ceiling", at, Span::secs(estimated));
        let asked = errors.open.remove(&job).expect("it takes one");
        errors.came(asked, at + Span::secs(actual));
    }

    #[test]
    fn too_few_starts_say_nothing_and_enough_correct_what_is_estimated() {
        let mut errors = StartErrors::default();
        let spread = |errors: &StartErrors| errors.spread("Ceiling", Span::secs(100), Timestamp(0));
        for nth in 0..ENOUGH as u64 {
            assert_eq!((spread(&errors), errors.summary()), (None, None));
            came(&mut errors, 85, 180 + nth);
        }
        let spread = spread(&errors).expect("enough");
        let interval = spread.interval(Span::secs(100));
        assert!((1_950..2_150).contains(&spread.median), "{spread:?}");
        assert!(interval.earliest < interval.expected && interval.expected < interval.latest, "{interval:?}");
        assert!(interval.holds(Span::secs(220)) && !interval.holds(Span::secs(100)), "{interval:?}");
    }

    #[test]
    fn estimates_like_this_one_count_and_others_do_not() {
        let mut errors = StartErrors::default();
        for _ in 0..100 {
            came(&mut errors, 60, 60);
            came(&mut errors, 6_000, 12_000);
        }
        let median =
            |estimated| errors.spread("Ceiling", Span::secs(estimated), Timestamp(0)).map(|spread| spread.median);
        assert_eq!((median(60), median(6_000)), (Some(1_000), Some(1_997)));
    }

    #[test]
    fn who_is_late_and_has_not_started_counts_as_late() {
        let mut errors = StartErrors::default();
        for nth in 0..40 {
            errors.ask(JobId(nth), "Ceiling", Timestamp(0), Span::secs(100));
        }
        let at = |seconds: u64| errors.spread("Ceiling", Span::secs(100), Timestamp(seconds * 1000));
        assert_eq!(at(50), None);
        assert!(at(1_000).is_some_and(|spread| spread.median > 8_000), "{:?}", at(1_000));
    }

    #[test]
    fn starts_outside_widen_the_interval_and_starts_inside_narrow_it() {
        let mut errors = StartErrors::default();
        (0..64).for_each(|_| came(&mut errors, 100, 100));
        let level = |errors: &StartErrors| errors.levels.get("Ceiling").copied().unwrap_or(COVERED);
        let calm = level(&errors);
        assert!(calm < COVERED, "{calm}");
        came(&mut errors, 100, 1_000);
        assert_eq!(level(&errors), calm + STEPS.1);
    }

    #[test]
    fn who_is_late_widens_the_interval_at_once_and_once() {
        let mut errors = StartErrors::default();
        (0..64).for_each(|_| came(&mut errors, 100, 100));
        let level = |errors: &StartErrors| errors.levels.get("Ceiling").copied();
        let calm = level(&errors);
        errors.ask(JobId(7), "Ceiling", Timestamp(0), Span::secs(100));
        errors.count_late(Timestamp(100_000));
        assert_eq!(level(&errors), calm);
        (0..3).for_each(|_| errors.count_late(Timestamp(500_000)));
        assert_eq!(level(&errors), calm.map(|calm| calm + STEPS.1));
        let asked = errors.open.remove(&JobId(7)).expect("it waits");
        errors.came(asked, Timestamp(900_000));
        assert_eq!(level(&errors), calm.map(|calm| calm + STEPS.1));
    }
}
