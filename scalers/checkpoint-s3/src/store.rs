//! The read operations that every store has. A store that does not respond is an error, never an empty result.

use crate::error::{CheckError, CheckpointRefusal, StoreUnavailable};
use crate::manifest::ManifestName;
use crate::s3::S3Prefix;
use crate::shared_folder::SharedFolder;
use std::collections::BTreeSet;
use std::future::Future;
use std::time::Duration;

/// The most manifests that are listed at one address. A job that saves every minute for two months has fewer.
pub(crate) const MAX_LISTED: usize = 100_000;

/// The store of one address. Clones share their client.
#[derive(Clone, Debug)]
pub(crate) enum Store {
    S3(S3Prefix),
    Files(SharedFolder),
}

/// The metadata of a stored file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredObject {
    pub size: u64,
    /// The SHA-256 that the store has: in base64, for a multipart upload followed by `-PARTS`.
    pub checksum: Option<String>,
}

/// The result of looking up a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lookup<T> {
    Found(T),
    /// There is no such file. The text says what is there instead.
    Absent(&'static str),
}

/// For [`Lookup::Absent`] if nothing has the name.
pub(crate) const NOT_THERE: &str = "it is not there";

impl Store {
    /// The full address of a key, for messages.
    pub fn location(&self, key: &str) -> String {
        match self {
            Store::S3(bucket) => bucket.location(key),
            Store::Files(folder) => folder.location(key),
        }
    }

    /// The content of a file, but at most `most` + 1 bytes, so that a larger file is noticed.
    pub async fn read(&self, key: &str, most: u64) -> Result<Lookup<Vec<u8>>, CheckError> {
        match self {
            Store::S3(bucket) => bucket.read(key, most).await,
            Store::Files(folder) => folder.read(key, most).await,
        }
    }

    /// The size and checksum of a file.
    pub async fn stat(&self, key: &str) -> Result<Lookup<StoredObject>, CheckError> {
        match self {
            Store::S3(bucket) => bucket.stat(key).await,
            Store::Files(folder) => folder.stat(key).await,
        }
    }

    /// The SHA-256 of a file of `size` bytes, which is read for that.
    pub async fn hash(&self, key: &str, size: u64) -> Result<Lookup<[u8; 32]>, CheckError> {
        match self {
            Store::S3(bucket) => bucket.hash(key, size).await,
            Store::Files(folder) => folder.hash(key, size).await,
        }
    }

    /// The names of the newest manifests up to an attempt, newest first, at most `most`.
    pub async fn newest(&self, attempt: u32, most: usize) -> Result<Vec<ManifestName>, CheckError> {
        match self {
            Store::S3(bucket) => bucket.newest(attempt, most).await,
            Store::Files(folder) => folder.newest(attempt, most).await,
        }
    }
}

/// Collects the newest names from a listing.
#[derive(Debug)]
pub(crate) struct NewestManifests {
    attempt: u32,
    most: usize,
    kept: BTreeSet<ManifestName>,
    seen: usize,
}

impl NewestManifests {
    pub fn new(attempt: u32, most: usize) -> NewestManifests {
        NewestManifests { attempt, most, kept: BTreeSet::new(), seen: 0 }
    }

    /// Adds a key of the listing. Fails if there are too many.
    pub fn take(&mut self, location: &str, key: &str) -> Result<(), CheckpointRefusal> {
        self.seen += 1;
        if self.seen > MAX_LISTED {
            let why = format!(
                "more than {MAX_LISTED} objects are there; remove old manifests, or give each job an address of its own"
            );
            return Err(CheckpointRefusal::Unreadable { location: location.to_owned(), why });
        }
        let Some(name) = ManifestName::read(key).filter(|name| name.attempt <= self.attempt) else { return Ok(()) };
        self.kept.insert(name);
        if self.kept.len() > self.most {
            self.kept.pop_first();
        }
        Ok(())
    }

    pub fn names(self) -> Vec<ManifestName> {
        self.kept.into_iter().rev().collect()
    }
}

/// Awaits something, with a time limit.
pub(crate) async fn with_timeout<T, E>(
    limit: Duration,
    what: &str,
    location: &str,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, CheckError>
where
    CheckError: From<E>,
{
    match tokio::time::timeout(limit, work).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(StoreUnavailable::new(format!(
            "{location}: no response to {what} within {limit:?}; check the store and the network"
        ))
        .into()),
    }
}
