//! Pods of adopted objects as they were last seen: which run, and which of them are proven to have ended.
//!
//! They have no finalizer of ours. One that went before this process knew of it is taken for ended, as its object's controller takes it. One that was
//! known and is gone without its kubelet's word is held until its node is gone or has booted anew, whether a watch saw it go or a list does not have it.

use crate::machine::agenda::PodKey;
use crate::machine::life::{Death, death_by_kubelet, has_ended, has_started, is_preparing, waits_for};
use crate::machine::listing::PodList;
use crate::machine::{KubeMachine, KubeReport};
use crate::names::{LABEL_ATTEMPT, LABEL_JOB, LABEL_JOURNAL, RunId, WorkerId};
use crate::objects::{KubePod, ObjectMeta};
use forebay_kernel::ids::{Attempt, JobId};

/// A pod of an adopted object.
#[derive(Debug)]
pub(super) struct AdoptedPod {
    pub pod: KubePod,
    pub attempt: Attempt,
    /// Where it is bound: the instance and its boot.
    pub at: Option<Ghost>,
    /// An operator has confirmed that it is dead. It counts where its kubelet does not say that it runs.
    pub confirmed_dead: bool,
}

/// Where something may still run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ghost {
    pub instance: String,
    pub boot: String,
}

/// How far the pods of an attempt are.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Those that have started and go on.
    pub working: u64,
    /// Those of all attempts that have completed.
    pub completed: u64,
    /// What one of them waits for.
    pub waits: Option<String>,
    /// Whether one pulls its images, or its init containers run.
    pub prepares: bool,
}

/// Whose a pod is, by its labels.
fn run_of(metadata: &ObjectMeta) -> Option<RunId> {
    let job = metadata.label(LABEL_JOB)?.strip_prefix("job-")?.parse().ok()?;
    Some(RunId { job: JobId(job), attempt: Attempt(metadata.label(LABEL_ATTEMPT)?.parse().ok()?) })
}

impl KubeMachine {
    pub(in crate::machine) fn see_adopted_pod(&mut self, pod: KubePod) {
        let ours = pod.metadata.label(LABEL_JOURNAL) == Some(self.journal.as_str());
        let Some(run) = run_of(&pod.metadata).filter(|_| ours) else { return };
        let key = PodKey::of(&pod.metadata);
        let seen = self.place_of(&pod);
        let (mut at, mut confirmed_dead) = (None, false);
        if let Some(known) = self.adoptions.pods.get(&run.job).and_then(|pods| pods.get(&key)) {
            if known.pod.metadata.version() >= pod.metadata.version() {
                return;
            }
            if known.pod.metadata.uid == pod.metadata.uid {
                (at, confirmed_dead) = (known.at.clone(), known.confirmed_dead);
            } else {
                // Its name is another pod's now, so it is gone.
                self.adopted_pod_gone(run.job, &key);
            }
        }
        let at = at.or(seen);
        // An operator may have confirmed it before it was seen.
        let instance = at.as_ref().map(|at| at.instance.clone());
        let confirmed_dead = confirmed_dead || instance.is_some_and(|on| self.is_confirmed_dead_on(run.job, &on));
        let known = AdoptedPod { pod, attempt: run.attempt, at, confirmed_dead };
        self.adoptions.pods.entry(run.job).or_default().insert(key, known);
        self.job_changed(run.job);
    }

    /// Where a pod is bound, as far as its node is known.
    fn place_of(&self, pod: &KubePod) -> Option<Ghost> {
        let node = self.nodes.get(pod.spec.node_name.as_ref()?)?;
        Some(Ghost { instance: node.instance()?.to_owned(), boot: node.status.node_info.boot_id.clone() })
    }

    /// Whether an operator has confirmed that all workers of a job on an instance are dead.
    fn is_confirmed_dead_on(&self, job: JobId, instance: &str) -> bool {
        let run = self.adopted_of(job).and_then(|known| known.run.as_ref());
        run.is_some_and(|run| !run.confirmed_dead.is_empty() && run.is_confirmed_dead_on(instance))
    }

    /// A watch says that a pod is gone; this is its last state.
    pub(in crate::machine) fn forget_adopted_pod(&mut self, key: &PodKey, last: KubePod) {
        let Some(run) = run_of(&last.metadata) else { return };
        let uid = last.metadata.uid.clone();
        self.see_adopted_pod(last);
        let known = self.adoptions.pods.get(&run.job).and_then(|pods| pods.get(key));
        if known.is_some_and(|known| known.pod.metadata.uid == uid) {
            self.adopted_pod_gone(run.job, key);
        }
    }

