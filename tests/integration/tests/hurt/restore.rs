//! A backup that is restored while what came after it is already outside: no id means two things, and what nobody knows is left alone.

use super::folder::{End, acknowledged, ended, ids, known, opened, submit};
use forebay::driver::Consent;
use forebay_integration::folders::{contents, copied};
use forebay_integration::{Server, run};
use std::path::Path;

#[test]
fn a_backup_made_beside_a_running_controller_restores_to_another_incarnation() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(folder.path(), &["--data", "data"]);
    let before = submit(&server, "before", 40);
    let said = run(folder.path(), &["journal", "backup", "data", "backup"]);
    assert_eq!(said.code, 0, "{said:?}");
    let after = submit(&server, "after", 40);
    server.kill();
    let given_out = ids(&folder.path().join("data"));
    let verified = run(folder.path(), &["journal", "verify", "backup"]);
    assert_eq!(verified.code, 0, "{verified:?}");
    // Nobody goes on with the backup itself.
    let backup = contents(&folder.path().join("backup"));
    let Err(refused) = opened(&folder.path().join("backup"), Consent::default()) else {
        panic!("it went on with a backup")
    };
    assert!(refused.contains("this is a backup"), "{refused}");
    assert!(contents(&folder.path().join("backup")) == backup, "a refused start changed a backup");
    // The older database in the place of the newer one is refused.
    let older = copied(&folder.path().join("data"));
    std::fs::copy(folder.path().join("backup/journal.sqlite"), older.path().join("journal.sqlite")).expect("a copy");
    std::fs::remove_file(older.path().join("journal.sqlite-wal")).expect("removed");
    let Err(refused) = opened(older.path(), Consent::default()) else { panic!("it went on with an older database") };
    assert!(refused.contains("--accept-loss"), "{refused}");

    let said = run(folder.path(), &["journal", "restore", "backup", "again"]);
    assert_eq!(said.code, 0, "{said:?}");
    restored_is_another(folder.path(), &before, &after, &given_out);
}

fn restored_is_another(
    folder: &Path,
    before: &std::collections::BTreeSet<String>,
    after: &std::collections::BTreeSet<String>,
    given_out: &std::collections::BTreeMap<String, String>,
) {
    let running = opened(&folder.join("again"), Consent::default()).expect("it goes on");
    let there = known(&running);
    assert!(before.is_subset(&there), "what was backed up is there");
    assert!(after.is_disjoint(&there), "what came after the backup is not");
    ended(running);
    let server = Server::start(folder, &["--data", "again"]);
    submit(&server, "other", 40);
    drop(server);
    let mut news = 0;
    for (id, line) in ids(&folder.join("again")) {
        match given_out.get(&id) {
            Some(meant) => assert_eq!(*meant, line, "{id} means two things"),
            None => news += 1,
        }
    }
    assert!(news >= 40, "{news} new statuses");
    let verified = run(folder, &["journal", "verify", "again"]);
    assert!(verified.out.contains("restored, incarnation"), "{verified:?}");
}

#[test]
fn a_copy_of_a_stopped_folder_is_a_backup_and_a_damaged_one_is_refused() {
    let whole = acknowledged(30, End::InOrder);
    let copy = copied(&whole.data());
    let to = tempfile::tempdir().expect("a folder");
    let restore =
        |from: &Path, to: &str| run(whole.folder.path(), &["journal", "restore", &from.display().to_string(), to]);
    let target = to.path().join("one").display().to_string();
    assert_eq!(restore(copy.path(), &target).code, 0);
    let again = restore(copy.path(), &target);
    assert!(again.code == 2 && again.err.contains("a journal is here already"), "{again:?}");
    ended(opened(Path::new(&target), Consent::default()).expect("it goes on"));
    let path = copy.path().join("journal.sqlite");
    let bytes = std::fs::read(&path).expect("a file");
    std::fs::write(&path, &bytes[..bytes.len() / 2]).expect("cut");
    let target = to.path().join("two").display().to_string();
    let refused = restore(copy.path(), &target);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(!Path::new(&target).join("journal.sqlite").exists(), "no half journal has the name of one");
}

#[test]
fn a_backup_that_cannot_be_read_moves_nothing_and_no_journal_is_begun_instead() {
    let whole = acknowledged(30, End::InOrder);
    let backup = copied(&whole.data());
    let data = whole.data();
    for lost in ["journal.sqlite", "journal.sqlite-wal"] {
        // There is a log where the controller was killed.
        let _ = std::fs::remove_file(data.join(lost));
    }
    let before = contents(&data);
    let restore = |from: &Path| run(whole.folder.path(), &["journal", "restore", &from.display().to_string(), "data"]);
    let mistyped = restore(&backup.path().join("no-such-folder"));
    assert_eq!(mistyped.code, 2, "{mistyped:?}");
    assert!(mistyped.err.contains("name the folder") && !mistyped.err.contains("--resume"), "{mistyped:?}");
    let damaged = copied(backup.path());
    let path = damaged.path().join("journal.sqlite");
    let bytes = std::fs::read(&path).expect("a file");
    std::fs::write(&path, &bytes[..bytes.len() / 2]).expect("cut");
    assert_ne!(restore(damaged.path()).code, 0);
    assert!(contents(&data) == before, "a restore that failed changed a file");
    // Beside a sound database, what cannot be read is found before anything is moved too.
    let damaged = copied(backup.path());
    let path = damaged.path().join("status/00000000000000000001.jsonl");
    let mut bytes = std::fs::read(&path).expect("a file");
    bytes[20] ^= 1;
    std::fs::write(&path, bytes).expect("damaged");
    assert_ne!(restore(damaged.path()).code, 0);
    let after = contents(&data);
    assert!(before.iter().all(|(name, bytes)| after.get(name) == Some(bytes)), "a restore that failed moved a file");
    let begun = run(whole.folder.path(), &["run", "--data", "data", "--listen", "127.0.0.1:0"]);
    assert!(begun.code == 2 && begun.err.contains("forebay journal restore"), "{begun:?}");
    assert_eq!(restore(backup.path()).code, 0);
    let running = opened(&data, Consent::default()).expect("it goes on");
    assert!(whole.acknowledged.is_subset(&known(&running)));
    ended(running);
}
