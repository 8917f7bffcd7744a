//! What GPUs do, from the driver to the end of a run: `forebay agent` with a stand-in for NVIDIA's library, real processes as workers, and a
//! policy whose times are short. What has nothing to do any more gives its GPUs back; what pauses keeps them.
//!
//! Never: an address beyond loopback, or a GPU.

use forebay_integration::openmetrics::Exposition;
use forebay_integration::{Server, Starting, forebay, until};
use forebay_parts::NvmlStub;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// For anything that takes no time of the policy's.
const SOON: Duration = Duration::from_secs(90);
/// A node of the simulated cloud boots in two minutes, where the controller's time is real.
const BOOT: Duration = Duration::from_secs(600);
/// `lingerAfter` below.
const LINGER: Duration = Duration::from_secs(10);
/// What may pass beyond the policy's time.
const MARGIN: Duration = Duration::from_secs(30);
const UID: &str = "0f2b6f5e-8d0c-4c3b-9f7e-1a2b3c4d5e6f";

const POLICY: &str = "apiVersion: forebay/v1
kind: Policy
metadata: {name: idle}
limits: {nodes: 1, spend: 100 USD/h}
tiers:
  normal: {priority: 500, buys: on-demand}
queues:
  q: {tier: normal, quota: {default: {gpus: 100}}}
pools:
  default: {instanceTypes: [g6.48xlarge], drain: {after: 1h}}
lifecycle: {lingerAfter: 10s, onLinger: stop, grace: 1s, scaleDownAfter: 5s, maxResidencyOverCompute: 1}
";

/// An instance's metadata that says nothing but its id.
fn metadata(instance: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    // Until the test's process ends.
    std::thread::spawn(move || listener.incoming().flatten().for_each(|stream| answer(stream, &instance)));
    url
}

fn answer(mut stream: TcpStream, instance: &str) {
    let mut lines = BufReader::new(stream.try_clone().expect("a handle")).lines().map_while(Result::ok);
    let Some(first) = lines.next() else { return };
    lines.take_while(|line| !line.is_empty()).for_each(drop);
    let (status, text) = match first.split(' ').nth(1).unwrap_or_default() {
        "/latest/api/token" => (200, "t"),
        "/latest/meta-data/instance-id" => (200, instance),
        _ => (404, ""),
    };
    let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", text.len());
    // Whoever asked may have gone.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(text.as_bytes()));
}

/// A process that stands for a worker, ended with its children when dropped.
struct Worker {
    child: Child,
    /// The process that is on the GPU: itself, or one that it has left behind.
    pid: u32,
}

impl Worker {
    /// Runs a script that prints the id of the process on the GPU.
    fn start(name: &str, script: &str) -> Worker {
        let mut command = Command::new("sh");
        command.args(["-c", script]).env("FOREBAY_WORKER", name).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("sh");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
        Worker { child, pid: line.trim().parse().expect("a process id") }
    }

    /// A process that does nothing.
    fn sleeps(name: &str) -> Worker {
        Worker::start(name, "echo $$; exec sleep 600")
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Its own process, and the one that it has left behind; either may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = Command::new("kill").args(["-9", &self.pid.to_string()]).stderr(Stdio::null()).status();
    }
}

/// A node with eight GPUs.
struct Node {
    folder: TempDir,
    stub: NvmlStub,
}

impl Node {
    fn new() -> Node {
        let node = Node {
            folder: tempfile::tempdir().expect("a folder"),
            stub: NvmlStub::build().expect("cc builds the stub"),
        };
        std::fs::write(node.folder.path().join("policy.yaml"), POLICY).expect("writes");
        node
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.folder.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        std::fs::write(path, text).expect("writes");
    }

    /// A process as the node shows it, with its own environment: outside of all pods, or in the one whose volume names its worker.
    fn shows(&self, worker: &Worker, pod: Option<&str>) {
        let pid = worker.pid;
        let group = if pod.is_some() { format!("0::/kubepods/pod{UID}/ab\n") } else { "0::/user.slice\n".to_owned() };
        self.write(&format!("proc/{pid}/cgroup"), &group);
        symlink(format!("/proc/{pid}/environ"), self.folder.path().join(format!("proc/{pid}/environ")))
            .expect("a link");
        if let Some(name) = pod {
            self.write(&format!("kubelet/pods/{UID}/volumes/kubernetes.io~downward-api/forebay-worker/worker"), name);
        }
    }

