//! What the configuration says of access to AWS, wherever it is needed.
//!
//! Never: a key in the file.

use super::secret::Secret;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// An access key.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AwsKeys {
    /// Where the access key's id is.
    pub id: Secret,
    /// Where its secret is.
    pub secret: Secret,
}

impl AwsKeys {
    /// Lets relative paths start at `folder`.
    pub(super) fn start_at(&mut self, folder: &Path) {
        self.id.start_at(folder);
        self.secret.start_at(folder);
    }

    /// Both, each with whose it is: `section` is where they stand.
    pub fn secrets(&self, section: &str) -> [(String, &Secret); 2] {
        [(format!("{section} `keys.id`"), &self.id), (format!("{section} `keys.secret`"), &self.secret)]
    }
}
