//! `forebay journal upgrade`: a journal of format 1 becomes one of format 2, and the old file stays beside it. One of format 2 with older
//! records is given the newest record version in place.
//!
//! ```text
//! format 1:
//! journal.sqlite (1): verified, replayed from its first batch -> journal.upgrade (2): a snapshot of the state at its end, positions,
//!   ids of events, requests, texts, finished jobs                        -> synced, closed
//! journal.sqlite is also named journal-1.sqlite -> journal.upgrade is renamed to journal.sqlite
//! format 2, older records:
//! journal.sqlite: verified, replayed from its newest snapshot -> `apply` in its row of `meta`, in one transaction
//!   -> the mark says that it was closed, for its log goes -> closed
//! ```
//!
//! Killed at any moment, `journal.sqlite` is a whole journal of one version or the other, and the same command goes on.
//!
//! Never: changes a batch, or the file of format 1; decides anything: what was decided is applied.

use crate::acts;
use crate::archive::{self, FinishedJob, QueueNumbers};
use crate::checked::Comparison;
use crate::database::{Database, Steps};
use crate::error::{JournalError, encoding};
use crate::folder::DataFolder;
use crate::format1::{self, OldSource};
use crate::machine::{self, replay};
use crate::mark::{self, FoundMark, JournalMark, MarkState};
use crate::recover::{self, Followed, RecoveredPart, TornTail};
use crate::snapshot::{self, LastChunks, SnapshotWork};
use crate::store::{self, FORMAT_VERSION, JournalMeta};
use crate::turns::WriteTurns;
use crate::{DamagedAt, End, MOST_SEEN, begin_draft, beside, remove_if_there};
use forebay_kernel::event::Event;
use forebay_kernel::ids::Seq;
use forebay_kernel::journal::APPLY_VERSION;
use forebay_kernel::machine::StateMachine;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

/// The name that the file of format 1 has afterwards.
pub const OLD_FILE: &str = "journal-1.sqlite";

/// Finished jobs that are written in one transaction.
const AT_ONCE: usize = 1_000;

/// What an upgrade came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum UpgradedJournal {
    /// It has the newest format and record version already.
    Already,
    /// It had the newest format, and has the newest record version now, in place. Its batches are as they were.
    Records {
        /// The version that it had.
        from: u32,
        /// The version that batches have from now on.
        to: u32,
    },
    /// It was of format 1, and has the newest format and record version now.
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

/// Upgrades the journal in a folder to this program's format and record version. Where the format is older, `beside` makes ready what lies
/// beside the journal: it is called when the new file is written and the old one is still in its place.
///
/// # Errors
/// It is in use, damaged, newer than this program, or cannot be written, or `beside` failed. The journal is as it was then.
pub fn upgrade_folder(
    folder: &Path,
    beside: &mut dyn FnMut() -> Result<(), String>,
) -> Result<UpgradedJournal, JournalError> {
    let (folder, checked) = recover::enter(folder)?;
    if store::format(&checked)? >= FORMAT_VERSION {
        let (meta, end) = (store::meta(&checked)?, end_of(&checked)?);
        let compared =
            Comparison { folder: folder.path(), db: &checked, meta: &meta, acts: &acts::load(&checked)?, end: &end };
        let missing = JournalError::lost(folder.path(), compared.with(&mark::read(folder.path())?)?);
        if let Some(lost) = missing {
            return Err(lost);
        }
        if meta.apply >= APPLY_VERSION {
            return Ok(UpgradedJournal::Already);
        }
        drop(checked);
        return upgrade_records(&folder, meta, &end);
    }
    drop(checked);
    let old = Database::open(&folder.database())?;
    recover::check_file(&old)?;
    let draft = old.path.with_extension("upgrade");
    let Written { end, followed, finished } = write_draft(&old, &draft)?;
    beside().map_err(|what| JournalError::damaged(folder.path(), DamagedAt::File, what))?;
    swap(old, &folder, &draft)?;
    let kept = folder.path().join(OLD_FILE);
    let Followed { batches, tail, .. } = followed;
    Ok(UpgradedJournal::Done { batches, end: Seq(end.seq), finished, old: kept, cut: tail })
}

/// Where a journal ends, with everything up to there verified and applied.
fn end_of(db: &Database) -> Result<End, JournalError> {
    let mut machine = StateMachine::default();
    Ok(recover::read(db, &store::meta(db)?, &mut |part| machine::apply(&mut machine, part))?.end)
}

/// Allows batches with the newest record version. Those that are there have their own, and stay as they are. `end`: where the journal ends.
fn upgrade_records(folder: &DataFolder, meta: JournalMeta, end: &End) -> Result<UpgradedJournal, JournalError> {
    let db = Database::open(&folder.database())?;
    recover::check_file(&db)?;
    // The release that wrote it cannot open it afterwards: one from which this release could not start was refused before.
    db.write(|all| store::write_meta(all, JournalMeta { apply: APPLY_VERSION, ..meta }))?;
    // The log of a controller that was killed goes when the database is closed: from here on the mark does not ask for it.
    if mark::read(folder.path())? != FoundMark::Missing {
        mark::replace(folder.path(), JournalMark::of(meta.uuid, meta.incarnation, end, MarkState::Closed))?;
    }
    db.close()?;
    Ok(UpgradedJournal::Records { from: meta.apply, to: APPLY_VERSION })
}

