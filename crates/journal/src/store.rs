//! The tables, and what is written into them and read from them. Every row carries its own check.
//!
//! Never: judges. What damaged rows mean is `recover`'s business.

use crate::JournalId;
use crate::chain::{self, Chain};
use crate::error::{DamagedAt, JournalError};
use forebay_kernel::journal::APPLY_VERSION;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Row, params};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;
use uuid::Uuid;

/// The layout of the tables that this build writes.
pub const FORMAT_VERSION: u32 = 2;

/// `archived` is the number of the last row of `archive` that was written with the batch or before it.
const TABLES: &str = "
    CREATE TABLE meta (
        id INTEGER PRIMARY KEY CHECK (id = 1), format INTEGER NOT NULL, apply INTEGER NOT NULL, uuid BLOB NOT NULL,
        incarnation INTEGER NOT NULL, created_ms INTEGER NOT NULL, begins_at INTEGER NOT NULL, crc32c INTEGER NOT NULL) STRICT;
    CREATE TABLE batches (
        seq INTEGER PRIMARY KEY, next_seq INTEGER NOT NULL, tick_ms INTEGER NOT NULL, archived INTEGER NOT NULL,
        payload BLOB NOT NULL, positions BLOB NOT NULL, crc32c INTEGER NOT NULL, chain BLOB NOT NULL) STRICT;
    CREATE TABLE snapshots (
        after_seq INTEGER PRIMARY KEY, tick_ms INTEGER NOT NULL, archived INTEGER NOT NULL, chunks BLOB NOT NULL,
        positions BLOB NOT NULL, crc32c INTEGER NOT NULL, chain BLOB NOT NULL) STRICT;
    CREATE TABLE chunks (id INTEGER PRIMARY KEY, bytes BLOB NOT NULL) STRICT;
    CREATE TABLE sources (
        seq INTEGER PRIMARY KEY, tick_ms INTEGER NOT NULL, text TEXT NOT NULL, crc32c INTEGER NOT NULL) STRICT;
    CREATE TABLE seen (seq INTEGER PRIMARY KEY, ids BLOB NOT NULL, crc32c INTEGER NOT NULL) STRICT;
    CREATE TABLE requests (effect INTEGER PRIMARY KEY, body BLOB NOT NULL, crc32c INTEGER NOT NULL) STRICT;
    CREATE TABLE archive_queues (id INTEGER PRIMARY KEY, path TEXT NOT NULL, crc32c INTEGER NOT NULL) STRICT;
    CREATE TABLE archive (
        id INTEGER PRIMARY KEY, job INTEGER NOT NULL, queue INTEGER NOT NULL, outcome INTEGER NOT NULL,
        submitted_ms INTEGER NOT NULL, ended_ms INTEGER NOT NULL, body BLOB NOT NULL, crc32c INTEGER NOT NULL) STRICT;
    CREATE INDEX archive_jobs ON archive (job);
    CREATE INDEX archive_outcomes ON archive (queue, outcome);
    CREATE TABLE identity_runs (
        id INTEGER PRIMARY KEY, first_page INTEGER NOT NULL, pages INTEGER NOT NULL, entries INTEGER NOT NULL,
        first_archived INTEGER NOT NULL, last_archived INTEGER NOT NULL, crc32c INTEGER NOT NULL) STRICT;
    CREATE TABLE identity_filters (
        id INTEGER PRIMARY KEY, run INTEGER NOT NULL, part INTEGER NOT NULL, body BLOB NOT NULL, crc32c INTEGER NOT NULL) STRICT;
    CREATE INDEX identity_filter_runs ON identity_filters (run, part);
    CREATE TABLE identity_pages (id INTEGER PRIMARY KEY, body BLOB NOT NULL, crc32c INTEGER NOT NULL) STRICT;
";

/// Who a journal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalMeta {
    /// Layout of the tables.
    pub format: u32,
    /// Meaning of the records.
    pub apply: u32,
    /// Its UUID.
    pub uuid: Uuid,
    /// 0; only a restore raises it.
    pub incarnation: u32,
    /// When it was made, in ms since 1970.
    pub created_ms: u64,
    /// The position of the first batch that it ever held: 0, or where the journal ended that it was made from.
    pub begins_at: u64,
}

