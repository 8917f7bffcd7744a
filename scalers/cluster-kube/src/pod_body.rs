//! The objects of a gang as they are created: the pod of each worker, the headless Service, and the ConfigMap with the hostfile. The same
//! request always makes the same bytes.
//!
//! Every worker has these variables beside those of docs/CHECKPOINTS.md:
//!
//! | variable | value |
//! | --- | --- |
//! | `FOREBAY_WORKER`, `RANK`, `PET_NODE_RANK` | the number of the worker, from 0 |
//! | `WORLD_SIZE` | the number of workers, not of GPUs: torchrun sets its own in the processes that it starts |
//! | `MASTER_ADDR`, `MASTER_PORT`, `PET_MASTER_ADDR`, `PET_MASTER_PORT` | worker 0, by its name in DNS |
//! | `PET_NNODES` | the number of workers; `MIN:MAX` for an elastic gang |
//! | `PET_NPROC_PER_NODE` | the GPUs of the worker, at least 1 |
//! | `PET_RDZV_BACKEND`, `PET_RDZV_ENDPOINT`, `PET_RDZV_ID` | `static`, or `c10d` for an elastic gang; worker 0; job and attempt |
//! | `FOREBAY_TOKEN_FILE` | a file with the token with which it may report for its attempt |
//! | `FOREBAY_HOSTFILE` | a file with a line `NAME slots=GPUS` for each worker |

use crate::api_call::SecretBody;
use crate::names::{
    ANNOTATION_CONTAINER, ANNOTATION_EFFECT, ANNOTATION_INSTANCE, ANNOTATION_WORKER, FINALIZER, GATE_CONTAINER,
    LABEL_ATTEMPT, LABEL_JOB, LABEL_JOURNAL, VOLUME_GANG, VOLUME_TOKEN, WorkerId, host_name,
};
use crate::request::{GangRequest, RunToken, WorkerRequest};
use crate::template::{GANG_PATH, TOKEN_PATH, append, container_of, init_container_of, set_env};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

impl GangRequest {
    /// A worker's pod. `None`: the gang has no such worker.
    #[must_use]
    pub fn pod_body(&self, number: u32) -> Option<Value> {
        let worker = self.workers.get(number as usize)?;
        let mut pod = self.pod.clone();
        let fields = pod.as_object_mut()?;
        fields.insert("apiVersion".to_owned(), json!("v1"));
        fields.insert("kind".to_owned(), json!("Pod"));
        within(fields, "metadata", |metadata| self.pod_metadata(number, worker, metadata));
        within(fields, "spec", |spec| {
            spec.insert("hostname".to_owned(), json!(format!("w{number}")));
            spec.insert("subdomain".to_owned(), json!(self.service));
            let hosts = json!({"name": VOLUME_GANG, "configMap": {"name": self.service}});
            let token = json!({"name": VOLUME_TOKEN, "secret": {"secretName": self.service}});
            append(spec, "volumes", [hosts, token]);
        });
        if let Some(gate) = init_container_of(&mut pod, GATE_CONTAINER) {
            gate.insert("resources".to_owned(), gate_resources(&worker.requests));
        }
        if let Some(container) = container_of(&mut pod, &self.container) {
            let env = self.env.iter().cloned().chain(self.worker_env(number, worker));
            set_env(container, env.map(|(name, value)| json!({"name": name, "value": value})));
            within(container, "resources", |resources| {
                within(resources, "requests", |requests| requests.extend(quantities(&worker.requests)));
                within(resources, "limits", |limits| limits.extend(quantities(&worker.limits)));
            });
        }
        Some(pod)
    }

    fn pod_metadata(&self, number: u32, worker: &WorkerRequest, metadata: &mut Map<String, Value>) {
        metadata.insert("name".to_owned(), json!(self.pod_name(number)));
        metadata.insert("namespace".to_owned(), json!(self.namespace));
        metadata.insert("finalizers".to_owned(), json!([FINALIZER]));
        within(metadata, "labels", |labels| labels.extend(self.labels()));
        within(metadata, "annotations", |annotations| {
            let id = WorkerId { run: self.run(), worker: number };
            annotations.insert(ANNOTATION_WORKER.to_owned(), json!(id.to_string()));
            annotations.insert(ANNOTATION_EFFECT.to_owned(), json!(self.effect));
            annotations.insert(ANNOTATION_CONTAINER.to_owned(), json!(self.container));
            if let Some(instance) = &worker.instance {
                annotations.insert(ANNOTATION_INSTANCE.to_owned(), json!(instance));
            }
        });
    }

