//! Snapshots: a row that lists chunks, and a row for each chunk. What has not changed since the last snapshot is not written again.
//!
//! ```text
//! chunks, some 256 KiB a transaction -> ONE transaction publishes the list -> batches before the last but one snapshot go,
//!                                                                            and chunks that no list has
//! ```
//!
//! Never: a list whose chunks are not all there; a chunk taken away that one of the two lists has.

use crate::chain::Chain;
use crate::chunk::{ChunkContent, ChunkId, FrozenChunks, StateChunk, StoredChunk};
use crate::error::JournalError;
use crate::steps::Steps;
use crate::store::{self, SnapshotRow, signed};
use forebay_kernel::ids::Seq;
use rusqlite::{Connection, OptionalExtension, params};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Bytes that one transaction writes or takes away, or up to twice as many: some 5 ms with its sync.
pub const AT_ONCE: u64 = 256 << 10;

/// Bytes of one row of a chunk at most.
const PIECE: usize = 256 << 10;

type Digest = [u8; 16];

/// A chunk in a snapshot's list.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ListedChunk {
    pub id: ChunkId,
    /// The first of its rows, and how many there are, one after the other: a long chunk is in pieces of [`PIECE`] bytes.
    pub row: i64,
    pub rows: u32,
    pub digest: Digest,
}

/// What a snapshot is made from.
pub struct SnapshotWork {
    pub after_seq: u64,
    pub tick_ms: u64,
    pub archived: u64,
    pub positions: Vec<u8>,
    pub chain: Chain,
    pub chunks: FrozenChunks,
}

/// What a snapshot took.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotReport {
    /// The position after it.
    pub after: Seq,
    /// Its chunks.
    pub chunks: u64,
    /// Of these, those that had changed and were written.
    pub written: u64,
    /// Their bytes.
    pub written_bytes: u64,
    /// How long it took, beside the batches.
    pub took: Duration,
}

/// The chunks of the last snapshot, by which those that have not changed are known.
#[derive(Default)]
pub struct LastChunks(BTreeMap<ChunkId, LastChunk>);

struct LastChunk {
    /// Nobody else may get this address while it is here, and what is in it has not changed while it can be upgraded: whoever changes
    /// it has the only strong reference and leaves this allocation for another.
    content: Option<Weak<dyn ChunkContent>>,
    listed: ListedChunk,
}

impl LastChunks {
    /// As a recovery found them: known by their bytes only.
    pub fn of(list: &[ListedChunk]) -> LastChunks {
        let known = |listed: &ListedChunk| (listed.id, LastChunk { content: None, listed: *listed });
        LastChunks(list.iter().map(known).collect())
    }
}

fn same(known: &LastChunk, content: &Arc<dyn ChunkContent>) -> bool {
    known
        .content
        .as_ref()
        .and_then(Weak::upgrade)
        .is_some_and(|was| std::ptr::addr_eq(Arc::as_ptr(&was), Arc::as_ptr(content)))
}

fn digest(bytes: &[u8]) -> Digest {
    let mut short = [0; 16];
    short.copy_from_slice(&blake3::hash(bytes).as_bytes()[..16]);
    short
}

/// Writes a snapshot and publishes it. `None`: it was to stop before it was published.
pub fn write(
    steps: &Steps<'_>,
    last: &mut LastChunks,
    work: SnapshotWork,
    stopping: &dyn Fn() -> bool,
) -> Result<Option<SnapshotReport>, JournalError> {
    let began = Instant::now();
    let mut rows = ChunkRows::new(steps)?;
    let (mut list, mut now_last) = (Vec::new(), BTreeMap::new());
    let (mut written, mut written_bytes) = (0, 0);
    for StateChunk { id, content } in work.chunks {
        if stopping() {
            return Ok(None);
        }
        let known = last.0.get(&id);
        let listed = match known.filter(|known| same(known, &content)) {
            Some(known) => known.listed,
            None => {
                let bytes = content.encode().map_err(|source| steps.encoding("a chunk of the state", source))?;
                let digest = digest(&bytes);
                match known.filter(|known| known.listed.digest == digest) {
                    Some(known) => known.listed,
                    None => {
                        written += 1;
                        written_bytes += bytes.len() as u64;
                        rows.write(id, digest, &bytes, stopping)?
                    }
                }
            }
        };
        list.push(listed);
        now_last.insert(id, LastChunk { content: Some(Arc::downgrade(&content)), listed });
    }
    rows.flush()?;
    if stopping() {
        return Ok(None);
    }
    let chunks = list.len() as u64;
    let list = postcard::to_allocvec(&list).map_err(|source| steps.encoding("the list of chunks", source))?;
    let SnapshotWork { after_seq, tick_ms, archived, positions, chain, .. } = work;
    let row = SnapshotRow { after_seq, tick_ms, archived, chunks: list, positions, chain, sound: true };
    steps.write(|db| store::insert_snapshot(db, &row))?;
    last.0 = now_last;
    Ok(Some(SnapshotReport { after: Seq(after_seq), chunks, written, written_bytes, took: began.elapsed() }))
}