impl JournalMeta {
    /// What ids of effects and statuses begin with.
    #[must_use]
    pub fn id(&self) -> JournalId {
        JournalId { uuid: self.uuid.as_u128(), incarnation: self.incarnation }
    }

    fn numbers(&self) -> [i64; 5] {
        let JournalMeta { format, apply, incarnation, created_ms, begins_at, .. } = *self;
        [format.into(), apply.into(), incarnation.into(), signed(created_ms), signed(begins_at)]
    }
}

/// A row of `batches` as read, its own check done.
#[derive(Debug)]
pub struct BatchRow {
    pub seq: u64,
    pub next_seq: u64,
    pub tick_ms: u64,
    pub archived: u64,
    pub payload: Vec<u8>,
    pub positions: Vec<u8>,
    pub chain: Chain,
    pub sound: bool,
}

/// The numbers of a batch's row.
#[derive(Clone, Copy, Debug)]
pub struct BatchNumbers {
    pub seq: u64,
    pub next_seq: u64,
    pub tick_ms: u64,
    pub archived: u64,
}

/// A row of `snapshots` as read, its own check done.
#[derive(Debug)]
pub struct SnapshotRow {
    pub after_seq: u64,
    pub tick_ms: u64,
    pub archived: u64,
    pub chunks: Vec<u8>,
    pub positions: Vec<u8>,
    pub chain: Chain,
    pub sound: bool,
}

/// Opens the database with every guarantee switched on.
pub fn connect(path: &Path, create: bool) -> Result<Connection, JournalError> {
    let fail = |e| JournalError::sqlite(path, e);
    let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    flags.set(OpenFlags::SQLITE_OPEN_CREATE, create);
    let db = Connection::open_with_flags(path, flags).map_err(fail)?;
    // A reader with the sqlite3 tool may hold it for a moment.
    db.busy_timeout(Duration::from_secs(10)).map_err(fail)?;
    if create {
        // Before the first page is written; later it changes nothing.
        db.execute_batch("PRAGMA auto_vacuum = INCREMENTAL").map_err(fail)?;
    }
    let mode: String = db.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).map_err(fail)?;
    if !mode.eq_ignore_ascii_case("wal") {
        let source = std::io::Error::other("the file system cannot hold a write-ahead log");
        return Err(JournalError::io(path, source));
    }
    db.execute_batch(
        "PRAGMA synchronous = FULL; PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;
         PRAGMA journal_size_limit = 67108864;",
    )
    .map_err(fail)?;
    Ok(db)
}

/// Opens the database for reading only, beside whoever writes it.
pub fn connect_to_read(path: &Path) -> Result<Connection, JournalError> {
    let fail = |e| JournalError::sqlite(path, e);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags).map_err(fail)?;
    db.busy_timeout(Duration::from_secs(10)).map_err(fail)?;
    db.execute_batch("PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON").map_err(fail)?;
    Ok(db)
}

/// Makes the tables of a new journal.
pub fn create_tables(db: &Connection, meta: JournalMeta) -> rusqlite::Result<()> {
    db.execute_batch(TABLES)?;
    write_meta(db, meta)
}

/// Writes who the journal is, in the place of what was there.
pub fn write_meta(db: &Connection, meta: JournalMeta) -> rusqlite::Result<()> {
    let numbers = meta.numbers();
    let crc = chain::crc(&numbers, &[meta.uuid.as_bytes()]);
    let [format, apply, incarnation, created_ms, begins_at] = numbers;
    db.execute(
        "INSERT OR REPLACE INTO meta VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        params![format, apply, &meta.uuid.as_bytes()[..], incarnation, created_ms, begins_at, crc],
    )?;
    Ok(())
}

/// The format that a journal says it has. Not checked otherwise: the layout of the rest depends on it.
pub fn format(db: &Connection, path: &Path) -> Result<u32, JournalError> {
    let damaged = |what: &str| JournalError::damaged(path, DamagedAt::Meta, what);
    let found = db.query_row("SELECT format, apply FROM meta WHERE id = 1", [], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
    });
    let found = found.optional().map_err(|e| JournalError::sqlite(path, e))?;
    let (format, apply) = found.ok_or_else(|| damaged("its one row is missing"))?;
    for (what, found, supported) in [("format", format, FORMAT_VERSION), ("apply", apply, APPLY_VERSION)] {
        if let Ok(found) = u32::try_from(found)
            && found > supported
        {
            return Err(JournalError::Newer { path: path.to_owned(), what, found, supported });
        }
    }
    u32::try_from(format).map_err(|_| damaged("a version is not a number"))
}

