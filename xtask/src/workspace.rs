//! Where things are: the root of the workspace, its target folder, its packages, their targets and what they depend on.
//!
//! All of it comes from `cargo metadata`, so that a chore agrees with cargo whatever is set in the environment.
//! Never: a package from outside the workspace.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::ChoreFailure;
use crate::command::{capture, cargo};

/// What `cargo metadata --no-deps` has about the workspace.
#[derive(Deserialize)]
pub struct Workspace {
    #[serde(rename = "workspace_root")]
    root: PathBuf,
    #[serde(rename = "target_directory")]
    target: PathBuf,
    packages: Vec<Package>,
}

/// One package of the workspace.
#[derive(Debug, Default, Deserialize)]
pub struct Package {
    /// As cargo names it.
    pub name: String,
    /// Its Cargo.toml, from the root, with `/`.
    #[serde(rename = "manifest_path")]
    pub manifest: String,
    /// What it depends on within the workspace, each package once a kind, in order.
    #[serde(rename = "dependencies")]
    pub edges: Vec<DependencyEdge>,
    /// What it depends on from elsewhere, in the same way.
    #[serde(skip)]
    pub libraries: Vec<DependencyEdge>,
    /// Its library, programs, tests, benches and examples.
    pub targets: Vec<CargoTarget>,
}

/// One target of a package.
#[derive(Debug, Deserialize)]
pub struct CargoTarget {
    /// `lib`, `bin`, `test`, `bench`, `example`, ...
    kind: Vec<String>,
    /// As cargo names it.
    pub name: String,
    /// Its first file, from the root, with `/`.
    #[serde(rename = "src_path")]
    pub source: String,
    /// Whether `cargo test` runs it.
    #[serde(default, rename = "test")]
    pub tested: bool,
}

/// One dependency of a package on another one of the workspace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct DependencyEdge {
    /// The package that is depended on.
    #[serde(rename = "name")]
    pub to: String,
    /// Whether only tests, benches and examples have it. Else it is a normal or a build dependency.
    #[serde(rename = "kind", deserialize_with = "is_dev")]
    pub dev: bool,
    /// Its folder; nothing for a package from a registry.
    pub path: Option<PathBuf>,
}

fn is_dev<'de, D: serde::Deserializer<'de>>(kind: D) -> Result<bool, D::Error> {
    Ok(Option::<String>::deserialize(kind)?.as_deref() == Some("dev"))
}

impl Workspace {
    /// Asks cargo. Fails outside a workspace.
    pub fn find() -> Result<Self, ChoreFailure> {
        let mut ask = cargo(Path::new("."));
        ask.args(["metadata", "--no-deps", "--format-version", "1"]);
        let text = capture(&mut ask)?;
        Self::read(&text).map_err(|e| ChoreFailure::new(format!("cargo metadata: {e}")))
    }

    fn read(metadata: &str) -> serde_json::Result<Self> {
        let mut workspace: Self = serde_json::from_str(metadata)?;
        let names: Vec<String> = workspace.packages.iter().map(|package| package.name.clone()).collect();
        for package in &mut workspace.packages {
            let within = |edge: &DependencyEdge| edge.path.is_some() && names.contains(&edge.to);
            (package.edges, package.libraries) = std::mem::take(&mut package.edges).into_iter().partition(within);
            package.libraries.retain(|edge| edge.path.is_none());
            for edges in [&mut package.edges, &mut package.libraries] {
                edges.sort();
                edges.dedup();
            }
            let sources = package.targets.iter_mut().map(|target| &mut target.source);
            for path in sources.chain([&mut package.manifest]) {
                let from_root = Path::new(path).strip_prefix(&workspace.root).unwrap_or(Path::new(path));
                *path = from_root.to_string_lossy().replace('\\', "/");
            }
        }
        Ok(workspace)
    }

    /// The folder that holds the workspace's Cargo.toml.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where cargo puts what it builds, and chores what they make.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Where `cargo build --release -p forebay` puts the binary.
    pub fn forebay_binary(&self) -> PathBuf {
        self.built("release", "forebay")
    }

