//! Nodes that nobody bought, in the cluster of the people who have them: full at the start, freed by a pod of theirs, taken, and taken by another.
//!
//! ```text
//! home is full of a foreign pod   the job waits, and its reason names the pod; its tier buys nothing
//! the foreign pod goes            it runs there, nothing is bought
//! another takes the rest          the next gang waits where nothing may be bought, and gets a bought node where it may
//! ```
//!
//! An independent look at all pods sums what is requested on each node: never more than it has. The owned node is never changed.

use super::stand::{NAMESPACE, Stand, StandOptions};
use forebay_integration::{Server, until};
use forebay_loopback_ec2::InstanceState;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Many times what a step takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

const POLICY: &str = "
apiVersion: forebay/v1
kind: Policy
metadata: {name: owned}
limits: {nodes: 1, spend: 1000 USD/h}
tiers:
  normal: {priority: 500, buys: spot-then-on-demand}
  idle: {priority: 0, buys: nothing}
queues:
  research: {submitters: [local]}
  research/buys: {tier: normal, pools: [a100, home]}
  research/idle: {tier: idle, pools: [home]}
pools:
  a100: {instanceTypes: [p4d.24xlarge], drain: {after: 1s}}
  home: {owned: {nodes: {example.com/team: [lab]}, price: 1.5 USD/h}}
";

/// A node of eight GPUs as its owners registered it.
const HOME: &str = "
apiVersion: v1
kind: Node
metadata: {name: home-1, labels: {example.com/team: lab, nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB, nvidia.com/gpu.count: '8'}}
status: {allocatable: {cpu: '64', memory: 1Ti, pods: '110', nvidia.com/gpu: '8'}, capacity: {cpu: '64', memory: 1Ti, pods: '110', nvidia.com/gpu: '8'}}
";

fn notebook(name: &str, gpus: u64) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: {NAMESPACE}}}, spec: {{nodeName: home-1, terminationGracePeriodSeconds: 0, \
         containers: [{{name: a, image: b, resources: {{limits: {{nvidia.com/gpu: '{gpus}'}}}}}}]}}}}\n"
    )
}

fn job(subject: &str, queue: &str, gpus: u64, seconds: u64) -> Value {
    json!({"type": "job.submitted", "source": "//test", "id": subject, "subject": subject, "data": {
        "queue": format!("research/{queue}"), "run": {"template": "train", "image": "reg/r:1", "env": {"RUN_FOR": format!("{seconds}s")}},
        "gang": {"workers": 1, "each": {"gpus": gpus}}}})
}

/// GPUs that are requested on each node by pods that have not ended, and never more than eight.
fn look(stand: &Stand) -> BTreeMap<String, u64> {
    let listed: Value =
        serde_json::from_str(&stand.kubectl(&["get", "pods", "-A", "-o", "json"])).expect("a list of pods");
    let mut held = BTreeMap::new();
    for pod in listed["items"].as_array().expect("items") {
        let over = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        let Some(node) = pod["spec"]["nodeName"].as_str().filter(|_| !over) else { continue };
        for container in pod["spec"]["containers"].as_array().expect("containers") {
            let gpus = container["resources"]["requests"]["nvidia.com/gpu"].as_str().unwrap_or("0");
            *held.entry(node.to_owned()).or_default() += gpus.parse::<u64>().expect("a number");
        }
    }
    assert!(held.values().all(|gpus| *gpus <= 8), "overcommitted: {held:?}");
    held
}

fn status(server: &Server, subject: &str) -> Value {
    server.get(&format!("/v1/jobs/{subject}")).1
}

/// Waits, and looks at all pods all the while.
fn wait(stand: &Stand, server: &Server, what: &str, mut good: impl FnMut() -> bool) {
    until(what, LIMIT, || {
        let held = look(stand);
        if good() {
            return Ok(());
        }
        let (_, nodes) = server.get("/v1/nodes");
        let (_, jobs) = server.get("/v1/jobs");
        let log: Vec<String> = server.log().lines().rev().take(10).map(str::to_owned).collect();
        Err(format!("{held:?}; {nodes}; {jobs}; {}; {}", stand.trouble(), log.join("\n")))
    });
}

#[test]
fn a_node_of_others_is_used_when_they_leave_it_and_never_beyond_what_they_leave() {
    let stand = Stand::new(&StandOptions { policy: POLICY, config: "" });
    stand.kubernetes.apply(HOME).expect("a node");
    stand.kubernetes.apply(&notebook("notebook", 8)).expect("a pod of others");
    let server = stand.start();
    let instances = || stand.ec2.region().instances().filter(|one| one.state != InstanceState::Terminated).count();
    // Full at the start.
    assert_eq!(server.post(&job("first", "idle", 4, 3)).0, 202);
    wait(&stand, &server, "the job waits for the notebook", || {
        let reason = &server.get("/v1/jobs/first/why").1["reason"];
        reason["code"] == "OwnedNodesFull"
            && reason["figures"]["foreign_gpus"] == 8
            && reason["message"].as_str().is_some_and(|words| words.contains("research/notebook"))
    });
    // Freed by a foreign pod.
    stand.kubectl(&["delete", "pod", "notebook", "-n", NAMESPACE, "--wait=false"]);
    wait(&stand, &server, "the job runs where the notebook was", || status(&server, "first")["attempt"] == 1);
    assert_eq!(instances(), 0, "nothing is bought for what is there");
    // Taken by another pod of theirs, but for one GPU.
    wait(&stand, &server, "the job is over", || status(&server, "first")["phase"] == "completed");
    stand.kubernetes.apply(&notebook("another", 7)).expect("a pod of others");
    wait(&stand, &server, "the other pod is seen", || {
        let (_, nodes) = server.get("/v1/nodes");
        nodes["nodes"][0]["owned"]["foreignGpus"] == 7 && nodes["nodes"][0]["gpusFree"] == 1.0
    });
    assert_eq!(server.post(&job("second", "idle", 2, 3)).0, 202);
    assert_eq!(server.post(&job("third", "buys", 2, 3)).0, 202);
    assert_eq!(server.post(&job("small", "idle", 1, 3)).0, 202);
    wait(&stand, &server, "who may buy has a bought node", || {
        status(&server, "third")["phase"] == "completed" && status(&server, "small")["phase"] == "completed"
    });
    assert_eq!(status(&server, "second")["attempt"], 0, "nothing is bought for it, and there is no room");
    stand.kubectl(&["delete", "pod", "another", "-n", NAMESPACE, "--wait=false"]);
    wait(&stand, &server, "all are over", || {
        ["first", "second", "third", "small"].iter().all(|subject| status(&server, subject)["phase"] == "completed")
    });
    stand.all_over(&server, 4, LIMIT);
    let (_, summary) = server.get("/v1/summary");
    assert_eq!((&summary["ownedNodes"], &summary["spotNodes"]), (&json!(1), &json!(0)));
    let home: Value = serde_json::from_str(&stand.kubectl(&["get", "node", "home-1", "-o", "json"])).expect("JSON");
    let text = [&home["metadata"], &home["spec"]].map(Value::to_string).join(" ");
    assert!(!text.contains("forebay.dev"), "{text}");
    assert!(home["spec"]["unschedulable"].is_null() && home["metadata"]["deletionTimestamp"].is_null());
    // Cordoned by its owners it takes nothing more.
    stand.kubectl(&["cordon", "home-1"]);
    wait(&stand, &server, "the cordon is seen", || server.get("/v1/nodes").1["nodes"][0]["owned"]["open"] == false);
}
