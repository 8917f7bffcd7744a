//! The journal in a file: SQLite with a write-ahead log, one transaction a batch, each row checked, all rows chained.
//!
//! ```text
//! Batch + positions -> payload -> crc, chain -> one transaction -> synced -> effects may leave
//! open: lock -> wal -> meta -> newest sound snapshot -> batches from there, each verified -> end
//! ```
//!
//! A torn tail is cut and said. Damage with anything sound after it stops the start and changes nothing.
//! Never: repairs, skips, or guesses.

mod chain;
mod checkpoint;
mod error;
mod folder;
mod recover;
mod store;
#[cfg(test)]
mod tests;
mod wal;

pub use error::{JournalError, Place};
pub use folder::{FILE, Folder};
pub use recover::{Cut, Piece, Recovery, Verified, verify};
pub use store::{FORMAT_VERSION, Meta, Positions};

use chain::Chain;
use checkpoint::Checkpointer;
use forebay_engine::event::Event;
use forebay_engine::ids::Seq;
use forebay_engine::journal::{APPLY_VERSION, Batch, Journal};
use rusqlite::Connection;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// One batch and what is kept beside it.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// The batch.
    pub batch: &'a Batch,
    /// How far each source has been read with this batch; those that did not move may be left out.
    pub positions: &'a Positions,
    /// The text of the policy that a `Configured` in this batch was compiled from.
    pub policy: Option<&'a str>,
    /// The ids of the events in this batch that have one, so that they are known when they come again.
    pub seen: &'a [u128],
    /// Requests to the cloud that this batch decided on, frozen, by their effects' ids.
    pub requests: &'a [(Seq, Vec<u8>)],
}

/// So many events' ids are remembered: the horizon of de-duplication. At 50,000 events a second it is 20 s, at a busy day's million a
/// day; 16 bytes each on disk, some 40 in memory. Submissions are told apart by their jobs' identity for ever, whatever their ids.
pub const MOST_SEEN: usize = 1 << 20;

/// A journal that this process writes.
#[derive(Debug)]
pub struct SqliteJournal {
    /// Dropped first: fields go in the order in which they stand, and the folder's lock goes last of all.
    checkpointer: Checkpointer,
    db: Connection,
    path: PathBuf,
    meta: Meta,
    end: End,
    /// Bytes of payload since the last snapshot, and the size of that one.
    since_snapshot: u64,
    snapshot_bytes: u64,
    folder: Folder,
}

/// Where a journal ends.
#[derive(Clone, Debug)]
struct End {
    seq: u64,
    chain: Chain,
    positions: Positions,
}

impl SqliteJournal {
    /// Begins a new journal in a folder, which is made if it is not there. It appears whole or not at all.
    pub fn create(folder: &Path, created_ms: u64) -> Result<SqliteJournal, JournalError> {
        std::fs::create_dir_all(folder).map_err(|e| JournalError::io(folder, e))?;
        let folder = Folder::take(folder)?;
        let path = folder.database();
        if path.exists() {
            return Err(JournalError::Exists { path });
        }
        let draft = path.with_extension("new");
        for left_over in [&draft, &beside(&draft, "-wal"), &beside(&draft, "-shm")] {
            let _ = std::fs::remove_file(left_over);
        }
        let meta = Meta { format: FORMAT_VERSION, apply: APPLY_VERSION, uuid: Uuid::new_v4(), created_ms };
        let db = store::connect(&draft, true)?;
        store::create_tables(&db, meta).map_err(|e| JournalError::sqlite(&draft, e))?;
        // Closing moves everything from the log to the file, so that the file alone is the journal.
        db.close().map_err(|(_, e)| JournalError::sqlite(&draft, e))?;
        std::fs::rename(&draft, &path).map_err(|e| JournalError::io(&path, e))?;
        folder.sync()?;
        let db = store::connect(&path, false)?;
        let end = End { seq: 0, chain: chain::first(meta.uuid), positions: Positions::new() };
        let checkpointer = Checkpointer::start(&path, &db)?;
        Ok(SqliteJournal { checkpointer, db, path, meta, end, since_snapshot: 0, snapshot_bytes: 0, folder })
    }

