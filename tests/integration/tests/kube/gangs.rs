//! Gangs on nodes that were bought for them, while the API server is restarted, etcd is compacted under the watches, and the controller is killed
//! (-9): no worker twice, none lost, none past its barrier before its gang, nothing of others touched, zero nodes left.
//!
//! `FOREBAY_SEED=n cargo xtask test integration kube -- killed` meets the same moments again, as far as the machine is as fast.
//! `FOREBAY_PHILLY=300 cargo xtask test integration kube -- philly` runs more of the trace.

use super::stand::{LIMIT, NAMESPACE, Stand, StandOptions};
use forebay_integration::dice::Dice;
use forebay_integration::{Server, until};
use forebay_kernel::units::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime};

/// How often the controller is killed, and how often the API server is restarted.
const KILLS: u64 = 10;
const RESTARTS: u64 = 5;
const JOBS_A_LIFE: u64 = 3;

const POLICY: &str = "
apiVersion: forebay/v1
kind: Policy
metadata: {name: gangs}
limits: {nodes: 6, spend: 1000 USD/h}
queues:
  research: {pools: [a100], submitters: [local]}
pools:
  a100: {instanceTypes: [p4d.24xlarge], drain: {after: 1s}}
";

fn job(subject: &str, workers: u64, gpus: u64, seconds: u64) -> Value {
    json!({"type": "job.submitted", "source": "//test", "id": subject, "subject": subject, "data": {
        "queue": "research", "run": {"template": "train", "image": "reg/r:1", "env": {"RUN_FOR": format!("{seconds}s")}},
        "gang": {"workers": workers, "each": {"gpus": gpus}}}})
}

/// Each job ran once: its workers are those that were asked for, and each has had one pod.
fn each_ran_once(stand: &Stand, server: &Server, workers: u64, ended: &[Value]) {
    let seen = stand.watcher.seen();
    assert!(seen.looks > 10);
    assert!(seen.early.is_empty(), "past the barrier before their gang: {:?}", seen.early);
    let twice: Vec<_> = seen.workers.iter().filter(|(_, pods)| pods.len() > 1).collect();
    let told: BTreeSet<&str> = twice.iter().map(|((job, _), _)| job.as_str()).collect();
    let told = told.into_iter().map(|job| server.ask(stand.folder.path(), &["job", job]).out);
    assert!(twice.is_empty(), "ran twice: {twice:?}; {}", told.collect::<String>());
    assert_eq!(seen.workers.len() as u64, workers, "each worker was seen to run");
    let attempts: BTreeSet<&str> =
        ended.iter().filter_map(|p| p["metadata"]["labels"]["forebay.dev/attempt"].as_str()).collect();
    assert_eq!(attempts, BTreeSet::from(["1"]), "nothing had to be run again");
    assert!(ended.iter().all(|pod| pod["status"]["phase"] == "Succeeded" && pod["metadata"]["finalizers"].is_null()));
    let kept =
        stand.kubectl(&["get", "services,configmaps", "-n", NAMESPACE, "-l", "forebay.dev/journal", "-o", "name"]);
    assert_eq!(kept, "", "left over: {kept}");
}

