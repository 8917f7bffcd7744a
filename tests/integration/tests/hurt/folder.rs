//! A data folder that acknowledged jobs, and copies of it to be hurt. checker.rs judges what becomes of those.
//!
//! ```text
//! 60 jobs, of 5.5 MiB together -> the log is moved into the database -> 10 more -> kill -9, or asked to end and waited for
//! beside them: 12 messages of a queue that are no events, each rejected; what became of all goes to two queues, whose cursors move
//! ```
//!
//! Never: asks the journal what should be in it.

use super::queue::{KEYS, LoopbackQueues};
use super::started::Started;
use forebay::driver::{Consent, Running, Settings, start};
use forebay::journal::ArchiveQuery;
use forebay_integration::{Server, root, segments, send, until};
use forebay_sim::market::Market;
use forebay_sim::world::WorldOptions;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

/// What the jobs of a folder have together, in bytes: more than the 4 MiB at which the log is moved into the database, so that an attack on
/// either finds something.
const BYTES: usize = 11 << 19;

/// Of an argument of a job.
const ARGUMENT: usize = 100;

/// Jobs that come when the log has been moved: they are in the log alone where the controller is killed.
const LATER: usize = 10;

/// Messages of the queue that are no events.
const REJECTED: usize = 12;

/// So long is each of them: together they are some pages of a file.
const REJECTED_BYTES: usize = 1_000;

