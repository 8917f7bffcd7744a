//! Which adopted objects an event concerns, and which nodes: by the job, by the instances of an object, and by the labels of nodes.
//!
//! ```text
//! event of an object, or of its job or pods -------------> the object -.
//! event of a node -> its instance -> objects there ------> the object  +-> looked at with the next poll
//!                 -> its labels -> their jobs -----------> the object  |
//! ---------------------------------------------------------> the node -'   its labels are compared
//! ```
//!
//! What is kept of an object is brought up to date when it is looked at. Until then it is to be looked at in any case.
//! Never: a walk over all objects or all nodes for one event.

use crate::adoption::NODE_LABEL_PREFIX;
use crate::machine::KubeMachine;
use crate::names::RunId;
use crate::objects::KubeNode;
use forebay_kernel::ids::{Attempt, JobId};
use forebay_kernel::units::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

/// What is to be looked at with the next poll.
#[derive(Debug, Default)]
pub(super) struct AdoptedChanges {
    /// Objects, by their uids.
    pub(super) objects: BTreeSet<String>,
    /// Nodes whose labels are compared, by their names.
    pub(super) nodes: BTreeSet<String>,
}

impl AdoptedChanges {
    pub(super) fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.nodes.is_empty()
    }
}

/// Objects by instance, and back.
#[derive(Debug, Default)]
pub(super) struct ObjectsByInstance {
    of: BTreeMap<String, BTreeSet<String>>,
    on: BTreeMap<String, BTreeSet<String>>,
}

impl ObjectsByInstance {
    /// From now on an object is on these instances. Returns where it was.
    fn set(&mut self, uid: &str, instances: BTreeSet<String>) -> BTreeSet<String> {
        let before = self.of.remove(uid).unwrap_or_default();
        for instance in before.difference(&instances) {
            if let Some(objects) = self.on.get_mut(instance) {
                objects.remove(uid);
                if objects.is_empty() {
                    self.on.remove(instance);
                }
            }
        }
        for instance in instances.difference(&before) {
            self.on.entry(instance.clone()).or_default().insert(uid.to_owned());
        }
        if !instances.is_empty() {
            self.of.insert(uid.to_owned(), instances);
        }
        before
    }

    /// The objects on an instance.
    fn on(&self, instance: &str) -> impl Iterator<Item = &String> {
        self.on.get(instance).into_iter().flatten()
    }
}

/// What leads from an event to objects and nodes. Bounded by the objects, their pods and the nodes.
#[derive(Debug, Default)]
pub(super) struct AdoptedIndex {
    /// The object of each job that the engine knows.
    object_of: BTreeMap<JobId, String>,
    /// Where the workers of attempts that are alive are to be.
    placed: ObjectsByInstance,
    /// Whatever else concerns an object too: nodes of a start that is asked for, and those where its pods were bound.
    concerned: ObjectsByInstance,
    /// Nodes by their labels of attempts.
    labelled: BTreeMap<String, BTreeSet<String>>,
}

impl AdoptedIndex {
    pub(super) fn know_job(&mut self, job: JobId, uid: &str) {
        self.object_of.insert(job, uid.to_owned());
    }

    pub(super) fn forget_job(&mut self, job: JobId) {
        self.object_of.remove(&job);
    }

    /// The object of a job.
    pub(super) fn object_of(&self, job: JobId) -> Option<&String> {
        self.object_of.get(&job)
    }

    /// The objects whose workers are to be on an instance.
    pub(super) fn placed_on(&self, instance: &str) -> impl Iterator<Item = &String> {
        self.placed.on(instance)
    }

    /// The nodes that have a label of attempts.
    pub(super) fn nodes_with(&self, label: &str) -> impl Iterator<Item = &String> {
        self.labelled.get(label).into_iter().flatten()
    }

    fn unlabel(&mut self, label: &str, node: &str) {
        if let Some(nodes) = self.labelled.get_mut(label) {
            nodes.remove(node);
            if nodes.is_empty() {
                self.labelled.remove(label);
            }
        }
    }
}

/// The label by which the pods of a job's attempts find their nodes.
pub(super) fn label_of_job(job: JobId) -> String {
    format!("{NODE_LABEL_PREFIX}{job}")
}

fn job_of_label(label: &str) -> Option<JobId> {
    label.strip_prefix(NODE_LABEL_PREFIX)?.strip_prefix("job-")?.parse().ok().map(JobId)
}

