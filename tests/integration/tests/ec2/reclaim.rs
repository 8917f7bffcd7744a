//! Three runs whose nodes EC2 takes back with two minutes', thirty seconds' and no notice: each goes on elsewhere from what it had saved.
//!
//! ```text
//! loopback EC2 + its queue --warning--> controller --SIGTERM--> workload --checkpoint, manifest--> S3 (LocalStack)
//!      '--ends the instance--> SIGKILL                              '--report--> controller --looks--> S3
//! ```
//!
//! The controller is the real one, with the journal, HTTP, EC2 and S3 in it. What runs on the nodes are processes of this machine that
//! the test starts and stops as the controller says, since no cluster is attached yet.

use forebay::api::{self, ApiOptions};
use forebay::checkpoints::Checkpoints;
use forebay::cloud::OpenedCloud;
use forebay::config::Config;
use forebay::driver::{DriverHandle, EffectExecutor, EffectRequest, RealAdapters, Settings, start};
use forebay_driver::journal::JournalIdentity;
use forebay_integration::root;
use forebay_kernel::effect::{Action, Effect, Status, StatusKind};
use forebay_kernel::event::Event;
use forebay_kernel::ids::{Attempt, JobId};
use forebay_kernel::state::State;
use forebay_kernel::units::{Span, Timestamp};
use forebay_loopback_ec2::{EndReason, InstanceState, Loopback, LoopbackClock, Region, RegionOptions};
use forebay_parts::{LocalStack, LocalStackOptions};
use forebay_policy::compile;
use forebay_sim::market::Market;
use forebay_sim::world::WorldOptions;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

const POLICY: &str = "
apiVersion: forebay/v1
kind: Policy
metadata: {name: reclaim}
limits: {nodes: 8}
queues:
  train: {tier: normal, pools: [a10g], submitters: [local]}
pools:
  a10g: {instanceTypes: [g5.xlarge], ceiling: {nodes: 8}, drain: {after: 20s}}
";

/// Work in all, a checkpoint every so often, a step: in seconds.
const WORK: [&str; 3] = ["24", "2", "0.2"];
/// Everything is over by then, on a busy machine too: EC2 takes the first node two minutes after its warning.
const LIMIT: Duration = Duration::from_secs(400);

/// What stands on the nodes: a process a run.
struct Processes {
    python: std::path::PathBuf,
    s3: String,
    runtime: tokio::runtime::Handle,
    after: OnceLock<After>,
    runs: Mutex<BTreeMap<(JobId, Attempt), Run>>,
    /// What each run printed, in order.
    said: Mutex<BTreeMap<(JobId, Attempt), Vec<String>>>,
}

/// What is known only when the controller runs.
struct After {
    handle: DriverHandle,
    checkpoints: Checkpoints,
    url: String,
    key: [u8; 32],
}

struct Run {
    instance: String,
    child: Child,
    killed: bool,
}

struct Cluster(Arc<Processes>);

impl EffectExecutor for Cluster {
    fn begin(&mut self, _: &JournalIdentity, _: &State) {}

    fn freeze(&mut self, _: &Effect, _: &State) -> Option<Vec<u8>> {
        None
    }

    fn observe(&mut self, _: &State) {}

    fn execute(&mut self, request: EffectRequest<'_>) {
        match &request.effect.action {
            Action::Start { job, attempt, workers, resume_from } => {
                let state = request.state;
                let instance = workers.first().and_then(|w| state.node(w.node)?.instance.clone()).unwrap();
                let carried: Value = serde_json::from_slice(&state.job(*job).unwrap().1.run).unwrap();
                let uri = carried["checkpoint.uri"].as_str().unwrap().to_owned();
                self.0.begin((*job, *attempt), instance, &uri, *resume_from);
            }
            Action::Stop { job, attempt, .. } => self.0.signal((*job, *attempt), "-TERM"),
            _ => {}
        }
    }
}

