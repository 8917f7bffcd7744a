//! `forebay.yaml`: where `forebay run` listens, keeps its journal, and which policy it follows. These comments are its documentation.
//!
//! Never: a key that is not known here; a misspelt one is told with its place.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The configuration of `forebay run`. Flags on the command line go before it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(title = "Forebay configuration")]
pub struct Config {
    /// Always `forebay/v1`.
    pub api_version: ConfigVersion,
    /// Always `Config`.
    pub kind: ConfigKind,
    /// Where the API and the page listen, such as `127.0.0.1:8080`. There are no tokens yet: listen on loopback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub listen: Option<SocketAddr>,
    /// Folder of the journal, from this file's folder on. Default: `./forebay-data`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<PathBuf>,
    /// The policy's file, from this file's folder on. Default: the built-in `policies/teams.yaml`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PathBuf>,
}

/// The version of the configuration's format.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub enum ConfigVersion {
    /// The first.
    #[default]
    #[serde(rename = "forebay/v1")]
    V1,
}

/// What kind of document this is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub enum ConfigKind {
    /// A configuration.
    #[default]
    Config,
}

/// Why a configuration cannot be used: what the reader said, with the line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {problem}\n  = help: `forebay schema config` says what may stand here")]
pub struct ConfigError {
    path: String,
    problem: String,
}

impl Config {
    /// Reads a configuration; its paths are taken from the folder of `path`.
    ///
    /// # Errors
    /// What is wrong, with its line.
    pub fn parse(path: &Path, text: &str) -> Result<Config, ConfigError> {
        let refused = |problem: String| ConfigError { path: path.display().to_string(), problem };
        let mut config: Config = serde_saphyr::from_str(text).map_err(|e| refused(e.to_string()))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        for place in [&mut config.data, &mut config.policy].into_iter().flatten() {
            *place = folder.join(&*place);
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_start_at_the_file_and_unknown_keys_are_told() {
        let good = "apiVersion: forebay/v1\nkind: Config\nlisten: 127.0.0.1:9090\npolicy: p.yaml\n";
        let config = Config::parse(Path::new("etc/forebay.yaml"), good).expect("reads");
        assert_eq!(config.policy.as_deref(), Some(Path::new("etc/p.yaml")));
        assert_eq!(config.listen.map(|l| l.port()), Some(9090));
        let error = Config::parse(Path::new("f.yaml"), "apiVersion: forebay/v1\nkind: Config\nlisen: 1.2.3.4:80\n");
        let text = error.expect_err("a fault").to_string();
        assert!(text.contains("lisen") && text.contains("f.yaml"), "{text}");
    }
}
