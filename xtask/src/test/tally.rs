//! What the output of a cargo command means: how many tests passed, which failed, and how long each part took.
//!
//! Never: runs anything. Lines come in as they arrive, each with the time since the command began.

use std::time::Duration;

use super::built::Binary;

/// The sum of the `test result:` lines that cargo's test binaries print, and the names of the tests that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Tests that passed.
    pub passed: u64,
    /// Tests that failed.
    pub failed: u64,
    /// Tests that were left out by their own `#[ignore]`.
    pub ignored: u64,
    /// The names of those that failed, as a filter takes them, in the order in which they ended.
    pub names: Vec<String>,
}

impl Tally {
    /// Reads one line of output.
    pub fn read(&mut self, line: &str) {
        if let Some(test) = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED")) {
            // What the test binary adds to a name is no part of it, and a filter does not match it.
            let added = [" - should panic", " - compile fail", " - compile"];
            let name = added.iter().find_map(|added| test.strip_suffix(added)).unwrap_or(test);
            self.names.push(name.to_owned());
        }
        let Some(counts) = counts(line) else { return };
        for (n, what) in counts {
            match what {
                "passed" => self.passed += n,
                "failed" => self.failed += n,
                "ignored" => self.ignored += n,
                _ => {}
            }
        }
    }
}

/// The counts of a `test result:` line, each with its word: `passed`, `failed`, `ignored`, `measured`, `filtered out`.
fn counts(line: &str) -> Option<Vec<(u64, &str)>> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let counts = counts.split("; ").filter_map(|count| count.split_once(' '));
    Some(counts.filter_map(|(n, what)| Some((n.parse().ok()?, what))).collect())
}

/// A part of a section, such as one test binary, and how long it took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// What it is, such as `forebay_engine (src/lib.rs)` or `build for cargo test -p forebay-engine`.
    pub name: String,
    /// From its first line to the first line of the next part.
    pub took: Duration,
}

/// Cuts the output of one cargo command into parts: the build, then each test binary.
#[derive(Debug)]
pub struct TestParts {
    done: Vec<Part>,
    name: String,
    since: Duration,
    /// Whether what runs is a file of tests.
    test_file: bool,
    /// The files of tests of which none ran, and none was left out by a filter.
    empty: Vec<String>,
}

impl TestParts {
    /// Starts with the test binary of that name, else with the build by `command`, as a person would type it.
    pub fn of(command: &str, binary: Option<&Binary>) -> Self {
        let name = binary.map_or_else(|| format!("build: {command}"), |binary| binary.name.clone());
        let test_file = binary.is_some_and(|binary| binary.is_test_file);
        Self { done: Vec::new(), name, since: Duration::ZERO, test_file, empty: Vec::new() }
    }

    /// Reads one line of output that came `at` after the command began.
    pub fn read(&mut self, line: &str, at: Duration) {
        if let Some(name) = begins(line) {
            self.cut(at);
            self.name = name;
            self.test_file = begins_test_file(line);
        }
        // Ignored tests have not run either.
        let ran = |counts: Vec<(u64, &str)>| counts.iter().any(|(n, what)| *n > 0 && *what != "ignored");
        if self.test_file && counts(line).is_some_and(|counts| !ran(counts)) {
            self.empty.push(self.name.clone());
        }
    }

    /// All parts, once the command has ended `at` after it began, and the files of tests in which nothing ran.
    pub fn end(mut self, at: Duration) -> (Vec<Part>, Vec<String>) {
        self.cut(at);
        (self.done, self.empty)
    }

    fn cut(&mut self, at: Duration) {
        let took = at.saturating_sub(self.since);
        self.done.push(Part { name: std::mem::take(&mut self.name), took });
        self.since = at;
    }
}

/// The part that begins with this line, if one does:
/// `     Running tests/kill9.rs (target/debug/deps/kill9-0123456789abcdef)` or `   Doc-tests forebay_engine`.
fn begins(line: &str) -> Option<String> {
    let line = line.trim_start();
    if let Some(library) = line.strip_prefix("Doc-tests ") {
        return Some(format!("{library} (examples in its documentation)"));
    }
    let (source, binary) = line.strip_prefix("Running ")?.strip_suffix(')')?.rsplit_once(" (")?;
    let name = binary.rsplit(['/', '\\']).next()?;
    let (name, _hash) = name.rsplit_once('-')?;
    Some(format!("{name} ({})", source.strip_prefix("unittests ").unwrap_or(source)))
}

