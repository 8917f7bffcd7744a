//! Tools of cargo's that are not part of it: cargo-deny reads what Cargo.lock links against `deny.toml` (licences, bans, sources), and
//! cargo-cyclonedx writes the bill of materials.
//!
//! Each is built once from its own locked dependencies, in a folder that is removed afterwards.
//! Never: a version that is not the pinned one, or one that happens to be on the path.

use std::path::PathBuf;

use crate::guarded::guarded;
use crate::install::{self, BUILD_LIMIT, Recipe, install};
use crate::{PartError, cache};

/// A cargo-deny that is installed.
#[derive(Clone, Debug)]
pub struct CargoDeny {
    folder: PathBuf,
}

impl CargoDeny {
    /// Builds it into a folder of its own in the cache where it is not there yet, and prints that it does.
    ///
    /// # Errors
    /// When there is no cargo, its packages cannot be fetched, or its build fails.
    pub fn install() -> Result<Self, PartError> {
        let pins = "cargo-deny 0.20.2, --locked, opt-level 1, lto off";
        Ok(Self { folder: build("cargo-deny", "0.20.2", pins)? })
    }

    /// The program, which takes the same arguments as `cargo deny`.
    pub fn program(&self) -> PathBuf {
        self.folder.join("bin/cargo-deny")
    }
}

/// A cargo-cyclonedx that is installed.
#[derive(Clone, Debug)]
pub struct CargoCyclonedx {
    folder: PathBuf,
}

impl CargoCyclonedx {
    /// Builds it into a folder of its own in the cache where it is not there yet, and prints that it does.
    ///
    /// # Errors
    /// When there is no cargo, its packages cannot be fetched, or its build fails.
    pub fn install() -> Result<Self, PartError> {
        let pins = "cargo-cyclonedx 0.5.9, --locked, opt-level 1, lto off";
        Ok(Self { folder: build("cargo-cyclonedx", "0.5.9", pins)? })
    }

    /// The program, whose first argument is `cyclonedx`.
    pub fn program(&self) -> PathBuf {
        self.folder.join("bin/cargo-cyclonedx")
    }
}

/// Builds a tool where it is not there yet: its folder, in which it is in `bin`. They read a few megabytes of text once, so they are built
/// quickly rather than to be quick.
fn build(tool: &str, version: &str, pins: &str) -> Result<PathBuf, PartError> {
    let recipe = Recipe {
        what: &format!("{tool} {version}"),
        from: "cargo install, a build of minutes, some 10 MB on disk",
        name: format!("{tool}-{version}"),
        pins,
        proof: &format!("bin/{tool}"),
    };
    install(&cache()?, &recipe, |new| {
        let build = new.join("build");
        let mut command = guarded(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.args(["install", tool, "--version", version, "--locked", "--root"]).arg(new);
        command.arg("--target-dir").arg(&build).current_dir(new);
        for (name, value) in [("LTO", "off"), ("OPT_LEVEL", "1"), ("CODEGEN_UNITS", "16"), ("DEBUG", "false")] {
            command.env(format!("CARGO_PROFILE_RELEASE_{name}"), value);
        }
        install::run("cargo install", &mut command, &new.join("install.log"), BUILD_LIMIT)?;
        std::fs::remove_dir_all(&build).map_err(PartError::file(&build))
    })
}
