//! The manifest that a run writes for a checkpoint. Its size is bounded, and no field is trusted before `verify` has compared it.

use crate::address::CheckpointAddress;
use crate::error::CheckpointRefusal;
use forebay_aws::printable;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::time::Duration;

/// The largest manifest, in bytes.
pub const MAX_MANIFEST_BYTES: u64 = 1 << 20;

/// The most files of a manifest: 256 bytes for each in the largest one.
pub const MAX_FILES: usize = 4096;

/// The longest progress that is accepted, in seconds: ten years.
const MAX_PROGRESS_S: f64 = 10.0 * 366.0 * 86_400.0;

/// The folder of manifests below the address.
pub(crate) const FOLDER: &str = "manifests/";

/// The name of a manifest: `manifests/ATTEMPT-SEQUENCE.json` with ten digits each, so that names sort in the order of the checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ManifestName {
    /// The attempt that wrote it.
    pub attempt: u32,
    /// The number of the checkpoint; each is higher than all before it.
    pub sequence: u64,
}

impl ManifestName {
    /// The key below the address.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{FOLDER}{:010}-{:010}.json", self.attempt, self.sequence)
    }

    /// Parses a key. `None` if it is not the key of a manifest.
    #[must_use]
    pub fn read(key: &str) -> Option<ManifestName> {
        let (attempt, sequence) = key.strip_prefix(FOLDER)?.strip_suffix(".json")?.split_once('-')?;
        let number = |digits: &str| {
            (digits.len() == 10 && digits.bytes().all(|b| b.is_ascii_digit())).then(|| digits.parse::<u64>().ok())?
        };
        Some(ManifestName { attempt: u32::try_from(number(attempt)?).ok()?, sequence: number(sequence)? })
    }
}

/// A manifest that could be parsed and has no contradictions.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Manifest {
    pub job: String,
    pub name: ManifestName,
    pub progress: Duration,
    pub files: Vec<FileEntry>,
}

/// A file of a checkpoint. Unknown fields belong to the workload.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct FileEntry {
    /// The key below the address.
    pub key: String,
    /// The size in bytes.
    pub size: u64,
    /// The SHA-256 of the content, in hexadecimal.
    pub sha256: Option<String>,
    /// The SHA-256 as S3 reports it: in base64, for a multipart upload followed by `-PARTS`.
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
    files: Vec<FileEntry>,
}

#[derive(Deserialize)]
struct Version {
    version: u64,
}

impl Manifest {
    /// Parses a manifest. `location` is where it is stored, for messages.
    pub fn read(address: &CheckpointAddress, location: &str, bytes: &[u8]) -> Result<Manifest, CheckpointRefusal> {
        let unreadable = |why: String| CheckpointRefusal::Unreadable { location: location.to_owned(), why };
        let invalid = |e: serde_json::Error| {
            unreadable(format!(
                "it is not a manifest: {}; docs/CHECKPOINTS.md has its fields",
                printable(&e.to_string())
            ))
        };
        // The version is parsed first, because a later one may have other fields.
        let Version { version } = serde_json::from_slice(bytes).map_err(invalid)?;
        if version != 1 {
            let why =
                format!("its version is {version}; this controller reads version 1: upgrade it, or write version 1");
            return Err(unreadable(why));
        }
        let written: Written = serde_json::from_slice(bytes).map_err(invalid)?;
        if !(0.0..=MAX_PROGRESS_S).contains(&written.progress_s) {
            return Err(unreadable("its `progressS` is not a time; write the total work in seconds".to_owned()));
        }
        let files = written.files.len();
        if !(1..=MAX_FILES).contains(&files) {
            return Err(unreadable(format!(
                "it names {files} files; name 1 to {MAX_FILES}, several in one archive if need be"
            )));
        }
        let mut keys = BTreeSet::new();
        for entry in &written.files {
            let refused =
                |why| Err(CheckpointRefusal::Key { location: location.to_owned(), key: printable(&entry.key), why });
            if !address.holds(&entry.key) {
                return refused("it does not stay below the address");
            }
            if entry.key.starts_with(FOLDER) {
                return refused("it is the key of a manifest");
            }
            if !keys.insert(entry.key.as_str()) {
                return refused("it is listed twice");
            }
            entry.check().map_err(|why| unreadable(format!("file `{}`: {why}", printable(&entry.key))))?;
        }
        Ok(Manifest {
            job: written.job,
            name: ManifestName { attempt: written.attempt, sequence: written.sequence },
            // Rounded down, so that it is never more than was stated.
            progress: Duration::from_millis((written.progress_s * 1000.0) as u64),
            files: written.files,
        })
    }
}

