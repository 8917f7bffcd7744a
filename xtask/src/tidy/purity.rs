//! The kernel and the planner stay pure: `no_std`, no floats, no `std`, their own lints, and only the dependencies on a committed list.
//!
//! Clippy holds the rest of it (clippy.toml at the root). Tests inside their files may use `std`.

use super::{File, Finding, find, needed};
use crate::ChoreFailure;
use crate::command::{capture, cargo};
use crate::workspace::{Package, Workspace};

/// A package that is pure.
struct Pure {
    package: &'static str,
    /// Its folder, from the root.
    folder: &'static str,
    /// The third-party packages that it links, one `name features` a line.
    list: &'static str,
}

const PURE: [Pure; 2] = [
    Pure { package: "forebay-kernel", folder: "crates/kernel/", list: "xtask/rules/kernel-deps.txt" },
    Pure { package: "forebay-engine", folder: "", list: "xtask/rules/engine-deps.txt" },
];

/// What a pure package's Cargo.toml sets beside the lints of the workspace.
const LINTS: [&str; 7] = [
    r#"unsafe_code = "forbid""#,
    r#"iter_over_hash_type = "deny""#,
    r#"disallowed_methods = "deny""#,
    r#"disallowed_types = "deny""#,
    r#"float_arithmetic = "deny""#,
    r#"std_instead_of_core = "deny""#,
    r#"std_instead_of_alloc = "deny""#,
];

/// Checks one file; anything outside the pure packages passes.
pub fn check(file: &File) -> Vec<Finding> {
    let within = |pure: &'static Pure| Some((pure, file.path.strip_prefix(pure.folder)?));
    let is_own = |path: &str| path == "Cargo.toml" || path.starts_with("src/") && path.ends_with(".rs");
    let Some((pure, path)) = PURE.iter().filter_map(within).find(|(_, path)| is_own(path)) else {
        return Vec::new();
    };
    if path == "Cargo.toml" {
        return lints(file, pure);
    }
    let mut findings = Vec::new();
    if path == "src/lib.rs" && !file.text.lines().any(|line| line.trim() == "#![no_std]") {
        findings.push(file.finding(
            0,
            format!("`#![no_std]` is gone; {} does without clock, IO, threads and randomness", pure.package),
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
            ("std", "use core or alloc; what needs std belongs to a package that may do IO"),
        ] {
            if words(code).any(|found| found == word) {
                findings.push(file.finding(at + 1, format!("`{word}` in {}; {remedy}", pure.package)));
            }
        }
    }
    findings
}

/// Each lint of [`LINTS`] in the package's own tables. The workspace's table, which stands in the same file for the planner, does
/// not count.
fn lints(manifest: &File, pure: &Pure) -> Vec<Finding> {
    let mut own = false;
    let mut set = Vec::new();
    for line in manifest.text.lines().map(str::trim) {
        if line.starts_with('[') {
            own = line.starts_with("[lints");
        } else if own {
            set.push(line);
        }
    }
    let missing = LINTS.iter().filter(|lint| !set.contains(lint));
    let what = |lint: &&str| format!("{} does not set the lint `{lint}`; add it under [lints]", pure.package);
    missing.map(|lint| manifest.finding(0, what(lint))).collect()
}

/// The identifiers of a line. A literal such as `1f64` counts as its suffix.
fn words<'c>(code: &'c str) -> impl Iterator<Item = &'c str> {
    let parts = code.split(|c: char| !c.is_alphanumeric() && c != '_');
    let suffix = |literal: &'c str| literal.trim_start_matches(|c: char| c.is_ascii_digit() || c == '_');
    parts.map(move |word| if word.starts_with(|c: char| c.is_ascii_digit()) { suffix(word) } else { word })
}

/// Compares what the pure packages link with the committed lists.
pub fn check_dependencies(workspace: &Workspace, files: &[File]) -> Result<Vec<Finding>, ChoreFailure> {
    let own: Vec<&str> = workspace.packages().iter().map(|package| package.name.as_str()).collect();
    let mut findings = gone(workspace.packages(), files);
    for pure in PURE.iter().filter(|pure| own.contains(&pure.package)) {
        let mut ask = cargo(workspace.root());
        ask.args(["tree", "-p", pure.package, "-e", "normal,no-proc-macro", "--target", "all"]);
        ask.args(["--prefix", "none", "--no-dedupe", "--format", "{p}|{f}"]);
        let linked = linked(&capture(&mut ask)?, &own);
        findings.extend(compare(&find(files, pure.list), pure.package, &linked));
    }
    Ok(findings)
}

/// Pure packages that are not where the rules look for them: nothing would hold them there.
fn gone(packages: &[Package], files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for Pure { package, folder, .. } in &PURE {
        let manifest = format!("{folder}Cargo.toml");
        if !packages.iter().any(|its| its.name == *package && its.manifest == manifest) {
            let what = format!("is not the manifest of `{package}`; name its place in xtask/src/tidy/purity.rs");
            findings.push(Finding { path: manifest.clone(), line: 0, what });
        }
        let read = [manifest, format!("{folder}src/lib.rs")];
        findings.extend(read.iter().filter_map(|path| needed(files, path).err()));
    }
    findings
}

