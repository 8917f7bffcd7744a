//! Recent identities become a run; runs of like size become one. In small steps, so that no batch waits for it.
//!
//! ```text
//! recent + runs that are at most twice as large as what is merged with them, newest first -> pages -> filters -> published at once
//! ```
//!
//! So each run is more than twice as large as all after it, and an identity is written again once each time their number doubles.
//!
//! Never: touches a run that is in use. Its pages go once another has taken its place.

use super::run::{
    IdentityRun, PAGE_BYTES, PAGES_A_PART, PageFilter, RunEntry, insert_filters, insert_page, insert_run,
};
use super::{IdentityIndex, IdentityKey};
use crate::database::{Steps, signed};
use crate::error::{JournalError, encoding};
use rusqlite::params;
use std::sync::Arc;

/// So many recent identities become a run: a start reads their rows of the archive, some 30 ms.
const MOST_RECENT: u64 = 16_384;

/// Pages that are written or taken away in one transaction: 256 KiB.
const PAGES_AT_ONCE: usize = 64;

/// Whether enough jobs are over since the last merge. `archived`: the last row of the archive.
pub fn wants_merge(index: &IdentityIndex, archived: u64) -> bool {
    archived.saturating_sub(index.runs().last_archived()) >= MOST_RECENT
}

/// Merges the recent identities up to row `archived` of the archive into the runs.
///
/// # Errors
/// When SQLite refuses a read or a write. What was written of the new run is unused then, and forgotten at the next start.
pub fn merge(steps: &Steps<'_>, index: &IdentityIndex, archived: u64) -> Result<(), JournalError> {
    let before = index.runs();
    let first_archived = before.last_archived() + 1;
    if archived < first_archived {
        return Ok(());
    }
    let mut entries: Vec<RunEntry> = {
        let recent = index.recent();
        let written = recent.iter().filter_map(|(key, recent)| Some((key, recent.written?)));
        // What is in a run already is known in memory alone since.
        let new = written.filter(|(_, (_, row))| (first_archived..=archived).contains(row));
        new.map(|(key, (job, _))| RunEntry::new(*key, job)).collect()
    };
    entries.sort_unstable_by_key(|entry| entry.key);
    let mut size = entries.len() as u64;
    let mut kept = before.list.len();
    while let Some(run) = kept.checked_sub(1).map(|last| &before.list[last]).filter(|run| run.entries <= 2 * size) {
        size += run.entries;
        kept -= 1;
    }
    let (kept, merged) = before.list.split_at(kept);
    let mut sources = vec![Source::of(entries)];
    sources.extend(merged.iter().rev().map(|run| Source { run: Some(Arc::clone(run)), ..Source::default() }));
    let first_archived = merged.first().map_or(first_archived, |run| run.first_archived);
    let run = write_run(steps, sources, first_archived, archived)?;
    let old: Vec<u64> = merged.iter().map(|run| run.id).collect();
    steps.write(|db| insert_run(db, &run, &old))?;
    let list = kept.iter().cloned().chain([Arc::new(run)]).collect();
    index.replace_runs(list);
    for run in merged {
        forget_pages(steps, run.first_page, run.first_page + run.pages())?;
        forget_filters(steps)?;
    }
    Ok(())
}

/// Where entries come from, in key order.
#[derive(Default)]
struct Source {
    run: Option<Arc<IdentityRun>>,
    next_page: u64,
    entries: std::vec::IntoIter<RunEntry>,
    head: Option<RunEntry>,
}

impl Source {
    fn of(entries: Vec<RunEntry>) -> Source {
        Source { entries: entries.into_iter(), ..Source::default() }
    }

    fn fill(&mut self, steps: &Steps<'_>) -> Result<(), JournalError> {
        while self.head.is_none() {
            self.head = self.entries.next();
            let Some(run) = self.run.as_ref().filter(|run| self.head.is_none() && self.next_page < run.pages()) else {
                break;
            };
            self.entries = run.page(steps.db, self.next_page)?.into_iter();
            self.next_page += 1;
        }
        Ok(())
    }
}

/// The entry of the least key; of several with that key the newest, which is the first source's.
fn next(steps: &Steps<'_>, sources: &mut [Source]) -> Result<Option<RunEntry>, JournalError> {
    for source in sources.iter_mut() {
        source.fill(steps)?;
    }
    let heads = sources.iter().filter_map(|source| source.head);
    let Some(least) = heads.min_by_key(|entry| entry.key) else { return Ok(None) };
    // `min_by_key` gives the first of equals.
    sources
        .iter_mut()
        .filter(|source| source.head.is_some_and(|head| head.key == least.key))
        .for_each(|s| s.head = None);
    Ok(Some(least))
}

