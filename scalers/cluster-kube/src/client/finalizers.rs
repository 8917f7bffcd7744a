//! Our finalizers without a machine: for a cluster that Forebay leaves.
//!
//! Never: another's finalizer, a pod without our label, or a deletion.

use super::KubeClient;
use crate::api_call::{KubeCall, KubeObject, KubeResponse, ObjectSelector, Resource};
use crate::kube_error::{KubeError, KubeErrorClass};
use crate::names::{FINALIZER, LABEL_JOURNAL, journal_selector};
use crate::objects::KubePod;
use serde_json::json;

/// What is done about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinalizerMode {
    /// Nothing.
    Find,
    /// They are removed.
    Remove,
}

/// How often a pod that changes meanwhile is read again.
const TRIES: usize = 5;

impl KubeClient {
    /// The pods of a namespace with our finalizer, by their names. `journal`: only those of this journal.
    ///
    /// # Errors
    /// They cannot be listed, or one cannot be changed; those before it are changed.
    pub async fn finalized_pods(
        &self,
        namespace: &str,
        journal: Option<&str>,
        mode: FinalizerMode,
    ) -> Result<Vec<String>, KubeError> {
        let labels = journal.map_or_else(|| LABEL_JOURNAL.to_owned(), journal_selector);
        let (mut names, mut continue_token) = (Vec::new(), None);
        loop {
            let call = KubeCall::List {
                resource: Resource::Pods,
                namespace: Some(namespace.to_owned()),
                selector: ObjectSelector::Labels(labels.clone()),
                continue_token,
            };
            let (objects, next) = match self.execute(&call).await {
                KubeResponse::Page { objects, continue_token, .. } => (objects, continue_token),
                KubeResponse::Refused(error) => return Err(error),
                _ => return Err(KubeError::no_response("a list is no page")),
            };
            for object in objects {
                let KubeObject::Pod(pod) = object else { continue };
                if !has_ours(&pod) {
                    continue;
                }
                names.push(pod.metadata.name.clone());
                if mode == FinalizerMode::Remove {
                    self.remove_finalizer(namespace, pod).await?;
                }
            }
            continue_token = next;
            if continue_token.is_none() {
                return Ok(names);
            }
        }
    }

    async fn remove_finalizer(&self, namespace: &str, mut pod: KubePod) -> Result<(), KubeError> {
        let mut tries = 1;
        loop {
            let metadata = &pod.metadata;
            let others: Vec<&String> = metadata.finalizers.iter().filter(|name| *name != FINALIZER).collect();
            // Only from the very pod and the very list that was seen.
            let body = json!({"metadata":
                {"uid": metadata.uid, "resourceVersion": metadata.resource_version, "finalizers": others}});
            let (resource, namespace) = (Resource::Pods, Some(namespace.to_owned()));
            let name = metadata.name.clone();
            let call =
                KubeCall::Merge { resource, namespace: namespace.clone(), name: name.clone(), body: Box::new(body) };
            let error = match self.execute(&call).await {
                KubeResponse::Refused(error) if error.class == KubeErrorClass::NotFound => return Ok(()),
                KubeResponse::Refused(error) => error,
                _ => return Ok(()),
            };
            if error.class != KubeErrorClass::Conflict || tries >= TRIES {
                return Err(error);
            }
            tries += 1;
            match self.execute(&KubeCall::Get { resource, namespace, name }).await {
                KubeResponse::Object(object) => match *object {
                    KubeObject::Pod(now) if has_ours(&now) => pod = now,
                    _ => return Ok(()),
                },
                KubeResponse::Refused(error) if error.class == KubeErrorClass::NotFound => return Ok(()),
                KubeResponse::Refused(error) => return Err(error),
                _ => return Err(error),
            }
        }
    }
}

fn has_ours(pod: &KubePod) -> bool {
    pod.metadata.finalizers.iter().any(|name| name == FINALIZER)
}
