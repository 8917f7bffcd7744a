//! Nodes: which instance each is, when it can take work, and its taints.
//!
//! Never: a change to a node of which the engine holds no claim.

use super::KubeMachine;
use super::KubeReport;
use super::agenda::Task;
use super::partition::PartitionState;
use crate::api_call::{KubeCall, Resource};
use crate::objects::{KubeNode, Taint};
use crate::view::ClaimPhase;
use forebay_kernel::event::Event;
use forebay_kernel::units::Timestamp;
use serde_json::json;

impl KubeMachine {
    /// Takes a node as it is now. An older state than the known one changes nothing.
    pub(super) fn see_node(&mut self, node: KubeNode) {
        let name = node.metadata.name.clone();
        if let Some(known) = self.nodes.get(&name) {
            let same = known.metadata.uid == node.metadata.uid;
            if same && known.metadata.version() >= node.metadata.version() {
                return;
            }
            if known.instance() != node.instance() {
                self.forget_node(&name);
            }
        }
        let instance = node.instance().map(str::to_owned);
        let before = self.nodes.insert(name.clone(), node);
        self.adopted_node_changed(&name, before.as_ref());
        self.owned_changed(&name);
        self.measure_node(&name);
        let owned = self.is_owned_claim(&name);
        if let Some(instance) = instance {
            self.node_of.insert(instance.clone(), name.clone());
            self.instance_changed(&instance);
        }
        // Workers name an owned node by its name, whatever its provider calls it.
        if owned {
            self.instance_changed(&name);
        }
    }

    /// A node does not exist any more. That proves nothing about its pods: its instance may be there.
    pub(super) fn forget_node(&mut self, name: &str) {
        let Some(node) = self.nodes.remove(name) else { return };
        self.lost_node_gone(name);
        self.adopted_node_changed(name, Some(&node));
        self.owned_changed(name);
        self.measure_node(name);
        if let Some(instance) = node.instance().filter(|i| self.node_of.get(*i).is_some_and(|of| of == name)) {
            let instance = instance.to_owned();
            self.node_of.remove(&instance);
            self.instance_changed(&instance);
        }
    }

    pub(super) fn instance_changed(&mut self, instance: &str) {
        self.look_at_workers_on(instance);
        self.check_node(instance);
    }

    /// Something has changed that concerns the workers on an instance, and the adopted objects there.
    pub(super) fn look_at_workers_on(&mut self, instance: &str) {
        self.adopted_instance_changed(instance);
        for id in self.workers_on.get(instance).into_iter().flatten() {
            self.changed.insert_worker(*id);
        }
    }

    /// The engine says that an instance is gone.
    pub(super) fn instance_gone(&mut self, instance: &str) {
        self.ready_reported.remove(instance);
        self.drains.remove(instance);
        self.look_at_workers_on(instance);
    }

    /// The node that a worker can be bound to now.
    pub(super) fn node_to_bind(&self, instance: Option<&str>) -> Option<&KubeNode> {
        let instance = instance?;
        let node = self.nodes.get(self.node_of.get(instance)?)?;
        let open = node.is_ready() && !node.spec.unschedulable && !node.metadata.is_deleting();
        (open && self.has_claim(instance) && !self.drains.contains_key(instance)).then_some(node)
    }

    /// Why a worker cannot be bound to its node now. `None`: it can.
    pub(super) fn why_unbound(&self, instance: Option<&str>) -> Option<String> {
        if self.node_to_bind(instance).is_some() {
            return None;
        }
        let Some(instance) = instance else { return Some("the engine knows no instance for this worker".to_owned()) };
        let Some(node) = self.node_of.get(instance).and_then(|name| self.nodes.get(name)) else {
            return Some(format!(
                "the cluster has no node of {instance}, and the whole gang waits for it: look at the kubelet there"
            ));
        };
        let name = &node.metadata.name;
        let why = if self.drains.contains_key(instance) || !self.has_claim(instance) {
            "is given back".to_owned()
        } else if node.metadata.is_deleting() {
            "is being deleted".to_owned()
        } else if !node.is_ready() {
            "is not ready: look at its kubelet".to_owned()
        } else {
            format!("is cordoned: `kubectl uncordon {name}` lets it start")
        };
        Some(format!("the whole gang waits for node {name}, which {why}"))
    }