/// The configuration that names the queues, in the folder around the data. Whoever starts again needs none of them.
const CONFIG: &str = "queues.yaml";

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The seeds of the small form or of the full one, from `FOREBAY_SEED` on.
pub fn cases(small: u64, all: u64) -> std::ops::Range<u64> {
    let from = std::env::var("FOREBAY_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0);
    from..from.max(if crate::full() { all } else { small })
}

/// A folder and what it acknowledged.
pub struct HurtFolder {
    pub folder: tempfile::TempDir,
    /// Subjects that were answered.
    pub acknowledged: BTreeSet<String>,
    /// What was answered: the number of each subject's job.
    pub jobs: BTreeMap<String, String>,
    /// The lines of its statuses, by their ids.
    pub statuses: BTreeMap<String, String>,
    /// The lines of its rejected events.
    pub rejected: Vec<String>,
    /// How far each sink has come by the journal: at least what it was seen to have acknowledged, at most what was there at the end.
    pub cursors: BTreeMap<String, RangeInclusive<u64>>,
}

/// A job that is not over for as long as the attacks last.
pub fn event(subject: &str) -> Value {
    let data =
        json!({"queue": "research", "gang": {"workers": 1, "each": {"gpus": 1}}, "simulation": {"durationS": 360_000}});
    json!({"specversion": "1.0", "type": "job.submitted", "source": "//hurt", "id": subject, "subject": subject, "data": data})
}

/// The same with so many bytes of arguments.
fn heavy(subject: &str, bytes: usize) -> Value {
    let args: Vec<String> = (0..bytes / ARGUMENT).map(|n| format!("{n:0ARGUMENT$}")).collect();
    let mut event = event(subject);
    event["data"]["run"] = json!({"template": "t", "args": args});
    event
}

/// Sends jobs and returns the subjects that were answered.
pub fn submit(server: &Server, name: &str, count: usize) -> BTreeSet<String> {
    let events: Vec<Value> = (0..count).map(|n| event(&format!("{name}-{n}"))).collect();
    post(&server.url, &events).into_keys().collect()
}

/// Sends jobs, ten at a time: the number of each subject's job, as it was answered.
pub fn post(url: &str, events: &[Value]) -> BTreeMap<String, String> {
    let mut jobs = BTreeMap::new();
    for some in events.chunks(10) {
        let body = Value::Array(some.to_vec()).to_string();
        let kind = [("content-type", "application/json")];
        let (status, text) = send(url, "POST", "/v1/events", &kind, body.as_bytes());
        assert_eq!(status, 202, "{text}");
        let answer: Value = serde_json::from_str(&text).expect("JSON");
        let accepted = answer["accepted"].as_array().expect("a list");
        assert_eq!(accepted.len(), some.len(), "{answer}");
        for one in accepted {
            let text = |key: &str| one[key].as_str().unwrap_or_else(|| panic!("no {key} in {one}")).to_owned();
            jobs.insert(text("subject"), text("job"));
        }
    }
    jobs
}

/// A controller that was killed, or ended in order, after it had acknowledged so many jobs and ten more.
pub fn acknowledged(jobs: usize, how: End) -> HurtFolder {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let queues = LoopbackQueues::with((0..REJECTED).map(|n| format!("no event {n} {}", "x".repeat(REJECTED_BYTES))));
    std::fs::write(folder.path().join(CONFIG), queues.config()).expect("writes");
    let started = Started::with(&data, &["--config", CONFIG], &KEYS);
    let started = started.unwrap_or_else(|refusal| panic!("{}", refusal.said));
    let large: Vec<Value> = (0..jobs).map(|n| heavy(&format!("job-{n}"), BYTES / jobs)).collect();
    let mut answered = post(&started.url, &large);
    let size = |name: &str| std::fs::metadata(data.join(name)).map_or(0, |file| file.len());
    until("the log is moved into the database", PATIENCE, || {
        if size("journal.sqlite") > BYTES as u64 / 2 { Ok(()) } else { Err(size("journal.sqlite").to_string()) }
    });
    each_has_a_status(&data, answered.len());
    // With them the journal learns that the statuses of the others were written, and keeps those no longer.
    let later: Vec<Value> = (0..LATER).map(|n| event(&format!("later-{n}"))).collect();
    answered.extend(post(&started.url, &later));
    each_has_a_status(&data, answered.len());
    let sent = sent(&started.url, &data);
    match how {
        End::Killed => {
            started.kill();
            assert!(size("journal.sqlite-wal") > 0, "a log is left");
        }
        End::InOrder => {
            started.stop();
            assert_eq!(size("journal.sqlite-wal"), 0, "all of it is in the database");
        }
    }
    let (statuses, rejected, come) = (ids(&data), segments::lines(&data.join("rejected")), cursors(&data));
    assert_eq!(rejected.len(), REJECTED, "{rejected:?}");
    let between = |(sink, least): (String, u64)| {
        let most = come.get(&sink).copied().unwrap_or(0);
        assert!(least <= most, "{sink} has acknowledged {least}, and the journal has {most}");
        (sink, least..=most)
    };
    let cursors = sent.into_iter().map(between).collect();
    HurtFolder { folder, acknowledged: answered.keys().cloned().collect(), jobs: answered, statuses, rejected, cursors }
}

/// Waits until all that the queue held is rejected and both sinks have acknowledged what there is: how far each has come, by the name that its
/// cursor has in the journal.
fn sent(url: &str, data: &Path) -> BTreeMap<String, u64> {
    let statuses = ids(data).len() as u64;
    let mut sent = BTreeMap::new();
    until("both sinks have acknowledged what there is", PATIENCE, || {
        let (_, text) = send(url, "GET", "/v1/sources", &[], b"");
        let view: Value = serde_json::from_str(&text).map_err(|e| format!("{e} in {text}"))?;
        for (direction, least) in [("status", statuses), ("rejected", REJECTED as u64)] {
            let sink = view["sources"].as_array().into_iter().flatten().find(|one| one["direction"] == direction);
            let come = sink.and_then(|one| Some((one["name"].as_str()?, one["acknowledged"].as_u64()?)));
            let (name, at) = come.filter(|(_, at)| *at >= least).ok_or_else(|| text.clone())?;
            sent.insert(format!("out:{direction}:{name}"), at);
        }
        Ok(())
    });
    sent
}

/// How far sinks have come, by the journal of a data folder. No byte of it is changed.
pub fn cursors(data: &Path) -> BTreeMap<String, u64> {
    let checked = forebay::journal::check(data).unwrap_or_else(|e| panic!("{}: {e}", data.display()));
    let all = checked.journal.positions().iter();
    all.filter(|(name, _)| name.starts_with("out:")).map(|(name, at)| (name.clone(), *at)).collect()
}

fn each_has_a_status(data: &Path, jobs: usize) {
    until("each job has a status", PATIENCE, || {
        let subject = |line: &String| Some(serde_json::from_str::<Value>(line).ok()?["subject"].as_str()?.to_owned());
        let told: BTreeSet<String> = ids(data).values().filter_map(subject).collect();
        if told.len() >= jobs { Ok(()) } else { Err(format!("{} of {jobs}", told.len())) }
    });
}

/// How a controller ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// By `kill -9`.
    Killed,
    /// It was asked to end, and did.
    InOrder,
}

