//! A real Kubernetes control plane, started, asked, its API server killed and restarted, and ended.
//!
//! Never: a stand-in for the API server; kwok stands in for kubelets, and says so in what it reports of a node.

mod starter;

use std::net::{Ipv4Addr, TcpListener};

use forebay_parts::{Kubernetes, KubernetesOptions, KwokOptions, PartError};

const NODE: &str = "
apiVersion: v1
kind: Node
metadata: {name: gpu-1, labels: {kwok: 'true'}}
status: {allocatable: {cpu: '8', memory: 64Gi, pods: '110', nvidia.com/gpu: '8'}, capacity: {cpu: '8', memory: 64Gi, pods: '110', nvidia.com/gpu: '8'}}
";

/// A pod on that node; `more` goes into its spec.
fn pod(name: &str, annotations: &str, more: &str) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}, annotations: {{{annotations}}}}}
spec:
  nodeName: gpu-1
  restartPolicy: Never
  {more}
  containers: [{{name: main, image: none, resources: {{limits: {{nvidia.com/gpu: 1}}}}}}]
"
    )
}

/// Answers each change of a pod's status with 500: nobody listens where it is to be asked.
const BROKEN_WEBHOOK: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: broken}
webhooks:
  - name: broken.kwok.test
    admissionReviewVersions: [v1]
    sideEffects: None
    clientConfig: {url: 'https://127.0.0.1:1/'}
    rules: [{apiGroups: [''], apiVersions: [v1], operations: [UPDATE], resources: [pods/status]}]
";

const BARRIER: &str = "initContainers: [{name: forebay-gate, image: none}]";

fn phase<'a>(kubernetes: &Kubernetes, pod: &'a str, wanted: &'a str) {
    let arguments = ["get", "pod", pod, "-o", "jsonpath={.status.phase}"];
    kubernetes.wait_until(&arguments, |phase| phase == wanted).unwrap();
}

