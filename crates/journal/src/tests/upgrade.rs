//! A journal of this format with older records: read as it is, written only after the upgrade, which is done or not.

use super::*;

/// The version before this one.
const BEFORE: u32 = APPLY_VERSION - 1;

/// A journal as the release before left it behind, of `n` batches.
fn older(n: usize) -> (TempDir, Vec<Batch>) {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = SqliteJournal::create(folder.path(), 7).unwrap();
    let all: Vec<_> = batches(n as u64).into_iter().map(|batch| Batch { version: BEFORE, ..batch }).collect();
    all.iter().for_each(|batch| journal.append(batch).unwrap());
    let meta = JournalMeta { apply: BEFORE, ..journal.meta() };
    drop(journal);
    let db = Database::open(&folder.path().join(FILE)).unwrap();
    db.write(|all| store::write_meta(all, meta)).unwrap();
    db.close().unwrap();
    (folder, all)
}

fn upgraded(folder: &Path) -> Result<UpgradedJournal, JournalError> {
    upgrade_folder(folder, &mut || panic!("nothing lies beside a journal of this format that has to be upgraded"))
}

const DONE: UpgradedJournal = UpgradedJournal::Records { from: BEFORE, to: APPLY_VERSION };

#[test]
fn older_records_are_appended_to_only_after_the_upgrade() {
    let (folder, mut all) = older(9);
    let error = refused(folder.path());
    let said = error.to_string();
    let (found, written) = (format!("has record version {BEFORE}"), format!("writes record version {APPLY_VERSION}"));
    let command = format!("forebay journal upgrade {}", folder.path().display());
    for part in [&found, &written, &command] {
        assert!(said.contains(part), "{part} is missing in: {said}");
    }
    assert!(error.is_for_the_caller());
    let before = verify(folder.path()).unwrap();
    assert_eq!((before.meta.apply, before.batches), (BEFORE, 9), "it can be read, and nothing was changed");
    assert_eq!(policy_in_force(folder.path()).unwrap(), None);
    assert_eq!(ArchiveReader::open(folder.path()).unwrap().policies().unwrap(), Vec::new());

    assert_eq!(upgraded(folder.path()).unwrap(), DONE);
    assert_eq!(upgraded(folder.path()).unwrap(), UpgradedJournal::Already);
    let meta = JournalMeta { apply: APPLY_VERSION, ..before.meta };
    assert_eq!(verify(folder.path()).unwrap(), VerifiedJournal { meta, ..before });

    let (got, mut journal, _) = read(folder.path()).unwrap();
    assert_eq!((&got, journal.meta()), (&all, meta), "each batch has the version that it was written with");
    all.push(batch(journal.end().0, 9));
    journal.append(&all[9]).unwrap();
    drop(journal);
    assert_eq!(read(folder.path()).unwrap().0, all);
    assert_eq!(all.iter().map(|batch| batch.version).max(), Some(verify(folder.path()).unwrap().meta.apply));
}

#[test]
fn an_upgrade_of_records_that_was_interrupted_anywhere_is_done_or_not() {
    let (folder, all) = older(9);
    // Held open by a reader, so that the log stays.
    let reader = ArchiveReader::open(folder.path()).unwrap();
    assert_eq!(upgraded(folder.path()).unwrap(), DONE);
    let log = std::fs::read(folder.path().join(format!("{FILE}-wal"))).unwrap();
    assert!(log.len() > 4096, "the log holds the row");
    let (mut before, mut after) = (0, 0);
    for length in (0..log.len()).step_by(64).chain([log.len()]) {
        let to = copied(folder.path());
        std::fs::write(to.path().join(format!("{FILE}-wal")), &log[..length]).unwrap();
        let (count, left) = match verify(to.path()).unwrap().meta.apply {
            BEFORE => (&mut before, DONE),
            _ => (&mut after, UpgradedJournal::Already),
        };
        *count += 1;
        assert_eq!(upgraded(to.path()).unwrap(), left, "log cut at {length}");
        assert_eq!(read(to.path()).unwrap().0, all, "log cut at {length}");
    }
    assert!(before > 10 && after > 0, "{before} before, {after} after");
    drop(reader);
}

#[test]
fn damaged_records_are_not_upgraded_and_a_torn_tail_is_left_to_the_start() {
    let (folder, all) = older(9);
    sql(folder.path(), &format!("UPDATE batches SET payload = x'00' WHERE seq = {}", all[8].first_seq.0));
    assert!(matches!(upgraded(folder.path()).unwrap_err(), JournalError::Lost { .. }), "it was acknowledged");
    nothing_acknowledged(folder.path());
    assert_eq!(upgraded(folder.path()).unwrap(), DONE);
    let (got, _, recovery) = read(folder.path()).unwrap();
    assert_eq!((&got[..], recovery.cut.map(|cut| cut.from)), (&all[..8], Some(all[8].first_seq)));

    let (folder, all) = older(9);
    sql(folder.path(), &format!("UPDATE batches SET payload = x'00' WHERE seq = {}", all[5].first_seq.0));
    let error = upgraded(folder.path()).unwrap_err();
    assert!(matches!(error, JournalError::Damaged { place: DamagedAt::Batch { .. }, .. }), "{error}");
    assert!(matches!(refused(folder.path()), JournalError::Older { what: "record", .. }), "it is as it was");
}

/// What a controller leaves that is killed now: its log, and a mark that says that it was not closed.
fn killed(folder: &Path) -> TempDir {
    let log = std::fs::read(folder.join(format!("{FILE}-wal"))).unwrap();
    assert!(log.len() > 4096, "the log holds the batches");
    with_log(folder, &log)
}

#[test]
fn a_journal_whose_controller_was_killed_is_upgraded_and_then_opened() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = SqliteJournal::create(folder.path(), 7).unwrap();
    let all: Vec<_> = batches(9).into_iter().map(|batch| Batch { version: BEFORE, ..batch }).collect();
    all.iter().for_each(|batch| journal.append(batch).unwrap());
    let newest = killed(folder.path());
    journal.db.write(|db| store::write_meta(db, JournalMeta { apply: BEFORE, ..journal.meta() })).unwrap();
    let older = killed(folder.path());
    drop(journal);
    for (killed, done) in [(newest, UpgradedJournal::Already), (older, DONE)] {
        assert_eq!(upgraded(killed.path()).unwrap(), done);
        assert_eq!(upgraded(killed.path()).unwrap(), UpgradedJournal::Already);
        assert_eq!(read(killed.path()).unwrap().0, all, "{done:?}");
    }
}
