//! A sorted run of identities: pages on disk, and for each its first key and a filter in memory.
//!
//! ```text
//! identity_pages    some 85 entries in key order, 4,000 bytes: one row fills one page of the file
//! identity_filters  for up to 1,024 pages: first key (8 bytes) and filter (112 bytes) of each
//! ```
//!
//! Never: changes. A merge writes another run.

use super::{EarlierJob, IdentityKey};
use crate::chain;
use crate::database::{Database, RowFault, insert, insert_sealed, numbers, sealed, signed};
use crate::error::{DamagedAt, JournalError};
use rusqlite::Connection;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Bytes of a page's body at most. SQLite keeps a row of up to 4,061 bytes in one page of 4,096.
pub const PAGE_BYTES: usize = 4_000;

/// Pages whose filters stand in one row: some 120 KiB.
pub const PAGES_A_PART: usize = 1_024;

/// A filter: 896 bits for some 85 keys. With 7 bits a key, one of 120 that are not there passes.
const FILTER_WORDS: usize = 14;
const FILTER_BITS: u64 = FILTER_WORDS as u64 * 64;
const BITS_A_KEY: u64 = 7;

/// An identity in a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RunEntry {
    pub key: IdentityKey,
    pub digest: [u8; 16],
    pub job: forebay_kernel::ids::JobId,
    pub sent: Option<forebay_kernel::units::Timestamp>,
    pub service: bool,
}

impl RunEntry {
    pub fn new(key: IdentityKey, earlier: EarlierJob) -> RunEntry {
        let EarlierJob { job, digest, sent, service } = earlier;
        RunEntry { key, digest: digest.to_le_bytes(), job, sent, service }
    }

    fn earlier(&self) -> EarlierJob {
        let RunEntry { job, digest, sent, service, .. } = *self;
        EarlierJob { job, digest: u128::from_le_bytes(digest), sent, service }
    }
}

/// What is in memory of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PageFilter {
    first: u64,
    bits: [u64; FILTER_WORDS],
}

impl PageFilter {
    /// Of entries in key order.
    pub fn of(entries: &[RunEntry]) -> PageFilter {
        let mut filter = PageFilter { first: entries.first().map_or(0, |e| e.key.high()), bits: [0; FILTER_WORDS] };
        for entry in entries {
            for bit in bits(entry.key) {
                filter.bits[bit / 64] |= 1 << (bit % 64);
            }
        }
        filter
    }

    fn may_have(&self, key: IdentityKey) -> bool {
        bits(key).all(|bit| self.bits[bit / 64] & 1 << (bit % 64) != 0)
    }
}

/// The bits of a key: the second half of the hash, which no order depends on, 9 bits and a half at a time.
fn bits(key: IdentityKey) -> impl Iterator<Item = usize> {
    let (low, step) = (key.low(), key.low().rotate_left(32) | 1);
    (0..BITS_A_KEY).map(move |n| (low.wrapping_add(step.wrapping_mul(n)) >> 16) % FILTER_BITS).map(|bit| bit as usize)
}

/// A run and what is in memory of it.
#[derive(Debug)]
pub struct IdentityRun {
    pub id: u64,
    pub first_page: u64,
    pub entries: u64,
    pub first_archived: u64,
    pub last_archived: u64,
    pub filters: Vec<PageFilter>,
}

impl IdentityRun {
    pub fn pages(&self) -> u64 {
        self.filters.len() as u64
    }

