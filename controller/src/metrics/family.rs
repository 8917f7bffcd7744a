//! A metric with its points, and the text of many: HELP, TYPE and UNIT of each, its points in the order of their labels, `# EOF`.
//!
//! Never: two points with the same labels; a name that was not written down here in the code.

use super::histogram::Histogram;
use super::metric::{Metric, PREFIX};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::CounterWithExemplar;
use prometheus_client::registry::{Registry, Unit};
use std::collections::BTreeMap;
use std::fmt;
use std::time::SystemTime;

/// Values of a label that have series of their own, where strangers or time may bring more: with a few causes or states each some 1,000 series, which
/// any monitoring bears.
pub const MOST_VALUES: usize = 200;

/// Pools with series of their own: each has eleven of boots, eight of launches for each capacity type, and one of waste for each kind of it.
pub const MOST_POOLS: usize = 50;

/// Tiers with series of their own: each has eleven of waits.
pub const MOST_TIERS: usize = 20;

/// The label of the others.
pub const OTHER: &str = "other";

/// The label of a value among rows by label: its own where it has a row already or fewer than `most` have one, else [`OTHER`].
#[must_use]
pub(super) fn bounded<'v, T>(rows: &BTreeMap<String, T>, value: &'v str, most: usize) -> &'v str {
    if rows.contains_key(value) || rows.len() < most { value } else { OTHER }
}

