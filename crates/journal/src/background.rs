//! The thread that writes beside the batches: snapshots, merges of identities, and what retention takes away.
//!
//! ```text
//! driver: begin_snapshot, tidy --> wanted (at most one of each) --> this thread: small transactions, each in its turn
//! ```
//!
//! Never: holds a batch back for longer than one small transaction; decides what is kept (see `JournalRetention`).

use crate::database::{Database, Steps, numbers, signed};
use crate::error::JournalError;
use crate::identity::{self, IdentityIndex};
use crate::snapshot::{self, LastChunks, SnapshotReport, SnapshotWork};
use crate::turns::WriteTurns;
use crate::{JournalRetention, MOST_SEEN, cloud, store};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Rows that one transaction takes away: some 200 KiB of the archive.
pub const ROWS_AT_ONCE: usize = 512;

/// Free pages that the file may have for what comes next: a quarter of it, or 8 MiB.
const FREE_PAGES: u64 = 2_048;

/// Pages by which one transaction shortens the file.
const VACUUM_PAGES: i64 = 64;

/// The thread and the way to it.
#[derive(Debug)]
pub struct Background {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    wanted: Mutex<Wanted>,
    changed: Condvar,
}

#[derive(Default)]
struct Wanted {
    snapshot: Option<SnapshotWork>,
    tidy: Option<Tidy>,
    working: bool,
    stop: bool,
    last: Option<SnapshotReport>,
    failure: Option<String>,
}

impl std::fmt::Debug for Wanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wanted").field("working", &self.working).field("last", &self.last).finish_non_exhaustive()
    }
}

/// What is to be taken away, as of when.
#[derive(Clone, Copy, Debug)]
pub struct Tidy {
    pub now_ms: u64,
    pub archived: u64,
    pub keep: JournalRetention,
}

/// The thread's side.
pub struct Worker {
    pub db: Database,
    pub turns: Arc<WriteTurns>,
    pub identities: Arc<IdentityIndex>,
    pub last: LastChunks,
    /// Whether what an earlier process left behind is taken away.
    pub cleaned: bool,
}

impl Background {
    /// Begins the thread.
    pub fn start(worker: Worker) -> Result<Background, JournalError> {
        let (shared, path) = (Arc::new(Shared::default()), worker.db.path.clone());
        let theirs = Arc::clone(&shared);
        let thread =
            std::thread::Builder::new().name("journal-background".to_owned()).spawn(move || worker.run(&theirs));
        let thread = thread.map_err(|e| JournalError::io(&path, e))?;
        Ok(Background { shared, thread: Some(thread) })
    }

    /// Whether a snapshot is being written or waits for it.
    pub fn writes_snapshot(&self) -> bool {
        let wanted = self.shared.lock();
        wanted.snapshot.is_some() || wanted.working
    }

    /// Writes a snapshot, after what it is doing now.
    pub fn snapshot(&self, work: SnapshotWork) {
        self.shared.lock().snapshot = Some(work);
        self.shared.changed.notify_all();
    }

    /// Takes away what is beyond retention, after what it is doing now.
    pub fn tidy(&self, tidy: Tidy) {
        self.shared.lock().tidy = Some(tidy);
        self.shared.changed.notify_all();
    }

    /// Waits until nothing is left to do.
    pub fn settle(&self) {
        let busy = |wanted: &mut Wanted| wanted.working || wanted.snapshot.is_some() || wanted.tidy.is_some();
        drop(self.shared.changed.wait_while(self.shared.lock(), busy).unwrap_or_else(PoisonError::into_inner));
    }

    /// What the last snapshot took.
    pub fn last(&self) -> Option<SnapshotReport> {
        self.shared.lock().last
    }

