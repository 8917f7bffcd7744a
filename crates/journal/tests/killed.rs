//! `kill -9` at random moments while batches, snapshots, merges of identities and retention go on: nothing that was durable is lost, nothing
//! is there twice. `FOREBAY_KILLS=200` for more; the seed is printed, `FOREBAY_SEED` repeats it.

use forebay_journal::{
    BatchLog, ChunkContent, ChunkId, FinishedJob, Journal, JournalEntry, JournalRetention, RecoveredPart,
    SqliteJournal, StateChunk, verify,
};
use forebay_kernel::decision::Outcome;
use forebay_kernel::event::Tick;
use forebay_kernel::ids::JobId;
use forebay_kernel::job::JobSpec;
use forebay_kernel::journal::{APPLY_VERSION, Batch};
use forebay_kernel::units::{Span, Timestamp};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

mod jobs;

/// Jobs that are over with each batch: 41 batches make a run of identities.
const JOBS: u64 = 400;
const CHUNKS: u64 = 16;

#[derive(Clone)]
struct Rows(Vec<u64>);

impl ChunkContent for Rows {
    fn encode(&self) -> Result<Vec<u8>, postcard::Error> {
        postcard::to_allocvec(&self.0)
    }
}

/// A state that says which batches it has seen: batch `n` adds `n` to row `n % CHUNKS`.
#[derive(Clone)]
struct Seen {
    batches: u64,
    chunks: Vec<Arc<Rows>>,
}

impl Seen {
    fn new() -> Seen {
        Seen { batches: 0, chunks: (0..CHUNKS).map(|_| Arc::new(Rows(vec![0; 2_000]))).collect() }
    }

    fn apply(&mut self, number: u64) -> Result<(), String> {
        if number != self.batches {
            return Err(format!("batch {number} comes after {} batches", self.batches));
        }
        let rows = &mut Arc::make_mut(&mut self.chunks[(number % CHUNKS) as usize]).0;
        rows[0] += number;
        rows[(number % 1_999) as usize + 1] += 1;
        self.batches += 1;
        Ok(())
    }

    fn freeze(&self) -> Box<dyn Iterator<Item = StateChunk> + Send> {
        let count: Arc<dyn ChunkContent> = Arc::new(Rows(vec![self.batches]));
        let rows = self.chunks.clone().into_iter().map(|rows| rows as Arc<dyn ChunkContent>);
        let all = [count].into_iter().chain(rows).zip(0..);
        Box::new(all.map(|(content, number)| StateChunk { id: ChunkId { kind: 0, number }, content }))
    }

    fn thaw(chunks: impl Iterator<Item = Vec<u64>>) -> Result<Seen, String> {
        let mut chunks = chunks.collect::<Vec<_>>().into_iter();
        let batches = chunks.next().and_then(|count| count.first().copied()).ok_or("no count")?;
        let chunks: Vec<_> = chunks.map(|rows| Arc::new(Rows(rows))).collect();
        if chunks.len() as u64 == CHUNKS { Ok(Seen { batches, chunks }) } else { Err("chunks are missing".to_owned()) }
    }

    fn expected(batches: u64) -> Seen {
        let mut seen = Seen::new();
        (0..batches).for_each(|number| seen.apply(number).unwrap());
        seen
    }
}

fn subject(job: u64) -> String {
    // One in four has run before.
    format!("run-{}", if job % 4 == 3 { job / 2 } else { job })
}

fn finished(job: u64, now: u64) -> FinishedJob {
    let spec =
        JobSpec { subject: subject(job), digest: job.into(), queue: format!("q{}", job % 7), ..JobSpec::default() };
    jobs::finished(JobId(job), spec, Outcome::Completed, Timestamp(now))
}

fn opened(folder: &Path) -> (SqliteJournal, Seen) {
    let mut seen = Seen::new();
    let mut take = |part: RecoveredPart<'_, '_>| match part {
        RecoveredPart::Start => {
            seen = Seen::new();
            Ok(())
        }
        RecoveredPart::Snapshot(chunks) => {
            let read = chunks.map(|chunk| postcard::from_bytes(&chunk.bytes).unwrap_or_default());
            seen = Seen::thaw(read)?;
            Ok(())
        }
        RecoveredPart::Batch(batch) => seen.apply(batch.tick.delivered),
    };
    let (mut journal, _) = SqliteJournal::open(folder, &mut take).unwrap();
    journal.keep(JournalRetention { finished: Span(60_000), policies: Span(60_000) });
    (journal, seen)
}

