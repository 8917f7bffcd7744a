//! What is said of calls that fail, of creations that are refused, and of nodes that a gang waits for; and that nothing is asked for without a pause.

use super::{NOW, creating, listed, node, one, page, run, run_view, start, stopped, view};
use forebay_cluster_kube::view::{ClaimPhase, RunStage, RunView};
use forebay_cluster_kube::{
    EngineView, KubeCall, KubeCallId, KubeError, KubeMachine, KubeObject, KubeReport, KubeResponse, KubeSettings,
    Resource, RunToken, WatchChange, WatchEvent, WorkerId,
};
use forebay_kernel::units::{Span, Timestamp};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

type Watches = BTreeMap<Resource, KubeCallId>;

fn watch_of((id, call): (KubeCallId, KubeCall)) -> Option<(Resource, KubeCallId)> {
    if let KubeCall::Watch { resource, .. } = call { Some((resource, id)) } else { None }
}

/// A machine that has listed one node, and nothing else, with its watches.
fn watching(seen: &KubeObject) -> (KubeMachine, Watches) {
    let mut kube = KubeMachine::new(KubeSettings::new("jobs", "forebay:1"), "j");
    kube.begin(view(ClaimPhase::Ready));
    for (id, call) in kube.poll(NOW) {
        let of_nodes = matches!(call, KubeCall::List { resource: Resource::Nodes, .. });
        kube.handle_response(id, page(if of_nodes { vec![seen.clone()] } else { Vec::new() }), NOW);
    }
    assert_eq!(kube.take_reports(), [KubeReport::Listed]);
    let watches = kube.poll(NOW).into_iter().filter_map(watch_of).collect();
    (kube, watches)
}

/// A watch breaks, and is opened again after the longest delay, which is returned.
fn break_watch(kube: &mut KubeMachine, watches: &mut Watches, of: Resource, now: Timestamp) -> Timestamp {
    let change = WatchChange::Failed(KubeError::no_response("connection refused"));
    kube.handle_watch(WatchEvent { watch: watches[&of], change }, now);
    let again = now + Span::secs(30);
    watches.extend(kube.poll(again).into_iter().filter_map(watch_of));
    again
}

#[test]
fn watches_that_deliver_again_are_not_said_to_fail() {
    let (mut kube, mut watches) = watching(&node(5, json!({})));
    let mut now = NOW;
    for of in [Resource::Pods, Resource::Pods, Resource::Pods, Resource::Pods, Resource::Pods, Resource::Nodes] {
        now = break_watch(&mut kube, &mut watches, of, now);
    }
    let failing = kube.take_reports();
    assert!(matches!(&failing[..], [KubeReport::Failing { operation: "watch objects", .. }]), "{failing:?}");
    for (of, expected) in [
        (Resource::Pods, vec![]),
        // Now all of them deliver.
        (Resource::Nodes, vec![KubeReport::Recovered { operation: "watch objects" }]),
        (Resource::Nodes, vec![]),
    ] {
        let change = WatchChange::Bookmark { resource_version: "11".to_owned() };
        kube.handle_watch(WatchEvent { watch: watches[&of], change }, now);
        assert_eq!(kube.take_reports(), expected, "{of:?}");
    }
}

/// A proxy in between, or an API server that is ended, may ask for any pause.
#[test]
fn no_call_and_no_watch_waits_longer_than_two_minutes_because_it_was_asked_to() {
    let year = Some(Span::secs(31_536_000));
    let error = KubeError::of_status(503, "ServiceUnavailable", "later").with_retry_after(year);
    let (soon, later) = (NOW + Span::secs(119), NOW + Span::mins(2));
    let (mut kube, id, _) = creating();
    kube.handle_response(id, KubeResponse::Refused(error.clone()), NOW);
    let creates = |calls: &[(KubeCallId, KubeCall)]| {
        calls.iter().any(|(_, call)| matches!(call, KubeCall::Create { resource: Resource::Pods, .. }))
    };
    assert!(!creates(&kube.poll(soon)), "so long it is believed");
    assert!(creates(&kube.poll(later)));

    let (mut kube, watches) = watching(&node(5, json!({})));
    let change = WatchChange::Failed(error);
    kube.handle_watch(WatchEvent { watch: watches[&Resource::Pods], change }, NOW);
    let opened = |kube: &mut KubeMachine, now: Timestamp| kube.poll(now).into_iter().filter_map(watch_of).count();
    assert_eq!((opened(&mut kube, soon), opened(&mut kube, later)), (0, 1));
}

