//! The journal against torn tails, damage, gaps, strangers and full disks: recover a prefix or refuse, never a wrong record.

mod archive;
mod cloud;
mod damage;
mod identities;
mod snapshots;
mod spend;
mod upgrade;

use super::*;
use crate::chunk::chunks_of;
use forebay_kernel::event::Tick;
use forebay_kernel::units::Timestamp;
use rusqlite::params;
use tempfile::TempDir;

/// SplitMix64: small, seeded, good enough to pick bytes.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

fn batch(first_seq: u64, number: u64) -> Batch {
    let event = |i: u64| Event::JobCancelled {
        tenant: format!("tenant-{number}"),
        subject: "x".repeat((i * 37 % 200) as usize),
        by: None,
        sent: None,
    };
    let tick = Tick { now: Timestamp(1_000 * number), resumed: false, delivered: number };
    Batch {
        version: APPLY_VERSION,
        first_seq: Seq(first_seq),
        tick,
        events: (0..number % 5).map(event).collect(),
        decisions: Vec::new(),
    }
}

fn batches(n: u64) -> Vec<Batch> {
    let mut seq = 0;
    (0..n)
        .map(|number| {
            let batch = batch(seq, number);
            seq = batch.next_seq().0;
            batch
        })
        .collect()
}

fn positions(n: u64) -> Positions {
    Positions::from([("file".to_owned(), n)])
}

/// A journal of `n` batches, with snapshots (whose state is the number of batches) where asked for.
fn journal(n: u64, snapshots: &[u64]) -> (TempDir, SqliteJournal) {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = SqliteJournal::create(folder.path(), 7).unwrap();
    for (batch, number) in batches(n).iter().zip(1..) {
        journal.append_many(&[JournalEntry { positions: &positions(number), ..JournalEntry::of(batch) }]).unwrap();
        if snapshots.contains(&number) {
            journal.begin_snapshot_of(chunks_of(&number.to_le_bytes()));
            journal.settle();
        }
    }
    (folder, journal)
}

/// What a recovery hands out, as batches: a snapshot of `n` stands for the first `n`.
fn read(folder: &Path) -> Result<(Vec<Batch>, SqliteJournal, Recovery), JournalError> {
    let mut got = Vec::new();
    let mut take = |part: RecoveredPart<'_, '_>| {
        match part {
            RecoveredPart::Start => got.clear(),
            RecoveredPart::Snapshot(chunks) => {
                let state: Vec<u8> = chunks.flat_map(|chunk| chunk.bytes).collect();
                let n = u64::from_le_bytes(state.try_into().map_err(|_| "not a number")?);
                got = batches(n);
            }
            RecoveredPart::Batch(batch) => got.push(batch.clone()),
        }
        Ok(())
    };
    let (journal, recovery) = SqliteJournal::open(folder, &mut take)?;
    Ok((got, journal, recovery))
}

fn refused(folder: &Path) -> JournalError {
    match read(folder) {
        Ok((got, _, recovery)) => panic!("opened with {} batches: {recovery:?}", got.len()),
        Err(e) => e,
    }
}

/// Another folder with the database and its mark.
fn copied(from: &Path) -> TempDir {
    let to = tempfile::tempdir().unwrap();
    for file in [FILE, MARK_FILE] {
        std::fs::copy(from.join(file), to.path().join(file)).unwrap();
    }
    to
}

/// Another folder with this database, and the mark of that one.
fn with_database(from: &Path, database: &[u8]) -> TempDir {
    let to = copied(from);
    std::fs::write(to.path().join(FILE), database).unwrap();
    to
}

/// Another folder with the database, its mark, and this log.
fn with_log(from: &Path, log: &[u8]) -> TempDir {
    let to = copied(from);
    std::fs::write(to.path().join(format!("{FILE}-wal")), log).unwrap();
    to
}

/// Every file of a folder but the lock.
fn contents(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let file = |entry: std::fs::DirEntry| {
        let name = entry.file_name().into_string().unwrap();
        (name != "forebay.lock").then(|| (name, std::fs::read(entry.path()).unwrap()))
    };
    let mut all: Vec<_> = entries.filter_map(file).collect();
    all.sort();
    all
}

