//! What is told to the controller, and how the metadata's words become it.
//!
//! Never: a text of the metadata's that was not looked at; what cannot be read is left out, the warning itself is not.

use serde::{Deserialize, Serialize};

/// What a report is about, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The instance is taken back.
    Interruption,
    /// The instance is there and can take work.
    Hello,
    /// The instance is more likely than others to be taken back.
    Rebalance,
}

/// What is told to the controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What it is about.
    pub kind: Kind,
    /// When the cloud acts, as `2026-11-21T20:30:00Z`, where it says so.
    pub at: Option<String>,
}

/// `spot/instance-action`: `{"action": "terminate", "time": "2017-09-18T08:22:00Z"}`.
#[derive(Default, Deserialize)]
struct Action {
    #[serde(default)]
    time: String,
}

/// `events/recommendations/rebalance`: `{"noticeTime": "2020-10-27T08:22:00Z"}`.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Recommendation {
    #[serde(default)]
    notice_time: String,
}

impl Report {
    /// The instance is there.
    #[must_use]
    pub fn hello() -> Report {
        Report { kind: Kind::Hello, at: None }
    }

    /// What `spot/instance-action` says. That it says anything is the warning.
    #[must_use]
    pub fn interruption(text: &str) -> Report {
        let said: Action = serde_json::from_str(text).unwrap_or_default();
        Report { kind: Kind::Interruption, at: time(said.time) }
    }

    /// What `events/recommendations/rebalance` says.
    #[must_use]
    pub fn rebalance(text: &str) -> Report {
        let said: Recommendation = serde_json::from_str(text).unwrap_or_default();
        Report { kind: Kind::Rebalance, at: time(said.notice_time) }
    }

    /// In words.
    #[must_use]
    pub fn words(&self) -> String {
        match (self.kind, &self.at) {
            (Kind::Hello, _) => "hello".to_owned(),
            (Kind::Interruption, Some(at)) => format!("the instance is taken back at {at}"),
            (Kind::Interruption, None) => "the instance is taken back, in two minutes at most".to_owned(),
            (Kind::Rebalance, _) => "the instance is more likely than others to be taken back".to_owned(),
        }
    }
}

/// A time as the metadata writes it: `2026-11-21T20:30:00Z`.
fn time(text: String) -> Option<String> {
    const SHAPE: &[u8] = b"dddd-dd-ddTdd:dd:ddZ";
    let fits = |(byte, shape): (u8, &u8)| if *shape == b'd' { byte.is_ascii_digit() } else { byte == *shape };
    if text.len() != SHAPE.len() || !text.bytes().zip(SHAPE).all(fits) {
        return None;
    }
    let part = |from: usize, most: u32| text[from..from + 2].parse().is_ok_and(|n: u32| n <= most);
    let fits = part(5, 12) && part(8, 31) && part(11, 23) && part(14, 59) && part(17, 59);
    (fits && &text[5..7] != "00" && &text[8..10] != "00").then_some(text)
}

/// The beginning of a stranger's text, without control characters.
pub(crate) fn shown(text: &str) -> String {
    text.chars().take(120).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_stays_one_whatever_stands_beside_it() {
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
            assert_eq!(Report::interruption(text), Report { kind: Kind::Interruption, at: wanted }, "{text}");
        }
        let said = Report::rebalance(r#"{"noticeTime": "2026-11-21T20:30:00Z"}"#);
        assert_eq!(said, Report { kind: Kind::Rebalance, at });
        assert!(Kind::Interruption < Kind::Hello, "the urgent first");
    }
}
