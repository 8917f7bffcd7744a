//! What alerts and dashboards ask for is there: each metric stands in the table of docs/METRICS.md, each recorded figure in the rules.
//!
//! Never: whether a metric moves. Tests of the controller see to that.

use std::collections::BTreeSet;

use super::{File, Finding, needed};

/// Where metrics are documented.
const TABLE: &str = "docs/METRICS.md";

/// Where figures are recorded.
const RULES: &str = "deploy/prometheus/forebay.rules.yaml";

/// Where dashboards are.
const DASHBOARDS: &str = "deploy/grafana/";

/// Checks what is in `deploy/prometheus` and `deploy/grafana`.
pub fn check(files: &[File]) -> Vec<Finding> {
    let (table, rules) = match (needed(files, TABLE), needed(files, RULES)) {
        (Ok(table), Ok(rules)) => (table, rules),
        (table, rules) => return [table.err(), rules.err()].into_iter().flatten().collect(),
    };
    let metrics: BTreeSet<String> = table.text.lines().flat_map(series).collect();
    let recorded: BTreeSet<&str> =
        rules.text.lines().filter_map(|line| line.trim().strip_prefix("- record: forebay:")).collect();
    let mut findings = Vec::new();
    if !files.iter().any(|file| file.path.starts_with(DASHBOARDS)) {
        let what = "has no dashboard; name their place in xtask/src/tidy/metrics.rs".to_owned();
        findings.push(Finding { path: DASHBOARDS.to_owned(), line: 0, what });
    }
    let uses = |file: &&File| file.path.starts_with("deploy/prometheus/") || file.path.starts_with(DASHBOARDS);
    for file in files.iter().filter(uses) {
        for (at, line) in file.text.lines().enumerate() {
            for name in names(line, "forebay_").filter(|name| !metrics.contains(*name)) {
                let what = format!("`forebay_{name}` is no metric of {TABLE}; name one that is there");
                findings.push(file.finding(at + 1, what));
            }
            for name in names(line, "forebay:").filter(|name| !recorded.contains(name)) {
                findings.push(
                    file.finding(at + 1, format!("`forebay:{name}` is recorded nowhere in {RULES}; record it there")),
                );
            }
        }
    }
    findings
}

/// What a line of the table says there is: a metric, or the three of a histogram.
fn series(line: &str) -> Vec<String> {
    let Some((name, kind)) = line.strip_prefix("| `forebay_").and_then(|row| row.split_once("` | ")) else {
        return Vec::new();
    };
    match kind.starts_with("histogram ") {
        true => ["bucket", "sum", "count"].map(|part| format!("{name}_{part}")).into(),
        false => vec![name.to_owned()],
    }
}

/// What follows a prefix in a line, as far as a metric's name goes.
fn names<'t>(line: &'t str, prefix: &'t str) -> impl Iterator<Item = &'t str> {
    let of_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    line.split(prefix).skip(1).map(move |rest| &rest[..rest.find(|c| !of_name(c)).unwrap_or(rest.len())])
}

#[cfg(test)]
mod tests {
    use super::super::{file, shown};
    use super::*;

    #[test]
    fn what_is_asked_for_is_there() {
        let files = [
            file(
                TABLE,
                "| metric | type | labels | means |\n| `forebay_jobs` | gauge | `state` | jobs |\n| `forebay_wait_seconds` | histogram | | waits |\n",
            ),
            file(
                RULES,
                "      - record: forebay:jobs:1h\n        expr: sum(forebay_jobs) + forebay_job\nforebay_wait_seconds_bucket + forebay_wait_seconds_count\nforebay_wait_seconds\n",
            ),
            file(
                "deploy/grafana/a.json",
                "\"expr\": \"forebay:jobs:1h / forebay:jobs:1d\", \"uid\": \"forebay-run\"\n",
            ),
            file("docs/OTHER.md", "`forebay_none` is not looked at\n"),
        ];
        assert_eq!(
            shown(&check(&files)),
            [
                "deploy/prometheus/forebay.rules.yaml:2: `forebay_job` is no metric of docs/METRICS.md; name one that is there",
                "deploy/prometheus/forebay.rules.yaml:4: `forebay_wait_seconds` is no metric of docs/METRICS.md; name one that is there",
                "deploy/grafana/a.json:1: `forebay:jobs:1d` is recorded nowhere in deploy/prometheus/forebay.rules.yaml; record it there",
            ]
        );
    }

    #[test]
    fn a_table_rules_or_dashboards_that_have_moved_are_findings() {
        let row = "| `forebay_jobs` | gauge | `state` | jobs |\n";
        let moved = shown(&check(&[file("docs/METRICS_OF_ALL.md", row), file("deploy/grafana/a.json", "")]));
        assert_eq!(moved.len(), 2, "{moved:?}");
        assert!(moved[0].starts_with("docs/METRICS.md: is not there") && moved[1].starts_with(RULES), "{moved:?}");
        let without = shown(&check(&[file(TABLE, row), file(RULES, "")]));
        assert_eq!(without, ["deploy/grafana/: has no dashboard; name their place in xtask/src/tidy/metrics.rs"]);
    }
}
