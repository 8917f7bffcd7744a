//! Opening a journal: verifies everything from the newest sound snapshot on, cuts a torn tail, refuses damage in the middle.
//!
//! ```text
//! rows:  ok ok ok ok BAD            -> cut from BAD on, said
//!        ok ok BAD ok               -> stop: damage in the middle
//!        ok ok    ok                -> stop: a gap
//! ```
//!
//! Never: changes anything before it knows that the whole is one or the other.

use super::chain::{self, Chain};
use super::checkpoint::Checkpointer;
use super::error::{JournalError, Place};
use super::folder::Folder;
use super::store::{self, BatchRow, Meta, Positions};
use super::{End, SqliteJournal, beside, wal};
use forebay_engine::ids::Seq;
use forebay_engine::journal::Batch;
use rusqlite::Connection;
use std::path::Path;

/// Up to this size SQLite's own check of the whole file is part of every start: 256 MiB take about a second.
const CHECKED_WHOLE: u64 = 256 << 20;

/// What a recovery is made of, in order: `Start` or a `Snapshot` (again, if it could not be used), then batches.
#[derive(Debug)]
pub enum Piece<'a> {
    /// Begin with nothing.
    Start,
    /// Begin with this state. An error here means that it cannot be read, and an earlier one is tried.
    Snapshot(&'a [u8]),
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
    pub cut: Option<Cut>,
}

/// A torn tail that was cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Batches that are no more.
    pub batches: u64,
    /// Position of the first of them.
    pub from: Seq,
    /// What was wrong with it.
    pub what: String,
}

impl std::fmt::Display for Cut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Cut { batches, from, what } = self;
        write!(f, "the journal's tail was torn and has been cut: {batches} batches from position {from} on ({what})")
    }
}

/// What verifying a whole journal found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// Who it is.
    pub meta: Meta,
    /// Batches, from the first.
    pub batches: u64,
    /// Records in them.
    pub end: Seq,
    /// Sound snapshots, by the position after each.
    pub snapshots: Vec<Seq>,
}

pub(super) type Take<'a> = dyn FnMut(Piece<'_>) -> Result<(), String> + 'a;

/// See [`SqliteJournal::open`].
pub(super) fn open(folder: &Path, take: &mut Take<'_>) -> Result<(SqliteJournal, Recovery), JournalError> {
    let (folder, mut db, meta) = enter(folder)?;
    let path = folder.database();
    store::complete_tables(&db).map_err(|e| JournalError::sqlite(&path, e))?;
    let mut recovery = Recovery { snapshot: None, bad_snapshots: 0, batches: 0, cut: None };
    let (mut end, snapshot_bytes) = begin(&db, &path, &meta, take, &mut recovery)?;
    let (tail, since_snapshot) = follow(&db, &path, &mut end, take, &mut recovery.batches)?;
    if let Some(cut) = tail {
        store::cut(&mut db, end.seq).map_err(|e| JournalError::sqlite(&path, e))?;
        recovery.cut = Some(cut);
    }
    let checkpointer = Checkpointer::start(&path, &db)?;
    let journal = SqliteJournal { checkpointer, db, path, meta, end, since_snapshot, snapshot_bytes, folder };
    Ok((journal, recovery))
}

/// Reads a whole journal from its first batch on and changes nothing.
pub fn verify(folder: &Path) -> Result<Verified, JournalError> {
    let (folder, db, meta) = enter(folder)?;
    let path = folder.database();
    let mut end = End { seq: 0, chain: chain::first(meta.uuid), positions: Positions::new() };
    let mut batches = 0;
    let (cut, _) = follow(&db, &path, &mut end, &mut |_| Ok(()), &mut batches)?;
    if let Some(cut) = cut {
        let place = Place::Batch { seq: cut.from.0, row: batches + 1 };
        return Err(JournalError::damaged(
            &path,
            place,
            format!("{}; nothing sound follows: a start cuts it", cut.what),
        ));
    }
    let mut snapshots = Vec::new();
    for after in store::snapshot_list(&db).map_err(|e| JournalError::sqlite(&path, e))? {
        let row = store::snapshot(&db, after).map_err(|e| JournalError::sqlite(&path, e))?;
        if !row.sound || row.after_seq > end.seq {
            let place = Place::Batch { seq: row.after_seq, row: batches };
            return Err(JournalError::damaged(
                &path,
                place,
                "the snapshot taken here is damaged; a start uses an earlier one",
            ));
        }
        snapshots.push(Seq(row.after_seq));
    }
    Ok(Verified { meta, batches, end: Seq(end.seq), snapshots })
}

/// Lock, log, file, description: in this order, before anything is believed.
fn enter(folder: &Path) -> Result<(Folder, Connection, Meta), JournalError> {
    let path = folder.join(super::FILE);
    let size = match std::fs::metadata(&path) {
        Ok(found) => found.len(),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Err(JournalError::Missing { path }),
        Err(e) => return Err(JournalError::io(&path, e)),
    };
    let folder = Folder::take(folder)?;
    // SQLite would take an empty file for a new database.
    if size == 0 {
        return Err(JournalError::damaged(&path, Place::File, "it is empty"));
    }
    wal::check(&beside(&path, "-wal"))?;
    let db = store::connect(&path, false)?;
    let meta = store::meta(&db, &path)?;
    if size <= CHECKED_WHOLE {
        let said: String =
            db.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(|e| JournalError::sqlite(&path, e))?;
        if said != "ok" {
            return Err(JournalError::damaged(&path, Place::File, said.replace('\n', " ")));
        }
    }
    Ok((folder, db, meta))
}

