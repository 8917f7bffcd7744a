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
use crate::chain;
use crate::database::{ChainedRow, Database, RowFault, signed};
use crate::error::{DamagedAt, JournalError};
use crate::folder::DataFolder;
use crate::identity::IdentityIndex;
use crate::snapshot::{self, ListedChunk, ListedSnapshot, SnapshotChunks};
use crate::store::{self, JournalMeta};
use crate::{End, Opened, SqliteJournal, beside, spend, wal};
use forebay_kernel::ids::Seq;
use forebay_kernel::journal::{APPLY_VERSION, Batch};
use std::ops::ControlFlow;
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
    let (folder, db) = enter(folder)?;
    let meta = store::writable_meta(&db)?;
    let ReadJournal { end, chunks, since_snapshot, recovery } = read(&db, &meta, take)?;
    // Everything is known to be sound, or torn at the end only.
    db.execute(spend::TABLES)?;
    if recovery.cut.is_some() {
        db.write(|all| store::cut(all, end.seq, end.archived))?;
    }
    if let (Some(used), true) = (recovery.snapshot, recovery.bad_snapshots > 0) {
        snapshot::forget_unusable(&db, used.0)?;
    }
    let identities = IdentityIndex::load(&db, Some(end.archived))?;
    let journal = SqliteJournal::start(Opened { db, meta, end, since_snapshot, chunks, identities, folder })?;
    Ok((journal, recovery))
}

/// What a journal says from its newest sound snapshot on.
pub(crate) struct ReadJournal {
    end: End,
    /// Those of the snapshot.
    chunks: Vec<ListedChunk>,
    /// Bytes of payload after it.
    since_snapshot: u64,
    recovery: Recovery,
}

/// Verifies everything from the newest sound snapshot on and hands it to `take`. A torn tail is left out, and not cut yet.
pub(crate) fn read(db: &Database, meta: &JournalMeta, take: &mut Take<'_>) -> Result<ReadJournal, JournalError> {
    let mut recovery = Recovery { snapshot: None, bad_snapshots: 0, batches: 0, cut: None };
    let ListedSnapshot { mut end, chunks } = begin(db, meta, take, &mut recovery)?;
    let Followed { tail, batches, bytes } = follow(db, &BATCHES, &mut end, take)?;
    if batches == 0 && tail.is_none() {
        reaches(db, meta, end.seq)?;
    }
    (recovery.batches, recovery.cut) = (batches, tail);
    Ok(ReadJournal { end, chunks, since_snapshot: bytes, recovery })
}

