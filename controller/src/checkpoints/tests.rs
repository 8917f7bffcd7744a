//! Checkpoints in a folder with a real driver: accepted, refused, and pending while the folder is missing.

use super::*;
use crate::config::checkpoints::CheckpointsConfig;
use crate::driver::tests::{lasting, once, teams, two_threads};
use crate::driver::{Original, Running, start};
use crate::sources::metrics::SourceMetrics;
use forebay_kernel::state::jobs::Phase;
use forebay_wire::intake::{Caller, EventId, NoRoutes};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::task::Poll;
use std::time::Instant;
use tempfile::TempDir;

const SOON: Duration = Duration::from_secs(60);

/// A driver whose jobs run in a simulated cluster, ten minutes a second, and save in a folder.
struct Bench {
    running: Running,
    runtime: tokio::runtime::Runtime,
    checkpoints: Checkpoints,
    folder: TempDir,
    job: JobId,
    attempt: Attempt,
}

impl Bench {
    fn new() -> Bench {
        let folder = tempfile::tempdir().unwrap();
        let running = start(teams(folder.path())).unwrap();
        let runtime = two_threads();
        let checkpoints = Checkpoints::start(&config(), &running.handle, runtime.handle()).unwrap();
        let mut bench = Bench { running, runtime, checkpoints, folder, job: JobId(0), attempt: Attempt(0) };
        std::fs::create_dir_all(bench.saved()).unwrap();
        let uri = format!("file://{}/", bench.saved().display());
        (bench.job, bench.attempt) = bench.submit("a", &json!({"uri": uri}));
        bench
    }

    /// Where the job saves.
    fn saved(&self) -> PathBuf {
        self.folder.path().join("saved")
    }

    /// Submits a job and waits until it runs.
    fn submit(&self, subject: &str, checkpoint: &Value) -> (JobId, Attempt) {
        self.running.handle.submit(vec![lasting(subject, checkpoint)]).unwrap();
        let subject = subject.to_owned();
        let look = move |engine: &Engine, _: &_| {
            let state = engine.state();
            let id = state.job_of("default", &subject)?;
            state.job(id).filter(|(row, _)| row.phase == Phase::Running).map(|(row, _)| (id, row.attempt))
        };
        self.until("it runs", || self.running.handle.query(look.clone()).unwrap())
    }

    fn until<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let end = Instant::now() + SOON;
        loop {
            if let Some(found) = look() {
                return found;
            }
            assert!(Instant::now() < end, "not within {SOON:?}: {what}");
            std::thread::park_timeout(Duration::from_millis(10));
        }
    }

    fn progress(&self) -> Span {
        let job = self.job;
        self.running.handle.query(move |engine, _| engine.state().job(job).unwrap().0.progress).unwrap()
    }

    /// Writes a checkpoint; its manifest's key.
    fn save(&self, sequence: u64, progress_s: f64, content: &str) -> String {
        let key = format!("manifests/{:010}-{sequence:010}.json", self.attempt.0);
        std::fs::create_dir_all(self.saved().join("manifests")).unwrap();
        std::fs::write(self.saved().join(format!("{sequence}.bin")), content).unwrap();
        // `printf weights | sha256sum`
        let sha256 = "9a129038d9a00aed0cf6a7ea059ca50a813449061ab87848cf1a13eafdf33b2c";
        let files = [json!({"key": format!("{sequence}.bin"), "size": 7, "sha256": sha256})];
        let manifest = json!({"version": 1, "job": self.job.to_string(), "attempt": self.attempt.0, "sequence": sequence,
            "progressS": progress_s, "files": files});
        std::fs::write(self.saved().join(&key), manifest.to_string()).unwrap();
        key
    }

    fn report(&self, manifest: Option<String>) -> CheckpointReport {
        CheckpointReport { job: self.job, attempt: self.attempt, manifest }
    }

    fn verify_all(&self, report: CheckpointReport) -> CheckpointVerdict {
        self.runtime.block_on(self.checkpoints.verify_all(vec![report])).unwrap().remove(0)
    }

    fn refused(&self, report: CheckpointReport) -> String {
        match self.verify_all(report) {
            CheckpointVerdict::Refused(why) => {
                assert_eq!(why.code.as_str(), "Unverified");
                why.message
            }
            other => panic!("not refused: {other:?}"),
        }
    }

    /// Enqueues a report, as the decode worker of a source does.
    fn enqueue(&self, report: CheckpointReport, id: u128) -> Arc<SourceMetrics> {
        let metrics: Arc<SourceMetrics> = Arc::default();
        let original =
            Original { source: "sqs:jobs".into(), bytes: b"{\"as\":\"sent\"}".to_vec(), ..Original::default() };
        let message = PendingMessage {
            id: Some(EventId(id)),
            transport_id: None,
            original: Box::new(original),
            metrics: Arc::clone(&metrics),
        };
        self.checkpoints.enqueue(report, message);
        metrics
    }

    fn stop(self) {
        self.running.handle.stop();
        assert_eq!(self.running.join().unwrap().audit, [""; 0]);
    }
}