fn write_run(
    steps: &Steps<'_>,
    mut sources: Vec<Source>,
    first_archived: u64,
    last_archived: u64,
) -> Result<IdentityRun, JournalError> {
    let (first_page, id) = (steps.db.next_id("identity_pages")?, steps.db.next_id("identity_runs")?);
    let mut run = IdentityRun { id, first_page, entries: 0, first_archived, last_archived, filters: Vec::new() };
    let mut page = PageInProgress::default();
    let mut pages: Vec<Vec<u8>> = Vec::new();
    loop {
        let entry = next(steps, &mut sources)?;
        let full = entry.is_none_or(|entry| page.bytes + bytes_of(&entry) > PAGE_BYTES);
        if full && !page.entries.is_empty() {
            run.filters.push(PageFilter::of(&page.entries));
            run.entries += page.entries.len() as u64;
            pages.push(postcard::to_allocvec(&page.entries).map_err(encoding("a page"))?);
            page = PageInProgress::default();
        }
        if pages.len() >= PAGES_AT_ONCE || (entry.is_none() && !pages.is_empty()) {
            let from = run.first_page + run.pages() - pages.len() as u64;
            steps.write(|db| (from..).zip(&pages).try_for_each(|(id, body)| insert_page(db, id, body)))?;
            pages.clear();
        }
        let Some(entry) = entry else { break };
        page.bytes += bytes_of(&entry);
        page.entries.push(entry);
    }
    for (filters, part) in run.filters.chunks(PAGES_A_PART).zip(0..) {
        let body = postcard::to_allocvec(filters).map_err(encoding("filters"))?;
        steps.write(|db| insert_filters(db, id, part, &body))?;
    }
    Ok(run)
}

#[derive(Default)]
struct PageInProgress {
    entries: Vec<RunEntry>,
    /// Of the entries. Their number before them takes 1 or 2 bytes, for which a page has room.
    bytes: usize,
}

/// Bytes of an entry as postcard writes it.
fn bytes_of(entry: &RunEntry) -> usize {
    let varint = |n: u64| (64 - n.max(1).leading_zeros() as usize).div_ceil(7);
    let IdentityKey(key) = entry.key;
    key.len() + entry.digest.len() + varint(entry.job.0) + entry.sent.map_or(1, |at| 1 + varint(at.0)) + 1
}

fn forget_pages(steps: &Steps<'_>, from: u64, before: u64) -> Result<(), JournalError> {
    for at in (from..before).step_by(PAGES_AT_ONCE) {
        let to = before.min(at + PAGES_AT_ONCE as u64);
        let sql = "DELETE FROM identity_pages WHERE id >= ?1 AND id < ?2";
        steps.write(|db| db.prepare_cached(sql)?.execute(params![signed(at), signed(to)]).map(|_| ()))?;
    }
    Ok(())
}

/// Filters of runs that are no more, a part at a time.
fn forget_filters(steps: &Steps<'_>) -> Result<(), JournalError> {
    let sql = "DELETE FROM identity_filters WHERE id IN
               (SELECT id FROM identity_filters WHERE run NOT IN (SELECT id FROM identity_runs) LIMIT 4)";
    while steps.write(|db| db.prepare_cached(sql)?.execute([]))? > 0 {}
    Ok(())
}

/// What a merge left behind that was interrupted. To be called before the first merge.
///
/// # Errors
/// When SQLite refuses a read or a write.
pub fn forget_unused_pages(steps: &Steps<'_>, index: &IdentityIndex) -> Result<(), JournalError> {
    forget_filters(steps)?;
    let mut used: Vec<(u64, u64)> =
        index.runs().list.iter().map(|run| (run.first_page, run.first_page + run.pages())).collect();
    used.sort_unstable();
    used.push((u64::MAX, u64::MAX));
    let mut from = 0;
    for (used_from, used_to) in used {
        let sql = "SELECT min(id), max(id) FROM identity_pages WHERE id >= ?1 AND id < ?2";
        let range = params![signed(from), signed(used_from)];
        let found = steps.db.row(sql, range, |row| Ok((row.get::<_, Option<i64>>(0)?, row.get(1)?)))?;
        if let Some((Some(first), Some(last))) = found {
            forget_pages(steps, first.unsigned_abs(), i64::unsigned_abs(last) + 1)?;
        }
        from = used_to;
    }
    Ok(())
}
