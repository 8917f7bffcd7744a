//! The tables, and what is written into them and read from them. Every row carries its own check.
//!
//! Never: judges. What damaged rows mean is `recover`'s business.

use crate::archive::PastPolicy;
use crate::chain;
use crate::database::{ChainedRow, Database, RowFault, insert_sealed, sealed, signed};
use crate::error::{DamagedAt, JournalError};
use crate::snapshot::{ListedChunk, ListedSnapshot, StoredSnapshot};
use crate::{End, JournalId, cloud, recover, spend};
use forebay_kernel::ids::Seq;
use forebay_kernel::journal::APPLY_VERSION;
use forebay_kernel::units::Timestamp;
use rusqlite::{Connection, params};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::Path;
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
    /// Meaning of the records: no batch has a greater version.
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

/// Writes who the journal is, in the place of what was there.
pub fn write_meta(db: &Connection, meta: JournalMeta) -> rusqlite::Result<()> {
    let numbers = meta.numbers();
    let crc = chain::crc(&numbers, &[meta.uuid.as_bytes()]);
    let [format, apply, incarnation, created_ms, begins_at] = numbers;
    db.execute(
        "INSERT OR REPLACE INTO meta VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        params![format, apply, meta.uuid.as_bytes(), incarnation, created_ms, begins_at, crc],
    )?;
    Ok(())
}

/// Makes the tables of a new journal.
pub fn create_tables(db: &Connection, meta: JournalMeta) -> rusqlite::Result<()> {
    db.execute_batch(TABLES)?;
    db.execute_batch(spend::TABLES)?;
    db.execute_batch(cloud::TABLE)?;
    write_meta(db, meta)
}

/// The format that a journal says it has. Not checked otherwise: the layout of the rest depends on it.
pub fn format(db: &Database) -> Result<u32, JournalError> {
    let damaged = |what: &str| db.damaged(DamagedAt::Meta, what);
    let sql = "SELECT format, apply FROM meta WHERE id = 1";
    let found = db.row(sql, [], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))?;
    let (format, apply) = found.ok_or_else(|| damaged("its one row is missing"))?;
    for (what, found, supported) in [("format", format, FORMAT_VERSION), ("record", apply, APPLY_VERSION)] {
        if let Ok(found) = u32::try_from(found)
            && found > supported
        {
            return Err(JournalError::Newer { path: db.path.clone(), what, found, supported });
        }
    }
    u32::try_from(format).map_err(|_| damaged("a version is not a number"))
}

/// The database of a folder, for reading only, beside whoever writes it.
///
/// # Errors
/// There is no journal, it cannot be opened, or it has another format.
pub fn open_folder(folder: &Path) -> Result<(Database, JournalMeta), JournalError> {
    let path = folder.join(crate::folder::FILE);
    if !path.exists() {
        return Err(JournalError::Missing { path });
    }
    let db = Database::open_to_read(&path)?;
    let meta = meta(&db)?;
    Ok((db, meta))
}

/// Reads who the journal is, and refuses damage, versions from the future, and older formats. Older records can be read: see
/// [`writable_meta`].
pub fn meta(db: &Database) -> Result<JournalMeta, JournalError> {
    let found = format(db)?;
    if found < FORMAT_VERSION {
        return Err(older(db, "format", found, FORMAT_VERSION));
    }
    let (numbers, uuid) = description(db, "format, apply, incarnation, created_ms, begins_at")?;
    let version = |n: u64| u32::try_from(n).map_err(|_| db.damaged(DamagedAt::Meta, "a version is not a number"));
    let [format, apply, incarnation, created_ms, begins_at] = numbers;
    let (format, apply, incarnation) = (version(format)?, version(apply)?, version(incarnation)?);
    Ok(JournalMeta { format, apply, uuid, incarnation, created_ms, begins_at })
}

/// Reads who a journal is that is to be written, and refuses older records too: what is appended would have another version than `meta`
/// says.
pub fn writable_meta(db: &Database) -> Result<JournalMeta, JournalError> {
    let meta = meta(db)?;
    if meta.apply < APPLY_VERSION { Err(older(db, "record", meta.apply, APPLY_VERSION)) } else { Ok(meta) }
}

fn older(db: &Database, what: &'static str, found: u32, written: u32) -> JournalError {
    let folder = db.path.parent().unwrap_or(Path::new(".")).to_owned();
    JournalError::Older { path: db.path.clone(), folder, what, found, written }
}

/// These columns of the description, and the journal's UUID.
pub fn description<const N: usize>(db: &Database, columns: &str) -> Result<([u64; N], Uuid), JournalError> {
    let damaged = |what: &str| db.damaged(DamagedAt::Meta, what);
    let sql = format!("SELECT {columns}, uuid, crc32c FROM meta WHERE id = 1");
    let found = db.row(&sql, [], |row| sealed(row, |_| RowFault::checksum(DamagedAt::Meta)))?;
    let (numbers, uuid) = found.ok_or_else(|| damaged("its one row is missing"))?;
    let uuid = Uuid::from_slice(&uuid).map_err(|_| damaged("the journal's UUID is not one"))?;
    Ok((numbers, uuid))
}

/// Publishes a snapshot whose chunks are written, and forgets all but the last two.
pub fn insert_snapshot(db: &Connection, row: &ChainedRow<3>) -> rusqlite::Result<()> {
    row.insert(db, "INSERT OR REPLACE INTO snapshots")?;
    db.execute(
        "DELETE FROM snapshots WHERE after_seq NOT IN (SELECT after_seq FROM snapshots ORDER BY after_seq DESC LIMIT 2)",
        [],
    )?;
    Ok(())
}

