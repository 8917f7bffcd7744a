//! Charges of batches that are gone, added up by slot and job.
//!
//! ```text
//! charges before the last but one snapshot, 64 rows at once -> added to the rows of `spend` -> taken out, in the same transaction
//! ```
//!
//! Never: on the driver's thread; charges of a batch that a start could still cut.

use super::{BODY_VERSION, NOBODY, SlotPart, batch_charges, rolled_upto, slot_charges};
use crate::database::{Steps, insert, insert_sealed, signed};
use crate::error::{JournalError, encoding};
use forebay_kernel::state::billing::{Charge, merged};
use std::collections::BTreeMap;

/// Rows of `charges` that one transaction takes: a plan pass charges some 100 bytes to a few KiB.
const ROWS_AT_ONCE: i64 = 64;

/// Adds up the charges of all batches before a position that no start goes back beyond.
///
/// # Errors
/// The journal cannot be read or written, or a row is damaged. What is added up by then stays so.
pub fn roll_up(steps: &Steps<'_>, before: u64) -> Result<(), JournalError> {
    loop {
        let sql = "SELECT seq, body, crc32c FROM charges WHERE seq < ?1 ORDER BY seq LIMIT ?2";
        let rows = steps
            .db
            .rows(sql, [signed(before), ROWS_AT_ONCE], |row| Ok((row.get::<_, i64>(0)?, batch_charges(row)?)))?;
        let Some(last) = rows.last().map(|(seq, _)| *seq) else { return Ok(()) };
        let mut by_row: BTreeMap<(i64, i64), Vec<Charge>> = BTreeMap::new();
        for charge in rows.into_iter().flat_map(|(_, charges)| charges) {
            let job = charge.key.job.map_or(NOBODY, |job| signed(job.0));
            by_row.entry((i64::from(charge.key.slot.0), job)).or_default().push(charge);
        }
        // Nobody else writes these rows: what is read here is what is replaced below.
        let mut bodies = Vec::with_capacity(by_row.len());
        for ((slot, job), charges) in by_row {
            let sql = "SELECT slot, job, body, crc32c FROM spend WHERE slot = ?1 AND job = ?2";
            let before = steps.db.row(sql, [slot, job], slot_charges)?.unwrap_or_default();
            let parts: Vec<SlotPart> = merged(before.into_iter().chain(charges)).into_iter().map(part).collect();
            let body = postcard::to_allocvec(&(BODY_VERSION, parts)).map_err(encoding("what a job was charged"))?;
            bodies.push(([slot, job], body));
        }
        let upto = rolled_upto(steps.db)?.max(last.unsigned_abs() + 1);
        steps.write(|db| {
            let mut forget = db.prepare_cached("DELETE FROM spend WHERE slot = ?1 AND job = ?2")?;
            for (numbers, body) in &bodies {
                forget.execute(*numbers)?;
                insert_sealed(db, "spend", numbers, body)?;
            }
            db.prepare_cached("DELETE FROM charges WHERE seq <= ?1")?.execute([last])?;
            let numbers = [1, signed(upto)];
            let crc = crate::chain::crc(&numbers, &[&[]]);
            insert(db, "INSERT OR REPLACE INTO spend_rolled", &numbers, &[&Vec::new() as &dyn rusqlite::ToSql, &crc])
        })?;
    }
}

fn part(charge: Charge) -> SlotPart {
    let key = charge.key;
    SlotPart {
        attempt: key.attempt,
        kind: key.kind,
        pool: key.pool,
        offering: key.offering,
        price: key.price,
        amount: charge.amount,
    }
}
