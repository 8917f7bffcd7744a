//! Finished jobs: a row each, written in the transaction of the batch in which they became final, kept for as long as is asked for.
//!
//! ```text
//! row 1, 2, 3 ... in the order in which they were over, without a gap    the oldest go first, the newest are listed first
//! ```
//!
//! Never: on the driver's thread but to write. Who reads has a connection of its own.

use crate::chain;
use crate::error::{DamagedAt, JournalError};
use crate::identity::{EarlierJob, IdentityIndex, IdentityKey};
use crate::store::{self, signed};
use forebay_kernel::decision::Outcome;
use forebay_kernel::ids::{JobId, Seq};
use forebay_kernel::units::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
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
    pub fn load(db: &Connection, path: &Path) -> Result<QueueNumbers, JournalError> {
        let fail = |e| JournalError::sqlite(path, e);
        let mut select = db.prepare("SELECT id, path, crc32c FROM archive_queues").map_err(fail)?;
        let mut rows = select.query([]).map_err(fail)?;
        let mut by_path = BTreeMap::new();
        while let Some(row) = rows.next().map_err(fail)? {
            let (id, queue, crc): (i64, String, i64) =
                (row.get(0).map_err(fail)?, row.get(1).map_err(fail)?, row.get(2).map_err(fail)?);
            if i64::from(chain::crc(&[id], &[queue.as_bytes()])) != crc {
                let what = format!("the checksum of queue {id} does not agree (table archive_queues)");
                return Err(JournalError::damaged(path, DamagedAt::File, what));
            }
            by_path.insert(queue, id);
        }
        Ok(QueueNumbers { by_path })
    }

    fn number(&mut self, db: &Connection, queue: &str) -> rusqlite::Result<i64> {
        if let Some(id) = self.by_path.get(queue) {
            return Ok(*id);
        }
        let id = self.by_path.len() as i64 + 1;
        let crc = chain::crc(&[id], &[queue.as_bytes()]);
        db.execute("INSERT INTO archive_queues VALUES (?1, ?2, ?3)", params![id, queue, crc])?;
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
    let crc = chain::crc(&numbers, &[body]);
    let [row, job, queue, outcome, submitted, ended] = numbers;
    let mut insert = db.prepare_cached("INSERT INTO archive VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)")?;
    insert.execute(params![row, job, queue, outcome, submitted, ended, body, crc])?;
    Ok(())
}

const COLUMNS: &str = "id, job, queue, outcome, submitted_ms, ended_ms, body, crc32c";

fn archived(row: &rusqlite::Row<'_>) -> rusqlite::Result<Result<ArchivedJob, u64>> {
    let numbers: [i64; 6] = [row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?];
    let (body, crc): (Vec<u8>, i64) = (row.get(6)?, row.get(7)?);
    let at = numbers[0].unsigned_abs();
    let sound = i64::from(chain::crc(&numbers, &[&body])) == crc;
    let finished = if sound { decode(&body) } else { None };
    let same = |found: &FinishedJob| signed(found.job.id.0) == numbers[1];
    Ok(finished.filter(same).map(|finished| ArchivedJob { row: ArchiveRow(at), finished }).ok_or(at))
}

fn damaged(path: &Path, row: u64) -> JournalError {
    JournalError::damaged(path, DamagedAt::Archive(row), "its checksum does not agree or it cannot be read")
}

/// Hands every row after `after` over, in order, and finds gaps. Returns the last row, and the first.
pub fn each_after(
    db: &Connection,
    path: &Path,
    after: u64,
    take: &mut dyn FnMut(ArchivedJob),
) -> Result<Option<(u64, u64)>, JournalError> {
    let fail = |e| JournalError::sqlite(path, e);
    let sql = format!("SELECT {COLUMNS} FROM archive WHERE id > ?1 ORDER BY id");
    let mut select = db.prepare(&sql).map_err(fail)?;
    let mut rows = select.query([signed(after)]).map_err(fail)?;
    let mut ends: Option<(u64, u64)> = None;
    while let Some(row) = rows.next().map_err(fail)? {
        let found = archived(row).map_err(fail)?.map_err(|row| damaged(path, row))?;
        let at = found.row.0;
        if let Some((_, last)) = ends
            && at != last + 1
        {
            return Err(JournalError::damaged(path, DamagedAt::Archive(at), format!("a gap: row {last} is before it")));
        }
        ends = Some((ends.map_or(at, |(first, _)| first), at));
        take(found);
    }
    Ok(ends)
}

/// The archive and the identities of a journal, read on a connection of its own, from any thread, while the journal is written.
#[derive(Debug)]
pub struct ArchiveReader {
    db: Mutex<Connection>,
    path: PathBuf,
    identities: Arc<IdentityIndex>,
}

impl ArchiveReader {
    pub(crate) fn new(path: &Path, identities: Arc<IdentityIndex>) -> Result<ArchiveReader, JournalError> {
        Ok(ArchiveReader { db: Mutex::new(store::connect_to_read(path)?), path: path.to_owned(), identities })
    }

    /// Of the journal in a folder, which another process may write meanwhile: what is over by now is seen, what follows is not known by
    /// its identity.
    ///
    /// # Errors
    /// There is no journal, it has another format, or it is damaged.
    pub fn open(folder: &Path) -> Result<ArchiveReader, JournalError> {
        let path = folder.join(crate::folder::FILE);
        if !path.exists() {
            return Err(JournalError::Missing { path });
        }
        let db = store::connect_to_read(&path)?;
        store::meta(&db, &path)?;
        let identities = Arc::new(IdentityIndex::load(&db, &path, None)?);
        Ok(ArchiveReader { db: Mutex::new(db), path, identities })
    }