    /// A pod does not exist any more. If its kubelet has not said that it has ended, it may run.
    fn adopted_pod_gone(&mut self, job: JobId, key: &PodKey) {
        let Some(pods) = self.adoptions.pods.get_mut(&job) else { return };
        let Some(gone) = pods.remove(key) else { return };
        if pods.is_empty() {
            self.adoptions.pods.remove(&job);
        }
        self.job_changed(job);
        let bound = gone.pod.spec.node_name.is_some();
        let ended = gone.confirmed_dead || death_by_kubelet(&gone.pod).is_some();
        // Its node may have become known since it was seen.
        let at = gone.at.or_else(|| self.place_of(&gone.pod));
        let Some(ghost) = at.filter(|_| bound && !ended) else { return };
        let known = self.adopted_of(job);
        // Where the job is over nothing waits for it any more.
        if known.is_none_or(|known| !known.open || known.object.namespace != key.namespace)
            || self.is_confirmed_dead_on(job, &ghost.instance)
        {
            return;
        }
        let alive = known.and_then(|known| known.run.as_ref());
        let workers: Vec<u32> = alive.map_or(Vec::new(), |alive| alive.workers_on(&ghost.instance).collect());
        let run = RunId { job, attempt: alive.map_or(gone.attempt, |alive| alive.attempt) };
        for worker in workers {
            let (worker, instance) = (WorkerId { run, worker }, Some(ghost.instance.clone()));
            self.reports.push(KubeReport::Unproven { worker, instance });
        }
        self.adoptions.ghosts.entry(job).or_default().push(ghost);
    }

    /// Pods that are not in a list any more. What became of them meanwhile no watch has said.
    pub(in crate::machine) fn forget_unlisted(&mut self, list: &PodList) {
        let mut gone: Vec<(JobId, PodKey)> = Vec::new();
        for (job, pods) in &self.adoptions.pods {
            let known = pods.iter().map(|(key, known)| (key, known.pod.metadata.version()));
            gone.extend(list.gone(known).into_iter().map(|key| (*job, key)));
        }
        for (job, key) in gone {
            self.adopted_pod_gone(job, &key);
        }
    }

    /// Whether nothing of an object's job runs, of any attempt.
    pub(super) fn nothing_runs(&self, uid: &str, job: JobId) -> bool {
        let ghosts = self.adoptions.ghosts.get(&job);
        self.pods_of(uid, job).all(|pod| self.has_ended(pod))
            && ghosts.into_iter().flatten().all(|ghost| self.is_past(ghost))
    }

    /// The pods of an object's job, of any attempt. What has its labels in another namespace is not of it, whoever wrote them.
    fn pods_of(&self, uid: &str, job: JobId) -> impl Iterator<Item = &AdoptedPod> {
        let known = self.view.as_ref().and_then(|view| view.adopted.get(uid));
        let object = known.map(|known| known.object.namespace.as_str());
        let pods = self.adoptions.pods.get(&job).into_iter().flatten();
        pods.filter(move |(key, _)| object.is_none_or(|namespace| key.namespace == namespace)).map(|(_, pod)| pod)
    }

    fn has_ended(&self, known: &AdoptedPod) -> bool {
        let over = || known.pod.metadata.is_deleting() || known.pod.is_terminal();
        let left = |at: &Ghost| !self.has_claim(&at.instance) || (over() && (known.confirmed_dead || self.is_past(at)));
        has_ended(&known.pod) || known.at.as_ref().is_some_and(left)
    }

    /// Whether what ran there cannot run any more: the instance is gone, or was started again.
    fn is_past(&self, ghost: &Ghost) -> bool {
        let node = self.node_of.get(&ghost.instance).and_then(|name| self.nodes.get(name));
        let boot = node.map(|node| node.status.node_info.boot_id.as_str()).unwrap_or_default();
        !self.has_claim(&ghost.instance) || (!boot.is_empty() && boot != ghost.boot)
    }

    /// How far the pods of an attempt are.
    pub(super) fn progress(&self, uid: &str, run: RunId) -> Progress {
        let mut progress = Progress::default();
        for known in self.pods_of(uid, run.job) {
            let pod = &known.pod;
            if pod.status.phase == "Succeeded" {
                progress.completed += 1;
            } else if known.attempt == run.attempt && !pod.metadata.is_deleting() && has_started(pod) {
                progress.working += 1;
            } else if known.attempt == run.attempt {
                // One that finds no room has no containers either, and prepares nothing.
                let over = pod.metadata.is_deleting() || pod.is_terminal();
                progress.prepares |= pod.spec.node_name.is_some() && !over && is_preparing(pod);
                progress.waits = progress.waits.or_else(|| waits_for(pod));
            }
        }
        progress
    }

    /// The exit code with which a container of an attempt failed.
    pub(super) fn exit_code(&self, uid: &str, run: RunId) -> Option<i32> {
        let mut of_run = self.pods_of(uid, run.job).filter(|known| known.attempt == run.attempt);
        of_run.find_map(|known| match death_by_kubelet(&known.pod) {
            Some(Death::Exit(code)) => Some(code),
            _ => None,
        })
    }
}