fn config() -> Config {
    let checkpoints = CheckpointsConfig { s3: None, files: true, read_at_most: None };
    Config { checkpoints: Some(checkpoints), ..Config::default() }
}

fn rejected(folder: &Path) -> Vec<Value> {
    let lines = crate::segments::read_all(&folder.join("data/rejected")).unwrap();
    lines.iter().map(|line| serde_json::from_slice(line).unwrap()).collect()
}

#[test]
fn a_report_is_accepted_refused_or_unavailable() {
    let bench = Bench::new();
    assert!(bench.refused(bench.report(None)).contains("there is no manifest"));
    let good = bench.save(1, 900_000.0, "weights");
    assert_eq!(bench.verify_all(bench.report(Some(good.clone()))), CheckpointVerdict::Accepted(Span::secs(900_000)));
    let bad = bench.save(2, 950_000.0, "WEIGHTS");
    assert!(bench.refused(bench.report(Some(bad))).contains("2.bin: its SHA-256 is"));
    assert_eq!(
        bench.verify_all(bench.report(None)),
        CheckpointVerdict::Accepted(Span::secs(900_000)),
        "the latest that counts"
    );
    let past = CheckpointReport { attempt: Attempt(bench.attempt.0 + 1), ..bench.report(Some(good)) };
    assert_eq!(bench.verify_all(past), CheckpointVerdict::NotRunning);
    std::fs::rename(bench.saved(), bench.folder.path().join("away")).unwrap();
    assert!(
        matches!(bench.verify_all(bench.report(None)), CheckpointVerdict::Unavailable(why) if why.contains("the folder does not exist"))
    );
    let (job, attempt) = bench.submit("nowhere", &Value::Null);
    assert!(bench.refused(CheckpointReport { job, attempt, manifest: None }).contains("has no `checkpoint.uri`"));
    bench.stop();
}

#[test]
fn reports_of_sources_wait_for_the_store_and_delay_nothing() {
    let bench = Bench::new();
    let good = bench.save(1, 900_000.0, "weights");
    let away = bench.folder.path().join("away");
    std::fs::rename(bench.saved(), &away).unwrap();
    let first = bench.enqueue(bench.report(Some(good.clone())), 1);
    bench.until("it was verified", || bench.checkpoints.inner.failing.load(Ordering::Relaxed).then_some(()));
    // A newer report of the job replaces it, and other events are handled.
    let second = bench.enqueue(bench.report(Some(good)), 2);
    bench.submit("b", &Value::Null);
    assert!(bench.progress() < Span::secs(900_000));
    std::fs::rename(&away, bench.saved()).unwrap();
    bench.until("it counts", || (bench.progress() == Span::secs(900_000)).then_some(()));
    bench.until("both are counted", || (first.counts().seen == 1 && second.counts().taken == 1).then_some(()));
    assert_eq!(bench.checkpoints.pending(), 0);
    assert!(rejected(bench.folder.path()).is_empty());

    let bad = bench.save(2, 950_000.0, "WEIGHTS");
    let third = bench.enqueue(bench.report(Some(bad)), 3);
    bench.until("it is rejected", || third.counts().rejected.contains_key("Unverified").then_some(()));
    bench.until("its line is there", || (!rejected(bench.folder.path()).is_empty()).then_some(()));
    let lines = rejected(bench.folder.path());
    assert_eq!((lines.len(), &lines[0]["code"], &lines[0]["path"]), (1, &"Unverified".into(), &"data.manifest".into()));
    assert_eq!(lines[0]["event"], "{\"as\":\"sent\"}");
    // Once corrected, the same report counts, because refusals are not remembered.
    let corrected = bench.save(2, 950_000.0, "weights");
    bench.enqueue(bench.report(Some(corrected)), 3);
    bench.until("it counts", || (bench.progress() == Span::secs(950_000)).then_some(()));
    bench.stop();
}

