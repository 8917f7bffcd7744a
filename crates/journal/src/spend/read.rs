//! Reading the ledger by whom: of a journal that is being written, up to a position, and of a folder that nobody serves.
//!
//! ```text
//! a server:  the engine's open charges and its position -> ArchiveReader::spend up to there
//! a folder:  snapshot and batches -> the state, its open charges and its position -> the same
//! ```
//!
//! Never: writes, or takes the folder's lock.

use super::{batch_charges, billed_job, is_there, rolled_upto, slot_charges};
use crate::archive::ArchiveReader;
use crate::database::{Database, signed};
use crate::error::JournalError;
use crate::{machine, recover, store};
use forebay_kernel::ids::{JobId, Seq};
use forebay_kernel::machine::StateMachine;
use forebay_kernel::state::billing::{BilledJob, Charge, ChargeKey, LedgerSlot};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::Path;

/// Which charges are asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpendQuery {
    /// From this slot on.
    pub from: LedgerSlot,
    /// Before this slot.
    pub to: LedgerSlot,
    /// Those of batches before this position.
    pub upto: Seq,
    /// Those of this job. `None`: of all, and of nobody.
    pub job: Option<JobId>,
}

impl SpendQuery {
    /// All of it, up to a position.
    #[must_use]
    pub fn all(upto: Seq) -> SpendQuery {
        SpendQuery { from: LedgerSlot(0), to: LedgerSlot(u32::MAX), upto, job: None }
    }

    fn takes(&self, key: &ChargeKey) -> bool {
        key.slot >= self.from && key.slot < self.to && (self.job.is_none() || key.job == self.job)
    }
}

/// What was charged: amounts by what they are for.
pub type SpendTotals = BTreeMap<ChargeKey, i128>;

/// What was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SpendRead {
    /// All that was asked for.
    Found {
        /// What was charged.
        charges: SpendTotals,
        /// Who the jobs are that were charged.
        jobs: BTreeMap<JobId, BilledJob>,
    },
    /// Sums contain more than what was asked for by now: ask again for a later position.
    Passed,
}

/// What some batches have charged, in their order, and who the jobs are.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ChargedBetween {
    /// What was charged.
    pub charges: Vec<Charge>,
    /// Who the jobs are that were charged.
    pub jobs: BTreeMap<JobId, BilledJob>,
}

impl ArchiveReader {
    /// What the batches from one position on and before another have charged. `None`: some of it is in sums by now, with what was charged
    /// before it or after it; [`ArchiveReader::spend`] tells all of it.
    ///
    /// # Errors
    /// The journal cannot be read, or a row is damaged.
    pub fn charged_between(&self, from: Seq, to: Seq) -> Result<Option<ChargedBetween>, JournalError> {
        let db = self.db();
        in_one_view(&db, || between(&db, from, to))
    }

    /// What was charged by the batches before a position.
    ///
    /// # Errors
    /// The journal cannot be read, or a row is damaged.
    pub fn spend(&self, query: &SpendQuery) -> Result<SpendRead, JournalError> {
        let db = self.db();
        in_one_view(&db, || read(&db, query))
    }

    /// Who a job is on a bill: also when it has left the archive. `None`: it never had places.
    ///
    /// # Errors
    /// The journal cannot be read, or the row is damaged.
    pub fn billed_job(&self, job: JobId) -> Result<Option<BilledJob>, JournalError> {
        let db = self.db();
        if is_there(&db)? { job_of(&db, job) } else { Ok(None) }
    }
}

/// A folder as nobody writes it at this instant, or as it is durable by now.
#[derive(Debug)]
pub struct FolderSpend {
    /// The state after the last batch.
    pub machine: StateMachine,
    /// What its batches have charged.
    pub charges: SpendTotals,
    /// Who the jobs are.
    pub jobs: BTreeMap<JobId, BilledJob>,
}

