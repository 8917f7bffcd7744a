//! The call of a task that is due. `None`: it is not needed any more.

use super::KubeMachine;
use super::agenda::{PodKey, Task};
use super::drains::NodePage;
use super::gang::{Gang, GangObject, Worker};
use super::life::Life;
use crate::adoption::LABEL_QUEUE;
use crate::api_call::{KubeCall, ObjectSelector, Resource};
use crate::names::{ANNOTATION_BARRIER, ANNOTATION_BOOT, BARRIER_OPEN, FINALIZER, RunId, WorkerId, journal_selector};
use crate::request::GangRequest;
use forebay_kernel::units::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;

impl KubeMachine {
    pub(super) fn call_of(&mut self, task: &Task, now: Timestamp) -> Option<KubeCall> {
        match task {
            Task::List(resource) => Some(self.listings.list_call(*resource, &self.journal)),
            Task::Watch(resource) => self.listings.watch_call(*resource, &self.journal),
            Task::DeletePod(key) => self.delete_call(key, now),
            Task::OpenBarrier(run) => self.open_barrier_call(*run),
            Task::TellWorker(id) => self.tell_call(*id),
            Task::Bind(id) => self.bind_call(*id),
            Task::Create(id) => self.create_call(*id),
            Task::CreateObject(run, resource) => self.create_object_call(*run, *resource),
            Task::Read(id) => self.read_call(*id),
            Task::ReadObject(run, resource) => {
                let (namespace, name) = self.object_name(*run)?;
                Some(KubeCall::Get { resource: *resource, namespace: Some(namespace), name })
            }
            Task::ReadNamespace(run) => {
                let name = self.gangs.get(run)?.namespace.clone();
                Some(KubeCall::Get { resource: Resource::Namespaces, namespace: None, name })
            }
            Task::ReadNode(id) => self.read_node_call(*id),
            Task::Unfinalize(key) => self.unfinalize_call(key),
            Task::DeleteObject(run, resource) => {
                let (namespace, name) = self.object_name(*run)?;
                let GangObject::Exists { uid } = self.gangs.get(run)?.objects.get(resource)? else { return None };
                let uid = Some(uid.clone());
                Some(KubeCall::Delete { resource: *resource, namespace, name, uid, grace_seconds: None })
            }
            Task::Cordon(instance) => {
                let name = self.node_of.get(instance)?.clone();
                let uid = self.nodes.get(&name)?.metadata.uid.clone();
                let body = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": uid}, "spec": {"unschedulable": true}});
                Some(KubeCall::Apply { resource: Resource::Nodes, namespace: None, name, body: Box::new(body) })
            }
            Task::NodePods(instance) => {
                let NodePage { node, continue_token } = self.drains.get(instance)?.page()?;
                Some(KubeCall::List {
                    resource: Resource::Pods,
                    namespace: None,
                    selector: ObjectSelector::OnNode(node),
                    continue_token,
                })
            }
            Task::Evict(instance, key) => self.evict_call(instance, key),
            Task::Taints(node) => self.taints_call(node),
            Task::Warnings(id) => self.warnings_call(*id),
            Task::Partition(name) => self.partition_call(name),
            Task::Adopt(uid) => self.adopt_call(uid),
            Task::AdoptedPods(run) => self.adopted_pods_call(*run),
            Task::Tell(number) => self.event_call(*number),
            Task::LabelNode(name) => self.label_node_call(name),
            Task::Discard(key) => self.discard_call(key),
        }
    }

    /// A gang that may still start.
    fn starting(&self, run: RunId) -> Option<(&Gang, &GangRequest)> {
        let gang = self.gangs.get(&run)?;
        self.run_view(run)?;
        let request = gang.request.as_deref()?;
        (gang.verdict.is_none() && !gang.released).then_some((gang, request))
    }

    fn create_call(&self, id: WorkerId) -> Option<KubeCall> {
        let (gang, request) = self.starting(id.run)?;
        let worker = gang.workers.get(&id.worker)?;
        if self.life(id.run, gang, worker) != Life::Absent {
            return None;
        }
        let body = Box::new(request.pod_body(id.worker)?);
        Some(KubeCall::Create { resource: Resource::Pods, namespace: request.namespace.clone(), body })
    }

    fn read_call(&self, id: WorkerId) -> Option<KubeCall> {
        let gang = self.gangs.get(&id.run)?;
        let known = gang.workers.get(&id.worker)?.pod.clone();
        let requested =
            || Some(PodKey { namespace: gang.namespace.clone(), name: gang.request.as_ref()?.pod_name(id.worker) });
        let key = known.or_else(requested)?;
        Some(KubeCall::Get { resource: Resource::Pods, namespace: Some(key.namespace), name: key.name })
    }

    /// `None`: it is proven by now what became of the worker, or its node is gone.
    fn read_node_call(&self, id: WorkerId) -> Option<KubeCall> {
        let gang = self.gangs.get(&id.run)?;
        let worker = gang.workers.get(&id.worker)?;
        if self.life(id.run, gang, worker) != Life::Unproven {
            return None;
        }
        let name = self.node_of.get(worker.instance.as_ref()?)?.clone();
        Some(KubeCall::Get { resource: Resource::Nodes, namespace: None, name })
    }

    fn create_object_call(&self, run: RunId, resource: Resource) -> Option<KubeCall> {
        let (gang, request) = self.starting(run)?;
        if gang.has(resource) {
            return None;
        }
        let namespace = request.namespace.clone();
        if resource == Resource::Secrets {
            let GangObject::Exists { uid } = gang.objects.get(&Resource::Services)? else { return None };
            let body = Box::new(request.token_body(gang.token.as_ref()?, uid));
            return Some(KubeCall::CreateSecret { namespace, body });
        }
        let body = if resource == Resource::Services { request.service_body() } else { request.hosts_body() };
        Some(KubeCall::Create { resource, namespace, body: Box::new(body) })
    }

