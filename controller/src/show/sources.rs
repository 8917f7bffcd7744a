//! The table of `forebay sources`: a line for each source and sink; below it why one fails, and the last that each remarked.
//!
//! Never: a zero for what is not known.

use super::colour::Paint;
use super::figures::{count, short};
use super::table::{Column, Side, rows, wrapped};
use crate::sources::board::{RemarkView, SourceView, SourcesView};
use Side::{Left, Right};

/// Remarks shown of each; `--json` and `GET /v1/sources` have the last 32.
const MOST_REMARKS: usize = 3;

/// All of them. `width`: of the terminal; `None`: nothing is wrapped.
#[must_use]
pub fn table(found: &SourcesView, width: Option<usize>, paint: Paint) -> String {
    let columns = [
        Column("NAME", Left),
        Column("DIR", Left),
        Column("CONDITION", Left),
        Column("BACKLOG", Right),
        Column("TAKEN", Right),
        Column("SEEN", Right),
        Column("REJECTED", Right),
        Column("P50 MS", Right),
        Column("P99 MS", Right),
        Column("RESTARTS", Right),
        Column("MISSED", Right),
    ];
    let mut out = rows(&columns, found.sources.iter().map(line), Paint::PLAIN);
    out = painted(&out, &found.sources, paint);
    let below: Vec<String> = found.sources.iter().flat_map(|one| below(one, width, paint)).collect();
    if !below.is_empty() {
        out.push_str("\n\n");
        out.push_str(&below.join("\n"));
    }
    out
}

fn line(one: &SourceView) -> Vec<String> {
    let figure = |n: Option<u64>| n.map_or_else(|| "-".to_owned(), count);
    let letters = one.letters.as_ref();
    let latency = letters.and_then(|letters| letters.latency_ms);
    vec![
        short(&one.name, 36),
        short(&one.direction, 10),
        short(&one.condition, 10),
        one.backlog.map_or_else(|| "?".to_owned(), count),
        figure(letters.map(|letters| letters.taken)),
        figure(letters.map(|letters| letters.seen)),
        figure(letters.map(|letters| letters.rejected.values().sum())),
        figure(latency.map(|latency| latency.p50)),
        figure(latency.map(|latency| latency.p99)),
        count(one.restarts),
        count(one.missed),
    ]
}

/// Colours the heading and each condition where it stands: after the columns were measured.
fn painted(plain: &str, sources: &[SourceView], paint: Paint) -> String {
    let mut lines = plain.lines();
    let heading = lines.next().map(|heading| paint.strong(heading));
    let paint_line = |(line, one): (&str, &SourceView)| {
        let condition = short(&one.condition, 10);
        let colour = match one.condition.as_str() {
            "failing" => paint.bad(&condition),
            "working" => paint.good(&condition),
            "stopped" => paint.faint(&condition),
            _ => paint.warn(&condition),
        };
        // The name and the direction come before it, and may hold the same word.
        let name = short(&one.name, 36).len();
        let (before, after) = line.split_at(line.len().min(name));
        format!("{before}{}", after.replacen(&format!(" {condition}"), &format!(" {colour}"), 1))
    };
    heading.into_iter().chain(lines.zip(sources).map(paint_line)).collect::<Vec<_>>().join("\n")
}

/// Why it fails or what is not known, what it was rejected for, and its last remarks.
fn below(one: &SourceView, width: Option<usize>, paint: Paint) -> Vec<String> {
    let name = short(&one.name, 60);
    let head = if one.direction == "in" { name } else { format!("{} to {name}", short(&one.direction, 10)) };
    let mut lines = Vec::new();
    if let Some(why) = &one.why {
        let colour = |text: &str| if one.condition == "failing" { paint.bad(text) } else { paint.warn(text) };
        lines.extend(item(&one.condition, why, width, colour));
    }
    let codes = one.letters.iter().flat_map(|letters| &letters.rejected);
    let codes: Vec<String> = codes.map(|(code, n)| format!("{} {}", short(code, 40), count(*n))).collect();
    if !codes.is_empty() {
        lines.extend(item("rejected", &codes.join(", "), width, |text| paint.warn(text)));
    }
    let skipped = one.remarks.len().saturating_sub(MOST_REMARKS);
    for RemarkView { at_s, text } in one.remarks.iter().skip(skipped) {
        lines.extend(item(&at(at_s.0), text, width, |text| paint.faint(text)));
    }
    if !lines.is_empty() {
        lines.insert(0, paint.strong(&head));
    }
    lines
}

