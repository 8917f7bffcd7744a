//! The driver from outside: a day replayed twice, killed at random batches, submitted to, on a full disk.

use super::*;
use crate::journal;
use forebay_catalog::Catalogue;
use forebay_driver::journal::JournalIdentity;
use forebay_driver::live::{SenderRule, StartKind};
use forebay_kernel::event::Event;
use forebay_kernel::job::{Gang, JobSpec, WorkerAsk};
use forebay_kernel::policy::Policy;
use forebay_kernel::units::{Mib, MilliCpu, Span};
use forebay_policy::compile;
use forebay_sim::adapters::SimulatedAdapters;
use forebay_sim::market::Market;
use forebay_sim::world::{JobTruth, World, WorldOptions, spot_pairs};
use forebay_wire::intake::{Caller, EventId, Intake, NoRoutes};
use serde_json::{Value, json};
use std::any::Any;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// Jobs of the example day: 537 submissions, one of which says again what is known.
const JOBS: usize = 536;

fn root() -> PathBuf {
    Path::new("..").to_owned()
}

fn policy() -> (String, Policy) {
    let text = std::fs::read_to_string(root().join("policies/spot-first.yaml")).unwrap();
    let compiled = compile("spot-first.yaml", &text, &Catalogue::builtin()).unwrap();
    (text, compiled.policy)
}

/// A driver's settings of the policy `teams`, whose time goes ten minutes a second.
pub(crate) fn teams(folder: &Path) -> Settings {
    let text = std::fs::read_to_string(root().join("policies/teams.yaml")).unwrap();
    let policy = compile("teams.yaml", &text, &Catalogue::builtin()).unwrap().policy;
    Settings {
        policy: Some((text, policy)),
        clock: ClockMode::Scaled(600),
        ..Settings::new(folder.join("data"), world())
    }
}

/// The submission of a job of one GPU that runs for months, saving as it is said, if it is.
pub(crate) fn lasting(subject: &str, checkpoint: &Value) -> Event {
    let mut event = json!({"type": "job.submitted", "subject": subject, "data": {"queue": "vision/batch", "spot": false,
        "gang": {"each": {"gpus": 1}}, "simulation": {"durationS": 1e7}}});
    if !checkpoint.is_null() {
        event["data"]["checkpoint"] = checkpoint.clone();
    }
    let caller = Caller::local();
    Intake { caller: &caller, routes: &NoRoutes, key: None }.decode_value(&event).unwrap().event
}

/// A runtime of two threads.
pub(crate) fn two_threads() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Asks a future once whether it is ready.
pub(crate) async fn once<F: Future + ?Sized>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}

/// A drawn market, and no fault.
pub(crate) fn world() -> WorldMaker {
    Box::new(|policy, origin| {
        let market = Market::seeded(7, &spot_pairs(policy), 30 * 86_400_000);
        WorldOptions { origin, ..WorldOptions::new(7, market) }
    })
}

fn day(folder: &Path) -> Settings {
    let (text, policy) = policy();
    let loaded = load(&root().join("examples/day.jsonl"), None, &policy).unwrap();
    Settings {
        policy: Some((text, policy)),
        clock: ClockMode::Max,
        feed: Some(loaded.feed),
        exit_when_drained: true,
        ..Settings::new(folder.to_owned(), world())
    }
}

fn statuses(folder: &Path) -> Vec<Value> {
    let lines = crate::segments::read_all(&folder.join("status")).unwrap();
    lines.iter().map(|l| serde_json::from_slice(l).unwrap()).collect()
}

/// No gap and no double: in number over all, and in seq per job. Returns how often each job's terminal came.
fn check_stream(folder: &Path) -> BTreeMap<String, u32> {
    let (mut seqs, mut terminal) = (BTreeMap::<String, u64>::new(), BTreeMap::new());
    for (line, status) in (1..).zip(statuses(folder)) {
        let data = &status["data"];
        assert_eq!(data["number"].as_u64(), Some(line), "{status}");
        let subject = status["subject"].as_str().unwrap().to_owned();
        let seq = seqs.entry(subject.clone()).or_default();
        *seq += 1;
        assert_eq!(data["seq"].as_u64(), Some(*seq), "{status}");
        *terminal.entry(subject).or_default() += u32::from(data["terminal"] == true);
    }
    terminal
}

