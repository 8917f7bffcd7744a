//! Where checkpoints may be stored, and how long their verification may take. `Debug` output contains no secrets, and settings are
//! validated without a network.

use crate::address::CheckpointAddress;
use forebay_aws::{AwsSettings, is_valid_endpoint, printable};
use std::collections::BTreeSet;
use std::time::Duration;

/// The default for [`CheckpointSettings::read_at_most`].
const DEFAULT_READ_LIMIT: u64 = 64 << 20;

/// Where checkpoints may be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointSettings {
    /// The store for addresses `s3://bucket/prefix/`. `None`: such addresses are refused.
    pub s3: Option<S3Settings>,
    /// Whether addresses `file:///path/` are allowed. If they are, a job can make the controller read manifests in any folder.
    pub files: bool,
    /// The most bytes per manifest that are read and hashed because the store has no checksum of the files.
    pub read_at_most: u64,
    /// The time limits of a verification.
    pub timeouts: CheckpointTimeouts,
}

impl Default for CheckpointSettings {
    fn default() -> CheckpointSettings {
        CheckpointSettings {
            s3: None,
            files: false,
            read_at_most: DEFAULT_READ_LIMIT,
            timeouts: CheckpointTimeouts::default(),
        }
    }
}

/// An S3 with checkpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct S3Settings {
    /// Region, endpoint and credentials. With an explicit endpoint, the bucket is in the path of the URL.
    pub aws: AwsSettings,
    /// The buckets that may be used, each by its name, or as `BUCKET/PREFIX/` if only keys below a prefix may be used. Empty: all buckets.
    pub buckets: BTreeSet<String>,
}

impl S3Settings {
    /// The name and prefix of each bucket that may be used.
    pub(crate) fn allowed(&self) -> Result<Vec<(String, String)>, CheckpointSettingsError> {
        let read = |entry: &String| match CheckpointAddress::parse(&format!("s3://{entry}")) {
            Ok(CheckpointAddress::S3 { bucket, prefix }) => Ok((bucket, prefix)),
            Ok(CheckpointAddress::Files(_)) | Err(_) => {
                Err(CheckpointSettingsError::BadBucket { bucket: printable(entry) })
            }
        };
        self.buckets.iter().map(read).collect()
    }
}

/// Time limits. The defaults are for production; tests shorten them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointTimeouts {
    /// For one call that transfers no file.
    pub call: Duration,
    /// For reading one file, plus one second for each 20 MiB.
    pub read: Duration,
    /// For one manifest with its files, or for the search for the latest one.
    pub whole: Duration,
}

impl Default for CheckpointTimeouts {
    fn default() -> CheckpointTimeouts {
        CheckpointTimeouts {
            call: Duration::from_secs(10),
            read: Duration::from_secs(30),
            whole: Duration::from_secs(120),
        }
    }
}

/// Why settings are not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointSettingsError {
    /// An endpoint that is not a URL.
    #[error(
        "checkpoints: `{endpoint}` is not an endpoint; give `http://host:port` or `https://host`, or leave it out for AWS"
    )]
    BadEndpoint {
        /// The endpoint as configured, shortened and escaped.
        endpoint: String,
    },
    /// A text that is not a bucket with an optional prefix.
    #[error(
        "checkpoints: `{bucket}` is not the name of a bucket; give 3 to 63 lower-case letters, digits, `-` and `.`, and a prefix after a slash, if any"
    )]
    BadBucket {
        /// The bucket as configured, shortened and escaped.
        bucket: String,
    },
    /// No store is configured.
    #[error(
        "checkpoints: neither `s3` nor `files` is given, so no checkpoint could count; give one, or leave out `checkpoints`"
    )]
    Nowhere,
}

impl CheckpointSettings {
    /// Validates the settings without a network.
    ///
    /// # Errors
    /// The first setting that is not valid, and what to write instead.
    pub fn check(&self) -> Result<(), CheckpointSettingsError> {
        let Some(s3) = &self.s3 else {
            return if self.files { Ok(()) } else { Err(CheckpointSettingsError::Nowhere) };
        };
        if let Some(endpoint) = s3.aws.endpoint.as_ref().filter(|endpoint| !is_valid_endpoint(endpoint)) {
            return Err(CheckpointSettingsError::BadEndpoint { endpoint: printable(endpoint) });
        }
        s3.allowed().map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_settings_are_reported_with_a_remedy() {
        let s3 = |change: fn(&mut S3Settings)| {
            let mut s3 = S3Settings::default();
            change(&mut s3);
            CheckpointSettings { s3: Some(s3), ..CheckpointSettings::default() }
        };
        assert_eq!(s3(|_| ()).check(), Ok(()));
        assert_eq!(CheckpointSettings { files: true, ..CheckpointSettings::default() }.check(), Ok(()));
        let said = |settings: CheckpointSettings| settings.check().expect_err("refused").to_string();
        assert!(said(CheckpointSettings::default()).contains("leave out `checkpoints`"));
        assert!(said(s3(|s| s.aws.endpoint = Some("localhost:1".into()))).contains("http://host:port"));
        for bad in ["A/b", "ckpt/../other/", "s3://ckpt", "ckpt//a", ""] {
            let mut of = S3Settings::default();
            of.buckets.insert(bad.to_owned());
            assert!(
                said(CheckpointSettings { s3: Some(of), ..CheckpointSettings::default() })
                    .contains("is not the name of a bucket"),
                "{bad}"
            );
        }
        assert_eq!(
            s3(|s| s.buckets = BTreeSet::from(["ckpt".into(), "ckpt/ml/a/".into(), "b-1/x".into()])).check(),
            Ok(())
        );
    }
}
