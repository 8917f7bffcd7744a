//! Finished jobs: a row each, written in the transaction of the batch in which they became final, kept for as long as is asked for.
//!
//! ```text
//! row 1, 2, 3 ... in the order in which they were over, without a gap    the oldest go first, the newest are listed first
//! ```
//!
//! Never: on the driver's thread but to write. Who reads has a connection of its own.

use crate::database::{Database, RowFault, insert_sealed, sealed, signed};
use crate::error::{DamagedAt, JournalError};
use crate::identity::{ArchiveEnd, EarlierJob, IdentityIndex, IdentityKey};
use crate::store;
use forebay_kernel::decision::Outcome;
use forebay_kernel::ids::{JobId, Seq};
use forebay_kernel::units::Timestamp;
use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The version of a row's body that this build writes.
const BODY_VERSION: u32 = 1;

pub use forebay_kernel::state::retire::FinishedJob;

/// The number of a row of the archive: 1 for the first job that was over, 1 more for each that followed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct ArchiveRow(pub u64);

/// A finished job and where it stands in the archive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ArchivedJob {
    /// Its row.
    pub row: ArchiveRow,
    /// The job.
    pub finished: FinishedJob,
}

/// Which finished jobs are asked for, newest first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ArchiveQuery {
    /// Of these queues, by path. Empty: of all.
    pub queues: Vec<String>,
    /// Only those that ended like this.
    pub outcome: Option<Outcome>,
    /// Only those that were over before this row: `next` of the page before. `None`: from the newest on.
    pub before: Option<ArchiveRow>,
    /// So many at most. No more than [`MOST_LISTED`] are given.
    pub limit: usize,
}

/// Finished jobs on one page of a list: some 300 KiB.
pub const MOST_LISTED: usize = 1_000;

/// Rows that one question for finished jobs in order goes through at most: a tenth of a second where all of them are on the disk.
pub const MOST_WALKED: usize = 20_000;

/// Which finished jobs are asked for, in the order in which they were accepted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ArchiveSliceQuery {
    /// Only those with ids above this one.
    pub after: Option<JobId>,
    /// Only those of this queue, by path.
    pub queue: Option<String>,
    /// Only those that ended like this.
    pub outcome: Option<Outcome>,
    /// So many at most. No more than [`MOST_LISTED`] are given.
    pub limit: usize,
}

/// Some of the finished jobs, in the order in which they were accepted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ArchiveSlice {
    /// They.
    pub jobs: Vec<ArchivedJob>,
    /// There may be more after this job; up to it, these are all. `None`: there are no more.
    pub upto: Option<JobId>,
}

/// Some of the finished jobs, newest first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ArchivePage {
    /// They.
    pub jobs: Vec<ArchivedJob>,
    /// What to ask for next. `None`: there are no more.
    pub next: Option<ArchiveRow>,
}

/// A policy that is or was in force.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PastPolicy {
    /// The position of the event that put it in force.
    pub seq: Seq,
    /// Since when, by the engine's time.
    pub since: Timestamp,
    /// As it was written.
    pub text: String,
}

/// The queues' paths by their numbers in the archive: a path is written once.
#[derive(Clone, Debug, Default)]
pub struct QueueNumbers {
    by_path: BTreeMap<String, i64>,
}

impl QueueNumbers {
    /// As the journal has them.
    pub fn load(db: &Database) -> Result<QueueNumbers, JournalError> {
        let queues = db.rows("SELECT id, path, crc32c FROM archive_queues", [], |row| {
            let damaged = |id: u64| {
                let what = format!("the checksum of queue {id} does not agree (table archive_queues)");
                RowFault::damaged(DamagedAt::File, what)
            };
            let ([id], path) = sealed(row, |[id]| damaged(id))?;
            Ok((String::from_utf8(path).map_err(|_| damaged(id))?, signed(id)))
        })?;
        Ok(QueueNumbers { by_path: queues.into_iter().collect() })
    }

    fn number(&mut self, db: &Connection, queue: &str) -> rusqlite::Result<i64> {
        if let Some(id) = self.by_path.get(queue) {
            return Ok(*id);
        }
        let id = self.by_path.len() as i64 + 1;
        insert_sealed(db, "archive_queues", &[id], &queue)?;
        self.by_path.insert(queue.to_owned(), id);
        Ok(id)
    }
}

/// The body of a finished job's row.
///
/// # Errors
/// It cannot be encoded: a fault of this program.
pub fn encode(finished: &FinishedJob) -> Result<Vec<u8>, postcard::Error> {
    postcard::to_allocvec(&(BODY_VERSION, finished))
}

fn decode(body: &[u8]) -> Option<FinishedJob> {
    let (version, rest) = postcard::take_from_bytes::<u32>(body).ok()?;
    (version == BODY_VERSION).then(|| postcard::from_bytes(rest).ok())?
}

