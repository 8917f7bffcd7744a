//! The roles: with the controller's service account the adapter does all that it does, nothing is refused, and what the roles grant is what was
//! used, by what the API server wrote down.
//!
//! Never: a call that neither the adapter nor `forebay doctor` makes by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use forebay_cluster_kube::client::{MachineCommand, ReviewedToken, task};
use forebay_cluster_kube::names::WorkerId;
use forebay_cluster_kube::request::WorkerRequest;
use forebay_cluster_kube::template::{PodTemplate, RunFields, TemplateSet, VolumeClaimState};
use forebay_cluster_kube::view::{ClaimPhase, ClaimView, RunStage, RunView};
use forebay_cluster_kube::{
    EngineView, GangRequest, GangStart, KubeCall, KubeMachine, KubeReport, KubeResponse, KubeSettings, ObjectSelector,
    Resource, RunId, RunToken,
};
use forebay_kernel::event::Event;
use forebay_kernel::ids::{Attempt, JobId, NodeId};
use forebay_kernel::units::{Span, Timestamp};
use serde_json::{Value, json};
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::time::timeout;

use crate::installed::{Installed, USER, node_yaml};
use crate::rendered::{NAMESPACE, example, is_hook, objects, of_kind, text, with};

const JOURNAL: &str = "0b4bd4d4";
const LIMIT: Duration = Duration::from_secs(60);

/// A verb, a resource with its subresource, and whether it is within a namespace.
type Right = (String, String, bool);

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

fn run_of(job: u64) -> RunId {
    RunId { job: JobId(job), attempt: Attempt(1) }
}

/// A gang with a worker on each of these nodes, by the template of the chart's example.
fn gang(settings: &KubeSettings, namespace: &str, job: u64, nodes: &[u32]) -> GangRequest {
    let values: Value = serde_saphyr::from_str(&example("small.yaml")).unwrap();
    let template = PodTemplate::parse(&values["templates"]["train"].to_string()).unwrap();
    let templates = TemplateSet::new([template]).unwrap();
    let fields = RunFields { template: Some("train".to_owned()), ..RunFields::default() };
    let rendered = templates.render("research", &fields).unwrap();
    let gpus = BTreeMap::from([("nvidia.com/gpu".to_owned(), "8".to_owned())]);
    let worker = |node: &u32| WorkerRequest {
        instance: Some(format!("i-{node}")),
        gpus: 8,
        requests: gpus.clone(),
        limits: gpus.clone(),
    };
    GangRequest {
        effect: format!("{JOURNAL}-{job}"),
        journal: JOURNAL.to_owned(),
        job,
        attempt: 1,
        subject: format!("resnet-{job}"),
        namespace: namespace.to_owned(),
        service: format!("gang-{job}-1"),
        pod: rendered.pod(settings, None),
        container: rendered.container.clone(),
        min_workers: nodes.len() as u32,
        workers: nodes.iter().map(worker).collect(),
        master_port: 29_500,
        env: Vec::new(),
    }
}

/// The adapter's machine with the controller's service account, and what the engine would know.
struct Controller<'a> {
    installed: &'a Installed,
    settings: KubeSettings,
    view: EngineView,
    commands: Sender<MachineCommand>,
    reports: Receiver<KubeReport>,
}

