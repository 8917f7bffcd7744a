//! Two-phase drain: a node is cordoned, time passes in which a decided Binding can arrive, and then a consistent list has to show that nothing is
//! bound to it.
//!
//! Never: a node called drained by what was known before the cordon, or while a list fails.

use super::agenda::{PodKey, Task};
use super::eviction::ForeignPod;
use super::life::Life;
use super::{KubeMachine, KubeReport};
use crate::api_call::{KubeObject, KubeResponse};
use crate::objects::KubePod;
use crate::view::RunStage;
use forebay_kernel::storage::ForeignId;
use forebay_kernel::units::{Span, Timestamp};
use std::collections::BTreeMap;

/// A pod of an attempt that is over, or was given up, does not keep its node longer than this after its containers had to end: the end of the node proves theirs.
const OVERDUE: Span = Span::mins(1);
/// The most pods that are named.
const MOST_NAMED: usize = 10;
/// The annotation of pods that a kubelet runs by itself.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// A node that is drained.
#[derive(Debug, Default)]
pub(super) struct NodeDrain {
    /// Its name, once it is cordoned.
    node: Option<String>,
    continue_token: Option<String>,
    /// What was bound to it on the pages so far.
    bound: Vec<String>,
    /// Pods of others that the last list has shown on it, and those of the pages so far.
    pub foreign: BTreeMap<PodKey, ForeignPod>,
    found: BTreeMap<PodKey, ForeignPod>,
    /// Since when it is cordoned.
    pub since: Option<Timestamp>,
    reported: Vec<String>,
    drained: bool,
}

/// The next page of the pods of a node.
pub(super) struct NodePage {
    pub node: String,
    pub continue_token: Option<String>,
}

impl NodeDrain {
    pub fn page(&self) -> Option<NodePage> {
        let node = self.node.clone().filter(|_| !self.drained)?;
        Some(NodePage { node, continue_token: self.continue_token.clone() })
    }
}

impl KubeMachine {
    /// Drains the node of an instance. Nothing of ours is bound to it from now on, and [`KubeReport::Drained`] says when its instance may be
    /// terminated. Asked for again, the answer is given again.
    pub fn drain(&mut self, instance: &str) {
        let drain = self.drains.entry(instance.to_owned()).or_default();
        if drain.drained {
            return self.reports.push(KubeReport::Drained { instance: instance.to_owned() });
        }
        // What waits to be bound there waits for good.
        self.look_at_workers_on(instance);
        self.drain_step(instance, Timestamp(0));
    }

    /// Cordons a node that is to be drained. One that does not exist is empty.
    pub(super) fn drain_step(&mut self, instance: &str, now: Timestamp) {
        if !self.listings.complete() {
            return;
        }
        let Some(drain) = self.drains.get(instance) else { return };
        if drain.drained || drain.node.is_some() {
            return;
        }
        if self.node_of.contains_key(instance) {
            self.agenda.plan(Task::Cordon(instance.to_owned()), now);
        } else {
            self.drained(instance);
        }
    }

    pub(super) fn drained(&mut self, instance: &str) {
        if let Some(drain) = self.drains.get_mut(instance)
            && !drain.drained
        {
            drain.drained = true;
            self.reports.push(KubeReport::Drained { instance: instance.to_owned() });
        }
    }

    /// A node is cordoned: its pods are listed when no Binding that was decided before can arrive any more.
    pub(super) fn cordoned(&mut self, instance: &str, now: Timestamp) {
        let Some(name) = self.node_of.get(instance).cloned() else { return self.drained(instance) };
        if let Some(drain) = self.drains.get_mut(instance) {
            drain.node = Some(name);
            drain.since.get_or_insert(now);
            self.agenda.plan(Task::NodePods(instance.to_owned()), now + self.settings.settle);
        }
    }

