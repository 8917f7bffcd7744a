//! Copies of workers' pods: what somebody has made of the YAML of such a pod, under another name, or again under its own after it was deleted. Labels and
//! annotations come along and prove nothing: a worker has one pod, of the name that we gave it, and that is the first one which was seen.
//!
//! ```text
//! annotations of a worker -> the name that we gave? --yes--> the uid that was seen first? --yes--> the worker's pod
//!                                 '--no--> renamed                '--no--> made again
//!                                               '------------------------------'-> counts as a pod of others
//! ```
//!
//! Never: a copy that is bound, told to go or deleted. Of one that somebody deletes our finalizer goes: nobody waits for its outcome. One that was made
//! again under its own name goes when its attempt is over, as every pod of such an attempt.

use super::agenda::{PodKey, Task};
use super::listing::PodList;
use super::{KubeMachine, KubeReport};
use crate::kube_error::KubeError;
use crate::names::{ANNOTATION_EFFECT, FINALIZER, LABEL_JOURNAL, RunId, WorkerId, is_pod_name, pod_name};
use crate::objects::{KubePod, ObjectMeta};
use forebay_kernel::units::Timestamp;
use std::collections::BTreeMap;

/// What is reported to fail while there is a copy that has not ended.
const OPERATION: &str = "take a copied pod for a worker";

/// The copies that are there. Bounded by the pods with our label.
#[derive(Debug, Default)]
pub(super) struct CopiedPods {
    pods: BTreeMap<PodKey, CopiedPod>,
}

#[derive(Debug)]
struct CopiedPod {
    pod: KubePod,
    /// The worker that it says it is.
    worker: WorkerId,
    kind: CopyKind,
}

/// How a pod was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CopyKind {
    /// It has another name than the worker's pod.
    Renamed,
    /// It has the name, and another pod of that name was the worker's.
    MadeAgain,
}

impl CopiedPods {
    /// Whether an object is a copy with another name, by what was known when it was seen.
    fn is_renamed(&self, metadata: &ObjectMeta) -> bool {
        if self.pods.is_empty() {
            return false;
        }
        let known = self.pods.get(&PodKey::of(metadata));
        known.is_some_and(|known| known.kind == CopyKind::Renamed && known.pod.metadata.uid == metadata.uid)
    }

    /// What an operator has to know. `None`: no copy is there that has not ended.
    fn words(&self) -> Option<String> {
        let mut open = self.pods.iter().filter(|(_, known)| !known.pod.is_terminal());
        let (PodKey { namespace, name }, known) = open.next()?;
        let worker = known.worker;
        let more = match open.count() {
            0 => String::new(),
            more => format!(" (and {more} more)"),
        };
        Some(format!(
            "pod {namespace}/{name} has the labels and annotations of {worker}, and is not the pod of that worker{more}: it counts as a pod of others; \
             delete it, or take the label {LABEL_JOURNAL} off it"
        ))
    }
}

impl KubeMachine {
    /// The worker whose pod an object is.
    pub(super) fn pod_owner(&self, metadata: &ObjectMeta) -> Option<WorkerId> {
        let id = self.owner(metadata)?;
        self.copy_kind(id, metadata).is_none().then_some(id)
    }

    /// How a pod was copied that says that it is a worker. `None`: it is the pod of that worker.
    fn copy_kind(&self, id: WorkerId, metadata: &ObjectMeta) -> Option<CopyKind> {
        if !self.has_given_name(id, metadata) {
            return Some(CopyKind::Renamed);
        }
        // What was taken for its pod in another namespace gives way.
        let here = metadata.namespace.as_deref().unwrap_or_default();
        let gang = self.gangs.get(&id.run).filter(|gang| gang.namespace == here)?;
        let uid = gang.workers.get(&id.worker)?.uid.as_ref()?;
        (*uid != metadata.uid).then_some(CopyKind::MadeAgain)
    }

    /// Whether a pod has the name that we gave to the pod of a worker.
    fn has_given_name(&self, id: WorkerId, metadata: &ObjectMeta) -> bool {
        let (name, effect) = (metadata.name.as_str(), metadata.annotation(ANNOTATION_EFFECT).unwrap_or_default());
        if let Some(subject) = self.gangs.get(&id.run).and_then(|gang| gang.subject.as_ref()) {
            return name == pod_name(subject, id, effect);
        }
        // Of an attempt that was over before this process started nobody knows the job's name. What follows it is known.
        is_pod_name(name, id, effect) && !self.copies.is_renamed(metadata)
    }

    /// Takes a pod that is no worker's as it is now.
    pub(super) fn see_copy(&mut self, pod: &KubePod) {
        let worker = self.owner(&pod.metadata);
        let copied = worker.and_then(|worker| Some((worker, self.copy_kind(worker, &pod.metadata)?)));
        let key = PodKey::of(&pod.metadata);
        let Some((worker, kind)) = copied else { return self.forget_copy(&key) };
        let of_before = self.copies.pods.get(&key).filter(|known| known.pod.metadata.uid == pod.metadata.uid);
        if of_before.is_some_and(|known| known.pod.metadata.version() > pod.metadata.version()) {
            return;
        }
        if pod.metadata.is_deleting() && pod.metadata.finalizers.iter().any(|name| name == FINALIZER) {
            self.agenda.plan(Task::Unfinalize(key.clone()), Timestamp(0));
        }
        self.copies.pods.insert(key, CopiedPod { pod: pod.clone(), worker, kind });
        self.report_copies();
    }

    /// Pods that were taken for workers' and are not.
    pub(super) fn disown(&mut self, keys: Vec<PodKey>) {
        for key in keys {
            if let Some(pod) = self.pods.remove(&key) {
                self.see_copy(&pod);
                self.see_foreign(&pod);
            }
        }
    }

    /// A pod does not exist any more, or is no copy.
    pub(super) fn forget_copy(&mut self, key: &PodKey) {
        if self.copies.pods.remove(key).is_some() {
            self.report_copies();
        }
    }

    /// Those that a list does not have are gone.
    pub(super) fn copies_listed(&mut self, list: &PodList) {
        let known = self.copies.pods.iter().map(|(key, known)| (key, known.pod.metadata.version()));
        list.gone(known).iter().for_each(|key| self.forget_copy(key));
    }

    /// An attempt is over and forgotten: the pods that were made again under the names of its own are what is left of it.
    pub(super) fn end_copies(&mut self, run: RunId) {
        let of_run =
            self.copies.pods.iter().filter(|(_, known)| known.worker.run == run && known.kind == CopyKind::MadeAgain);
        let keys: Vec<PodKey> = of_run.map(|(key, _)| key.clone()).collect();
        for key in keys {
            let Some(known) = self.copies.pods.remove(&key) else { continue };
            self.report_copies();
            self.forget_foreign(&key);
            self.see_pod(known.pod);
        }
    }

    /// The state of a copy, where a pod is one.
    pub(super) fn copied_pod(&self, key: &PodKey) -> Option<&KubePod> {
        self.copies.pods.get(key).map(|known| &known.pod)
    }

    /// Says that there are copies, which hold what gangs may need, or that there are none any more.
    fn report_copies(&mut self) {
        let Some(words) = self.copies.words() else { return self.recovered(OPERATION) };
        if self.failures.get(OPERATION) != Some(&words) {
            let error = KubeError::of_status(409, "Copied", &words);
            self.failures.insert(OPERATION, words);
            self.reports.push(KubeReport::Failing { operation: OPERATION, error });
        }
    }
}
