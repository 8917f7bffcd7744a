//! Helm, as a command that renders and lints charts.
//!
//! Never: a release, a repository, a plugin, a setting of the caller's, the network.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::PartError;
use crate::go_module::{GoModule, build};
use crate::guarded::guarded;
use crate::install;

const MODULE: GoModule = GoModule {
    what: "Helm 3.19.5",
    from: "Go, a build of four minutes, 60 MB on disk",
    name: "helm",
    version: "3.19.5",
    go_mod: include_str!("../kube/helm/go.mod"),
    go_sum: include_str!("../kube/helm/go.sum"),
    flags: "-s -w -X helm.sh/helm/v3/internal/version.version=v3.19.5",
    programs: &[("helm.sh/helm/v3/cmd/helm", "helm")],
};

/// What a chart is told of its cluster: the version that the tests start.
const KUBERNETES: &str = "1.34.4";

/// A chart of ours is rendered within a second.
const LIMIT: Duration = Duration::from_secs(60);

/// A Helm that is installed.
#[derive(Clone, Debug)]
pub struct Helm {
    program: PathBuf,
}

impl Helm {
    /// Builds it into the cache where it is not there yet, and prints that it does.
    ///
    /// # Errors
    /// When there is no Go, its modules cannot be fetched, or the build fails.
    pub fn install() -> Result<Self, PartError> {
        Ok(Self { program: build(&MODULE)?.join("helm") })
    }

    /// The objects of a chart with these values, which are YAML, as YAML documents.
    ///
    /// # Errors
    /// When the values do not fit the chart, or the chart is wrong; in Helm's words.
    pub fn template(&self, chart: &Path, values: &str, release: &str, namespace: &str) -> Result<String, PartError> {
        let folder = install::temporary("forebay-helm-")?;
        let [out, log] = ["out", "log"].map(|name| folder.path().join(name));
        let mut command = self.command(&folder);
        command.args(["template", release, "--namespace", namespace, "--kube-version", KUBERNETES]);
        command.arg(chart).arg("--values").arg(written(&folder, values)?);
        let printed = fs::File::create(&out).map_err(PartError::file(&out))?;
        install::run_printing("helm template", command.stdout(Stdio::from(printed)), &log, LIMIT)?;
        fs::read_to_string(&out).map_err(PartError::file(&out))
    }

    /// What it reports about a chart with these values. Warnings are errors.
    ///
    /// # Errors
    /// When it reports a warning or an error.
    pub fn lint(&self, chart: &Path, values: &str) -> Result<String, PartError> {
        let folder = install::temporary("forebay-helm-")?;
        let log = folder.path().join("log");
        let mut command = self.command(&folder);
        command.args(["lint", "--strict", "--kube-version", KUBERNETES]);
        command.arg(chart).arg("--values").arg(written(&folder, values)?);
        install::run("helm lint", &mut command, &log, LIMIT)?;
        fs::read_to_string(&log).map_err(PartError::file(&log))
    }

    /// Helm with folders of its own and without a cluster.
    fn command(&self, folder: &TempDir) -> Command {
        let mut command = guarded(&self.program);
        command.env_clear().env("HOME", folder.path()).current_dir(folder.path());
        for (variable, name) in [
            ("HELM_CACHE_HOME", "cache"),
            ("HELM_CONFIG_HOME", "config"),
            ("HELM_DATA_HOME", "data"),
            ("KUBECONFIG", "none"),
        ] {
            command.env(variable, folder.path().join(name));
        }
        command
    }
}

/// A file with values.
fn written(folder: &TempDir, values: &str) -> Result<PathBuf, PartError> {
    let file = folder.path().join("values.yaml");
    fs::write(&file, values).map_err(PartError::file(&file))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pinned_version_is_that_of_the_module() {
        MODULE.check();
        assert!(MODULE.go_mod.contains(&format!("\thelm.sh/helm/v3 v{} // indirect\n", MODULE.version)));
        assert!(MODULE.flags.ends_with(&format!("version=v{}", MODULE.version)));
    }
}
