//! What goes wrong in a run of a seed: crashes, deletions, reboots, cut-off kubelets, an API server that is away, and how all is well again.

use super::{MOST_CALLS_AWAY, World};
use crate::api::{ObjectKey, text};
use crate::kubelets::Machine;
use forebay_cluster_kube::view::RunStage;
use forebay_cluster_kube::{Resource, RunId};
use forebay_kernel::ids::JobId;
use serde_json::{Value, json};
use std::collections::BTreeSet;

impl World {
    pub(super) fn some_pod(&mut self) -> Option<ObjectKey> {
        let pods: Vec<ObjectKey> = self.ours().filter(|key| key.0 == Resource::Pods).cloned().collect();
        (!pods.is_empty()).then(|| pods[self.dice.below(pods.len() as u64) as usize].clone())
    }

    /// The first that has completed and that nobody deletes yet.
    fn completed_pod(&self) -> Option<ObjectKey> {
        let completed = |key: &&ObjectKey| {
            let pod = &self.api.objects[*key];
            text(pod, "/status/phase") == "Succeeded" && pod["metadata"]["deletionTimestamp"].is_null()
        };
        self.ours().filter(|key| key.0 == Resource::Pods).find(completed).cloned()
    }

    fn somebody_deletes(&mut self, key: &ObjectKey) {
        self.note_completed(key);
        self.api.delete(key, 5000, self.now, false);
        self.tell(format!("somebody deletes {}", key.2));
        self.count("foreign deletions");
    }

    pub(super) fn some_instance(&mut self) -> Option<String> {
        let all: Vec<String> = self.machines.keys().cloned().collect();
        (!all.is_empty()).then(|| all[self.dice.below(all.len() as u64) as usize].clone())
    }

    pub(super) fn fault(&mut self) {
        if self.is_away() {
            return;
        }
        match self.dice.below(150) {
            0..=2 => {
                self.api.compact();
                self.count("compactions");
            }
            3..=4 => {
                if let Some(key) = self.some_pod() {
                    self.somebody_deletes(&key);
                }
            }
            // Somebody who tidies up: there are few of those, for what has completed is soon known.
            19..=24 => {
                if let Some(key) = self.completed_pod() {
                    self.somebody_deletes(&key);
                }
            }
            5 | 17 => {
                // By force, and without our finalizer.
                if let Some(key) = self.some_pod() {
                    self.api.edit(&key, |pod| pod["metadata"]["finalizers"] = json!([]));
                    self.api.delete(&key, 0, self.now, true);
                    // Nobody can know what it had come to.
                    self.completed.clear();
                    self.tell(format!("somebody deletes {} by force", key.2));
                    // As often as not because the node does not answer: what runs there runs on.
                    if self.dice.one_in(2) {
                        self.cut_off_node_of(&key);
                    }
                    self.count("forced deletions");
                }
            }
            6 => self.namespace(),
            7..=8 => {
                if let Some(instance) = self.some_instance() {
                    let until = self.now + self.dice.below(120_000);
                    self.machines.get_mut(&instance).expect("there").cut_off_until = until;
                    self.tell(format!("{instance} is cut off"));
                    self.count("kubelets cut off");
                }
            }
            9 => {
                if let Some(instance) = self.some_instance() {
                    self.reboot(&instance);
                }
            }
            10 => {
                if let Some(instance) = self.some_instance() {
                    self.end_instance(&instance);
                    self.boot();
                }
            }
            11..=12 => self.delete_node_object(),
            13..=16 => self.collect_garbage(),
            18 if self.dice.one_in(3) => self.leave(),
            _ => {}
        }
    }

    /// A pod that has completed is deleted: nothing of an attempt with no other worker is lost by it.
    fn note_completed(&mut self, key: &ObjectKey) {
        let Some(pod) = self.api.objects.get(key) else { return };
        let completed = text(pod, "/status/phase") == "Succeeded" && pod["metadata"]["deletionTimestamp"].is_null();
        let worker = text(pod, "/metadata/annotations/forebay.dev~1worker");
        let Some((job, attempt)) =
            worker.strip_prefix("job-").and_then(|rest| rest.strip_suffix("/0")?.split_once('/'))
        else {
            return;
        };
        let job = JobId(job.parse().expect("a job"));
        let Some(known) = self.engine.jobs.get(&job) else { return };
        let runs = known.run.as_ref().is_some_and(|run| run.stage == RunStage::Running);
        if completed && runs && known.workers == 1 && known.attempt.to_string() == attempt {
            self.completed.insert(job, known.attempt);
            self.count("completed pods deleted");
        }
    }

    fn cut_off_node_of(&mut self, key: &ObjectKey) {
        let holds = |m: &&mut Machine| m.alive.values().any(|container| container.key == *key);
        if let Some(machine) = self.machines.values_mut().find(holds) {
            machine.cut_off_until = self.now + 120_000;
        }
    }

