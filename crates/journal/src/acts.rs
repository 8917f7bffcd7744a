//! What was done to a journal by hand, in its table `acts`: made, restored, a loss given up, a time accepted. An act that may have lost
//! records begins an incarnation, from which on no id means what it could have meant before.
//!
//! Never: changes a batch, or is left out of what it explains: act and description are one transaction.

use crate::database::{Database, RowFault, insert_sealed, sealed, signed};
use crate::error::{DamagedAt, JournalError, encoding};
use crate::store;
use forebay_kernel::ids::{Attempt, JobId, Seq};
use forebay_kernel::storage::{JournalEra, KeptRun, MOST_INCARNATION};
use rusqlite::Connection;
use serde::{Deserialize, Serialize};

/// Journals of releases before do not have it; the first start that writes makes it.
pub const TABLE: &str = "
    CREATE TABLE IF NOT EXISTS acts (
        id INTEGER PRIMARY KEY, incarnation INTEGER NOT NULL, begins INTEGER NOT NULL, next_purchase INTEGER NOT NULL,
        at_ms INTEGER NOT NULL, body BLOB NOT NULL, crc32c INTEGER NOT NULL) STRICT;
";

/// 2026-01-01, in minutes since 1970.
const ERA_BEGINS: u64 = 1_767_225_600 / 60;

/// What was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ActKind {
    /// The journal was made, or a release that keeps a mark began to write it.
    Created,
    /// A start went on although something acknowledged was missing.
    LossAccepted,
    /// The journal was made from a backup.
    Restored,
    /// A start took the time of a clock that nothing confirmed.
    TimeAccepted,
}

impl std::fmt::Display for ActKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ActKind::Created => "made",
            ActKind::LossAccepted => "loss accepted",
            ActKind::Restored => "restored",
            ActKind::TimeAccepted => "time accepted",
        })
    }
}

/// Something that was done to a journal by hand.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JournalAct {
    /// What.
    pub kind: ActKind,
    /// When, by the clock of the machine, in ms since 1970.
    pub at_ms: u64,
    /// For people: what was missing, where from.
    pub text: String,
    /// Since when the journal has this incarnation.
    pub era: JournalEra,
}

#[derive(Serialize, Deserialize)]
struct ActBody {
    kind: ActKind,
    text: String,
    runs: Vec<ActRun>,
}

#[derive(Serialize, Deserialize)]
struct ActRun {
    job: u64,
    attempt: u32,
    incarnation: u32,
}

impl JournalAct {
    fn encode(&self) -> Result<Vec<u8>, JournalError> {
        let run = |run: &KeptRun| ActRun { job: run.job.0, attempt: run.attempt.0, incarnation: run.incarnation };
        let runs = self.era.runs.iter().map(run).collect();
        let body = ActBody { kind: self.kind, text: self.text.clone(), runs };
        postcard::to_allocvec(&body).map_err(encoding("an act"))
    }

    /// Writes it.
    pub(crate) fn prepare(
        &self,
        db: &Database,
    ) -> Result<impl Fn(&Connection) -> rusqlite::Result<()> + use<>, JournalError> {
        let body = self.encode()?;
        let id = if has_table(db)? { db.next_id("acts")? } else { 1 };
        let JournalEra { incarnation, begins, next_purchase, .. } = self.era;
        let numbers = [id, incarnation.into(), begins.0, next_purchase, self.at_ms].map(signed);
        Ok(move |all: &Connection| {
            all.execute_batch(TABLE)?;
            insert_sealed(all, "acts", &numbers, &body)
        })
    }
}

/// All acts, oldest first. None in a journal that no release has written yet that knows them.
pub fn load(db: &Database) -> Result<Vec<JournalAct>, JournalError> {
    if !has_table(db)? {
        return Ok(Vec::new());
    }
    let sql = "SELECT id, incarnation, begins, next_purchase, at_ms, body, crc32c FROM acts ORDER BY id";
    db.rows(sql, [], |row| {
        let damaged = |id| RowFault::checksum(DamagedAt::Act(id));
        let ([id, incarnation, begins, next_purchase, at_ms], body) = sealed::<5>(row, |[id, ..]| damaged(id))?;
        let body = postcard::from_bytes::<ActBody>(&body).map_err(|_| damaged(id))?;
        let run =
            |run: ActRun| KeptRun { job: JobId(run.job), attempt: Attempt(run.attempt), incarnation: run.incarnation };
        let era = JournalEra {
            incarnation: u32::try_from(incarnation).map_err(|_| damaged(id))?,
            begins: Seq(begins),
            next_purchase,
            runs: body.runs.into_iter().map(run).collect(),
        };
        Ok(JournalAct { kind: body.kind, at_ms, text: body.text, era })
    })
}

fn has_table(db: &Database) -> Result<bool, JournalError> {
    store::has_table(db, "acts")
}

/// The incarnations that acts have begun, in order.
pub fn eras(acts: &[JournalAct]) -> Vec<JournalEra> {
    let mut eras: Vec<JournalEra> = Vec::new();
    for JournalAct { era, .. } in acts {
        if eras.last().is_none_or(|last| last.incarnation < era.incarnation) {
            eras.push(era.clone());
        }
    }
    eras
}

/// The number of the next incarnation: greater than every one that is known, and than those that were begun elsewhere from the same
/// backup before this minute.
#[must_use]
pub fn next_incarnation(known: u32, now_ms: u64) -> u32 {
    let minutes = (now_ms / 60_000).saturating_sub(ERA_BEGINS);
    let minutes = u32::try_from(minutes).unwrap_or(MOST_INCARNATION);
    known.saturating_add(1).max(minutes).min(MOST_INCARNATION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incarnation_is_greater_than_all_before_it_whatever_the_clock_says() {
        for (known, now_ms, next) in [
            (0, 0, 1),
            (0, 1_767_225_600_000 + 59_999, 1),
            (0, 1_767_225_600_000 + 120_000, 2),
            (7, 1_767_225_600_000, 8),
            (0, u64::MAX, MOST_INCARNATION),
            (3, 1_793_000_000_000, 429_573),
        ] {
            assert_eq!(next_incarnation(known, now_ms), next, "{known} {now_ms}");
        }
    }
}
