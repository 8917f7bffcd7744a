//! Sources and sinks with a real driver and journal: repeated messages, rejected messages, and restarts.

use super::decode_worker::{DecodeWorker, SourceChannel};
use super::follower::{Follower, cursor};
use super::lines::LogKind;
use super::metrics::SourceMetrics;
use super::registry::{RegisteredSource, SourceRegistry};
use crate::checkpoints::Checkpoints;
use crate::driver::tests::world;
use crate::driver::{Running, Settings, start};
use forebay_catalog::Catalogue;
use forebay_policy::compile;
use forebay_source::{
    Health, Message, MessageBatch, OutgoingMessage, Receipt, Sink, SinkError, SourceHandle, StreamPosition,
};
use forebay_wire::intake::{Caller, NoRoutes};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::{Arc, Mutex};

const KEY: &str = "kafka:jobs/0/0";

/// A driver with one source of two channels, of team a and of team b.
struct Bench {
    running: Running,
    source: SourceHandle,
    metrics: Arc<SourceMetrics>,
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
        let (source, incoming) = running.handle.source();
        let metrics = Arc::new(SourceMetrics::default());
        let channel = |name: &str| SourceChannel {
            name: format!("kafka:jobs-{name}").into(),
            caller: Caller::named("default", name),
        };
        let worker = DecodeWorker {
            handle: running.handle.clone(),
            channels: vec![channel("a"), channel("b")],
            routes: Arc::new(NoRoutes),
            key: None,
            checkpoints: Checkpoints::trusting(&running.handle),
            metrics: Arc::clone(&metrics),
        };
        std::thread::spawn(move || worker.run(incoming));
        Bench { running, source, metrics }
    }

    fn submit(&self, channel: usize, stream: Option<StreamPosition>, messages: Vec<Message>) -> Receipt {
        let permit = self.source.try_reserve(messages.len() as u32).unwrap();
        self.source.submit(MessageBatch { channel, stream, messages }, permit).unwrap().blocking_recv().unwrap()
    }

    /// Submits messages of the log from an offset on.
    fn log(&self, from: u64, bodies: &[Vec<u8>]) -> Receipt {
        let messages =
            (from..).zip(bodies).map(|(offset, body)| Message { bytes: body.clone(), offset, ..Message::default() });
        let messages: Vec<Message> = messages.collect();
        let stream = StreamPosition { key: KEY.into(), next: from + messages.len() as u64, fingerprint: 77 };
        self.submit(0, Some(stream), messages)
    }

    fn jobs(&self) -> Vec<String> {
        let query = |engine: &forebay_engine::engine::Engine, _: &_| {
            engine.state().jobs().map(|(_, spec)| spec.subject.clone()).collect()
        };
        self.running.handle.query(query).unwrap()
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
fn repeated_messages_are_taken_once_across_a_restart() {
    let (folder, queue) = (tempfile::tempdir().unwrap(), QUEUE);
    let bench = Bench::start(folder.path());
    let first = [job("1", "x", queue), job("2", "y", queue)];
    assert_eq!(counts(bench.log(10, &first)), [2, 0, 0]);
    assert_eq!(counts(bench.log(11, &[first[1].clone(), job("3", "z", queue)])), [1, 1, 0], "below the position");
    assert_eq!(counts(bench.log(13, &first)), [0, 2, 0], "by their ids");
    assert_eq!(counts(bench.log(15, &[job("9", "x", queue)])), [1, 0, 0], "known by its subject, under a new id");
    let mail = |id: &str, body: Vec<u8>| vec![Message { bytes: body, id: Some(id.into()), ..Message::default() }];
    let bare = |subject: &str| {
        json!({"type": "job.submitted", "subject": subject, "data": {"queue": queue,
        "gang": {"each": {"gpus": 1}}, "rerun": true}})
        .to_string()
        .into_bytes()
    };
    assert_eq!(counts(bench.submit(0, None, mail("m1", bare("w")))), [1, 0, 0]);
    bench.stop();

    let bench = Bench::start(folder.path());
    assert_eq!(bench.source.positions().get(KEY), Some(16));
    assert_eq!(bench.source.positions().get(&format!("{KEY}#mark")), Some(77));
    assert_eq!(counts(bench.log(14, &first)), [0, 2, 0]);
    assert_eq!(counts(bench.submit(0, None, mail("m1", bare("w")))), [0, 1, 0], "by its transport's id");
    assert_eq!(counts(bench.log(16, &[job("1", "other", queue)])), [1, 0, 0], "an id used again for something else");
    assert_eq!(bench.jobs(), ["x", "y", "z", "w", "other"]);
    bench.stop();
}

#[test]
fn rejected_messages_are_kept_with_their_bytes() {
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
    let by_b = vec![Message { bytes: job("5", "mine", queue), ..Message::default() }];
    assert_eq!(counts(bench.submit(1, None, by_b)), [0, 0, 1], "b is no submitter of that queue");
    let cancel = json!({"type": "job.cancelled", "subject": "x"}).to_string().into_bytes();
    let by_b = vec![Message { bytes: cancel, ..Message::default() }];
    assert_eq!(counts(bench.submit(1, None, by_b)), [0, 0, 1], "nor may it cancel what a submitted there");
    let lines = crate::segments::read_all(&folder.path().join("rejected")).unwrap();
    let lines: Vec<Value> = lines.iter().map(|l| serde_json::from_slice(l).unwrap()).collect();
    let codes: Vec<&str> = lines.iter().map(|l| l["code"].as_str().unwrap()).collect();
    assert_eq!(codes, ["Malformed", "Conflict", "BadValue", "ForbiddenQueue", "ForbiddenQueue"]);
    assert_eq!((&lines[0]["eventBase64"], &lines[0]["source"]), (&"/3s=".into(), &KEY.into()));
    assert_eq!(lines[1]["event"].as_str().unwrap().as_bytes(), bodies[2]);
    let counts = bench.metrics.counts();
    assert_eq!((counts.taken, counts.rejected.values().sum::<u64>(), counts.latency_ms.is_some()), (2, 5, true));
    bench.stop();
}

/// A runtime for followers: their pauses need somebody who watches the time.
fn timed() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// A sink that fails every other time.
struct UnreliableSink {
    got: Arc<Mutex<Vec<u64>>>,
    calls: u32,
}

impl Sink for UnreliableSink {
    fn name(&self) -> &str {
        "test:unreliable"
    }

    fn max_bytes(&self) -> usize {
        100_000
    }

    fn send(&mut self, messages: &[OutgoingMessage]) -> Result<(), SinkError> {
        self.calls += 1;
        if self.calls % 2 == 1 {
            return Err(SinkError::Transient { why: "not now".into() });
        }
        self.got.lock().unwrap().extend(messages.iter().map(|n| n.number));
        Ok(())
    }
}

#[test]
fn a_sink_gets_every_status_in_order_and_continues_from_its_cursor() {
    let (folder, queue) = (tempfile::tempdir().unwrap(), QUEUE);
    let runtime = timed();
    let got = Arc::new(Mutex::new(Vec::new()));
    for life in 0..2 {
        let bench = Bench::start(folder.path());
        let sink = Box::new(UnreliableSink { got: Arc::clone(&got), calls: 0 });
        let follower = Follower::new(LogKind::Statuses, sink, bench.running.handle.clone(), Health::default());
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
    assert_eq!(once.len(), crate::segments::read_all(&folder.path().join("status")).unwrap().len());
    assert_eq!(cursor(LogKind::Statuses, "test:unreliable"), "out:status:test:unreliable");
}

#[test]
fn a_sink_that_was_away_for_longer_than_statuses_are_kept_goes_on_with_what_is_there() {
    let (folder, queue) = (tempfile::tempdir().unwrap(), QUEUE);
    let runtime = timed();
    let bench = Bench::start(folder.path());
    let handle = bench.running.handle.clone();
    let (name, subjects) = (cursor(LogKind::Statuses, "test:unreliable"), 0..20);
    let jobs: Vec<Vec<u8>> = subjects.map(|n| job(&format!("{n}"), &format!("{n}"), queue)).collect();
    handle.record_cursor(&name, 3);
    assert_eq!(counts(bench.log(0, &jobs)), [20, 0, 0]);
    runtime.block_on(async { handle.watch().wait_for(|progress| progress.statuses >= 20).await.map(drop) }).unwrap();
    assert_eq!(handle.durable().get(&name), Some(3));
    // What retention does once nobody waits: the first lines go with their segment.
    let statuses = folder.path().join("status");
    let first = crate::segments::read_all(&statuses).unwrap().len();
    let whole = std::fs::read(statuses.join(crate::segments::file_name(1))).unwrap();
    let at = whole.split_inclusive(|byte| *byte == b'\n').take(8).map(<[u8]>::len).sum::<usize>();
    assert!(first >= 20 && at < whole.len(), "{first} statuses");
    std::fs::write(statuses.join(crate::segments::file_name(9)), &whole[at..]).unwrap();
    std::fs::remove_file(statuses.join(crate::segments::file_name(1))).unwrap();
    let (got, health) = (Arc::new(Mutex::new(Vec::new())), Health::default());
    let sink = Box::new(UnreliableSink { got: Arc::clone(&got), calls: 0 });
    let follower = Follower::new(LogKind::Statuses, sink, handle.clone(), health.clone());
    let own = runtime.handle().clone();
    let thread = std::thread::spawn(move || follower.follow(&own));
    while got.lock().unwrap().len() < 12 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    bench.stop();
    thread.join().unwrap();
    let got = got.lock().unwrap();
    assert_eq!(got[..12], (9..=20).collect::<Vec<u64>>(), "and none is said to have been sent that was not there");
    let told: Vec<String> = health.snapshot().remarks.iter().map(|remark| remark.text.clone()).collect();
    assert!(told.iter().any(|text| text.contains("status numbers 4 to 8 are not sent")), "{told:?}");
}

/// A sink whose broker is gone.
struct DeadSink;

impl Sink for DeadSink {
    fn name(&self) -> &str {
        "test:dead"
    }

    fn max_bytes(&self) -> usize {
        100_000
    }

    fn send(&mut self, _: &[OutgoingMessage]) -> Result<(), SinkError> {
        Err(SinkError::Transient { why: "nobody answers".into() })
    }
}

#[test]
fn what_a_dead_broker_has_not_acknowledged_waits() {
    let (folder, queue) = (tempfile::tempdir().unwrap(), QUEUE);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let bench = Bench::start(folder.path());
    let handle = bench.running.handle.clone();
    let follower = Follower::new(LogKind::Statuses, Box::new(DeadSink), handle.clone(), Health::default());
    let sink = RegisteredSource::sink("test:dead".into(), LogKind::Statuses, Health::default(), follower.progress());
    let registry = SourceRegistry::new(vec![sink]);
    // The follower does not even run: nothing but what is acknowledged makes the backlog smaller.
    let subjects: Vec<Vec<u8>> = (0..10).map(|n| job(&format!("{n}"), &format!("{n}"), queue)).collect();
    assert_eq!(counts(bench.log(0, &subjects)), [10, 0, 0]);
    let wait = async { handle.watch().wait_for(|progress| progress.statuses >= 10).await.map(|p| p.statuses) };
    let statuses = runtime.block_on(wait).unwrap();
    let shown = registry.view(&handle).sources[0].clone();
    assert!(shown.backlog >= Some(statuses), "{shown:?}");
    assert_eq!(shown.acknowledged, Some(0));
    bench.stop();
    drop(follower);
}

/// A sink that takes so many messages at once, none of more than so many bytes, and does not know the second before it sends; and how long a call takes.
#[derive(Clone, Default)]
struct NarrowSink {
    messages: usize,
    bytes: usize,
    takes: std::time::Duration,
    calls: Arc<Mutex<u32>>,
    got: Arc<Mutex<Vec<OutgoingMessage>>>,
}

impl Sink for NarrowSink {
    fn name(&self) -> &str {
        "test:narrow"
    }

    fn max_bytes(&self) -> usize {
        1 << 20
    }

    fn send(&mut self, messages: &[OutgoingMessage]) -> Result<(), SinkError> {
        *self.calls.lock().unwrap() += 1;
        std::thread::park_timeout(self.takes);
        if messages.len() > self.messages {
            return Err(SinkError::Transient { why: "no time for so many".into() });
        }
        if let Some(large) = messages.iter().find(|message| message.bytes.len() > self.bytes) {
            return Err(SinkError::Refused { number: large.number, why: "too large".into() });
        }
        self.got.lock().unwrap().extend(messages.iter().cloned());
        Ok(())
    }
}

/// Ten jobs come, the controller ends, and what is left is sent for so long.
fn sent_after_the_end(sink: &NarrowSink, last: std::time::Duration) {
    let (folder, runtime) = (tempfile::tempdir().unwrap(), timed());
    let bench = Bench::start(folder.path());
    let follower =
        Follower::new(LogKind::Statuses, Box::new(sink.clone()), bench.running.handle.clone(), Health::default());
    let jobs: Vec<Vec<u8>> = (0..10).map(|n| job(&format!("{n}"), &format!("{n}"), QUEUE)).collect();
    assert_eq!(counts(bench.log(0, &jobs)), [10, 0, 0]);
    bench.stop();
    follower.with_last(last).follow(runtime.handle());
}

#[test]
fn a_sink_that_has_no_time_for_many_messages_gets_fewer() {
    let sink = NarrowSink { messages: 6, bytes: 1 << 20, ..NarrowSink::default() };
    sent_after_the_end(&sink, std::time::Duration::from_secs(60));
    let numbers: Vec<u64> = sink.got.lock().unwrap().iter().map(|message| message.number).collect();
    assert!(numbers.len() >= 10, "{numbers:?}");
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>(), "each once and in order");
}

#[test]
fn after_the_controllers_end_a_sink_pauses_between_its_attempts_and_ends_in_time() {
    let dead = NarrowSink::default();
    sent_after_the_end(&dead, std::time::Duration::from_millis(300));
    assert_eq!(*dead.calls.lock().unwrap(), 1, "the first pause is longer than what is left");
    let well = NarrowSink { messages: 2_000, bytes: 1 << 20, ..NarrowSink::default() };
    sent_after_the_end(&well, std::time::Duration::ZERO);
    assert_eq!(*well.calls.lock().unwrap(), 0, "nothing is sent beyond its time");
}

#[test]
fn after_the_controllers_end_what_a_sink_refuses_is_sent_one_by_one_only_in_its_time() {
    let takes = std::time::Duration::from_millis(50);
    let slow = NarrowSink { messages: 2_000, takes, ..NarrowSink::default() };
    sent_after_the_end(&slow, takes * 2);
    let calls = *slow.calls.lock().unwrap();
    assert!(calls < 10, "{calls} calls, and there is time for two");
}

#[test]
fn each_rejected_event_that_a_sink_refuses_is_sent_without_its_bytes() {
    let (folder, runtime, health) = (tempfile::tempdir().unwrap(), timed(), Health::default());
    let bench = Bench::start(folder.path());
    let sink = NarrowSink { messages: 2_000, bytes: 3_000, ..NarrowSink::default() };
    let handle = bench.running.handle.clone();
    let follower = Follower::new(LogKind::Rejected, Box::new(sink.clone()), handle, health.clone());
    let large = vec![b'x'; 10_000];
    assert_eq!(counts(bench.log(0, &[large.clone(), b"x".to_vec(), large])), [0, 0, 3]);
    bench.stop();
    follower.follow(runtime.handle());
    let got = sink.got.lock().unwrap();
    let cut = |message: &OutgoingMessage| {
        let event: Value = serde_json::from_slice(&message.bytes).unwrap();
        (message.number, event["data"]["eventCut"] == true)
    };
    assert_eq!(got.iter().map(cut).collect::<Vec<_>>(), [(1, true), (2, false), (3, true)]);
    assert!(health.snapshot().remarks.is_empty(), "{:?}", health.snapshot().remarks);
}