    /// Everything in a namespace is deleted; later it is there again.
    fn namespace(&mut self) {
        let key = (Resource::Namespaces, String::new(), "other".to_owned());
        self.api.edit(&key, |object| object["metadata"]["deletionTimestamp"] = json!("now"));
        let keys: Vec<ObjectKey> = self.api.objects.keys().filter(|key| key.1 == "other").cloned().collect();
        for key in keys {
            self.api.delete(&key, 5000, self.now, key.0 != Resource::Pods);
        }
        self.count("namespaces deleted");
    }

    fn reboot(&mut self, instance: &str) {
        let machine = self.machines.get_mut(instance).expect("there");
        machine.boot += 1;
        machine.alive.clear();
        // Its kubelet says nothing about the pods of before for a while.
        machine.cut_off_until = self.now + 60_000;
        let (boot, key) = (machine.boot, (Resource::Nodes, String::new(), machine.name.clone()));
        self.api.edit(&key, |node| node["status"]["nodeInfo"]["bootID"] = json!(format!("boot-{boot}")));
        self.tell(format!("{instance} is started again"));
        self.count("reboots");
    }

    pub(super) fn end_instance(&mut self, instance: &str) {
        let Some(machine) = self.machines.remove(instance) else { return };
        self.api.delete(&(Resource::Nodes, String::new(), machine.name), 0, self.now, true);
        self.engine.instance_gone(instance, self.now);
        let stopping: Vec<RunId> = self.engine.view().runs.keys().copied().collect();
        self.kube.handle_state(self.engine.view());
        for run in stopping {
            self.release(run);
        }
        self.tell(format!("{instance} is gone"));
        self.count("instances gone");
    }

    /// Somebody deletes the node's object while the machine runs on, cut off.
    fn delete_node_object(&mut self) {
        let Some(instance) = self.some_instance() else { return };
        let machine = self.machines.get_mut(&instance).expect("there");
        machine.cut_off_until = u64::MAX;
        self.api.delete(&(Resource::Nodes, String::new(), machine.name.clone()), 0, self.now, true);
        self.tell(format!("the node of {instance} is deleted"));
        self.count("node objects deleted");
    }

    /// PodGC: pods of nodes that are not there are called failed and deleted by force, whatever runs.
    pub(super) fn collect_garbage(&mut self) {
        let nodes: BTreeSet<String> =
            self.api.objects.keys().filter(|key| key.0 == Resource::Nodes).map(|key| key.2.clone()).collect();
        let lost = |(key, pod): &(&ObjectKey, &Value)| {
            let node = text(pod, "/spec/nodeName");
            key.0 == Resource::Pods
                && !node.is_empty()
                && !nodes.contains(node)
                && pod["foreign"] != true
                && pod["ended"] != true
        };
        let keys: Vec<ObjectKey> = self.api.objects.iter().filter(lost).map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.api.edit(&key, |pod| {
                if text(pod, "/status/phase") != "Succeeded" {
                    pod["status"]["phase"] = json!("Failed");
                }
                pod["status"]["conditions"] =
                    json!([{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}]);
            });
            self.api.delete(&key, 0, self.now, true);
            self.tell(format!("{} is garbage", key.2));
            self.count("garbage collected");
        }
    }

    /// What is cut off comes back, or its instance is ended by the cloud.
    pub(super) fn heal(&mut self) {
        self.away_until = 0;
        let key = (Resource::Namespaces, String::new(), "other".to_owned());
        self.api.edit(&key, |object| object["metadata"]["deletionTimestamp"] = json!(null));
        let nodes: BTreeSet<String> =
            self.api.objects.keys().filter(|key| key.0 == Resource::Nodes).map(|key| key.2.clone()).collect();
        let instances: Vec<String> = self.machines.keys().cloned().collect();
        for instance in instances {
            if !nodes.contains(&self.machines[&instance].name) {
                self.end_instance(&instance);
            } else if let Some(machine) = self.machines.get_mut(&instance) {
                machine.cut_off_until = 0;
            }
        }
        while self.machines.len() < 5 {
            self.boot();
        }
    }

    pub(super) fn is_away(&self) -> bool {
        self.now < self.away_until
    }

    /// The API server is gone for up to five minutes: no call arrives, no kubelet writes, every watch breaks.
    fn leave(&mut self) {
        let minutes = 1 + self.dice.below(5);
        self.away_until = self.now + minutes * 60_000;
        self.calls_away = 0;
        self.tell(format!("the API server is away for {minutes} min"));
        self.count("API server away");
    }

    /// It is there again. Nobody has asked much more often than it takes to see that.
    pub(super) fn back(&mut self) {
        if self.away_until == 0 || self.is_away() {
            return;
        }
        self.away_until = 0;
        self.roles_known_at = self.now + self.dice.below(20_000);
        self.tell(format!("the API server is back after {} calls", self.calls_away));
        if self.calls_away > MOST_CALLS_AWAY {
            self.violations.push(format!("{} calls while the API server was away", self.calls_away));
        }
    }
}
