//! The agent and GPUs: a stand-in for the driver's library whose figures the test moves, an exporter of the test's own, folders that look like
//! `/proc` and the kubelet's, and a controller that keeps what it is told.
//!
//! Never: a wait without a limit, a port beyond loopback, or a GPU.

use forebay_node_agent::{
    ActivityReport, AgentSettings, AgentTimings, AgentToken, GpuSource, LogLine, NAMESPACE_FILE, NodeAgent, NodeRoots,
    POD_FILE, WORKER_FILE, WORKER_VOLUME, WorkerActivity, inspect,
};
use forebay_parts::NvmlStub;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// For anything that should come: two busy cores are slow.
const SOON: Duration = Duration::from_secs(90);
const UID: &str = "0f2b6f5e-8d0c-4c3b-9f7e-1a2b3c4d5e6f";

/// Answers each request by a function of its first line and its body.
fn serve(answers: impl Fn(&str, &str) -> (u16, String) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    // Until the test's process ends.
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // Whoever asked may have gone.
            let _ = answer(stream, &answers);
        }
    });
    url
}

fn answer(mut stream: TcpStream, answers: &impl Fn(&str, &str) -> (u16, String)) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut line, mut length) = (String::new(), 0);
    reader.read_line(&mut line)?;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header)?;
        let Some((name, value)) = header.trim().split_once(": ") else { break };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.parse().expect("a length");
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let (status, text) = answers(line.trim_end(), &String::from_utf8(body).expect("text"));
    let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", text.len());
    stream.write_all(head.as_bytes())?;
    stream.write_all(text.as_bytes())
}

fn imds() -> String {
    serve(|line, _| match line {
        line if line.starts_with("PUT /latest/api/token ") => (200, "t".to_owned()),
        line if line.starts_with("GET /latest/meta-data/instance-id ") => (200, "i-1".to_owned()),
        _ => (404, String::new()),
    })
}

/// A controller that keeps the reports of activity; while it is away, it answers 503 and keeps them apart.
#[derive(Clone, Default)]
struct Controller {
    seen: Arc<Mutex<SeenReports>>,
}

#[derive(Default)]
struct SeenReports {
    away: bool,
    accepted: Vec<ActivityReport>,
    turned_away: Vec<ActivityReport>,
}

