//! cargo-deny: reads what Cargo.lock links against `deny.toml` (licences, bans, sources).
//!
//! Built once from its own locked dependencies, in a folder that is removed afterwards.
//! Never: a version that is not the pinned one, or one that happens to be on the path.

use std::path::PathBuf;

use crate::guarded::guarded;
use crate::install::{self, BUILD_LIMIT, Recipe, install};
use crate::{PartError, cache};

/// The version, and what its build is for: it reads a few megabytes of text once, so it is built quickly rather than to be quick.
const PINS: &str = "cargo-deny 0.20.2, --locked, opt-level 1, lto off";

/// The same version as cargo wants it.
const VERSION: &str = "0.20.2";

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
        let recipe = Recipe {
            what: "cargo-deny 0.20.2",
            from: "cargo install, a build of minutes, 11 MB on disk",
            name: format!("cargo-deny-{VERSION}"),
            pins: PINS,
            proof: "bin/cargo-deny",
        };
        let folder = install(&cache()?, &recipe, |new| {
            let build = new.join("build");
            let mut command = guarded(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
            command.args(["install", "cargo-deny", "--version", VERSION, "--locked", "--root"]).arg(new);
            command.arg("--target-dir").arg(&build).current_dir(new);
            for (name, value) in [("LTO", "off"), ("OPT_LEVEL", "1"), ("CODEGEN_UNITS", "16"), ("DEBUG", "false")] {
                command.env(format!("CARGO_PROFILE_RELEASE_{name}"), value);
            }
            install::run("cargo install cargo-deny", &mut command, &new.join("install.log"), BUILD_LIMIT)?;
            std::fs::remove_dir_all(&build).map_err(PartError::file(&build))
        })?;
        Ok(Self { folder })
    }

    /// The program, which takes the same arguments as `cargo deny`.
    pub fn program(&self) -> PathBuf {
        self.folder.join("bin/cargo-deny")
    }
}
