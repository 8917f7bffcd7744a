//! Verifies checkpoints: it reads a manifest and checks each file that it names.
//!
//! ```text
//! manifest -> exists? bounded? valid? -> name, job, attempt agree -> each file, 16 concurrently:
//!     size -> S3's own SHA-256 (of the whole file, or of its parts as in `checksum`) -> else read and hashed, up to a limit
//! ```
//!
//! If the store does not respond for one file, the checkpoint does not count, and no older one is used in its place.

use crate::address::CheckpointAddress;
use crate::error::{CheckError, CheckpointRefusal, StoreUnavailable};
use crate::manifest::{FileEntry, MAX_MANIFEST_BYTES, Manifest, ManifestName};
use crate::s3::S3;
use crate::settings::{CheckpointSettings, CheckpointSettingsError};
use crate::shared_folder::SharedFolder;
use crate::store::{Lookup, Store, StoredObject, with_timeout};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use forebay_aws::printable;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

/// The number of files that are checked concurrently.
const CONCURRENT_FILES: usize = 16;

/// The most manifests that are checked in search of the latest one that counts. If more are invalid, the workload is faulty.
const MAX_CANDIDATES: usize = 32;

/// The most refusals of newer manifests that are returned.
const MAX_SKIPPED: usize = 4;

/// Verifies checkpoints. Clones share their client.
#[derive(Clone, Debug)]
pub struct CheckpointVerifier {
    settings: Arc<CheckpointSettings>,
    s3: Option<Arc<S3>>,
}

/// Whose checkpoints are verified, and where they are.
#[derive(Clone, Copy, Debug)]
pub struct VerifyRequest<'a> {
    /// The job's `checkpoint.uri`.
    pub uri: &'a str,
    /// The job, such as `job-12`.
    pub job: &'a str,
    /// The attempt that reports. Manifests of later attempts do not count.
    pub attempt: u32,
}

/// A checkpoint that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedCheckpoint {
    /// The name of its manifest.
    pub name: ManifestName,
    /// The total work, over all attempts.
    pub progress: Duration,
    /// The number of files.
    pub files: usize,
    /// The total size of the files.
    pub bytes: u64,
    /// Why newer manifests do not count: the refusals of the newest four, newest first.
    pub skipped: Vec<CheckpointRefusal>,
}

impl CheckpointVerifier {
    /// Creates a verifier. It connects to the store when it is first used.
    ///
    /// # Errors
    /// The settings are not valid.
    pub fn new(settings: CheckpointSettings) -> Result<CheckpointVerifier, CheckpointSettingsError> {
        settings.check()?;
        let s3 = settings.s3.clone().map(|s3| S3::new(s3, settings.timeouts)).transpose()?.map(Arc::new);
        Ok(CheckpointVerifier { settings: Arc::new(settings), s3 })
    }

    /// Verifies the checkpoint that a run reported. `manifest` is the key of the manifest below the address.
    ///
    /// # Errors
    /// The checkpoint does not count, or the store does not respond.
    pub async fn verify(&self, request: &VerifyRequest<'_>, manifest: &str) -> Result<VerifiedCheckpoint, CheckError> {
        let (address, store) = self.store(request.uri)?;
        let unnamed = || CheckpointRefusal::Unnamed { manifest: printable(manifest) };
        let name = ManifestName::read(manifest).ok_or_else(unnamed)?;
        let location = store.location(&name.key());
        with_timeout(
            self.settings.timeouts.whole,
            "the whole verification",
            &location,
            self.check(&address, &store, request, name),
        )
        .await
    }

    /// Finds the latest checkpoint of a job that counts.
    ///
    /// # Errors
    /// No checkpoint counts (with the refusal of the newest one), or the store does not respond.
    pub async fn latest(&self, request: &VerifyRequest<'_>) -> Result<VerifiedCheckpoint, CheckError> {
        let (address, store) = self.store(request.uri)?;
        let location = store.location("");
        let search = async {
            let mut skipped = Vec::new();
            for name in store.newest(request.attempt, MAX_CANDIDATES).await? {
                match self.check(&address, &store, request, name).await {
                    Ok(found) => {
                        skipped.truncate(MAX_SKIPPED);
                        return Ok(VerifiedCheckpoint { skipped, ..found });
                    }
                    Err(CheckError::Refused(why)) => skipped.push(why),
                    Err(unavailable) => return Err(unavailable),
                }
            }
            // Manifests of other jobs at this address do not matter.
            let own = skipped.into_iter().find(|why| !matches!(why, CheckpointRefusal::Job { .. }));
            let nothing = || CheckpointRefusal::NoManifest { location: location.clone(), attempt: request.attempt };
            Err(own.unwrap_or_else(nothing).into())
        };
        with_timeout(self.settings.timeouts.whole, "the whole verification", &location, search).await
    }

