//! A suspended Job and a suspended JobSet of two replicated jobs: each is adopted, runs on nodes that were bought for it, is suspended for a job of a
//! higher tier, runs again, and completes. The controllers of both, and kube-scheduler, are the real ones.

use super::stand::{LIMIT, Stand, StandOptions};
use forebay_integration::{Server, until};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const TEAM: &str = "team";

const POLICY: &str = "
apiVersion: forebay/v1
kind: Policy
metadata: {name: adopt}
limits: {nodes: 2, spend: 1000 USD/h}
tiers:
  urgent: {priority: 1000, buys: on-demand}
  batch: {priority: 0, buys: on-demand, stoppableBy: [urgent]}
queues:
  research: {tier: urgent, pools: [a10g], submitters: [local]}
  team: {tier: batch, pools: [a10g], submitters: ['kube:team']}
pools:
  a10g: {instanceTypes: [g5.xlarge], drain: {after: 1s}}
";

/// A Job's `spec`, with so many pods of one GPU each.
fn job_spec(pods: u32) -> Value {
    let resources = json!({"requests": {"cpu": "500m", "memory": "256Mi"}, "limits": {"nvidia.com/gpu": "1"}});
    let container =
        json!({"name": "work", "image": "b", "env": [{"name": "RUN_FOR", "value": "25s"}], "resources": resources});
    json!({"parallelism": pods, "completions": pods, "completionMode": "Indexed", "podReplacementPolicy": "Failed",
        "backoffLimit": 0, "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}})
}

fn object(kind: &str, name: &str, queue: &str) -> Value {
    let (version, mut spec) = if kind == "Job" {
        ("batch/v1", job_spec(2))
    } else {
        let of = |name: &str| json!({"name": name, "replicas": 1, "groupName": "default", "template": {"spec": job_spec(1)}});
        // What its webhooks would fill in.
        let spec = json!({
            "replicatedJobs": [of("driver"), of("work")],
            "network": {"enableDNSHostnames": false, "publishNotReadyAddresses": true},
            "successPolicy": {"operator": "All", "targetReplicatedJobs": []},
            "startupPolicy": {"startupPolicyOrder": "AnyOrder"},
        });
        ("jobset.x-k8s.io/v1alpha2", spec)
    };
    spec["suspend"] = json!(true);
    let metadata = json!({"name": name, "namespace": TEAM, "labels": {"forebay.dev/queue": queue}});
    json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec})
}

fn read(stand: &Stand, kind: &str, name: &str) -> Value {
    serde_json::from_str(&stand.kubectl(&["get", kind, name, "-n", TEAM, "-o", "json"])).expect("JSON")
}

fn is_true(object: &Value, condition: &str) -> bool {
    let all = object["status"]["conditions"].as_array();
    all.is_some_and(|all| all.iter().any(|one| one["type"] == condition && one["status"] == "True"))
}

/// The adopted pods that run, by what their node is.
fn running(stand: &Stand) -> Vec<Value> {
    let listed = stand.kubectl(&["get", "pods", "-n", TEAM, "-l", "forebay.dev/adopted", "-o", "json"]);
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    let runs = |pod: &&Value| pod["status"]["phase"] == "Running" && pod["metadata"]["deletionTimestamp"].is_null();
    listed["items"].as_array().into_iter().flatten().filter(runs).cloned().collect()
}

/// The phase of the only job of the team that is not over.
fn trouble(stand: &Stand, server: &Server, kind: &str, name: &str) -> String {
    let (_, jobs) = server.get("/v1/jobs");
    let (_, sources) = server.get("/v1/sources");
    let pods = stand.kubectl(&["get", "pods", "-n", TEAM, "-o", "wide"]);
    let object = read(stand, kind, name);
    format!("{jobs}; {sources}; {pods}; {object}; {}", stand.trouble())
}