/// Reads who the journal is, and refuses versions from the future and the past, and damage.
pub fn meta(db: &Connection, path: &Path) -> Result<JournalMeta, JournalError> {
    let damaged = |what: &str| JournalError::damaged(path, DamagedAt::Meta, what);
    let found = format(db, path)?;
    if found < FORMAT_VERSION {
        let folder = path.parent().unwrap_or(Path::new(".")).to_owned();
        return Err(JournalError::Older { path: path.to_owned(), folder, found, written: FORMAT_VERSION });
    }
    let sql = "SELECT format, apply, incarnation, created_ms, begins_at, uuid, crc32c FROM meta WHERE id = 1";
    let row = db.query_row(sql, [], |row| {
        let numbers: [i64; 5] = [row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?];
        Ok((numbers, row.get::<_, Vec<u8>>(5)?, row.get::<_, i64>(6)?))
    });
    let (numbers, uuid, crc) = row.map_err(|e| JournalError::sqlite(path, e))?;
    if i64::from(chain::crc(&numbers, &[&uuid])) != crc {
        return Err(damaged("its checksum does not agree"));
    }
    let uuid = Uuid::from_slice(&uuid).map_err(|_| damaged("the journal's UUID is not one"))?;
    let version = |n: i64| u32::try_from(n).map_err(|_| damaged("a version is not a number"));
    let [format, apply, incarnation, created_ms, begins_at] = numbers;
    Ok(JournalMeta {
        format: version(format)?,
        apply: version(apply)?,
        uuid,
        incarnation: version(incarnation)?,
        created_ms: created_ms.unsigned_abs(),
        begins_at: begins_at.unsigned_abs(),
    })
}

/// Writes one batch row. Returns its link of the chain.
pub fn insert_batch(
    db: &Connection,
    before: &Chain,
    numbers: BatchNumbers,
    payload: &[u8],
    positions: &[u8],
) -> rusqlite::Result<Chain> {
    let link = chain::next(before, positions, payload);
    let BatchNumbers { seq, next_seq, tick_ms, archived } = numbers;
    let numbers = [signed(seq), signed(next_seq), signed(tick_ms), signed(archived)];
    let crc = chain::crc(&numbers, &[&link, positions, payload]);
    let [seq, next_seq, tick_ms, archived] = numbers;
    let mut insert = db.prepare_cached("INSERT INTO batches VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)")?;
    insert.execute(params![seq, next_seq, tick_ms, archived, payload, positions, crc, &link[..]])?;
    Ok(link)
}

/// The columns of `batches` as [`batch_row`] takes them.
pub const BATCH_COLUMNS: &str = "seq, next_seq, tick_ms, archived, payload, positions, crc32c, chain";

/// Reads one row of [`BATCH_COLUMNS`].
pub fn batch_row(row: &Row<'_>) -> rusqlite::Result<BatchRow> {
    let numbers: [i64; 4] = [row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?];
    let (payload, positions): (Vec<u8>, Vec<u8>) = (row.get(4)?, row.get(5)?);
    let (crc, link): (i64, Vec<u8>) = (row.get(6)?, row.get(7)?);
    let sound =
        i64::from(chain::crc(&numbers, &[&link, &positions, &payload])) == crc && numbers.iter().all(|n| *n >= 0);
    let [seq, next_seq, tick_ms, archived] = numbers.map(i64::unsigned_abs);
    let length = link.len();
    let chain = link.try_into().unwrap_or_default();
    Ok(BatchRow { seq, next_seq, tick_ms, archived, payload, positions, chain, sound: sound && length == 32 })
}