    /// The S3 of the settings, for the probe.
    pub(crate) fn s3(&self) -> Option<&Arc<S3>> {
        self.s3.as_ref()
    }

    fn store(&self, uri: &str) -> Result<(CheckpointAddress, Store), CheckpointRefusal> {
        let address = CheckpointAddress::parse(uri)?;
        let off = |key: &str| CheckpointRefusal::Address {
            uri: address.to_string(),
            why: format!(
                "the controller does not read this address: `checkpoints.{key}` is not configured; save elsewhere, or have it configured"
            ),
        };
        let store = match &address {
            CheckpointAddress::S3 { bucket, prefix } => {
                Store::S3(self.s3.as_ref().ok_or_else(|| off("s3"))?.bucket(bucket, prefix)?)
            }
            CheckpointAddress::Files(path) if self.settings.files => {
                Store::Files(SharedFolder::new(path, self.settings.timeouts))
            }
            CheckpointAddress::Files(_) => return Err(off("files")),
        };
        Ok((address, store))
    }

    async fn check(
        &self,
        address: &CheckpointAddress,
        store: &Store,
        request: &VerifyRequest<'_>,
        name: ManifestName,
    ) -> Result<VerifiedCheckpoint, CheckError> {
        let location = store.location(&name.key());
        let bytes = match store.read(&name.key(), MAX_MANIFEST_BYTES).await? {
            Lookup::Absent(_) => return Err(CheckpointRefusal::NotThere { location }.into()),
            Lookup::Found(bytes) if bytes.len() as u64 > MAX_MANIFEST_BYTES => {
                let why = format!(
                    "it has more than {MAX_MANIFEST_BYTES} bytes; name fewer files, several in one archive if need be"
                );
                return Err(CheckpointRefusal::Unreadable { location, why }.into());
            }
            Lookup::Found(bytes) => bytes,
        };
        let manifest = Manifest::read(address, &location, &bytes)?;
        check_agreement(&manifest, &location, request, name)?;
        let (progress, files) = (manifest.progress, manifest.files.len());
        let bytes = manifest.files.iter().fold(0_u64, |sum, entry| sum.saturating_add(entry.size));
        self.check_files(store, manifest.files).await?;
        Ok(VerifiedCheckpoint { name, progress, files, bytes, skipped: Vec::new() })
    }

    /// Checks all files. Returns the first refusal in the order of the manifest; a missing response only if nothing is refused.
    async fn check_files(&self, store: &Store, entries: Vec<FileEntry>) -> Result<(), CheckError> {
        let budget = Arc::new(AtomicU64::new(self.settings.read_at_most));
        let (mut left, mut running) = (entries.into_iter().enumerate(), JoinSet::new());
        let mut worst: Option<(usize, CheckError)> = None;
        loop {
            while running.len() < CONCURRENT_FILES
                && worst.is_none()
                && let Some((at, entry)) = left.next()
            {
                let (store, budget) = (store.clone(), Arc::clone(&budget));
                running.spawn(async move { (at, check_file(&store, &entry, &budget).await) });
            }
            let Some(ended) = running.join_next().await else { break };
            let (at, checked) = ended.map_err(|e| {
                StoreUnavailable::new(format!("{}: the check of a file ended: {e}; it is retried", store.location("")))
            })?;
            if let Err(error) = checked {
                let rank = |(at, error): &(usize, CheckError)| (matches!(error, CheckError::Unavailable(_)), *at);
                let error = (at, error);
                worst = Some(match worst.take() {
                    Some(old) if rank(&old) <= rank(&error) => old,
                    _ => error,
                });
            }
        }
        worst.map_or(Ok(()), |(_, error)| Err(error))
    }
}

/// Checks that a manifest agrees with its name, its job and the attempt that reports.
fn check_agreement(
    manifest: &Manifest,
    location: &str,
    request: &VerifyRequest<'_>,
    name: ManifestName,
) -> Result<(), CheckpointRefusal> {
    let ManifestName { attempt, sequence } = manifest.name;
    let other = |why: String| Err(CheckpointRefusal::Attempt { location: location.to_owned(), attempt, sequence, why });
    if manifest.job != request.job {
        return Err(CheckpointRefusal::Job {
            location: location.to_owned(),
            job: printable(&manifest.job),
            wanted: request.job.to_owned(),
        });
    }
    if manifest.name != name {
        return other("its name differs: write the same in both".to_owned());
    }
    if attempt > request.attempt {
        return other(format!(
            "the run that reports is attempt {}: report with the attempt that wrote it",
            request.attempt
        ));
    }
    Ok(())
}

