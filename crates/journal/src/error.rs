//! What can be wrong with a journal, said so that its owner can mend it: what, where, and what to do.
//!
//! Never: repairs anything, or hides what the system said.

use forebay_kernel::ids::Seq;
use forebay_kernel::storage::StorageFailure;
use std::path::{Path, PathBuf};

/// Why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// There is no journal in this folder.
    #[error("{}: there is no journal here; check the folder, or leave `--resume` out to begin a new one", .path.display())]
    Missing {
        /// The file that was looked for.
        path: PathBuf,
    },
    /// A new journal was asked for where one is.
    #[error("{}: a journal is here already; give another folder, or go on with this one by `forebay run --data`", .path.display())]
    Exists {
        /// The file that is there.
        path: PathBuf,
    },
    /// Another process works on it.
    #[error("{}: the journal is in use by {holder}; stop it first, or give another folder", .folder.display())]
    InUse {
        /// The journal's folder.
        folder: PathBuf,
        /// Who holds the lock, as far as it said so.
        holder: String,
    },
    /// Written by a newer version.
    #[error(
        "{}: the journal has {what} version {found}, this program reads up to {supported}; use the release that wrote it, or a newer one",
        .path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// `format` or `record`.
        what: &'static str,
        /// What the file says.
        found: u32,
        /// What this build reads.
        supported: u32,
    },
    /// Written by an earlier release.
    #[error(
        "{}: the journal has {what} version {found}, this program writes {what} version {written}; stop the release that wrote it, then \
         upgrade the journal once by `forebay journal upgrade {}`",
        .path.display(), .folder.display()
    )]
    Older {
        /// The file.
        path: PathBuf,
        /// The journal's folder.
        folder: PathBuf,
        /// `format` or `record`.
        what: &'static str,
        /// What the file says.
        found: u32,
        /// What this build writes.
        written: u32,
    },
    /// Records that were acknowledged are not there any more, or it cannot be told.
    #[error(
        "{}: going on would lose what was acknowledged:\n{}\nnothing was changed. Put back what is missing, or restore a backup by `forebay \
         journal restore`. To go on without it, once: add `--accept-loss {missing}` to `forebay run`; the journal keeps what was given up",
        .folder.display(), listed(.findings)
    )]
    Lost {
        /// The journal's folder.
        folder: PathBuf,
        /// How many records, statuses or lines are missing at least. 0: it cannot be told.
        missing: u64,
        /// What shows it.
        findings: Vec<Shortfall>,
    },
    /// A backup of a journal that is shorter than what it acknowledged.
    #[error(
        "{}: no backup is made of a journal that has less than it acknowledged:\n{}\nnothing was changed: keep the backups that there are. \
         `forebay journal verify {}` says what is missing, and `forebay run` how to go on",
        .folder.display(), listed(.findings), .folder.display()
    )]
    Shorter {
        /// The journal's folder.
        folder: PathBuf,
        /// What shows it.
        findings: Vec<Shortfall>,
    },
    /// There is something of a journal, and not its database.
    #[error(
        "{}: there is no {}, and {} is here: a new journal would be made over what is left of one; put the database back, restore a backup by \
         `forebay journal restore`, or give another folder", .folder.display(), crate::FILE, .left.display()
    )]
    LeftOver {
        /// The folder.
        folder: PathBuf,
        /// What is there.
        left: PathBuf,
    },
    /// A start from a backup.
    #[error(
        "{}: this is a backup: a controller that went on with it would give out ids again that were given out since; make a journal of it by \
         `forebay journal restore {} FOLDER`", .folder.display(), .folder.display()
    )]
    Backup {
        /// The folder.
        folder: PathBuf,
    },
    /// Something that is to be written cannot be encoded. A fault of this program, stopped before anything is written.
    #[error("{what} cannot be encoded: {source}; nothing was written: please report this")]
    Encoding {
        /// What.
        what: &'static str,
        /// What the encoder said.
        source: postcard::Error,
    },
    /// Something in it is not as it was written.
    #[error(
        "{}: the journal is damaged at {place}: {what}; nothing was changed: restore the folder from a backup, \
         `forebay journal verify` lists what is damaged",
        .path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where: a position and a row, a frame, or the file.
        place: DamagedAt,
        /// What does not agree.
        what: String,
    },
    /// The file system has no room, or none for this user.
    #[error("{}: no space left for the journal; make room: nothing that was accepted is lost", .path.display())]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// The file system does not let it be written.
    #[error("{}: the journal cannot be written: {source}; check that the folder is writable and not mounted read-only", .path.display())]
    ReadOnly {
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// Anything else that the file system said.
    #[error("{}: {source}; check the folder and the disk under it", .path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Anything else that SQLite said.
    #[error("{}: {source}; check the disk, then `forebay journal verify`", .path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// A batch that does not follow the last one. A fault of this program, stopped before it is written down.
    #[error("batch at {got} does not follow the journal's end at {end}; nothing was written: please report this")]
    OutOfOrder {
        /// Where the batch says that it is.
        got: Seq,
        /// Where the journal ends.
        end: Seq,
    },
}

/// Something that shows that a journal is shorter than what it acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortfall {
    /// The file.
    pub file: PathBuf,
    /// What about it.
    pub what: String,
    /// How much is missing at least, in records, statuses or lines. 0: it cannot be told.
    pub missing: u64,
}

impl std::fmt::Display for Shortfall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.file.display(), self.what)
    }
}

fn listed(findings: &[Shortfall]) -> String {
    findings.iter().map(|one| format!("  {one}")).collect::<Vec<_>>().join("\n")
}

