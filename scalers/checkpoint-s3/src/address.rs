//! Addresses of checkpoints, and keys below them. A key can never lead out of its address.

use crate::error::CheckpointRefusal;
use forebay_aws::printable;
use std::fmt;
use std::path::{Path, PathBuf};

/// The longest key of S3, in bytes.
const MAX_KEY_LEN: usize = 1024;

/// The `checkpoint.uri` of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckpointAddress {
    /// `s3://bucket/prefix/`
    S3 {
        /// The name of the bucket.
        bucket: String,
        /// The prefix of all keys. It is empty or ends with `/`.
        prefix: String,
    },
    /// `file:///path/`
    Files(PathBuf),
}

impl fmt::Display for CheckpointAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CheckpointAddress::S3 { bucket, prefix } => write!(f, "s3://{bucket}/{prefix}"),
            CheckpointAddress::Files(path) => write!(f, "file://{}/", path.display()),
        }
    }
}

impl CheckpointAddress {
    /// Parses a URI.
    ///
    /// # Errors
    /// It is not an address, or it is of a kind of store that is not supported.
    pub fn parse(uri: &str) -> Result<CheckpointAddress, CheckpointRefusal> {
        let refused = |why: &str| CheckpointRefusal::Address { uri: printable(uri), why: why.to_owned() };
        if uri.starts_with("gs://") {
            let why =
                "Google Cloud Storage is not supported, so checkpoints there do not count; save to s3:// or file://";
            return Err(refused(why));
        }
        if let Some(rest) = uri.strip_prefix("s3://") {
            let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
            if !is_bucket(bucket) {
                return Err(refused("it names no bucket; write s3://bucket/prefix/"));
            }
            let prefix = prefix.trim_end_matches('/');
            if !prefix.is_empty() && !is_below(prefix) {
                return Err(refused(
                    "its prefix has empty parts, `.`, `..` or invisible characters; write s3://bucket/prefix/",
                ));
            }
            let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
            return Ok(CheckpointAddress::S3 { bucket: bucket.to_owned(), prefix });
        }
        if let Some(path) = uri.strip_prefix("file:///") {
            let path = path.trim_end_matches('/');
            if !is_below(path) {
                return Err(refused("its path is empty, or has empty parts, `.` or `..`; write file:///path/"));
            }
            return Ok(CheckpointAddress::Files(Path::new("/").join(path)));
        }
        Err(refused("it is not an address of a checkpoint; write s3://bucket/prefix/ or file:///path/"))
    }

    /// Whether a key is allowed below this address.
    pub(crate) fn holds(&self, key: &str) -> bool {
        let before = match self {
            CheckpointAddress::S3 { prefix, .. } => prefix.len(),
            CheckpointAddress::Files(_) => 0,
        };
        is_below(key) && before + key.len() <= MAX_KEY_LEN
    }
}

/// Whether a text has the form of a bucket's name.
pub(crate) fn is_bucket(name: &str) -> bool {
    let known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    (3..=63).contains(&name.len()) && name.chars().all(known) && ends(name.chars().next()) && ends(name.chars().last())
}

/// Whether a key stays below its address: parts between single slashes, none of them `.` or `..`, without invisible characters.
pub(crate) fn is_below(name: &str) -> bool {
    let part = |part: &str| !part.is_empty() && part != "." && part != "..";
    let invisible =
        |c: char| c.is_control() || c == '\\' || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    name.len() <= MAX_KEY_LEN && name.split('/').all(part) && !name.contains(invisible)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_and_others_refused_with_a_remedy() {
        for (uri, is) in [
            ("s3://ckpt/resnet-0412/", "s3://ckpt/resnet-0412/"),
            ("s3://ckpt/resnet-0412", "s3://ckpt/resnet-0412/"),
            ("s3://ckpt/a/b//", "s3://ckpt/a/b/"),
            ("s3://ckpt", "s3://ckpt/"),
            ("file:///mnt/ckpt/a/", "file:///mnt/ckpt/a/"),
        ] {
            assert_eq!(CheckpointAddress::parse(uri).expect(uri).to_string(), is);
        }
        for (uri, part) in [
            ("gs://ckpt/a/", "Google Cloud Storage is not supported"),
            ("s3://", "names no bucket"),
            ("s3://UPPER/a", "names no bucket"),
            ("s3://a..-/a", "names no bucket"),
            ("s3://ckpt/a//b/", "empty parts"),
            ("s3://ckpt/../other/", "`..`"),
            ("file:///", "its path is empty"),
            ("file:///mnt/../etc/", "`..`"),
            ("file://host/a", "not an address"),
            ("https://h/a\u{7}", "not an address"),
        ] {
            let said = CheckpointAddress::parse(uri).expect_err(uri).to_string();
            assert!(said.contains(part) && !said.contains('\u{7}'), "{uri}: {said}");
        }
    }

    #[test]
    fn a_key_stays_below_its_address() {
        for name in ["a", "a/b.bin", "step-1/..x", "Mod\u{e8}le"] {
            assert!(is_below(name), "{name}");
        }
        for name in ["", "/a", "a/", "a//b", "..", "a/../b", "./a", "a\\b", "a\nb", "a\u{202e}b"] {
            assert!(!is_below(name), "{name:?}");
        }
        assert!(!is_below(&"a".repeat(1025)));
    }
}
