//! What is left of an attempt that is over, by the engine's word: its pods end, its Service and ConfigMap go, and then our finalizers. Pods that
//! nobody knows (orphans) end in the same way. A pod that is deleted has no log any more: its log is taken before, or waited for a little.

use super::agenda::{PodKey, Task};
use super::census::{Census, GangPhase, GangScope};
use super::gang::{Gang, GangObject, Worker};
use super::life::{Death, Life};
use super::{KubeMachine, OBJECTS};
use crate::names::{FINALIZER, RunId, WorkerId};
use crate::view::RunView;
use forebay_kernel::units::{Span, Timestamp};
use std::collections::BTreeSet;

impl KubeMachine {
    /// Plans what is left to do where something has changed. Returns whether anything is left.
    pub(super) fn clean_up(&mut self, run: RunId, gang: &mut Gang, scope: GangScope, now: Timestamp) -> bool {
        let counted = gang.census.phase() == GangPhase::Over;
        let scope = if counted { scope } else { GangScope::Whole };
        gang.census = Census::new(GangPhase::Over);
        let numbers = scope.of(&gang.workers);
        for number in &numbers {
            let id = WorkerId { run, worker: *number };
            let known = |worker: &Worker| worker.pod.is_some() || self.agenda.is_running(&Task::Create(id));
            if !gang.workers.get(number).is_some_and(known)
                && let Some(worker) = gang.workers.remove(number)
            {
                self.forget_place(id, &worker);
            }
        }
        let objects_left = self.clean_objects(run, gang, now);
        for number in numbers {
            let Some(worker) = gang.workers.get(&number) else { continue };
            let life = self.life(run, gang, worker);
            let Some(key) = worker.pod.clone() else { continue };
            match life {
                Life::Dead(_) if !objects_left && self.waits_for_log(run, gang, number, &life, now) => {}
                Life::Dead(_) if !objects_left => self.let_go(&key, now),
                Life::Dead(_) => {}
                life => {
                    let deadline = now + self.settings.default_grace;
                    self.delete_worker(run, gang, number, &life, deadline, now);
                }
            }
        }
        !gang.workers.is_empty() || objects_left
    }

    /// Workers that have left a gang that goes on: their pods go as those of an attempt that is over.
    pub(super) fn clean_left(&mut self, run: RunId, gang: &mut Gang, scope: &GangScope, now: Timestamp) {
        let left = |view: &RunView| match scope {
            GangScope::Whole => view.left.clone(),
            GangScope::Workers(some) => some.intersection(&view.left).copied().collect(),
        };
        let left: BTreeSet<u32> = self.run_view(run).map(left).unwrap_or_default();
        for number in left {
            let Some(worker) = gang.workers.get(&number) else { continue };
            let Some(key) = worker.pod.clone() else { continue };
            let life = self.life(run, gang, worker);
            if let Life::Dead(_) = life {
                if !self.waits_for_log(run, gang, number, &life, now) {
                    self.let_go(&key, now);
                }
            } else {
                self.delete_worker(run, gang, number, &life, now + self.settings.default_grace, now);
            }
        }
    }

    /// Deletes the Service and the ConfigMap before the last finalizer goes, so that a pod always leads to them. Returns whether one is left.
    fn clean_objects(&mut self, run: RunId, gang: &mut Gang, now: Timestamp) -> bool {
        let mut left = false;
        for resource in OBJECTS {
            let creates = self.agenda.is_running(&Task::CreateObject(run, resource));
            let task = match gang.objects.get(&resource) {
                Some(GangObject::Exists { .. }) => Some(Task::DeleteObject(run, resource)),
                Some(GangObject::Unknown) if !creates => Some(Task::ReadObject(run, resource)),
                Some(GangObject::Unknown | GangObject::Gone) | None => None,
            };
            left |= creates || task.is_some();
            if let Some(task) = task {
                self.agenda.plan(task, now);
            }
        }
        left
    }

    /// Whether a pod that is deleted has a log that is being taken: who takes it was told when its end was reported. It goes with our finalizer.
    fn waits_for_log(&mut self, run: RunId, gang: &mut Gang, number: u32, life: &Life, now: Timestamp) -> bool {
        let has_log = matches!(life, Life::Dead(Death::Completed | Death::Exit(_)));
        let reported = &gang.reported;
        let told =
            reported.outcome.is_some() || reported.completed.contains(&number) || reported.left.contains(&number);
        let Some(worker) = gang.workers.get_mut(&number) else { return false };
        let deleted =
            worker.pod.as_ref().and_then(|key| self.pods.get(key)).is_some_and(|pod| pod.metadata.is_deleting());
        if !(has_log && told && deleted) || worker.log_taken || self.settings.log_wait == Span(0) {
            return false;
        }
        let until = *worker.log_wait_until.get_or_insert(now + self.settings.log_wait);
        if until <= now {
            return false;
        }
        self.wakes.insert((until, run));
        true
    }

    /// The logs of workers that have ended were taken, or nobody will. `None`: those of all workers.
    pub fn logs_taken(&mut self, run: RunId, workers: Option<&BTreeSet<u32>>) {
        let Some(gang) = self.gangs.get_mut(&run) else { return };
        for (number, worker) in &mut gang.workers {
            worker.log_taken |= workers.is_none_or(|workers| workers.contains(number));
        }
        self.changed.insert(run);
    }

    /// A pod of which nothing runs: our finalizer goes, and later the pod.
    fn let_go(&mut self, key: &PodKey, now: Timestamp) {
        let Some(pod) = self.pods.get(key) else { return };
        if pod.metadata.finalizers.iter().any(|name| name == FINALIZER) {
            self.agenda.plan(Task::Unfinalize(key.clone()), now);
        } else if !pod.metadata.is_deleting() {
            self.agenda.plan(Task::DeletePod(key.clone()), now + self.settings.keep_terminal);
        }
    }
}