#[test]
fn gangs_survive_a_killed_controller_a_restarted_api_server_and_a_compacted_etcd() {
    let seed = std::env::var("FOREBAY_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(20_261_123);
    let mut dice = Dice::new(seed);
    let stand = Stand::new(&StandOptions { policy: POLICY, config: "" });
    let (begun, mut sent, mut workers) = (Instant::now(), 0, 0);
    for life in 0..KILLS {
        let mut server = stand.start();
        for _ in 0..JOBS_A_LIFE {
            let (size, gpus) = ([1, 1, 2, 3][dice.below(4) as usize], [1, 4, 8][dice.below(3) as usize]);
            assert_eq!(server.post(&job(&format!("job-{sent}"), size, gpus, 1 + dice.below(5))).0, 202);
            sent += 1;
            workers += size;
        }
        server.lives_until(Instant::now() + Duration::from_millis(500 + dice.below(4_000)));
        if life % (KILLS / RESTARTS) == 0 {
            stand.kubernetes.compact().expect("compacted");
            stand.kubernetes.restart_api_server().expect("restarted");
        }
        server.lives_until(Instant::now() + Duration::from_millis(dice.below(1_500)));
        server.kill();
    }
    println!(
        "seed {seed}: {KILLS} kills, {RESTARTS} restarts, {sent} jobs, {workers} workers in {:.0?}",
        begun.elapsed()
    );
    let server = stand.start();
    stand.all_over(&server, sent, LIMIT);
    each_ran_once(&stand, &server, workers, &stand.pods());
}

/// What one pod of a job says, by a path of its JSON.
fn pod_of(stand: &Stand, subject: &str) -> Option<Value> {
    let named = |pod: &Value| pod["metadata"]["name"].as_str().is_some_and(|name| name.starts_with(subject));
    stand.pods().into_iter().find(named)
}

/// Waits until the pod of a job is as wanted, and returns it.
fn pod_until(stand: &Stand, subject: &str, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    let mut found = Value::Null;
    until(what, LIMIT, || {
        found = pod_of(stand, subject).unwrap_or_default();
        if is(&found) { Ok(()) } else { Err(format!("{}; {}", found["status"], stand.trouble())) }
    });
    found
}

#[test]
fn pods_that_are_collected_while_the_controller_is_down_do_not_run_again() {
    let stand = Stand::new(&StandOptions { policy: POLICY, config: "" });
    let server = stand.start();
    assert_eq!(server.post(&job("ends", 1, 8, 8)).0, 202);
    assert_eq!(server.post(&job("lost", 1, 8, 100_000)).0, 202);
    let phase = |pod: &Value, phase: &str| pod["status"]["phase"] == phase;
    pod_until(&stand, "ends", "it runs", |pod| phase(pod, "Running"));
    let lost = pod_until(&stand, "lost", "it runs", |pod| phase(pod, "Running"));
    until("both have started", LIMIT, || {
        let (_, summary) = server.get("/v1/summary");
        if summary["running"].as_u64() == Some(2) { Ok(()) } else { Err(summary.to_string()) }
    });
    server.kill();

    // One ends, and is deleted as those are that have ended. The node of the other is deleted: the collector of pods calls what ran there failed.
    let ends = pod_until(&stand, "ends", "it has ended", |pod| phase(pod, "Succeeded"));
    let name = ends["metadata"]["name"].as_str().expect("a name");
    // Within one second nobody can tell whether it ended by itself.
    let begun = Instant::now();
    until("another second begins", LIMIT, || {
        if begun.elapsed() > Duration::from_millis(1_500) { Ok(()) } else { Err(String::new()) }
    });
    stand.kubectl(&["delete", "pod", name, "-n", NAMESPACE, "--wait=false"]);
    let node = lost["spec"]["nodeName"].as_str().expect("a node");
    stand.kubectl(&["delete", "node", node]);
    pod_until(&stand, "lost", "it is collected", |pod| !pod["metadata"]["deletionTimestamp"].is_null());

    let server = stand.start();
    until("what ended is completed, and what was collected is held", LIMIT, || {
        let (_, ends) = server.get("/v1/jobs/ends");
        let why = server.ask(stand.folder.path(), &["why", "lost"]);
        if ends["phase"] == "completed" && why.out.contains("nothing proves that") {
            return Ok(());
        }
        Err(format!("{ends}; {why:?}; {}", server.log()))
    });
    let seen = stand.watcher.seen().workers;
    assert!(seen.values().all(|pods| pods.len() == 1), "ran twice: {seen:?}; it had ended as {}", ends["status"]);

    // Its instance's end proves it.
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_millis() as u64;
    assert!(stand.ec2.region().terminate_as_user(Timestamp(now), node));
    until("it runs again", LIMIT, || {
        let pod = pod_of(&stand, "lost-2-").unwrap_or_default();
        if phase(&pod, "Running") { Ok(()) } else { Err(format!("{}; {}", pod["status"], server.log())) }
    });
    let cancelled = server.ask(stand.folder.path(), &["cancel", "lost"]);
    assert_eq!(cancelled.code, 0, "{cancelled:?}");
    stand.all_over(&server, 1, LIMIT);
}

#[test]
fn philly_jobs_run_as_gangs_and_leave_no_node() {
    let most = std::env::var("FOREBAY_PHILLY").ok().and_then(|s| s.parse().ok()).unwrap_or(60);
    let (jobs, source) = philly(most);
    let stand = Stand::new(&StandOptions { policy: &POLICY.replace("nodes: 6", "nodes: 12"), config: "" });
    let server: Server = stand.start();
    let begun = Instant::now();
    let mut workers = 0;
    for (number, one) in jobs.iter().enumerate() {
        assert_eq!(server.post(&job(&format!("philly-{number}"), one.workers, one.gpus, one.seconds)).0, 202);
        workers += one.workers;
    }
    stand.all_over(&server, jobs.len() as u64, LIMIT * 4);
    each_ran_once(&stand, &server, workers, &stand.pods());
    let seen = stand.watcher.seen();
    println!(
        "{} jobs of {source}: {workers} workers, at most {} at once, all over in {:.0?}, {} looks",
        jobs.len(),
        seen.most_running,
        begun.elapsed(),
        seen.looks
    );
}

/// A job of a trace. Half an hour of the trace is a second here, and nothing runs for longer than ten.
struct TraceJob {
    workers: u64,
    gpus: u64,
    seconds: u64,
}

impl TraceJob {
    /// A gang with a worker for each GPU; of more than a node has, with a worker for each node.
    fn of((gpus, duration_s): (u64, u64)) -> TraceJob {
        let gpus = gpus.clamp(1, 32);
        let each = if gpus > 8 { 8 } else { 1 };
        TraceJob { workers: gpus.div_ceil(each), gpus: each, seconds: (duration_s / 1_800).clamp(1, 10) }
    }
}

/// The first jobs of Philly's trace, or of one like it where it is not there, and which of the two it is.
fn philly(most: usize) -> (Vec<TraceJob>, &'static str) {
    let name = "shared/traces/philly_2017_dev_oct02_oct22.csv";
    let here = std::env::current_dir().expect("a folder");
    let text = here.ancestors().find_map(|up| std::fs::read_to_string(up.join(name)).ok());
    let Some(text) = text else {
        let mut dice = Dice::new(300);
        let size = |dice: &mut Dice| [1, 1, 1, 1, 2, 4, 8, 16, 32][dice.below(9) as usize];
        let jobs = (0..most).map(|_| (size(&mut dice), 1_800 * dice.below(10))).map(TraceJob::of);
        return (jobs.collect(), "a generated trace");
    };
    let mut lines = text.lines();
    let columns: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    let column = |name: &str| columns.iter().position(|one| *one == name).expect("a column");
    let (gpus, duration) = (column("gpus"), column("duration_s"));
    let jobs = lines.take(most).map(|line| {
        let fields: Vec<&str> = line.split(',').collect();
        let number = |at: usize| fields[at].parse::<f64>().expect("a number") as u64;
        TraceJob::of((number(gpus), number(duration)))
    });
    (jobs.collect(), "Philly's trace")
}
