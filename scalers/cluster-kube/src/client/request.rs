//! A call as an HTTP request.
//!
//! Never: a host, a credential; the client adds both.

use super::logs::WorkerPod;
use crate::api_call::{KubeCall, ObjectSelector, Resource};
use crate::kube_error::KubeError;
use http::{Method, Request};
use serde_json::{Value, json};

/// Who changes the fields, for server-side apply and in `managedFields`.
const FIELD_MANAGER: &str = "forebay";

/// Objects in one page of a list: at some 20 KB each, 10 MB, which an API server serves within a second or two.
const PAGE: usize = 500;

/// How long the API server keeps a watch open: its own default is 5 to 10 minutes.
pub(super) const WATCH_SECONDS: u64 = 300;

/// The request of a call.
pub(super) fn of(call: &KubeCall) -> Result<Request<Vec<u8>>, KubeError> {
    match call {
        KubeCall::List { resource, namespace, selector, continue_token } => {
            let mut query = query_of(selector);
            query.push(("limit", PAGE.to_string()));
            query.extend(continue_token.as_ref().map(|token| ("continue", token.clone())));
            get(&uri(path(*resource, namespace.as_deref(), None), &query))
        }
        KubeCall::Watch { resource, selector, resource_version } => {
            let mut query = query_of(selector);
            query.push(("watch", "true".to_owned()));
            query.push(("allowWatchBookmarks", "true".to_owned()));
            query.push(("resourceVersion", resource_version.clone()));
            query.push(("timeoutSeconds", WATCH_SECONDS.to_string()));
            get(&uri(path(*resource, None, None), &query))
        }
        KubeCall::Get { resource, namespace, name } => {
            get(&uri(path(*resource, namespace.as_deref(), Some(name)), &[]))
        }
        KubeCall::Create { resource, namespace, body } => {
            let of_namespace = (*resource != Resource::Namespaces).then_some(namespace.as_str());
            let uri = uri(path(*resource, of_namespace, None), &changes());
            with_body(Method::POST, &uri, "application/json", body)
        }
        KubeCall::CreateSecret { namespace, body } => {
            let uri = uri(path(Resource::Secrets, Some(namespace), None), &changes());
            with_body(Method::POST, &uri, "application/json", body.reveal())
        }
        KubeCall::Bind { namespace, pod, uid, node, annotations } => {
            let binding = json!({
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": pod, "namespace": namespace, "uid": uid, "annotations": annotations},
                "target": {"apiVersion": "v1", "kind": "Node", "name": node},
            });
            let path = path(Resource::Pods, Some(namespace), Some(pod)) + "/binding";
            with_body(Method::POST, &uri(path, &changes()), "application/json", &binding)
        }
        KubeCall::Evict { namespace, pod, uid } => {
            let eviction = json!({
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": pod, "namespace": namespace},
                "deleteOptions": {"preconditions": {"uid": uid}},
            });
            let path = path(Resource::Pods, Some(namespace), Some(pod)) + "/eviction";
            with_body(Method::POST, &uri(path, &changes()), "application/json", &eviction)
        }
        KubeCall::Apply { resource, namespace, name, body } => {
            let mut query = changes();
            query.push(("force", "true".to_owned()));
            let uri = uri(path(*resource, namespace.as_deref(), Some(name)), &query);
            with_body(Method::PATCH, &uri, "application/apply-patch+yaml", body)
        }
        KubeCall::Merge { resource, namespace, name, body } => {
            let uri = uri(path(*resource, namespace.as_deref(), Some(name)), &changes());
            with_body(Method::PATCH, &uri, "application/merge-patch+json", body)
        }
        KubeCall::MergeStatus { resource, namespace, name, body } => {
            let path = path(*resource, Some(namespace), Some(name)) + "/status";
            with_body(Method::PATCH, &uri(path, &changes()), "application/merge-patch+json", body)
        }
        KubeCall::Delete { resource, namespace, name, uid, grace_seconds } => {
            let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"});
            if let Some(uid) = uid {
                options["preconditions"] = json!({ "uid": uid });
            }
            if let Some(seconds) = grace_seconds {
                options["gracePeriodSeconds"] = json!(seconds);
            }
            let uri = uri(path(*resource, Some(namespace), Some(name)), &[]);
            with_body(Method::DELETE, &uri, "application/json", &options)
        }
    }
}

