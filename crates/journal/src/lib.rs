//! The journal in a file: SQLite with a write-ahead log, one transaction a batch, each row checked, all batches chained.
//!
//! ```text
//! Batch + positions + finished jobs -> payload -> crc, chain -> one transaction -> synced -> mark, synced -> effects may leave
//! check: lock -> wal -> meta -> newest sound snapshot -> batches from there, each verified -> end -> mark: nothing is changed
//! open: what was checked -> a torn tail is cut
//! background: snapshots in chunks, identities into runs, what is beyond retention is taken away; batches go first
//! ```
//!
//! A torn tail is cut and reported, where nothing in it was acknowledged: the mark, a file of its own, says how far that went. Damage
//! with anything sound after it, and a journal that is shorter than its mark, stop the start and change nothing.
//! Never: repairs, skips, or guesses.
//!
//! ```
//! use forebay_kernel::event::Tick;
//! use forebay_kernel::ids::Seq;
//! use forebay_kernel::journal::{APPLY_VERSION, Batch};
//! use forebay_kernel::units::Timestamp;
//! use forebay_journal::{BatchLog, Journal, RecoveredPart, SqliteJournal, chunks_of};
//!
//! let folder = tempfile::tempdir()?;
//! let mut journal = SqliteJournal::create(folder.path(), 1_793_000_000_000)?;
//! let tick = Tick { now: Timestamp(1_793_000_000_000), resumed: false, delivered: 0 };
//! let batch = Batch { version: APPLY_VERSION, first_seq: Seq(0), tick, events: Vec::new(), decisions: Vec::new() };
//! journal.append(&batch)?;
//! journal.begin_snapshot_of(chunks_of(b"the state after it"));
//! journal.settle();
//! drop(journal);
//!
//! let mut state = Vec::new();
//! let (journal, recovery) = SqliteJournal::open(folder.path(), &mut |part| {
//!     match part {
//!         RecoveredPart::Start => state.clear(),
//!         RecoveredPart::Snapshot(chunks) => state = chunks.flat_map(|chunk| chunk.bytes).collect(),
//!         RecoveredPart::Batch { .. } => {}
//!     }
//!     Ok(())
//! })?;
//! assert_eq!(state, b"the state after it");
//! assert_eq!((recovery.snapshot, journal.end()), (Some(Seq(1)), Seq(1)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod acts;
mod archive;
mod background;
mod backup;
mod chain;
mod checked;
mod checkpoint;
mod chunk;
mod cloud;
mod database;
mod error;
mod folder;
mod format1;
mod identity;
mod machine;
mod mark;
mod recover;
mod snapshot;
mod spend;
mod store;
#[cfg(test)]
mod tests;
mod turns;
mod upgrade;
mod verify;
mod wal;

pub use acts::{ActKind, JournalAct};
pub use archive::{
    ArchivePage, ArchiveQuery, ArchiveReader, ArchiveRow, ArchiveSlice, ArchiveSliceQuery, ArchivedJob, FinishedJob,
    MOST_LISTED, MOST_WALKED, PastPolicy,
};
pub use backup::{BackedUp, Beside, REPLACED, RESTORE_BESIDE, RESTORE_FILE, Restored, back_up, restore};
pub use checked::{CheckedJournal, GivenUp};
pub use chunk::{ChunkContent, ChunkId, FrozenChunks, StateChunk, StoredChunk, chunks_of};
pub use cloud::{CloudNote, PastPart, TakePast, read_folder_past};
pub use error::{DamagedAt, JournalError, Shortfall, is_out_of_room};
pub use folder::{DataFolder, FILE};
pub use forebay_kernel::storage::{
    BatchLog, ForeignId, Journal, JournalEntry, JournalEra, JournalId, JournalIdFault, JournalIdentity, KeptRun,
    MOST_INCARNATION, MOST_SEEN, Positions, StorageFailure,
};
pub use identity::EarlierJob;
pub use machine::{CheckedMachine, RecoveredJournal, check, recover};
pub use mark::MARK_FILE;
pub use recover::{RecoveredPart, Recovery, TornTail, policy_in_force};
pub use snapshot::{SnapshotChunks, SnapshotReport};
pub use spend::{
    ChargedBetween, FolderSpend, JobSlots, MayGoOn, SpendOfJobs, SpendPart, SpendPlace, SpendQuery, SpendRead,
    SpendTotals, read_folder_spend,
};
pub use store::{FORMAT_VERSION, JournalMeta};
pub use upgrade::{OLD_FILE, UpgradedJournal, upgrade_folder};
pub use verify::{VerifiedJournal, verify};

