//! Pods bound a second beside kube-scheduler with the same pods, in turns; and a gang beside as many bare Bindings.
//!
//! ```text
//! Forebay          gangs are submitted   -> Services, Secrets, pods, Bindings      first pod seen .. last pod bound, by a watch
//! kube-scheduler   the same pods are created, as many calls at a time -> Bindings  first pod seen .. last pod bound, by the same watch
//! bare Bindings    pods that no scheduler knows are bound, as many calls at a time
//! ```
//!
//! `FOREBAY_NODES=1000 cargo xtask test integration kube -- throughput` has the size for which figures are asked: 5,000 pods on 1,000 nodes, three
//! turns. In its small form it holds that all are bound and prints the same figures, which say little on a busy machine.

use super::stand::{LIMIT, NAMESPACE, Stand, StandOptions};
use forebay_cluster_kube::client::{CredentialSource, KubeClient};
use forebay_cluster_kube::{KubeCall, KubeCallId, KubeObject, KubeResponse, ObjectSelector, Resource, WatchChange};
use forebay_integration::history::resident_mib;
use forebay_integration::{Server, until};
use forebay_parts::Kubernetes;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Where kube-scheduler's pods are, and those that are bound by hand.
const BESIDE: &str = "beside";
/// Calls at a time, of the controller and of what stands beside it.
const IN_FLIGHT: usize = 64;
/// The size for which figures are asked.
const FULL: u64 = 1_000;
const TURNS: usize = 3;

const POLICY: &str = "
apiVersion: forebay/v1
kind: Policy
metadata: {name: throughput}
limits: {nodes: 1, spend: 1000 USD/h}
tiers:
  idle: {priority: 0, buys: nothing}
queues:
  research: {submitters: [local], tier: idle, pools: [home]}
pools:
  home: {owned: {nodes: {example.com/team: [lab]}, price: 1.5 USD/h}}
";

const RATES: &str = "  rates: {writesPerSecond: 10000, readsPerSecond: 10000, inFlight: 64}\n";

/// A pod's namespace and uid.
type Key = (String, String);

/// When each pod was first seen, and when it was first seen bound.
type Sights = BTreeMap<Key, (Instant, Option<Instant>)>;

/// A client of its own, and a watch of all pods.
struct Beside {
    runtime: Runtime,
    client: KubeClient,
    sights: Arc<Mutex<Sights>>,
}

impl Beside {
    fn of(kubernetes: &Kubernetes) -> Beside {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let source = CredentialSource::Kubeconfig { path: kubernetes.kubeconfig(), context: None };
        let client = runtime.block_on(KubeClient::connect(&source)).expect("a client");
        let sights = Arc::new(Mutex::new(Sights::new()));
        runtime.spawn(watch(client.clone(), Arc::clone(&sights)));
        Beside { runtime, client, sights }
    }

    fn sights(&self) -> MutexGuard<'_, Sights> {
        self.sights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes all calls, as many at a time as the controller does. The uids of what they return.
    fn make(&self, calls: Vec<KubeCall>) -> Vec<String> {
        let room = Arc::new(Semaphore::new(IN_FLIGHT));
        self.runtime.block_on(async {
            let mut tasks = JoinSet::new();
            for call in calls {
                let (client, room) = (self.client.clone(), Arc::clone(&room));
                tasks.spawn(async move {
                    let _permit = room.acquire_owned().await.expect("nobody closes it");
                    match client.execute(&call).await {
                        KubeResponse::Object(object) => object.metadata().uid.clone(),
                        KubeResponse::Done => String::new(),
                        other => panic!("{call:?}: {other:?}"),
                    }
                });
            }
            tasks.join_all().await
        })
    }

