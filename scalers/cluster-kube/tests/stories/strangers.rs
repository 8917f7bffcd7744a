//! Pods that say they are of a gang and are not: those that somebody else made in another namespace, copies of a worker's pod, and those of an
//! incarnation of the journal that nobody knows any more.

use super::{NOW, answer, lets_go, node, page, request, run, run_view, view};
use forebay_cluster_kube::view::ClaimPhase;
use forebay_cluster_kube::{
    EngineView, GangStart, KubeCall, KubeCallId, KubeMachine, KubeObject, KubeReport, KubeResponse, KubeSettings,
    Resource, RunToken, WatchChange, WatchEvent,
};
use forebay_kernel::event::Event;
use forebay_kernel::ids::Seq;
use forebay_kernel::storage::{JournalEra, JournalId, JournalIdentity};
use forebay_kernel::units::Span;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The journal of these tests, as its label says it.
pub const JOURNAL: &str = "00000000-0000-0000-0000-000000000007";

pub fn effect(incarnation: u32, position: u64) -> String {
    format!("{}-{position}", JournalId { uuid: 7, incarnation })
}

/// A journal that was restored: what its first incarnation decided from position 100 on is lost.
pub fn restored() -> JournalIdentity {
    let era = |incarnation, begins| JournalEra { incarnation, begins: Seq(begins), next_purchase: 0, runs: Vec::new() };
    JournalIdentity { id: JournalId { uuid: 7, incarnation: 1 }, created_ms: 0, eras: vec![era(0, 0), era(1, 100)] }
}

/// The worker's pod on the node, in a namespace.
fn pod(effect: &str, namespace: &str, version: u64, phase: &str) -> KubeObject {
    let mut body = request(JOURNAL, effect).pod_body(0).expect("a pod");
    let state = if phase == "Succeeded" { json!({"terminated": {"exitCode": 0}}) } else { json!({"running": {}}) };
    body["metadata"]["namespace"] = json!(namespace);
    body["metadata"]["uid"] = json!(format!("{namespace}-{effect}"));
    body["metadata"]["resourceVersion"] = json!(version.to_string());
    body["spec"]["nodeName"] = json!("n");
    body["status"] = json!({"phase": phase, "containerStatuses": [{"name": "worker", "state": state}]});
    KubeObject::of_json(Resource::Pods, body).unwrap()
}

/// What the engine knows while the gang runs.
fn running() -> EngineView {
    let mut view = view(ClaimPhase::Ready);
    view.runs.insert(run(), run_view(BTreeSet::new()));
    view
}

/// A machine that has listed one node and these pods, and the number of its watch of pods.
fn listed(lineage: JournalIdentity, view: EngineView, pods: &[KubeObject]) -> (KubeMachine, KubeCallId) {
    listed_by(KubeMachine::new(KubeSettings::new("jobs", "forebay:1"), JOURNAL).with_lineage(lineage), view, pods)
}

/// The same of a machine.
fn listed_by(mut kube: KubeMachine, view: EngineView, pods: &[KubeObject]) -> (KubeMachine, KubeCallId) {
    kube.begin(view);
    for (id, call) in kube.poll(NOW) {
        let KubeCall::List { resource, .. } = call else { panic!("{call:?}") };
        let objects = match resource {
            Resource::Nodes => vec![node(5, json!({}))],
            Resource::Pods => pods.to_vec(),
            _ => Vec::new(),
        };
        kube.handle_response(id, page(objects), NOW);
    }
    let watch = kube.poll(NOW).into_iter().find_map(|(id, call)| {
        let of_pods = matches!(call, KubeCall::Watch { resource: Resource::Pods, .. });
        of_pods.then_some(id)
    });
    (kube, watch.expect("pods are watched"))
}

/// A pod as a watch shows it.
fn seen(kube: &mut KubeMachine, watch: KubeCallId, pod: KubeObject) {
    kube.handle_watch(WatchEvent { watch, change: WatchChange::Applied(Box::new(pod)) }, NOW);
    kube.poll(NOW);
}

