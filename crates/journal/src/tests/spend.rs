//! What batches charge: with their batch or not at all, once, the same before and after it is added up.

use super::*;
use crate::spend::{SpendQuery, SpendRead};
use forebay_kernel::ids::{Attempt, JobId, OfferingId};
use forebay_kernel::state::billing::{BatchCharges, BilledJob, BilledPool, Charge, ChargeKey, ChargeKind, LedgerSlot};
use forebay_kernel::units::Rate;
use std::collections::BTreeMap;

fn charges_of(number: u64) -> BatchCharges {
    let charge = |n: u64| {
        let job = (!n.is_multiple_of(3)).then_some(JobId(n % 5));
        let key = ChargeKey {
            slot: LedgerSlot(4 * (number as u32 / 10)),
            job,
            attempt: Attempt(u32::from(job.is_some())),
            kind: if job.is_some() { ChargeKind::Worked } else { ChargeKind::Idle },
            pool: BilledPool(0),
            offering: OfferingId(n as u32 % 2),
            price: Rate(100 + n % 2),
        };
        // Corrections are less than nothing.
        Charge { key, amount: if n.is_multiple_of(7) { -(n as i128) } else { 1_000 * n as i128 } }
    };
    let jobs =
        (number < 5).then(|| BilledJob { job: JobId(number), queue: format!("q{number}"), ..BilledJob::default() });
    BatchCharges { charges: (number..number + 4).map(charge).collect(), jobs: jobs.into_iter().collect() }
}

fn append(journal: &mut SqliteJournal, number: u64) -> Seq {
    let batch = Batch { first_seq: journal.end(), ..batch(0, number) };
    let charges = charges_of(number);
    journal.append_many(&[JournalEntry { charges: &charges, ..JournalEntry::of(&batch) }]).unwrap();
    batch.next_seq()
}

fn expected(batches: u64) -> BTreeMap<ChargeKey, i128> {
    let mut sums = BTreeMap::new();
    for Charge { key, amount } in (0..batches).flat_map(|number| charges_of(number).charges) {
        *sums.entry(key).or_default() += amount;
    }
    sums.retain(|_, amount| *amount != 0);
    sums
}

fn found(journal: &SqliteJournal, query: &SpendQuery) -> Option<BTreeMap<ChargeKey, i128>> {
    match journal.archive_reader().unwrap().spend(query).unwrap() {
        SpendRead::Found { charges, jobs } => {
            assert!(jobs.iter().all(|(id, job)| job.queue == format!("q{}", id.0)), "{jobs:?}");
            Some(charges)
        }
        SpendRead::Passed => None,
    }
}

fn rows(journal: &SqliteJournal, table: &str) -> u64 {
    journal.db.number(&format!("SELECT count(*) FROM {table}")).unwrap().unwrap()
}

#[test]
fn what_was_charged_is_the_same_while_it_is_added_up() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = SqliteJournal::create(folder.path(), 7).unwrap();
    let mut positions = Vec::new();
    for number in 0..300 {
        positions.push(append(&mut journal, number));
        if number % 40 == 39 {
            journal.begin_snapshot_of(chunks_of(&number.to_le_bytes()));
            journal.settle();
            assert_eq!(journal.background_failure(), None);
        }
        let all = SpendQuery::all(*positions.last().unwrap());
        assert_eq!(found(&journal, &all), Some(expected(number + 1)), "after batch {number}");
    }
    // 300 batches, the last but one snapshot after 240.
    assert_eq!((rows(&journal, "charges"), rows(&journal, "spend")), (60, 24 * 6));
    // What came between two positions is what the later one has more, unless it is in sums by now.
    let reader = journal.archive_reader().unwrap();
    for (from, to) in [(239, 299), (260, 261), (270, 270), (100, 299)] {
        let found = reader.charged_between(positions[from], positions[to]).unwrap();
        let mut more = expected(from as u64 + 1);
        let Some(between) = found else {
            assert!(from < 239, "{from} is in no sum");
            continue;
        };
        assert!(between.jobs.iter().all(|(id, job)| job.queue == format!("q{}", id.0)), "{between:?}");
        for Charge { key, amount } in between.charges {
            *more.entry(key).or_default() += amount;
        }
        more.retain(|_, amount| *amount != 0);
        assert_eq!(more, expected(to as u64 + 1), "{from} to {to}");
    }
    assert_eq!(reader.charged_between(positions[100], positions[299]).unwrap(), None);
    // A position that the sums have passed is told, and one that they have not is exact.
    assert_eq!(found(&journal, &SpendQuery::all(positions[100])), None);
    assert_eq!(found(&journal, &SpendQuery::all(positions[250])), Some(expected(251)));
    let some = SpendQuery { from: LedgerSlot(8), to: LedgerSlot(100), ..SpendQuery::all(positions[299]) };
    let within: BTreeMap<_, _> =
        expected(300).into_iter().filter(|(key, _)| key.slot >= some.from && key.slot < some.to).collect();
    assert_eq!(found(&journal, &some), Some(within));
    let job = expected(300).into_keys().find_map(|key| key.job);
    let own: BTreeMap<_, _> = expected(300).into_iter().filter(|(key, _)| key.job == job).collect();
    assert!(job.is_some() && !own.is_empty());
    assert_eq!(found(&journal, &SpendQuery { job, ..SpendQuery::all(positions[299]) }), Some(own));
    drop(journal);
    verify(folder.path()).unwrap();
    let (journal, _) = SqliteJournal::open(folder.path(), &mut |_| Ok(())).unwrap();
    assert_eq!(found(&journal, &SpendQuery::all(journal.end())), Some(expected(300)));
}

