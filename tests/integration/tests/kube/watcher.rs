//! An independent watcher of a cluster's pods: it looks at all of them at once, as often as it can, and knows nothing of the controller.
//!
//! Never: a change in the cluster.

use forebay_cluster_kube::client::{CredentialSource, KubeClient};
use forebay_cluster_kube::objects::ContainerStatus;
use forebay_cluster_kube::{KubeCall, KubeObject, KubeResponse, ObjectSelector, Resource};
use forebay_parts::Kubernetes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Between two looks: a worker that starts too early is there for a second or more.
const PAUSE: Duration = Duration::from_millis(50);

/// What has been seen.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// How often all pods were seen at once.
    pub looks: usize,
    /// Gangs with a worker past its barrier beside one without a node.
    pub early: BTreeSet<String>,
    /// The pods of each worker whose container has started, by job and number.
    pub workers: BTreeMap<(String, u32), BTreeSet<String>>,
    /// The most workers that ran at once.
    pub most_running: usize,
}

/// Looks until it is dropped.
pub struct Watcher {
    seen: Arc<Mutex<Seen>>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    pub fn start(kubernetes: &Kubernetes) -> Watcher {
        let source = CredentialSource::Kubeconfig { path: kubernetes.kubeconfig(), context: None };
        let (seen, ended) = (Arc::new(Mutex::new(Seen::default())), Arc::new(AtomicBool::new(false)));
        let (sees, end) = (Arc::clone(&seen), Arc::clone(&ended));
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let client = KubeClient::connect(&source).await.expect("a client");
                let selector = ObjectSelector::All;
                let call = KubeCall::List { resource: Resource::Pods, namespace: None, selector, continue_token: None };
                while !end.load(Ordering::Relaxed) {
                    // The API server may be away: what is not seen then is seen later.
                    if let KubeResponse::Page { objects, continue_token: None, .. } = client.execute(&call).await {
                        sees.lock().unwrap_or_else(PoisonError::into_inner).look(&objects);
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            });
        });
        Watcher { seen, ended, thread: Some(thread) }
    }

    /// Looks no more.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    pub fn seen(&self) -> Seen {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of it has been printed.
            let _ = thread.join();
        }
    }
}

impl Seen {
    fn look(&mut self, objects: &[KubeObject]) {
        self.looks += 1;
        let mut gangs: BTreeMap<String, (usize, usize)> = BTreeMap::new();
        let mut running = 0;
        for object in objects {
            let KubeObject::Pod(pod) = object else { continue };
            let Some(worker) = pod.metadata.annotation("forebay.dev/worker") else { continue };
            let started = pod.status.container_statuses.iter().any(has_started);
            let (run, number) = worker.rsplit_once('/').expect("JOB/ATTEMPT/WORKER");
            let (job, _) = run.rsplit_once('/').expect("JOB/ATTEMPT/WORKER");
            if started {
                let key = (job.to_owned(), number.parse().expect("a number"));
                self.workers.entry(key).or_default().insert(pod.metadata.uid.clone());
                running += usize::from(pod.status.phase == "Running");
            }
            if !pod.metadata.is_deleting() {
                let (past, unbound) = gangs.entry(run.to_owned()).or_default();
                *past += usize::from(started);
                *unbound += usize::from(pod.spec.node_name.is_none());
            }
        }
        self.most_running = self.most_running.max(running);
        self.early
            .extend(gangs.into_iter().filter(|(_, (past, unbound))| *past > 0 && *unbound > 0).map(|(run, _)| run));
    }
}

fn has_started(status: &ContainerStatus) -> bool {
    status.state.running.is_some() || status.state.terminated.is_some()
}

#[test]
fn what_it_has_to_see_is_seen() {
    let pod = |worker: u32, uid: &str, node: Option<&str>, state: &str| {
        let annotations = serde_json::json!({"forebay.dev/worker": format!("job-1/1/{worker}")});
        let metadata = serde_json::json!({"name": format!("w{worker}"), "uid": uid, "annotations": annotations});
        let status =
            serde_json::json!({"phase": "Running", "containerStatuses": [{"name": "worker", "state": {state: {}}}]});
        let json =
            serde_json::json!({"metadata": metadata, "spec": {"nodeName": node, "containers": []}, "status": status});
        KubeObject::of_json(Resource::Pods, json).expect("a pod")
    };
    let mut seen = Seen::default();
    seen.look(&[pod(0, "a", Some("n"), "waiting"), pod(1, "b", None, "waiting")]);
    seen.look(&[pod(0, "a", Some("n"), "running"), pod(1, "b", Some("n"), "waiting")]);
    assert!(seen.early.is_empty());
    seen.look(&[pod(0, "a", Some("n"), "running"), pod(1, "b", None, "waiting")]);
    assert_eq!(seen.early, BTreeSet::from(["job-1/1".to_owned()]));
    seen.look(&[pod(0, "c", Some("n"), "running")]);
    assert_eq!(seen.workers[&("job-1".to_owned(), 0)].len(), 2, "a worker that ran twice");
    assert_eq!((seen.looks, seen.most_running), (4, 1));
}
