//! Small transactions of the background, each in its turn.
//!
//! Never: a transaction that a batch would wait long for. Whoever calls keeps each below some 1 MiB.

use crate::error::JournalError;
use crate::turns::WriteTurns;
use rusqlite::{Connection, TransactionBehavior};
use std::path::Path;

/// A connection that writes in the background.
pub struct Steps<'a> {
    pub db: &'a Connection,
    pub path: &'a Path,
    pub turns: &'a WriteTurns,
}

impl Steps<'_> {
    /// One transaction, when it is its turn.
    pub fn write<T>(&self, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, JournalError> {
        let turn = self.turns.background();
        let all = rusqlite::Transaction::new_unchecked(self.db, TransactionBehavior::Immediate);
        let done = all.and_then(|all| {
            let done = work(&all)?;
            all.commit()?;
            Ok(done)
        });
        drop(turn);
        done.map_err(|e| self.fail(e))
    }

    pub fn fail(&self, source: rusqlite::Error) -> JournalError {
        JournalError::sqlite(self.path, source)
    }

    pub fn encoding(&self, what: &'static str, source: postcard::Error) -> JournalError {
        JournalError::Encoding { what, source }
    }
}
