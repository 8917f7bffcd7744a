//! Gangs on a real API server with kwok in the place of kubelets: all or none, past the barrier only when all are bound, stopped, held by a
//! quota, and over a restart of the API server after a compaction of etcd.
//!
//! The engine is played by a few lines that take its events into the view, as the journal would. An independent watcher checks the barrier.
//! Never: an engine, a real container.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a real API server is waited for by the real clock"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use forebay_cluster_kube::client::{CredentialSource, KubeClient, MachineCommand, task};
use forebay_cluster_kube::names::{ANNOTATION_BARRIER, GATE_CONTAINER};
use forebay_cluster_kube::request::WorkerRequest;
use forebay_cluster_kube::template::{PodTemplate, RunFields, TemplateSet};
use forebay_cluster_kube::view::{ClaimPhase, ClaimView, RunStage, RunView};
use forebay_cluster_kube::{
    EngineView, GangRequest, GangStart, KubeCall, KubeMachine, KubeObject, KubeReport, KubeResponse, KubeSettings,
    ObjectSelector, Resource, RunId, RunToken,
};
use forebay_kernel::event::Event;
use forebay_kernel::ids::{Attempt, JobId, NodeId};
use forebay_kernel::units::{Span, Timestamp};
use forebay_parts::{Kubernetes, KubernetesOptions, KwokOptions};
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::time::timeout;

const NAMESPACE: &str = "team-a";
const JOURNAL: &str = "0b4bd4d4";
const LIMIT: Duration = Duration::from_secs(60);

const TEMPLATE: &str = "
name: train
queues: [research]
images: [registry.example.com/team/]
pod: {spec: {tolerations: [{key: forebay.dev/node, operator: Exists}], containers: [{name: worker, image: registry.example.com/team/a}]}}
";

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

fn run_of(job: u64) -> RunId {
    RunId { job: JobId(job), attempt: Attempt(1) }
}

/// A gang with a worker on each of these nodes.
fn gang(settings: &KubeSettings, job: u64, nodes: &[u32]) -> GangRequest {
    let templates = TemplateSet::new([PodTemplate::parse(TEMPLATE).unwrap()]).unwrap();
    let fields = RunFields { template: Some("train".to_owned()), ..RunFields::default() };
    let rendered = templates.render("research", &fields).unwrap();
    let gpus = BTreeMap::from([("nvidia.com/gpu".to_owned(), "8".to_owned())]);
    let workers = nodes.iter().map(|node| WorkerRequest {
        instance: Some(format!("i-{node}")),
        gpus: 8,
        requests: gpus.clone(),
        limits: gpus.clone(),
    });
    let workers: Vec<WorkerRequest> = workers.collect();
    GangRequest {
        effect: format!("{JOURNAL}-{job}"),
        journal: JOURNAL.to_owned(),
        job,
        attempt: 1,
        subject: format!("resnet-{job}"),
        namespace: NAMESPACE.to_owned(),
        service: format!("gang-{job}-1"),
        pod: rendered.pod(settings, None),
        container: rendered.container.clone(),
        min_workers: nodes.len() as u32,
        workers,
        master_port: 29_500,
        env: Vec::new(),
    }
}

/// A cluster with a machine, and what the engine would know of it.
struct Stand {
    kubernetes: Kubernetes,
    client: KubeClient,
    settings: KubeSettings,
    view: EngineView,
    commands: Sender<MachineCommand>,
    reports: Receiver<KubeReport>,
    barrier: Barrier,
}