/// Rows of chunks on their way to the disk.
struct ChunkRows<'a> {
    steps: &'a Steps<'a>,
    next: i64,
    waiting: Vec<(i64, Vec<u8>)>,
    waiting_bytes: u64,
}

impl<'a> ChunkRows<'a> {
    fn new(steps: &'a Steps<'a>) -> Result<ChunkRows<'a>, JournalError> {
        let sql = "SELECT coalesce(max(id), 0) + 1 FROM chunks";
        let next = steps.db.query_row(sql, [], |row| row.get(0)).map_err(|e| steps.fail(e))?;
        Ok(ChunkRows { steps, next, waiting: Vec::new(), waiting_bytes: 0 })
    }

    /// Writes a chunk. If it is to stop it does not go on, and the snapshot is not published.
    fn write(
        &mut self,
        id: ChunkId,
        digest: Digest,
        bytes: &[u8],
        stopping: &dyn Fn() -> bool,
    ) -> Result<ListedChunk, JournalError> {
        let first = self.next;
        for piece in bytes.chunks(PIECE) {
            if stopping() {
                break;
            }
            self.waiting.push((self.next, piece.to_vec()));
            self.waiting_bytes += piece.len() as u64;
            self.next += 1;
            if self.waiting_bytes >= AT_ONCE {
                self.flush()?;
            }
        }
        let rows = u32::try_from(self.next - first).unwrap_or(u32::MAX);
        Ok(ListedChunk { id, row: first, rows, digest })
    }

    fn flush(&mut self) -> Result<(), JournalError> {
        if !self.waiting.is_empty() {
            self.steps.write(|db| {
                let mut insert = db.prepare_cached("INSERT INTO chunks VALUES (?1, ?2)")?;
                self.waiting.iter().try_for_each(|(row, bytes)| insert.execute(params![row, bytes]).map(|_| ()))
            })?;
        }
        self.waiting.clear();
        self.waiting_bytes = 0;
        Ok(())
    }
}

/// The list of a snapshot. `None`: it cannot be read.
pub fn listed(row: &SnapshotRow) -> Option<Vec<ListedChunk>> {
    postcard::from_bytes(&row.chunks).ok().filter(|_| row.sound)
}

/// Takes away batches before the last but one snapshot, and chunks that no snapshot has.
pub fn forget_what_is_over(steps: &Steps<'_>) -> Result<(), JournalError> {
    let list = store::snapshot_list(steps.db).map_err(|e| steps.fail(e))?;
    if let [_, before] = list[..] {
        forget_batches(steps, before)?;
    }
    forget_chunks(steps, &list)
}

fn forget_batches(steps: &Steps<'_>, before: i64) -> Result<(), JournalError> {
    loop {
        let mut upto = None;
        {
            let sql = "SELECT seq, length(payload) FROM batches WHERE seq < ?1 ORDER BY seq LIMIT 256";
            let mut select = steps.db.prepare_cached(sql).map_err(|e| steps.fail(e))?;
            let mut rows = select.query([before]).map_err(|e| steps.fail(e))?;
            let mut bytes = 0;
            while let Some(row) = rows.next().map_err(|e| steps.fail(e))? {
                if bytes >= AT_ONCE {
                    break;
                }
                upto = Some(row.get::<_, i64>(0).map_err(|e| steps.fail(e))?);
                bytes += row.get::<_, i64>(1).map_err(|e| steps.fail(e))?.unsigned_abs();
            }
        }
        let Some(upto) = upto else { return Ok(()) };
        steps.write(|db| db.prepare_cached("DELETE FROM batches WHERE seq <= ?1")?.execute([upto]))?;
    }
}

