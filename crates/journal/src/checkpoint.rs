//! Moves what the write-ahead log holds into the database, on a thread and a connection of its own: it writes megabytes and syncs
//! twice, and no batch waits for that.
//!
//! ```text
//! writers: commit .. commit --every 4 MiB of pages--> wake --> PRAGMA wal_checkpoint(PASSIVE): beside the writers, who go on
//! the log begins again at its front when a writer finds everything moved; if none does, at 64 MiB this thread takes a turn and moves
//! the rest. The file is not made shorter: that takes longer than the move
//! ```
//!
//! Never: decides what is durable. A batch is durable once the log is synced, wherever its pages are.

use crate::database::Database;
use crate::error::JournalError;
use crate::turns::WriteTurns;
use rusqlite::Connection;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Pages that the log has more than when the thread was last woken: 4 MiB, about as much as SQLite's own default. A batch of some hundred
/// bytes writes several pages, so pages are counted and not what is in them.
const EVERY: u64 = 1_024;

/// Beyond so many pages, 64 MiB, nobody writes for a moment while the rest is moved: recovery reads the log from front to back.
const MOST_LOG: i64 = 16_384;

/// A rest of so many pages, 1 MiB, is moved within milliseconds.
const SHORT_REST: i64 = 256;

/// Times that the rest is made shorter beside the writers.
const CATCHING_UP: u32 = 4;

/// How long a reader may keep the log from being emptied while nobody writes.
const READERS: Duration = Duration::from_millis(20);

/// The thread.
#[derive(Debug)]
pub struct Checkpointer {
    signal: Arc<LogSignal>,
    thread: Option<JoinHandle<()>>,
}

/// How writers say what they have written.
#[derive(Debug)]
struct LogSignal {
    wake: SyncSender<LogWork>,
    /// Pages in the log when the thread was last woken, or when the log began again at its front.
    woken_at: AtomicU64,
}

/// What the thread is to do next.
#[derive(Clone, Copy, Debug)]
enum LogWork {
    Empty,
    End,
}

impl LogSignal {
    /// After a commit the log has so many pages.
    fn has(&self, pages: u64) {
        let before = self.woken_at.load(Ordering::Relaxed);
        if pages < before {
            // It began again at its front.
            return self.woken_at.store(0, Ordering::Relaxed);
        }
        if pages - before < EVERY {
            return;
        }
        self.woken_at.store(pages, Ordering::Relaxed);
        if let Err(TrySendError::Disconnected(_)) = self.wake.try_send(LogWork::Empty) {
            tracing::error!("the thread that empties the write-ahead log has ended by a fault of this program");
        }
    }
}

impl Checkpointer {
    /// For a database that is open already. From here on its own connection moves nothing by itself.
    pub fn start(db: &mut Database, turns: Arc<WriteTurns>) -> Result<Checkpointer, JournalError> {
        let own = Database::open(&db.path)?;
        own.connection.busy_timeout(READERS).map_err(|e| own.sqlite(e))?;
        let (wake, woken) = sync_channel(1);
        let work = move || {
            while let Ok(LogWork::Empty) = woken.recv() {
                // The log keeps everything, and grows; a full disk is then for the writer to report.
                if let Err(error) = empty(&own.connection, &turns) {
                    tracing::warn!("the write-ahead log stays as it is for now: {error}");
                }
            }
        };
        let thread = std::thread::Builder::new().name("checkpoint".to_owned()).spawn(work);
        let thread = thread.map_err(|e| JournalError::io(&db.path, e))?;
        let signal = Arc::new(LogSignal { wake, woken_at: AtomicU64::new(0) });
        let started = Checkpointer { signal, thread: Some(thread) };
        started.moves_the_log_of(db)?;
        Ok(started)
    }

    /// A connection that writes leaves moving pages to the thread, and says how many there are.
    pub fn moves_the_log_of(&self, db: &mut Database) -> Result<(), JournalError> {
        db.number("PRAGMA wal_autocheckpoint = 0")?;
        let signal = Arc::clone(&self.signal);
        let hooked = db.connection.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages| {
            signal.has(u64::try_from(pages).unwrap_or(0));
            Ok(())
        }));
        hooked.map_err(|e| db.sqlite(e))
    }
}

fn empty(db: &Connection, turns: &WriteTurns) -> rusqlite::Result<()> {
    let mut pages = move_pages(db, "PASSIVE")?;
    if pages.log < MOST_LOG {
        return Ok(());
    }
    // What is written meanwhile is less each time; the rest is moved while nobody writes.
    for _ in 0..CATCHING_UP {
        if pages.log - pages.moved < SHORT_REST {
            break;
        }
        pages = move_pages(db, "PASSIVE")?;
    }
    let _turn = turns.background();
    move_pages(db, "RESTART").map(drop)
}

/// What a checkpoint found.
struct LogPages {
    /// In the log.
    log: i64,
    /// Of these, those that are in the database too.
    moved: i64,
}

fn move_pages(db: &Connection, how: &str) -> rusqlite::Result<LogPages> {
    let pages = |row: &rusqlite::Row<'_>| Ok(LogPages { log: row.get(1)?, moved: row.get(2)? });
    db.query_row(&format!("PRAGMA wal_checkpoint({how})"), [], pages)
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        // It may have ended before, by a fault; then nobody receives this.
        let _ = self.signal.wake.send(LogWork::End);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