impl Processes {
    fn begin(self: &Arc<Self>, key: (JobId, Attempt), instance: String, uri: &str, resume_from: Span) {
        if self.runs.lock().unwrap().contains_key(&key) {
            return;
        }
        let after = self.after.get().unwrap();
        let mut command = Command::new(&self.python);
        command.arg(root().join("examples/checkpoint/train.py"));
        command.args(["--work-s", WORK[0], "--every-s", WORK[1], "--step-s", WORK[2]]);
        command.env("FOREBAY_JOB", key.0.to_string()).env("FOREBAY_ATTEMPT", key.1.0.to_string());
        command.env("FOREBAY_TOKEN", forebay_wire::intake::token(&after.key, key.0, key.1));
        command.env("FOREBAY_CHECKPOINT_URI", uri).env("FOREBAY_URL", &after.url);
        command.env("FOREBAY_RESUME_S", format!("{}", resume_from.0 as f64 / 1000.0));
        command.envs([("AWS_ENDPOINT_URL", self.s3.as_str()), ("AWS_REGION", "us-east-1")]);
        command.envs([("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test")]);
        command.stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let out = child.stdout.take().unwrap();
        self.runs.lock().unwrap().insert(key, Run { instance, child, killed: false });
        let this = Arc::clone(self);
        std::thread::spawn(move || {
            this.submit(vec![Event::RunStarted { job: key.0, attempt: key.1 }]);
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                this.said.lock().unwrap().entry(key).or_default().push(line);
            }
            this.ended(key);
        });
    }

    /// A process has ended. With its node nobody is left to say so.
    fn ended(&self, key: (JobId, Attempt)) {
        let mut runs = self.runs.lock().unwrap();
        let run = runs.get_mut(&key).unwrap();
        let status = run.child.wait().unwrap();
        if run.killed || status.success() {
            return;
        }
        drop(runs);
        self.submit(vec![Event::RunStopped { job: key.0, attempt: key.1, progress: None }]);
    }

    fn submit(&self, events: Vec<Event>) {
        let after = self.after.get().unwrap();
        self.runtime.block_on(async {
            let saved = after.checkpoints.last_saved(&events).await;
            after.handle.submit_items(saved.into_iter().chain(events).map(Into::into).collect()).await.unwrap();
        });
    }

    fn signal(&self, key: (JobId, Attempt), signal: &str) {
        if let Some(run) = self.runs.lock().unwrap().get(&key) {
            let _ = Command::new("kill").args([signal, &run.child.id().to_string()]).status();
        }
    }

    /// Whatever runs on a node that is no more is no more.
    fn pull_plugs(&self, loopback: &Loopback) {
        let region = loopback.region();
        for run in self.runs.lock().unwrap().values_mut().filter(|r| !r.killed) {
            let up = region.instance(&run.instance).is_some_and(|i| i.state == InstanceState::Running);
            if !up {
                run.killed = true;
                let _ = run.child.kill();
            }
        }
    }

    fn said(&self, key: (JobId, Attempt)) -> Vec<String> {
        self.said.lock().unwrap().get(&key).cloned().unwrap_or_default()
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for run in self.runs.lock().unwrap().values_mut() {
            let _ = run.child.kill();
            let _ = run.child.wait();
        }
    }
}

fn config(folder: &Path, loopback: &Loopback, s3: &str) -> Config {
    std::fs::write(folder.join("key"), "test").unwrap();
    let keys = "keys: {id: {file: key}, secret: {file: key}}";
    let text = format!(
        "apiVersion: forebay/v1\nkind: Config\ncluster: simulated\nec2:\n  name: reclaim\n  endpoint: {}\n  region: us-east-1\n  {keys}\n  \
         zones: [us-east-1a, us-east-1b]\n  launch: {{template: {}}}\n  interruptions: ['{}']\ncheckpoints:\n  s3: {{endpoint: '{s3}', region: \
         us-east-1, {keys}}}\n",
        loopback.url(),
        forebay_loopback_ec2::DEFAULT_TEMPLATE,
        loopback.queue_url(),
    );
    let path = folder.join("forebay.yaml");
    std::fs::write(&path, &text).unwrap();
    Config::parse(&path, &text).unwrap()
}

/// When a moment has come, with the node's plug pulled in between.
fn until<T>(what: &str, begun: Instant, mut moment: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(found) = moment() {
            return found;
        }
        assert!(begun.elapsed() < LIMIT, "{what}: not within {LIMIT:?}");
        std::thread::park_timeout(Duration::from_millis(50));
    }
}

