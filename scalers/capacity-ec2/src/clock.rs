//! Converts AWS's times to the engine's clock.
//!
//! AWS's times are those of the wall clock. The engine's clock begins at the wall clock or at the journal's last record, whichever is later,
//! and does not follow when the wall clock is stepped. Compared as they are, a warning two minutes ahead could seem past, or hours away.

use forebay_kernel::units::Timestamp;

/// One moment on both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading {
    /// The moment on AWS's clock.
    pub aws: Timestamp,
    /// The same moment on the engine's clock.
    pub engine: Timestamp,
}

impl ClockReading {
    /// A reading of two clocks that agree.
    #[must_use]
    pub fn same(now: Timestamp) -> ClockReading {
        ClockReading { aws: now, engine: now }
    }

    /// A time of AWS on the engine's clock.
    #[must_use]
    pub fn to_engine(self, at: Timestamp) -> Timestamp {
        if at >= self.aws { self.engine + at.since(self.aws) } else { self.engine - self.aws.since(at) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_keep_their_distance_from_now() {
        let two = Timestamp(120_000);
        for (aws, engine, at, expected) in [
            (0, 0, 120_000, 120_000),
            // The engine's clock is ten minutes ahead, or behind.
            (1_000_000, 1_600_000, 1_120_000, 1_720_000),
            (1_600_000, 1_000_000, 1_720_000, 1_120_000),
            (1_000_000, 1_600_000, 940_000, 1_540_000),
            (1_000_000, 10, 0, 0),
            (0, u64::MAX, u64::MAX, u64::MAX),
        ] {
            let reading = ClockReading { aws: Timestamp(aws), engine: Timestamp(engine) };
            assert_eq!(reading.to_engine(Timestamp(at)), Timestamp(expected), "{reading:?} {at}");
        }
        assert_eq!(ClockReading::same(two).to_engine(two), two);
    }
}
