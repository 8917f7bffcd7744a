//! What is asked of a store, whichever it is: is it there, how large, which checksum, what are its bytes.
//!
//! Never: a write, or an answer where there was none.

use crate::error::{CheckError, Refusal, Unknown};
use crate::files::Folder;
use crate::manifest::Name;
use crate::s3::Bucket;
use std::collections::BTreeSet;
use std::future::Future;
use std::time::Duration;

/// Manifests that are listed of one address. A job that saves each minute for two months has fewer.
pub(crate) const MOST_LISTED: usize = 100_000;

/// The store of one address. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) enum Store {
    S3(Bucket),
    Files(Folder),
}

/// A file that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub size: u64,
    /// SHA-256 as the store has it: in base64, with `-PARTS` where it is of an upload in parts.
    pub checksum: Option<String>,
}

/// What a look at a file brings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Look<T> {
    There(T),
    /// Nothing that could be meant is there.
    Absent(&'static str),
}

/// Nothing of that name.
pub(crate) const NOT_THERE: &str = "it is not there";

impl Store {
    /// Where a key is, for messages.
    pub fn place(&self, key: &str) -> String {
        match self {
            Store::S3(bucket) => bucket.place(key),
            Store::Files(folder) => folder.place(key),
        }
    }

    /// A file's bytes, at most `most` and one: more say that it is larger.
    pub async fn read(&self, key: &str, most: u64) -> Result<Look<Vec<u8>>, CheckError> {
        match self {
            Store::S3(bucket) => bucket.read(key, most).await,
            Store::Files(folder) => folder.read(key, most).await,
        }
    }

    /// Whether a file is there, and how large.
    pub async fn look(&self, key: &str) -> Result<Look<Found>, CheckError> {
        match self {
            Store::S3(bucket) => bucket.look(key).await,
            Store::Files(folder) => folder.look(key).await,
        }
    }

    /// The SHA-256 of a file of `size` bytes, by reading all of it.
    pub async fn hash(&self, key: &str, size: u64) -> Result<Look<[u8; 32]>, CheckError> {
        match self {
            Store::S3(bucket) => bucket.hash(key, size).await,
            Store::Files(folder) => folder.hash(key, size).await,
        }
    }

    /// The newest names of manifests up to an attempt, newest first, at most `most`.
    pub async fn newest(&self, attempt: u32, most: usize) -> Result<Vec<Name>, CheckError> {
        match self {
            Store::S3(bucket) => bucket.newest(attempt, most).await,
            Store::Files(folder) => folder.newest(attempt, most).await,
        }
    }
}

/// Keeps the newest names while a listing goes on.
#[derive(Debug)]
pub(crate) struct Newest {
    attempt: u32,
    most: usize,
    kept: BTreeSet<Name>,
    seen: usize,
}

impl Newest {
    pub fn new(attempt: u32, most: usize) -> Newest {
        Newest { attempt, most, kept: BTreeSet::new(), seen: 0 }
    }

    /// Takes a key from the address on. An error: there are more than anybody should have.
    pub fn take(&mut self, place: &str, key: &str) -> Result<(), Refusal> {
        self.seen += 1;
        if self.seen > MOST_LISTED {
            let why = format!(
                "more than {MOST_LISTED} objects are there; remove old manifests, or give each job an address of its own"
            );
            return Err(Refusal::Unreadable { place: place.to_owned(), why });
        }
        let Some(name) = Name::read(key).filter(|name| name.attempt <= self.attempt) else { return Ok(()) };
        self.kept.insert(name);
        if self.kept.len() > self.most {
            self.kept.pop_first();
        }
        Ok(())
    }

    pub fn names(self) -> Vec<Name> {
        self.kept.into_iter().rev().collect()
    }
}

/// Awaits something for so long.
pub(crate) async fn within<T, E>(
    limit: Duration,
    what: &str,
    place: &str,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, CheckError>
where
    CheckError: From<E>,
{
    match tokio::time::timeout(limit, work).await {
        Ok(done) => Ok(done?),
        Err(_) => {
            Err(Unknown::new(format!("{place}: no answer to {what} within {limit:?}; check the store and the network"))
                .into())
        }
    }
}
