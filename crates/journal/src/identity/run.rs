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
use crate::error::{DamagedAt, JournalError};
use crate::store::signed;
use rusqlite::{Connection, OptionalExtension, params};
use serde::{Deserialize, Serialize};
use std::path::Path;
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

    pub fn find(&self, db: &Connection, path: &Path, key: &IdentityKey) -> Result<Option<EarlierJob>, JournalError> {
        for page in self.pages_of(*key) {
            if !self.filters[page as usize].may_have(*key) {
                continue;
            }
            let entries = self.page(db, path, page)?;
            if let Ok(at) = entries.binary_search_by_key(key, |entry| entry.key) {
                return Ok(Some(entries[at].earlier()));
            }
        }
        Ok(None)
    }

    /// The entries of a page, by its number in the run.
    pub fn page(&self, db: &Connection, path: &Path, page: u64) -> Result<Vec<RunEntry>, JournalError> {
        let fail = |e| JournalError::sqlite(path, e);
        let id = signed(self.first_page + page);
        let mut select = db.prepare_cached("SELECT body, crc32c FROM identity_pages WHERE id = ?1").map_err(fail)?;
        let row = select.query_row([id], |row| Ok((row.get::<_, Vec<u8>>(0)?, row.get::<_, i64>(1)?)));
        let at = DamagedAt::Identities { run: self.id, page: page + 1 };
        let damaged = |what: &str| JournalError::damaged(path, at, what);
        let (body, crc) = row.optional().map_err(fail)?.ok_or_else(|| damaged("it is missing"))?;
        if i64::from(chain::crc(&[id], &[&body])) != crc {
            return Err(damaged("its checksum does not agree"));
        }
        postcard::from_bytes(&body).map_err(|_| damaged("it cannot be read"))
    }
}

/// Writes a page. Returns the bytes of its body.
pub fn insert_page(db: &Connection, id: u64, body: &[u8]) -> rusqlite::Result<()> {
    let crc = chain::crc(&[signed(id)], &[body]);
    db.prepare_cached("INSERT INTO identity_pages VALUES (?1, ?2, ?3)")?.execute(params![signed(id), body, crc])?;
    Ok(())
}

/// Writes a part of a run's filters.
pub fn insert_filters(db: &Connection, run: u64, part: u64, body: &[u8]) -> rusqlite::Result<()> {
    let crc = chain::crc(&[signed(run), signed(part)], &[body]);
    let mut insert =
        db.prepare_cached("INSERT INTO identity_filters (run, part, body, crc32c) VALUES (?1, ?2, ?3, ?4)")?;
    insert.execute(params![signed(run), signed(part), body, crc])?;
    Ok(())
}

/// Publishes a run whose pages and filters are written, in the place of others.
pub fn insert_run(db: &Connection, run: &IdentityRun, instead_of: &[u64]) -> rusqlite::Result<()> {
    for id in instead_of {
        db.execute("DELETE FROM identity_runs WHERE id = ?1", [signed(*id)])?;
    }
    let numbers = [run.id, run.first_page, run.pages(), run.entries, run.first_archived, run.last_archived].map(signed);
    let [id, first_page, pages, entries, first_archived, last_archived] = numbers;
    db.execute(
        "INSERT INTO identity_runs VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        params![id, first_page, pages, entries, first_archived, last_archived, chain::crc(&numbers, &[])],
    )?;
    Ok(())
}

/// The runs, oldest first, each following the one before.
pub fn load_runs(db: &Connection, path: &Path) -> Result<Vec<Arc<IdentityRun>>, JournalError> {
    let fail = |e| JournalError::sqlite(path, e);
    let sql = "SELECT id, first_page, pages, entries, first_archived, last_archived, crc32c FROM identity_runs
               ORDER BY last_archived";
    let mut select = db.prepare(sql).map_err(fail)?;
    let mut rows = select.query([]).map_err(fail)?;
    let (mut runs, mut archived) = (Vec::new(), 0);
    while let Some(row) = rows.next().map_err(fail)? {
        let mut numbers = [0i64; 6];
        for (at, number) in numbers.iter_mut().enumerate() {
            *number = row.get(at).map_err(fail)?;
        }
        let crc: i64 = row.get(6).map_err(fail)?;
        let [id, first_page, pages, entries, first_archived, last_archived] = numbers.map(i64::unsigned_abs);
        let damaged = |what| Err(JournalError::damaged(path, DamagedAt::Identities { run: id, page: 0 }, what));
        if i64::from(chain::crc(&numbers, &[])) != crc {
            return damaged("its checksum does not agree");
        }
        if first_archived != archived + 1 {
            return damaged("it does not follow the run before it");
        }
        archived = last_archived;
        let filters = load_filters(db, path, id)?;
        if filters.len() as u64 != pages {
            return damaged("filters of its pages are missing (table identity_filters)");
        }
        runs.push(Arc::new(IdentityRun { id, first_page, entries, first_archived, last_archived, filters }));
    }
    Ok(runs)
}

fn load_filters(db: &Connection, path: &Path, run: u64) -> Result<Vec<PageFilter>, JournalError> {
    let fail = |e| JournalError::sqlite(path, e);
    let sql = "SELECT part, body, crc32c FROM identity_filters WHERE run = ?1 ORDER BY part";
    let mut select = db.prepare_cached(sql).map_err(fail)?;
    let mut rows = select.query([signed(run)]).map_err(fail)?;
    let mut filters = Vec::new();
    while let Some(row) = rows.next().map_err(fail)? {
        let (part, body, crc): (i64, Vec<u8>, i64) =
            (row.get(0).map_err(fail)?, row.get(1).map_err(fail)?, row.get(2).map_err(fail)?);
        let sound = i64::from(chain::crc(&[signed(run), part], &[&body])) == crc;
        let read = postcard::from_bytes::<Vec<PageFilter>>(&body).ok().filter(|_| sound);
        let Some(read) = read else {
            let what = format!("part {part} of its filters is damaged (table identity_filters)");
            return Err(JournalError::damaged(path, DamagedAt::Identities { run, page: 0 }, what));
        };
        filters.extend(read);
    }
    Ok(filters)
}
