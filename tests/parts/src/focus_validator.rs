//! focus-validator: reads a bill, and says which rules of FOCUS it keeps.
//!
//! Never: a call to the network; the rules come with it.

use std::path::{Path, PathBuf};
use std::process::Output;

use crate::PartError;
use crate::install::Recipe;
use crate::venv::{environment, output, script};

const REQUIREMENTS: &str = include_str!("../focus/requirements.txt");

/// Where its files with rules are: it looks for them from the folder that it runs in.
const PACKAGES: &str = "lib/python3.13/site-packages";

/// A focus-validator that is installed.
#[derive(Clone, Debug)]
pub struct FocusValidator {
    folder: PathBuf,
}

impl FocusValidator {
    /// Installs it into an environment of its own in the cache where it is not there yet, and prints that it does.
    ///
    /// # Errors
    /// When there is no Python that it runs on, or its packages cannot be fetched.
    pub fn install() -> Result<Self, PartError> {
        let recipe = Recipe {
            what: "focus-validator 2.2.1",
            from: "pip, 28 packages, 600 MB on disk",
            name: "focus-validator-2.2.1".to_owned(),
            pins: REQUIREMENTS,
            proof: "bin/focus-validator",
        };
        Ok(Self { folder: environment(&recipe)? })
    }

    /// What it says of each rule of a version such as `1.2`, a line a rule. Its exit code is 0 even where a rule is broken.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn validate(&self, csv: &Path, version: &str) -> Result<Output, PartError> {
        let mut command = script(&self.folder, "focus-validator");
        command.arg("--data-file").arg(csv).args(["--validate-version", version, "--block-download"]);
        output("focus-validator", command.current_dir(self.folder.join(PACKAGES)))
    }
}
