//! What a response means for its task. A failure that may pass is tried again after a growing delay; every other one has its arm.

use super::agenda::{PodKey, Task};
use super::eviction::is_budget;
use super::gang::{GangObject, NamespaceState, Verdict};
use super::{KubeMachine, KubeReport};
use crate::api_call::{KubeCallId, KubeObject, KubeResponse, Resource};
use crate::kube_error::{KubeError, KubeErrorClass};
use crate::names::{ANNOTATION_EFFECT, RunId, WorkerId};
use crate::objects::KubePod;
use forebay_kernel::units::{Span, Timestamp};

/// After this many failures in a row it is reported that something fails.
const REPORT_AFTER: u32 = 5;
/// What the API server denies an operator may have to allow: it is tried again so seldom.
pub(super) const DENIED_AGAIN: Span = Span::secs(30);
/// A Secret whose Service was deleted is collected within this time. What exists under its name afterwards was created since.
const COLLECTED_WITHIN: Span = Span::secs(60);
/// While it is not collected, another one is asked for so often.
const COLLECTED_AGAIN: Span = Span::secs(2);
/// A gang is refused for want of a role only when it has been missing for so long: an API server that has just started has not read its roles yet.
const ROLE_PATIENCE: Span = Span::secs(60);

impl KubeMachine {
    /// Takes the response to a call.
    pub fn handle_response(&mut self, call: KubeCallId, response: KubeResponse, now: Timestamp) {
        let Some(task) = self.running.remove(&call) else { return };
        let class = task.rate();
        match response {
            KubeResponse::Refused(error) if error.class.is_transient() && !is_budget(&task, &error) => {
                // One webhook that fails with 500 is no reason to call for nothing else.
                if error.class != KubeErrorClass::Server || error.code != 500 {
                    self.rates.failed(class, now, &error);
                }
                self.failed(&task, &error, now);
            }
            KubeResponse::Refused(error) if self.may_get_its_role(&task, &error, now) => {
                self.failed(&task, &error, now)
            }
            response => {
                self.rates.answered(class);
                self.agenda.finish(&task);
                if !matches!(response, KubeResponse::Refused(_)) {
                    self.no_role_since.remove(task.operation());
                }
                if let Task::List(resource) = &task {
                    self.listings.note_response(*resource, &response);
                }
                if !self.still_denied(&task, &response) {
                    self.recovered(task.operation());
                }
                self.answered(task, response, now);
            }
        }
    }

    /// Whether an operation is denied for the reason for which it was reported to fail. Lists are one operation, in all namespaces.
    fn still_denied(&self, task: &Task, response: &KubeResponse) -> bool {
        if matches!(task, Task::List(_)) && self.listings.are_denied() {
            return true;
        }
        let KubeResponse::Refused(error) = response else { return false };
        error.class == KubeErrorClass::Denied && self.failures.get(task.operation()) == Some(&error.reason)
    }

    /// An operation works again, if it was reported to fail.
    pub(super) fn recovered(&mut self, operation: &'static str) {
        if self.failures.remove(operation).is_some() {
            self.reports.push(KubeReport::Recovered { operation });
        }
    }

    /// Whether what no role allows to a gang may be allowed in a moment.
    fn may_get_its_role(&mut self, task: &Task, error: &KubeError, now: Timestamp) -> bool {
        let missing = task.is_of_gang() && error.lacks_role();
        if !missing {
            self.no_role_since.remove(task.operation());
        }
        missing && now.since(*self.no_role_since.entry(task.operation()).or_insert(now)) < ROLE_PATIENCE
    }

    /// Counts all running calls as lost, after their driver has lost track of them.
    pub fn lose_running_calls(&mut self, now: Timestamp) {
        let calls: Vec<KubeCallId> = self.running.keys().copied().collect();
        for call in calls {
            let error = KubeError::no_response("its call ended without a response");
            self.handle_response(call, KubeResponse::Refused(error), now);
        }
    }

    /// The call may have taken effect. It is made again, if it is still needed then.
    fn failed(&mut self, task: &Task, error: &KubeError, now: Timestamp) {
        let failures = self.agenda.failed(task);
        match task {
            Task::Create(id) => {
                if let Some(worker) = self.worker(*id) {
                    worker.create_unknown = true;
                }
                self.changed.insert_worker(*id);
            }
            Task::CreateObject(run, resource) => {
                if let Some(gang) = self.gangs.get_mut(run) {
                    gang.objects.entry(*resource).or_insert(GangObject::Unknown);
                }
                self.changed.insert(*run);
            }
            _ => {}
        }
        self.report_failure(task, failures, error);
        let delay = self.rates.delay_after(failures, error);
        self.agenda.plan(task.clone(), now + delay);
    }

