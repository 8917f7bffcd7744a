//! The calls for adopted objects and the labels of nodes, and what their responses mean.

use super::news::News;
use super::step::{Change, node_label};
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
use std::collections::BTreeMap;

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
            "spec": {"nodeSelector": {node_label(run): run.attempt.0.to_string()}, "tolerations": all},
        })
    }

    pub(in crate::machine) fn adopt_answered(&mut self, uid: &str, response: KubeResponse, now: Timestamp) {
        self.adoptions.changed = true;
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
        let of_object = self.adoptions.runs.iter().filter(|(_, known)| known.object.uid == uid);
        let runs: Vec<RunId> = of_object.map(|(run, _)| *run).collect();
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
        self.adoptions.changed = true;
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
    fn wanted_labels(&self) -> BTreeMap<&str, BTreeMap<String, String>> {
        let mut wanted: BTreeMap<&str, BTreeMap<String, String>> = BTreeMap::new();
        for (uid, known) in self.view.iter().flat_map(|view| &view.adopted) {
            // A pod of a start that is lost would find them.
            let Some(run) = known.run.as_ref().filter(|_| !self.runs_lost(uid)) else { continue };
            let id = RunId { job: known.job, attempt: run.attempt };
            // While it ends, nothing of it is bound any more.
            if self.adoptions.runs.get(&id).is_none_or(|kept| kept.verdict.is_some() || kept.outcome.is_some()) {
                continue;
            }
            for name in run.workers.values().filter_map(|instance| self.node_of.get(instance)) {
                wanted.entry(name).or_default().insert(node_label(id), id.attempt.0.to_string());
            }
        }
        wanted
    }

    /// The names of nodes whose labels of attempts are not what they are to be.
    pub(super) fn nodes_to_label(&self) -> Vec<String> {
        let wanted = self.wanted_labels();
        let none = BTreeMap::new();
        let differs = |node: &&KubeNode| {
            let is = labels_of(node);
            let wanted = wanted.get(node.metadata.name.as_str()).unwrap_or(&none);
            !is.iter().map(|(key, value)| (*key, *value)).eq(wanted.iter().map(|(k, v)| (k.as_str(), v.as_str())))
        };
        let ours = |node: &&KubeNode| node.instance().is_some_and(|instance| self.has_claim(instance));
        self.nodes.values().filter(ours).filter(differs).map(|node| node.metadata.name.clone()).collect()
    }

    pub(in crate::machine) fn label_node_call(&self, name: &str) -> Option<KubeCall> {
        let node = self.nodes.get(name).filter(|node| node.instance().is_some_and(|i| self.has_claim(i)))?;
        let wanted = self.wanted_labels().remove(name).unwrap_or_default();
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
        self.adoptions.changed = true;
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
