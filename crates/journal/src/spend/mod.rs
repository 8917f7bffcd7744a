//! The ledger by whom: what each batch charges, in the transaction of that batch, and sums of it by slot and job once the batch itself is gone.
//!
//! ```text
//! batch -> charges (a row a batch)            may still be cut with their batch
//!            '-- two newer snapshots -->  spend (a row a slot and job)      roll_up.rs, in the background
//! jobs that may be charged -> spend_jobs      who they are, once a job
//! reader: spend + charges before a position, in one read transaction; each charge is in exactly one of the two
//! ```
//!
//! Recovery applies batches again and writes no charge: those of a durable batch are durable.
//!
//! Never: money, names of queues (a reader joins them), a charge twice.

mod read;
mod roll_up;

pub(crate) use read::read_folder;
pub use read::{
    ChargedBetween, FolderSpend, JobSlots, MayGoOn, SpendOfJobs, SpendPart, SpendPlace, SpendQuery, SpendRead,
    SpendTotals, read_folder_spend,
};
pub use roll_up::roll_up;

use crate::database::{Database, RowFault, insert_sealed, sealed, signed};
use crate::error::{DamagedAt, JournalError};
use forebay_kernel::ids::{Attempt, JobId, OfferingId};
use forebay_kernel::state::billing::{BatchCharges, BilledJob, BilledPool, Charge, ChargeKey, ChargeKind, LedgerSlot};
use forebay_kernel::units::Rate;
use rusqlite::{Connection, Row};
use serde::{Deserialize, Serialize};

/// The version of the bodies that this build writes.
const BODY_VERSION: u32 = 1;

