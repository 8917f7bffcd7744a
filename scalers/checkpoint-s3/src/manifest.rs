//! The manifest: what a checkpoint consists of, as its run wrote it.
//!
//! Never: more of it in memory than its bounds, or a field believed before `verify` has compared it.

use crate::address::Address;
use crate::error::Refusal;
use forebay_aws::shown;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::time::Duration;

/// The largest manifest.
pub const MOST_MANIFEST: u64 = 1 << 20;

/// The most files of one: 256 bytes each in the largest manifest.
pub const MOST_FILES: usize = 4096;

/// The longest run that is believed: ten years.
const LONGEST_S: f64 = 10.0 * 366.0 * 86_400.0;

/// Where manifests are, below the address.
pub(crate) const FOLDER: &str = "manifests/";

/// A manifest's name: `manifests/ATTEMPT-SEQUENCE.json`, ten digits each, so that names in order are checkpoints in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    /// The attempt that wrote it.
    pub attempt: u32,
    /// Which of the job's checkpoints it is; each has a higher one than all before it.
    pub sequence: u64,
}

impl Name {
    /// From the address on.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{FOLDER}{:010}-{:010}.json", self.attempt, self.sequence)
    }

    /// Reads a key. `None`: it is no manifest's.
    #[must_use]
    pub fn read(key: &str) -> Option<Name> {
        let (attempt, sequence) = key.strip_prefix(FOLDER)?.strip_suffix(".json")?.split_once('-')?;
        let number = |digits: &str| {
            (digits.len() == 10 && digits.bytes().all(|b| b.is_ascii_digit())).then(|| digits.parse::<u64>().ok())?
        };
        Some(Name { attempt: u32::try_from(number(attempt)?).ok()?, sequence: number(sequence)? })
    }
}

/// A manifest that could be read and agrees with itself.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Manifest {
    pub job: String,
    pub name: Name,
    pub progress: Duration,
    pub files: Vec<Entry>,
}

/// A file of a checkpoint. Fields that are not known here are the workload's own.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Entry {
    /// From the address on.
    pub key: String,
    /// In bytes.
    pub size: u64,
    /// SHA-256 of its bytes, in hexadecimal.
    pub sha256: Option<String>,
    /// SHA-256 as S3 has it: in base64, for an upload in parts with `-PARTS` behind it.
    pub checksum: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    job: String,
    attempt: u32,
    sequence: u64,
    #[serde(rename = "progressS")]
    progress_s: f64,
    files: Vec<Entry>,
}

#[derive(Deserialize)]
struct Version {
    version: u64,
}

impl Manifest {
    /// Reads one. `place`: where it is, for messages.
    pub fn read(address: &Address, place: &str, bytes: &[u8]) -> Result<Manifest, Refusal> {
        let unreadable = |why: String| Refusal::Unreadable { place: place.to_owned(), why };
        let no_manifest = |e: serde_json::Error| {
            unreadable(format!("it is no manifest: {}; docs/CHECKPOINTS.md has its fields", shown(&e.to_string())))
        };
        // Before the rest: a later version may have other fields.
        let Version { version } = serde_json::from_slice(bytes).map_err(no_manifest)?;
        if version != 1 {
            let why = format!("its version is {version}; this controller knows version 1: upgrade it, or write that");
            return Err(unreadable(why));
        }
        let written: Written = serde_json::from_slice(bytes).map_err(no_manifest)?;
        if !(0.0..=LONGEST_S).contains(&written.progress_s) {
            return Err(unreadable("its `progressS` is no time; write the work done in all, in seconds".to_owned()));
        }
        let files = written.files.len();
        if !(1..=MOST_FILES).contains(&files) {
            return Err(unreadable(format!(
                "it names {files} files; name 1 to {MOST_FILES}, several in one archive if need be"
            )));
        }
        let mut keys = BTreeSet::new();
        for entry in &written.files {
            let refused = |why| Err(Refusal::Key { place: place.to_owned(), key: shown(&entry.key), why });
            if !address.holds(&entry.key) {
                return refused("it does not lead below the address");
            }
            if entry.key.starts_with(FOLDER) {
                return refused("it is a manifest's");
            }
            if !keys.insert(entry.key.as_str()) {
                return refused("it is named twice");
            }
            entry.check().map_err(|why| unreadable(format!("file `{}`: {why}", shown(&entry.key))))?;
        }
        Ok(Manifest {
            job: written.job,
            name: Name { attempt: written.attempt, sequence: written.sequence },
            // Rounded down: never more than was said.
            progress: Duration::from_millis((written.progress_s * 1000.0) as u64),
            files: written.files,
        })
    }
}