/// Makes a closed journal's mark one of a journal that acknowledged nothing.
fn nothing_acknowledged(folder: &Path) {
    let mark::FoundMark::Sound(found) = mark::read(folder).unwrap() else { panic!("no mark") };
    let end = End { tick_ms: 0, archived: 0, seq: 0, chain: chain::first(found.uuid), positions: Positions::new() };
    mark::replace(folder, JournalMark::of(found.uuid, 0, &end, MarkState::Closed)).unwrap();
}

fn sql(folder: &Path, statement: &str) {
    let db = Connection::open(folder.join(FILE)).unwrap();
    let changed = db.execute(statement, []).unwrap();
    assert!(changed > 0, "{statement}");
}

#[test]
fn what_was_appended_comes_back_with_its_positions_and_policy() {
    let (folder, journal) = journal(0, &[]);
    let uuid = journal.meta().uuid;
    drop(journal);
    let (_, mut journal, recovery) = read(folder.path()).unwrap();
    assert_eq!(recovery, Recovery { snapshot: None, bad_snapshots: 0, batches: 0, cut: None });
    let all = batches(10);
    let at = positions(3);
    let entries: Vec<_> = all.iter().map(|batch| JournalEntry { positions: &at, ..JournalEntry::of(batch) }).collect();
    journal.append_many(&entries).unwrap();
    drop(journal);
    let (got, journal, recovery) = read(folder.path()).unwrap();
    assert_eq!((got, recovery.batches), (all, 10));
    let meta = journal.meta();
    assert_eq!((meta.format, meta.apply, meta.created_ms), (FORMAT_VERSION, APPLY_VERSION, 7));
    assert_eq!(meta.id(), JournalId { uuid: uuid.as_u128(), incarnation: 0 });
    assert_eq!(journal.positions(), &positions(3));
    assert_eq!(journal.policy_source().unwrap(), None);
}

#[test]
fn a_batch_that_does_not_follow_is_not_written() {
    let (folder, mut journal) = journal(3, &[]);
    let wrong = batch(99, 3);
    let error = journal.append(&wrong).unwrap_err();
    assert!(matches!(error, JournalError::OutOfOrder { got: Seq(99), .. }), "{error}");
    drop(journal);
    assert_eq!(read(folder.path()).unwrap().0.len(), 3);
}

#[test]
fn a_recovery_begins_at_the_newest_snapshot_and_two_are_kept() {
    let (folder, journal) = journal(20, &[4, 9, 15]);
    drop(journal);
    assert_eq!(verify(folder.path()).unwrap().first, batches(20)[9].first_seq, "older batches are in the snapshots");
    let (got, journal, recovery) = read(folder.path()).unwrap();
    assert_eq!((got, recovery.batches), (batches(20), 5));
    assert_eq!(journal.positions(), &positions(20));
    drop(journal);
    assert_eq!(verify(folder.path()).unwrap().snapshots.len(), 2);
}

#[test]
fn a_damaged_snapshot_is_left_for_an_earlier_one_or_the_start() {
    let (folder, first) = journal(20, &[9, 15]);
    drop(first);
    sql(folder.path(), "UPDATE chunks SET bytes = x'0102030405060708' WHERE id = (SELECT max(id) FROM chunks)");
    let verified = verify(folder.path()).unwrap_err();
    assert!(matches!(verified, JournalError::Damaged { place: DamagedAt::Snapshot(_), .. }), "{verified}");
    let (got, _, recovery) = read(folder.path()).unwrap();
    assert_eq!((got, recovery.batches, recovery.bad_snapshots), (batches(20), 11, 1));
    // It does not count as one of two any more.
    assert_eq!(verify(folder.path()).unwrap().snapshots.len(), 1);
    sql(folder.path(), "UPDATE snapshots SET crc32c = crc32c + 1");
    let said = refused(folder.path()).to_string();
    assert!(said.contains("no snapshot can be read"), "{said}");

    let (folder, second) = journal(20, &[9]);
    drop(second);
    sql(folder.path(), "UPDATE snapshots SET crc32c = crc32c + 1");
    let (got, _, recovery) = read(folder.path()).unwrap();
    assert_eq!((got, recovery.batches, recovery.snapshot), (batches(20), 20, None), "all batches are there");
    // With the next one it would count as two, and the batches before it would go.
    assert!(verify(folder.path()).unwrap().snapshots.is_empty());
}

