//! The admission policies: as the controller's service account, what is not Forebay's cannot be changed, and the refusal says what and how to
//! mend it. Without the policies the same calls are taken.
//!
//! Never: a right that the roles do not grant.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use forebay_cluster_kube::client::KubeClient;
use forebay_cluster_kube::kube_error::KubeErrorClass;
use forebay_cluster_kube::{KubeCall, KubeResponse, Resource};
use serde_json::{Value, json};

use crate::installed::Installed;
use crate::rendered::example;

const LIMIT: Duration = Duration::from_secs(60);

/// What is there: pods, a Service and a ConfigMap of somebody else, and a pod of Forebay's.
const THERE: &str = "
apiVersion: v1
kind: Pod
metadata: {name: foreign, namespace: jobs}
spec: {containers: [{name: main, image: none}]}
---
apiVersion: v1
kind: Pod
metadata: {name: waits, namespace: jobs}
spec: {schedulerName: somebody, containers: [{name: main, image: none}]}
---
apiVersion: v1
kind: Service
metadata: {name: foreign, namespace: jobs}
spec: {clusterIP: None, selector: {a: b}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: foreign, namespace: jobs}
---
apiVersion: v1
kind: Pod
metadata: {name: ours, namespace: jobs, labels: {forebay.dev/journal: 0b4bd4d4}}
spec: {containers: [{name: main, image: none}]}
";

fn merge(resource: Resource, name: &str, body: Value) -> KubeCall {
    let namespace = (resource != Resource::Nodes).then(|| "jobs".to_owned());
    KubeCall::Merge { resource, namespace, name: name.to_owned(), body: Box::new(body) }
}

fn delete(resource: Resource, name: &str) -> KubeCall {
    let (namespace, name) = ("jobs".to_owned(), name.to_owned());
    KubeCall::Delete { resource, namespace, name, uid: None, grace_seconds: None }
}

fn create(resource: Resource, body: Value) -> KubeCall {
    KubeCall::Create { resource, namespace: "jobs".to_owned(), body: Box::new(body) }
}

fn bind(pod: &str, uid: &str) -> KubeCall {
    let annotations = BTreeMap::from([("forebay.dev/boot-id".to_owned(), "b-1".to_owned())]);
    let (namespace, node) = ("jobs".to_owned(), "node-1".to_owned());
    KubeCall::Bind { namespace, pod: pod.to_owned(), uid: uid.to_owned(), node, annotations }
}

/// Calls that the roles allow, and what the refusal has to say.
fn table(uid: &str) -> Vec<(KubeCall, &'static str)> {
    let pod = |labels: Value| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "new", "labels": labels},
               "spec": {"containers": [{"name": "main", "image": "none"}]}})
    };
    let taint = |key: &str| json!({"spec": {"taints": [{"key": "forebay.dev/node", "effect": "NoSchedule"}, {"key": key, "effect": "NoSchedule"}]}});
    let label = "has no label forebay.dev/journal, so Forebay did not make it";
    vec![
        (
            merge(Resource::Nodes, "other", json!({"spec": {"unschedulable": true}})),
            "node other has no label forebay.dev/node, so Forebay may not change it",
        ),
        (
            merge(Resource::Nodes, "node-1", taint("example.com/mine")),
            "taints of node node-1: Forebay may change forebay.dev/node and",
        ),
        (
            merge(Resource::Nodes, "node-1", json!({"metadata": {"labels": {"a": "b"}}})),
            "node node-1: Forebay may cordon it",
        ),
        (
            merge(Resource::Nodes, "node-1", json!({"metadata": {"annotations": {"a": "b"}}})),
            "node node-1: Forebay may cordon it",
        ),
        (
            merge(Resource::Nodes, "node-1", json!({"metadata": {"finalizers": ["a.example/b"]}})),
            "node node-1: Forebay may cordon it",
        ),
        (merge(Resource::Pods, "foreign", json!({"metadata": {"annotations": {"a": "b"}}})), label),
        (merge(Resource::Pods, "foreign", json!({"metadata": {"labels": {"forebay.dev/journal": "x"}}})), label),
        (
            merge(Resource::Pods, "ours", json!({"metadata": {"labels": {"forebay.dev/journal": "other"}}})),
            "says who decides about it",
        ),
        (merge(Resource::Services, "foreign", json!({"spec": {"selector": {"c": "d"}}})), label),
        (create(Resource::Pods, pod(json!({}))), "pods jobs/new would have no label forebay.dev/journal"),
        (
            create(
                Resource::Services,
                json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "new"}, "spec": {"clusterIP": "None"}}),
            ),
            "services jobs/new would have no label",
        ),
        (
            create(Resource::ConfigMaps, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}})),
            "configmaps jobs/new would have no label",
        ),
        (bind("waits", uid), "pod jobs/waits is no worker of a gang by its name, so Forebay may not bind it"),
        (delete(Resource::Pods, "foreign"), label),
        (delete(Resource::Services, "foreign"), label),
        (delete(Resource::ConfigMaps, "foreign"), label),
    ]
}