    /// The pages that a key may be in: one, or two where the first halves of two keys are the same.
    pub fn pages_of(&self, key: IdentityKey) -> impl Iterator<Item = u64> + '_ {
        let after = self.filters.partition_point(|page| page.first <= key.high());
        let before = self.filters[..after].iter().rev().take_while(move |page| page.first == key.high()).count();
        (after.saturating_sub(before + 1)..after).map(|page| page as u64)
    }

    pub fn find(&self, db: &Database, key: &IdentityKey) -> Result<Option<EarlierJob>, JournalError> {
        for page in self.pages_of(*key) {
            if !self.filters[page as usize].may_have(*key) {
                continue;
            }
            let entries = self.page(db, page)?;
            if let Ok(at) = entries.binary_search_by_key(key, |entry| entry.key) {
                return Ok(Some(entries[at].earlier()));
            }
        }
        Ok(None)
    }

    /// The entries of a page, by its number in the run.
    pub fn page(&self, db: &Database, page: u64) -> Result<Vec<RunEntry>, JournalError> {
        let sql = "SELECT id, body, crc32c FROM identity_pages WHERE id = ?1";
        let at = DamagedAt::Identities { run: self.id, page: page + 1 };
        let id = signed(self.first_page + page);
        let found = db.row(sql, [id], |row| sealed::<1>(row, |_| RowFault::checksum(at)))?;
        let (_, body) = found.ok_or_else(|| db.damaged(at, "it is missing"))?;
        postcard::from_bytes(&body).map_err(|_| db.damaged(at, "it cannot be read"))
    }
}

/// Writes a page.
pub fn insert_page(db: &Connection, id: u64, body: &[u8]) -> rusqlite::Result<()> {
    insert_sealed(db, "identity_pages", &[signed(id)], &body)
}

/// Writes a part of a run's filters.
pub fn insert_filters(db: &Connection, run: u64, part: u64, body: &[u8]) -> rusqlite::Result<()> {
    insert_sealed(db, "identity_filters (run, part, body, crc32c)", &[signed(run), signed(part)], &body)
}

/// Publishes a run whose pages and filters are written, in the place of others.
pub fn insert_run(db: &Connection, run: &IdentityRun, instead_of: &[u64]) -> rusqlite::Result<()> {
    for id in instead_of {
        db.execute("DELETE FROM identity_runs WHERE id = ?1", [signed(*id)])?;
    }
    let numbers = [run.id, run.first_page, run.pages(), run.entries, run.first_archived, run.last_archived].map(signed);
    insert(db, "INSERT INTO identity_runs", &numbers, &[&chain::crc(&numbers, &[])])
}

/// The runs, oldest first, each following the one before.
pub fn load_runs(db: &Database) -> Result<Vec<Arc<IdentityRun>>, JournalError> {
    let sql = "SELECT id, first_page, pages, entries, first_archived, last_archived, crc32c FROM identity_runs
               ORDER BY last_archived";
    let rows = db.rows(sql, [], |row| Ok((numbers::<6>(row)?, row.get::<_, i64>(6)?)))?;
    let (mut runs, mut archived) = (Vec::new(), 0);
    for (numbers, crc) in rows {
        let [id, first_page, pages, entries, first_archived, last_archived] = numbers.map(i64::unsigned_abs);
        let damaged = |what| Err(db.damaged(DamagedAt::Identities { run: id, page: 0 }, what));
        if i64::from(chain::crc(&numbers, &[])) != crc {
            return damaged("its checksum does not agree");
        }
        if first_archived != archived + 1 {
            return damaged("it does not follow the run before it");
        }
        archived = last_archived;
        let filters = load_filters(db, id)?;
        if filters.len() as u64 != pages {
            return damaged("filters of its pages are missing (table identity_filters)");
        }
        runs.push(Arc::new(IdentityRun { id, first_page, entries, first_archived, last_archived, filters }));
    }
    Ok(runs)
}

fn load_filters(db: &Database, run: u64) -> Result<Vec<PageFilter>, JournalError> {
    let sql = "SELECT run, part, body, crc32c FROM identity_filters WHERE run = ?1 ORDER BY part";
    let parts = db.rows(sql, [signed(run)], |row| {
        let damaged = |part: u64| {
            let what = format!("part {part} of its filters is damaged (table identity_filters)");
            RowFault::damaged(DamagedAt::Identities { run, page: 0 }, what)
        };
        let ([_, part], body) = sealed(row, |[_, part]| damaged(part))?;
        postcard::from_bytes::<Vec<PageFilter>>(&body).map_err(|_| damaged(part))
    })?;
    Ok(parts.concat())
}
