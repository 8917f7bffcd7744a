//! What `cargo xtask test` prints at its end: what failed and how to repeat it, the seconds of each section, the longest
//! parts, and `N passed, N failed` alone on the last line.
//!
//! Never: runs anything, or ends a run because something failed.

use std::time::Duration;

use super::causes::Causes;
use super::sections::Section;
use super::tally::{Part, Tally};

/// How many of the longest parts are named.
const LONGEST: usize = 12;

/// What has been seen of a section while it ran.
#[derive(Debug, Default)]
pub struct SectionRun {
    /// Its tests.
    pub tally: Tally,
    /// Why those failed that did.
    pub causes: Causes,
    /// Its builds, installations and test binaries, in order.
    pub parts: Vec<Part>,
    /// Why it failed, one entry for each command that did.
    pub failures: Vec<String>,
}

/// One section that has run.
#[derive(Debug)]
struct Row {
    name: &'static str,
    has_tests: bool,
    run: SectionRun,
    took: Duration,
}

/// All sections that have run.
#[derive(Debug, Default)]
pub struct TestReport {
    rows: Vec<Row>,
}

impl TestReport {
    /// Adds a section that has run. One that failed without a failed test (a lint, a build) counts as one failure, and so does one
    /// with tests of which none ran, unless `filtered` is true because only some were asked for, which may be in another section.
    pub fn add(&mut self, section: &Section, mut run: SectionRun, took: Duration, filtered: bool) {
        if run.failures.is_empty() && section.has_tests() && !filtered && run.tally.passed + run.tally.failed == 0 {
            run.failures.push("no test ran, and there must be some".to_owned());
        }
        if !run.failures.is_empty() && run.tally.failed == 0 {
            run.tally.failed = 1;
        }
        self.rows.push(Row { name: section.name, has_tests: section.has_tests(), run, took });
    }

    /// Fails a run of which sections have tests, and in which none ran: `asked` are the words that were to choose some, or nothing.
    pub fn require_a_test(&mut self, asked: &str) {
        let ran = self.rows.iter().any(|row| row.run.tally.passed + row.run.tally.failed > 0);
        if ran || self.failed() {
            return;
        }
        if let Some(row) = self.rows.iter_mut().find(|row| row.has_tests) {
            row.run.failures.push(match asked {
                "" => "no test ran, and there must be some".to_owned(),
                asked => format!("no test ran: none is chosen by `{asked}`; `-- --list` lists what there is"),
            });
            row.run.tally.failed = 1;
        }
    }

    /// Whether any section failed.
    pub fn failed(&self) -> bool {
        self.rows.iter().any(|row| !row.run.failures.is_empty())
    }

    /// The closing text. `repeat` is the command that runs a section again, or only the test of that name.
    pub fn text(&self, repeat: impl Fn(&str, Option<&str>) -> String) -> String {
        [self.failures(repeat), self.sections(), self.longest(), self.sum()].concat()
    }

    fn failures(&self, repeat: impl Fn(&str, Option<&str>) -> String) -> String {
        let mut text = String::new();
        for Row { name, run, .. } in self.rows.iter().filter(|row| !row.run.failures.is_empty()) {
            for failure in &run.failures {
                text.push_str(&format!("\nfailed in {name}: {failure}\n"));
            }
            if run.tally.names.is_empty() {
                text.push_str(&format!("  repeat: {}\n", repeat(name, None)));
            }
            for test in &run.tally.names {
                text.push_str(&format!("  {test}\n"));
                for line in run.causes.of(test) {
                    text.push_str(&format!("    | {line}\n"));
                }
                text.push_str(&format!("    repeat: {}\n", repeat(name, Some(test))));
            }
        }
        text
    }

    fn sections(&self) -> String {
        let mut text =
            format!("\n{:<12} {:>7} {:>7} {:>7} {:>8}  outcome\n", "section", "passed", "failed", "ignored", "seconds");
        for Row { name, run, took, .. } in &self.rows {
            let Tally { passed, failed, ignored, .. } = run.tally;
            let outcome = if run.failures.is_empty() { "ok" } else { "FAILED" };
            let seconds = took.as_secs_f64();
            text.push_str(&format!("{name:<12} {passed:>7} {failed:>7} {ignored:>7} {seconds:>8.1}  {outcome}\n"));
        }
        let all: Duration = self.rows.iter().map(|row| row.took).sum();
        text.push_str(&format!("{:<12} {:>7} {:>7} {:>7} {:>8.1}\n", "all", "", "", "", all.as_secs_f64()));
        text
    }

    fn longest(&self) -> String {
        let mut parts: Vec<(&str, &Part)> =
            self.rows.iter().flat_map(|row| row.run.parts.iter().map(|part| (row.name, part))).collect();
        parts.sort_by_key(|(_, part)| std::cmp::Reverse(part.took));
        parts.truncate(LONGEST);
        let rows = parts.iter().map(|(section, part)| {
            let Part { name, took } = part;
            format!("{:>8.1}  {section:<12} {name}\n", took.as_secs_f64())
        });
        let rows: String = rows.collect();
        if rows.is_empty() { rows } else { format!("\n{:>8}  the longest parts\n{rows}", "seconds") }
    }