impl Entry {
    fn check(&self) -> Result<(), &'static str> {
        if self.sha256.is_none() && self.checksum.is_none() {
            return Err("it has no `sha256`; write it, or `checksum` as S3 answered the upload");
        }
        let hex = |text: &String| text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit());
        if self.sha256.as_ref().is_some_and(|text| !hex(text)) {
            return Err("its `sha256` is none; write 64 hexadecimal digits");
        }
        let base64 =
            |text: &String| text.len() <= 64 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"+/=-".contains(&b));
        if self.checksum.as_ref().is_some_and(|text| !base64(text)) {
            return Err(
                "its `checksum` is none; write S3's SHA-256, in base64, with `-PARTS` behind it for an upload in parts",
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Manifest, String> {
        let address = Address::parse("s3://ckpt/a/").expect("an address");
        Manifest::read(&address, "here", text.as_bytes()).map_err(|e| e.to_string())
    }

    fn with(files: &str, more: &str) -> String {
        format!(
            r#"{{"version":1,"job":"job-12","attempt":3,"sequence":7,"progressS":5400.0009,"files":[{files}],"createdAt":"x"{more}}}"#
        )
    }

    #[test]
    fn a_manifest_is_read() {
        let sum = "ab".repeat(32);
        let text =
            with(&format!(r#"{{"key":"step/model.bin","size":123,"sha256":"{sum}","mine":1}}"#), r#","epoch":4"#);
        let manifest = read(&text).expect("reads");
        assert_eq!((manifest.job.as_str(), manifest.name), ("job-12", Name { attempt: 3, sequence: 7 }));
        assert_eq!((manifest.progress, manifest.files.len()), (Duration::from_secs(5400), 1));
        let parts = with(r#"{"key":"a","size":1,"checksum":"qUiQTy8PR5uPgZdpSzAYSw0u0cHNKh7A+4XSmaGSpEc=-2"}"#, "");
        assert!(read(&parts).is_ok());
    }

    #[test]
    fn what_is_no_manifest_says_why_and_what_to_write() {
        let sum = "ab".repeat(32);
        let file = |key: &str| format!(r#"{{"key":"{key}","size":1,"sha256":"{sum}"}}"#);
        let many = vec![file("a"); MOST_FILES + 1].join(",");
        for (text, part) in [
            ("{".to_owned(), "no manifest"),
            ("[]".to_owned(), "no manifest"),
            (with("", ""), "names 0 files"),
            (with(&many, ""), "names 4097 files"),
            (with(&file("a"), "").replace("\"version\":1", "\"version\":2"), "version is 2"),
            (with(&file("a"), "").replace("5400.0009", "-1"), "is no time"),
            (with(&file("a"), "").replace("5400.0009", "1e300"), "is no time"),
            (with(&file("a"), "").replace("\"attempt\":3", "\"attempt\":-3"), "no manifest"),
            (with(&file("../other/a"), ""), "does not lead below"),
            (with(&file("/etc/passwd"), ""), "does not lead below"),
            (with(&file("a\\u0000b"), ""), "does not lead below"),
            (with(&file(&"a".repeat(1023)), ""), "does not lead below"),
            (with(&file("manifests/x"), ""), "is a manifest's"),
            (with(&format!("{},{}", file("a"), file("a")), ""), "named twice"),
            (with(r#"{"key":"a","size":1}"#, ""), "has no `sha256`"),
            (with(r#"{"key":"a","size":1,"sha256":"abc"}"#, ""), "64 hexadecimal digits"),
            (with(r#"{"key":"a","size":1,"checksum":"sp ace"}"#, ""), "`checksum` is none"),
            (with(&file("a"), r#","job":"job-13""#), "no manifest"),
        ] {
            let said = read(&text).expect_err(part);
            assert!(said.contains(part), "{part}: {said}");
            assert!(said.len() < 500 && !said.chars().any(char::is_control), "{said}");
        }
    }

    #[test]
    fn names_sort_as_checkpoints_do() {
        let name = Name { attempt: 3, sequence: 7 };
        assert_eq!(name.key(), "manifests/0000000003-0000000007.json");
        assert_eq!(Name::read(&name.key()), Some(name));
        for key in [
            "0000000003-0000000007.json",
            "manifests/3-7.json",
            "manifests/0000000003-0000000007.json.tmp",
            "manifests/9999999999-0000000007.json",
            "manifests/+000000003-0000000007.json",
            "manifests/0000000003-0000000007/x.json",
            "../manifests/0000000003-0000000007.json",
        ] {
            assert_eq!(Name::read(key), None, "{key}");
        }
        assert!(Name { attempt: 2, sequence: 9 }.key() < name.key());
    }
}