    fn bind_call(&mut self, id: WorkerId) -> Option<KubeCall> {
        let (gang, _) = self.starting(id.run)?;
        let worker = gang.workers.get(&id.worker)?;
        if self.life(id.run, gang, worker) != Life::Unbound {
            return None;
        }
        let node = self.node_to_bind(worker.instance.as_deref())?;
        let (name, boot) = (node.metadata.name.clone(), node.status.node_info.boot_id.clone());
        let (key, uid) = self.pod_of(worker)?;
        let annotations = BTreeMap::from([(ANNOTATION_BOOT.to_owned(), boot)]);
        let call = KubeCall::Bind { namespace: key.namespace, pod: key.name, uid, node: name, annotations };
        if let Some(worker) = self.worker(id) {
            worker.bind_sent = true;
        }
        Some(call)
    }

    fn open_barrier_call(&self, run: RunId) -> Option<KubeCall> {
        let (gang, request) = self.starting(run)?;
        // Nobody is told to go before the last one is bound.
        let bound = |worker: &Worker| matches!(self.life(run, gang, worker), Life::Bound | Life::Working);
        let GangObject::Exists { uid } = gang.objects.get(&Resource::Services)? else { return None };
        if !gang.workers.values().all(|worker| bound(worker) && !self.is_deleting(worker)) {
            return None;
        }
        let metadata = json!({"name": request.service, "namespace": request.namespace, "uid": uid,
            "annotations": {ANNOTATION_BARRIER: BARRIER_OPEN}});
        let body = Box::new(json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata}));
        let (namespace, name) = (Some(request.namespace.clone()), request.service.clone());
        Some(KubeCall::Apply { resource: Resource::Services, namespace, name, body })
    }

    fn tell_call(&self, id: WorkerId) -> Option<KubeCall> {
        let gang = self.gangs.get(&id.run).filter(|gang| gang.released && gang.verdict.is_none())?;
        self.run_view(id.run)?;
        let (key, uid) = self.pod_of(gang.workers.get(&id.worker)?)?;
        if self.pods.get(&key)?.metadata.annotation(ANNOTATION_BARRIER).is_some() {
            return None;
        }
        // One for each pod: a patch costs the API server a fraction of what an apply does.
        let body = Box::new(json!({"metadata": {"uid": uid, "annotations": {ANNOTATION_BARRIER: BARRIER_OPEN}}}));
        Some(KubeCall::Merge { resource: Resource::Pods, namespace: Some(key.namespace), name: key.name, body })
    }

    fn delete_call(&self, key: &PodKey, now: Timestamp) -> Option<KubeCall> {
        let pod = self.pods.get(key)?;
        let id = self.owner(&pod.metadata)?;
        let worker = self.gangs.get(&id.run).and_then(|gang| gang.workers.get(&id.worker));
        let by = worker.and_then(|worker| worker.delete_by);
        let wanted = by.is_some() || self.run_view(id.run).is_none();
        if !wanted {
            return None;
        }
        // Never 0: the API server would delete the pod without its kubelet's word.
        let seconds = by.map_or(self.settings.default_grace.0 / 1000, |by| by.since(now).0 / 1000).max(1);
        Some(KubeCall::Delete {
            resource: Resource::Pods,
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            uid: Some(pod.metadata.uid.clone()),
            grace_seconds: Some(seconds),
        })
    }

    fn unfinalize_call(&self, key: &PodKey) -> Option<KubeCall> {
        let metadata = &self.pods.get(key).or_else(|| self.lost_pod(key)).or_else(|| self.copied_pod(key))?.metadata;
        let others: Vec<&String> = metadata.finalizers.iter().filter(|name| *name != FINALIZER).collect();
        if others.len() == metadata.finalizers.len() {
            return None;
        }
        let metadata: Value =
            json!({"uid": metadata.uid, "resourceVersion": metadata.resource_version, "finalizers": others});
        Some(KubeCall::Merge {
            resource: Resource::Pods,
            namespace: Some(key.namespace.clone()),
            name: key.name.clone(),
            body: Box::new(json!({ "metadata": metadata })),
        })
    }

    /// The pod of a worker: its key and uid.
    fn pod_of(&self, worker: &Worker) -> Option<(PodKey, String)> {
        let key = worker.pod.clone()?;
        let uid = self.pods.get(&key)?.metadata.uid.clone();
        Some((key, uid))
    }

    /// The namespace and name of a gang's Service and ConfigMap.
    fn object_name(&self, run: RunId) -> Option<(String, String)> {
        let gang = self.gangs.get(&run)?;
        Some((gang.namespace.clone(), gang.service.clone()?))
    }
}

/// Which pods are listed and watched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum PodScope {
    /// Those of the journal's gangs.
    #[default]
    Ours,
    /// Those of others too: they hold a part of owned nodes.
    All,
}

/// The selector of what is listed and watched of a kind.
pub(super) fn selector(resource: Resource, journal: &str, scope: PodScope) -> ObjectSelector {
    match resource {
        Resource::Pods if scope == PodScope::All => ObjectSelector::All,
        Resource::Nodes | Resource::Namespaces | Resource::Events | Resource::DaemonSets | Resource::PodEvents => {
            ObjectSelector::All
        }
        Resource::Jobs | Resource::JobSets => ObjectSelector::Labels(LABEL_QUEUE.to_owned()),
        Resource::Pods | Resource::Services | Resource::ConfigMaps | Resource::Secrets => {
            ObjectSelector::Labels(journal_selector(journal))
        }
    }
}
