//! What batches charge: with their batch or not at all, once, the same before and after it is added up.

use super::*;
use crate::spend::{JobSlots, SpendPart, SpendPlace, SpendQuery, SpendRead};
use forebay_kernel::ids::{Attempt, JobId, OfferingId};
use forebay_kernel::state::billing::{BatchCharges, BilledJob, BilledPool, Charge, ChargeKey, ChargeKind, LedgerSlot};
use forebay_kernel::units::Rate;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

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
    append_as(journal, number, number)
}

/// A batch that charges what another one charges.
fn append_as(journal: &mut SqliteJournal, number: u64, charged: u64) -> Seq {
    let batch = Batch { first_seq: journal.end(), ..batch(0, number) };
    let charges = charges_of(charged);
    journal.append_many(&[JournalEntry { charges: &charges, ..JournalEntry::of(&batch) }]).unwrap();
    batch.next_seq()
}

fn expected(batches: u64) -> BTreeMap<ChargeKey, i128> {
    added(0..batches)
}

fn added(numbers: impl Iterator<Item = u64>) -> BTreeMap<ChargeKey, i128> {
    let mut sums = BTreeMap::new();
    for Charge { key, amount } in numbers.flat_map(|number| charges_of(number).charges) {
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
        SpendRead::Cut { before } => panic!("it was broken off before {before:?}"),
    }
}