fn forget_chunks(steps: &Steps<'_>, snapshots: &[i64]) -> Result<(), JournalError> {
    let mut used = BTreeSet::new();
    for after in snapshots {
        let row = store::snapshot(steps.db, *after).map_err(|e| steps.fail(e))?;
        // What a damaged list had is not known: nothing goes then.
        let Some(list) = listed(&row) else { return Ok(()) };
        used.extend(list.into_iter().flat_map(|chunk| chunk.row..chunk.row + i64::from(chunk.rows)));
    }
    let mut select = steps.db.prepare_cached("SELECT id, length(bytes) FROM chunks").map_err(|e| steps.fail(e))?;
    let all = select.query_map([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?.unsigned_abs())));
    let all: Vec<(i64, u64)> = all.and_then(Iterator::collect).map_err(|e| steps.fail(e))?;
    drop(select);
    let (mut going, mut bytes) = (Vec::new(), 0);
    let mut unused = all.into_iter().filter(|(row, _)| !used.contains(row)).peekable();
    while let Some((row, length)) = unused.next() {
        going.push(row);
        bytes += length;
        if bytes >= AT_ONCE || unused.peek().is_none() {
            steps.write(|db| {
                let mut delete = db.prepare_cached("DELETE FROM chunks WHERE id = ?1")?;
                going.iter().try_for_each(|row| delete.execute([row]).map(|_| ()))
            })?;
            (going, bytes) = (Vec::new(), 0);
        }
    }
    Ok(())
}

/// The chunks of a snapshot, read one after the other, each verified.
pub struct SnapshotChunks<'a> {
    db: &'a Connection,
    list: std::slice::Iter<'a, ListedChunk>,
    fault: Option<String>,
}

impl<'a> SnapshotChunks<'a> {
    pub(crate) fn new(db: &'a Connection, list: &'a [ListedChunk]) -> SnapshotChunks<'a> {
        SnapshotChunks { db, list: list.iter(), fault: None }
    }

    /// Whether all are there and sound. Those that nobody has taken are read here.
    pub(crate) fn end(mut self) -> Result<(), String> {
        while self.next().is_some() {}
        self.fault.map_or(Ok(()), Err)
    }

    fn read(&self, chunk: &ListedChunk) -> Result<StoredChunk, String> {
        let mut bytes = Vec::new();
        for row in chunk.row..chunk.row + i64::from(chunk.rows) {
            let select = self.db.prepare_cached("SELECT bytes FROM chunks WHERE id = ?1");
            let piece =
                select.and_then(|mut select| select.query_row([row], |row| row.get::<_, Vec<u8>>(0)).optional());
            let piece = piece.map_err(|e| format!("chunk {row}: {e}"))?;
            bytes.extend(piece.ok_or_else(|| format!("chunk {row} is missing"))?);
        }
        if digest(&bytes) == chunk.digest {
            return Ok(StoredChunk { id: chunk.id, bytes });
        }
        Err(format!("chunk {}: its digest does not agree", chunk.row))
    }
}

impl Iterator for SnapshotChunks<'_> {
    type Item = StoredChunk;

    fn next(&mut self) -> Option<StoredChunk> {
        let chunk = self.list.next().filter(|_| self.fault.is_none())?;
        self.read(chunk).map_err(|fault| self.fault = Some(fault)).ok()
    }
}

impl std::fmt::Debug for SnapshotChunks<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SnapshotChunks").field("left", &self.list.len()).finish_non_exhaustive()
    }
}

/// Takes away snapshots that were found to be unusable, so that they do not count as one of the two.
pub fn forget_unusable(db: &Connection, after: u64) -> rusqlite::Result<()> {
    db.execute("DELETE FROM snapshots WHERE after_seq > ?1", [signed(after)]).map(|_| ())
}