    /// Why the last thing that was tried did not work.
    pub fn failure(&self) -> Option<String> {
        self.shared.lock().failure.clone()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Wanted> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One thing to do.
enum Work {
    Snapshot(SnapshotWork),
    Tidy(Tidy),
}

impl Worker {
    fn run(mut self, shared: &Shared) {
        while let Some(work) = next(shared) {
            let done = self.work(work, &|| shared.lock().stop);
            let mut wanted = shared.lock();
            wanted.failure = done.as_ref().err().map(ToString::to_string);
            match done {
                Ok(report) => wanted.last = report.or(wanted.last),
                // The batches hold everything; a start reads more of them.
                Err(e) => tracing::warn!("the journal is not tidied or has no new snapshot: {e}"),
            }
            wanted.working = false;
            drop(wanted);
            shared.changed.notify_all();
        }
    }

    fn work(&mut self, work: Work, stopping: &dyn Fn() -> bool) -> Result<Option<SnapshotReport>, JournalError> {
        let steps = Steps { db: &self.db, turns: &self.turns };
        if !self.cleaned {
            identity::forget_unused_pages(&steps, &self.identities)?;
            self.cleaned = true;
        }
        match work {
            Work::Snapshot(work) => {
                let report = snapshot::write(&steps, &mut self.last, work, stopping)?;
                if report.is_some() {
                    snapshot::forget_what_is_over(&steps)?;
                }
                Ok(report)
            }
            Work::Tidy(tidy) => {
                if identity::wants_merge(&self.identities, tidy.archived) {
                    identity::merge(&steps, &self.identities, tidy.archived)?;
                }
                forget_finished(&steps, &self.identities, tidy, stopping)?;
                cloud::forget(&steps, tidy.now_ms.saturating_sub(tidy.keep.finished.0), stopping)?;
                forget_sources(&steps, tidy)?;
                forget_seen(&steps)?;
                shorten(&steps, stopping)?;
                Ok(None)
            }
        }
    }
}

/// Waits for the next thing to do. `None`: the journal is closed.
fn next(shared: &Shared) -> Option<Work> {
    let mut wanted = shared.lock();
    loop {
        if wanted.stop {
            return None;
        }
        let work = wanted.snapshot.take().map(Work::Snapshot).or_else(|| wanted.tidy.take().map(Work::Tidy));
        if work.is_some() {
            wanted.working = true;
            return work;
        }
        wanted = shared.changed.wait(wanted).unwrap_or_else(PoisonError::into_inner);
    }
}

/// Finished jobs that are older than they are kept, and whose identities are in a run.
fn forget_finished(
    steps: &Steps<'_>,
    identities: &IdentityIndex,
    tidy: Tidy,
    stopping: &dyn Fn() -> bool,
) -> Result<(), JournalError> {
    let before = tidy.now_ms.saturating_sub(tidy.keep.finished.0);
    let merged = identities.last_archived();
    while !stopping() {
        let sql = "SELECT id, ended_ms FROM archive WHERE id <= ?1 ORDER BY id LIMIT ?2";
        let rows = steps.db.rows(sql, [signed(merged), ROWS_AT_ONCE as i64], |row| Ok(numbers::<2>(row)?))?;
        let over = rows.iter().take_while(|[_, ended]| *ended < signed(before)).count();
        if let Some([last, _]) = rows[..over].last() {
            steps.write(|db| db.prepare_cached("DELETE FROM archive WHERE id <= ?1")?.execute([last]))?;
        }
        if over < ROWS_AT_ONCE {
            break;
        }
    }
    Ok(())
}

/// Texts of policies that are not in force and older than they are kept.
fn forget_sources(steps: &Steps<'_>, tidy: Tidy) -> Result<(), JournalError> {
    let before = signed(tidy.now_ms.saturating_sub(tidy.keep.policies.0));
    let sql = "DELETE FROM sources WHERE tick_ms < ?1 AND seq < (SELECT max(seq) FROM sources)";
    steps.write(|db| db.prepare_cached(sql)?.execute([before]).map(drop))
}

/// Ids of events beyond the horizon.
fn forget_seen(steps: &Steps<'_>) -> Result<(), JournalError> {
    let Some(upto) = store::seen_horizon(steps.db, MOST_SEEN)? else { return Ok(()) };
    let sql = "DELETE FROM seen WHERE seq IN (SELECT seq FROM seen WHERE seq <= ?1 ORDER BY seq LIMIT ?2)";
    while steps.write(|db| db.prepare_cached(sql)?.execute([upto, ROWS_AT_ONCE as i64]))? > 0 {}
    Ok(())
}

/// Gives free pages back to the file system where there are more than are needed soon.
fn shorten(steps: &Steps<'_>, stopping: &dyn Fn() -> bool) -> Result<(), JournalError> {
    let number = |pragma: &str| Ok(steps.db.number(pragma)?.unwrap_or(0));
    let mut free = number("PRAGMA freelist_count")?;
    while !stopping() && free > FREE_PAGES.max(number("PRAGMA page_count")? / 4) {
        steps.write(|db| {
            let mut vacuum = db.prepare(&format!("PRAGMA incremental_vacuum({VACUUM_PAGES})"))?;
            let mut rows = vacuum.query([])?;
            while rows.next()?.is_some() {}
            Ok(())
        })?;
        let left = number("PRAGMA freelist_count")?;
        if left >= free {
            break;
        }
        free = left;
    }
    Ok(())
}