#[test]
fn a_torn_tail_is_cut_and_said_and_the_journal_goes_on() {
    let (folder, journal) = journal(10, &[]);
    drop(journal);
    let all = batches(10);
    let from = all[8].first_seq;
    sql(folder.path(), &format!("UPDATE batches SET payload = x'00' WHERE seq >= {}", from.0));
    nothing_acknowledged(folder.path());
    let (got, mut journal, recovery) = read(folder.path()).unwrap();
    assert_eq!(got, all[..8]);
    let cut = recovery.cut.unwrap();
    assert_eq!((cut.batches, cut.from), (2, from));
    assert!(cut.to_string().contains(&format!("2 batches from position {from}")), "{cut}");
    assert_eq!(journal.positions(), &positions(8));
    journal.append(&all[8]).unwrap();
    drop(journal);
    let (got, _, recovery) = read(folder.path()).unwrap();
    assert_eq!((got, recovery.cut), (all[..9].to_vec(), None));
}

#[test]
fn damage_in_the_middle_stops_the_start_and_says_what_where_and_what_to_do() {
    let cases: [(&str, &str); 6] = [
        ("UPDATE batches SET payload = x'00' WHERE seq = {}", "checksum"),
        ("UPDATE batches SET crc32c = crc32c + 1 WHERE seq = {}", "checksum"),
        ("UPDATE batches SET chain = zeroblob(32) WHERE seq = {}", "checksum"),
        ("UPDATE batches SET tick_ms = tick_ms + 1 WHERE seq = {}", "checksum"),
        ("UPDATE batches SET positions = x'05' WHERE seq = {}", "checksum"),
        ("DELETE FROM batches WHERE seq = {}", "gap"),
    ];
    for (statement, what) in cases {
        let (folder, journal) = journal(10, &[]);
        drop(journal);
        let seq = batches(10)[5].first_seq.0;
        sql(folder.path(), &statement.replace("{}", &seq.to_string()));
        let error = refused(folder.path());
        let said = error.to_string();
        assert!(matches!(error, JournalError::Damaged { place: DamagedAt::Batch { .. }, .. }), "{statement}: {said}");
        for part in [what, "position #", "row 6", "backup", "forebay journal verify"] {
            assert!(said.contains(part), "{statement}: {part} is missing in: {said}");
        }
        assert!(error.is_for_the_caller());
    }
}

#[test]
fn a_row_of_another_journal_does_not_continue_the_chain() {
    let (one, journal_one) = journal(10, &[]);
    let (two, journal_two) = journal(10, &[]);
    drop((journal_one, journal_two));
    let seq = batches(10)[9].first_seq.0;
    let db = Connection::open(one.path().join(FILE)).unwrap();
    db.execute("ATTACH ?1 AS two", params![two.path().join(FILE).to_str().unwrap()]).unwrap();
    db.execute("INSERT OR REPLACE INTO batches SELECT * FROM two.batches WHERE seq = ?1", [seq as i64]).unwrap();
    drop(db);
    let said = refused(one.path()).to_string();
    assert!(said.contains("does not continue the chain"), "{said}");
}

#[test]
fn batches_missing_before_a_snapshot_are_a_gap() {
    let (folder, journal) = journal(10, &[10]);
    drop(journal);
    sql(folder.path(), "DELETE FROM batches WHERE seq = (SELECT max(seq) FROM batches)");
    assert!(refused(folder.path()).to_string().contains("a gap"));
}

#[test]
fn a_newer_version_is_refused_with_both_versions() {
    for (column, what, upto) in
        [("format", "format version 9", FORMAT_VERSION), ("apply", "record version 9", APPLY_VERSION)]
    {
        let (folder, journal) = journal(2, &[]);
        drop(journal);
        sql(folder.path(), &format!("UPDATE meta SET {column} = 9"));
        let error = refused(folder.path());
        let said = error.to_string();
        assert!(said.contains(what) && said.contains(&format!("reads up to {upto}")), "{said}");
        assert!(error.is_for_the_caller());
    }
}

#[test]
fn a_changed_description_is_damage() {
    let (folder, journal) = journal(2, &[]);
    drop(journal);
    sql(folder.path(), "UPDATE meta SET uuid = zeroblob(16)");
    assert!(matches!(refused(folder.path()), JournalError::Damaged { place: DamagedAt::Meta, .. }));
}