/// Publishes a snapshot whose chunks are written, and forgets all but the last two.
pub fn insert_snapshot(db: &Connection, row: &SnapshotRow) -> rusqlite::Result<()> {
    let SnapshotRow { after_seq, tick_ms, archived, chunks, positions, chain, .. } = row;
    let numbers = [signed(*after_seq), signed(*tick_ms), signed(*archived)];
    let crc = chain::crc(&numbers, &[chain, positions, chunks]);
    let [after_seq, tick_ms, archived] = numbers;
    db.execute(
        "INSERT OR REPLACE INTO snapshots VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        params![after_seq, tick_ms, archived, chunks, positions, crc, &chain[..]],
    )?;
    db.execute(
        "DELETE FROM snapshots WHERE after_seq NOT IN (SELECT after_seq FROM snapshots ORDER BY after_seq DESC LIMIT 2)",
        [],
    )?;
    Ok(())
}

/// The positions of the snapshots, newest first.
pub fn snapshot_list(db: &Connection) -> rusqlite::Result<Vec<i64>> {
    let mut list = db.prepare("SELECT after_seq FROM snapshots ORDER BY after_seq DESC")?;
    list.query_map([], |row| row.get(0))?.collect()
}

/// Reads one snapshot.
pub fn snapshot(db: &Connection, after_seq: i64) -> rusqlite::Result<SnapshotRow> {
    let sql = "SELECT tick_ms, archived, chunks, positions, crc32c, chain FROM snapshots WHERE after_seq = ?1";
    db.query_row(sql, [after_seq], |row| {
        let numbers: [i64; 3] = [after_seq, row.get(0)?, row.get(1)?];
        let (chunks, positions): (Vec<u8>, Vec<u8>) = (row.get(2)?, row.get(3)?);
        let (crc, link): (i64, Vec<u8>) = (row.get(4)?, row.get(5)?);
        let agrees = i64::from(chain::crc(&numbers, &[&link, &positions, &chunks])) == crc;
        let sound = agrees && link.len() == 32 && numbers.iter().all(|n| *n >= 0);
        let chain = link.try_into().unwrap_or_default();
        let [after_seq, tick_ms, archived] = numbers.map(i64::unsigned_abs);
        Ok(SnapshotRow { after_seq, tick_ms, archived, chunks, positions, chain, sound })
    })
}

/// Writes a policy's text beside the event that put it in force.
pub fn insert_source(db: &Connection, seq: u64, tick_ms: u64, text: &str) -> rusqlite::Result<()> {
    let numbers = [signed(seq), signed(tick_ms)];
    let crc = chain::crc(&numbers, &[text.as_bytes()]);
    db.execute("INSERT INTO sources VALUES (?1, ?2, ?3, ?4)", params![numbers[0], numbers[1], text, crc])?;
    Ok(())
}

/// A policy's text as read, its own check done.
#[derive(Debug)]
pub struct SourceRow {
    pub seq: u64,
    pub tick_ms: u64,
    pub text: String,
    pub sound: bool,
}

/// The policies' texts, newest first.
pub fn sources(db: &Connection, most: usize) -> rusqlite::Result<Vec<SourceRow>> {
    let mut select = db.prepare("SELECT seq, tick_ms, text, crc32c FROM sources ORDER BY seq DESC LIMIT ?1")?;
    let rows = select.query_map([i64::try_from(most).unwrap_or(i64::MAX)], |row| {
        let (seq, tick_ms): (i64, i64) = (row.get(0)?, row.get(1)?);
        let (text, crc): (String, i64) = (row.get(2)?, row.get(3)?);
        let sound = i64::from(chain::crc(&[seq, tick_ms], &[text.as_bytes()])) == crc;
        Ok(SourceRow { seq: seq.unsigned_abs(), tick_ms: tick_ms.unsigned_abs(), text, sound })
    })?;
    rows.collect()
}

/// Writes the ids of a batch's events.
pub fn insert_seen(db: &Connection, seq: u64, ids: &[u128]) -> rusqlite::Result<()> {
    let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    let crc = chain::crc(&[signed(seq)], &[&bytes]);
    db.prepare_cached("INSERT INTO seen VALUES (?1, ?2, ?3)")?.execute(params![signed(seq), bytes, crc])?;
    Ok(())
}