#[test]
fn the_decode_worker_acknowledges_reports_before_they_are_verified() {
    use crate::sources::decode_worker::{DecodeWorker, SourceChannel};
    use forebay_source::{Message, MessageBatch};
    let bench = Bench::new();
    let (source, incoming) = bench.running.handle.source();
    let (metrics, key) = (Arc::<SourceMetrics>::default(), forebay_wire::intake::AttemptKeys::first([7; 32]));
    let worker = DecodeWorker {
        handle: bench.running.handle.clone(),
        channels: vec![SourceChannel { name: "sqs:jobs".into(), caller: Caller::named("default", "a") }],
        routes: Arc::new(NoRoutes),
        key: Some(key.clone()),
        checkpoints: bench.checkpoints.clone(),
        metrics: Arc::clone(&metrics),
    };
    let worker = std::thread::spawn(move || worker.run(incoming));
    let report = |manifest: &str| {
        let token = key.token(bench.job, bench.attempt);
        let data = json!({"job": bench.job.to_string(), "attempt": bench.attempt.0, "token": token, "progress": "1s", "manifest": manifest});
        Message {
            bytes: json!({"type": "run.checkpointed", "data": data}).to_string().into_bytes(),
            ..Message::default()
        }
    };
    let away = bench.folder.path().join("away");
    let good = bench.save(1, 900_000.0, "weights");
    std::fs::rename(bench.saved(), &away).unwrap();
    let messages = vec![report(&good), Message { bytes: b"nonsense".to_vec(), ..Message::default() }];
    let permit = source.try_reserve(2).unwrap();
    let receipt =
        source.submit(MessageBatch { channel: 0, stream: None, messages }, permit).unwrap().blocking_recv().unwrap();
    assert_eq!((receipt.taken, receipt.rejected), (0, 1), "the report is pending, and nothing waits for it");
    std::fs::rename(&away, bench.saved()).unwrap();
    bench.until("it counts", || (bench.progress() == Span::secs(900_000)).then_some(()));
    bench.until("it is counted", || (metrics.counts().taken == 1).then_some(()));
    drop(source);
    worker.join().unwrap();
    bench.stop();
}

#[test]
fn a_start_verifies_running_jobs_and_an_end_has_the_last_progress() {
    let bench = Bench::new();
    bench.save(1, 900_000.0, "weights");
    bench.save(2, 950_000.0, "WEIGHTS");
    let _again = Checkpoints::start(&config(), &bench.running.handle, bench.runtime.handle()).unwrap();
    bench.until("it is found", || (bench.progress() == Span::secs(900_000)).then_some(()));

    bench.save(3, 990_000.0, "weights");
    let (job, attempt) = (bench.job, bench.attempt);
    let stopped = |attempt, progress| Event::RunStopped { job, attempt, progress };
    let failed = Event::RunFailed { job, attempt, exit_code: 1, node_fault: None };
    let silent = [
        Event::RunStarted { job, attempt },
        stopped(attempt, Some(Span::secs(5))),
        stopped(Attempt(attempt.0 + 1), None),
    ];
    let last_saved = |events: &[Event]| bench.runtime.block_on(bench.checkpoints.last_saved(events));
    let saved = [Event::RunCheckpointed { job, attempt, progress: Span::secs(990_000) }];
    assert_eq!(last_saved(&silent), []);
    assert_eq!(last_saved(&[stopped(attempt, None)]), saved);
    assert_eq!(last_saved(&[failed]), saved);
    std::fs::remove_dir_all(bench.saved()).unwrap();
    assert_eq!(last_saved(&[stopped(attempt, None)]), [], "unknown is never 0");
    bench.stop();
}

#[test]
fn a_driver_that_is_asked_too_much_is_asked_again() {
    let bench = Bench::new();
    let (handle, checkpoints) = (&bench.running.handle, &bench.checkpoints);
    let (open, gate) = std::sync::mpsc::channel::<()>();
    bench.runtime.block_on(async {
        let mut held = Box::pin(handle.query_async(move |_, _| gate.recv().is_ok()));
        assert!(once(held.as_mut()).await.is_pending());
        // Questions that wait behind it, as many as there may be.
        let mut waiting = Vec::new();
        loop {
            let mut question = Box::pin(handle.query_async(|_, _| ()));
            if let Poll::Ready(busy) = once(question.as_mut()).await {
                assert!(matches!(busy, Err(MailboxError::Full { .. })), "{busy:?}");
                break;
            }
            waiting.push(question);
        }
        let mut running = Box::pin(checkpoints.find_running(bench.job, bench.attempt));
        let mut enqueued = Box::pin(checkpoints.enqueue_running_jobs());
        assert!(once(running.as_mut()).await.is_pending() && once(enqueued.as_mut()).await.is_pending());
        open.send(()).unwrap();
        assert!(running.await.is_some() && enqueued.await.is_ok());
    });
    bench.stop();
}

#[test]
fn without_a_configuration_nothing_is_verified() {
    let bench = Bench::new();
    let trusting = Checkpoints::trusting(&bench.running.handle);
    assert!(!trusting.verifies() && bench.checkpoints.verifies());
    let ended = Event::RunStopped { job: bench.job, attempt: bench.attempt, progress: None };
    assert_eq!(bench.runtime.block_on(trusting.last_saved(&[ended])), []);
    bench.stop();
}