fn completed(reports: &[KubeReport]) -> bool {
    reports.iter().any(|report| matches!(report, KubeReport::Event(Event::RunCompleted { .. })))
}

/// A journal in its first incarnation.
fn first() -> JournalIdentity {
    JournalIdentity { id: JournalId { uuid: 7, incarnation: 0 }, ..JournalIdentity::default() }
}

/// What somebody has made of the YAML of a worker's pod: labels, annotations, finalizer and node came along, name and uid are its own.
fn copied(name: &str, version: u64, status: &Value) -> KubeObject {
    let KubeObject::Pod(mut pod) = pod(&effect(0, 7), "jobs", version, "Running") else { panic!("a pod") };
    pod.metadata.name = name.to_owned();
    pod.metadata.uid = format!("copy-{name}");
    pod.status = serde_json::from_value(status.clone()).unwrap();
    KubeObject::Pod(pod)
}

/// The name that the worker's pod has.
fn given() -> String {
    request(JOURNAL, &effect(0, 7)).pod_name(0)
}

fn state(phase: &str, state: Value) -> Value {
    json!({"phase": phase, "containerStatuses": [{"name": "worker", "state": state}]})
}

/// The kubelet has no room for a copy beside the pod that it was made of.
fn no_room() -> Value {
    json!({"phase": "Failed", "reason": "OutOfnvidia.com/gpu", "message": "requested 1, used 1"})
}

fn events(reports: &[KubeReport]) -> Vec<&Event> {
    reports.iter().filter_map(|report| if let KubeReport::Event(event) = report { Some(event) } else { None }).collect()
}

#[test]
fn a_copy_of_a_workers_pod_is_not_that_worker_whenever_it_is_seen() {
    let own = effect(0, 7);
    // The last one ends as the worker's pod does.
    for name in [format!("{}-copy", given()), "copy".to_owned(), format!("debug-{}", given())] {
        for copy_first in [true, false] {
            let (real, copy) = (pod(&own, "jobs", 9, "Running"), copied(&name, 8, &no_room()));
            let pods = if copy_first { [copy, real] } else { [real, copy] };
            let (mut kube, watch) = listed(first(), running(), &pods);
            kube.poll(NOW);
            // Made once more under that name, it runs, completes and goes.
            seen(&mut kube, watch, copied(&name, 12, &state("Running", json!({"running": {}}))));
            seen(&mut kube, watch, copied(&name, 13, &state("Succeeded", json!({"terminated": {"exitCode": 0}}))));
            let gone = copied(&name, 14, &state("Succeeded", json!({"terminated": {"exitCode": 0}})));
            kube.handle_watch(WatchEvent { watch, change: WatchChange::Deleted(Box::new(gone)) }, NOW);
            kube.poll(NOW);
            let reports = kube.take_reports();
            let refused = reports.iter().any(|report| matches!(report, KubeReport::Refused { .. }));
            assert!(events(&reports).is_empty() && !refused, "{name}: {reports:?}");
            seen(&mut kube, watch, pod(&own, "jobs", 15, "Succeeded"));
            assert!(completed(&kube.take_reports()), "{name}: the pod itself is still watched");
        }
    }
}