    /// Reports what has failed for long, once for each reason.
    pub(super) fn report_failure(&mut self, task: &Task, failures: u32, error: &KubeError) {
        let operation = task.operation();
        let known = self.failures.get(operation).is_some_and(|reason| *reason == error.reason);
        let denied = error.class == KubeErrorClass::Denied;
        if !known && (denied || failures + 1 >= REPORT_AFTER) {
            self.failures.insert(operation, error.reason.clone());
            self.reports.push(KubeReport::Failing { operation, error: error.clone() });
        }
    }

    fn answered(&mut self, task: Task, response: KubeResponse, now: Timestamp) {
        match task {
            Task::List(resource) => self.page(resource, response, now),
            Task::Watch(_) => {}
            Task::Create(id) => self.created(id, response, now),
            Task::CreateObject(run, resource) => self.object_created(run, resource, response, now),
            Task::Read(id) => self.read(id, response, now),
            Task::ReadObject(run, resource) => self.object_read(run, resource, response, now),
            Task::ReadNamespace(run) => self.namespace_read(run, &response),
            Task::ReadNode(id) => self.node_read(id, response, now),
            Task::Bind(id) => self.bound(id, response, now),
            Task::OpenBarrier(run) => self.barrier_opened(run, response, now),
            Task::TellWorker(id) => self.changed_pod(id, response, now),
            Task::DeletePod(key) => self.pod_deleted(&key, response, now),
            Task::Unfinalize(key) => self.unfinalized(&key, response, now),
            Task::DeleteObject(run, resource) => self.object_deleted(run, resource, response, now),
            Task::Cordon(instance) => self.node_cordoned(instance, response, now),
            Task::NodePods(instance) => self.node_pods_page(&instance, response, now),
            Task::Evict(instance, key) => self.evicted(&instance, &key, response),
            Task::Taints(name) => self.tainted(name, response, now),
            Task::Warnings(id) => self.warned(id, response, now),
            Task::Discard(key) => self.discarded(key, response, now),
            Task::Partition(name) => self.partitioned(name, response, now),
            Task::Adopt(uid) => self.adopt_answered(&uid, response, now),
            Task::AdoptedPods(run) => self.adopted_pods_page(run, response, now),
            Task::Tell(number) => self.told(number, &response),
            Task::LabelNode(name) => self.node_labelled(name, response, now),
        }
    }

    /// The API server denies something to a gang that starts or runs.
    fn deny(&mut self, run: RunId, error: &KubeError, now: Timestamp) {
        let Some(mut gang) = self.gangs.remove(&run) else { return };
        if error.message.contains("being terminated") && gang.verdict.is_none() {
            gang.namespace_state = NamespaceState::Asked;
            gang.end(Verdict::Deleted { exit_code: 0 });
            self.reports.push(KubeReport::Refused { run, words: error.to_string() });
            self.agenda.plan(Task::ReadNamespace(run), now);
        } else {
            let verdict = if error.is_full_quota() { Verdict::NoQuota } else { Verdict::Refused };
            self.refuse_as(verdict, run, &mut gang, refusal(error));
        }
        self.gangs.insert(run, gang);
        self.changed.insert(run);
    }

    fn created(&mut self, id: WorkerId, response: KubeResponse, now: Timestamp) {
        self.changed.insert_worker(id);
        match response {
            KubeResponse::Object(object) => {
                if let KubeObject::Pod(pod) = *object {
                    if self.owner(&pod.metadata) != Some(id) {
                        return self.created_unowned(id, &pod, now);
                    }
                    self.compare_requests(id, &pod);
                    self.see_pod(pod);
                }
            }
            KubeResponse::Refused(error) if refuses_creation(&error) => {
                // An earlier call may have created it: the end of the gang finds out.
                self.deny(id.run, &error, now);
            }
            // What it is counted in has changed meanwhile, such as a quota: at once it might again.
            KubeResponse::Refused(error) if error.class == KubeErrorClass::Conflict => {
                self.agenda.plan(Task::Read(id), now + self.rates.delay(0));
            }
            // It exists, or nothing is known of it: it is read.
            _ => self.agenda.plan(Task::Read(id), now),
        }
    }