impl Controller<'_> {
    /// Begins. Nodes 1 to 3 are there; node 4 boots.
    async fn begin(installed: &Installed) -> Controller<'_> {
        let mut settings = KubeSettings::new("jobs", "registry.example.com/forebay:0.1.0");
        settings.namespaces.insert("research".to_owned(), "research".to_owned());
        settings.keep_terminal = Span::secs(1);
        settings.settle = Span::secs(1);
        let claim = |node: u32| {
            let offers = BTreeMap::from([("nvidia.com/gpu".to_owned(), 8)]);
            let phase = if node == 4 { ClaimPhase::Booting } else { ClaimPhase::Ready };
            (format!("i-{node}"), ClaimView { node: NodeId(u64::from(node)), phase, offers, owned: None })
        };
        let view = EngineView { claims: (1..=4).map(claim).collect(), ..EngineView::default() };
        let (commands, inbox) = mpsc::channel(64);
        let (outbox, reports) = mpsc::channel(64);
        let machine = KubeMachine::new(settings.clone(), JOURNAL);
        tokio::spawn(task::run(machine, installed.client().await, now, inbox, outbox));
        commands.send(MachineCommand::Begin(view.clone())).await.unwrap();
        Controller { installed, settings, view, commands, reports }
    }

    async fn send(&self, command: MachineCommand) {
        self.commands.send(command).await.expect("the machine's task runs");
    }

    async fn start(&mut self, namespace: &str, job: u64, nodes: &[u32]) -> GangRequest {
        let request = gang(&self.settings, namespace, job, nodes);
        let workers = request.workers.iter().enumerate().map(|(n, worker)| (n as u32, worker.instance.clone()));
        let view = RunView {
            tenant: "me".to_owned(),
            subject: request.subject.clone(),
            namespace: namespace.to_owned(),
            stage: RunStage::Starting,
            workers: workers.collect(),
            done: BTreeSet::new(),
            left: BTreeSet::new(),
            confirmed_dead: BTreeSet::new(),
        };
        self.view.runs.insert(request.run(), view);
        self.send(MachineCommand::State(self.view.clone())).await;
        let token = RunToken::new("token".to_owned());
        self.send(MachineCommand::Start(Box::new(GangStart::Run(Box::new(request.clone()))), token)).await;
        request
    }

    async fn stop(&self, job: u64) {
        self.send(MachineCommand::Stop { run: run_of(job), deadline: now() + Span::secs(5) }).await;
    }

    /// The next report. What it says is journaled. Nothing may fail.
    async fn next(&mut self) -> KubeReport {
        let Ok(report) = timeout(LIMIT, self.reports.recv()).await else {
            let audited = self.installed.kubernetes.audited().unwrap();
            panic!("no report within {LIMIT:?}; forbidden: {:#?}", forbidden(&audited));
        };
        let report = report.expect("the task runs");
        assert!(!matches!(report, KubeReport::Failing { .. }), "{report:?}");
        match &report {
            KubeReport::Event(Event::RunStarted { job, attempt }) => {
                if let Some(run) = self.view.runs.get_mut(&RunId { job: *job, attempt: *attempt }) {
                    run.stage = RunStage::Running;
                }
            }
            KubeReport::Event(Event::RunStopped { job, attempt, .. } | Event::RunFailed { job, attempt, .. }) => {
                self.view.runs.remove(&RunId { job: *job, attempt: *attempt });
            }
            KubeReport::Event(Event::NodeReady { instance }) => {
                if let Some(claim) = self.view.claims.get_mut(instance) {
                    claim.phase = ClaimPhase::Ready;
                }
            }
            _ => return report,
        }
        self.send(MachineCommand::State(self.view.clone())).await;
        report
    }

    /// Reads reports until one is that which the test waits for.
    async fn until(&mut self, is_it: impl Fn(&KubeReport) -> bool) -> KubeReport {
        loop {
            let report = self.next().await;
            if is_it(&report) {
                return report;
            }
        }
    }

    async fn started(&mut self, job: u64) {
        self.until(|report| matches!(report, KubeReport::Event(Event::RunStarted { job: of, .. }) if of.0 == job))
            .await;
    }

    async fn stopped(&mut self, job: u64) {
        self.until(|report| matches!(report, KubeReport::Event(Event::RunStopped { job: of, .. }) if of.0 == job))
            .await;
    }
}