/// The last `most` ids, oldest first; the position of a row that is damaged.
pub fn seen(db: &Connection, most: usize) -> rusqlite::Result<Result<Vec<u128>, u64>> {
    let mut select = db.prepare("SELECT seq, ids, crc32c FROM seen ORDER BY seq DESC")?;
    let mut rows = select.query([])?;
    let mut newest_first = Vec::new();
    while let Some(row) = rows.next()? {
        let (seq, bytes, crc): (i64, Vec<u8>, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        if i64::from(chain::crc(&[seq], &[&bytes])) != crc {
            return Ok(Err(seq.unsigned_abs()));
        }
        let (ids, _) = bytes.as_chunks::<16>();
        newest_first.extend(ids.iter().rev().map(|id| u128::from_le_bytes(*id)));
        if newest_first.len() >= most {
            break;
        }
    }
    newest_first.truncate(most);
    newest_first.reverse();
    Ok(Ok(newest_first))
}

/// The last row of `seen` that lies wholly beyond the last `most` ids.
pub fn seen_horizon(db: &Connection, most: usize) -> rusqlite::Result<Option<i64>> {
    let mut select = db.prepare_cached("SELECT seq, length(ids) / 16 FROM seen ORDER BY seq DESC")?;
    let mut rows = select.query([])?;
    let mut left = i64::try_from(most).unwrap_or(i64::MAX);
    while let Some(row) = rows.next()? {
        let (seq, ids): (i64, i64) = (row.get(0)?, row.get(1)?);
        if left <= 0 {
            return Ok(Some(seq));
        }
        left -= ids;
    }
    Ok(None)
}

/// Writes a frozen request beside the batch that decided on it.
pub fn insert_request(db: &Connection, effect: u64, body: &[u8]) -> rusqlite::Result<()> {
    let crc = chain::crc(&[signed(effect)], &[body]);
    db.prepare_cached("INSERT INTO requests VALUES (?1, ?2, ?3)")?.execute(params![signed(effect), body, crc])?;
    Ok(())
}

/// The frozen requests, and the position of one that is damaged.
pub fn requests(db: &Connection) -> rusqlite::Result<Result<BTreeMap<u64, Vec<u8>>, u64>> {
    let mut select = db.prepare("SELECT effect, body, crc32c FROM requests ORDER BY effect")?;
    let mut rows = select.query([])?;
    let mut requests = BTreeMap::new();
    while let Some(row) = rows.next()? {
        let (effect, body, crc): (i64, Vec<u8>, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        if i64::from(chain::crc(&[effect], &[&body])) != crc {
            return Ok(Err(effect.unsigned_abs()));
        }
        requests.insert(effect.unsigned_abs(), body);
    }
    Ok(Ok(requests))
}

/// Forgets requests before `effect` but those of `open`, which have no outcome yet.
pub fn forget_requests(db: &Connection, before: u64, open: &BTreeSet<u64>) -> rusqlite::Result<()> {
    let mut select = db.prepare_cached("SELECT effect FROM requests WHERE effect < ?1")?;
    let known: Vec<i64> = select.query_map([signed(before)], |row| row.get(0))?.collect::<Result<_, _>>()?;
    let mut delete = db.prepare_cached("DELETE FROM requests WHERE effect = ?1")?;
    for effect in known.into_iter().filter(|effect| !open.contains(&effect.unsigned_abs())) {
        delete.execute([effect])?;
    }
    Ok(())
}

/// Takes out everything from `seq` on, and finished jobs after row `archived` of the archive.
pub fn cut(db: &mut Connection, seq: u64, archived: u64) -> rusqlite::Result<()> {
    let all = db.transaction()?;
    all.execute("DELETE FROM batches WHERE seq >= ?1", [signed(seq)])?;
    all.execute("DELETE FROM snapshots WHERE after_seq > ?1", [signed(seq)])?;
    all.execute("DELETE FROM sources WHERE seq >= ?1", [signed(seq)])?;
    all.execute("DELETE FROM seen WHERE seq >= ?1", [signed(seq)])?;
    all.execute("DELETE FROM requests WHERE effect >= ?1", [signed(seq)])?;
    all.execute("DELETE FROM archive WHERE id > ?1", [signed(archived)])?;
    all.commit()
}

/// SQLite has no unsigned numbers. Positions and times stay far below the bound.
pub fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