/// The number in `... after 12.345 s`.
fn after_s(line: &str) -> f64 {
    line.rsplit(' ').nth(1).and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("no number in {line:?}"))
}

#[test]
fn a_run_that_is_taken_back_goes_on_from_what_it_had_saved() {
    let begun = Instant::now();
    let localstack = LocalStack::start(LocalStackOptions::default()).unwrap();
    localstack.seed().unwrap();
    let options = RegionOptions { boot_time: Span::secs(2), shutdown_time: Span::secs(2), ..RegionOptions::default() };
    let loopback = Loopback::start(Region::new(options), LoopbackClock::Wall).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), &loopback, localstack.endpoint());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();

    // The controller, as `forebay run` puts it together, but for the processes on the nodes.
    let catalogue = forebay::cloud::catalogue(&config).unwrap();
    let OpenedCloud { cloud, executor, .. } = forebay::cloud::open(&config, &catalogue).unwrap().unwrap();
    let compiled = compile("reclaim.yaml", POLICY, &catalogue).unwrap();
    let processes = Arc::new(Processes {
        python: localstack.python().to_owned(),
        s3: localstack.endpoint().to_owned(),
        runtime: runtime.handle().clone(),
        after: OnceLock::new(),
        runs: Mutex::default(),
        said: Mutex::default(),
    });
    let cluster = Cluster(Arc::clone(&processes));
    let calm = Box::new(|_: &_, origin| WorldOptions { origin, ..WorldOptions::new(1, Market::calm(&[])) });
    let running = start(Settings {
        policy: Some((POLICY.to_owned(), compiled.policy)),
        real: RealAdapters { cloud: Some(executor), cluster: Some(Box::new(cluster)) },
        ..Settings::new(folder.path().join("data"), calm)
    })
    .unwrap();
    let handle = running.handle.clone();
    let key = forebay::key::load_or_create(handle.folder()).unwrap();
    let checkpoints = Checkpoints::start(&config, &handle, runtime.handle()).unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let serving = ApiOptions {
        routes: Arc::new(forebay::intake::PolicyRoutes::new(compiled.routes)),
        key: Some(forebay_wire::intake::AttemptKeys::first(key)),
        checkpoints: checkpoints.clone(),
        ..ApiOptions::of(&running)
    };
    let (_end, ending) = tokio::sync::watch::channel(false);
    runtime.spawn(api::serve(listener, serving, ending));
    let after = After { handle: handle.clone(), checkpoints, url: url.clone(), key };
    assert!(processes.after.set(after).is_ok());
    let buying = cloud.start(handle.clone()).unwrap();

    let notices = [("two-minutes", Some(Span::secs(120))), ("half-a-minute", Some(Span::secs(30))), ("none", None)];
    for (subject, _) in notices {
        let event = json!({"type": "job.submitted", "source": "//test", "id": subject, "subject": subject, "data": {
            "queue": "train", "gang": {"each": {"gpus": 1}}, "run": {"template": "train"},
            "checkpoint": {"uri": format!("s3://checkpoints/{subject}/"), "every": "2s", "grace": "20s"}}});
        ureq::post(&format!("{url}/v1/events")).send_json(event).unwrap();
    }
    let pull = |()| processes.pull_plugs(&loopback);
    let job = |subject: &'static str| {
        handle
            .query(move |engine, _| {
                let state = engine.state();
                let id = state.job_of("default", subject)?;
                let (row, _) = state.job(id)?;
                let instance = row.places.first().and_then(|p| state.node(p.node)?.instance.clone());
                Some((id, row.attempt, row.progress, instance))
            })
            .unwrap()
    };
    // Each has saved at least twice, and the controller has found it in the store.
    for (before, (subject, notice)) in (0..).zip(notices) {
        let (id, attempt, _, instance) = until("two checkpoints", begun, || {
            pull(());
            job(subject).filter(|(_, _, progress, instance)| *progress >= Span::secs(4) && instance.is_some())
        });
        assert_eq!(attempt, Attempt(1), "{id}");
        assert_eq!(preemptions(&url), before, "{subject}");
        let now = wall();
        assert!(loopback.region().reclaim(now, &instance.unwrap(), notice));
        until("it is counted", begun, || {
            pull(());
            (preemptions(&url) > before).then_some(())
        });
    }
    let mut statuses = handle.statuses(0);
    let mut seen: Vec<Arc<Status>> = Vec::new();
    until("all three are completed", begun, || {
        pull(());
        while let Ok(Some(status)) = statuses.try_next() {
            seen.push(status);
        }
        let completed = seen.iter().filter(|s| s.kind == StatusKind::Completed).count();
        (completed == 3).then_some(())
    });
    for (subject, notice) in notices {
        let (id, attempt, _, _) = job(subject).unwrap();
        assert_eq!(attempt, Attempt(2), "{subject}");
        let (first, second) = (processes.said((id, Attempt(1))), processes.said((id, Attempt(2))));
        let saved = first.iter().rev().find(|l| l.starts_with("saved")).map(|l| after_s(l)).unwrap();
        let resumed = after_s(&second[0]);
        println!(
            "{subject}: saved after {saved} s of work, went on from {resumed} s; {} checkpoints before",
            first.len() - 1
        );
        // Without a notice the end may fall between a manifest and the line that tells of it: then it went on from one more.
        let untold: f64 = WORK[1..].iter().map(|span| span.parse::<f64>().unwrap()).sum();
        let most = if notice.is_none() { untold } else { 0.0 };
        assert!((-0.001..=most + 0.001).contains(&(resumed - saved)), "{first:?} {second:?}");
        // With a notice it saved once more when it was told, and ended by itself.
        assert_eq!(first.last().is_some_and(|l| l == "stopped"), notice.is_some(), "{first:?}");
        // The chain over all steps comes out as without an interruption: nothing was lost, nothing done twice.
        assert_eq!(second.last().unwrap(), &expected_end(), "{second:?}");
        let kinds: Vec<&str> = seen.iter().filter(|s| s.job == Some(id)).map(|s| s.kind.as_str()).collect();
        let told = ["preempted", "requeued"];
        assert!(told.iter().all(|kind| kinds.contains(kind)), "{kinds:?}");
    }
    assert_eq!(preemptions(&url), 3, "one a reclaim, and no other");
    // Nothing is left to do: the nodes go.
    until("no node is left", begun, || {
        let left = loopback.region().instances().filter(|i| i.state != InstanceState::Terminated).count();
        (left == 0).then_some(())
    });
    // What EC2 takes in its first hour costs nothing, unless it is terminated before.
    let taken = loopback.region().instances().filter(|i| i.end_reason == Some(EndReason::Reclaimed)).count();
    assert_eq!(taken, 3, "each was left to EC2");
    handle.stop();
    let finished = running.join().unwrap();
    assert_eq!(finished.audit, Vec::<String>::new());
    buying.join().unwrap().unwrap();
    drop(finished);
    crate::billed::is_made_again(&folder.path().join("data"), &crate::billed::BY);
    println!("all over after {:.0} s", begun.elapsed().as_secs_f64());
}

/// How many runs were stopped because a node was taken back, as the metrics have it.
fn preemptions(url: &str) -> u64 {
    let metrics = ureq::get(&format!("{url}/metrics")).call().unwrap().body_mut().read_to_string().unwrap();
    let reclaimed = |l: &&str| l.starts_with("forebay_preemptions_total{") && l.contains("cause=\"reclaimed\"");
    let figure = |l: &str| l.split("} ").nth(1)?.split(' ').next()?.parse::<u64>().ok();
    metrics.lines().filter(reclaimed).map(|l| figure(l).unwrap_or_else(|| panic!("no figure in {l:?}"))).sum()
}

fn wall() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    Timestamp(since.as_millis() as u64)
}

/// The workload's last line: its model is a chain of hashes over all of its steps.
fn expected_end() -> String {
    let program = "import hashlib\nm=''\nfor n in range(1,121): m=hashlib.sha256(f'{m}{n}'.encode()).hexdigest()\nprint('done', 120, m)";
    let out = Command::new("python3").args(["-c", program]).output().unwrap();
    String::from_utf8(out.stdout).unwrap().trim().to_owned()
}