    /// The use of each GPU, and the processes on them.
    fn figures(&self, used: [u32; 8], processes: &[(usize, u32)]) {
        let gpus =
            used.iter().enumerate().map(|(n, used)| format!("gpu {n} util {used} used 9000 total 22888 mig 0\n"));
        let processes = processes.iter().map(|(gpu, pid)| format!("process {gpu} {pid} 8000\n"));
        self.stub.set(&gpus.chain(processes).collect::<String>()).expect("writes");
    }

    /// A controller at this address, under the real clock unless it is told otherwise.
    fn serve(&self, address: &str, more: &[&str]) -> Server {
        let args = [&["--listen", address, "--policy", "policy.yaml", "--data", "d"], more].concat();
        Starting::new(self.folder.path(), &args, &[]).listens()
    }

    /// A controller whose time goes 60 times as fast, so that nodes boot within seconds. What agents observe is real time in any case.
    fn serve_fast(&self) -> Server {
        let first = json!({ "type": "job.submitted", "subject": "first", "time": "2026-11-02T00:00:00Z",
            "data": { "queue": "q", "gang": { "each": { "gpus": 1 } }, "simulation": { "durationS": 1 } } });
        std::fs::write(self.folder.path().join("first.jsonl"), format!("{first}\n")).expect("writes");
        self.serve("127.0.0.1:0", &["--replay", "first.jsonl", "--speed", "60"])
    }

    fn agent(&self, server: &Server, instance: &str) -> Agent {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        let gpus = format!("nvml={}", self.stub.library().display());
        let (imds, proc, kubelet) = (metadata(instance.to_owned()), path("proc"), path("kubelet"));
        let roots = ["--proc", &proc, "--kubelet", &kubelet, "--listen", "127.0.0.1:0"];
        let args = [&["agent", "--controller", &server.url, "--metadata", &imds, "--gpus", &gpus], &roots[..]].concat();
        Agent::start(self.folder.path(), &args)
    }
}

/// `forebay agent`, ended when dropped; what it logs.
struct Agent(Child, Arc<Mutex<String>>);

