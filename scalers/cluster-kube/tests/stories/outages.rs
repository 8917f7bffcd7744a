//! What is said of calls that fail, of creations that are refused, and of nodes that a gang waits for; and that nothing is asked for without a pause.

use super::{NOW, creating, listed, node, one, page, run, start, stopped, view};
use forebay_cluster_kube::view::ClaimPhase;
use forebay_cluster_kube::{
    KubeCall, KubeCallId, KubeError, KubeMachine, KubeObject, KubeReport, KubeResponse, KubeSettings, Resource,
    RunToken, WatchChange, WatchEvent, WorkerId,
};
use forebay_kernel::units::{Span, Timestamp};
use serde_json::json;
use std::collections::BTreeMap;

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