    /// Reports that a booting node can take work, after its start-up taint was removed.
    pub(super) fn check_node(&mut self, instance: &str) {
        let Some(claim) = self.view.as_ref().and_then(|view| view.claims.get(instance)) else { return };
        if claim.phase != ClaimPhase::Booting {
            self.ready_reported.remove(instance);
            return self.clear_startup_taint(instance);
        }
        let Some(node) = self.node_of.get(instance).and_then(|name| self.nodes.get(name)) else { return };
        let offers = claim.offers.iter().all(|(resource, count)| node.allocatable(resource) >= *count);
        if !node.is_ready() || self.is_held_back(node) {
            return;
        }
        match self.partition_state(node, claim) {
            PartitionState::Settled if offers => {}
            PartitionState::Settled | PartitionState::Changing => return,
            PartitionState::Unlabelled => {
                let name = node.metadata.name.clone();
                return self.agenda.plan(Task::Partition(name), Timestamp(0));
            }
        }
        if self.taints_of(node) != node.spec.taints {
            let name = node.metadata.name.clone();
            self.agenda.plan(Task::Taints(name), Timestamp(0));
        } else if self.ready_reported.insert(instance.to_owned()) {
            self.reports.push(KubeReport::Event(Event::NodeReady { instance: instance.to_owned() }));
        }
    }

    /// A node that was ready and has registered again, because somebody deleted it, has the taint of its start again: that goes once more.
    fn clear_startup_taint(&mut self, instance: &str) {
        let Some(node) = self.node_of.get(instance).and_then(|name| self.nodes.get(name)) else { return };
        if self.is_tainted_again(instance, node) && node.is_ready() && !self.is_held_back(node) {
            let name = node.metadata.name.clone();
            self.agenda.plan(Task::Taints(name), Timestamp(0));
        }
    }

    /// Whether a node that was bought and takes work has the taint of its start.
    fn is_tainted_again(&self, instance: &str, node: &KubeNode) -> bool {
        let claim = self.view.as_ref().and_then(|view| view.claims.get(instance));
        let takes_work = claim.is_some_and(|claim| claim.phase == ClaimPhase::Ready && claim.owned.is_none());
        takes_work && node.spec.taints.iter().any(|taint| taint.key == self.settings.startup_taint)
    }

    /// Whether its network or storage is not there yet, or it is cordoned.
    fn is_held_back(&self, node: &KubeNode) -> bool {
        let not_ready = |taint: &Taint| self.settings.not_ready_taints.iter().any(|key| taint.key.starts_with(key));
        node.spec.unschedulable || node.spec.taints.iter().any(not_ready)
    }

    /// The taints of a node that is ready for work: ours, and those of others, without the one of its start.
    fn taints_of(&self, node: &KubeNode) -> Vec<Taint> {
        let starting = |taint: &&Taint| taint.key != self.settings.startup_taint;
        let mut taints: Vec<Taint> = node.spec.taints.iter().filter(starting).cloned().collect();
        if !taints.iter().any(|taint| taint.key == self.settings.node_taint) {
            let key = self.settings.node_taint.clone();
            taints.push(Taint { key, effect: "NoSchedule".to_owned(), ..Taint::default() });
        }
        taints
    }

    pub(super) fn taints_call(&self, name: &str) -> Option<KubeCall> {
        let node = self.nodes.get(name)?;
        let instance = node.instance()?;
        let booting = self.view.as_ref()?.claims.get(instance)?.phase == ClaimPhase::Booting;
        let taints = self.taints_of(node);
        if !(booting || self.is_tainted_again(instance, node)) || taints == node.spec.taints {
            return None;
        }
        let metadata = json!({"uid": node.metadata.uid, "resourceVersion": node.metadata.resource_version});
        let body = json!({"metadata": metadata, "spec": {"taints": taints}});
        Some(KubeCall::Merge {
            resource: Resource::Nodes,
            namespace: None,
            name: name.to_owned(),
            body: Box::new(body),
        })
    }
}