/// Somebody deletes the pod of a worker by force while its kubelet is cut off, and makes it again from its YAML.
#[test]
fn a_pod_that_was_made_again_under_its_name_proves_nothing_and_goes_with_its_attempt() {
    let own = effect(0, 7);
    let seen_node = node(5, json!({}));
    for expired in [false, true] {
        let (mut kube, watch) = listed(first(), running(), &[pod(&own, "jobs", 9, "Running")]);
        let again = copied(&given(), 21, &no_room());
        if expired {
            kube.handle_watch(WatchEvent { watch, change: WatchChange::Expired }, NOW);
            let calls = kube.poll(NOW);
            let list = calls.iter().find(|(_, call)| matches!(call, KubeCall::List { .. })).expect("a list").0;
            let (objects, resource_version) = (vec![again], "30".to_owned());
            kube.handle_response(list, KubeResponse::Page { objects, continue_token: None, resource_version }, NOW);
        } else {
            let gone = WatchChange::Deleted(Box::new(pod(&own, "jobs", 20, "Running")));
            kube.handle_watch(WatchEvent { watch, change: gone }, NOW);
            kube.handle_watch(WatchEvent { watch, change: WatchChange::Applied(Box::new(again)) }, NOW);
        }
        answer(&mut kube, &seen_node);
        let reports = kube.take_reports();
        assert!(events(&reports).is_empty(), "what was there may compute: {reports:?}");
        assert!(reports.iter().any(|report| matches!(report, KubeReport::Unproven { .. })), "{reports:?}");

        let mut confirmed = running();
        confirmed.runs.insert(run(), run_view(BTreeSet::from([0])));
        kube.handle_state(confirmed);
        answer(&mut kube, &seen_node);
        let reports = kube.take_reports();
        assert!(matches!(&events(&reports)[..], [Event::RunFailed { .. }]), "{reports:?}");
        // Its attempt is over: what is left of it goes.
        kube.handle_state(view(ClaimPhase::Ready));
        kube.poll(NOW);
        assert!(lets_go(&mut kube, NOW), "{expired}");
    }
}

#[test]
fn a_copy_is_told_left_alone_and_let_go_when_somebody_deletes_it() {
    let runs = state("Running", json!({"running": {}}));
    let (mut kube, watch) = listed(first(), view(ClaimPhase::Ready), &[]);
    kube.take_reports();
    let applied = |kube: &mut KubeMachine, pod: KubeObject| {
        kube.handle_watch(WatchEvent { watch, change: WatchChange::Applied(Box::new(pod)) }, NOW);
        kube.poll(NOW)
    };
    // The attempt that it names is over, and the pods of such an attempt are deleted.
    let calls = applied(&mut kube, copied("copy", 12, &runs));
    assert!(calls.is_empty(), "{calls:?}");
    let reports = kube.take_reports();
    let [KubeReport::Failing { operation, error }] = &reports[..] else { panic!("{reports:?}") };
    for part in ["jobs/copy", "job-1/1/0", "delete it"] {
        assert!(error.message.contains(part), "no `{part}` in {error}");
    }
    // Our finalizer came along, and nobody waits for its outcome.
    let KubeObject::Pod(mut deleted) = copied("copy", 13, &runs) else { panic!("a pod") };
    deleted.metadata.deletion_timestamp = Some("2026-11-24T11:00:00Z".into());
    let calls = applied(&mut kube, KubeObject::Pod(deleted.clone()));
    let [(_, KubeCall::Merge { resource: Resource::Pods, name, body, .. })] = &calls[..] else { panic!("{calls:?}") };
    let expected = json!({"uid": "copy-copy", "resourceVersion": "13", "finalizers": []});
    assert_eq!((name.as_str(), &body["metadata"]), ("copy", &expected));
    deleted.metadata.resource_version = "14".to_owned();
    let gone = WatchChange::Deleted(Box::new(KubeObject::Pod(deleted)));
    kube.handle_watch(WatchEvent { watch, change: gone }, NOW);
    assert_eq!(kube.take_reports(), [KubeReport::Recovered { operation }]);
}

