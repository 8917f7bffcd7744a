//! Our pods as they were last seen, and what that means for their workers.
//!
//! Never: a pod without our label, our journal's id, an effect that this journal knows, the namespace of its gang, and the name that we gave it.

use super::KubeMachine;
use super::KubeReport;
use super::agenda::PodKey;
use super::gang::{Gang, Vanished, Worker};
use super::life::{Death, Life, death_by_kubelet, disruption, has_started, waits_for};
use crate::adoption::LABEL_ADOPTED;
use crate::names::{
    ANNOTATION_BARRIER, ANNOTATION_BOOT, ANNOTATION_INSTANCE, ANNOTATION_WORKER, BARRIER_OPEN, RunId, WorkerId,
};
use crate::objects::{KubeNode, KubePod, ObjectMeta};
use forebay_kernel::storage::ForeignId;

impl PodKey {
    /// The key of an object.
    pub fn of(metadata: &ObjectMeta) -> PodKey {
        PodKey { namespace: metadata.namespace.clone().unwrap_or_default(), name: metadata.name.clone() }
    }
}

impl KubeMachine {
    /// Whose an object is. `None`: it is not ours.
    pub(super) fn owner(&self, metadata: &ObjectMeta) -> Option<WorkerId> {
        let ours = self.effect_means(metadata) == Some(ForeignId::Known);
        let id: WorkerId = metadata.annotation(ANNOTATION_WORKER).filter(|_| ours)?.parse().ok()?;
        self.is_at_home(id.run, metadata).then_some(id)
    }

    /// Whether an object is where the gang that it names is. Whoever may create pods in another namespace can write our labels on them, and reaches no
    /// gang with that.
    fn is_at_home(&self, run: RunId, metadata: &ObjectMeta) -> bool {
        let Some(gang) = self.gangs.get(&run) else { return true };
        let here = metadata.namespace.as_deref().unwrap_or_default();
        if let Some(request) = &gang.request {
            return request.namespace == here;
        }
        // Its queue may have got another namespace since it was started. Where one of its pods is in the queue's, it is there.
        let of_queue = self.run_view(run).is_some_and(|view| view.namespace == here);
        of_queue || gang.namespace.is_empty() || gang.namespace == here || !self.has_pods_in(gang, &gang.namespace)
    }

    fn has_pods_in(&self, gang: &Gang, namespace: &str) -> bool {
        let keys = gang.workers.values().filter_map(|worker| worker.pod.as_ref());
        keys.filter(|key| self.pods.contains_key(*key)).any(|key| key.namespace == namespace)
    }

    /// The pods of a gang are in the namespace of its queue: those elsewhere that say they are of it are not.
    fn settle_in(&mut self, run: RunId, namespace: &str) {
        let of_queue = self.run_view(run).is_some_and(|view| view.namespace == namespace);
        // Where it is already, all its pods are.
        let settles = |gang: &&mut Gang| gang.request.is_none() && gang.namespace != namespace;
        let Some(gang) = self.gangs.get_mut(&run).filter(settles) else { return };
        if !of_queue && !gang.namespace.is_empty() && gang.workers.values().any(|worker| worker.pod.is_some()) {
            return;
        }
        gang.namespace = namespace.to_owned();
        let mut strangers = Vec::new();
        for worker in gang.workers.values_mut() {
            strangers.extend(worker.pod.take_if(|key| key.namespace != namespace));
            if worker.pod.is_none() {
                worker.uid = None;
            }
        }
        if !strangers.is_empty() {
            self.changed.insert(run);
        }
        self.disown(strangers);
    }

