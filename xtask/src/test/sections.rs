//! The table of sections: what `cargo xtask test` runs, in which order, and the packages whose tests are in each.
//!
//! Every package of the workspace is in exactly one section; `cargo xtask tidy` fails on one that is in none.
//! Never: a command. `test/mod.rs` has those.

use crate::needs::Scope;

/// One section of `cargo xtask test`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// What it is called on the command line and in the closing table.
    pub name: &'static str,
    /// The packages whose tests run in it.
    pub packages: &'static [&'static str],
    /// What it builds and starts.
    pub scope: Scope,
    /// What runs in it.
    pub kind: Kind,
}

/// What runs in a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `cargo test` of its packages, and nothing else.
    Packages,
    /// The rules of `cargo xtask tidy`, then the tests of its packages.
    Tidy,
    /// Clippy over the workspace, a warning is an error.
    Clippy,
    /// Every test binary of the workspace at once; the sections below run them.
    Build,
    /// The examples in the documentation of every library.
    Examples,
    /// cargo-deny: licences, bans and sources.
    Deny,
    /// Real servers and the binary, then the tests of its packages.
    Integration,
    /// The committed schemas against those of the code.
    Schema,
    /// The seeded fault sweep.
    Sweep,
    /// Tests of other sections that belong together: what people are told, and may rely on. In a run of all they are where they stand.
    People,
}

const fn tests(name: &'static str, packages: &'static [&'static str], scope: Scope) -> Section {
    Section { name, packages, scope, kind: Kind::Packages }
}

const fn check(name: &'static str, scope: Scope, kind: Kind) -> Section {
    Section { name, packages: &[], scope, kind }
}

/// The sections in the order in which they run: what is quick and fails often comes first.
pub const SECTIONS: &[Section] = &[
    Section { name: "tidy", packages: &["xtask"], scope: Scope::Rust, kind: Kind::Tidy },
    check("deny", Scope::Rust, Kind::Deny),
    check("clippy", Scope::Controller, Kind::Clippy),
    check("build", Scope::Controller, Kind::Build),
    tests("kernel", &["forebay-kernel"], Scope::Rust),
    tests("engine", &["forebay-engine"], Scope::Rust),
    tests("catalog", &["forebay-quantity", "forebay-catalog"], Scope::Rust),
    tests("policy", &["forebay-policy"], Scope::Rust),
    tests("wire", &["forebay-wire"], Scope::Rust),
    tests("journal", &["forebay-journal"], Scope::Rust),
    tests("driver", &["forebay-driver"], Scope::Rust),
    tests("estimate", &["forebay-estimate"], Scope::Rust),
    tests("sim", &["forebay-sim"], Scope::Rust),
    tests("controller", &["forebay", "forebay-fuzz"], Scope::Controller),
    check("examples", Scope::Controller, Kind::Examples),
    Section {
        name: "integration",
        packages: &[
            "forebay-aws",
            "forebay-capacity-ec2",
            "forebay-checkpoint-s3",
            "forebay-cluster-kube",
            "forebay-kubelet",
            "forebay-loopback-ec2",
            "forebay-node-agent",
            "forebay-parts",
            "forebay-source",
            "forebay-source-kafka",
            "forebay-source-sqs",
            FROM_OUTSIDE,
        ],
        scope: Scope::Parts,
        kind: Kind::Integration,
    },
    check("schema", Scope::Controller, Kind::Schema),
    check("sweep", Scope::Rust, Kind::Sweep),
    check("people", Scope::Browser, Kind::People),
];

/// The test files of `cargo xtask test people`, by package: bills, answers, errors that mend, and policies that change.
pub const PEOPLE: [(&str, &[&str]); 3] = [
    ("forebay-sim", &["remedies", "start_estimates"]),
    ("forebay", &["bill", "demand", "document", "faithful", "mended", "reloads"]),
    (
        FROM_OUTSIDE,
        &[
            "answers",
            "brakes",
            "history",
            "lists",
            "metrics",
            "moved",
            "pages",
            "past",
            "policy_change",
            "policy_reload",
            "prometheus",
        ],
    ),
];

/// The package of the section `integration` whose tests start the binary; they run after those of the adapters, by themselves.
pub const FROM_OUTSIDE: &str = "forebay-integration";

/// The packages whose tests belong to `cargo xtask test integration ec2`, beside the test file of that name.
pub const EC2: &[&str] = &["forebay-capacity-ec2", "forebay-checkpoint-s3", "forebay-loopback-ec2"];

/// The packages whose tests are `cargo xtask test integration kube`.
pub const KUBE: &[&str] = &["forebay-cluster-kube", "forebay-kubelet"];

impl Section {
    /// The section of that name.
    pub fn named(name: &str) -> Option<Section> {
        SECTIONS.iter().copied().find(|section| section.name == name)
    }

    /// Whether tests run in it; the others are checks.
    pub fn has_tests(&self) -> bool {
        !self.packages.is_empty() || matches!(self.kind, Kind::Examples | Kind::People)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_and_packages_stand_once() {
        let names: BTreeSet<&str> = SECTIONS.iter().map(|section| section.name).collect();
        assert_eq!(names.len(), SECTIONS.len(), "{names:?}");
        let packages: Vec<&str> = SECTIONS.iter().flat_map(|section| section.packages).copied().collect();
        let once: BTreeSet<&str> = packages.iter().copied().collect();
        assert_eq!(once.len(), packages.len(), "{packages:?}");
        assert!(!names.contains("all"), "`all` is every section");
    }

    #[test]
    fn the_files_of_people_are_there() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for (package, files) in PEOPLE {
            let folder = root.join(match package {
                FROM_OUTSIDE => "tests/integration/tests",
                "forebay-sim" => "sim/tests",
                _ => "controller/tests",
            });
            for file in files {
                let there = folder.join(format!("{file}.rs")).exists() || folder.join(file).join("main.rs").exists();
                assert!(there, "{package} has no test file {file}");
            }
        }
    }

    #[test]
    fn the_parts_of_integration_are_in_it() {
        let integration = Section::named("integration").unwrap();
        assert!(EC2.iter().chain(KUBE).chain([&FROM_OUTSIDE]).all(|package| integration.packages.contains(package)));
    }
}