fn world_of(finished: &Finished) -> Option<&World> {
    let adapters: &dyn Any = finished.adapters.as_ref();
    adapters.downcast_ref::<SimulatedAdapters>().map(SimulatedAdapters::world)
}

#[test]
fn a_day_replayed_twice_is_the_same_day_and_drains_to_zero() {
    let run = || {
        let folder = tempfile::tempdir().unwrap();
        let finished = start(day(folder.path())).unwrap().join().unwrap();
        assert_eq!((finished.end, finished.audit.as_slice()), (LoopEnd::Drained, &[][..]));
        assert_eq!(world_of(&finished).unwrap().violations(), [""; 0]);
        assert_eq!(
            (world_of(&finished).unwrap().instances(), finished.progress.nodes, finished.rejected),
            (0, [0; 3], 0)
        );
        let once = check_stream(folder.path());
        assert_eq!(once.len(), JOBS);
        assert!(once.values().all(|n| *n == 1), "{once:?}");
        assert_eq!(finished.progress.outcomes.iter().sum::<u64>(), JOBS as u64);
        assert_eq!((finished.progress.fed, finished.progress.total), (539, 537));
        let verified = journal::verify(folder.path()).unwrap();
        (finished.engine.snapshot().unwrap(), finished.progress, verified.end, verified.batches)
    };
    let (one, two) = (run(), run());
    assert!(one.0 == two.0, "the states differ");
    assert_eq!((&one.1, one.2, one.3), (&two.1, two.2, two.3));
}

#[test]
fn a_day_killed_at_random_batches_completes_every_job_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut seed = 0x5eed_u64;
    let mut kills = 0;
    let finished = loop {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let resume = folder.path().join(journal::FILE).exists();
        let dies_after = (kills < 50).then_some(seed >> 33).map(|n| n % 150);
        let running = start(Settings { resume, dies_after, ..day(folder.path()) }).unwrap();
        assert_eq!((running.cut(), running.statuses_cut), (None, 0));
        let finished = running.join().unwrap();
        assert_eq!(finished.audit, [""; 0], "after {kills} kills");
        if finished.end == LoopEnd::Drained {
            break finished;
        }
        kills += 1;
        let undelivered = finished.engine.state().undelivered().next().map(|s| s.number);
        tear(folder.path(), undelivered.unwrap_or(u64::MAX), seed);
    };
    assert!(kills >= 40, "{kills} kills");
    let once = check_stream(folder.path());
    assert_eq!(once.len(), JOBS);
    assert!(once.values().all(|n| *n == 1), "{once:?}");
    assert_eq!(finished.progress.outcomes.iter().sum::<u64>(), JOBS as u64);
    assert_eq!((world_of(&finished).unwrap().instances(), finished.progress.nodes), (0, [0; 3]));
    let replayed = recovered_digest(folder.path());
    assert!(finished.engine.snapshot().unwrap() == replayed, "the journal replays to another state");
}

/// What a crash may leave of the last segment of statuses: half a line more, or any part of what was not synced less.
fn tear(folder: &Path, unsynced: u64, seed: u64) {
    let mut segments: Vec<_> =
        std::fs::read_dir(folder.join("status")).unwrap().map(|entry| entry.unwrap().path()).collect();
    segments.sort();
    let Some(path) = segments.pop() else { return };
    let first: u64 = path.file_stem().unwrap().to_str().unwrap().parse().unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    if seed.is_multiple_of(3) {
        bytes.extend(b"{\"specversion\":\"1.0\",\"ty");
    } else if seed % 3 == 1 {
        let ends = bytes.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(at, _)| at + 1);
        let kept = ends.take(usize::try_from(unsynced.saturating_sub(first)).unwrap_or(usize::MAX)).last().unwrap_or(0);
        bytes.truncate(kept.max(bytes.len() - (seed >> 40) as usize % bytes.len().clamp(1, 700)));
    }
    std::fs::write(&path, bytes).unwrap();
}

