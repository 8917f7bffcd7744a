//! How fast pods are bound, beside kube-scheduler with the same pods on the same nodes, in turns: pods bound a second from the first that is
//! created to the last that is bound, and how long a gang is half bound beside as many bare Bindings.
//!
//! `FOREBAY_NODES=1000 cargo xtask test integration kube -- speed` has a thousand nodes and five thousand pods, and its figures are
//! judged. CI has a few, and figures are only printed.
//! Figures are ratios of one run: both have the same API server, the same watcher and the same machine.
//! Never: a kubelet, or a limit of calls a second for either of them.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a real API server is measured by the real clock"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant, SystemTime};

use forebay_cluster_kube::client::{CredentialSource, KubeClient, MachineCommand, task};
use forebay_cluster_kube::objects::KubePod;
use forebay_cluster_kube::request::WorkerRequest;
use forebay_cluster_kube::template::{PodTemplate, RunFields, TemplateSet};
use forebay_cluster_kube::view::{ClaimPhase, ClaimView, RunStage, RunView};
use forebay_cluster_kube::{
    EngineView, GangRequest, GangStart, KubeCall, KubeCallId, KubeMachine, KubeObject, KubeReport, KubeResponse,
    KubeSettings, ObjectSelector, Resource, RunToken, WatchChange, WatchEvent,
};
use forebay_kernel::ids::NodeId;
use forebay_kernel::units::Timestamp;
use forebay_parts::{Kubernetes, KubernetesOptions};
use serde_json::{Value, json};
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::task::JoinSet;
use tokio::time::timeout;

const NAMESPACE: &str = "speed";
const JOURNAL: &str = "0b4bd4d4";
/// Pods for each node, each with a GPU of its eight.
const PODS_A_NODE: u32 = 5;
/// Workers of each of many gangs, and of one that is alone.
const WORKERS: u32 = 20;
const WORKERS_ALONE: u32 = 100;
/// Calls at a time, of the machine and of whoever creates pods for kube-scheduler.
const IN_FLIGHT: usize = 128;
/// Of kube-scheduler's rate at least, and of the time of as many bare Bindings at most.
const LEAST_RATE: f64 = 0.8;
const MOST_GANG_TIME: f64 = 2.0;
/// How often each of them has its turn.
const TURNS: usize = 3;
/// Without anything bound.
const SILENCE: Duration = Duration::from_secs(120);
/// What has no limit of its own has this one, calls a second.
const UNTHROTTLED: u32 = 100_000;

const TEMPLATE: &str = "
name: train
queues: [research]
images: [registry.example.com/team/]
pod:
  spec:
    tolerations: [{key: forebay.dev/node, operator: Exists}]
    containers: [{name: worker, image: registry.example.com/team/a}]
";

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

fn node(number: u32) -> Value {
    let resources = json!({"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": "8"});
    json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": format!("node-{number}")},
        "spec": {"providerID": format!("aws:///us-east-1a/i-{number}"),
            "taints": [{"key": "forebay.dev/node", "effect": "NoSchedule"}]},
        "status": {"allocatable": resources, "capacity": resources,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ok"}],
            "nodeInfo": {"bootID": "1", "machineID": "", "systemUUID": "", "kernelVersion": "", "osImage": "", "containerRuntimeVersion": "",
                "kubeletVersion": "v1.34.4", "kubeProxyVersion": "", "operatingSystem": "linux", "architecture": "amd64"}}})
}

/// Gang number `gang`, its workers on the nodes in turn.
fn gang(settings: &KubeSettings, gang: u32, workers: u32, nodes: u32) -> GangRequest {
    let templates = TemplateSet::new([PodTemplate::parse(TEMPLATE).unwrap()]).unwrap();
    let fields = RunFields { template: Some("train".to_owned()), ..RunFields::default() };
    let rendered = templates.render("research", &fields).unwrap();
    let gpus = BTreeMap::from([("nvidia.com/gpu".to_owned(), "1".to_owned())]);
    let each = (0..workers).map(|worker| WorkerRequest {
        instance: Some(format!("i-{}", (gang * workers + worker) % nodes)),
        gpus: 1,
        requests: gpus.clone(),
        limits: gpus.clone(),
    });
    GangRequest {
        effect: format!("{JOURNAL}-{gang}"),
        journal: JOURNAL.to_owned(),
        job: u64::from(gang),
        attempt: 1,
        subject: format!("gang-{gang}"),
        namespace: NAMESPACE.to_owned(),
        service: format!("gang-{gang}-1"),
        workers: each.collect(),
        pod: rendered.pod(settings, None),
        container: rendered.container.clone(),
        min_workers: workers,
        master_port: 29_500,
        env: Vec::new(),
    }
}

