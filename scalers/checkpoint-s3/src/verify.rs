//! Does a checkpoint count? Reads its manifest and looks at each file that it names.
//!
//! ```text
//! manifest -> there? bounded? readable? -> name, job, attempt agree -> per file, 16 at once:
//!     size -> S3's own SHA-256 (of the whole, or of the parts as written in `checksum`) -> else read and hashed, up to a bound
//! ```
//!
//! Never: counts one half of whose files could not be asked for, or an older one because a newer one could not.

use crate::address::Address;
use crate::error::{CheckError, Refusal, Unknown};
use crate::files::Folder;
use crate::manifest::{Entry, MOST_MANIFEST, Manifest, Name};
use crate::s3::S3;
use crate::settings::{Settings, SettingsError};
use crate::store::{Found, Look, Store, within};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use forebay_aws::shown;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

/// Files that are looked at side by side.
const AT_ONCE: usize = 16;

/// Manifests that are looked at in search of the latest that counts. A run that wrote more in vain has a fault to be told.
const LOOK_BACK: usize = 32;

/// Refusals that are kept of manifests which were passed over.
const MOST_PASSED_OVER: usize = 4;

/// Looks at checkpoints. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    settings: Arc<Settings>,
    s3: Option<Arc<S3>>,
}

/// Whose checkpoints, and where.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The job's `checkpoint.uri`.
    pub uri: &'a str,
    /// The job, such as `job-12`.
    pub job: &'a str,
    /// The run that asks: manifests of later ones do not count.
    pub attempt: u32,
}

/// A checkpoint that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// Its manifest.
    pub name: Name,
    /// Work done in all, over all attempts.
    pub progress: Duration,
    /// Its files.
    pub files: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Why newer manifests do not count, newest first; the first few.
    pub passed_over: Vec<Refusal>,
}

impl Checkpoints {
    /// Looks where these settings say.
    ///
    /// # Errors
    /// They cannot be.
    pub fn new(settings: Settings) -> Result<Checkpoints, SettingsError> {
        settings.check()?;
        let s3 = settings.s3.clone().map(|s3| S3::new(s3, settings.pace)).transpose()?.map(Arc::new);
        Ok(Checkpoints { settings: Arc::new(settings), s3 })
    }

    /// Looks at the checkpoint that a run reported, by its manifest's key from the address on.
    ///
    /// # Errors
    /// It does not count, or nobody can say.
    pub async fn verify(&self, ask: &Ask<'_>, manifest: &str) -> Result<Verified, CheckError> {
        let (address, store) = self.store(ask.uri)?;
        let unnamed = || Refusal::Unnamed { manifest: shown(manifest) };
        let name = Name::read(manifest).ok_or_else(unnamed)?;
        let place = store.place(&name.key());
        within(self.settings.pace.whole, "all of the look", &place, self.look(&address, &store, ask, name)).await
    }

    /// The latest checkpoint of a job that counts.
    ///
    /// # Errors
    /// None does (the newest one's refusal, where there is one), or nobody can say.
    pub async fn latest(&self, ask: &Ask<'_>) -> Result<Verified, CheckError> {
        let (address, store) = self.store(ask.uri)?;
        let place = store.place("");
        let search = async {
            let mut passed_over = Vec::new();
            for name in store.newest(ask.attempt, LOOK_BACK).await? {
                match self.look(&address, &store, ask, name).await {
                    Ok(found) => {
                        passed_over.truncate(MOST_PASSED_OVER);
                        return Ok(Verified { passed_over, ..found });
                    }
                    Err(CheckError::Refused(why)) => passed_over.push(why),
                    Err(unknown) => return Err(unknown),
                }
            }
            // What another job left at this address is none of this one's.
            let own = passed_over.into_iter().find(|why| !matches!(why, Refusal::Job { .. }));
            let nothing = || Refusal::NoManifest { place: place.clone(), attempt: ask.attempt };
            Err(own.unwrap_or_else(nothing).into())
        };
        within(self.settings.pace.whole, "all of the look", &place, search).await
    }

