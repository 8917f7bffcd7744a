//! The journal as the kernel's traits have it: what the live loop needs, and nothing of SQLite.
//!
//! Never: a rule of its own. Each method is one of the journal's.

use crate::{JournalError, Positions, SqliteJournal};
use forebay_kernel::ids::Seq;
use forebay_kernel::state::State;
use forebay_kernel::state::retire::FinishedJob;
use forebay_kernel::storage::{
    ArchivedIdentity, BatchLog, FrozenRequests, JobOwner, Journal, JournalEntry, JournalIdentity, StorageFailure,
};
use std::collections::BTreeSet;

impl StorageFailure for JournalError {
    fn is_full(&self) -> bool {
        JournalError::is_full(self)
    }

    fn is_for_the_caller(&self) -> bool {
        self.exit_code() == 2
    }
}

impl BatchLog for SqliteJournal {
    type Error = JournalError;

    fn append_many(&mut self, entries: &[JournalEntry<'_>]) -> Result<(), JournalError> {
        SqliteJournal::append_many(self, entries)
    }
}

impl Journal for SqliteJournal {
    fn identity(&self) -> JournalIdentity {
        JournalIdentity { id: self.meta().id(), created_ms: self.meta().created_ms }
    }

    fn end(&self) -> Seq {
        SqliteJournal::end(self)
    }

    fn wants_snapshot(&self) -> bool {
        SqliteJournal::wants_snapshot(self)
    }

    fn begin_snapshot(&mut self, state: &State) -> Result<(), JournalError> {
        SqliteJournal::begin_snapshot(self, Box::new(state.freeze().into_chunks()))
    }

    fn note_finished(&mut self, finished: &[FinishedJob]) {
        SqliteJournal::note_finished(self, finished);
    }

    fn archived(&self, tenant: &str, subject: &str) -> Result<Option<ArchivedIdentity>, JournalError> {
        let Some(earlier) = SqliteJournal::identity(self, tenant, subject)? else { return Ok(None) };
        // Beyond the archive's retention nobody knows any more whose it was.
        let owner = self.archive_reader()?.finished(earlier.job)?.map(|archived| {
            let spec = archived.finished.spec;
            JobOwner { principal: spec.principal.clone(), queue: spec.queue.clone() }
        });
        Ok(Some(ArchivedIdentity { earlier, owner }))
    }

    fn positions(&self) -> &Positions {
        SqliteJournal::positions(self)
    }

    fn seen(&self) -> Result<Vec<u128>, JournalError> {
        SqliteJournal::seen(self)
    }

    fn requests(&self) -> Result<FrozenRequests, JournalError> {
        SqliteJournal::requests(self)
    }

    fn forget_requests(&mut self, open: &BTreeSet<u64>) -> Result<(), JournalError> {
        SqliteJournal::forget_requests(self, open)
    }

    fn policy_source(&self) -> Result<Option<String>, JournalError> {
        SqliteJournal::policy_source(self)
    }
}