#[test]
fn a_batch_that_is_cut_takes_its_charges_along() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = SqliteJournal::create(folder.path(), 7).unwrap();
    let positions: Vec<Seq> = (0..4).map(|number| append(&mut journal, number)).collect();
    drop(journal);
    let db = rusqlite::Connection::open(folder.path().join(FILE)).unwrap();
    let torn = "UPDATE batches SET payload = zeroblob(length(payload)) WHERE seq >= ?1";
    assert_eq!(db.execute(torn, [positions[1].0 as i64]).unwrap(), 2);
    drop(db);
    nothing_acknowledged(folder.path());
    let (mut journal, recovery) = SqliteJournal::open(folder.path(), &mut |_| Ok(())).unwrap();
    assert_eq!(recovery.cut.map(|tail| tail.batches), Some(2));
    assert_eq!(found(&journal, &SpendQuery::all(journal.end())), Some(expected(2)));
    // The jobs of the batches that are no more are others now.
    assert_eq!(journal.archive_reader().unwrap().billed_job(JobId(2)).unwrap(), None);
    let again = append(&mut journal, 2);
    assert_eq!(found(&journal, &SpendQuery::all(again)), Some(expected(3)));
}

#[test]
fn a_damaged_charge_is_named_and_nothing_is_billed() {
    for table in ["charges", "spend", "spend_jobs"] {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = SqliteJournal::create(folder.path(), 7).unwrap();
        for number in 0..30 {
            append(&mut journal, number);
            if number % 10 == 9 {
                journal.begin_snapshot_of(chunks_of(&number.to_le_bytes()));
                journal.settle();
            }
        }
        let end = journal.end();
        drop(journal);
        let db = rusqlite::Connection::open(folder.path().join(FILE)).unwrap();
        let damage = format!("UPDATE {table} SET body = zeroblob(length(body))");
        assert!(db.execute(&damage, []).unwrap() > 0, "{table}");
        drop(db);
        let reader = ArchiveReader::open(folder.path()).unwrap();
        for error in [reader.spend(&SpendQuery::all(end)).unwrap_err(), verify(folder.path()).unwrap_err()] {
            assert!(error.to_string().contains(&format!("(table {table})")), "{error}");
        }
    }
}

#[test]
fn a_journal_from_before_there_were_bills_gets_its_tables_at_its_next_start() {
    let (folder, journal) = journal(3, &[]);
    let end = journal.end();
    drop(journal);
    let db = rusqlite::Connection::open(folder.path().join(FILE)).unwrap();
    db.execute_batch("DROP TABLE charges; DROP TABLE spend; DROP TABLE spend_jobs; DROP TABLE spend_rolled").unwrap();
    drop(db);
    verify(folder.path()).unwrap();
    let reader = ArchiveReader::open(folder.path()).unwrap();
    let nothing = SpendRead::Found { charges: BTreeMap::new(), jobs: BTreeMap::new() };
    assert_eq!(reader.spend(&SpendQuery::all(end)).unwrap(), nothing);
    assert_eq!(reader.billed_job(JobId(0)).unwrap(), None);
    let (mut journal, _) = SqliteJournal::open(folder.path(), &mut |_| Ok(())).unwrap();
    let after = append(&mut journal, 3);
    let only: BTreeMap<_, _> = charges_of(3).charges.into_iter().map(|charge| (charge.key, charge.amount)).collect();
    assert_eq!(found(&journal, &SpendQuery::all(after)), Some(only));
}