/// The snapshots, newest first, or what is wrong with one.
pub fn snapshots(db: &Database) -> Result<Vec<StoredSnapshot>, JournalError> {
    let sql =
        "SELECT after_seq, tick_ms, archived, chunks, positions, crc32c, chain FROM snapshots ORDER BY after_seq DESC";
    db.rows(sql, [], |row| {
        let ChainedRow { numbers: [seq, tick_ms, archived], body, positions, chain, sound } = ChainedRow::read(row)?;
        let list = postcard::from_bytes::<Vec<ListedChunk>>(&body).ok().filter(|_| sound);
        let read = list.ok_or("its checksum does not agree").and_then(|list| {
            let positions = recover::positions(&positions).ok_or("its source positions cannot be read")?;
            Ok(ListedSnapshot { end: End { seq, tick_ms, archived, chain, positions }, chunks: list })
        });
        Ok(StoredSnapshot { after_seq: seq, read })
    })
}

/// Writes a policy's text beside the event that put it in force.
pub fn insert_source(db: &Connection, seq: u64, tick_ms: u64, text: &str) -> rusqlite::Result<()> {
    insert_sealed(db, "sources", &[signed(seq), signed(tick_ms)], &text)
}

/// The policies' texts, newest first.
pub fn sources(db: &Database, most: usize) -> Result<Vec<PastPolicy>, JournalError> {
    let sql = "SELECT seq, tick_ms, text, crc32c FROM sources ORDER BY seq DESC LIMIT ?1";
    db.rows(sql, [i64::try_from(most).unwrap_or(i64::MAX)], |row| {
        let ([seq, tick_ms], text) = sealed(row, |[seq, _]| RowFault::checksum(DamagedAt::Source(seq)))?;
        let text = String::from_utf8(text).map_err(|_| RowFault::checksum(DamagedAt::Source(seq)))?;
        Ok(PastPolicy { seq: Seq(seq), since: Timestamp(tick_ms), text })
    })
}

/// Writes the ids of a batch's events.
pub fn insert_seen(db: &Connection, seq: u64, ids: &[u128]) -> rusqlite::Result<()> {
    let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    insert_sealed(db, "seen", &[signed(seq)], &bytes)
}

/// The last `most` ids, oldest first.
pub fn seen(db: &Database, most: usize) -> Result<Vec<u128>, JournalError> {
    let mut newest_first = Vec::new();
    db.each("SELECT seq, ids, crc32c FROM seen ORDER BY seq DESC", [], |row| {
        let (_, bytes) = sealed(row, |[seq]| RowFault::checksum(DamagedAt::Seen(seq)))?;
        let (ids, _) = bytes.as_chunks::<16>();
        newest_first.extend(ids.iter().rev().map(|id| u128::from_le_bytes(*id)));
        Ok(if newest_first.len() >= most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    newest_first.truncate(most);
    newest_first.reverse();
    Ok(newest_first)
}

/// The last row of `seen` that lies wholly beyond the last `most` ids.
pub fn seen_horizon(db: &Database, most: usize) -> Result<Option<i64>, JournalError> {
    let (mut horizon, mut left) = (None, i64::try_from(most).unwrap_or(i64::MAX));
    db.each("SELECT seq, length(ids) / 16 FROM seen ORDER BY seq DESC", [], |row| {
        if left <= 0 {
            horizon = Some(row.get(0)?);
            return Ok(ControlFlow::Break(()));
        }
        left -= row.get::<_, i64>(1)?;
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(horizon)
}

/// Writes a frozen request beside the batch that decided on it.
pub fn insert_request(db: &Connection, effect: u64, body: &[u8]) -> rusqlite::Result<()> {
    insert_sealed(db, "requests", &[signed(effect)], &body)
}

/// The frozen requests.
pub fn requests(db: &Database) -> Result<BTreeMap<u64, Vec<u8>>, JournalError> {
    let rows = db.rows("SELECT effect, body, crc32c FROM requests ORDER BY effect", [], |row| {
        let ([effect], body) = sealed(row, |[effect]| RowFault::checksum(DamagedAt::Request(effect)))?;
        Ok((effect, body))
    })?;
    Ok(rows.into_iter().collect())
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

/// Whether a table is there. Those that were added later are not in every journal.
pub fn has_table(db: &Database, table: &str) -> Result<bool, JournalError> {
    let sql = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?1";
    Ok(db.row(sql, [table], |_| Ok(()))?.is_some())
}

/// Takes out everything from `seq` on, and finished jobs after row `archived` of the archive.
pub fn cut(db: &Connection, seq: u64, archived: u64) -> rusqlite::Result<()> {
    db.execute("DELETE FROM batches WHERE seq >= ?1", [signed(seq)])?;
    db.execute("DELETE FROM snapshots WHERE after_seq > ?1", [signed(seq)])?;
    db.execute("DELETE FROM sources WHERE seq >= ?1", [signed(seq)])?;
    db.execute("DELETE FROM seen WHERE seq >= ?1", [signed(seq)])?;
    db.execute("DELETE FROM requests WHERE effect >= ?1", [signed(seq)])?;
    db.execute("DELETE FROM archive WHERE id > ?1", [signed(archived)])?;
    cloud::cut(db, seq)?;
    spend::cut(db, seq)
}
