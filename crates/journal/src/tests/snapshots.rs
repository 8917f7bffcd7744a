//! Snapshots in chunks: what has not changed is not written again, what is over goes, and a start finds the state.

use super::*;
use crate::chunk::{ChunkContent, ChunkId, FrozenChunks, StateChunk};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

static ENCODED: AtomicU64 = AtomicU64::new(0);

/// Rows that are changed as a state changes them: in place when nobody else has them.
#[derive(Clone)]
struct Rows(Vec<u64>);

impl ChunkContent for Rows {
    fn encode(&self) -> Result<Vec<u8>, postcard::Error> {
        ENCODED.fetch_add(1, Ordering::Relaxed);
        postcard::to_allocvec(&self.0)
    }
}

/// A state of rows in chunks that are shared until they are changed.
#[derive(Default)]
struct Table(Vec<Arc<Rows>>);

impl Table {
    fn of(chunks: u64) -> Table {
        Table((0..chunks).map(|n| Arc::new(Rows((0..500).map(|row| n * 1_000 + row).collect()))).collect())
    }

    fn set(&mut self, chunk: usize, value: u64) {
        Arc::make_mut(&mut self.0[chunk]).0[0] = value;
    }

    fn freeze(&self) -> FrozenChunks {
        let chunks: Vec<_> = self.0.to_vec();
        let chunk = |(content, number)| StateChunk { id: ChunkId { kind: 3, number }, content };
        Box::new(chunks.into_iter().map(|c| c as Arc<dyn ChunkContent>).zip(0..).map(chunk))
    }

    fn thaw(chunks: &mut SnapshotChunks<'_>) -> Result<Vec<Vec<u64>>, String> {
        chunks.map(|chunk| postcard::from_bytes(&chunk.bytes).map_err(|e| e.to_string())).collect()
    }

    fn rows(&self) -> Vec<Vec<u64>> {
        self.0.iter().map(|rows| rows.0.clone()).collect()
    }
}

fn thawed(folder: &Path) -> (Vec<Vec<u64>>, SqliteJournal, Recovery) {
    let mut rows = Vec::new();
    let mut take = |part: RecoveredPart<'_, '_>| {
        if let RecoveredPart::Snapshot(chunks) = part {
            rows = Table::thaw(chunks)?;
        }
        Ok(())
    };
    let (journal, recovery) = SqliteJournal::open(folder, &mut take).unwrap();
    (rows, journal, recovery)
}

fn step(journal: &mut SqliteJournal, number: u64) {
    journal.append(&batch(journal.end().0, number)).unwrap();
}

fn snapshot(journal: &mut SqliteJournal, table: &Table) -> SnapshotReport {
    journal.begin_snapshot_of(table.freeze());
    journal.settle();
    assert_eq!(journal.background_failure(), None);
    journal.last_snapshot().unwrap()
}

#[test]
fn only_chunks_that_changed_are_written_in_this_process_and_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = SqliteJournal::create(folder.path(), 0).unwrap();
    let mut table = Table::of(20);
    step(&mut journal, 1);
    let first = snapshot(&mut journal, &table);
    assert_eq!((first.chunks, first.written), (20, 20));
    table.set(3, 7);
    table.set(7, 7);
    step(&mut journal, 2);
    let second = snapshot(&mut journal, &table);
    assert_eq!((second.chunks, second.written), (20, 2));
    drop(journal);

    let (rows, mut journal, recovery) = thawed(folder.path());
    assert_eq!((rows.clone(), recovery.batches), (table.rows(), 0));
    // Another allocation with the same bytes is not written again either.
    let mut table = Table(rows.iter().map(|rows| Arc::new(Rows(rows.clone()))).collect());
    table.set(0, 9);
    step(&mut journal, 3);
    assert_eq!(snapshot(&mut journal, &table).written, 1);
    step(&mut journal, 4);
    let before = ENCODED.load(Ordering::Relaxed);
    let again = snapshot(&mut journal, &table);
    assert_eq!((again.written, again.written_bytes), (0, 0));
    assert!(ENCODED.load(Ordering::Relaxed) >= before, "what is shared is not even encoded");
    drop(journal);
    let verified = verify(folder.path()).unwrap();
    assert_eq!(verified.snapshots.len(), 2);
    let (rows, _, _) = thawed(folder.path());
    assert_eq!(rows, table.rows());
}

#[test]
fn an_address_that_is_used_again_is_not_taken_for_the_chunk_that_had_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = SqliteJournal::create(folder.path(), 0).unwrap();
    for number in 1..200 {
        // Made, frozen, written and dropped: the next one is likely to lie where this one lay.
        let table = Table(vec![Arc::new(Rows(vec![number; 100]))]);
        step(&mut journal, number);
        assert_eq!(snapshot(&mut journal, &table).written, 1, "round {number}");
    }
    drop(journal);
    assert_eq!(thawed(folder.path()).0, [vec![199; 100]]);
}

#[test]
fn a_chunk_that_is_changed_in_place_after_a_snapshot_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = SqliteJournal::create(folder.path(), 0).unwrap();
    let mut table = Table::of(1);
    for number in 1..50 {
        table.set(0, number);
        step(&mut journal, number);
        assert_eq!(snapshot(&mut journal, &table).written, 1, "round {number}");
    }
    drop(journal);
    assert_eq!(thawed(folder.path()).0, table.rows());
}