/// Waits until nothing of a journal's is left in a namespace.
fn empty(installed: &Installed, namespace: &str) {
    let ours = ["get", "pods,services,configmaps", "-n", namespace, "-l", "forebay.dev/journal", "-o", "name"];
    installed.kubernetes.wait_until(&ours, |names| names.trim().is_empty()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn real_roles_grant_what_the_adapter_calls_and_nothing_else() {
    let values = with(
        &example("small.yaml"),
        &["kubernetes"],
        json!({"namespace": "jobs", "namespaces": {"research": "research"}}),
    );
    let values = with(&values, &["agent"], json!({"enabled": true, "nodeCIDRs": ["10.0.0.0/16"]}));
    let installed = Installed::new(3, &["jobs", "research"], &values);
    let kubernetes = &installed.kubernetes;
    installed.confined();
    let label = "labels: {forebay.dev/node: 'true'}";
    let starting = ", {key: forebay.dev/starting, effect: NoSchedule}";
    kubernetes.apply(&node_yaml("node-4", "i-4", label, starting)).unwrap();
    // Pods of a run that the engine does not know.
    let settings = KubeSettings::new("jobs", "none");
    kubernetes.apply(&gang(&settings, "jobs", 90, &[1]).pod_body(0).unwrap().to_string()).unwrap();

    let mut controller = Controller::begin(&installed).await;
    controller.until(|report| *report == KubeReport::Event(Event::NodeReady { instance: "i-4".to_owned() })).await;
    empty(&installed, "jobs");
    controller.start("jobs", 1, &[1, 2, 3]).await;
    controller.started(1).await;
    a_log_that_nobody_has(&installed).await;
    a_token_of_an_agent(&installed).await;
    claims_of_templates(&installed).await;
    controller.stop(1).await;
    controller.stopped(1).await;
    names_that_are_taken(&installed, &mut controller).await;
    a_pod_deleted_by_force(&installed, &mut controller).await;
    empty(&installed, "jobs");
    a_namespace_that_is_deleted(&installed, &mut controller).await;
    // Somebody's pod is on the node that goes.
    let foreign = "{apiVersion: v1, kind: Pod, metadata: {name: foreign}, spec: {nodeName: node-4, containers: [{name: a, image: a}]}}";
    kubernetes.apply(foreign).unwrap();
    controller.send(MachineCommand::Drain { instance: "i-4".to_owned() }).await;
    controller.until(|report| matches!(report, KubeReport::Drained { instance } if instance == "i-4")).await;

    let used = used(&kubernetes.audited().unwrap());
    let granted = granted(&objects(&text(&values)));
    assert_eq!(
        used.iter().filter(|right| !granted.contains(right)).collect::<Vec<_>>(),
        Vec::<&Right>::new(),
        "not granted"
    );
    assert_eq!(
        granted.iter().filter(|right| !used.contains(right)).collect::<Vec<_>>(),
        Vec::<&Right>::new(),
        "not needed"
    );
    assert_eq!(used.len(), 30, "{used:?}");
}

/// A log is asked for. kwok has none, and the API server says so.
async fn a_log_that_nobody_has(installed: &Installed) {
    let client = installed.client().await;
    let pods = client.worker_pods(JOURNAL, run_of(1)).await.unwrap();
    assert_eq!(pods.len(), 3);
    let error = client.log(&pods[0], 1).await.unwrap_err();
    assert!(!error.message.contains("forbidden"), "{error}");
    // What a pod that does not start is asked about.
    let (resource, namespace) = (Resource::PodEvents, Some("jobs".to_owned()));
    let selector = ObjectSelector::WarningsOf("none".to_owned());
    let call = KubeCall::List { resource, namespace, selector, continue_token: None };
    assert!(matches!(client.execute(&call).await, KubeResponse::Page { .. }));
}

/// A token is reviewed, and the node that it may name is read.
async fn a_token_of_an_agent(installed: &Installed) {
    let token = ["create", "token", "forebay-agent", "-n", NAMESPACE, "--audience=forebay"];
    let token = installed.kubernetes.kubectl(&token, "").unwrap();
    let client = installed.client().await;
    let account = Some(format!("{NAMESPACE}/forebay-agent"));
    let reviewed = client.review(token.trim(), "forebay").await.unwrap();
    assert_eq!(reviewed, Some(ReviewedToken { account, node: None }));
    for (other, audience) in [(token.trim(), "another"), ("no.token.this", "forebay")] {
        assert_eq!(client.review(other, audience).await.unwrap(), None, "{audience}");
    }
    assert_eq!(client.instance_of("node-4").await.unwrap().as_deref(), Some("i-4"));
    assert_eq!(client.instance_of("none").await.unwrap(), None);
}

/// `forebay doctor` asks for claims, and for the storage class of one that is not bound.
async fn claims_of_templates(installed: &Installed) {
    let claim = |name: &str, spec: Value| {
        let mut claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": "jobs"}, "spec": spec});
        claim["spec"]["accessModes"] = json!(["ReadWriteOnce"]);
        claim["spec"]["resources"] = json!({"requests": {"storage": "1Gi"}});
        installed.kubernetes.apply(&claim.to_string()).unwrap();
    };
    for (class, mode) in [("waits", "WaitForFirstConsumer"), ("at-once", "Immediate")] {
        let object = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": class},
            "provisioner": "example.com/none", "volumeBindingMode": mode});
        installed.kubernetes.apply(&object.to_string()).unwrap();
        claim(class, json!({"storageClassName": class}));
    }
    claim("of-no-class", json!({"storageClassName": "none"}));
    // No controller of volumes runs here.
    claim("bound", json!({"storageClassName": "waits"}));
    let bound = ["patch", "pvc", "bound", "-n", "jobs", "--subresource=status", "--type=merge"];
    let bound = [&bound[..], &["-p", r#"{"status": {"phase": "Bound"}}"#]].concat();
    installed.kubernetes.kubectl(&bound, "").unwrap();
    let client = installed.client().await;
    for (name, state) in [
        ("waits", VolumeClaimState::WaitsForConsumer),
        ("at-once", VolumeClaimState::Pending),
        ("of-no-class", VolumeClaimState::Pending),
        ("bound", VolumeClaimState::Bound),
        ("none", VolumeClaimState::Missing),
        ("../pods", VolumeClaimState::Missing),
    ] {
        assert_eq!(client.claim("jobs", name).await.unwrap(), state, "{name}");
    }
}

/// The Service, the ConfigMap or a pod of a gang has a name that somebody else has: it is read, and stays.
async fn names_that_are_taken(installed: &Installed, controller: &mut Controller<'_>) {
    for (job, kind) in [(2, "Service"), (5, "ConfigMap"), (6, "Pod")] {
        let request = gang(&controller.settings, "jobs", job, &[1, 2]);
        let name = if kind == "Pod" { request.pod_name(1) } else { request.service };
        let mut taken = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "jobs"}});
        match kind {
            "Service" => taken["spec"] = json!({"clusterIP": "None", "selector": {"a": "b"}}),
            "Pod" => taken["spec"] = json!({"schedulerName": "none", "containers": [{"name": "a", "image": "a"}]}),
            _ => {}
        }
        installed.kubernetes.apply(&taken.to_string()).unwrap();
        controller.start("jobs", job, &[1, 2]).await;
        let refused = controller.until(|report| matches!(report, KubeReport::Refused { .. })).await;
        let KubeReport::Refused { words, .. } = refused else { panic!("a refusal") };
        assert!(words.contains("already exists, and is not of this attempt"), "{words}");
        controller.stopped(job).await;
        empty(installed, "jobs");
        installed.kubernetes.kubectl(&["delete", kind, &name, "-n", "jobs", "--wait=false"], "").unwrap();
    }
}