use archive::QueueNumbers;
use background::{Background, Tidy, Worker};
use chain::Chain;
use checkpoint::Checkpointer;
use database::{ChainedRow, Database};
use error::encoding;
use forebay_kernel::event::Event;
use forebay_kernel::ids::Seq;
use forebay_kernel::journal::{APPLY_VERSION, Batch};
use forebay_kernel::state::State;
use forebay_kernel::storage::{ArchivedIdentity, FrozenRequests, JobOwner};
use forebay_kernel::units::Span;
use identity::{ArchiveEnd, IdentityIndex, IdentityKey};
use mark::{JournalMark, MarkState, MarkWriter};
use rusqlite::Connection;
use snapshot::{LastChunks, SnapshotWork};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use turns::WriteTurns;
use uuid::Uuid;

/// How long what is over is kept. Identities of finished jobs are kept for ever.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JournalRetention {
    /// Finished jobs, from their end on.
    pub finished: Span,
    /// Texts of policies that are not in force any more, from when they came into force on.
    pub policies: Span,
}

impl Default for JournalRetention {
    /// 30 days of each.
    fn default() -> JournalRetention {
        let month = Span::mins(30 * 24 * 60);
        JournalRetention { finished: month, policies: month }
    }
}

/// Payload since the last snapshot that recovery reads and applies in 0.2 s, at some 40 MiB/s. Less is not worth a snapshot.
const LEAST_BATCHES: u64 = 8 << 20;

/// Payload since the last snapshot that takes 0.8 s. With the state itself, some 100 MB/s, a start takes about a second.
const MOST_BATCHES: u64 = 32 << 20;

/// Tick time between two times that what is beyond retention is taken away.
const TIDY_EVERY: u64 = 3_600_000;

/// Finished jobs between two times: as many as are merged at once.
const TIDY_JOBS: u64 = 16_384;

/// A journal that this process writes.
#[derive(Debug)]
pub struct SqliteJournal {
    /// Dropped first: fields go in the order in which they stand, and the folder's lock goes last of all.
    background: Background,
    /// Empties the log until it is dropped.
    _checkpointer: Checkpointer,
    turns: Arc<WriteTurns>,
    identities: Arc<IdentityIndex>,
    db: Database,
    meta: JournalMeta,
    end: End,
    queues: QueueNumbers,
    retention: JournalRetention,
    /// When what is beyond retention was last taken away: tick time, and rows of the archive.
    tidied: (u64, u64),
    /// Bytes of payload since the last snapshot was begun.
    since_snapshot: u64,
    incarnations: Incarnations,
    mark: MarkWriter,
    /// The last transaction is durable, and its mark is not.
    unmarked: bool,
    folder: DataFolder,
}

/// The incarnations of a journal, in order.
#[derive(Clone, Debug, Default)]
struct Incarnations {
    eras: Vec<JournalEra>,
}

/// Which journal it is, and was.
fn identity_of(meta: &JournalMeta, acts: &[JournalAct]) -> JournalIdentity {
    JournalIdentity { id: meta.id(), created_ms: meta.created_ms, eras: acts::eras(acts) }
}

/// Where a journal ends.
#[derive(Clone, Debug)]
struct End {
    seq: u64,
    tick_ms: u64,
    archived: u64,
    chain: Chain,
    positions: Positions,
}

impl End {
    fn first(meta: &JournalMeta) -> End {
        let chain = chain::first(meta.uuid);
        End { seq: meta.begins_at, tick_ms: meta.created_ms, archived: 0, chain, positions: Positions::new() }
    }
}

impl SqliteJournal {
    /// Begins a new journal in a folder, which is made if it is not there. It appears whole or not at all. `created_ms`: when, since
    /// 1970.
    ///
    /// # Errors
    /// The folder holds a journal, is in use, or cannot be written.
    pub fn create(folder: &Path, created_ms: u64) -> Result<SqliteJournal, JournalError> {
        folder::create_private_folder(folder).map_err(|e| JournalError::io(folder, e))?;
        let folder = DataFolder::take(folder)?;
        let path = folder.database();
        if path.exists() {
            return Err(JournalError::Exists { path });
        }
        checked::refuse_what_is_left(folder.path())?;
        let (format, apply) = (FORMAT_VERSION, APPLY_VERSION);
        let meta = JournalMeta { format, apply, uuid: Uuid::new_v4(), incarnation: 0, created_ms, begins_at: 0 };
        let draft = path.with_extension("new");
        // Closed, so that the file alone is the journal.
        begin_draft(&draft, meta)?.close()?;
        std::fs::rename(&draft, &path).map_err(|e| JournalError::io(&path, e))?;
        folder.sync()?;
        let (end, chunks) = (End::first(&meta), Vec::new());
        // A crash before this leaves a journal that holds nothing, which gets its mark at the next start.
        let mark = mark::replace(folder.path(), JournalMark::of(meta.uuid, 0, &end, MarkState::Closed))?;
        let db = Database::open(&path)?;
        let identities = IdentityIndex::load(&db, ArchiveEnd::At(0))?;
        let incarnations = Incarnations { eras: acts::eras(&[checked::created(&meta)]) };
        let since_snapshot = 0;
        SqliteJournal::start(Opened { db, meta, end, since_snapshot, chunks, identities, mark, incarnations, folder })
    }

