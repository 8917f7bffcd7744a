//! The delays between attempts. They double, and half of each is drawn, so that clients that failed together do not return together.

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use std::time::Duration;

/// Delays that double from `first` to `longest` without an end. The upper half of each delay is drawn at random.
#[must_use]
pub fn delay_builder(first: Duration, longest: Duration) -> ExponentialBuilder {
    // backon's jitter adds up to the delay itself. Added to half of a step, it makes between half and all of the step.
    let builder = ExponentialBuilder::new().with_min_delay(first / 2).with_max_delay(longest / 2);
    builder.with_jitter().without_max_times()
}

/// Counts the failures in a row of one operation, and says how long to wait after each.
#[derive(Debug)]
pub struct RetryDelays {
    builder: ExponentialBuilder,
    delays: ExponentialBackoff,
    failures: u32,
}

impl RetryDelays {
    /// The first delay is at most `first`, and none is longer than `longest`.
    #[must_use]
    pub fn new(first: Duration, longest: Duration) -> RetryDelays {
        let builder = delay_builder(first, longest);
        RetryDelays { builder, delays: builder.build(), failures: 0 }
    }

    /// The number of failures since the last success.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Records a success: the next delay is a first one again.
    pub fn reset(&mut self) {
        (self.delays, self.failures) = (self.builder.build(), 0);
    }

    /// Records a failure and returns how long to wait before the next attempt.
    pub fn next_delay(&mut self) -> Duration {
        self.failures = self.failures.saturating_add(1);
        // The delays have no end.
        self.delays.next().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_longest_and_start_again_after_a_success() {
        let (first, longest) = (Duration::from_millis(200), Duration::from_secs(10));
        let mut delays = RetryDelays::new(first, longest);
        for nth in 0..12 {
            let step = (200_u128 << nth).min(10_000);
            let delay = delays.next_delay().as_millis();
            assert!((step / 2..=step).contains(&delay), "delay {nth} is {delay} ms");
        }
        assert_eq!(delays.failures(), 12);
        delays.reset();
        assert_eq!(delays.failures(), 0);
        assert!(delays.next_delay() <= first);
    }
}
