//! `checkpoints:` in `forebay.yaml`: where the controller looks for what runs say they have saved.
//!
//! Never: a connection, or a key in the file.

use super::aws::AwsKeys;
use super::secret::Secret;
use forebay_kernel::units::Mib;
use forebay_quantity::Memory;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::Path;

/// Where checkpoints are looked at. What a run reports counts only once its manifest and files have been found there.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CheckpointsConfig {
    /// Addresses `s3://bucket/prefix/`. Default: they are refused.
    pub s3: Option<S3Config>,
    /// Addresses `file:///path/`, in a file system that the controller shares with the nodes. Whoever submits jobs can have the controller
    /// look at any folder that it may read. Default: they are refused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub files: bool,
    /// So much of one checkpoint is read and hashed where the store has no SHA-256 of its files. Default: 64MiB.
    pub read_at_most: Option<Memory>,
}

/// The S3 that checkpoints are in.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct S3Config {
    /// The region, such as `eu-central-1`. Default: that of the environment, the profile or the machine.
    pub region: Option<String>,
    /// Another endpoint than AWS's, such as `http://127.0.0.1:4566`; it is asked with the bucket in the path.
    pub endpoint: Option<String>,
    /// Keys, where the usual chain (environment, profile, container, machine) is not wanted.
    pub keys: Option<AwsKeys>,
    /// The only buckets that are asked, each by its name, or as `BUCKET/PREFIX/` where only what lies below that is asked; `forebay doctor`
    /// lists each. Default: whichever a job names.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub buckets: BTreeSet<String>,
}

impl CheckpointsConfig {
    /// Lets relative paths start at `folder`.
    pub(super) fn start_at(&mut self, folder: &Path) {
        if let Some(keys) = self.s3.as_mut().and_then(|s3| s3.keys.as_mut()) {
            keys.start_at(folder);
        }
    }

    /// Writes defaults down.
    pub(super) fn fill(&mut self) {
        self.read_at_most.get_or_insert(Memory(Mib(64)));
    }

    /// Keys, each with whose it is.
    pub fn secrets(&self) -> impl Iterator<Item = (String, &Secret)> {
        self.s3.iter().filter_map(|s3| s3.keys.as_ref()).flat_map(|keys| keys.secrets("checkpoints `s3`"))
    }
}
