//! Opening a journal: verifies everything from the newest sound snapshot on, cuts a torn tail, refuses damage in the middle.
//!
//! ```text
//! rows:  ok ok ok ok BAD            -> cut from BAD on, and reported
//!        ok ok BAD ok               -> stop: damage in the middle
//!        ok ok    ok                -> stop: a gap
//! ```
//!
//! Never: changes anything before it knows that the whole is one or the other.

use crate::Positions;
use crate::chain::{self, Chain};
use crate::error::{DamagedAt, JournalError};
use crate::folder::DataFolder;
use crate::identity::IdentityIndex;
use crate::record;
use crate::snapshot::{self, ListedChunk, SnapshotChunks};
use crate::store::{self, BATCH_COLUMNS, BatchRow, JournalMeta, signed};
use crate::{End, Opened, SqliteJournal, beside, wal};
use forebay_kernel::ids::Seq;
use forebay_kernel::journal::Batch;
use rusqlite::Connection;
use std::path::Path;

/// Up to this size SQLite's own check of the whole file is part of every start: 64 MiB take a quarter of a second. Beyond that the rows'
/// own checks find what matters, and `forebay journal verify` checks the whole.
const CHECKED_WHOLE: u64 = 64 << 20;

/// What a recovery is made of, in order: `Start` or a `Snapshot` (again, if it could not be used), then batches.
#[derive(Debug)]
pub enum RecoveredPart<'a, 'b> {
    /// Begin with nothing.
    Start,
    /// Begin with the state of these chunks, one after the other, each verified. If one is damaged no more come, and an earlier
    /// snapshot is tried, as after an error here, which means that they cannot be read.
    Snapshot(&'a mut SnapshotChunks<'b>),
    /// Apply this. An error here is damage.
    Batch(&'a Batch),
}

/// What opening a journal found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// The snapshot that it began with, by the position after it.
    pub snapshot: Option<Seq>,
    /// Snapshots that could not be used.
    pub bad_snapshots: u32,
    /// Batches after it.
    pub batches: u64,
    /// The torn tail, if there was one.
    pub cut: Option<TornTail>,
}

/// A torn tail that was cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// Batches that are no more.
    pub batches: u64,
    /// Position of the first of them.
    pub from: Seq,
    /// What was wrong with it.
    pub what: String,
}

impl std::fmt::Display for TornTail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let TornTail { batches, from, what } = self;
        write!(f, "the journal's tail was torn and has been cut: {batches} batches from position {from} on ({what})")
    }
}

pub(crate) type Take<'a> = dyn FnMut(RecoveredPart<'_, '_>) -> Result<(), String> + 'a;

/// See [`SqliteJournal::open`].
pub(crate) fn open(folder: &Path, take: &mut Take<'_>) -> Result<(SqliteJournal, Recovery), JournalError> {
    let (folder, mut db) = enter(folder)?;
    let path = folder.database();
    let meta = store::meta(&db, &path)?;
    let mut recovery = Recovery { snapshot: None, bad_snapshots: 0, batches: 0, cut: None };
    let begun = begin(&db, &path, &meta, take, &mut recovery)?;
    let (mut end, list) = (begun.end, begun.list);
    let followed = follow(&db, &path, &mut end, take)?;
    recovery.batches = followed.batches;
    if followed.batches == 0 && followed.tail.is_none() {
        reaches(&db, &path, &meta, end.seq)?;
    }
    let fail = |e| JournalError::sqlite(&path, e);
    if let Some(tail) = followed.tail {
        store::cut(&mut db, end.seq, end.archived).map_err(fail)?;
        recovery.cut = Some(tail);
    }
    if let (Some(used), true) = (recovery.snapshot, recovery.bad_snapshots > 0) {
        snapshot::forget_unusable(&db, used.0).map_err(fail)?;
    }
    let identities = IdentityIndex::load(&db, &path, Some(end.archived))?;
    let since_snapshot = followed.bytes;
    let journal = SqliteJournal::start(Opened { db, meta, end, since_snapshot, list, identities, folder })?;
    Ok((journal, recovery))
}

/// Lock, log, file: in this order, before anything is believed.
pub(crate) fn enter(folder: &Path) -> Result<(DataFolder, Connection), JournalError> {
    let path = folder.join(crate::FILE);
    let size = match std::fs::metadata(&path) {
        Ok(found) => found.len(),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Err(JournalError::Missing { path }),
        Err(e) => return Err(JournalError::io(&path, e)),
    };
    let folder = DataFolder::take(folder)?;
    // SQLite would take an empty file for a new database.
    if size == 0 {
        return Err(JournalError::damaged(&path, DamagedAt::File, "it is empty"));
    }
    wal::check(&beside(&path, "-wal"))?;
    let db = store::connect(&path, false)?;
    store::format(&db, &path)?;
    if size <= CHECKED_WHOLE {
        check_file(&db, &path)?;
    }
    Ok((folder, db))
}

