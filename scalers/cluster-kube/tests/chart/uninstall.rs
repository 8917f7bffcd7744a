//! What `helm uninstall` leaves: a Job of its own account removes Forebay's finalizers, and needs the rights of its role and no others.
//!
//! Never: the program in the Job; what it calls is called here.

use std::collections::BTreeSet;

use forebay_cluster_kube::client::FinalizerMode;
use serde_json::{Value, json};

use crate::installed::Installed;
use crate::rendered::{NAMESPACE, example, is_hook, objects, of_kind, text};

/// Two pods of two journals with our finalizer, one of them with another's beside it, and one of somebody else with a finalizer of its own.
const PODS: &str = "
apiVersion: v1
kind: Pod
metadata: {name: ours, namespace: jobs, labels: {forebay.dev/journal: j-1}, finalizers: [forebay.dev/outcome]}
spec: {containers: [{name: main, image: none}]}
---
apiVersion: v1
kind: Pod
metadata: {name: shared, namespace: jobs, labels: {forebay.dev/journal: j-2}, finalizers: [example.com/keeps, forebay.dev/outcome]}
spec: {containers: [{name: main, image: none}]}
---
apiVersion: v1
kind: Pod
metadata: {name: foreign, namespace: jobs, finalizers: [example.com/keeps]}
spec: {containers: [{name: main, image: none}]}
";

#[tokio::test(flavor = "multi_thread")]
async fn real_finalizers_go_by_an_account_of_their_own_and_those_of_others_stay() {
    let rendered = objects(&text(&example("small.yaml")));
    let hooks: Vec<&Value> = rendered.iter().filter(|object| is_hook(object)).collect();
    let job = hooks.iter().find(|hook| hook["kind"] == "Job").expect("a Job");
    let pod = &job["spec"]["template"]["spec"];
    let expected = json!(["uninstall", "--namespace=jobs", "--yes", "--color=never"]);
    assert_eq!((&pod["containers"][0]["args"], &pod["serviceAccountName"]), (&expected, &json!("forebay-uninstall")));
    assert!(hooks.iter().all(|hook| hook["metadata"]["annotations"]["helm.sh/hook"] == "post-delete"));
    let off = text(&crate::rendered::with(&example("small.yaml"), &["uninstall"], json!({"removeFinalizers": false})));
    assert!(!objects(&off).iter().any(is_hook));

    // The controller's own rights are gone by then.
    let installed = Installed::without_rights(1, &["jobs"]);
    let rights: Vec<&&Value> = hooks.iter().filter(|hook| hook["kind"] != "Job").collect();
    installed.kubernetes.apply(&json!({"apiVersion": "v1", "kind": "List", "items": rights}).to_string()).unwrap();
    installed.kubernetes.apply(PODS).unwrap();
    let user = format!("system:serviceaccount:{NAMESPACE}:forebay-uninstall");
    let ask = ["auth", "can-i", "patch", "pods", "--as", &user, "-n", "jobs"];
    installed.kubernetes.wait_until(&ask, |text| text.contains("yes")).unwrap();
    let client = installed.client_of("forebay-uninstall").await;
    let pods = |journal, mode| client.finalized_pods("jobs", journal, mode);
    assert_eq!(pods(None, FinalizerMode::Find).await.unwrap(), ["ours", "shared"]);
    let finalizers = |name: &str| {
        let path = "jsonpath={.metadata.finalizers}";
        installed.kubernetes.kubectl(&["get", "pod", name, "-n", "jobs", "-o", path], "").unwrap()
    };
    assert!(finalizers("ours").contains("forebay.dev/outcome"), "nothing is changed by looking");
    assert_eq!(pods(Some("j-2"), FinalizerMode::Remove).await.unwrap(), ["shared"]);
    assert_eq!(
        (finalizers("shared").as_str(), finalizers("ours").as_str()),
        (r#"["example.com/keeps"]"#, r#"["forebay.dev/outcome"]"#)
    );
    assert_eq!(pods(None, FinalizerMode::Remove).await.unwrap(), ["ours"]);
    assert_eq!((finalizers("ours").as_str(), finalizers("foreign").as_str()), ("", r#"["example.com/keeps"]"#));
    assert!(pods(None, FinalizerMode::Find).await.unwrap().is_empty());

    let audited = installed.kubernetes.audited().unwrap();
    let events = audited.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let own: Vec<Value> = events
        .filter(|event| event["user"]["username"] == user.as_str() && event["impersonatedUser"].is_null())
        .collect();
    assert!(own.iter().all(|event| event["responseStatus"]["code"] != 403), "{own:?}");
    let used: BTreeSet<&str> = own.iter().filter_map(|event| event["verb"].as_str()).collect();
    let hook_role = hooks.iter().find(|hook| hook["kind"] == "Role").expect("a Role");
    let granted: BTreeSet<&str> =
        hook_role["rules"][0]["verbs"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(used, granted);
    assert!(of_kind(&rendered, "ClusterRole").iter().all(|role| !is_hook(role)), "nothing of the whole cluster");
}
