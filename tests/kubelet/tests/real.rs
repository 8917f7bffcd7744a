//! The stand-in against a real API server: pods run, end, are deleted with and without mercy, and their logs are read by kubectl.
//!
//! Never: kwok, a scheduler; each pod names its node.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use forebay_kubelet::{Kubelet, KubeletOptions, KubeletSet};
use forebay_parts::{Kubernetes, KubernetesOptions};
use serde_json::Value;

/// A pod on the node; `script` is its container's.
fn pod(name: &str, metadata: &str, spec: &str, script: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, {metadata}}}, spec: {{nodeName: n-1, restartPolicy: Never, {spec} \
         containers: [{{name: worker, image: none, command: [sh, -c], args: [{script:?}], env: [{{name: POD, valueFrom: {{fieldRef: \
         {{fieldPath: metadata.name}}}}}}]}}]}}}}"
    )
}

fn get(kubernetes: &Kubernetes, pod: &str) -> Value {
    serde_json::from_str(&kubernetes.kubectl(&["get", "pod", pod, "-o", "json"], "").unwrap()).unwrap()
}

fn wait_for(kubernetes: &Kubernetes, pod: &str, path: &str, wanted: &str) {
    let path = format!("jsonpath={path}");
    kubernetes.wait_until(&["get", "pod", pod, "-o", &path], |found| found == wanted).unwrap();
}

fn code(pod: &Value) -> &Value {
    &pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"]
}

const FINALIZER: &str = "finalizers: [forebay.dev/outcome]";

#[test]
fn pods_are_processes_that_end_by_themselves_by_sigterm_and_by_sigkill() {
    let kubernetes = Kubernetes::start(KubernetesOptions::default()).unwrap();
    let kubelet = Kubelet::start(KubeletOptions::new(kubernetes.kubeconfig(), "n-1")).unwrap();
    let ready = [
        "get",
        "node",
        "n-1",
        "-o",
        "jsonpath={.status.conditions[?(@.type==\"Ready\")].status} {.status.allocatable.nvidia\\.com/gpu}",
    ];
    assert_eq!(kubernetes.kubectl(&ready, "").unwrap(), "True 8");

    // An init container that waits for its file of the downward API, then a worker.
    let gate = "volumes: [{name: v, downwardAPI: {items: [{path: barrier, fieldRef: {fieldPath: \"metadata.annotations['forebay.dev/barrier']\"}}]}}], \
                initContainers: [{name: gate, image: none, command: [sh, -c, 'until grep -q open /etc/gate/barrier; do sleep 0.05; done; echo passed'], \
                volumeMounts: [{name: v, mountPath: /etc/gate}]}],";
    kubernetes.apply(&pod("gated", "", gate, "echo hi $POD; echo $(POD) >&2; sleep 0.2")).unwrap();
    wait_for(&kubernetes, "gated", "{.status.initContainerStatuses[0].started}", "true");
    let waits = get(&kubernetes, "gated");
    assert_eq!(
        (&waits["status"]["phase"], waits["status"]["containerStatuses"][0]["state"]["waiting"]["reason"].as_str()),
        (&Value::from("Pending"), Some("PodInitializing"))
    );
    kubernetes.kubectl(&["annotate", "pod/gated", "forebay.dev/barrier=open"], "").unwrap();
    wait_for(&kubernetes, "gated", "{.status.phase}", "Succeeded");
    assert_eq!(code(&get(&kubernetes, "gated")), 0);
    assert_eq!(kubernetes.kubectl(&["logs", "gated", "-c", "worker"], "").unwrap(), "hi gated\ngated\n");
    assert_eq!(kubernetes.kubectl(&["logs", "gated", "-c", "worker", "--tail=1"], "").unwrap(), "gated\n");
    assert_eq!(kubernetes.kubectl(&["logs", "gated", "-c", "gate"], "").unwrap(), "passed\n");

    // A code of its own, and one that cannot be started.
    kubernetes.apply(&pod("fails", "", "", "exit 7")).unwrap();
    wait_for(&kubernetes, "fails", "{.status.phase}", "Failed");
    assert_eq!(code(&get(&kubernetes, "fails")), 7);
    let missing = pod("missing", "", "", "true").replace("command: [sh, -c]", "command: [no-such-program]");
    kubernetes.apply(&missing).unwrap();
    wait_for(&kubernetes, "missing", "{.status.containerStatuses[0].state.terminated.reason}", "StartError");

    // SIGTERM ends one, and another one ignores it. Both stay until their finalizer is gone.
    kubernetes.apply(&pod("polite", FINALIZER, "", "echo up; sleep 600")).unwrap();
    kubernetes.apply(&pod("stubborn", FINALIZER, "", "trap '' TERM; echo up; while true; do sleep 0.1; done")).unwrap();
    for name in ["polite", "stubborn"] {
        kubernetes.wait_until(&["logs", name], |log| log == "up\n").unwrap();
    }
    kubernetes.kubectl(&["delete", "pod", "polite", "stubborn", "--wait=false", "--grace-period=1"], "").unwrap();
    for (name, ends) in [("polite", 143), ("stubborn", 137)] {
        wait_for(&kubernetes, name, "{.status.phase}", "Failed");
        let pod = get(&kubernetes, name);
        assert_eq!(code(&pod), ends, "{name}");
        // The final deletion has come: nothing but the finalizer holds it.
        wait_for(&kubernetes, name, "{.metadata.deletionGracePeriodSeconds}", "0");
        kubernetes
            .kubectl(&["patch", "pod", name, "--type=merge", "-p", "{\"metadata\":{\"finalizers\":null}}"], "")
            .unwrap();
        kubernetes.wait_until(&["get", "pod", name], |text| text.contains("not found")).unwrap();
    }

    // Without a finalizer it is gone once it has ended.
    kubernetes.apply(&pod("plain", "", "", "sleep 600")).unwrap();
    wait_for(&kubernetes, "plain", "{.status.phase}", "Running");
    kubernetes.kubectl(&["delete", "pod", "plain", "--grace-period=30", "--timeout=60s"], "").unwrap();

    // What waits for its Secret starts when that comes; what would be restarted is refused.
    let secret = "volumes: [{name: v, secret: {secretName: late}}],";
    kubernetes
        .apply(
            &pod("late", "", secret, "cat /run/late/key")
                .replace("env: [", "volumeMounts: [{name: v, mountPath: /run/late}], env: ["),
        )
        .unwrap();
    kubernetes
        .wait_until(
            &["get", "pod", "late", "-o", "jsonpath={.status.containerStatuses[0].state.waiting.message}"],
            |text| text.contains("secret \"late\" not found"),
        )
        .unwrap();
    kubernetes.kubectl(&["create", "secret", "generic", "late", "--from-literal=key=hush"], "").unwrap();
    wait_for(&kubernetes, "late", "{.status.phase}", "Succeeded");
    assert_eq!(kubernetes.kubectl(&["logs", "late"], "").unwrap(), "hush");
    kubernetes.apply(&pod("again", "", "", "true").replace("restartPolicy: Never", "restartPolicy: Always")).unwrap();
    wait_for(&kubernetes, "again", "{.status.reason}", "UnexpectedAdmissionError");
    drop(kubelet);
}

