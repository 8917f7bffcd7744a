//! A journal on a small disk of its own that runs full while events stream in by Kafka and HTTP: intake stops and says so, the consumer
//! stays in its group, nothing that was acknowledged is lost; with room it goes on by itself. Then again, killed while the disk is full.
//!
//! Never: another disk than its own filled up.

mod disk;

use crate::broker::{self, Sent};
use crate::support::{In, Stage, Wire, ended, job, source, unique, wait_until};
use disk::Disk;
use forebay_integration::teams::{ask, ask_json, secret};
use forebay_integration::{Server, forebay};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs::File;
use std::ops::Range;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Different jobs by Kafka in each half of the story, the first half of them more than there is room for.
const JOBS: usize = 1_500;

/// One event so often beside them, seen before but for the first: more than fits in memory, so that the source is held back, and
/// nothing in the journal.
const REPEATS: usize = 20_000;

/// What is left on the disk when it is "full".
const ROOM: u64 = 256 << 10;

/// Many times what an answer takes.
const LIMIT: Duration = Duration::from_secs(60);

/// What the HTTP client met.
#[derive(Debug, PartialEq, Eq)]
enum Met {
    /// This one is durable.
    Taken(String),
    /// This one is not, and why, and when to come back.
    Full { retry_after: String, text: String },
    /// Not now: what the source brought before goes first.
    Busy,
    /// The server has gone.
    Gone,
}

fn post(url: &str, event: &Value) -> Result<(u16, String, String), ureq::Error> {
    let config = ureq::Agent::config_builder().http_status_as_error(false).proxy(None).build();
    let request = ureq::Agent::from(config).post(format!("{url}/v1/events"));
    let request = request.header("authorization", format!("Bearer {}", secret("team-a")));
    let mut answer = request.header("content-type", "application/json").send(event.to_string())?;
    let text = answer.body_mut().read_to_string()?;
    let after = answer.headers().get("retry-after").and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned();
    Ok((answer.status().as_u16(), after, text))
}

/// Posts job after job, each until it is taken, as a client that minds the answers would, until it is told to stop.
struct Publisher {
    met: Receiver<Met>,
    stop: Arc<AtomicBool>,
}

impl Publisher {
    fn start(url: String, half: &'static str) -> Publisher {
        let (to, met) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        std::thread::spawn(move || {
            let mut n = 0;
            while !stopped.load(Ordering::Acquire) {
                let subject = posted(half, n);
                let told = match post(&url, &job(&subject, "a")) {
                    Ok((202, ..)) => Met::Taken(subject),
                    Ok((503, retry_after, text)) => Met::Full { retry_after, text },
                    Ok((429, ..)) => Met::Busy,
                    Ok(other) => panic!("{subject}: {other:?}"),
                    Err(_) => Met::Gone,
                };
                n += usize::from(matches!(told, Met::Taken(_)));
                let gone = told == Met::Gone;
                if to.send(told).is_err() || gone {
                    return;
                }
                // A stream and no flood; and sooner than it was told, so that the test need not wait as long.
                std::thread::park_timeout(Duration::from_millis(10));
            }
        });
        Publisher { met, stop }
    }

    /// Waits for what this takes of what the publisher meets; whatever else is acknowledged goes to `taken`.
    fn until<T>(&self, taken: &mut BTreeSet<String>, mut found: impl FnMut(&Met) -> Option<T>) -> T {
        loop {
            let met = self.met.recv_timeout(LIMIT).expect("an answer in time");
            let found = found(&met);
            if let Met::Taken(subject) = met {
                taken.insert(subject);
            }
            if let Some(found) = found {
                return found;
            }
        }
    }

    /// Ends it: what else was acknowledged.
    fn end(self, taken: &mut BTreeSet<String>) {
        self.stop.store(true, Ordering::Release);
        taken
            .extend(self.met.iter().filter_map(|met| if let Met::Taken(subject) = met { Some(subject) } else { None }));
    }
}

fn posted(half: &str, n: usize) -> String {
    format!("http-{half}-{n}")
}

/// Jobs by Kafka.
fn stream(topic: &str, half: &str, jobs: Range<usize>) -> BTreeSet<String> {
    let subjects: BTreeSet<String> = jobs.map(|n| format!("kafka-{half}-{n}")).collect();
    let records: Vec<Sent> = subjects.iter().map(|subject| Sent::body(job(subject, "a").to_string())).collect();
    broker::send(topic, &records);
    subjects
}

/// One event many times.
fn repeat(topic: &str, half: &str) -> String {
    let subject = format!("again-{half}");
    let mut event = job(&subject, "a");
    for (name, value) in [("specversion", "1.0"), ("source", "//tests"), ("id", subject.as_str())] {
        event[name] = json!(value);
    }
    broker::send(topic, &vec![Sent::body(event.to_string()); REPEATS]);
    subject
}

/// Waits until a server's log says so: it is read on a thread of its own.
fn logs(server: &Server, part: &str) {
    wait_until(part, || if server.log().contains(part) { Ok(()) } else { Err(server.log()) });
}