impl Controller {
    fn serve(&self) -> String {
        let kept = self.clone();
        serve(move |line, body| {
            if !line.starts_with("POST /v1/agent/activity ") {
                return (202, r#"{"new":true}"#.to_owned());
            }
            let report = serde_json::from_str(body).expect("a report");
            let mut seen = kept.seen.lock().unwrap();
            if seen.away {
                seen.turned_away.push(report);
                return (503, String::new());
            }
            seen.accepted.push(report);
            (202, r#"{"new":true,"ignored":0}"#.to_owned())
        })
    }

    fn last(&self) -> Option<ActivityReport> {
        self.seen.lock().unwrap().accepted.last().cloned()
    }

    /// Waits for a report that is so.
    fn until(&self, what: &str, log: &Arc<Mutex<String>>, holds: impl Fn(&ActivityReport) -> bool) -> ActivityReport {
        let end = Instant::now() + SOON;
        loop {
            if let Some(report) = self.last().filter(&holds) {
                return report;
            }
            assert!(Instant::now() < end, "not within {SOON:?}: {what}; {:?}; {}", self.last(), log.lock().unwrap());
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }
}

struct Node {
    folder: TempDir,
    log: Arc<Mutex<String>>,
}

impl Node {
    fn new() -> Node {
        Node { folder: tempfile::tempdir().expect("a folder"), log: Arc::default() }
    }

    fn roots(&self) -> NodeRoots {
        NodeRoots { proc: self.folder.path().join("proc"), kubelet: self.folder.path().join("kubelet") }
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.folder.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        std::fs::write(path, text).expect("writes");
    }

    fn bare(&self, pid: u32, worker: &str) {
        self.write(&format!("proc/{pid}/cgroup"), "0::/user.slice\n");
        self.write(&format!("proc/{pid}/environ"), &format!("A=b\0FOREBAY_WORKER={worker}\0"));
    }

    fn pod(&self, pid: u32, worker: &str) {
        self.write(&format!("proc/{pid}/cgroup"), &format!("0::/kubepods/burstable/pod{UID}/ab\n"));
        self.write(&format!("proc/{pid}/environ"), "");
        // That pods have these files is a test of the controller's.
        let volume = format!("kubelet/pods/{UID}/volumes/kubernetes.io~downward-api/{WORKER_VOLUME}");
        for (name, text) in [(WORKER_FILE, worker), (NAMESPACE_FILE, "team-a"), (POD_FILE, "train-0")] {
            self.write(&format!("{volume}/{name}"), text);
        }
    }

    fn agent(&self, gpus: GpuSource, controller: &Controller) -> NodeAgent {
        let kept = Arc::clone(&self.log);
        let log: LogLine = Arc::new(move |line| kept.lock().unwrap().push_str(&format!("{line}\n")));
        let settings = AgentSettings {
            controller: controller.serve(),
            metadata: imds(),
            token: AgentToken::None,
            gpus,
            roots: self.roots(),
            listen: None,
            timings: AgentTimings {
                report_interval: Duration::from_millis(50),
                quiet_report_interval: Duration::from_millis(50),
                gpu_patience: Duration::from_secs(3),
                ..AgentTimings::default()
            },
        };
        NodeAgent::start(&settings, &log).expect("it starts")
    }
}

fn nvml(stub: &NvmlStub) -> GpuSource {
    GpuSource::Nvml { library: Some(stub.library()) }
}

fn of<'a>(report: &'a ActivityReport, name: &str) -> &'a WorkerActivity {
    let found = report.workers.iter().find(|worker| worker.worker.to_string() == name);
    found.unwrap_or_else(|| panic!("no {name} in {report:?}"))
}

fn computes(report: &ActivityReport, name: &str) -> Option<bool> {
    report.workers.iter().find(|worker| worker.worker.to_string() == name)?.computes
}

#[test]
fn what_the_driver_says_is_reported_a_worker() {
    let (node, stub, controller) = (Node::new(), NvmlStub::build().expect("cc"), Controller::default());
    node.bare(100, "job-1/1/0");
    node.pod(200, "job-2/3/1");
    node.bare(300, "job-3/1/0");
    let figures = |first: &str, second: &str| {
        let processes = "process 0 100 2000\nprocess 1 200 70000\n";
        stub.set(&format!("gpu 0 util {first} used 2100 total 81920 mig 0\ngpu 1 util {second} used 70100 total 81920 mig -\n{processes}"))
    };
    figures("80", "0").expect("writes");
    let _agent = node.agent(nvml(&stub), &controller);
    let wanted = |report: &ActivityReport| {
        ["job-1/1/0", "job-2/3/1", "job-3/1/0"].map(|name| computes(report, name))
            == [Some(true), Some(false), Some(false)]
    };
    let report = controller.until("all three", &node.log, wanted);
    assert_eq!((report.instance.as_str(), report.source.as_str(), report.gpus), ("i-1", "nvml", Some(2)));
    assert_eq!((of(&report, "job-1/1/0").gpus, of(&report, "job-1/1/0").memory_mib), (1, Some(2000)));
    assert_eq!((of(&report, "job-2/3/1").gpus, of(&report, "job-2/3/1").memory_mib), (1, Some(70_000)));
    assert_eq!((of(&report, "job-3/1/0").gpus, of(&report, "job-3/1/0").memory_mib), (0, Some(0)), "on no GPU");
    let idle = |name: &'static str, ms: u64| {
        move |report: &ActivityReport| of(report, name).idle_ms.is_some_and(|idle| idle >= ms)
    };
    controller.until("idleness grows", &node.log, idle("job-2/3/1", 1500));
    // The figures move: one stops, the other one begins, and what is not supported is not known.
    figures("-", "7").expect("writes");
    let report = controller.until("they change", &node.log, |report| {
        (computes(report, "job-1/1/0"), computes(report, "job-2/3/1")) == (None, Some(true))
    });
    assert_eq!((of(&report, "job-1/1/0").idle_ms, of(&report, "job-2/3/1").idle_ms), (None, None));
    assert_eq!(computes(&report, "job-3/1/0"), Some(false), "all processes are known, and it has none");
    // Each report has what came after the one before it.
    let reports = controller.seen.lock().unwrap().accepted.clone();
    assert!(reports.windows(2).all(|two| two[1].sequence == two[0].sequence + 1 && two[1].since == two[0].sequence));
    let workers = reports.iter().flat_map(|report| &report.workers);
    let own = workers.filter(|worker| worker.worker.to_string() == "job-2/3/1");
    let observed: u64 = own.map(|worker| worker.observed_ms).sum();
    assert!((1500..60_000).contains(&observed), "{observed}");
}

