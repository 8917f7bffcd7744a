//! A journal in memory, with the bytes of a real one: encoded batches, each with a link of the hash chain, and snapshots.
//! Recovery decodes and replays; nothing of the live engine survives it.
//!
//! ```text
//! snapshot + [link | bytes | charges] [link | bytes | charges] ...  ->  recover  ->  Engine
//! ```
//!
//! As a real journal does, it keeps beside each batch what that charges. A replay has to charge the same: recovery compares.
//!
//! Never: durable. Never repairs: a damaged last record is cut and counted, damage before it is an error.

use forebay_driver::journal::{BatchLog, JournalEntry};
use forebay_engine::engine::Engine;
use forebay_kernel::ids::Seq;
use forebay_kernel::journal::Batch;
use forebay_kernel::state::billing::BatchCharges;

/// One journaled batch.
#[derive(Clone, Debug)]
struct Record {
    bytes: Vec<u8>,
    link: [u8; 32],
    /// What it charged when it was planned.
    charges: BatchCharges,
}

/// The journal.
#[derive(Clone, Debug, Default)]
pub struct MemoryJournal {
    snapshot: Option<Vec<u8>>,
    /// Link of the last record before the first one kept.
    root: [u8; 32],
    records: Vec<Record>,
    link: [u8; 32],
    /// How many finished jobs the journaled engine keeps. `None`: as many as every engine.
    keeps_finished: Option<u32>,
}

/// Why a journal could not be read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum MemoryError {
    /// A record before the last one is damaged.
    #[error("record {at} of {records} is damaged: its link does not match")]
    Damaged {
        /// Which one, from 0.
        at: usize,
        /// How many there are.
        records: usize,
    },
    /// A batch cannot be encoded.
    #[error("a batch cannot be encoded: a fault of this program")]
    Unencodable,
    /// A record's bytes are sound but are no batch of this version.
    #[error("record {at} is no batch that this version understands")]
    Undecodable {
        /// Which one, from 0.
        at: usize,
    },
    /// A record does not follow the one before it.
    #[error("record {at} begins at {found}, the one before it ends at {expected}: a batch is missing")]
    Gap {
        /// Which one, from 0.
        at: usize,
        /// Where it should begin.
        expected: Seq,
        /// Where it begins.
        found: Seq,
    },
    /// The snapshot cannot be read.
    #[error("the snapshot cannot be read")]
    Snapshot,
    /// A batch charges something else when it is replayed.
    #[error("record {at} charges {replayed} when it is replayed, it was journaled with {journaled}")]
    Charges {
        /// Which one, from 0.
        at: usize,
        /// What was journaled.
        journaled: String,
        /// What the replay made of it.
        replayed: String,
    },
}

/// What a recovery found.
#[derive(Debug)]
pub struct Recovered {
    /// The engine as the journal has it.
    pub engine: Engine,
    /// Batches that were replayed.
    pub replayed: usize,
    /// Whether a torn last record was cut.
    pub cut: bool,
}

impl MemoryJournal {
    /// An empty journal.
    #[must_use]
    pub fn new() -> MemoryJournal {
        MemoryJournal::default()
    }

    /// An empty journal for an engine that keeps so many finished jobs.
    #[must_use]
    pub fn keeping_finished(jobs: u32) -> MemoryJournal {
        MemoryJournal { keeps_finished: Some(jobs), ..MemoryJournal::default() }
    }

    /// An engine that knows nothing, as the first batch of this journal finds it.
    #[must_use]
    pub fn new_engine(&self) -> Engine {
        self.keeps_finished.map_or_else(Engine::new, Engine::keeping_finished)
    }

    /// Batches since the last snapshot.
    #[must_use]
    pub fn tail(&self) -> usize {
        self.records.len()
    }

    /// Keeps a snapshot of the state as it is after the last batch, so that recovery begins there. The batches before it go.
    pub fn snapshot(&mut self, state: Vec<u8>) {
        self.snapshot = Some(state);
        self.root = self.link;
        self.records.clear();
    }

    /// Puts an engine together from the snapshot and the batches after it.
    ///
    /// # Errors
    /// Damage before the last record, gaps, and batches that charge something else than they did: see [`MemoryError`].
    pub fn recover(&mut self) -> Result<Recovered, MemoryError> {
        let cut = self.cut_torn()?;
        let mut engine = match &self.snapshot {
            Some(bytes) => Engine::restore(bytes).map_err(|_| MemoryError::Snapshot)?,
            None => self.new_engine(),
        };
        for (at, record) in self.records.iter().enumerate() {
            let batch = Batch::decode(&record.bytes).map_err(|_| MemoryError::Undecodable { at })?;
            let expected = Seq(engine.state().counters().next_seq);
            if batch.first_seq != expected {
                return Err(MemoryError::Gap { at, expected, found: batch.first_seq });
            }
            engine.replay(&batch);
            let charged = engine.state().charged();
            if charged != record.charges {
                let (journaled, replayed) = (format!("{:?}", record.charges), format!("{charged:?}"));
                return Err(MemoryError::Charges { at, journaled, replayed });
            }
        }
        Ok(Recovered { engine, replayed: self.records.len(), cut })
    }