#[test]
fn real_kubernetes_runs_pods_on_kwoks_nodes_and_keeps_them_over_a_restart_of_its_api_server() {
    let kwok = Some(KwokOptions::default());
    let mut kubernetes = Kubernetes::start(KubernetesOptions { kwok, ..KubernetesOptions::default() }).unwrap();
    let url = kubernetes.url().to_owned();
    assert!(kubernetes.kubectl(&["version"], "").unwrap().contains("Server Version: v1.34.4"));
    assert!(!format!("{kubernetes:?}").contains(kubernetes.token()));

    kubernetes.apply(NODE).unwrap();
    kubernetes.kubectl(&["wait", "node/gpu-1", "--for=condition=Ready", "--timeout=60s"], "").unwrap();
    let allocatable = ["get", "node", "gpu-1", "-o", r"jsonpath={.status.allocatable.nvidia\.com/gpu}"];
    assert_eq!(kubernetes.kubectl(&allocatable, "").unwrap(), "8");

    // A pod that runs and ends, one that fails, and one that its barrier holds.
    kubernetes.apply(&pod("plain", "", "")).unwrap();
    kubernetes.apply(&pod("gated", "", BARRIER)).unwrap();
    phase(&kubernetes, "plain", "Running");
    kubernetes.kubectl(&["annotate", "pod/plain", "test.forebay.dev/exit=3"], "").unwrap();
    phase(&kubernetes, "plain", "Failed");
    let code = ["get", "pod", "plain", "-o", "jsonpath={.status.containerStatuses[0].state.terminated.exitCode}"];
    assert_eq!(kubernetes.kubectl(&code, "").unwrap(), "3");
    phase(&kubernetes, "gated", "Pending");

    // What kwok gave up when it got a plain 500 is played all the same.
    kubernetes.apply(BROKEN_WEBHOOK).unwrap();
    let patch = ["patch", "pod/gated", "--subresource=status", "-p", r#"{"status":{"message":"asked"}}"#];
    kubernetes.wait_until(&patch, |text| text.contains("failed calling webhook")).unwrap();
    kubernetes.apply(&pod("refused", "", "")).unwrap();
    let given_up = || {
        let log = std::fs::read_to_string(kubernetes.folder().join("kwok.log")).unwrap();
        log.lines().any(|line| line.contains("failed to apply stage") && line.contains("default/refused"))
    };
    kubernetes.wait_until(&["get", "pods"], |_| given_up()).unwrap();
    kubernetes.kubectl(&["delete", "validatingwebhookconfiguration/broken"], "").unwrap();
    phase(&kubernetes, "refused", "Running");
    kubernetes.kubectl(&["delete", "pod/refused", "--force"], "").unwrap();

    kubernetes.kill_api_server().unwrap();
    assert!(!kubernetes.is_running());
    assert!(matches!(kubernetes.kubectl(&["version"], ""), Err(PartError::NotRunning { .. })), "nobody waits for it");
    kubernetes.compact().unwrap();
    kubernetes.restart_api_server().unwrap();
    assert!(kubernetes.is_running());
    assert_eq!(kubernetes.url(), url);
    phase(&kubernetes, "gated", "Pending");
    kubernetes.kubectl(&["annotate", "pod/gated", "forebay.dev/barrier=open"], "").unwrap();
    phase(&kubernetes, "gated", "Running");

    // A finalizer keeps a pod that was deleted, and its containers have ended all the same.
    let patch = r#"{"metadata":{"finalizers":["forebay.dev/test"]}}"#;
    kubernetes.kubectl(&["patch", "pod/gated", "--type=merge", "-p", patch], "").unwrap();
    kubernetes.kubectl(&["delete", "pod/gated", "--wait=false"], "").unwrap();
    phase(&kubernetes, "gated", "Failed");
    kubernetes
        .kubectl(&["patch", "pod/gated", "--type=merge", "-p", r#"{"metadata":{"finalizers":null}}"#], "")
        .unwrap();
    let pods = ["get", "pods", "-o", "name"];
    kubernetes.wait_until(&pods, |names| names.trim() == "pod/plain").unwrap();

    let folder = kubernetes.folder().to_owned();
    kubernetes.stop().unwrap();
    assert!(!kubernetes.is_running());
    drop(kubernetes);
    assert!(!folder.exists(), "nothing is left behind");
}

#[test]
fn real_kubernetes_with_all_of_its_parts_binds_pods_and_enforces_quotas() {
    let kubernetes = Kubernetes::start(KubernetesOptions {
        controller_manager: true,
        scheduler: true,
        kwok: Some(KwokOptions { node_selector: Some("kwok=true".to_owned()), stages: None }),
        jobset: true,
        ..KubernetesOptions::default()
    })
    .unwrap();
    assert!(kubernetes.kubectl(&["explain", "jobset.spec"], "").unwrap().contains("replicatedJobs"));
    kubernetes.apply(NODE).unwrap();
    // The service account and the root certificate of a namespace are the controller manager's work.
    kubernetes.kubectl(&["create", "namespace", "team-a"], "").unwrap();
    kubernetes
        .kubectl(&["wait", "serviceaccount/default", "-n", "team-a", "--for=create", "--timeout=60s"], "")
        .unwrap();
    let unbound = |name: &str| pod(name, "", "").replace("  nodeName: gpu-1\n", "");
    kubernetes.kubectl(&["apply", "-n", "team-a", "-f", "-"], &unbound("one")).unwrap();
    let node = ["get", "pod", "one", "-n", "team-a", "-o", "jsonpath={.spec.nodeName}"];
    kubernetes.wait_until(&node, |node| node == "gpu-1").unwrap();

    let quota = ["create", "quota", "full", "-n", "team-a", "--hard=pods=1"];
    kubernetes.kubectl(&quota, "").unwrap();
    let used = ["get", "quota", "full", "-n", "team-a", "-o", "jsonpath={.status.used.pods}"];
    kubernetes.wait_until(&used, |used| used == "1").unwrap();
    let error = kubernetes.kubectl(&["apply", "-n", "team-a", "-f", "-"], &unbound("two")).unwrap_err().to_string();
    assert!(error.contains("exceeded quota: full, requested: pods=1, used: pods=1, limited: pods=1"), "{error}");
}

#[test]
fn real_kubernetes_dies_with_its_starter() {
    starter::dies_with_it("kube");
}

#[test]
fn a_port_that_is_taken_is_said_before_anything_starts() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let options = KubernetesOptions { port: Some(port), ..KubernetesOptions::default() };
    let error = Kubernetes::start(options).unwrap_err();
    assert!(matches!(error, PartError::PortTaken { port: named } if named == port), "{error}");
}

#[test]
fn a_flag_that_the_api_server_refuses_is_in_the_error() {
    let api_server_flags = vec!["--no-such-flag".to_owned()];
    let options = KubernetesOptions { api_server_flags, ..KubernetesOptions::default() };
    let error = Kubernetes::start(options).unwrap_err().to_string();
    assert!(error.contains("unknown flag: --no-such-flag"), "{error}");
}