/// Lock, log, file: in this order, before anything is believed.
pub(crate) fn enter(folder: &Path) -> Result<(DataFolder, Database), JournalError> {
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
    let db = Database::open(&path)?;
    store::format(&db)?;
    if size <= CHECKED_WHOLE {
        check_file(&db)?;
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
    let db = Database::open(&path)?;
    store::meta(&db)?;
    last_policy(&db)
}

/// The text of the policy in force.
pub(crate) fn last_policy(db: &Database) -> Result<Option<String>, JournalError> {
    Ok(store::sources(db, 1)?.pop().map(|source| source.text))
}

/// SQLite's own check of the whole file.
pub(crate) fn check_file(db: &Database) -> Result<(), JournalError> {
    match db.row("PRAGMA quick_check(1)", [], |row| Ok(row.get::<_, String>(0)?))? {
        Some(fault) if fault != "ok" => Err(db.damaged(DamagedAt::File, fault.replace('\n', " "))),
        _ => Ok(()),
    }
}

/// The newest snapshot that is sound and can be used, or the very start.
fn begin(
    db: &Database,
    meta: &JournalMeta,
    take: &mut Take<'_>,
    recovery: &mut Recovery,
) -> Result<ListedSnapshot, JournalError> {
    for stored in store::snapshots(db)? {
        if let Ok(listed) = stored.read
            && read_snapshot(db, &listed.chunks, take).is_ok()
        {
            recovery.snapshot = Some(Seq(stored.after_seq));
            return Ok(listed);
        }
        recovery.bad_snapshots += 1;
    }
    if meta.begins_at > 0 || (recovery.bad_snapshots > 0 && oldest(db)? != Some(0)) {
        let what = "no snapshot can be read, and the batches before them are not kept";
        return Err(db.damaged(DamagedAt::Snapshot(meta.begins_at), what));
    }
    take(RecoveredPart::Start).map_err(|what| db.damaged(DamagedAt::File, what))?;
    Ok(ListedSnapshot { end: End::first(meta), chunks: Vec::new() })
}

fn read_snapshot(db: &Database, list: &[ListedChunk], take: &mut Take<'_>) -> Result<(), String> {
    let mut chunks = SnapshotChunks::new(db, list);
    let taken = take(RecoveredPart::Snapshot(&mut chunks));
    chunks.end().and(taken)
}

/// The position of the oldest batch that is kept.
pub(crate) fn oldest(db: &Database) -> Result<Option<u64>, JournalError> {
    db.number("SELECT min(seq) FROM batches")
}

/// What was found from a position on.
pub(crate) struct Followed {
    pub tail: Option<TornTail>,
    pub batches: u64,
    /// Of payload.
    pub bytes: u64,
}

/// How a format has its batches.
pub(crate) struct BatchTable {
    /// From a position on.
    pub sql: &'static str,
    /// The numbers of a row: seq, next_seq, tick_ms, archived.
    pub read: fn(&rusqlite::Row<'_>) -> rusqlite::Result<ChainedRow<4>>,
    pub decode: fn(&[u8]) -> Result<Batch, String>,
}

/// The batches of the newest format.
pub(crate) const BATCHES: BatchTable = BatchTable {
    sql: "SELECT seq, next_seq, tick_ms, archived, payload, positions, crc32c, chain FROM batches WHERE seq >= ?1 ORDER BY seq",
    read: ChainedRow::read,
    decode,
};

/// The batch in a payload: the version of its records, then the batch as that version has it.
fn decode(payload: &[u8]) -> Result<Batch, String> {
    let unreadable = |_| "its records cannot be read".to_owned();
    match postcard::take_from_bytes::<u32>(payload).map_err(unreadable)? {
        (found, _) if found > APPLY_VERSION => {
            Err(format!("its records have version {found}, this program reads up to {APPLY_VERSION}"))
        }
        _ => Batch::decode(payload).map_err(unreadable),
    }
}

/// Verifies and hands on every batch from `end` on.
pub(crate) fn follow(
    db: &Database,
    table: &BatchTable,
    end: &mut End,
    take: &mut Take<'_>,
) -> Result<Followed, JournalError> {
    let mut found = Followed { tail: None, batches: 0, bytes: 0 };
    db.each(table.sql, [signed(end.seq)], |row| {
        let row = (table.read)(row)?;
        let [seq, next_seq, tick_ms, archived] = row.numbers;
        let number = found.batches + 1;
        let damaged = |seq, what: String| RowFault::damaged(DamagedAt::Batch { seq, row: number }, what);
        match &mut found.tail {
            // Behind a torn batch everything is torn.
            Some(tail) if row.sound => {
                let what = format!("{}, and position #{seq} after it is sound", tail.what);
                return Err(damaged(tail.from.0, what));
            }
            Some(tail) => {
                tail.batches += 1;
                return Ok(ControlFlow::Continue(()));
            }
            None if row.sound && seq != end.seq => {
                return Err(damaged(seq, format!("a gap: the batch before it ends at position #{}", end.seq)));
            }
            None => {}
        }
        match checked(&row, end, table) {
            Ok((batch, moved)) => {
                take(RecoveredPart::Batch(&batch)).map_err(|what| damaged(seq, what))?;
                (end.seq, end.tick_ms, end.archived, end.chain) = (next_seq, tick_ms, archived, row.chain);
                end.positions.extend(moved);
                found.batches += 1;
                found.bytes += row.body.len() as u64;
            }
            // Its own check agrees, so it was written like this: no tear does that.
            Err(what) if row.sound => return Err(damaged(seq, what)),
            Err(what) => found.tail = Some(TornTail { batches: 1, from: Seq(end.seq), what }),
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(found)
}

/// With nothing after a snapshot, the last batch must be the one that the snapshot was taken after.
fn reaches(db: &Database, meta: &JournalMeta, seq: u64) -> Result<(), JournalError> {
    let last = db.number("SELECT max(next_seq) FROM batches")?.unwrap_or(meta.begins_at);
    if last == seq {
        return Ok(());
    }
    let what = format!("a gap: the batches end at position #{last}, the snapshot was taken at #{seq}");
    Err(db.damaged(DamagedAt::Batch { seq: last, row: 0 }, what))
}

/// The batch in a row, if everything about it agrees.
fn checked(row: &ChainedRow<4>, end: &End, table: &BatchTable) -> Result<(Batch, Positions), String> {
    if !row.sound {
        return Err("its checksum does not agree".to_owned());
    }
    if chain::next(&end.chain, &row.positions, &row.body) != row.chain {
        return Err("it does not continue the chain of the batches before it".to_owned());
    }
    let batch = (table.decode)(&row.body)?;
    let moved = positions(&row.positions).ok_or("its source positions cannot be read")?;
    let [seq, next_seq, tick_ms, archived] = row.numbers;
    let tick = batch.tick.now.0.min(i64::MAX.unsigned_abs());
    let numbers = batch.first_seq.0 == seq && batch.next_seq().0 == next_seq && tick == tick_ms;
    if !numbers || archived < end.archived {
        return Err("its columns and its records disagree".to_owned());
    }
    Ok((batch, moved))
}

pub(crate) fn positions(bytes: &[u8]) -> Option<Positions> {
    if bytes.is_empty() { Some(Positions::new()) } else { postcard::from_bytes(bytes).ok() }
}
