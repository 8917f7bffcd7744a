//! The rest of a cluster: controllers of Jobs and JobSets that act on what they saw a while ago, kube-scheduler, kubelets and their processes.

use super::api::{ApiServer, ObjectKey, deleting, text};
use super::dice::Dice;
use forebay_cluster_kube::Resource;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// A process of a container, by its pod's uid.
pub struct Process {
    pub job: String,
    pub attempt: String,
    pub instance: String,
}

#[derive(Default)]
pub struct Cluster {
    pub api: ApiServer,
    /// What really runs.
    pub processes: BTreeMap<String, Process>,
    /// What the controllers saw of each object.
    pub seen: BTreeMap<ObjectKey, Value>,
    pub names: u64,
}

pub const NAMESPACE: &str = "team";

/// The templates of an object, with how many pods each has.
fn groups(object: &Value) -> Vec<(Value, u64)> {
    match object["spec"]["replicatedJobs"].as_array() {
        None => vec![(object["spec"]["template"].clone(), object["spec"]["parallelism"].as_u64().unwrap_or(1))],
        Some(jobs) => jobs
            .iter()
            .map(|job| {
                let spec = &job["template"]["spec"];
                let pods = job["replicas"].as_u64().unwrap_or(1) * spec["parallelism"].as_u64().unwrap_or(1);
                (spec["template"].clone(), pods)
            })
            .collect(),
    }
}

pub fn workers(object: &Value) -> u64 {
    groups(object).iter().map(|(_, pods)| pods).sum()
}

pub fn is_over(pod: &Value) -> bool {
    matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}

impl Cluster {
    pub fn pods_of(&self, uid: &str) -> Vec<(ObjectKey, Value)> {
        let of = |(key, pod): &(&ObjectKey, &Value)| key.0 == Resource::Pods && text(pod, "/owner") == uid;
        self.api.objects.iter().filter(of).map(|(key, pod)| (key.clone(), pod.clone())).collect()
    }

    /// A controller looks at an object.
    pub fn look(&mut self, key: &ObjectKey) {
        if let Some(object) = self.api.objects.get(key) {
            self.seen.insert(key.clone(), object.clone());
        }
    }

    /// A controller acts on what it saw of an object. Its pods are known to it as they are.
    pub fn control(&mut self, key: &ObjectKey) {
        let Some(seen) = self.seen.get(key).cloned() else { return };
        let Some(now) = self.api.objects.get(key) else { return };
        let uid = text(&seen, "/metadata/uid").to_owned();
        if text(now, "/metadata/uid") != uid || deleting(now) {
            return;
        }
        // What has completed never has another pod.
        let over = |condition: &Value| matches!(text(condition, "/type"), "Complete" | "Completed");
        if now["status"]["conditions"].as_array().is_some_and(|all| all.iter().any(over)) {
            return;
        }
        let suspended = seen["spec"]["suspend"] == true;
        let pods = self.pods_of(&uid);
        for (index, (template, count)) in groups(&seen).into_iter().enumerate() {
            let of_group = |pod: &Value| pod["group"] == index;
            let succeeded =
                pods.iter().filter(|(_, pod)| of_group(pod) && text(pod, "/status/phase") == "Succeeded").count()
                    as u64;
            let left: Vec<_> = pods.iter().filter(|(_, pod)| of_group(pod) && !is_over(pod)).collect();
            if suspended {
                for (pod, _) in left.iter().filter(|(_, pod)| !deleting(pod)) {
                    self.api.delete(pod, 1000, 0, false);
                }
            } else {
                // `podReplacementPolicy: Failed`: those that end hold their place.
                for _ in (succeeded + left.len() as u64)..count {
                    self.names += 1;
                    let mut pod = template.clone();
                    pod["metadata"]["name"] = json!(format!("p-{}", self.names));
                    pod["metadata"]["namespace"] = json!(NAMESPACE);
                    pod["owner"] = json!(uid);
                    pod["group"] = json!(index);
                    self.api.create(Resource::Pods, NAMESPACE, pod);
                }
            }
        }
        self.report(key, suspended);
    }