#[test]
fn a_folder_in_use_is_refused_and_one_that_is_taken_is_not_begun_again() {
    let (folder, journal) = journal(2, &[]);
    let said = refused(folder.path()).to_string();
    assert!(said.contains(&format!("in use by process {}", std::process::id())), "{said}");
    drop(journal);
    let again = SqliteJournal::create(folder.path(), 0).unwrap_err();
    assert!(matches!(again, JournalError::Exists { .. }), "{again}");
    assert!(matches!(refused(tempfile::tempdir().unwrap().path()), JournalError::Missing { .. }));
}

#[test]
fn a_full_disk_is_said_and_loses_nothing() {
    let (folder, mut journal) = journal(5, &[]);
    journal.cap_pages(journal.pages() + 1);
    let all = batches(500);
    let mut done = 5;
    let error = loop {
        match journal.append(&all[done]) {
            Ok(()) => done += 1,
            Err(e) => break e,
        }
    };
    assert!(error.is_full() && error.to_string().contains("make room"), "{error}");
    journal.cap_pages(1 << 20);
    for batch in &all[done..done + 5] {
        journal.append(batch).unwrap();
    }
    drop(journal);
    assert_eq!(read(folder.path()).unwrap().0, all[..done + 5]);
}

#[test]
fn a_read_only_file_system_is_named() {
    let failure = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_READONLY);
    let error = JournalError::sqlite(Path::new("j"), rusqlite::Error::SqliteFailure(failure, None));
    assert!(matches!(error, JournalError::ReadOnly { .. }) && error.to_string().contains("read-only"), "{error}");
}

#[test]
fn a_disk_on_which_this_user_has_no_room_is_a_full_one() {
    for (kind, full) in [
        (std::io::ErrorKind::StorageFull, true),
        (std::io::ErrorKind::QuotaExceeded, true),
        (std::io::ErrorKind::PermissionDenied, false),
    ] {
        assert_eq!(JournalError::io(Path::new("j"), kind.into()).is_full(), full, "{kind}");
    }
}

#[test]
fn strangers_in_the_place_of_a_journal_are_refused() {
    let mut dice = Dice(5);
    let random: Vec<u8> = (0..20_000).map(|_| dice.next() as u8).collect();
    for bytes in [&[][..], &[0], b"hello", b"SQLite format 3\0", &random, &[0; 8192]] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(FILE), bytes).unwrap();
        let error = refused(folder.path());
        assert!(matches!(error, JournalError::Damaged { .. }), "{} bytes: {error:?}", bytes.len());
    }
    let folder = tempfile::tempdir().unwrap();
    Connection::open(folder.path().join(FILE)).unwrap().execute("CREATE TABLE other (x)", []).unwrap();
    let error = refused(folder.path());
    assert!(error.to_string().contains("no such table: meta"), "{error}");
}

#[derive(PartialEq, Eq, Debug)]
enum HowOpened {
    Whole,
    Refused,
}

/// Opens with everything that was acknowledged, or refuses and changes no byte; tells which.
fn whole_or_refused(folder: &Path, all: &[Batch], case: &str) -> HowOpened {
    let before = contents(folder);
    match read(folder) {
        Ok((got, journal, _)) => {
            assert!(all == got, "{case}: {} of {} batches without a word", got.len(), all.len());
            assert_eq!(journal.end().0, got.last().map_or(0, |b| b.next_seq().0), "{case}");
            HowOpened::Whole
        }
        Err(e) => {
            let known = matches!(
                e,
                JournalError::Damaged { .. }
                    | JournalError::Newer { .. }
                    | JournalError::Io { .. }
                    | JournalError::Lost { .. }
            );
            assert!(known, "{case}: {e:?}");
            let said = e.to_string();
            assert!(said.contains("journal.") && said.contains("nothing was changed"), "{case}: {said}");
            assert!(contents(folder) == before, "{case}: a refused start changed something");
            HowOpened::Refused
        }
    }
}