/// So many charges and jobs may be held.
fn at_most(most: usize) -> impl FnMut(usize) -> ControlFlow<()> {
    move |held| if held > most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// A journal of so many batches, with a snapshot after each tenth of the first ones: what these charged is in sums. With where each batch ends.
fn rolled(folder: &std::path::Path, batches: u64, rolled: u64) -> (SqliteJournal, Vec<Seq>) {
    let mut journal = SqliteJournal::create(folder, 7).unwrap();
    let mut positions = Vec::new();
    for number in 0..batches {
        positions.push(append(&mut journal, number));
        if number < rolled && number % 10 == 9 {
            journal.begin_snapshot_of(chunks_of(&number.to_le_bytes()));
            journal.settle();
        }
    }
    (journal, positions)
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

#[test]
fn what_was_broken_off_is_told_with_the_slot_before_which_all_of_it_fits() {
    let folder = tempfile::tempdir().unwrap();
    let (journal, positions) = rolled(folder.path(), 100, 80);
    let (reader, end) = (journal.archive_reader().unwrap(), positions[99]);
    let whole = expected(100);
    let (mut cuts, mut found) = (BTreeMap::new(), 0);
    for most in 0..whole.len() + 20 {
        match reader.spend_within(&SpendQuery::all(end), &mut at_most(most)).unwrap() {
            SpendRead::Found { charges, .. } => {
                assert_eq!(charges, whole, "{most}: a part is never told for all of it");
                found += 1;
            }
            SpendRead::Passed => panic!("nothing went on"),
            SpendRead::Cut { before } => {
                let part = SpendQuery { to: before, ..SpendQuery::all(end) };
                let read = reader.spend_within(&part, &mut at_most(most)).unwrap();
                let SpendRead::Found { charges, .. } = read else { panic!("{most}: {read:?} before {before:?}") };
                let fits: BTreeMap<_, _> = whole.clone().into_iter().filter(|(key, _)| key.slot < before).collect();
                assert_eq!(charges, fits, "{most}");
                *cuts.entry(before).or_insert(0) += 1;
            }
        }
    }
    assert!(cuts.len() >= 5 && found >= 5, "{cuts:?}, and {found} times all of it");
    assert!(cuts.keys().next_back().is_some_and(|last| *last > LedgerSlot(0)), "{cuts:?}");
}

#[test]
fn jobs_have_their_own_charges_and_those_that_were_not_looked_for_are_not_counted() {
    let folder = tempfile::tempdir().unwrap();
    let (journal, positions) = rolled(folder.path(), 100, 80);
    let (reader, end) = (journal.archive_reader().unwrap(), positions[99]);
    let own = |asked: &[JobSlots]| -> BTreeMap<ChargeKey, i128> {
        let takes = |key: &ChargeKey| {
            asked.iter().any(|one| key.job == Some(one.job) && key.slot >= one.from && key.slot < one.to)
        };
        expected(100).into_iter().filter(|(key, _)| takes(key)).collect()
    };
    let slots = |job: u64, from: u32, to: u32| JobSlots { job: JobId(job), from: LedgerSlot(from), to: LedgerSlot(to) };
    let asked = [slots(3, 0, u32::MAX), slots(1, 8, 24), slots(4, 12, 13), slots(77, 0, u32::MAX)];
    let found = reader.spend_of_jobs(end, &asked, &mut at_most(usize::MAX)).unwrap().expect("nothing went on");
    assert_eq!((found.charges, found.whole), (own(&asked), 4));
    assert!(!own(&asked[..1]).is_empty() && !own(&asked[1..2]).is_empty());
    // One row after the other is looked at, and then no more.
    let mut whole = Vec::new();
    for rows in 0.. {
        let mut left = rows;
        let mut go_on = |_: usize| {
            left -= 1;
            if left < 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let found = reader.spend_of_jobs(end, &asked, &mut go_on).unwrap().expect("nothing went on");
        let told = &asked[..found.whole];
        let is_told = |key: &ChargeKey| told.iter().any(|one| key.job == Some(one.job));
        let charges: BTreeMap<_, _> = found.charges.into_iter().filter(|(key, _)| is_told(key)).collect();
        assert_eq!(charges, own(told), "{rows} rows");
        whole.push(found.whole);
        if found.whole == asked.len() {
            break;
        }
    }
    assert!(whole.is_sorted() && whole.first() == Some(&0) && whole.contains(&1) && whole.contains(&3), "{whole:?}");
    // A position that the sums have passed.
    assert_eq!(reader.spend_of_jobs(positions[5], &asked, &mut at_most(usize::MAX)).unwrap(), None);
}

/// Which of the first hundred batches one charges as: from the hundredth on it is now an early one and now a late one.
fn charged_as(number: u64) -> u64 {
    if number < 100 { number } else { number * 37 % 100 }
}

/// What was charged by then at the places up to one.
fn reached(batches: u64, last: Option<SpendPlace>) -> BTreeMap<ChargeKey, i128> {
    let all = added((0..batches).map(charged_as));
    all.into_iter().filter(|(key, _)| last.is_none_or(|last| last.reaches(key))).collect()
}

#[test]
fn parts_add_up_to_all_of_it_though_the_journal_goes_on_between_them() {
    let folder = tempfile::tempdir().unwrap();
    let (mut journal, mut positions) = rolled(folder.path(), 100, 80);
    let reader = journal.archive_reader().unwrap();
    let (mut sums, mut last, mut parts) = (BTreeMap::<ChargeKey, i128>::new(), None, 0);
    loop {
        let upto = *positions.last().unwrap();
        let part = reader.spend_part(upto, last, &mut at_most(3)).unwrap().expect("nothing is added up");
        let SpendPart { charges, jobs, last: reaches } = part;
        assert!(jobs.iter().all(|(id, job)| job.queue == format!("q{}", id.0)), "{jobs:?}");
        assert!(jobs.keys().all(|id| charges.keys().any(|key| key.job == Some(*id))), "{jobs:?}, {charges:?}");
        for (key, amount) in charges {
            assert!(sums.insert(key, amount).is_none(), "{key:?} is in two parts");
        }
        parts += 1;
        assert_eq!(sums, reached(positions.len() as u64, reaches), "{parts} parts");
        let Some(place) = reaches else { break };
        assert!(last.is_none_or(|last| last < place), "{last:?}, and then {place:?}");
        last = Some(place);
        // A batch that adds to what was read already, or to what comes yet.
        let number = positions.len() as u64;
        positions.push(append_as(&mut journal, number, charged_as(number)));
        let between = reader.charged_between(upto, *positions.last().unwrap()).unwrap().expect("nothing is added up");
        for Charge { key, amount } in between.charges.into_iter().filter(|charge| place.reaches(&charge.key)) {
            *sums.entry(key).or_default() += amount;
        }
        sums.retain(|_, amount| *amount != 0);
        assert_eq!(sums, reached(positions.len() as u64, Some(place)));
    }
    assert!(parts > 10, "{parts} parts");
    assert_eq!(reader.spend_part(positions[5], None, &mut at_most(3)).unwrap(), None, "the sums have passed it");
}
