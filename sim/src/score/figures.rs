//! Figures for people and for JSON: exact integers in, decimals out. The only floats of the simulator are made here.
//!
//! Never: feeds a figure back into the world.
#![allow(clippy::float_arithmetic)] // Rendering only: each float is the last step of an exact integer sum.

use forebay_kernel::units::{GpuTime, HOUR_MS, Span, Spend};
use serde::Serialize;

/// The mean and some percentiles (nearest rank) of a list, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Distribution {
    /// The mean.
    pub mean: f64,
    /// Half are at most this.
    pub p50: f64,
    /// 9 of 10 are at most this.
    pub p90: f64,
    /// 19 of 20 are at most this.
    pub p95: f64,
    /// 99 of 100 are at most this.
    pub p99: f64,
}

impl Distribution {
    /// Of these spans, in any order. An empty list has zeros.
    #[must_use]
    pub fn of(mut spans: Vec<Span>) -> Distribution {
        spans.sort_unstable();
        let count = spans.len();
        let rank = |percent: usize| {
            let nth = (count * percent).div_ceil(100).max(1);
            seconds(spans.get(nth - 1).copied().unwrap_or_default())
        };
        let sum: u128 = spans.iter().map(|s| u128::from(s.0)).sum();
        let mean = Span(u64::try_from(sum / (count.max(1) as u128)).unwrap_or(u64::MAX));
        Distribution { mean: seconds(mean), p50: rank(50), p90: rank(90), p95: rank(95), p99: rank(99) }
    }
}

/// Seconds with three decimals.
#[must_use]
pub fn seconds(span: Span) -> f64 {
    span.0 as f64 / 1e3
}

/// Hours with six decimals, rounded down.
#[must_use]
pub fn hours(span: Span) -> f64 {
    micro(u128::from(span.0) * 1_000_000 / u128::from(HOUR_MS))
}

/// GPU-hours with six decimals, rounded down.
#[must_use]
pub fn gpu_hours(time: GpuTime) -> f64 {
    micro(time.0 * 1000 / u128::from(HOUR_MS))
}

/// Dollars with six decimals, rounded half up once.
#[must_use]
pub fn dollars(spend: Spend) -> f64 {
    micro(u128::from(spend.micro_dollars()))
}

/// How often a day with six decimals. `None`: no time has passed.
#[must_use]
pub fn per_day(times: u64, span: Span) -> Option<f64> {
    (u128::from(times) * 86_400_000 * 1_000_000).checked_div(u128::from(span.0)).map(micro)
}

/// A part of a whole with six decimals; 0 of nothing.
#[must_use]
pub fn ratio(part: u128, whole: u128) -> f64 {
    micro(part.saturating_mul(1_000_000).checked_div(whole).unwrap_or(0))
}

/// The part of a whole. `None`: there is no whole.
#[must_use]
pub fn share_of(part: u128, whole: u128) -> Option<f64> {
    (whole > 0).then(|| ratio(part, whole))
}

/// Nanoseconds as seconds.
#[must_use]
pub fn from_nanos(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

fn micro(millionths: u128) -> f64 {
    millionths as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_the_nearest_rank() {
        let spread = Distribution::of((1..=100).map(|n| Span(n * 1000)).collect());
        assert_eq!((spread.p50, spread.p90, spread.p99, spread.mean), (50.0, 90.0, 99.0, 50.5));
        let one = Distribution::of(vec![Span(1500)]);
        assert_eq!((one.p50, one.p99, one.mean), (1.5, 1.5, 1.5));
        assert_eq!(Distribution::of(Vec::new()), Distribution::default());
    }

    #[test]
    fn figures_are_rounded_once() {
        assert_eq!(gpu_hours(GpuTime(1000 * u128::from(HOUR_MS) / 2)), 0.5);
        assert_eq!(dollars(Spend(u128::from(HOUR_MS) * 1_500_000)), 1.5);
        assert_eq!((ratio(1, 4), ratio(1, 0)), (0.25, 0.0));
    }
}