/// The request for the end of a worker's log.
pub(super) fn of_log(pod: &WorkerPod, lines: u32, bytes: usize) -> Result<Request<Vec<u8>>, KubeError> {
    let query =
        [("container", pod.container.clone()), ("tailLines", lines.to_string()), ("limitBytes", bytes.to_string())];
    get(&uri(path(Resource::Pods, Some(&pod.namespace), Some(&pod.name)) + "/log", &query))
}

/// What every change has: who makes it, and that a field which Kubernetes does not know is an error instead of being dropped.
fn changes() -> Vec<(&'static str, String)> {
    vec![("fieldManager", FIELD_MANAGER.to_owned()), ("fieldValidation", "Strict".to_owned())]
}

fn query_of(selector: &ObjectSelector) -> Vec<(&'static str, String)> {
    match selector {
        ObjectSelector::All => Vec::new(),
        ObjectSelector::Labels(labels) => vec![("labelSelector", labels.clone())],
        ObjectSelector::OnNode(node) => vec![("fieldSelector", format!("spec.nodeName={node}"))],
        ObjectSelector::WarningsOf(uid) => {
            vec![("fieldSelector", format!("involvedObject.uid={uid},type=Warning"))]
        }
    }
}

fn path(resource: Resource, namespace: Option<&str>, name: Option<&str>) -> String {
    let (group, kind) = match resource {
        Resource::Pods => ("/api/v1", "pods"),
        Resource::Nodes => ("/api/v1", "nodes"),
        Resource::Services => ("/api/v1", "services"),
        Resource::ConfigMaps => ("/api/v1", "configmaps"),
        Resource::Secrets => ("/api/v1", "secrets"),
        Resource::Namespaces => ("/api/v1", "namespaces"),
        Resource::Jobs => ("/apis/batch/v1", "jobs"),
        Resource::JobSets => ("/apis/jobset.x-k8s.io/v1alpha2", "jobsets"),
        Resource::DaemonSets => ("/apis/apps/v1", "daemonsets"),
        Resource::PodEvents => ("/api/v1", "events"),
        Resource::Events => ("/apis/events.k8s.io/v1", "events"),
    };
    let mut path = String::from(group);
    if let Some(namespace) = namespace {
        path += &format!("/namespaces/{}", encoded(namespace));
    }
    path += &format!("/{kind}");
    if let Some(name) = name {
        path += &format!("/{}", encoded(name));
    }
    path
}

fn uri(path: String, query: &[(&'static str, String)]) -> String {
    let query: Vec<String> = query.iter().map(|(key, value)| format!("{key}={}", encoded(value))).collect();
    if query.is_empty() { path } else { format!("{path}?{}", query.join("&")) }
}

/// Everything but what RFC 3986 calls unreserved, as percent and two digits.
fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(char::from(byte)),
            _ => encoded += &format!("%{byte:02X}"),
        }
    }
    encoded
}

fn get(uri: &str) -> Result<Request<Vec<u8>>, KubeError> {
    Request::get(uri).body(Vec::new()).map_err(|e| unusable(&e))
}

fn with_body(method: Method, uri: &str, kind: &str, body: &Value) -> Result<Request<Vec<u8>>, KubeError> {
    let request = Request::builder().method(method).uri(uri).header(http::header::CONTENT_TYPE, kind);
    request.body(body.to_string().into_bytes()).map_err(|e| unusable(&e))
}