/// The text of the policy that a journal last put in force, read without opening the journal. `None`: it never had one.
///
/// # Errors
/// There is no journal, it has another format, or the text is damaged.
pub fn policy_in_force(folder: &Path) -> Result<Option<String>, JournalError> {
    let path = folder.join(crate::FILE);
    if !path.exists() {
        return Err(JournalError::Missing { path });
    }
    let _folder = DataFolder::take(folder)?;
    wal::check(&beside(&path, "-wal"))?;
    let db = store::connect(&path, false)?;
    store::meta(&db, &path)?;
    last_policy(&db, &path)
}

/// The text of the policy in force.
pub(crate) fn last_policy(db: &Connection, path: &Path) -> Result<Option<String>, JournalError> {
    let last = store::sources(db, 1).map_err(|e| JournalError::sqlite(path, e))?;
    match last.into_iter().next() {
        Some(row) if !row.sound => {
            Err(JournalError::damaged(path, DamagedAt::Source(row.seq), "its checksum does not agree"))
        }
        source => Ok(source.map(|row| row.text)),
    }
}

/// SQLite's own check of the whole file.
pub(crate) fn check_file(db: &Connection, path: &Path) -> Result<(), JournalError> {
    let answer: Result<String, _> = db.query_row("PRAGMA quick_check(1)", [], |row| row.get(0));
    match answer.map_err(|e| JournalError::sqlite(path, e))? {
        answer if answer == "ok" => Ok(()),
        answer => Err(JournalError::damaged(path, DamagedAt::File, answer.replace('\n', " "))),
    }
}

/// Where a recovery begins.
struct Begun {
    end: End,
    list: Vec<ListedChunk>,
}

/// The newest snapshot that is sound and can be used, or the very start.
fn begin(
    db: &Connection,
    path: &Path,
    meta: &JournalMeta,
    take: &mut Take<'_>,
    recovery: &mut Recovery,
) -> Result<Begun, JournalError> {
    for after in store::snapshot_list(db).map_err(|e| JournalError::sqlite(path, e))? {
        let row = store::snapshot(db, after).map_err(|e| JournalError::sqlite(path, e))?;
        if let (Some(list), Some(positions)) = (snapshot::listed(&row), positions(&row.positions))
            && read_snapshot(db, &list, take).is_ok()
        {
            recovery.snapshot = Some(Seq(row.after_seq));
            let (seq, tick_ms, archived, chain) = (row.after_seq, row.tick_ms, row.archived, row.chain);
            return Ok(Begun { end: End { seq, tick_ms, archived, chain, positions }, list });
        }
        recovery.bad_snapshots += 1;
    }
    if meta.begins_at > 0 || (recovery.bad_snapshots > 0 && oldest(db, path)? != Some(0)) {
        let what = "no snapshot can be read, and the batches before them are not kept";
        return Err(JournalError::damaged(path, DamagedAt::Snapshot(meta.begins_at), what));
    }
    take(RecoveredPart::Start).map_err(|what| JournalError::damaged(path, DamagedAt::File, what))?;
    Ok(Begun { end: End::first(meta), list: Vec::new() })
}

fn read_snapshot(db: &Connection, list: &[ListedChunk], take: &mut Take<'_>) -> Result<(), String> {
    let mut chunks = SnapshotChunks::new(db, list);
    let taken = take(RecoveredPart::Snapshot(&mut chunks));
    chunks.end().and(taken)
}

/// The position of the oldest batch that is kept.
pub(crate) fn oldest(db: &Connection, path: &Path) -> Result<Option<u64>, JournalError> {
    let oldest = db.query_row("SELECT min(seq) FROM batches", [], |row| row.get::<_, Option<i64>>(0));
    Ok(oldest.map_err(|e| JournalError::sqlite(path, e))?.map(i64::unsigned_abs))
}

/// What was found from a position on.
pub(crate) struct Followed {
    pub tail: Option<TornTail>,
    pub batches: u64,
    /// Of payload.
    pub bytes: u64,
}

/// Where a row of a batch is found, whatever the format.
pub(crate) struct RowPlace {
    /// Counted from 1 among those that are read.
    pub number: u64,
    /// The position that it says.
    pub seq: u64,
    /// Its checksum agrees.
    pub sound: bool,
    /// Where the batch before it ends.
    pub after: u64,
}

