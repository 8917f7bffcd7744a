//! The calls for adopted objects and the labels of nodes, and what their responses mean.

use super::index::label_of_job;
use super::news::News;
use super::step::Change;
use crate::adoption::{
    ANNOTATION_ADMITTED, ANNOTATION_STOPPED, LABEL_ADOPTED, NODE_LABEL_PREFIX, Workload, WorkloadId, WorkloadKind,
};
use crate::api_call::{KubeCall, KubeObject, KubeResponse, ObjectSelector, Resource};
use crate::kube_error::KubeErrorClass;
use crate::machine::KubeMachine;
use crate::machine::agenda::Task;
use crate::machine::responses::DENIED_AGAIN;
use crate::names::{ANNOTATION_EFFECT, LABEL_ATTEMPT, LABEL_JOB, LABEL_JOURNAL, RunId};
use crate::objects::KubeNode;
use crate::request::AdoptedStart;
use forebay_kernel::units::Timestamp;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

impl KubeMachine {
    pub(in crate::machine) fn adopt_call(&self, uid: &str) -> Option<KubeCall> {
        let change = self.change_of(uid)?;
        let id = self.view.as_ref()?.adopted.get(uid)?.object.clone();
        let workload = self.adoptions.workloads.get(uid);
        // Of what is listed, nothing is replaced that was not seen.
        let mut metadata = json!({ "uid": uid });
        if let Some(workload) = workload {
            metadata["resourceVersion"] = json!(workload.metadata.resource_version);
        }
        let WorkloadId { namespace, kind, name, .. } = id;
        let resource = kind.resource();
        let body = match change {
            Change::ClearStart => {
                let body = Box::new(json!({"metadata": metadata, "status": {"startTime": null}}));
                return Some(KubeCall::MergeStatus { resource, namespace, name, body });
            }
            Change::Suspend(run) => {
                if let Some(run) = run {
                    metadata["annotations"] = json!({ANNOTATION_STOPPED: run.to_string()});
                }
                json!({"metadata": metadata, "spec": {"suspend": true}})
            }
            Change::Admit(run) => {
                let request = self.adoptions.runs.get(&run)?.request.as_ref()?;
                metadata["annotations"] =
                    json!({ANNOTATION_ADMITTED: run.to_string(), ANNOTATION_EFFECT: request.effect});
                json!({"metadata": metadata, "spec": self.admitted_spec(workload?, run, request)})
            }
        };
        Some(KubeCall::Merge { resource, namespace: Some(namespace), name, body: Box::new(body) })
    }

    /// What of a specification changes when its object is unsuspended: its pods find the nodes of their attempt, and say whose they are.
    fn admitted_spec(&self, workload: &Workload, run: RunId, request: &AdoptedStart) -> Value {
        match workload.kind {
            WorkloadKind::Job => json!({
                "suspend": false,
                "template": self.steering(&workload.spec["template"]["spec"]["tolerations"], run, request),
            }),
            WorkloadKind::JobSet => {
                // A merge patch replaces a list, so it has all of it.
                let mut jobs = workload.spec["replicatedJobs"].clone();
                for job in jobs.as_array_mut().into_iter().flatten() {
                    let template = &mut job["template"]["spec"]["template"];
                    let steering = self.steering(&template["spec"]["tolerations"], run, request);
                    merge(template, steering);
                }
                json!({"suspend": false, "replicatedJobs": jobs})
            }
        }
    }

    fn steering(&self, tolerations: &Value, run: RunId, request: &AdoptedStart) -> Value {
        let labels = json!({
            LABEL_ADOPTED: "true",
            LABEL_JOURNAL: request.journal,
            LABEL_JOB: run.job.to_string(),
            LABEL_ATTEMPT: run.attempt.0.to_string(),
        });
        let mut all = tolerations.as_array().cloned().unwrap_or_default();
        let ours = json!({"key": self.settings.node_taint, "operator": "Exists", "effect": "NoSchedule"});
        if !all.contains(&ours) {
            all.push(ours);
        }
        json!({
            "metadata": {"labels": labels, "annotations": {ANNOTATION_EFFECT: request.effect}},
            "spec": {"nodeSelector": {label_of_job(run.job): run.attempt.0.to_string()}, "tolerations": all},
        })
    }