    fn sum(&self) -> String {
        let sum = |count: fn(&Tally) -> u64| self.rows.iter().map(|row| count(&row.run.tally)).sum::<u64>();
        format!("\n{} passed, {} failed\n", sum(|tally| tally.passed), sum(|tally| tally.failed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(name: &str) -> Section {
        Section::named(name).unwrap()
    }

    fn tally(passed: u64, failed: &[&str]) -> Tally {
        let names = failed.iter().map(|name| (*name).to_owned()).collect();
        Tally { passed, failed: failed.len() as u64, ignored: 0, names }
    }

    fn repeat(section: &str, test: Option<&str>) -> String {
        format!("again {section} {}", test.unwrap_or("all"))
    }

    /// Clippy fails without a test, the engine with two, the controller passes, and the sweep passes without a test.
    fn mixed() -> TestReport {
        let mut report = TestReport::default();
        let lint = SectionRun { failures: vec!["cargo clippy: exit status: 101".to_owned()], ..SectionRun::default() };
        report.add(&section("clippy"), lint, Duration::from_millis(900), false);
        let parts = vec![
            Part { name: "build: cargo test".to_owned(), took: Duration::from_millis(1500) },
            Part { name: "engine (tests/engine/main.rs)".to_owned(), took: Duration::from_millis(500) },
        ];
        let failures = vec!["cargo test: exit status: 101".to_owned()];
        let mut causes = Causes::default();
        causes.read("thread 'stories::gang' (7) panicked at stories.rs:1:2:");
        causes.read("too late");
        let engine =
            SectionRun { tally: tally(8, &["stories::gang", "src/lib.rs - (line 9)"]), causes, parts, failures };
        report.add(&section("engine"), engine, Duration::from_secs(2), false);
        let controller = SectionRun { tally: tally(5, &[]), ..SectionRun::default() };
        report.add(&section("controller"), controller, Duration::from_secs(3), false);
        report.add(&section("sweep"), SectionRun::default(), Duration::from_secs(1), false);
        report
    }

    #[test]
    fn everything_that_failed_is_listed_with_what_repeats_it() {
        let text = mixed().text(repeat);
        let expected = "
failed in clippy: cargo clippy: exit status: 101
  repeat: again clippy all

failed in engine: cargo test: exit status: 101
  stories::gang
    | stories.rs:1:2
    | too late
    repeat: again engine stories::gang
  src/lib.rs - (line 9)
    repeat: again engine src/lib.rs - (line 9)

section       passed  failed ignored  seconds  outcome
clippy             0       1       0      0.9  FAILED
engine             8       2       0      2.0  FAILED
controller         5       0       0      3.0  ok
sweep              0       0       0      1.0  ok
all                                       6.9

 seconds  the longest parts
     1.5  engine       build: cargo test
     0.5  engine       engine (tests/engine/main.rs)

13 passed, 3 failed
";
        assert_eq!(text, expected);
    }

    #[test]
    fn one_failure_fails_the_run_and_none_does_not() {
        assert!(mixed().failed());
        let mut report = TestReport::default();
        report.add(
            &section("engine"),
            SectionRun { tally: tally(8, &[]), ..SectionRun::default() },
            Duration::ZERO,
            false,
        );
        report.add(&section("schema"), SectionRun::default(), Duration::ZERO, false);
        assert!(!report.failed());
        assert_eq!(report.text(repeat).lines().last(), Some("8 passed, 0 failed"));
    }

    #[test]
    fn a_section_whose_tests_did_not_run_has_failed_unless_a_filter_left_them_out() {
        let mut report = TestReport::default();
        report.add(&section("sim"), SectionRun::default(), Duration::ZERO, true);
        assert!(!report.failed(), "it may be in another section");
        report.add(&section("sim"), SectionRun::default(), Duration::ZERO, false);
        assert!(report.failed());
        let text = report.text(repeat);
        assert!(text.contains("failed in sim: no test ran, and there must be some\n  repeat: again sim all"), "{text}");
        assert_eq!(text.lines().last(), Some("0 passed, 1 failed"));
    }

    #[test]
    fn a_filter_that_matches_nothing_fails_the_run() {
        let of = |passed: u64| {
            let mut report = TestReport::default();
            report.add(&section("clippy"), SectionRun::default(), Duration::ZERO, true);
            report.add(&section("engine"), SectionRun::default(), Duration::ZERO, true);
            let sim = SectionRun { tally: tally(passed, &[]), ..SectionRun::default() };
            report.add(&section("sim"), sim, Duration::ZERO, true);
            report.require_a_test("misspelt");
            report
        };
        assert!(!of(1).failed(), "one section has it");
        let text = of(0).text(repeat);
        let said = "failed in engine: no test ran: none is chosen by `misspelt`; `-- --list` lists what there is\n";
        assert!(of(0).failed() && text.contains(said), "{text}");
        assert_eq!(text.lines().last(), Some("0 passed, 1 failed"));
        // A check has no tests to choose from.
        let mut check = TestReport::default();
        check.add(&section("clippy"), SectionRun::default(), Duration::ZERO, true);
        check.require_a_test("misspelt");
        assert!(!check.failed());
    }

    #[test]
    fn a_test_binary_that_died_beside_passed_tests_counts_as_one() {
        let mut report = TestReport::default();
        let failures = vec!["cargo test: signal: 11".to_owned()];
        let run = SectionRun { tally: tally(3, &[]), failures, ..SectionRun::default() };
        report.add(&section("sim"), run, Duration::ZERO, false);
        assert_eq!(report.text(repeat).lines().last(), Some("3 passed, 1 failed"));
    }
}
