//! What `forebay doctor` found: a heading for each group, under it what was tried, how it is, and what was seen.
//!
//! Never: a word that is cut; long ones go on in the next line of their column.

use super::colour::Paint;
use super::table::wrapped;
use forebay_source::{Diagnostic, Severity};

/// The widest that what was tried may make its column; longer names have a line of their own.
const WIDEST_LABEL: usize = 44;

/// The narrowest that what was seen is wrapped to.
const NARROWEST: usize = 30;

/// One line of the table.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// Its heading.
    pub group: &'a str,
    /// What was tried.
    pub label: &'a str,
    /// How it is, what was seen and what to do.
    pub finding: &'a Diagnostic,
}

/// An outcome as it is written.
#[must_use]
pub fn word(outcome: Severity) -> &'static str {
    match outcome {
        Severity::Ok => "ok",
        Severity::Warning => "warning",
        Severity::Error => "bad",
    }
}

/// All rows, and a line that counts them. `width`: of the terminal; `None`: nothing is wrapped, for pipes.
#[must_use]
pub fn table(rows: &[Row<'_>], width: Option<usize>, paint: Paint) -> String {
    let length = |row: &Row<'_>| row.label.chars().count();
    let label = rows.iter().map(length).filter(|n| *n <= WIDEST_LABEL).max().unwrap_or(0);
    let indent = 2 + label + 2 + "warning".len() + 2;
    let room = width.map(|width| width.saturating_sub(indent).max(NARROWEST));
    let mut lines: Vec<String> = Vec::new();
    let mut group: Option<&str> = None;
    for row in rows {
        if group != Some(row.group) {
            if group.is_some() {
                lines.push(String::new());
            }
            lines.push(paint.strong(row.group));
            group = Some(row.group);
        }
        let mut name = row.label.to_owned();
        if length(row) > label {
            lines.push(format!("  {name}"));
            name.clear();
        }
        let word = format!("{:7}", word(row.finding.severity));
        let word = match row.finding.severity {
            Severity::Ok => paint.good(&word),
            Severity::Warning => paint.warn(&word),
            Severity::Error => paint.bad(&word),
        };
        let mut said = row.finding.message.lines().flat_map(|line| wrapped(line, room));
        let pad = " ".repeat(label - name.chars().count());
        lines.push(format!("  {name}{pad}  {word}  {}", said.next().unwrap_or_default()));
        lines.extend(said.map(|line| format!("{}{line}", " ".repeat(indent)).trim_end().to_owned()));
    }
    lines.push(String::new());
    lines.push(closing(rows, paint));
    lines.join("\n")
}

fn closing(rows: &[Row<'_>], paint: Paint) -> String {
    let count = |outcome| rows.iter().filter(|row| row.finding.severity == outcome).count();
    let (bad, warnings, fine) = (count(Severity::Error), count(Severity::Warning), count(Severity::Ok));
    let plural = if warnings == 1 { "warning" } else { "warnings" };
    let bad_words = format!("{bad} bad");
    let bad_words = if bad > 0 { paint.bad(&bad_words) } else { bad_words };
    format!("{bad_words}, {warnings} {plural}, {fine} ok")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_reads_in_groups_and_wraps_under_its_column() {
        let long = "x".repeat(50);
        let found = [
            ("files", Diagnostic::ok("policy", "compiles")),
            (
                "kafka:b:9092",
                Diagnostic::error("topic jobs", "is not there: create it, or take it out of the settings"),
            ),
            ("kafka:b:9092", Diagnostic::warning(long.clone(), "one\n  two")),
        ];
        let rows = found.each_ref().map(|(group, finding)| Row { group, label: &finding.subject, finding });
        let wide = format!(
            "files\n  policy      ok       compiles\n\nkafka:b:9092\n  topic jobs  bad      is not there: create it, or take it out of \
             the settings\n  {long}\n              warning  one\n                         two\n\n1 bad, 1 warning, 1 ok"
        );
        assert_eq!(table(&rows, None, Paint::PLAIN), wide);
        let narrow = table(&rows, Some(60), Paint::PLAIN);
        assert!(narrow.lines().all(|line| line.chars().count() <= 60), "{narrow}");
        assert!(narrow.contains("or take it\n                       out of the settings\n"), "{narrow}");
    }
}