    /// Takes a pod as it is now. An older state than the known one changes nothing.
    pub(super) fn see_pod(&mut self, pod: KubePod) {
        if pod.metadata.label(LABEL_ADOPTED).is_some() {
            return self.see_adopted_pod(pod);
        }
        let key = PodKey::of(&pod.metadata);
        if let Some(known) = self.pods.get(&key) {
            if known.metadata.version() >= pod.metadata.version() {
                return;
            }
            if known.metadata.uid != pod.metadata.uid {
                // Its name is another pod's now, so it is gone.
                self.forget_pod(&key, None);
            }
        }
        let Some(id) = self.pod_owner(&pod.metadata) else {
            self.see_lost(&pod);
            self.see_copy(&pod);
            return self.see_foreign(&pod);
        };
        self.settle_in(id.run, &key.namespace);
        let gang = self.gangs.entry(id.run).or_default();
        if gang.namespace.is_empty() {
            gang.namespace.clone_from(&key.namespace);
        }
        if gang.service.is_none() {
            gang.service.clone_from(&pod.spec.subdomain);
        }
        // On all pods of a gang only after it is on the Service. That it is open concerns all its workers: its phase is another one then.
        gang.released |= pod.metadata.annotation(ANNOTATION_BARRIER) == Some(BARRIER_OPEN);
        let worker = gang.workers.entry(id.worker).or_default();
        worker.pod = Some(key.clone());
        worker.uid = Some(pod.metadata.uid.clone());
        worker.create_unknown = false;
        if worker.instance.is_none() {
            worker.instance = pod.metadata.annotation(ANNOTATION_INSTANCE).map(str::to_owned);
        }
        if let Some(instance) = worker.instance.clone() {
            self.workers_on.entry(instance).or_default().insert(id);
        }
        let words = if has_started(&pod) { None } else { waits_for(&pod).or_else(|| worker.warning.clone()) };
        if worker.waits_for != words {
            worker.waits_for.clone_from(&words);
            self.reports.push(KubeReport::Waiting { worker: id, words });
        }
        self.pods.insert(key, pod);
        self.changed.insert_worker(id);
    }

    /// A pod does not exist any more. `last`: its last state, where that is known to be newer.
    pub(super) fn forget_pod(&mut self, key: &PodKey, last: Option<KubePod>) {
        if let Some(last) = last.as_ref().filter(|last| last.metadata.label(LABEL_ADOPTED).is_some()) {
            return self.forget_adopted_pod(key, last.clone());
        }
        let of_worker = last.as_ref().is_some_and(|last| self.pod_owner(&last.metadata).is_some());
        self.forget_foreign(key);
        self.forget_lost(key);
        self.forget_copy(key);
        if let Some(last) = last {
            let same = self.pods.get(key).is_none_or(|known| known.metadata.uid == last.metadata.uid);
            if !same {
                return;
            }
            if of_worker {
                self.see_pod(last);
            }
        }
        let Some(pod) = self.pods.remove(key) else { return };
        let Some(id) = self.owner(&pod.metadata) else { return };
        self.changed.insert_worker(id);
        let Some(gang) = self.gangs.get(&id.run) else { return };
        let Some(worker) = gang.workers.get(&id.worker).filter(|worker| worker.pod.as_ref() == Some(key)) else {
            return;
        };
        let proven = match self.life_of_pod(worker, &pod) {
            Life::Dead(death) => Some(death),
            Life::Unbound if !worker.bind_sent => Some(Death::NeverBound),
            _ => None,
        };
        if let Some(worker) = self.worker(id) {
            worker.pod = None;
            worker.vanished = Some(Vanished { proven });
        }
    }

    /// How far a worker is. An operator's word counts where nothing else proves anything, and where the node that should say so does not answer;
    /// never against a kubelet that says that it runs.
    pub(super) fn life(&self, run: RunId, gang: &Gang, worker: &Worker) -> Life {
        let life = self.life_by_proof(run, gang, worker);
        let open = match life {
            Life::Unproven => true,
            Life::Bound | Life::Working => !self.node_answers(worker),
            Life::Absent | Life::Unbound | Life::Dead(_) => false,
        };
        if worker.confirmed && open { Life::Dead(Death::Confirmed) } else { life }
    }

    /// Whether the kubelet of a worker's node reports.
    fn node_answers(&self, worker: &Worker) -> bool {
        let name = worker.instance.as_ref().and_then(|instance| self.node_of.get(instance));
        name.and_then(|name| self.nodes.get(name)).is_some_and(KubeNode::is_ready)
    }