    /// Waits until so many pods of a namespace are bound. How long it took from the first that was seen, and from the first that was bound.
    fn bound(&self, namespace: &str, pods: u64, mut trouble: impl FnMut() -> String) -> (Duration, Duration) {
        let mut times = None;
        until("all are bound", LIMIT * 2, || {
            let sights = self.sights();
            let of: Vec<_> = sights.iter().filter(|((of, _), _)| of == namespace).map(|(_, times)| *times).collect();
            let bound: Vec<Instant> = of.iter().filter_map(|(_, bound)| *bound).collect();
            let ends = (of.iter().map(|(seen, _)| *seen).min(), bound.iter().min(), bound.iter().max());
            if let (true, (Some(seen), Some(first), Some(last))) = (bound.len() as u64 == pods, ends) {
                times = Some((*last - seen, *last - *first));
                return Ok(());
            }
            drop(sights);
            Err(format!("{} of {pods} are bound; {}", bound.len(), trouble()))
        });
        times.expect("all are bound")
    }
}

/// Watches all pods; where a watch ends, as watches do, all are listed and watched again.
async fn watch(client: KubeClient, sights: Arc<Mutex<Sights>>) {
    let mut number = 0;
    loop {
        let Some((objects, resource_version)) = list(&client).await else {
            // The API server may be slow.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        {
            let mut sights = sights.lock().unwrap_or_else(PoisonError::into_inner);
            let there: BTreeSet<Key> = objects.iter().map(key).collect();
            sights.retain(|key, _| there.contains(key));
            objects.iter().for_each(|object| see(&mut sights, object));
        }
        number += 1;
        let (sender, mut events) = tokio::sync::mpsc::channel(1024);
        let call = KubeCall::Watch { resource: Resource::Pods, selector: ObjectSelector::All, resource_version };
        let watching = client.clone();
        tokio::spawn(async move { watching.watch(KubeCallId(number), &call, &sender).await });
        while let Some(event) = events.recv().await {
            let mut sights = sights.lock().unwrap_or_else(PoisonError::into_inner);
            match event.change {
                WatchChange::Applied(object) => see(&mut sights, &object),
                WatchChange::Deleted(object) => drop(sights.remove(&key(&object))),
                WatchChange::Bookmark { .. } => {}
                WatchChange::Ended | WatchChange::Expired | WatchChange::Failed(_) => break,
            }
        }
    }
}

/// All pods, and the resource version of the list.
async fn list(client: &KubeClient) -> Option<(Vec<KubeObject>, String)> {
    let (mut all, mut token) = (Vec::new(), None);
    loop {
        let selector = ObjectSelector::All;
        let call = KubeCall::List { resource: Resource::Pods, namespace: None, selector, continue_token: token };
        let KubeResponse::Page { objects, continue_token, resource_version } = client.execute(&call).await else {
            return None;
        };
        all.extend(objects);
        token = continue_token;
        if token.is_none() {
            return Some((all, resource_version));
        }
    }
}

fn key(object: &KubeObject) -> Key {
    let metadata = object.metadata();
    (metadata.namespace.clone().unwrap_or_default(), metadata.uid.clone())
}

fn see(sights: &mut Sights, object: &KubeObject) {
    // What the stand has of others is not counted.
    let KubeObject::Pod(pod) = object else { return };
    if pod.metadata.name == "foreign" {
        return;
    }
    let now = Instant::now();
    let (_, bound) = sights.entry(key(object)).or_insert((now, None));
    if bound.is_none() && pod.spec.node_name.is_some() {
        *bound = Some(now);
    }
}

/// CPU time and memory of a process since a moment.
struct Effort {
    pid: u32,
    ticks: u64,
}

impl Effort {
    fn of(pid: u32) -> Effort {
        Effort { pid, ticks: ticks(pid) }
    }

    fn words(&self) -> String {
        // A tick is 10 ms on Linux.
        format!("{} ms of CPU, {:.0} MiB", (ticks(self.pid) - self.ticks) * 10, resident_mib(self.pid))
    }
}

/// User and system time of a process, in ticks.
fn ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name, in parentheses, may hold anything.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().skip(11).take(2);
    fields.filter_map(|field| field.parse::<u64>().ok()).sum()
}

/// The process of a program that was started for a cluster.
fn process(program: &str, kubernetes: &Kubernetes) -> u32 {
    let folder = kubernetes.folder().to_string_lossy().into_owned();
    let numbers = std::fs::read_dir("/proc").expect("/proc").flatten();
    let mut found = numbers.filter_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let line = std::fs::read_to_string(entry.path().join("cmdline")).ok()?;
        let name = line.split('\0').next()?.rsplit('/').next()?.to_owned();
        (name == program && line.contains(&folder)).then_some(pid)
    });
    found.next().unwrap_or_else(|| panic!("{program} does not run"))
}