fn recovered_digest(folder: &Path) -> Vec<u8> {
    crate::journal::recover(folder).unwrap().machine.encode().unwrap()
}

fn job(subject: &str, gpus: u16) -> Event {
    let each = WorkerAsk { gpus, share: 1000, gpu_mem: Mib(0), cpu: MilliCpu(0), mem: Mib(0) };
    Event::JobSubmitted(Box::new(JobSpec {
        tenant: "default".into(),
        subject: subject.into(),
        principal: "local".into(),
        queue: "default".into(),
        gang: Gang::Workers { min: 1, max: 1, each },
        digest: u128::from(gpus),
        run: br#"{"simulation":{"durationS":30}}"#.to_vec(),
        ..JobSpec::default()
    }))
}

fn live(folder: &Path, clock: ClockMode) -> Running {
    let policy = Some(policy());
    start(Settings { policy, clock, ..Settings::new(folder.to_owned(), world()) }).unwrap()
}

#[test]
fn a_submission_is_durable_when_it_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    let running = live(folder.path(), ClockMode::Max);
    let handle = running.handle.clone();
    let cancel =
        |subject: &str| Event::JobCancelled { tenant: "default".into(), subject: subject.into(), by: None, sent: None };
    let events = vec![job("a", 1), job("a", 1), job("a", 2), job("huge", 64), cancel("a job to come")];
    let accepted = handle.submit(events).unwrap();
    let [
        ItemOutcome::Job(a),
        ItemOutcome::Known(same),
        ItemOutcome::Refused(conflict),
        ItemOutcome::Rejected(_, why),
        ItemOutcome::Taken,
    ] = accepted.outcomes[..]
    else {
        panic!("{accepted:?}")
    };
    assert_eq!((a, conflict.code()), (same, "Conflict"));
    assert!(["NoMatchingPool", "ExceedsCeiling"].contains(&why.code()), "{why:?}");
    let verified = handle.query(|engine, context| (engine.state().open_jobs(), context.folder.clone())).unwrap();
    assert!(verified.0 <= 1 && verified.1 == folder.path());
    let mut stream = handle.statuses(0);
    let mut kinds = Vec::new();
    let done = std::time::Instant::now() + Duration::from_secs(60);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    while !kinds.contains(&"completed") {
        assert!(std::time::Instant::now() < done, "{kinds:?}");
        let status = runtime.block_on(stream.next()).unwrap();
        if status.subject == "a" && status.job.is_some() {
            kinds.push(status.kind.as_str());
        }
    }
    assert_eq!((kinds.first(), kinds.contains(&"started")), (Some(&"queued"), true));
    handle.stop();
    let finished = running.join().unwrap();
    assert_eq!((finished.end, finished.progress.stopped), (LoopEnd::Stopped, true));
    assert!(handle.watch().borrow().stopped);
    assert!(matches!(handle.submit(vec![job("b", 1)]), Err(MailboxError::Stopped(_))));
    assert!(handle.query(|_, _| ()).is_err());
}

#[test]
fn more_events_than_the_mailbox_holds_are_refused_whole() {
    let folder = tempfile::tempdir().unwrap();
    let running = live(folder.path(), ClockMode::Max);
    let events =
        vec![Event::JobCancelled { tenant: "t".into(), subject: "s".into(), by: None, sent: None }; MOST_EVENTS + 1];
    let busy = running.handle.submit(events).unwrap_err();
    assert_eq!(busy, MailboxError::TooMany { events: MOST_EVENTS + 1, most: MOST_EVENTS });
    running.handle.stop();
    running.join().unwrap();
}

