//! The calls against a real API server: what each does, what a refusal says, what a watch delivers, and what a restart breaks.
//!
//! Never: the state machine; `gangs.rs` has it.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_cluster_kube::client::{CredentialSource, KubeClient};
use forebay_cluster_kube::kube_error::KubeErrorClass;
use forebay_cluster_kube::{
    KubeCall, KubeCallId, KubeError, KubeObject, KubeResponse, ObjectSelector, Resource, WatchChange, WatchEvent,
};
use forebay_parts::{Kubernetes, KubernetesOptions, KwokOptions};
use serde_json::{Value, json};
use tokio::sync::mpsc::{self, Receiver};
use tokio::time::timeout;

const NAMESPACE: &str = "team-a";
const LIMIT: Duration = Duration::from_secs(60);

async fn client(kubernetes: &Kubernetes) -> KubeClient {
    let source = CredentialSource::Kubeconfig { path: kubernetes.kubeconfig(), context: None };
    KubeClient::connect(&source).await.unwrap()
}

/// A namespace in which pods can be created, and a node.
fn furnish(kubernetes: &Kubernetes) {
    kubernetes.kubectl(&["create", "namespace", NAMESPACE], "").unwrap();
    kubernetes
        .kubectl(&["wait", "serviceaccount/default", "-n", NAMESPACE, "--for=create", "--timeout=60s"], "")
        .unwrap();
    kubernetes.apply("{apiVersion: v1, kind: Node, metadata: {name: n-1}}").unwrap();
}

fn pod(name: &str) -> Value {
    let containers = json!([{"name": "main", "image": "none"}]);
    let metadata = json!({"name": name, "labels": {"app": "test"}});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
           "spec": {"schedulerName": "forebay", "restartPolicy": "Never", "containers": containers}})
}

fn create(resource: Resource, body: Value) -> KubeCall {
    KubeCall::Create { resource, namespace: NAMESPACE.to_owned(), body: Box::new(body) }
}

fn get(name: &str) -> KubeCall {
    KubeCall::Get { resource: Resource::Pods, namespace: Some(NAMESPACE.to_owned()), name: name.to_owned() }
}

fn bind(pod: &str, uid: &str) -> KubeCall {
    KubeCall::Bind {
        namespace: NAMESPACE.to_owned(),
        pod: pod.to_owned(),
        uid: uid.to_owned(),
        node: "n-1".to_owned(),
        annotations: BTreeMap::from([("forebay.dev/boot-id".to_owned(), "b-1".to_owned())]),
    }
}

fn delete(name: &str, uid: Option<&str>) -> KubeCall {
    KubeCall::Delete {
        resource: Resource::Pods,
        namespace: NAMESPACE.to_owned(),
        name: name.to_owned(),
        uid: uid.map(str::to_owned),
        grace_seconds: Some(0),
    }
}

async fn object(client: &KubeClient, call: KubeCall) -> KubeObject {
    match client.execute(&call).await {
        KubeResponse::Object(object) => *object,
        other => panic!("{call:?}: {other:?}"),
    }
}

async fn refused(client: &KubeClient, call: KubeCall) -> KubeError {
    match client.execute(&call).await {
        KubeResponse::Refused(error) => error,
        other => panic!("{call:?}: {other:?}"),
    }
}

/// A watch of the pods from a resource version on.
fn watch(client: &KubeClient, resource_version: &str) -> Receiver<WatchEvent> {
    let (sender, receiver) = mpsc::channel(64);
    let selector = ObjectSelector::Labels("app=test".to_owned());
    let call = KubeCall::Watch { resource: Resource::Pods, selector, resource_version: resource_version.to_owned() };
    let client = client.clone();
    tokio::spawn(async move { client.watch(KubeCallId(7), &call, &sender).await });
    receiver
}

async fn next(events: &mut Receiver<WatchEvent>) -> WatchChange {
    let event = timeout(LIMIT, events.recv()).await.expect("an event in time").expect("the end is an event");
    assert_eq!(event.watch, KubeCallId(7));
    event.change
}

