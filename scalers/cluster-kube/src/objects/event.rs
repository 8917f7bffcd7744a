//! An event: what Kubernetes says happened to an object.

use super::ObjectMeta;
use serde::{Deserialize, Serialize};

/// What Kubernetes says happened to an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KubeEvent {
    /// What every object has.
    pub metadata: ObjectMeta,
    /// What, as one word, such as `FailedMount`.
    pub reason: String,
    /// What, as a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When it happened last, as RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_timestamp: Option<String>,
    /// The same, where it is said once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_time: Option<String>,
}

impl KubeEvent {
    /// When it happened last; the texts of the API server's times are in their order.
    #[must_use]
    pub fn at(&self) -> &str {
        self.last_timestamp.as_deref().or(self.event_time.as_deref()).unwrap_or_default()
    }
}
