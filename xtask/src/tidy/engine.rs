//! The engine stays pure: `no_std`, no floats, no `std`, and only the dependencies on a committed list.
//!
//! Clippy holds the rest of it (clippy.toml at the root). Tests inside the engine's files may use `std`.

use std::path::Path;

use super::{File, Finding};
use crate::Failure;
use crate::command::{capture, cargo};

/// What the engine links, one `name features` a line.
const LIST: &str = "xtask/engine-deps.txt";

/// Checks one file; anything outside the engine's sources passes.
pub fn check(file: &File) -> Vec<Finding> {
    if !file.path.starts_with("src/") || !file.path.ends_with(".rs") {
        return Vec::new();
    }
    let mut findings = Vec::new();
    if file.path == "src/lib.rs" && !file.text.lines().any(|line| line.trim() == "#![no_std]") {
        findings.push(Finding::new(
            file,
            0,
            "`#![no_std]` is gone; the engine does without clock, IO, threads and randomness",
        ));
    }
    let lines: Vec<&str> = file.text.lines().map(str::trim).collect();
    let tests = lines.windows(2).position(|pair| pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod tests"));
    // Tests come last in a file, and may use std.
    for (at, line) in lines[..tests.unwrap_or(lines.len())].iter().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        for (word, remedy) in [
            ("f32", "use an integer unit of units.rs"),
            ("f64", "use an integer unit of units.rs"),
            ("std", "use core or alloc; what needs std belongs to the controller or the simulator"),
        ] {
            if words(code).any(|found| found == word) {
                findings.push(Finding::new(file, at + 1, format!("`{word}` in the engine; {remedy}")));
            }
        }
    }
    findings
}

/// The identifiers of a line. A literal such as `1f64` counts as its suffix.
fn words(code: &str) -> impl Iterator<Item = &str> {
    let parts = code.split(|c: char| !c.is_alphanumeric() && c != '_');
    parts.map(|word| if word.starts_with(|c: char| c.is_ascii_digit()) { suffix(word) } else { word })
}

fn suffix(literal: &str) -> &str {
    literal.trim_start_matches(|c: char| c.is_ascii_digit() || c == '_')
}

/// Compares what the engine links with the committed list.
pub fn check_dependencies(root: &Path, files: &[File]) -> Result<Vec<Finding>, Failure> {
    let mut ask = cargo(root);
    ask.args(["tree", "-p", "forebay-engine", "-e", "normal,no-proc-macro", "--target", "all"]);
    ask.args(["--prefix", "none", "--no-dedupe", "--format", "{p}|{f}"]);
    let linked = linked(&capture(&mut ask)?);
    let missing = File { path: LIST.to_owned(), text: String::new() };
    let list = files.iter().find(|file| file.path == LIST).unwrap_or(&missing);
    Ok(compare(list, &linked))
}

/// `name features` of each dependency, in order and once. The first line of the tree is the engine itself.
fn linked(tree: &str) -> Vec<String> {
    let mut rows = Vec::new();
    for line in tree.lines().skip(1) {
        let (package, features) = line.split_once('|').unwrap_or((line, ""));
        let name = package.split(' ').next().unwrap_or_default();
        if !name.is_empty() {
            rows.push(format!("{name} {features}").trim_end().to_owned());
        }
    }
    rows.sort();
    rows.dedup();
    rows
}

fn compare(list: &File, linked: &[String]) -> Vec<Finding> {
    let listed: Vec<(usize, &str)> = list.text.lines().enumerate().map(|(at, line)| (at + 1, line.trim())).collect();
    let mut findings = Vec::new();
    for row in linked.iter().filter(|row| !listed.iter().any(|(_, line)| line == row)) {
        let what = format!(
            "the engine links `{row}`, which is not listed; if it is meant, add this line, and its why to docs/DESIGN.md"
        );
        findings.push(Finding::new(list, 0, what));
    }
    for (at, line) in listed {
        let entry = !line.is_empty() && !line.starts_with('#');
        if entry && !linked.iter().any(|row| row == line) {
            findings.push(Finding::new(list, at, format!("the engine no longer links `{line}`; remove this line")));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::{file, shown};
    use super::*;

    #[test]
    fn floats_and_std_are_found_in_code_only() {
        let cases = [
            ("let x: f64 = y;", 1),
            ("let x = 1f32;", 1),
            ("use std::fmt;", 1),
            ("extern crate std;", 1),
            ("fn f(a: f32) -> f64;", 2),
            ("use core::fmt; // std::fmt is not here", 0),
            ("//! Without f64.", 0),
            ("let f64x = af32;", 0),
            ("#![no_std]", 0),
            ("#[cfg(test)]\nuse std::vec;", 1),
            ("#[cfg(test)]\nmod tests {\n    use std::vec;\n}", 0),
        ];
        for (code, findings) in cases {
            assert_eq!(check(&file("src/stage/place.rs", code)).len(), findings, "{code}");
            assert!(check(&file("controller/src/lib.rs", code)).is_empty(), "{code}");
        }
    }

    #[test]
    fn the_engine_is_no_std() {
        assert!(check(&file("src/lib.rs", "//! x\n#![no_std]\n")).is_empty());
        assert_eq!(check(&file("src/lib.rs", "//! x\n// #![no_std]\n")).len(), 1);
    }

    #[test]
    fn dependencies_equal_the_list() {
        let tree = "forebay-engine v0.1.0 (path)|\npostcard v1.1.3|alloc\nserde v1.0.2|alloc,derive\ncobs v0.3.0|\nserde v1.0.2|alloc,derive\n";
        let linked = linked(tree);
        assert_eq!(linked, ["cobs", "postcard alloc", "serde alloc,derive"]);
        assert!(compare(&file(LIST, "# why\ncobs\npostcard alloc\nserde alloc,derive\n"), &linked).is_empty());
        let findings = compare(&file(LIST, "cobs\nlibc std\nserde alloc,derive\n"), &linked);
        assert_eq!(
            shown(&findings),
            [
                "xtask/engine-deps.txt: the engine links `postcard alloc`, which is not listed; if it is meant, add this line, and its why to docs/DESIGN.md",
                "xtask/engine-deps.txt:2: the engine no longer links `libc std`; remove this line",
            ]
        );
    }
}
