//! The kernel's state machine from a journal: on a start, and when a journal is upgraded. Nothing that decides is needed.
//!
//! Never: decides, or applies a batch whose position does not follow.

use crate::acts::ActKind;
use crate::checked::{self, CheckedJournal, GivenUp};
use crate::error::JournalError;
use crate::recover::{RecoveredPart, Recovery};
use crate::{SqliteJournal, StoredChunk};
use forebay_kernel::ids::{Attempt, JobId};
use forebay_kernel::journal::Batch;
use forebay_kernel::machine::StateMachine;
use forebay_kernel::state::freeze::Thaw;
use forebay_kernel::storage::{JournalIdentity, KeptRun};
use std::path::Path;

/// A journal that was opened, and what it says.
#[derive(Debug)]
pub struct RecoveredJournal {
    /// The journal, to be written on.
    pub journal: SqliteJournal,
    /// The state after its last batch.
    pub machine: StateMachine,
    /// What opening it found.
    pub recovery: Recovery,
}

/// A journal that was read and not changed yet, and what it says.
#[derive(Debug)]
pub struct CheckedMachine {
    /// The journal, to be opened.
    pub journal: CheckedJournal,
    /// The state after its last batch.
    pub machine: StateMachine,
}

/// Reads a journal and applies what it says. Nothing is changed.
///
/// # Errors
/// There is no journal, it is in use, of another version, damaged, or a backup.
pub fn check(folder: &Path) -> Result<CheckedMachine, JournalError> {
    let mut machine = StateMachine::default();
    let journal = checked::check(folder, &mut |part| apply(&mut machine, part))?;
    Ok(CheckedMachine { journal, machine })
}

/// Opens a journal and applies what it says.
///
/// # Errors
/// As [`SqliteJournal::open`]: there is no journal, it is in use, of another version, damaged, or shorter than what it acknowledged.
pub fn recover(folder: &Path) -> Result<RecoveredJournal, JournalError> {
    let CheckedMachine { journal, machine } = check(folder)?;
    let (journal, recovery) = journal.open()?;
    Ok(RecoveredJournal { journal, machine, recovery })
}

impl CheckedMachine {
    /// What a start writes down that goes on without what is missing, or from a backup.
    #[must_use]
    pub fn giving_up(&self, kind: ActKind, at_ms: u64, text: String) -> GivenUp {
        giving_up(&self.machine, &self.journal.identity(), GivenUp { kind, at_ms, text, ..GivenUp::none() })
    }
}

/// Completes it with what the state says.
pub(crate) fn giving_up(machine: &StateMachine, identity: &JournalIdentity, given_up: GivenUp) -> GivenUp {
    let kept = |job: JobId, attempt: Attempt| KeptRun { job, attempt, incarnation: identity.of_run(job, attempt) };
    let runs = machine.alive_jobs().map(|(job, _)| kept(job.id, job.attempt)).collect();
    GivenUp { next_purchase: machine.counters().next_purchase, runs, ..given_up }
}

/// Brings the state to where it is after this part.
pub(crate) fn apply(machine: &mut StateMachine, part: RecoveredPart<'_, '_>) -> Result<(), String> {
    match part {
        RecoveredPart::Start => *machine = StateMachine::default(),
        RecoveredPart::Snapshot(chunks) => *machine = thaw(chunks)?,
        RecoveredPart::Batch(batch) => replay(machine, batch)?,
    }
    Ok(())
}

fn thaw(chunks: &mut dyn Iterator<Item = StoredChunk>) -> Result<StateMachine, String> {
    let unreadable = |e| format!("the snapshot cannot be read: {e}");
    let mut thaw = Thaw::default();
    for StoredChunk { id, bytes } in chunks {
        thaw.take(id, &bytes).map_err(unreadable)?;
    }
    thaw.finish().map(StateMachine::from_state).map_err(unreadable)
}

/// Applies a batch that follows.
pub(crate) fn replay(machine: &mut StateMachine, batch: &Batch) -> Result<(), String> {
    machine.replay(batch);
    let (at, expected) = (machine.counters().next_seq, batch.next_seq().0);
    if at == expected { Ok(()) } else { Err(format!("replayed to position #{at} instead of #{expected}")) }
}
