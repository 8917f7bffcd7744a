//! Sources and sinks over a real driver and journal: what comes twice, what cannot be taken, what a restart remembers.

use super::clerk::{Channel, Clerk};
use super::figures::SourceFigures;
use super::follower::{Follower, cursor};
use super::lines::Kind;
use crate::checkpoints::Checkpoints;
use crate::driver::tests::world;
use crate::driver::{Running, Settings, start};
use crate::intake::{Caller, NoRoutes};
use crate::policy::{Catalogue, compile};
use forebay_source::{Desk, Health, Letter, Note, Parcel, Receipt, Sink, SinkError, Stream};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::{Arc, Mutex};

const KEY: &str = "kafka:jobs/0/0";

/// A driver with one source of two channels: team a's, and team b's.
struct Bench {
    running: Running,
    desk: Desk,
    figures: Arc<SourceFigures>,
}

impl Bench {
    fn start(folder: &Path) -> Bench {
        let text = std::fs::read_to_string("../policies/teams.yaml").unwrap();
        let text = text.replace("  vision/batch:\n", "  vision/batch:\n    submitters: [a]\n");
        assert!(text.contains("submitters: [a]"), "the policy has this queue");
        let policy = compile("teams.yaml", &text, &Catalogue::builtin()).unwrap().policy;
        let resume = folder.join("journal.sqlite").exists();
        let running =
            start(Settings { resume, policy: Some((text, policy)), ..Settings::new(folder.to_owned(), world()) })
                .unwrap();
        let (desk, incoming) = running.handle.desk();
        let figures = Arc::new(SourceFigures::default());
        let channel = |name: &str| Channel {
            name: format!("kafka:jobs-{name}").into(),
            caller: Caller::named("default", name, false),
        };
        let clerk = Clerk {
            handle: running.handle.clone(),
            channels: vec![channel("a"), channel("b")],
            routes: Arc::new(NoRoutes),
            key: None,
            checkpoints: Checkpoints::believing(&running.handle),
            figures: Arc::clone(&figures),
        };
        std::thread::spawn(move || clerk.work(incoming));
        Bench { running, desk, figures }
    }

    fn hand_in(&self, channel: usize, stream: Option<Stream>, letters: Vec<Letter>) -> Receipt {
        let slot = self.desk.room_now(letters.len() as u32).unwrap();
        self.desk.hand_in(Parcel { channel, stream, letters }, slot).unwrap().blocking_recv().unwrap()
    }

    /// Letters of the log from an offset on.
    fn log(&self, from: u64, bodies: &[Vec<u8>]) -> Receipt {
        let letters =
            (from..).zip(bodies).map(|(offset, body)| Letter { bytes: body.clone(), offset, ..Letter::default() });
        let letters: Vec<Letter> = letters.collect();
        let stream = Stream { key: KEY.into(), next: from + letters.len() as u64, mark: 77 };
        self.hand_in(0, Some(stream), letters)
    }

    fn jobs(&self) -> Vec<String> {
        let ask = |engine: &forebay_engine::engine::Engine, _: &_| {
            engine.state().jobs().map(|(_, spec)| spec.subject.clone()).collect()
        };
        self.running.handle.query(ask).unwrap()
    }

    fn stop(self) {
        self.running.handle.stop();
        assert_eq!(self.running.join().unwrap().audit, [""; 0]);
    }
}

fn job(id: &str, subject: &str, queue: &str) -> Vec<u8> {
    job_of(id, subject, queue, 1)
}

fn job_of(id: &str, subject: &str, queue: &str, gpus: u32) -> Vec<u8> {
    json!({"specversion": "1.0", "type": "job.submitted", "source": "//t", "id": id, "subject": subject,
        "data": {"queue": queue, "gang": {"each": {"gpus": gpus}}, "simulation": {"durationS": 1}}})
    .to_string()
    .into_bytes()
}

const QUEUE: &str = "vision/batch";

fn counts(receipt: Receipt) -> [u32; 3] {
    [receipt.taken, receipt.seen, receipt.rejected]
}