    /// The headless Service that gives each worker a name in DNS, before it is ready too.
    #[must_use]
    pub fn service_body(&self) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": self.object_metadata(),
            "spec": {
                "clusterIP": "None",
                "publishNotReadyAddresses": true,
                "selector": self.labels(),
                "ports": [{"name": "master", "port": self.master_port}],
            },
        })
    }

    /// The ConfigMap with the hostfile.
    #[must_use]
    pub fn hosts_body(&self) -> Value {
        let line = |(number, worker): (usize, &WorkerRequest)| {
            format!("{} slots={}\n", host_name(number as u32, &self.service), worker.gpus.max(1))
        };
        let hosts: String = self.workers.iter().enumerate().map(line).collect();
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": self.object_metadata(),
            "data": {"hostfile": hosts},
        })
    }

    /// The Secret with the attempt's token. The gang's Service owns it: the garbage collector deletes it with the Service, so that we need no
    /// right to read or delete Secrets.
    #[must_use]
    pub fn token_body(&self, token: &RunToken, service_uid: &str) -> SecretBody {
        let mut metadata = self.object_metadata();
        metadata["ownerReferences"] =
            json!([{"apiVersion": "v1", "kind": "Service", "name": self.service, "uid": service_uid}]);
        SecretBody(json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": metadata,
            "immutable": true,
            "stringData": {"token": token.reveal()},
        }))
    }

    fn object_metadata(&self) -> Value {
        json!({
            "name": self.service,
            "namespace": self.namespace,
            "labels": self.labels(),
            "annotations": {ANNOTATION_EFFECT: self.effect, ANNOTATION_WORKER: WorkerId { run: self.run(), worker: 0 }.to_string()},
        })
    }

    fn labels(&self) -> Map<String, Value> {
        let run = self.run();
        let labels = [
            (LABEL_JOURNAL, self.journal.clone()),
            (LABEL_JOB, run.job.to_string()),
            (LABEL_ATTEMPT, run.attempt.0.to_string()),
        ];
        labels.into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect()
    }

    fn worker_env(&self, number: u32, worker: &WorkerRequest) -> Vec<(String, String)> {
        let (run, all) = (self.run(), self.workers.len());
        let elastic = (self.min_workers as usize) < all;
        let (master, port) = (host_name(0, &self.service), self.master_port);
        let nodes = if elastic { format!("{}:{all}", self.min_workers.max(1)) } else { all.to_string() };
        let variables = [
            ("FOREBAY_JOB", run.job.to_string()),
            ("FOREBAY_ATTEMPT", run.attempt.0.to_string()),
            ("FOREBAY_WORKER", number.to_string()),
            ("FOREBAY_TOKEN_FILE", format!("{TOKEN_PATH}/token")),
            ("FOREBAY_HOSTFILE", format!("{GANG_PATH}/hostfile")),
            ("WORLD_SIZE", all.to_string()),
            ("RANK", number.to_string()),
            ("MASTER_ADDR", master.clone()),
            ("MASTER_PORT", port.to_string()),
            ("PET_NNODES", nodes),
            ("PET_NODE_RANK", number.to_string()),
            ("PET_NPROC_PER_NODE", worker.gpus.max(1).to_string()),
            ("PET_MASTER_ADDR", master.clone()),
            ("PET_MASTER_PORT", port.to_string()),
            ("PET_RDZV_BACKEND", if elastic { "c10d" } else { "static" }.to_owned()),
            ("PET_RDZV_ENDPOINT", format!("{master}:{port}")),
            ("PET_RDZV_ID", format!("{}-{}", run.job, run.attempt.0)),
        ];
        variables.map(|(name, value)| (name.to_owned(), value)).into()
    }
}

/// Changes an object within an object, which is made where there is none.
fn within(object: &mut Map<String, Value>, name: &str, change: impl FnOnce(&mut Map<String, Value>)) {
    let mut section = match object.remove(name) {
        Some(Value::Object(section)) => section,
        _ => Map::new(),
    };
    change(&mut section);
    object.insert(name.to_owned(), Value::Object(section));
}

/// Quantities as JSON.
/// What the start barrier's container requests: what the worker does, which begins when it has ended, so that the two together are no more than
/// the engine has planned with. What is not asked for is 0, because a limit alone is a request, and a quota wants a request to be stated.
fn gate_resources(worker: &BTreeMap<String, String>) -> Value {
    let asked = |name: &str| worker.get(name).map_or("0", String::as_str);
    let mut resources = json!({"requests": {"cpu": asked("cpu"), "memory": asked("memory")}});
    if !worker.contains_key("memory") {
        resources["limits"] = json!({"memory": "64Mi"});
    }
    resources
}

