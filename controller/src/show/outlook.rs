//! Where a waiting job stands and when it is expected to start, in a line or two.
//!
//! Never: a time without how far it is to be trusted.

use super::figures::length;
use crate::api::starts::StartView;
use forebay_wire::document::seconds::Seconds;

/// The lines. None of a job that does not wait.
#[must_use]
pub fn outlook(position: Option<u64>, start: Option<&StartView>) -> Vec<String> {
    let place = position.map(|nth| format!("number {nth} of those that wait in its queue"));
    place.into_iter().chain(start.map(expected)).collect()
}

fn expected(start: &StartView) -> String {
    let time = |s: Seconds| length(s.0);
    match start {
        StartView { unknown: Some(why), .. } => format!("when it starts cannot be said: {why}"),
        StartView { after_s: Some(after), .. } => {
            format!("not expected to start within {}, which is as far as was played on", time(*after))
        }
        StartView { expected_in_s: Some(at), earliest_in_s: Some(from), latest_in_s: Some(to), starts, .. } => format!(
            "expected to start in {}, eight of ten such jobs between {} and {} (by {} starts)",
            time(*at),
            time(*from),
            time(*to),
            starts.unwrap_or_default(),
        ),
        StartView { expected_in_s: Some(at), .. } => {
            format!(
                "expected to start in {}, if all goes as usual; too few starts so far to say how exact that is",
                time(*at)
            )
        }
        _ => "when it starts cannot be said".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_outlook_is_a_sentence() {
        let view = |json: serde_json::Value| serde_json::from_value::<StartView>(json).expect("a view");
        let lines = |start| outlook(Some(3), Some(&view(start))).join("\n");
        let sure = serde_json::json!({ "expected_in_s": 840, "earliest_in_s": 600, "latest_in_s": 1290.5, "starts": 64, "error": 1.1 });
        assert_eq!(
            lines(sure),
            "number 3 of those that wait in its queue\nexpected to start in 14m, eight of ten such jobs between 10m and 21m30s (by 64 starts)"
        );
        let new = serde_json::json!({ "expected_in_s": 90 });
        assert!(lines(new).ends_with("in 1m30s, if all goes as usual; too few starts so far to say how exact that is"));
        let far = serde_json::json!({ "after_s": 7200 });
        assert!(lines(far).ends_with("not expected to start within 2h, which is as far as was played on"));
        let never = serde_json::json!({ "unknown": "nothing that is under way gives it what it lacks" });
        assert!(lines(never).ends_with("cannot be said: nothing that is under way gives it what it lacks"));
        assert_eq!(outlook(None, None), Vec::<String>::new());
    }
}
