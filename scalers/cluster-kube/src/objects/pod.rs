//! A pod: where it is bound, and what its kubelet says of its containers.

use super::ObjectMeta;
use super::quantity::milli;
use forebay_kernel::units::Span;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KubePod {
    /// What every object has.
    pub metadata: ObjectMeta,
    /// What was asked for.
    pub spec: PodSpec,
    /// What became of it.
    pub status: PodStatus,
}

/// What was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// The node that it is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// Who binds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler_name: Option<String>,
    /// The Service that gives it a name in DNS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subdomain: Option<String>,
    /// Seconds that its containers have to end once it is deleted. Less than 1 is 1 to Kubernetes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub termination_grace_period_seconds: Option<i64>,
    /// The containers.
    pub containers: Vec<PodContainer>,
    /// The containers that run before these, those with `restartPolicy: Always` beside them too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub init_containers: Vec<PodContainer>,
    /// What the pod takes beside its containers.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub overhead: BTreeMap<String, String>,
    /// What the pod takes as a whole, instead of its containers.
    #[serde(skip_serializing_if = "ResourceRequests::is_empty")]
    pub resources: ResourceRequests,
}

/// A container of the specification.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodContainer {
    /// Its name.
    pub name: String,
    /// What it takes.
    #[serde(skip_serializing_if = "ResourceRequests::is_empty")]
    pub resources: ResourceRequests,
    /// `Always`: an init container that goes on beside the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart_policy: Option<String>,
}

/// What is kept for a container or a pod on its node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResourceRequests {
    /// By resource, as Kubernetes writes quantities.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<String, String>,
}

impl ResourceRequests {
    fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }
}

/// What became of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
    pub phase: String,
    /// Why, as one word, such as `OutOfcpu` or `Evicted`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why, as a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Conditions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<PodCondition>,
    /// The init containers, in their order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub init_container_statuses: Vec<ContainerStatus>,
    /// The containers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub container_statuses: Vec<ContainerStatus>,
}

/// A condition of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodCondition {
    /// Such as `DisruptionTarget`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Why, as one word, such as `EvictionByEvictionAPI`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why, as a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// What a kubelet says of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatus {
    /// Its name.
    pub name: String,
    /// What it does now.
    pub state: ContainerState,
}

/// What a container does now: one of the three, or nothing is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerState {
    /// It waits for its image or for other containers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<WaitingContainer>,
    /// It runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<RunningContainer>,
    /// It has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminated: Option<TerminatedContainer>,
}

/// A container that waits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WaitingContainer {
    /// For what, as one word, such as `ImagePullBackOff`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// For what, as a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A container that runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RunningContainer {
    /// Since when, as RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
}

/// A container that has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TerminatedContainer {
    /// Its exit code.
    pub exit_code: i32,
    /// Why, as one word, such as `OOMKilled`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When, as RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<String>,
}

impl KubePod {
    /// The condition of that type, if it is true.
    #[must_use]
    pub fn true_condition(&self, kind: &str) -> Option<&PodCondition> {
        self.status.conditions.iter().find(|c| c.kind == kind && c.status == "True")
    }

    /// What is kept for it on its node of a resource, in thousandths, rounded up: its containers and the sidecars together, or what the
    /// largest init container takes beside the sidecars before it, and the overhead. As kube-scheduler and kubelets count.
    #[must_use]
    pub fn requested(&self, resource: &str) -> u64 {
        let of = |requests: &BTreeMap<String, String>| requests.get(resource).map_or(0, |text| milli(text).1);
        let (mut sidecars, mut largest) = (0u64, 0u64);
        for init in &self.spec.init_containers {
            let own = of(&init.resources.requests);
            if init.restart_policy.as_deref() == Some("Always") {
                sidecars = sidecars.saturating_add(own);
            } else {
                largest = largest.max(sidecars.saturating_add(own));
            }
        }
        let containers = self.spec.containers.iter().map(|container| of(&container.resources.requests));
        let together = containers.fold(sidecars, u64::saturating_add).max(largest);
        let whole = self.spec.resources.requests.get(resource).map(|text| milli(text).1);
        whole.unwrap_or(together).saturating_add(of(&self.spec.overhead))
    }

    /// How long its containers have to end once it is deleted, by its specification.
    #[must_use]
    pub fn grace(&self) -> Option<Span> {
        let seconds = self.spec.termination_grace_period_seconds?;
        Some(Span::secs(u64::try_from(seconds).unwrap_or(0).max(1)))
    }

    /// Whether its phase is final.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }

    /// Whether all its containers had ended before it was deleted: what they ended with is their own word, and not that of the deletion. Times
    /// are whole seconds, so an end in the second of the deletion is not before it.
    #[must_use]
    pub fn ended_before_deletion(&self) -> bool {
        let (Some(deleted), Some(0)) = (&self.metadata.deletion_timestamp, self.metadata.deletion_grace_period_seconds)
        else {
            return false;
        };
        // Both as the API server writes times, so that the order of the texts is that of the times.
        let before = |container: &ContainerStatus| {
            let finished = container.state.terminated.as_ref().and_then(|end| end.finished_at.as_ref());
            finished.is_some_and(|finished| finished.len() == deleted.len() && finished < deleted)
        };
        !self.status.container_statuses.is_empty() && self.status.container_statuses.iter().all(before)
    }
}
