//! The journal's folder: its files, and the lock that keeps a second process out.
//!
//! Never: waits for the lock unless asked to. Who comes second is told who is there.

use crate::error::JournalError;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

/// The journal's database in its folder.
pub const FILE: &str = "journal.sqlite";

const LOCK: &str = "forebay.lock";

/// A folder that this process holds. Given up when dropped, or when the process ends in whatever way.
#[derive(Debug)]
pub struct DataFolder {
    path: PathBuf,
    lock: File,
}

impl DataFolder {
    /// Takes the folder, which must exist.
    ///
    /// # Errors
    /// When another process holds it, or its lock file cannot be opened.
    pub fn take(path: &Path) -> Result<DataFolder, JournalError> {
        let at = path.join(LOCK);
        let opened = private(OpenOptions::new().read(true).write(true).create(true).truncate(false)).open(&at);
        let mut lock = opened.map_err(|e| JournalError::io(&at, e))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(JournalError::InUse { folder: path.to_owned(), holder: named(&mut lock) });
            }
            Err(TryLockError::Error(e)) => return Err(JournalError::io(&at, e)),
        }
        // Who holds it is for messages only: a full disk must not keep a reader out.
        let _ = lock.set_len(0).and_then(|()| lock.rewind()).and_then(|()| write!(lock, "{}", std::process::id()));
        Ok(DataFolder { path: path.to_owned(), lock })
    }

    /// Takes the folder to read from it, and writes nothing there. `None`: it has no lock file, as a backup does, and nobody works on it.
    ///
    /// # Errors
    /// When another process holds it.
    pub(crate) fn take_to_read(path: &Path) -> Result<Option<DataFolder>, JournalError> {
        let at = path.join(LOCK);
        let mut lock = match File::open(&at) {
            Ok(lock) => lock,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(JournalError::io(&at, e)),
        };
        match lock.try_lock() {
            Ok(()) => Ok(Some(DataFolder { path: path.to_owned(), lock })),
            Err(TryLockError::WouldBlock) => {
                Err(JournalError::InUse { folder: path.to_owned(), holder: named(&mut lock) })
            }
            Err(TryLockError::Error(e)) => Err(JournalError::io(&at, e)),
        }
    }

    /// Who holds a folder now. `None`: nobody, or there is no such folder. Nothing is written there.
    #[must_use]
    pub fn holder(path: &Path) -> Option<String> {
        let mut lock = File::open(path.join(LOCK)).ok()?;
        // Shared, so that two who ask do not take each other for a holder.
        match lock.try_lock_shared() {
            Err(TryLockError::WouldBlock) => Some(named(&mut lock)),
            _ => None,
        }
    }

    /// Waits until nobody holds a folder, and leaves it to whoever takes it first.
    ///
    /// # Errors
    /// What the file system says.
    pub fn wait_for(path: &Path) -> Result<(), JournalError> {
        let at = path.join(LOCK);
        let lock = File::open(&at).map_err(|e| JournalError::io(&at, e))?;
        // The system wakes whoever waits when the holder ends, in whatever way.
        lock.lock().and_then(|()| lock.unlock()).map_err(|e| JournalError::io(&at, e))
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The database.
    #[must_use]
    pub fn database(&self) -> PathBuf {
        self.path.join(FILE)
    }

    /// Makes a change of names in the folder durable.
    ///
    /// # Errors
    /// When the folder cannot be opened or written through to the disk.
    pub fn sync(&self) -> Result<(), JournalError> {
        let synced = File::open(&self.path).and_then(|folder| folder.sync_all());
        synced.map_err(|e| JournalError::io(&self.path, e))
    }
}

/// A file that nobody but its owner may read or write, where the system knows owners.
pub(crate) fn create_private(path: &Path) -> std::io::Result<File> {
    private(OpenOptions::new().read(true).write(true).create(true).truncate(true)).open(path)
}

fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}

/// Makes a folder, and those above it, that nobody but its owner may enter. One that is there stays as it is.
pub(crate) fn create_private_folder(path: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(path)
}

/// Who wrote its number into the lock's file.
fn named(lock: &mut File) -> String {
    let mut pid = String::new();
    let _ = lock.read_to_string(&mut pid);
    match pid.trim() {
        "" => "another process".to_owned(),
        pid => format!("process {pid}"),
    }
}

impl Drop for DataFolder {
    fn drop(&mut self) {
        // A lock that was taken to read cannot be written to, and stays as it is.
        let _ = self.lock.set_len(0);
        let _ = self.lock.unlock();
    }
}