/// Writes a finished job as row `row`.
pub fn insert(
    db: &Connection,
    queues: &mut QueueNumbers,
    row: u64,
    finished: &FinishedJob,
    body: &[u8],
) -> rusqlite::Result<()> {
    let FinishedJob { job, spec, .. } = finished;
    let queue = queues.number(db, &spec.queue)?;
    let outcome = finished.outcome().map_or(-1, |outcome| outcome as i64);
    let ended = job.ended.unwrap_or(job.since);
    let numbers = [signed(row), signed(job.id.0), queue, outcome, signed(job.arrival.0), signed(ended.0)];
    insert_sealed(db, "archive", &numbers, &body)
}

const COLUMNS: &str = "id, job, queue, outcome, submitted_ms, ended_ms, body, crc32c";

fn archived(row: &rusqlite::Row<'_>) -> Result<ArchivedJob, RowFault> {
    let damaged =
        |at: u64| RowFault::damaged(DamagedAt::Archive(at), "its checksum does not agree or it cannot be read");
    let (numbers, body) = sealed::<6>(row, |[at, ..]| damaged(at))?;
    let [at, job, ..] = numbers;
    let finished = decode(&body).filter(|found| found.job.id.0 == job).ok_or_else(|| damaged(at))?;
    Ok(ArchivedJob { row: ArchiveRow(at), finished })
}

/// The finished job of this id.
pub fn finished(db: &Database, job: JobId) -> Result<Option<ArchivedJob>, JournalError> {
    let sql = format!("SELECT {COLUMNS} FROM archive WHERE job = ?1 ORDER BY id DESC LIMIT 1");
    db.row(&sql, [signed(job.0)], archived)
}

/// The rows of the archive that are there.
#[derive(Clone, Copy)]
pub struct ArchiveRange {
    pub first: u64,
    pub last: u64,
}

