//! Where things are: the root of the workspace, its target folder, its packages and targets.
//!
//! All of it comes from `cargo metadata`, so that a chore agrees with cargo whatever is set in the environment.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::Failure;
use crate::command::{capture, cargo};

/// What `cargo metadata --no-deps` says of the workspace.
pub struct Workspace {
    root: PathBuf,
    target: PathBuf,
    metadata: Value,
}

impl Workspace {
    /// Asks cargo. Fails outside a workspace.
    pub fn find() -> Result<Self, Failure> {
        let mut ask = cargo(Path::new("."));
        ask.args(["metadata", "--no-deps", "--format-version", "1"]);
        let text = capture(&mut ask)?;
        let metadata: Value =
            serde_json::from_str(&text).map_err(|e| Failure::new(format!("cargo metadata: not JSON: {e}")))?;
        let path = |key: &str| {
            let value = metadata[key].as_str();
            value.map(PathBuf::from).ok_or_else(|| Failure::new(format!("cargo metadata: no `{key}` in its answer")))
        };
        Ok(Self { root: path("workspace_root")?, target: path("target_directory")?, metadata })
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
        self.target.join("release").join(format!("forebay{}", std::env::consts::EXE_SUFFIX))
    }

    /// The targets of one kind (`bench`, `example`, ...) as (package, target), in order.
    pub fn targets(&self, kind: &str) -> Vec<(String, String)> {
        let mut found = Vec::new();
        for package in items(&self.metadata["packages"]) {
            for target in items(&package["targets"]) {
                if items(&target["kind"]).iter().any(|k| k == kind) {
                    found.push((text(&package["name"]), text(&target["name"])));
                }
            }
        }
        found.sort();
        found
    }
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
