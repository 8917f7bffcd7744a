//! Pods of others on a node that is drained: they are evicted, as their disruption budgets allow. Only after a deadline that an operator has set
//! does the node go with those that are left.
//!
//! Never: a pod of others that is deleted, or evicted from a node that is not drained.

use super::KubeMachine;
use super::agenda::{PodKey, Task};
use crate::api_call::{KubeCall, KubeResponse};
use crate::kube_error::KubeError;
use forebay_kernel::units::Timestamp;

/// A foreign pod on a node that is drained.
#[derive(Debug)]
pub(super) struct ForeignPod {
    pub uid: String,
    /// Why it may not be evicted, in Kubernetes' words.
    pub kept_by: Option<String>,
}

/// Whether an eviction was refused because of disruption budgets, which is no sign of too many calls or of a server that fails: of a pod that has
/// more than one, the API server says with 500 that it does not support that.
pub(super) fn is_budget(task: &Task, error: &KubeError) -> bool {
    let budget = match error.code {
        429 => error.message.contains("disruption budget"),
        500 => error.message.contains("more than one PodDisruptionBudget"),
        _ => false,
    };
    matches!(task, Task::Evict(..)) && budget
}

impl KubeMachine {
    /// Plans the eviction of the foreign pods that the last list has shown on a node.
    pub(super) fn evict_foreign(&mut self, instance: &str, now: Timestamp) {
        let Some(drain) = self.drains.get(instance) else { return };
        for key in drain.foreign.keys() {
            self.agenda.plan(Task::Evict(instance.to_owned(), key.clone()), now);
        }
    }

    pub(super) fn evict_call(&self, instance: &str, key: &PodKey) -> Option<KubeCall> {
        let drain = self.drains.get(instance)?;
        let uid = drain.foreign.get(key)?.uid.clone();
        Some(KubeCall::Evict { namespace: key.namespace.clone(), pod: key.name.clone(), uid })
    }

    /// Whether a node goes though pods are bound to it: all of them are of others, and the operator's deadline is over.
    pub(super) fn goes_with_foreign(&self, instance: &str, bound: usize, now: Timestamp) -> bool {
        let Some(drain) = self.drains.get(instance) else { return false };
        let overdue = |deadline| drain.since.is_some_and(|since| now.since(since) >= deadline);
        bound == drain.foreign.len() && self.settings.evict_deadline.is_some_and(overdue)
    }

    /// The next list shows whether it has gone.
    pub(super) fn evicted(&mut self, instance: &str, key: &PodKey, response: KubeResponse) {
        let foreign = self.drains.get_mut(instance).and_then(|drain| drain.foreign.get_mut(key));
        if let (Some(pod), KubeResponse::Refused(error)) = (foreign, response) {
            pod.kept_by = Some(error.message);
        }
    }
}
