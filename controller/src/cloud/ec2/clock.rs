//! The driver's clock beside the wall clock, which is AWS's as far as this machine knows it.

use crate::driver::wall_ms;
use forebay_capacity_ec2::ClockReading;
use forebay_kernel::units::Timestamp;
use std::time::Instant;

/// The driver's time at the start, monotonic from there.
#[derive(Clone, Copy)]
pub(super) struct DriverClock {
    base: Timestamp,
    since: Instant,
}

impl DriverClock {
    /// Begins at the driver's time, or at the wall clock's if that is later, as the driver does.
    pub fn begin(driver: Timestamp) -> DriverClock {
        DriverClock { base: driver.max(wall_ms()), since: Instant::now() }
    }

    /// Now, by the driver's clock.
    pub fn now(&self) -> Timestamp {
        Timestamp(self.base.0.saturating_add(u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX)))
    }

    /// Now, by both clocks.
    pub fn reading(&self) -> ClockReading {
        ClockReading { aws: wall_ms(), engine: self.now() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_kernel::units::Span;

    #[test]
    fn a_time_of_aws_is_as_far_from_now_on_a_drivers_clock_that_is_ahead() {
        let ahead = wall_ms() + Span::mins(50);
        let reading = DriverClock::begin(ahead).reading();
        let at = reading.to_engine(wall_ms() + Span::mins(2));
        assert!(at >= ahead + Span::secs(110) && at <= ahead + Span::mins(3), "{reading:?}: {at:?}");
        assert!(DriverClock::begin(Timestamp(5)).now() >= Timestamp(1_600_000_000_000), "the wall clock is later");
    }
}