#[test]
fn a_node_is_drained_by_the_life_of_a_worker_and_not_of_its_copy() {
    let own = effect(0, 7);
    let pods = [pod(&own, "jobs", 9, "Running"), copied("copy", 10, &no_room())];
    let (mut kube, _) = listed(first(), running(), &pods);
    kube.drain("i-1");
    let cordon = kube.poll(NOW).into_iter().find(|(_, call)| matches!(call, KubeCall::Apply { .. })).expect("a cordon");
    kube.handle_response(cordon.0, KubeResponse::Object(Box::new(node(11, json!({"unschedulable": true})))), NOW);
    let runs = copied("copy", 12, &state("Running", json!({"running": {}})));
    let worker = format!("jobs/{}", given());
    for (look, copy, kept_by, evicted) in [
        (1, pods[1].clone(), vec![worker.clone()], vec![]),
        // As a pod of others, a copy that runs is asked to go.
        (2, runs, vec![worker.clone(), "jobs/copy".to_owned()], vec!["copy".to_owned()]),
    ] {
        let at = NOW + Span::secs(10 * look);
        let list = kube.poll(at).into_iter().find(|(_, call)| matches!(call, KubeCall::List { .. })).expect("a list");
        kube.take_reports();
        kube.handle_response(list.0, page(vec![pods[0].clone(), copy]), at);
        let blocked = KubeReport::DrainBlocked { instance: "i-1".into(), pods: kept_by };
        assert_eq!(kube.take_reports(), [blocked], "{look}");
        let eviction = |(_, call)| if let KubeCall::Evict { pod, .. } = call { Some(pod) } else { None };
        let evictions: Vec<String> = kube.poll(at).into_iter().filter_map(eviction).collect();
        assert_eq!(evictions, evicted, "{look}");
    }
}

#[test]
fn a_pod_with_a_workers_labels_in_another_namespace_is_not_that_worker() {
    let own = effect(0, 7);
    let first = first();
    // Known before a restart or not, seen first or last.
    for forged_first in [false, true] {
        let real = pod(&own, "jobs", 9, "Running");
        let forged = pod(&own, "others", 8, "Succeeded");
        let listing =
            if forged_first { vec![forged.clone(), real.clone()] } else { vec![real.clone(), forged.clone()] };
        let (mut kube, watch) = listed(first.clone(), running(), &listing);
        kube.poll(NOW);
        let mut reports = kube.take_reports();
        seen(&mut kube, watch, pod(&own, "others", 12, "Succeeded"));
        reports.extend(kube.take_reports());
        assert!(!completed(&reports), "{reports:?}");
        seen(&mut kube, watch, pod(&own, "jobs", 13, "Succeeded"));
        assert!(completed(&kube.take_reports()), "the pod itself is still watched");
    }
    // Of a gang that this process has started.
    let (mut kube, watch) = listed(first, view(ClaimPhase::Ready), &[]);
    kube.start(GangStart::Run(Box::new(request(JOURNAL, &own))), RunToken::new("t".to_owned()));
    seen(&mut kube, watch, pod(&own, "others", 12, "Running"));
    let creates = kube.poll(NOW + Span::secs(1));
    assert!(!kube.is_idle() && creates.iter().all(|(_, call)| !matches!(call, KubeCall::Bind { .. })), "{creates:?}");
}

#[test]
fn a_lost_pod_is_reported_keeps_its_node_and_its_job_waits_for_it() {
    let lost = effect(0, 150);
    let (mut kube, watch) = listed(restored(), view(ClaimPhase::Leaving), &[pod(&lost, "jobs", 9, "Running")]);
    let reports = kube.take_reports();
    let told = |report: &KubeReport| matches!(report, KubeReport::Lost { pod, .. } if pod.starts_with("jobs/a-1-0-"));
    assert_eq!(reports.iter().filter(|report| told(report)).count(), 1, "{reports:?}");
    // Its node stays, and it is not asked to go.
    kube.drain("i-1");
    let cordon = kube.poll(NOW).into_iter().find(|(_, call)| matches!(call, KubeCall::Apply { .. })).expect("a cordon");
    kube.handle_response(cordon.0, KubeResponse::Object(Box::new(node(11, json!({"unschedulable": true})))), NOW);
    let later = NOW + Span::secs(10);
    let list = kube.poll(later).into_iter().find(|(_, call)| matches!(call, KubeCall::List { .. })).expect("a list");
    kube.handle_response(list.0, page(vec![pod(&lost, "jobs", 9, "Running")]), later);
    let reports = kube.take_reports();
    assert!(reports.iter().any(|report| matches!(report, KubeReport::DrainBlocked { .. })), "{reports:?}");
    let evicted = kube.poll(later).iter().any(|(_, call)| matches!(call, KubeCall::Evict { .. }));
    assert!(!evicted, "a lost pod is work that somebody paid for");

    // The job of the restored journal does not run beside it.
    let (mut kube, again) = listed(restored(), view(ClaimPhase::Ready), &[pod(&lost, "jobs", 9, "Running")]);
    assert_eq!(watch, again);
    kube.take_reports();
    kube.start(GangStart::Run(Box::new(request(JOURNAL, &effect(1, 160)))), RunToken::new("t".to_owned()));
    assert!(kube.poll(NOW).is_empty(), "nothing is made while it may run");
    let waits = kube.take_reports();
    let words = waits.iter().find_map(|report| match report {
        KubeReport::Waiting { words: Some(words), .. } => Some(words.clone()),
        _ => None,
    });
    assert!(words.is_some_and(|words| words.contains("after the backup") && words.contains("delete it")), "{waits:?}");
    kube.handle_watch(
        WatchEvent { watch, change: WatchChange::Applied(Box::new(pod(&lost, "jobs", 12, "Succeeded"))) },
        NOW,
    );
    let calls = kube.poll(NOW);
    assert!(calls.iter().any(|(_, call)| matches!(call, KubeCall::Create { .. })), "{calls:?}");
    assert!(kube.take_reports().iter().any(|report| matches!(report, KubeReport::Waiting { words: None, .. })));
}

