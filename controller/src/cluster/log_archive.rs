//! The ends of logs of workers whose pods are gone, in the journal's folder.
//!
//! ```text
//! DATA/logs/JOB/ATTEMPT/WORKER     one line of JSON: {"truncated","why"}, then the text, at most 64 KiB
//! ```
//!
//! A file is written beside its place and renamed, readable by its owner alone. Beyond [`MOST_BYTES`] the logs that were written first go first.
//! It is best effort: after a crash of the machine a log may be missing, and nothing else depends on it. Every function here blocks.
//! Never: a path from a name that somebody else chose (they are made of numbers), a file removed that is not one of these.

use forebay_kernel::ids::{Attempt, JobId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

/// The most of all logs: four thousand whole ones.
const MOST_BYTES: u64 = 256 << 20;
/// The most of one file: a log of 64 KiB, of which no character is longer than it was, and its first line.
const MOST_FILE: u64 = 72 << 10;
/// What a file takes at least on a disk.
const BLOCK: u64 = 4 << 10;

/// Which log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogKey {
    /// The job.
    pub job: JobId,
    /// Its attempt.
    pub attempt: Attempt,
    /// The number of the worker.
    pub worker: u32,
}

/// A log that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptLog {
    /// Its end.
    pub text: String,
    /// Whether there was more before it.
    pub truncated: bool,
    /// Why there is no text.
    pub why: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct FirstLine {
    truncated: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// The logs of one journal. Its copies share it.
#[derive(Clone, Debug)]
pub struct LogArchive(Arc<LogFolder>);

#[derive(Debug)]
struct LogFolder {
    path: PathBuf,
    most: u64,
    /// `None`: the folder has not been looked at.
    known: Mutex<Option<KnownLogs>>,
}

/// What is there, in the order in which it was written.
#[derive(Debug, Default)]
struct KnownLogs {
    next: u64,
    bytes: u64,
    order: BTreeMap<u64, LogKey>,
    sizes: BTreeMap<LogKey, (u64, u64)>,
}

impl LogArchive {
    /// Those of the journal in `folder`. Nothing is read or made yet.
    #[must_use]
    pub fn new(folder: &Path) -> LogArchive {
        LogArchive::of_size(folder, MOST_BYTES)
    }

    fn of_size(folder: &Path, most: u64) -> LogArchive {
        LogArchive(Arc::new(LogFolder { path: folder.join("logs"), most, known: Mutex::default() }))
    }

    /// Keeps a log, and removes the oldest ones for which there is no room.
    ///
    /// # Errors
    /// The folder cannot be read or written to.
    pub fn keep(&self, key: LogKey, log: &KeptLog) -> io::Result<()> {
        let mut guard = self.known()?;
        let Some(known) = guard.as_mut() else { return Ok(()) };
        let first = FirstLine { truncated: log.truncated, why: log.why.clone() };
        let mut bytes = serde_json::to_vec(&first)?;
        bytes.push(b'\n');
        bytes.extend_from_slice(log.text.as_bytes());
        write(&self.path(key), &bytes)?;
        known.insert(key, bytes.len() as u64);
        while known.bytes > self.0.most
            && let Some((_, oldest)) = known.order.first_key_value().filter(|(_, oldest)| **oldest != key)
        {
            let oldest = *oldest;
            self.remove(oldest)?;
            known.remove(oldest);
        }
        Ok(())
    }

    /// The workers of an attempt whose logs are kept.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn workers(&self, job: JobId, attempt: Attempt) -> io::Result<BTreeSet<u32>> {
        let of = |worker| LogKey { job, attempt, worker };
        let known = self.known()?;
        let range = known.iter().flat_map(|known| known.sizes.range(of(0)..=of(u32::MAX)));
        Ok(range.map(|(key, _)| key.worker).collect())
    }

    /// A log. `None`: it is not kept.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(&self, key: LogKey) -> io::Result<Option<KeptLog>> {
        let mut bytes = Vec::new();
        match fs::File::open(self.path(key)) {
            Ok(file) => file.take(MOST_FILE).read_to_end(&mut bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let text = String::from_utf8_lossy(&bytes);
        let (first, text) = text.split_once('\n').unwrap_or((&text, ""));
        let FirstLine { truncated, why } = serde_json::from_str(first)?;
        Ok(Some(KeptLog { text: text.to_owned(), truncated, why }))
    }

    fn path(&self, key: LogKey) -> PathBuf {
        let LogKey { job, attempt, worker } = key;
        self.0.path.join(job.to_string()).join(attempt.0.to_string()).join(worker.to_string())
    }

    fn remove(&self, key: LogKey) -> io::Result<()> {
        let path = self.path(key);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        for folder in path.ancestors().skip(1).take(2) {
            // It stays where there is more in it.
            let _ = fs::remove_dir(folder);
        }
        Ok(())
    }

    fn known(&self) -> io::Result<MutexGuard<'_, Option<KnownLogs>>> {
        let mut known = self.0.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_none() {
            *known = Some(scan(&self.0.path)?);
        }
        Ok(known)
    }
}

impl KnownLogs {
    fn insert(&mut self, key: LogKey, size: u64) {
        self.remove(key);
        let size = size.max(BLOCK);
        self.order.insert(self.next, key);
        self.sizes.insert(key, (self.next, size));
        self.next += 1;
        self.bytes += size;
    }

    fn remove(&mut self, key: LogKey) {
        if let Some((number, size)) = self.sizes.remove(&key) {
            self.order.remove(&number);
            self.bytes -= size;
        }
    }
}

/// Writes a file whole or not at all.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let draft = path.with_extension("new");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let written =
        options.open(&draft).and_then(|mut file| file.write_all(bytes)).and_then(|()| fs::rename(&draft, path));
    if written.is_err() {
        // It may not even be there.
        let _ = fs::remove_file(&draft);
    }
    written
}