impl FileEntry {
    fn check(&self) -> Result<(), &'static str> {
        if self.sha256.is_none() && self.checksum.is_none() {
            return Err("it has no `sha256`; write it, or `checksum` from S3's response to the upload");
        }
        let hex = |text: &String| text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit());
        if self.sha256.as_ref().is_some_and(|text| !hex(text)) {
            return Err("its `sha256` is not valid; write 64 hexadecimal digits");
        }
        let base64 =
            |text: &String| text.len() <= 64 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"+/=-".contains(&b));
        if self.checksum.as_ref().is_some_and(|text| !base64(text)) {
            return Err(
                "its `checksum` is not valid; write S3's SHA-256 in base64, followed by `-PARTS` for a multipart upload",
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Manifest, String> {
        let address = CheckpointAddress::parse("s3://ckpt/a/").expect("an address");
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
        assert_eq!((manifest.job.as_str(), manifest.name), ("job-12", ManifestName { attempt: 3, sequence: 7 }));
        assert_eq!((manifest.progress, manifest.files.len()), (Duration::from_secs(5400), 1));
        let parts = with(r#"{"key":"a","size":1,"checksum":"qUiQTy8PR5uPgZdpSzAYSw0u0cHNKh7A+4XSmaGSpEc=-2"}"#, "");
        assert!(read(&parts).is_ok());
    }

    #[test]
    fn an_invalid_manifest_is_refused_with_a_remedy() {
        let sum = "ab".repeat(32);
        let file = |key: &str| format!(r#"{{"key":"{key}","size":1,"sha256":"{sum}"}}"#);
        let many = vec![file("a"); MAX_FILES + 1].join(",");
        for (text, part) in [
            ("{".to_owned(), "not a manifest"),
            ("[]".to_owned(), "not a manifest"),
            (with("", ""), "names 0 files"),
            (with(&many, ""), "names 4097 files"),
            (with(&file("a"), "").replace("\"version\":1", "\"version\":2"), "version is 2"),
            (with(&file("a"), "").replace("5400.0009", "-1"), "is not a time"),
            (with(&file("a"), "").replace("5400.0009", "1e300"), "is not a time"),
            (with(&file("a"), "").replace("\"attempt\":3", "\"attempt\":-3"), "not a manifest"),
            (with(&file("../other/a"), ""), "does not stay below"),
            (with(&file("/etc/passwd"), ""), "does not stay below"),
            (with(&file("a\\u0000b"), ""), "does not stay below"),
            (with(&file(&"a".repeat(1023)), ""), "does not stay below"),
            (with(&file("manifests/x"), ""), "is the key of a manifest"),
            (with(&format!("{},{}", file("a"), file("a")), ""), "listed twice"),
            (with(r#"{"key":"a","size":1}"#, ""), "has no `sha256`"),
            (with(r#"{"key":"a","size":1,"sha256":"abc"}"#, ""), "64 hexadecimal digits"),
            (with(r#"{"key":"a","size":1,"checksum":"sp ace"}"#, ""), "`checksum` is not valid"),
            (with(&file("a"), r#","job":"job-13""#), "not a manifest"),
        ] {
            let said = read(&text).expect_err(part);
            assert!(said.contains(part), "{part}: {said}");
            assert!(said.len() < 500 && !said.chars().any(char::is_control), "{said}");
        }
    }

    #[test]
    fn names_sort_in_the_order_of_checkpoints() {
        let name = ManifestName { attempt: 3, sequence: 7 };
        assert_eq!(name.key(), "manifests/0000000003-0000000007.json");
        assert_eq!(ManifestName::read(&name.key()), Some(name));
        for key in [
            "0000000003-0000000007.json",
            "manifests/3-7.json",
            "manifests/0000000003-0000000007.json.tmp",
            "manifests/9999999999-0000000007.json",
            "manifests/+000000003-0000000007.json",
            "manifests/0000000003-0000000007/x.json",
            "../manifests/0000000003-0000000007.json",
        ] {
            assert_eq!(ManifestName::read(key), None, "{key}");
        }
        assert!(ManifestName { attempt: 2, sequence: 9 }.key() < name.key());
    }
}