/// Where a journal is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DamagedAt {
    /// The file as a whole.
    File,
    /// The description of the journal.
    Meta,
    /// A batch, by its position and its row counted from the first that was looked at.
    Batch {
        /// Position.
        seq: u64,
        /// Row, from 1.
        row: u64,
    },
    /// A frame of the write-ahead log, from 1.
    Frame(u64),
    /// A policy's source text.
    Source(u64),
    /// The ids of the events of a batch.
    Seen(u64),
    /// The frozen request of an effect.
    Request(u64),
    /// What was done by hand, by its row.
    Act(u64),
    /// A snapshot, by the position after it.
    Snapshot(u64),
    /// A finished job, by its row of the archive.
    Archive(u64),
    /// The ledger by whom: a table of it, and a row by its first number.
    Spend {
        /// Which table.
        table: &'static str,
        /// Which row.
        row: u64,
    },
    /// What the cloud did by this batch.
    Cloud(u64),
    /// The identities of finished jobs: a run of them, and a page of it.
    Identities {
        /// Which run.
        run: u64,
        /// Which page; 0: the run as a whole.
        page: u64,
    },
}

impl std::fmt::Display for DamagedAt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DamagedAt::File => f.write_str("the file"),
            DamagedAt::Meta => f.write_str("table meta"),
            DamagedAt::Batch { seq, row } => write!(f, "position #{seq} (table batches, row {row} of those read)"),
            DamagedAt::Frame(n) => write!(f, "frame {n} of the write-ahead log"),
            DamagedAt::Source(seq) => write!(f, "the policy text of position #{seq}"),
            DamagedAt::Seen(seq) => write!(f, "the event ids of the batch at position #{seq} (table seen)"),
            DamagedAt::Request(effect) => write!(f, "the request of effect #{effect} (table requests)"),
            DamagedAt::Act(row) => write!(f, "row {row} of what was done by hand (table acts)"),
            DamagedAt::Snapshot(after) => write!(f, "the snapshot at position #{after} (tables snapshots, chunks)"),
            DamagedAt::Spend { table, row } => write!(f, "row {row} of what was charged (table {table})"),
            DamagedAt::Cloud(seq) => write!(f, "what the cloud did at position #{seq} (table cloud)"),
            DamagedAt::Archive(row) => write!(f, "row {row} of the finished jobs (table archive)"),
            DamagedAt::Identities { run, page: 0 } => write!(f, "run {run} of the identities (table identity_runs)"),
            DamagedAt::Identities { run, page } => {
                write!(f, "page {page} of run {run} of the identities (table identity_pages)")
            }
        }
    }
}

impl StorageFailure for JournalError {
    fn is_full(&self) -> bool {
        matches!(self, JournalError::Full { .. })
    }

    fn is_for_the_caller(&self) -> bool {
        !matches!(self, JournalError::OutOfOrder { .. } | JournalError::Encoding { .. } | JournalError::Full { .. })
    }
}

/// Whether the file system has no room: for anybody, or for this user.
#[must_use]
pub fn is_out_of_room(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}

impl JournalError {
    /// That a journal is shorter than what it acknowledged. `None`: nothing shows it.
    #[must_use]
    pub fn lost(folder: &Path, findings: Vec<Shortfall>) -> Option<JournalError> {
        // What they show overlaps: a record that is missing takes its statuses with it.
        let missing = findings.iter().map(|one| one.missing).max()?;
        Some(JournalError::Lost { folder: folder.to_owned(), missing, findings })
    }

    pub(crate) fn damaged(path: &Path, place: DamagedAt, what: impl Into<String>) -> JournalError {
        JournalError::Damaged { path: path.to_owned(), place, what: what.into() }
    }

    pub(crate) fn io(path: &Path, source: std::io::Error) -> JournalError {
        let path = path.to_owned();
        if is_out_of_room(&source) { JournalError::Full { path } } else { JournalError::Io { path, source } }
    }

    /// Tells SQLite's errors apart.
    pub(crate) fn sqlite(path: &Path, source: rusqlite::Error) -> JournalError {
        use rusqlite::ErrorCode as Code;
        let path = path.to_owned();
        let damaged = |what: String| JournalError::Damaged { path: path.clone(), place: DamagedAt::File, what };
        match source.sqlite_error_code() {
            Some(Code::DiskFull) => JournalError::Full { path },
            Some(Code::ReadOnly | Code::CannotOpen | Code::PermissionDenied) => JournalError::ReadOnly { path, source },
            Some(Code::DatabaseCorrupt | Code::NotADatabase | Code::SchemaChanged | Code::TypeMismatch) => {
                damaged(source.to_string())
            }
            // A file shorter than its header says reads as an I/O error of its own kind.
            Some(Code::SystemIoFailure) if short_read(&source) => damaged(format!("{source}: the file was cut")),
            Some(Code::Unknown) => damaged(source.to_string()),
            Some(_) => JournalError::Sqlite { path, source },
            // No code from SQLite: a column of another type, a missing row.
            None => damaged(source.to_string()),
        }
    }
}

/// What an encoder said of `what`.
pub(crate) fn encoding(what: &'static str) -> impl FnOnce(postcard::Error) -> JournalError {
    move |source| JournalError::Encoding { what, source }
}

fn short_read(error: &rusqlite::Error) -> bool {
    matches!(error, rusqlite::Error::SqliteFailure(e, _) if e.extended_code == rusqlite::ffi::SQLITE_IOERR_SHORT_READ)
}
