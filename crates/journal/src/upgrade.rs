//! `forebay journal upgrade`: a journal of format 1 becomes one of format 2, and the old file stays beside it.
//!
//! ```text
//! journal.sqlite (1): verified, replayed from its first batch -> journal.upgrade (2): a snapshot of the state at its end, positions,
//!   ids of events, requests, texts, finished jobs                        -> synced, closed
//! journal.sqlite is also named journal-1.sqlite -> journal.upgrade is renamed to journal.sqlite
//! ```
//!
//! Killed at any moment, `journal.sqlite` is a whole journal of one format or the other, and the same command goes on.
//!
//! Never: changes what the old file says; decides anything: what was decided is applied.

use crate::archive::{self, FinishedJob, QueueNumbers};
use crate::chunk::FrozenChunks;
use crate::error::JournalError;
use crate::folder::DataFolder;
use crate::format1::{self, End1, Meta1};
use crate::recover::{self, TornTail};
use crate::snapshot::{self, LastChunks, SnapshotWork};
use crate::steps::Steps;
use crate::store::{self, FORMAT_VERSION, JournalMeta};
use crate::turns::WriteTurns;
use crate::{MOST_SEEN, begin_draft, beside, encode_positions};
use forebay_kernel::event::Event;
use forebay_kernel::ids::Seq;
use forebay_kernel::journal::{APPLY_VERSION, Batch};
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

/// The name that the file of format 1 has afterwards.
pub const OLD_FILE: &str = "journal-1.sqlite";

/// Finished jobs that are written in one transaction.
const AT_ONCE: usize = 1_000;

/// What replays the batches: the state of whoever upgrades.
pub trait ReplayBatches {
    /// Applies a batch. Jobs that are over with it and leave the state are added to `finished`.
    ///
    /// # Errors
    /// It cannot be applied. The upgrade ends then, and nothing is changed.
    fn apply(&mut self, batch: &Batch, finished: &mut Vec<FinishedJob>) -> Result<(), String>;

    /// The state after the last batch, for the first snapshot. Jobs that are over and still in it may be added to `finished`.
    ///
    /// # Errors
    /// As for [`ReplayBatches::apply`].
    fn freeze(&mut self, finished: &mut Vec<FinishedJob>) -> Result<FrozenChunks, String>;

    /// The new file is written, and the old one is still in its place: what lies beside the journal may be made ready now.
    ///
    /// # Errors
    /// As for [`ReplayBatches::apply`].
    fn before_swap(&mut self) -> Result<(), String> {
        Ok(())
    }
}

/// What an upgrade came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum UpgradedJournal {
    /// It has the newest format already.
    Already,
    /// It was upgraded.
    Done {
        /// Batches that were replayed.
        batches: u64,
        /// Position after the last of them.
        end: Seq,
        /// Finished jobs that went to the archive.
        finished: u64,
        /// Where the old file is now.
        old: PathBuf,
        /// A torn tail that was left out.
        cut: Option<TornTail>,
    },
}

/// Upgrades the journal in a folder.
///
/// # Errors
/// It is in use, damaged, newer than this program, or cannot be written. The journal is as it was then.
pub fn upgrade(folder: &Path, replay: &mut dyn ReplayBatches) -> Result<UpgradedJournal, JournalError> {
    let (folder, old) = recover::enter(folder)?;
    let path = folder.database();
    if store::format(&old, &path)? >= FORMAT_VERSION {
        store::meta(&old, &path)?;
        return Ok(UpgradedJournal::Already);
    }
    recover::check_file(&old, &path)?;
    let draft = path.with_extension("upgrade");
    let done = write_draft(&old, &path, &draft, replay)?;
    let failed = |what| JournalError::damaged(folder.path(), crate::DamagedAt::File, what);
    replay.before_swap().map_err(failed)?;
    swap(old, &folder, &draft)?;
    let Written { end, finished } = done;
    let kept = folder.path().join(OLD_FILE);
    Ok(UpgradedJournal::Done { batches: end.batches, end: Seq(end.seq), finished, old: kept, cut: end.tail })
}

/// What was written to the new file.
struct Written {
    end: End1,
    finished: u64,
}

fn write_draft(
    old: &Connection,
    path: &Path,
    draft: &Path,
    replay: &mut dyn ReplayBatches,
) -> Result<Written, JournalError> {
    let meta = format1::meta(old, path)?;
    // Where it begins is known at the end.
    let db = begin_draft(draft, new_meta(&meta, 0))?;
    let mut archive = ArchiveDraft { db: &db, path: draft, queues: QueueNumbers::default(), written: 0 };
    let (mut configured, mut finished) = (BTreeMap::new(), Vec::new());
    let end = format1::follow(old, path, &meta, &mut |batch| {
        let events = (batch.first_seq.0 + 1..).zip(&batch.events);
        let policies = events.filter(|(_, event)| matches!(event, Event::Configured(_)));
        configured.extend(policies.map(|(seq, _)| (seq, batch.tick.now.0)));
        replay.apply(batch, &mut finished)?;
        if finished.len() >= AT_ONCE { archive.write(&mut finished).map_err(|e| e.to_string()) } else { Ok(()) }
    })?;
    let failed = |what| JournalError::damaged(path, crate::DamagedAt::File, what);
    let chunks = replay.freeze(&mut finished).map_err(failed)?;
    archive.write(&mut finished)?;
    let finished = archive.written;
    copy_small_tables(old, path, &db, draft, &end, &configured)?;
    write_snapshot(&db, draft, &end, finished, chunks)?;
    store::write_meta(&db, new_meta(&meta, end.seq)).map_err(|e| JournalError::sqlite(draft, e))?;
    // Closing moves everything from the log to the file, so that the file alone is the journal.
    db.close().map_err(|(_, e)| JournalError::sqlite(draft, e))?;
    File::open(draft).and_then(|file| file.sync_all()).map_err(|e| JournalError::io(draft, e))?;
    Ok(Written { end, finished })
}

