//! What has to be called, and when. Each task is there at most once: planned or running. It is planned again as often as something asks for it.
//!
//! Never: a call itself. Whether a task is still needed is asked when it is due.

use crate::api_call::{KubeRateClass, Resource};
use crate::names::{RunId, WorkerId};
use forebay_kernel::units::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// A pod by its namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PodKey {
    pub namespace: String,
    pub name: String,
}

/// One thing to call for. The order is the priority among tasks that are due at the same time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Task {
    /// List all of a kind, page by page.
    List(Resource),
    /// Open the watch of a kind.
    Watch(Resource),
    /// Delete a pod gracefully.
    DeletePod(PodKey),
    /// Open the barrier on the gang's Service.
    OpenBarrier(RunId),
    /// Open the barrier on a worker's pod.
    TellWorker(WorkerId),
    /// Bind a worker's pod.
    Bind(WorkerId),
    /// Create a worker's pod.
    Create(WorkerId),
    /// Create the gang's Service or ConfigMap.
    CreateObject(RunId, Resource),
    /// Read a worker's pod.
    Read(WorkerId),
    /// Read the gang's Service or ConfigMap.
    ReadObject(RunId, Resource),
    /// Read the namespace of a gang.
    ReadNamespace(RunId),
    /// Read the node of a worker that may be alive or not.
    ReadNode(WorkerId),
    /// Remove our finalizer from a pod.
    Unfinalize(PodKey),
    /// Delete the Service or ConfigMap of a gang that is over.
    DeleteObject(RunId, Resource),
    /// Cordon a node, by its instance.
    Cordon(String),
    /// List the pods of a cordoned node, by its instance.
    NodePods(String),
    /// Evict a pod of others from a node that is drained, by the node's instance.
    Evict(String, PodKey),
    /// Set the taints of a node that is ready for work, by its name.
    Taints(String),
    /// Set the label by which a booting node is partitioned, by its name.
    Partition(String),
    /// List the warnings about a worker's pod that does not start.
    Warnings(WorkerId),
    /// Whatever an adopted object needs next, by its uid.
    Adopt(String),
    /// List the pods of an attempt of an adopted object, consistently.
    AdoptedPods(RunId),
    /// Write an Event of an adopted object, by its number.
    Tell(u64),
    /// Set the labels by which pods of adopted objects find a node, by its name.
    LabelNode(String),
    /// Delete a pod whose creation has returned it without what says that it is ours.
    Discard(PodKey),
}

impl Task {
    pub fn rate(&self) -> KubeRateClass {
        match self {
            Task::List(_) | Task::Watch(_) | Task::Read(_) | Task::ReadObject(..) | Task::ReadNamespace(_) => {
                KubeRateClass::Read
            }
            Task::ReadNode(_) | Task::NodePods(_) | Task::AdoptedPods(_) | Task::Warnings(_) => KubeRateClass::Read,
            _ => KubeRateClass::Write,
        }
    }

    /// Whether a gang is refused where it is denied.
    pub fn is_of_gang(&self) -> bool {
        matches!(
            self,
            Task::Create(_) | Task::CreateObject(..) | Task::Bind(_) | Task::OpenBarrier(_) | Task::TellWorker(_)
        )
    }

    /// What it does, for reports.
    pub fn operation(&self) -> &'static str {
        match self {
            Task::List(_) => "list objects",
            Task::Watch(_) => "watch objects",
            Task::DeletePod(_) | Task::Discard(_) => "delete pods",
            Task::OpenBarrier(_) | Task::TellWorker(_) => "open start barriers",
            Task::Bind(_) => "bind pods",
            Task::Create(_) => "create pods",
            Task::CreateObject(..) => "create services",
            Task::Read(_) | Task::ReadObject(..) | Task::ReadNamespace(_) | Task::ReadNode(_) => "read objects",
            Task::Unfinalize(_) => "remove finalizers",
            Task::DeleteObject(..) => "delete services",
            Task::Cordon(_) => "cordon nodes",
            Task::NodePods(_) => "list the pods of nodes",
            Task::Evict(..) => "evict pods",
            Task::Taints(_) => "set taints of nodes",
            Task::Warnings(_) => "list events",
            Task::Partition(_) => "set labels of nodes",
            Task::Adopt(_) => "suspend and unsuspend jobs",
            Task::AdoptedPods(_) => "list the pods of jobs",
            Task::Tell(_) => "write events",
            Task::LabelNode(_) => "set labels of nodes",
        }
    }
}

/// All tasks.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    reads: BTreeSet<(Timestamp, Task)>,
    writes: BTreeSet<(Timestamp, Task)>,
    planned: BTreeMap<Task, Timestamp>,
    running: BTreeSet<Task>,
    /// Asked for while they run.
    again: BTreeMap<Task, Timestamp>,
    failures: BTreeMap<Task, u32>,
}

impl Agenda {
    fn due_set(&mut self, class: KubeRateClass) -> &mut BTreeSet<(Timestamp, Task)> {
        match class {
            KubeRateClass::Read => &mut self.reads,
            KubeRateClass::Write => &mut self.writes,
        }
    }

    /// Plans a task, unless it is planned already: what waits for another attempt keeps its delay.
    pub fn plan(&mut self, task: Task, at: Timestamp) {
        if self.running.contains(&task) {
            self.again.insert(task, at);
        } else if !self.planned.contains_key(&task) {
            self.put(task, at);
        }
    }

    fn put(&mut self, task: Task, at: Timestamp) {
        self.due_set(task.rate()).insert((at, task.clone()));
        self.planned.insert(task, at);
    }

    /// The first task of a class that is due, which runs from now on.
    pub fn take_due(&mut self, class: KubeRateClass, now: Timestamp) -> Option<Task> {
        let first = self.due_set(class).first().filter(|(at, _)| *at <= now).cloned()?;
        self.due_set(class).remove(&first);
        let (_, task) = first;
        self.planned.remove(&task);
        self.running.insert(task.clone());
        Some(task)
    }

    /// When the first task of a class is due.
    pub fn first(&self, class: KubeRateClass) -> Option<Timestamp> {
        let due = if class == KubeRateClass::Read { &self.reads } else { &self.writes };
        due.first().map(|(at, _)| *at)
    }

    /// A task's call was answered, or not needed.
    pub fn finish(&mut self, task: &Task) {
        self.running.remove(task);
        self.failures.remove(task);
        if let Some(at) = self.again.remove(task) {
            self.put(task.clone(), at);
        }
    }

    /// A task's call has to be made again. Returns how often it had failed before.
    pub fn failed(&mut self, task: &Task) -> u32 {
        self.running.remove(task);
        self.again.remove(task);
        let failures = self.failures.entry(task.clone()).or_insert(0);
        *failures = failures.saturating_add(1);
        *failures - 1
    }

    /// Whether a task is planned, or its call is running.
    pub fn is_open(&self, task: &Task) -> bool {
        self.running.contains(task) || self.planned.contains_key(task)
    }

    /// Whether a task's call is running.
    pub fn is_running(&self, task: &Task) -> bool {
        self.running.contains(task)
    }
}