impl Agent {
    fn start(folder: &Path, args: &[&str]) -> Agent {
        let mut child = forebay(folder, args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
        let stderr = BufReader::new(child.stderr.take().expect("a pipe"));
        let log = Arc::new(Mutex::new(String::new()));
        let kept = Arc::clone(&log);
        std::thread::spawn(move || {
            stderr
                .lines()
                .map_while(Result::ok)
                .for_each(|line| kept.lock().expect("unpoisoned").push_str(&(line + "\n")));
        });
        Agent(child, log)
    }

    fn log(&self) -> String {
        self.1.lock().expect("unpoisoned").clone()
    }

    /// Its own metrics.
    fn metrics(&self) -> Exposition {
        let log = self.log();
        let url = log.split_whitespace().find(|word| word.ends_with("/metrics")).unwrap_or_else(|| panic!("{log}"));
        let text = ureq::get(url).call().expect("an answer").body_mut().read_to_string().expect("text");
        Exposition::parse(&text).unwrap_or_else(|why| panic!("{why}\n\n{text}"))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn submit(server: &Server, subject: &str, service: Option<Value>) {
    let mut event = json!({ "type": "job.submitted", "subject": subject,
        "data": { "queue": "q", "gang": { "each": { "gpus": 1 } }, "simulation": { "durationS": 3_600_000 } } });
    if let Some(service) = service {
        event["data"]["service"] = service;
    }
    let (status, taken) = server.post(&event);
    assert_eq!(status, 202, "{taken}");
}

/// The first worker of the current run of a job, once it runs.
fn running(server: &Server, subject: &str) -> String {
    let mut name = String::new();
    until(&format!("{subject} runs"), BOOT, || {
        let (_, job) = server.get(&format!("/v1/jobs/{subject}"));
        name = format!("{}/{}/0", job["job"].as_str().unwrap_or_default(), job["attempt"]);
        if job["phase"] == "running" { Ok(()) } else { Err(job.to_string()) }
    });
    name
}

/// The rows of a service's replicas that are not over.
fn replicas(server: &Server, service: &str) -> Vec<Value> {
    let (_, service) = server.get(&format!("/v1/jobs/{service}"));
    let (_, all) = server.get("/v1/jobs");
    let rows = all["jobs"].as_array().cloned().expect("jobs");
    rows.into_iter().filter(|row| row["of"] == service["job"] && row["ended_s"].is_null()).collect()
}

fn instance(server: &Server) -> String {
    let mut found = None;
    until("an instance is there", SOON, || {
        let (_, nodes) = server.get("/v1/nodes");
        found = nodes["nodes"].as_array().and_then(|all| all.first()?["instance"].as_str().map(str::to_owned));
        found.as_ref().map(drop).ok_or(nodes.to_string())
    });
    found.expect("one")
}

fn metrics(server: &Server) -> Exposition {
    Exposition::scrape(server, None)
}

/// Waits until a figure is at least so much.
fn at_least(server: &Server, name: &str, label: (&str, &str), least: f64) {
    until(&format!("{name} {label:?} is {least}"), SOON, || {
        let value = metrics(server).value(name, &[label]);
        if value.is_some_and(|value| value >= least) { Ok(()) } else { Err(format!("{value:?}")) }
    });
}

/// Why a job is over.
fn over(server: &Server, subject: &str) -> Result<Value, String> {
    let (_, job) = server.get(&format!("/v1/jobs/{subject}"));
    let (_, why) = server.get(&format!("/v1/jobs/{subject}/why"));
    if job["terminal"] == true { Ok(why["reason"]["code"].clone()) } else { Err(job.to_string()) }
}

#[test]
fn what_is_idle_frees_its_gpus_and_what_pauses_keeps_them() {
    let node = Node::new();
    let server = node.serve_fast();
    let lingering = ["after-work", "hung", "sidecar"];
    for subject in lingering.into_iter().chain(["pauses"]) {
        submit(&server, subject, None);
    }
    submit(&server, "model", Some(json!({ "min": 1, "max": 2, "target": 4 })));
    let (status, taken) =
        server.post(&json!({ "type": "service.demand", "subject": "model", "data": { "concurrency": 3 } }));
    assert_eq!(status, 202, "{taken}");
    node.figures([0; 8], &[]);
    // Before a node has booted its agent does not run.
    let names = ["after-work", "hung", "sidecar", "pauses"].map(|subject| running(&server, subject));
    let agent = node.agent(&server, &instance(&server));
    until("the model is loaded", SOON, || match replicas(&server, "model").as_slice() {
        [row] if row["phase"] == "running" => Ok(()),
        rows => Err(format!("{rows:?}")),
    });
    let model = format!("{}/1/0", replicas(&server, "model")[0]["job"].as_str().expect("a job"));

    let workers = [
        Worker::sleeps(&names[0]),
        // Whoever asks it to end waits in vain.
        Worker::start(&names[1], "trap '' TERM; echo $$; while :; do sleep 1; done"),
        // The main process ends; what it has left behind holds the GPU, in a pod that names its worker.
        Worker::start("nobody", "sleep 600 >/dev/null & echo $!"),
        Worker::sleeps(&names[3]),
        Worker::sleeps(&model),
        // A run that is over, a job that is not there, and somebody else's process.
        Worker::sleeps(&names[3].replace("/1/", "/9/")),
        Worker::sleeps("job-999/1/0"),
        Worker::sleeps("nobody"),
    ];
    for (n, worker) in workers.iter().enumerate() {
        node.shows(worker, (n == 2).then_some(names[2].as_str()));
    }
    let on: Vec<(usize, u32)> = workers.iter().enumerate().map(|(n, worker)| (n, worker.pid)).collect();
    node.figures([90; 8], &on);
    at_least(&server, "forebay_workers_observed", ("state", "busy"), 5.0);
    at_least(&server, "forebay_activity_ignored", ("cause", "not-current"), 1.0);
    at_least(&server, "forebay_activity_ignored", ("cause", "unknown-job"), 1.0);

    // From now on none has anything to do, but for the job that reads its next data for six seconds and computes for two.
    let (idle, ended) = (Instant::now(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                let computes = idle.elapsed().as_secs() % 8 >= 6;
                node.figures(std::array::from_fn(|gpu| if gpu == 3 && computes { 70 } else { 0 }), &on);
                std::thread::park_timeout(Duration::from_millis(200));
            }
        });
        for subject in lingering {
            let left = (LINGER + MARGIN).saturating_sub(idle.elapsed());
            until(&format!("{subject} is stopped"), left, || over(&server, subject).map(drop));
            assert_eq!(over(&server, subject), Ok(json!("Lingering")), "{subject}");
            assert!(idle.elapsed() >= LINGER, "{subject}: {:?}", idle.elapsed());
            println!("{subject}: stopped after {:?} of idleness, lingerAfter {LINGER:?}", idle.elapsed());
        }
        // Demand was reported and never taken back: it ends with the policy's time of idleness, and the replica `scaleDownAfter` later.
        let left = (LINGER + Duration::from_secs(5) + MARGIN).saturating_sub(idle.elapsed());
        until("the model is unloaded", left, || match replicas(&server, "model") {
            rows if rows.is_empty() => Ok(()),
            rows => Err(format!("{rows:?}")),
        });
        println!("model: unloaded after {:?} of idleness", idle.elapsed());
        // The sum of its pauses is several times the policy's time by then.
        let pauses = || {
            let left = (LINGER * 5).saturating_sub(idle.elapsed());
            if left.is_zero() { Ok(()) } else { Err(format!("{left:?}")) }
        };
        until("it has paused often", SOON, pauses);
        let (_, job) = server.get("/v1/jobs/pauses");
        ended.store(true, Ordering::Relaxed);
        assert_eq!((&job["phase"], &job["attempt"]), (&json!("running"), &json!(1)), "{job}");
    });
    let busy = metrics(&server).value("forebay_worker_busy_seconds", &[("queue", "q")]);
    let resident = metrics(&server).value("forebay_worker_resident_seconds", &[("queue", "q")]);
    assert!(busy > Some(1.0) && resident > busy, "{busy:?} {resident:?}");
    let own = agent.metrics();
    assert_eq!(own.value("forebay_agent_source_up", &[("source", "nvml")]), Some(1.0));
    assert!(own.value("forebay_agent_worker_busy_seconds", &[]) >= busy, "{own:?}");
    assert_eq!(own.value("forebay_agent_gpu_memory_used_bytes", &[("gpu", "7")]), Some(9000.0 * 1024.0 * 1024.0));
    println!("pauses: still runs after {:?}; busy {busy:?} s, resident {resident:?} s of all workers", idle.elapsed());
}