/// `name features` of each third-party package, in order and once. Those of the workspace are in the list of edges.
fn linked(tree: &str, own: &[&str]) -> Vec<String> {
    let mut rows = Vec::new();
    for line in tree.lines() {
        let (package, features) = line.split_once('|').unwrap_or((line, ""));
        let name = package.split(' ').next().unwrap_or_default();
        if !name.is_empty() && !own.contains(&name) {
            rows.push(format!("{name} {features}").trim_end().to_owned());
        }
    }
    rows.sort();
    rows.dedup();
    rows
}

fn compare(list: &File, package: &str, linked: &[String]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for row in linked.iter().filter(|row| !list.entries().any(|(_, line)| line == **row)) {
        let what = format!(
            "{package} links `{row}`, which is not listed; if it is meant, add this line, and its why to docs/DESIGN.md"
        );
        findings.push(list.finding(0, what));
    }
    for (at, line) in list.entries().filter(|(_, line)| !linked.iter().any(|row| row == line)) {
        findings.push(list.finding(at, format!("{package} no longer links `{line}`; remove this line")));
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
            assert_eq!(check(&file("crates/kernel/src/state/jobs.rs", code)).len(), findings, "{code}");
            assert!(check(&file("controller/src/lib.rs", code)).is_empty(), "{code}");
        }
    }

    #[test]
    fn kernel_and_planner_are_no_std() {
        for path in ["src/lib.rs", "crates/kernel/src/lib.rs"] {
            assert!(check(&file(path, "//! x\n#![no_std]\n")).is_empty());
            assert_eq!(check(&file(path, "//! x\n// #![no_std]\n")).len(), 1, "{path}");
        }
    }

    #[test]
    fn their_lints_are_their_own() {
        let all = LINTS.join("\n");
        let manifest = format!("[lints.rust]\n{}\n[lints.clippy]\n{all}\n", LINTS[0]);
        assert!(check(&file("crates/kernel/Cargo.toml", &manifest)).is_empty());
        let of_workspace = format!("[workspace.lints.clippy]\n{all}\n[lints]\nworkspace = true\n");
        assert_eq!(check(&file("Cargo.toml", &of_workspace)).len(), LINTS.len());
        assert!(check(&file("sim/Cargo.toml", "")).is_empty());
    }

    #[test]
    fn dependencies_equal_the_list() {
        let tree = "forebay-engine v0.1.0 (path)|\nforebay-kernel v0.1.0 (path)|\npostcard v1.1.3|alloc\n\
                    serde v1.0.2|alloc,derive\ncobs v0.3.0|\nserde v1.0.2|alloc,derive\n";
        let linked = linked(tree, &["forebay-engine", "forebay-kernel"]);
        assert_eq!(linked, ["cobs", "postcard alloc", "serde alloc,derive"]);
        let list = |text: &str| file("xtask/rules/engine-deps.txt", text);
        let same = list("# why\ncobs\npostcard alloc\nserde alloc,derive\n");
        assert!(compare(&same, "forebay-engine", &linked).is_empty());
        let findings = compare(&list("cobs\nlibc std\nserde alloc,derive\n"), "forebay-engine", &linked);
        assert_eq!(
            shown(&findings),
            [
                "xtask/rules/engine-deps.txt: forebay-engine links `postcard alloc`, which is not listed; if it is meant, add this line, and its why to docs/DESIGN.md",
                "xtask/rules/engine-deps.txt:2: forebay-engine no longer links `libc std`; remove this line",
            ]
        );
    }

    #[test]
    fn a_pure_package_that_has_moved_is_a_finding() {
        let package = |name: &str, manifest: &str| Package {
            name: name.to_owned(),
            manifest: manifest.to_owned(),
            ..Package::default()
        };
        let planner = package("forebay-engine", "Cargo.toml");
        let files = |kernel: &str| {
            let paths = ["Cargo.toml", "src/lib.rs"].map(str::to_owned);
            let kernel = ["Cargo.toml", "src/lib.rs"].map(|path| format!("{kernel}{path}"));
            paths.iter().chain(&kernel).map(|path| file(path, "")).collect::<Vec<_>>()
        };
        let kernel = package("forebay-kernel", "crates/kernel/Cargo.toml");
        assert_eq!(gone(&[kernel, package("forebay-engine", "Cargo.toml")], &files("crates/kernel/")), []);
        let moved = package("forebay-kernel", "crates/core/Cargo.toml");
        let found = shown(&gone(&[moved, planner], &files("crates/core/")));
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].starts_with("crates/kernel/Cargo.toml: is not the manifest of `forebay-kernel`"), "{found:?}");
        assert!(found[2].starts_with("crates/kernel/src/lib.rs: is not there"), "{found:?}");
    }
}