    /// What a controller says of an object.
    fn report(&mut self, key: &ObjectKey, suspended: bool) {
        let Some(object) = self.api.objects.get(key).cloned() else { return };
        let pods = self.pods_of(text(&object, "/metadata/uid"));
        let succeeded = pods.iter().filter(|(_, pod)| text(pod, "/status/phase") == "Succeeded").count() as u64;
        // Pods that are being deleted are not active. A Job counts them beside; a JobSet does not say.
        let active = pods.iter().filter(|(_, pod)| !is_over(pod) && !deleting(pod)).count() as u64;
        let terminating = pods.iter().filter(|(_, pod)| !is_over(pod) && deleting(pod)).count() as u64;
        let job = key.0 == Resource::Jobs;
        let complete = succeeded >= workers(&object);
        let mut status = object["status"].clone();
        status["conditions"] = json!([{"type": "Suspended", "status": if suspended { "True" } else { "False" }}]);
        if complete {
            let kind = if job { "Complete" } else { "Completed" };
            status["conditions"].as_array_mut().expect("a list").push(json!({"type": kind, "status": "True"}));
        }
        if job {
            status["active"] = json!(active);
            status["terminating"] = json!(terminating);
            status["succeeded"] = json!(succeeded);
            if !suspended && status["startTime"].is_null() {
                status["startTime"] = json!("2026-01-01T00:00:00Z");
            }
        } else {
            status["replicatedJobsStatus"] = json!([{"name": "all", "active": active}]);
        }
        if status != object["status"] {
            self.api.edit(key, |object| object["status"] = status);
        }
    }

    /// kube-scheduler: a pod goes to a node that its selector fits.
    pub fn schedule(&mut self, dice: &mut Dice) {
        let free = |(key, pod): &(&ObjectKey, &Value)| {
            key.0 == Resource::Pods && text(pod, "/spec/nodeName").is_empty() && !deleting(pod)
        };
        let pods: Vec<(ObjectKey, Value)> =
            self.api.objects.iter().filter(free).map(|(key, pod)| (key.clone(), pod["spec"].clone())).collect();
        for (key, spec) in pods {
            let tolerated =
                spec["tolerations"].as_array().is_some_and(|all| all.iter().any(|t| t["key"] == "forebay.dev/node"));
            let fits = |(node, object): &(&ObjectKey, &Value)| {
                let wanted = spec["nodeSelector"].as_object();
                node.0 == Resource::Nodes
                    && tolerated
                    && wanted.into_iter().flatten().all(|(name, value)| &object["metadata"]["labels"][name] == value)
            };
            let nodes: Vec<String> = self.api.objects.iter().filter(fits).map(|(node, _)| node.2.clone()).collect();
            if !nodes.is_empty() {
                let node = nodes[dice.below(nodes.len() as u64) as usize].clone();
                self.api.edit(&key, |pod| pod["spec"]["nodeName"] = json!(node));
            }
        }
    }

    /// Kubelets: containers start, and end by themselves or as their pods are deleted. Those that ended by themselves ended well.
    pub fn kubelets(&mut self, dice: &mut Dice, alive: &BTreeSet<String>) -> Vec<(String, String, String)> {
        let mut started = Vec::new();
        let bound =
            |(key, pod): &(&ObjectKey, &Value)| key.0 == Resource::Pods && !text(pod, "/spec/nodeName").is_empty();
        let pods: Vec<(ObjectKey, Value)> =
            self.api.objects.iter().filter(bound).map(|(key, pod)| (key.clone(), pod.clone())).collect();
        for (key, pod) in pods {
            let instance = text(&pod, "/spec/nodeName").replace('n', "i");
            if !alive.contains(&instance) || is_over(&pod) || !dice.one_in(3) {
                continue;
            }
            let uid = text(&pod, "/metadata/uid").to_owned();
            let runs = self.processes.contains_key(&uid);
            let ends = if deleting(&pod) { Some(143) } else { (runs && dice.one_in(12)).then_some(0) };
            if let Some(code) = ends {
                self.processes.remove(&uid);
                self.api.edit(&key, |pod| {
                    pod["status"]["phase"] = json!(if code == 0 { "Succeeded" } else { "Failed" });
                    pod["status"]["containerStatuses"] =
                        json!([{"name": "w", "state": {"terminated": {"exitCode": code}}}]);
                    pod["ended"] = json!(deleting(pod));
                });
            } else if !runs {
                let label = |name: &str| pod["metadata"]["labels"][name].as_str().unwrap_or("").to_owned();
                let (job, attempt) = (label("forebay.dev/job"), label("forebay.dev/attempt"));
                started.push((job.clone(), attempt.clone(), instance.clone()));
                self.processes.insert(uid, Process { job, attempt, instance });
                self.api.edit(&key, |pod| {
                    pod["status"]["phase"] = json!("Running");
                    pod["status"]["containerStatuses"] = json!([{"name": "w", "state": {"running": {}}}]);
                });
            }
        }
        started
    }
}
