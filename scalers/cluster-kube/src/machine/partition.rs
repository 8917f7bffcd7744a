//! How the GPUs of a node are partitioned, by the labels of the GPU Operator's MIG manager: asked for before the node takes work, and never after.
//!
//! ```text
//! claim with a layout of equal slices -> label nvidia.com/mig.config: all-PROFILE -> MIG manager -> nvidia.com/mig.config.state: success
//! ```
//!
//! Never: the layout of a node that is ready, or of one that the MIG manager does not look after.

use super::{KubeMachine, Task};
use crate::api_call::{KubeCall, KubeObject, KubeResponse, Resource};
use crate::kube_error::KubeErrorClass;
use crate::objects::KubeNode;
use crate::view::{ClaimPhase, ClaimView};
use forebay_kernel::units::Timestamp;
use serde_json::json;

/// On nodes whose GPUs can be partitioned, by the MIG manager's word.
const CAPABLE: &str = "nvidia.com/mig.capable";
/// Which of the MIG manager's configurations a node is to have.
const CONFIG: &str = "nvidia.com/mig.config";
/// How far the MIG manager is.
const STATE: &str = "nvidia.com/mig.config.state";

/// How far the partition of a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartitionState {
    /// It is as its claim has it, or nobody here has a say in it.
    Settled,
    /// Its label says something else.
    Unlabelled,
    /// The MIG manager is at it.
    Changing,
}

impl KubeMachine {
    /// How far the partition of a booting node is.
    pub(super) fn partition_state(&self, node: &KubeNode, claim: &ClaimView) -> PartitionState {
        let Some(wanted) = self.wanted_config(node, claim) else { return PartitionState::Settled };
        if node.metadata.label(CONFIG) != Some(wanted.as_str()) {
            return PartitionState::Unlabelled;
        }
        if node.metadata.label(STATE) == Some("success") { PartitionState::Settled } else { PartitionState::Changing }
    }

    /// The configuration of equal slices, or of none, by the names of the MIG manager's own. Slices of several kinds have no name there: whoever has
    /// such a layout sets the label by the node's image.
    fn wanted_config(&self, node: &KubeNode, claim: &ClaimView) -> Option<String> {
        if node.metadata.label(CAPABLE) != Some("true") {
            return None;
        }
        let profile = |resource: &String| resource.strip_prefix(&self.settings.mig_resource_prefix).map(str::to_owned);
        let profiles: Vec<String> = claim.offers.keys().filter_map(profile).collect();
        match profiles.as_slice() {
            [] => node.metadata.label(CONFIG).map(|_| "all-disabled".to_owned()),
            [one] => Some(format!("all-{one}")),
            _ => None,
        }
    }

    pub(super) fn partition_call(&self, name: &str) -> Option<KubeCall> {
        let node = self.nodes.get(name)?;
        let claim = self.view.as_ref()?.claims.get(node.instance()?)?;
        if claim.phase != ClaimPhase::Booting || self.partition_state(node, claim) != PartitionState::Unlabelled {
            return None;
        }
        let wanted = self.wanted_config(node, claim)?;
        let body = Box::new(json!({"metadata": {"uid": node.metadata.uid, "labels": {CONFIG: wanted}}}));
        Some(KubeCall::Merge { resource: Resource::Nodes, namespace: None, name: name.to_owned(), body })
    }

    pub(super) fn partitioned(&mut self, name: String, response: KubeResponse, now: Timestamp) {
        match response {
            KubeResponse::Object(object) => {
                if let KubeObject::Node(node) = *object {
                    self.see_node(node);
                }
            }
            KubeResponse::Refused(error) => {
                let denied = error.class == KubeErrorClass::Denied;
                let delay = if denied { super::responses::DENIED_AGAIN } else { self.rates.delay(0) };
                self.report_failure(&Task::Partition(name.clone()), 0, &error);
                self.agenda.plan(Task::Partition(name), now + delay);
            }
            _ => {}
        }
    }
}
