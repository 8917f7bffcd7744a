//! One status of a job in one line, as `forebay events` shows it.
//!
//! ```text
//! 4712  2026-11-25 09:00:12  started    job-17  resnet-0412  attempt 2 on n-31 (p5.48xlarge spot)
//! ```
//!
//! Never: a control character of a name, or a line longer than its figures.

use super::colour::Paint;
use super::figures::short;
use serde_json::Value;

/// A status by its number and its CloudEvent. One that says nothing readable is shown as it is.
#[must_use]
pub fn text(number: u64, event: &str, paint: Paint) -> String {
    let Ok(event) = serde_json::from_str::<Value>(event) else { return short(event, 400) };
    let data = &event["data"];
    let word = event["type"].as_str().unwrap_or_default();
    let word = word.strip_prefix("status.").unwrap_or(word);
    let at = event["time"].as_str().and_then(|at| at.parse::<jiff::Timestamp>().ok());
    let at = at.map_or_else(|| "-".to_owned(), |at| at.strftime("%Y-%m-%d %H:%M:%S").to_string());
    let job = data["job"].as_str().unwrap_or("-");
    let subject = event["subject"].as_str().unwrap_or("-");
    let padded = format!("{:12}", short(word, 12));
    let word = match word {
        "failed" | "rejected" => paint.bad(&padded),
        "completed" | "started" => paint.good(&padded),
        "preempting" | "preempted" | "requeued" | "cancelled" => paint.warn(&padded),
        _ => padded,
    };
    let line = format!("{number:>6}  {at}  {word}  {:8}  {:24}  {}", short(job, 12), short(subject, 40), about(data));
    line.trim_end().to_owned()
}

/// What there is to say: the attempt and where it is, or why.
fn about(data: &Value) -> String {
    let mut parts = Vec::new();
    if let Some(attempt) = data["attempt"].as_u64().filter(|attempt| *attempt > 0) {
        let nodes = data["nodes"].as_array().map_or(&[][..], Vec::as_slice);
        let more = data["moreNodes"].as_u64().unwrap_or(0) + nodes.len().saturating_sub(1) as u64;
        let of = |node: &Value, name: &str| short(node[name].as_str().unwrap_or("-"), 24);
        let first = nodes.first().map(|node| {
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let (name, kind, capacity) = (of(node, "node"), of(node, "instanceType"), of(node, "capacityType"));
            format!(" on {name} ({kind} {capacity}){more}")
        });
        parts.push(format!("attempt {attempt}{}", first.unwrap_or_default()));
    }
    if let Some(code) = data["reason"]["code"].as_str() {
        let text = data["reason"]["text"].as_str().map(|text| format!(": {}", short(text, 160)));
        parts.push(format!("{}{}", short(code, 40), text.unwrap_or_default()));
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_one_line_that_no_name_breaks() {
        let started = r#"{"type":"status.started","time":"2026-11-25T09:00:12.5Z","subject":"resnet-0412","data":{"job":"job-17",
            "attempt":2,"nodes":[{"node":"n-31","instanceType":"p5.48xlarge","capacityType":"spot"},{"node":"n-32"}],"moreNodes":1}}"#;
        let line = text(4712, started, Paint::PLAIN);
        assert_eq!(
            line,
            "  4712  2026-11-25 09:00:12  started       job-17    resnet-0412               attempt 2 on n-31 (p5.48xlarge spot) and 2 more"
        );
        let rejected = serde_json::json!({ "type": "status.rejected", "subject": "a\u{1b}[2J\nb", "data": {
            "reason": { "code": "NoMatchingPool", "text": "no pool\nhas it" } } });
        let line = text(1, &rejected.to_string(), Paint::PLAIN);
        assert!(line.contains("rejected") && line.contains("NoMatchingPool: no pool"), "{line}");
        assert!(!line.contains(|c: char| c.is_control()), "{line:?}");
        assert_eq!(text(1, "no json\u{7}", Paint::PLAIN).chars().filter(|c| c.is_control()).count(), 0);
    }
}