#[test]
fn what_comes_twice_is_taken_once_across_a_restart() {
    let (folder, queue) = (tempfile::tempdir().unwrap(), QUEUE);
    let bench = Bench::start(folder.path());
    let first = [job("1", "x", queue), job("2", "y", queue)];
    assert_eq!(counts(bench.log(10, &first)), [2, 0, 0]);
    assert_eq!(counts(bench.log(11, &[first[1].clone(), job("3", "z", queue)])), [1, 1, 0], "below the position");
    assert_eq!(counts(bench.log(13, &first)), [0, 2, 0], "by their ids");
    assert_eq!(counts(bench.log(15, &[job("9", "x", queue)])), [1, 0, 0], "known by its subject, under a new id");
    let mail = |id: &str, body: Vec<u8>| vec![Letter { bytes: body, id: Some(id.into()), ..Letter::default() }];
    let bare = |subject: &str| {
        json!({"type": "job.submitted", "subject": subject, "data": {"queue": queue,
        "gang": {"each": {"gpus": 1}}, "rerun": true}})
        .to_string()
        .into_bytes()
    };
    assert_eq!(counts(bench.hand_in(0, None, mail("m1", bare("w")))), [1, 0, 0]);
    bench.stop();

    let bench = Bench::start(folder.path());
    assert_eq!(bench.desk.durable().of(KEY), Some(16));
    assert_eq!(bench.desk.durable().of(&format!("{KEY}#mark")), Some(77));
    assert_eq!(counts(bench.log(14, &first)), [0, 2, 0]);
    assert_eq!(counts(bench.hand_in(0, None, mail("m1", bare("w")))), [0, 1, 0], "by its transport's id");
    assert_eq!(counts(bench.log(16, &[job("1", "other", queue)])), [1, 0, 0], "an id used again for something else");
    assert_eq!(bench.jobs(), ["x", "y", "z", "w", "other"]);
    bench.stop();
}

#[test]
fn what_cannot_be_taken_is_kept_with_its_bytes_and_the_next_goes_on() {
    let (folder, queue) = (tempfile::tempdir().unwrap(), QUEUE);
    let bench = Bench::start(folder.path());
    let bodies = [
        b"\xff{".to_vec(),
        job("1", "x", queue),
        job_of("2", "x", queue, 2),
        job("3", "nowhere", "no//queue"),
        job("4", "y", queue),
    ];
    assert_eq!(counts(bench.log(0, &bodies)), [2, 0, 3]);
    let by_b = vec![Letter { bytes: job("5", "mine", queue), ..Letter::default() }];
    assert_eq!(counts(bench.hand_in(1, None, by_b)), [0, 0, 1], "b is no submitter of that queue");
    let cancel = json!({"type": "job.cancelled", "subject": "x"}).to_string().into_bytes();
    let by_b = vec![Letter { bytes: cancel, ..Letter::default() }];
    assert_eq!(counts(bench.hand_in(1, None, by_b)), [0, 0, 1], "nor may it cancel what a submitted there");
    let text = std::fs::read_to_string(folder.path().join("rejected.jsonl")).unwrap();
    let lines: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let codes: Vec<&str> = lines.iter().map(|l| l["code"].as_str().unwrap()).collect();
    assert_eq!(codes, ["Malformed", "Conflict", "BadValue", "ForbiddenQueue", "ForbiddenQueue"]);
    assert_eq!((&lines[0]["eventBase64"], &lines[0]["source"]), (&"/3s=".into(), &KEY.into()));
    assert_eq!(lines[1]["event"].as_str().unwrap().as_bytes(), bodies[2]);
    let counted = bench.figures.counted();
    assert_eq!((counted.taken, counted.rejected.values().sum::<u64>(), counted.latency_ms.is_some()), (2, 5, true));
    bench.stop();
}

/// Takes notes, and fails every other time.
struct Doubtful {
    got: Arc<Mutex<Vec<u64>>>,
    calls: u32,
}

impl Sink for Doubtful {
    fn name(&self) -> &str {
        "test:doubtful"
    }

    fn most_bytes(&self) -> usize {
        100_000
    }

    fn send(&mut self, notes: &[Note]) -> Result<(), SinkError> {
        self.calls += 1;
        if self.calls % 2 == 1 {
            return Err(SinkError::Passing { why: "not now".into() });
        }
        self.got.lock().unwrap().extend(notes.iter().map(|n| n.number));
        Ok(())
    }
}

#[test]
fn a_sink_gets_every_status_in_order_and_goes_on_from_its_cursor() {
    let (folder, queue) = (tempfile::tempdir().unwrap(), QUEUE);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let got = Arc::new(Mutex::new(Vec::new()));
    for life in 0..2 {
        let bench = Bench::start(folder.path());
        let sink = Box::new(Doubtful { got: Arc::clone(&got), calls: 0 });
        let follower = Follower::new(Kind::Statuses, sink, bench.running.handle.clone(), Health::default());
        let runtime = runtime.handle().clone();
        let thread = std::thread::spawn(move || follower.follow(&runtime));
        let subjects: Vec<Vec<u8>> =
            (0..40).map(|n| job(&format!("{life}-{n}"), &format!("{life}-{n}"), queue)).collect();
        assert_eq!(counts(bench.log(life * 40, &subjects)), [40, 0, 0]);
        bench.stop();
        thread.join().unwrap();
    }
    let got = got.lock().unwrap();
    let mut once = got.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once, (1..=once.len() as u64).collect::<Vec<_>>(), "none is left out");
    assert!(once.len() >= 80, "a status for each job: {}", once.len());
    let text = std::fs::read_to_string(folder.path().join("status.jsonl")).unwrap();
    assert_eq!(once.len(), text.lines().count());
    assert_eq!(cursor(Kind::Statuses, "test:doubtful"), "out:status:test:doubtful");
}