    /// Opens a journal and hands everything from the newest sound snapshot on to `take`, verified. See [`RecoveredPart`].
    ///
    /// # Errors
    /// There is no journal, it is in use, of another version, damaged, or shorter than what it acknowledged, or `take` could not apply a
    /// batch. Nothing was changed then.
    pub fn open(
        folder: &Path,
        take: &mut dyn FnMut(RecoveredPart<'_, '_>) -> Result<(), String>,
    ) -> Result<(SqliteJournal, Recovery), JournalError> {
        checked::check(folder, take)?.open()
    }

    fn start(opened: Opened) -> Result<SqliteJournal, JournalError> {
        let Opened { mut db, meta, end, since_snapshot, chunks, identities, mark, incarnations, folder } = opened;
        let (turns, identities) = (Arc::new(WriteTurns::default()), Arc::new(identities));
        let checkpointer = Checkpointer::start(&mut db, Arc::clone(&turns))?;
        let mut second = Database::open(&db.path)?;
        checkpointer.moves_the_log_of(&mut second)?;
        let worker = Worker {
            db: second,
            turns: Arc::clone(&turns),
            identities: Arc::clone(&identities),
            last: LastChunks::of(&chunks),
            cleaned: false,
        };
        Ok(SqliteJournal {
            background: Background::start(worker)?,
            _checkpointer: checkpointer,
            turns,
            queues: QueueNumbers::load(&db)?,
            db,
            meta,
            retention: JournalRetention::default(),
            tidied: (end.tick_ms, identities.last_archived()),
            identities,
            end,
            since_snapshot,
            incarnations,
            mark,
            unmarked: false,
            folder,
        })
    }

    /// What is known of the last finished job of an identity, over all the journal's life. An identity that is new costs no read of the
    /// disk, but one in a hundred.
    ///
    /// # Errors
    /// The journal cannot be read, or something there is damaged.
    pub fn identity(&self, tenant: &str, subject: &str) -> Result<Option<EarlierJob>, JournalError> {
        self.identities.find(&self.db, &IdentityKey::of(tenant, subject))
    }

    /// A reader of finished jobs for another thread.
    ///
    /// # Errors
    /// The system gives no more files.
    pub fn archive_reader(&self) -> Result<ArchiveReader, JournalError> {
        ArchiveReader::new(&self.db.path, Arc::clone(&self.identities))
    }

    /// Sets how long what is over is kept.
    pub fn keep(&mut self, retention: JournalRetention) {
        self.retention = retention;
    }

    /// Begins to write a snapshot of the state as it is after the last batch that was appended. It is written beside the batches; if the
    /// process ends before it is done, the one before counts.
    pub fn begin_snapshot_of(&mut self, chunks: FrozenChunks) {
        self.background.snapshot(SnapshotWork { end: self.end.clone(), chunks });
        self.since_snapshot = 0;
    }

    /// Waits until the background has nothing left to do.
    pub fn settle(&self) {
        self.background.settle();
    }

    /// What the last snapshot of this process took.
    #[must_use]
    pub fn last_snapshot(&self) -> Option<SnapshotReport> {
        self.background.last()
    }

    /// Why the last thing that the background tried did not work. The batches are not concerned.
    #[must_use]
    pub fn background_failure(&self) -> Option<String> {
        self.background.failure()
    }

    /// The longest that a batch has waited for the background.
    #[must_use]
    pub fn longest_wait(&self) -> Duration {
        self.turns.longest_wait()
    }

    /// Who this journal is.
    #[must_use]
    pub fn meta(&self) -> JournalMeta {
        self.meta
    }

