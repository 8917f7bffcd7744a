//! Finished jobs: written with their batch, found by id, subject, queue and outcome, gone after retention, known for ever.

use super::*;
use crate::archive::{ArchiveQuery, ArchiveRow, ArchiveSliceQuery, FinishedJob};
use forebay_kernel::decision::Outcome;
use forebay_kernel::ids::JobId;
use forebay_kernel::job::JobSpec;

#[path = "../../tests/jobs/mod.rs"]
mod jobs;

pub(super) fn finished(number: u64, subject: &str, queue: &str, outcome: Outcome, ended: u64) -> FinishedJob {
    let spec = JobSpec {
        tenant: "default".to_owned(),
        subject: subject.to_owned(),
        principal: "airflow-prod".to_owned(),
        queue: queue.to_owned(),
        digest: u128::from(number) << 64 | 0x1234_5678_9abc_def0,
        sent: Some(Timestamp(1_793_000_000_000 + number)),
        expected: Some(Span::mins(90)),
        models: vec!["h100".to_owned()],
        ..JobSpec::default()
    };
    jobs::finished(JobId(number), spec, outcome, Timestamp(ended))
}

fn tick(journal: &SqliteJournal, now: u64) -> Batch {
    let tick = Tick { now: Timestamp(now), resumed: false, delivered: 0 };
    Batch { version: APPLY_VERSION, first_seq: journal.end(), tick, events: Vec::new(), decisions: Vec::new() }
}

pub(super) fn append(journal: &mut SqliteJournal, now: u64, jobs: &[FinishedJob]) {
    let batch = tick(journal, now);
    journal.append_many(&[JournalEntry { finished: jobs, ..JournalEntry::of(&batch) }]).unwrap();
}

fn queue(number: u64) -> &'static str {
    ["research/vision", "research/language", "search"][number as usize % 3]
}

fn outcome(number: u64) -> Outcome {
    if number.is_multiple_of(7) { Outcome::Failed } else { Outcome::Completed }
}

fn some(number: u64) -> FinishedJob {
    finished(number, &format!("run-{number}"), queue(number), outcome(number), 1_000 * number)
}

fn all(queues: &[&str], outcome: Option<Outcome>) -> ArchiveQuery {
    ArchiveQuery { queues: queues.iter().map(|&q| q.to_owned()).collect(), outcome, before: None, limit: 13 }
}

fn reopened(folder: &Path) -> SqliteJournal {
    SqliteJournal::open(folder, &mut |_| Ok(())).unwrap().0
}

#[test]
fn a_finished_job_is_found_by_id_and_subject_and_in_lists_by_queue_and_outcome() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = SqliteJournal::create(folder.path(), 0).unwrap();
    for first in (0..200).step_by(4) {
        let jobs: Vec<_> = (first..first + 4).map(some).collect();
        append(&mut journal, 1_000 * first, &jobs);
    }
    let reader = journal.archive_reader().unwrap();
    assert_eq!(reader.finished(JobId(77)).unwrap().unwrap().finished, some(77));
    assert_eq!(reader.finished(JobId(777)).unwrap(), None);
    assert_eq!(reader.finished_by_subject("default", "run-12").unwrap().unwrap().row, ArchiveRow(13));
    assert_eq!(reader.finished_by_subject("other", "run-12").unwrap(), None);
    for queues in [&[][..], &["search"], &["research/vision", "search"]] {
        for outcome_asked in [None, Some(Outcome::Failed), Some(Outcome::Cancelled)] {
            let expected: Vec<u64> = (0..200u64)
                .rev()
                .filter(|n| queues.is_empty() || queues.contains(&queue(*n)))
                .filter(|n| outcome_asked.is_none_or(|o| o == outcome(*n)))
                .collect();
            let (mut query, mut found) = (all(queues, outcome_asked), Vec::new());
            loop {
                let page = reader.list(&query).unwrap();
                assert!(page.jobs.len() <= 13);
                found.extend(page.jobs.iter().map(|job| job.finished.job.id.0));
                query.before = page.next;
                if page.next.is_none() {
                    break;
                }
            }
            assert_eq!(found, expected, "{queues:?} {outcome_asked:?}");
        }
    }
    let ids = |after, queue: Option<&str>, limit| -> Vec<u64> {
        let query = ArchiveSliceQuery { after, queue: queue.map(str::to_owned), outcome: None, limit };
        let found = reader.in_order(&query).unwrap();
        assert_eq!(found.upto.is_some(), found.jobs.len() == limit, "it ends where there are no more");
        found.jobs.iter().map(|job| job.finished.job.id.0).collect()
    };
    assert_eq!(ids(None, None, 5), [0, 1, 2, 3, 4]);
    assert_eq!(ids(Some(JobId(100)), Some("search"), 3), [101, 104, 107]);
    assert_eq!(ids(Some(JobId(0)), Some("nobody's"), 3), [0; 0]);
    let failed = ArchiveSliceQuery { outcome: Some(Outcome::Failed), limit: 4, ..ArchiveSliceQuery::default() };
    let failed = reader.in_order(&failed).unwrap().jobs;
    let expected: Vec<u64> = (0..200).filter(|n| outcome(*n) == Outcome::Failed).take(4).collect();
    assert_eq!(failed.iter().map(|job| job.finished.job.id.0).collect::<Vec<_>>(), expected);
    drop((reader, journal));
    assert_eq!(verify(folder.path()).unwrap().finished, 200);
    let journal = reopened(folder.path());
    assert_eq!(journal.identity("default", "run-12").unwrap().unwrap().job, JobId(12));
    let outside = ArchiveReader::open(folder.path()).unwrap();
    assert_eq!(outside.finished_by_subject("default", "run-199").unwrap().unwrap().finished, some(199));
}

