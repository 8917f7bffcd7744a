//! `forebay journal verify`: reads everything that a journal has, from its oldest batch on.
//!
//! ```text
//! file -> batches (chain from the first, or from a snapshot) -> snapshots with all chunks -> texts, ids, requests -> archive -> identities
//! ```
//!
//! Never: changes anything.

use crate::checked::Comparison;
use crate::database::{ChainedRow, Database, signed};
use crate::error::{DamagedAt, JournalError};
use crate::folder::DataFolder;
use crate::mark::{self, FoundMark, MarkState};
use crate::recover::{self, BATCHES, Followed};
use crate::snapshot::{ListedSnapshot, SnapshotChunks};
use crate::store::{self, JournalMeta};
use crate::{End, JournalAct, acts, archive, cloud, format1, identity, spend};
use forebay_kernel::ids::Seq;
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
    /// What was done to it by hand, oldest first.
    pub acts: Vec<JournalAct>,
}

/// Reads a whole journal, of this format or the one before, and changes nothing.
///
/// # Errors
/// The first thing that is damaged, or why the journal cannot be read.
pub fn verify(folder: &Path) -> Result<VerifiedJournal, JournalError> {
    let _folder = DataFolder::take_to_read(folder)?;
    let Verified { found, db, end } = verify_rows(folder)?;
    let compared = Comparison { folder, db: &db, meta: &found.meta, acts: &found.acts, end: &end };
    let shortfalls = match mark::read(folder)? {
        // A backup is as long as its mark says, too.
        FoundMark::Sound(mark) if mark.state == MarkState::Backup => compared.behind(&mark)?.into_iter().collect(),
        // Format 1 never had one.
        _ if found.meta.format == format1::FORMAT => Vec::new(),
        mark => compared.with(&mark)?,
    };
    JournalError::lost(folder, shortfalls).map_or(Ok(found), Err)
}

/// A journal whose rows all agree.
pub(crate) struct Verified {
    pub found: VerifiedJournal,
    pub db: Database,
    pub end: End,
}

/// Reads a whole journal without its mark.
pub(crate) fn verify_rows(folder: &Path) -> Result<Verified, JournalError> {
    let db = recover::look_into(folder)?;
    recover::check_file(&db)?;
    if store::format(&db)? == format1::FORMAT {
        let found = format1::verify(&db)?;
        let end = End::first(&found.meta);
        return Ok(Verified { found, db, end });
    }
    let meta = store::meta(&db)?;
    let mut snapshots = Vec::new();
    for stored in store::snapshots(&db)? {
        let damaged = |what: &str| {
            db.damaged(DamagedAt::Snapshot(stored.after_seq), format!("{what}; a start uses an earlier one"))
        };
        let listed = stored.read.map_err(damaged)?;
        SnapshotChunks::new(&db, &listed.chunks).end().map_err(|what| damaged(&what))?;
        snapshots.push(listed);
    }
    let mut end = first_kept(&db, &meta, &snapshots)?;
    let first = Seq(end.seq);
    let batches = check_batches(&db, &mut end, &snapshots)?;
    store::sources(&db, usize::MAX)?;
    store::seen(&db, usize::MAX)?;
    store::requests(&db)?;
    archive::QueueNumbers::load(&db)?;
    let mut finished = 0;
    archive::each_after(&db, 0, &mut |_| finished += 1)?;
    spend::verify(&db)?;
    cloud::verify(&db)?;
    let identities = identity::verify(&db)?;
    identity::IdentityIndex::load(&db, identity::ArchiveEnd::At(end.archived))?;
    let acts = acts::load(&db)?;
    let snapshots = snapshots.iter().map(|snapshot| Seq(snapshot.end.seq)).collect();
    let at = Seq(end.seq);
    let found = VerifiedJournal { meta, batches, first, end: at, snapshots, finished, identities, acts };
    Ok(Verified { found, db, end })
}

/// Where the batches begin that are kept: at the journal's first position, at a snapshot, or between them where batches are being taken
/// away. Then the chain is known from the next snapshot on, which it has to reach.
fn first_kept(db: &Database, meta: &JournalMeta, snapshots: &[ListedSnapshot]) -> Result<End, JournalError> {
    let first = End::first(meta);
    let oldest = recover::oldest(db)?;
    let begin = oldest.or(snapshots.first().map(|newest| newest.end.seq)).unwrap_or(meta.begins_at);
    if begin == meta.begins_at && meta.begins_at == 0 {
        return Ok(first);
    }
    if let Some(found) = snapshots.iter().find(|snapshot| snapshot.end.seq == begin) {
        return Ok(found.end.clone());
    }
    let damaged = |what: &str| db.damaged(DamagedAt::Batch { seq: begin, row: 1 }, what);
    if !snapshots.iter().any(|snapshot| snapshot.end.seq > begin) {
        return Err(damaged("a gap: neither batches nor a snapshot are before it"));
    }
    let row = db.row(BATCHES.sql, [0], |row| Ok((BATCHES.read)(row)?))?;
    let Some(ChainedRow { numbers: [_, seq, tick_ms, archived], chain, .. }) = row.filter(|row| row.sound) else {
        return Err(damaged("its checksum does not agree"));
    };
    Ok(End { seq, tick_ms, archived, chain, ..first })
}

/// Verifies all batches from `end` on, and that the chain of each snapshot is theirs. Returns how many there are.
fn check_batches(db: &Database, end: &mut End, snapshots: &[ListedSnapshot]) -> Result<u64, JournalError> {
    let Followed { tail, batches, .. } = recover::follow(db, &BATCHES, end, &mut |_| Ok(()))?;
    if let Some(tail) = tail {
        let at = DamagedAt::Batch { seq: tail.from.0, row: batches + 1 };
        return Err(db.damaged(at, format!("{}; nothing sound follows: a start cuts it", tail.what)));
    }
    for End { seq, archived, chain, .. } in snapshots.iter().map(|snapshot| &snapshot.end) {
        let sql = "SELECT chain, archived FROM batches WHERE next_seq = ?1 AND seq < ?1 ORDER BY seq DESC LIMIT 1";
        let agrees = |row: &rusqlite::Row<'_>| {
            Ok(row.get::<_, Vec<u8>>(0)? == chain && row.get::<_, i64>(1)?.unsigned_abs() == *archived)
        };
        let agrees = match db.row(sql, [signed(*seq)], agrees)? {
            Some(agrees) => agrees,
            // The batches begin with the one after it.
            None => recover::oldest(db)?.is_none_or(|at| at == *seq),
        };
        if !agrees || *seq > end.seq {
            return Err(db.damaged(DamagedAt::Snapshot(*seq), "it is not of the batches that are here"));
        }
    }
    Ok(batches)
}