    /// Where it lies.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn write_mark(&mut self) -> Result<(), JournalError> {
        self.unmarked = true;
        self.mark.move_to(&self.end, MarkState::Open)?;
        self.unmarked = false;
        Ok(())
    }

    fn tidy_if_due(&mut self) {
        let End { tick_ms, archived, .. } = self.end;
        if tick_ms < self.tidied.0 + TIDY_EVERY && archived < self.tidied.1 + TIDY_JOBS {
            return;
        }
        self.tidy();
    }

    /// Takes away what is beyond retention now, in the background.
    pub fn tidy(&mut self) {
        let End { tick_ms, archived, .. } = self.end;
        self.tidied = (tick_ms, archived);
        self.background.tidy(Tidy { now_ms: tick_ms, archived, keep: self.retention });
    }

    /// Caps the file's size, so that tests can meet a full disk.
    #[doc(hidden)]
    pub fn cap_pages(&self, pages: u32) {
        let capped =
            self.db.connection.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |row| row.get::<_, i64>(0));
        assert!(capped.is_ok());
    }

    /// The size of the file in pages, for the same tests.
    #[doc(hidden)]
    #[must_use]
    pub fn pages(&self) -> u32 {
        self.db.connection.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap_or_default()
    }
}

impl BatchLog for SqliteJournal {
    type Error = JournalError;

    fn append_many(&mut self, entries: &[JournalEntry<'_>]) -> Result<(), JournalError> {
        // Tried again: they are in the journal, and only the mark is missing.
        if self.unmarked && entries.last().is_some_and(|last| last.batch.next_seq().0 == self.end.seq) {
            return self.write_mark();
        }
        let mut end = self.end.clone();
        let prepared = entries.iter().map(|entry| Prepared::new(entry, &mut end)).collect::<Result<Vec<_>, _>>()?;
        let mut queues = self.queues.clone();
        let turn = self.turns.batch();
        self.db.write(|all| prepared.iter().try_for_each(|one| one.write(all, &mut queues)))?;
        drop(turn);
        for one in &prepared {
            one.known_from_now(&self.identities);
            self.since_snapshot += one.row.body.len() as u64;
        }
        (self.end, self.queues) = (end, queues);
        self.write_mark()?;
        self.tidy_if_due();
        Ok(())
    }
}

impl Drop for SqliteJournal {
    fn drop(&mut self) {
        // What the mark does not have yet is in the log, which stays then.
        if self.unmarked {
            return;
        }
        let closed = self.mark.move_to(&self.end, MarkState::Closed).and_then(|()| self.db.empties_log());
        if let Err(e) = closed {
            tracing::warn!("the journal's mark does not say that the journal was closed, or its log stays: {e}");
        }
    }
}

impl Journal for SqliteJournal {
    fn identity(&self) -> JournalIdentity {
        let Incarnations { eras } = self.incarnations.clone();
        JournalIdentity { id: self.meta.id(), created_ms: self.meta.created_ms, eras }
    }

    fn end(&self) -> Seq {
        Seq(self.end.seq)
    }

    /// A start reads the state and applies the batches after the snapshot, 40 MiB/s. Where a snapshot writes much, more batches are waited
    /// for, so that snapshots write at most four times what batches do, but never more than 32 MiB: 0.8 s.
    fn wants_snapshot(&self) -> bool {
        let last = self.background.last().map_or(0, |last| last.written_bytes);
        self.since_snapshot > (last / 4).clamp(LEAST_BATCHES, MOST_BATCHES) && !self.background.writes_snapshot()
    }

    fn begin_snapshot(&mut self, state: &State) -> Result<(), JournalError> {
        self.begin_snapshot_of(Box::new(state.freeze().into_chunks()));
        Ok(())
    }

    fn note_finished(&mut self, finished: &[FinishedJob]) {
        finished.iter().for_each(|one| self.identities.note(one, 0));
    }

    fn archived(&self, tenant: &str, subject: &str) -> Result<Option<ArchivedIdentity>, JournalError> {
        let Some(earlier) = SqliteJournal::identity(self, tenant, subject)? else { return Ok(None) };
        // Beyond the archive's retention nobody knows any more whose it was.
        let owner = archive::finished(&self.db, earlier.job)?.map(|archived| {
            let spec = archived.finished.spec;
            JobOwner { principal: spec.principal.clone(), queue: spec.queue.clone() }
        });
        Ok(Some(ArchivedIdentity { earlier, owner }))
    }

    fn positions(&self) -> &Positions {
        &self.end.positions
    }

    fn seen(&self) -> Result<Vec<u128>, JournalError> {
        store::seen(&self.db, MOST_SEEN)
    }

    fn requests(&self) -> Result<FrozenRequests, JournalError> {
        store::requests(&self.db)
    }

    fn forget_requests(&mut self, open: &BTreeSet<u64>) -> Result<(), JournalError> {
        let _turn = self.turns.batch();
        self.db.write(|all| store::forget_requests(all, self.end.seq, open))
    }