    /// Opens a journal and hands everything from the newest sound snapshot on to `take`, verified. See [`Piece`].
    pub fn open(
        folder: &Path,
        take: &mut dyn FnMut(Piece<'_>) -> Result<(), String>,
    ) -> Result<(SqliteJournal, Recovery), JournalError> {
        recover::open(folder, take)
    }

    /// Makes batches durable in one transaction: all or none.
    pub fn append_many(&mut self, entries: &[Entry<'_>]) -> Result<(), JournalError> {
        let fail = |e| JournalError::sqlite(&self.path, e);
        let mut end = self.end.clone();
        let mut written = 0;
        let all = self.db.transaction().map_err(fail)?;
        for entry in entries {
            let batch = entry.batch;
            if batch.first_seq.0 != end.seq {
                return Err(JournalError::OutOfOrder { got: batch.first_seq, end: Seq(end.seq) });
            }
            let payload = batch.encode();
            let moved: Vec<_> =
                entry.positions.iter().filter(|(name, at)| end.positions.get(*name) != Some(at)).collect();
            let positions =
                if moved.is_empty() { Vec::new() } else { postcard::to_allocvec(&moved).unwrap_or_default() };
            let at = (end.seq, batch.next_seq().0, batch.tick.now.0);
            end.chain = store::insert_batch(&all, &end.chain, at, &payload, &positions).map_err(fail)?;
            if !entry.seen.is_empty() {
                store::insert_seen(&all, batch.first_seq.0, entry.seen).map_err(fail)?;
            }
            for (effect, body) in entry.requests {
                store::insert_request(&all, effect.0, body).map_err(fail)?;
            }
            if let (Some(text), Some(seq)) = (entry.policy, configured_at(batch)) {
                store::insert_source(&all, seq, text).map_err(fail)?;
            }
            let moved: Positions = moved.into_iter().map(|(name, at)| (name.clone(), *at)).collect();
            end.positions.extend(moved);
            end.seq = batch.next_seq().0;
            written += payload.len() as u64;
        }
        all.commit().map_err(fail)?;
        self.end = end;
        self.since_snapshot += written;
        self.checkpointer.wrote(written, &self.db);
        Ok(())
    }

    /// Makes one batch durable with what is kept beside it.
    pub fn append_entry(&mut self, entry: Entry<'_>) -> Result<(), JournalError> {
        self.append_many(&[entry])
    }

    /// Whether as much has been written since the last snapshot that reading it again would cost more than a snapshot.
    #[must_use]
    pub fn wants_snapshot(&self) -> bool {
        // 4 MiB of batches are read and applied in some 0.1 s. Beyond that a start costs at most what twice its snapshot does.
        self.since_snapshot > self.snapshot_bytes.max(4 << 20)
    }

    /// Who this journal is.
    #[must_use]
    pub fn meta(&self) -> Meta {
        self.meta
    }

    /// Where it lies.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The position after its last record.
    #[must_use]
    pub fn end(&self) -> Seq {
        Seq(self.end.seq)
    }

    /// How far each source has been read.
    #[must_use]
    pub fn positions(&self) -> &Positions {
        &self.end.positions
    }

    /// The ids of the last [`MOST_SEEN`] events that have one, oldest first.
    pub fn seen(&self) -> Result<Vec<u128>, JournalError> {
        let read = store::seen(&self.db, MOST_SEEN).map_err(|e| JournalError::sqlite(&self.path, e))?;
        read.map_err(|seq| JournalError::damaged(&self.path, Place::Seen(seq), "its checksum does not agree"))
    }

    /// The frozen requests that have no outcome yet, and some that have.
    pub fn requests(&self) -> Result<BTreeMap<u64, Vec<u8>>, JournalError> {
        let read = store::requests(&self.db).map_err(|e| JournalError::sqlite(&self.path, e))?;
        read.map_err(|effect| JournalError::damaged(&self.path, Place::Request(effect), "its checksum does not agree"))
    }

    /// Forgets the frozen requests of effects that are not open any more.
    pub fn forget_requests(&mut self, open: &BTreeSet<u64>) -> Result<(), JournalError> {
        let all = self.db.transaction().map_err(|e| JournalError::sqlite(&self.path, e))?;
        store::forget_requests(&all, self.end.seq, open).map_err(|e| JournalError::sqlite(&self.path, e))?;
        all.commit().map_err(|e| JournalError::sqlite(&self.path, e))
    }

    /// The text of the policy in force.
    pub fn policy_source(&self) -> Result<Option<String>, JournalError> {
        match store::last_source(&self.db).map_err(|e| JournalError::sqlite(&self.path, e))? {
            Some((seq, _, false)) => {
                Err(JournalError::damaged(&self.path, Place::Source(seq), "its checksum does not agree"))
            }
            source => Ok(source.map(|(_, text, _)| text)),
        }
    }

    /// Caps the file's size, so that tests can meet a full disk.
    #[cfg(test)]
    pub(crate) fn cap_pages(&self, pages: u32) {
        let capped = self.db.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |row| row.get::<_, i64>(0));
        assert!(capped.is_ok());
    }

    #[cfg(test)]
    pub(crate) fn pages(&self) -> u32 {
        self.db.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap()
    }
}

impl Journal for SqliteJournal {
    type Error = JournalError;

    fn append(&mut self, batch: &Batch) -> Result<(), JournalError> {
        self.append_entry(Entry { batch, positions: &Positions::new(), policy: None, seen: &[], requests: &[] })
    }

    fn snapshot(&mut self, state: &[u8]) -> Result<(), JournalError> {
        let fail = |e| JournalError::sqlite(&self.path, e);
        let positions = postcard::to_allocvec(&self.end.positions.iter().collect::<Vec<_>>()).unwrap_or_default();
        let all = self.db.transaction().map_err(fail)?;
        store::insert_snapshot(&all, self.end.seq, state, &positions, &self.end.chain).map_err(fail)?;
        store::forget_seen(&all, MOST_SEEN).map_err(fail)?;
        all.commit().map_err(fail)?;
        (self.since_snapshot, self.snapshot_bytes) = (0, state.len() as u64);
        self.checkpointer.wrote(state.len() as u64, &self.db);
        Ok(())
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
