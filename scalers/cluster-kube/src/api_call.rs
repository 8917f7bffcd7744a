//! Calls to the API server, their responses, and the events of watches, without any client's types. A list is at most one page a call.
//!
//! Bodies are JSON as the API server takes it. Whoever makes the calls neither changes nor repeats them.

use crate::adoption::{Workload, WorkloadKind};
use crate::kube_error::KubeError;
use crate::objects::{KubeDaemonSet, KubeEvent, KubeNode, KubePod, ObjectMeta};
use serde_json::Value;
use std::collections::BTreeMap;

/// The number of a call, by which its response is handed back. Numbers start at 1 and are not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KubeCallId(pub u64);

/// A kind of object that is read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// `v1` `pods`.
    Pods,
    /// `v1` `nodes`, which have no namespace.
    Nodes,
    /// `v1` `services`.
    Services,
    /// `v1` `configmaps`.
    ConfigMaps,
    /// `v1` `secrets`: only created, never read.
    Secrets,
    /// `v1` `namespaces`, which have no namespace.
    Namespaces,
    /// `batch/v1` `jobs`.
    Jobs,
    /// `jobset.x-k8s.io/v1alpha2` `jobsets`.
    JobSets,
    /// `events.k8s.io/v1` `events`: only created, never read.
    Events,
    /// `apps/v1` `daemonsets`: only read.
    DaemonSets,
    /// `v1` `events`: only read.
    PodEvents,
}

/// Which objects of a kind are listed or watched, in all namespaces.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectSelector {
    /// All.
    All,
    /// By a label selector, such as `forebay.dev/journal=j-1`.
    Labels(String),
    /// The pods that are bound to this node, by the field selector `spec.nodeName`.
    OnNode(String),
    /// The warnings about the object with this uid.
    WarningsOf(String),
}

/// One call.
#[derive(Clone, Debug, PartialEq)]
pub enum KubeCall {
    /// Lists one page, consistently: without a resource version, so that it is not answered from a cache. The response is `Page`.
    List {
        /// What is listed.
        resource: Resource,
        /// In which namespace. `None`: in all of them.
        namespace: Option<String>,
        /// Which of them.
        selector: ObjectSelector,
        /// The token of the page. `None`: the first page.
        continue_token: Option<String>,
    },
    /// Opens a watch with bookmarks. It has no response: all that comes of it is a [`WatchEvent`] with the number of this call, until one
    /// of them ends it. A driver closes the watch of the same resource that it had before.
    Watch {
        /// What is watched.
        resource: Resource,
        /// Which of them.
        selector: ObjectSelector,
        /// From here on.
        resource_version: String,
    },
    /// Reads one object, consistently. The response is `Object`.
    Get {
        /// Its kind.
        resource: Resource,
        /// Its namespace, where it has one.
        namespace: Option<String>,
        /// Its name.
        name: String,
    },
    /// Creates an object (POST). The response is `Object`.
    Create {
        /// Its kind.
        resource: Resource,
        /// Its namespace.
        namespace: String,
        /// All of it.
        body: Box<Value>,
    },
    /// Creates a Secret (POST). The response is `Object`.
    CreateSecret {
        /// Its namespace.
        namespace: String,
        /// All of it.
        body: Box<SecretBody>,
    },
    /// Binds a pod to a node (POST to `pods/NAME/binding`). The response is `Done`.
    Bind {
        /// The pod's namespace.
        namespace: String,
        /// The pod's name.
        pod: String,
        /// The pod's uid, so that no other pod of that name is bound.
        uid: String,
        /// The node's name.
        node: String,
        /// Annotations of the Binding, which the API server copies to the pod.
        annotations: BTreeMap<String, String>,
    },
    /// Evicts a pod, as its disruption budgets allow (POST to `pods/NAME/eviction`). The response is `Done`.
    Evict {
        /// The pod's namespace.
        namespace: String,
        /// The pod's name.
        pod: String,
        /// Only if it has this uid.
        uid: String,
    },
    /// Server-side apply with our field manager, by force. The response is `Object`.
    Apply {
        /// Its kind.
        resource: Resource,
        /// Its namespace, where it has one.
        namespace: Option<String>,
        /// Its name.
        name: String,
        /// The fields that are ours.
        body: Box<Value>,
    },
    /// A JSON merge patch, where a whole list has to be replaced, or one field of many objects is set. Its body has the uid, and for a list the
    /// resource version that it was made from, so that it replaces nothing that it has not seen. The response is `Object`.
    Merge {
        /// Its kind.
        resource: Resource,
        /// Its namespace, where it has one.
        namespace: Option<String>,
        /// Its name.
        name: String,
        /// The patch.
        body: Box<Value>,
    },
    /// The same for the status of an object (PATCH to `NAME/status`).
    MergeStatus {
        /// Its kind.
        resource: Resource,
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// The patch.
        body: Box<Value>,
    },
    /// Deletes an object. The response is `Done`.
    Delete {
        /// Its kind.
        resource: Resource,
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Only if it has this uid.
        uid: Option<String>,
        /// Seconds that its containers have to end. `None`: not a pod.
        grace_seconds: Option<u64>,
    },
}

