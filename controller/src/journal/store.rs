//! The tables, and what is written into them and read from them. Every row carries its own check.
//!
//! Never: judges. What damaged rows mean is `recover`'s business.

use super::chain::{self, Chain};
use super::error::{JournalError, Place};
use forebay_engine::journal::APPLY_VERSION;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Row, params};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;
use uuid::Uuid;

/// The newest layout of the tables that this build writes and reads.
pub const FORMAT_VERSION: u32 = 1;

const TABLES: &str = "
    CREATE TABLE meta (
        id INTEGER PRIMARY KEY CHECK (id = 1), format INTEGER NOT NULL, apply INTEGER NOT NULL,
        uuid BLOB NOT NULL, created_ms INTEGER NOT NULL, crc32c INTEGER NOT NULL) STRICT;
    CREATE TABLE batches (
        seq INTEGER PRIMARY KEY, next_seq INTEGER NOT NULL, tick_ms INTEGER NOT NULL,
        payload BLOB NOT NULL, positions BLOB NOT NULL, crc32c INTEGER NOT NULL, chain BLOB NOT NULL) STRICT;
    CREATE TABLE snapshots (
        after_seq INTEGER PRIMARY KEY, state BLOB NOT NULL, positions BLOB NOT NULL,
        crc32c INTEGER NOT NULL, chain BLOB NOT NULL) STRICT;
    CREATE TABLE sources (seq INTEGER PRIMARY KEY, text TEXT NOT NULL, crc32c INTEGER NOT NULL) STRICT;
";

/// The ids of events, a row a batch: written in order and read from the end.
const SEEN: &str = "
    CREATE TABLE IF NOT EXISTS seen (seq INTEGER PRIMARY KEY, ids BLOB NOT NULL, crc32c INTEGER NOT NULL) STRICT;
";

/// Requests to the cloud, frozen with the decision and kept until their outcome is known.
const REQUESTS: &str = "
    CREATE TABLE IF NOT EXISTS requests (effect INTEGER PRIMARY KEY, body BLOB NOT NULL, crc32c INTEGER NOT NULL) STRICT;
";

/// How far each source has been read: by name, what that source counts in.
pub type Positions = BTreeMap<String, u64>;

/// Who a journal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Layout of the tables.
    pub format: u32,
    /// Meaning of the records.
    pub apply: u32,
    /// Its UUID.
    pub uuid: Uuid,
    /// When it was made, in ms since 1970.
    pub created_ms: u64,
}

/// A row of `batches` as read, its own check done.
#[derive(Debug)]
pub struct BatchRow {
    pub seq: u64,
    pub next_seq: u64,
    pub tick_ms: u64,
    pub payload: Vec<u8>,
    pub positions: Vec<u8>,
    pub chain: Chain,
    pub sound: bool,
}

