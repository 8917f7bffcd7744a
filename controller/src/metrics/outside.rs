//! What goes on around the engine: this build, whether events are received, and how sources, sinks and the cloud are.
//!
//! Never: a backlog that nobody knows; its point is left out. Never a label that a stranger chose: codes of rejections are a closed list,
//! names are the configuration's.

use super::catalogue;
use super::family::Family;
use crate::policy::PolicyChanges;
use crate::sources::registry::{LatencyView, MessageCountsView, SourcesView};
use forebay_driver::live::LoopHolds;
use forebay_estimate::error::ErrorSummary;
use std::collections::BTreeMap;
use std::time::Duration;

/// What comes by HTTP, as a source.
const HTTP: &str = "http";

/// This process. `paused` is why events are not received, if they are not.
#[must_use]
pub fn process(paused: Option<&str>) -> Vec<Family> {
    let build = Family::of(&catalogue::BUILD).with(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    let receiving = Family::of(&catalogue::RECEIVING);
    vec![build, receiving.with(&[], u64::from(paused.is_none()))]
}

/// Changes of the policy since the process started, and whether the last one that was offered stands refused.
#[must_use]
pub fn policy(changes: &PolicyChanges) -> Vec<Family> {
    let refused = Family::of(&catalogue::POLICY_REFUSED);
    let offered = Family::of(&catalogue::POLICIES_OFFERED);
    let offered = offered.with(&[("outcome", "taken")], changes.taken).with(&[("outcome", "refused")], changes.refused);
    vec![refused.with(&[], u64::from(changes.standing.is_some())), offered]
}

/// For how long work has held the driver's thread at most.
#[must_use]
pub fn holds(holds: &LoopHolds) -> Family {
    let family = Family::of(&catalogue::LOOP_LONGEST_HOLD);
    let seconds = |held: Duration| held.as_secs_f64();
    family.with(&[("work", "query")], seconds(holds.query())).with(&[("work", "batch")], seconds(holds.batch()))
}

/// How far the host's clock is ahead of the controller's time, in ms. Nothing where time does not pass as the host's does.
#[must_use]
pub fn clock(ahead_ms: Option<i64>) -> Family {
    let family = Family::of(&catalogue::CLOCK_OFFSET);
    match ahead_ms {
        Some(ahead_ms) => family.with(&[], ahead_ms as f64 / 1000.0),
        None => family,
    }
}

/// How far off estimates of starts were. Nothing before enough have come.
#[must_use]
pub fn start_estimates(summary: Option<ErrorSummary>) -> Vec<Family> {
    let family = |metric, permille: Option<u64>| match permille {
        Some(permille) => Family::of(metric).with(&[], permille as f64 / 1000.0),
        None => Family::of(metric),
    };
    let (median, inside) = (summary.map(|s| s.median), summary.and_then(|s| s.inside));
    vec![family(&catalogue::START_ESTIMATE_ERROR, median), family(&catalogue::START_ESTIMATES_INSIDE, inside)]
}

/// One or more entries of the configuration that have one name.
struct Entry {
    up: bool,
    backlog: Option<u64>,
    restarts: u64,
    missed: u64,
}

/// Sources, sinks and the cloud.
#[must_use]
pub fn sources(view: SourcesView) -> Vec<Family> {
    let mut entries: BTreeMap<(String, String), Entry> = BTreeMap::new();
    let mut letters = BTreeMap::from([(HTTP.to_owned(), view.http)]);
    for one in view.sources {
        if let Some(more) = &one.messages {
            add(letters.entry(one.name.clone()).or_default(), more);
        }
        let all = Entry { up: true, backlog: Some(0), restarts: 0, missed: 0 };
        let entry = entries.entry((one.name, one.direction)).or_insert(all);
        entry.up &= matches!(one.condition.as_str(), "working" | "heldBack");
        entry.backlog = entry.backlog.zip(one.backlog).map(|(more, here)| more.saturating_add(here));
        entry.restarts += one.restarts;
        entry.missed += one.missed;
    }
    conditions(&entries).into_iter().chain(events(&letters)).collect()
}

fn add(to: &mut MessageCountsView, more: &MessageCountsView) {
    to.taken += more.taken;
    to.seen += more.seen;
    to.warnings += more.warnings;
    for (code, count) in &more.rejected {
        *to.rejected.entry(code.clone()).or_default() += count;
    }
    // Quantiles do not add up: the slower one's are told.
    let slower = |one: LatencyView, other: LatencyView| if other.p99 > one.p99 { other } else { one };
    to.latency_ms = match (to.latency_ms, more.latency_ms) {
        (Some(one), Some(other)) => Some(slower(one, other)),
        (one, other) => one.or(other),
    };
}

fn conditions(entries: &BTreeMap<(String, String), Entry>) -> [Family; 4] {
    let mut up = Family::of(&catalogue::SOURCE_UP);
    let mut backlog = Family::of(&catalogue::SOURCE_BACKLOG_MESSAGES);
    let mut restarts = Family::of(&catalogue::SOURCE_RESTARTS);
    let mut missed = Family::of(&catalogue::SOURCE_MISSED_MESSAGES);
    for ((name, direction), entry) in entries {
        let labels = [("source", name.as_str()), ("direction", direction.as_str())];
        up.set(&labels, u64::from(entry.up));
        if let Some(waiting) = entry.backlog {
            backlog.set(&labels, waiting);
        }
        restarts.set(&labels, entry.restarts);
        missed.set(&labels, entry.missed);
    }
    [up, backlog, restarts, missed]
}

fn events(letters: &BTreeMap<String, MessageCountsView>) -> [Family; 4] {
    let mut taken = Family::of(&catalogue::EVENTS);
    let mut rejected = Family::of(&catalogue::EVENTS_REJECTED);
    let mut warnings = Family::of(&catalogue::EVENT_WARNINGS);
    let mut latency = Family::of(&catalogue::EVENT_LATENCY);
    for (source, letters) in letters {
        let source = ("source", source.as_str());
        taken.set(&[source, ("outcome", "new")], letters.taken);
        taken.set(&[source, ("outcome", "seen")], letters.seen);
        for (code, count) in &letters.rejected {
            rejected.set(&[source, ("code", code)], *count);
        }
        warnings.set(&[source], letters.warnings);
        if let Some(LatencyView { p50, p95, p99 }) = letters.latency_ms {
            for (percentile, ms) in [("50", p50), ("95", p95), ("99", p99)] {
                latency.set(&[source, ("percentile", percentile)], ms as f64 / 1000.0);
            }
        }
    }
    [taken, rejected, warnings, latency]
}

#[cfg(test)]
mod tests {
    use super::super::family::text;
    use super::*;
    use crate::sources::registry::SourceView;

    fn source(name: &str, direction: &str, condition: &str, backlog: Option<u64>) -> SourceView {
        SourceView {
            name: name.into(),
            direction: direction.into(),
            channels: Vec::new(),
            condition: condition.into(),
            why: None,
            backlog,
            backlogs: BTreeMap::new(),
            restarts: 1,
            missed: 0,
            messages: (direction == "in").then(|| MessageCountsView {
                taken: 5,
                rejected: BTreeMap::from([("Malformed".into(), 2)]),
                latency_ms: Some(LatencyView { p50: 1, p95: 20, p99: 300 }),
                ..MessageCountsView::default()
            }),
            acknowledged: None,
            remarks: Vec::new(),
        }
    }

    #[test]
    fn estimates_of_starts_are_told_once_enough_have_come() {
        let told = |summary| text(start_estimates(summary)).unwrap();
        let points = |text: &str| text.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(points(&told(None)), 0, "unknown is never zero");
        let first = ErrorSummary { median: 1_250, inside: None };
        assert_eq!(points(&told(Some(first))), 1);
        let text = told(Some(ErrorSummary { inside: Some(812), ..first }));
        for line in ["forebay_start_estimate_error_ratio 1.25", "forebay_start_estimates_inside_ratio 0.812"] {
            assert!(text.lines().any(|l| l == line), "{line} in {text}");
        }
    }

    #[test]
    fn the_offset_of_the_hosts_clock_is_told_where_time_passes_as_the_hosts_does() {
        let told = |ahead_ms| text(vec![clock(ahead_ms)]).unwrap();
        for (ahead_ms, line) in
            [(3_600_500, "forebay_clock_offset_seconds 3600.5"), (-90_500, "forebay_clock_offset_seconds -90.5")]
        {
            let text = told(Some(ahead_ms));
            assert!(text.lines().any(|l| l == line), "{line} in {text}");
        }
        assert!(told(None).lines().all(|line| line.starts_with('#')), "a replay has no such clock");
    }

    #[test]
    fn what_is_not_known_is_left_out_and_entries_of_one_name_are_told_as_one() {
        let sources_view = vec![
            source("kafka:a", "in", "working", Some(3)),
            source("kafka:a", "in", "failing", Some(4)),
            source("kafka:b", "in", "heldBack", None),
            source("kafka:b", "in", "heldBack", Some(9)),
            source("sqs:x", "status", "working", Some(0)),
            source("ec2:c", "cloud", "starting", None),
        ];
        let text = text(sources(SourcesView { sources: sources_view, http: MessageCountsView::default() })).unwrap();
        for line in [
            r#"forebay_source_up{source="kafka:a",direction="in"} 0"#,
            r#"forebay_source_up{source="kafka:b",direction="in"} 1"#,
            r#"forebay_source_up{source="sqs:x",direction="status"} 1"#,
            r#"forebay_source_up{source="ec2:c",direction="cloud"} 0"#,
            r#"forebay_source_backlog_messages{source="kafka:a",direction="in"} 7"#,
            r#"forebay_source_backlog_messages{source="sqs:x",direction="status"} 0"#,
            r#"forebay_source_restarts_total{source="kafka:a",direction="in"} 2"#,
            r#"forebay_events_total{source="kafka:a",outcome="new"} 10"#,
            r#"forebay_events_total{source="http",outcome="seen"} 0"#,
            r#"forebay_events_rejected_total{source="kafka:a",code="Malformed"} 4"#,
            r#"forebay_event_latency_seconds{source="kafka:a",percentile="99"} 0.3"#,
        ] {
            assert!(text.lines().any(|l| l == line), "{line}: {text}");
        }
        assert_eq!(text.matches("backlog_messages{").count(), 2, "{text}");
        assert!(!text.contains("latency_seconds{source=\"http\""), "{text}");
    }
}
