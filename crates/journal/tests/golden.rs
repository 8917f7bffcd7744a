//! Golden journals: each is refused with the one command that upgrades it, upgraded, and says what it said.

use forebay_engine::engine::Engine;
use forebay_journal::{
    ArchiveQuery, BatchLog, FILE, FinishedJob, Journal, JournalError, JournalMeta, OLD_FILE, SqliteJournal,
    UpgradedJournal, VerifiedJournal, policy_in_force, recover, upgrade_folder, verify,
};
use forebay_kernel::event::Tick;
use forebay_kernel::journal::{APPLY_VERSION, Batch};
use forebay_kernel::machine::StateMachine;
use forebay_kernel::state::jobs::Phase;
use forebay_kernel::units::Timestamp;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

#[path = "../../kernel/tests/replay/facts.rs"]
mod replay;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/format-1").join(name)
}

fn copy(name: &str) -> tempfile::TempDir {
    copy_of(&golden(name))
}

fn copy_of(golden: &Path) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(golden.join("journal.db"), folder.path().join(FILE)).unwrap();
    folder
}

/// What the journal in a folder says is what is committed beside the golden one.
fn says_what_it_said(folder: &Path, golden: &Path) -> String {
    let (text, path) = (facts(folder), golden.join("facts.txt"));
    if std::env::var_os("FOREBAY_WRITE_GOLDEN").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(&path).unwrap_or_default(), "{}", golden.display());
    text
}

#[test]
fn those_of_this_format_with_older_records_are_refused_upgraded_in_place_and_say_what_they_said() {
    for name in ["killed", "upgraded"] {
        let golden = golden("../format-2").join(name);
        let folder = copy_of(&golden);
        let sound = verify(folder.path()).unwrap();
        assert_eq!((sound.meta.format, sound.meta.apply), (2, 2), "{name}");
        assert_eq!(sound.snapshots.is_empty(), name == "killed", "one has all of its batches, the other a snapshot");
        let refused = opened(folder.path()).map(|_| ()).unwrap_err().to_string();
        let command = format!("forebay journal upgrade {}", folder.path().display());
        assert!(refused.contains("has record version 2") && refused.contains(&command), "{name}: {refused}");
        assert!(policy_in_force(folder.path()).unwrap().is_some(), "{name}: it can be read");

        let records = payloads(folder.path());
        assert_eq!(upgraded(folder.path()), UpgradedJournal::Records { from: 2, to: APPLY_VERSION }, "{name}");
        assert!(payloads(folder.path()) == records, "{name}: other records");
        let meta = JournalMeta { apply: APPLY_VERSION, ..sound.meta };
        assert_eq!(verify(folder.path()).unwrap(), VerifiedJournal { meta, ..sound }, "{name}");
        assert!(!folder.path().join(OLD_FILE).exists(), "{name}: nothing was replaced");
        let text = says_what_it_said(folder.path(), &golden);
        assert_eq!(upgraded(folder.path()), UpgradedJournal::Already, "{name}");
        assert_eq!(says_what_it_said(folder.path(), &golden), text, "{name}");
    }
}

fn opened(folder: &Path) -> Result<(SqliteJournal, StateMachine), JournalError> {
    recover(folder).map(|recovered| (recovered.journal, recovered.machine))
}