/// Checks one file.
async fn check_file(store: &Store, entry: &FileEntry, budget: &AtomicU64) -> Result<(), CheckError> {
    let location = store.location(&entry.key);
    let StoredObject { size, checksum } = match store.stat(&entry.key).await? {
        Lookup::Found(found) => found,
        Lookup::Absent(why) => return Err(CheckpointRefusal::Missing { location, why }.into()),
    };
    if size != entry.size {
        return Err(CheckpointRefusal::Size { location, found: size, stated: entry.size }.into());
    }
    if let Some(found) = checksum
        && let Some(stated) = stated(entry, &found)
    {
        return if stated == found {
            Ok(())
        } else {
            Err(CheckpointRefusal::Checksum { location, found, stated }.into())
        };
    }
    compare_hash(store, entry, location, budget).await
}

/// The checksum in the manifest, in the format of the checksum that the store has. `None` if they cannot be compared.
fn stated(entry: &FileEntry, found: &str) -> Option<String> {
    if entry.checksum.as_deref().is_some_and(|stated| in_parts(stated) == in_parts(found)) {
        return entry.checksum.clone();
    }
    let of_whole = entry.sha256.as_deref().filter(|_| !in_parts(found))?;
    Some(STANDARD.encode(unhex(of_whole)?))
}

/// Whether a checksum is that of a multipart upload.
fn in_parts(checksum: &str) -> bool {
    checksum.contains('-')
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    (0..text.len() / 2).map(|at| u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads and hashes a file of which the store has no checksum, within the limit per manifest.
async fn compare_hash(
    store: &Store,
    entry: &FileEntry,
    location: String,
    budget: &AtomicU64,
) -> Result<(), CheckError> {
    let Some(stated) = entry.sha256.as_ref().map(|text| text.to_ascii_lowercase()) else {
        let why = "S3 has no such checksum of it; write `sha256`, or upload it with SHA-256 as its checksum algorithm";
        return Err(CheckpointRefusal::Unverifiable { location, why: why.to_owned() }.into());
    };
    let subtract = |left: u64| left.checked_sub(entry.size);
    if budget.fetch_update(Ordering::Relaxed, Ordering::Relaxed, subtract).is_err() {
        let why = format!(
            "the store has no SHA-256 of its {} bytes, and no more of this manifest is read; upload it with SHA-256 as its checksum algorithm \
             (multipart: write S3's response as `checksum`), or raise `checkpoints.readAtMost`",
            entry.size
        );
        return Err(CheckpointRefusal::Unverifiable { location, why }.into());
    }
    let found = match store.hash(&entry.key, entry.size).await? {
        Lookup::Found(found) => hex(&found),
        Lookup::Absent(why) => return Err(CheckpointRefusal::Missing { location, why }.into()),
    };
    if found == stated { Ok(()) } else { Err(CheckpointRefusal::Checksum { location, found, stated }.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(sha256: Option<&str>, checksum: Option<&str>) -> FileEntry {
        FileEntry { key: "a".into(), size: 1, sha256: sha256.map(str::to_owned), checksum: checksum.map(str::to_owned) }
    }

    #[test]
    fn checksums_are_compared_in_the_stores_format() {
        // Of one byte: `printf a | sha256sum`.
        let hexed = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb";
        let based = "ypeBEsobvcr6wjGzmiPcTaeG7/gUfE5yuYB3ha/uSLs=";
        assert_eq!(stated(&entry(Some(hexed), None), based).as_deref(), Some(based));
        assert_eq!(stated(&entry(Some(&hexed.to_uppercase()), None), based).as_deref(), Some(based));
        assert_eq!(stated(&entry(None, Some(based)), based).as_deref(), Some(based));
        // A checksum of parts is only compared with one of parts.
        assert_eq!(stated(&entry(Some(hexed), None), "x=-2"), None);
        assert_eq!(stated(&entry(Some(hexed), Some("y=-2")), "x=-2").as_deref(), Some("y=-2"));
        assert_eq!(stated(&entry(Some(hexed), Some("y=-2")), based).as_deref(), Some(based));
        assert_eq!(hex(&unhex(hexed).expect("hex")), hexed);
    }
}
