//! Each test that is ignored stands on a committed list that says who runs it: else it is skipped for ever, and looks green.
//!
//! ```text
//! #[ignore] ... fn name()      xtask/rules/ignored.txt: path name: who runs it, and how
//! ```
//!
//! A line of the list whose test is not ignored any more is a finding too: the list stays true. Never: the figures of a run, which has the
//! ignored tests in a column of their own.

use super::{File, Finding, extension, needed};

/// `path name: who runs it, and how`, one a line.
const LIST: &str = "xtask/rules/ignored.txt";

/// A test that is ignored.
struct IgnoredTest<'f> {
    file: &'f File,
    line: usize,
    name: &'f str,
}

/// Compares the ignored tests of all files with the list.
pub fn check(files: &[File]) -> Vec<Finding> {
    let list = match needed(files, LIST) {
        Ok(list) => list,
        Err(missing) => return vec![missing],
    };
    let rust = files.iter().filter(|file| extension(&file.path) == "rs");
    let tests: Vec<IgnoredTest<'_>> = rust.flat_map(ignored).collect();
    let (mut findings, mut listed) = (Vec::new(), Vec::new());
    for (at, line) in list.entries() {
        let (test, why) = line.split_once(": ").unwrap_or((line, ""));
        if why.trim().is_empty() {
            findings.push(list.finding(at, format!("`{test}` has no reason; say behind a colon who runs it, and how")));
        }
        if listed.contains(&test) {
            findings.push(list.finding(at, format!("`{test}` has a line already; keep one")));
        }
        if !tests.iter().any(|ignored| ignored.is(test)) {
            findings.push(list.finding(at, format!("`{test}` is no ignored test; remove this line")));
        }
        listed.push(test);
    }
    for test in tests.iter().filter(|test| !listed.iter().any(|line| test.is(line))) {
        let what = format!("the test `{}` is ignored; run it, or say in {LIST} who does", test.name);
        findings.push(test.file.finding(test.line, what));
    }
    findings
}

impl IgnoredTest<'_> {
    /// Whether this entry of the list is about it.
    fn is(&self, entry: &str) -> bool {
        entry.split_once(' ') == Some((self.file.path.as_str(), self.name))
    }
}

/// The ignored tests of a file. An attribute stands before its function, with others between them at most.
fn ignored(file: &File) -> Vec<IgnoredTest<'_>> {
    let lines: Vec<&str> = file.text.lines().map(str::trim).collect();
    let attributes = lines.iter().enumerate().filter(|(_, line)| ignores(line));
    let tests = attributes.map(|(at, _)| {
        let name = lines[at..].iter().copied().find_map(function).unwrap_or_default();
        IgnoredTest { file, line: at + 1, name }
    });
    tests.collect()
}

/// Whether a line is an attribute that ignores a test, always or under a condition.
fn ignores(line: &str) -> bool {
    let Some(attribute) = line.strip_prefix("#[") else { return false };
    let conditional = attribute.starts_with("cfg_attr(") && attribute.contains(", ignore");
    conditional || attribute.strip_prefix("ignore").is_some_and(|rest| rest.starts_with([']', ' ', '=']))
}

/// The name of the function that a line begins.
fn function(line: &str) -> Option<&str> {
    let code = line.split("//").next().unwrap_or_default();
    let (before, name) = code.split_once("fn ")?;
    let begins = before.split_whitespace().all(|word| ["pub", "async", "const"].contains(&word));
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
    begins.then_some(&name[..end])
}

#[cfg(test)]
mod tests {
    use super::super::{file, shown};
    use super::*;

    const TESTS: &str = "//! x\n#[test]\n#[ignore = \"it measures\"]\nfn slow() {}\n\n#[test]\nfn quick() {}\n";

    fn found(tests: &str, list: &str) -> Vec<String> {
        shown(&check(&[file("a/tests/a.rs", tests), file(LIST, list)]))
    }

    #[test]
    fn an_ignored_test_is_listed_with_who_runs_it() {
        assert_eq!(found(TESTS, "# why\na/tests/a.rs slow: by hand, after a change of the disk\n"), [""; 0]);
        let unlisted = "a/tests/a.rs:3: the test `slow` is ignored; run it, or say in xtask/rules/ignored.txt who does";
        assert_eq!(found(TESTS, "# why\n"), [unlisted]);
        assert_eq!(found(TESTS, "a/tests/b.rs slow: by hand\n").len(), 2, "of another file");
        assert!(shown(&check(&[file("a/tests/a.rs", TESTS)]))[0].starts_with("xtask/rules/ignored.txt: is not there"));
    }

    #[test]
    fn the_list_stays_true() {
        let list = "a/tests/a.rs slow:\na/tests/a.rs quick: by hand\na/tests/a.rs slow: by hand\n";
        let expected = [
            "xtask/rules/ignored.txt:1: `a/tests/a.rs slow:` has no reason; say behind a colon who runs it, and how",
            "xtask/rules/ignored.txt:1: `a/tests/a.rs slow:` is no ignored test; remove this line",
            "xtask/rules/ignored.txt:2: `a/tests/a.rs quick` is no ignored test; remove this line",
        ];
        assert_eq!(found(TESTS, list), expected);
    }

    #[test]
    fn every_way_to_ignore_a_test_is_seen() {
        for attribute in
            ["#[ignore]", "#[ignore = \"why\"]", "#[cfg_attr(windows, ignore)]", "#[ignore]\n#[should_panic]"]
        {
            let text = format!("//! x\n#[test]\n{attribute}\nasync fn one() {{}}\n");
            let found = found(&text, "");
            assert!(found.len() == 1 && found[0].contains("`one`"), "{attribute}: {found:?}");
        }
        for code in ["let ignored = 1;", "// #[ignore]", "#[ignored_by(x)]"] {
            assert_eq!(found(&format!("//! x\n{code}\nfn one() {{}}\n"), ""), [""; 0], "{code}");
        }
    }
}
