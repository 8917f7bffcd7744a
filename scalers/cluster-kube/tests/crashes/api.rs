//! A small API server in memory: objects with resource versions, lists by pages, watches from a version, compaction, preconditions.
//!
//! Never: an answer that the real one would not give. Faults (lost responses, throttling, denials) are the caller's.

use forebay_cluster_kube::{KubeCall, KubeError, KubeObject, KubeResponse, ObjectSelector, Resource, WatchChange};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The objects of one page.
const PAGE: usize = 3;

/// An object by its kind, namespace and name.
pub type ObjectKey = (Resource, String, String);

/// One change, for watches.
#[derive(Clone)]
pub struct Change {
    pub version: u64,
    pub resource: Resource,
    pub deleted: bool,
    pub object: Value,
}

#[derive(Default)]
pub struct ApiServer {
    pub objects: BTreeMap<ObjectKey, Value>,
    pub log: Vec<Change>,
    pub compacted: u64,
    version: u64,
    uids: u64,
    pages: BTreeMap<String, (u64, Vec<Value>)>,
}

/// A text of an object by its path.
pub fn text<'v>(object: &'v Value, path: &str) -> &'v str {
    object.pointer(path).and_then(Value::as_str).unwrap_or("")
}

/// A time, whose order is that of its texts, as with the real one's.
pub fn time(at: u64) -> String {
    format!("{at:020}")
}

/// Whether an object is being deleted.
pub fn deleting(object: &Value) -> bool {
    !text(object, "/metadata/deletionTimestamp").is_empty()
}

fn refused(code: u16, reason: &str, message: &str) -> KubeResponse {
    KubeResponse::Refused(KubeError::of_status(code, reason, message))
}

impl ApiServer {
    /// Changes an object and tells the watches. An object that is deleted and has no finalizer left goes.
    pub fn put(&mut self, key: &ObjectKey, mut object: Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let finalizers = object.pointer("/metadata/finalizers").and_then(Value::as_array).map_or(0, Vec::len);
        let goes = deleting(&object) && object["ended"] == true && finalizers == 0;
        if goes {
            self.objects.remove(key);
            // As the garbage collector does, sooner or later: what it owned goes.
            let uid = object["metadata"]["uid"].clone();
            self.objects.retain(|_, other| other["metadata"]["ownerReferences"][0]["uid"] != uid);
        } else {
            self.objects.insert(key.clone(), object.clone());
        }
        self.log.push(Change { version: self.version, resource: key.0, deleted: goes, object });
    }

    /// Changes an object in place, if it is there.
    pub fn edit(&mut self, key: &ObjectKey, change: impl FnOnce(&mut Value)) {
        if let Some(mut object) = self.objects.get(key).cloned() {
            change(&mut object);
            self.put(key, object);
        }
    }

    /// Creates an object.
    pub fn create(&mut self, resource: Resource, namespace: &str, mut object: Value) -> KubeResponse {
        let key = (resource, namespace.to_owned(), text(&object, "/metadata/name").to_owned());
        let home = self.objects.get(&(Resource::Namespaces, String::new(), namespace.to_owned()));
        if !namespace.is_empty() && home.is_none_or(deleting) {
            return refused(
                403,
                "Forbidden",
                "unable to create new content in namespace because it is being terminated",
            );
        }
        if self.objects.contains_key(&key) {
            return refused(409, "AlreadyExists", "already exists");
        }
        self.uids += 1;
        object["metadata"]["uid"] = json!(format!("uid-{}", self.uids));
        if resource == Resource::Pods {
            object["status"]["phase"] = json!("Pending");
        }
        let owner = object["metadata"]["ownerReferences"][0]["uid"].clone();
        self.put(&key, object);
        let response = self.response(&key);
        if !owner.is_null() && !self.objects.values().any(|other| other["metadata"]["uid"] == owner) {
            // As the garbage collector does: its owner went while it was made.
            self.objects.remove(&key);
        }
        response
    }

