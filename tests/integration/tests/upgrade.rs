//! A folder that the release with format 1 left behind: refused with one command, upgraded by it, and gone on with to the end.

use forebay_integration::{root, run, segments};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// The golden folder of a controller that was killed in the middle of a replay, and the file that it replayed.
fn killed(folder: &Path) {
    let golden = root().join("tests/golden/format-1/killed");
    std::fs::create_dir(folder.join("d")).expect("made");
    for (from, to) in [("journal.db", "journal.sqlite"), ("status.jsonl", "status.jsonl"), ("world.json", "world.json")]
    {
        std::fs::copy(golden.join(from), folder.join("d").join(to)).expect("copied");
    }
    std::fs::write(folder.join("d/rejected.jsonl"), "").expect("written");
    let day = std::fs::read_to_string(root().join("examples/day.jsonl")).expect("read");
    let first: Vec<&str> = day.lines().take(48).collect();
    std::fs::write(folder.join("short.jsonl"), first.join("\n") + "\n").expect("written");
}

const RESUME: [&str; 7] = ["run", "--replay", "short.jsonl", "--resume", "d", "--speed", "max"];

#[test]
fn a_folder_of_the_release_before_is_upgraded_by_one_command_and_gone_on_with() {
    let folder = tempfile::tempdir().expect("a folder");
    killed(folder.path());
    let resume = [&RESUME[..], &["--exit-when-drained"]].concat();
    let refused = run(folder.path(), &resume);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.err.contains("forebay journal upgrade d"), "{}", refused.err);
    assert_eq!(run(folder.path(), &["journal", "verify", "d"]).code, 0, "it is sound");

    let upgraded = run(folder.path(), &["journal", "upgrade", "d"]);
    assert_eq!((upgraded.code, upgraded.out.contains("upgraded: 260 batches")), (0, true), "{upgraded:?}");
    let again = run(folder.path(), &["journal", "upgrade", "d"]);
    assert_eq!((again.code, again.out.contains("has the newest format already")), (0, true), "{again:?}");
    for old in ["journal-1.sqlite", "status-1.jsonl", "rejected-1.jsonl"] {
        assert!(folder.path().join("d").join(old).exists(), "{old} is kept");
    }
    let before = segments::lines(&folder.path().join("d/status"));
    assert_eq!(before.len(), 223);

    let done = run(folder.path(), &resume);
    assert_eq!(done.code, 0, "{done:?}");
    let lines = segments::lines(&folder.path().join("d/status"));
    assert_eq!(lines[..223], before, "what was said stays said");
    let mut over = BTreeMap::<String, u32>::new();
    for (number, line) in (1..).zip(&lines) {
        let status: Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(status["data"]["number"].as_u64(), Some(number), "{line}");
        let ends = over.entry(status["subject"].as_str().unwrap_or_default().to_owned()).or_default();
        *ends += u32::from(status["data"]["terminal"] == true);
    }
    let unlike: Vec<_> = over.iter().filter(|(_, ends)| **ends != 1).collect();
    assert!(unlike.is_empty() && over.len() >= 46, "{} jobs, not over once: {unlike:?}", over.len());
    let sound = run(folder.path(), &["journal", "verify", "d"]);
    assert_eq!((sound.code, sound.out.contains("format 2")), (0, true), "{sound:?}");
}