#[test]
fn what_is_denied_again_and_again_is_said_once_until_it_works() {
    let mut kube = listed(ClaimPhase::Leaving, node(5, json!({})));
    kube.drain("i-1");
    let mut said = Vec::new();
    for time in 0..3 {
        let now = NOW + Span::secs(30 * time);
        let (id, call) = one(kube.poll(now));
        assert!(matches!(call, KubeCall::Apply { resource: Resource::Nodes, .. }), "{call:?}");
        let denied = KubeError::of_status(403, "Forbidden", "the policy does not allow it");
        kube.handle_response(id, KubeResponse::Refused(denied), now);
        said.extend(kube.take_reports());
    }
    assert!(matches!(&said[..], [KubeReport::Failing { operation: "cordon nodes", .. }]), "{said:?}");
    let now = NOW + Span::secs(90);
    let (id, _) = one(kube.poll(now));
    kube.handle_response(id, KubeResponse::Object(Box::new(node(11, json!({"unschedulable": true})))), now);
    assert_eq!(kube.take_reports(), [KubeReport::Recovered { operation: "cordon nodes" }]);
}

#[test]
fn a_namespace_that_is_not_there_refuses_a_gang_and_is_not_asked_for_again_and_again() {
    let mut kube = listed(ClaimPhase::Ready, node(5, json!({})));
    kube.start(start(), RunToken::new("t".to_owned()));
    let creations = kube.poll(NOW);
    assert_eq!(creations.len(), 2, "{creations:?}");
    let words = "namespaces \"jobs\" not found";
    for (id, _) in creations {
        kube.handle_response(id, KubeResponse::Refused(KubeError::of_status(404, "NotFound", words)), NOW);
    }
    let calls = kube.poll(NOW);
    assert!(calls.is_empty(), "{calls:?}");
    let reports = kube.take_reports();
    let [KubeReport::Refused { run: of, words: told }, last] = &reports[..] else { panic!("{reports:?}") };
    assert_eq!((*of, last), (run(), &stopped()));
    assert!(told.contains(words) && told.contains("kubernetes.namespaces"), "{told}");
}

#[test]
fn a_creation_that_conflicts_with_another_is_made_again_after_a_pause() {
    let (mut kube, id, _) = creating();
    let words = "Operation cannot be fulfilled on resourcequotas \"q\": the object has been modified";
    kube.handle_response(id, KubeResponse::Refused(KubeError::of_status(409, "Conflict", words)), NOW);
    assert!(kube.poll(NOW).is_empty() && kube.take_reports().is_empty());
    let later = NOW + Span::secs(1);
    let (id, call) = one(kube.poll(later));
    assert!(matches!(call, KubeCall::Get { resource: Resource::Pods, .. }), "{call:?}");
    kube.handle_response(id, KubeResponse::Refused(KubeError::of_status(404, "NotFound", "no")), later);
    let (_, call) = one(kube.poll(later));
    assert!(matches!(call, KubeCall::Create { resource: Resource::Pods, .. }), "{call:?}");
}

