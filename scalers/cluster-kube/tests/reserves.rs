//! What of nodes is not for work, before one is bought: what the engine is told as DaemonSets and nodes come and go, and what it is not told.

use forebay_cluster_kube::view::NodeTypeView;
use forebay_cluster_kube::{
    EngineView, KubeCall, KubeCallId, KubeError, KubeMachine, KubeObject, KubeReport, KubeResponse, KubeSettings,
    Resource, WatchChange, WatchEvent,
};
use forebay_kernel::event::Event;
use forebay_kernel::state::node_reserves::{NodeReserve, NodeRoom};
use forebay_kernel::units::{Mib, MilliCpu, Span, Timestamp};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const NOW: Timestamp = Timestamp(1_800_000_000_000);

fn room(cpu: u64, mem: u64) -> NodeRoom {
    NodeRoom { cpu: MilliCpu(cpu), mem: Mib(mem) }
}

fn daemon_set(name: &str, version: u64, cpu: &str, tolerations: Value) -> KubeObject {
    let containers = json!([{"name": "a", "resources": {"requests": {"cpu": cpu, "memory": "100Mi"}}}]);
    let spec = json!({"template": {"spec": {"containers": containers, "tolerations": tolerations}}});
    let metadata =
        json!({"name": name, "namespace": "kube-system", "uid": name, "resourceVersion": version.to_string()});
    KubeObject::of_json(Resource::DaemonSets, json!({"metadata": metadata, "spec": spec})).expect("a DaemonSet")
}

fn everywhere() -> Value {
    json!([{"operator": "Exists"}])
}

/// A node of Forebay's whose system keeps 90 thousandths of a core and 3 GiB of 96 cores and 1 TiB.
fn node() -> KubeObject {
    let labels = json!({"forebay.dev/node": "true", "node.kubernetes.io/instance-type": "p4d.24xlarge"});
    let allocatable = json!({"cpu": "95910m", "memory": "1045504Mi", "nvidia.com/gpu": "8"});
    let json = json!({"metadata": {"name": "n", "uid": "n", "resourceVersion": "5", "labels": labels},
        "spec": {"providerID": "aws:///z/i-1"},
        "status": {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]}});
    KubeObject::of_json(Resource::Nodes, json).expect("a node")
}

fn view(known: NodeReserve) -> EngineView {
    let of = NodeTypeView { room: room(96_000, 1 << 20), reserve: known };
    EngineView { node_types: BTreeMap::from([("p4d.24xlarge".to_owned(), of)]), ..EngineView::default() }
}

fn page(objects: Vec<KubeObject>) -> KubeResponse {
    KubeResponse::Page { objects, continue_token: None, resource_version: "10".into() }
}

/// A machine that has listed these nodes and DaemonSets, and the watches that it opened.
fn listed(
    known: NodeReserve,
    nodes: &[KubeObject],
    sets: KubeResponse,
) -> (KubeMachine, BTreeMap<Resource, KubeCallId>) {
    let mut kube = KubeMachine::new(KubeSettings::new("jobs", "forebay:1"), "j");
    kube.begin(view(known));
    for (id, call) in kube.poll(NOW) {
        let KubeCall::List { resource, namespace, .. } = call else { panic!("{call:?}") };
        let response = match resource {
            Resource::Nodes => page(nodes.to_vec()),
            Resource::DaemonSets => {
                assert_eq!(namespace, None, "DaemonSets of all namespaces come with a node");
                sets.clone()
            }
            _ => page(Vec::new()),
        };
        kube.handle_response(id, response, NOW);
    }
    let calls = kube.poll(NOW);
    let watch = |(id, call)| if let KubeCall::Watch { resource, .. } = call { Some((resource, id)) } else { None };
    let watches = calls.into_iter().filter_map(watch).collect();
    (kube, watches)
}

/// What the engine is told now.
fn told(kube: &mut KubeMachine) -> Vec<NodeReserve> {
    let reserve = |report| match report {
        KubeReport::Event(Event::NodeReserved { instance_type, reserve }) => {
            assert_eq!(instance_type, "p4d.24xlarge");
            Some(reserve)
        }
        _ => None,
    };
    kube.take_reports().into_iter().filter_map(reserve).collect()
}

#[test]
fn what_daemon_sets_request_is_told_before_a_node_is_there_and_again_when_it_changes() {
    let sets = page(vec![
        daemon_set("cni", 3, "250m", everywhere()),
        daemon_set("dcgm", 4, "100m", json!([{"key": "forebay.dev/node", "operator": "Exists"}])),
        daemon_set("elsewhere", 5, "4", json!([])),
    ]);
    let (mut kube, watches) = listed(NodeReserve::default(), &[], sets);
    let first = NodeReserve { daemons: room(350, 200), ..NodeReserve::default() };
    assert_eq!(told(&mut kube), [first]);
    // Nothing more is said while the engine shows it; said again where it does not.
    kube.handle_state(view(first));
    let _ = kube.poll(NOW);
    assert!(told(&mut kube).is_empty());
    let change = |set| WatchChange::Applied(Box::new(set));
    let watch = watches[&Resource::DaemonSets];
    kube.handle_watch(WatchEvent { watch, change: change(daemon_set("cni", 11, "1", everywhere())) }, NOW);
    let _ = kube.poll(NOW);
    let grown = NodeReserve { daemons: room(1_100, 200), ..first };
    assert_eq!(told(&mut kube), [grown]);
    let again = NOW + Span::secs(60);
    assert!(kube.next_timeout(NOW) <= again);
    let _ = kube.poll(Timestamp(again.0 - 1));
    assert!(told(&mut kube).is_empty());
    let _ = kube.poll(again);
    assert_eq!(told(&mut kube), [grown], "an event that was lost does no harm");
    let gone = WatchChange::Deleted(Box::new(daemon_set("cni", 12, "1", everywhere())));
    kube.handle_watch(WatchEvent { watch, change: gone }, again);
    let _ = kube.poll(again);
    assert_eq!(told(&mut kube), [NodeReserve { daemons: room(100, 100), ..first }]);
}

#[test]
fn what_the_system_of_a_node_keeps_is_learned_from_the_first_one_and_stays() {
    let (mut kube, watches) = listed(NodeReserve::default(), &[node()], page(Vec::new()));
    // Up to 256 MiB more: nodes of one type differ by a few pages.
    let known = NodeReserve { system: room(90, 3_072), ..NodeReserve::default() };
    assert_eq!(told(&mut kube), [known]);
    kube.handle_state(view(known));
    let change = WatchChange::Deleted(Box::new(node()));
    kube.handle_watch(WatchEvent { watch: watches[&Resource::Nodes], change }, NOW);
    let _ = kube.poll(NOW);
    assert!(told(&mut kube).is_empty(), "the next node of that type will keep as much");
}

#[test]
fn without_the_right_to_see_daemon_sets_gangs_go_on_and_what_is_known_stays() {
    let known = NodeReserve { daemons: room(500, 300), ..NodeReserve::default() };
    let denied = KubeResponse::Refused(KubeError::of_status(403, "Forbidden", "cannot list daemonsets"));
    let (mut kube, _) = listed(known, &[], denied);
    let reports = kube.take_reports();
    assert!(reports.contains(&KubeReport::Listed), "{reports:?}");
    assert!(
        reports.iter().any(|report| matches!(report, KubeReport::Failing { operation: "list objects", .. })),
        "{reports:?}"
    );
    assert!(!reports.iter().any(|report| matches!(report, KubeReport::Event(_))), "{reports:?}");
}