    /// The S3 of the settings, for a doctor.
    pub(crate) fn s3(&self) -> Option<&Arc<S3>> {
        self.s3.as_ref()
    }

    fn store(&self, uri: &str) -> Result<(Address, Store), Refusal> {
        let address = Address::parse(uri)?;
        let off = |key: &str| Refusal::Address {
            uri: address.to_string(),
            why: format!(
                "the controller does not look there: `checkpoints.{key}` is not configured; save elsewhere, or have it configured"
            ),
        };
        let store = match &address {
            Address::S3 { bucket, prefix } => {
                Store::S3(self.s3.as_ref().ok_or_else(|| off("s3"))?.bucket(bucket, prefix)?)
            }
            Address::Files(path) if self.settings.files => Store::Files(Folder::new(path, self.settings.pace)),
            Address::Files(_) => return Err(off("files")),
        };
        Ok((address, store))
    }

    async fn look(&self, address: &Address, store: &Store, ask: &Ask<'_>, name: Name) -> Result<Verified, CheckError> {
        let place = store.place(&name.key());
        let bytes = match store.read(&name.key(), MOST_MANIFEST).await? {
            Look::Absent(_) => return Err(Refusal::NotThere { place }.into()),
            Look::There(bytes) if bytes.len() as u64 > MOST_MANIFEST => {
                let why = format!(
                    "it has more than {MOST_MANIFEST} bytes; name fewer files, several in one archive if need be"
                );
                return Err(Refusal::Unreadable { place, why }.into());
            }
            Look::There(bytes) => bytes,
        };
        let manifest = Manifest::read(address, &place, &bytes)?;
        agrees(&manifest, &place, ask, name)?;
        let (progress, files) = (manifest.progress, manifest.files.len());
        let bytes = manifest.files.iter().fold(0_u64, |sum, entry| sum.saturating_add(entry.size));
        self.files(store, manifest.files).await?;
        Ok(Verified { name, progress, files, bytes, passed_over: Vec::new() })
    }