/// What is killed: appends batches and says after each that it is durable.
#[test]
#[ignore = "it is started by the test below"]
fn child() {
    let Some(folder) = std::env::var_os("FOREBAY_JOURNAL_FOLDER") else { return };
    let (mut journal, mut seen) = opened(Path::new(&folder));
    loop {
        let number = seen.batches;
        let now = number * 1_000;
        let tick = Tick { now: Timestamp(now), resumed: false, delivered: number };
        let batch =
            Batch { version: APPLY_VERSION, first_seq: journal.end(), tick, events: Vec::new(), decisions: Vec::new() };
        let over: Vec<_> = (number * JOBS..(number + 1) * JOBS).map(|job| finished(job, now)).collect();
        journal.append_many(&[JournalEntry { finished: &over, ..JournalEntry::of(&batch) }]).unwrap();
        seen.apply(number).unwrap();
        println!("durable {}", number + 1);
        if number % 7 == 0 {
            journal.begin_snapshot_of(seen.freeze());
        }
        if number % 10 == 0 {
            journal.tidy();
        }
        assert_eq!(journal.background_failure(), None);
    }
}

fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

#[test]
fn nothing_that_was_durable_is_lost_or_there_twice() {
    let (kills, seed) = (number("FOREBAY_KILLS", 40), number("FOREBAY_SEED", 1));
    println!("seed {seed}, {kills} kills");
    let mut dice = seed;
    let folder = tempfile::tempdir().unwrap();
    drop(SqliteJournal::create(folder.path(), 0).unwrap());
    let mut durable = 0;
    for kill in 0..kills {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["child", "--exact", "--ignored", "--nocapture"])
            .env("FOREBAY_JOURNAL_FOLDER", folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (mut left, mut before) = (splitmix(&mut dice) % 60, durable);
        for line in lines.map_while(Result::ok) {
            let Some(said) = line.rsplit_once("durable ").and_then(|(_, n)| n.parse().ok()) else { continue };
            before = said;
            if left == 0 {
                // Anywhere in what follows: spins instead of sleeping.
                (0..splitmix(&mut dice) % 3_000_000).for_each(|n| _ = std::hint::black_box(n));
                child.kill().unwrap();
                left = u64::MAX;
            }
            left = left.saturating_sub(1);
        }
        child.wait().unwrap();
        let context = format!("seed {seed}, kill {kill}");
        assert!(before > durable, "{context}: it made nothing durable");
        let sound = verify(folder.path()).unwrap_or_else(|e| panic!("{context}: {e}"));
        let (journal, seen) = opened(folder.path());
        assert!(seen.batches >= before, "{context}: {} batches of {before}", seen.batches);
        durable = seen.batches;
        let expected = Seen::expected(durable);
        assert!(seen.chunks.iter().zip(&expected.chunks).all(|(a, b)| a.0 == b.0), "{context}: another state");
        check_archive(&journal, durable * JOBS, &mut dice, &context);
        assert!(sound.finished <= durable * JOBS, "{context}: {sound:?}");
    }
    println!("{durable} batches with {} jobs survived {kills} kills", durable * JOBS);
}

/// Every identity is known by its last job, and what is in the archive is there once.
fn check_archive(journal: &SqliteJournal, jobs: u64, dice: &mut u64, context: &str) {
    for _ in 0..200 {
        let job = splitmix(dice) % jobs;
        let of_subject =
            [job * 2, job * 2 + 1, job].into_iter().filter(|other| *other < jobs && subject(*other) == subject(job));
        let last = of_subject.max().unwrap_or(job);
        let known = journal.identity("", &subject(job)).unwrap();
        assert!(known.is_some_and(|k| k.job.0 >= last.min(job)), "{context}: job {job}: {known:?}");
    }
    assert_eq!(journal.identity("", "never").unwrap(), None, "{context}");
}