/// Names with values.
pub type Labels = Vec<(&'static str, String)>;

/// A metric with its points.
#[derive(Clone, Debug)]
pub struct Family {
    pub(super) metric: &'static Metric,
    pub(super) points: BTreeMap<Labels, Number>,
}

/// The value of a point.
#[derive(Clone, Debug)]
pub enum Number {
    /// Counted.
    Whole(u64),
    /// Measured.
    Part(f64),
    /// Counted, and the last of them.
    Shown(u64, Exemplar),
    /// Times, by how long they are.
    Spread(Histogram),
}

/// One of those that a counter counted.
#[derive(Clone, Debug)]
pub struct Exemplar {
    /// Which. All names and values together have at most 128 characters.
    pub labels: Labels,
    /// When. `None`: the clock is not the wall's.
    pub at: Option<SystemTime>,
}

impl From<u64> for Number {
    fn from(n: u64) -> Number {
        Number::Whole(n)
    }
}

impl From<f64> for Number {
    fn from(n: f64) -> Number {
        Number::Part(n)
    }
}

impl Family {
    /// A metric, without points yet.
    #[must_use]
    pub fn of(metric: &'static Metric) -> Family {
        Family { metric, points: BTreeMap::new() }
    }

    /// With this point too.
    #[must_use]
    pub fn with(mut self, labels: &[(&'static str, &str)], number: impl Into<Number>) -> Family {
        self.set(labels, number);
        self
    }

    /// A point is this.
    pub fn set(&mut self, labels: &[(&'static str, &str)], number: impl Into<Number>) {
        debug_assert!(labels.iter().map(|(name, _)| name).eq(self.metric.labels), "{}: {labels:?}", self.metric.name);
        let labels = labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        self.points.insert(labels, number.into());
    }

    /// The same points without the one of those that were counted.
    #[must_use]
    pub fn without_exemplars(mut self) -> Family {
        for number in self.points.values_mut() {
            if let Number::Shown(n, _) = *number {
                *number = Number::Whole(n);
            }
        }
        self
    }

    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Metric { name, kind, unit, help, .. } = *self.metric;
        let unit = unit.map(|unit| Unit::Other(unit.to_owned()));
        let mut metric = encoder.encode_descriptor(name, help, unit.as_ref(), kind)?;
        for (labels, number) in &self.points {
            match kind {
                MetricType::Info => metric.encode_info(labels)?,
                // Without labels there are no braces either.
                _ if labels.is_empty() => number.encode(kind, &mut metric)?,
                _ => number.encode(kind, &mut metric.encode_family(labels)?)?,
            }
        }
        Ok(())
    }
}

impl Number {
    fn encode(&self, kind: MetricType, metric: &mut MetricEncoder<'_>) -> fmt::Result {
        match (self, kind) {
            (Number::Spread(times), _) => times.encode(metric),
            (Number::Whole(n) | Number::Shown(n, _), MetricType::Gauge) => metric.encode_gauge(n),
            (Number::Part(n), MetricType::Gauge) => metric.encode_gauge(n),
            (Number::Whole(n), _) => metric.encode_counter::<Labels, u64, u64>(n, None),
            (Number::Part(n), _) => metric.encode_counter::<Labels, f64, f64>(n, None),
            (Number::Shown(n, exemplar), _) => {
                // An exemplar's value is what it added: one.
                let counter = CounterWithExemplar::<Labels>::default();
                counter.inc_by(n.saturating_sub(1), None, None);
                counter.inc_by(1, Some(exemplar.labels.clone()), exemplar.at);
                let (n, exemplar) = counter.get();
                metric.encode_counter(&n, exemplar.as_ref())
            }
        }
    }
}

/// All families of one answer.
#[derive(Debug)]
struct Page(Vec<Family>);

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|family| family.encode(&mut encoder))
    }
}

/// All of them as OpenMetrics text, in the order given. Each name begins with [`PREFIX`].
///
/// # Errors
/// None that is known: it is written into memory.
pub fn text(families: Vec<Family>) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register_collector(Box::new(Page(families)));
    let mut written = String::new();
    text::encode(&mut written, &registry)?;
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn names_have_prefix_unit_and_suffix_and_hostile_values_are_escaped() {
        let labels = vec![("job", "job-12".to_owned()), ("attempt", "3".to_owned())];
        let exemplar = Exemplar { labels, at: Some(SystemTime::UNIX_EPOCH + Duration::from_millis(1_500)) };
        let hostile = "a\"} 1\n# EOF\n\\";
        static PREEMPTIONS: Metric = Metric::counter("preemptions", "Runs.").labels(&["queue"]);
        static SPEND: Metric = Metric::counter("spend", "Money.").unit("usd");
        static GPUS: Metric = Metric::gauge("gpus", "GPUs.").labels(&["pool"]);
        static RATE: Metric = Metric::gauge("rate", "A rate.");
        static BUILD: Metric = Metric::info("build", "Build.").labels(&["version"]);
        static NOTHING: Metric = Metric::gauge("nothing", "Not known.");
        let families = vec![
            Family::of(&PREEMPTIONS)
                .with(&[("queue", hostile)], Number::Shown(3, exemplar.clone()))
                .with(&[("queue", "b")], 1),
            Family::of(&SPEND).with(&[], 0.25),
            Family::of(&GPUS).with(&[("pool", "p")], 0.5),
            Family::of(&RATE).with(&[], 7),
            Family::of(&BUILD).with(&[("version", "1")], 1),
            Family::of(&NOTHING),
        ];
        let expected = r##"# HELP forebay_preemptions Runs.
# TYPE forebay_preemptions counter
forebay_preemptions_total{queue="a\"} 1\n# EOF\n\\"} 3 # {job="job-12",attempt="3"} 1.0 1.5
forebay_preemptions_total{queue="b"} 1
# HELP forebay_spend_usd Money.
# TYPE forebay_spend_usd counter
# UNIT forebay_spend_usd usd
forebay_spend_usd_total 0.25
# HELP forebay_gpus GPUs.
# TYPE forebay_gpus gauge
forebay_gpus{pool="p"} 0.5
# HELP forebay_rate A rate.
# TYPE forebay_rate gauge
forebay_rate 7
# HELP forebay_build Build.
# TYPE forebay_build info
forebay_build_info{version="1"} 1
# HELP forebay_nothing Not known.
# TYPE forebay_nothing gauge
# EOF
"##;
        assert_eq!(text(families).unwrap(), expected);
    }
}
