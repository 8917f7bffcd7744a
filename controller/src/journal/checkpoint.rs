//! Moves what the write-ahead log holds into the database, on a thread and a connection of its own: it writes megabytes and syncs
//! twice, and no batch waits for that.
//!
//! ```text
//! writer: commit .. commit --every 4 MiB--> wake --> PRAGMA wal_checkpoint(PASSIVE): beside the writer, who goes on
//! the log begins again at its front when the writer finds everything moved; if it never does, at 64 MiB the writer moves it itself
//! ```
//!
//! Never: a word on durability. A batch is durable once the log is synced, wherever its pages are.

use super::error::JournalError;
use super::store;
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

/// Written since the last time: as SQLite's own 1,000 pages of 4 KiB.
const EVERY: u64 = 4 << 20;

/// Beyond this the writer stops for a moment and moves everything: recovery reads the log from front to back.
const MOST_LOG: u64 = 64 << 20;

/// The thread, and how much was written since it was woken.
#[derive(Debug)]
pub struct Checkpointer {
    wake: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
    log: PathBuf,
    written: u64,
}

impl Checkpointer {
    /// For the database at `path`, which is open already. From here on its own connection moves nothing by itself.
    pub fn start(path: &Path, db: &Connection) -> Result<Checkpointer, JournalError> {
        let fail = |e| JournalError::sqlite(path, e);
        db.query_row("PRAGMA wal_autocheckpoint = 0", [], |row| row.get::<_, i64>(0)).map_err(fail)?;
        let own = store::connect(path, false)?;
        let (wake, woken) = sync_channel(1);
        let work = move || {
            while woken.recv().is_ok() {
                if let Err(error) = move_pages(&own, "PASSIVE") {
                    // The log keeps everything, and grows; a full disk is then the writer's to say.
                    tracing::warn!("the write-ahead log stays as it is for now: {error}");
                }
            }
        };
        let thread = std::thread::Builder::new().name("checkpoint".to_owned()).spawn(work);
        let thread = thread.map_err(|e| JournalError::io(path, e))?;
        Ok(Checkpointer { wake: Some(wake), thread: Some(thread), log: super::beside(path, "-wal"), written: 0 })
    }

    /// So many bytes were committed.
    pub fn wrote(&mut self, bytes: u64, db: &Connection) {
        self.written += bytes;
        if self.written < EVERY {
            return;
        }
        self.written = 0;
        let long = std::fs::metadata(&self.log).is_ok_and(|log| log.len() > MOST_LOG);
        if long && let Err(error) = move_pages(db, "TRUNCATE") {
            tracing::warn!("the write-ahead log is longer than {MOST_LOG} bytes and stays so for now: {error}");
        }
        if let Some(Err(TrySendError::Disconnected(()))) = self.wake.as_ref().map(|wake| wake.try_send(())) {
            tracing::error!("the thread that empties the write-ahead log has ended by a fault of this program");
        }
    }
}

fn move_pages(db: &Connection, how: &str) -> rusqlite::Result<()> {
    db.query_row(&format!("PRAGMA wal_checkpoint({how})"), [], |_| Ok(()))
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.wake = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
