//! What the cloud did: purchases and their outcomes, boots, reclaims, prices. They are kept when the batches that had them are gone, for as
//! long as finished jobs are, so that a past time can be played again.
//!
//! ```text
//! batch -> its notes (a row a batch that has any), in the transaction of that batch
//! ```
//!
//! Recovery applies batches again and writes no note: those of a durable batch are durable.
//!
//! Never: anything that the batch does not say; jobs.

use crate::archive;
use crate::background::ROWS_AT_ONCE;
use crate::database::{Database, RowFault, Steps, insert_sealed, sealed, signed};
use crate::error::{DamagedAt, JournalError};
use crate::spend::read_folder;
use crate::{PastPolicy, store};
use forebay_kernel::decision::Decision;
use forebay_kernel::event::{Event, GoneWhy, LaunchError};
use forebay_kernel::ids::{OfferingId, PurchaseId};
use forebay_kernel::journal::Batch;
use forebay_kernel::state::State;
use forebay_kernel::state::retire::FinishedJob;
use forebay_kernel::units::{Rate, Timestamp};
use rusqlite::{Connection, Row};
use serde::{Deserialize, Serialize};
use std::ops::ControlFlow;
use std::path::Path;

/// The version of the bodies that this build writes.
const BODY_VERSION: u32 = 1;

/// Written into every journal: those of this format that were made before get it at their next start.
pub const TABLE: &str = "
    CREATE TABLE IF NOT EXISTS cloud (
        seq INTEGER PRIMARY KEY, tick_ms INTEGER NOT NULL, body BLOB NOT NULL, crc32c INTEGER NOT NULL) STRICT;
";

/// One thing that the cloud did, or was asked for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum CloudNote {
    /// Nodes were asked for.
    Asked {
        /// By which purchase.
        purchase: PurchaseId,
        /// Of what.
        offering: OfferingId,
        /// How many.
        count: u32,
    },
    /// A purchase was answered.
    Answered {
        /// Which.
        purchase: PurchaseId,
        /// What there is now.
        instances: Vec<String>,
        /// Why not all.
        error: Option<LaunchError>,
    },
    /// An instance can take work.
    Ready {
        /// Which.
        instance: String,
    },
    /// The cloud announces that it takes an instance back.
    Reclaiming {
        /// Which.
        instance: String,
    },
    /// An instance is no more.
    Gone {
        /// Which.
        instance: String,
        /// Why.
        why: GoneWhy,
    },
    /// A price moved.
    Priced {
        /// Of what.
        offering: OfferingId,
        /// To what.
        price: Rate,
    },
}

/// The notes of a batch, encoded. `None`: it has none.
pub fn notes_of(batch: &Batch) -> Result<Option<Vec<u8>>, postcard::Error> {
    let notes: Vec<CloudNote> =
        batch.events.iter().filter_map(of_event).chain(batch.decisions.iter().filter_map(of_decision)).collect();
    (!notes.is_empty()).then(|| postcard::to_allocvec(&(BODY_VERSION, notes))).transpose()
}

fn of_event(event: &Event) -> Option<CloudNote> {
    Some(match event {
        Event::LaunchOutcome { purchase, instances, error } => {
            CloudNote::Answered { purchase: *purchase, instances: instances.clone(), error: *error }
        }
        Event::NodeReady { instance } => CloudNote::Ready { instance: instance.clone() },
        Event::ReclaimNotice { instance, .. } => CloudNote::Reclaiming { instance: instance.clone() },
        Event::NodeGone { instance, why } => CloudNote::Gone { instance: instance.clone(), why: *why },
        Event::PriceChanged { offering, price } => CloudNote::Priced { offering: *offering, price: *price },
        _ => return None,
    })
}

fn of_decision(decision: &Decision) -> Option<CloudNote> {
    let Decision::Buy { purchase, offering, count, .. } = decision else { return None };
    Some(CloudNote::Asked { purchase: *purchase, offering: *offering, count: *count })
}