/// The names of the labels of attempts that a node has.
fn labels_of(node: Option<&KubeNode>) -> BTreeSet<String> {
    let labels = node.into_iter().flat_map(|node| node.metadata.labels.keys());
    labels.filter(|label| label.starts_with(NODE_LABEL_PREFIX)).cloned().collect()
}

/// All attempts of a job, in their order.
pub(super) fn attempts_of(job: JobId) -> RangeInclusive<RunId> {
    RunId { job, attempt: Attempt(0) }..=RunId { job, attempt: Attempt(u32::MAX) }
}

impl KubeMachine {
    /// An object is looked at with the next poll.
    pub(in crate::machine) fn object_changed(&mut self, uid: &str) {
        self.adoptions.changes.objects.insert(uid.to_owned());
    }

    /// The object of a job is looked at with the next poll, where the engine knows it.
    pub(super) fn job_changed(&mut self, job: JobId) {
        if let Some(uid) = self.adoptions.index.object_of(job).cloned() {
            self.adoptions.changes.objects.insert(uid);
        }
    }

    /// An object is looked at then, whatever happens until then.
    pub(super) fn wake_object(&mut self, uid: &str, at: Timestamp) {
        self.adoptions.wakes.insert((at, uid.to_owned()));
    }

    /// Something has changed that concerns the objects on an instance: its node, its claim, a drain.
    pub(in crate::machine) fn adopted_instance_changed(&mut self, instance: &str) {
        if self.settings.adopt.is_empty() {
            return;
        }
        let (index, changes) = (&self.adoptions.index, &mut self.adoptions.changes);
        changes.objects.extend(index.placed.on(instance).chain(index.concerned.on(instance)).cloned());
        changes.nodes.extend(self.node_of.get(instance).cloned());
    }

    /// A node has changed, or is gone. `before`: what it was.
    pub(in crate::machine) fn adopted_node_changed(&mut self, name: &str, before: Option<&KubeNode>) {
        if self.settings.adopt.is_empty() {
            return;
        }
        let node = self.nodes.get(name);
        let (was, is) = (labels_of(before), labels_of(node));
        let instances = [before, node].map(|node| node.and_then(KubeNode::instance).map(str::to_owned));
        for label in was.difference(&is) {
            self.adoptions.index.unlabel(label, name);
        }
        for label in &is {
            self.adoptions.index.labelled.entry(label.clone()).or_default().insert(name.to_owned());
        }
        for job in was.union(&is).filter_map(|label| job_of_label(label)) {
            self.job_changed(job);
        }
        for instance in instances.iter().flatten() {
            self.adopted_instance_changed(instance);
        }
        // Workers name an owned node by its name.
        self.adopted_instance_changed(name);
        self.adoptions.changes.nodes.insert(name.to_owned());
    }

    /// Brings up to date what leads to an object. The labels of the nodes where it is and was are compared.
    pub(super) fn index_object(&mut self, uid: &str) {
        let (mut placed, mut concerned) = (BTreeSet::new(), BTreeSet::new());
        let mut nodes: BTreeSet<String> = BTreeSet::new();
        if let Some(known) = self.view.as_ref().and_then(|view| view.adopted.get(uid)) {
            let adoptions = &self.adoptions;
            let workers = known.run.iter().flat_map(|run| run.workers.values());
            placed.extend(workers.cloned());
            let requests = adoptions.runs.range(attempts_of(known.job)).filter_map(|(_, run)| run.request.as_ref());
            concerned.extend(requests.flat_map(|request| request.instances.iter().flatten()).cloned());
            let pods = adoptions.pods.get(&known.job).into_iter().flat_map(BTreeMap::values);
            let bound = pods.filter_map(|pod| pod.at.as_ref());
            let ghosts = adoptions.ghosts.get(&known.job).into_iter().flatten();
            concerned.extend(bound.chain(ghosts).map(|at| at.instance.clone()));
            nodes.extend(adoptions.index.nodes_with(&label_of_job(known.job)).cloned());
        }
        let instances = placed.clone();
        let before = self.adoptions.index.placed.set(uid, placed);
        self.adoptions.index.concerned.set(uid, concerned);
        nodes.extend(before.union(&instances).filter_map(|instance| self.node_of.get(instance)).cloned());
        self.adoptions.changes.nodes.append(&mut nodes);
    }
}

#[cfg(test)]
mod tests;
