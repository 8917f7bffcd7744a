//! Format 1, as releases before this one wrote it: read only, for `forebay journal upgrade` and `verify`.
//!
//! ```text
//! meta      format, apply, uuid, created_ms                no incarnation
//! batches   payload = batch (postcard), without a version  none is ever taken away
//! snapshots one blob each                                  not needed: the batches begin with the first
//! ```
//!
//! Never: written. Its layout is frozen.

use crate::End;
use crate::database::{ChainedRow, Database, RowFault, sealed};
use crate::error::{DamagedAt, JournalError};
use crate::recover::{self, BatchTable, Followed};
use crate::store::{self, JournalMeta};
use crate::verify::VerifiedJournal;
use forebay_kernel::ids::Seq;
use forebay_kernel::journal::Batch;
use forebay_kernel::storage::FrozenRequests;

/// The number of this format.
pub const FORMAT: u32 = 1;

/// Its batches. Their records are what version 1 has after its number.
pub const BATCHES: BatchTable = BatchTable {
    sql: "SELECT seq, next_seq, tick_ms, payload, positions, crc32c, chain FROM batches WHERE seq >= ?1 ORDER BY seq",
    read: |row| {
        let ChainedRow { numbers: [seq, next_seq, tick_ms], body, positions, chain, sound } = ChainedRow::read(row)?;
        Ok(ChainedRow { numbers: [seq, next_seq, tick_ms, 0], body, positions, chain, sound })
    },
    decode: |payload| Batch::decode_v1(payload).map_err(|_| "its records cannot be read".to_owned()),
};

/// Reads who the journal is.
pub fn meta(db: &Database) -> Result<JournalMeta, JournalError> {
    let ([_, _, created_ms], uuid) = store::description(db, "format, apply, created_ms")?;
    Ok(JournalMeta { format: FORMAT, apply: 1, uuid, incarnation: 0, created_ms, begins_at: 0 })
}

/// A policy's text, and the position of its event.
pub struct OldSource {
    pub seq: u64,
    pub text: String,
}

/// The policies' texts, oldest first.
pub fn sources(db: &Database) -> Result<Vec<OldSource>, JournalError> {
    db.rows("SELECT seq, text, crc32c FROM sources ORDER BY seq", [], |row| {
        let ([seq], text) = sealed(row, |[seq]| RowFault::checksum(DamagedAt::Source(seq)))?;
        let text = String::from_utf8(text).map_err(|_| RowFault::checksum(DamagedAt::Source(seq)))?;
        Ok(OldSource { seq, text })
    })
}

/// The ids of the last `most` events, oldest first. The first builds of format 1 lack the table, and that of requests.
pub fn seen(db: &Database, most: usize) -> Result<Vec<u128>, JournalError> {
    if store::has_table(db, "seen")? { store::seen(db, most) } else { Ok(Vec::new()) }
}

/// The frozen requests.
pub fn requests(db: &Database) -> Result<FrozenRequests, JournalError> {
    if store::has_table(db, "requests")? { store::requests(db) } else { Ok(FrozenRequests::new()) }
}

/// Reads all of a journal of this format.
///
/// # Errors
/// When it cannot be read, or a record does not agree with its checksum or its place; the row is named.
pub fn verify(db: &Database) -> Result<VerifiedJournal, JournalError> {
    let meta = meta(db)?;
    let mut end = End::first(&meta);
    let Followed { tail, batches, .. } = recover::follow(db, &BATCHES, &mut end, &mut |_| Ok(()))?;
    if let Some(tail) = tail {
        let at = DamagedAt::Batch { seq: tail.from.0, row: batches + 1 };
        return Err(db.damaged(at, format!("{}; nothing sound follows: an upgrade cuts it", tail.what)));
    }
    sources(db)?;
    seen(db, usize::MAX)?;
    requests(db)?;
    let sql = "SELECT after_seq, state, positions, crc32c, chain FROM snapshots ORDER BY after_seq DESC";
    let snapshots = db.rows(sql, [], |row| {
        let ChainedRow { numbers: [after], sound, .. } = ChainedRow::read(row)?;
        if !sound || after > end.seq {
            return Err(RowFault::damaged(DamagedAt::Snapshot(after), "it is damaged; nothing needs it"));
        }
        Ok(Seq(after))
    })?;
    Ok(VerifiedJournal {
        meta,
        batches,
        first: Seq(0),
        end: Seq(end.seq),
        snapshots,
        finished: 0,
        identities: 0,
        acts: Vec::new(),
    })
}