#[test]
fn a_driver_that_hangs_does_not_stop_the_agent_and_nothing_is_idle_for_it() {
    let (node, stub, controller) = (Node::new(), NvmlStub::build().expect("cc"), Controller::default());
    node.bare(100, "job-1/1/0");
    let figures = "gpu 0 util 0 used 10 total 81920 mig 0\nprocess 0 100 5\n";
    stub.set(figures).expect("writes");
    let agent = node.agent(nvml(&stub), &controller);
    controller
        .until("idle", &node.log, |report| report.workers.first().is_some_and(|worker| worker.idle_ms > Some(500)));
    stub.set(&format!("{figures}hang\n")).expect("writes");
    let report = controller.until("it hangs", &node.log, |report| report.problem.is_some());
    assert_eq!(report.problem.as_deref(), Some("the GPU source does not respond"));
    assert_eq!((report.workers[0].computes, report.workers[0].idle_ms, report.gpus), (None, None, None));
    let back = Instant::now();
    stub.set(figures).expect("writes");
    let report = controller.until("it is back", &node.log, |report| computes(report, "job-1/1/0") == Some(false));
    assert!(
        report.problem.is_none()
            && report.workers[0].idle_ms.is_some_and(|ms| u128::from(ms) <= back.elapsed().as_millis()),
        "it begins again: {report:?}"
    );
    stub.set(&format!("{figures}hang\n")).expect("writes");
    let begun = Instant::now();
    drop(agent);
    assert!(begun.elapsed() < SOON, "nobody waits for the driver");
    stub.set(figures).expect("writes");
}

#[test]
fn without_a_gpu_the_agent_works_and_says_so_once() {
    let (node, controller) = (Node::new(), Controller::default());
    node.bare(100, "job-1/1/0");
    let library = node.folder.path().join("libnvidia-ml.so.1");
    let _agent = node.agent(GpuSource::Nvml { library: Some(library) }, &controller);
    let report = controller.until("some reports", &node.log, |report| report.sequence > 5);
    let why = "no GPU: the driver's library (libnvidia-ml) is not there";
    assert_eq!((report.problem.as_deref(), report.gpus, report.workers.len()), (Some(why), None, 0));
    assert_eq!(node.log.lock().unwrap().matches("no GPU").count(), 1);
    let stub = NvmlStub::build().expect("cc");
    let (node, controller) = (Node::new(), Controller::default());
    let _other = node.agent(nvml(&stub), &controller);
    controller.until("a driver without GPUs", &node.log, |report| {
        report.problem.as_deref() == Some("no GPU: the driver lists none")
    });
}

#[test]
fn what_was_observed_while_the_controller_was_away_comes_as_one_sum() {
    let (node, stub, controller) = (Node::new(), NvmlStub::build().expect("cc"), Controller::default());
    node.bare(100, "job-1/1/0");
    stub.set("gpu 0 util 50 used 10 total 81920 mig 0\nprocess 0 100 5\n").expect("writes");
    let _agent = node.agent(nvml(&stub), &controller);
    controller.until("it computes", &node.log, |report| computes(report, "job-1/1/0") == Some(true));
    let before = {
        let mut seen = controller.seen.lock().unwrap();
        seen.away = true;
        seen.accepted.last().cloned().expect("one computes")
    };
    // One report alone has a twentieth of this; how many it takes is up to the machine.
    let end = Instant::now() + SOON;
    let refused = loop {
        let last = controller.seen.lock().unwrap().turned_away.last().cloned();
        if let Some(last) = last.filter(|report| of(report, "job-1/1/0").busy_ms >= 1000) {
            break last;
        }
        assert!(Instant::now() < end, "{}", node.log.lock().unwrap());
        std::thread::park_timeout(Duration::from_millis(20));
    };
    controller.seen.lock().unwrap().away = false;
    // The agent has read the answer to the first one when it sends the next.
    controller.until("it is back", &node.log, |report| report.since > before.sequence);
    let all = controller.seen.lock().unwrap().accepted.clone();
    let first = all.iter().find(|report| report.sequence > before.sequence).expect("it is back");
    assert!(first.sequence > refused.sequence, "{first:?} after {refused:?}");
    assert_eq!(first.since, before.sequence, "{first:?}");
    let [sum, least] = [first, &refused].map(|report| of(report, "job-1/1/0").busy_ms);
    assert!(sum >= least, "what came meanwhile is in one report: {first:?} after {refused:?}");
    assert!(node.log.lock().unwrap().contains("activity is reported again"));
}

