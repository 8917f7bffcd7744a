//! Where checkpoints may be, and how long a look at them may take.
//!
//! Never: a secret in its `Debug`, or a look at the network.

use crate::address::Address;
use forebay_aws::{Place, is_endpoint, shown};
use std::collections::BTreeSet;
use std::time::Duration;

/// So much without a checksum in the store is read and hashed for one manifest, unless the settings say otherwise.
const READ_AT_MOST: u64 = 64 << 20;

/// Where checkpoints may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Addresses `s3://bucket/prefix/` are looked at. `None`: they are refused.
    pub s3: Option<S3Settings>,
    /// Addresses `file:///path/` are looked at. Whoever submits jobs can have the controller look at any folder with manifests then.
    pub files: bool,
    /// Bytes of one manifest's files that are read and hashed where the store has no checksum of them.
    pub read_at_most: u64,
    /// Time limits.
    pub pace: Pace,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { s3: None, files: false, read_at_most: READ_AT_MOST, pace: Pace::default() }
    }
}

/// The S3 that checkpoints are in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct S3Settings {
    /// Region, endpoint and credentials. A given endpoint is asked with the bucket in the path.
    pub place: Place,
    /// The only buckets that are asked, each by its name, or as `BUCKET/PREFIX/` where only what lies below that is asked. Empty:
    /// whichever an address names.
    pub buckets: BTreeSet<String>,
}

impl S3Settings {
    /// Name and prefix of each that is asked.
    pub(crate) fn allowed(&self) -> Result<Vec<(String, String)>, SettingsError> {
        let read = |entry: &String| match Address::parse(&format!("s3://{entry}")) {
            Ok(Address::S3 { bucket, prefix }) => Ok((bucket, prefix)),
            Ok(Address::Files(_)) | Err(_) => Err(SettingsError::BadBucket { bucket: shown(entry) }),
        };
        self.buckets.iter().map(read).collect()
    }
}

/// Time limits. The defaults are for production; tests shorten them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// For one call that brings no file.
    pub call: Duration,
    /// For reading one file, beside a second for each 20 MiB of it.
    pub read: Duration,
    /// For all of one manifest, or of the search for the latest.
    pub whole: Duration,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { call: Duration::from_secs(10), read: Duration::from_secs(30), whole: Duration::from_secs(120) }
    }
}

/// Settings that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// No URL.
    #[error(
        "checkpoints: endpoint `{endpoint}` is none; give `http://host:port` or `https://host`, or leave it out for AWS"
    )]
    BadEndpoint {
        /// As it is written, cut and escaped.
        endpoint: String,
    },
    /// No name of a bucket, or no prefix.
    #[error(
        "checkpoints: `{bucket}` is no bucket's name; give 3 to 63 lower-case letters, digits, `-` and `.`, and a prefix after a slash, if any"
    )]
    BadBucket {
        /// As it is written, cut and escaped.
        bucket: String,
    },
    /// Nothing can count.
    #[error(
        "checkpoints: neither `s3` nor `files` is given, so that no checkpoint could count; give one, or leave out `checkpoints`"
    )]
    Nowhere,
}

impl Settings {
    /// Whether they can work, as far as that can be told without a network.
    ///
    /// # Errors
    /// The first setting that cannot be, and what to write.
    pub fn check(&self) -> Result<(), SettingsError> {
        let Some(s3) = &self.s3 else {
            return if self.files { Ok(()) } else { Err(SettingsError::Nowhere) };
        };
        if let Some(endpoint) = s3.place.endpoint.as_ref().filter(|endpoint| !is_endpoint(endpoint)) {
            return Err(SettingsError::BadEndpoint { endpoint: shown(endpoint) });
        }
        s3.allowed().map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_told_with_its_remedy() {
        let s3 = |change: fn(&mut S3Settings)| {
            let mut s3 = S3Settings::default();
            change(&mut s3);
            Settings { s3: Some(s3), ..Settings::default() }
        };
        assert_eq!(s3(|_| ()).check(), Ok(()));
        assert_eq!(Settings { files: true, ..Settings::default() }.check(), Ok(()));
        let said = |settings: Settings| settings.check().expect_err("refused").to_string();
        assert!(said(Settings::default()).contains("leave out `checkpoints`"));
        assert!(said(s3(|s| s.place.endpoint = Some("localhost:1".into()))).contains("http://host:port"));
        for bad in ["A/b", "ckpt/../other/", "s3://ckpt", "ckpt//a", ""] {
            let mut of = S3Settings::default();
            of.buckets.insert(bad.to_owned());
            assert!(said(Settings { s3: Some(of), ..Settings::default() }).contains("is no bucket's name"), "{bad}");
        }
        assert_eq!(
            s3(|s| s.buckets = BTreeSet::from(["ckpt".into(), "ckpt/ml/a/".into(), "b-1/x".into()])).check(),
            Ok(())
        );
    }
}
