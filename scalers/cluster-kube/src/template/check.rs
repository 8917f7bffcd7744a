//! What a template may not ask for, because a gang's pods are placed by the engine and bound all or none.
//!
//! Never: a question to the cluster. What it says of claims is handed in as [`VolumeClaimState`].

use super::{PodTemplate, TemplateError};
use crate::adoption::pod_requests;
use crate::names::{FINALIZER, GATE_CONTAINER, VOLUME_GANG, VOLUME_TOKEN, VOLUME_WORKER};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// What environment variables of an event never begin with.
pub(super) const RESERVED: [&str; 5] = ["FOREBAY_", "NVIDIA_", "LD_", "AWS_", "KUBERNETES_"];

/// Variables that each worker has from us. An event cannot replace them.
pub(super) const OURS: [&str; 5] = ["WORLD_SIZE", "RANK", "MASTER_ADDR", "MASTER_PORT", "PET_"];

/// What our annotations, labels and finalizers begin with.
const OUR_PREFIX: &str = "forebay.dev/";

/// Fields of a pod's `spec` that a template may not have: the field, what is wrong with it, and what to do instead.
const REFUSED: [(&str, &str, &str); 14] = [
    (
        "resourceClaims",
        "dynamic resource claims are allocated by kube-scheduler, which does not place gangs",
        "ask for GPUs in the event's gang",
    ),
    (
        "affinity",
        "the engine places gangs and reads no affinity",
        "remove it; use the event's gang.within, or the policy's pools",
    ),
    (
        "topologySpreadConstraints",
        "the engine places gangs and reads no spread",
        "remove it; use the event's gang.within",
    ),
    ("nodeSelector", "the engine chooses nodes", "remove it; use the policy's pools and the event's models"),
    ("nodeName", "the engine chooses nodes", "remove it"),
    ("schedulerName", "gangs are bound by Forebay", "remove it"),
    ("schedulingGates", "gangs are held by the start barrier", "remove it"),
    (
        "restartPolicy",
        "a worker's failure ends its attempt, so the policy is always Never",
        "remove it; use the event's retry",
    ),
    ("hostname", "each worker has its own name in DNS", "remove it"),
    ("subdomain", "each gang has its own Service", "remove it"),
    (
        "automountServiceAccountToken",
        "tokens are mounted only on purpose",
        "write serviceAccountToken: true beside `pod`",
    ),
    ("terminationGracePeriodSeconds", "the time to end is the job's", "remove it; use the event's checkpoint.grace"),
    (
        "resources",
        "what is stated for the whole pod counts in the place of its containers, and the engine counts the event's gang.each",
        "remove it; ask in the event's gang.each",
    ),
    (
        "overhead",
        "the engine counts the event's gang.each and no overhead",
        "remove it; ask for more in the event's gang.each",
    ),
];

/// The resource whose requests stay: neither an event nor the engine knows disks.
const DISK: &str = "ephemeral-storage";

/// What a cluster says of a claim for storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeClaimState {
    /// There is none of that name.
    Missing,
    /// It has its volume.
    Bound,
    /// It gets its volume whether or not a pod uses it, and has none yet.
    Pending,
    /// It gets its volume when kube-scheduler has placed a pod that uses it.
    WaitsForConsumer,
}

