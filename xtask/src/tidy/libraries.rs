//! Each library from elsewhere has its row in docs/DEPENDENCIES.md: what it is for, and where it is kept, as its own manifest says.
//!
//! ```text
//! Cargo.toml of each package   a library without a row, or under the wrong heading, is a finding, and so is a row without a library
//! cargo metadata               the address in the row is that of the library's `repository`
//! ```
//!
//! Never: licences and versions; deny.toml has those.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::{File, Finding, find};
use crate::ChoreFailure;
use crate::command::{capture, cargo};
use crate::workspace::{Package, Workspace};

/// The page.
const PAGE: &str = "docs/DEPENDENCIES.md";

/// The package whose program people run.
const PROGRAM: &str = "forebay";

/// The headings: what the program links, and the rest.
const HEADINGS: [&str; 2] = ["## In the program", "## In tests and chores alone"];

/// What `cargo metadata` has of every package in Cargo.lock.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Library>,
}

#[derive(Deserialize)]
struct Library {
    name: String,
    repository: Option<String>,
}

/// Compares the page with what the packages depend on, and with where cargo says that is kept.
pub fn check(workspace: &Workspace, files: &[File]) -> Result<Vec<Finding>, ChoreFailure> {
    let mut ask = cargo(workspace.root());
    ask.args(["metadata", "--locked", "--format-version", "1"]);
    let metadata: Metadata = serde_json::from_str(&capture(&mut ask)?)
        .map_err(|e| ChoreFailure::new(format!("cargo metadata: {e}; try it by hand")))?;
    let kept = metadata.packages.into_iter().map(|library| (library.name, library.repository.unwrap_or_default()));
    Ok(compare(&find(files, PAGE), workspace.packages(), &kept.collect()))
}

fn compare(page: &File, packages: &[Package], kept: &BTreeMap<String, String>) -> Vec<Finding> {
    let linked = linked(packages);
    let all: BTreeSet<&str> = packages.iter().flat_map(|package| &package.libraries).map(|it| it.to.as_str()).collect();
    let (mut findings, mut heading, mut rows) = (Vec::new(), "", BTreeSet::new());
    for (at, line) in (1..).zip(page.text.lines()) {
        heading = if line.starts_with("## ") { line } else { heading };
        let Some((name, rest)) = line.strip_prefix("| `").and_then(|line| line.split_once("` | ")) else { continue };
        let address = rest.trim_end_matches(" |").rsplit(" | ").next().unwrap_or_default();
        let right = HEADINGS[usize::from(!linked.contains(name))];
        if !all.contains(name) {
            findings.push(page.finding(at, format!("no package names `{name}`; remove its row")));
        } else if !rows.insert(name) {
            findings.push(page.finding(at, format!("`{name}` has a row already; keep one")));
        } else if heading != right {
            findings.push(page.finding(at, format!("`{name}` belongs under `{right}`; move its row there")));
        }
        if let Some(kept) = kept.get(name).map(|kept| short(kept)).filter(|kept| *kept != short(address)) {
            findings.push(page.finding(at, format!("`{name}` says that it is kept at {kept}; write that")));
        }
    }
    for name in all.difference(&rows) {
        let heading = HEADINGS[usize::from(!linked.contains(name))];
        let what =
            format!("`{name}` has no row; say under `{heading}` what it is for, and where it is kept: {}", kept[*name]);
        findings.push(page.finding(0, what));
    }
    findings
}

/// Everything from elsewhere that the program's package, or one that it is built on, names outside its tests.
fn linked(packages: &[Package]) -> BTreeSet<&str> {
    let (mut reached, mut to_do) = (BTreeSet::new(), vec![PROGRAM]);
    let mut linked = BTreeSet::new();
    while let Some(name) = to_do.pop() {
        let Some(package) = packages.iter().find(|package| package.name == name && reached.insert(name)) else {
            continue;
        };
        to_do.extend(package.edges.iter().filter(|edge| !edge.dev).map(|edge| edge.to.as_str()));
        linked.extend(package.libraries.iter().filter(|edge| !edge.dev).map(|edge| edge.to.as_str()));
    }
    linked
}

/// An address without what leads to the same place.
fn short(address: &str) -> &str {
    address.trim_end_matches('/').trim_end_matches(".git")
}

#[cfg(test)]
mod tests {
    use super::super::{file, shown};
    use super::*;
    use crate::workspace::DependencyEdge;

    fn package(name: &str, edges: &[(&str, bool)], libraries: &[(&str, bool)]) -> Package {
        let edge = |(to, dev): &(&str, bool)| DependencyEdge { to: (*to).to_owned(), dev: *dev, path: None };
        let [edges, libraries] = [edges, libraries].map(|edges| edges.iter().map(edge).collect());
        Package { name: name.to_owned(), edges, libraries, ..Package::default() }
    }

    fn findings(page: &str) -> Vec<String> {
        let packages = [
            package("forebay", &[("inner", false), ("parts", true)], &[("clap", false), ("insta", true)]),
            package("inner", &[], &[("serde", false)]),
            package("parts", &[], &[("tempfile", false)]),
        ];
        let kept =
            ["clap", "serde", "tempfile", "insta"].map(|name| (name.to_owned(), format!("https://x/{name}.git")));
        shown(&compare(&file(PAGE, page), &packages, &kept.into_iter().collect()))
    }

    const ROWS: &str = "## In the program\n\n| `clap` | arguments | https://x/clap |\n| `serde` | types | https://x/serde/ |\n\
                        ## In tests and chores alone\n\n| `insta` | texts | https://x/insta |\n| `tempfile` | folders | https://x/tempfile |\n";

    #[test]
    fn each_library_has_a_row_under_its_heading() {
        assert_eq!(findings(ROWS), [""; 0]);
        let missing = findings(&ROWS.replace("| `serde` | types | https://x/serde/ |\n", ""));
        assert_eq!(
            missing,
            [
                "docs/DEPENDENCIES.md: `serde` has no row; say under `## In the program` what it is for, and where it is kept: https://x/serde.git"
            ]
        );
    }

    #[test]
    fn a_row_is_of_a_library_and_true() {
        let found =
            findings(&format!("{ROWS}| `rand` | chance | https://x/rand |\n| `clap` | again | https://x/clap |\n"));
        assert_eq!(
            found,
            [
                "docs/DEPENDENCIES.md:9: no package names `rand`; remove its row",
                "docs/DEPENDENCIES.md:10: `clap` has a row already; keep one",
            ]
        );
        let moved = findings(
            &ROWS
                .replace("| `insta` | texts | https://x/insta |\n", "")
                .replace("| `clap`", "| `insta` | texts | https://x/clap |\n| `clap`"),
        );
        assert_eq!(
            moved,
            [
                "docs/DEPENDENCIES.md:3: `insta` belongs under `## In tests and chores alone`; move its row there",
                "docs/DEPENDENCIES.md:3: `insta` says that it is kept at https://x/insta; write that",
            ]
        );
    }
}