#[test]
fn down_time_is_never_idle_and_a_restart_loses_no_idleness() {
    let node = Node::new();
    // Below the ports that connections are given, so that it is free when the controller comes back.
    let address = format!("127.0.0.1:{}", forebay_parts::free_port().expect("a port"));
    let server = node.serve(&address, &[]);
    submit(&server, "away", None);
    node.figures([0; 8], &[]);
    let worker = Worker::sleeps(&running(&server, "away"));
    let on = instance(&server);
    let agent = node.agent(&server, &on);
    node.shows(&worker, None);
    node.figures([0; 8], &[(0, worker.pid)]);
    at_least(&server, "forebay_workers_observed", ("state", "idle"), 1.0);
    // Nobody watches for longer than the policy's time.
    drop(agent);
    let gone = Instant::now();
    until("nobody has watched for long", SOON, || {
        if gone.elapsed() >= LINGER + Duration::from_secs(2) { Ok(()) } else { Err(String::new()) }
    });
    let (_, job) = server.get("/v1/jobs/away");
    assert_eq!(job["phase"], "running", "{job}");
    let back = Instant::now();
    let agent = node.agent(&server, &on);
    // The agent goes on while the controller is away, and says what it has seen when that is back.
    until("the agent watches again", SOON, || {
        let log = agent.log();
        if log.contains("GPUs are read") { Ok(()) } else { Err(log) }
    });
    server.kill();
    until("the agent sees that", SOON, || {
        let log = agent.log();
        if log.contains("activity not reported yet") { Ok(()) } else { Err(log) }
    });
    let server = node.serve(&address, &[]);
    until("it is stopped", LINGER + MARGIN + SOON, || over(&server, "away").map(drop));
    assert_eq!(over(&server, "away"), Ok(json!("Lingering")), "{}", agent.log());
    assert!(back.elapsed() >= LINGER, "the time without an agent does not count: {:?}", back.elapsed());
    println!("away: stopped {:?} after the agent came back", back.elapsed());
}
