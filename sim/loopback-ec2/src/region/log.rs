//! The rates that EC2 keeps an account to, and the count of its calls.
//!
//! Never: more than a minute of calls in memory.

use std::collections::{BTreeMap, VecDeque};

use forebay_engine::units::{Millis, Span};

/// How often an action was called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallCount {
    /// All calls that arrived.
    pub total: u64,
    /// Those refused as too many.
    pub throttled: u64,
    /// The most that arrived within any minute.
    pub most_in_a_minute: u64,
    /// When, and how many at that moment, within the last minute.
    recent: VecDeque<(Millis, u64)>,
    within: u64,
}

/// Which bucket a call takes its token from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Kind {
    Describe,
    Mutate,
    Run,
    Terminate,
    Tag,
}

impl Kind {
    pub(super) fn of(action: &str) -> Kind {
        match action {
            "RunInstances" => Kind::Run,
            "TerminateInstances" => Kind::Terminate,
            "CreateTags" => Kind::Tag,
            describe if describe.starts_with("Describe") => Kind::Describe,
            _ => Kind::Mutate,
        }
    }

    /// Tokens a second, and the most that a bucket holds.
    fn rate(self) -> (u64, u64) {
        match self {
            Kind::Describe => (20, 100),
            Kind::Mutate => (5, 50),
            Kind::Run => (2, 5),
            Kind::Terminate => (5, 100),
            Kind::Tag => (10, 100),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct CallLog {
    counts: BTreeMap<String, CallCount>,
    /// What is in each bucket in 1/1000 tokens, and since when.
    buckets: BTreeMap<Kind, (u64, Millis)>,
    opened: Millis,
}

/// Names that no API has are counted together beyond so many.
const MOST_ACTIONS: usize = 100;

impl CallLog {
    pub(super) fn new(opened: Millis) -> CallLog {
        CallLog { counts: BTreeMap::new(), buckets: BTreeMap::new(), opened }
    }

    pub(super) fn counts(&self) -> &BTreeMap<String, CallCount> {
        &self.counts
    }

    /// Counts a call. Whether it may go on: not while the door is `shut`, nor, with `rates`, without a token.
    pub(super) fn note(&mut self, at: Millis, action: &str, kind: Kind, rates: bool, shut: bool) -> bool {
        let may = !shut && (!rates || self.take(at, kind));
        let known = self.counts.contains_key(action) || self.counts.len() < MOST_ACTIONS;
        let count = self.counts.entry(if known { action.to_owned() } else { "others".to_owned() }).or_default();
        count.total += 1;
        count.throttled += u64::from(!may);
        count.note(at);
        may
    }

    fn take(&mut self, at: Millis, kind: Kind) -> bool {
        let (a_second, burst) = kind.rate();
        let (held, since) = self.buckets.entry(kind).or_insert((burst * 1000, self.opened));
        // A token a second is a thousandth of one a millisecond.
        *held = held.saturating_add(at.since(*since).0.saturating_mul(a_second)).min(burst * 1000);
        *since = at;
        let may = *held >= 1000;
        *held -= if may { 1000 } else { 0 };
        may
    }
}

impl CallCount {
    fn note(&mut self, at: Millis) {
        while let Some((first, n)) = self.recent.front().copied()
            && first + Span::mins(1) <= at
        {
            self.within -= n;
            self.recent.pop_front();
        }
        match self.recent.back_mut() {
            Some((last, n)) if *last == at => *n += 1,
            _ => self.recent.push_back((at, 1)),
        }
        self.within += 1;
        self.most_in_a_minute = self.most_in_a_minute.max(self.within);
    }
}

#[cfg(test)]
mod tests {
    use super::{CallLog, Kind};
    use forebay_engine::units::Millis;

    #[test]
    fn a_bucket_gives_its_burst_and_then_its_rate() {
        let mut log = CallLog::new(Millis(0));
        let mut run = |at| log.note(Millis(at), "RunInstances", Kind::Run, true, false);
        let within: Vec<bool> = (0..6).map(|_| run(0)).collect();
        assert_eq!(within, [true, true, true, true, true, false]);
        assert!(!run(499));
        assert!(run(500));
        assert!(!run(999));
        assert!(run(1000));
        let count = &log.counts()["RunInstances"];
        assert_eq!((count.total, count.throttled, count.most_in_a_minute), (10, 3, 10));
    }

    #[test]
    fn a_minute_slides() {
        let mut log = CallLog::new(Millis(0));
        for at in [0, 30_000, 59_999, 60_000, 120_000] {
            assert!(log.note(Millis(at), "X", Kind::Mutate, false, false));
        }
        assert_eq!(log.counts()["X"].most_in_a_minute, 3);
        assert!(!log.note(Millis(120_001), "X", Kind::Mutate, false, true));
    }
}