    /// Looks at every file. The first refusal in the manifest's order is told; unknown only where nothing is refused.
    async fn files(&self, store: &Store, entries: Vec<Entry>) -> Result<(), CheckError> {
        let budget = Arc::new(AtomicU64::new(self.settings.read_at_most));
        let (mut left, mut running) = (entries.into_iter().enumerate(), JoinSet::new());
        let mut worst: Option<(usize, CheckError)> = None;
        loop {
            while running.len() < AT_ONCE
                && worst.is_none()
                && let Some((at, entry)) = left.next()
            {
                let (store, budget) = (store.clone(), Arc::clone(&budget));
                running.spawn(async move { (at, file(&store, &entry, &budget).await) });
            }
            let Some(ended) = running.join_next().await else { break };
            let (at, looked) = ended.map_err(|e| {
                Unknown::new(format!("{}: the look at a file ended: {e}; tried again", store.place("")))
            })?;
            if let Err(error) = looked {
                let rank = |(at, error): &(usize, CheckError)| (matches!(error, CheckError::Unknown(_)), *at);
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

/// Whether a manifest is what its name says, and its writer's.
fn agrees(manifest: &Manifest, place: &str, ask: &Ask<'_>, name: Name) -> Result<(), Refusal> {
    let Name { attempt, sequence } = manifest.name;
    let other = |why: String| Err(Refusal::Attempt { place: place.to_owned(), attempt, sequence, why });
    if manifest.job != ask.job {
        return Err(Refusal::Job { place: place.to_owned(), job: shown(&manifest.job), wanted: ask.job.to_owned() });
    }
    if manifest.name != name {
        return other("its name says otherwise: write the same in both".to_owned());
    }
    if attempt > ask.attempt {
        return other(format!(
            "the run that reports is attempt {}: report with the attempt that wrote it",
            ask.attempt
        ));
    }
    Ok(())
}

/// Looks at one file.
async fn file(store: &Store, entry: &Entry, budget: &AtomicU64) -> Result<(), CheckError> {
    let place = store.place(&entry.key);
    let Found { size, checksum } = match store.look(&entry.key).await? {
        Look::There(found) => found,
        Look::Absent(why) => return Err(Refusal::Missing { place, why }.into()),
    };
    if size != entry.size {
        return Err(Refusal::Size { place, found: size, stated: entry.size }.into());
    }
    if let Some(found) = checksum
        && let Some(stated) = stated(entry, &found)
    {
        return if stated == found { Ok(()) } else { Err(Refusal::Checksum { place, found, stated }.into()) };
    }
    hashed(store, entry, place, budget).await
}

/// What the manifest says of a checksum that the store has, in the store's words. `None`: nothing that can be compared.
fn stated(entry: &Entry, found: &str) -> Option<String> {
    if entry.checksum.as_deref().is_some_and(|stated| in_parts(stated) == in_parts(found)) {
        return entry.checksum.clone();
    }
    let of_whole = entry.sha256.as_deref().filter(|_| !in_parts(found))?;
    Some(STANDARD.encode(unhex(of_whole)?))
}

/// Whether a checksum is one of an upload in parts.
fn in_parts(checksum: &str) -> bool {
    checksum.contains('-')
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    (0..text.len() / 2).map(|at| u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads a file whose checksum the store cannot tell, if what is read in all stays small.
async fn hashed(store: &Store, entry: &Entry, place: String, budget: &AtomicU64) -> Result<(), CheckError> {
    let Some(stated) = entry.sha256.as_ref().map(|text| text.to_ascii_lowercase()) else {
        let why = "S3 has no such checksum of it; write `sha256`, or upload it with SHA-256 as its checksum algorithm";
        return Err(Refusal::Unverifiable { place, why: why.to_owned() }.into());
    };
    let afford = |left: u64| left.checked_sub(entry.size);
    if budget.fetch_update(Ordering::Relaxed, Ordering::Relaxed, afford).is_err() {
        let why = format!(
            "the store has no SHA-256 of its {} bytes, and no more of this manifest is read; upload it with SHA-256 as its checksum algorithm (in \
             parts: write S3's answer as `checksum`), or raise `checkpoints.readAtMost`",
            entry.size
        );
        return Err(Refusal::Unverifiable { place, why }.into());
    }
    let found = match store.hash(&entry.key, entry.size).await? {
        Look::There(found) => hex(&found),
        Look::Absent(why) => return Err(Refusal::Missing { place, why }.into()),
    };
    if found == stated { Ok(()) } else { Err(Refusal::Checksum { place, found, stated }.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(sha256: Option<&str>, checksum: Option<&str>) -> Entry {
        Entry { key: "a".into(), size: 1, sha256: sha256.map(str::to_owned), checksum: checksum.map(str::to_owned) }
    }

    #[test]
    fn checksums_are_compared_in_the_stores_words() {
        // Of one byte: `printf a | sha256sum`.
        let hexed = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb";
        let based = "ypeBEsobvcr6wjGzmiPcTaeG7/gUfE5yuYB3ha/uSLs=";
        assert_eq!(stated(&entry(Some(hexed), None), based).as_deref(), Some(based));
        assert_eq!(stated(&entry(Some(&hexed.to_uppercase()), None), based).as_deref(), Some(based));
        assert_eq!(stated(&entry(None, Some(based)), based).as_deref(), Some(based));
        // Of parts only what is written of parts.
        assert_eq!(stated(&entry(Some(hexed), None), "x=-2"), None);
        assert_eq!(stated(&entry(Some(hexed), Some("y=-2")), "x=-2").as_deref(), Some("y=-2"));
        assert_eq!(stated(&entry(Some(hexed), Some("y=-2")), based).as_deref(), Some(based));
        assert_eq!(hex(&unhex(hexed).expect("hex")), hexed);
    }
}
