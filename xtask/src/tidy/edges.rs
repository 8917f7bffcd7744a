//! Dependencies point inward: only the edges between packages of the workspace that a committed list allows.
//!
//! ```text
//! xtask/rules/edges.txt        forebay-engine: forebay-kernel
//! Cargo.toml of each package   every other edge is a finding, and so is a listed one that is not there
//! ```
//!
//! Dev-dependencies have a looser rule: a test may use any package of the workspace but those that may know all (`*`).
//! Never: third-party packages; deny.toml and `purity.rs` have those.

use super::{File, Finding, find};
use crate::workspace::Package;

/// The committed list.
pub const LIST: &str = "xtask/rules/edges.txt";

/// One line of the list.
#[derive(Debug)]
struct Line<'a> {
    at: usize,
    package: &'a str,
    knows: Vec<&'a str>,
    /// Whether it may know every package of the lines above (`*`), whichever it does know.
    all: bool,
}

/// Compares the list with what the packages depend on.
pub fn check(packages: &[Package], files: &[File]) -> Vec<Finding> {
    let list = &find(files, LIST);
    let lines = read(list);
    let mut findings = check_list(list, &lines, packages);
    for package in packages {
        let manifest = files.iter().find(|file| file.path == package.manifest);
        let Some(line) = lines.iter().find(|line| line.package == package.name) else {
            let what =
                format!("`{}` is a package without a line; add one, below those that it depends on", package.name);
            findings.push(list.finding(0, what));
            continue;
        };
        for edge in &package.edges {
            let may_not_be_known = lines.iter().any(|line| line.package == edge.to && line.all);
            if !line.knows.contains(&edge.to.as_str()) && (!edge.dev || may_not_be_known) {
                let at = manifest.map_or(0, |file| line_of(file, &edge.to));
                findings.push(Finding { path: package.manifest.clone(), line: at, what: forbidden(package, &edge.to) });
            }
        }
        let of_package = |to: &&str| package.edges.iter().any(|edge| !edge.dev && edge.to == *to);
        for to in line.knows.iter().filter(|to| !line.all && !of_package(to)) {
            let what = format!("`{}` no longer depends on `{to}`; remove it from this line", package.name);
            findings.push(list.finding(line.at, what));
        }
    }
    findings
}

fn forbidden(package: &Package, to: &str) -> String {
    format!(
        "the dependency {} -> {to} is not allowed; move what needs it to a package that may know both, or, if it is meant, add \
         `{to}` to the line of `{}` in {LIST} and its why to docs/ARCHITECTURE.md",
        package.name, package.name
    )
}

/// What is wrong with the list by itself.
fn check_list(list: &File, lines: &[Line<'_>], packages: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (nth, line) in lines.iter().enumerate() {
        if lines[..nth].iter().any(|above| above.package == line.package) {
            findings.push(list.finding(line.at, format!("`{}` has a line already; keep one", line.package)));
        }
        if !packages.iter().any(|package| package.name == line.package) {
            findings.push(
                list.finding(line.at, format!("`{}` is no package of the workspace; remove its line", line.package)),
            );
        }
        for to in &line.knows {
            if !lines[..nth].iter().any(|above| above.package == *to) {
                let what = format!(
                    "`{}` may know `{to}`, which has no line above it; dependencies point inward: order the lines so that it has",
                    line.package
                );
                findings.push(list.finding(line.at, what));
            }
        }
    }
    findings
}

fn read(list: &File) -> Vec<Line<'_>> {
    let mut lines: Vec<Line<'_>> = Vec::new();
    for (nth, text) in list.text.lines().enumerate() {
        let text = text.split('#').next().unwrap_or_default();
        if let Some((package, knows)) = text.split_once(':') {
            let all = knows.trim() == "*";
            let above = lines.iter().map(|line| line.package);
            let knows = if all { above.collect() } else { knows.split_whitespace().collect() };
            lines.push(Line { at: nth + 1, package: package.trim(), knows, all });
        }
    }
    lines
}

