//! Pauses that double, with jitter so that readers do not come back all at once.
//!
//! Never: a pause without an end.

use super::Pace;
use super::trouble::Trouble;
use std::time::Duration;

/// Counts failures in a row.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    tries: u32,
}

impl Backoff {
    /// Failures since the last success.
    pub fn tries(&self) -> u32 {
        self.tries
    }

    /// It went well.
    pub fn reset(&mut self) {
        self.tries = 0;
    }

    /// How long to wait after this trouble: between half of the step and all of it.
    pub fn after(&mut self, trouble: &Trouble, pace: &Pace) -> Duration {
        let step = pace.first_pause.saturating_mul(1 << self.tries.min(16)).min(pace.longest_pause);
        self.tries = self.tries.saturating_add(1);
        let step = if trouble.needs_somebody() { pace.slow_pause } else { step };
        let half = u64::try_from(step.as_millis() / 2).unwrap_or(u64::MAX / 4);
        Duration::from_millis(half + fastrand::u64(0..=half))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_aws::Kind;

    #[test]
    fn pauses_double_up_to_the_longest_and_begin_again_after_a_success() {
        let (pace, mut backoff) = (Pace::default(), Backoff::default());
        let passing = Trouble { kind: Kind::Passing, why: String::new() };
        for at in 0..12 {
            let step = (200_u128 << at).min(10_000);
            let pause = backoff.after(&passing, &pace).as_millis();
            assert!((step / 2..=step).contains(&pause), "pause {at} is {pause} ms");
        }
        let missing = Trouble { kind: Kind::Missing, why: String::new() };
        assert!(backoff.after(&missing, &pace) >= Duration::from_secs(15));
        backoff.reset();
        assert!(backoff.after(&passing, &pace) <= pace.first_pause);
    }
}