    /// Deletes an object. A pod that is bound stays until its kubelet has ended it; `force`: not even that.
    pub fn delete(&mut self, key: &ObjectKey, grace_ms: u64, now: u64, force: bool) {
        let bound = self.objects.get(key).is_some_and(|object| !text(object, "/spec/nodeName").is_empty());
        self.edit(key, |object| {
            // A pod that is over gets no grace.
            let over = matches!(text(object, "/status/phase"), "Succeeded" | "Failed");
            let grace_ms = if over { 0 } else { grace_ms };
            let by = now + grace_ms;
            let sooner = object.get("killAt").and_then(Value::as_u64).is_none_or(|at| by < at);
            if sooner {
                object["killAt"] = json!(by);
            }
            object["metadata"]["deletionTimestamp"] = json!(time(by));
            object["metadata"]["deletionGracePeriodSeconds"] = json!(grace_ms / 1000);
            if !bound || force {
                object["ended"] = json!(true);
            }
        });
    }

    fn response(&self, key: &ObjectKey) -> KubeResponse {
        match self.objects.get(key) {
            Some(object) => KubeResponse::Object(Box::new(read(key.0, object))),
            None => refused(404, "NotFound", "not found"),
        }
    }

    /// Makes a call that changes or reads one object, or lists.
    pub fn call(&mut self, call: &KubeCall, now: u64) -> KubeResponse {
        match call {
            KubeCall::List { resource, namespace, selector, continue_token } => {
                self.list(*resource, namespace.as_deref(), selector, continue_token.as_deref())
            }
            KubeCall::Watch { .. } => KubeResponse::Done,
            KubeCall::Get { resource, namespace, name } => {
                self.response(&(*resource, namespace.clone().unwrap_or_default(), name.clone()))
            }
            KubeCall::Create { resource, namespace, body } => self.create(*resource, namespace, (**body).clone()),
            KubeCall::CreateSecret { namespace, body } => {
                self.create(Resource::Secrets, namespace, body.reveal().clone())
            }
            KubeCall::Bind { namespace, pod, uid, node, annotations } => {
                let key = (Resource::Pods, namespace.clone(), pod.clone());
                let Some(object) = self.objects.get(&key) else { return refused(404, "NotFound", "no such pod") };
                let taken = text(object, "/metadata/uid") != uid
                    || deleting(object)
                    || !text(object, "/spec/nodeName").is_empty();
                if taken {
                    return refused(409, "Conflict", "the pod is already assigned to a node, or is being deleted");
                }
                self.edit(&key, |object| {
                    object["spec"]["nodeName"] = json!(node);
                    for (name, value) in annotations {
                        object["metadata"]["annotations"][name] = json!(value);
                    }
                });
                KubeResponse::Done
            }
            KubeCall::Apply { resource, namespace, name, body }
            | KubeCall::Merge { resource, namespace, name, body } => {
                let key = (*resource, namespace.clone().unwrap_or_default(), name.clone());
                self.patch(&key, body, matches!(call, KubeCall::Merge { .. }))
            }
            KubeCall::MergeStatus { resource, namespace, name, body } => {
                let key = (*resource, namespace.clone(), name.clone());
                let suspended = self.objects.get(&key).is_some_and(|object| object["spec"]["suspend"] == true);
                if !suspended {
                    return refused(422, "Invalid", "status.startTime: field is immutable for unsuspended job");
                }
                self.patch(&key, body, true)
            }
            KubeCall::Evict { namespace, pod, uid } => {
                let key = (Resource::Pods, namespace.clone(), pod.clone());
                let Some(object) = self.objects.get(&key) else { return refused(404, "NotFound", "not found") };
                if text(object, "/metadata/uid") != uid {
                    return refused(409, "Conflict", "the uid in the precondition is another one");
                }
                assert!(object["foreign"] == true, "none of ours is evicted");
                self.delete(&key, 1000, now, false);
                KubeResponse::Done
            }
            KubeCall::Delete { resource, namespace, name, uid, grace_seconds } => {
                let key = (*resource, namespace.clone(), name.clone());
                let Some(object) = self.objects.get(&key) else { return refused(404, "NotFound", "not found") };
                if uid.as_ref().is_some_and(|uid| text(object, "/metadata/uid") != uid) {
                    return refused(409, "Conflict", "the uid in the precondition is another one");
                }
                assert_ne!(*grace_seconds, Some(0), "a pod is never deleted by force");
                self.delete(&key, grace_seconds.unwrap_or(0) * 1000, now, *resource != Resource::Pods);
                KubeResponse::Done
            }
        }
    }

