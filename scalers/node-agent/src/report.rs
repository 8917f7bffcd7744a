//! Reports to the controller, and how they follow from the metadata. A text that cannot be parsed is left out; the warning itself is not.

use serde::Serialize;

/// Kinds of reports. The most urgent one comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ReportKind {
    /// The cloud reclaims the instance.
    Interruption,
    /// The instance is running and can take work.
    Hello,
    /// The instance is more likely than others to be reclaimed.
    Rebalance,
}

/// A report to the controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentReport {
    /// What the metadata announces.
    pub kind: ReportKind,
    /// When the cloud acts, such as `2026-11-21T20:30:00Z`, if the metadata contains it.
    pub at: Option<String>,
}

impl AgentReport {
    /// Reports that the instance is running.
    #[must_use]
    pub fn hello() -> AgentReport {
        AgentReport { kind: ReportKind::Hello, at: None }
    }

    /// Parses `spot/instance-action`: `{"action": "terminate", "time": "2017-09-18T08:22:00Z"}`. Any text there is a warning, even one that cannot be parsed.
    #[must_use]
    pub fn interruption(text: &str) -> AgentReport {
        AgentReport { kind: ReportKind::Interruption, at: time(text, "time") }
    }

    /// Parses `events/recommendations/rebalance`: `{"noticeTime": "2020-10-27T08:22:00Z"}`.
    #[must_use]
    pub fn rebalance(text: &str) -> AgentReport {
        AgentReport { kind: ReportKind::Rebalance, at: time(text, "noticeTime") }
    }

    /// A description for the log.
    #[must_use]
    pub fn describe(&self) -> String {
        match (self.kind, &self.at) {
            (ReportKind::Hello, _) => "hello".to_owned(),
            (ReportKind::Interruption, Some(at)) => format!("the instance is reclaimed at {at}"),
            (ReportKind::Interruption, None) => "the instance is reclaimed within two minutes".to_owned(),
            (ReportKind::Rebalance, _) => "the instance is more likely than others to be reclaimed".to_owned(),
        }
    }
}

/// The text at a key of the metadata's JSON, if it is a time in their format: `2026-11-21T20:30:00Z`.
fn time(json: &str, key: &str) -> Option<String> {
    let document: serde_json::Value = serde_json::from_str(json).ok()?;
    let text = document.get(key)?.as_str()?;
    const SHAPE: &[u8] = b"dddd-dd-ddTdd:dd:ddZ";
    let fits = |(byte, shape): (u8, &u8)| if *shape == b'd' { byte.is_ascii_digit() } else { byte == *shape };
    if text.len() != SHAPE.len() || !text.bytes().zip(SHAPE).all(fits) {
        return None;
    }
    let part = |from: usize, most: u32| text[from..from + 2].parse().is_ok_and(|n: u32| n <= most);
    let fits = part(5, 12) && part(8, 31) && part(11, 23) && part(14, 59) && part(17, 59);
    (fits && &text[5..7] != "00" && &text[8..10] != "00").then(|| text.to_owned())
}

/// The first 120 characters of a text from outside, with control characters escaped.
pub(crate) fn printable(text: &str) -> String {
    text.chars().take(120).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_counts_whatever_else_the_text_contains() {
        let at = Some("2026-11-21T20:30:00Z".to_owned());
        for (text, wanted) in [
            (r#"{"action": "terminate", "time": "2026-11-21T20:30:00Z"}"#, at.clone()),
            (r#"{"action": "newly-invented", "time": "2026-11-21T20:30:00Z", "more": 1}"#, at.clone()),
            (r#"{"action": "stop", "time": "soon"}"#, None),
            (r#"{"action": "stop", "time": "2026-13-21T20:30:00Z"}"#, None),
            (r#"{"action": "stop", "time": "2026-00-21T20:30:00Z"}"#, None),
            (r#"{"action": "stop", "time": "2026-11-21T20:30:00é"}"#, None),
            (r#"{"action": "stop", "time": 7}"#, None),
            (r#"{"action": "hibernate"}"#, None),
            ("<html>", None),
            ("", None),
        ] {
            assert_eq!(
                AgentReport::interruption(text),
                AgentReport { kind: ReportKind::Interruption, at: wanted },
                "{text}"
            );
        }
        let report = AgentReport::rebalance(r#"{"noticeTime": "2026-11-21T20:30:00Z"}"#);
        assert_eq!(report, AgentReport { kind: ReportKind::Rebalance, at });
        assert!(ReportKind::Interruption < ReportKind::Hello, "the most urgent first");
    }
}