#[test]
fn an_exporter_is_another_source_of_the_same_figures() {
    let (node, controller) = (Node::new(), Controller::default());
    node.pod(200, "job-2/3/1");
    node.bare(100, "job-1/1/0");
    let used = Arc::new(Mutex::new("0.4"));
    let shown = Arc::clone(&used);
    let url = serve(move |line, _| {
        assert!(line.starts_with("GET /metrics "), "{line}");
        let labels = r#"gpu="0",UUID="GPU-a",GPU_I_ID="7",namespace="team-a",pod="train-0""#;
        let used = *shown.lock().unwrap();
        (200, format!("DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{labels}}} {used}\nDCGM_FI_DEV_FB_USED{{{labels}}} 900\n"))
    });
    let text = inspect(&GpuSource::Dcgm { url: url.clone() }, &node.roots(), SOON).expect("an address");
    assert!(
        text.contains("GPU 0 instance 7 GPU-a: computes 40.0 % of the time, 900 MiB of memory not known, partitioned"),
        "{text}"
    );
    assert!(text.contains("worker job-2/3/1: on 1 GPU, 900 MiB, computes"), "{text}");
    let _agent = node.agent(GpuSource::Dcgm { url }, &controller);
    let report = controller.until("it computes", &node.log, |report| computes(report, "job-2/3/1") == Some(true));
    assert_eq!((report.source.as_str(), of(&report, "job-2/3/1").memory_mib), ("dcgm", Some(900)));
    assert_eq!(computes(&report, "job-1/1/0"), None, "an exporter knows pods, and no other processes");
    *used.lock().unwrap() = "0.0001";
    controller.until("it is idle", &node.log, |report| computes(report, "job-2/3/1") == Some(false));
    *used.lock().unwrap() = "NaN";
    controller.until("it is not known", &node.log, |report| computes(report, "job-2/3/1").is_none());
}

#[test]
fn one_look_shows_gpus_processes_and_workers() {
    let (node, stub) = (Node::new(), NvmlStub::build().expect("cc"));
    node.bare(100, "job-1/1/0");
    node.write("proc/300/cgroup", "0::/system.slice/x.service\n");
    node.write("proc/300/environ", "");
    stub.set("gpu 0 util 80 used 2100 total 81920 mig 0\nprocess 0 100 2000\nprocess 0 300 90\nprocess 0 999 1\n")
        .expect("writes");
    let text = inspect(&nvml(&stub), &node.roots(), SOON).expect("no address");
    assert_eq!(
        text,
        "source nvml: 1 GPU\nGPU 0 Stub GPU GPU-stub-0: computes 80.0 % of the time, 2100 MiB of 81920 MiB\n  \
         process 100: job-1/1/0, 2000 MiB\n  process 300: of no worker, 90 MiB\n  process 999: not to be seen from here, 1 MiB\n\
         1 worker\nworker job-1/1/0: on 1 GPU, 2000 MiB, not known whether it computes\n"
    );
    stub.set("hang\n").expect("writes");
    let hung = inspect(&nvml(&stub), &node.roots(), Duration::from_millis(200)).expect("no address");
    assert_eq!(hung, "source nvml: no response within 200ms\n");
    assert!(Path::new(&stub.library()).exists());
    stub.set("").expect("writes");
}
