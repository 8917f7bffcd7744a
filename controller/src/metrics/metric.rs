//! What a metric is: its name, kind, labels and meaning, where a counter is kept, and what becomes of points that share a label.
//!
//! Never: a metric. All of them are in catalogue.rs.

use prometheus_client::metrics::MetricType;

/// With this each name begins.
pub(super) const PREFIX: &str = "forebay";

/// Where a counter is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeptIn {
    /// It is what it is when it is asked for.
    Nowhere,
    /// The engine's own: it goes on after a restart.
    Journal,
    /// It begins at zero with each process.
    Process,
}

/// The value of points that share one label.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Folding {
    /// They are added up.
    Sum,
    /// The greatest of them.
    Most,
    /// The least of them.
    Least,
}

/// A metric, as it is served and as the page tells it.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Without `forebay_`, unit and suffix.
    pub name: &'static str,
    /// Counter, gauge, histogram or info.
    pub kind: MetricType,
    /// It ends the name.
    pub unit: Option<&'static str>,
    /// The names of its labels, in order.
    pub labels: &'static [&'static str],
    /// What `# HELP` says.
    pub help: &'static str,
    /// What the page says instead, in Markdown, where it has more to say.
    pub means: Option<&'static str>,
    /// Where a counter is kept.
    pub kept: KeptIn,
    /// What becomes of points that share a label because there are too many.
    pub folding: Folding,
}

impl Metric {
    /// Something that only grows. Its points end in `_total`.
    pub(super) const fn counter(name: &'static str, help: &'static str) -> Metric {
        Metric {
            name,
            kind: MetricType::Counter,
            unit: None,
            labels: &[],
            help,
            means: None,
            kept: KeptIn::Nowhere,
            folding: Folding::Sum,
        }
    }

    /// Something that is as it is.
    pub(super) const fn gauge(name: &'static str, help: &'static str) -> Metric {
        Metric { kind: MetricType::Gauge, ..Metric::counter(name, help) }
    }

    /// Something that is told by its labels. Its points end in `_info`.
    pub(super) const fn info(name: &'static str, help: &'static str) -> Metric {
        Metric { kind: MetricType::Info, ..Metric::counter(name, help) }
    }

    /// How often something took how long. Its points end in `_bucket`, `_sum` and `_count`.
    pub(super) const fn histogram(name: &'static str, help: &'static str) -> Metric {
        Metric { kind: MetricType::Histogram, ..Metric::counter(name, help) }
    }

    pub(super) const fn unit(self, unit: &'static str) -> Metric {
        Metric { unit: Some(unit), ..self }
    }

    pub(super) const fn labels(self, labels: &'static [&'static str]) -> Metric {
        Metric { labels, ..self }
    }

    pub(super) const fn means(self, means: &'static str) -> Metric {
        Metric { means: Some(means), ..self }
    }

    pub(super) const fn kept(self, kept: KeptIn) -> Metric {
        Metric { kept, ..self }
    }

    pub(super) const fn folding(self, folding: Folding) -> Metric {
        Metric { folding, ..self }
    }

    /// Its name as its points have it.
    #[must_use]
    pub fn full_name(&self) -> String {
        let unit = self.unit.map(|unit| format!("_{unit}")).unwrap_or_default();
        let suffix = match self.kind {
            MetricType::Counter => "_total",
            MetricType::Info => "_info",
            _ => "",
        };
        format!("{PREFIX}_{}{unit}{suffix}", self.name)
    }
}
