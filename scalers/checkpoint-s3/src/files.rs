//! Checkpoints in a file system that the controller shares with the nodes.
//!
//! Never: follows a link out of the address, waits on a pipe, or takes a folder that is not mounted for an empty one.

use crate::error::{CheckError, Unknown};
use crate::manifest::{FOLDER, Name};
use crate::settings::Pace;
use crate::store::{Found, Look, NOT_THERE, Newest, within};
use sha2::{Digest, Sha256};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A folder of one job.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    root: Arc<Path>,
    pace: Pace,
}

impl Folder {
    pub fn new(root: &Path, pace: Pace) -> Folder {
        Folder { root: root.into(), pace }
    }

    pub fn place(&self, key: &str) -> String {
        format!("file://{}/{key}", self.root.display())
    }

    pub async fn look(&self, key: &str) -> Result<Look<Found>, CheckError> {
        let size = |file: &mut File| Ok(Found { size: file.metadata()?.len(), checksum: None });
        self.with(key, self.pace.call, size).await
    }

    pub async fn read(&self, key: &str, most: u64) -> Result<Look<Vec<u8>>, CheckError> {
        let read = move |file: &mut File| {
            let mut bytes = Vec::new();
            file.take(most + 1).read_to_end(&mut bytes).map(|_| bytes)
        };
        self.with(key, self.pace.read, read).await
    }

    pub async fn hash(&self, key: &str, size: u64) -> Result<Look<[u8; 32]>, CheckError> {
        let limit = self.pace.read + Duration::from_secs(size / (20 << 20));
        self.with(key, limit, move |file| {
            let (mut hash, mut buffer) = (Sha256::new(), vec![0; 1 << 18]);
            // One that has grown since it was looked at is read a little further, and has another hash for that.
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

    pub async fn newest(&self, attempt: u32, most: usize) -> Result<Vec<Name>, CheckError> {
        let (this, place) = (self.clone(), self.place(FOLDER));
        let list = move || -> Result<Vec<Name>, CheckError> {
            let place = this.place(FOLDER);
            let mut newest = Newest::new(attempt, most);
            let Some(folder) = this.below(FOLDER.trim_end_matches('/'))? else { return Ok(newest.names()) };
            let entries = match std::fs::read_dir(folder) {
                Ok(entries) => entries,
                Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                    return Ok(newest.names());
                }
                Err(e) => return Err(unknown(&place, &e).into()),
            };
            for entry in entries {
                let entry = entry.map_err(|e| unknown(&place, &e))?;
                newest.take(&place, &format!("{FOLDER}{}", entry.file_name().to_string_lossy()))?;
            }
            Ok(newest.names())
        };
        self.blocking(&place, self.pace.call, list).await
    }

    /// Does something with a file below the folder.
    async fn with<T: Send + 'static>(
        &self,
        key: &str,
        limit: Duration,
        work: impl FnOnce(&mut File) -> std::io::Result<T> + Send + 'static,
    ) -> Result<Look<T>, CheckError> {
        let (this, key, place) = (self.clone(), key.to_owned(), self.place(key));
        let open = move || -> Result<Look<T>, CheckError> {
            let place = this.place(&key);
            let Some(path) = this.below(&key)? else { return Ok(Look::Absent(NOT_THERE)) };
            if !path.starts_with(this.whole()?) {
                return Ok(Look::Absent("a link leads out of the address"));
            }
            let mut file = match open_at_once(&path) {
                Ok(file) => file,
                Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Look::Absent(NOT_THERE)),
                Err(e) => return Err(unknown(&place, &e).into()),
            };
            if !file.metadata().map_err(|e| unknown(&place, &e))?.is_file() {
                return Ok(Look::Absent("it is no file"));
            }
            Ok(Look::There(work(&mut file).map_err(|e| unknown(&place, &e))?))
        };
        self.blocking(&place, limit, open).await
    }

    async fn blocking<T: Send + 'static>(
        &self,
        place: &str,
        limit: Duration,
        work: impl FnOnce() -> Result<T, CheckError> + Send + 'static,
    ) -> Result<T, CheckError> {
        let task = tokio::task::spawn_blocking(work);
        let done =
            async { task.await.map_err(|e| Unknown::new(format!("{place}: the look at it ended: {e}; tried again")))? };
        within(limit, "the file system", place, done).await
    }

    /// The folder, with its links followed. It must be there: one that is not mounted says nothing about what is in it.
    fn whole(&self) -> Result<PathBuf, Unknown> {
        std::fs::canonicalize(&self.root).map_err(|e| {
            let place = self.place("");
            match e.kind() {
                ErrorKind::NotFound => Unknown::new(format!(
                    "{place}: the folder is not there; mount the file system where the controller runs, and let the workload make its folder"
                )),
                _ => unknown(&place, &e),
            }
        })
    }

    /// Where a key is, with links followed. `None`: nowhere.
    fn below(&self, key: &str) -> Result<Option<PathBuf>, Unknown> {
        let whole = self.whole()?;
        match std::fs::canonicalize(whole.join(key)) {
            Ok(path) => Ok(Some(path)),
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
            Err(e) => Err(unknown(&self.place(key), &e)),
        }
    }
}

/// Opens without waiting: a pipe under a file's name would hold the thread until somebody writes.
fn open_at_once(path: &Path) -> std::io::Result<File> {
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

fn unknown(place: &str, error: &std::io::Error) -> Unknown {
    Unknown::new(format!("{place}: {error}; let Forebay read it, and check the file system under it"))
}