    /// A worker's pod was read: what exists under its name is ours only if it is of the same effect.
    fn read(&mut self, id: WorkerId, response: KubeResponse, now: Timestamp) {
        self.changed.insert_worker(id);
        match response {
            KubeResponse::Object(object) => {
                if let KubeObject::Pod(pod) = *object {
                    self.pod_read(id, pod);
                }
            }
            KubeResponse::Refused(error) if error.class == KubeErrorClass::NotFound => {
                let key = self.worker(id).and_then(|worker| {
                    worker.create_unknown = false;
                    worker.pod.clone()
                });
                if let Some(key) = key {
                    self.forget_pod(&key, None);
                }
            }
            KubeResponse::Refused(error) => {
                self.report_failure(&Task::Read(id), 0, &error);
                self.agenda.plan(Task::Read(id), now + DENIED_AGAIN);
            }
            _ => self.agenda.plan(Task::Read(id), now + self.rates.delay(0)),
        }
    }

    fn pod_read(&mut self, id: WorkerId, pod: KubePod) {
        let known = self.pods.get(&PodKey::of(&pod.metadata));
        if known.is_some_and(|known| known.metadata.uid != pod.metadata.uid) {
            // The worker's pod is gone, and somebody else has made another one of its name.
            return self.see_pod(pod);
        }
        let effect =
            self.gangs.get(&id.run).and_then(|gang| gang.request.as_ref()).map(|request| request.effect.clone());
        let agrees = effect.is_none_or(|effect| pod.metadata.annotation(ANNOTATION_EFFECT) == Some(effect.as_str()));
        if !agrees || self.pod_owner(&pod.metadata) != Some(id) {
            let words =
                format!("AlreadyExists: pods \"{}\" already exists, and is not of this attempt", pod.metadata.name);
            if let Some(mut gang) = self.gangs.remove(&id.run) {
                if let Some(worker) = gang.workers.get_mut(&id.worker) {
                    worker.create_unknown = false;
                }
                self.refuse(id.run, &mut gang, words);
                self.gangs.insert(id.run, gang);
            }
            return;
        }
        let unbound = pod.spec.node_name.is_none();
        self.see_pod(pod);
        if let Some(worker) = self.worker(id) {
            let conflict = worker.bind_conflict.take();
            if unbound && !worker.bind_accepted {
                worker.bind_refused = conflict;
            }
        }
    }

    fn bound(&mut self, id: WorkerId, response: KubeResponse, now: Timestamp) {
        self.changed.insert_worker(id);
        match response {
            KubeResponse::Refused(error) => {
                if let Some(worker) = self.worker(id) {
                    worker.bind_conflict = Some(error.to_string());
                }
                // An earlier call may have bound it: the pod says so.
                self.agenda.plan(Task::Read(id), now);
            }
            _ => {
                if let Some(worker) = self.worker(id) {
                    worker.bind_accepted = true;
                }
            }
        }
    }

    fn barrier_opened(&mut self, run: RunId, response: KubeResponse, now: Timestamp) {
        self.changed.insert(run);
        let Some(gang) = self.gangs.get_mut(&run) else { return };
        match response {
            KubeResponse::Refused(error) if error.class == KubeErrorClass::Denied => {
                self.deny(run, &error, now);
            }
            // Somebody deleted the Service: it is created again, and the Secret that goes with it too.
            KubeResponse::Refused(error) if error.class == KubeErrorClass::NotFound => {
                gang.objects.remove(&Resource::Services);
                gang.objects.remove(&Resource::Secrets);
                gang.secret_lost_at = Some(now);
            }
            // It is another than was known: whether it is ours is found out as with one that is there when it is to be created.
            KubeResponse::Refused(_) => {
                gang.objects.remove(&Resource::Services);
            }
            _ => gang.released = true,
        }
    }

    /// A change to a worker's pod was made, or the pod is not as it was supposed to be.
    fn changed_pod(&mut self, id: WorkerId, response: KubeResponse, now: Timestamp) {
        self.changed.insert_worker(id);
        match response {
            KubeResponse::Object(object) => {
                if let KubeObject::Pod(pod) = *object {
                    self.see_pod(pod);
                }
            }
            KubeResponse::Refused(error) if error.class == KubeErrorClass::Denied => self.deny(id.run, &error, now),
            KubeResponse::Refused(_) => self.agenda.plan(Task::Read(id), now),
            _ => {}
        }
    }