#[test]
fn flipped_bits_and_zeroed_pages_of_the_database_are_refused_or_change_nothing() {
    let (folder, journal) = journal(200, &[50, 120]);
    drop(journal);
    let (all, bytes) = (batches(200), std::fs::read(folder.path().join(FILE)).unwrap());
    let mut refusals = 0;
    for seed in 0..400 {
        let mut dice = Dice(seed);
        let mut damaged = bytes.clone();
        let at = dice.below(bytes.len() as u64) as usize;
        if seed % 4 == 0 {
            let page = at / 4096 * 4096;
            damaged[page..page + 4096].fill(0);
        } else {
            damaged[at] ^= 1 << dice.below(8);
        }
        let to = with_database(folder.path(), &damaged);
        let opened = whole_or_refused(to.path(), &all, &format!("seed {seed}, byte {at}"));
        refusals += u32::from(opened == HowOpened::Refused);
    }
    // The rest is in free pages and in the empty part of others.
    assert!(refusals > 100, "refused {refusals} of 400");
}

#[test]
fn a_cut_database_is_refused() {
    let (folder, journal) = journal(200, &[50]);
    drop(journal);
    let (all, bytes) = (batches(200), std::fs::read(folder.path().join(FILE)).unwrap());
    for step in 0..60 {
        let length = bytes.len() * step / 60;
        let to = with_database(folder.path(), &bytes[..length]);
        let opened = whole_or_refused(to.path(), &all, &format!("cut at {length}"));
        assert_eq!(opened, HowOpened::Refused, "cut at {length}");
    }
}

#[test]
fn a_cut_log_is_refused_and_the_refusal_counts_what_is_missing() {
    let (folder, journal) = journal(60, &[]);
    let all = batches(60);
    let end = all[59].next_seq().0;
    let log = std::fs::read(folder.path().join(format!("{FILE}-wal"))).unwrap();
    assert!(log.len() > 60 * 4096, "the log holds the batches");
    let mut dice = Dice(11);
    let mut counts = Vec::new();
    for step in 0..80 {
        let length = (log.len() * step / 80 + dice.below(4096) as usize).min(log.len() - 1);
        let to = with_log(folder.path(), &log[..length]);
        let case = format!("log cut at {length}");
        if whole_or_refused(to.path(), &all, &case) == HowOpened::Whole {
            continue;
        }
        match refused(to.path()) {
            JournalError::Lost { missing, findings, .. } => {
                assert!(findings[0].file.ends_with(format!("{FILE}-wal")), "{findings:?}");
                counts.push(missing);
            }
            // Before the tables were made.
            e => assert!(counts.is_empty(), "{case}: {e}"),
        }
    }
    assert!(counts.iter().rev().is_sorted() && counts.len() > 60 && counts[0] <= end, "{counts:?}");
    drop(journal);
}

#[test]
fn a_log_that_is_not_there_is_refused_though_all_batches_are() {
    let (folder, journal) = journal(60, &[]);
    journal.db.number("PRAGMA wal_checkpoint(PASSIVE)").unwrap();
    let to = copied(folder.path());
    let error = refused(to.path());
    assert!(matches!(error, JournalError::Lost { missing: 0, .. }), "{error}");
    let said = error.to_string();
    assert!(said.contains("-wal: is not there") && said.contains("--accept-loss 0"), "{said}");
    drop(journal);
}

#[test]
fn damage_anywhere_in_the_log_is_refused() {
    let (folder, journal) = journal(60, &[]);
    let all = batches(60);
    let log = std::fs::read(folder.path().join(format!("{FILE}-wal"))).unwrap();
    let mut refusals = 0;
    for seed in 0..200 {
        let mut dice = Dice(seed);
        let mut damaged = log.clone();
        let at = dice.below(log.len() as u64) as usize;
        damaged[at] ^= 1 << dice.below(8);
        let to = with_log(folder.path(), &damaged);
        let opened = whole_or_refused(to.path(), &all, &format!("seed {seed}, byte {at} of the log"));
        refusals += u32::from(opened == HowOpened::Refused);
    }
    assert!(refusals > 190, "refused {refusals} of 200");
    drop(journal);
}