/// What is in the folder, the oldest first. What has another name, or is a link, is not ours.
fn scan(path: &Path) -> io::Result<KnownLogs> {
    let mut found: Vec<(SystemTime, LogKey, u64)> = Vec::new();
    for (job, folder) in numbered(path, "job-", Kind::Folder)? {
        for (attempt, folder) in numbered(&folder, "", Kind::Folder)? {
            for (worker, file) in numbered(&folder, "", Kind::File)? {
                let (Ok(attempt), Ok(worker)) = (u32::try_from(attempt), u32::try_from(worker)) else { continue };
                let metadata = fs::symlink_metadata(&file)?;
                let key = LogKey { job: JobId(job), attempt: Attempt(attempt), worker };
                found.push((metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH), key, metadata.len()));
            }
        }
    }
    found.sort();
    let mut known = KnownLogs::default();
    for (_, key, size) in found {
        known.insert(key, size);
    }
    Ok(known)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Folder,
    File,
}

/// The entries of a folder whose name is a number, as we write it, behind `prefix`.
fn numbered(folder: &Path, prefix: &str, kind: Kind) -> io::Result<Vec<(u64, PathBuf)>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let number = name
            .to_str()
            .and_then(|name| name.strip_prefix(prefix))
            .and_then(|digits| digits.parse::<u64>().ok().filter(|number| number.to_string() == digits));
        let of_kind = match kind {
            Kind::Folder => entry.file_type()?.is_dir(),
            Kind::File => entry.file_type()?.is_file(),
        };
        if let (Some(number), true) = (number, of_kind) {
            found.push((number, entry.path()));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(job: u64, attempt: u32, worker: u32) -> LogKey {
        LogKey { job: JobId(job), attempt: Attempt(attempt), worker }
    }

    fn log(text: &str) -> KeptLog {
        KeptLog { text: text.to_owned(), truncated: false, why: None }
    }

    #[test]
    fn what_is_kept_is_read_again_by_another_process() {
        let folder = tempfile::tempdir().unwrap();
        let archive = LogArchive::new(folder.path());
        assert_eq!(archive.read(key(1, 1, 0)).unwrap(), None);
        assert_eq!(archive.workers(JobId(1), Attempt(1)).unwrap(), BTreeSet::new());
        archive.keep(key(1, 1, 0), &log("one\n\u{1b}[31mtwo\n")).unwrap();
        let unread = KeptLog { text: String::new(), truncated: false, why: Some("no node".into()) };
        archive.keep(key(1, 1, 7), &unread).unwrap();
        archive.keep(key(1, 2, 0), &KeptLog { truncated: true, ..log("") }).unwrap();
        archive.keep(key(1, 1, 0), &log("again\n")).unwrap();
        let other = LogArchive::new(folder.path());
        assert_eq!(other.workers(JobId(1), Attempt(1)).unwrap(), BTreeSet::from([0, 7]));
        assert_eq!(other.read(key(1, 1, 0)).unwrap(), Some(log("again\n")));
        assert_eq!(other.read(key(1, 1, 7)).unwrap(), Some(unread));
        assert!(other.read(key(1, 2, 0)).unwrap().unwrap().truncated);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let path = folder.path().join("logs/job-1/1/0");
            assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn beyond_its_size_the_oldest_go_first() {
        let folder = tempfile::tempdir().unwrap();
        let archive = LogArchive::of_size(folder.path(), 4 * BLOCK);
        for job in 1..=4 {
            archive.keep(key(job, 1, 0), &log("x")).unwrap();
        }
        // Written again, it is the newest.
        archive.keep(key(1, 1, 0), &log("y")).unwrap();
        archive.keep(key(5, 1, 0), &log(&"z".repeat(BLOCK as usize))).unwrap();
        let kept: Vec<bool> = (1..=5).map(|job| archive.read(key(job, 1, 0)).unwrap().is_some()).collect();
        assert_eq!(kept, [true, false, false, true, true]);
        assert!(!folder.path().join("logs/job-2").exists(), "no empty folder stays");
        // One that is larger than all is kept all the same: it is what somebody has just run.
        archive.keep(key(6, 1, 0), &log(&"z".repeat(5 * BLOCK as usize))).unwrap();
        assert!(archive.read(key(6, 1, 0)).unwrap().is_some() && archive.read(key(5, 1, 0)).unwrap().is_none());
    }

    #[test]
    fn what_others_put_there_is_not_touched() {
        let folder = tempfile::tempdir().unwrap();
        let logs = folder.path().join("logs");
        fs::create_dir_all(logs.join("job-1/1")).unwrap();
        for name in ["README", "job-1/notes", "job-1/1/..new", "job-1/1/007", "job-1/1/-1", "job-1/1/99999999999"] {
            fs::write(logs.join(name), "not ours").unwrap();
        }
        #[cfg(unix)]
        std::os::unix::fs::symlink("/etc", logs.join("job-2")).unwrap();
        let archive = LogArchive::of_size(folder.path(), 2 * BLOCK);
        assert_eq!(archive.workers(JobId(1), Attempt(1)).unwrap(), BTreeSet::new());
        for worker in 0..9 {
            archive.keep(key(1, 1, worker), &log("x")).unwrap();
        }
        assert_eq!(archive.workers(JobId(1), Attempt(1)).unwrap(), BTreeSet::from([7, 8]));
        assert!(logs.join("README").exists() && logs.join("job-1/1/007").exists() && logs.join("job-1/notes").exists());
        fs::write(logs.join("job-1/1/8"), "no JSON\ntext").unwrap();
        assert!(archive.read(key(1, 1, 8)).is_err(), "damage is no empty log");
    }
}
