//! A node: which instance it is, whether it may take work, and what it offers.

use super::ObjectMeta;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KubeNode {
    /// What every object has.
    pub metadata: ObjectMeta,
    /// What was asked for.
    pub spec: NodeSpec,
    /// What became of it.
    pub status: NodeStatus,
}

/// What was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSpec {
    /// Which instance it is, such as `aws:///us-east-1a/i-1234567890abcdef0`.
    #[serde(rename = "providerID", skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// It is cordoned.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unschedulable: bool,
    /// Its taints.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
}

/// A taint of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Taint {
    /// Its key.
    pub key: String,
    /// Its value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
    /// When it was added, as RFC 3339. Kept as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_added: Option<String>,
}

/// What became of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatus {
    /// What there is of each resource, for others than pods too and with what is broken.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub capacity: BTreeMap<String, String>,
    /// What pods may use of each resource, as Kubernetes writes quantities.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub allocatable: BTreeMap<String, String>,
    /// Conditions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<NodeCondition>,
    /// What its kubelet says of the machine.
    pub node_info: NodeInfo,
}

/// A condition of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeCondition {
    /// Such as `Ready`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
}

/// What a kubelet says of its machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeInfo {
    /// The id of this boot: after a restart of the machine it is another one.
    #[serde(rename = "bootID")]
    pub boot_id: String,
}

impl KubeNode {
    /// The cloud's id of the instance: the last part of the provider id.
    #[must_use]
    pub fn instance(&self) -> Option<&str> {
        let id = self.spec.provider_id.as_deref()?.rsplit('/').next()?;
        (!id.is_empty()).then_some(id)
    }

    /// Whether its kubelet calls it ready.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.status.conditions.iter().any(|c| c.kind == "Ready" && c.status == "True")
    }

    /// How much there is of a countable resource, with what is broken. 0 if it is not there.
    #[must_use]
    pub fn capacity(&self, resource: &str) -> u64 {
        self.status.capacity.get(resource).and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    /// How much of a countable resource pods may use. 0 if it is not there.
    #[must_use]
    pub fn allocatable(&self, resource: &str) -> u64 {
        self.status.allocatable.get(resource).and_then(|text| text.parse().ok()).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_node_is_read_from_the_api_servers_json() {
        let json = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "uid": "u", "resourceVersion": "7"},
            "spec": {"providerID": "aws:///us-east-1a/i-12", "taints": [{"key": "a", "effect": "NoSchedule"}]},
            "status": {"allocatable": {"nvidia.com/gpu": "8"}, "nodeInfo": {"bootID": "b", "osImage": "x"},
                "conditions": [{"type": "Ready", "status": "True"}]}});
        let node: KubeNode = serde_json::from_value(json).unwrap();
        assert_eq!((node.instance(), node.is_ready(), node.allocatable("nvidia.com/gpu")), (Some("i-12"), true, 8));
        assert_eq!((node.status.node_info.boot_id.as_str(), node.metadata.version()), ("b", 7));
        let again: KubeNode = serde_json::from_value(serde_json::to_value(&node).unwrap()).unwrap();
        assert_eq!(again, node);
        assert_eq!(KubeNode::default().instance(), None);
    }
}
