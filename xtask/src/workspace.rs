//! Where things are: the root of the workspace, its target folder, its packages, their targets and what they depend on.
//!
//! All of it comes from `cargo metadata`, so that a chore agrees with cargo whatever is set in the environment.
//! Never: a package from outside the workspace.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::ChoreFailure;
use crate::command::{capture, cargo};

/// What `cargo metadata --no-deps` has about the workspace.
pub struct Workspace {
    root: PathBuf,
    target: PathBuf,
    packages: Vec<Package>,
}

/// One package of the workspace.
#[derive(Debug, Default)]
pub struct Package {
    /// As cargo names it.
    pub name: String,
    /// Its Cargo.toml, from the root, with `/`.
    pub manifest: String,
    /// The first file of its library, from the root, with `/`; nothing where it is a program alone.
    pub library: Option<String>,
    /// The first file of its program, in the same way.
    pub binary: Option<String>,
    /// What it depends on within the workspace, each package once a kind, in order.
    pub edges: Vec<DependencyEdge>,
    /// Its library, programs, tests, benches and examples.
    pub targets: Vec<CargoTarget>,
}

/// One target of a package.
#[derive(Debug)]
pub struct CargoTarget {
    /// `lib`, `bin`, `test`, `bench`, `example`, ...
    pub kind: String,
    /// As cargo names it.
    pub name: String,
    /// Its first file, from the root, with `/`.
    pub source: String,
    /// Whether `cargo test` runs it.
    pub tested: bool,
}

/// One dependency of a package on another one of the workspace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DependencyEdge {
    /// The package that is depended on.
    pub to: String,
    /// Whether only tests, benches and examples have it. Else it is a normal or a build dependency.
    pub dev: bool,
}

impl Workspace {
    /// Asks cargo. Fails outside a workspace.
    pub fn find() -> Result<Self, ChoreFailure> {
        let mut ask = cargo(Path::new("."));
        ask.args(["metadata", "--no-deps", "--format-version", "1"]);
        let text = capture(&mut ask)?;
        let metadata: Value =
            serde_json::from_str(&text).map_err(|e| ChoreFailure::new(format!("cargo metadata: not JSON: {e}")))?;
        Self::of(&metadata)
    }

    fn of(metadata: &Value) -> Result<Self, ChoreFailure> {
        let path = |key: &str| {
            let value = metadata[key].as_str();
            value
                .map(PathBuf::from)
                .ok_or_else(|| ChoreFailure::new(format!("cargo metadata: no `{key}` in its answer")))
        };
        let root = path("workspace_root")?;
        let listed = items(&metadata["packages"]);
        let names: Vec<String> = listed.iter().map(|package| text(&package["name"])).collect();
        let packages = listed.iter().map(|package| read_package(package, &root, &names)).collect();
        Ok(Self { root, target: path("target_directory")?, packages })
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
        self.release("forebay")
    }

    /// Where a release build puts the program of this name.
    pub fn release(&self, program: &str) -> PathBuf {
        self.target.join("release").join(format!("{program}{}", std::env::consts::EXE_SUFFIX))
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
            let of_kind = package.targets.iter().filter(|target| target.kind == kind);
            found.extend(of_kind.map(|target| (package.name.clone(), target.name.clone())));
        }
        found.sort();
        found
    }
}

impl Package {
    /// Its folder, from the root, with `/`; nothing for the root itself.
    pub fn folder(&self) -> &str {
        self.manifest.rsplit_once('/').map_or("", |(folder, _)| folder)
    }
}

fn read_package(package: &Value, root: &Path, names: &[String]) -> Package {
    let from_root = |path: &Value| {
        let path = PathBuf::from(text(path));
        path.strip_prefix(root).unwrap_or(&path).to_string_lossy().replace('\\', "/")
    };
    let targets: Vec<CargoTarget> = items(&package["targets"])
        .iter()
        .map(|target| CargoTarget {
            kind: items(&target["kind"]).first().map(text).unwrap_or_default(),
            name: text(&target["name"]),
            source: from_root(&target["src_path"]),
            tested: target["test"] == true,
        })
        .collect();
    let source = |kind: &str| targets.iter().find(|target| target.kind == kind).map(|target| target.source.clone());
    let (library, binary) = (source("lib"), source("bin"));
    let within = items(&package["dependencies"]).iter().filter(|edge| edge["path"].is_string());
    let within = within.map(|edge| DependencyEdge { to: text(&edge["name"]), dev: edge["kind"] == "dev" });
    let mut edges: Vec<DependencyEdge> = within.filter(|edge| names.contains(&edge.to)).collect();
    edges.sort();
    edges.dedup();
    Package {
        name: text(&package["name"]),
        manifest: from_root(&package["manifest_path"]),
        library,
        binary,
        edges,
        targets,
    }
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
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
        let workspace = Workspace::of(&metadata).unwrap();
        let inner = workspace.package("inner").unwrap();
        assert_eq!(inner.library.as_deref(), Some("crates/inner/src/lib.rs"));
        assert!(inner.edges.is_empty());
        let outer = workspace.package("outer").unwrap();
        assert_eq!((outer.manifest.as_str(), outer.library.as_deref()), ("Cargo.toml", None));
        let edges =
            [DependencyEdge { to: "inner".into(), dev: false }, DependencyEdge { to: "inner".into(), dev: true }];
        assert_eq!(outer.edges, edges);
        assert_eq!(workspace.targets("bin"), [("outer".to_owned(), "outer".to_owned())]);
    }
}
