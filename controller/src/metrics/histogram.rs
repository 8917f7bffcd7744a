//! How often something took how long: counts by upper bound, and all of it together.
//!
//! Never: a bound that changes while the process runs, or one that nobody asks about: each of them is a series.

use super::family::Labels;
use prometheus_client::encoding::MetricEncoder;
use std::fmt;
use std::time::Duration;

/// A distribution of times since the process started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Histogram {
    bounds_ms: &'static [u64],
    /// How many are at most as long as each bound and longer than the one before; the last one has no bound.
    counts: Vec<u64>,
    sum: Duration,
}

impl Histogram {
    /// Nothing yet. Its upper bounds are in ms and ascend; above the last of them is one more, without an end.
    #[must_use]
    pub fn new(bounds_ms: &'static [u64]) -> Histogram {
        Histogram { bounds_ms, counts: vec![0; bounds_ms.len() + 1], sum: Duration::ZERO }
    }

    /// One more, which took so long.
    pub fn observe(&mut self, took: Duration) {
        let at = self.bounds_ms.partition_point(|bound| Duration::from_millis(*bound) < took);
        if let Some(count) = self.counts.get_mut(at) {
            *count += 1;
        }
        self.sum = self.sum.saturating_add(took);
    }

    /// Those of another one with the same bounds, too.
    pub(super) fn merge(&mut self, other: &Histogram) {
        debug_assert_eq!(self.bounds_ms, other.bounds_ms, "of one metric");
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.sum = self.sum.saturating_add(other.sum);
    }

    /// How many series it is: its buckets, its sum and its count.
    pub(super) fn series(&self) -> usize {
        self.counts.len() + 2
    }

    pub(super) fn encode(&self, metric: &mut MetricEncoder<'_>) -> fmt::Result {
        let bounds = self.bounds_ms.iter().map(|ms| *ms as f64 / 1000.0).chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(self.counts.iter().copied()).collect();
        metric.encode_histogram::<Labels>(self.sum.as_secs_f64(), self.counts.iter().sum(), &buckets, None)
    }
}

#[cfg(test)]
mod tests {
    use super::super::family::{Family, Number};
    use super::super::metric::Metric;
    use super::super::text::MetricsText;
    use super::*;

    static WAIT: Metric = Metric::histogram("wait", "How long.").unit("seconds").labels(&["tier"]);
    static COMMIT: Metric = Metric::histogram("commit", "How long.").unit("seconds");

    #[test]
    fn each_time_is_in_the_first_bucket_that_holds_it_and_in_all_above() {
        let mut histogram = Histogram::new(&[100, 1_000]);
        for ms in [0, 100, 150, 1_000, 2_000, 90_000] {
            histogram.observe(Duration::from_millis(ms));
        }
        let families = vec![
            Family::of(&WAIT).with(&[("tier", "a\"b")], Number::Spread(histogram.clone())),
            Family::of(&COMMIT).with(&[], Number::Spread(histogram)),
        ];
        let open = "# HELP forebay_wait_seconds How long.
# TYPE forebay_wait_seconds histogram
# UNIT forebay_wait_seconds seconds
forebay_wait_seconds_sum{tier=\"a\\\"b\"} 93.25
forebay_wait_seconds_count{tier=\"a\\\"b\"} 6
forebay_wait_seconds_bucket{le=\"0.1\",tier=\"a\\\"b\"} 2
forebay_wait_seconds_bucket{le=\"1.0\",tier=\"a\\\"b\"} 4
forebay_wait_seconds_bucket{le=\"+Inf\",tier=\"a\\\"b\"} 6
# HELP forebay_commit_seconds How long.
# TYPE forebay_commit_seconds histogram
# UNIT forebay_commit_seconds seconds
forebay_commit_seconds_sum 93.25
forebay_commit_seconds_count 6
forebay_commit_seconds_bucket{le=\"0.1\"} 2
forebay_commit_seconds_bucket{le=\"1.0\"} 4
forebay_commit_seconds_bucket{le=\"+Inf\"} 6
# EOF
";
        assert_eq!(MetricsText::OpenMetrics.unbounded(families.clone()).unwrap(), open);
        let older: String = open
            .lines()
            .filter(|line| !line.starts_with("# UNIT") && *line != "# EOF")
            .map(|l| format!("{l}\n"))
            .collect();
        assert_eq!(MetricsText::Prometheus.unbounded(families).unwrap(), older);
    }
}
