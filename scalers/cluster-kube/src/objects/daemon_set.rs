//! A DaemonSet: what each of its pods requests, and whether one comes with a node that does not exist yet.
//!
//! A node is known before it is bought by its operating system, its instance type and what Forebay gives it. What a DaemonSet asks of other labels
//! is taken to be there: rather too much is kept for it than too little.
//!
//! Never: a pod of it. What runs on a node that exists is the API server's to say.

use super::ObjectMeta;
use crate::adoption::pod_requests;
use crate::names::LABEL_NODE;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// A DaemonSet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KubeDaemonSet {
    /// What every object has.
    pub metadata: ObjectMeta,
    /// CPU that each pod requests, in thousandths of a core.
    pub cpu_milli: u64,
    /// Memory that each pod requests.
    pub memory_mib: u64,
    placement: DaemonPlacement,
}

/// On which nodes its pods come.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DaemonPlacement {
    node_name: Option<String>,
    node_selector: BTreeMap<String, String>,
    tolerations: Vec<DaemonToleration>,
    affinity: DaemonAffinity,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct DaemonToleration {
    key: String,
    operator: String,
    value: String,
    effect: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DaemonAffinity {
    node_affinity: RequiredAffinity,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct RequiredAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    required: Option<AffinityTerms>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AffinityTerms {
    node_selector_terms: Vec<AffinityTerm>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AffinityTerm {
    match_expressions: Vec<NodeExpression>,
    match_fields: Vec<NodeExpression>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct NodeExpression {
    key: String,
    operator: String,
    values: Vec<String>,
}

/// What is known of a node before it is bought.
#[derive(Clone, Copy, Debug)]
pub struct FutureNode<'n> {
    /// Its instance type.
    pub instance_type: &'n str,
    /// The key of the `NoSchedule` taint that it has.
    pub taint: &'n str,
}

impl FutureNode<'_> {
    /// The value of a label. `None`: it may have any, or none.
    fn label(&self, key: &str) -> Option<&str> {
        match key {
            "kubernetes.io/os" | "beta.kubernetes.io/os" => Some("linux"),
            "node.kubernetes.io/instance-type" | "beta.kubernetes.io/instance-type" => Some(self.instance_type),
            LABEL_NODE => Some("true"),
            _ => None,
        }
    }

    fn meets(&self, expression: &NodeExpression) -> bool {
        let Some(value) = self.label(&expression.key) else { return true };
        let named = expression.values.iter().any(|one| one == value);
        match expression.operator.as_str() {
            "In" => named,
            "NotIn" => !named,
            "DoesNotExist" | "Gt" | "Lt" => false,
            _ => true,
        }
    }

    /// A node that does not exist yet has none of the names that somebody could have written down.
    fn meets_field(expression: &NodeExpression) -> bool {
        expression.operator != "In"
    }
}

impl KubeDaemonSet {
    /// Reads a DaemonSet from the API server's JSON.
    ///
    /// # Errors
    /// The JSON is not a DaemonSet.
    pub fn of_json(json: &Value) -> Result<KubeDaemonSet, serde_json::Error> {
        let spec = &json["spec"]["template"]["spec"];
        // The API server took it, so its quantities can be read.
        let requests = pod_requests(spec, "spec.template.spec").unwrap_or_default();
        let of = |name: &str| requests.get(name).copied().unwrap_or(0);
        let whole = |amount: u128| u64::try_from(amount).unwrap_or(u64::MAX);
        Ok(KubeDaemonSet {
            metadata: Deserialize::deserialize(&json["metadata"])?,
            cpu_milli: whole(of("cpu")),
            // Thousandths of a byte in a MiB.
            memory_mib: whole(of("memory").div_ceil(1000 << 20)),
            placement: Deserialize::deserialize(spec)?,
        })
    }

    /// Whether its pods tolerate the taint of such a node.
    #[must_use]
    pub fn tolerates(&self, node: FutureNode<'_>) -> bool {
        let tolerates = |toleration: &DaemonToleration| {
            let key = toleration.key.is_empty() || toleration.key == node.taint;
            let value = toleration.operator == "Exists" || toleration.value.is_empty();
            let effect = toleration.effect.is_empty() || toleration.effect == "NoSchedule";
            key && value && effect && !(toleration.key.is_empty() && toleration.operator != "Exists")
        };
        self.placement.tolerations.iter().any(tolerates)
    }

    /// Whether a pod of it comes with such a node.
    #[must_use]
    pub fn comes_with(&self, node: FutureNode<'_>) -> bool {
        let placement = &self.placement;
        let selected = placement.node_selector.iter().all(|(key, value)| node.label(key).is_none_or(|of| of == value));
        let term = |term: &AffinityTerm| {
            let some = !term.match_expressions.is_empty() || !term.match_fields.is_empty();
            some && term.match_expressions.iter().all(|expression| node.meets(expression))
                && term.match_fields.iter().all(FutureNode::meets_field)
        };
        let required = placement.affinity.node_affinity.required.as_ref();
        placement.node_name.is_none()
            && !self.metadata.is_deleting()
            && self.tolerates(node)
            && selected
            && required.is_none_or(|terms| terms.node_selector_terms.iter().any(term))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const NODE: FutureNode<'_> = FutureNode { instance_type: "p5.48xlarge", taint: "forebay.dev/node" };

    fn set(spec: &Value) -> KubeDaemonSet {
        KubeDaemonSet::of_json(&json!({"metadata": {"name": "d"}, "spec": {"template": {"spec": spec}}})).unwrap()
    }

    #[test]
    fn a_pod_comes_with_a_node_that_it_tolerates_and_selects_as_far_as_that_is_known() {
        let all = json!([{"operator": "Exists"}]);
        let terms = |key: &str, operator: &str, values: Value| {
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms":
                [{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}]}}})
        };
        let field = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms":
            [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]}}});
        for (case, spec, comes) in [
            ("tolerates all", json!({"tolerations": all}), true),
            ("tolerates ours", json!({"tolerations": [{"key": "forebay.dev/node", "operator": "Exists"}]}), true),
            (
                "tolerates ours by its value",
                json!({"tolerations": [{"key": "forebay.dev/node", "effect": "NoSchedule"}]}),
                true,
            ),
            ("tolerates another value", json!({"tolerations": [{"key": "forebay.dev/node", "value": "x"}]}), false),
            ("tolerates what evicts", json!({"tolerations": [{"operator": "Exists", "effect": "NoExecute"}]}), false),
            ("tolerates nothing", json!({}), false),
            ("for Windows", json!({"tolerations": all, "nodeSelector": {"kubernetes.io/os": "windows"}}), false),
            ("for GPUs", json!({"tolerations": all, "nodeSelector": {"nvidia.com/gpu.deploy.dcgm": "true"}}), true),
            (
                "for this type",
                json!({"tolerations": all, "affinity": terms("node.kubernetes.io/instance-type", "In", json!(["p5.48xlarge", "a"]))}),
                true,
            ),
            (
                "for others",
                json!({"tolerations": all, "affinity": terms("node.kubernetes.io/instance-type", "NotIn", json!(["p5.48xlarge"]))}),
                false,
            ),
            (
                "not for ours",
                json!({"tolerations": all, "affinity": terms("forebay.dev/node", "DoesNotExist", json!([]))}),
                false,
            ),
            (
                "not on Fargate",
                json!({"tolerations": all, "affinity": terms("eks.amazonaws.com/compute-type", "NotIn", json!(["fargate"]))}),
                true,
            ),
            ("on one node", json!({"tolerations": all, "affinity": field}), false),
            ("on a named node", json!({"tolerations": all, "nodeName": "n"}), false),
        ] {
            assert_eq!(set(&spec).comes_with(NODE), comes, "{case}");
        }
        let leaving = json!({"metadata": {"name": "d", "deletionTimestamp": "now"}, "spec": {"template": {"spec": {"tolerations": all}}}});
        assert!(!KubeDaemonSet::of_json(&leaving).unwrap().comes_with(NODE));
    }

    #[test]
    fn its_pods_request_what_the_api_server_would_write_into_them() {
        let set = set(&json!({"containers": [
            {"resources": {"requests": {"cpu": "250m", "memory": "100Mi"}, "limits": {"memory": "1Gi"}}},
            {"resources": {"limits": {"cpu": "100m", "memory": "64Mi"}}}]}));
        assert_eq!((set.cpu_milli, set.memory_mib), (350, 164), "a limit alone is a request, too");
    }
}