#[test]
fn a_state_whose_chunk_cannot_be_encoded_leaves_the_snapshot_before() {
    struct Broken;
    impl ChunkContent for Broken {
        fn encode(&self) -> Result<Vec<u8>, postcard::Error> {
            Err(postcard::Error::SerializeBufferFull)
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let mut journal = SqliteJournal::create(folder.path(), 0).unwrap();
    let table = Table::of(3);
    step(&mut journal, 1);
    snapshot(&mut journal, &table);
    step(&mut journal, 2);
    let broken = StateChunk { id: ChunkId { kind: 9, number: 0 }, content: Arc::new(Broken) };
    journal.begin_snapshot_of(Box::new(table.freeze().chain([broken])));
    journal.settle();
    let failure = journal.background_failure().unwrap();
    assert!(failure.contains("a chunk of the state cannot be encoded"), "{failure}");
    drop(journal);
    let (rows, _, recovery) = thawed(folder.path());
    assert_eq!((rows, recovery.batches), (table.rows(), 1));
}

/// A chunk that waits to be encoded until it is let.
struct Gate(std::sync::Mutex<(Sender<()>, Receiver<()>)>);

impl ChunkContent for Gate {
    fn encode(&self) -> Result<Vec<u8>, postcard::Error> {
        let gate = self.0.lock().unwrap();
        gate.0.send(()).unwrap();
        let _ = gate.1.recv();
        Ok(vec![1, 2, 3])
    }
}

#[test]
fn batches_go_on_while_a_snapshot_is_written_and_one_that_is_not_published_leaves_nothing() {
    let (arrived, arrives) = channel();
    let (open, opened) = channel();
    let folder = tempfile::tempdir().unwrap();
    let mut journal = SqliteJournal::create(folder.path(), 0).unwrap();
    step(&mut journal, 1);
    let gate = Arc::new(Gate(std::sync::Mutex::new((arrived, opened))));
    let chunk = StateChunk { id: ChunkId { kind: 0, number: 0 }, content: gate };
    journal.begin_snapshot_of(Box::new([chunk].into_iter()));
    arrives.recv().unwrap();
    for number in 2..20 {
        step(&mut journal, number);
    }
    assert!(!journal.wants_snapshot(), "one is being written");
    let end = journal.end();
    drop(open);
    journal.settle();
    let report = journal.last_snapshot().unwrap();
    assert_eq!(report.after, batch(0, 1).next_seq(), "of the moment when it was begun");
    assert!(report.after < end);
    drop(journal);
    let (_, recovery) = SqliteJournal::open(folder.path(), &mut |part| {
        if let RecoveredPart::Snapshot(chunks) = part {
            assert_eq!(chunks.map(|chunk| chunk.bytes).collect::<Vec<_>>(), [vec![1, 2, 3]]);
        }
        Ok(())
    })
    .unwrap();
    assert_eq!((recovery.batches, recovery.snapshot), (18, Some(report.after)));
}

#[test]
fn batches_and_chunks_that_no_start_needs_are_taken_away() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = SqliteJournal::create(folder.path(), 0).unwrap();
    let mut table = Table::of(10);
    let mut ends = Vec::new();
    for round in 0..6 {
        for number in 0..50 {
            step(&mut journal, number);
        }
        table.set(round, 1);
        ends.push(snapshot(&mut journal, &table).after);
    }
    drop(journal);
    let verified = verify(folder.path()).unwrap();
    assert_eq!((verified.snapshots, verified.first), (vec![ends[5], ends[4]], ends[4]));
    let db = Connection::open(folder.path().join(FILE)).unwrap();
    let chunks: i64 = db.query_row("SELECT count(*) FROM chunks", [], |row| row.get(0)).unwrap();
    assert_eq!(chunks, 11, "ten, and the one that changed between the two");
}

#[test]
fn a_long_chunk_is_written_in_pieces_and_comes_back_whole() {
    struct Long(u8);
    impl ChunkContent for Long {
        fn encode(&self) -> Result<Vec<u8>, postcard::Error> {
            Ok((0..3_000_000u32).map(|n| (n as u8).wrapping_mul(self.0)).collect())
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let mut journal = SqliteJournal::create(folder.path(), 0).unwrap();
    for round in 1..5 {
        step(&mut journal, u64::from(round));
        let chunk = |number, by| StateChunk { id: ChunkId { kind: 1, number }, content: Arc::new(Long(by)) };
        journal.begin_snapshot_of(Box::new([chunk(0, 7), chunk(1, round)].into_iter()));
        journal.settle();
        assert_eq!(journal.last_snapshot().unwrap().written, if round == 1 { 2 } else { 1 });
    }
    drop(journal);
    verify(folder.path()).unwrap();
    let db = Connection::open(folder.path().join(FILE)).unwrap();
    let [rows, longest]: [i64; 2] = db
        .query_row("SELECT count(*), max(length(bytes)) FROM chunks", [], |row| Ok([row.get(0)?, row.get(1)?]))
        .unwrap();
    assert_eq!((rows, longest), (3 * 12, 256 << 10), "one that stayed, and two of the last snapshots");
    drop(db);
    let mut found = Vec::new();
    SqliteJournal::open(folder.path(), &mut |part| {
        if let RecoveredPart::Snapshot(chunks) = part {
            found = chunks.collect();
        }
        Ok(())
    })
    .unwrap();
    assert_eq!(found.len(), 2);
    assert_eq!((&found[0].bytes, &found[1].bytes), (&Long(7).encode().unwrap(), &Long(4).encode().unwrap()));
}