    fn pod_deleted(&mut self, key: &PodKey, response: KubeResponse, now: Timestamp) {
        let Some(id) = self.pods.get(key).and_then(|pod| self.owner(&pod.metadata)) else { return };
        self.changed.insert_worker(id);
        match response {
            KubeResponse::Refused(error) if error.class == KubeErrorClass::Denied => {
                self.report_failure(&Task::DeletePod(key.clone()), 0, &error);
                self.agenda.plan(Task::DeletePod(key.clone()), now + DENIED_AGAIN);
            }
            KubeResponse::Refused(_) => self.agenda.plan(Task::Read(id), now),
            response => {
                if let Some(worker) = self.worker(id) {
                    worker.deleted_by = Some(worker.delete_by.unwrap_or(now));
                }
                if let KubeResponse::Object(object) = response
                    && let KubeObject::Pod(pod) = *object
                {
                    self.see_pod(pod);
                }
            }
        }
    }

    fn unfinalized(&mut self, key: &PodKey, response: KubeResponse, now: Timestamp) {
        if let KubeResponse::Refused(error) = &response
            && error.class == KubeErrorClass::Denied
        {
            self.report_failure(&Task::Unfinalize(key.clone()), 0, error);
            return self.agenda.plan(Task::Unfinalize(key.clone()), now + DENIED_AGAIN);
        }
        // What a lost pod or a copy is now the watch says.
        let Some(id) = self.pods.get(key).and_then(|pod| self.owner(&pod.metadata)) else { return };
        self.changed.insert_worker(id);
        match response {
            // It has changed since, or is gone.
            KubeResponse::Refused(_) => self.agenda.plan(Task::Read(id), now),
            KubeResponse::Object(object) => {
                if let KubeObject::Pod(pod) = *object {
                    let goes = pod.metadata.is_deleting() && pod.metadata.finalizers.is_empty();
                    self.see_pod(pod);
                    // A pod that is deleted goes with its last finalizer; the watch says so, and so does a read.
                    if goes {
                        self.agenda.plan(Task::Read(id), now);
                    }
                }
            }
            _ => self.agenda.plan(Task::Read(id), now),
        }
    }

    fn object_created(&mut self, run: RunId, resource: Resource, response: KubeResponse, now: Timestamp) {
        self.changed.insert(run);
        match response {
            KubeResponse::Object(object) => {
                if let Some(gang) = self.gangs.get_mut(&run).filter(|_| resource == Resource::Secrets) {
                    gang.secret_lost_at = None;
                }
                self.see_object(resource, object.metadata());
            }
            KubeResponse::Refused(error) if refuses_creation(&error) => self.deny(run, &error, now),
            KubeResponse::Refused(error) if error.class == KubeErrorClass::Conflict => {
                self.agenda.plan(Task::CreateObject(run, resource), now + self.rates.delay(0));
            }
            // Not read: whoever may read a Secret may read all of them. Its name has the hash of our decision, so it is of an earlier call.
            KubeResponse::Refused(error) if resource == Resource::Secrets && error.class == KubeErrorClass::Exists => {
                let Some(gang) = self.gangs.get_mut(&run) else { return };
                if gang.secret_lost_at.is_some_and(|lost| now.since(lost) < COLLECTED_WITHIN) {
                    // It may be the one that goes with the Service that was deleted.
                    return self.agenda.plan(Task::CreateObject(run, resource), now + COLLECTED_AGAIN);
                }
                gang.secret_lost_at = None;
                gang.objects.insert(resource, GangObject::Exists { uid: String::new() });
            }
            _ if resource == Resource::Secrets => self.agenda.plan(Task::CreateObject(run, resource), now),
            _ => self.agenda.plan(Task::ReadObject(run, resource), now),
        }
    }

    /// What exists under the name of a gang's Service or ConfigMap was read: it is ours only if it is of the same effect.
    fn object_read(&mut self, run: RunId, resource: Resource, response: KubeResponse, now: Timestamp) {
        self.changed.insert(run);
        let Some(mut gang) = self.gangs.remove(&run) else { return };
        match response {
            KubeResponse::Object(object) => {
                let metadata = object.metadata().clone();
                let effect = gang.request.as_ref().map(|request| request.effect.as_str());
                let agrees = effect.is_none_or(|effect| metadata.annotation(ANNOTATION_EFFECT) == Some(effect));
                if agrees && self.owner(&metadata).is_some_and(|id| id.run == run) {
                    self.gangs.insert(run, gang);
                    return self.see_object(resource, &metadata);
                }
                let words = format!("AlreadyExists: \"{}\" already exists, and is not of this attempt", metadata.name);
                self.refuse(run, &mut gang, words);
            }
            KubeResponse::Refused(error) if error.class != KubeErrorClass::NotFound => {
                let task = Task::ReadObject(run, resource);
                self.report_failure(&task, 0, &error);
                // What a start needs is asked for again. What is left of an attempt that ends is found by a list.
                if gang.verdict.is_none() && self.run_view(run).is_some() {
                    self.agenda.plan(task, now + DENIED_AGAIN);
                    self.gangs.insert(run, gang);
                    return;
                }
            }
            _ => {}
        }
        gang.objects.remove(&resource);
        self.gangs.insert(run, gang);
    }