#[test]
fn the_log_goes_only_where_the_mark_says_that_the_journal_was_closed() {
    let (folder, mut journal) = journal(20, &[]);
    let log = format!("{FILE}-wal");
    // The last transaction is durable, and its mark is not.
    journal.unmarked = true;
    drop(journal);
    assert!(std::fs::metadata(folder.path().join(&log)).unwrap().len() > 0, "the log stays");
    // A start that fails when the database is open: its mark cannot be written.
    let draft = folder.path().join("journal.mark.new");
    std::fs::create_dir(&draft).unwrap();
    assert!(matches!(refused(folder.path()), JournalError::Io { .. }));
    std::fs::remove_dir(&draft).unwrap();
    let (got, journal, _) = read(folder.path()).unwrap();
    assert_eq!(got, batches(20));
    drop(journal);
    assert!(!folder.path().join(&log).exists(), "it was closed");
    assert_eq!(read(folder.path()).unwrap().0, batches(20));
}

#[test]
fn the_mark_is_missed_when_it_is_gone_or_damaged_and_a_loss_is_given_up_once() {
    let (folder, journal) = journal(20, &[]);
    drop(journal);
    let all = batches(20);
    let whole = std::fs::read(folder.path().join(MARK_FILE)).unwrap();
    for (damage, what) in
        [(None, "is not there"), (Some(vec![0; 8192]), "neither of its two slots"), (Some(vec![]), "neither")]
    {
        let to = copied(folder.path());
        match damage {
            None => std::fs::remove_file(to.path().join(MARK_FILE)).unwrap(),
            Some(bytes) => std::fs::write(to.path().join(MARK_FILE), bytes).unwrap(),
        }
        assert_eq!(whole_or_refused(to.path(), &all, what), HowOpened::Refused);
        let said = refused(to.path()).to_string();
        assert!(said.contains(what) && said.contains("--accept-loss 0"), "{said}");
        assert!(verify(to.path()).is_err());
    }
    // The last three batches are lost, and given up.
    let to = copied(folder.path());
    sql(to.path(), &format!("DELETE FROM batches WHERE seq >= {}", all[17].first_seq.0));
    let lost = all[19].next_seq().0 - all[17].first_seq.0;
    let said = refused(to.path()).to_string();
    assert!(said.contains(&format!("{lost} records")) && said.contains(&format!("--accept-loss {lost}")), "{said}");
    let checked = checked::check(to.path(), &mut |_| Ok(())).unwrap();
    let text = checked.shortfalls()[0].to_string();
    let given_up = GivenUp { text: text.clone(), next_purchase: 4, ..GivenUp::none() };
    let (mut journal, _) = checked.go_on(given_up).unwrap();
    let id = journal.meta().id();
    assert_eq!((id.incarnation, journal.end()), (1, all[17].first_seq));
    let identity = Journal::identity(&journal);
    assert_eq!(identity.of_effect(Seq(all[17].first_seq.0 - 1)).incarnation, 0);
    assert_eq!(identity.of_effect(all[17].first_seq).incarnation, 1);
    journal.append(&all[17]).unwrap();
    drop(journal);
    let found = verify(to.path()).unwrap();
    assert_eq!(found.acts.iter().map(|act| act.kind).collect::<Vec<_>>(), [ActKind::Created, ActKind::LossAccepted]);
    assert_eq!(found.acts[1].text, text);
    assert_eq!(read(to.path()).unwrap().0, all[..18]);
    // The older mark, which knows of more, is of the incarnation before.
    std::fs::write(to.path().join(MARK_FILE), whole).unwrap();
    assert_eq!(read(to.path()).unwrap().0, all[..18]);
}

#[test]
fn an_older_copy_another_journals_mark_and_a_database_that_is_gone_are_refused() {
    let (folder, first) = journal(20, &[]);
    let older = copied(folder.path());
    std::fs::copy(folder.path().join(format!("{FILE}-wal")), older.path().join(format!("{FILE}-wal"))).unwrap();
    drop(first);
    let (_, mut journal, _) = read(folder.path()).unwrap();
    for batch in &batches(30)[20..] {
        journal.append(batch).unwrap();
    }
    drop(journal);
    // The newer mark beside the older database.
    std::fs::copy(folder.path().join(MARK_FILE), older.path().join(MARK_FILE)).unwrap();
    let missing = batches(30)[29].next_seq().0 - batches(20)[19].next_seq().0;
    assert!(matches!(refused(older.path()), JournalError::Lost { missing: n, .. } if n == missing));
    let (other, another) = self::journal(30, &[]);
    drop(another);
    std::fs::copy(other.path().join(MARK_FILE), folder.path().join(MARK_FILE)).unwrap();
    let said = refused(folder.path()).to_string();
    assert!(said.contains("is the mark of journal"), "{said}");
    std::fs::remove_file(folder.path().join(FILE)).unwrap();
    for error in [refused(folder.path()), SqliteJournal::create(folder.path(), 0).unwrap_err()] {
        assert!(matches!(error, JournalError::LeftOver { .. }), "{error}");
    }
}