impl RowPlace {
    /// Whether it is behind a torn batch, and so part of the tail. Damage is told: a sound row behind a torn one, or behind a gap.
    pub(crate) fn is_behind(&self, path: &Path, tail: &mut Option<TornTail>) -> Result<bool, JournalError> {
        let damaged = |seq, what| Err(JournalError::damaged(path, DamagedAt::Batch { seq, row: self.number }, what));
        match tail {
            Some(tail) if self.sound => {
                damaged(tail.from.0, format!("{}, and position #{} after it is sound", tail.what, self.seq))
            }
            Some(tail) => {
                tail.batches += 1;
                Ok(true)
            }
            None if self.sound && self.seq != self.after => {
                damaged(self.seq, format!("a gap: the batch before it ends at position #{}", self.after))
            }
            None => Ok(false),
        }
    }
}

/// Verifies and hands on every batch from `end` on.
pub(crate) fn follow(
    db: &Connection,
    path: &Path,
    end: &mut End,
    take: &mut Take<'_>,
) -> Result<Followed, JournalError> {
    let fail = |e| JournalError::sqlite(path, e);
    let sql = format!("SELECT {BATCH_COLUMNS} FROM batches WHERE seq >= ?1 ORDER BY seq");
    let mut select = db.prepare(&sql).map_err(fail)?;
    let mut rows = select.query([signed(end.seq)]).map_err(fail)?;
    let mut found = Followed { tail: None, batches: 0, bytes: 0 };
    while let Some(row) = rows.next().map_err(fail)? {
        let row = store::batch_row(row).map_err(fail)?;
        let at = DamagedAt::Batch { seq: row.seq, row: found.batches + 1 };
        let place = RowPlace { number: found.batches + 1, seq: row.seq, sound: row.sound, after: end.seq };
        if place.is_behind(path, &mut found.tail)? {
            continue;
        }
        match checked(&row, end) {
            Ok((batch, moved)) => {
                take(RecoveredPart::Batch(&batch)).map_err(|what| JournalError::damaged(path, at, what))?;
                (end.seq, end.tick_ms, end.archived, end.chain) = (row.next_seq, row.tick_ms, row.archived, row.chain);
                end.positions.extend(moved);
                found.batches += 1;
                found.bytes += row.payload.len() as u64;
            }
            // Its own check agrees, so it was written like this: no tear does that.
            Err(what) if row.sound => return Err(JournalError::damaged(path, at, what)),
            Err(what) => found.tail = Some(TornTail { batches: 1, from: Seq(end.seq), what }),
        }
    }
    Ok(found)
}

/// With nothing after a snapshot, the last batch must be the one that the snapshot was taken after.
fn reaches(db: &Connection, path: &Path, meta: &JournalMeta, seq: u64) -> Result<(), JournalError> {
    let last = db.query_row("SELECT max(next_seq) FROM batches", [], |row| row.get::<_, Option<i64>>(0));
    let last = last.map_err(|e| JournalError::sqlite(path, e))?.map_or(meta.begins_at, i64::unsigned_abs);
    if last == seq {
        return Ok(());
    }
    let what = format!("a gap: the batches end at position #{last}, the snapshot was taken at #{seq}");
    Err(JournalError::damaged(path, DamagedAt::Batch { seq: last, row: 0 }, what))
}

/// The batch in a row, if everything about it agrees.
fn checked(row: &BatchRow, end: &End) -> Result<(Batch, Positions), String> {
    let link: Chain = chain::next(&end.chain, &row.positions, &row.payload);
    if !row.sound {
        return Err("its checksum does not agree".to_owned());
    }
    if link != row.chain {
        return Err("it does not continue the chain of the batches before it".to_owned());
    }
    let batch = record::decode(&row.payload).map_err(record::RecordFault::text)?;
    let moved = positions(&row.positions).ok_or("its source positions cannot be read")?;
    let tick = batch.tick.now.0.min(i64::MAX.unsigned_abs());
    let numbers = batch.first_seq.0 == row.seq && batch.next_seq().0 == row.next_seq && tick == row.tick_ms;
    if !numbers || row.archived < end.archived {
        return Err("its columns and its records disagree".to_owned());
    }
    Ok((batch, moved))
}

pub(crate) fn positions(bytes: &[u8]) -> Option<Positions> {
    if bytes.is_empty() {
        return Some(Positions::new());
    }
    postcard::from_bytes::<Vec<(String, u64)>>(bytes).ok().map(|list| list.into_iter().collect())
}