/// Whether a process is there and no zombie.
fn lives(id: &str) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(id).join("stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.trim().is_empty() && !rest.trim().starts_with('Z'))
}

#[test]
fn its_processes_die_with_it_and_a_new_one_says_that_they_did() {
    let kubernetes = Kubernetes::start(KubernetesOptions::default()).unwrap();
    let start = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay-kubelet"));
        command.arg(kubernetes.kubeconfig()).arg("n-1").stdin(Stdio::piped()).stdout(Stdio::null());
        command.spawn().unwrap()
    };
    let mut first = start();
    let boot = |other: &str| {
        kubernetes
            .wait_until(&["get", "node", "n-1", "-o", "jsonpath={.status.nodeInfo.bootID}"], |id| {
                id.len() == 36 && id != other
            })
            .unwrap()
    };
    let before = boot("");
    kubernetes.apply(&pod("runs", "", "", "echo $$$$; sleep 600 & wait")).unwrap();
    let log = kubernetes.wait_until(&["logs", "runs"], |log| log.trim().parse::<u32>().is_ok()).unwrap();
    assert!(lives(log.trim()));
    // SIGKILL: no destructor runs.
    first.kill().unwrap();
    first.wait().unwrap();
    let begun = Instant::now();
    while lives(log.trim()) {
        assert!(begun.elapsed() < Duration::from_secs(20), "{log} lives");
        std::thread::park_timeout(Duration::from_millis(20));
    }
    let mut second = start();
    boot(&before);
    wait_for(&kubernetes, "runs", "{.status.phase}", "Failed");
    let pod = get(&kubernetes, "runs");
    assert_eq!(
        (code(&pod), &pod["status"]["containerStatuses"][0]["state"]["terminated"]["reason"]),
        (&Value::from(137), &Value::from("ContainerStatusUnknown"))
    );
    second.kill().unwrap();
    second.wait().unwrap();
}

#[test]
fn nodes_that_come_and_go_have_one_each() {
    let kubernetes = Kubernetes::start(KubernetesOptions::default()).unwrap();
    kubernetes.apply("{apiVersion: v1, kind: Node, metadata: {name: other}}").unwrap();
    let set = KubeletSet::follow("ours", KubeletOptions::new(kubernetes.kubeconfig(), ""));
    kubernetes
        .apply("{apiVersion: v1, kind: Node, metadata: {name: n-1, labels: {ours: ''}}, status: {allocatable: {nvidia.com/gpu: '4'}}}")
        .unwrap();
    kubernetes.kubectl(&["wait", "node/n-1", "--for=condition=Ready", "--timeout=60s"], "").unwrap();
    kubernetes.apply(&pod("runs", "", "", "echo $$$$; sleep 600 & wait")).unwrap();
    let log = kubernetes.wait_until(&["logs", "runs"], |log| log.trim().parse::<u32>().is_ok()).unwrap();
    assert!(lives(log.trim()), "{:?}", set.trouble());
    let gpus = ["get", "node", "n-1", "-o", r"jsonpath={.status.allocatable.nvidia\.com/gpu}"];
    assert_eq!(kubernetes.kubectl(&gpus, "").unwrap(), "4");
    kubernetes.kubectl(&["delete", "node", "n-1"], "").unwrap();
    let begun = Instant::now();
    while lives(log.trim()) {
        assert!(begun.elapsed() < Duration::from_secs(20), "{log} lives");
        std::thread::park_timeout(Duration::from_millis(20));
    }
    let other = ["get", "node", "other", "-o", "jsonpath={.status.conditions}"];
    assert_eq!(kubernetes.kubectl(&other, "").unwrap(), "");
    drop(set);
}
