//! The identities of finished jobs, known for ever: 16 bytes of a hash -> job, digest, when it was sent. Some 50 bytes each on disk.
//!
//! ```text
//! finished -> recent (in memory; on disk these are rows of the archive) --16,384 of them--> a sorted run of pages on disk
//! runs of like size are merged: a few runs, whatever their number of identities
//! find: recent -> each run, newest first: its filter (in memory, 10 bits an identity) -> one page
//! ```
//!
//! A table with the hash as its key would be simpler. With 10 million rows each new one touches a page of its own: 4 KiB written for
//! 50 bytes, and as much read for each subject that is new. Runs are written in order, and the filter answers for what is new.
//!
//! Never: forgets an identity; reads the disk for one that is new, but for one in a hundred.

mod merge;
mod run;

pub use merge::{forget_unused_pages, merge, wants_merge};

use crate::archive::{self, FinishedJob};
use crate::chain;
use crate::database::Database;
use crate::error::{DamagedAt, JournalError};
use run::{IdentityRun, load_runs};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use forebay_kernel::event::EarlierJob;

/// The key of an identity: 16 bytes of BLAKE3 over tenant and subject. Two of 2^40 identities share one with a chance of 2^-49.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct IdentityKey([u8; 16]);

impl IdentityKey {
    /// The key of (tenant, subject).
    #[must_use]
    pub fn of(tenant: &str, subject: &str) -> IdentityKey {
        let mut hasher = blake3::Hasher::new();
        // The length keeps a byte from moving between the two unseen.
        hasher.update(&(tenant.len() as u64).to_le_bytes()).update(tenant.as_bytes()).update(subject.as_bytes());
        IdentityKey(chain::short(&hasher.finalize()))
    }

    fn high(self) -> u64 {
        u64::from_be_bytes(self.0[..8].try_into().unwrap_or_default())
    }

    fn low(self) -> u64 {
        u64::from_be_bytes(self.0[8..].try_into().unwrap_or_default())
    }
}

/// A recent identity.
#[derive(Clone, Copy, Debug)]
struct Recent {
    earlier: EarlierJob,
    /// The last job of it that the archive has, and its row: what a crash goes back to, so a merge takes it. Until it is written it is another than
    /// `earlier`, or none.
    written: Option<(EarlierJob, u64)>,
}

impl Recent {
    /// One that a row of the archive has. 0: none yet. `None`: the job has no identity.
    fn of(finished: &FinishedJob, row: u64) -> Option<(IdentityKey, Recent)> {
        let FinishedJob { spec, .. } = finished;
        finished.identity().map(|earlier| {
            let recent = Recent { earlier, written: (row > 0).then_some((earlier, row)) };
            (IdentityKey::of(&spec.tenant, &spec.subject), recent)
        })
    }
}

/// The lookup, shared by all who ask. Nobody holds its locks while reading the disk.
#[derive(Debug)]
pub struct IdentityIndex {
    recent: Mutex<HashMap<IdentityKey, Recent>>,
    runs: Mutex<Arc<Runs>>,
}

/// The runs on disk, oldest first.
#[derive(Debug, Default)]
struct Runs {
    list: Vec<Arc<IdentityRun>>,
}

impl Runs {
    /// The last row of the archive whose identity is in a run.
    fn last_archived(&self) -> u64 {
        self.list.last().map_or(0, |run| run.last_archived)
    }
}

/// Where the archive ends, by the batches.
#[derive(Clone, Copy, Debug)]
pub enum ArchiveEnd {
    /// Wherever it ends by now.
    Unknown,
    /// With this row.
    At(u64),
    /// With this row, once a torn tail is cut: the rows after it are of batches that go.
    Cut(u64),
}

impl ArchiveEnd {
    /// Whether a row is of a batch that stays.
    fn has(self, row: u64) -> bool {
        match self {
            ArchiveEnd::Unknown | ArchiveEnd::At(_) => true,
            ArchiveEnd::Cut(archived) => row <= archived,
        }
    }
}

