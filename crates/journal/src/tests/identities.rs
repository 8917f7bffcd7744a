//! Identities through merges, reruns and crashes, against a map in memory; and what a miss costs.

use super::archive::{append, finished};
use super::*;
use forebay_kernel::decision::Outcome;
use forebay_kernel::ids::JobId;
use std::collections::BTreeMap;

fn open(folder: &Path) -> SqliteJournal {
    SqliteJournal::open(folder, &mut |_| Ok(())).unwrap().0
}

fn run(number: u64, subject: u64) -> FinishedJob {
    finished(number, &format!("s{subject}"), "q", Outcome::Completed, number)
}

#[test]
fn the_last_job_of_each_identity_is_known_through_merges_reruns_and_restarts() {
    for seed in 0..3 {
        let mut dice = Dice(seed);
        let folder = tempfile::tempdir().unwrap();
        let mut journal = SqliteJournal::create(folder.path(), 0).unwrap();
        let mut model: BTreeMap<u64, u64> = BTreeMap::new();
        let mut number = 0;
        for round in 0..60 {
            let jobs: Vec<_> = (0..2_000)
                .map(|_| {
                    number += 1;
                    let subject = dice.below(90_000);
                    model.insert(subject, number);
                    run(number, subject)
                })
                .collect();
            append(&mut journal, number, &jobs);
            if dice.below(6) == 0 {
                journal.settle();
            }
            if dice.below(10) == 0 {
                drop(journal);
                journal = open(folder.path());
            }
            for _ in 0..50 {
                let subject = dice.below(100_000);
                let known = journal.identity("default", &format!("s{subject}")).unwrap().map(|e| e.job.0);
                assert_eq!(known, model.get(&subject).copied(), "seed {seed}, round {round}, subject {subject}");
            }
        }
        journal.settle();
        assert_eq!(journal.background_failure(), None, "seed {seed}");
        for (subject, job) in &model {
            let known = journal.identity("default", &format!("s{subject}")).unwrap();
            assert_eq!(known.map(|e| e.job), Some(JobId(*job)), "seed {seed}, subject {subject}");
        }
        drop(journal);
        let verified = verify(folder.path()).unwrap();
        assert!(verified.identities > 60_000, "seed {seed}: {verified:?}");
    }
}

#[test]
fn a_rerun_whose_batch_is_lost_leaves_what_a_merge_meanwhile_took() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = SqliteJournal::create(folder.path(), 0).unwrap();
    // It is not merged before the last of these, and then the rerun is known in memory alone. One is known so twice.
    append(&mut journal, 1, &(1..=16_000).map(|n| run(n, n)).collect::<Vec<_>>());
    journal.note_finished(&[run(20_000, 777), run(20_001, 888)]);
    journal.note_finished(&[run(20_002, 888)]);
    append(&mut journal, 2, &(16_001..=16_500).map(|n| run(n, n)).collect::<Vec<_>>());
    journal.settle();
    assert_eq!(journal.background_failure(), None);
    let known = |journal: &SqliteJournal, subject: &str| {
        journal.identity("default", subject).unwrap().map(|earlier| earlier.job)
    };
    assert_eq!(known(&journal, "s777"), Some(JobId(20_000)));
    drop(journal);
    assert!(verify(folder.path()).unwrap().identities >= 16_500, "a run has them");
    let journal = open(folder.path());
    assert_eq!(known(&journal, "s777"), Some(JobId(777)), "a crash goes back to the job before");
    assert_eq!(known(&journal, "s888"), Some(JobId(888)));
}

#[test]
fn what_an_interrupted_merge_left_is_taken_away() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = SqliteJournal::create(folder.path(), 0).unwrap();
    let jobs: Vec<_> = (1..=16_500).map(|n| run(n, n)).collect();
    append(&mut journal, 1, &jobs);
    journal.settle();
    drop(journal);
    let count = |folder: &Path, table: &str| -> i64 {
        let db = Connection::open(folder.join(FILE)).unwrap();
        db.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
    };
    let (pages, filters) = (count(folder.path(), "identity_pages"), count(folder.path(), "identity_filters"));
    assert!(pages > 150 && filters == 1, "{pages} pages, {filters} filters");
    let db = Connection::open(folder.path().join(FILE)).unwrap();
    db.execute_batch(
        "INSERT INTO identity_pages SELECT id + 9000, body, crc32c FROM identity_pages;
         INSERT INTO identity_filters (run, part, body, crc32c) SELECT 99, part, body, crc32c FROM identity_filters;",
    )
    .unwrap();
    drop(db);
    let mut journal = open(folder.path());
    journal.tidy();
    journal.settle();
    assert_eq!(journal.background_failure(), None);
    assert_eq!(journal.identity("default", "s777").unwrap().unwrap().job, JobId(777));
    drop(journal);
    assert_eq!((count(folder.path(), "identity_pages"), count(folder.path(), "identity_filters")), (pages, filters));
}

