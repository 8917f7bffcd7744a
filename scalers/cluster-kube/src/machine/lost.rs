//! Pods that were started after the backup, or the older copy of its folder, that this journal goes on from: nobody knows any more what for. Each is reported, keeps its node, and is
//! waited for before its job runs again.
//!
//! Never: a lost pod that is deleted, evicted, or taken for one of ours. An operator who deletes one frees its job.

use super::agenda::{PodKey, Task};
use super::gang::Gang;
use super::life::has_ended;
use super::listing::PodList;
use super::{KubeMachine, KubeReport};
use crate::api_call::KubeObject;
use crate::names::{ANNOTATION_EFFECT, ANNOTATION_WORKER, FINALIZER, LABEL_JOURNAL, RunId, WorkerId};
use crate::objects::{KubePod, ObjectMeta};
use forebay_kernel::ids::{JobId, Seq};
use forebay_kernel::storage::{ForeignId, JournalId};
use forebay_kernel::units::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// The lost pods that may still run, and those that only our finalizer keeps.
#[derive(Debug, Default)]
pub(super) struct LostPods {
    pods: BTreeMap<PodKey, LostPod>,
    /// The first effect that the journal had not decided when the process started. `None`: it is not known.
    pub first_effect: Option<Seq>,
    /// Pods and adopted objects, by their uid, that carried a later one before the process started any: the journal's folder is an older copy of itself.
    unrecorded: BTreeSet<(String, String)>,
}

#[derive(Debug)]
struct LostPod {
    pod: KubePod,
    worker: WorkerId,
}

impl LostPods {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }
}

impl KubeMachine {
    /// What an object's annotations say of the effect that asked for it.
    pub(super) fn effect_means(&self, metadata: &ObjectMeta) -> Option<ForeignId> {
        let ours = metadata.label(LABEL_JOURNAL) == Some(self.journal.as_str());
        if ours { self.effect_on(metadata) } else { None }
    }

    /// What the effect means that an object names, whatever its labels are.
    pub(super) fn effect_on(&self, metadata: &ObjectMeta) -> Option<ForeignId> {
        let effect = metadata.annotation(ANNOTATION_EFFECT)?;
        let unrecorded = !self.lost.unrecorded.is_empty()
            && self.lost.unrecorded.contains(&(metadata.uid.clone(), effect.to_owned()));
        if unrecorded { Some(ForeignId::Lost) } else { self.effect_id_means(effect) }
    }

    /// What the whole id of an effect means to this journal.
    fn effect_id_means(&self, effect: &str) -> Option<ForeignId> {
        let (journal, position) = effect.rsplit_once('-')?;
        let Some(lineage) = &self.lineage else {
            return (journal == self.journal).then_some(ForeignId::Known);
        };
        let (id, position) = (journal.parse::<JournalId>().ok()?, position.parse::<u64>().ok()?);
        Some(lineage.effect_of(id, Seq(position)))
    }

    /// Finds what carries effects that the journal had not decided when the process started, in a first list: nothing starts before that.
    pub(super) fn find_unrecorded(&mut self, objects: &[KubeObject]) {
        let (Some(first), Some(lineage)) = (self.lost.first_effect, &self.lineage) else { return };
        let later = |metadata: &ObjectMeta| {
            let effect = metadata.annotation(ANNOTATION_EFFECT)?;
            let (journal, position) = effect.rsplit_once('-')?;
            let ours = journal.parse() == Ok(lineage.id) && position.parse::<u64>().ok()? >= first.0;
            ours.then(|| (metadata.uid.clone(), effect.to_owned()))
        };
        self.lost.unrecorded.extend(objects.iter().filter_map(|object| later(object.metadata())));
    }

    /// The worker that a lost pod is.
    pub(super) fn lost_worker(&self, metadata: &ObjectMeta) -> Option<WorkerId> {
        let lost = self.effect_means(metadata) == Some(ForeignId::Lost);
        metadata.annotation(ANNOTATION_WORKER).filter(|_| lost)?.parse().ok()
    }

    /// Takes a pod that is not ours as it is now.
    pub(super) fn see_lost(&mut self, pod: &KubePod) {
        let Some(worker) = self.lost_worker(&pod.metadata) else { return };
        let key = PodKey::of(&pod.metadata);
        let of_before = self.lost.pods.get(&key).filter(|known| known.pod.metadata.uid == pod.metadata.uid);
        if of_before.is_some_and(|known| known.pod.metadata.version() > pod.metadata.version()) {
            return;
        }
        if of_before.is_none() && !has_ended(pod) {
            self.reports.push(KubeReport::Lost { worker, pod: format!("{}/{}", key.namespace, key.name) });
        }
        if has_ended(pod) && pod.metadata.is_deleting() && pod.metadata.finalizers.iter().any(|name| name == FINALIZER)
        {
            self.agenda.plan(Task::Unfinalize(key.clone()), Timestamp(0));
        }
        self.lost.pods.insert(key, LostPod { pod: pod.clone(), worker });
        self.wake_starts();
    }

    /// A pod does not exist any more.
    pub(super) fn forget_lost(&mut self, key: &PodKey) {
        if self.lost.pods.remove(key).is_some() {
            self.wake_starts();
        }
    }

    /// Those that a list does not have are gone.
    pub(super) fn lost_listed(&mut self, list: &PodList) {
        let known = self.lost.pods.iter().map(|(key, known)| (key, known.pod.metadata.version()));
        list.gone(known).iter().for_each(|key| self.forget_lost(key));
    }

    /// The state of a lost pod, where it is one.
    pub(super) fn lost_pod(&self, key: &PodKey) -> Option<&KubePod> {
        self.lost.pods.get(key).map(|known| &known.pod)
    }

    /// Why a gang may not start yet: a lost pod of its job may still run, or one holds a node that it is to run on.
    pub(super) fn lost_in_the_way(&self, job: JobId, gang: &Gang) -> Option<String> {
        let its_nodes = || gang.workers.values().filter_map(|worker| self.node_of.get(worker.instance.as_ref()?));
        for known in self.lost.pods.values().filter(|known| self.may_run(&known.pod)) {
            let on = known.pod.spec.node_name.as_ref();
            let of = match known.worker.run.job == job {
                true => "for this job".to_owned(),
                false if on.is_some_and(|on| its_nodes().any(|name| name == on)) => {
                    format!("for {} on a node of this one", known.worker.run.job)
                }
                false => continue,
            };
            let PodKey { namespace, name } = PodKey::of(&known.pod.metadata);
            return Some(format!(
                "pod {namespace}/{name} was started {of} after the backup that the journal goes on from, and may still run: this starts when it has \
                 ended; wait for it, or delete it"
            ));
        }
        None
    }

    /// Whether it is not proven that nothing of a pod runs. What ran on a node that has gone has ended.
    fn may_run(&self, pod: &KubePod) -> bool {
        !has_ended(pod) && pod.spec.node_name.as_ref().is_none_or(|name| self.nodes.contains_key(name))
    }

    /// Looks again at the starts that may have waited for a lost pod.
    fn wake_starts(&mut self) {
        let starts = self.gangs.iter().filter(|(_, gang)| gang.request.is_some() && !gang.released);
        let starts: Vec<RunId> = starts.map(|(run, _)| *run).collect();
        self.changed.extend(starts);
    }

    /// A node has gone, and what ran there has ended.
    pub(super) fn lost_node_gone(&mut self, name: &str) {
        if self.lost.pods.values().any(|known| known.pod.spec.node_name.as_deref() == Some(name)) {
            self.wake_starts();
        }
    }
}