fn quantities(of: &BTreeMap<String, String>) -> impl Iterator<Item = (String, Value)> + '_ {
    of.iter().map(|(resource, quantity)| (resource.clone(), json!(quantity)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::KubePod;

    fn gang(workers: usize, min_workers: u32) -> GangRequest {
        let limits = BTreeMap::from([("nvidia.com/gpu".to_owned(), "8".to_owned())]);
        let worker = WorkerRequest { instance: Some("i-1".into()), gpus: 8, requests: limits.clone(), limits };
        GangRequest {
            effect: "j-7".into(),
            journal: "j".into(),
            job: 12,
            attempt: 3,
            subject: "resnet".into(),
            namespace: "jobs".into(),
            service: "gang-12-3-x".into(),
            pod: json!({"spec": {"initContainers": [{"name": GATE_CONTAINER}], "containers": [{"name": "worker", "env": [{"name": "HOME", "value": "/tmp"}]}, {"name": "side"}]}}),
            container: "worker".into(),
            workers: vec![worker; workers],
            min_workers,
            master_port: 29_500,
            env: vec![("EPOCHS".into(), "90".into())],
        }
    }

    #[test]
    fn a_workers_pod_has_everything_that_is_its_own() {
        let body = gang(2, 2).pod_body(1).unwrap();
        let pod: KubePod = serde_json::from_value(body.clone()).unwrap();
        assert_eq!(pod.metadata.annotation(ANNOTATION_WORKER), Some("job-12/3/1"));
        assert_eq!(pod.metadata.annotation(ANNOTATION_EFFECT), Some("j-7"));
        assert_eq!((pod.metadata.label(LABEL_JOURNAL), pod.metadata.label(LABEL_JOB)), (Some("j"), Some("job-12")));
        assert_eq!(pod.metadata.finalizers, [FINALIZER]);
        assert_eq!(
            (body["spec"]["hostname"].as_str(), body["spec"]["subdomain"].as_str()),
            (Some("w1"), Some("gang-12-3-x"))
        );
        let container = &body["spec"]["containers"][0];
        assert_eq!(container["resources"]["limits"]["nvidia.com/gpu"], "8");
        let gate = json!({"requests": {"cpu": "0", "memory": "0"}, "limits": {"memory": "64Mi"}});
        assert_eq!(body["spec"]["initContainers"][0]["resources"], gate);
        let mut gang = gang(2, 2);
        gang.workers[1].requests.extend([("cpu".into(), "8000m".into()), ("memory".into(), "64Mi".into())]);
        let gate = json!({"requests": {"cpu": "8000m", "memory": "64Mi"}});
        assert_eq!(gang.pod_body(1).unwrap()["spec"]["initContainers"][0]["resources"], gate);
        let env: BTreeMap<&str, &str> = container["env"]
            .as_array()
            .unwrap()
            .iter()
            .map(|e| (e["name"].as_str().unwrap(), e["value"].as_str().unwrap()))
            .collect();
        for (name, value) in [
            ("HOME", "/tmp"),
            ("EPOCHS", "90"),
            ("FOREBAY_JOB", "job-12"),
            ("FOREBAY_ATTEMPT", "3"),
            ("FOREBAY_WORKER", "1"),
            ("WORLD_SIZE", "2"),
            ("RANK", "1"),
            ("MASTER_ADDR", "w0.gang-12-3-x"),
            ("PET_NNODES", "2"),
            ("PET_NODE_RANK", "1"),
            ("PET_NPROC_PER_NODE", "8"),
            ("PET_RDZV_BACKEND", "static"),
            ("PET_RDZV_ENDPOINT", "w0.gang-12-3-x:29500"),
        ] {
            assert_eq!(env.get(name), Some(&value), "{name}");
        }
        assert_eq!(gang.pod_body(2), None);
    }

    #[test]
    fn a_gang_has_a_service_and_a_hostfile() {
        let gang = gang(2, 1);
        let service = gang.service_body();
        assert_eq!(
            (&service["spec"]["clusterIP"], &service["spec"]["publishNotReadyAddresses"]),
            (&json!("None"), &json!(true))
        );
        assert_eq!(gang.hosts_body()["data"]["hostfile"], "w0.gang-12-3-x slots=8\nw1.gang-12-3-x slots=8\n");
        let env = gang.worker_env(0, &gang.workers[0]);
        assert!(
            env.contains(&("PET_NNODES".into(), "1:2".into()))
                && env.contains(&("PET_RDZV_BACKEND".into(), "c10d".into()))
        );
    }
}