/// The newest snapshot that is sound and can be used, or the very start.
fn begin(
    db: &Connection,
    path: &Path,
    meta: &Meta,
    take: &mut Take<'_>,
    recovery: &mut Recovery,
) -> Result<(End, u64), JournalError> {
    for after in store::snapshot_list(db).map_err(|e| JournalError::sqlite(path, e))? {
        let row = store::snapshot(db, after).map_err(|e| JournalError::sqlite(path, e))?;
        let positions = positions(&row.positions);
        if let (true, Some(positions)) = (row.sound, positions)
            && take(Piece::Snapshot(&row.state)).is_ok()
        {
            recovery.snapshot = Some(Seq(row.after_seq));
            return Ok((End { seq: row.after_seq, chain: row.chain, positions }, row.state.len() as u64));
        }
        recovery.bad_snapshots += 1;
    }
    take(Piece::Start).map_err(|what| JournalError::damaged(path, Place::File, what))?;
    Ok((End { seq: 0, chain: chain::first(meta.uuid), positions: Positions::new() }, 0))
}

/// Verifies and hands on every batch from `end` on. Returns the torn tail, and the bytes read.
fn follow(
    db: &Connection,
    path: &Path,
    end: &mut End,
    take: &mut Take<'_>,
    batches: &mut u64,
) -> Result<(Option<Cut>, u64), JournalError> {
    let fail = |e| JournalError::sqlite(path, e);
    let mut select = db
        .prepare("SELECT seq, next_seq, tick_ms, payload, positions, crc32c, chain FROM batches WHERE seq >= ?1 ORDER BY seq")
        .map_err(fail)?;
    let from = i64::try_from(end.seq).unwrap_or(i64::MAX);
    let mut rows = select.query([from]).map_err(fail)?;
    let (mut tail, mut bytes): (Option<Cut>, u64) = (None, 0);
    while let Some(row) = rows.next().map_err(fail)? {
        let row = store::batch_row(row).map_err(fail)?;
        let at = Place::Batch { seq: row.seq, row: *batches + 1 };
        if let Some(cut) = &mut tail {
            if row.sound {
                let at = Place::Batch { seq: cut.from.0, row: *batches + 1 };
                let what = format!("{}, and position #{} after it is sound", cut.what, row.seq);
                return Err(JournalError::damaged(path, at, what));
            }
            cut.batches += 1;
            continue;
        }
        if row.sound && row.seq != end.seq {
            let what = format!("a gap: the batch before it ends at position #{}", end.seq);
            return Err(JournalError::damaged(path, at, what));
        }
        match checked(&row, end) {
            Ok((batch, moved)) => {
                take(Piece::Batch(&batch)).map_err(|what| JournalError::damaged(path, at, what))?;
                (end.seq, end.chain) = (row.next_seq, row.chain);
                end.positions.extend(moved);
                *batches += 1;
                bytes += row.payload.len() as u64;
            }
            // Its own check agrees, so it was written like this: no tear does that.
            Err(what) if row.sound => return Err(JournalError::damaged(path, at, what)),
            Err(what) => tail = Some(Cut { batches: 1, from: Seq(end.seq), what: what.to_owned() }),
        }
    }
    if *batches == 0 && tail.is_none() {
        reaches(db, path, end.seq)?;
    }
    Ok((tail, bytes))
}

/// With nothing after a snapshot, the last batch must be the one that the snapshot was taken after.
fn reaches(db: &Connection, path: &Path, seq: u64) -> Result<(), JournalError> {
    let last: Option<i64> = db
        .query_row("SELECT max(next_seq) FROM batches", [], |row| row.get(0))
        .map_err(|e| JournalError::sqlite(path, e))?;
    let last = last.unwrap_or(0).unsigned_abs();
    if last == seq {
        return Ok(());
    }
    let what = format!("a gap: the batches end at position #{last}, the snapshot was taken at #{seq}");
    Err(JournalError::damaged(path, Place::Batch { seq: last, row: 0 }, what))
}

/// The batch in a row, if everything about it agrees.
fn checked(row: &BatchRow, end: &End) -> Result<(Batch, Positions), &'static str> {
    let link: Chain = chain::next(&end.chain, &row.positions, &row.payload);
    if !row.sound {
        return Err("its checksum does not agree");
    }
    if link != row.chain {
        return Err("it does not continue the chain of the batches before it");
    }
    let batch = Batch::decode(&row.payload).map_err(|_| "its records cannot be read")?;
    let moved = positions(&row.positions).ok_or("its source positions cannot be read")?;
    let tick = batch.tick.now.0.min(i64::MAX.unsigned_abs());
    if batch.first_seq.0 != row.seq || batch.next_seq().0 != row.next_seq || tick != row.tick_ms {
        return Err("its columns and its records disagree");
    }
    Ok((batch, moved))
}

fn positions(bytes: &[u8]) -> Option<Positions> {
    if bytes.is_empty() {
        return Some(Positions::new());
    }
    postcard::from_bytes::<Vec<(String, u64)>>(bytes).ok().map(|list| list.into_iter().collect())
}