    /// The finished job of this id.
    ///
    /// # Errors
    /// The journal cannot be read, or the row is damaged.
    pub fn finished(&self, job: JobId) -> Result<Option<ArchivedJob>, JournalError> {
        let sql = format!("SELECT {COLUMNS} FROM archive WHERE job = ?1 ORDER BY id DESC LIMIT 1");
        self.one(&sql, signed(job.0))
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
        self.identities.find(&self.db(), &self.path, &IdentityKey::of(tenant, subject))
    }

    /// A page of the finished jobs, newest first.
    ///
    /// # Errors
    /// The journal cannot be read, or a row is damaged.
    pub fn list(&self, query: &ArchiveQuery) -> Result<ArchivePage, JournalError> {
        let fail = |e| JournalError::sqlite(&self.path, e);
        let db = self.db();
        let limit = query.limit.clamp(1, MOST_LISTED);
        let before = query.before.map_or(i64::MAX, |row| signed(row.0));
        let mut rows = matching(&db, query, before, limit + 1).map_err(fail)?;
        rows.sort_unstable_by(|a, b| b.cmp(a));
        let more = rows.len() > limit;
        rows.truncate(limit);
        let sql = format!("SELECT {COLUMNS} FROM archive WHERE id = ?1");
        let mut select = db.prepare_cached(&sql).map_err(fail)?;
        let mut page = ArchivePage::default();
        for row in rows {
            let found = select.query_row([row], archived).optional().map_err(fail)?;
            // It may have left the archive since its number was read.
            if let Some(found) = found {
                page.jobs.push(found.map_err(|row| damaged(&self.path, row))?);
            }
        }
        page.next = page.jobs.last().filter(|_| more).map(|last| last.row);
        Ok(page)
    }

    /// Finished jobs with ids above `after`, in the order in which they were accepted: at most `limit` of them, and only those of `queue`
    /// where one is named.
    ///
    /// # Errors
    /// The journal cannot be read, or a row is damaged.
    pub fn in_order(
        &self,
        after: Option<JobId>,
        queue: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ArchivedJob>, JournalError> {
        let fail = |e| JournalError::sqlite(&self.path, e);
        let (after, limit) = (after.map_or(-1, |id| signed(id.0)), limit.clamp(1, MOST_LISTED) as i64);
        let sql = format!(
            "SELECT {COLUMNS} FROM archive INDEXED BY archive_jobs
             WHERE job > ?1 AND (?2 IS NULL OR queue = (SELECT id FROM archive_queues WHERE path = ?2)) ORDER BY job LIMIT ?3"
        );
        let db = self.db();
        let mut select = db.prepare_cached(&sql).map_err(fail)?;
        let rows = select.query_map(params![after, queue, limit], archived).map_err(fail)?;
        let found = rows.map(|row| row.map_err(fail)?.map_err(|row| damaged(&self.path, row)));
        found.collect()
    }

    /// The policies that are and were in force, newest first, as far back as their texts are kept.
    ///
    /// # Errors
    /// The journal cannot be read, or a text is damaged.
    pub fn policies(&self) -> Result<Vec<PastPolicy>, JournalError> {
        let rows = store::sources(&self.db(), usize::MAX).map_err(|e| JournalError::sqlite(&self.path, e))?;
        let policy = |row: store::SourceRow| {
            let store::SourceRow { seq, tick_ms, text, sound } = row;
            let damaged = || JournalError::damaged(&self.path, DamagedAt::Source(seq), "its checksum does not agree");
            sound.then_some(PastPolicy { seq: Seq(seq), since: Timestamp(tick_ms), text }).ok_or_else(damaged)
        };
        rows.into_iter().map(policy).collect()
    }

    fn one(&self, sql: &str, key: i64) -> Result<Option<ArchivedJob>, JournalError> {
        let db = self.db();
        let found = db.prepare_cached(sql).and_then(|mut select| select.query_row([key], archived).optional());
        let found = found.map_err(|e| JournalError::sqlite(&self.path, e))?;
        found.transpose().map_err(|row| damaged(&self.path, row))
    }

    fn db(&self) -> MutexGuard<'_, Connection> {
        self.db.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The numbers of the newest rows that match, of each queue and outcome for itself.
fn matching(db: &Connection, query: &ArchiveQuery, before: i64, limit: usize) -> rusqlite::Result<Vec<i64>> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    if query.queues.is_empty() && query.outcome.is_none() {
        let mut select = db.prepare_cached("SELECT id FROM archive WHERE id < ?1 ORDER BY id DESC LIMIT ?2")?;
        return select.query_map([before, limit], |row| row.get(0))?.collect();
    }
    let mut queues = db.prepare_cached("SELECT id, path FROM archive_queues")?;
    let queues: Vec<(i64, String)> =
        queues.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
    let wanted = |path: &String| query.queues.is_empty() || query.queues.contains(path);
    let outcomes = match query.outcome {
        Some(outcome) => vec![outcome as i64],
        None => (-1..=Outcome::Rejected as i64).collect(),
    };
    let sql = "SELECT id FROM archive WHERE queue = ?1 AND outcome = ?2 AND id < ?3 ORDER BY id DESC LIMIT ?4";
    let mut select = db.prepare_cached(sql)?;
    let mut rows = Vec::new();
    for (queue, _) in queues.iter().filter(|(_, path)| wanted(path)) {
        for outcome in &outcomes {
            let found = select.query_map([*queue, *outcome, before, limit], |row| row.get(0))?;
            rows.extend(found.collect::<Result<Vec<i64>, _>>()?);
        }
    }
    Ok(rows)
}
