//! Checkpoints in a file system that the controller and the nodes share.
//!
//! No link is followed out of the address, no pipe is waited for, and a folder that is not mounted is not taken for an empty one.

use crate::error::{CheckError, StoreUnavailable};
use crate::manifest::{FOLDER, ManifestName};
use crate::settings::CheckpointTimeouts;
use crate::store::{Lookup, NOT_THERE, NewestManifests, StoredObject, with_timeout};
use sha2::{Digest, Sha256};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The folder of one job.
#[derive(Clone, Debug)]
pub(crate) struct SharedFolder {
    root: Arc<Path>,
    timeouts: CheckpointTimeouts,
}

impl SharedFolder {
    pub fn new(root: &Path, timeouts: CheckpointTimeouts) -> SharedFolder {
        SharedFolder { root: root.into(), timeouts }
    }

    pub fn location(&self, key: &str) -> String {
        format!("file://{}/{key}", self.root.display())
    }

    pub async fn stat(&self, key: &str) -> Result<Lookup<StoredObject>, CheckError> {
        let size = |file: &mut File| Ok(StoredObject { size: file.metadata()?.len(), checksum: None });
        self.with(key, self.timeouts.call, size).await
    }

    pub async fn read(&self, key: &str, most: u64) -> Result<Lookup<Vec<u8>>, CheckError> {
        let read = move |file: &mut File| {
            let mut bytes = Vec::new();
            file.take(most + 1).read_to_end(&mut bytes).map(|_| bytes)
        };
        self.with(key, self.timeouts.read, read).await
    }

    pub async fn hash(&self, key: &str, size: u64) -> Result<Lookup<[u8; 32]>, CheckError> {
        let limit = self.timeouts.read + Duration::from_secs(size / (20 << 20));
        self.with(key, limit, move |file| {
            let (mut hash, mut buffer) = (Sha256::new(), vec![0; 1 << 18]);
            // If the file has grown since its size was checked, one more byte is read, which changes the hash.
            let mut part = file.take(size.saturating_add(1));
            loop {
                match part.read(&mut buffer) {
                    Ok(0) => return Ok(hash.finalize().into()),
                    Ok(n) => hash.update(&buffer[..n]),
                    Err(e) if e.kind() == ErrorKind::Interrupted => {}
                    Err(e) => return Err(e),
                }
            }
        })
        .await
    }

    pub async fn newest(&self, attempt: u32, most: usize) -> Result<Vec<ManifestName>, CheckError> {
        let (this, location) = (self.clone(), self.location(FOLDER));
        let list = move || -> Result<Vec<ManifestName>, CheckError> {
            let location = this.location(FOLDER);
            let mut newest = NewestManifests::new(attempt, most);
            let Some(folder) = this.below(FOLDER.trim_end_matches('/'))? else { return Ok(newest.names()) };
            let entries = match std::fs::read_dir(folder) {
                Ok(entries) => entries,
                Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                    return Ok(newest.names());
                }
                Err(e) => return Err(unavailable(&location, &e).into()),
            };
            for entry in entries {
                let entry = entry.map_err(|e| unavailable(&location, &e))?;
                newest.take(&location, &format!("{FOLDER}{}", entry.file_name().to_string_lossy()))?;
            }
            Ok(newest.names())
        };
        self.blocking(&location, self.timeouts.call, list).await
    }

    /// Opens a file below the folder and reads from it.
    async fn with<T: Send + 'static>(
        &self,
        key: &str,
        limit: Duration,
        work: impl FnOnce(&mut File) -> std::io::Result<T> + Send + 'static,
    ) -> Result<Lookup<T>, CheckError> {
        let (this, key, location) = (self.clone(), key.to_owned(), self.location(key));
        let open = move || -> Result<Lookup<T>, CheckError> {
            let location = this.location(&key);
            let Some(path) = this.below(&key)? else { return Ok(Lookup::Absent(NOT_THERE)) };
            if !path.starts_with(this.resolved_root()?) {
                return Ok(Lookup::Absent("a link leads out of the address"));
            }
            let mut file = match open_nonblocking(&path) {
                Ok(file) => file,
                Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Lookup::Absent(NOT_THERE)),
                Err(e) => return Err(unavailable(&location, &e).into()),
            };
            if !file.metadata().map_err(|e| unavailable(&location, &e))?.is_file() {
                return Ok(Lookup::Absent("it is not a file"));
            }
            Ok(Lookup::Found(work(&mut file).map_err(|e| unavailable(&location, &e))?))
        };
        self.blocking(&location, limit, open).await
    }

    async fn blocking<T: Send + 'static>(
        &self,
        location: &str,
        limit: Duration,
        work: impl FnOnce() -> Result<T, CheckError> + Send + 'static,
    ) -> Result<T, CheckError> {
        let task = tokio::task::spawn_blocking(work);
        let done = async {
            task.await.map_err(|e| StoreUnavailable::new(format!("{location}: the check ended: {e}; it is retried")))?
        };
        with_timeout(limit, "the file system", location, done).await
    }

    /// The resolved path of the folder. If the folder does not exist, it may not be mounted, so nothing is known about its content.
    fn resolved_root(&self) -> Result<PathBuf, StoreUnavailable> {
        std::fs::canonicalize(&self.root).map_err(|e| {
            let location = self.location("");
            match e.kind() {
                ErrorKind::NotFound => StoreUnavailable::new(format!(
                    "{location}: the folder does not exist; mount the file system where the controller runs, and let the workload create its folder"
                )),
                _ => unavailable(&location, &e),
            }
        })
    }

    /// The resolved path of a key. `None` if it does not exist.
    fn below(&self, key: &str) -> Result<Option<PathBuf>, StoreUnavailable> {
        let root = self.resolved_root()?;
        match std::fs::canonicalize(root.join(key)) {
            Ok(path) => Ok(Some(path)),
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
            Err(e) => Err(unavailable(&self.location(key), &e)),
        }
    }
}

/// Opens a file without waiting. A pipe in its place would block the thread until somebody writes.
fn open_nonblocking(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use rustix::fs::OFlags;
        use std::os::unix::fs::OpenOptionsExt;
        let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW;
        options.custom_flags(flags.bits().cast_signed());
    }
    options.open(path)
}

fn unavailable(location: &str, error: &std::io::Error) -> StoreUnavailable {
    StoreUnavailable::new(format!("{location}: {error}; let Forebay read it, and check the file system under it"))
}