    /// For tests and faults: as if the process had died while it wrote `batch`. `keep` of 1000 bytes were written.
    pub fn tear(&mut self, batch: &Batch, keep_permille: u16) {
        let Ok(mut bytes) = batch.encode() else { return };
        let link = next_link(&self.link, &bytes);
        bytes.truncate(bytes.len() * usize::from(keep_permille.min(999)) / 1000);
        self.records.push(Record { bytes, link, charges: BatchCharges::default() });
    }

    /// For tests: flips a bit of a record.
    pub fn damage(&mut self, at: usize) {
        if let Some(byte) = self.records.get_mut(at).and_then(|r| r.bytes.first_mut()) {
            *byte ^= 1;
        }
    }

    /// Checks every record; a damaged last one is cut.
    fn cut_torn(&mut self) -> Result<bool, MemoryError> {
        let mut link = self.root;
        let records = self.records.len();
        for at in 0..records {
            let record = &self.records[at];
            let sound = next_link(&link, &record.bytes) == record.link;
            if !sound && at + 1 < records {
                return Err(MemoryError::Damaged { at, records });
            }
            if !sound {
                self.records.truncate(at);
                self.link = link;
                return Ok(true);
            }
            link = record.link;
        }
        Ok(false)
    }
}

impl BatchLog for MemoryJournal {
    type Error = MemoryError;

    /// Keeps the batches and what they charge only: positions, ids and requests are of no use to a world that is simulated.
    fn append_many(&mut self, entries: &[JournalEntry<'_>]) -> Result<(), MemoryError> {
        for entry in entries {
            let bytes = entry.batch.encode().map_err(|_| MemoryError::Unencodable)?;
            self.link = next_link(&self.link, &bytes);
            self.records.push(Record { bytes, link: self.link, charges: entry.charges.clone() });
        }
        Ok(())
    }
}

/// The bytes of an engine's state. A state that cannot be encoded is a fault of the program, which no simulation goes on with.
#[must_use]
pub fn state_bytes(engine: &Engine) -> Vec<u8> {
    match engine.snapshot() {
        Ok(bytes) => bytes,
        Err(e) => panic!("the state cannot be encoded: {e}"),
    }
}

fn next_link(link: &[u8; 32], bytes: &[u8]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(link);
    hasher.update(bytes);
    *hasher.finalize().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_driver::step::BatchStep;
    use forebay_kernel::event::Tick;
    use forebay_kernel::units::Timestamp;

    fn step(engine: &mut Engine, now: u64) -> Batch {
        let planned = BatchStep::open(engine, Tick { now: Timestamp(now), resumed: false, delivered: 0 }).plan();
        planned.batch().clone()
    }

    fn three() -> MemoryJournal {
        let (mut engine, mut journal) = (Engine::new(), MemoryJournal::new());
        for now in [1, 2, 3] {
            journal.append(&step(&mut engine, now)).unwrap();
        }
        journal
    }

    #[test]
    fn a_torn_tail_is_cut_and_said() {
        let mut journal = three();
        let mut engine = journal.recover().unwrap().engine;
        let before = state_bytes(&engine);
        journal.tear(&step(&mut engine, 9), 500);
        let again = journal.recover().unwrap();
        assert!(again.cut);
        assert_eq!(state_bytes(&again.engine), before);
        assert!(!journal.recover().unwrap().cut, "it is cut once");
    }

    #[test]
    fn damage_in_the_middle_is_an_error_that_names_it() {
        let mut journal = three();
        journal.damage(1);
        assert_eq!(journal.recover().unwrap_err(), MemoryError::Damaged { at: 1, records: 3 });
    }

    #[test]
    fn a_batch_that_charges_something_else_when_it_is_replayed_is_found() {
        let mut journal = three();
        journal.records[1].charges.jobs.push(forebay_kernel::state::billing::BilledJob::default());
        assert!(matches!(journal.recover(), Err(MemoryError::Charges { at: 1, .. })));
    }

    #[test]
    fn recovery_begins_at_the_snapshot() {
        let mut journal = three();
        let bytes = state_bytes(&journal.recover().unwrap().engine);
        journal.snapshot(bytes.clone());
        assert_eq!(journal.tail(), 0);
        let again = journal.recover().unwrap();
        assert_eq!((again.replayed, state_bytes(&again.engine)), (0, bytes));
    }
}