impl IdentityIndex {
    /// As the journal has it.
    pub fn load(db: &Database, end: ArchiveEnd) -> Result<IdentityIndex, JournalError> {
        let runs = Runs { list: load_runs(db)? };
        let merged = runs.last_archived();
        let mut recent = HashMap::new();
        let range = archive::each_after(db, merged, &mut |found| {
            if end.has(found.row.0) {
                recent.extend(Recent::of(&found.finished, found.row.0));
            }
        })?;
        if let Some(range) = range
            && range.first != merged + 1
        {
            let what = "rows before it are missing, and their identities are in no run";
            return Err(db.damaged(DamagedAt::Archive(range.first), what));
        }
        let newest = db.number("SELECT max(id) FROM archive")?.unwrap_or(merged);
        let (agrees, archived) = match end {
            ArchiveEnd::Unknown => (true, newest),
            ArchiveEnd::At(archived) => (newest == archived, archived),
            ArchiveEnd::Cut(archived) => (newest >= archived && merged <= archived, archived),
        };
        if !agrees {
            let what = format!("the archive ends here, and the batches have {archived} finished jobs");
            return Err(db.damaged(DamagedAt::Archive(newest), what));
        }
        Ok(IdentityIndex { recent: Mutex::new(recent), runs: Mutex::new(Arc::new(runs)) })
    }

    /// Knows a job from here on, which row `row` of the archive has. 0: it is not written yet.
    pub fn note(&self, finished: &FinishedJob, row: u64) {
        let Some((key, mut newest)) = Recent::of(finished, row) else { return };
        let mut recent = self.recent();
        newest.written = newest.written.or_else(|| recent.get(&key)?.written);
        recent.insert(key, newest);
    }

    /// The last finished job of an identity.
    pub fn find(&self, db: &Database, key: &IdentityKey) -> Result<Option<EarlierJob>, JournalError> {
        if let Some(recent) = self.recent().get(key) {
            return Ok(Some(recent.earlier));
        }
        loop {
            let runs = self.runs();
            match find_in(&runs, db, key) {
                // A merge may have taken the page away: then the list of runs is another by now.
                Err(_) if !Arc::ptr_eq(&runs, &self.runs()) => {}
                found => return found,
            }
        }
    }

    /// Puts runs in the place of those before, and lets go what they have of the recent ones.
    fn replace_runs(&self, list: Vec<Arc<IdentityRun>>) {
        let runs = Runs { list };
        let merged = runs.last_archived();
        *self.runs.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(runs);
        // One that is known in memory alone stays, whatever it was before.
        let is_in_run = |recent: &Recent| {
            recent.written.is_some_and(|(written, row)| row <= merged && written.job == recent.earlier.job)
        };
        self.recent().retain(|_, recent| !is_in_run(recent));
    }

    fn recent(&self) -> MutexGuard<'_, HashMap<IdentityKey, Recent>> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn runs(&self) -> Arc<Runs> {
        Arc::clone(&self.runs.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The last row of the archive whose identity is in a run: rows after it must stay.
    #[must_use]
    pub fn last_archived(&self) -> u64 {
        self.runs().last_archived()
    }
}

fn find_in(runs: &Runs, db: &Database, key: &IdentityKey) -> Result<Option<EarlierJob>, JournalError> {
    for run in runs.list.iter().rev() {
        if let Some(found) = run.find(db, key)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Reads every page of every run. Returns how many identities there are.
///
/// # Errors
/// When a page cannot be read, or its identities are not in order; the run and page are named.
pub fn verify(db: &Database) -> Result<u64, JournalError> {
    let mut count = 0;
    for run in load_runs(db)? {
        let (mut in_run, mut last) = (0, None);
        for page in 0..run.pages() {
            for entry in run.page(db, page)? {
                if last.is_some_and(|last| last >= entry.key) || run.pages_of(entry.key).all(|of| of != page) {
                    let at = DamagedAt::Identities { run: run.id, page: page + 1 };
                    return Err(db.damaged(at, "its identities are not in order"));
                }
                last = Some(entry.key);
                in_run += 1;
            }
        }
        if in_run != run.entries {
            let at = DamagedAt::Identities { run: run.id, page: 0 };
            return Err(db.damaged(at, format!("it has {in_run} identities, not {}", run.entries)));
        }
        count += in_run;
    }
    Ok(count)
}