#[test]
fn a_backup_is_made_beside_the_writer_and_a_restore_begins_an_incarnation() {
    let (folder, mut journal) = journal(20, &[]);
    let backup = tempfile::tempdir().unwrap();
    // Batches of this test mean nothing to a state machine, which counts them all the same.
    let made = back_up(folder.path(), backup.path()).unwrap();
    assert_eq!(made.end, batches(20)[19].next_seq());
    for batch in &batches(25)[20..] {
        journal.append(batch).unwrap();
    }
    drop(journal);
    let before = contents(backup.path());
    assert!(matches!(refused(backup.path()), JournalError::Backup { .. }));
    assert!(verify(backup.path()).is_ok());
    let restored = tempfile::tempdir().unwrap();
    let found = restore(backup.path(), restored.path(), 0, &mut |_, _| Ok(())).unwrap();
    assert!(contents(backup.path()) == before);
    assert_eq!((found.id.incarnation, found.end), (1, made.end));
    let again = restore(backup.path(), restored.path(), 0, &mut |_, _| Ok(())).unwrap_err();
    assert!(matches!(again, JournalError::Exists { .. }), "{again}");
    let (got, journal, _) = read(restored.path()).unwrap();
    assert_eq!((got, Journal::identity(&journal).eras.len()), (batches(20), 2));
    drop(journal);
    // The same backup over what was begun from it, within the same minute.
    std::fs::remove_file(restored.path().join(FILE)).unwrap();
    let again = restore(backup.path(), restored.path(), 0, &mut |_, _| Ok(())).unwrap();
    assert_eq!(again.id.incarnation, 2);
}

#[test]
fn no_backup_is_made_of_a_journal_that_is_shorter_than_its_mark() {
    let (folder, mut journal) = journal(20, &[]);
    let backup = |of: &TempDir| {
        let to = tempfile::tempdir().unwrap();
        back_up(of.path(), to.path()).map(|made| made.end)
    };
    // Its log is lost, with all that was not moved from it yet.
    let lost = copied(folder.path());
    let error = backup(&lost).unwrap_err();
    let said = error.to_string();
    assert!(matches!(error, JournalError::Shorter { .. }) && error.is_for_the_caller(), "{error:?}");
    for part in ["-wal: is not there", "keep the backups that there are", "forebay journal verify"] {
        assert!(said.contains(part), "{part} is missing in: {said}");
    }
    // An older database beside the newer mark.
    journal.db.number("PRAGMA wal_checkpoint(PASSIVE)").unwrap();
    let older = copied(folder.path());
    journal.append(&batches(21)[20]).unwrap();
    std::fs::copy(folder.path().join(MARK_FILE), older.path().join(MARK_FILE)).unwrap();
    assert!(matches!(backup(&older), Err(JournalError::Shorter { .. })));
    // Nothing is missing where everything was moved.
    journal.db.number("PRAGMA wal_checkpoint(PASSIVE)").unwrap();
    assert_eq!(backup(&copied(folder.path())).unwrap(), journal.end());
    drop(journal);
    assert!(backup(&folder).is_ok());
}

#[test]
#[ignore = "it measures, and takes a disk of its own"]
fn cost_of_the_mark() {
    const TIMES: u32 = 1_000;
    let (_folder, mut journal) = journal(0, &[]);
    let all = batches(u64::from(TIMES));
    let begun = std::time::Instant::now();
    all.iter().for_each(|batch| journal.append(batch).unwrap());
    let whole = begun.elapsed();
    let begun = std::time::Instant::now();
    for _ in 0..TIMES {
        journal.write_mark().unwrap();
    }
    let marks = begun.elapsed();
    let per_second = |took: Duration| f64::from(TIMES) / took.as_secs_f64();
    let without = whole.saturating_sub(marks);
    println!(
        "{TIMES} transactions: {:.0} a second with the mark, {:.0} without; a mark takes {:?}",
        per_second(whole),
        per_second(without),
        marks / TIMES
    );
}
