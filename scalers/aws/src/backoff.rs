//! Pauses that double, with jitter so that those who failed together do not come back all at once.
//!
//! Never: a pause without an end.

use std::time::Duration;

/// Counts failures in a row.
#[derive(Debug, Default)]
pub struct Backoff {
    tries: u32,
}

impl Backoff {
    /// Failures since the last success.
    #[must_use]
    pub fn tries(&self) -> u32 {
        self.tries
    }

    /// It went well.
    pub fn reset(&mut self) {
        self.tries = 0;
    }

    /// How long to wait now: between half of the step and all of it. The first step doubles with each failure, up to the longest.
    pub fn next(&mut self, first: Duration, longest: Duration) -> Duration {
        let step = first.saturating_mul(1 << self.tries.min(16)).min(longest);
        self.tries = self.tries.saturating_add(1);
        jittered(step)
    }
}

/// Between half of a step and all of it.
#[must_use]
pub fn jittered(step: Duration) -> Duration {
    let half = u64::try_from(step.as_millis() / 2).unwrap_or(u64::MAX / 4);
    Duration::from_millis(half + fastrand::u64(0..=half))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_begin_again_after_a_success() {
        let (first, longest) = (Duration::from_millis(200), Duration::from_secs(10));
        let mut backoff = Backoff::default();
        for at in 0..12 {
            let step = (200_u128 << at).min(10_000);
            let pause = backoff.next(first, longest).as_millis();
            assert!((step / 2..=step).contains(&pause), "pause {at} is {pause} ms");
        }
        assert_eq!(backoff.tries(), 12);
        backoff.reset();
        assert!(backoff.next(first, longest) <= first);
    }
}