    fn life_by_proof(&self, run: RunId, gang: &Gang, worker: &Worker) -> Life {
        if let Some(pod) = worker.pod.as_ref().and_then(|key| self.pods.get(key)) {
            return self.life_of_pod(worker, pod);
        }
        let gone = self.instance_is_gone(worker);
        if let Some(vanished) = &worker.vanished {
            return match &vanished.proven {
                Some(death) => Life::Dead(death.clone()),
                None if gone => Life::Dead(Death::InstanceGone),
                None if self.was_rebooted(worker) => Life::Dead(Death::Rebooted),
                None => Life::Unproven,
            };
        }
        // All pods exist before the barrier is open, so one that does not was there.
        let existed = gang.released || self.run_view(run).is_some_and(|view| view.stage.has_started());
        match (existed, gone) {
            (false, _) => Life::Absent,
            (true, true) => Life::Dead(Death::InstanceGone),
            (true, false) => Life::Unproven,
        }
    }

    fn life_of_pod(&self, worker: &Worker, pod: &KubePod) -> Life {
        if pod.spec.node_name.is_none() {
            // The API server binds no pod that is being deleted.
            let over = pod.metadata.is_deleting() || pod.is_terminal();
            return match (over, worker.bind_accepted) {
                (true, _) => Life::Dead(Death::NeverBound),
                (false, true) => Life::Bound,
                (false, false) => Life::Unbound,
            };
        }
        if let Some(death) = death_by_kubelet(pod) {
            return Life::Dead(death);
        }
        if self.instance_is_gone(worker) {
            return Life::Dead(Death::InstanceGone);
        }
        if pod.is_terminal() {
            // No kubelet starts it again, so another boot of its node ends what may run.
            return if self.was_rebooted(worker) { Life::Dead(Death::Rebooted) } else { Life::Unproven };
        }
        if has_started(pod) { Life::Working } else { Life::Bound }
    }

    fn instance_is_gone(&self, worker: &Worker) -> bool {
        worker.instance.as_ref().is_some_and(|instance| !self.has_claim(instance))
    }

    /// Whether the node of a worker was started again since its pod could not be started any more.
    fn was_rebooted(&self, worker: &Worker) -> bool {
        let Some(boot) = &worker.last_boot else { return false };
        let node = worker.instance.as_ref().and_then(|instance| self.nodes.get(self.node_of.get(instance)?));
        node.is_some_and(|node| !node.status.node_info.boot_id.is_empty() && node.status.node_info.boot_id != *boot)
    }

    /// Whether the node of a worker was started again since its pod was bound.
    pub(super) fn outlived_boot(&self, worker: &Worker) -> bool {
        let pod = worker.pod.as_ref().and_then(|key| self.pods.get(key));
        let bound_in = pod.and_then(|pod| pod.metadata.annotation(ANNOTATION_BOOT)).unwrap_or_default();
        let node = worker.instance.as_ref().and_then(|instance| self.nodes.get(self.node_of.get(instance)?));
        let boot = node.map(|node| node.status.node_info.boot_id.as_str()).unwrap_or_default();
        !bound_in.is_empty() && !boot.is_empty() && bound_in != boot
    }

    /// Whether the pod of a worker is being deleted.
    pub(super) fn is_deleting(&self, worker: &Worker) -> bool {
        worker.pod.as_ref().and_then(|key| self.pods.get(key)).is_some_and(|pod| pod.metadata.is_deleting())
    }

    /// For what reason outside of it the pod of a worker is to end. `None`: for none that Kubernetes tells.
    pub(super) fn disruption_of(&self, worker: &Worker) -> Option<String> {
        disruption(self.pods.get(worker.pod.as_ref()?)?)
    }

    /// Whether the pod of a worker was deleted before its containers had ended: how they end is the deletion's doing.
    pub(super) fn is_cut_short(&self, worker: &Worker) -> bool {
        let pod = worker.pod.as_ref().and_then(|key| self.pods.get(key));
        pod.is_some_and(|pod| pod.metadata.is_deleting() && !pod.ended_before_deletion())
    }
}
