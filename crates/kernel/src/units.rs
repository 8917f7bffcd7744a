//! Quantities as types: time, money, GPU share, memory. Integers only, so that every machine computes the same.
//!
//! Never: floats, wall clocks, silent overflow. Arithmetic saturates; where rounding happens it is stated.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};
use serde::{Deserialize, Serialize};

/// An instant in milliseconds: since the Unix epoch in production, since the trace's zero in simulation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Timestamp(pub u64);

/// A length of time in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Span(pub u64);

/// A price in micro-dollars per hour.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Rate(pub u64);

/// Money as the exact sum of price x time: micro-dollars per hour x milliseconds. Rounded once, by [`Spend::micro_dollars`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Spend(pub u128);

/// GPU time in thousandths of a GPU x milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct GpuTime(pub u128);

/// GPUs in thousandths: 1000 is one whole GPU.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct MilliGpu(pub u64);

/// Memory in MiB, of a GPU or of a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Mib(pub u64);

/// CPU in thousandths of a core.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct MilliCpu(pub u64);

/// Milliseconds in an hour.
pub const HOUR_MS: u64 = 3_600_000;

impl Timestamp {
    /// The instant no timer ever reaches.
    pub const NEVER: Timestamp = Timestamp(u64::MAX);

    /// Time since `earlier`; zero when `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Timestamp) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Span {
    /// Nothing.
    pub const ZERO: Span = Span(0);

    /// `n` seconds.
    #[must_use]
    pub const fn secs(n: u64) -> Span {
        Span(n.saturating_mul(1000))
    }

    /// `n` minutes.
    #[must_use]
    pub const fn mins(n: u64) -> Span {
        Span::secs(n.saturating_mul(60))
    }

    /// `self` x `n`.
    #[must_use]
    pub fn times(self, n: u64) -> Span {
        Span(self.0.saturating_mul(n))
    }

    /// `self` doubled `n` times, at most `cap`.
    #[must_use]
    pub fn doubled(self, n: u32, cap: Span) -> Span {
        let factor = 1u64.checked_shl(n.min(32)).unwrap_or(u64::MAX);
        Span(self.0.saturating_mul(factor).min(cap.0))
    }
}

impl Add<Span> for Timestamp {
    type Output = Timestamp;
    fn add(self, span: Span) -> Timestamp {
        Timestamp(self.0.saturating_add(span.0))
    }
}

impl Sub<Span> for Timestamp {
    type Output = Timestamp;
    fn sub(self, span: Span) -> Timestamp {
        Timestamp(self.0.saturating_sub(span.0))
    }
}

impl Add for Span {
    type Output = Span;
    fn add(self, other: Span) -> Span {
        Span(self.0.saturating_add(other.0))
    }
}

impl Sub for Span {
    type Output = Span;
    fn sub(self, other: Span) -> Span {
        Span(self.0.saturating_sub(other.0))
    }
}

impl AddAssign for Span {
    fn add_assign(&mut self, other: Span) {
        *self = *self + other;
    }
}

impl Rate {
    /// The exact cost of holding something at this price for `span`.
    #[must_use]
    pub fn over(self, span: Span) -> Spend {
        Spend(u128::from(self.0) * u128::from(span.0))
    }

    /// This price x `n`.
    #[must_use]
    pub fn times(self, n: u64) -> Rate {
        Rate(self.0.saturating_mul(n))
    }
}

impl Add for Rate {
    type Output = Rate;
    fn add(self, other: Rate) -> Rate {
        Rate(self.0.saturating_add(other.0))
    }
}

impl Sub for Rate {
    type Output = Rate;
    fn sub(self, other: Rate) -> Rate {
        Rate(self.0.saturating_sub(other.0))
    }
}

impl Spend {
    /// Whole micro-dollars, rounded half up. The only place where money is rounded.
    #[must_use]
    pub fn micro_dollars(self) -> u64 {
        let hour = u128::from(HOUR_MS);
        u64::try_from((self.0 + hour / 2) / hour).unwrap_or(u64::MAX)
    }
}

impl AddAssign for Spend {
    fn add_assign(&mut self, other: Spend) {
        self.0 = self.0.saturating_add(other.0);
    }
}

impl AddAssign for GpuTime {
    fn add_assign(&mut self, other: GpuTime) {
        self.0 = self.0.saturating_add(other.0);
    }
}

impl GpuTime {
    /// GPU time in thousandths of a GPU-hour, rounded down.
    #[must_use]
    pub fn milli_hours(self) -> u64 {
        u64::try_from(self.0 / u128::from(HOUR_MS)).unwrap_or(u64::MAX)
    }
}

impl MilliGpu {
    /// `n` whole GPUs.
    #[must_use]
    pub fn whole(n: u64) -> MilliGpu {
        MilliGpu(n.saturating_mul(1000))
    }

    /// Held for `span`.
    #[must_use]
    pub fn over(self, span: Span) -> GpuTime {
        GpuTime(u128::from(self.0) * u128::from(span.0))
    }
}

impl Add for MilliGpu {
    type Output = MilliGpu;
    fn add(self, other: MilliGpu) -> MilliGpu {
        MilliGpu(self.0.saturating_add(other.0))
    }
}

impl Sub for MilliGpu {
    type Output = MilliGpu;
    fn sub(self, other: MilliGpu) -> MilliGpu {
        MilliGpu(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for MilliGpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_multiple_of(1000) {
            write!(f, "{}", self.0 / 1000)
        } else {
            write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06} USD/h", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secs = self.0 / 1000;
        match (secs / 3600, secs / 60 % 60, secs % 60) {
            (0, 0, s) => write!(f, "{s}s"),
            (0, m, 0) => write!(f, "{m}m"),
            (0, m, s) => write!(f, "{m}m{s:02}s"),
            (h, 0, 0) => write!(f, "{h}h"),
            (h, m, _) => write!(f, "{h}h{m:02}m"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_rounded_once_and_half_up() {
        let third = Rate(1_000_000).over(Span(HOUR_MS / 3));
        assert_eq!(third.micro_dollars(), 333_333);
        let mut sum = third;
        sum += third;
        sum += third;
        assert_eq!(sum.micro_dollars(), 1_000_000);
    }

    #[test]
    fn doubling_stops_at_its_cap() {
        assert_eq!(Span::mins(1).doubled(0, Span::mins(10)), Span::mins(1));
        assert_eq!(Span::mins(1).doubled(3, Span::mins(10)), Span::mins(8));
        assert_eq!(Span::mins(1).doubled(99, Span::mins(10)), Span::mins(10));
    }
}