/// A name so wrong that it is not a path. Nothing was sent; the words are those of a refusal, which is not repeated.
fn unusable(error: &http::Error) -> KubeError {
    KubeError::of_status(400, "BadRequest", &format!("not a request: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn line(call: &KubeCall) -> String {
        let request = of(call).unwrap();
        format!("{} {}", request.method(), request.uri())
    }

    fn body(call: &KubeCall) -> Value {
        serde_json::from_slice(of(call).unwrap().body()).unwrap()
    }

    #[test]
    fn lists_are_paged_and_consistent_and_watches_have_bookmarks() {
        let selector = ObjectSelector::Labels("forebay.dev/journal=j-1".to_owned());
        let list = |continue_token| KubeCall::List {
            resource: Resource::Pods,
            namespace: None,
            selector: selector.clone(),
            continue_token,
        };
        let first = "GET /api/v1/pods?labelSelector=forebay.dev%2Fjournal%3Dj-1&limit=500";
        assert_eq!(line(&list(None)), first);
        assert_eq!(line(&list(Some("a+b=".to_owned()))), format!("{first}&continue=a%2Bb%3D"));
        let on_node = KubeCall::List {
            resource: Resource::Pods,
            namespace: None,
            selector: ObjectSelector::OnNode("n-1".to_owned()),
            continue_token: None,
        };
        assert_eq!(line(&on_node), "GET /api/v1/pods?fieldSelector=spec.nodeName%3Dn-1&limit=500");
        let watch = KubeCall::Watch {
            resource: Resource::Nodes,
            selector: ObjectSelector::All,
            resource_version: "17".to_owned(),
        };
        let opened = "GET /api/v1/nodes?watch=true&allowWatchBookmarks=true&resourceVersion=17&timeoutSeconds=300";
        assert_eq!(line(&watch), opened);
    }

    #[test]
    fn a_binding_names_the_pod_by_its_uid() {
        let annotations = BTreeMap::from([("forebay.dev/boot-id".to_owned(), "b".to_owned())]);
        let bind = KubeCall::Bind {
            namespace: "team-a".to_owned(),
            pod: "p".to_owned(),
            uid: "u".to_owned(),
            node: "n".to_owned(),
            annotations,
        };
        let at = "POST /api/v1/namespaces/team-a/pods/p/binding?fieldManager=forebay&fieldValidation=Strict";
        assert_eq!(line(&bind), at);
        let body = body(&bind);
        assert_eq!((&body["metadata"]["uid"], &body["target"]["name"]), (&json!("u"), &json!("n")));
        assert_eq!(body["metadata"]["annotations"]["forebay.dev/boot-id"], "b");
    }

    #[test]
    fn a_change_says_who_makes_it_and_a_delete_says_what_it_means() {
        let apply = KubeCall::Apply {
            resource: Resource::Nodes,
            namespace: None,
            name: "n".to_owned(),
            body: Box::new(json!({"metadata": {}})),
        };
        assert_eq!(line(&apply), "PATCH /api/v1/nodes/n?fieldManager=forebay&fieldValidation=Strict&force=true");
        let delete = |uid: Option<&str>, grace_seconds| KubeCall::Delete {
            resource: Resource::Pods,
            namespace: "a".to_owned(),
            name: "p".to_owned(),
            uid: uid.map(str::to_owned),
            grace_seconds,
        };
        assert_eq!(line(&delete(None, None)), "DELETE /api/v1/namespaces/a/pods/p");
        let options = body(&delete(Some("u"), Some(0)));
        assert_eq!((&options["preconditions"]["uid"], &options["gracePeriodSeconds"]), (&json!("u"), &json!(0)));
        assert_eq!(body(&delete(None, None)).get("gracePeriodSeconds"), None);
    }

    #[test]
    fn a_name_cannot_leave_its_place_in_the_path() {
        let get =
            KubeCall::Get { resource: Resource::Pods, namespace: Some("a/b".to_owned()), name: "../x?y".to_owned() };
        assert_eq!(line(&get), "GET /api/v1/namespaces/a%2Fb/pods/..%2Fx%3Fy");
    }

    #[test]
    fn a_log_is_asked_for_by_lines_and_bytes() {
        let pod = WorkerPod {
            worker: "job-1/2/3".parse().unwrap(),
            namespace: "a".to_owned(),
            name: "p".to_owned(),
            container: "work&er".to_owned(),
            started: true,
            ended: false,
        };
        let asked = of_log(&pod, 9, 100).unwrap();
        let at = "/api/v1/namespaces/a/pods/p/log?container=work%26er&tailLines=9&limitBytes=100";
        assert_eq!((asked.method().as_str(), asked.uri().to_string().as_str()), ("GET", at));
    }
}
