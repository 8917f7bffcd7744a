//! What the cloud did: kept when its batches are gone, for as long as finished jobs are, and cut with them.

use super::*;
use crate::cloud::{self, CloudNote};
use forebay_kernel::event::{GoneWhy, LaunchError};
use forebay_kernel::ids::{OfferingId, PurchaseId};
use forebay_kernel::units::Rate;
use std::ops::ControlFlow;

const HOUR: u64 = 3_600_000;

/// A batch an hour. Every third has nothing of the cloud.
fn append(journal: &mut SqliteJournal, number: u64) {
    let instance = format!("i-{number}");
    let events = match number % 3 {
        0 => batch(0, 3).events,
        1 => vec![
            Event::LaunchOutcome {
                purchase: PurchaseId(number),
                instances: vec![instance.clone()],
                error: Some(LaunchError::Capacity),
            },
            Event::NodeReady { instance },
        ],
        _ => vec![
            Event::ReclaimNotice { instance: instance.clone(), at: Timestamp(9) },
            Event::NodeGone { instance, why: GoneWhy::Reclaimed },
            Event::PriceChanged { offering: OfferingId(1), price: Rate(number) },
        ],
    };
    let tick = Tick { now: Timestamp(number * HOUR), resumed: false, delivered: 0 };
    let batch = Batch { version: APPLY_VERSION, first_seq: journal.end(), tick, events, decisions: Vec::new() };
    journal.append(&batch).unwrap();
}

fn expected(number: u64) -> Option<(Timestamp, Vec<CloudNote>)> {
    let instance = format!("i-{number}");
    let notes = match number % 3 {
        0 => return None,
        1 => vec![
            CloudNote::Answered {
                purchase: PurchaseId(number),
                instances: vec![instance.clone()],
                error: Some(LaunchError::Capacity),
            },
            CloudNote::Ready { instance },
        ],
        _ => vec![
            CloudNote::Reclaiming { instance: instance.clone() },
            CloudNote::Gone { instance, why: GoneWhy::Reclaimed },
            CloudNote::Priced { offering: OfferingId(1), price: Rate(number) },
        ],
    };
    Some((Timestamp(number * HOUR), notes))
}

fn found(journal: &SqliteJournal) -> Vec<(Timestamp, Vec<CloudNote>)> {
    let mut all = Vec::new();
    cloud::each(&journal.db, &mut |at, notes| {
        all.push((at, notes));
        ControlFlow::Continue(())
    })
    .unwrap();
    all
}

#[test]
fn what_the_cloud_did_stays_when_its_batches_are_gone_and_goes_with_finished_jobs() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = SqliteJournal::create(folder.path(), 7).unwrap();
    journal.keep(JournalRetention { finished: Span::mins(1500 * 60), ..JournalRetention::default() });
    for number in 0..1600 {
        append(&mut journal, number);
        if number % 400 == 399 {
            journal.begin_snapshot_of(chunks_of(&number.to_le_bytes()));
            journal.settle();
        }
    }
    let batches = journal.db.number("SELECT count(*) FROM batches").unwrap();
    assert!(batches.is_some_and(|batches| batches < 1000), "{batches:?} batches are kept");
    journal.tidy();
    journal.settle();
    assert_eq!(journal.background_failure(), None);
    // Kept are those of the last 1,500 hours before the last tick.
    let kept: Vec<_> = (1599 - 1500..1600).filter_map(expected).collect();
    assert_eq!(found(&journal), kept);
    drop(journal);
    verify(folder.path()).unwrap();
}

#[test]
fn what_the_cloud_did_in_a_batch_that_is_cut_is_cut_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = SqliteJournal::create(folder.path(), 7).unwrap();
    let mut ends = Vec::new();
    for number in 0..6 {
        append(&mut journal, number);
        ends.push(journal.end());
    }
    drop(journal);
    let db = rusqlite::Connection::open(folder.path().join(FILE)).unwrap();
    let torn = "UPDATE batches SET payload = zeroblob(length(payload)) WHERE seq >= ?1";
    assert_eq!(db.execute(torn, [ends[1].0 as i64]).unwrap(), 4);
    drop(db);
    nothing_acknowledged(folder.path());
    let (journal, recovery) = SqliteJournal::open(folder.path(), &mut |_| Ok(())).unwrap();
    assert_eq!(recovery.cut.map(|tail| tail.batches), Some(4));
    assert_eq!(found(&journal), Vec::from_iter(expected(1)));
}

#[test]
fn damage_is_named_and_a_journal_from_before_gets_its_table_at_its_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = SqliteJournal::create(folder.path(), 7).unwrap();
    (0..3).for_each(|number| append(&mut journal, number));
    drop(journal);
    let damage = |sql: &str| {
        let db = rusqlite::Connection::open(folder.path().join(FILE)).unwrap();
        db.execute_batch(sql).unwrap();
    };
    damage("UPDATE cloud SET tick_ms = tick_ms + 1");
    let error = verify(folder.path()).unwrap_err().to_string();
    assert!(error.contains("(table cloud)"), "{error}");
    damage("DROP TABLE cloud");
    verify(folder.path()).unwrap();
    let (mut journal, _) = SqliteJournal::open(folder.path(), &mut |_| Ok(())).unwrap();
    assert_eq!(found(&journal), []);
    append(&mut journal, 4);
    assert_eq!(found(&journal), Vec::from_iter(expected(4)));
}
