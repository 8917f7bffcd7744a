//! Checkpoints in a folder over a real driver: what counts, what is refused, what waits while the folder is away.

use super::*;
use crate::config::checkpoints::CheckpointsConfig;
use crate::driver::tests::world;
use crate::driver::{Clock, Original, Running, Settings, start};
use crate::intake::{Caller, EventId, Intake, NoRoutes};
use crate::policy::{Catalogue, compile};
use crate::sources::figures::SourceFigures;
use forebay_engine::state::jobs::Phase;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
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
        let text = std::fs::read_to_string("../policies/teams.yaml").unwrap();
        let policy = compile("teams.yaml", &text, &Catalogue::builtin()).unwrap().policy;
        let settings = Settings {
            policy: Some((text, policy)),
            clock: Clock::Scaled(600),
            ..Settings::new(folder.path().join("data"), world())
        };
        let running = start(settings).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
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
        let mut event = json!({"type": "job.submitted", "subject": subject, "data": {"queue": "vision/batch", "spot": false,
            "gang": {"each": {"gpus": 1}}, "simulation": {"durationS": 1e7}}});
        if !checkpoint.is_null() {
            event["data"]["checkpoint"] = checkpoint.clone();
        }
        let caller = Caller::local();
        let decoded = Intake { caller: &caller, routes: &NoRoutes, key: None }.decode_value(&event).unwrap();
        self.running.handle.submit(vec![decoded.event]).unwrap();
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

    fn report(&self, manifest: Option<String>) -> Report {
        Report { job: self.job, attempt: self.attempt, manifest }
    }

    fn judge(&self, report: Report) -> Verdict {
        self.runtime.block_on(self.checkpoints.judge(vec![report])).unwrap().remove(0)
    }

    fn refused(&self, report: Report) -> String {
        match self.judge(report) {
            Verdict::Refused(why) => {
                assert_eq!(why.code.as_str(), "Unverified");
                why.message
            }
            other => panic!("not refused: {other:?}"),
        }
    }

    /// As a source's clerk does.
    fn keep(&self, report: Report, id: u128) -> Arc<SourceFigures> {
        let figures: Arc<SourceFigures> = Arc::default();
        let original =
            Original { source: "sqs:jobs".into(), bytes: b"{\"as\":\"sent\"}".to_vec(), ..Original::default() };
        let letter = Letter {
            id: Some(EventId(id)),
            transport_id: None,
            original: Box::new(original),
            figures: Arc::clone(&figures),
        };
        self.checkpoints.keep(report, letter);
        figures
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
    let text = std::fs::read_to_string(folder.join("data/rejected.jsonl")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_report_counts_as_its_manifest_says_or_is_refused_or_unknown() {
    let bench = Bench::new();
    assert!(bench.refused(bench.report(None)).contains("there is no manifest"));
    let good = bench.save(1, 900_000.0, "weights");
    assert_eq!(bench.judge(bench.report(Some(good.clone()))), Verdict::Counts(Span::secs(900_000)));
    let bad = bench.save(2, 950_000.0, "WEIGHTS");
    assert!(bench.refused(bench.report(Some(bad))).contains("2.bin: its SHA-256 is"));
    assert_eq!(bench.judge(bench.report(None)), Verdict::Counts(Span::secs(900_000)), "the latest that counts");
    let past = Report { attempt: Attempt(bench.attempt.0 + 1), ..bench.report(Some(good)) };
    assert_eq!(bench.judge(past), Verdict::Past);
    std::fs::rename(bench.saved(), bench.folder.path().join("away")).unwrap();
    assert!(
        matches!(bench.judge(bench.report(None)), Verdict::Unknown(why) if why.contains("the folder is not there"))
    );
    let (job, attempt) = bench.submit("nowhere", &Value::Null);
    assert!(bench.refused(Report { job, attempt, manifest: None }).contains("has no `checkpoint.uri`"));
    bench.stop();
}

#[test]
fn what_a_source_brings_waits_for_the_store_and_holds_nothing_up() {
    let bench = Bench::new();
    let good = bench.save(1, 900_000.0, "weights");
    let away = bench.folder.path().join("away");
    std::fs::rename(bench.saved(), &away).unwrap();
    let first = bench.keep(bench.report(Some(good.clone())), 1);
    bench.until("it was looked at", || bench.checkpoints.inner.failing.load(Ordering::Relaxed).then_some(()));
    // A newer report of the same job takes its place, other events go on.
    let second = bench.keep(bench.report(Some(good)), 2);
    bench.submit("b", &Value::Null);
    assert!(bench.progress() < Span::secs(900_000));
    std::fs::rename(&away, bench.saved()).unwrap();
    bench.until("it counts", || (bench.progress() == Span::secs(900_000)).then_some(()));
    bench.until("both are counted", || (first.counted().seen == 1 && second.counted().taken == 1).then_some(()));
    assert_eq!(bench.checkpoints.waiting(), 0);
    assert!(rejected(bench.folder.path()).is_empty());

    let bad = bench.save(2, 950_000.0, "WEIGHTS");
    let third = bench.keep(bench.report(Some(bad)), 3);
    bench.until("it is rejected", || third.counted().rejected.contains_key("Unverified").then_some(()));
    let lines = rejected(bench.folder.path());
    assert_eq!((lines.len(), &lines[0]["code"], &lines[0]["path"]), (1, &"Unverified".into(), &"data.manifest".into()));
    assert_eq!(lines[0]["event"], "{\"as\":\"sent\"}");
    // Mended, the same report counts: what was refused is not remembered.
    let mended = bench.save(2, 950_000.0, "weights");
    bench.keep(bench.report(Some(mended)), 3);
    bench.until("it counts", || (bench.progress() == Span::secs(950_000)).then_some(()));
    bench.stop();
}

#[test]
fn a_clerk_keeps_reports_aside_and_its_letters_are_acknowledged_at_once() {
    use crate::sources::clerk::{Channel, Clerk};
    use forebay_source::{Letter as Sent, Parcel};
    let bench = Bench::new();
    let (desk, incoming) = bench.running.handle.desk();
    let (figures, key) = (Arc::<SourceFigures>::default(), [7; 32]);
    let clerk = Clerk {
        handle: bench.running.handle.clone(),
        channels: vec![Channel { name: "sqs:jobs".into(), caller: Caller::named("default", "a", false) }],
        routes: Arc::new(NoRoutes),
        key: Some(key),
        checkpoints: bench.checkpoints.clone(),
        figures: Arc::clone(&figures),
    };
    let works = std::thread::spawn(move || clerk.work(incoming));
    let report = |manifest: &str| {
        let token = crate::intake::token(&key, bench.job, bench.attempt);
        let data = json!({"job": bench.job.to_string(), "attempt": bench.attempt.0, "token": token, "progress": "1s", "manifest": manifest});
        Sent { bytes: json!({"type": "run.checkpointed", "data": data}).to_string().into_bytes(), ..Sent::default() }
    };
    let away = bench.folder.path().join("away");
    let good = bench.save(1, 900_000.0, "weights");
    std::fs::rename(bench.saved(), &away).unwrap();
    let letters = vec![report(&good), Sent { bytes: b"nonsense".to_vec(), ..Sent::default() }];
    let slot = desk.room_now(2).unwrap();
    let receipt = desk.hand_in(Parcel { channel: 0, stream: None, letters }, slot).unwrap().blocking_recv().unwrap();
    assert_eq!((receipt.taken, receipt.rejected), (0, 1), "the report waits, and nothing waits for it");
    std::fs::rename(&away, bench.saved()).unwrap();
    bench.until("it counts", || (bench.progress() == Span::secs(900_000)).then_some(()));
    bench.until("it is counted", || (figures.counted().taken == 1).then_some(()));
    drop(desk);
    works.join().unwrap();
    bench.stop();
}

#[test]
fn a_start_looks_at_what_runs_and_an_end_at_what_was_saved_last() {
    let bench = Bench::new();
    bench.save(1, 900_000.0, "weights");
    bench.save(2, 950_000.0, "WEIGHTS");
    let _again = Checkpoints::start(&config(), &bench.running.handle, bench.runtime.handle()).unwrap();
    bench.until("it is found", || (bench.progress() == Span::secs(900_000)).then_some(()));

    bench.save(3, 990_000.0, "weights");
    let (job, attempt) = (bench.job, bench.attempt);
    let stopped = |attempt, progress| Event::RunStopped { job, attempt, progress };
    let other = Event::RunStarted { job, attempt };
    let said = Some(Span::secs(5));
    let events =
        vec![other.clone(), stopped(attempt, None), stopped(attempt, said), stopped(Attempt(attempt.0 + 1), None)];
    let wanted = vec![
        other,
        stopped(attempt, Some(Span::secs(990_000))),
        stopped(attempt, said),
        stopped(Attempt(attempt.0 + 1), None),
    ];
    assert_eq!(bench.runtime.block_on(bench.checkpoints.complete(events)), wanted);
    std::fs::remove_dir_all(bench.saved()).unwrap();
    let unknown = bench.runtime.block_on(bench.checkpoints.complete(vec![stopped(attempt, None)]));
    assert_eq!(unknown, [stopped(attempt, None)], "unknown is never zero");
    bench.stop();
}

#[test]
fn without_a_configuration_nothing_is_looked_at() {
    let bench = Bench::new();
    let believing = Checkpoints::believing(&bench.running.handle);
    assert!(!believing.looks() && bench.checkpoints.looks());
    let events = vec![Event::RunStopped { job: bench.job, attempt: bench.attempt, progress: None }];
    assert_eq!(bench.runtime.block_on(believing.complete(events.clone())), events);
    bench.stop();
}
