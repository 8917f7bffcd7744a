//! The tests of the inner packages build without the heavy libraries: librdkafka, AWS's clients, SQLite.
//!
//! ```text
//! cargo tree -p forebay-policy -e normal,build,dev --locked   must not name rdkafka-sys, aws-sdk-*, libsqlite3-sys, ...
//! ```
//!
//! Whoever edits a policy's check or a wire type waits for seconds then, not for minutes. Never: builds anything.

use super::{File, Finding, find};
use crate::ChoreFailure;
use crate::command::{capture, cargo};
use crate::workspace::{Package, Workspace};

/// Beginnings of package names, and what they bring.
const KAFKA: (&str, &str) = ("rdkafka", "librdkafka, C and C++, a minute");
const AWS: (&str, &str) = ("aws-", "AWS's clients, minutes and up to 7 GiB");
const SQLITE: (&str, &str) = ("libsqlite3-sys", "SQLite, C, a minute");
/// What decides is not linked where records are replayed, not even by a test.
const PLANNER: (&str, &str) = ("forebay-engine", "the planner, and a record would mean what it decides today");

/// A package, and the beginnings of what its library and its tests must not be built on.
const LIGHT: [(&str, &[(&str, &str)]); 8] = [
    ("forebay-kernel", &[KAFKA, AWS, SQLITE, PLANNER]),
    ("forebay-engine", &[KAFKA, AWS, SQLITE]),
    ("forebay-quantity", &[KAFKA, AWS, SQLITE]),
    ("forebay-catalog", &[KAFKA, AWS, SQLITE]),
    ("forebay-policy", &[KAFKA, AWS, SQLITE]),
    ("forebay-wire", &[KAFKA, AWS, SQLITE]),
    ("forebay-sim", &[KAFKA, AWS, SQLITE]),
    ("forebay-journal", &[KAFKA, AWS]),
];

/// Where they are named.
const RULE: &str = "xtask/src/tidy/weight.rs";

/// Asks cargo what each of them is built on, tests included.
pub fn check(workspace: &Workspace, files: &[File]) -> Result<Vec<Finding>, ChoreFailure> {
    let mut findings = gone(workspace.packages());
    for (name, heavy) in LIGHT {
        let Some(package) = workspace.package(name) else {
            continue;
        };
        let mut ask = cargo(workspace.root());
        ask.args(["tree", "-p", name, "-e", "normal,build,dev", "--locked", "--prefix", "none", "--format", "{p}"]);
        let tree = capture(&mut ask)?;
        findings.extend(compare(&find(files, &package.manifest), name, heavy, &tree));
    }
    Ok(findings)
}

/// Packages that the rule is about and that the workspace does not have: nothing would hold what they are called now.
fn gone(packages: &[Package]) -> Vec<Finding> {
    let gone = LIGHT.iter().filter(|(name, _)| !packages.iter().any(|package| package.name == *name));
    let what = |name: &str| format!("`{name}` is no package of the workspace; name it here as it is called now");
    gone.map(|(name, _)| Finding { path: RULE.to_owned(), line: 0, what: what(name) }).collect()
}

fn compare(manifest: &File, package: &str, heavy: &[(&str, &str)], tree: &str) -> Vec<Finding> {
    // The first line is the package itself.
    let mut linked: Vec<&str> = tree.lines().skip(1).filter_map(|line| line.split(' ').next()).collect();
    linked.sort_unstable();
    linked.dedup();
    let mut findings = Vec::new();
    for (beginning, brings) in heavy {
        if let Some(found) = linked.iter().find(|name| name.starts_with(beginning)) {
            let what = format!(
                "{package} or its tests are built on `{found}` ({brings}); `cargo tree -p {package} -e normal,build,dev -i {found}` \
                 names the way to it: take that dependency out, or move what needs it to an outer package"
            );
            findings.push(manifest.finding(0, what));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::{file, shown};
    use super::*;

    #[test]
    fn a_heavy_library_is_found_behind_a_test_too() {
        let manifest = file("crates/policy/Cargo.toml", "");
        let light = "forebay-policy v0.1.0 (/w)\nserde v1.0.2\n\nproptest v1.9.0\n";
        assert!(compare(&manifest, "forebay-policy", &[KAFKA, AWS, SQLITE], light).is_empty());
        let heavy = format!("{light}rdkafka-sys v4.9.0\nrdkafka v0.39.0\naws-sdk-sqs v1.0.0\n");
        let found = shown(&compare(&manifest, "forebay-policy", &[KAFKA, AWS, SQLITE], &heavy));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("crates/policy/Cargo.toml: forebay-policy or its tests are built on `rdkafka`"));
        assert!(found[1].contains("`aws-sdk-sqs` (AWS's clients"), "{found:?}");
    }

    #[test]
    fn the_kernel_is_tested_without_the_planner() {
        let manifest = file("crates/kernel/Cargo.toml", "");
        let (name, heavy) = LIGHT[0];
        let tree = "forebay-kernel v0.1.0 (/w)\nforebay-engine v0.1.0 (/w)\n";
        assert_eq!(compare(&manifest, name, heavy, tree).len(), 1);
        assert_eq!(compare(&manifest, "forebay-engine", LIGHT[1].1, "forebay-engine v0.1.0 (/w)\n"), []);
    }

    #[test]
    fn a_package_that_has_another_name_is_a_finding() {
        let package = |name: &str| Package { name: name.to_owned(), ..Package::default() };
        let mut packages: Vec<Package> = LIGHT.iter().map(|(name, _)| package(name)).collect();
        assert_eq!(gone(&packages), []);
        packages[0] = package("forebay-core");
        let said = "xtask/src/tidy/weight.rs: `forebay-kernel` is no package of the workspace; name it here as it is called now";
        assert_eq!(shown(&gone(&packages)), [said]);
    }
}