#[test]
fn what_a_sender_may_not_ask_is_neither_taken_nor_remembered_and_nothing_is_told_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let running = live(folder.path(), ClockMode::Max);
    let handle = &running.handle;
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    handle.submit(vec![job("a", 1)]).unwrap();
    let said_twice = || {
        let cancel = Event::JobCancelled { tenant: "default".into(), subject: "a".into(), by: None, sent: None };
        SubmittedItem { id: Some(EventId(7)), ..cancel.into() }
    };
    let rule: SenderRule =
        Arc::new(|state, event| (*event != job("b", 1) && state.open_jobs() < 9).then_some(ItemOutcome::Taken));
    let send = |rule: Option<&SenderRule>, items: Vec<SubmittedItem>| {
        runtime.block_on(handle.submit_as(&Arc::from("team"), rule.cloned(), items)).unwrap().outcomes
    };
    let told = send(Some(&rule), vec![said_twice(), job("b", 1).into(), said_twice()]);
    assert!(matches!(told[..], [ItemOutcome::Taken, ItemOutcome::Job(_), ItemOutcome::Taken]), "{told:?}");
    assert!(!matches!(send(None, vec![said_twice()])[..], [ItemOutcome::Seen(_)]), "its id was remembered");
    assert!(matches!(send(None, vec![said_twice()])[..], [ItemOutcome::Seen(Some(_))]), "by now it has come");
    assert_eq!(send(Some(&rule), vec![said_twice()]), [ItemOutcome::Taken], "its id tells of a job");
    handle.stop();
    running.join().unwrap();
}

#[test]
fn a_journal_needs_a_policy_once_and_its_own_file() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings::new(folder.path().join("new"), world());
    assert!(matches!(start(settings), Err(DriverError::NoPolicy)));
    let dies_after = Some(200);
    let finished = start(Settings { dies_after, ..day(folder.path()) }).unwrap().join().unwrap();
    assert_eq!(finished.end, LoopEnd::Died);
    let other = Feed::new("other.jsonl", finished.engine.state().now(), Vec::new(), Vec::new());
    let error = start(Settings { resume: true, feed: Some(other), ..day(folder.path()) }).unwrap_err();
    assert!(matches!(error, DriverError::OtherFile { items: 0, .. }), "{error}");
    assert!(error.is_for_the_caller());
    let resumed = start(Settings { resume: true, policy: None, ..day(folder.path()) }).unwrap().join().unwrap();
    assert_eq!(resumed.end, LoopEnd::Drained);
}

/// What can be bought may be another thing at the next start, though nobody has touched the policy.
#[test]
fn a_policy_that_means_something_else_is_put_in_force_though_its_text_is_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let (text, first) = policy();
    let mut second = first.clone();
    second.offerings[0].mem = Mib(second.offerings[0].mem.0 + 1);
    let configured = |resume: bool, compiled: &Policy| {
        let policy = Some((text.clone(), compiled.clone()));
        let settings = Settings { resume, policy, ..Settings::new(folder.path().to_owned(), world()) };
        let running = start(settings).unwrap();
        running.handle.stop();
        let finished = running.join().unwrap();
        assert_eq!(finished.engine.state().policy(), Some(compiled));
        assert!(finished.engine.snapshot().unwrap() == recovered_digest(folder.path()), "it is not in the journal");
        finished.engine.state().counters().configured
    };
    assert_eq!(
        [(false, &first), (true, &first), (true, &second), (true, &second)].map(|(r, p)| configured(r, p)),
        [1, 1, 2, 2]
    );
}