fn nodes(count: u64) -> String {
    let one = |number: u64| {
        json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": format!("home-{number}"), "labels": {"example.com/team": "lab", "nvidia.com/gpu.count": "8",
                "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}},
            "status": {"allocatable": {"cpu": "64", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": "8"},
                "capacity": {"cpu": "64", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": "8"}}})
    };
    json!({"apiVersion": "v1", "kind": "List", "items": (0..count).map(one).collect::<Vec<_>>()}).to_string()
}

fn gang(subject: &str, workers: u64) -> Value {
    json!({"type": "job.submitted", "source": "//test", "id": subject, "subject": subject, "data": {
        "queue": "research", "run": {"template": "train", "image": "reg/r:1", "env": {"RUN_FOR": "3600s"}},
        "gang": {"workers": workers, "each": {"gpus": 1}}}})
}

/// A pod that asks for what a worker asks for.
fn pod(name: &str, scheduler: &str) -> KubeCall {
    let body = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": BESIDE},
        "spec": {"schedulerName": scheduler, "terminationGracePeriodSeconds": 0, "restartPolicy": "Never",
            "containers": [{"name": "worker", "image": "reg/r:1", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}});
    KubeCall::Create { resource: Resource::Pods, namespace: BESIDE.to_owned(), body: Box::new(body) }
}

/// What is the same in all turns.
struct Turns<'t> {
    stand: &'t Stand,
    server: &'t Server,
    beside: Beside,
    pods: u64,
}

impl Turns<'_> {
    fn forebay(&self, name: &str, workers: u64, pods: u64) -> (Duration, Duration) {
        let (effort, api_server) = (Effort::of(self.server.pid()), self.api_server());
        let subjects: Vec<String> = (0..pods / workers).map(|number| format!("{name}-{number}")).collect();
        for some in subjects.chunks(100) {
            let gangs: Vec<Value> = some.iter().map(|subject| gang(subject, workers)).collect();
            assert_eq!(self.server.post(&Value::Array(gangs)).0, 202);
        }
        let times = self.beside.bound(NAMESPACE, pods, || {
            let log: Vec<String> = self.server.log().lines().rev().take(5).map(str::to_owned).collect();
            format!("{}; {}", self.server.get("/v1/sources").1, log.join("\n"))
        });
        println!(
            "Forebay, gangs of {workers}: {pods} pods in {:.2?}; {}; API server: {}",
            times.0,
            effort.words(),
            api_server.words()
        );
        let arguments: Vec<&str> = ["cancel"].into_iter().chain(subjects.iter().map(String::as_str)).collect();
        assert_eq!(self.server.ask(self.stand.folder.path(), &arguments).code, 0);
        self.gone(NAMESPACE);
        times
    }

    fn api_server(&self) -> Effort {
        Effort::of(process("kube-apiserver", &self.stand.kubernetes))
    }

    fn scheduler(&self, name: &str) -> Duration {
        let (effort, api_server) = (Effort::of(process("kube-scheduler", &self.stand.kubernetes)), self.api_server());
        let pods = (0..self.pods).map(|number| pod(&format!("{name}-{number}"), "default-scheduler"));
        self.beside.make(pods.collect());
        let (all, _) = self.beside.bound(BESIDE, self.pods, String::new);
        println!(
            "kube-scheduler: {} pods in {all:.2?}; {}; API server: {}",
            self.pods,
            effort.words(),
            api_server.words()
        );
        self.delete_all();
        all
    }

    /// Pods that no scheduler knows, bound by hand.
    fn bare(&self, workers: u64, nodes: u64) -> Duration {
        let names: Vec<String> = (0..workers).map(|number| format!("bare-{number}")).collect();
        let uids = self.beside.make(names.iter().map(|name| pod(name, "nobody")).collect());
        let bind = |(number, (name, uid)): (u64, (&String, String))| KubeCall::Bind {
            namespace: BESIDE.to_owned(),
            pod: name.clone(),
            uid,
            node: format!("home-{}", number % nodes),
            annotations: BTreeMap::new(),
        };
        // Created in any order, so each by its name.
        let by_name = self.uids_of(&names, uids.len());
        self.beside.make((0..).zip(names.iter().zip(by_name)).map(bind).collect());
        let (_, bindings) = self.beside.bound(BESIDE, workers, String::new);
        self.delete_all();
        bindings
    }

    fn uids_of(&self, names: &[String], most: usize) -> Vec<String> {
        let listed = self.stand.kubectl(&["get", "pods", "-n", BESIDE, "-o", "json"]);
        let listed: Value = serde_json::from_str(&listed).expect("JSON");
        let items = listed["items"].as_array().expect("items");
        assert_eq!(items.len(), most);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let uids: BTreeMap<String, String> =
            items.iter().map(|pod| (text(&pod["metadata"]["name"]), text(&pod["metadata"]["uid"]))).collect();
        names.iter().map(|name| uids[name].clone()).collect()
    }

    fn delete_all(&self) {
        let names: Vec<String> = {
            let listed = self.stand.kubectl(&["get", "pods", "-n", BESIDE, "-o", "name"]);
            listed.lines().filter_map(|line| Some(line.split_once('/')?.1.to_owned())).collect()
        };
        let delete = |name: String| KubeCall::Delete {
            resource: Resource::Pods,
            namespace: BESIDE.to_owned(),
            name,
            uid: None,
            grace_seconds: Some(0),
        };
        self.beside.make(names.into_iter().map(delete).collect());
        self.gone(BESIDE);
    }

    /// Waits until no pod is left, and what they held is seen to be free.
    fn gone(&self, namespace: &str) {
        until("all pods are gone", LIMIT * 2, || {
            let left = self.beside.sights().keys().filter(|(of, _)| of == namespace).count();
            let (_, nodes) = self.server.get("/v1/nodes?limit=1");
            if left == 0 { Ok(()) } else { Err(format!("{left} pods are left; {nodes}")) }
        });
    }
}

#[test]
fn throughput_is_near_that_of_a_scheduler_of_single_pods() {
    let count = std::env::var("FOREBAY_NODES").ok().and_then(|s| s.parse().ok()).unwrap_or(20);
    let (pods, workers) = (count * 5, if count >= FULL { 50 } else { 10 });
    let stand = Stand::with_schedulers(&StandOptions { policy: POLICY, config: RATES });
    // Looking at all pods again and again is a load of its own.
    stand.watcher.end();
    stand.kubectl(&["create", "namespace", BESIDE]);
    stand.kubectl(&["wait", "serviceaccount/default", "-n", BESIDE, "--for=create", "--timeout=60s"]);
    stand.kubernetes.apply(&nodes(count)).expect("nodes");
    let server = stand.start();
    until("the nodes are known", LIMIT, || {
        let known = server.get("/v1/summary").1["ownedNodes"].as_u64();
        if known == Some(count) { Ok(()) } else { Err(format!("{known:?} of {count}; {}", server.log())) }
    });
    let turns = Turns { stand: &stand, server: &server, beside: Beside::of(&stand.kubernetes), pods };
    let mut ratios = Vec::new();
    for turn in 0..if count >= FULL { TURNS } else { 1 } {
        let ours = turns.forebay(&format!("turn-{turn}"), workers, pods).0;
        let theirs = turns.scheduler(&format!("turn-{turn}"));
        ratios.push(theirs.as_secs_f64() / ours.as_secs_f64());
    }
    ratios.sort_by(f64::total_cmp);
    let median = ratios[ratios.len() / 2];
    println!(
        "{count} nodes, {pods} pods: Forebay binds {median:.2} times as many a second as kube-scheduler ({ratios:.2?})"
    );
    let alone = (pods / 10).max(workers);
    let bindings = turns.bare(alone, count);
    let (_, gang) = turns.forebay("alone", alone, alone);
    println!("a gang of {alone} is bound in {gang:.2?}, as many bare Bindings take {bindings:.2?}");
    if count >= FULL {
        assert!(median >= 0.8, "{ratios:?}");
        assert!(gang <= bindings * 2, "{gang:?} and {bindings:?}");
    }
}