#[test]
fn a_gang_that_waits_for_a_node_says_for_which_and_why() {
    let (mut kube, watches) = watching(&node(5, json!({"unschedulable": true})));
    kube.start(start(), RunToken::new("t".to_owned()));
    for _ in 0..4 {
        for (id, call) in kube.poll(NOW) {
            let object = match call {
                KubeCall::Create { resource, mut body, .. } => {
                    body["metadata"]["uid"] = json!("x");
                    body["metadata"]["resourceVersion"] = json!("20");
                    KubeObject::of_json(resource, *body).unwrap()
                }
                KubeCall::CreateSecret { body, .. } => {
                    KubeObject::of_json(Resource::Secrets, body.reveal().clone()).unwrap()
                }
                other => panic!("{other:?}"),
            };
            kube.handle_response(id, KubeResponse::Object(Box::new(object)), NOW);
        }
    }
    let reports = kube.take_reports();
    let [KubeReport::Waiting { worker, words: Some(words) }] = &reports[..] else { panic!("{reports:?}") };
    assert_eq!(*worker, WorkerId { run: run(), worker: 0 });
    assert!(words.contains("node n") && words.contains("kubectl uncordon n"), "{words}");
    let change = WatchChange::Applied(Box::new(node(21, json!({}))));
    kube.handle_watch(WatchEvent { watch: watches[&Resource::Nodes], change }, NOW);
    let (_, call) = one(kube.poll(NOW));
    assert!(matches!(call, KubeCall::Bind { .. }), "{call:?}");
    assert_eq!(kube.take_reports(), [KubeReport::Waiting { worker: *worker, words: None }]);
}

fn object(resource: Resource, body: Value) -> KubeResponse {
    KubeResponse::Object(Box::new(KubeObject::of_json(resource, body).unwrap()))
}

fn refused(code: u16, reason: &str) -> KubeResponse {
    KubeResponse::Refused(KubeError::of_status(code, reason, "no"))
}

#[test]
fn a_service_that_is_deleted_during_a_start_is_made_again_and_so_is_the_secret_that_goes_with_it() {
    let (mut kube, id, mut body) = creating();
    (body["metadata"]["uid"], body["metadata"]["resourceVersion"]) = (json!("p-1"), json!("20"));
    kube.handle_response(id, object(Resource::Pods, body), NOW);
    let (id, call) = one(kube.poll(NOW));
    assert!(matches!(call, KubeCall::Bind { .. }), "{call:?}");
    kube.handle_response(id, KubeResponse::Done, NOW);
    let (id, call) = one(kube.poll(NOW));
    assert!(matches!(call, KubeCall::Apply { resource: Resource::Services, .. }), "{call:?}");
    kube.handle_response(id, refused(404, "NotFound"), NOW);
    let (id, call) = one(kube.poll(NOW));
    let KubeCall::Create { resource: Resource::Services, mut body, .. } = call else { panic!("{call:?}") };
    body["metadata"]["uid"] = json!("s-2");
    kube.handle_response(id, object(Resource::Services, *body), NOW);
    // What exists is the Secret of the Service that was deleted, and goes in a moment.
    let mut now = NOW;
    for exists in [true, true, false] {
        let (id, call) = one(kube.poll(now));
        let KubeCall::CreateSecret { body, .. } = call else { panic!("{call:?}") };
        assert_eq!(body.reveal()["metadata"]["ownerReferences"][0]["uid"], "s-2");
        let secret = object(Resource::Secrets, body.reveal().clone());
        kube.handle_response(id, if exists { refused(409, "AlreadyExists") } else { secret }, now);
        if exists {
            assert!(kube.poll(now).is_empty(), "it is not asked for without a pause");
            now = now + Span::secs(2);
        }
    }
    let (_, call) = one(kube.poll(now));
    assert!(matches!(call, KubeCall::Apply { resource: Resource::Services, .. }), "{call:?}");
}