    fn policy_source(&self) -> Result<Option<String>, JournalError> {
        recover::last_policy(&self.db)
    }
}

/// What a journal is started from.
struct Opened {
    db: Database,
    meta: JournalMeta,
    end: End,
    since_snapshot: u64,
    /// Those of the snapshot that it began with.
    chunks: Vec<snapshot::ListedChunk>,
    identities: IdentityIndex,
    mark: MarkWriter,
    incarnations: Incarnations,
    folder: DataFolder,
}

/// An entry whose rows are encoded.
struct Prepared<'a> {
    entry: JournalEntry<'a>,
    row: ChainedRow<4>,
    /// The bodies of the finished jobs, and the row of the first.
    finished: Vec<Vec<u8>>,
    first_row: u64,
    charges: spend::EncodedCharges,
    cloud: Option<Vec<u8>>,
}

impl<'a> Prepared<'a> {
    /// Encodes an entry that follows `end`, and moves that on.
    fn new(entry: &JournalEntry<'a>, end: &mut End) -> Result<Prepared<'a>, JournalError> {
        let batch = entry.batch;
        if batch.first_seq.0 != end.seq {
            return Err(JournalError::OutOfOrder { got: batch.first_seq, end: Seq(end.seq) });
        }
        let body = batch.encode().map_err(encoding("a batch"))?;
        let finished = entry.finished.iter().map(archive::encode).collect::<Result<Vec<_>, _>>();
        let finished = finished.map_err(encoding("a finished job"))?;
        let charges = spend::EncodedCharges::of(entry.charges).map_err(encoding("what a batch charges"))?;
        let cloud = cloud::notes_of(batch).map_err(encoding("what the cloud did"))?;
        let mut moved = entry.positions.clone();
        moved.retain(|name, at| end.positions.get(name) != Some(at));
        let positions = match moved.is_empty() {
            true => Vec::new(),
            false => postcard::to_allocvec(&moved).map_err(encoding("the sources' positions"))?,
        };
        let first_row = end.archived + 1;
        *end = End {
            seq: batch.next_seq().0,
            tick_ms: batch.tick.now.0,
            archived: end.archived + finished.len() as u64,
            chain: chain::next(&end.chain, &positions, &body),
            positions: std::mem::take(&mut end.positions),
        };
        end.positions.extend(moved);
        let numbers = [batch.first_seq.0, end.seq, end.tick_ms, end.archived];
        let row = ChainedRow { numbers, body, positions, chain: end.chain, sound: true };
        Ok(Prepared { entry: *entry, row, finished, first_row, charges, cloud })
    }

    fn write(&self, all: &Connection, queues: &mut QueueNumbers) -> rusqlite::Result<()> {
        let JournalEntry { batch, policy, seen, requests, finished, .. } = self.entry;
        self.row.insert(all, "INSERT INTO batches")?;
        if !seen.is_empty() {
            store::insert_seen(all, batch.first_seq.0, seen)?;
        }
        for (effect, body) in requests {
            store::insert_request(all, effect.0, body)?;
        }
        for ((row, job), body) in (self.first_row..).zip(finished).zip(&self.finished) {
            archive::insert(all, queues, row, job, body)?;
        }
        self.charges.write(all, batch.first_seq.0)?;
        if let Some(notes) = &self.cloud {
            cloud::insert(all, batch, notes)?;
        }
        if let (Some(text), Some(seq)) = (policy, configured_at(batch)) {
            store::insert_source(all, seq, batch.tick.now.0, text)?;
        }
        Ok(())
    }

    fn known_from_now(&self, identities: &IdentityIndex) {
        (self.first_row..).zip(self.entry.finished).for_each(|(row, job)| identities.note(job, row));
    }
}

/// A new database beside the journal, with its tables.
fn begin_draft(draft: &Path, meta: JournalMeta) -> Result<Database, JournalError> {
    for left_over in [draft, &beside(draft, "-wal"), &beside(draft, "-shm")] {
        remove_if_there(left_over)?;
    }
    let db = Database::create(draft)?;
    let act = checked::created(&meta).prepare(&db)?;
    db.write(|all| store::create_tables(all, meta).and_then(|()| act(all)))?;
    Ok(db)
}

fn remove_if_there(path: &Path) -> Result<(), JournalError> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(JournalError::io(path, e)),
        _ => Ok(()),
    }
}

fn configured_at(batch: &Batch) -> Option<u64> {
    let at = batch.events.iter().rposition(|e| matches!(e, Event::Configured(_)))?;
    Some(batch.first_seq.0 + 1 + at as u64)
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}
