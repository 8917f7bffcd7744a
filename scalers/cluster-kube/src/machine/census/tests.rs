//! Gangs on an API server in memory: how often workers are looked at, and whether a look at whole gangs finds anything that was missed.

use crate::api_call::{KubeCall, KubeCallId, KubeObject, KubeResponse, Resource, WatchChange, WatchEvent};
use crate::kube_error::KubeError;
use crate::machine::{KubeMachine, KubeReport};
use crate::names::{ANNOTATION_BARRIER, RunId};
use crate::request::{GangRequest, GangStart, RunToken, WorkerRequest};
use crate::settings::KubeSettings;
use crate::view::{ClaimPhase, ClaimView, EngineView};
use forebay_kernel::event::Event;
use forebay_kernel::ids::NodeId;
use forebay_kernel::units::{Span, Timestamp};
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};

/// More than all calls of a test.
const UNTHROTTLED: u32 = 1_000_000;

fn settings() -> KubeSettings {
    let mut settings = KubeSettings::new("jobs", "forebay:1");
    settings.rates.write_burst = UNTHROTTLED;
    settings.rates.read_burst = UNTHROTTLED;
    settings
}

fn gang(workers: u32, nodes: u32) -> GangRequest {
    let worker = |number: u32| WorkerRequest {
        instance: Some(format!("i-{}", number % nodes)),
        gpus: 1,
        requests: BTreeMap::new(),
        limits: BTreeMap::new(),
    };
    GangRequest {
        effect: "j-7".to_owned(),
        journal: "j".to_owned(),
        job: 1,
        attempt: 1,
        subject: "a".to_owned(),
        namespace: "jobs".to_owned(),
        service: "gang-1-1-x".to_owned(),
        pod: json!({"spec": {"containers": [{"name": "worker"}]}}),
        container: "worker".to_owned(),
        workers: (0..workers).map(worker).collect(),
        min_workers: workers,
        master_port: 29_500,
        env: Vec::new(),
    }
}

/// A machine, an API server without faults, and kubelets.
struct Cluster {
    kube: KubeMachine,
    now: Timestamp,
    version: u64,
    objects: BTreeMap<(Resource, String), Value>,
    calls: Vec<(KubeCallId, KubeCall)>,
    watches: BTreeMap<Resource, KubeCallId>,
    /// Changes of pods and nodes that the watches have not said yet.
    news: VecDeque<(Resource, WatchChange)>,
    reports: Vec<KubeReport>,
    seed: u64,
    /// After each event all gangs are looked at, too, and nothing may come of that.
    compares: bool,
}