#[test]
fn an_identity_is_known_before_its_batch_is_durable_and_not_after_a_crash_that_lost_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = SqliteJournal::create(folder.path(), 0).unwrap();
    append(&mut journal, 1, &[some(1)]);
    journal.note_finished(&[some(2)]);
    assert_eq!(journal.identity("default", "run-2").unwrap().unwrap().job, JobId(2));
    drop(journal);
    let journal = reopened(folder.path());
    assert_eq!(journal.identity("default", "run-2").unwrap(), None);
    assert_eq!(journal.identity("default", "run-1").unwrap(), some(1).identity());
}

#[test]
fn a_replica_is_in_the_archive_and_has_no_identity() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = SqliteJournal::create(folder.path(), 0).unwrap();
    let mut replica = some(5);
    replica.job.service = Some(JobId(1));
    append(&mut journal, 1, &[replica]);
    assert_eq!(journal.identity("default", "run-5").unwrap(), None);
    assert!(journal.archive_reader().unwrap().finished(JobId(5)).unwrap().is_some());
}

#[test]
fn what_is_older_than_it_is_kept_leaves_and_stays_known() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = SqliteJournal::create(folder.path(), 0).unwrap();
    let month = JournalRetention::default().finished.0;
    let (count, step) = (40_000u64, 100);
    for first in (0..count).step_by(step) {
        let jobs: Vec<_> = (first..first + step as u64)
            .map(|n| finished(n, &format!("run-{n}"), queue(n), outcome(n), n * month / 20_000))
            .collect();
        append(&mut journal, first * month / 20_000, &jobs);
    }
    journal.tidy();
    journal.settle();
    assert_eq!(journal.background_failure(), None);
    let reader = journal.archive_reader().unwrap();
    assert_eq!(reader.finished(JobId(100)).unwrap(), None, "two months old");
    assert!(reader.finished(JobId(39_000)).unwrap().is_some());
    for n in (0..count).step_by(997) {
        assert_eq!(journal.identity("default", &format!("run-{n}")).unwrap().unwrap().job, JobId(n));
    }
    drop((reader, journal));
    let verified = verify(folder.path()).unwrap();
    assert!((19_900..=20_200).contains(&verified.finished), "{verified:?}");
    assert!(verified.identities >= 32_768, "{verified:?}");
    let journal = reopened(folder.path());
    assert_eq!(journal.identity("default", "run-0").unwrap().unwrap().job, JobId(0));
}

#[test]
fn the_log_stays_short_though_a_small_batch_writes_many_pages() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = SqliteJournal::create(folder.path(), 0).unwrap();
    let mut longest = 0;
    for round in 0..6_000_u64 {
        let jobs: Vec<_> =
            (0..6).map(|n| finished(round * 6 + n, &format!("s{n}-{round}"), "q", Outcome::Completed, round)).collect();
        append(&mut journal, round, &jobs);
        let long = std::fs::metadata(crate::beside(&folder.path().join(crate::FILE), "-wal")).unwrap().len();
        longest = longest.max(long);
    }
    println!("the log had {longest} bytes at most");
    // 64 MiB, and what is written until the thread has its turn.
    assert!(longest < 96 << 20, "{longest} bytes");
}