/// A role that has no `get`, and a Service of that name: that it is there is said by its creation, and whose it is by nobody.
#[test]
fn an_object_that_may_not_be_read_is_asked_for_after_a_pause() {
    let mut kube = listed(ClaimPhase::Ready, node(5, json!({})));
    kube.start(start(), RunToken::new("t".to_owned()));
    for (id, call) in kube.poll(NOW) {
        let KubeCall::Create { resource, mut body, .. } = call else { panic!("{call:?}") };
        body["metadata"]["uid"] = json!("c");
        let exists = resource == Resource::Services;
        kube.handle_response(id, if exists { refused(409, "AlreadyExists") } else { object(resource, *body) }, NOW);
    }
    let (mut now, mut said) = (NOW, Vec::new());
    for _ in 0..3 {
        let (id, call) = one(kube.poll(now));
        assert!(matches!(call, KubeCall::Get { resource: Resource::Services, .. }), "{call:?}");
        kube.handle_response(id, refused(403, "Forbidden"), now);
        let calls = [kube.poll(now), kube.poll(now + Span::secs(29))].concat();
        assert!(calls.is_empty(), "neither it nor its creation is asked for without a pause: {calls:?}");
        said.extend(kube.take_reports());
        now = now + Span::secs(30);
    }
    assert!(matches!(&said[..], [KubeReport::Failing { operation: "read objects", .. }]), "{said:?}");
    // The role is mended. It was deleted meanwhile.
    let (id, _) = one(kube.poll(now));
    kube.handle_response(id, refused(404, "NotFound"), now);
    let (_, call) = one(kube.poll(now));
    assert!(matches!(call, KubeCall::Create { resource: Resource::Services, .. }), "{call:?}");
    assert_eq!(kube.take_reports(), [KubeReport::Recovered { operation: "read objects" }]);
}

#[test]
fn a_ready_node_that_registers_again_loses_the_taint_of_its_start_again() {
    let taint = |key: &str| json!({"key": key, "effect": "NoSchedule"});
    let mut taints = vec![taint("forebay.dev/starting"), taint("forebay.dev/node"), taint("node.cilium.io/not-ready")];
    let (mut kube, watches) = watching(&node(5, json!({})));
    let seen = |kube: &mut KubeMachine, change: WatchChange| {
        kube.handle_watch(WatchEvent { watch: watches[&Resource::Nodes], change }, NOW);
        let calls = kube.poll(NOW).into_iter();
        calls.filter(|(_, call)| matches!(call, KubeCall::Merge { .. })).collect::<Vec<_>>()
    };
    let calls = seen(&mut kube, WatchChange::Deleted(Box::new(node(11, json!({})))));
    assert!(calls.is_empty(), "{calls:?}");
    let calls = seen(&mut kube, WatchChange::Applied(Box::new(node(12, json!({"taints": taints})))));
    assert!(calls.is_empty(), "its network is not there yet: {calls:?}");
    taints.pop();
    let calls = seen(&mut kube, WatchChange::Applied(Box::new(node(13, json!({"taints": taints})))));
    let (id, call) = one(calls);
    let KubeCall::Merge { resource: Resource::Nodes, body, .. } = call else { panic!("{call:?}") };
    assert_eq!(body["spec"]["taints"], json!([taint("forebay.dev/node")]));
    kube.handle_response(id, KubeResponse::Object(Box::new(node(14, body["spec"].clone()))), NOW);
    let calls = kube.poll(NOW);
    assert!(calls.is_empty() && kube.take_reports().is_empty(), "{calls:?}");
}

