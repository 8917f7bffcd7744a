//! `kill -9` of a replay at 50 random moments, resumed each time: every job completes once, and the status stream has no gap and no
//! double.
//!
//! The moments come from a seed: `FOREBAY_SEED=n cargo test -p forebay-integration --test kill9` meets the same ones again, as far as
//! the machine is as fast. A killed replay is waited for on its own pipes; nothing here sleeps.

use forebay_integration::dice::Dice;
use forebay_integration::{forebay, root, run, segments};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Kills of one replay.
const KILLS: u32 = 50;

/// 20 minutes of the day a second: with kills some 0.6 s apart the day is not over before the last.
const SPEED: &str = "1200";

fn day() -> String {
    root().join("examples/day.jsonl").display().to_string()
}

/// Runs the replay, and kills it after `life`. False: it had ended before.
fn killed_after(folder: &Path, args: &[&str], life: Duration) -> bool {
    let spawned = forebay(folder, args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut child = spawned.expect("the binary starts");
    let mut stderr = child.stderr.take().expect("stderr is a pipe");
    let (ended, end) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut said = String::new();
        let _ = stderr.read_to_string(&mut said);
        let _ = ended.send(());
        said
    });
    // The pipe closes when the process ends; until then its life is waited out.
    let alive = end.recv_timeout(life).is_err();
    // SIGKILL: nothing is flushed, nothing is cleaned up.
    let _ = child.kill();
    let status = child.wait().expect("it can be waited for");
    let said = reader.join().expect("its words are read");
    assert!(alive || status.success(), "it ended by itself with {status}: {said}");
    alive
}

/// The journal's folder once there is one.
fn journal_in(folder: &Path) -> Option<PathBuf> {
    let data = folder.join("data");
    data.join("journal.sqlite").exists().then_some(data)
}

/// No gap and no double, in number over all and in seq per job; how often each job was over, and how.
fn check_stream(folder: &Path) -> BTreeMap<String, Vec<String>> {
    let lines = segments::lines(&folder.join("status"));
    assert!(!lines.is_empty(), "there is a status stream");
    let (mut seqs, mut over) = (BTreeMap::<String, u64>::new(), BTreeMap::<String, Vec<String>>::new());
    let mut source = None;
    for (number, line) in (1..).zip(&lines) {
        let status: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("line {number}: {e} in {line}"));
        let data = &status["data"];
        assert_eq!(data["number"].as_u64(), Some(number), "{status}");
        let id = status["id"].as_str().unwrap_or_default();
        let journal = id.strip_suffix(&format!("-{number}")).unwrap_or_else(|| panic!("id {id} of number {number}"));
        assert_eq!(source.get_or_insert_with(|| journal.to_owned()), journal, "another journal's status");
        let subject = status["subject"].as_str().unwrap_or_default().to_owned();
        let seq = seqs.entry(subject.clone()).or_default();
        *seq += 1;
        assert_eq!(data["seq"].as_u64(), Some(*seq), "{status}");
        let ends = over.entry(subject).or_default();
        assert!(ends.is_empty(), "a status after the end: {status}");
        if data["terminal"] == true {
            ends.push(status["type"].as_str().unwrap_or_default().to_owned());
        }
    }
    over
}

/// What a life must be at least, so that most runs get as far as new batches, and how much longer it may be, in ms.
const LIFE: (u64, u64) = (60, 1_100);

#[test]
fn a_replay_killed_50_times_completes_every_job_once() {
    let seed = std::env::var("FOREBAY_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(20_261_121);
    let (mut dice, begun) = (Dice(seed), Instant::now());
    let folder = tempfile::tempdir().expect("a folder");
    let file = day();
    let mut kills = 0;
    while kills < KILLS {
        let life = Duration::from_millis(LIFE.0 + dice.below(LIFE.1));
        let mut args = vec!["run", "--replay", &file, "--speed", SPEED, "--exit-when-drained"];
        let journal = journal_in(folder.path());
        args.extend(if journal.is_some() { ["--resume", "data"] } else { ["--data", "data"] });
        if !killed_after(folder.path(), &args, life) {
            panic!("seed {seed}: the day was over after {kills} kills");
        }
        kills += 1;
        assert!(begun.elapsed() < Duration::from_secs(240), "seed {seed}: {kills} kills took too long");
    }
    let last = ["run", "--replay", &file, "--speed", "max", "--exit-when-drained", "--resume", "data"];
    let said = run(folder.path(), &last);
    assert_eq!(said.code, 0, "seed {seed}: {} {}", said.out, said.err);
    let over = check_stream(&folder.path().join("data"));
    let never: Vec<_> = over.iter().filter(|(_, ends)| ends.len() != 1).collect();
    assert!(never.is_empty(), "seed {seed}: not over: {never:?}");
    let completed = over.values().flatten().filter(|end| *end == "status.completed").count();
    assert_eq!((over.len(), completed), (536, 535), "seed {seed}: one job of the day is cancelled");
    println!("{kills} kills, {} jobs, {:?}", over.len(), begun.elapsed());
}

#[test]
fn a_folder_in_use_is_refused_and_free_again_after_a_kill() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = day();
    let args = ["run", "--replay", &file, "--speed", "1", "--exit-when-drained", "--data", "data"];
    let mut child =
        forebay(folder.path(), &args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the binary starts");
    let mut first = [0];
    // It prints its journal's folder once that is its own.
    child.stderr.as_mut().expect("stderr is a pipe").read_exact(&mut first).expect("it says something");
    let resume = ["run", "--replay", &file, "--speed", "max", "--exit-when-drained", "--resume", "data"];
    let second = run(folder.path(), &resume);
    assert_eq!(second.code, 2, "{second:?}");
    assert!(second.err.contains(&format!("in use by process {}", child.id())), "{}", second.err);
    child.kill().expect("it can be killed");
    child.wait().expect("it can be waited for");
    assert_eq!(run(folder.path(), &resume).code, 0);
}