impl Stand {
    /// A cluster with nodes of eight GPUs each, and a pod and a node of somebody else.
    async fn new(nodes: u32) -> Stand {
        let kwok = Some(KwokOptions::default());
        let options = KubernetesOptions { controller_manager: true, kwok, ..KubernetesOptions::default() };
        let kubernetes = Kubernetes::start(options).unwrap();
        kubernetes.kubectl(&["create", "namespace", NAMESPACE], "").unwrap();
        let account = ["wait", "serviceaccount/default", "-n", NAMESPACE, "--for=create", "--timeout=60s"];
        kubernetes.kubectl(&account, "").unwrap();
        for node in 1..=nodes {
            kubernetes.apply(&node_yaml(node)).unwrap();
        }
        let foreign = "{apiVersion: v1, kind: Pod, metadata: {name: foreign, namespace: team-a, labels: {forebay.dev/job: job-1}}, \
                       spec: {nodeName: node-1, containers: [{name: main, image: none}]}}";
        kubernetes.apply(foreign).unwrap();
        let client = connect(&kubernetes).await;
        let mut settings = KubeSettings::new(NAMESPACE, "registry.example.com/forebay:1");
        settings.keep_terminal = Span::secs(1);
        settings.settle = Span::secs(1);
        let claim = |node: u32| {
            let offers = BTreeMap::from([("nvidia.com/gpu".to_owned(), 8)]);
            (
                format!("i-{node}"),
                ClaimView { node: NodeId(u64::from(node)), phase: ClaimPhase::Ready, offers, owned: None },
            )
        };
        let view = EngineView { claims: (1..=nodes).map(claim).collect(), ..EngineView::default() };
        let barrier = Barrier::watch(&kubernetes).await;
        let (commands, reports) = begin(&settings, &client, &view).await;
        Stand { kubernetes, client, settings, view, commands, reports, barrier }
    }

    async fn send(&self, command: MachineCommand) {
        self.commands.send(command).await.expect("the machine's task runs");
    }

    async fn start(&mut self, request: GangRequest) {
        let workers = request.workers.iter().enumerate().map(|(n, worker)| (n as u32, worker.instance.clone()));
        let view = RunView {
            tenant: "me".to_owned(),
            subject: request.subject.clone(),
            namespace: NAMESPACE.to_owned(),
            stage: RunStage::Starting,
            workers: workers.collect(),
            done: BTreeSet::new(),
            left: BTreeSet::new(),
            confirmed_dead: BTreeSet::new(),
        };
        self.view.runs.insert(request.run(), view);
        self.send(MachineCommand::State(self.view.clone())).await;
        self.send(MachineCommand::Start(
            Box::new(GangStart::Run(Box::new(request))),
            RunToken::new("token".to_owned()),
        ))
        .await;
    }

    /// The next report that says something of an attempt. What it says is known to the engine from then on.
    async fn next(&mut self) -> KubeReport {
        let limit = LIMIT;
        loop {
            let report = timeout(limit, self.reports.recv()).await.expect("a report in time").expect("the task runs");
            match &report {
                KubeReport::Event(event) => self.journal(event),
                KubeReport::Refused { .. } | KubeReport::Drained { .. } => {}
                _ => continue,
            }
            self.send(MachineCommand::State(self.view.clone())).await;
            return report;
        }
    }

    /// As the engine's `apply`, for what these tests do.
    fn journal(&mut self, event: &Event) {
        match event {
            Event::RunStarted { job, attempt } => {
                if let Some(run) = self.view.runs.get_mut(&RunId { job: *job, attempt: *attempt }) {
                    run.stage = RunStage::Running;
                }
            }
            Event::RunCompleted { job, attempt, worker: Some(worker) } => {
                let id = RunId { job: *job, attempt: *attempt };
                if let Some(run) = self.view.runs.get_mut(&id) {
                    run.done.insert(*worker);
                    if run.done.len() == run.workers.len() {
                        self.view.runs.remove(&id);
                    }
                }
            }
            Event::RunStopped { job, attempt, .. }
            | Event::RunFailed { job, attempt, .. }
            | Event::RunDenied { job, attempt } => {
                self.view.runs.remove(&RunId { job: *job, attempt: *attempt });
            }
            _ => {}
        }
    }

    /// Waits until a gang has started.
    async fn started(&mut self, job: u64) {
        let report = self.next().await;
        assert_eq!(report, KubeReport::Event(Event::RunStarted { job: JobId(job), attempt: Attempt(1) }));
    }

    /// Our pods.
    async fn pods(&self) -> Vec<(String, String)> {
        let call = KubeCall::List {
            resource: Resource::Pods,
            namespace: None,
            selector: ObjectSelector::All,
            continue_token: None,
        };
        let KubeResponse::Page { objects, .. } = self.client.execute(&call).await else { panic!("a list of pods") };
        let mut pods = Vec::new();
        for object in objects {
            let KubeObject::Pod(pod) = object else { panic!("a pod") };
            if pod.metadata.name != "foreign" {
                pods.push((pod.metadata.name.clone(), pod.status.phase.clone()));
            }
        }
        pods
    }

