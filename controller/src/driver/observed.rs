//! The journal, and who is told what became durable in it and how long that took.
//!
//! ```text
//! batches -> the journal -> durable -> CommitCounts
//! ```
//!
//! Never: counts what was not written; changes what is written.

use crate::metrics::commits::CommitCounts;
use forebay_kernel::ids::Seq;
use forebay_kernel::state::State;
use forebay_kernel::state::retire::FinishedJob;
use forebay_kernel::storage::{
    ArchivedIdentity, BatchLog, FrozenRequests, Journal, JournalEntry, JournalIdentity, Positions,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

/// A journal whose transactions are counted.
pub(super) struct ObservedJournal<J> {
    pub journal: J,
    pub commits: Arc<CommitCounts>,
}

impl<J: Journal> BatchLog for ObservedJournal<J> {
    type Error = J::Error;

    fn append_many(&mut self, entries: &[JournalEntry<'_>]) -> Result<(), J::Error> {
        let began = Instant::now();
        self.journal.append_many(entries)?;
        self.commits.committed(entries.iter().map(|entry| entry.batch), began.elapsed());
        Ok(())
    }
}

impl<J: Journal> Journal for ObservedJournal<J> {
    fn identity(&self) -> JournalIdentity {
        self.journal.identity()
    }

    fn end(&self) -> Seq {
        self.journal.end()
    }

    fn wants_snapshot(&self) -> bool {
        self.journal.wants_snapshot()
    }

    fn begin_snapshot(&mut self, state: &State) -> Result<(), J::Error> {
        self.journal.begin_snapshot(state)
    }

    fn note_finished(&mut self, finished: &[FinishedJob]) {
        self.journal.note_finished(finished);
    }

    fn archived(&self, tenant: &str, subject: &str) -> Result<Option<ArchivedIdentity>, J::Error> {
        self.journal.archived(tenant, subject)
    }

    fn positions(&self) -> &Positions {
        self.journal.positions()
    }

    fn seen(&self) -> Result<Vec<u128>, J::Error> {
        self.journal.seen()
    }

    fn requests(&self) -> Result<FrozenRequests, J::Error> {
        self.journal.requests()
    }

    fn forget_requests(&mut self, open: &BTreeSet<u64>) -> Result<(), J::Error> {
        self.journal.forget_requests(open)
    }

    fn policy_source(&self) -> Result<Option<String>, J::Error> {
        self.journal.policy_source()
    }
}