#[tokio::test(flavor = "multi_thread")]
async fn real_calls_do_what_they_say_and_refusals_keep_kubernetes_words() {
    // Otherwise the API server remembers the pages of a list that etcd has forgotten, for a while.
    let api_server_flags = vec!["--feature-gates=ListFromCacheSnapshot=false".to_owned()];
    let options = KubernetesOptions { controller_manager: true, api_server_flags, ..KubernetesOptions::default() };
    let kubernetes = Kubernetes::start(options).unwrap();
    furnish(&kubernetes);
    let client = client(&kubernetes).await;

    let created = object(&client, create(Resource::Pods, pod("a"))).await;
    let uid = created.metadata().uid.clone();
    let twice = refused(&client, create(Resource::Pods, pod("a"))).await;
    assert_eq!((twice.class, twice.message.as_str()), (KubeErrorClass::Exists, "pods \"a\" already exists"));
    let mut typo = pod("typo");
    typo["spec"]["contaners"] = json!([]);
    let typo = refused(&client, create(Resource::Pods, typo)).await;
    assert!(
        typo.class == KubeErrorClass::Denied && typo.message.contains("unknown field \"spec.contaners\""),
        "{typo}"
    );

    let other = refused(&client, bind("a", "0b4bd4d4-0000-0000-0000-000000000000")).await;
    assert!(other.class == KubeErrorClass::Conflict && other.message.contains("UID"), "{other}");
    assert_eq!(client.execute(&bind("a", &uid)).await, KubeResponse::Done);
    let again = refused(&client, bind("a", &uid)).await;
    assert!(again.class == KubeErrorClass::Conflict && again.message.contains("already assigned to node"), "{again}");
    let KubeObject::Pod(bound) = object(&client, get("a")).await else { panic!("a pod") };
    assert_eq!(bound.metadata.annotation("forebay.dev/boot-id"), Some("b-1"));

    let patch = |version: &str| KubeCall::Merge {
        resource: Resource::Pods,
        namespace: Some(NAMESPACE.to_owned()),
        name: "a".to_owned(),
        body: Box::new(json!({"metadata": {"resourceVersion": version, "finalizers": ["forebay.dev/outcome"]}})),
    };
    let kept = object(&client, patch(&bound.metadata.resource_version)).await;
    assert_eq!(kept.metadata().finalizers, ["forebay.dev/outcome"]);
    assert_eq!(refused(&client, patch(&created.metadata().resource_version)).await.class, KubeErrorClass::Conflict);
    let cordon = KubeCall::Apply {
        resource: Resource::Nodes,
        namespace: None,
        name: "n-1".to_owned(),
        body: Box::new(
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n-1"}, "spec": {"unschedulable": true}}),
        ),
    };
    object(&client, cordon).await;
    let node = kubernetes.kubectl(&["get", "node", "n-1", "-o", "jsonpath={.spec.unschedulable}"], "").unwrap();
    assert_eq!(node, "true");

    assert_eq!(
        refused(&client, delete("a", Some("0b4bd4d4"))).await.class,
        KubeErrorClass::Conflict,
        "another pod's uid"
    );
    assert_eq!(client.execute(&delete("a", Some(&uid))).await, KubeResponse::Done);
    assert!(object(&client, get("a")).await.metadata().is_deleting(), "its finalizer keeps it");
    assert_eq!(refused(&client, get("gone")).await.class, KubeErrorClass::NotFound);

    kubernetes.kubectl(&["create", "quota", "full", "-n", NAMESPACE, "--hard=pods=1"], "").unwrap();
    let used = ["get", "quota", "full", "-n", NAMESPACE, "-o", "jsonpath={.status.hard.pods}"];
    kubernetes.wait_until(&used, |hard| hard == "1").unwrap();
    object(&client, create(Resource::Pods, pod("b"))).await;
    let full = refused(&client, create(Resource::Pods, pod("c"))).await;
    assert_eq!(full.class, KubeErrorClass::Denied);
    assert!(full.message.contains("exceeded quota: full, requested: pods=1, used: pods=1, limited: pods=1"), "{full}");
    a_list_comes_in_pages(&kubernetes, &client).await;
    without_a_valid_token_nothing_is_said_of_it(&kubernetes).await;
}