fn new_meta(old: &Meta1, begins_at: u64) -> JournalMeta {
    JournalMeta {
        format: FORMAT_VERSION,
        apply: APPLY_VERSION,
        uuid: old.uuid,
        incarnation: 0,
        created_ms: old.created_ms,
        begins_at,
    }
}

fn copy_small_tables(
    old: &Connection,
    path: &Path,
    db: &Connection,
    draft: &Path,
    end: &End1,
    configured: &BTreeMap<u64, u64>,
) -> Result<(), JournalError> {
    let fail = |e| JournalError::sqlite(draft, e);
    let all = db.unchecked_transaction().map_err(fail)?;
    for (seq, text) in format1::sources(old, path)?.into_iter().filter(|(seq, _)| *seq < end.seq) {
        let tick_ms = configured.get(&seq).copied().unwrap_or(end.tick_ms);
        store::insert_source(&all, seq, tick_ms, &text).map_err(fail)?;
    }
    if format1::has(old, path, "seen")? {
        let ids = store::seen(old, MOST_SEEN).map_err(|e| JournalError::sqlite(path, e))?;
        let ids =
            ids.map_err(|seq| JournalError::damaged(path, crate::DamagedAt::Seen(seq), "its checksum does not agree"))?;
        // One row in the place of many. Its position is before that of any batch that follows.
        if let (false, Some(last)) = (ids.is_empty(), end.seq.checked_sub(1)) {
            store::insert_seen(&all, last, &ids).map_err(fail)?;
        }
    }
    if format1::has(old, path, "requests")? {
        let requests = store::requests(old).map_err(|e| JournalError::sqlite(path, e))?;
        let requests = requests
            .map_err(|id| JournalError::damaged(path, crate::DamagedAt::Request(id), "its checksum does not agree"))?;
        for (effect, body) in requests.range(..end.seq) {
            store::insert_request(&all, *effect, body).map_err(fail)?;
        }
    }
    all.commit().map_err(fail)
}

/// The archive of the new file.
struct ArchiveDraft<'a> {
    db: &'a Connection,
    path: &'a Path,
    queues: QueueNumbers,
    written: u64,
}

impl ArchiveDraft<'_> {
    fn write(&mut self, finished: &mut Vec<FinishedJob>) -> Result<(), JournalError> {
        let fail = |e| JournalError::sqlite(self.path, e);
        let all = self.db.unchecked_transaction().map_err(fail)?;
        for job in finished.drain(..) {
            let body = archive::encode(&job);
            let body = body.map_err(|source| JournalError::Encoding { what: "a finished job", source })?;
            self.written += 1;
            archive::insert(&all, &mut self.queues, self.written, &job, &body).map_err(fail)?;
        }
        all.commit().map_err(fail)
    }
}

fn write_snapshot(
    db: &Connection,
    draft: &Path,
    end: &End1,
    archived: u64,
    chunks: FrozenChunks,
) -> Result<(), JournalError> {
    let positions = encode_positions(end.positions.iter().collect())?;
    let (after_seq, tick_ms, chain) = (end.seq, end.tick_ms, end.chain);
    let work = SnapshotWork { after_seq, tick_ms, archived, positions, chain, chunks };
    let turns = WriteTurns::default();
    let steps = Steps { db, path: draft, turns: &turns };
    snapshot::write(&steps, &mut LastChunks::default(), work, &|| false).map(|_| ())
}

/// Puts the new file in the old one's place, which stays under another name.
fn swap(old: Connection, folder: &DataFolder, draft: &Path) -> Result<(), JournalError> {
    let path = folder.database();
    let kept = folder.path().join(OLD_FILE);
    // A log that stayed would be taken for the new file's.
    let emptied = old.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
    let busy = emptied.map_err(|e| JournalError::sqlite(&path, e))? != 0;
    old.close().map_err(|(_, e)| JournalError::sqlite(&path, e))?;
    let log = beside(&path, "-wal");
    if busy || std::fs::metadata(&log).is_ok_and(|log| log.len() > 0) {
        return Err(JournalError::InUse {
            folder: folder.path().to_owned(),
            holder: "a program that reads it".to_owned(),
        });
    }
    for left_over in [&log, &beside(&path, "-shm"), &kept] {
        match std::fs::remove_file(left_over) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(JournalError::io(left_over, e)),
            _ => {}
        }
    }
    if std::fs::hard_link(&path, &kept).is_err() {
        // A file system without hard links.
        std::fs::copy(&path, &kept).map_err(|e| JournalError::io(&kept, e))?;
        File::open(&kept).and_then(|file| file.sync_all()).map_err(|e| JournalError::io(&kept, e))?;
    }
    folder.sync()?;
    std::fs::rename(draft, &path).map_err(|e| JournalError::io(&path, e))?;
    folder.sync()
}
