//! A pod that was created for a worker and came back without what says that it is one: the gang is refused, and the pod is deleted by the uid that
//! its creation has returned. Nobody would find it again.
//!
//! Never: a pod that was not in the response to a creation of ours.

use super::KubeMachine;
use super::agenda::{PodKey, Task};
use crate::api_call::{KubeCall, KubeObject, KubeResponse, Resource};
use crate::kube_error::KubeErrorClass;
use crate::names::{FINALIZER, WorkerId};
use crate::objects::KubePod;
use forebay_kernel::units::Timestamp;
use serde_json::json;

/// The shortest grace: nothing was bound, and 0 would be a deletion by force.
const GRACE_S: u64 = 1;

impl KubeMachine {
    /// The pod of a worker was created, and does not say any more that it is that worker.
    pub(super) fn created_unowned(&mut self, id: WorkerId, pod: &KubePod, now: Timestamp) {
        let key = PodKey::of(&pod.metadata);
        let words = format!(
            "pod {} was created in namespace {} without the labels and annotations that say which worker it is: an admission webhook has removed \
             them; exempt Forebay's pods from it",
            key.name, key.namespace
        );
        if let Some(mut gang) = self.gangs.remove(&id.run) {
            self.refuse(id.run, &mut gang, words);
            self.gangs.insert(id.run, gang);
        }
        self.discards.insert(key.clone(), pod.metadata.clone());
        self.agenda.plan(Task::Discard(key), now);
    }

    /// It is deleted, and then our finalizer goes.
    pub(super) fn discard_call(&self, key: &PodKey) -> Option<KubeCall> {
        let metadata = self.discards.get(key)?;
        if !metadata.is_deleting() {
            return Some(KubeCall::Delete {
                resource: Resource::Pods,
                namespace: key.namespace.clone(),
                name: key.name.clone(),
                uid: Some(metadata.uid.clone()),
                grace_seconds: Some(GRACE_S),
            });
        }
        let others: Vec<&String> = metadata.finalizers.iter().filter(|name| *name != FINALIZER).collect();
        let metadata = json!({"uid": metadata.uid, "resourceVersion": metadata.resource_version, "finalizers": others});
        Some(KubeCall::Merge {
            resource: Resource::Pods,
            namespace: Some(key.namespace.clone()),
            name: key.name.clone(),
            body: Box::new(json!({ "metadata": metadata })),
        })
    }

    pub(super) fn discarded(&mut self, key: PodKey, response: KubeResponse, now: Timestamp) {
        let Some(mut metadata) = self.discards.remove(&key) else { return };
        match response {
            KubeResponse::Object(object) => {
                let KubeObject::Pod(pod) = *object else { return };
                let stays = pod.metadata.is_deleting() && pod.metadata.finalizers.iter().any(|name| name == FINALIZER);
                // Once: whoever puts our finalizer back keeps the pod.
                if stays && !metadata.is_deleting() {
                    self.discards.insert(key.clone(), pod.metadata);
                    self.agenda.plan(Task::Discard(key), now);
                }
            }
            // It has changed since it was deleted: asked for again, the deletion returns it as it is now.
            KubeResponse::Refused(error) if error.class == KubeErrorClass::Conflict && metadata.is_deleting() => {
                metadata.deletion_timestamp = None;
                self.discards.insert(key.clone(), metadata);
                self.agenda.plan(Task::Discard(key), now + self.rates.delay(0));
            }
            KubeResponse::Refused(error) if error.class == KubeErrorClass::Denied => {
                self.report_failure(&Task::Discard(key), 0, &error);
            }
            _ => {}
        }
    }
}
