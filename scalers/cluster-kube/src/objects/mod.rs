//! Pods and nodes as the API server shows them, only with the fields that are used. They are read from the API server's JSON and written as it.
//!
//! Never: a field that nothing here reads. What is written to the API server is JSON of its own, in `pod_body`.

mod daemon_set;
mod event;
mod node;
mod pod;
mod quantity;

pub use daemon_set::{FutureNode, KubeDaemonSet};
pub use event::KubeEvent;
pub use node::{KubeNode, NodeCondition, NodeInfo, NodeSpec, NodeStatus, Taint};
pub use pod::{
    ContainerState, ContainerStatus, KubePod, PodCondition, PodContainer, PodSpec, PodStatus, ResourceRequests,
    RunningContainer, TerminatedContainer, WaitingContainer,
};
pub use quantity::milli;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What every object has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectMeta {
    /// The name.
    pub name: String,
    /// The namespace. Nodes and namespaces have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The API server's id of this very object.
    pub uid: String,
    /// Which change made it as it is.
    pub resource_version: String,
    /// When it was created, as RFC 3339, in whole seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<String>,
    /// Labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Who has to agree before it goes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
    /// It is deleted: for a pod, its containers are to have ended then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<String>,
    /// The seconds from the deletion until then. 0: a pod that was over, or that was deleted by force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_grace_period_seconds: Option<u64>,
    /// Whose it is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub owner_references: Vec<OwnerReference>,
}

/// An owner of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerReference {
    /// Such as `DaemonSet`.
    pub kind: String,
    /// Its name.
    pub name: String,
}

impl ObjectMeta {
    /// The value of an annotation.
    #[must_use]
    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.annotations.get(name).map(String::as_str)
    }

    /// The value of a label.
    #[must_use]
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.get(name).map(String::as_str)
    }

    /// Whether it is being deleted.
    #[must_use]
    pub fn is_deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// The resource version as a number: those of one kind grow with each change. 0 if it is none.
    #[must_use]
    pub fn version(&self) -> u64 {
        version_of(&self.resource_version)
    }
}

/// A resource version as a number. 0 if it is none.
#[must_use]
pub fn version_of(resource_version: &str) -> u64 {
    resource_version.parse().unwrap_or(0)
}
