//! Our pods as they were last seen, and what that means for their workers.
//!
//! Never: a pod without our label, our journal's id, and an effect that this journal knows.

use super::KubeMachine;
use super::KubeReport;
use super::agenda::PodKey;
use super::gang::{Gang, Vanished, Worker};
use super::life::{Death, Life, death_by_kubelet, has_started, waits_for};
use crate::adoption::LABEL_ADOPTED;
use crate::names::{
    ANNOTATION_BARRIER, ANNOTATION_EFFECT, ANNOTATION_INSTANCE, ANNOTATION_WORKER, BARRIER_OPEN, LABEL_JOURNAL, RunId,
    WorkerId,
};
use crate::objects::{KubeNode, KubePod, ObjectMeta};
use forebay_kernel::ids::Seq;
use forebay_kernel::storage::{ForeignId, JournalId, JournalIdentity};

impl PodKey {
    /// The key of an object.
    pub fn of(metadata: &ObjectMeta) -> PodKey {
        PodKey { namespace: metadata.namespace.clone().unwrap_or_default(), name: metadata.name.clone() }
    }
}

impl KubeMachine {
    /// Whose an object is. `None`: it is not ours.
    pub(super) fn owner(&self, metadata: &ObjectMeta) -> Option<WorkerId> {
        let effect = metadata.annotation(ANNOTATION_EFFECT)?;
        let (journal, position) = effect.rsplit_once('-')?;
        let known = |lineage: &JournalIdentity| {
            let (id, position) = (journal.parse::<JournalId>(), position.parse::<u64>());
            matches!((id, position), (Ok(id), Ok(position)) if lineage.effect_of(id, Seq(position)) == ForeignId::Known)
        };
        let of_journal = self.lineage.as_ref().map_or(journal == self.journal, known);
        let ours = of_journal && metadata.label(LABEL_JOURNAL) == Some(self.journal.as_str());
        if !ours {
            return None;
        }
        metadata.annotation(ANNOTATION_WORKER)?.parse().ok()
    }

    /// Takes a pod as it is now. An older state than the known one changes nothing.
    pub(super) fn see_pod(&mut self, pod: KubePod) {
        if pod.metadata.label(LABEL_ADOPTED).is_some() {
            return self.see_adopted_pod(pod);
        }
        let Some(id) = self.owner(&pod.metadata) else { return self.see_foreign(&pod) };
        let key = PodKey::of(&pod.metadata);
        if let Some(known) = self.pods.get(&key) {
            let same = known.metadata.uid == pod.metadata.uid;
            if same && known.metadata.version() >= pod.metadata.version() {
                return;
            }
        }
        let gang = self.gangs.entry(id.run).or_default();
        if gang.namespace.is_empty() {
            gang.namespace.clone_from(&key.namespace);
        }
        if gang.service.is_none() {
            gang.service.clone_from(&pod.spec.subdomain);
        }
        // On all pods of a gang only after it is on the Service.
        gang.released |= pod.metadata.annotation(ANNOTATION_BARRIER) == Some(BARRIER_OPEN);
        let worker = gang.workers.entry(id.worker).or_default();
        worker.pod = Some(key.clone());
        worker.create_unknown = false;
        if worker.instance.is_none() {
            worker.instance = pod.metadata.annotation(ANNOTATION_INSTANCE).map(str::to_owned);
        }
        if let Some(instance) = worker.instance.clone() {
            self.runs_on.entry(instance).or_default().insert(id.run);
        }
        let words = if has_started(&pod) { None } else { waits_for(&pod).or_else(|| worker.warning.clone()) };
        if worker.waits_for != words {
            worker.waits_for.clone_from(&words);
            self.reports.push(KubeReport::Waiting { worker: id, words });
        }
        self.pods.insert(key, pod);
        self.changed.insert(id.run);
    }

    /// A pod does not exist any more. `last`: its last state, where that is known to be newer.
    pub(super) fn forget_pod(&mut self, key: &PodKey, last: Option<KubePod>) {
        if let Some(last) = last.as_ref().filter(|last| last.metadata.label(LABEL_ADOPTED).is_some()) {
            return self.forget_adopted_pod(key, last.clone());
        }
        self.forget_foreign(key);
        if let Some(last) = last.filter(|last| self.owner(&last.metadata).is_some()) {
            let same = self.pods.get(key).is_none_or(|known| known.metadata.uid == last.metadata.uid);
            if !same {
                return;
            }
            self.see_pod(last);
        }
        let Some(pod) = self.pods.remove(key) else { return };
        let Some(id) = self.owner(&pod.metadata) else { return };
        self.changed.insert(id.run);
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

    /// Whether the pod of a worker is being deleted.
    pub(super) fn is_deleting(&self, worker: &Worker) -> bool {
        worker.pod.as_ref().and_then(|key| self.pods.get(key)).is_some_and(|pod| pod.metadata.is_deleting())
    }

    /// Whether the pod of a worker was deleted before its containers had ended: how they end is the deletion's doing.
    pub(super) fn is_cut_short(&self, worker: &Worker) -> bool {
        let pod = worker.pod.as_ref().and_then(|key| self.pods.get(key));
        pod.is_some_and(|pod| pod.metadata.is_deleting() && !pod.ended_before_deletion())
    }
}