#[test]
fn a_namespace_that_denies_its_lists_is_said_once_until_it_allows_them() {
    let mut settings = KubeSettings::new("jobs", "forebay:1");
    settings.namespaces.insert("research".into(), "gone".into());
    let every = settings.list_every;
    let mut kube = KubeMachine::new(settings, "j");
    kube.begin(view(ClaimPhase::Ready));
    let (mut now, mut said) = (NOW, Vec::new());
    for denies in [true, true, false, false] {
        for _ in 0..4 {
            for (id, call) in kube.poll(now) {
                let KubeCall::List { namespace, .. } = &call else { continue };
                let denied = denies && namespace.as_deref() == Some("gone");
                kube.handle_response(id, if denied { refused(403, "Forbidden") } else { page(Vec::new()) }, now);
            }
        }
        let words = kube.take_reports().into_iter().filter_map(|report| match report {
            KubeReport::Failing { operation, .. } => Some(format!("{operation} fails")),
            KubeReport::Recovered { operation } => Some(format!("{operation} works")),
            _ => None,
        });
        said.push(words.collect::<Vec<String>>());
        now = now + every;
    }
    let none = Vec::new;
    assert_eq!(said, [vec!["list objects fails".to_owned()], none(), vec!["list objects works".to_owned()], none()]);
}

#[test]
fn why_a_gang_cannot_be_bound_any_more_is_said_as_it_is() {
    let ended = json!({"terminated": {"exitCode": 0, "finishedAt": "2026-11-24T11:00:05Z"}});
    let completed = json!({"phase": "Succeeded", "containerStatuses": [{"name": "worker", "state": ended}]});
    let called_over = json!({"phase": "Failed"});
    for (status, instance, part) in [
        (completed, true, "ended with exit code 0 before"),
        (json!({}), false, "i-1, to which"),
        (called_over, true, "by somebody else than its kubelet"),
    ] {
        let (mut kube, id, mut body) = creating();
        (body["metadata"]["uid"], body["metadata"]["resourceVersion"]) = (json!("p-1"), json!("20"));
        body["spec"]["nodeName"] = json!("n");
        body["status"] = status;
        kube.handle_response(id, object(Resource::Pods, body), NOW);
        if !instance {
            let starting = RunView { stage: RunStage::Starting, ..run_view(BTreeSet::new()) };
            kube.handle_state(EngineView { runs: BTreeMap::from([(run(), starting)]), ..EngineView::default() });
        }
        kube.poll(NOW);
        let reports = kube.take_reports();
        let said = reports.iter().find_map(|report| match report {
            KubeReport::Refused { words, .. } => Some(words.clone()),
            _ => None,
        });
        let said = said.unwrap_or_else(|| panic!("{part}: {reports:?}"));
        assert!(said.contains(part) && !said.contains("deleted"), "{part}: {said}");
    }
}

#[test]
fn a_pod_that_comes_back_without_what_says_whose_it_is_refuses_its_gang_and_is_deleted() {
    let (mut kube, id, mut body) = creating();
    (body["metadata"]["uid"], body["metadata"]["resourceVersion"]) = (json!("p-1"), json!("20"));
    body["metadata"]["annotations"] = json!({});
    kube.handle_response(id, object(Resource::Pods, body.clone()), NOW);
    let (id, call) = one(kube.poll(NOW));
    let KubeCall::Delete { resource: Resource::Pods, uid, .. } = call else { panic!("{call:?}") };
    assert_eq!(uid.as_deref(), Some("p-1"));
    let reports = kube.take_reports();
    let [KubeReport::Refused { words, .. }, last] = &reports[..] else { panic!("{reports:?}") };
    assert!(words.contains("admission webhook") && words.contains("exempt") && *last == stopped(), "{reports:?}");
    // It stays until our finalizer has gone.
    body["metadata"]["resourceVersion"] = json!("21");
    body["metadata"]["deletionTimestamp"] = json!("2026-11-24T11:00:00Z");
    kube.handle_response(id, object(Resource::Pods, body.clone()), NOW);
    let (id, call) = one(kube.poll(NOW));
    let KubeCall::Merge { resource: Resource::Pods, body: merge, .. } = call else { panic!("{call:?}") };
    assert_eq!(merge["metadata"], json!({"uid": "p-1", "resourceVersion": "21", "finalizers": []}));
    body["metadata"]["finalizers"] = json!([]);
    kube.handle_response(id, object(Resource::Pods, body), NOW);
    let calls = kube.poll(NOW);
    assert!(calls.is_empty(), "{calls:?}");
}