    fn patch(&mut self, key: &ObjectKey, body: &Value, merge: bool) -> KubeResponse {
        let Some(object) = self.objects.get(key) else {
            let (code, reason) = if merge { (404, "NotFound") } else { (409, "Conflict") };
            return refused(code, reason, "no existing object was found");
        };
        let differs = |field: &str| body.pointer(field).is_some_and(|asked| object.pointer(field) != Some(asked));
        if differs("/metadata/uid") || differs("/metadata/resourceVersion") {
            return refused(409, "Conflict", "the object has been modified");
        }
        let suspended = object["spec"]["suspend"] == true && object["status"]["startTime"].is_null();
        if key.0 == Resource::Jobs && body.pointer("/spec/template").is_some() && !suspended {
            return refused(422, "Invalid", "spec.template: field is immutable");
        }
        self.edit(key, |object| apply(object, body));
        match self.objects.get(key) {
            Some(object) => KubeResponse::Object(Box::new(read(key.0, object))),
            // It went with its last finalizer; the real one answers with its last state.
            None => self
                .log
                .last()
                .map_or(KubeResponse::Done, |last| KubeResponse::Object(Box::new(read(key.0, &last.object)))),
        }
    }

    fn list(
        &mut self,
        resource: Resource,
        namespace: Option<&str>,
        selector: &ObjectSelector,
        token: Option<&str>,
    ) -> KubeResponse {
        let (version, mut left) = match token {
            Some(token) => match self.pages.remove(token) {
                Some((version, left)) if version >= self.compacted => (version, left),
                _ => return refused(410, "Expired", "the continue token is too old"),
            },
            None => {
                let within = |key: &ObjectKey| key.0 == resource && namespace.is_none_or(|name| key.1 == name);
                let of_kind = self.objects.iter().filter(|(key, object)| within(key) && selected(selector, object));
                (self.version, of_kind.map(|(_, object)| object.clone()).collect())
            }
        };
        let rest = left.split_off(left.len().min(PAGE));
        let continue_token = (!rest.is_empty()).then(|| {
            self.uids += 1;
            let token = format!("token-{}", self.uids);
            self.pages.insert(token.clone(), (version, rest));
            token
        });
        let objects = left.iter().map(|object| read(resource, object)).collect();
        KubeResponse::Page { objects, continue_token, resource_version: version.to_string() }
    }

    /// The next event of a watch after a version.
    pub fn next_change(&self, resource: Resource, selector: &ObjectSelector, after: u64) -> Option<(u64, WatchChange)> {
        if after < self.compacted {
            return Some((after, WatchChange::Expired));
        }
        let from = self.log.partition_point(|change| change.version <= after);
        let found =
            self.log[from..].iter().find(|change| change.resource == resource && selected(selector, &change.object));
        Some(match found {
            Some(change) => {
                let object = Box::new(read(resource, &change.object));
                let event = if change.deleted { WatchChange::Deleted(object) } else { WatchChange::Applied(object) };
                (change.version, event)
            }
            None if self.version > after => {
                (self.version, WatchChange::Bookmark { resource_version: self.version.to_string() })
            }
            None => return None,
        })
    }

    pub fn compact(&mut self) {
        self.compacted = self.version;
        self.log.clear();
    }
}

/// Changes an object as a JSON merge patch does (RFC 7386).
fn apply(into: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else { return *into = patch.clone() };
    if !into.is_object() {
        *into = json!({});
    }
    for (name, value) in fields {
        if value.is_null() {
            into.as_object_mut().expect("an object").remove(name);
        } else {
            apply(&mut into[name], value);
        }
    }
}

fn selected(selector: &ObjectSelector, object: &Value) -> bool {
    match selector {
        ObjectSelector::All => true,
        ObjectSelector::Labels(label) if !label.contains('=') => object["metadata"]["labels"][label].is_string(),
        ObjectSelector::Labels(labels) => labels.split(',').all(|label| {
            let (name, value) = label.split_once('=').expect("a label and its value");
            object["metadata"]["labels"][name] == *value
        }),
        ObjectSelector::OnNode(node) => text(object, "/spec/nodeName") == node,
        ObjectSelector::WarningsOf(uid) => text(object, "/involvedObject/uid") == uid,
    }
}

fn read(resource: Resource, object: &Value) -> KubeObject {
    KubeObject::of_json(resource, object.clone()).expect("an object of the API")
}
