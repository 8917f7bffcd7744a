//! What every Rust file keeps to: it opens with its purpose, it stays short, and each `allow` has its why.

use super::{File, Finding, extension};

/// Beyond this a file is split.
const MOST_LINES: usize = 800;

/// Beyond this a file is listed, so that it is split before it must be.
const MANY_LINES: usize = 400;

/// Checks one file; anything but Rust passes.
pub fn check(file: &File) -> Vec<Finding> {
    if extension(&file.path) != "rs" {
        return Vec::new();
    }
    let mut findings = Vec::new();
    if !file.text.starts_with("//!") {
        findings.push(file.finding(1, "does not open with `//!`; say what the file is for and what it never does"));
    }
    let lines = file.text.lines().count();
    if lines > MOST_LINES {
        findings.push(file.finding(0, format!("{lines} lines, at most {MOST_LINES}; split it by what it does")));
    }
    findings.extend(allows_without_why(file));
    findings.extend(swallowed_encodings(file));
    findings
}

/// What turns something into bytes and may fail.
const ENCODERS: [&str; 3] = ["serde_json::to_", "postcard::to_", ".encode()"];

/// An encoding that failed and is taken for empty bytes: a record that says nothing, a request without a body, an identity that many share.
fn swallowed_encodings(file: &File) -> Vec<Finding> {
    if ["tests/", "benches/", "examples/"].iter().any(|folder| file.path.contains(folder)) {
        return Vec::new();
    }
    let code = file.text.split("#[cfg(test)]").next().unwrap_or_default();
    let swallows = |line: &str| {
        line.contains(concat!("unwrap_or_", "default()")) && ENCODERS.iter().any(|encoder| line.contains(encoder))
    };
    let lines = code.lines().enumerate().filter(|(_, line)| swallows(line));
    let why = "an encoding error becomes empty bytes; return the error";
    lines.map(|(at, _)| file.finding(at + 1, why)).collect()
}

/// The files between the two bounds, longest first.
pub fn long_files(files: &[File]) -> Vec<(&str, usize)> {
    let rust = files.iter().filter(|file| extension(&file.path) == "rs");
    let mut long: Vec<_> = rust.map(|file| (file.path.as_str(), file.text.lines().count())).collect();
    long.retain(|(_, lines)| (MANY_LINES + 1..=MOST_LINES).contains(lines));
    long.sort_by_key(|(path, lines)| (std::cmp::Reverse(*lines), *path));
    long
}

/// An attribute that silences a lint says why: in its `reason`, in a comment behind it, or in one on the line above.
fn allows_without_why(file: &File) -> Vec<Finding> {
    let lines: Vec<&str> = file.text.lines().map(str::trim).collect();
    let mut findings = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let attribute = line.starts_with("#[") || line.starts_with("#![");
        if !attribute || !["allow(", "expect("].iter().any(|word| line.contains(word)) {
            continue;
        }
        // An attribute may run over several lines, up to the one that closes it.
        let end = (at..lines.len()).find(|&i| lines[i].contains(']')).unwrap_or(at);
        let within = lines[at..=end].iter().any(|l| l.contains("reason =") || l.contains("//"));
        let above = at.checked_sub(1).is_some_and(|i| is_comment(lines[i]));
        if !within && !above {
            findings.push(file.finding(at + 1, "silences a lint without its why; add a comment behind it or above it"));
        }
    }
    findings
}

/// A comment for the reader of the code; documentation does not explain a lint.
fn is_comment(line: &str) -> bool {
    line.starts_with("//") && !line.starts_with("///") && !line.starts_with("//!")
}

#[cfg(test)]
mod tests {
    use super::super::{file, shown};
    use super::*;

    const NO_WHY: &str = "silences a lint without its why; add a comment behind it or above it";

    #[test]
    fn a_file_opens_with_its_purpose() {
        assert!(check(&file("src/a.rs", "//! Purpose.\n")).is_empty());
        assert_eq!(check(&file("src/a.rs", "use core::fmt;\n")).len(), 1);
        assert_eq!(check(&file("src/a.rs", "")).len(), 1);
        assert!(check(&file("src/a.md", "text\n")).is_empty());
    }

    #[test]
    fn a_file_may_have_800_lines_and_is_listed_beyond_400() {
        let of = |path, lines: usize| file(path, &"//! x\n".repeat(lines));
        assert!(check(&of("a.rs", 800)).is_empty());
        assert_eq!(shown(&check(&of("a.rs", 801))), ["a.rs: 801 lines, at most 800; split it by what it does"]);
        let files = [of("a.rs", 400), of("b.rs", 401), of("c.rs", 800), of("d.rs", 801), of("e.md", 500)];
        assert_eq!(long_files(&files), [("c.rs", 800), ("b.rs", 401)]);
    }

    #[test]
    fn an_encoding_that_failed_is_not_taken_for_nothing() {
        let swallows = format!("//! x\nlet b = serde_json::to_vec(&a).unwrap_or_{}();\n", "default");
        assert_eq!(
            shown(&check(&file("a/src/b.rs", &swallows))),
            ["a/src/b.rs:2: an encoding error becomes empty bytes; return the error"]
        );
        assert!(check(&file("a/tests/b.rs", &swallows)).is_empty());
        assert!(check(&file("a/src/b.rs", "//! x\nlet b = serde_json::to_vec(&a)?;\n")).is_empty());
    }

    #[test]
    fn an_allow_has_its_why() {
        let cases = [
            ("#[allow(dead_code)] // read by the debugger", true),
            ("// Read by the debugger.\n#[allow(dead_code)]", true),
            ("#[expect(dead_code, reason = \"read by the debugger\")]", true),
            ("#[allow(\n    dead_code,\n    reason = \"read by the debugger\"\n)]", true),
            ("#[allow(dead_code)]", false),
            ("#![allow(dead_code)]", false),
            ("#[expect(dead_code)]", false),
            ("/// A field.\n#[allow(dead_code)]", false),
            ("#[cfg_attr(test, allow(dead_code))]", false),
            ("#[allow(\n    dead_code\n)]\nfn f() {} // not its why", false),
            ("let x = o.expect(\"there\");", true),
        ];
        for (code, fine) in cases {
            let findings = check(&file("src/a.rs", &format!("//! x\n\n{code}\n")));
            assert_eq!(findings.is_empty(), fine, "{code}");
            assert!(findings.iter().all(|finding| finding.what == NO_WHY), "{code}");
        }
    }
}
