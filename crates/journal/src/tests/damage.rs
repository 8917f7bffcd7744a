//! Damage in every table: a start recovers a prefix or refuses, and `verify` finds whatever is less than it was.

use super::archive::{append, finished};
use super::*;
use forebay_kernel::decision::Outcome;

/// A journal with rows in every table.
fn full() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = SqliteJournal::create(folder.path(), 0).unwrap();
    let jobs: Vec<_> = (1..=17_000)
        .map(|n| finished(n, &format!("s{n}"), ["a", "b"][n as usize % 2], Outcome::Completed, n))
        .collect();
    for jobs in jobs.chunks(1_000) {
        append(&mut journal, 1, jobs);
    }
    journal.settle();
    for number in 0..30 {
        let at = positions(number);
        let batch = batch(journal.end().0, number);
        let (seen, requests) = ([u128::from(number)], [(Seq(number), vec![1, 2, 3])]);
        let entry = JournalEntry { positions: &at, seen: &seen, requests: &requests, ..JournalEntry::of(&batch) };
        journal.append_many(&[entry]).unwrap();
        if number % 10 == 5 {
            journal.begin_snapshot_of(chunks_of(&vec![number as u8; 600_000]));
            journal.settle();
        }
    }
    let batch = batch(journal.end().0, 1);
    let policy = forebay_kernel::policy::Policy::default();
    let batch = Batch { events: vec![Event::Configured(Box::new(policy))], ..batch };
    journal.append_many(&[JournalEntry { policy: Some("text"), ..JournalEntry::of(&batch) }]).unwrap();
    assert_eq!(journal.background_failure(), None);
    folder
}

const TABLES: [(&str, &str); 12] = [
    ("meta", "uuid"),
    ("batches", "payload"),
    ("batches", "positions"),
    ("snapshots", "chunks"),
    ("chunks", "bytes"),
    ("sources", "text"),
    ("seen", "ids"),
    ("requests", "body"),
    ("archive", "body"),
    ("archive_queues", "path"),
    ("identity_filters", "body"),
    ("identity_pages", "body"),
];

#[test]
fn verify_finds_a_changed_byte_in_every_table() {
    let whole = full();
    verify(whole.path()).unwrap();
    for (table, column) in TABLES {
        let folder = copied(whole.path());
        let statement = if matches!(column, "text" | "path") {
            format!("UPDATE {table} SET {column} = {column} || 'x' WHERE rowid = (SELECT min(rowid) FROM {table})")
        } else {
            format!(
                "UPDATE {table} SET {column} = cast(x'55' || substr({column}, 2) AS BLOB)
                 WHERE rowid = (SELECT min(rowid) FROM {table} WHERE length({column}) > 0)"
            )
        };
        sql(folder.path(), &statement);
        let error = verify(folder.path()).expect_err(table);
        assert!(matches!(error, JournalError::Damaged { .. }), "{table}.{column}: {error}");
    }
}

#[test]
fn verify_finds_a_missing_row_in_every_table_where_one_would_be_less() {
    let whole = full();
    // Ids of events and frozen requests are forgotten row by row in any order: a row less is no damage there.
    let tables = ["meta", "batches", "chunks", "archive", "identity_runs", "identity_filters", "identity_pages"];
    for table in tables {
        for end in ["min", "max"] {
            let folder = copied(whole.path());
            sql(folder.path(), &format!("DELETE FROM {table} WHERE rowid = (SELECT {end}(rowid) FROM {table})"));
            match verify(folder.path()) {
                // The newest batch of all is missed by the mark alone.
                Err(JournalError::Lost { .. }) if (table, end) == ("batches", "max") => {}
                Err(error) => assert!(matches!(error, JournalError::Damaged { .. }), "{table} {end}: {error}"),
                // The oldest finished job: as if it had been kept for its time.
                Ok(found) if (table, end) == ("archive", "min") => assert_eq!(found.identities, 17_000),
                // The archive still has every job: the run is made again.
                Ok(found) if table == "identity_runs" => assert_eq!(found.finished, 17_000),
                Ok(found) => panic!("{table} {end}: {found:?}"),
            }
        }
    }
}

#[test]
fn a_flipped_bit_anywhere_in_a_journal_with_everything_is_found_or_changes_nothing() {
    let whole = full();
    let sound = verify(whole.path()).unwrap();
    let bytes = std::fs::read(whole.path().join(FILE)).unwrap();
    let mut found = 0;
    for seed in 0..150 {
        let mut dice = Dice(seed);
        let mut damaged = bytes.clone();
        let at = dice.below(bytes.len() as u64) as usize;
        damaged[at] ^= 1 << dice.below(8);
        let folder = with_database(whole.path(), &damaged);
        match verify(folder.path()) {
            Ok(verified) => assert_eq!(verified, sound, "seed {seed}, byte {at}"),
            Err(_) => found += 1,
        }
    }
    assert!(found > 75, "{found} of 150 found: the rest is in pages that are not used");
}
