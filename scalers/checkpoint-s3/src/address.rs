//! Addresses of checkpoints, and names of things below them.
//!
//! Never: a name that leads out of its address.

use crate::error::Refusal;
use forebay_aws::shown;
use std::fmt;
use std::path::{Path, PathBuf};

/// The longest key that S3 has.
const LONGEST_KEY: usize = 1024;

/// Where the checkpoints of a job are: its `checkpoint.uri`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// `s3://bucket/prefix/`
    S3 {
        /// The bucket.
        bucket: String,
        /// What each key begins with: empty, or it ends with `/`.
        prefix: String,
    },
    /// `file:///path/`
    Files(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::S3 { bucket, prefix } => write!(f, "s3://{bucket}/{prefix}"),
            Address::Files(path) => write!(f, "file://{}/", path.display()),
        }
    }
}

impl Address {
    /// Reads an address.
    ///
    /// # Errors
    /// It is none, or one of a kind that is not looked at.
    pub fn parse(uri: &str) -> Result<Address, Refusal> {
        let refused = |why: &str| Refusal::Address { uri: shown(uri), why: why.to_owned() };
        if uri.starts_with("gs://") {
            let why =
                "Google Cloud Storage is not looked at, so what is there does not count; save to s3:// or file://";
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
                    "its prefix has empty parts, `.`, `..` or characters that cannot be seen; write s3://bucket/prefix/",
                ));
            }
            let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
            return Ok(Address::S3 { bucket: bucket.to_owned(), prefix });
        }
        if let Some(path) = uri.strip_prefix("file:///") {
            let path = path.trim_end_matches('/');
            if !is_below(path) {
                return Err(refused("its path is empty, or has empty parts, `.` or `..`; write file:///path/"));
            }
            return Ok(Address::Files(Path::new("/").join(path)));
        }
        Err(refused("it is no address of a checkpoint; write s3://bucket/prefix/ or file:///path/"))
    }

    /// Whether a key below it can be one of this store.
    pub(crate) fn holds(&self, key: &str) -> bool {
        let before = match self {
            Address::S3 { prefix, .. } => prefix.len(),
            Address::Files(_) => 0,
        };
        is_below(key) && before + key.len() <= LONGEST_KEY
    }
}

/// Whether something can be a bucket's name.
pub(crate) fn is_bucket(name: &str) -> bool {
    let known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    (3..=63).contains(&name.len()) && name.chars().all(known) && ends(name.chars().next()) && ends(name.chars().last())
}

/// Whether a name leads below, and nowhere else: parts between single slashes, none of them `.` or `..`, all of it visible.
pub(crate) fn is_below(name: &str) -> bool {
    let part = |part: &str| !part.is_empty() && part != "." && part != "..";
    let odd = |c: char| c.is_control() || c == '\\' || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    name.len() <= LONGEST_KEY && name.split('/').all(part) && !name.contains(odd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_others_refused_with_a_remedy() {
        for (uri, is) in [
            ("s3://ckpt/resnet-0412/", "s3://ckpt/resnet-0412/"),
            ("s3://ckpt/resnet-0412", "s3://ckpt/resnet-0412/"),
            ("s3://ckpt/a/b//", "s3://ckpt/a/b/"),
            ("s3://ckpt", "s3://ckpt/"),
            ("file:///mnt/ckpt/a/", "file:///mnt/ckpt/a/"),
        ] {
            assert_eq!(Address::parse(uri).expect(uri).to_string(), is);
        }
        for (uri, part) in [
            ("gs://ckpt/a/", "Google Cloud Storage is not looked at"),
            ("s3://", "names no bucket"),
            ("s3://UPPER/a", "names no bucket"),
            ("s3://a..-/a", "names no bucket"),
            ("s3://ckpt/a//b/", "empty parts"),
            ("s3://ckpt/../other/", "`..`"),
            ("file:///", "its path is empty"),
            ("file:///mnt/../etc/", "`..`"),
            ("file://host/a", "no address"),
            ("https://h/a\u{7}", "no address"),
        ] {
            let said = Address::parse(uri).expect_err(uri).to_string();
            assert!(said.contains(part) && !said.contains('\u{7}'), "{uri}: {said}");
        }
    }

    #[test]
    fn a_name_leads_below() {
        for name in ["a", "a/b.bin", "step-1/..x", "Mod\u{e8}le"] {
            assert!(is_below(name), "{name}");
        }
        for name in ["", "/a", "a/", "a//b", "..", "a/../b", "./a", "a\\b", "a\nb", "a\u{202e}b"] {
            assert!(!is_below(name), "{name:?}");
        }
        assert!(!is_below(&"a".repeat(1025)));
    }
}
