//! Limits the calls to the API server: a token bucket for reads and one for changes, and a growing pause after throttling or failures.
//!
//! Nothing here reads a clock. The jitter comes from a seed, so that controllers that start together do not repeat together.

use crate::api_call::KubeRateClass;
use crate::kube_error::KubeError;
use crate::settings::KubeRateSettings;
use forebay_kernel::units::{Span, Timestamp};

/// One call, in thousandths.
const ONE: u64 = 1000;
/// The first delay after a failure.
const FIRST_DELAY: Span = Span(500);
/// The longest delay after failures in a row.
const LONGEST_DELAY: Span = Span::secs(30);
/// A `Retry-After` beyond this is not believed.
const LONGEST_RETRY_AFTER: Span = Span::mins(2);

/// The rates of all calls.
#[derive(Debug)]
pub(crate) struct KubeRates {
    reads: TokenBucket,
    writes: TokenBucket,
    seed: u64,
}

#[derive(Debug)]
struct TokenBucket {
    per_second: u64,
    most: u64,
    left: u64,
    filled_at: Timestamp,
    failures: u32,
    paused_until: Timestamp,
}

impl TokenBucket {
    fn new(per_second: u32, burst: u32) -> TokenBucket {
        let most = u64::from(burst.max(1)) * ONE;
        let per_second = u64::from(per_second.max(1)) * ONE;
        TokenBucket { per_second, most, left: most, filled_at: Timestamp(0), failures: 0, paused_until: Timestamp(0) }
    }

    fn refill(&mut self, now: Timestamp) {
        // Every rate is a whole number of thousandths per millisecond, so nothing is lost by rounding.
        let more = now.since(self.filled_at).0.saturating_mul(self.per_second) / 1000;
        self.left = self.left.saturating_add(more).min(self.most);
        self.filled_at = self.filled_at.max(now);
    }
}

impl KubeRates {
    pub fn new(settings: &KubeRateSettings, seed: u64) -> KubeRates {
        KubeRates {
            reads: TokenBucket::new(settings.reads_per_second, settings.read_burst),
            writes: TokenBucket::new(settings.writes_per_second, settings.write_burst),
            seed,
        }
    }

    fn bucket(&mut self, class: KubeRateClass) -> &mut TokenBucket {
        match class {
            KubeRateClass::Read => &mut self.reads,
            KubeRateClass::Write => &mut self.writes,
        }
    }

    /// Takes a call from its bucket. Returns whether it may be made now.
    pub fn take(&mut self, class: KubeRateClass, now: Timestamp) -> bool {
        let bucket = self.bucket(class);
        bucket.refill(now);
        if now < bucket.paused_until || bucket.left < ONE {
            return false;
        }
        bucket.left -= ONE;
        true
    }

    /// The earliest time at which the next call may be made.
    pub fn next_free(&mut self, class: KubeRateClass, now: Timestamp) -> Timestamp {
        let bucket = self.bucket(class);
        bucket.refill(now);
        let missing = ONE.saturating_sub(bucket.left);
        (now + Span((missing * 1000).div_ceil(bucket.per_second))).max(bucket.paused_until)
    }

    /// The API server is overloaded or away: no call of the class is made for a while. Failures of calls that ran together count once.
    pub fn failed(&mut self, class: KubeRateClass, now: Timestamp, error: &KubeError) {
        let failures = self.bucket(class).failures;
        let pause = self.delay_after(failures, error);
        let bucket = self.bucket(class);
        if now >= bucket.paused_until {
            bucket.failures = failures.saturating_add(1);
            bucket.paused_until = now + pause;
        }
    }

    /// A call of the class was answered.
    pub fn answered(&mut self, class: KubeRateClass) {
        self.bucket(class).failures = 0;
    }

    /// How long nothing is done after a failure: the delay after so many before this one, or what the API server asks for, as far as it is believed.
    pub fn delay_after(&mut self, failures: u32, error: &KubeError) -> Span {
        self.delay(failures).max(error.retry_after.unwrap_or_default().min(LONGEST_RETRY_AFTER))
    }

    /// The delay after so many failures before this one: doubling from half a second to 30 s, the upper half of each drawn at random.
    pub fn delay(&mut self, failures: u32) -> Span {
        let full = FIRST_DELAY.doubled(failures.min(16), LONGEST_DELAY);
        // SplitMix64, by Steele, Lea and Flood: only the spread matters here.
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.seed;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        Span(full.0 / 2 + z % (full.0 / 2 + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_of_calls_stays_within_the_rate() {
        let settings = KubeRateSettings { writes_per_second: 5, write_burst: 20, ..KubeRateSettings::default() };
        let mut rates = KubeRates::new(&settings, 1);
        let made = (0..60_000).filter(|ms| rates.take(KubeRateClass::Write, Timestamp(*ms))).count();
        assert!((5 * 60 + 18..=5 * 60 + 20).contains(&made), "{made}");
    }

    #[test]
    fn failures_pause_for_longer_and_longer_and_a_retry_after_is_kept() {
        let mut rates = KubeRates::new(&KubeRateSettings::default(), 7);
        let (mut now, mut pauses) = (Timestamp(0), Vec::new());
        for _ in 0..10 {
            let error = KubeError::of_status(500, "InternalError", "");
            rates.failed(KubeRateClass::Write, now, &error);
            // A second failure at the same time changes nothing.
            rates.failed(KubeRateClass::Write, now, &error);
            let opens = rates.next_free(KubeRateClass::Write, now);
            assert!(!rates.take(KubeRateClass::Write, Timestamp(opens.0 - 1)));
            pauses.push(opens.since(now).0);
            now = opens;
        }
        assert!(pauses[0] <= 500 && pauses.iter().all(|p| *p <= 30_000) && pauses[9] >= 15_000, "{pauses:?}");
        rates.answered(KubeRateClass::Write);
        let error = KubeError::of_status(429, "TooManyRequests", "").with_retry_after(Some(Span::secs(20)));
        rates.failed(KubeRateClass::Write, now, &error);
        assert_eq!(rates.next_free(KubeRateClass::Write, now), now + Span::secs(20));
    }

    #[test]
    fn a_retry_after_is_believed_up_to_two_minutes() {
        let mut rates = KubeRates::new(&KubeRateSettings::default(), 7);
        let mut delay = |seconds| {
            let error = KubeError::of_status(503, "ServiceUnavailable", "").with_retry_after(Some(Span::secs(seconds)));
            rates.delay_after(0, &error)
        };
        assert!(delay(0) <= Span(500));
        for (seconds, expected) in [(7, 7), (120, 120), (121, 120), (31_536_000, 120), (u64::MAX, 120)] {
            assert_eq!(delay(seconds), Span::secs(expected), "{seconds} s");
        }
    }
}
