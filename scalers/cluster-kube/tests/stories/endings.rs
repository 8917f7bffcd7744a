//! How long workers have to end, and whose fault an end is: an eviction, a failure, a node that was started again.

use super::{NOW, node, page, request, run, run_view, view};
use forebay_cluster_kube::view::{ClaimPhase, RunView};
use forebay_cluster_kube::{KubeCall, KubeMachine, KubeObject, KubeReport, KubeSettings, Resource};
use forebay_kernel::event::Event;
use forebay_kernel::ids::{Attempt, JobId, NodeId};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The pod of a worker that runs on the node, with what is said of it.
fn pod(number: u32, change: impl FnOnce(&mut Value)) -> KubeObject {
    let mut gang = request("j", "j-7");
    let second = gang.workers[0].clone();
    gang.workers.push(second);
    let mut body = gang.pod_body(number).expect("a pod");
    body["metadata"]["uid"] = json!(format!("u-{number}"));
    body["metadata"]["resourceVersion"] = json!("9");
    body["spec"]["nodeName"] = json!("n");
    body["spec"]["terminationGracePeriodSeconds"] = json!(300);
    let runs = json!({"running": {}});
    body["status"] = json!({"phase": "Running", "containerStatuses": [{"name": "worker", "state": runs}]});
    change(&mut body);
    KubeObject::of_json(Resource::Pods, body).unwrap()
}

fn failed(code: i32) -> Value {
    let ended = json!({"terminated": {"exitCode": code}});
    json!({"phase": "Failed", "containerStatuses": [{"name": "worker", "state": ended}]})
}

/// What a machine calls for and reports that begins with these pods of one gang, which runs.
fn begun(seen: &KubeObject, pods: &[KubeObject]) -> (Vec<KubeCall>, Vec<KubeReport>) {
    let workers = (0..).zip(pods).map(|(number, _)| (number, Some("i-1".to_owned())));
    let runs = RunView { workers: workers.collect(), ..run_view(BTreeSet::new()) };
    let mut known = view(ClaimPhase::Ready);
    known.runs.insert(run(), runs);
    let mut kube = KubeMachine::new(KubeSettings::new("jobs", "forebay:1"), "j");
    kube.begin(known);
    for (id, call) in kube.poll(NOW) {
        let KubeCall::List { resource, .. } = call else { panic!("{call:?}") };
        let objects = match resource {
            Resource::Nodes => vec![seen.clone()],
            Resource::Pods => pods.to_vec(),
            _ => Vec::new(),
        };
        kube.handle_response(id, page(objects), NOW);
    }
    let calls = kube.poll(NOW).into_iter().map(|(_, call)| call).collect();
    (calls, kube.take_reports())
}

#[test]
fn a_gang_that_is_evicted_keeps_the_time_to_save_that_its_job_asked_for() {
    let evicted = |body: &mut Value| {
        body["metadata"]["deletionTimestamp"] = json!("2026-11-24T11:05:00Z");
        body["metadata"]["deletionGracePeriodSeconds"] = json!(300);
        body["status"]["conditions"] =
            json!([{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}]);
    };
    let graces = |first: KubeObject| {
        let (calls, _) = begun(&node(5, json!({})), &[first, pod(1, |_| {})]);
        let grace = |call: &KubeCall| match call {
            KubeCall::Delete { resource: Resource::Pods, grace_seconds, .. } => *grace_seconds,
            _ => None,
        };
        calls.iter().filter_map(grace).collect::<Vec<u64>>()
    };
    assert_eq!(graces(pod(0, evicted)), [300, 300], "a shorter one would kill the evicted one too while it saves");
    // Where a worker has failed by itself, there is nothing to save together.
    assert_eq!(graces(pod(0, |body| body["status"] = failed(3))), [30]);
}

#[test]
fn a_node_that_was_started_again_under_a_run_is_no_failure_of_the_run() {
    for (boot, exit_code, node_fault) in [("b-2", 137, Some(NodeId(1))), ("b-1", 255, None), ("", 255, None)] {
        let ended = pod(0, |body| {
            body["metadata"]["annotations"]["forebay.dev/boot-id"] = json!("b-1");
            body["status"] = failed(255);
        });
        let KubeObject::Node(mut seen) = node(5, json!({})) else { panic!("a node") };
        seen.status.node_info.boot_id = boot.to_owned();
        let (_, reports) = begun(&KubeObject::Node(seen), &[ended]);
        let failed = Event::RunFailed { job: JobId(1), attempt: Attempt(1), exit_code, node_fault };
        assert!(reports.contains(&KubeReport::Event(failed)), "{boot}: {reports:?}");
    }
}