#[test]
fn bad_events_go_to_the_rejected_file_once_and_the_stream_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("in.jsonl");
    let good = r#"{"type":"job.submitted","time":"2026-01-01T00:00:00Z","subject":"good","data":{"gang":{"each":{"gpus":1}},"simulation":{"durationS":60}}}"#;
    let bad = r#"{"type":"job.submitted","time":"2026-01-01T00:00:05Z","subject":"bad","data":{"gang":{"workers":0,"each":{"gpus":1}}}}"#;
    let odd = r#"{"type":"job.danced","time":"2026-01-01T00:00:06Z"}"#;
    std::fs::write(&file, [good, bad, odd, ""].join("\n")).unwrap();
    let (text, policy) = policy();
    let settings = |resume, dies_after| Settings {
        resume,
        dies_after,
        policy: Some((text.clone(), policy.clone())),
        clock: ClockMode::Max,
        feed: Some(load(&file, None, &policy).unwrap().feed),
        exit_when_drained: true,
        ..Settings::new(folder.path().join("journal"), world())
    };
    // It dies with the first rejection written down and its position not journaled.
    let died = start(settings(false, Some(2))).unwrap().join().unwrap();
    assert_eq!((died.end, died.rejected), (LoopEnd::Died, 1));
    let finished = start(settings(true, None)).unwrap().join().unwrap();
    assert_eq!((finished.rejected, finished.progress.outcomes), (2, [1, 0, 0, 0]));
    let lines = crate::segments::read_all(&folder.path().join("journal/rejected")).unwrap();
    let lines: Vec<Value> = lines.iter().map(|l| serde_json::from_slice(l).unwrap()).collect();
    assert_eq!((&lines[0]["path"], &lines[1]["code"]), (&"data.gang.workers".into(), &"UnknownType".into()));
    let original: Value = serde_json::from_str(lines[0]["event"].as_str().unwrap()).unwrap();
    assert_eq!(original, serde_json::from_str::<Value>(bad).unwrap());
}

#[test]
fn a_full_disk_stops_receiving_says_so_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let settings = |resume| Settings {
        resume,
        policy: Some(policy()),
        clock: ClockMode::Max,
        ..Settings::new(folder.path().to_owned(), world())
    };
    let journal = journal::SqliteJournal::create(folder.path(), 0).unwrap();
    journal.cap_pages(journal.pages() + 100);
    let engine = forebay_engine::engine::Engine::new();
    let driver = super::start::drive(settings(false), journal, engine, StartKind::First).unwrap();
    let handle = driver.handle.clone();
    let sender = handle.clone();
    let submitter = std::thread::spawn(move || {
        let mut answered = 0;
        loop {
            let jobs = (0..50).map(|n| job(&format!("{answered}-{n}"), 1)).collect();
            match sender.submit(jobs) {
                Ok(_) => answered += 1,
                Err(e) => return (answered, e),
            }
        }
    });
    let mut watch = handle.watch();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let said = runtime.block_on(watch.wait_for(|p| p.paused.is_some())).unwrap().paused.clone().unwrap();
    assert!(said.contains("no space left") && said.contains("make room"), "{said}");
    handle.query(|engine, _| engine.state().open_jobs()).unwrap();
    handle.stop();
    let error = driver.join().unwrap_err();
    assert!(matches!(&error, DriverError::Storage(e) if e.is_full()), "{error}");
    let (answered, told) = submitter.join().unwrap();
    assert!(answered > 0 && matches!(told, MailboxError::Stopped(_)), "{answered} {told}");
    let running = start(settings(true)).unwrap();
    let known = move |engine: &forebay_engine::engine::Engine, _: &QueryContext| {
        let all = (0..answered).flat_map(|a| (0..50).map(move |n| format!("{a}-{n}")));
        all.filter(|subject| engine.state().job_of("default", subject).is_none()).count()
    };
    assert_eq!(running.handle.query(known).unwrap(), 0);
    running.handle.stop();
    running.join().unwrap();
}

/// A cloud that only notes what it is asked: which effect, whether it is an old one, whether its frozen request is its own.
struct Notes(std::sync::mpsc::Sender<(u64, bool, bool)>);

impl EffectExecutor for Notes {
    fn begin(&mut self, _: &JournalIdentity, _: &forebay_kernel::state::State) {}

    fn freeze(&mut self, effect: &forebay_kernel::effect::Effect, _: &forebay_kernel::state::State) -> Option<Vec<u8>> {
        Some(effect.id.0.to_be_bytes().to_vec())
    }

    fn execute(&mut self, request: EffectRequest<'_>) {
        let same = request.frozen == Some(&request.effect.id.0.to_be_bytes()[..]);
        let recovered = request.origin == EffectOrigin::Recovered;
        let _ = self.0.send((request.effect.id.0, recovered, same));
    }

