//! The two texts in which Prometheus and its kin read metrics: OpenMetrics for who asks for it, as scrapers do; else the older one, which
//! `promtool check metrics` and a person with curl expect. It has no units and no exemplars.
//!
//! Never: another figure in one than in the other, or more than 5,000 series.

use super::family::{Family, text};
use super::series::{Audience, ShownSeries};
use std::fmt::{self, Write as _};

/// One of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetricsText {
    /// <https://prometheus.io/docs/specs/om/open_metrics_spec/>.
    OpenMetrics,
    /// <https://prometheus.io/docs/instrumenting/exposition_formats/>, version 0.0.4.
    Prometheus,
}

impl MetricsText {
    /// What the header `Accept` asks for.
    #[must_use]
    pub fn accepted(accept: Option<&str>) -> MetricsText {
        let open = accept.is_some_and(|types| types.to_ascii_lowercase().contains("application/openmetrics-text"));
        if open { MetricsText::OpenMetrics } else { MetricsText::Prometheus }
    }

    /// How the text is called in an answer.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            MetricsText::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            MetricsText::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// The text of these families, in the order given, and of how many series they have. Those that would be too many share `other`, and so do
    /// those that shared it in an earlier answer to this audience, which `shown` keeps.
    ///
    /// # Errors
    /// None that is known: it is written into memory.
    pub fn text(self, families: Vec<Family>, shown: &ShownSeries, audience: &Audience) -> Result<String, fmt::Error> {
        self.unbounded(shown.bounded(audience, families))
    }

    /// The text of these families as they are.
    pub(super) fn unbounded(self, families: Vec<Family>) -> Result<String, fmt::Error> {
        match self {
            MetricsText::OpenMetrics => text(families),
            MetricsText::Prometheus => older(&text(families.into_iter().map(Family::without_exemplars).collect())?),
        }
    }
}

/// OpenMetrics without exemplars as the older text: a family is called as its points are, and an info is a gauge.
fn older(open: &str) -> Result<String, fmt::Error> {
    let (mut written, mut help) = (String::with_capacity(open.len()), None);
    for line in open.lines() {
        let Some(comment) = line.strip_prefix("# ") else {
            writeln!(written, "{line}")?;
            continue;
        };
        let mut words = comment.splitn(3, ' ');
        match (words.next(), words.next(), words.next()) {
            (Some("HELP"), Some(_), Some(said)) => help = Some(said),
            (Some("TYPE"), Some(name), Some(kind)) => {
                let (suffix, kind) = match kind {
                    "counter" => ("_total", kind),
                    "info" => ("_info", "gauge"),
                    _ => ("", kind),
                };
                if let Some(help) = help.take() {
                    writeln!(written, "# HELP {name}{suffix} {help}")?;
                }
                writeln!(written, "# TYPE {name}{suffix} {kind}")?;
            }
            // Units, and the end.
            _ => {}
        }
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::family::{Exemplar, Number};
    use crate::metrics::metric::Metric;

    #[test]
    fn the_older_text_has_the_same_points_and_no_exemplar() {
        let exemplar = Exemplar { labels: vec![("job", "job-12".to_owned())], at: None };
        static PREEMPTIONS: Metric = Metric::counter("preemptions", "Runs.").labels(&["queue"]);
        static SPEND: Metric = Metric::counter("spend", "Money.").unit("usd");
        static GPUS: Metric = Metric::gauge("gpus", "GPUs.").labels(&["pool"]);
        static BUILD: Metric = Metric::info("build", "Build.").labels(&["version"]);
        let families = vec![
            Family::of(&PREEMPTIONS).with(&[("queue", "a\"} 1 # {\n# EOF")], Number::Shown(3, exemplar)),
            Family::of(&SPEND).with(&[], 0.25),
            Family::of(&GPUS).with(&[("pool", "p")], 0.5),
            Family::of(&BUILD).with(&[("version", "1")], 1),
        ];
        let expected = r##"# HELP forebay_preemptions_total Runs.
# TYPE forebay_preemptions_total counter
forebay_preemptions_total{queue="a\"} 1 # {\n# EOF"} 3
# HELP forebay_spend_usd_total Money.
# TYPE forebay_spend_usd_total counter
forebay_spend_usd_total 0.25
# HELP forebay_gpus GPUs.
# TYPE forebay_gpus gauge
forebay_gpus{pool="p"} 0.5
# HELP forebay_build_info Build.
# TYPE forebay_build_info gauge
forebay_build_info{version="1"} 1
"##;
        assert_eq!(MetricsText::Prometheus.unbounded(families).unwrap(), expected);
    }

    #[test]
    fn who_asks_for_open_metrics_gets_it() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        assert_eq!(MetricsText::accepted(Some(prometheus)), MetricsText::OpenMetrics);
        for accept in [None, Some("*/*"), Some("text/plain")] {
            assert_eq!(MetricsText::accepted(accept), MetricsText::Prometheus);
        }
    }
}
