//! kubectl as the administrator of one Kubernetes.
//!
//! Never: a setting of the caller's, a secret on a command line.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::settings;
use crate::guarded::guarded;
use crate::{PartError, install};

/// A kubectl that applies a file, or waits for a condition for as long as a test would.
const LIMIT: Duration = Duration::from_secs(120);

/// Its program, and the folder of the Kubernetes, with its kubeconfig.
#[derive(Clone, Debug)]
pub(super) struct Kubectl {
    program: PathBuf,
    folder: PathBuf,
}

impl Kubectl {
    pub(super) fn new(program: PathBuf, folder: &Path) -> Self {
        Self { program, folder: folder.to_owned() }
    }

    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    /// Runs it, with `input` for a `-f -`. What it printed, both outputs.
    pub(super) fn run(&self, arguments: &[&str], input: &str) -> Result<String, PartError> {
        let folder = install::temporary("forebay-kubectl-")?;
        let [file, log] = ["input", "output"].map(|name| folder.path().join(name));
        fs::write(&file, input).map_err(PartError::file(&file))?;
        let mut command = guarded(&self.program);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into()));
        // What it keeps of the API goes with the Kubernetes.
        command.env("HOME", &self.folder).env("KUBECONFIG", settings::kubeconfig_path(&self.folder));
        // A guarded program has no input of its own: a file takes the place of `-`.
        let file = file.to_string_lossy();
        let mut of_a_file = false;
        for argument in arguments {
            command.arg(if of_a_file && *argument == "-" { &file } else { *argument });
            of_a_file = *argument == "-f";
        }
        install::run("kubectl", &mut command, &log, LIMIT)?;
        fs::read_to_string(&log).map_err(PartError::file(&log))
    }
}