/// Writes the notes of a batch beside it.
pub fn insert(db: &Connection, batch: &Batch, notes: &Vec<u8>) -> rusqlite::Result<()> {
    insert_sealed(db, "cloud", &[signed(batch.first_seq.0), signed(batch.tick.now.0)], notes)
}

/// Takes out the notes of the batches from `seq` on.
pub fn cut(db: &Connection, seq: u64) -> rusqlite::Result<()> {
    db.execute("DELETE FROM cloud WHERE seq >= ?1", [signed(seq)]).map(drop)
}

/// Takes away notes of before an instant.
pub fn forget(steps: &Steps<'_>, before_ms: u64, stopping: &dyn Fn() -> bool) -> Result<(), JournalError> {
    let sql = "DELETE FROM cloud WHERE tick_ms < ?1 AND seq IN (SELECT seq FROM cloud ORDER BY seq LIMIT ?2)";
    let bounds = [signed(before_ms), ROWS_AT_ONCE as i64];
    while !stopping() && steps.write(|db| db.prepare_cached(sql)?.execute(bounds))? == ROWS_AT_ONCE {}
    Ok(())
}

/// Checks every row. Returns how many there are.
///
/// # Errors
/// A row is damaged, or the database cannot be read.
pub fn verify(db: &Database) -> Result<u64, JournalError> {
    let mut rows = 0;
    each(db, &mut |_, _| {
        rows += 1;
        ControlFlow::Continue(())
    })?;
    Ok(rows)
}

/// Hands the notes of every batch over, in order, until `take` breaks off.
pub(crate) fn each(
    db: &Database,
    take: &mut dyn FnMut(Timestamp, Vec<CloudNote>) -> ControlFlow<()>,
) -> Result<(), JournalError> {
    if !store::has_table(db, "cloud")? {
        return Ok(());
    }
    db.each("SELECT seq, tick_ms, body, crc32c FROM cloud ORDER BY seq", [], |row| {
        let (at, notes) = read(row)?;
        Ok(take(at, notes))
    })
}

fn read(row: &Row<'_>) -> Result<(Timestamp, Vec<CloudNote>), RowFault> {
    let damaged = |seq| RowFault::checksum(DamagedAt::Cloud(seq));
    let ([seq, at], body) = sealed(row, |[seq, _]| damaged(seq))?;
    let (version, rest) = postcard::take_from_bytes::<u32>(&body).map_err(|_| damaged(seq))?;
    let notes = (version == BODY_VERSION).then(|| postcard::from_bytes(rest).ok()).flatten();
    Ok((Timestamp(at), notes.ok_or_else(|| damaged(seq))?))
}

/// A part of what a journal knows of the past, in this order.
#[derive(Debug)]
pub enum PastPart<'a> {
    /// The policies that are and were in force, newest first, as far back as their texts are kept.
    Policies(&'a [PastPolicy]),
    /// A job that is over: all that the archive has, as they were accepted.
    Finished(Box<FinishedJob>),
    /// What the cloud did by the batch of that tick.
    Cloud(Timestamp, Vec<CloudNote>),
    /// There is no more.
    End,
}

/// Takes a part of the past. The state is that after the last batch.
pub type TakePast<'a> = dyn FnMut(&State, PastPart<'_>) -> ControlFlow<()> + 'a;

/// Hands over what a folder knows of the past, as it is at one instant; a server may write it meanwhile. One job or batch is in memory at a
/// time beside the state. Ends early where `take` says so.
///
/// # Errors
/// There is no journal, it has another format, or it is damaged.
pub fn read_folder_past(folder: &Path, take: &mut TakePast<'_>) -> Result<(), JournalError> {
    read_folder(folder, |db, machine| {
        let mut ended = take(&machine, PastPart::Policies(&store::sources(db, usize::MAX)?)).is_break();
        let mut go_on = |part: PastPart<'_>| {
            ended = ended || take(&machine, part).is_break();
            if ended { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        archive::each_in_order(db, &mut |job| go_on(PastPart::Finished(Box::new(job.finished))))?;
        each(db, &mut |at, notes| go_on(PastPart::Cloud(at, notes)))?;
        let _ = go_on(PastPart::End);
        Ok(())
    })
}