/// Whether the part that begins with this line is a file of tests: cargo names libraries and programs as `Running unittests src/lib.rs`.
fn begins_test_file(line: &str) -> bool {
    line.trim_start().strip_prefix("Running ").is_some_and(|source| !source.starts_with("unittests "))
}

/// The line without the codes that colour it on a terminal.
pub fn plain(line: &str) -> String {
    anstream::adapter::strip_str(line).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_are_summed_and_other_lines_are_not() {
        let mut tally = Tally::default();
        tally.read("test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.03s");
        tally.read("test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 7 filtered out; finished in 1.00s");
        tally.read("test tests::a_name ... ok");
        tally.read("test stories::gang ... FAILED");
        tally.read("test src/lib.rs - (line 9) - compile ... FAILED");
        tally.read("99 passed; 99 failed");
        let names = vec!["stories::gang".to_owned(), "src/lib.rs - (line 9)".to_owned()];
        assert_eq!(tally, Tally { passed: 15, failed: 2, ignored: 1, names });
    }

    #[test]
    fn a_command_is_cut_into_its_build_and_its_binaries() {
        let lines = [
            (1, "   Compiling forebay-engine v0.1.0 (/work)"),
            (30, "    Finished `test` profile [optimized + debuginfo] target(s) in 29.01s"),
            (30, "     Running unittests src/lib.rs (target/debug/deps/forebay_engine-0123456789abcdef)"),
            (31, "test a ... ok"),
            (35, "     Running tests/engine/main.rs (/a b/debug/deps/engine-0123456789abcdef)"),
            (95, "   Doc-tests forebay_engine"),
        ];
        let mut parts = TestParts::of("cargo test -p forebay-engine", None);
        for (at, line) in lines {
            parts.read(line, Duration::from_secs(at));
        }
        let (parts, _) = parts.end(Duration::from_secs(99));
        let shown: Vec<(&str, u64)> = parts.iter().map(|part| (part.name.as_str(), part.took.as_secs())).collect();
        let expected = [
            ("build: cargo test -p forebay-engine", 30),
            ("forebay_engine (src/lib.rs)", 5),
            ("engine (tests/engine/main.rs)", 60),
            ("forebay_engine (examples in its documentation)", 4),
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_file_of_tests_in_which_nothing_ran_is_named() {
        let result = |counts: &str| format!("test result: ok. {counts}; 0 measured; 0 filtered out; finished in 0.00s");
        let none = result("0 passed; 0 failed; 0 ignored");
        let filtered = "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 7 filtered out; finished in 0.00s";
        let lines = [
            "     Running unittests src/main.rs (target/debug/deps/forebay_sweep-0123456789abcdef)".to_owned(),
            none.clone(),
            "     Running tests/empty.rs (target/debug/deps/empty-0123456789abcdef)".to_owned(),
            none.clone(),
            "     Running tests/full.rs (target/debug/deps/full-0123456789abcdef)".to_owned(),
            result("1 passed; 0 failed; 0 ignored"),
            "     Running tests/filtered.rs (target/debug/deps/filtered-0123456789abcdef)".to_owned(),
            filtered.to_owned(),
            "     Running tests/ignored/main.rs (target/debug/deps/ignored-0123456789abcdef)".to_owned(),
            result("0 passed; 0 failed; 2 ignored"),
            "   Doc-tests forebay_engine".to_owned(),
            none.clone(),
        ];
        let mut parts = TestParts::of("cargo test -p forebay-engine", None);
        lines.iter().for_each(|line| parts.read(line, Duration::ZERO));
        let (_, empty) = parts.end(Duration::ZERO);
        assert_eq!(empty, ["empty (tests/empty.rs)", "ignored (tests/ignored/main.rs)"]);
    }

    #[test]
    fn colours_are_not_read() {
        assert_eq!(plain("\u{1b}[1m\u{1b}[32m   Running\u{1b}[0m tests/a.rs"), "   Running tests/a.rs");
        assert_eq!(plain("test a ... \u{1b}[31mFAILED\u{1b}[m"), "test a ... FAILED");
        assert_eq!(plain("cut off \u{1b}["), "cut off ");
        assert_eq!(plain("none"), "none");
    }
}