/// A row of `snapshots` as read, its own check done.
#[derive(Debug)]
pub struct SnapshotRow {
    pub after_seq: u64,
    pub state: Vec<u8>,
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

/// Makes the tables of a new journal.
pub fn create_tables(db: &Connection, meta: Meta) -> rusqlite::Result<()> {
    db.execute_batch(TABLES)?;
    complete_tables(db)?;
    let numbers = [i64::from(meta.format), i64::from(meta.apply), signed(meta.created_ms)];
    let crc = chain::crc(&numbers, &[meta.uuid.as_bytes()]);
    db.execute(
        "INSERT INTO meta VALUES (1, ?1, ?2, ?3, ?4, ?5)",
        params![meta.format, meta.apply, &meta.uuid.as_bytes()[..], numbers[2], crc],
    )?;
    Ok(())
}

/// Adds what journals of earlier builds lack.
pub fn complete_tables(db: &Connection) -> rusqlite::Result<()> {
    db.execute_batch(SEEN)?;
    db.execute_batch(REQUESTS)
}

/// Reads who the journal is, and refuses versions from the future and damage.
pub fn meta(db: &Connection, path: &Path) -> Result<Meta, JournalError> {
    let damaged = |what: &str| JournalError::damaged(path, Place::Meta, what);
    let row = db.query_row("SELECT format, apply, uuid, created_ms, crc32c FROM meta WHERE id = 1", [], |row| {
        Ok((
            row.get::<_, i64>(0)?,
            row.get::<_, i64>(1)?,
            row.get::<_, Vec<u8>>(2)?,
            row.get::<_, i64>(3)?,
            row.get::<_, i64>(4)?,
        ))
    });
    let row = row.optional().map_err(|e| JournalError::sqlite(path, e))?;
    let (format, apply, uuid, created, crc) = row.ok_or_else(|| damaged("its one row is missing"))?;
    for (what, found, supported) in [("format", format, FORMAT_VERSION), ("apply", apply, APPLY_VERSION)] {
        if let Ok(found) = u32::try_from(found)
            && found > supported
        {
            return Err(JournalError::Newer { path: path.to_owned(), what, found, supported });
        }
    }
    if i64::from(chain::crc(&[format, apply, created], &[&uuid])) != crc {
        return Err(damaged("its checksum does not agree"));
    }
    let uuid = Uuid::from_slice(&uuid).map_err(|_| damaged("the journal's UUID is not one"))?;
    let version = |n: i64| u32::try_from(n).map_err(|_| damaged("a version is not a number"));
    Ok(Meta { format: version(format)?, apply: version(apply)?, uuid, created_ms: created.unsigned_abs() })
}

/// Writes one batch row. Returns its link of the chain.
pub fn insert_batch(
    db: &Connection,
    before: &Chain,
    (seq, next_seq, tick_ms): (u64, u64, u64),
    payload: &[u8],
    positions: &[u8],
) -> rusqlite::Result<Chain> {
    let link = chain::next(before, positions, payload);
    let numbers = [signed(seq), signed(next_seq), signed(tick_ms)];
    let crc = chain::crc(&numbers, &[&link, positions, payload]);
    let mut insert = db.prepare_cached("INSERT INTO batches VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")?;
    insert.execute(params![numbers[0], numbers[1], numbers[2], payload, positions, crc, &link[..]])?;
    Ok(link)
}

/// Reads one row of `SELECT seq, next_seq, tick_ms, payload, positions, crc32c, chain FROM batches`.
pub fn batch_row(row: &Row<'_>) -> rusqlite::Result<BatchRow> {
    let numbers: [i64; 3] = [row.get(0)?, row.get(1)?, row.get(2)?];
    let (payload, positions): (Vec<u8>, Vec<u8>) = (row.get(3)?, row.get(4)?);
    let (crc, link): (i64, Vec<u8>) = (row.get(5)?, row.get(6)?);
    let sound =
        i64::from(chain::crc(&numbers, &[&link, &positions, &payload])) == crc && numbers.iter().all(|n| *n >= 0);
    let [seq, next_seq, tick_ms] = numbers.map(i64::unsigned_abs);
    let length = link.len();
    let chain = link.try_into().unwrap_or_default();
    Ok(BatchRow { seq, next_seq, tick_ms, payload, positions, chain, sound: sound && length == 32 })
}

/// Writes a snapshot and forgets all but the last two.
pub fn insert_snapshot(
    db: &Connection,
    after_seq: u64,
    state: &[u8],
    positions: &[u8],
    link: &Chain,
) -> rusqlite::Result<()> {
    let crc = chain::crc(&[signed(after_seq)], &[link, positions, state]);
    db.execute(
        "INSERT OR REPLACE INTO snapshots VALUES (?1, ?2, ?3, ?4, ?5)",
        params![signed(after_seq), state, positions, crc, &link[..]],
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
    let sql = "SELECT state, positions, crc32c, chain FROM snapshots WHERE after_seq = ?1";
    db.query_row(sql, [after_seq], |row| {
        let (state, positions): (Vec<u8>, Vec<u8>) = (row.get(0)?, row.get(1)?);
        let (crc, link): (i64, Vec<u8>) = (row.get(2)?, row.get(3)?);
        let sound = i64::from(chain::crc(&[after_seq], &[&link, &positions, &state])) == crc && link.len() == 32;
        let chain = link.try_into().unwrap_or_default();
        Ok(SnapshotRow { after_seq: after_seq.unsigned_abs(), state, positions, chain, sound })
    })
}

/// Writes a policy's text beside the event that put it in force.
pub fn insert_source(db: &Connection, seq: u64, text: &str) -> rusqlite::Result<()> {
    let crc = chain::crc(&[signed(seq)], &[text.as_bytes()]);
    db.execute("INSERT INTO sources VALUES (?1, ?2, ?3)", params![signed(seq), text, crc])?;
    Ok(())
}

/// The latest policy text, with its position and whether it is sound.
pub fn last_source(db: &Connection) -> rusqlite::Result<Option<(u64, String, bool)>> {
    let sql = "SELECT seq, text, crc32c FROM sources ORDER BY seq DESC LIMIT 1";
    db.query_row(sql, [], |row| {
        let (seq, text, crc): (i64, String, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let sound = i64::from(chain::crc(&[seq], &[text.as_bytes()])) == crc;
        Ok((seq.unsigned_abs(), text, sound))
    })
    .optional()
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

/// Forgets whole rows that lie beyond the last `most` ids.
pub fn forget_seen(db: &Connection, most: usize) -> rusqlite::Result<()> {
    let mut select = db.prepare_cached("SELECT seq, length(ids) / 16 FROM seen ORDER BY seq DESC")?;
    let mut rows = select.query([])?;
    let mut left = i64::try_from(most).unwrap_or(i64::MAX);
    while let Some(row) = rows.next()? {
        let (seq, ids): (i64, i64) = (row.get(0)?, row.get(1)?);
        if left <= 0 {
            db.execute("DELETE FROM seen WHERE seq <= ?1", [seq])?;
            return Ok(());
        }
        left -= ids;
    }
    Ok(())
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

/// Takes out everything from `seq` on.
pub fn cut(db: &mut Connection, seq: u64) -> rusqlite::Result<()> {
    let all = db.transaction()?;
    all.execute("DELETE FROM batches WHERE seq >= ?1", [signed(seq)])?;
    all.execute("DELETE FROM snapshots WHERE after_seq > ?1", [signed(seq)])?;
    all.execute("DELETE FROM sources WHERE seq >= ?1", [signed(seq)])?;
    all.execute("DELETE FROM seen WHERE seq >= ?1", [signed(seq)])?;
    all.execute("DELETE FROM requests WHERE effect >= ?1", [signed(seq)])?;
    all.commit()
}

/// SQLite has no unsigned numbers. Positions and times stay far below the bound.
fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
