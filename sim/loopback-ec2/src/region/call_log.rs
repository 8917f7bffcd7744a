//! EC2's rate limits of an account, and the numbers of its calls. Times of calls are kept for one minute.

use std::collections::{BTreeMap, VecDeque};

use forebay_kernel::units::{Span, Timestamp};

/// The number of calls of an action.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallCount {
    /// All calls.
    pub total: u64,
    /// Throttled calls.
    pub throttled: u64,
    /// The most calls within one minute.
    pub most_in_a_minute: u64,
    /// The times of the calls of the last minute, with their numbers.
    recent: VecDeque<(Timestamp, u64)>,
    within: u64,
}

/// The token bucket of a call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum RateBucket {
    Describe,
    Mutate,
    Run,
    Terminate,
}

impl RateBucket {
    pub(super) fn of(action: &str) -> RateBucket {
        match action {
            "RunInstances" => RateBucket::Run,
            "TerminateInstances" => RateBucket::Terminate,
            describe if describe.starts_with("Describe") => RateBucket::Describe,
            _ => RateBucket::Mutate,
        }
    }

    /// The tokens per second, and the size of the bucket.
    fn rate(self) -> (u64, u64) {
        match self {
            RateBucket::Describe => (20, 100),
            RateBucket::Mutate => (5, 50),
            RateBucket::Run => (2, 5),
            RateBucket::Terminate => (5, 100),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct CallLog {
    counts: BTreeMap<String, CallCount>,
    /// The content of each bucket in 1/1000 tokens, and since when.
    buckets: BTreeMap<RateBucket, (u64, Timestamp)>,
    opened: Timestamp,
}

/// The most actions that are counted by name. Further ones are unknown names, and counted together.
const MAX_ACTIONS: usize = 100;

impl CallLog {
    pub(super) fn new(opened: Timestamp) -> CallLog {
        CallLog { counts: BTreeMap::new(), buckets: BTreeMap::new(), opened }
    }

    pub(super) fn counts(&self) -> &BTreeMap<String, CallCount> {
        &self.counts
    }

    /// Counts a call. Returns whether it is admitted: not during an outage, nor, with `rate_limits`, without a token.
    pub(super) fn note(
        &mut self,
        at: Timestamp,
        action: &str,
        kind: RateBucket,
        rate_limits: bool,
        shut: bool,
    ) -> bool {
        let may = !shut && (!rate_limits || self.take(at, kind));
        let known = self.counts.contains_key(action) || self.counts.len() < MAX_ACTIONS;
        let count = self.counts.entry(if known { action.to_owned() } else { "others".to_owned() }).or_default();
        count.total += 1;
        count.throttled += u64::from(!may);
        count.note(at);
        may
    }

    fn take(&mut self, at: Timestamp, kind: RateBucket) -> bool {
        let (a_second, burst) = kind.rate();
        let (held, since) = self.buckets.entry(kind).or_insert((burst * 1000, self.opened));
        // One token per second is 1/1000 of a token per millisecond.
        *held = held.saturating_add(at.since(*since).0.saturating_mul(a_second)).min(burst * 1000);
        *since = at;
        let may = *held >= 1000;
        *held -= if may { 1000 } else { 0 };
        may
    }
}

impl CallCount {
    fn note(&mut self, at: Timestamp) {
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
    use super::{CallLog, RateBucket};
    use forebay_kernel::units::Timestamp;

    #[test]
    fn a_bucket_gives_its_burst_and_then_its_rate() {
        let mut log = CallLog::new(Timestamp(0));
        let mut run = |at| log.note(Timestamp(at), "RunInstances", RateBucket::Run, true, false);
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
        let mut log = CallLog::new(Timestamp(0));
        for at in [0, 30_000, 59_999, 60_000, 120_000] {
            assert!(log.note(Timestamp(at), "X", RateBucket::Mutate, false, false));
        }
        assert_eq!(log.counts()["X"].most_in_a_minute, 3);
        assert!(!log.note(Timestamp(120_001), "X", RateBucket::Mutate, false, true));
    }
}