/// Reads a folder's state and everything that it was charged. Nothing is changed; a torn tail is left out.
///
/// # Errors
/// There is no journal, it has another format, or it is damaged.
pub fn read_folder_spend(folder: &Path) -> Result<FolderSpend, JournalError> {
    read_folder(folder, |db, machine| {
        let upto = Seq(machine.counters().next_seq);
        match read(db, &SpendQuery::all(upto))? {
            SpendRead::Found { charges, jobs } => Ok(FolderSpend { machine, charges, jobs }),
            // Sums are made of batches before the last but one snapshot, and these are all before the end.
            SpendRead::Passed => Err(db.damaged(crate::DamagedAt::File, "its bill goes on where its batches end")),
        }
    })
}

/// Reads the state of a folder after its last batch, and what else is in its database, as they are at one instant.
pub(crate) fn read_folder<T>(
    folder: &Path,
    look: impl FnOnce(&Database, StateMachine) -> Result<T, JournalError>,
) -> Result<T, JournalError> {
    let (db, meta) = store::open_folder(folder)?;
    in_one_view(&db, || {
        let mut machine = StateMachine::default();
        recover::read(&db, &meta, &mut |part| machine::apply(&mut machine, part))?;
        look(&db, machine)
    })
}

/// Reads in one transaction: whatever is written meanwhile is not seen.
fn in_one_view<T>(db: &Database, read: impl FnOnce() -> Result<T, JournalError>) -> Result<T, JournalError> {
    let view = db.connection.unchecked_transaction().map_err(|e| db.sqlite(e))?;
    let found = read()?;
    view.finish().map_err(|e| db.sqlite(e))?;
    Ok(found)
}

fn between(db: &Database, from: Seq, to: Seq) -> Result<Option<ChargedBetween>, JournalError> {
    if !is_there(db)? {
        return Ok(Some(ChargedBetween::default()));
    }
    if rolled_upto(db)? > from.0 {
        return Ok(None);
    }
    let sql = "SELECT seq, body, crc32c FROM charges WHERE seq >= ?1 AND seq < ?2 ORDER BY seq";
    let rows = db.rows(sql, [signed(from.0), signed(to.0)], batch_charges)?;
    let charges: Vec<Charge> = rows.into_iter().flatten().collect();
    let ids: BTreeSet<JobId> = charges.iter().filter_map(|charge| charge.key.job).collect();
    let mut jobs = BTreeMap::new();
    for id in ids {
        jobs.extend(job_of(db, id)?.map(|job| (id, job)));
    }
    Ok(Some(ChargedBetween { charges, jobs }))
}

fn read(db: &Database, query: &SpendQuery) -> Result<SpendRead, JournalError> {
    let (mut charges, mut jobs) = (SpendTotals::new(), BTreeMap::new());
    if !is_there(db)? {
        return Ok(SpendRead::Found { charges, jobs });
    }
    if rolled_upto(db)? > query.upto.0 {
        return Ok(SpendRead::Passed);
    }
    let mut add = |found: Vec<Charge>| {
        for Charge { key, amount } in found.into_iter().filter(|charge| query.takes(&charge.key)) {
            *charges.entry(key).or_default() += amount;
        }
        Ok(ControlFlow::Continue(()))
    };
    let (from, to) = (i64::from(query.from.0), i64::from(query.to.0));
    let sql = "SELECT slot, job, body, crc32c FROM spend WHERE slot >= ?1 AND slot < ?2";
    match query.job {
        None => db.each(sql, [from, to], |row| add(slot_charges(row)?))?,
        // Rows of others are passed over by their keys.
        Some(job) => {
            let sql = format!("{sql} AND job = ?3");
            db.each(&sql, [from, to, signed(job.0)], |row| add(slot_charges(row)?))?;
        }
    }
    let sql = "SELECT seq, body, crc32c FROM charges WHERE seq < ?1";
    db.each(sql, [signed(query.upto.0)], |row| add(batch_charges(row)?))?;
    charges.retain(|_, amount| *amount != 0);
    let ids: BTreeSet<JobId> = charges.keys().filter_map(|key| key.job).collect();
    for id in ids {
        jobs.extend(job_of(db, id)?.map(|job| (id, job)));
    }
    Ok(SpendRead::Found { charges, jobs })
}

fn job_of(db: &Database, id: JobId) -> Result<Option<BilledJob>, JournalError> {
    db.row("SELECT id, seq, body, crc32c FROM spend_jobs WHERE id = ?1", [signed(id.0)], billed_job)
}