/// Hands every row after `after` over, in order, and finds gaps. Returns which rows there are.
pub fn each_after(
    db: &Database,
    after: u64,
    take: &mut dyn FnMut(ArchivedJob),
) -> Result<Option<ArchiveRange>, JournalError> {
    let sql = format!("SELECT {COLUMNS} FROM archive WHERE id > ?1 ORDER BY id");
    let mut range: Option<ArchiveRange> = None;
    db.each(&sql, [signed(after)], |row| {
        let found = archived(row)?;
        let at = found.row.0;
        if let Some(ArchiveRange { last, .. }) = range
            && at != last + 1
        {
            return Err(RowFault::damaged(DamagedAt::Archive(at), format!("a gap: row {last} is before it")));
        }
        range = Some(ArchiveRange { first: range.map_or(at, |range| range.first), last: at });
        take(found);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(range)
}

/// Hands every job over in the order in which they were accepted, until `take` breaks off.
pub fn each_in_order(db: &Database, take: &mut dyn FnMut(ArchivedJob) -> ControlFlow<()>) -> Result<(), JournalError> {
    let sql = format!("SELECT {COLUMNS} FROM archive INDEXED BY archive_jobs ORDER BY job");
    db.each(&sql, [], |row| Ok(take(archived(row)?)))
}

/// The archive, the identities and the ledger of a journal, read on connections of its own, from any thread, while the journal is written.
#[derive(Debug)]
pub struct ArchiveReader {
    db: Mutex<Database>,
    /// For the ledger, of which a read may take seconds: those of the archive do not wait for it. `None`: it is read on the same connection.
    ledger: Option<Mutex<Database>>,
    identities: Arc<IdentityIndex>,
}

impl ArchiveReader {
    pub(crate) fn new(path: &Path, identities: Arc<IdentityIndex>) -> Result<ArchiveReader, JournalError> {
        let open = || Ok::<_, JournalError>(Mutex::new(Database::open_to_read(path)?));
        Ok(ArchiveReader { db: open()?, ledger: Some(open()?), identities })
    }

    /// Of the journal in a folder, which another process may write meanwhile: what is over by now is seen, what follows is not known by
    /// its identity.
    ///
    /// # Errors
    /// There is no journal, it has another format, or it is damaged.
    pub fn open(folder: &Path) -> Result<ArchiveReader, JournalError> {
        let (db, _) = store::open_folder(folder)?;
        let identities = Arc::new(IdentityIndex::load(&db, ArchiveEnd::Unknown)?);
        Ok(ArchiveReader { db: Mutex::new(db), ledger: None, identities })
    }

    /// Hands every finished job over in the order in which they were accepted, until `take` breaks off.
    ///
    /// # Errors
    /// The journal cannot be read, or a row is damaged.
    pub fn each_in_order(&self, take: &mut dyn FnMut(ArchivedJob) -> ControlFlow<()>) -> Result<(), JournalError> {
        each_in_order(&self.db(), take)
    }

    /// The finished job of this id.
    ///
    /// # Errors
    /// The journal cannot be read, or the row is damaged.
    pub fn finished(&self, job: JobId) -> Result<Option<ArchivedJob>, JournalError> {
        finished(&self.db(), job)
    }

    /// The last job of an identity, if it is over and has not left the archive.
    ///
    /// # Errors
    /// The journal cannot be read, or something there is damaged.
    pub fn finished_by_subject(&self, tenant: &str, subject: &str) -> Result<Option<ArchivedJob>, JournalError> {
        match self.identity(tenant, subject)? {
            Some(earlier) => self.finished(earlier.job),
            None => Ok(None),
        }
    }

    /// What is known for ever of the last finished job of an identity.
    ///
    /// # Errors
    /// The journal cannot be read, or something there is damaged.
    pub fn identity(&self, tenant: &str, subject: &str) -> Result<Option<EarlierJob>, JournalError> {
        self.identities.find(&self.db(), &IdentityKey::of(tenant, subject))
    }

    /// A page of the finished jobs, newest first.
    ///
    /// # Errors
    /// The journal cannot be read, or a row is damaged.
    pub fn list(&self, query: &ArchiveQuery) -> Result<ArchivePage, JournalError> {
        let db = self.db();
        let limit = query.limit.clamp(1, MOST_LISTED);
        let before = query.before.map_or(i64::MAX, |row| signed(row.0));
        let mut rows = matching(&db, query, before, limit + 1)?;
        rows.sort_unstable_by(|a, b| b.cmp(a));
        let more = rows.len() > limit;
        rows.truncate(limit);
        let sql = format!("SELECT {COLUMNS} FROM archive WHERE id = ?1");
        let mut page = ArchivePage::default();
        for row in rows {
            // It may have left the archive since its number was read.
            page.jobs.extend(db.row(&sql, [row], archived)?);
        }
        page.next = page.jobs.last().filter(|_| more).map(|last| last.row);
        Ok(page)
    }

    /// Finished jobs in the order in which they were accepted. However few match, no more than [`MOST_WALKED`] rows are gone through.
    ///
    /// # Errors
    /// The journal cannot be read, or a row is damaged.
    pub fn in_order(&self, query: &ArchiveSliceQuery) -> Result<ArchiveSlice, JournalError> {
        let limit = query.limit.clamp(1, MOST_LISTED);
        let after = query.after.map_or(-1, |id| signed(id.0));
        let db = self.db();
        let last = "SELECT job FROM archive INDEXED BY archive_jobs WHERE job > ?1 ORDER BY job LIMIT 1 OFFSET ?2";
        let end = db.row(last, params![after, MOST_WALKED as i64 - 1], |row| Ok(row.get::<_, i64>(0)?))?;
        let sql = format!(
            "SELECT {COLUMNS} FROM archive INDEXED BY archive_jobs
             WHERE job > ?1 AND job <= ?2 AND (?3 IS NULL OR queue = (SELECT id FROM archive_queues WHERE path = ?3))
             AND (?4 IS NULL OR outcome = ?4) ORDER BY job LIMIT ?5"
        );
        let outcome = query.outcome.map(|outcome| outcome as i64);
        let bounds = params![after, end.unwrap_or(i64::MAX), query.queue, outcome, limit as i64];
        let jobs = db.rows(&sql, bounds, archived)?;
        let full = jobs.last().filter(|_| jobs.len() == limit).map(|last| last.finished.job.id);
        let walked = end.map(|id| JobId(u64::try_from(id).unwrap_or_default()));
        Ok(ArchiveSlice { jobs, upto: full.or(walked) })
    }

    /// The policies that are and were in force, newest first, as far back as their texts are kept.
    ///
    /// # Errors
    /// The journal cannot be read, or a text is damaged.
    pub fn policies(&self) -> Result<Vec<PastPolicy>, JournalError> {
        store::sources(&self.db(), usize::MAX)
    }

    pub(crate) fn db(&self) -> MutexGuard<'_, Database> {
        self.db.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, Database> {
        self.ledger.as_ref().unwrap_or(&self.db).lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The numbers of the newest rows that match, of each queue and outcome for itself.
fn matching(db: &Database, query: &ArchiveQuery, before: i64, limit: usize) -> Result<Vec<i64>, JournalError> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let id = |row: &rusqlite::Row<'_>| Ok(row.get::<_, i64>(0)?);
    if query.queues.is_empty() && query.outcome.is_none() {
        return db.rows("SELECT id FROM archive WHERE id < ?1 ORDER BY id DESC LIMIT ?2", [before, limit], id);
    }
    let queues = QueueNumbers::load(db)?.by_path.into_iter();
    let wanted = queues.filter(|(path, _)| query.queues.is_empty() || query.queues.contains(path));
    let outcomes = match query.outcome {
        Some(outcome) => vec![outcome as i64],
        None => (-1..=Outcome::Rejected as i64).collect(),
    };
    let sql = "SELECT id FROM archive WHERE queue = ?1 AND outcome = ?2 AND id < ?3 ORDER BY id DESC LIMIT ?4";
    let mut rows = Vec::new();
    for (_, queue) in wanted {
        for outcome in &outcomes {
            rows.extend(db.rows(sql, [queue, *outcome, before, limit], id)?);
        }
    }
    Ok(rows)
}