    pub(in crate::machine) fn adopt_answered(&mut self, uid: &str, response: KubeResponse, now: Timestamp) {
        self.object_changed(uid);
        match response {
            KubeResponse::Object(object) => {
                if let KubeObject::Workload(workload) = *object {
                    self.tell_change(uid, &workload, now);
                    // Without our label it is not listed, and nothing says what becomes of it; it was suspended, and its pods are seen.
                    let listed = self.adoptions.workloads.contains_key(uid);
                    if listed {
                        self.see_workload(*workload);
                    } else {
                        self.without_object(uid);
                    }
                }
            }
            KubeResponse::Refused(error) => match error.class {
                KubeErrorClass::NotFound => self.without_object(uid),
                // It has changed meanwhile, or is another one of that name: the watch says so, and it is decided anew.
                KubeErrorClass::Conflict if !self.adoptions.workloads.contains_key(uid) => self.without_object(uid),
                KubeErrorClass::Conflict => {
                    self.agenda.plan(Task::Adopt(uid.to_owned()), now + self.rates.delay(0));
                }
                _ => {
                    self.report_failure(&Task::Adopt(uid.to_owned()), 0, &error);
                    self.agenda.plan(Task::Adopt(uid.to_owned()), now + DENIED_AGAIN);
                }
            },
            _ => {}
        }
    }

    /// Says on an object what was done to it.
    fn tell_change(&mut self, uid: &str, workload: &Workload, now: Timestamp) {
        let Some(known) = self.view.as_ref().and_then(|view| view.adopted.get(uid)) else { return };
        let (object, job) = (known.object.clone(), known.job);
        let Some(run) = known.run.as_ref().map(|run| RunId { job, attempt: run.attempt }) else {
            if workload.is_suspended() {
                let note = format!(
                    "{job} waits for its turn: it was unsuspended before, and was suspended again; leave that to Forebay"
                );
                let key = workload.metadata.resource_version.clone();
                self.tell(&object, News::SuspendedAgain, &key, &note, now);
            }
            return;
        };
        if workload.was_stopped(run) {
            let note = format!("{run} was stopped; `forebay why {job}` says for what");
            self.tell(&object, News::Stopped, &run.to_string(), &note, now);
        } else if self.was_admitted(workload, run) && !workload.is_suspended() {
            self.tell(
                &object,
                News::Admitted,
                &run.to_string(),
                &format!("{run} was unsuspended: it is its turn"),
                now,
            );
        }
    }

    /// The API server says that an object is not there, or it was suspended without being listed.
    fn without_object(&mut self, uid: &str) {
        let runs = self.attempts_of_object(uid);
        self.adoptions.missing.extend(runs);
        self.adoptions.workloads.remove(uid);
    }

    pub(in crate::machine) fn adopted_pods_call(&self, run: RunId) -> Option<KubeCall> {
        let known = self.adoptions.runs.get(&run).filter(|known| !known.pods_listed)?;
        let labels = [(LABEL_JOURNAL, self.journal.clone()), (LABEL_JOB, run.job.to_string())];
        let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        Some(KubeCall::List {
            resource: Resource::Pods,
            namespace: None,
            selector: ObjectSelector::Labels(labels.join(",")),
            continue_token: known.continue_token.clone(),
        })
    }

    /// Takes a page of that list. One that fails is asked for again from its first page.
    pub(in crate::machine) fn adopted_pods_page(&mut self, run: RunId, response: KubeResponse, now: Timestamp) {
        self.job_changed(run.job);
        let page = match response {
            KubeResponse::Page { objects, continue_token, .. } => Some((objects, continue_token)),
            _ => None,
        };
        let Some(known) = self.adoptions.runs.get_mut(&run) else { return };
        let Some((objects, continue_token)) = page else {
            known.continue_token = None;
            return self.agenda.plan(Task::AdoptedPods(run), now + self.rates.delay(0));
        };
        known.pods_listed = continue_token.is_none();
        known.continue_token = continue_token;
        for object in objects {
            if let KubeObject::Pod(pod) = object {
                self.see_pod(pod);
            }
        }
    }