    /// Waits until nothing of ours is left, and checks that what is not ours is as it was.
    async fn empty(&self) {
        let start = Instant::now();
        loop {
            let pods = self.pods().await;
            if pods.is_empty() {
                break;
            }
            assert!(start.elapsed() < LIMIT, "left behind: {pods:?}");
            tokio::task::yield_now().await;
        }
        let services = ["get", "services,configmaps", "-n", NAMESPACE, "-o", "name"];
        let ours = self.kubernetes.wait_until(&services, |names| !names.contains("gang-")).unwrap();
        assert!(!ours.contains("gang-"));
        let foreign = [
            "get",
            "pod",
            "foreign",
            "-n",
            NAMESPACE,
            "-o",
            "jsonpath={.status.phase} {.metadata.managedFields[*].manager}",
        ];
        let foreign = self.kubernetes.kubectl(&foreign, "").unwrap();
        assert!(foreign.starts_with("Running") && !foreign.contains("forebay"), "{foreign}");
        assert_eq!(self.barrier.violations(), Vec::<String>::new());
    }
}

fn node_yaml(node: u32) -> String {
    format!(
        "{{apiVersion: v1, kind: Node, metadata: {{name: node-{node}}}, spec: {{providerID: 'aws:///us-east-1a/i-{node}', \
          taints: [{{key: forebay.dev/node, effect: NoSchedule}}]}}, \
          status: {{allocatable: {{cpu: '96', memory: 1Ti, pods: '110', nvidia.com/gpu: '8'}}}}}}"
    )
}

async fn connect(kubernetes: &Kubernetes) -> KubeClient {
    let source = CredentialSource::Kubeconfig { path: kubernetes.kubeconfig(), context: None };
    KubeClient::connect(&source).await.unwrap()
}

/// A machine that begins with what the engine knows.
async fn begin(
    settings: &KubeSettings,
    client: &KubeClient,
    view: &EngineView,
) -> (Sender<MachineCommand>, Receiver<KubeReport>) {
    let (commands, inbox) = mpsc::channel(64);
    let (outbox, mut reports) = mpsc::channel(64);
    let machine = KubeMachine::new(settings.clone(), JOURNAL);
    tokio::spawn(task::run(machine, client.clone(), now, inbox, outbox));
    commands.send(MachineCommand::Begin(view.clone())).await.unwrap();
    let first = timeout(LIMIT, reports.recv()).await.expect("in time");
    assert_eq!(first, Some(KubeReport::Listed));
    (commands, reports)
}

/// An independent watcher: looks at all pods of a gang at once, as often as it can, for one past the barrier beside one that is not bound.
struct Barrier {
    found: Arc<Mutex<Vec<String>>>,
    looked: Arc<AtomicUsize>,
    ended: Arc<AtomicBool>,
}

