//! Limits the rate of calls to EC2: a token bucket for each rate that EC2 enforces, and a growing pause after throttling.
//!
//! The rates are those of the EC2 API reference, "Request throttling". Other users of the account share them, so about half is used.
//! Nothing here reads a clock, and all randomness comes from a seed.

use crate::api_call::RateClass;
use backon::{BackoffBuilder, ExponentialBackoff};
use forebay_kernel::units::{Span, Timestamp};
use std::collections::BTreeMap;
use std::time::Duration;

/// The refill per second and the size of a bucket, in thousandths of a call.
const fn rate(class: RateClass) -> (u64, u64) {
    match class {
        // EC2: 20 per second, 100 at once.
        RateClass::Describe => (10_000, 40_000),
        // EC2: 5 per second, 50 at once.
        RateClass::Mutate => (3_000, 20_000),
        // EC2: 2 per second, 5 at once.
        RateClass::Run => (1_000, 3_000),
        // EC2: 5 per second, 100 at once.
        RateClass::Terminate => (3_000, 20_000),
    }
}

/// The first delay after a failure or after throttling.
const FIRST_DELAY: Duration = Duration::from_secs(1);
/// The longest delay.
const LONGEST_DELAY: Duration = Duration::from_secs(30);

/// One call, in thousandths.
const ONE: u64 = 1000;

/// The rate limits of all calls.
#[derive(Debug)]
pub struct RateLimiter {
    buckets: BTreeMap<RateClass, Bucket>,
    seed: u64,
}

#[derive(Debug)]
struct Bucket {
    left: u64,
    filled_at: Timestamp,
    delays: RetrySpans,
    paused_until: Timestamp,
}

/// The delays after failures in a row, in the machine's time: 1 s doubling to 30 s, the upper half of each drawn at random.
#[derive(Debug, Default)]
pub(crate) struct RetrySpans(Option<ExponentialBackoff>);

impl RetrySpans {
    /// Records a failure and returns the delay after it.
    pub fn next_span(&mut self, limiter: &mut RateLimiter) -> Span {
        self.next_seeded(&mut limiter.seed)
    }

    fn next_seeded(&mut self, seed: &mut u64) -> Span {
        let delays = self.0.get_or_insert_with(|| {
            // Each sequence gets a seed of its own.
            *seed = seed.wrapping_add(1);
            forebay_aws::delay_builder(FIRST_DELAY, LONGEST_DELAY).with_jitter_seed(*seed).build()
        });
        // The delays have no end.
        let delay = delays.next().unwrap_or(LONGEST_DELAY);
        Span(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX))
    }

    /// Records a success: the next delay is a first one again.
    pub fn reset(&mut self) {
        self.0 = None;
    }
}

impl RateLimiter {
    /// A limiter with full buckets. The seed determines the jitter.
    #[must_use]
    pub fn new(seed: u64) -> RateLimiter {
        RateLimiter { buckets: BTreeMap::new(), seed }
    }

    fn bucket(&mut self, class: RateClass, now: Timestamp) -> &mut Bucket {
        let (per_second, most) = rate(class);
        let bucket = self.buckets.entry(class).or_insert_with(|| Bucket {
            left: most,
            filled_at: now,
            delays: RetrySpans::default(),
            paused_until: Timestamp(0),
        });
        let passed = now.since(bucket.filled_at).0;
        // Every rate is a whole number of thousandths per millisecond, so nothing is lost by rounding.
        bucket.left = bucket.left.saturating_add(passed.saturating_mul(per_second) / 1000).min(most);
        bucket.filled_at = bucket.filled_at.max(now);
        bucket
    }

    /// Takes a call from the bucket. Returns whether the call may be made now.
    pub fn take(&mut self, class: RateClass, now: Timestamp) -> bool {
        let bucket = self.bucket(class, now);
        if now < bucket.paused_until || bucket.left < ONE {
            return false;
        }
        bucket.left -= ONE;
        true
    }

    /// The earliest time at which the next call may be made.
    pub fn next_free(&mut self, class: RateClass, now: Timestamp) -> Timestamp {
        let (per_second, _) = rate(class);
        let bucket = self.bucket(class, now);
        let missing = ONE.saturating_sub(bucket.left);
        (now + Span((missing * 1000).div_ceil(per_second))).max(bucket.paused_until)
    }

    /// Records that a call was throttled: no call of its class is made for a while. Refusals of calls that ran concurrently count once.
    pub fn throttled(&mut self, class: RateClass, now: Timestamp) {
        let mut seed = self.seed;
        let bucket = self.bucket(class, now);
        if now >= bucket.paused_until {
            bucket.paused_until = now + bucket.delays.next_seeded(&mut seed);
        }
        self.seed = seed;
    }

    /// Records that a call of the class was not throttled.
    pub fn accepted(&mut self, class: RateClass, now: Timestamp) {
        self.bucket(class, now).delays.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_of_calls_stays_within_the_rate() {
        for (class, most) in [
            (RateClass::Describe, 10 * 60 + 40),
            (RateClass::Mutate, 3 * 60 + 20),
            (RateClass::Run, 60 + 3),
            (RateClass::Terminate, 3 * 60 + 20),
        ] {
            let mut limiter = RateLimiter::new(1);
            let made = (0..60_000).filter(|ms| limiter.take(class, Timestamp(*ms))).count();
            assert!(made <= most && made + 2 >= most, "{class:?}: {made} of {most}");
        }
    }

    #[test]
    fn throttling_pauses_one_class_for_longer_and_longer() {
        let mut limiter = RateLimiter::new(7);
        let (mut now, mut pauses) = (Timestamp(0), Vec::new());
        for _ in 0..10 {
            limiter.throttled(RateClass::Mutate, now);
            // A second refusal at the same time changes nothing.
            limiter.throttled(RateClass::Mutate, now);
            let opens = limiter.next_free(RateClass::Mutate, now);
            assert!(!limiter.take(RateClass::Mutate, Timestamp(opens.0 - 1)) && limiter.take(RateClass::Describe, now));
            pauses.push(opens.since(now).0);
            now = opens;
            assert!(limiter.take(RateClass::Mutate, now));
        }
        assert!((500..=1000).contains(&pauses[0]) && pauses.iter().all(|p| *p <= 30_000), "{pauses:?}");
        assert!(pauses[9] >= 15_000, "{pauses:?}");
        limiter.accepted(RateClass::Mutate, now);
        limiter.throttled(RateClass::Mutate, now);
        assert!(limiter.next_free(RateClass::Mutate, now).since(now).0 <= 1000);
    }
}