/// What was written to the new file.
struct Written {
    end: End,
    followed: Followed,
    finished: u64,
}

fn write_draft(old: &Database, draft: &Path) -> Result<Written, JournalError> {
    let meta = format1::meta(old)?;
    let new_meta = JournalMeta { format: FORMAT_VERSION, apply: APPLY_VERSION, ..meta };
    // Where it begins is known at the end.
    let db = begin_draft(draft, new_meta)?;
    let mut archive = ArchiveDraft { db: &db, queues: QueueNumbers::default(), written: 0 };
    // In format 1 no job ever left the state.
    let mut machine = StateMachine::default();
    let (mut configured, mut finished) = (BTreeMap::new(), Vec::new());
    let mut end = End::first(&meta);
    let followed = recover::follow(old, &format1::BATCHES, &mut end, &mut |part| {
        let RecoveredPart::Batch(batch) = part else { return Ok(()) };
        let events = (batch.first_seq.0 + 1..).zip(&batch.events);
        let policies = events.filter(|(_, event)| matches!(event, Event::Configured(_)));
        configured.extend(policies.map(|(seq, _)| (seq, batch.tick.now.0)));
        replay(&mut machine, batch)?;
        finished.extend(machine.finished());
        if finished.len() >= AT_ONCE { archive.write(&mut finished).map_err(|e| e.to_string()) } else { Ok(()) }
    })?;
    machine.retire();
    archive.write(&mut finished)?;
    let finished = archive.written;
    copy_small_tables(old, &db, &end, &configured)?;
    let chunks = Box::new(machine.freeze().into_chunks());
    let work = SnapshotWork { end: End { archived: finished, ..end.clone() }, chunks };
    let steps = Steps { db: &db, turns: &WriteTurns::default() };
    snapshot::write(&steps, &mut LastChunks::default(), work, &|| false)?;
    db.write(|all| store::write_meta(all, JournalMeta { begins_at: end.seq, ..new_meta }))?;
    db.close()?;
    File::open(draft).and_then(|file| file.sync_all()).map_err(|e| JournalError::io(draft, e))?;
    Ok(Written { end, followed, finished })
}

fn copy_small_tables(
    old: &Database,
    db: &Database,
    end: &End,
    configured: &BTreeMap<u64, u64>,
) -> Result<(), JournalError> {
    let (sources, ids, requests) = (format1::sources(old)?, format1::seen(old, MOST_SEEN)?, format1::requests(old)?);
    db.write(|all| {
        for OldSource { seq, text } in sources.iter().filter(|source| source.seq < end.seq) {
            let tick_ms = configured.get(seq).copied().unwrap_or(end.tick_ms);
            store::insert_source(all, *seq, tick_ms, text)?;
        }
        // One row in the place of many. Its position is before that of any batch that follows.
        if let (false, Some(last)) = (ids.is_empty(), end.seq.checked_sub(1)) {
            store::insert_seen(all, last, &ids)?;
        }
        requests.range(..end.seq).try_for_each(|(effect, body)| store::insert_request(all, *effect, body))
    })
}

/// The archive of the new file.
struct ArchiveDraft<'a> {
    db: &'a Database,
    queues: QueueNumbers,
    written: u64,
}

impl ArchiveDraft<'_> {
    fn write(&mut self, finished: &mut Vec<FinishedJob>) -> Result<(), JournalError> {
        let bodies = finished.iter().map(archive::encode).collect::<Result<Vec<_>, _>>();
        let bodies = bodies.map_err(encoding("a finished job"))?;
        self.db.write(|all| {
            for (job, body) in finished.drain(..).zip(&bodies) {
                self.written += 1;
                archive::insert(all, &mut self.queues, self.written, &job, body)?;
            }
            Ok(())
        })
    }
}

/// Puts the new file in the old one's place, which stays under another name.
fn swap(old: Database, folder: &DataFolder, draft: &Path) -> Result<(), JournalError> {
    let path = folder.database();
    let kept = folder.path().join(OLD_FILE);
    // A log that stayed would be taken for the new file's.
    let busy = old.number("PRAGMA wal_checkpoint(TRUNCATE)")? != Some(0);
    old.close()?;
    let log = beside(&path, "-wal");
    if busy || std::fs::metadata(&log).is_ok_and(|log| log.len() > 0) {
        return Err(JournalError::InUse {
            folder: folder.path().to_owned(),
            holder: "a program that reads it".to_owned(),
        });
    }
    for left_over in [&log, &beside(&path, "-shm"), &kept] {
        remove_if_there(left_over)?;
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