impl Barrier {
    async fn watch(kubernetes: &Kubernetes) -> Barrier {
        let client = connect(kubernetes).await;
        let barrier = Barrier { found: Arc::default(), looked: Arc::default(), ended: Arc::default() };
        let (found, looked, ended) = (barrier.found.clone(), barrier.looked.clone(), barrier.ended.clone());
        tokio::spawn(async move {
            while !ended.load(Ordering::Relaxed) {
                let call = KubeCall::List {
                    resource: Resource::Pods,
                    namespace: None,
                    selector: ObjectSelector::All,
                    continue_token: None,
                };
                if let KubeResponse::Page { objects, .. } = client.execute(&call).await {
                    found.lock().unwrap().extend(violations(&objects));
                    looked.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        barrier
    }

    /// Waits until it has looked so many times more.
    async fn look(&self, times: usize) {
        let until = self.looked.load(Ordering::Relaxed) + times;
        let start = Instant::now();
        while self.looked.load(Ordering::Relaxed) < until {
            assert!(start.elapsed() < LIMIT, "it looks");
            tokio::task::yield_now().await;
        }
    }

    fn violations(&self) -> Vec<String> {
        assert!(self.looked.load(Ordering::Relaxed) > 10, "it has looked");
        self.found.lock().unwrap().clone()
    }
}

impl Drop for Barrier {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

/// Gangs with a worker that was told to go, or is past its barrier, while another of it has no node.
fn violations(objects: &[KubeObject]) -> Vec<String> {
    let mut gangs: BTreeMap<String, (Vec<String>, Vec<String>)> = BTreeMap::new();
    for object in objects {
        let KubeObject::Pod(pod) = object else { continue };
        if !pod.metadata.labels.contains_key("forebay.dev/journal") || pod.metadata.is_deleting() {
            continue;
        }
        let passed = |c: &forebay_cluster_kube::objects::ContainerStatus| {
            c.name == GATE_CONTAINER && c.state.terminated.is_some()
        };
        let goes = pod.metadata.annotation(ANNOTATION_BARRIER).is_some()
            || pod.status.init_container_statuses.iter().any(passed);
        let (past, unbound) = gangs.entry(pod.metadata.labels["forebay.dev/job"].clone()).or_default();
        if goes {
            past.push(pod.metadata.name.clone());
        }
        if pod.spec.node_name.is_none() {
            unbound.push(pod.metadata.name.clone());
        }
    }
    let broken = gangs.into_values().filter(|(past, unbound)| !past.is_empty() && !unbound.is_empty());
    broken.map(|(past, unbound)| format!("{past:?} past the barrier, {unbound:?} not bound")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn real_gang_starts_whole_is_stopped_whole_and_leaves_nothing() {
    let mut stand = Stand::new(3).await;
    let request = gang(&stand.settings, 1, &[1, 2, 3]);
    let names: BTreeSet<String> = (0..3).map(|n| request.pod_name(n)).collect();
    stand.start(request).await;
    stand.started(1).await;
    let pods = stand.pods().await;
    assert!(pods.iter().all(|(_, phase)| phase == "Running"), "{pods:?}");
    assert_eq!(pods.into_iter().map(|(name, _)| name).collect::<BTreeSet<_>>(), names);

    stand.send(MachineCommand::Stop { run: run_of(1), deadline: now() + Span::secs(5) }).await;
    let stopped = Event::RunStopped { job: JobId(1), attempt: Attempt(1), progress: None };
    assert_eq!(stand.next().await, KubeReport::Event(stopped));
    stand.empty().await;

    // One that completes: each worker by itself.
    let request = gang(&stand.settings, 2, &[1, 2]);
    let names = [request.pod_name(0), request.pod_name(1)];
    stand.start(request).await;
    stand.started(2).await;
    for name in &names {
        let pod = format!("pod/{name}");
        stand.kubernetes.kubectl(&["annotate", &pod, "-n", NAMESPACE, "test.forebay.dev/exit=0"], "").unwrap();
    }
    let mut done = BTreeSet::new();
    for _ in 0..2 {
        let KubeReport::Event(Event::RunCompleted { job: JobId(2), worker, .. }) = stand.next().await else { panic!() };
        done.insert(worker);
    }
    assert_eq!(done, BTreeSet::from([Some(0), Some(1)]));
    stand.empty().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn real_gang_with_one_node_that_takes_nothing_is_not_bound_by_half() {
    let mut stand = Stand::new(3).await;
    stand.kubernetes.kubectl(&["cordon", "node-3"], "").unwrap();
    let request = gang(&stand.settings, 1, &[1, 2, 3]);
    stand.start(request).await;
    let count = |text: &str| text.split_whitespace().count();
    let created =
        ["get", "pods", "-n", NAMESPACE, "-l", "forebay.dev/journal", "-o", "jsonpath={.items[*].metadata.name}"];
    stand.kubernetes.wait_until(&created, |names| count(names) == 3).unwrap();
    // It has had the time in which it binds all of them where it may: a hundred looks of the watcher take longer.
    stand.barrier.look(100).await;
    let mut nodes = created;
    nodes[7] = "jsonpath={.items[*].spec.nodeName}";
    assert_eq!(stand.kubernetes.kubectl(&nodes, "").unwrap(), "", "none of them is bound");
    stand.kubernetes.kubectl(&["uncordon", "node-3"], "").unwrap();
    stand.started(1).await;
    stand.send(MachineCommand::Stop { run: run_of(1), deadline: now() + Span::secs(5) }).await;
    assert!(matches!(stand.next().await, KubeReport::Event(Event::RunStopped { .. })));
    stand.empty().await;
}

#[test]
fn the_watcher_sees_a_worker_past_the_barrier_beside_one_without_a_node() {
    let pod = |worker: u32, node: Option<&str>, barrier: &str| {
        let labels = serde_json::json!({"forebay.dev/journal": JOURNAL, "forebay.dev/job": "job-1"});
        let annotations =
            if barrier.is_empty() { serde_json::json!({}) } else { serde_json::json!({ANNOTATION_BARRIER: barrier}) };
        let metadata =
            serde_json::json!({"name": format!("w{worker}"), "uid": "u", "labels": labels, "annotations": annotations});
        let json = serde_json::json!({"metadata": metadata, "spec": {"nodeName": node, "containers": []}});
        KubeObject::of_json(Resource::Pods, json).unwrap()
    };
    assert_eq!(
        violations(&[pod(0, Some("n"), "open"), pod(1, None, "")]),
        [r#"["w0"] past the barrier, ["w1"] not bound"#]
    );
    assert!(violations(&[pod(0, Some("n"), "open"), pod(1, Some("n"), "")]).is_empty());
    assert!(violations(&[pod(0, Some("n"), ""), pod(1, None, "")]).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn real_gang_that_a_full_quota_denies_is_not_there_by_half() {
    let mut stand = Stand::new(3).await;
    // Room for the foreign pod and two more.
    stand.kubernetes.kubectl(&["create", "quota", "full", "-n", NAMESPACE, "--hard=pods=3"], "").unwrap();
    let used = ["get", "quota", "full", "-n", NAMESPACE, "-o", "jsonpath={.status.used.pods}"];
    stand.kubernetes.wait_until(&used, |used| used == "1").unwrap();
    let request = gang(&stand.settings, 1, &[1, 2, 3]);
    stand.start(request).await;
    let KubeReport::Refused { run, words } = stand.next().await else { panic!("a refusal first") };
    assert_eq!(run, run_of(1));
    assert!(words.contains("exceeded quota: full, requested: pods=1, used: pods=3, limited: pods=3"), "{words}");
    let denied = Event::RunDenied { job: JobId(1), attempt: Attempt(1) };
    assert_eq!(stand.next().await, KubeReport::Event(denied));
    stand.empty().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn real_gang_outlives_the_api_server_and_a_machine_that_begins_again_knows_it() {
    let mut stand = Stand::new(3).await;
    stand.start(gang(&stand.settings, 1, &[1, 2])).await;
    stand.started(1).await;
    // The API server is gone, and when it is there again it does not know what the watch was at.
    stand.kubernetes.kill_api_server().unwrap();
    stand.kubernetes.compact().unwrap();
    let third = gang(&stand.settings, 2, &[3]);
    stand.start(third).await;
    stand.kubernetes.restart_api_server().unwrap();
    stand.started(2).await;
    assert_eq!(stand.pods().await.len(), 3);

    // The process dies; the next one takes over what is there, by what the journal knows.
    let (commands, reports) = begin(&stand.settings, &stand.client, &stand.view).await;
    stand.commands = commands;
    stand.reports = reports;
    for job in [1, 2] {
        stand.send(MachineCommand::Stop { run: run_of(job), deadline: now() + Span::secs(5) }).await;
    }
    let mut stopped = BTreeSet::new();
    for _ in 0..2 {
        let KubeReport::Event(Event::RunStopped { job, .. }) = stand.next().await else { panic!("a stop") };
        stopped.insert(job);
    }
    assert_eq!(stopped, BTreeSet::from([JobId(1), JobId(2)]));
    stand.empty().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn real_node_is_drained_when_nothing_is_bound_to_it() {
    let mut stand = Stand::new(2).await;
    stand.start(gang(&stand.settings, 1, &[2])).await;
    stand.started(1).await;
    stand.send(MachineCommand::Drain { instance: "i-2".to_owned() }).await;
    let cordoned = ["get", "node", "node-2", "-o", "jsonpath={.spec.unschedulable}"];
    stand.kubernetes.wait_until(&cordoned, |text| text == "true").unwrap();
    stand.send(MachineCommand::Stop { run: run_of(1), deadline: now() + Span::secs(5) }).await;
    let mut reports = vec![stand.next().await];
    reports.push(stand.next().await);
    let stopped = Event::RunStopped { job: JobId(1), attempt: Attempt(1), progress: None };
    assert_eq!(reports, [KubeReport::Event(stopped), KubeReport::Drained { instance: "i-2".to_owned() }]);
    stand.empty().await;
}