/// Whether its containers still run is the node's to say: it is read, and an operator confirms.
async fn a_pod_deleted_by_force(installed: &Installed, controller: &mut Controller<'_>) {
    let request = controller.start("jobs", 3, &[1]).await;
    controller.started(3).await;
    let pod = request.pod_name(0);
    let kubectl = |words: &[&str]| installed.kubernetes.kubectl(&[words, &["-n", "jobs"]].concat(), "").unwrap();
    kubectl(&["patch", "pod", &pod, "--type=merge", "-p", r#"{"metadata": {"finalizers": null}}"#]);
    kubectl(&["delete", "pod", &pod, "--force", "--grace-period=0"]);
    let worker = WorkerId { run: run_of(3), worker: 0 };
    controller.until(|report| matches!(report, KubeReport::Unproven { worker: of, .. } if *of == worker)).await;
    if let Some(run) = controller.view.runs.get_mut(&worker.run) {
        run.confirmed_dead.insert(worker.worker);
    }
    controller.send(MachineCommand::State(controller.view.clone())).await;
    controller
        .until(|report| {
            matches!(
                report,
                KubeReport::Event(Event::RunFailed { job: JobId(3), .. } | Event::RunStopped { job: JobId(3), .. })
            )
        })
        .await;
}

/// Kubernetes ends the pods of a namespace before it deletes the roles in it, so that the controller can let go of them.
async fn a_namespace_that_is_deleted(installed: &Installed, controller: &mut Controller<'_>) {
    controller.start("research", 4, &[2]).await;
    controller.started(4).await;
    installed.kubernetes.kubectl(&["delete", "namespace", "research", "--wait=false"], "").unwrap();
    controller.until(|report| matches!(report, KubeReport::Event(Event::JobCancelled { .. }))).await;
    controller.stopped(4).await;
    let namespace = ["get", "namespace", "research"];
    installed.kubernetes.wait_until(&namespace, |text| text.contains("NotFound")).unwrap();
}

/// What the API server wrote down of the controller's requests. An administrator who asks in its name is not the controller.
fn requests(audited: &str) -> Vec<Value> {
    let events = audited.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    events.filter(|event| event["user"]["username"] == USER && event["impersonatedUser"].is_null()).collect()
}

/// Those that a role or an admission policy refused.
fn forbidden(audited: &str) -> Vec<String> {
    let is_refused = |event: &&Value| event["responseStatus"]["code"] == 403 || event["responseStatus"]["code"] == 422;
    let refused = requests(audited);
    refused
        .iter()
        .filter(is_refused)
        .map(|event| format!("{} {}: {}", event["verb"], event["requestURI"], event["responseStatus"]))
        .collect()
}

/// What the API server wrote down that was used. None of it was forbidden.
fn used(audited: &str) -> BTreeSet<Right> {
    assert_eq!(forbidden(audited), Vec::<String>::new());
    let mut used = BTreeSet::new();
    for event in requests(audited) {
        let object = &event["objectRef"];
        let part = |name: &str| object[name].as_str().unwrap_or_default().to_owned();
        let resource = match object["subresource"].as_str() {
            Some(subresource) => format!("{}/{subresource}", part("resource")),
            None => part("resource"),
        };
        let resource = of_group(&resource, object["apiGroup"].as_str().unwrap_or_default());
        used.insert((event["verb"].as_str().unwrap().to_owned(), resource, !part("namespace").is_empty()));
    }
    used
}

/// A resource with its group, where it is not of the first one.
fn of_group(resource: &str, group: &str) -> String {
    if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") }
}

/// What the rendered roles grant.
fn granted(objects: &[Value]) -> BTreeSet<Right> {
    let mut granted = BTreeSet::new();
    for (kind, namespaced) in [("ClusterRole", false), ("Role", true)] {
        let roles = of_kind(objects, kind).into_iter().filter(|role| !is_hook(role));
        for rule in roles.flat_map(|role| role["rules"].as_array().unwrap()) {
            let group = rule["apiGroups"][0].as_str().unwrap();
            for resource in rule["resources"].as_array().unwrap() {
                for verb in rule["verbs"].as_array().unwrap() {
                    let [verb, resource] = [verb, resource].map(|text| text.as_str().unwrap().to_owned());
                    let resource = of_group(&resource, group);
                    assert!(verb != "*" && resource != "*", "{rule}");
                    // A subresource is of one pod, in its namespace.
                    let namespaced = namespaced || resource.contains('/');
                    granted.insert((verb, resource, namespaced));
                }
            }
        }
    }
    granted
}
