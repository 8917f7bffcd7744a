//! `kill -9` of a replay at 50 random moments, resumed each time: every job completes once, and the status stream has no gap and no
//! double. And of a controller to which jobs are sent: what it answered is there, under the number that it was answered with.
//!
//! The moments come from a seed: `FOREBAY_SEED=n cargo test -p forebay-integration --test kill9` meets the same ones again, as far as
//! the machine is as fast. `FOREBAY_KILLS=n` kills each so often; `cargo xtask test integration hurt --full` does it with more. A killed replay
//! is waited for on its own pipes; nothing here sleeps.

use forebay_integration::dice::Dice;
use forebay_integration::{Server, forebay, root, run, segments, until};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Kills of one replay.
const KILLS: u64 = 50;

/// 20 minutes of the day a second: with 50 kills some 0.6 s apart the day is not over before the last. With more of them it goes as much slower.
const SPEED: u64 = 1_200;

/// So many kills are done within so many seconds: many times what they take.
const KILLS_WITHIN_S: u64 = 240;

/// Kills of a controller to which jobs are sent.
const LIVE_KILLS: u64 = 10;

/// How often to kill: as asked for, else the usual number.
fn kills(usual: u64) -> u64 {
    std::env::var("FOREBAY_KILLS").map_or(usual, |kills| kills.parse().expect("FOREBAY_KILLS is a number"))
}

/// Where the moments begin.
fn seed() -> u64 {
    std::env::var("FOREBAY_SEED").map_or(20_261_121, |seed| seed.parse().expect("FOREBAY_SEED is a number"))
}

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
fn a_replay_killed_at_random_moments_completes_every_job_once() {
    let (seed, most) = (seed(), kills(KILLS));
    let (mut dice, begun) = (Dice(seed), Instant::now());
    let speed = (SPEED * KILLS / most.max(KILLS)).max(1).to_string();
    let within = Duration::from_secs(KILLS_WITHIN_S * most.div_ceil(KILLS));
    let folder = tempfile::tempdir().expect("a folder");
    let file = day();
    let mut kills = 0;
    while kills < most {
        let life = Duration::from_millis(LIFE.0 + dice.below(LIFE.1));
        let mut args = vec!["run", "--replay", &file, "--speed", &speed, "--exit-when-drained"];
        let journal = journal_in(folder.path());
        args.extend(if journal.is_some() { ["--resume", "data"] } else { ["--data", "data"] });
        if !killed_after(folder.path(), &args, life) {
            panic!("seed {seed}: the day was over after {kills} kills");
        }
        kills += 1;
        assert!(begun.elapsed() < within, "seed {seed}: {kills} kills took too long");
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

/// What a life with a sender lasts at least from when it listens, and how much longer it may be, in ms: some dozens of posts.
const LIVE: (u64, u64) = (20, 380);

/// Posts one job after the other from this number on until there is no answer: the jobs that were answered, and the number that was not.
fn send_until_it_dies(url: &str, first: u64) -> (Vec<[String; 2]>, u64) {
    let config = ureq::Agent::config_builder().http_status_as_error(false).proxy(None).build();
    let (agent, mut answered, mut number) = (ureq::Agent::from(config), Vec::new(), first);
    loop {
        let subject = format!("job-{number}");
        let data =
            json!({ "queue": "research", "gang": { "each": { "gpus": 1 } }, "simulation": { "durationS": 360_000 } });
        let event = json!({ "type": "job.submitted", "subject": subject, "data": data }).to_string();
        let sent = agent.post(format!("{url}/v1/events")).header("content-type", "application/json").send(event);
        let text = sent.and_then(|mut answer| Ok((answer.status().as_u16(), answer.body_mut().read_to_string()?)));
        let Ok((status, text)) = text else { return (answered, number) };
        assert_eq!(status, 202, "{text}");
        let taken: Value = serde_json::from_str(&text).expect("JSON");
        let job = taken["accepted"][0]["job"].as_str().unwrap_or_else(|| panic!("no job in {taken}"));
        answered.push([subject, job.to_owned()]);
        number += 1;
    }
}

/// Each subject has the job that it was answered with. One that was on its way at a kill is sent again, and is one job.
fn check_answered(server: &Server, answered: &BTreeMap<String, String>, seed: u64) {
    for (subject, job) in answered {
        let (status, found) = server.get(&format!("/v1/jobs/{subject}"));
        assert!(status == 200 && found["job"] == job.as_str(), "seed {seed}: {subject} was {job}: {status} {found}");
    }
    let given: BTreeSet<&String> = answered.values().collect();
    assert_eq!(given.len(), answered.len(), "seed {seed}: a number was given out twice");
}

#[test]
fn a_controller_killed_at_random_moments_keeps_what_it_answered() {
    let (seed, most) = (seed(), kills(LIVE_KILLS));
    let (mut dice, begun) = (Dice(seed), Instant::now());
    let folder = tempfile::tempdir().expect("a folder");
    let start = || Server::start(folder.path(), &["--data", "data"]);
    let (mut answered, mut next) = (BTreeMap::new(), 0);
    for kill in 1..=most {
        let mut server = start();
        let dies = Instant::now() + Duration::from_millis(LIVE.0 + dice.below(LIVE.1));
        let (url, first) = (server.url.clone(), next);
        let sender = std::thread::spawn(move || send_until_it_dies(&url, first));
        server.lives_until(dies);
        server.kill();
        let (jobs, unanswered) = sender.join().expect("what is answered is taken");
        for [subject, job] in jobs {
            let before = answered.insert(subject.clone(), job);
            assert!(before.is_none(), "seed {seed}: {subject} twice, kill {kill}");
        }
        next = unanswered;
    }
    let killed = begun.elapsed();
    assert!(answered.len() as u64 >= most, "seed {seed}: {} jobs in {most} lives show nothing", answered.len());
    let server = start();
    check_answered(&server, &answered, seed);
    let data = folder.path().join("data");
    until("each job has a status", Duration::from_secs(120), || {
        let subject = |line: &String| Some(serde_json::from_str::<Value>(line).ok()?["subject"].as_str()?.to_owned());
        let told: BTreeSet<String> = segments::lines(&data.join("status")).iter().filter_map(subject).collect();
        let missing = answered.keys().filter(|subject| !told.contains(*subject)).count();
        if missing == 0 { Ok(()) } else { Err(format!("{missing} of {}", answered.len())) }
    });
    server.kill();
    check_stream(&data);
    println!(
        "{most} kills of a controller that is sent jobs in {killed:?}, {} jobs, {:?}",
        answered.len(),
        begun.elapsed()
    );
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
