//! `forebay journal verify`: reads everything that a journal has, from its oldest batch on.
//!
//! ```text
//! file -> batches (chain from the first, or from a snapshot) -> snapshots with all chunks -> texts, ids, requests -> archive -> identities
//! ```
//!
//! Never: changes anything.

use crate::error::{DamagedAt, JournalError};
use crate::recover::{self, Followed};
use crate::snapshot::{self, SnapshotChunks};
use crate::store::{self, JournalMeta, SnapshotRow, signed};
use crate::{End, archive, format1, identity};
use forebay_kernel::ids::Seq;
use rusqlite::Connection;
use std::path::Path;

/// What verifying a whole journal found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedJournal {
    /// Who it is.
    pub meta: JournalMeta,
    /// Batches that are kept.
    pub batches: u64,
    /// Position of the oldest of them. Those before it are in the snapshots.
    pub first: Seq,
    /// Position after the last record.
    pub end: Seq,
    /// Sound snapshots, by the position after each, newest first.
    pub snapshots: Vec<Seq>,
    /// Finished jobs in the archive.
    pub finished: u64,
    /// Identities of finished jobs that have left memory.
    pub identities: u64,
}

/// Reads a whole journal, of this format or the one before, and changes nothing.
///
/// # Errors
/// The first thing that is damaged, or why the journal cannot be read.
pub fn verify(folder: &Path) -> Result<VerifiedJournal, JournalError> {
    let (folder, db) = recover::enter(folder)?;
    let path = folder.database();
    recover::check_file(&db, &path)?;
    if store::format(&db, &path)? == format1::FORMAT {
        return format1::verify(&db, &path);
    }
    let meta = store::meta(&db, &path)?;
    let fail = |e| JournalError::sqlite(&path, e);
    let mut snapshots = Vec::new();
    for after in store::snapshot_list(&db).map_err(fail)? {
        let row = store::snapshot(&db, after).map_err(fail)?;
        check_snapshot(&db, &path, &row)?;
        snapshots.push(row);
    }
    let mut end = first_kept(&db, &path, &meta, &snapshots)?;
    let first = Seq(end.seq);
    let batches = check_batches(&db, &path, &mut end, &snapshots)?;
    check_small_tables(&db, &path)?;
    let mut finished = 0;
    archive::each_after(&db, &path, 0, &mut |_| finished += 1)?;
    let identities = identity::verify(&db, &path)?;
    identity::IdentityIndex::load(&db, &path, Some(end.archived))?;
    let snapshots = snapshots.iter().map(|row| Seq(row.after_seq)).collect();
    Ok(VerifiedJournal { meta, batches, first, end: Seq(end.seq), snapshots, finished, identities })
}

fn check_snapshot(db: &Connection, path: &Path, row: &SnapshotRow) -> Result<(), JournalError> {
    let damaged = |what: &str| {
        let what = format!("{what}; a start uses an earlier one");
        JournalError::damaged(path, DamagedAt::Snapshot(row.after_seq), what)
    };
    let list = snapshot::listed(row).ok_or_else(|| damaged("its checksum does not agree"))?;
    recover::positions(&row.positions).ok_or_else(|| damaged("its source positions cannot be read"))?;
    SnapshotChunks::new(db, &list).end().map_err(|what| damaged(&what))
}

/// Where the batches begin that are kept: at the journal's first position, at a snapshot, or between them where batches are being taken
/// away. Then the chain is known from the next snapshot on, which it has to reach.
fn first_kept(
    db: &Connection,
    path: &Path,
    meta: &JournalMeta,
    snapshots: &[SnapshotRow],
) -> Result<End, JournalError> {
    let first = End::first(meta);
    let oldest = recover::oldest(db, path)?;
    let begin = oldest.or(snapshots.first().map(|row| row.after_seq)).unwrap_or(meta.begins_at);
    if begin == meta.begins_at && meta.begins_at == 0 {
        return Ok(first);
    }
    let fail = |e| JournalError::sqlite(path, e);
    if let Some(row) = snapshots.iter().find(|row| row.after_seq == begin) {
        return Ok(End { seq: begin, tick_ms: row.tick_ms, archived: row.archived, chain: row.chain, ..first });
    }
    let within = |row: &SnapshotRow| row.after_seq > begin;
    if !snapshots.iter().any(within) {
        let at = DamagedAt::Batch { seq: begin, row: 1 };
        return Err(JournalError::damaged(path, at, "a gap: neither batches nor a snapshot are before it"));
    }
    let sql = format!("SELECT {} FROM batches ORDER BY seq LIMIT 1", store::BATCH_COLUMNS);
    let row = db.query_row(&sql, [], store::batch_row).map_err(fail)?;
    if !row.sound {
        let at = DamagedAt::Batch { seq: begin, row: 1 };
        return Err(JournalError::damaged(path, at, "its checksum does not agree"));
    }
    Ok(End { seq: row.next_seq, tick_ms: row.tick_ms, archived: row.archived, chain: row.chain, ..first })
}

/// Verifies all batches from `end` on, and that the chain of each snapshot is theirs. Returns how many there are.
fn check_batches(db: &Connection, path: &Path, end: &mut End, snapshots: &[SnapshotRow]) -> Result<u64, JournalError> {
    let Followed { tail, batches, .. } = recover::follow(db, path, end, &mut |_| Ok(()))?;
    if let Some(tail) = tail {
        let at = DamagedAt::Batch { seq: tail.from.0, row: batches + 1 };
        return Err(JournalError::damaged(path, at, format!("{}; nothing sound follows: a start cuts it", tail.what)));
    }
    for row in snapshots {
        let sql = "SELECT chain, archived FROM batches WHERE next_seq = ?1 AND seq < ?1 ORDER BY seq DESC LIMIT 1";
        let before = db.query_row(sql, [signed(row.after_seq)], |found| {
            Ok((found.get::<_, Vec<u8>>(0)?, found.get::<_, i64>(1)?.unsigned_abs()))
        });
        let agrees = match before {
            Ok((chain, archived)) => chain == row.chain && archived == row.archived,
            // The batches begin with the one after it.
            Err(rusqlite::Error::QueryReturnedNoRows) => {
                recover::oldest(db, path)?.is_none_or(|at| at == row.after_seq)
            }
            Err(e) => return Err(JournalError::sqlite(path, e)),
        };
        if !agrees || row.after_seq > end.seq {
            let what = "it is not of the batches that are here";
            return Err(JournalError::damaged(path, DamagedAt::Snapshot(row.after_seq), what));
        }
    }
    Ok(batches)
}

fn check_small_tables(db: &Connection, path: &Path) -> Result<(), JournalError> {
    let fail = |e| JournalError::sqlite(path, e);
    let damaged = |at| JournalError::damaged(path, at, "its checksum does not agree");
    if let Some(row) = store::sources(db, usize::MAX).map_err(fail)?.iter().find(|row| !row.sound) {
        return Err(damaged(DamagedAt::Source(row.seq)));
    }
    store::seen(db, usize::MAX).map_err(fail)?.map_err(|seq| damaged(DamagedAt::Seen(seq)))?;
    store::requests(db).map_err(fail)?.map_err(|effect| damaged(DamagedAt::Request(effect)))?;
    archive::QueueNumbers::load(db, path).map(|_| ())
}