async fn a_list_comes_in_pages(kubernetes: &Kubernetes, client: &KubeClient) {
    let labels = json!({"app": "pages"});
    let map = |n: u32| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("m-{n}"), "labels": labels}});
    for n in 0..501 {
        object(client, create(Resource::ConfigMaps, map(n))).await;
    }
    let list = |continue_token| KubeCall::List {
        resource: Resource::ConfigMaps,
        namespace: Some(NAMESPACE.to_owned()),
        selector: ObjectSelector::Labels("app=pages".to_owned()),
        continue_token,
    };
    let first = client.execute(&list(None)).await;
    let KubeResponse::Page { objects, continue_token: Some(token), resource_version } = first else {
        panic!("{first:?}")
    };
    assert_eq!(objects.len(), 500);
    let second = client.execute(&list(Some(token.clone()))).await;
    let KubeResponse::Page { objects, continue_token: None, resource_version: same } = second else {
        panic!("{second:?}")
    };
    assert_eq!((objects.len(), same), (1, resource_version), "one list, as it was when it began");
    // What etcd has forgotten cannot be listed on.
    object(client, create(Resource::ConfigMaps, map(501))).await;
    kubernetes.compact().unwrap();
    assert_eq!(refused(client, list(Some(token))).await.class, KubeErrorClass::Expired);
}

async fn without_a_valid_token_nothing_is_said_of_it(kubernetes: &Kubernetes) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubeconfig");
    let text = std::fs::read_to_string(kubernetes.kubeconfig()).unwrap();
    std::fs::write(&path, text.replace(kubernetes.token(), "no-such-token")).unwrap();
    let client = KubeClient::connect(&CredentialSource::Kubeconfig { path, context: None }).await.unwrap();
    let error = refused(&client, get("a")).await;
    assert_eq!(error.class, KubeErrorClass::Unauthorized);
    assert!(!error.to_string().contains("no-such-token"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_watch_lives_until_its_api_server_ends_and_a_forgotten_version_is_expired() {
    let options =
        KubernetesOptions { kwok: Some(KwokOptions::default()), controller_manager: true, ..Default::default() };
    let kubernetes = Kubernetes::start(options).unwrap();
    furnish(&kubernetes);
    let client = client(&kubernetes).await;
    let date = client.date().await.expect("an API server says when it answers");
    assert!(date.ends_with(" GMT") && date.contains(", "), "{date}");
    let version = object(&client, create(Resource::Pods, pod("a"))).await.metadata().resource_version.clone();
    let mut events = watch(&client, &version);
    let uid = object(&client, get("a")).await.metadata().uid.clone();
    client.execute(&bind("a", &uid)).await;
    let is_running = |change: &WatchChange| matches!(change, WatchChange::Applied(object) if matches!(&**object, KubeObject::Pod(pod) if pod.status.phase == "Running"));
    while !is_running(&next(&mut events).await) {}
    client.execute(&delete("a", None)).await;
    while !matches!(next(&mut events).await, WatchChange::Deleted(_)) {}

    kubernetes.kill_api_server().unwrap();
    let end = next(&mut events).await;
    assert!(matches!(end, WatchChange::Failed(_) | WatchChange::Ended), "{end:?}");
    assert!(events.recv().await.is_none(), "the end is the last event");
    let gone = refused(&client, get("a")).await;
    assert_eq!((gone.class, gone.code), (KubeErrorClass::NoResponse, 0), "{gone}");
    kubernetes.compact().unwrap();
    kubernetes.restart_api_server().unwrap();
    assert_eq!(refused(&client, get("a")).await.class, KubeErrorClass::NotFound, "the same client goes on");
    assert_eq!(next(&mut watch(&client, &version)).await, WatchChange::Expired);
}
