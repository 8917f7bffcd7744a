//! Format 1, as releases before this one wrote it: read only, for `forebay journal upgrade` and `verify`.
//!
//! ```text
//! meta      format, apply, uuid, created_ms                no incarnation
//! batches   payload = batch (postcard), without a version  none is ever taken away
//! snapshots one blob each                                  not needed: the batches begin with the first
//! ```
//!
//! Never: written. Its layout is frozen.

use crate::Positions;
use crate::chain::{self, Chain};
use crate::error::{DamagedAt, JournalError};
use crate::recover::{self, RowPlace, TornTail};
use crate::store::{self, JournalMeta};
use crate::verify::VerifiedJournal;
use forebay_kernel::ids::Seq;
use forebay_kernel::journal::Batch;
use rusqlite::{Connection, OptionalExtension};
use std::path::Path;
use uuid::Uuid;

/// The number of this format.
pub const FORMAT: u32 = 1;

/// Who the journal is.
#[derive(Clone, Copy, Debug)]
pub struct Meta1 {
    pub uuid: Uuid,
    pub created_ms: u64,
}

/// Reads who the journal is.
pub fn meta(db: &Connection, path: &Path) -> Result<Meta1, JournalError> {
    let damaged = |what: &str| JournalError::damaged(path, DamagedAt::Meta, what);
    let row = db.query_row("SELECT format, apply, uuid, created_ms, crc32c FROM meta WHERE id = 1", [], |row| {
        let numbers: [i64; 3] = [row.get(0)?, row.get(1)?, row.get(3)?];
        Ok((numbers, row.get::<_, Vec<u8>>(2)?, row.get::<_, i64>(4)?))
    });
    let row = row.optional().map_err(|e| JournalError::sqlite(path, e))?;
    let (numbers, uuid, crc) = row.ok_or_else(|| damaged("its one row is missing"))?;
    if i64::from(chain::crc(&numbers, &[&uuid])) != crc {
        return Err(damaged("its checksum does not agree"));
    }
    let uuid = Uuid::from_slice(&uuid).map_err(|_| damaged("the journal's UUID is not one"))?;
    Ok(Meta1 { uuid, created_ms: numbers[2].unsigned_abs() })
}

/// Where the batches end.
#[derive(Clone, Debug)]
pub struct End1 {
    pub seq: u64,
    pub tick_ms: u64,
    pub chain: Chain,
    pub positions: Positions,
    pub batches: u64,
    pub tail: Option<TornTail>,
}

/// Verifies every batch from the first on and hands it over. A torn tail is left out: a start would have cut it.
pub fn follow(
    db: &Connection,
    path: &Path,
    meta: &Meta1,
    take: &mut dyn FnMut(&Batch) -> Result<(), String>,
) -> Result<End1, JournalError> {
    let fail = |e| JournalError::sqlite(path, e);
    let sql = "SELECT seq, next_seq, tick_ms, payload, positions, crc32c, chain FROM batches ORDER BY seq";
    let mut select = db.prepare(sql).map_err(fail)?;
    let mut rows = select.query([]).map_err(fail)?;
    let (chain, positions) = (chain::first(meta.uuid), Positions::new());
    let mut end = End1 { seq: 0, tick_ms: meta.created_ms, chain, positions, batches: 0, tail: None };
    while let Some(row) = rows.next().map_err(fail)? {
        let row = Row1::read(row).map_err(fail)?;
        let at = DamagedAt::Batch { seq: row.seq, row: end.batches + 1 };
        let place = RowPlace { number: end.batches + 1, seq: row.seq, sound: row.sound, after: end.seq };
        if place.is_behind(path, &mut end.tail)? {
            continue;
        }
        match row.checked(&end.chain) {
            Ok((batch, moved)) => {
                take(&batch).map_err(|what| JournalError::damaged(path, at, what))?;
                (end.seq, end.tick_ms, end.chain) = (row.next_seq, row.tick_ms, row.chain);
                end.positions.extend(moved);
                end.batches += 1;
            }
            Err(what) if row.sound => return Err(JournalError::damaged(path, at, what)),
            Err(what) => end.tail = Some(TornTail { batches: 1, from: Seq(end.seq), what: what.to_owned() }),
        }
    }
    Ok(end)
}

struct Row1 {
    seq: u64,
    next_seq: u64,
    tick_ms: u64,
    payload: Vec<u8>,
    positions: Vec<u8>,
    chain: Chain,
    sound: bool,
}

impl Row1 {
    fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Row1> {
        let numbers: [i64; 3] = [row.get(0)?, row.get(1)?, row.get(2)?];
        let (payload, positions): (Vec<u8>, Vec<u8>) = (row.get(3)?, row.get(4)?);
        let (crc, link): (i64, Vec<u8>) = (row.get(5)?, row.get(6)?);
        let agrees = i64::from(chain::crc(&numbers, &[&link, &positions, &payload])) == crc;
        let sound = agrees && link.len() == 32 && numbers.iter().all(|n| *n >= 0);
        let [seq, next_seq, tick_ms] = numbers.map(i64::unsigned_abs);
        let chain = link.try_into().unwrap_or_default();
        Ok(Row1 { seq, next_seq, tick_ms, payload, positions, chain, sound })
    }