    /// The labels of attempts that a node is to have.
    fn wanted_labels(&self, node: &KubeNode) -> BTreeMap<String, String> {
        let mut wanted = BTreeMap::new();
        let name = &node.metadata.name;
        // Workers name a node by its instance; an owned one by its name.
        let instances: BTreeSet<&str> = node.instance().into_iter().chain([name.as_str()]).collect();
        for instance in instances.into_iter().filter(|instance| self.node_of.get(*instance) == Some(name)) {
            for uid in self.adoptions.index.placed_on(instance) {
                let known = self.view.as_ref().and_then(|view| view.adopted.get(uid));
                // A pod of a start that is lost would find them.
                let Some(known) = known.filter(|_| !self.runs_lost(uid)) else { continue };
                let Some(run) = &known.run else { continue };
                let id = RunId { job: known.job, attempt: run.attempt };
                // While it ends, nothing of it is bound any more.
                let goes_on =
                    self.adoptions.runs.get(&id).is_some_and(|kept| kept.verdict.is_none() && kept.outcome.is_none());
                if goes_on {
                    wanted.insert(label_of_job(id.job), id.attempt.0.to_string());
                }
            }
        }
        wanted
    }

    /// Whether the labels of attempts of a node of ours are not what they are to be.
    pub(super) fn labels_differ(&self, name: &str) -> bool {
        let Some(node) = self.node_to_label(name) else { return false };
        let wanted = self.wanted_labels(node);
        !labels_of(node).into_iter().eq(wanted.iter().map(|(key, value)| (key.as_str(), value.as_str())))
    }

    fn node_to_label(&self, name: &str) -> Option<&KubeNode> {
        let node = self.nodes.get(name)?;
        node.instance().is_some_and(|instance| self.has_claim(instance)).then_some(node)
    }

    pub(in crate::machine) fn label_node_call(&self, name: &str) -> Option<KubeCall> {
        let node = self.node_to_label(name)?;
        let wanted = self.wanted_labels(node);
        let is = labels_of(node);
        let mut labels = Map::new();
        for key in is.keys().filter(|key| !wanted.contains_key(**key)) {
            labels.insert((*key).to_owned(), Value::Null);
        }
        for (key, value) in wanted.iter().filter(|(key, value)| is.get(key.as_str()) != Some(&value.as_str())) {
            labels.insert(key.clone(), json!(value));
        }
        let body = json!({"metadata": {"uid": node.metadata.uid, "labels": labels}});
        let (resource, name) = (Resource::Nodes, name.to_owned());
        (!labels_are_empty(&body)).then(|| KubeCall::Merge { resource, namespace: None, name, body: Box::new(body) })
    }

    pub(in crate::machine) fn node_labelled(&mut self, name: String, response: KubeResponse, now: Timestamp) {
        self.adoptions.changes.nodes.insert(name.clone());
        match response {
            KubeResponse::Object(object) => {
                if let KubeObject::Node(node) = *object {
                    self.see_node(node);
                }
            }
            // Another node of that name, or none: the watch says what became of it.
            KubeResponse::Refused(error)
                if matches!(error.class, KubeErrorClass::NotFound | KubeErrorClass::Conflict) =>
            {
                self.agenda.plan(Task::List(Resource::Nodes), now + self.rates.delay(0));
            }
            KubeResponse::Refused(error) => {
                self.report_failure(&Task::LabelNode(name.clone()), 0, &error);
                self.agenda.plan(Task::LabelNode(name), now + DENIED_AGAIN);
            }
            _ => {}
        }
    }
}

/// The labels of attempts that a node has.
fn labels_of(node: &KubeNode) -> BTreeMap<&str, &str> {
    let labels = node.metadata.labels.iter().filter(|(key, _)| key.starts_with(NODE_LABEL_PREFIX));
    labels.map(|(key, value)| (key.as_str(), value.as_str())).collect()
}

fn labels_are_empty(body: &Value) -> bool {
    body["metadata"]["labels"].as_object().is_none_or(Map::is_empty)
}

/// JSON merge patch (RFC 7386), without the removal of fields.
fn merge(into: &mut Value, patch: Value) {
    match patch {
        Value::Object(fields) => {
            if !into.is_object() {
                *into = json!({});
            }
            for (name, value) in fields {
                merge(&mut into[name.as_str()], value);
            }
        }
        other => *into = other,
    }
}