async fn refused(client: &KubeClient, call: &KubeCall) -> Option<String> {
    match client.execute(call).await {
        KubeResponse::Refused(error) if error.class == KubeErrorClass::Denied => Some(error.to_string()),
        KubeResponse::Refused(error) => panic!("{call:?}: {error}"),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn real_api_server_keeps_the_controller_to_what_is_its_own_and_does_not_without_the_policies() {
    let installed = Installed::new(1, &["jobs"], &example("small.yaml"));
    let kubernetes = &installed.kubernetes;
    kubernetes.apply(THERE).unwrap();
    installed.confined();
    let client = installed.client().await;
    let uid = kubernetes.kubectl(&["get", "pod", "waits", "-n", "jobs", "-o", "jsonpath={.metadata.uid}"], "").unwrap();
    let calls = table(&uid);
    for (call, part) in &calls {
        let words = refused(&client, call).await.unwrap_or_else(|| panic!("{call:?} was taken"));
        assert!(words.contains(part), "{part}: {words}");
        // The remedy comes last.
        assert!(words.rsplit([';', ':']).next().is_some_and(|remedy| remedy.trim().len() > 10), "{words}");
    }
    // The API server itself finds no fault in the expressions.
    for policy in ["nodes", "objects", "bindings"] {
        let name = format!("forebay-system-forebay-{policy}");
        let checked = ["get", "validatingadmissionpolicy", &name, "-o", "jsonpath={.status.observedGeneration}"];
        kubernetes.wait_until(&checked, |generation| generation == "1").unwrap();
        let warnings =
            ["get", "validatingadmissionpolicy", &name, "-o", "jsonpath={.status.typeChecking.expressionWarnings}"];
        assert_eq!(kubernetes.kubectl(&warnings, "").unwrap(), "", "{policy}");
    }
    // Its own nodes it may partition.
    let partition =
        merge(Resource::Nodes, "node-1", json!({"metadata": {"labels": {"nvidia.com/mig.config": "all-1g.10gb"}}}));
    assert_eq!(refused(&client, &partition).await, None);
    // Somebody else may do all of it.
    let annotate = ["annotate", "pod/foreign", "-n", "jobs", "by=somebody"];
    kubernetes.kubectl(&annotate, "").unwrap();

    let bindings: Vec<String> = ["nodes", "objects", "bindings"].map(|p| format!("forebay-system-forebay-{p}")).into();
    let bindings: Vec<&str> =
        ["delete", "validatingadmissionpolicybinding"].into_iter().chain(bindings.iter().map(String::as_str)).collect();
    kubernetes.kubectl(&bindings, "").unwrap();
    let start = Instant::now();
    for (call, part) in &calls {
        // The API server forgets a policy a moment after it is deleted.
        while let Some(words) = refused(&client, call).await {
            assert!(start.elapsed() < LIMIT, "{part}: {words}");
            tokio::task::yield_now().await;
        }
    }
}