    /// Where a debug build puts the program of this name.
    pub fn debug(&self, program: &str) -> PathBuf {
        self.built("debug", program)
    }

    fn built(&self, profile: &str, program: &str) -> PathBuf {
        self.target.join(profile).join(format!("{program}{}", std::env::consts::EXE_SUFFIX))
    }

    /// Every package, in cargo's order.
    pub fn packages(&self) -> &[Package] {
        &self.packages
    }

    /// The package of that name, if it is there.
    pub fn package(&self, name: &str) -> Option<&Package> {
        self.packages.iter().find(|package| package.name == name)
    }

    /// The targets of one kind (`bench`, `example`, ...) as (package, target), in order.
    pub fn targets(&self, kind: &str) -> Vec<(String, String)> {
        let mut found = Vec::new();
        for package in &self.packages {
            let of_kind = package.of_kind(kind);
            found.extend(of_kind.map(|target| (package.name.clone(), target.name.clone())));
        }
        found.sort();
        found
    }
}

impl CargoTarget {
    /// Whether it is a file of tests by itself, and not a library or a program with tests in it.
    pub fn is_test_file(&self) -> bool {
        self.kind.first().is_some_and(|kind| kind == "test")
    }
}

impl Package {
    /// Its folder, from the root, with `/`; nothing for the root itself.
    pub fn folder(&self) -> &str {
        self.manifest.rsplit_once('/').map_or("", |(folder, _)| folder)
    }

    /// The first file of its library, from the root, with `/`; nothing where it is a program alone.
    pub fn library(&self) -> Option<&str> {
        self.of_kind("lib").next().map(|target| target.source.as_str())
    }

    /// The first file of its program, in the same way.
    pub fn binary(&self) -> Option<&str> {
        self.of_kind("bin").next().map(|target| target.source.as_str())
    }

    fn of_kind(&self, kind: &str) -> impl Iterator<Item = &CargoTarget> {
        self.targets.iter().filter(move |target| target.kind.first().is_some_and(|first| first == kind))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn packages_are_read_with_their_edges_within_the_workspace() {
        let metadata = json!({
            "workspace_root": "/w",
            "target_directory": "/t",
            "packages": [
                {
                    "name": "inner",
                    "manifest_path": "/w/crates/inner/Cargo.toml",
                    "targets": [{ "kind": ["lib"], "name": "inner", "src_path": "/w/crates/inner/src/lib.rs" }],
                    "dependencies": [{ "name": "serde", "kind": null }],
                },
                {
                    "name": "outer",
                    "manifest_path": "/w/Cargo.toml",
                    "targets": [{ "kind": ["bin"], "name": "outer", "src_path": "/w/src/main.rs" }],
                    "dependencies": [
                        { "name": "inner", "kind": "dev", "path": "/w/crates/inner" },
                        { "name": "inner", "kind": null, "path": "/w/crates/inner" },
                        { "name": "inner", "kind": "build", "path": "/w/crates/inner" },
                        { "name": "elsewhere", "kind": null, "path": "/elsewhere" },
                    ],
                },
            ],
        });
        let workspace = Workspace::read(&metadata.to_string()).unwrap();
        let inner = workspace.package("inner").unwrap();
        assert_eq!(inner.library(), Some("crates/inner/src/lib.rs"));
        assert!(inner.edges.is_empty());
        assert_eq!(inner.libraries.iter().map(|edge| edge.to.as_str()).collect::<Vec<_>>(), ["serde"]);
        let outer = workspace.package("outer").unwrap();
        assert_eq!((outer.manifest.as_str(), outer.library()), ("Cargo.toml", None));
        let edges: Vec<(&str, bool)> = outer.edges.iter().map(|edge| (edge.to.as_str(), edge.dev)).collect();
        assert_eq!(edges, [("inner", false), ("inner", true)]);
        assert!(outer.libraries.is_empty(), "a package by its path is of no registry");
        assert_eq!(workspace.targets("bin"), [("outer".to_owned(), "outer".to_owned())]);
    }
}
