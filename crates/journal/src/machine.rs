//! The kernel's state machine from a journal: on a start, and when a journal is upgraded. Nothing that decides is needed.
//!
//! Never: decides, or applies a batch whose position does not follow.

use crate::error::JournalError;
use crate::recover::{RecoveredPart, Recovery};
use crate::{SqliteJournal, StoredChunk};
use forebay_kernel::journal::Batch;
use forebay_kernel::machine::StateMachine;
use forebay_kernel::state::freeze::Thaw;
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

/// Opens a journal and applies what it says.
///
/// # Errors
/// As [`SqliteJournal::open`]: there is no journal, it is in use, of another version, or damaged.
pub fn recover(folder: &Path) -> Result<RecoveredJournal, JournalError> {
    let mut machine = StateMachine::default();
    let (journal, recovery) = SqliteJournal::open(folder, &mut |part| apply(&mut machine, part))?;
    Ok(RecoveredJournal { journal, machine, recovery })
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
