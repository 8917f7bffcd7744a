//! Large states: snapshots go on however much is open, and the loop is held by none of them for long.
//!
//! `FOREBAY_OPEN_MB=1500 cargo test --release -p forebay-journal --test large -- --nocapture` for 1.5 GB of open specifications.

use forebay_engine::engine::Engine;
use forebay_journal::{BatchLog, Journal, SqliteJournal, recover};
use forebay_kernel::event::{Event, Tick};
use forebay_kernel::job::JobSpec;
use forebay_kernel::units::Timestamp;
use std::time::{Duration, Instant};

/// Bytes that only the executor needs, of each specification.
const A_JOB: usize = 64 << 10;
/// Submissions in a batch.
const A_BATCH: usize = 16;

fn megabytes() -> usize {
    std::env::var("FOREBAY_OPEN_MB").ok().and_then(|text| text.parse().ok()).unwrap_or(48)
}

fn spec(number: usize) -> JobSpec {
    // Not to be told from the others by its length, and not to be shortened by anything on the way.
    let run = (0..A_JOB as u64).map(|at| (at.wrapping_mul(number as u64 | 1) >> 3) as u8).collect();
    let (tenant, subject) = ("t".to_owned(), format!("job-{number}"));
    JobSpec { tenant, subject, queue: "q".to_owned(), digest: number as u128, run, ..JobSpec::default() }
}

#[test]
fn snapshots_go_on_and_hold_the_loop_for_moments_only() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = SqliteJournal::create(folder.path(), 0).unwrap();
    let mut engine = Engine::new();
    let jobs = megabytes() * 1_000_000 / A_JOB;
    let (mut snapshots, mut longest, mut slowest) = (0, Duration::ZERO, Duration::ZERO);
    let mut policy = forebay_kernel::policy::Policy::default();
    let rule = forebay_kernel::policy::QueueRule::default();
    policy.queues.insert("q".to_owned(), rule);
    for first in (0..jobs).step_by(A_BATCH) {
        engine.open(Tick { now: Timestamp(first as u64 + 1), resumed: false, delivered: 0 });
        if first == 0 {
            let _ = engine.handle_event(Event::Configured(Box::new(policy.clone())));
        }
        for number in first..jobs.min(first + A_BATCH) {
            let _ = engine.handle_event(Event::JobSubmitted(Box::new(spec(number))));
        }
        // Nothing is planned: without a pool every job would be rejected, and here they stay open.
        let unsaved = engine.close();
        let began = Instant::now();
        journal.append(unsaved.batch()).unwrap();
        slowest = slowest.max(began.elapsed());
        let _ = unsaved.saved();
        if journal.wants_snapshot() {
            let began = Instant::now();
            journal.begin_snapshot(engine.state()).unwrap();
            longest = longest.max(began.elapsed());
            snapshots += 1;
        }
    }
    journal.settle();
    // How many were due while one was being written depends on the disk; one more there is in any case.
    let began = Instant::now();
    journal.begin_snapshot(engine.state()).unwrap();
    longest = longest.max(began.elapsed());
    snapshots += 1;
    journal.settle();
    assert_eq!(journal.background_failure(), None);
    let last = journal.last_snapshot().expect("a snapshot");
    let wait = journal.longest_wait();
    println!(
        "{jobs} open jobs, {} MB of specifications: {snapshots} snapshots were begun; the last has {} chunks, {} of them new with {:.0} MB, \
         in {:.1} s beside the batches",
        jobs * A_JOB / 1_000_000,
        last.chunks,
        last.written,
        last.written_bytes as f64 / 1e6,
        last.took.as_secs_f64()
    );
    println!(
        "longest hold of the loop: {:.1} ms to begin a snapshot, {:.1} ms to wait for its turn to write (the slowest batch took {:.1} ms)",
        longest.as_secs_f64() * 1e3,
        wait.as_secs_f64() * 1e3,
        slowest.as_secs_f64() * 1e3
    );
    assert!(snapshots > 1, "{snapshots} snapshots");
    let live = engine.state().encode().unwrap();
    drop(journal);
    let began = Instant::now();
    let recovered = recover(folder.path()).unwrap();
    println!("recovered in {:.1} s", began.elapsed().as_secs_f64());
    assert!(recovered.machine.encode().unwrap() == live, "it recovers to another state");
}