/// It runs, is preempted, runs again and completes.
fn preempted_and_resumed(stand: &Stand, server: &Server, kind: &str, name: &str) {
    stand.kubernetes.apply(&object(kind, name, "team").to_string()).expect("applied");
    until("it runs", LIMIT, || {
        let pods = running(stand);
        let (_, summary) = server.get("/v1/summary");
        if pods.len() == 2 && summary["running"] == 1 {
            let nodes: Vec<&str> = pods.iter().filter_map(|pod| pod["spec"]["nodeName"].as_str()).collect();
            assert!(nodes.iter().all(|node| *node != "foreign"), "{nodes:?}");
            return Ok(());
        }
        Err(format!("{summary}; {}", trouble(stand, server, kind, name)))
    });
    let urgent = json!({"type": "job.submitted", "source": "//test", "id": name, "subject": format!("urgent-{name}"), "data": {
        "queue": "research", "run": {"template": "train", "image": "reg/r:1", "env": {"RUN_FOR": "3s"}},
        "gang": {"workers": 2, "each": {"gpus": 1}}}});
    assert_eq!(server.post(&urgent).0, 202);
    until("it is suspended", LIMIT, || {
        let object = read(stand, kind, name);
        let settled = object["spec"]["suspend"] == true && is_true(&object, "Suspended");
        if settled { Ok(()) } else { Err(trouble(stand, server, kind, name)) }
    });
    let waited = server.ask(stand.folder.path(), &["wait", &format!("urgent-{name}"), "--timeout", "300s"]);
    assert_eq!(waited.code, 0, "{waited:?}; {}", trouble(stand, server, kind, name));
    let complete = if kind == "Job" { "Complete" } else { "Completed" };
    until("it has completed", LIMIT, || {
        let object = read(stand, kind, name);
        if is_true(&object, complete) { Ok(()) } else { Err(trouble(stand, server, kind, name)) }
    });
    let object = read(stand, kind, name);
    let admitted = object["metadata"]["annotations"]["forebay.dev/admitted"].as_str().unwrap_or_default();
    assert!(admitted.ends_with("/2"), "it was started twice: {object}");
}

#[test]
fn a_suspended_job_and_a_suspended_jobset_run_are_preempted_run_again_and_complete() {
    let stand = Stand::with_schedulers(&StandOptions { policy: POLICY, config: "  adopt: [team]\n" });
    let server = stand.start();
    preempted_and_resumed(&stand, &server, "JobSet", "set");
    preempted_and_resumed(&stand, &server, "Job", "plain");
    // What its queue does not list is refused and stays as it was.
    stand.kubernetes.apply(&object("Job", "stranger", "research").to_string()).expect("applied");
    until("it is told why it is not adopted", LIMIT, || {
        let (_, sources) = server.get("/v1/sources");
        let text = sources.to_string();
        if text.contains("team/job/stranger") && text.contains("ForbiddenQueue") { Ok(()) } else { Err(text) }
    });
    assert_eq!(read(&stand, "Job", "stranger")["spec"]["suspend"], true);
    for (name, told) in [
        ("set", ["Queued", "Admitted", "Stopped"].as_slice()),
        ("plain", &["Queued", "Admitted", "Stopped"]),
        ("stranger", &["NotAdopted"]),
    ] {
        let events = ["get", "events.v1.events.k8s.io", "-n", TEAM, "-o", "json"];
        let said = |text: &str, reason: &str| {
            let all: Value = serde_json::from_str(text).unwrap_or_default();
            let of = |event: &&Value| event["regarding"]["name"] == name && event["reason"] == reason;
            all["items"].as_array().is_some_and(|all| all.iter().filter(of).count() > 0)
        };
        let all = stand.kubernetes.wait_until(&events, |text| told.iter().all(|reason| said(text, reason)));
        all.unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    stand.all_over(&server, 4, LIMIT);
    let nodes = stand.kubectl(&["get", "nodes", "-o", "jsonpath={.items[*].metadata.labels}"]);
    assert!(!nodes.contains("gang.forebay.dev"), "{nodes}");
    // Each right to adopt was used, by the API server's word.
    let used: BTreeSet<String> = stand.requests().iter().map(right).collect();
    for right in [
        "list jobs.batch",
        "watch jobs.batch",
        "patch jobs.batch",
        "patch jobs/status.batch",
        "list jobsets.jobset.x-k8s.io",
        "watch jobsets.jobset.x-k8s.io",
        "patch jobsets.jobset.x-k8s.io",
        "create events.events.k8s.io",
    ] {
        assert!(used.contains(right), "{right} is granted and was not used: {used:?}");
    }
}

/// What a request needed, such as `patch jobs/status.batch`.
fn right(event: &Value) -> String {
    let part = |name: &str| event["objectRef"][name].as_str().unwrap_or_default().to_owned();
    let subresource = Some(part("subresource")).filter(|name| !name.is_empty());
    let subresource = subresource.map_or_else(String::new, |name| format!("/{name}"));
    format!("{} {}{subresource}.{}", event["verb"].as_str().unwrap_or_default(), part("resource"), part("apiGroup"))
}