/// Written into every journal: those of this format that were made before there was a ledger by whom get them at their next start.
pub const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS charges (seq INTEGER PRIMARY KEY, body BLOB NOT NULL, crc32c INTEGER NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS spend (
        slot INTEGER NOT NULL, job INTEGER NOT NULL, body BLOB NOT NULL, crc32c INTEGER NOT NULL,
        PRIMARY KEY (slot, job)) STRICT, WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS spend_jobs (
        id INTEGER PRIMARY KEY, seq INTEGER NOT NULL, body BLOB NOT NULL, crc32c INTEGER NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS spend_rolled (
        id INTEGER PRIMARY KEY, upto INTEGER NOT NULL, body BLOB NOT NULL, crc32c INTEGER NOT NULL) STRICT;
";

/// Stands for "no job" in `spend`.
const NOBODY: i64 = -1;

/// What a batch charges, encoded.
#[derive(Debug, Default)]
pub struct EncodedCharges {
    charges: Option<Vec<u8>>,
    jobs: Vec<(i64, Vec<u8>)>,
}

impl EncodedCharges {
    /// Encodes what a batch charges.
    ///
    /// # Errors
    /// It cannot be encoded: a fault of this program.
    pub fn of(batch: &BatchCharges) -> Result<EncodedCharges, postcard::Error> {
        let charges = &batch.charges;
        let charges = (!charges.is_empty()).then(|| postcard::to_allocvec(&(BODY_VERSION, charges))).transpose()?;
        let body = |job: &BilledJob| Ok((signed(job.job.0), postcard::to_allocvec(&(BODY_VERSION, job))?));
        Ok(EncodedCharges { charges, jobs: batch.jobs.iter().map(body).collect::<Result<_, postcard::Error>>()? })
    }

    /// Writes it beside its batch.
    pub fn write(&self, db: &Connection, seq: u64) -> rusqlite::Result<()> {
        if let Some(body) = &self.charges {
            insert_sealed(db, "charges", &[signed(seq)], body)?;
        }
        for (job, body) in &self.jobs {
            let known = db.prepare_cached("SELECT 1 FROM spend_jobs WHERE id = ?1")?.exists([job])?;
            // Frozen: what it was when it was first given places.
            if !known {
                insert_sealed(db, "spend_jobs", &[*job, signed(seq)], body)?;
            }
        }
        Ok(())
    }
}

/// Takes out what the batches from `seq` on have charged.
pub fn cut(db: &Connection, seq: u64) -> rusqlite::Result<()> {
    db.execute("DELETE FROM charges WHERE seq >= ?1", [signed(seq)])?;
    db.execute("DELETE FROM spend_jobs WHERE seq >= ?1", [signed(seq)]).map(drop)
}

/// Whether a journal has these tables. One that no start has opened since there is a ledger by whom does not.
pub fn is_there(db: &Database) -> Result<bool, JournalError> {
    Ok(db.number("SELECT count(*) FROM sqlite_master WHERE name = 'spend_rolled'")? == Some(1))
}

/// Checks every row. Returns how many batches and slots with their jobs have charges.
///
/// # Errors
/// A row is damaged, or the database cannot be read.
pub fn verify(db: &Database) -> Result<u64, JournalError> {
    if !is_there(db)? {
        return Ok(0);
    }
    let charges = db.rows("SELECT seq, body, crc32c FROM charges", [], |row| batch_charges(row).map(drop))?;
    let spend = db.rows("SELECT slot, job, body, crc32c FROM spend", [], |row| slot_charges(row).map(drop))?;
    db.rows("SELECT id, seq, body, crc32c FROM spend_jobs", [], |row| billed_job(row).map(drop))?;
    rolled_upto(db)?;
    Ok((charges.len() + spend.len()) as u64)
}

/// The position up to which charges are in `spend`.
fn rolled_upto(db: &Database) -> Result<u64, JournalError> {
    let found = db.row("SELECT id, upto, body, crc32c FROM spend_rolled WHERE id = 1", [], |row| {
        let ([_, upto], _) = sealed(row, |_| RowFault::checksum(DamagedAt::Spend { table: "spend_rolled", row: 1 }))?;
        Ok(upto)
    })?;
    Ok(found.unwrap_or(0))
}

/// The charges in a row of `charges`.
fn batch_charges(row: &Row<'_>) -> Result<Vec<Charge>, RowFault> {
    let damaged = |seq| RowFault::checksum(DamagedAt::Spend { table: "charges", row: seq });
    let ([seq], body) = sealed(row, |[seq]| damaged(seq))?;
    body_of(&body).ok_or_else(|| damaged(seq))
}

/// A part of what a job was charged for in a slot: the rest of a [`ChargeKey`], and the amount.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct SlotPart {
    attempt: Attempt,
    kind: ChargeKind,
    pool: BilledPool,
    offering: OfferingId,
    price: Rate,
    amount: i128,
}

/// The charges in a row of `spend`.
fn slot_charges(row: &Row<'_>) -> Result<Vec<Charge>, RowFault> {
    let at: i64 = row.get(0)?;
    let damaged = || RowFault::checksum(DamagedAt::Spend { table: "spend", row: at.unsigned_abs() });
    let job: i64 = row.get(1)?;
    let (_, body) = sealed::<2>(row, |_| damaged())?;
    let slot = LedgerSlot(u32::try_from(at).map_err(|_| damaged())?);
    let job = u64::try_from(job).ok().map(JobId);
    let parts: Vec<SlotPart> = body_of(&body).ok_or_else(damaged)?;
    let charge = |part: SlotPart| {
        let SlotPart { attempt, kind, pool, offering, price, amount } = part;
        Charge { key: ChargeKey { slot, job, attempt, kind, pool, offering, price }, amount }
    };
    Ok(parts.into_iter().map(charge).collect())
}

/// The job in a row of `spend_jobs`.
fn billed_job(row: &Row<'_>) -> Result<BilledJob, RowFault> {
    let damaged = |id| RowFault::checksum(DamagedAt::Spend { table: "spend_jobs", row: id });
    let ([id, _], body) = sealed(row, |[id, _]| damaged(id))?;
    body_of::<BilledJob>(&body).filter(|job| job.job.0 == id).ok_or_else(|| damaged(id))
}

fn body_of<T: serde::de::DeserializeOwned>(body: &[u8]) -> Option<T> {
    let (version, rest) = postcard::take_from_bytes::<u32>(body).ok()?;
    (version == BODY_VERSION).then(|| postcard::from_bytes(rest).ok())?
}