    fn observe(&mut self, _: &forebay_kernel::state::State) {}
}

#[test]
fn what_a_new_policy_decides_at_the_start_is_frozen_and_is_not_said_to_be_old() {
    let folder = tempfile::tempdir().unwrap();
    let life = |resume: bool, ready: u32| {
        let text = format!(
            "apiVersion: forebay/v1\nkind: Policy\nmetadata: {{name: t}}\nqueues: {{a: {{pools: [p, q]}}}}\npools: {{p: {{instanceTypes: \
             [g5.xlarge], keepReady: 1}}, q: {{instanceTypes: [g6.xlarge], keepReady: {ready}}}}}\n"
        );
        let compiled = compile("t", &text, &Catalogue::builtin()).unwrap().policy;
        let (to, from) = std::sync::mpsc::channel();
        let running = start(Settings {
            resume,
            policy: Some((text, compiled)),
            real: RealAdapters { cloud: Some(Box::new(Notes(to))), cluster: None },
            ..Settings::new(folder.path().to_owned(), world())
        })
        .unwrap();
        running.handle.stop();
        running.join().unwrap();
        from.into_iter().collect::<Vec<_>>()
    };
    let first = life(false, 0);
    assert!(first.len() == 1 && !first[0].1 && first[0].2, "{first:?}");
    let second = life(true, 2);
    // One line is the purchase of before, and its request is that of before.
    assert_eq!(second.iter().filter(|(_, recovered, _)| *recovered).map(|s| s.0).collect::<Vec<_>>(), [first[0].0]);
    assert!(second.len() > 1 && second.iter().all(|(_, _, frozen)| *frozen), "{second:?}");
    let third = life(true, 2);
    assert_eq!(third, second.iter().map(|(id, _, _)| (*id, true, true)).collect::<Vec<_>>());
}

#[test]
fn the_simulated_cluster_learns_from_what_a_specification_carries() {
    let event = serde_json::json!({"type": "job.submitted", "subject": "a", "data": {"gang": {"each": {"gpus": 1}},
        "simulation": {"durationS": 12.345, "failures": 2}}});
    let caller = Caller::local();
    let decoded = Intake { caller: &caller, routes: &NoRoutes, key: None }.decode_value(&event).unwrap();
    let Event::JobSubmitted(spec) = decoded.event else { panic!("a submission") };
    let expected = JobTruth { failures: 2, ..JobTruth::lasting(Span(12_345)) };
    assert_eq!(JobTruth::from_run(&spec.run), Some(expected));
}

/// Counts what it is asked, and answers nothing.
struct Counting(std::sync::Arc<std::sync::atomic::AtomicU32>);

impl EffectExecutor for Counting {
    fn begin(&mut self, _: &JournalIdentity, _: &forebay_kernel::state::State) {}

    fn freeze(&mut self, _: &forebay_kernel::effect::Effect, _: &forebay_kernel::state::State) -> Option<Vec<u8>> {
        None
    }

    fn execute(&mut self, _: EffectRequest<'_>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }

    fn observe(&mut self, _: &forebay_kernel::state::State) {}
}

#[test]
fn where_cloud_and_cluster_are_real_no_world_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let asked = std::sync::Arc::default();
    let real = || -> Option<Box<dyn EffectExecutor>> { Some(Box::new(Counting(std::sync::Arc::clone(&asked)))) };
    let never: WorldMaker = Box::new(|_, _| panic!("a world is made"));
    let settings = Settings {
        policy: Some(policy()),
        clock: ClockMode::Max,
        real: RealAdapters { cloud: real(), cluster: real() },
        ..Settings::new(folder.path().to_owned(), never)
    };
    let running = start(settings).unwrap();
    running.handle.submit(vec![job("a", 1)]).unwrap();
    running.handle.stop();
    let finished = running.join().unwrap();
    assert!(world_of(&finished).is_none());
    assert!(asked.load(std::sync::atomic::Ordering::Relaxed) > 0, "its nodes are asked for");
}