impl PodTemplate {
    /// Checks everything that needs no cluster.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), TemplateError> {
        if self.name.is_empty() || !self.name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)) {
            return Err(self.wrong("name", "is not a name", "write letters, digits, hyphens, underscores and dots"));
        }
        if self.queues.is_empty() {
            return Err(self.wrong("queues", "is empty, so no job may use it", "list the queues that may"));
        }
        if let Some(image) = self.images.iter().find(|image| !image.contains('/')) {
            let what = format!("`{image}` names no registry and repository");
            return Err(self.wrong("images", what, "write a prefix such as registry.example.com/team/"));
        }
        self.check_env()?;
        self.check_spec()?;
        self.check_requests()?;
        self.check_metadata()?;
        self.check_volumes()
    }

    /// The names of the claims for storage that the template and its volumes name.
    #[must_use]
    pub fn claims(&self) -> BTreeSet<&str> {
        self.volume_sources().into_iter().filter_map(|(_, source)| claim_name(source)).collect()
    }

    /// What is wrong with the claims that the template and its volumes name, by what the cluster says of them: those that do not exist, and
    /// those that wait for a first consumer. Nothing is said of a claim that is not in `claims`.
    #[must_use]
    pub fn check_claims(&self, claims: &BTreeMap<String, VolumeClaimState>) -> Vec<TemplateError> {
        let mut wrong = Vec::new();
        for (place, source) in self.volume_sources() {
            let Some(name) = claim_name(source) else { continue };
            let place = format!("{place}.persistentVolumeClaim");
            match claims.get(name) {
                Some(VolumeClaimState::Missing) => {
                    let what = format!("there is no claim `{name}` in the namespace");
                    wrong.push(self.wrong(&place, what, "create it, or correct its name"));
                }
                Some(VolumeClaimState::WaitsForConsumer) => {
                    let what = format!(
                        "the claim `{name}` waits for its first consumer, and kube-scheduler sees none of these pods"
                    );
                    let remedy =
                        "use a storage class with volumeBindingMode: Immediate, or let another pod bind it first";
                    wrong.push(self.wrong(&place, what, remedy));
                }
                Some(VolumeClaimState::Bound | VolumeClaimState::Pending) | None => {}
            }
        }
        wrong
    }

    fn wrong(&self, place: &str, what: impl Into<String>, remedy: &str) -> TemplateError {
        TemplateError::new(format!("template {}: {place}", self.name), what, remedy)
    }

    fn check_env(&self) -> Result<(), TemplateError> {
        let from_secrets = self.secrets.values().flat_map(|secret| secret.env.keys());
        for name in self.env.iter().chain(from_secrets) {
            if let Some(why) = forbidden_env(name) {
                return Err(self.wrong("env", format!("`{name}` {why}"), "remove it"));
            }
        }
        let empty = self.secrets.iter().find(|(_, secret)| secret.env.is_empty() && secret.mount_path.is_none());
        match empty {
            Some((name, _)) => {
                Err(self.wrong(&format!("secrets.{name}"), "says nowhere to put it", "write env or mountPath"))
            }
            None => Ok(()),
        }
    }

    fn check_spec(&self) -> Result<(), TemplateError> {
        let spec = self.pod.get("spec").and_then(Value::as_object);
        let Some(spec) = spec else {
            return Err(self.wrong("pod.spec", "is missing", "write the pod's spec with its containers"));
        };
        for (field, what, remedy) in REFUSED {
            if spec.contains_key(field) {
                return Err(self.wrong(&format!("pod.spec.{field}"), what, remedy));
            }
        }
        let containers = spec.get("containers").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let name_of = |container: &Value| container.get("name").and_then(Value::as_str).map(str::to_owned);
        let named: Vec<String> = containers.iter().filter_map(name_of).collect();
        if named.is_empty() || named.len() < containers.len() {
            return Err(self.wrong("pod.spec.containers", "needs a container, each with a name", "write one"));
        }
        if let Some(container) = self.container.as_ref().filter(|name| !named.contains(name)) {
            let remedy = "name one of pod.spec.containers";
            return Err(self.wrong("container", format!("`{container}` is no container of the pod"), remedy));
        }
        let init = spec.get("initContainers").and_then(Value::as_array).into_iter().flatten();
        if init.filter_map(name_of).any(|name| name == GATE_CONTAINER) {
            let what = format!("`{GATE_CONTAINER}` is the start barrier's");
            return Err(self.wrong("pod.spec.initContainers", what, "choose another name"));
        }
        Ok(())
    }

    /// A worker holds what its event asks for, and the engine plans with that. What another container requests comes on top, so that the kubelet
    /// of a node that is full by that plan refuses the pod each time.
    fn check_requests(&self) -> Result<(), TemplateError> {
        let main = self.working_container();
        for kind in ["initContainers", "containers"] {
            let containers = self.pod.pointer(&format!("/spec/{kind}")).and_then(Value::as_array);
            for (at, container) in containers.into_iter().flatten().enumerate() {
                if kind == "containers" && container.get("name").and_then(Value::as_str) == main {
                    continue;
                }
                let place = format!("pod.spec.{kind}[{at}].resources");
                let alone = json!({"containers": [container]});
                let requests = pod_requests(&alone, "resources");
                let requests = requests.map_err(|text| self.wrong(&place, text, "correct it"))?;
                let uncounted = requests.iter().find(|(name, amount)| **amount > 0 && name.as_str() != DISK);
                if let Some((resource, _)) = uncounted {
                    let what = format!(
                        "it requests `{resource}` (a limit alone is a request too), and the engine counts only the event's gang.each: a node that is full refuses the pod"
                    );
                    let remedy = format!(
                        "leave `{resource}` out, or request 0 beside a limit; what a worker holds is the event's gang.each, so ask for more there"
                    );
                    return Err(self.wrong(&place, what, &remedy));
                }
            }
        }
        Ok(())
    }

    fn check_metadata(&self) -> Result<(), TemplateError> {
        let Some(metadata) = self.pod.get("metadata") else { return Ok(()) };
        for (field, value) in metadata.as_object().into_iter().flatten() {
            let place = format!("pod.metadata.{field}");
            if !matches!(field.as_str(), "labels" | "annotations") {
                let what = "only labels and annotations are the template's";
                return Err(self.wrong(&place, what, "remove it"));
            }
            if let Some(name) =
                value.as_object().into_iter().flatten().map(|(name, _)| name).find(|n| n.starts_with(OUR_PREFIX))
            {
                return Err(self.wrong(
                    &place,
                    format!("`{name}` is ours, as `{FINALIZER}` is"),
                    "choose another prefix",
                ));
            }
        }
        Ok(())
    }

    fn check_volumes(&self) -> Result<(), TemplateError> {
        for (place, source) in self.volume_sources() {
            if source.get("ephemeral").is_some() {
                let what = "an ephemeral volume's claim waits for kube-scheduler, which does not place gangs";
                return Err(self.wrong(
                    &format!("{place}.ephemeral"),
                    what,
                    "use an emptyDir, or a claim that is bound at once",
                ));
            }
        }
        let volumes = self.pod.pointer("/spec/volumes").and_then(Value::as_array).into_iter().flatten();
        for name in volumes.filter_map(|volume| volume.get("name")?.as_str()) {
            if [VOLUME_WORKER, VOLUME_GANG, VOLUME_TOKEN].contains(&name) {
                return Err(self.wrong("pod.spec.volumes", format!("`{name}` is ours"), "choose another name"));
            }
        }
        Ok(())
    }

    /// The sources of all volumes, with their places in the template.
    fn volume_sources(&self) -> Vec<(String, &Value)> {
        let of_pod = self.pod.pointer("/spec/volumes").and_then(Value::as_array).into_iter().flatten();
        let of_pod = of_pod.enumerate().map(|(at, volume)| (format!("pod.spec.volumes[{at}]"), volume));
        let named = self.volumes.iter().map(|(name, volume)| (format!("volumes.{name}.source"), &volume.source));
        of_pod.chain(named).collect()
    }
}

/// The claim that the source of a volume names.
fn claim_name(source: &Value) -> Option<&str> {
    source.pointer("/persistentVolumeClaim/claimName").and_then(Value::as_str)
}

/// Why an event or a template may not let an environment variable be set. `None`: it may.
pub(super) fn forbidden_env(name: &str) -> Option<&'static str> {
    let first = |b: u8| b.is_ascii_alphabetic() || b == b'_';
    let legal = name.bytes().next().is_some_and(first) && name.bytes().all(|b| first(b) || b.is_ascii_digit());
    if !legal {
        return Some("is not a name of an environment variable");
    }
    if RESERVED.iter().any(|prefix| name.to_ascii_uppercase().starts_with(prefix)) {
        return Some("begins with FOREBAY_, NVIDIA_, LD_, AWS_ or KUBERNETES_, which are never set from outside");
    }
    OURS.iter()
        .any(|ours| name == *ours || (ours.ends_with('_') && name.starts_with(ours)))
        .then_some("is set for each worker")
}

/// The fields that are refused, for tests.
#[cfg(test)]
pub(super) fn tests_fields() -> impl Iterator<Item = &'static str> {
    REFUSED.iter().map(|(field, ..)| *field)
}
