//! Snapshots: a row that lists chunks, and a row for each chunk. What has not changed since the last snapshot is not written again.
//!
//! ```text
//! chunks, some 256 KiB a transaction -> ONE transaction publishes the list -> batches before the last but one snapshot go,
//!                                                                            and chunks that no list has
//! ```
//!
//! Never: a list whose chunks are not all there; a chunk taken away that one of the two lists has.

use crate::chunk::{ChunkContent, ChunkId, FrozenChunks, StateChunk, StoredChunk};
use crate::database::{ChainedRow, Database, Steps, signed};
use crate::error::{JournalError, encoding};
use crate::{End, chain, spend, store};
use forebay_kernel::ids::Seq;
use rusqlite::{OptionalExtension, params};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
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

/// A snapshot of the table.
pub struct StoredSnapshot {
    pub after_seq: u64,
    /// What is in it, or what is wrong with it.
    pub read: Result<ListedSnapshot, &'static str>,
}

/// Where the journal ended when a snapshot was taken, and the chunks of the state.
pub struct ListedSnapshot {
    pub end: End,
    pub chunks: Vec<ListedChunk>,
}

/// What a snapshot is made from.
pub struct SnapshotWork {
    pub end: End,
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

/// Writes a snapshot and publishes it. `None`: it was to stop before it was published.
pub fn write(
    steps: &Steps<'_>,
    last: &mut LastChunks,
    work: SnapshotWork,
    stopping: &dyn Fn() -> bool,
) -> Result<Option<SnapshotReport>, JournalError> {
    let began = Instant::now();
    let next = signed(steps.db.next_id("chunks")?);
    let mut rows = ChunkRows { steps, next, waiting: Vec::new(), waiting_bytes: 0 };
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
                let bytes = content.encode().map_err(encoding("a chunk of the state"))?;
                let digest = chain::short(&blake3::hash(&bytes));
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
    let body = postcard::to_allocvec(&list).map_err(encoding("the list of chunks"))?;
    let End { seq, tick_ms, archived, chain, positions } = work.end;
    let positions = postcard::to_allocvec(&positions).map_err(encoding("the sources' positions"))?;
    let row = ChainedRow { numbers: [seq, tick_ms, archived], body, positions, chain, sound: true };
    steps.write(|db| store::insert_snapshot(db, &row))?;
    last.0 = now_last;
    Ok(Some(SnapshotReport { after: Seq(seq), chunks, written, written_bytes, took: began.elapsed() }))
}

/// Rows of chunks on their way to the disk.
struct ChunkRows<'a> {
    steps: &'a Steps<'a>,
    next: i64,
    waiting: Vec<(i64, Vec<u8>)>,
    waiting_bytes: u64,
}

impl ChunkRows<'_> {
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

/// Takes away batches before the last but one snapshot, and chunks that no snapshot has.
pub fn forget_what_is_over(steps: &Steps<'_>) -> Result<(), JournalError> {
    let snapshots = store::snapshots(steps.db)?;
    if let [_, before] = &snapshots[..] {
        forget_batches(steps, before.after_seq)?;
        spend::roll_up(steps, before.after_seq)?;
    }
    forget_chunks(steps, &snapshots)
}

fn forget_batches(steps: &Steps<'_>, before: u64) -> Result<(), JournalError> {
    loop {
        let (mut upto, mut bytes) = (None, 0);
        let sql = "SELECT seq, length(payload) FROM batches WHERE seq < ?1 ORDER BY seq LIMIT 256";
        steps.db.each(sql, [signed(before)], |row| {
            if bytes >= AT_ONCE {
                return Ok(ControlFlow::Break(()));
            }
            upto = Some(row.get::<_, i64>(0)?);
            bytes += row.get::<_, i64>(1)?.unsigned_abs();
            Ok(ControlFlow::Continue(()))
        })?;
        let Some(upto) = upto else { return Ok(()) };
        steps.write(|db| db.prepare_cached("DELETE FROM batches WHERE seq <= ?1")?.execute([upto]))?;
    }
}

fn forget_chunks(steps: &Steps<'_>, snapshots: &[StoredSnapshot]) -> Result<(), JournalError> {
    let mut used = BTreeSet::new();
    for snapshot in snapshots {
        // What a damaged list had is not known: nothing goes then.
        let Ok(listed) = &snapshot.read else { return Ok(()) };
        used.extend(listed.chunks.iter().flat_map(|chunk| chunk.row..chunk.row + i64::from(chunk.rows)));
    }
    let all = steps.db.rows("SELECT id, length(bytes) FROM chunks", [], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?.unsigned_abs()))
    })?;
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
#[derive(Debug)]
pub struct SnapshotChunks<'a> {
    db: &'a Database,
    list: std::slice::Iter<'a, ListedChunk>,
    fault: Option<String>,
}

impl<'a> SnapshotChunks<'a> {
    pub(crate) fn new(db: &'a Database, list: &'a [ListedChunk]) -> SnapshotChunks<'a> {
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
            let select = self.db.connection.prepare_cached("SELECT bytes FROM chunks WHERE id = ?1");
            let piece =
                select.and_then(|mut select| select.query_row([row], |row| row.get::<_, Vec<u8>>(0)).optional());
            let piece = piece.map_err(|e| format!("chunk {row}: {e}"))?;
            bytes.extend(piece.ok_or_else(|| format!("chunk {row} is missing"))?);
        }
        if chain::short(&blake3::hash(&bytes)) == chunk.digest {
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

/// Takes away snapshots that were found to be unusable, so that they do not count as one of the two: those after the one that was used,
/// or all of them where none was.
pub fn forget_unusable(db: &Database, used: Option<Seq>) -> Result<(), JournalError> {
    let after = used.map_or(-1, |used| signed(used.0));
    db.write(|all| all.execute("DELETE FROM snapshots WHERE after_seq > ?1", [after]).map(drop))
}
