//! The table of `forebay sources`: a line for each source and sink; below it why one fails, and the last that each remarked.
//!
//! Never: a zero for what is not known.

use super::colour::Paint;
use super::figures::{count, short};
use super::table::{ShownColumns, TextTable, UnknownColumn, wrapped};
use crate::sources::registry::{LatencyView, MessageCountsView, RemarkView, SourceView, SourcesView};
/// Remarks shown of each; `--json` and `GET /v1/sources` have the last 32.
const MOST_REMARKS: usize = 3;

/// How a word is coloured.
type Colour = fn(Paint, &str) -> String;

/// All of them. What is told below the table is wrapped where the terminal has a width.
///
/// # Errors
/// A column is asked for that is not there.
pub fn table(found: &SourcesView, columns: &ShownColumns, paint: Paint) -> Result<String, UnknownColumn> {
    let figure = |n: Option<u64>| n.map_or_else(|| "-".to_owned(), count);
    let messages = |one: &SourceView, of: fn(&MessageCountsView) -> u64| figure(one.messages.as_ref().map(of));
    let latency = |one: &SourceView, of: fn(LatencyView) -> u64| {
        figure(one.messages.as_ref().and_then(|messages| messages.latency_ms).map(of))
    };
    let table = TextTable::of(&found.sources, paint)
        .left("NAME", |one| short(&one.name, 36))
        .left("DIR", |one| short(&one.direction, 10))
        .left("CONDITION", move |one| condition(&one.condition, paint))
        .right("BACKLOG", |one| one.backlog.map_or_else(|| "?".to_owned(), count))
        .right("TAKEN", move |one| messages(one, |counts| counts.taken))
        .right("SEEN", move |one| messages(one, |counts| counts.seen))
        .where_it_fits()
        .right("REJECTED", move |one| messages(one, |counts| counts.rejected.values().sum()))
        .right("P50 MS", move |one| latency(one, |latency| latency.p50))
        .where_it_fits()
        .right("P99 MS", move |one| latency(one, |latency| latency.p99))
        .where_it_fits()
        .right("RESTARTS", |one| count(one.restarts))
        .where_it_fits()
        .right("MISSED", |one| count(one.missed))
        .where_it_fits();
    let mut out = table.shown(columns)?;
    let below: Vec<String> = found.sources.iter().flat_map(|one| below(one, columns.width, paint)).collect();
    if !below.is_empty() {
        out.push_str("\n\n");
        out.push_str(&below.join("\n"));
    }
    Ok(out)
}

fn condition(condition: &str, paint: Paint) -> String {
    let word = short(condition, 10);
    match condition {
        "failing" => paint.bad(&word),
        "working" => paint.good(&word),
        "stopped" => paint.faint(&word),
        _ => paint.warn(&word),
    }
}

/// Why it fails or what is not known, what it was rejected for, and its last remarks.
fn below(one: &SourceView, width: Option<usize>, paint: Paint) -> Vec<String> {
    let name = short(&one.name, 60);
    let head = if one.direction == "in" { name } else { format!("{} to {name}", short(&one.direction, 10)) };
    let mut items: Vec<(String, Colour, String)> = Vec::new();
    if let Some(why) = &one.why {
        // Of one that works, what is not known is said here.
        let (word, colour): (_, Colour) =
            if one.condition == "failing" { ("failing", Paint::bad) } else { ("backlog ?", Paint::warn) };
        items.push((word.to_owned(), colour, why.clone()));
    }
    let codes = one.messages.iter().flat_map(|letters| &letters.rejected);
    let codes: Vec<String> = codes.map(|(code, n)| format!("{} {}", short(code, 40), count(*n))).collect();
    if !codes.is_empty() {
        items.push(("rejected".to_owned(), Paint::warn, codes.join(", ")));
    }
    let skipped = one.remarks.len().saturating_sub(MOST_REMARKS);
    let remarks = one.remarks.iter().skip(skipped);
    items.extend(remarks.map(|RemarkView { at_s, text }| (at(at_s.0), Paint::faint as Colour, text.clone())));
    let lead = items.iter().map(|(word, ..)| word.chars().count()).max().unwrap_or(0);
    let mut lines: Vec<String> = Vec::new();
    for (word, colour, text) in items {
        let word = colour(paint, &format!("{word:lead$}"));
        let room = width.map(|width| width.saturating_sub(lead + 4).max(30));
        let mut parts = wrapped(&short(&text, 2_000), room).into_iter();
        lines.push(format!("  {word}  {}", parts.next().unwrap_or_default()));
        lines.extend(parts.map(|part| format!("{}{part}", " ".repeat(lead + 4))));
    }
    if !lines.is_empty() {
        lines.insert(0, paint.strong(&head));
    }
    lines
}

/// A time of the day in UTC, for people.
fn at(ms: u64) -> String {
    crate::clock::instant(ms).map_or_else(|| "-".to_owned(), |at| at.strftime("%m-%d %H:%M:%SZ").to_string())
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
        let text = table(&view(), &ShownColumns::default(), Paint::PLAIN).expect("all columns");
        let lines: Vec<&str> = text.lines().collect();
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(lines[1]), ["kafka:status", "status", "working", "0", "-", "-", "-", "-", "-", "0", "0"]);
        assert_eq!(
            words(lines[2]),
            ["kafka:127.0.0.1:9092", "in", "failing", "?", "12,345", "2", "4", "7", "31", "2", "7"]
        );
        assert_eq!(lines[4], "kafka:127.0.0.1:9092");
        assert!(
            lines[5].contains("failing          no answer from") && lines[6].contains("Conflict 1, Malformed 3"),
            "{text}"
        );
        assert!(
            !text.contains("one") && text.contains("two") && text.contains("four") && !text.contains('\u{1b}'),
            "{text}"
        );
        assert_eq!(text.lines().count(), 10);
    }

    #[test]
    fn colours_change_no_column() {
        let narrow = ShownColumns { named: Vec::new(), width: Some(100) };
        let plain = table(&view(), &narrow, Paint::PLAIN).expect("all columns");
        let coloured = table(&view(), &narrow, crate::show::ColourChoice::Always.stdout()).expect("all columns");
        assert_ne!(plain, coloured);
        let mut bare = String::new();
        for (at, part) in coloured.split('\u{1b}').enumerate() {
            bare.push_str(if at == 0 { part } else { part.split_once('m').map_or("", |(_, rest)| rest) });
        }
        assert_eq!(bare, plain);
    }
}