/// A word and what is said of it, wrapped under itself.
fn item(word: &str, text: &str, width: Option<usize>, colour: impl Fn(&str) -> String) -> Vec<String> {
    let lead = short(word, 20);
    let indent = 2 + lead.chars().count() + 2;
    let room = width.map(|width| width.saturating_sub(indent).max(30));
    let mut parts = wrapped(&short(text, 2_000), room).into_iter();
    let first = format!("  {}  {}", colour(&lead), parts.next().unwrap_or_default());
    std::iter::once(first).chain(parts.map(|part| format!("{}{part}", " ".repeat(indent)))).collect()
}

/// A time of the day in UTC, for people.
fn at(ms: u64) -> String {
    let at = i64::try_from(ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    at.map_or_else(|| "-".to_owned(), |at| at.strftime("%m-%d %H:%M:%SZ").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view() -> SourcesView {
        let view = serde_json::json!({ "sources": [
            { "name": "kafka:status", "direction": "status", "channels": ["kafka:status"], "condition": "working", "why": null,
              "backlog": 0, "backlogs": {"status": 0}, "restarts": 0, "missed": 0, "acknowledged": 12, "remarks": [] },
            { "name": "kafka:127.0.0.1:9092", "direction": "in", "channels": ["kafka:jobs"], "condition": "failing",
              "why": "no answer from 127.0.0.1:9092: check that the brokers run", "backlog": null, "backlogs": {"jobs/0": null},
              "restarts": 2, "missed": 7, "letters": { "taken": 12345, "seen": 2, "rejected": {"Malformed": 3, "Conflict": 1},
              "warnings": 0, "latency_ms": {"p50": 7, "p95": 20, "p99": 31} },
              "remarks": [{ "at_s": 1793000000.5, "text": "one" }, { "at_s": 1793000001, "text": "two" },
                          { "at_s": 1793000002, "text": "three" }, { "at_s": 1793000003, "text": "four\u{1b}[2J" }] } ] });
        serde_json::from_value(view).unwrap()
    }

    #[test]
    fn what_is_not_known_is_a_question_and_what_fails_says_why() {
        let text = table(&view(), None, Paint::PLAIN);
        let lines: Vec<&str> = text.lines().collect();
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(lines[1]), ["kafka:status", "status", "working", "0", "-", "-", "-", "-", "-", "0", "0"]);
        assert_eq!(
            words(lines[2]),
            ["kafka:127.0.0.1:9092", "in", "failing", "?", "12,345", "2", "4", "7", "31", "2", "7"]
        );
        assert_eq!(lines[4], "kafka:127.0.0.1:9092");
        assert!(lines[5].contains("failing  no answer from") && lines[6].contains("Conflict 1, Malformed 3"), "{text}");
        assert!(
            !text.contains("one") && text.contains("two") && text.contains("four") && !text.contains('\u{1b}'),
            "{text}"
        );
        assert_eq!(text.lines().count(), 10);
    }

    #[test]
    fn colours_change_no_column() {
        let plain = table(&view(), Some(100), Paint::PLAIN);
        let coloured = table(&view(), Some(100), crate::show::ColourChoice::Always.stdout());
        assert_ne!(plain, coloured);
        let mut bare = String::new();
        for (at, part) in coloured.split('\u{1b}').enumerate() {
            bare.push_str(if at == 0 { part } else { part.split_once('m').map_or("", |(_, rest)| rest) });
        }
        assert_eq!(bare, plain);
    }
}
