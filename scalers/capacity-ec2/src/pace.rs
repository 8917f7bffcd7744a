//! How fast EC2 is asked: a bucket for each rate that it enforces, and a pause after a refusal that grows with each one.
//!
//! Source of the rates: the EC2 API reference, "Request throttling". Others in the account use them too, so about half is taken.
//! Never: reads a clock, or draws from a generator that a test cannot seed.

use crate::call::RateClass;
use forebay_engine::units::{Millis, Span};
use std::collections::BTreeMap;

/// Calls a second and at once, in thousandths of a call.
const fn rate(class: RateClass) -> (u64, u64) {
    match class {
        // EC2: 20 a second, 100 at once.
        RateClass::Describe => (10_000, 40_000),
        // EC2: 5 a second, 50 at once.
        RateClass::Mutate => (3_000, 20_000),
        // EC2: 2 a second, 5 at once.
        RateClass::Run => (1_000, 3_000),
        // EC2: 5 a second, 100 at once.
        RateClass::Terminate => (3_000, 20_000),
    }
}

/// The first pause after a throttling, and the longest.
const PAUSE: (Span, Span) = (Span::secs(1), Span::secs(30));

/// One call, in thousandths.
const ONE: u64 = 1000;

/// All buckets.
#[derive(Clone, Debug)]
pub struct Pace {
    buckets: BTreeMap<RateClass, Bucket>,
    chance: fastrand::Rng,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    left: u64,
    filled_at: Millis,
    throttled: u32,
    shut_until: Millis,
}

impl Pace {
    /// Full buckets. All chance comes from the seed.
    #[must_use]
    pub fn new(seed: u64) -> Pace {
        Pace { buckets: BTreeMap::new(), chance: fastrand::Rng::with_seed(seed) }
    }

    fn bucket(&mut self, class: RateClass, now: Millis) -> &mut Bucket {
        let (a_second, most) = rate(class);
        let new = Bucket { left: most, filled_at: now, throttled: 0, shut_until: Millis(0) };
        let bucket = self.buckets.entry(class).or_insert(new);
        let passed = now.since(bucket.filled_at).0;
        bucket.left = bucket.left.saturating_add(passed.saturating_mul(a_second) / 1000).min(most);
        // What was less than a thousandth of a call is lost: a millisecond brings at least one whole thousandth.
        bucket.filled_at = bucket.filled_at.max(now);
        bucket
    }

    /// Takes a call, if one may be made now.
    pub fn take(&mut self, class: RateClass, now: Millis) -> bool {
        let bucket = self.bucket(class, now);
        if now < bucket.shut_until || bucket.left < ONE {
            return false;
        }
        bucket.left -= ONE;
        true
    }

    /// When the next call may be made, at the earliest.
    pub fn opens(&mut self, class: RateClass, now: Millis) -> Millis {
        let (a_second, _) = rate(class);
        let bucket = self.bucket(class, now);
        let missing = ONE.saturating_sub(bucket.left);
        (now + Span((missing * 1000).div_ceil(a_second))).max(bucket.shut_until)
    }

    /// A call was refused as one too many: nothing of its kind for a while. Refusals of calls that were under way together count once.
    pub fn throttled(&mut self, class: RateClass, now: Millis) {
        let bucket = self.bucket(class, now);
        if now < bucket.shut_until {
            return;
        }
        bucket.throttled = bucket.throttled.saturating_add(1);
        let tries = bucket.throttled;
        let pause = self.pause(PAUSE.0, tries, PAUSE.1);
        self.bucket(class, now).shut_until = now + pause;
    }

    /// A call of its kind went through.
    pub fn went_through(&mut self, class: RateClass, now: Millis) {
        self.bucket(class, now).throttled = 0;
    }

    /// The pause before try `tries + 1`: doubling from `first` to `longest`, half of it drawn, so that controllers that failed
    /// together do not come back together.
    pub fn pause(&mut self, first: Span, tries: u32, longest: Span) -> Span {
        let whole = first.doubled(tries.saturating_sub(1), longest);
        Span(whole.0 / 2 + self.chance.u64(0..=whole.0 / 2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_of_asking_stays_within_the_rate() {
        for (class, most) in [
            (RateClass::Describe, 10 * 60 + 40),
            (RateClass::Mutate, 3 * 60 + 20),
            (RateClass::Run, 60 + 3),
            (RateClass::Terminate, 3 * 60 + 20),
        ] {
            let mut pace = Pace::new(1);
            let made = (0..60_000).filter(|ms| pace.take(class, Millis(*ms))).count();
            assert!(made <= most && made + 2 >= most, "{class:?}: {made} of {most}");
        }
    }

    #[test]
    fn refusals_shut_one_kind_for_longer_and_longer() {
        let mut pace = Pace::new(7);
        let (mut now, mut pauses) = (Millis(0), Vec::new());
        for _ in 0..10 {
            pace.throttled(RateClass::Mutate, now);
            // A second refusal of the same moment changes nothing.
            pace.throttled(RateClass::Mutate, now);
            let opens = pace.opens(RateClass::Mutate, now);
            assert!(!pace.take(RateClass::Mutate, Millis(opens.0 - 1)) && pace.take(RateClass::Describe, now));
            pauses.push(opens.since(now).0);
            now = opens;
            assert!(pace.take(RateClass::Mutate, now));
        }
        assert!((500..=1000).contains(&pauses[0]) && pauses.iter().all(|p| *p <= 30_000), "{pauses:?}");
        assert!(pauses[9] >= 15_000, "{pauses:?}");
        pace.went_through(RateClass::Mutate, now);
        pace.throttled(RateClass::Mutate, now);
        assert!(pace.opens(RateClass::Mutate, now).since(now).0 <= 1000);
    }
}