fn settings() -> KubeSettings {
    let mut settings = KubeSettings::new(NAMESPACE, "registry.example.com/forebay:1");
    settings.rates.writes_per_second = UNTHROTTLED;
    settings.rates.write_burst = UNTHROTTLED;
    settings.rates.reads_per_second = UNTHROTTLED;
    settings.rates.read_burst = UNTHROTTLED;
    settings.rates.in_flight = IN_FLIGHT;
    settings
}

/// What a process has used: seconds of CPU, and MiB of memory at most.
#[derive(Clone, Copy)]
struct Used {
    cpu_s: f64,
    peak_mib: u64,
}

/// Of a process or a thread by its folder in /proc; the memory is the process's.
fn used(folder: &str) -> Used {
    let stat = fs::read_to_string(format!("{folder}/stat")).unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    // Behind the name: state is 0, so utime and stime are 11 and 12. A tick is 10 ms on every Linux of today.
    let ticks: u64 = [11, 12].iter().filter_map(|at| fields.get(*at)?.parse::<u64>().ok()).sum();
    let status = fs::read_to_string(format!("{folder}/status")).unwrap_or_default();
    let peak =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix("kB")?.trim().parse().ok());
    Used { cpu_s: ticks as f64 / 100.0, peak_mib: peak.unwrap_or(0_u64) / 1024 }
}

/// The folder in /proc of a server of this Kubernetes.
fn process(kubernetes: &Kubernetes, program: &str) -> String {
    let folder = kubernetes.kubeconfig().parent().expect("its folder").display().to_string();
    let found = fs::read_dir("/proc").expect("/proc").flatten().find_map(|entry| {
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let mut words = line.split(|byte| *byte == 0).map(String::from_utf8_lossy);
        let is_it = words.next()?.ends_with(program) && words.any(|word| word.contains(&folder));
        is_it.then(|| entry.path().display().to_string())
    });
    found.unwrap_or_else(|| panic!("{program} runs"))
}

fn address(kubernetes: &Kubernetes) -> CredentialSource {
    CredentialSource::Kubeconfig { path: kubernetes.kubeconfig(), context: None }
}

/// When pods of a turn came to be and were bound, by a watch of its own.
#[derive(Default)]
struct Seen {
    created: BTreeMap<String, Instant>,
    bound: BTreeMap<String, Instant>,
}

struct Stand {
    kubernetes: Kubernetes,
    client: KubeClient,
    events: Receiver<KubePod>,
    nodes: u32,
}

impl Stand {
    async fn new(nodes: u32) -> Stand {
        let scheduler_flags = ["qps", "burst"].map(|limit| format!("--kube-api-{limit}={UNTHROTTLED}")).into();
        let options = KubernetesOptions { scheduler: true, scheduler_flags, ..KubernetesOptions::default() };
        let kubernetes = Kubernetes::start(options).unwrap();
        kubernetes.kubectl(&["create", "namespace", NAMESPACE], "").unwrap();
        let nodes_json: Vec<Value> = (0..nodes).map(node).collect();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": nodes_json});
        kubernetes.kubectl(&["create", "-f", "-"], &list.to_string()).unwrap();
        // Each new node has it until the controller manager, which would take its share of the machine, sees that the node is ready.
        kubernetes.kubectl(&["taint", "nodes", "--all", "node.kubernetes.io/not-ready-"], "").unwrap();
        let client = KubeClient::connect(&address(&kubernetes)).await.unwrap();
        let (_, resource_version) = pods(&client).await;
        let (sender, events) = mpsc::channel(4096);
        tokio::spawn(follow(client.clone(), resource_version, sender));
        Stand { kubernetes, client, events, nodes }
    }