/// Fills the disk while events come in, until it is said that it is full. What was sent, and what HTTP acknowledged.
fn fill(disk: &Disk, stage: &Stage, server: &Server, topic: &str, half: &'static str) -> (BTreeSet<String>, Publisher) {
    disk.leave(ROOM);
    let publisher = Publisher::start(server.url.clone(), half);
    let mut sent = stream(topic, half, 0..JOBS / 2);
    let told = publisher.until(&mut sent, |met| match met {
        Met::Full { retry_after, text } => Some((retry_after.clone(), text.clone())),
        Met::Gone => panic!("the server ended: {}", server.log()),
        Met::Taken(_) | Met::Busy => None,
    });
    assert_eq!(told.0, "10", "Retry-After");
    for part in ["DiskFull", "nothing is received", "no space left", "make room"] {
        assert!(told.1.contains(part), "`{part}` is missing in {}", told.1);
    }
    let ready = ask(server, "ops", "GET", "/readyz", None);
    assert_eq!((ready.0, ready.1.contains("make room")), (503, true), "{ready:?}");
    assert_eq!(ask_json(server, "ops", "GET", "/v1/summary", None).0, 200, "questions are answered");
    logs(server, "nothing is received");
    sent.extend(stream(topic, half, JOBS / 2..JOBS));
    sent.insert(repeat(topic, half));
    wait_until("the source held back", || {
        let seen = source(server, "in", "kafka:");
        if seen["condition"] == "heldBack" { Ok(()) } else { Err(seen.to_string()) }
    });
    assert_eq!(broker::members(&stage.group), 1, "the consumer stays in its group");
    let letters = source(server, "in", "kafka:")["letters"].clone();
    let durable = ["taken", "seen"].iter().filter_map(|kind| letters[kind].as_i64()).sum::<i64>();
    let committed: i64 = broker::committed(&stage.group, topic, 3).into_iter().flatten().sum();
    assert!(committed <= durable, "{committed} committed, {durable} durable");
    (sent, publisher)
}

/// What comes of a start on a disk that is full: it serves, says so and waits for room, or it ends. Asked to end, it does so with a code
/// of its own. The code, whether it had waited, and what it said.
fn start_on_full(stage: &Stage) -> (i32, bool, String) {
    let mut command = forebay(stage.folder.path(), &["run", "--config", "forebay.yaml", "--listen", "127.0.0.1:0"]);
    let log = stage.folder.path().join("full.log");
    command.envs(stage.variables()).stdout(Stdio::null()).stderr(File::create(&log).expect("a log"));
    let mut child = command.spawn().expect("it starts");
    let text = || std::fs::read_to_string(&log).unwrap_or_default();
    let waits = wait_until("an end, or that it waits for room", || match child.try_wait().expect("a child") {
        Some(_) => Ok(false),
        None if text().contains("nothing is received") => Ok(true),
        None => Err(text()),
    });
    if waits {
        let asked = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
        assert!(asked.is_ok_and(|status| status.success()), "it is there");
    }
    let status = wait_until("its end", || child.try_wait().expect("a child").ok_or_else(text));
    (status.code().unwrap_or(-1), waits, text())
}

/// Everything that was sent or acknowledged ends once, and nothing else is there.
fn check_all(stage: &Stage, sent: &BTreeSet<String>) {
    stage.wait_over(sent);
    let ends = ended(&stage.statuses());
    assert!(ends.values().all(|end| end == "completed"), "{ends:?}");
    let more: Vec<&String> = ends.keys().filter(|subject| !sent.contains(*subject)).collect();
    assert!(more == ["first"], "{more:?}");
    assert!(stage.rejected().is_empty());
}

#[test]
fn a_full_disk_stops_intake_and_loses_nothing() {
    let Some(disk) = Disk::small() else { return };
    let topic = unique("full");
    broker::create(&topic, 3);
    let kafka = Wire { read: vec![In::of(&topic, "team-a")], ..Wire::default() };
    let stage = Stage::with_data(tempfile::tempdir().expect("a folder"), disk.path.join("d"), &kafka, &Wire::default());
    let server = stage.start();
    let (mut sent, publisher) = fill(&disk, &stage, &server, &topic, "first");
    let acknowledged = posts(&sent, "first");
    disk.clear();
    publisher.until(&mut sent, |met| matches!(met, Met::Taken(_)).then_some(()));
    publisher.end(&mut sent);
    check_all(&stage, &sent);
    logs(&server, "there is room again");

    let (more, publisher) = fill(&disk, &stage, &server, &topic, "second");
    drop(server);
    sent.extend(more);
    publisher.end(&mut sent);
    disk.leave(0);
    let (code, waited, said) = start_on_full(&stage);
    assert_eq!((code, said.contains("no space left"), said.contains("make room")), (6, true, true), "{said}");
    disk.clear();
    let server = stage.start();
    // The one that was told to come back, which may have been taken all the same.
    let last = posted("second", posts(&sent, "second"));
    let (status, text) = wait_until("an answer but `not now`", || match post(&server.url, &job(&last, "a")) {
        Ok((429, _, text)) => Err(text),
        Ok((status, _, text)) => Ok((status, text)),
        Err(error) => panic!("{last}: {error}"),
    });
    assert_eq!(status, 202, "{text}");
    sent.insert(last);
    check_all(&stage, &sent);
    println!(
        "full disk: stopped twice with {ROOM} bytes of room, {acknowledged} and {} posts acknowledged before; started full: {}, asked to end: 6; \
         {} jobs completed once, none lost",
        posts(&sent, "second") - 1,
        if waited { "waits for room" } else { "ends" },
        sent.len()
    );
}

/// Jobs of a half that came by HTTP.
fn posts(sent: &BTreeSet<String>, half: &str) -> usize {
    sent.iter().filter(|subject| subject.starts_with(&posted(half, 0)[..posted(half, 0).len() - 1])).count()
}