/// A Secret as it is created. It is not printed with the call.
#[derive(Clone, PartialEq)]
pub struct SecretBody(pub(crate) Value);

impl SecretBody {
    /// All of it, with what is secret.
    #[must_use]
    pub fn reveal(&self) -> &Value {
        &self.0
    }
}

impl std::fmt::Debug for SecretBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretBody")
    }
}

impl KubeCall {
    /// The rate that the call counts against.
    #[must_use]
    pub fn rate(&self) -> KubeRateClass {
        match self {
            KubeCall::List { .. } | KubeCall::Watch { .. } | KubeCall::Get { .. } => KubeRateClass::Read,
            _ => KubeRateClass::Write,
        }
    }
}

/// Calls that count against one rate together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KubeRateClass {
    /// Lists, watches and reads.
    Read,
    /// Everything that changes something.
    Write,
}

/// The response to a call.
#[derive(Clone, Debug, PartialEq)]
pub enum KubeResponse {
    /// The call succeeded.
    Done,
    /// The call succeeded, and this is the object after it.
    Object(Box<KubeObject>),
    /// A page of a list.
    Page {
        /// The objects of the page.
        objects: Vec<KubeObject>,
        /// The token of the next page. `None`: this was the last one.
        continue_token: Option<String>,
        /// The resource version of the whole list.
        resource_version: String,
    },
    /// The API server refused the call, or there was no usable response.
    Refused(KubeError),
}

/// An object as far as it is used here.
#[derive(Clone, Debug, PartialEq)]
pub enum KubeObject {
    /// A pod.
    Pod(KubePod),
    /// A node.
    Node(KubeNode),
    /// A Job or JobSet.
    Workload(Box<Workload>),
    /// A DaemonSet.
    DaemonSet(Box<KubeDaemonSet>),
    /// An event.
    Event(KubeEvent),
    /// Any other kind.
    Other(ObjectMeta),
}

impl KubeObject {
    /// What every object has.
    #[must_use]
    pub fn metadata(&self) -> &ObjectMeta {
        match self {
            KubeObject::Pod(pod) => &pod.metadata,
            KubeObject::Node(node) => &node.metadata,
            KubeObject::Workload(workload) => &workload.metadata,
            KubeObject::DaemonSet(set) => &set.metadata,
            KubeObject::Event(event) => &event.metadata,
            KubeObject::Other(metadata) => metadata,
        }
    }

    /// Reads an object of a kind from the API server's JSON.
    ///
    /// # Errors
    /// The JSON is not an object of that kind.
    pub fn of_json(resource: Resource, json: Value) -> Result<KubeObject, serde_json::Error> {
        Ok(match resource {
            Resource::Pods => KubeObject::Pod(serde_json::from_value(json)?),
            Resource::Nodes => KubeObject::Node(serde_json::from_value(json)?),
            Resource::Jobs => KubeObject::Workload(Box::new(Workload::of_json(WorkloadKind::Job, json)?)),
            Resource::JobSets => KubeObject::Workload(Box::new(Workload::of_json(WorkloadKind::JobSet, json)?)),
            Resource::DaemonSets => KubeObject::DaemonSet(Box::new(KubeDaemonSet::of_json(&json)?)),
            Resource::PodEvents => KubeObject::Event(serde_json::from_value(json)?),
            _ => {
                let metadata = json.get("metadata").cloned().unwrap_or_default();
                KubeObject::Other(serde_json::from_value(metadata)?)
            }
        })
    }

    /// The same from its text. There are many pods and nodes: nothing of them comes to memory but what is used.
    ///
    /// # Errors
    /// The text is not an object of that kind.
    pub fn of_slice(resource: Resource, text: &[u8]) -> Result<KubeObject, serde_json::Error> {
        match resource {
            Resource::Pods => serde_json::from_slice(text).map(KubeObject::Pod),
            Resource::Nodes => serde_json::from_slice(text).map(KubeObject::Node),
            _ => KubeObject::of_json(resource, serde_json::from_slice(text)?),
        }
    }
}

/// What a watch delivers.
#[derive(Clone, Debug, PartialEq)]
pub struct WatchEvent {
    /// The call that opened the watch.
    pub watch: KubeCallId,
    /// What it says.
    pub change: WatchChange,
}

/// One event of a watch.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchChange {
    /// The object was added or modified.
    Applied(Box<KubeObject>),
    /// The object was deleted; this is its last state.
    Deleted(Box<KubeObject>),
    /// Nothing changed up to this resource version.
    Bookmark {
        /// The resource version.
        resource_version: String,
    },
    /// The watch ended, as watches do. It is opened again where it ended.
    Ended,
    /// The API server does not have the changes since the resource version any more (410): all is listed again.
    Expired,
    /// The watch could not be opened, or broke.
    Failed(KubeError),
}
