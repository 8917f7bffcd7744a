//! `cost:` in `forebay.yaml`: where bills are written without being asked for.
//!
//! Never: a credential, or another place than a folder; what has credentials copies files on from there.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The controller has no client that writes to stores.
const NO_FOLDER: &str = "`cost.focus.folder` is an address, and files are written to a folder alone: name a folder, and copy it on, such as \
                         with `aws s3 sync` (docs/BILLING.md)";

/// Where bills are written without being asked for.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CostConfig {
    /// The bill of each closed day as a FOCUS 1.2 dataset. Default: only `forebay cost --focus` and `GET /v1/cost/focus` make one.
    pub focus: Option<FocusConfig>,
}

/// The bill of each closed day as a FOCUS 1.2 dataset.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FocusConfig {
    /// A folder for `focus-YYYY-MM-DD.csv`, a file a day of the billing zone, from this file's folder on. It is made where it is not there.
    pub folder: PathBuf,
}

impl CostConfig {
    /// Lets relative paths start at `folder`.
    pub(super) fn start_at(&mut self, folder: &Path) {
        if let Some(focus) = &mut self.focus {
            focus.folder = folder.join(&focus.folder);
        }
    }

    /// Refuses what is no folder.
    pub(super) fn check(&self) -> Result<(), String> {
        let is_address = |focus: &FocusConfig| focus.folder.to_string_lossy().contains("://");
        if self.focus.as_ref().is_some_and(is_address) { Err(NO_FOLDER.to_owned()) } else { Ok(()) }
    }
}

impl super::Config {
    /// Where the datasets of closed days are written. `None`: nowhere.
    #[must_use]
    pub fn focus_folder(&self) -> Option<&Path> {
        Some(&self.cost.as_ref()?.focus.as_ref()?.folder)
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{Config, ConfigError};
    use std::path::Path;

    fn read(cost: &str) -> Result<Config, ConfigError> {
        let text = format!("apiVersion: forebay/v1\nkind: Config\ncost: {cost}\n");
        Config::parse(Path::new("/etc/forebay/forebay.yaml"), &text)
    }

    #[test]
    fn the_folder_starts_at_the_file_and_is_none_where_nothing_is_said() {
        for (cost, folder) in [
            ("{focus: {folder: focus}}", Some("/etc/forebay/focus")),
            ("{focus: {folder: /var/lib/forebay/focus}}", Some("/var/lib/forebay/focus")),
            ("{}", None),
        ] {
            assert_eq!(read(cost).expect(cost).focus_folder(), folder.map(Path::new), "{cost}");
        }
        assert_eq!(Config::default().focus_folder(), None);
    }

    #[test]
    fn what_is_no_folder_is_refused_with_the_way_to_go() {
        for (cost, part) in [
            ("{focus: {folder: 's3://bills/forebay'}}", "aws s3 sync"),
            ("{focus: {}}", "folder"),
            ("{focus: {folder: a, prefix: b}}", "prefix"),
        ] {
            let error = read(cost).expect_err(cost).to_string();
            assert!(error.contains(part) && error.contains("forebay.yaml"), "{error}");
        }
    }
}
