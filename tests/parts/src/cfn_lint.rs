//! cfn-lint: reads a CloudFormation template as CloudFormation does, with the schemas of every resource.
//!
//! Never: a call to AWS; the schemas come with it.

use std::path::{Path, PathBuf};
use std::process::Output;

use crate::PartError;
use crate::install::Recipe;
use crate::venv::{environment, output, python, script};

const REQUIREMENTS: &str = include_str!("../../../deploy/aws/requirements.txt");

/// Decodes a template, short forms such as `!Sub` written out, to JSON.
const TO_JSON: &str =
    "import json, sys; from cfnlint.decode import cfn_yaml; print(json.dumps(cfn_yaml.load(sys.argv[1])))";

/// A cfn-lint that is installed.
#[derive(Clone, Debug)]
pub struct CfnLint {
    folder: PathBuf,
}

impl CfnLint {
    /// Installs it into an environment of its own in the cache where it is not there yet, and prints that it does.
    ///
    /// # Errors
    /// When there is no Python that it runs on, or its packages cannot be fetched.
    pub fn install() -> Result<Self, PartError> {
        let recipe = Recipe {
            what: "cfn-lint 1.58.0",
            from: "pip, 9 packages, 150 MB on disk",
            name: "cfn-lint-1.58.0".to_owned(),
            pins: REQUIREMENTS,
            proof: "bin/cfn-lint",
        };
        Ok(Self { folder: environment(&recipe)? })
    }

    /// What it reports about a template, down to its hints. Its exit code is 0 when it reports nothing.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn lint(&self, template: &Path) -> Result<Output, PartError> {
        let mut command = script(&self.folder, "cfn-lint");
        output("cfn-lint", command.args(["--include-checks", "I", "--template"]).arg(template))
    }

    /// A template as JSON, with its short forms written out.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn to_json(&self, template: &Path) -> Result<Output, PartError> {
        output("cfn-lint", python(&self.folder).args(["-c", TO_JSON]).arg(template))
    }
}