    /// Follows the pods until so many are bound.
    async fn all_bound(&mut self, pods: usize) -> Seen {
        let mut seen = Seen::default();
        while seen.bound.len() < pods {
            let event = timeout(SILENCE, self.events.recv()).await;
            let event = event.unwrap_or_else(|_| panic!("{} of {pods} are bound, and no more", seen.bound.len()));
            let pod = event.expect("the watch goes on");
            let name = pod.metadata.name.clone();
            seen.created.entry(name.clone()).or_insert_with(Instant::now);
            if pod.spec.node_name.is_some() {
                seen.bound.entry(name).or_insert_with(Instant::now);
            }
        }
        seen
    }

    /// No pod, Service or ConfigMap is left of a turn.
    async fn clear(&mut self) {
        let all = [
            "delete",
            "pods,services,configmaps,secrets",
            "--all",
            "-n",
            NAMESPACE,
            "--wait=false",
            "--force",
            "--grace-period=0",
        ];
        // Finalizers are the outcome's, which nobody waits for here.
        let (pods, _) = pods(&self.client).await;
        let calls = pods.into_iter().map(|pod| KubeCall::Merge {
            resource: Resource::Pods,
            namespace: Some(NAMESPACE.to_owned()),
            name: pod,
            body: Box::new(json!({"metadata": {"finalizers": null}})),
        });
        each(&self.client, calls.collect()).await;
        self.kubernetes.kubectl(&all, "").unwrap();
        let left = ["get", "pods", "-n", NAMESPACE, "-o", "name"];
        self.kubernetes.wait_until(&left, |names| !names.contains("pod/")).unwrap();
        while self.events.try_recv().is_ok() {}
    }
}