/// An operator who deletes a lost pod is not held up by our finalizer, once nothing of it runs.
#[test]
fn a_lost_pod_that_is_deleted_goes_when_it_has_ended() {
    let lost = effect(0, 150);
    let deleted = |version: u64, phase: &str| {
        let KubeObject::Pod(mut pod) = pod(&lost, "jobs", version, phase) else { panic!("a pod") };
        pod.metadata.deletion_timestamp = Some("2026-11-24T11:00:00Z".into());
        KubeObject::Pod(pod)
    };
    let (mut kube, watch) = listed(restored(), view(ClaimPhase::Ready), &[deleted(9, "Running")]);
    let lets_go =
        |kube: &mut KubeMachine| kube.poll(NOW).iter().any(|(_, call)| matches!(call, KubeCall::Merge { .. }));
    assert!(!lets_go(&mut kube), "it may run");
    kube.handle_watch(WatchEvent { watch, change: WatchChange::Applied(Box::new(deleted(12, "Succeeded"))) }, NOW);
    let calls = kube.poll(NOW);
    let merge =
        calls.iter().find_map(|(_, call)| if let KubeCall::Merge { body, .. } = call { Some(body) } else { None });
    let finalizers: Value = merge.expect("a merge")["metadata"]["finalizers"].clone();
    assert_eq!(finalizers, json!([]));
}

/// The folder was replaced by an older copy of itself: the pod carries an id that this process might give out, and the list came before anything was started.
#[test]
fn a_pod_that_the_journal_does_not_know_at_a_start_is_lost_as_well() {
    let first = first();
    let told =
        |reports: &[KubeReport]| reports.iter().filter(|report| matches!(report, KubeReport::Lost { .. })).count();
    for (position, expected) in [(49, 0), (50, 1), (90, 1)] {
        let later = pod(&effect(0, position), "jobs", 9, "Running");
        let mut kube = KubeMachine::new(KubeSettings::new("jobs", "forebay:1"), JOURNAL);
        kube = kube.with_lineage(first.clone()).before_effect(Seq(50));
        let (mut kube, watch) = listed_by(kube, running(), &[later]);
        assert_eq!(told(&kube.take_reports()), expected, "{position}");
        // Nobody knows whose end that is.
        seen(&mut kube, watch, pod(&effect(0, position), "jobs", 12, "Succeeded"));
        let reports = kube.take_reports();
        assert_eq!((told(&reports), completed(&reports)), (0, expected == 0), "{position}");
        // What begins after that is this process's own.
        seen(&mut kube, watch, pod(&effect(0, 120), "jobs", 14, "Running"));
        assert_eq!(told(&kube.take_reports()), 0, "{position}");
    }
}