/// Prints what the archive and the identities cost. `cargo test -p forebay-journal --release cost -- --ignored --nocapture`,
/// with `FOREBAY_IDENTITIES=10000000` for ten million.
#[test]
#[ignore = "takes minutes: it measures"]
fn cost_of_a_miss_and_bytes_of_an_identity() {
    let count: u64 = std::env::var("FOREBAY_IDENTITIES").ok().and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    let folder = tempfile::tempdir().unwrap();
    let mut journal = SqliteJournal::create(folder.path(), 0).unwrap();
    let began = std::time::Instant::now();
    let (mut number, at_once) = (0, 1_000);
    while number < count {
        let jobs: Vec<_> = (0..at_once).map(|n| run(number + n, number + n)).collect();
        append(&mut journal, 0, &jobs);
        number += at_once;
    }
    let appended = began.elapsed();
    journal.settle();
    let size = |journal: &SqliteJournal| std::fs::metadata(journal.folder().join(FILE)).map_or(0, |m| m.len());
    println!("{count} finished jobs in {appended:?}, all merged after {:?}", began.elapsed());
    println!("longest wait of a batch for the background: {:?}", journal.longest_wait());
    let time = |prefix: &str| {
        let (n, began) = (100_000, std::time::Instant::now());
        for i in 0..n {
            let subject = format!("{prefix}{}", i * (count / n).max(1));
            let known = journal.identity("default", &subject).unwrap();
            assert_eq!(known.is_some(), prefix == "s");
        }
        began.elapsed() / u32::try_from(n).unwrap()
    };
    println!("a miss: {:?}, a hit: {:?}", time("new"), time("s"));
    drop(journal);
    let began = std::time::Instant::now();
    let mut journal = open(folder.path());
    println!("opened in {:?}", began.elapsed());
    println!("with every job in the archive: {} bytes each", size(&journal) / count);
    append(&mut journal, 4_000_000_000_000, &[]);
    journal.tidy();
    journal.settle();
    drop(journal);
    let journal = open(folder.path());
    let db = Connection::open(folder.path().join(FILE)).unwrap();
    let free: i64 = db.query_row("PRAGMA freelist_count", [], |row| row.get(0)).unwrap();
    println!(
        "after retention: {} bytes each, of these {} free",
        size(&journal) / count,
        free.unsigned_abs() * 4096 / count
    );
    assert!(ArchiveReader::open(folder.path()).unwrap().identity("default", "s0").is_ok());
}

#[test]
fn jobs_that_ended_in_a_torn_batch_are_cut_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = SqliteJournal::create(folder.path(), 0).unwrap();
    append(&mut journal, 1, &[run(1, 1), run(2, 2)]);
    append(&mut journal, 2, &[run(3, 2), run(4, 3)]);
    drop(journal);
    sql(folder.path(), "UPDATE batches SET payload = x'00' WHERE seq = (SELECT max(seq) FROM batches)");
    assert!(matches!(refused(folder.path()), JournalError::Lost { missing: 1, .. }), "it was acknowledged");
    let checked = checked::check(folder.path(), &mut |_| Ok(())).unwrap();
    let (mut journal, recovery) = checked.go_on(GivenUp::none()).unwrap();
    assert_eq!(recovery.cut.map(|cut| cut.batches), Some(1));
    let known = |journal: &SqliteJournal| {
        [1, 2, 3].map(|subject| journal.identity("default", &format!("s{subject}")).unwrap().map(|e| e.job.0))
    };
    assert_eq!(known(&journal), [Some(1), Some(2), None]);
    append(&mut journal, 3, &[run(3, 3)]);
    drop(journal);
    assert_eq!(verify(folder.path()).unwrap().finished, 3);
    assert_eq!(known(&open(folder.path())), [Some(1), Some(2), Some(3)]);
}