/// Where a manifest names the dependency, or 0.
fn line_of(manifest: &File, dependency: &str) -> usize {
    let names = |line: &str| {
        let name = line.trim_start().split(['=', '.', ' ']).next().unwrap_or_default();
        name.trim_matches('"') == dependency
    };
    let mut within = false;
    for (nth, line) in manifest.text.lines().enumerate() {
        if line.starts_with('[') {
            // The workspace's own table lists packages and makes nobody depend on them.
            within = line.contains("dependencies") && !line.contains("[workspace");
        } else if within && names(line) {
            return nth + 1;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::super::{file, shown};
    use super::*;
    use crate::workspace::DependencyEdge;

    fn package(name: &str, edges: &[(&str, bool)]) -> Package {
        let edges =
            edges.iter().map(|(to, dev)| DependencyEdge { to: (*to).to_owned(), dev: *dev, path: None }).collect();
        Package { name: name.to_owned(), manifest: format!("{name}/Cargo.toml"), edges, ..Package::default() }
    }

    fn findings(list: &str, packages: &[Package]) -> Vec<String> {
        shown(&check(packages, &[file(LIST, list)]))
    }

    const LINES: &str = "# layers\nkernel:\nplanner: kernel # decides\nbinary: *\nparts:\ntests: *\n";

    fn packages() -> Vec<Package> {
        vec![
            package("kernel", &[]),
            package("planner", &[("kernel", false)]),
            package("binary", &[("kernel", false), ("planner", false)]),
            package("parts", &[]),
            package("tests", &[("binary", true), ("parts", false)]),
        ]
    }

    #[test]
    fn the_listed_edges_pass() {
        assert_eq!(findings(LINES, &packages()), [""; 0]);
    }

    #[test]
    fn a_kernel_that_knows_the_planner_is_found_with_file_and_remedy() {
        let mut packages = packages();
        packages[0] = package("kernel", &[("planner", false)]);
        let manifest = "[package]\nname = \"kernel\"\n\n[workspace.dependencies]\nplanner = { path = \"..\" }\n\n\
                        [dependencies]\nserde = \"1\"\nplanner.workspace = true\n";
        let files = [file(LIST, LINES), file("kernel/Cargo.toml", manifest)];
        let found = shown(&check(&packages, &files));
        let expected = "kernel/Cargo.toml:9: the dependency kernel -> planner is not allowed; move what needs it to a package \
                        that may know both, or, if it is meant, add `planner` to the line of `kernel` in xtask/rules/edges.txt \
                        and its why to docs/ARCHITECTURE.md";
        assert_eq!(found, [expected]);
        // Not even by the list: the planner stands below the kernel.
        let list = LINES.replace("kernel:\n", "kernel: planner\n");
        let found = findings(&list, &packages);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("`kernel` may know `planner`, which has no line above it"), "{found:?}");
    }

    #[test]
    fn the_committed_list_keeps_the_planner_out_of_the_kernel() {
        let list = file(LIST, include_str!("../../rules/edges.txt"));
        let of = |edges| check(&[package("forebay-kernel", edges)], std::slice::from_ref(&list));
        let forbidden = |findings: Vec<Finding>| {
            shown(&findings).into_iter().filter(|finding| finding.contains("is not allowed")).collect::<Vec<_>>()
        };
        assert_eq!(forbidden(of(&[])), [""; 0]);
        let found = forbidden(of(&[("forebay-engine", false)]));
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("forebay-kernel/Cargo.toml: the dependency forebay-kernel -> forebay-engine"));
    }

    #[test]
    fn an_edge_that_has_gone_leaves_the_list() {
        let mut packages = packages();
        packages[1] = package("planner", &[("kernel", true)]);
        let gone = "xtask/rules/edges.txt:3: `planner` no longer depends on `kernel`; remove it from this line";
        assert_eq!(findings(LINES, &packages), [gone], "a dev-dependency is no edge of the list");
    }

    #[test]
    fn a_package_and_its_line_belong_together() {
        let mut packages = packages();
        packages.push(package("new", &[]));
        packages.remove(3);
        packages[3].edges.pop();
        let found = findings(LINES, &packages);
        let expected = [
            "xtask/rules/edges.txt:5: `parts` is no package of the workspace; remove its line",
            "xtask/rules/edges.txt: `new` is a package without a line; add one, below those that it depends on",
        ];
        assert_eq!(found, expected);
        assert_eq!(findings(&format!("{LINES}kernel:\n"), &self::packages()).len(), 1, "a second line");
    }

    #[test]
    fn a_test_may_know_more_but_not_the_whole() {
        let mut packages = packages();
        packages[0] = package("kernel", &[("planner", true), ("parts", true)]);
        assert_eq!(findings(LINES, &packages), [""; 0]);
        packages[0] = package("kernel", &[("binary", true)]);
        assert_eq!(findings(LINES, &packages).len(), 1);
        // What stands below the binary is not known by it, whatever the star.
        packages = self::packages();
        packages[2] = package("binary", &[("parts", false)]);
        assert_eq!(findings(LINES, &packages).len(), 1);
    }
}
