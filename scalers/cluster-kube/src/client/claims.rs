//! What the API server says of a claim for storage: whether it is there, is bound, or waits for its first consumer.
//!
//! Never: a question about the class of a claim that is bound.

use super::KubeClient;
use crate::kube_error::{KubeError, KubeErrorClass};
use crate::template::VolumeClaimState;
use http::Request;
use serde_json::Value;

/// Where the class of a claim stood before there was a field for it. It still goes first.
const OLD_CLASS: &str = "/metadata/annotations/volume.beta.kubernetes.io~1storage-class";

impl KubeClient {
    /// The state of a claim, by its phase, and by the `volumeBindingMode` of its storage class where it is not bound.
    ///
    /// # Errors
    /// The API server does not answer, or refuses us.
    pub async fn claim(&self, namespace: &str, name: &str) -> Result<VolumeClaimState, KubeError> {
        let claims = format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims");
        let Some(claim) = self.found(&claims, name).await? else { return Ok(VolumeClaimState::Missing) };
        if claim.pointer("/status/phase").and_then(Value::as_str) == Some("Bound") {
            return Ok(VolumeClaimState::Bound);
        }
        // Without a class, or with one that is not there, the claim waits for a volume and for no pod.
        let Some(class) = class_of(&claim) else { return Ok(VolumeClaimState::Pending) };
        let class = self.found("/apis/storage.k8s.io/v1/storageclasses", class).await?;
        let mode = class.as_ref().and_then(|class| class.get("volumeBindingMode")?.as_str());
        Ok(if mode == Some("WaitForFirstConsumer") {
            VolumeClaimState::WaitsForConsumer
        } else {
            VolumeClaimState::Pending
        })
    }

    /// An object by its name. `None`: there is none.
    async fn found(&self, objects: &str, name: &str) -> Result<Option<Value>, KubeError> {
        if !is_name(name) {
            return Ok(None);
        }
        match self.ask(Request::get(format!("{objects}/{name}")).body(Vec::new())).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.class == KubeErrorClass::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The storage class that a claim asks for. `None`: none.
fn class_of(claim: &Value) -> Option<&str> {
    let class = claim.pointer(OLD_CLASS).or_else(|| claim.pointer("/spec/storageClassName"));
    class.and_then(Value::as_str).filter(|class| !class.is_empty())
}

/// Whether an object can have this name. It becomes part of a path.
fn is_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    (1..=253).contains(&name.len())
        && name.bytes().all(|b| plain(b) || b == b'-' || b == b'.')
        && name.bytes().next().is_some_and(plain)
        && name.bytes().next_back().is_some_and(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_name_cannot_leave_its_place_in_the_path() {
        for (name, legal) in [
            ("datasets", true),
            ("a.b-1", true),
            ("", false),
            ("..", false),
            ("../secrets", false),
            ("a/b", false),
            ("a?b", false),
            ("A", false),
            ("a-", false),
        ] {
            assert_eq!(is_name(name), legal, "{name}");
        }
        assert!(!is_name(&"a".repeat(254)));
    }

    #[test]
    fn the_annotation_of_a_class_goes_before_the_field() {
        let old = json!({"volume.beta.kubernetes.io/storage-class": "old"});
        for (claim, class) in [
            (json!({"spec": {"storageClassName": "gp3"}}), Some("gp3")),
            (json!({"metadata": {"annotations": old}, "spec": {"storageClassName": "gp3"}}), Some("old")),
            (json!({"spec": {"storageClassName": ""}}), None),
            (json!({"spec": {}}), None),
        ] {
            assert_eq!(class_of(&claim), class, "{claim}");
        }
    }
}