/// The lines of the statuses of a data folder, by their ids, none of which is there twice.
pub fn ids(data: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for line in segments::lines(&data.join("status")) {
        let status: Value = serde_json::from_str(&line).expect("JSON");
        let before = found.insert(status["id"].as_str().expect("an id").to_owned(), line);
        assert!(before.is_none(), "one id twice: {before:?} and {status}");
    }
    found
}

/// The built-in policy, which a start has that names none.
fn policy() -> &'static (String, forebay_kernel::policy::Policy) {
    static POLICY: OnceLock<(String, forebay_kernel::policy::Policy)> = OnceLock::new();
    POLICY.get_or_init(|| {
        let text = std::fs::read_to_string(root().join("policies/teams.yaml")).expect("a policy");
        let catalogue = forebay_catalog::Catalogue::builtin();
        let compiled = forebay_policy::compile("teams.yaml", &text, &catalogue).expect("it compiles");
        (text, compiled.policy)
    })
}

/// Starts in a data folder as `forebay run` does.
pub fn opened(data: &Path, consent: Consent) -> Result<Running, String> {
    let world = Box::new(|_: &_, origin| WorldOptions { origin, ..WorldOptions::new(1, Market::calm(&[])) });
    let policy = Some(policy().clone());
    let settings = Settings { resume: true, policy, consent, ..Settings::new(data.to_owned(), world) };
    start(settings).map_err(|error| error.to_string())
}

/// The subjects that a controller knows: those in its state, and those that are over.
pub fn known(running: &Running) -> BTreeSet<String> {
    let subjects = |engine: &forebay_engine::engine::Engine| {
        engine.state().jobs().map(|(_, spec)| spec.subject.clone()).collect::<BTreeSet<_>>()
    };
    let mut known = running.handle.query(move |engine, _| subjects(engine)).expect("it answers");
    let query = ArchiveQuery { queues: Vec::new(), outcome: None, before: None, limit: 1_000 };
    let over = running.archive.list(&query).expect("the archive is read").jobs;
    known.extend(over.into_iter().map(|job| job.finished.spec.subject.clone()));
    known
}

/// Ends it in order.
pub fn ended(running: Running) {
    running.handle.stop();
    let finished = running.join().expect("it ends in order");
    assert!(finished.audit.is_empty(), "{:?}", finished.audit);
}

impl HurtFolder {
    pub fn data(&self) -> std::path::PathBuf {
        self.folder.path().join("data")
    }

    /// Goes on without what a refusal says is missing: no id means two things afterwards, and the journal keeps what was given up.
    pub fn give_up(&self, hurt: &Path, said: &str, case: &str) {
        let given: u64 = match said.split_once("--accept-loss ").map(|(_, rest)| rest.split('`').next()) {
            Some(Some(number)) => number.parse().expect("a number"),
            _ => return,
        };
        let wrong = Consent { loss: Some(given + 1), ..Consent::default() };
        assert!(opened(hurt, wrong).is_err(), "{case}: another number than was said is not enough");
        let running =
            opened(hurt, Consent { loss: Some(given), ..Consent::default() }).unwrap_or_else(|e| panic!("{case}: {e}"));
        assert!(running.handle.journal().incarnation > 0, "{case}");
        let again = forebay_kernel::event::Event::JobCancelled {
            tenant: "default".into(),
            subject: "job-0".into(),
            by: None,
            sent: None,
        };
        running.handle.submit(vec![again]).expect("it is taken");
        ended(running);
        for (id, line) in ids(hurt) {
            let before = self.statuses.get(&id).unwrap_or(&line);
            assert_eq!(*before, line, "{case}: {id} means two things");
        }
        let rejected = segments::lines(&hurt.join("rejected"));
        assert!(rejected.iter().all(|line| self.rejected.contains(line)), "{case}: a rejected event means two things");
        let verified = forebay::journal::verify(hurt).unwrap_or_else(|e| panic!("{case}: {e}"));
        assert!(verified.acts.iter().any(|act| act.kind == forebay::journal::ActKind::LossAccepted), "{case}");
        ended(opened(hurt, Consent::default()).unwrap_or_else(|e| panic!("{case}: the next start: {e}")));
    }
}