    fn object_deleted(&mut self, run: RunId, resource: Resource, response: KubeResponse, now: Timestamp) {
        self.changed.insert(run);
        match response {
            KubeResponse::Refused(error)
                if !matches!(error.class, KubeErrorClass::NotFound | KubeErrorClass::Conflict) =>
            {
                self.report_failure(&Task::DeleteObject(run, resource), 0, &error);
                self.agenda.plan(Task::DeleteObject(run, resource), now + DENIED_AGAIN);
            }
            _ => {
                if let Some(gang) = self.gangs.get_mut(&run) {
                    gang.objects.insert(resource, GangObject::Gone);
                }
            }
        }
    }

    fn namespace_read(&mut self, run: RunId, response: &KubeResponse) {
        self.changed.insert(run);
        let ending = match response {
            KubeResponse::Object(object) => object.metadata().is_deleting(),
            KubeResponse::Refused(error) => error.class == KubeErrorClass::NotFound,
            _ => false,
        };
        if let Some(gang) = self.gangs.get_mut(&run) {
            gang.namespace_state = if ending { NamespaceState::Ending } else { NamespaceState::Active };
        }
    }

    /// What may run of a worker runs in this boot of its node.
    fn node_read(&mut self, id: WorkerId, response: KubeResponse, now: Timestamp) {
        let KubeResponse::Object(object) = response else { return };
        let KubeObject::Node(node) = *object else { return };
        let (name, boot) = (node.metadata.name.clone(), node.status.node_info.boot_id.clone());
        self.see_node(node);
        self.changed.insert_worker(id);
        // An owned node is known by its name, and may have no instance.
        let instance = self.worker(id).and_then(|worker| worker.instance.clone());
        let of_worker = instance.is_some_and(|instance| self.node_of.get(&instance) == Some(&name));
        let Some(worker) = self.worker(id).filter(|worker| worker.last_boot.is_none()) else { return };
        if of_worker && !boot.is_empty() {
            worker.last_boot = Some(boot);
        } else {
            // It does not say its boot, or is another node by now.
            self.agenda.plan(Task::ReadNode(id), now + DENIED_AGAIN);
        }
    }

    fn node_cordoned(&mut self, instance: String, response: KubeResponse, now: Timestamp) {
        match response {
            KubeResponse::Refused(error) if error.class == KubeErrorClass::Denied => {
                self.report_failure(&Task::Cordon(instance.clone()), 0, &error);
                self.agenda.plan(Task::Cordon(instance), now + DENIED_AGAIN);
            }
            // The node is not the one that was known: the watch says what became of it.
            KubeResponse::Refused(_) => self.agenda.plan(Task::List(Resource::Nodes), now),
            response => {
                if let KubeResponse::Object(object) = response
                    && let KubeObject::Node(node) = *object
                {
                    self.see_node(node);
                }
                self.cordoned(&instance, now);
            }
        }
    }

    fn tainted(&mut self, name: String, response: KubeResponse, now: Timestamp) {
        match response {
            KubeResponse::Object(object) => {
                if let KubeObject::Node(node) = *object {
                    self.see_node(node);
                }
            }
            KubeResponse::Refused(error) => {
                let delay = if error.class == KubeErrorClass::Denied { DENIED_AGAIN } else { self.rates.delay(0) };
                self.report_failure(&Task::Taints(name.clone()), 0, &error);
                self.agenda.plan(Task::Taints(name), now + delay);
            }
            _ => {}
        }
    }
}

/// Whether the API server will not create an object, and repeating does not help: for a namespace that is not there it says `NotFound`.
fn refuses_creation(error: &KubeError) -> bool {
    matches!(error.class, KubeErrorClass::Denied | KubeErrorClass::NotFound)
}

/// Kubernetes' words, with what to do where they do not say it.
fn refusal(error: &KubeError) -> String {
    if error.class == KubeErrorClass::NotFound && error.message.starts_with("namespaces ") {
        return format!("{error}: create it, or give the queue another one under `kubernetes.namespaces`");
    }
    error.to_string()
}