    pub(super) fn node_pods_page(&mut self, instance: &str, response: KubeResponse, now: Timestamp) {
        let again = now + self.settings.settle;
        let KubeResponse::Page { objects, continue_token, .. } = response else {
            if let Some(drain) = self.drains.get_mut(instance) {
                drain.continue_token = None;
                drain.bound.clear();
                drain.found.clear();
            }
            return self.agenda.plan(Task::NodePods(instance.to_owned()), again);
        };
        let pods = objects.iter().filter_map(|object| if let KubeObject::Pod(pod) = object { Some(pod) } else { None });
        let bound: Vec<&KubePod> = pods.filter(|pod| self.keeps_node(pod, now)).collect();
        // A lost pod is work that somebody paid for: it is not asked to go.
        let lost = |pod: &KubePod| self.effect_means(&pod.metadata) == Some(ForeignId::Lost);
        let foreign = bound.iter().filter(|pod| self.pod_owner(&pod.metadata).is_none() && !lost(pod));
        let foreign: Vec<&KubePod> = foreign.copied().collect();
        let Some(drain) = self.drains.get_mut(instance) else { return };
        for pod in foreign {
            let key = PodKey::of(&pod.metadata);
            let known = drain.foreign.get(&key).filter(|known| known.uid == pod.metadata.uid);
            let kept_by = known.and_then(|known| known.kept_by.clone());
            drain.found.insert(key, ForeignPod { uid: pod.metadata.uid.clone(), kept_by });
        }
        drain.bound.extend(bound.iter().map(|pod| named(pod, &drain.found)));
        drain.continue_token = continue_token;
        if drain.continue_token.is_some() {
            return self.agenda.plan(Task::NodePods(instance.to_owned()), now);
        }
        let mut bound = std::mem::take(&mut drain.bound);
        drain.foreign = std::mem::take(&mut drain.found);
        if self.goes_with_foreign(instance, bound.len(), now) || bound.is_empty() {
            return self.empty_node(instance, now);
        }
        let Some(drain) = self.drains.get_mut(instance) else { return };
        bound.sort();
        bound.truncate(MOST_NAMED);
        if drain.reported != bound {
            drain.reported.clone_from(&bound);
            self.reports.push(KubeReport::DrainBlocked { instance: instance.to_owned(), pods: bound });
        }
        self.evict_foreign(instance, now);
        self.agenda.plan(Task::NodePods(instance.to_owned()), again);
    }

    /// Nothing is bound to a node. If somebody has lifted the cordon since, all begins again.
    fn empty_node(&mut self, instance: &str, now: Timestamp) {
        let node = self.node_of.get(instance).and_then(|name| self.nodes.get(name));
        if node.is_none_or(|node| node.spec.unschedulable) {
            return self.drained(instance);
        }
        if let Some(drain) = self.drains.get_mut(instance) {
            drain.node = None;
        }
        self.agenda.plan(Task::Cordon(instance.to_owned()), now);
    }

    /// Whether a node may not go because of a pod.
    fn keeps_node(&self, pod: &KubePod, now: Timestamp) -> bool {
        let of_daemon_set = pod.metadata.owner_references.iter().any(|owner| owner.kind == "DaemonSet");
        if of_daemon_set || pod.metadata.annotations.contains_key(MIRROR) {
            return false;
        }
        let Some(id) = self.pod_owner(&pod.metadata) else { return !pod.is_terminal() };
        let gang = self.gangs.get(&id.run);
        let Some((gang, worker)) = gang.and_then(|gang| Some((gang, gang.workers.get(&id.worker)?))) else {
            return true;
        };
        if let Life::Dead(_) = self.life(id.run, gang, worker) {
            return false;
        }
        let overdue = worker.deleted_by.is_some_and(|by| now.since(by) >= OVERDUE);
        // A run that is being stopped has been given up: a node is given back with nothing else on it.
        let ends = self.run_view(id.run).is_none_or(|run| matches!(run.stage, RunStage::Stopping { .. }));
        !(overdue && ends)
    }
}

/// A pod as people look for it, and why it may not be evicted.
fn named(pod: &KubePod, foreign: &BTreeMap<PodKey, ForeignPod>) -> String {
    let key = PodKey::of(&pod.metadata);
    match foreign.get(&key).and_then(|pod| pod.kept_by.as_ref()) {
        Some(why) => format!("{}/{} ({why})", key.namespace, key.name),
        None => format!("{}/{}", key.namespace, key.name),
    }
}