    fn checked(&self, before: &Chain) -> Result<(Batch, Positions), &'static str> {
        if !self.sound {
            return Err("its checksum does not agree");
        }
        if chain::next(before, &self.positions, &self.payload) != self.chain {
            return Err("it does not continue the chain of the batches before it");
        }
        // The records of format 1 are what version 1 has after its number.
        let batch = Batch::decode_v1(&self.payload).map_err(|_| "its records cannot be read")?;
        let moved = recover::positions(&self.positions).ok_or("its source positions cannot be read")?;
        if batch.first_seq.0 != self.seq || batch.next_seq().0 != self.next_seq {
            return Err("its columns and its records disagree");
        }
        Ok((batch, moved))
    }
}

/// The policies' texts, oldest first, by the position of their event.
pub fn sources(db: &Connection, path: &Path) -> Result<Vec<(u64, String)>, JournalError> {
    let fail = |e| JournalError::sqlite(path, e);
    let mut select = db.prepare("SELECT seq, text, crc32c FROM sources ORDER BY seq").map_err(fail)?;
    let mut rows = select.query([]).map_err(fail)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(fail)? {
        let (seq, text, crc): (i64, String, i64) =
            (row.get(0).map_err(fail)?, row.get(1).map_err(fail)?, row.get(2).map_err(fail)?);
        let at = seq.unsigned_abs();
        if i64::from(chain::crc(&[seq], &[text.as_bytes()])) != crc {
            return Err(JournalError::damaged(path, DamagedAt::Source(at), "its checksum does not agree"));
        }
        found.push((at, text));
    }
    Ok(found)
}

/// Whether a table is there: the first builds of format 1 lack two.
pub fn has(db: &Connection, path: &Path, table: &str) -> Result<bool, JournalError> {
    let sql = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ?1";
    let count: i64 = db.query_row(sql, [table], |row| row.get(0)).map_err(|e| JournalError::sqlite(path, e))?;
    Ok(count > 0)
}

/// Reads all of a journal of this format.
///
/// # Errors
/// When it cannot be read, or a record does not agree with its checksum or its place; the row is named.
pub fn verify(db: &Connection, path: &Path) -> Result<VerifiedJournal, JournalError> {
    let found = meta(db, path)?;
    let end = follow(db, path, &found, &mut |_| Ok(()))?;
    if let Some(tail) = end.tail {
        let at = DamagedAt::Batch { seq: tail.from.0, row: end.batches + 1 };
        return Err(JournalError::damaged(
            path,
            at,
            format!("{}; nothing sound follows: an upgrade cuts it", tail.what),
        ));
    }
    sources(db, path)?;
    let damaged = |at| JournalError::damaged(path, at, "its checksum does not agree");
    let fail = |e| JournalError::sqlite(path, e);
    if has(db, path, "seen")? {
        store::seen(db, usize::MAX).map_err(fail)?.map_err(|seq| damaged(DamagedAt::Seen(seq)))?;
    }
    if has(db, path, "requests")? {
        store::requests(db).map_err(fail)?.map_err(|effect| damaged(DamagedAt::Request(effect)))?;
    }
    let snapshots = snapshots(db, path, end.seq)?;
    let Meta1 { uuid, created_ms } = found;
    let meta = JournalMeta { format: FORMAT, apply: 1, uuid, incarnation: 0, created_ms, begins_at: 0 };
    let (first, end, batches) = (Seq(0), Seq(end.seq), end.batches);
    Ok(VerifiedJournal { meta, batches, first, end, snapshots, finished: 0, identities: 0 })
}

fn snapshots(db: &Connection, path: &Path, end: u64) -> Result<Vec<Seq>, JournalError> {
    let fail = |e| JournalError::sqlite(path, e);
    let sql = "SELECT after_seq, state, positions, crc32c, chain FROM snapshots ORDER BY after_seq DESC";
    let mut select = db.prepare(sql).map_err(fail)?;
    let rows = select.query_map([], |row| {
        let (after, crc): (i64, i64) = (row.get(0)?, row.get(3)?);
        let (state, positions, link): (Vec<u8>, Vec<u8>, Vec<u8>) = (row.get(1)?, row.get(2)?, row.get(4)?);
        Ok((after.unsigned_abs(), i64::from(chain::crc(&[after], &[&link, &positions, &state])) == crc))
    });
    let mut found = Vec::new();
    for row in rows.map_err(fail)? {
        let (after, sound) = row.map_err(fail)?;
        if !sound || after > end {
            return Err(JournalError::damaged(path, DamagedAt::Snapshot(after), "it is damaged; nothing needs it"));
        }
        found.push(Seq(after));
    }
    Ok(found)
}