/// The bytes of the batches of the journal in a folder.
fn payloads(folder: &Path) -> Vec<Vec<u8>> {
    let db = rusqlite::Connection::open(folder.join(FILE)).unwrap();
    let mut select = db.prepare("SELECT payload FROM batches ORDER BY seq").unwrap();
    select.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

/// The batches of a golden journal, as `crates/kernel/tests/replay` replays them without this crate.
#[test]
fn the_golden_records_are_those_of_the_journals() {
    for name in ["finished", "killed"] {
        let folder = copy(name);
        let (mut bytes, mut machine) = (Vec::new(), StateMachine::default());
        for payload in payloads(folder.path()) {
            bytes.extend(u32::try_from(payload.len()).unwrap().to_le_bytes());
            machine.replay(&Batch::decode_v1(&payload).unwrap());
            bytes.extend(payload);
        }
        let path = golden("../records").join(format!("version-1-{name}"));
        if std::env::var_os("FOREBAY_WRITE_GOLDEN").is_some() {
            std::fs::write(path.with_extension("bin"), &bytes).unwrap();
            std::fs::write(path.with_extension("txt"), replay::facts(&machine)).unwrap();
        }
        assert!(std::fs::read(path.with_extension("bin")).unwrap() == bytes, "{name}: other records");
    }
}

/// What a journal says, a fact a line.
fn facts(folder: &Path) -> String {
    let (journal, state) = opened(folder).unwrap();
    let c = state.counters();
    let mut text = String::new();
    writeln!(text, "end {} at {} ms", c.next_seq, state.now().0).unwrap();
    writeln!(text, "outcomes {:?} statuses {} decisions {}", c.outcomes, c.statuses, c.decisions).unwrap();
    writeln!(text, "preemptions {} moves {} reclaims {}", c.preemptions, c.moves, c.reclaims).unwrap();
    writeln!(text, "nodes {} of {} purchases {}", state.nodes().count(), c.next_node, state.purchases().count())
        .unwrap();
    writeln!(text, "positions {:?}", journal.positions()).unwrap();
    writeln!(text, "policy {} bytes", journal.policy_source().unwrap().map_or(0, |policy| policy.len())).unwrap();
    writeln!(text, "ledger {:?}", state.ledger_now().total()).unwrap();
    let mut jobs = Vec::new();
    for (job, spec) in state.jobs().filter(|(job, _)| !job.done()) {
        let phase = format!("{:?}", job.phase);
        let phase = phase.split([' ', '{']).next().unwrap_or_default();
        jobs.push((job.id, format!("{} {} {phase} attempt {}", job.id, spec.subject, job.attempt.0)));
    }
    let query = ArchiveQuery { queues: Vec::new(), outcome: None, before: None, limit: 1_000 };
    for found in journal.archive_reader().unwrap().list(&query).unwrap().jobs {
        let FinishedJob { job, spec, .. } = found.finished;
        let Phase::Done { outcome } = job.phase else { panic!("{} is not over", job.id) };
        let ended = job.ended.unwrap().0;
        let line = format!("{} {} {outcome:?} at {ended} attempt {}", job.id, spec.subject, job.attempt.0);
        let known = journal.identity(&spec.tenant, &spec.subject).unwrap();
        assert_eq!(known.map(|k| (k.job, k.digest)), Some((job.id, spec.digest)), "{line}");
        jobs.push((job.id, line));
    }
    jobs.sort();
    jobs.iter().for_each(|(_, line)| writeln!(text, "{line}").unwrap());
    text
}

fn upgraded(folder: &Path) -> UpgradedJournal {
    upgrade_folder(folder, &mut || Ok(())).unwrap()
}

#[test]
fn each_is_refused_with_its_command_upgraded_and_says_what_it_said() {
    for name in ["finished", "killed"] {
        let folder = copy(name);
        let sound = verify(folder.path()).unwrap();
        assert_eq!(sound.meta.format, 1, "{name}");
        let refused = opened(folder.path()).map(|_| ()).unwrap_err().to_string();
        let command = format!("forebay journal upgrade {}", folder.path().display());
        assert!(refused.contains("has format version 1") && refused.contains(&command), "{name}: {refused}");
        assert!(matches!(policy_in_force(folder.path()), Err(JournalError::Older { .. })));

        let UpgradedJournal::Done { batches, end, finished, old, cut } = upgraded(folder.path()) else { panic!() };
        assert_eq!((batches, end, cut), (sound.batches, sound.end, None), "{name}");
        assert_eq!(old, folder.path().join(OLD_FILE));
        let text = says_what_it_said(folder.path(), &golden(name));
        let after = verify(folder.path()).unwrap();
        assert_eq!((after.meta.uuid, after.end, after.finished), (sound.meta.uuid, sound.end, finished), "{name}");
        assert_eq!((after.meta.begins_at, after.meta.incarnation), (end.0, 0), "{name}");
        assert_eq!((after.meta.format, after.meta.apply), (2, APPLY_VERSION), "{name}: both in one go");
        assert_eq!(upgraded(folder.path()), UpgradedJournal::Already, "{name}");
        assert_eq!(facts(folder.path()), text, "{name}");
        // The old file is as it was.
        let old = tempfile::tempdir().unwrap();
        std::fs::copy(folder.path().join(OLD_FILE), old.path().join(FILE)).unwrap();
        assert_eq!(verify(old.path()).unwrap(), sound, "{name}");
    }
}

#[test]
fn each_that_was_not_over_goes_on_where_it_was() {
    for name in ["killed", "../format-2/killed", "../format-2/upgraded"] {
        goes_on(copy(name).path());
    }
}

fn goes_on(folder: &Path) {
    upgraded(folder);
    let (mut journal, machine) = opened(folder).unwrap();
    let mut engine = Engine::recovered(machine);
    for minute in 1..50u64 {
        let now = Timestamp(engine.state().now().0 + minute * 60_000);
        engine.open(Tick { now, resumed: minute == 1, delivered: 0 });
        let _ = engine.plan();
        let unsaved = engine.close();
        journal.append(unsaved.batch()).unwrap();
        let _ = unsaved.saved();
        if minute % 20 == 0 {
            journal.begin_snapshot(engine.state()).unwrap();
            journal.settle();
        }
    }
    assert_eq!(journal.background_failure(), None);
    let live = engine.state().encode().unwrap();
    drop(journal);
    assert!(opened(folder).unwrap().1.encode().unwrap() == live, "{}: another state", folder.display());
    verify(folder).unwrap();
}

#[test]
fn whatever_an_interrupted_upgrade_left_the_same_command_goes_on() {
    let reference = copy("killed");
    upgraded(reference.path());
    let text = facts(reference.path());
    let bytes = std::fs::read(golden("killed").join("journal.db")).unwrap();
    // A draft that is half written, a log of it, the old file's other name that was given already.
    let cases: [&[&str]; 4] = [
        &["journal.upgrade"],
        &["journal.upgrade", "journal.upgrade-wal"],
        &[OLD_FILE],
        &["journal.upgrade", OLD_FILE],
    ];
    for left in cases {
        let folder = copy("killed");
        for name in left {
            std::fs::write(folder.path().join(name), &bytes[..bytes.len() / 2]).unwrap();
        }
        assert!(matches!(upgraded(folder.path()), UpgradedJournal::Done { .. }), "{left:?}");
        assert_eq!(facts(folder.path()), text, "{left:?}");
    }
}

#[test]
fn a_damaged_one_is_not_upgraded_and_stays_as_it_is() {
    let bytes = std::fs::read(golden("finished").join("journal.db")).unwrap();
    let (mut refused, sound) = (0, verify(copy("finished").path()).unwrap());
    for step in 0..120 {
        let folder = copy("finished");
        let mut damaged = bytes.clone();
        let at = 4_096 + step * (bytes.len() - 4_096) / 120 + (step * 7_919) % 1_000;
        let at = at.min(bytes.len() - 1);
        damaged[at] ^= 1 << (step % 8);
        std::fs::write(folder.path().join(FILE), &damaged).unwrap();
        match upgrade_folder(folder.path(), &mut || Ok(())) {
            Ok(UpgradedJournal::Done { end, .. }) => assert!(end <= sound.end, "byte {at}"),
            Ok(UpgradedJournal::Already | UpgradedJournal::Records { .. }) => panic!("byte {at}"),
            Err(e) => {
                assert!(matches!(e, JournalError::Damaged { .. } | JournalError::Newer { .. }), "byte {at}: {e}");
                assert!(!folder.path().join(OLD_FILE).exists(), "byte {at}");
                refused += 1;
            }
        }
    }
    assert!(refused > 80, "{refused} of 120 refused");
}
