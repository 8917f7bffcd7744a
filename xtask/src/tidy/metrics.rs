//! What alerts and dashboards ask for is there: each metric stands in the table of docs/METRICS.md, each recorded figure in the rules.
//!
//! Never: whether a metric moves. Tests of the controller see to that.

use std::collections::BTreeSet;

use super::{File, Finding};

/// Where metrics are documented.
const TABLE: &str = "docs/METRICS.md";

/// Where figures are recorded.
const RULES: &str = "deploy/prometheus/forebay.rules.yaml";

/// Checks what is in `deploy/prometheus` and `deploy/grafana`.
pub fn check(files: &[File]) -> Vec<Finding> {
    let named = |path: &str| files.iter().find(|file| file.path == path);
    let (Some(table), Some(rules)) = (named(TABLE), named(RULES)) else {
        return Vec::new();
    };
    let metrics: BTreeSet<&str> =
        table.text.lines().filter_map(|line| line.strip_prefix("| `forebay_")?.split('`').next()).collect();
    let recorded: BTreeSet<&str> =
        rules.text.lines().filter_map(|line| line.trim().strip_prefix("- record: forebay:")).collect();
    let mut findings = Vec::new();
    let uses = |file: &&File| file.path.starts_with("deploy/prometheus/") || file.path.starts_with("deploy/grafana/");
    for file in files.iter().filter(uses) {
        for (at, line) in file.text.lines().enumerate() {
            for name in names(line, "forebay_").filter(|name| !metrics.contains(name)) {
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
            file(TABLE, "| metric | type | labels | means |\n| `forebay_jobs` | gauge | `state` | jobs |\n"),
            file(RULES, "      - record: forebay:jobs:1h\n        expr: sum(forebay_jobs) + forebay_job\n"),
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
                "deploy/grafana/a.json:1: `forebay:jobs:1d` is recorded nowhere in deploy/prometheus/forebay.rules.yaml; record it there",
            ]
        );
    }
}