impl Cluster {
    fn new(nodes: u32, seed: u64) -> Cluster {
        let mut cluster = Cluster {
            kube: KubeMachine::new(settings(), "j"),
            now: Timestamp(1_800_000_000_000),
            version: 10,
            objects: BTreeMap::new(),
            calls: Vec::new(),
            watches: BTreeMap::new(),
            news: VecDeque::new(),
            reports: Vec::new(),
            seed,
            compares: false,
        };
        for number in 0..nodes {
            let status = json!({"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"bootID": "b"}});
            let spec = json!({"providerID": format!("aws:///z/i-{number}")});
            let node = json!({"metadata": {"name": format!("n-{number}")}, "spec": spec, "status": status});
            cluster.put(Resource::Nodes, node);
        }
        cluster.news.clear();
        let claim = |number: u32| {
            let offers = BTreeMap::new();
            let claim = ClaimView { node: NodeId(u64::from(number)), phase: ClaimPhase::Ready, offers, owned: None };
            (format!("i-{number}"), claim)
        };
        cluster.kube.begin(EngineView { claims: (0..nodes).map(claim).collect(), ..EngineView::default() });
        cluster.poll();
        while cluster.answer_some() {}
        cluster
    }

    fn below(&mut self, n: usize) -> usize {
        // An LCG by Knuth: its upper bits are random enough here.
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.seed >> 33).unwrap() % n.max(1)
    }

    fn object(&self, resource: Resource, name: &str) -> Option<KubeObject> {
        let json = self.objects.get(&(resource, name.to_owned()))?;
        Some(KubeObject::of_json(resource, json.clone()).unwrap())
    }

    /// Writes an object. A pod that is deleted goes with its last finalizer, when nothing of it runs.
    fn put(&mut self, resource: Resource, mut json: Value) {
        self.version += 1;
        let name = json["metadata"]["name"].as_str().unwrap().to_owned();
        json["metadata"]["resourceVersion"] = json!(self.version.to_string());
        if json["metadata"]["uid"].is_null() {
            json["metadata"]["uid"] = json!(format!("u-{}", self.version));
        }
        let gone = !json["metadata"]["deletionTimestamp"].is_null()
            && json["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty)
            && (json["spec"]["nodeName"].is_null() || json["status"]["phase"] == "Failed");
        let object = Box::new(KubeObject::of_json(resource, json.clone()).unwrap());
        if gone {
            self.objects.remove(&(resource, name));
            self.news.push_back((resource, WatchChange::Deleted(object)));
        } else {
            self.objects.insert((resource, name), json);
            self.news.push_back((resource, WatchChange::Applied(object)));
        }
    }

    fn edit(&mut self, resource: Resource, name: &str, change: impl FnOnce(&mut Value)) {
        if let Some(mut json) = self.objects.get(&(resource, name.to_owned())).cloned() {
            change(&mut json);
            self.put(resource, json);
        }
    }

    fn poll(&mut self) {
        for (id, call) in self.kube.poll(self.now) {
            if let KubeCall::Watch { resource, .. } = call {
                self.watches.insert(resource, id);
            } else {
                self.calls.push((id, call));
            }
        }
        self.reports.extend(self.kube.take_reports());
        if self.compares {
            let gangs: Vec<RunId> = self.kube.gangs.keys().copied().collect();
            self.kube.changed.extend(gangs);
            assert_eq!(self.kube.poll(self.now), [], "calls that a look at all workers finds");
            assert_eq!(self.kube.take_reports(), [], "reports that a look at all workers finds");
        }
    }

    /// Answers one of the calls. Returns false if there is none.
    fn answer_some(&mut self) -> bool {
        if self.calls.is_empty() {
            return false;
        }
        let at = self.below(self.calls.len());
        let (id, call) = self.calls.swap_remove(at);
        let response = self.answer(&call);
        self.kube.handle_response(id, response, self.now);
        self.poll();
        true
    }

    fn answer(&mut self, call: &KubeCall) -> KubeResponse {
        let not_found = || KubeResponse::Refused(KubeError::of_status(404, "NotFound", "not found"));
        let (resource, name) = match call {
            KubeCall::List { resource, .. } => {
                let of_kind = self.objects.iter().filter(|((of, _), _)| of == resource);
                let objects = of_kind.map(|(_, json)| KubeObject::of_json(*resource, json.clone()).unwrap()).collect();
                let resource_version = self.version.to_string();
                return KubeResponse::Page { objects, continue_token: None, resource_version };
            }
            KubeCall::Create { resource, body, .. } => {
                let mut json = (**body).clone();
                json["status"] = json!({"phase": "Pending"});
                self.put(*resource, json);
                (*resource, body["metadata"]["name"].as_str().unwrap().to_owned())
            }
            KubeCall::CreateSecret { body, .. } => {
                let json = body.reveal().clone();
                let name = json["metadata"]["name"].as_str().unwrap().to_owned();
                self.put(Resource::Secrets, json);
                (Resource::Secrets, name)
            }
            KubeCall::Bind { pod, node, .. } => {
                self.edit(Resource::Pods, pod, |json| json["spec"]["nodeName"] = json!(node));
                return KubeResponse::Done;
            }
            KubeCall::Merge { resource, name, body, .. } => {
                let asked = &body["metadata"];
                let key = (*resource, name.clone());
                let Some(is) = self.objects.get(&key) else { return not_found() };
                let version = &asked["resourceVersion"];
                if !version.is_null() && *version != is["metadata"]["resourceVersion"] {
                    return KubeResponse::Refused(KubeError::of_status(409, "Conflict", "it has changed"));
                }
                self.edit(*resource, name, |json| {
                    for (key, value) in asked["annotations"].as_object().into_iter().flatten() {
                        json["metadata"]["annotations"][key] = value.clone();
                    }
                    if !asked["finalizers"].is_null() {
                        json["metadata"]["finalizers"] = asked["finalizers"].clone();
                    }
                });
                if !self.objects.contains_key(&key) {
                    return KubeResponse::Done;
                }
                (*resource, name.clone())
            }
            KubeCall::Delete { resource, name, .. } => {
                if *resource == Resource::Pods {
                    self.edit(*resource, name, |json| json["metadata"]["deletionTimestamp"] = json!("2027"));
                } else {
                    self.objects.remove(&(*resource, name.clone()));
                }
                return KubeResponse::Done;
            }
            KubeCall::Get { resource, name, .. } | KubeCall::Apply { resource, name, .. } => (*resource, name.clone()),
            other => panic!("{other:?}"),
        };
        self.object(resource, &name).map_or_else(not_found, |object| KubeResponse::Object(Box::new(object)))
    }

    /// A watch says what has changed first. Returns false if nothing has.
    fn hear(&mut self) -> bool {
        let Some((resource, change)) = self.news.pop_front() else { return false };
        if let Some(watch) = self.watches.get(&resource).copied() {
            self.kube.handle_watch(WatchEvent { watch, change }, self.now);
        }
        self.poll();
        true
    }

    /// A kubelet starts a pod that was told to go, or ends one that is deleted. Returns false if none has anything to do.
    fn run_some(&mut self) -> bool {
        let due = |json: &Value| {
            let bound = !json["spec"]["nodeName"].is_null() && json["status"]["phase"] != "Failed";
            let told = !json["metadata"]["annotations"][ANNOTATION_BARRIER].is_null();
            let starts = told && json["status"]["containerStatuses"].is_null();
            bound && (starts || !json["metadata"]["deletionTimestamp"].is_null())
        };
        let pods = self.objects.iter().filter(|((resource, _), json)| *resource == Resource::Pods && due(json));
        let names: Vec<String> = pods.map(|((_, name), _)| name.clone()).collect();
        if names.is_empty() {
            return false;
        }
        let at = self.below(names.len());
        self.edit(Resource::Pods, &names[at], |json| {
            let deleted = !json["metadata"]["deletionTimestamp"].is_null();
            json["status"] = if deleted { ended(143) } else { running() };
        });
        true
    }

    /// A node is not ready any more, or is again.
    fn flip_a_node(&mut self, nodes: usize) {
        let name = format!("n-{}", self.below(nodes));
        self.edit(Resource::Nodes, &name, |json| {
            let ready = json["status"]["conditions"][0]["status"] == "True";
            json["status"]["conditions"][0]["status"] = json!(if ready { "False" } else { "True" });
        });
    }

    fn all_nodes_are_ready(&mut self, nodes: usize) {
        for number in 0..nodes {
            let ready = |json: &mut Value| json["status"]["conditions"][0]["status"] = json!("True");
            self.edit(Resource::Nodes, &format!("n-{number}"), ready);
        }
    }

    fn start(&mut self, request: GangRequest) {
        self.kube.start(GangStart::Run(Box::new(request)), RunToken::new("token".to_owned()));
        self.poll();
    }

    fn reported(&self, is: impl Fn(&Event) -> bool) -> bool {
        self.reports.iter().any(|report| matches!(report, KubeReport::Event(event) if is(event)))
    }

    fn has_started(&self) -> bool {
        self.reported(|event| matches!(event, Event::RunStarted { .. }))
    }
}

fn running() -> Value {
    json!({"phase": "Running", "containerStatuses": [{"name": "worker", "state": {"running": {}}}]})
}

fn ended(code: i32) -> Value {
    let state = json!({"terminated": {"exitCode": code}});
    json!({"phase": "Failed", "containerStatuses": [{"name": "worker", "state": state}]})
}

/// Starts a gang without faults. How often its workers were looked at.
fn looks_of_a_start(workers: u32) -> u64 {
    let mut cluster = Cluster::new(workers.div_ceil(8), 1);
    cluster.start(gang(workers, workers.div_ceil(8)));
    while cluster.answer_some() || cluster.hear() || cluster.run_some() {}
    assert!(cluster.has_started(), "{:?}", cluster.reports);
    cluster.kube.examined
}

#[test]
fn the_start_of_a_gang_looks_at_each_worker_a_few_times() {
    for workers in [50, 400] {
        let looks = looks_of_a_start(workers);
        // Each event of a worker, about eight, and the whole gang at each of about ten turns.
        assert!(looks <= u64::from(workers) * 24, "{looks} looks for {workers} workers");
    }
}

#[test]
fn an_event_of_a_node_looks_at_the_workers_there() {
    let mut cluster = Cluster::new(50, 1);
    cluster.start(gang(400, 50));
    while cluster.answer_some() || cluster.hear() || cluster.run_some() {}
    let before = cluster.kube.examined;
    cluster.flip_a_node(50);
    while cluster.hear() {}
    assert_eq!(cluster.kube.examined - before, 8);
}

#[test]
fn what_has_changed_is_all_that_a_look_at_whole_gangs_finds() {
    for seed in 0..60 {
        let (workers, nodes) = (12, 4);
        let mut cluster = Cluster::new(nodes, seed);
        cluster.compares = true;
        cluster.start(gang(workers, nodes));
        let mut ended_by_itself = false;
        for turn in 0..600 {
            match cluster.below(8) {
                0..=3 => _ = cluster.answer_some(),
                4 | 5 => _ = cluster.hear(),
                6 => _ = cluster.run_some(),
                _ if turn < 300 => cluster.flip_a_node(4),
                _ => cluster.all_nodes_are_ready(4),
            }
            // In every second run a worker fails, where it works.
            if seed % 2 == 0 && !ended_by_itself && cluster.has_started() {
                let worker = cluster.objects.keys().find(|(resource, _)| *resource == Resource::Pods).cloned();
                let (resource, name) = worker.expect("a pod");
                cluster.edit(resource, &name, |json| json["status"] = ended(3));
                ended_by_itself = true;
            }
        }
        while cluster.answer_some() || cluster.hear() || cluster.run_some() {}
        assert!(cluster.has_started(), "seed {seed}: {:?}", cluster.reports);
        if !ended_by_itself {
            let run = gang(workers, nodes).run();
            cluster.kube.stop(run, cluster.now + Span::secs(30));
            cluster.poll();
            while cluster.answer_some() || cluster.hear() || cluster.run_some() {}
        }
        let over = cluster.reported(|event| matches!(event, Event::RunFailed { .. } | Event::RunStopped { .. }));
        assert!(over, "seed {seed}: {:?}", cluster.reports);
        let view = EngineView { runs: BTreeMap::new(), ..cluster.kube.view.clone().unwrap_or_default() };
        cluster.kube.handle_state(view);
        cluster.poll();
        while cluster.answer_some() || cluster.hear() || cluster.run_some() {}
        // The pod that has failed stays for its log.
        cluster.now = cluster.now + Span::mins(61);
        cluster.poll();
        for _ in 0..200 {
            _ = cluster.answer_some() || cluster.hear() || cluster.run_some();
        }
        assert!(cluster.kube.is_idle(), "seed {seed}: {:?}", cluster.kube.gangs);
        assert!(cluster.kube.workers_on.is_empty(), "seed {seed}: {:?}", cluster.kube.workers_on);
    }
}

/// In which minute a gang is given up whose images are there and whose container does not start. `timeouts`: what the policy says, each from a
/// minute on.
fn given_up_in(timeouts: &[(u64, Span)]) -> Option<u64> {
    let mut cluster = Cluster::new(1, 1);
    cluster.start(gang(1, 1));
    while cluster.answer_some() || cluster.hear() {}
    let pod = cluster.objects.keys().find(|(resource, _)| *resource == Resource::Pods).cloned();
    let (resource, name) = pod.expect("a pod");
    let state = json!({"waiting": {"reason": "CreateContainerConfigError"}});
    let status = json!({"phase": "Pending", "containerStatuses": [{"name": "worker", "state": state}]});
    cluster.edit(resource, &name, |json| json["status"] = status);
    let begin = cluster.now;
    for minute in 0..60 {
        cluster.now = begin + Span::mins(minute);
        for (_, timeout) in timeouts.iter().filter(|(from, _)| *from == minute) {
            let known = cluster.kube.view.clone().unwrap_or_default();
            cluster.kube.handle_state(EngineView { start_timeout: Some(*timeout), ..known });
        }
        cluster.poll();
        while cluster.answer_some() || cluster.hear() {}
        if cluster.reports.iter().any(|report| matches!(report, KubeReport::Refused { .. })) {
            return Some(minute);
        }
    }
    None
}

#[test]
fn a_gang_has_as_long_to_start_as_the_policy_in_force_says() {
    let mins = Span::mins;
    assert_eq!(given_up_in(&[]), Some(10), "without a policy");
    assert_eq!(given_up_in(&[(0, mins(30))]), Some(30));
    assert_eq!(given_up_in(&[(0, mins(5))]), Some(5));
    // The policy changes while it starts.
    assert_eq!(given_up_in(&[(0, mins(5)), (4, mins(30))]), Some(30));
    assert_eq!(given_up_in(&[(0, mins(30)), (12, mins(11))]), Some(12));
}