/// All pods that are added or change, from this version on. A watch that the API server ends is opened again where it ended.
async fn follow(client: KubeClient, mut resource_version: String, pods: Sender<KubePod>) {
    loop {
        let (sender, mut events) = mpsc::channel::<WatchEvent>(64);
        let watcher = client.clone();
        let (resource, selector) = (Resource::Pods, ObjectSelector::All);
        let watch = KubeCall::Watch { resource, selector, resource_version: resource_version.clone() };
        tokio::spawn(async move { watcher.watch(KubeCallId(1), &watch, &sender).await });
        while let Some(event) = events.recv().await {
            match event.change {
                WatchChange::Applied(object) => {
                    let KubeObject::Pod(pod) = *object else { panic!("a pod") };
                    resource_version.clone_from(&pod.metadata.resource_version);
                    if pods.send(pod).await.is_err() {
                        return;
                    }
                }
                WatchChange::Deleted(object) => resource_version.clone_from(&object.metadata().resource_version),
                WatchChange::Bookmark { resource_version: version } => resource_version = version,
                WatchChange::Ended => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

/// The names of all pods, and the version of the list.
async fn pods(client: &KubeClient) -> (Vec<String>, String) {
    let (mut names, mut token) = (Vec::new(), None);
    loop {
        let (resource, selector) = (Resource::Pods, ObjectSelector::All);
        let call = KubeCall::List { resource, namespace: None, selector, continue_token: token };
        match client.execute(&call).await {
            KubeResponse::Page { objects, continue_token, resource_version } => {
                names.extend(objects.iter().map(|object| object.metadata().name.clone()));
                if continue_token.is_none() {
                    return (names, resource_version);
                }
                token = continue_token;
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Makes calls, so many at a time as the machine does.
async fn each(client: &KubeClient, calls: Vec<KubeCall>) {
    let mut running = JoinSet::new();
    for call in calls {
        if running.len() >= IN_FLIGHT {
            running.join_next().await.expect("one runs").expect("no panic");
        }
        let client = client.clone();
        running.spawn(async move {
            let response = client.execute(&call).await;
            assert!(!matches!(response, KubeResponse::Refused(_)), "{response:?}");
        });
    }
    while let Some(done) = running.join_next().await {
        done.expect("no panic");
    }
}

/// Creates the pods of these gangs, as the machine makes them but for the finalizer; for kube-scheduler, or for nobody.
fn creations(requests: &[GangRequest], scheduler: &str) -> Vec<KubeCall> {
    let pods =
        requests.iter().flat_map(|request| (0..request.min_workers).filter_map(|worker| request.pod_body(worker)));
    let create = |mut body: Value| {
        body["spec"]["schedulerName"] = json!(scheduler);
        body["metadata"]["finalizers"] = Value::Null;
        KubeCall::Create { resource: Resource::Pods, namespace: NAMESPACE.to_owned(), body: Box::new(body) }
    };
    pods.map(create).collect()
}

/// One turn.
struct Turn {
    seen: Seen,
    used: Used,
}

impl Turn {
    /// From the first that was created to the last that was bound.
    fn pods_a_second(&self) -> f64 {
        let times = || self.seen.created.values().chain(self.seen.bound.values());
        let took = times().max().expect("one").duration_since(*times().min().expect("one"));
        self.seen.bound.len() as f64 / took.as_secs_f64()
    }

    /// From the last that was created to the last that was bound.
    fn bound_after_created(&self) -> Duration {
        let last = |times: &BTreeMap<String, Instant>| *times.values().max().expect("one");
        last(&self.seen.bound).duration_since(last(&self.seen.created))
    }
}

fn since(before: Used, after: Used) -> Used {
    Used { cpu_s: after.cpu_s - before.cpu_s, peak_mib: after.peak_mib }
}

/// Our machine, in a thread of its own.
async fn ours(stand: &mut Stand, requests: &[GangRequest]) -> Turn {
    let claim = |node: u32| {
        let offers = BTreeMap::from([("nvidia.com/gpu".to_owned(), 8)]);
        (
            format!("i-{node}"),
            ClaimView { node: NodeId(u64::from(node)), phase: ClaimPhase::Ready, offers, owned: None },
        )
    };
    let view = EngineView {
        runs: requests.iter().map(|request| (request.run(), running_view(request))).collect(),
        claims: (0..stand.nodes).map(claim).collect(),
        ..EngineView::default()
    };
    let (commands, inbox) = mpsc::channel(64);
    let (outbox, mut reports) = mpsc::channel(64);
    let (address, begin) = (address(&stand.kubernetes), EngineView { runs: BTreeMap::new(), ..view.clone() });
    let (tell, told) = std::sync::mpsc::channel();
    let machine = std::thread::spawn(move || {
        let folder = fs::read_link("/proc/thread-self").expect("/proc");
        tell.send(format!("/proc/{}", folder.display())).expect("somebody waits");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            // Connections end with the runtime that opened them.
            let client = KubeClient::connect(&address).await.expect("a client");
            task::run(KubeMachine::new(settings(), JOURNAL), client, now, inbox, outbox).await;
        });
    });
    let folder = told.recv().expect("a thread");
    commands.send(MachineCommand::Begin(begin)).await.expect("it runs");
    assert_eq!(timeout(SILENCE, reports.recv()).await.expect("in time"), Some(KubeReport::Listed));
    let reader = tokio::spawn(async move {
        while let Some(report) = reports.recv().await {
            assert!(!matches!(report, KubeReport::Refused { .. } | KubeReport::Failing { .. }), "{report:?}");
        }
    });
    let before = used(&folder);
    let start = |request: &GangRequest| {
        let start = GangStart::Run(Box::new(request.clone()));
        MachineCommand::Start(Box::new(start), RunToken::new("token".to_owned()))
    };
    let starts: Vec<MachineCommand> =
        std::iter::once(MachineCommand::State(view)).chain(requests.iter().map(start)).collect();
    let sender = commands.clone();
    let sends = tokio::spawn(async move {
        for command in starts {
            sender.send(command).await.expect("it runs");
        }
    });
    let pods: u32 = requests.iter().map(|request| request.min_workers).sum();
    let seen = stand.all_bound(pods as usize).await;
    let used = since(before, used(&folder));
    sends.await.expect("no panic");
    drop(commands);
    machine.join().expect("no panic");
    reader.await.expect("no panic");
    Turn { seen, used }
}

fn running_view(request: &GangRequest) -> RunView {
    let workers = request.workers.iter().enumerate().map(|(n, worker)| (n as u32, worker.instance.clone()));
    RunView {
        tenant: "me".to_owned(),
        subject: request.subject.clone(),
        namespace: NAMESPACE.to_owned(),
        stage: RunStage::Starting,
        workers: workers.collect(),
        done: BTreeSet::new(),
        left: BTreeSet::new(),
        confirmed_dead: BTreeSet::new(),
    }
}

/// kube-scheduler, with the same pods, which somebody creates as fast as the machine may.
async fn schedulers(stand: &mut Stand, requests: &[GangRequest]) -> Turn {
    let calls = creations(requests, "default-scheduler");
    let pods = calls.len();
    let folder = process(&stand.kubernetes, "kube-scheduler");
    let before = used(&folder);
    let client = stand.client.clone();
    let creator = tokio::spawn(async move { each(&client, calls).await });
    let seen = stand.all_bound(pods).await;
    creator.await.expect("no panic");
    Turn { seen, used: since(before, used(&folder)) }
}

/// How long the bare Bindings of all pods of a gang take, which are there.
async fn bare(stand: &mut Stand, request: &GangRequest) -> Duration {
    each(&stand.client, creations(std::slice::from_ref(request), "nobody")).await;
    let uids = [
        "get",
        "pods",
        "-n",
        NAMESPACE,
        "-o",
        "jsonpath={range .items[*]}{.metadata.name} {.metadata.uid}{\"\\n\"}{end}",
    ];
    let uids = stand.kubernetes.kubectl(&uids, "").unwrap();
    let bindings = uids.lines().enumerate().map(|(number, line)| {
        let (pod, uid) = line.split_once(' ').expect("a name and a uid");
        KubeCall::Bind {
            namespace: NAMESPACE.to_owned(),
            pod: pod.to_owned(),
            uid: uid.to_owned(),
            node: format!("node-{}", number as u32 % stand.nodes),
            annotations: BTreeMap::new(),
        }
    });
    let bindings: Vec<KubeCall> = bindings.collect();
    assert_eq!(bindings.len(), request.min_workers as usize);
    let begun = Instant::now();
    each(&stand.client, bindings).await;
    let seen = stand.all_bound(request.min_workers as usize).await;
    seen.bound.values().max().expect("one").duration_since(begun)
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

#[tokio::test(flavor = "multi_thread")]
async fn real_speed_beside_kube_scheduler() {
    let asked: Option<u32> = std::env::var("FOREBAY_NODES").ok().and_then(|text| text.parse().ok());
    let nodes = asked.unwrap_or(80);
    let mut stand = Stand::new(nodes).await;
    let settings = settings();
    let gangs = (nodes * PODS_A_NODE).div_ceil(WORKERS);
    let requests: Vec<GangRequest> = (0..gangs).map(|number| gang(&settings, number, WORKERS, nodes)).collect();
    println!("{nodes} nodes, {} pods in {gangs} gangs of {WORKERS}; kube-scheduler has the same pods", gangs * WORKERS);
    let mut ratios = Vec::new();
    for number in 1..=TURNS {
        let line = |name: &str, turn: &Turn| {
            let (rate, Used { cpu_s, peak_mib }) = (turn.pods_a_second(), turn.used);
            println!("turn {number}: {name:<16} {rate:>7.1} pods/s, {cpu_s:>6.2} s of CPU, {peak_mib:>5} MiB at most");
            rate
        };
        let turn = ours(&mut stand, &requests).await;
        let our_rate = line("forebay", &turn);
        stand.clear().await;
        let turn = schedulers(&mut stand, &requests).await;
        ratios.push(our_rate / line("kube-scheduler", &turn));
        stand.clear().await;
    }
    let ratio = median(ratios);
    println!("pods bound a second, ours to kube-scheduler's: {ratio:.2} (median of {TURNS})");

    let alone = gang(&settings, 0, WORKERS_ALONE, nodes);
    let mut ratios = Vec::new();
    for number in 1..=TURNS {
        let gang = ours(&mut stand, std::slice::from_ref(&alone)).await.bound_after_created();
        stand.clear().await;
        let bare = bare(&mut stand, &alone).await;
        stand.clear().await;
        println!(
            "turn {number}: a gang of {WORKERS_ALONE} is bound {gang:.0?} after its last pod is there, {WORKERS_ALONE} bare Bindings take {bare:.0?}"
        );
        ratios.push(gang.as_secs_f64() / bare.as_secs_f64());
    }
    let gang_ratio = median(ratios);
    println!("a gang's time to as many bare Bindings': {gang_ratio:.2} (median of {TURNS})");
    // A busy machine says nothing of either: a small form prints figures, and they are judged where somebody asks for a size.
    if asked.is_some() {
        assert!(ratio >= LEAST_RATE, "{ratio:.2} of kube-scheduler's rate");
        assert!(gang_ratio <= MOST_GANG_TIME, "{gang_ratio:.2} times as long as bare Bindings");
    }
}
