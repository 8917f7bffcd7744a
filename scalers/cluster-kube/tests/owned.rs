//! Nodes that nobody bought: what the engine is told of them as pods of others come and go, and what it is not told.

use forebay_cluster_kube::names::pod_name;
use forebay_cluster_kube::view::{ClaimPhase, ClaimView, OwnedClaim, RunStage, RunView};
use forebay_cluster_kube::{
    EngineView, KubeCall, KubeCallId, KubeMachine, KubeObject, KubeReport, KubeResponse, KubeSettings, ObjectSelector,
    Resource, RunId, WatchChange, WatchEvent, WorkerId,
};
use forebay_kernel::event::Event;
use forebay_kernel::ids::{Attempt, JobId, NodeId};
use forebay_kernel::state::owned::{OwnedNode, OwnedPool};
use forebay_kernel::units::{Mib, MilliCpu, Rate, Span, Timestamp};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

const NOW: Timestamp = Timestamp(1_800_000_000_000);

fn node(version: u64, labels: Value, spec: Value) -> KubeObject {
    let mut all = json!({"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.count": "8", "nvidia.com/gpu.memory": "81559",
        "node.kubernetes.io/instance-type": "rack-7", "topology.kubernetes.io/zone": "home"});
    for (key, value) in labels.as_object().expect("labels") {
        all[key] = value.clone();
    }
    let resources = json!({"nvidia.com/gpu": "8", "cpu": "63500m", "memory": "1056Mi"});
    let json = json!({"metadata": {"name": "gpu-1", "uid": "u", "resourceVersion": version.to_string(), "labels": all}, "spec": spec,
        "status": {"allocatable": resources, "capacity": resources, "conditions": [{"type": "Ready", "status": "True"}]}});
    KubeObject::of_json(Resource::Nodes, json).expect("a node")
}

fn lab() -> Value {
    json!({"team": "lab"})
}

fn pod(name: &str, version: u64, gpus: u64, phase: &str) -> KubeObject {
    let json = json!({"metadata": {"name": name, "namespace": "ml", "uid": name, "resourceVersion": version.to_string()},
        "spec": {"nodeName": "gpu-1", "overhead": {"cpu": "100m"},
            "initContainers": [
                {"name": "sidecar", "restartPolicy": "Always", "resources": {"requests": {"cpu": "200m"}}},
                {"name": "fetch", "resources": {"requests": {"cpu": "3", "memory": "1Gi"}}}],
            "containers": [{"name": "a", "resources": {"requests": {"nvidia.com/gpu": gpus.to_string(), "cpu": "1", "memory": "16Mi"}}}]},
        "status": {"phase": phase}});
    KubeObject::of_json(Resource::Pods, json).expect("a pod")
}

fn view(known: Option<&OwnedNode>) -> EngineView {
    let pool = OwnedPool { labels: [("team".into(), vec!["lab".into()])].into(), price: Rate(0) };
    let owned = |known: &OwnedNode| Some(OwnedClaim::Here(Box::new(known.clone())));
    let claim = |known: &OwnedNode| ClaimView {
        node: NodeId(1),
        phase: ClaimPhase::Ready,
        offers: BTreeMap::new(),
        owned: owned(known),
    };
    EngineView {
        claims: known.map(|known| (known.name.clone(), claim(known))).into_iter().collect(),
        owned_pools: [("lab".to_owned(), pool)].into(),
        ..EngineView::default()
    }
}

/// A machine that has listed this node and these pods, and the watch of pods.
fn listed(node: &KubeObject, pods: &[KubeObject]) -> (KubeMachine, KubeCallId) {
    let mut kube = KubeMachine::new(KubeSettings::new("jobs", "forebay:1"), "j");
    kube.begin(view(None));
    for (id, call) in kube.poll(NOW) {
        let KubeCall::List { resource, selector, .. } = call else { panic!("{call:?}") };
        let objects = match resource {
            Resource::Nodes => vec![node.clone()],
            Resource::Pods => {
                assert_eq!(selector, ObjectSelector::All, "what others hold has to be seen");
                pods.to_vec()
            }
            _ => Vec::new(),
        };
        let page = KubeResponse::Page { objects, continue_token: None, resource_version: "10".into() };
        kube.handle_response(id, page, NOW);
    }
    let calls = kube.poll(NOW);
    let watch = |(_, call): &&(KubeCallId, KubeCall)| matches!(call, KubeCall::Watch { resource: Resource::Pods, .. });
    let watch = calls.iter().find(watch).expect("pods are watched").0;
    (kube, watch)
}

fn events(kube: &mut KubeMachine) -> Vec<Event> {
    let event = |report| if let KubeReport::Event(event) = report { Some(event) } else { None };
    kube.take_reports().into_iter().filter_map(event).collect()
}

fn seen(kube: &mut KubeMachine) -> OwnedNode {
    let events = events(kube);
    let [Event::OwnedNodeSeen(node)] = &events[..] else { panic!("{events:?}") };
    (**node).clone()
}

#[test]
fn pods_of_others_hold_a_part_of_an_owned_node() {
    let (mut kube, watch) =
        listed(&node(5, lab(), json!({})), &[pod("notebook", 6, 3, "Running"), pod("done", 7, 4, "Succeeded")]);
    let first = seen(&mut kube);
    assert_eq!((first.pool.as_str(), first.shape.gpus, first.open), ("lab", 8, true));
    assert_eq!((first.shape.cpu, first.shape.mem, first.shape.gpu_mem), (MilliCpu(63_500), Mib(1024), Mib(81_559)));
    assert_eq!(first.shape.models[..2], ["nvidia-h100-80gb-hbm3", "h100"].map(str::to_owned));
    // The init container takes more than what follows it, beside the sidecar; the overhead comes on top.
    assert_eq!((first.foreign.gpus, first.foreign.cpu, first.foreign.mem), (3, MilliCpu(3_300), Mib(1024)));
    assert_eq!(first.foreign.by, "ml/notebook");
    // Nothing more is said while that is known.
    kube.handle_state(view(Some(&first)));
    assert!(kube.poll(NOW).is_empty() && events(&mut kube).is_empty());
    // It ends; another comes and goes.
    let change = WatchChange::Applied(Box::new(pod("notebook", 11, 3, "Succeeded")));
    kube.handle_watch(WatchEvent { watch, change }, NOW);
    let _ = kube.poll(NOW);
    let freed = seen(&mut kube);
    assert_eq!((freed.foreign.gpus, freed.foreign.by.as_str()), (0, ""));
    kube.handle_state(view(Some(&freed)));
    for (change, gpus) in [
        (WatchChange::Applied(Box::new(pod("other", 12, 8, "Pending"))), 8),
        (WatchChange::Deleted(Box::new(pod("other", 13, 8, "Running"))), 0),
    ] {
        kube.handle_watch(WatchEvent { watch, change }, NOW);
        let _ = kube.poll(NOW);
        let now = seen(&mut kube);
        assert_eq!(now.foreign.gpus, gpus);
        kube.handle_state(view(Some(&now)));
    }
}

#[test]
fn a_copy_of_a_workers_pod_holds_a_part_of_an_owned_node_as_a_pod_of_others_does() {
    let KubeObject::Pod(mut copy) = pod("a-1-0-copy", 6, 3, "Running") else { panic!("a pod") };
    copy.metadata.labels.insert("forebay.dev/journal".to_owned(), "j".to_owned());
    for (key, value) in [("forebay.dev/effect", "j-7"), ("forebay.dev/worker", "job-1/1/0")] {
        copy.metadata.annotations.insert(key.to_owned(), value.to_owned());
    }
    let (mut kube, _) = listed(&node(5, lab(), json!({})), &[KubeObject::Pod(copy)]);
    let first = seen(&mut kube);
    assert_eq!((first.foreign.gpus, first.foreign.by.as_str()), (3, "ml/a-1-0-copy"));
}

#[test]
fn what_the_engine_does_not_show_is_said_again_and_no_more_often() {
    let (mut kube, _) = listed(&node(5, lab(), json!({})), &[]);
    let first = seen(&mut kube);
    let again = NOW + Span::secs(60);
    assert!(kube.next_timeout(NOW) <= again);
    let _ = kube.poll(Timestamp(again.0 - 1));
    assert!(events(&mut kube).is_empty());
    let _ = kube.poll(again);
    assert_eq!(seen(&mut kube), first);
}

#[test]
fn a_node_is_closed_while_it_is_cordoned_and_leaves_with_its_label() {
    let unready = json!({"taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}]});
    for spec in [json!({"unschedulable": true}), unready, json!({"taints": [{"key": "repair", "effect": "NoExecute"}]})]
    {
        let (mut kube, _) = listed(&node(5, lab(), spec.clone()), &[]);
        assert!(!seen(&mut kube).open, "{spec}");
    }
    let (mut kube, _) =
        listed(&node(5, lab(), json!({"taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]})), &[]);
    let first = seen(&mut kube);
    assert!(first.open, "whoever names a node by its label wants work on it");
    kube.handle_state(view(Some(&first)));
    let (mut kube, _) = {
        let (mut other, watch) = listed(&node(5, json!({}), json!({})), &[]);
        other.handle_state(view(Some(&first)));
        let _ = other.poll(NOW);
        (other, watch)
    };
    assert_eq!(events(&mut kube), [Event::OwnedNodeLeft { name: "gpu-1".into() }]);
}

#[test]
fn nodes_that_were_bought_and_nodes_that_no_pool_names_are_not_owned() {
    for labels in [json!({"team": "lab", "forebay.dev/node": "true"}), json!({"team": "web"}), json!({})] {
        let (mut kube, _) = listed(&node(5, labels.clone(), json!({})), &[]);
        assert!(events(&mut kube).is_empty(), "{labels}");
    }
}

/// The owned node in one of its boots.
fn booted(version: u64, boot: &str) -> KubeObject {
    let KubeObject::Node(mut node) = node(version, lab(), json!({})) else { panic!("a node") };
    node.status.node_info.boot_id = boot.to_owned();
    KubeObject::Node(node)
}

/// A machine with a worker on the owned node whose end nobody has proven, its watch of nodes, and its call for the node's boot.
fn held(boot: &str) -> (KubeMachine, KubeCallId, KubeCallId) {
    let (mut first, _) = listed(&booted(5, boot), &[]);
    let mut known = view(Some(&seen(&mut first)));
    let runs = RunView {
        tenant: "me".into(),
        subject: "a".into(),
        namespace: "jobs".into(),
        stage: RunStage::Running,
        workers: BTreeMap::from([(0, Some("gpu-1".to_owned()))]),
        done: BTreeSet::new(),
        left: BTreeSet::new(),
        confirmed_dead: BTreeSet::new(),
    };
    let run = RunId { job: JobId(1), attempt: Attempt(1) };
    known.runs.insert(run, runs);
    let name = pod_name("a", WorkerId { run, worker: 0 }, "j-7");
    let annotations =
        json!({"forebay.dev/effect": "j-7", "forebay.dev/worker": "job-1/1/0", "forebay.dev/instance": "gpu-1"});
    let lost = json!({"metadata": {"name": name, "namespace": "jobs", "uid": "w", "resourceVersion": "9",
            "labels": {"forebay.dev/journal": "j"}, "annotations": annotations},
        "spec": {"nodeName": "gpu-1", "containers": [{"name": "worker"}]}, "status": {"phase": "Failed", "reason": "NodeLost"}});
    let mut kube = KubeMachine::new(KubeSettings::new("jobs", "forebay:1"), "j");
    kube.begin(known);
    for (id, call) in kube.poll(NOW) {
        let objects = match call {
            KubeCall::List { resource: Resource::Nodes, .. } => vec![booted(5, boot)],
            KubeCall::List { resource: Resource::Pods, .. } => {
                vec![KubeObject::of_json(Resource::Pods, lost.clone()).expect("a pod")]
            }
            _ => Vec::new(),
        };
        let page = KubeResponse::Page { objects, continue_token: None, resource_version: "10".into() };
        kube.handle_response(id, page, NOW);
    }
    let calls = kube.poll(NOW);
    let watches =
        |(_, call): &&(KubeCallId, KubeCall)| matches!(call, KubeCall::Watch { resource: Resource::Nodes, .. });
    let watch = calls.iter().find(watches).expect("nodes are watched").0;
    let read = read_of(&calls).expect("its boot is read");
    (kube, watch, read)
}

/// The call for the node among these.
fn read_of(calls: &[(KubeCallId, KubeCall)]) -> Option<KubeCallId> {
    let reads = |(_, call): &&(KubeCallId, KubeCall)| matches!(call, KubeCall::Get { resource: Resource::Nodes, .. });
    calls.iter().find(reads).map(|(id, _)| *id)
}

#[test]
fn another_boot_of_an_owned_node_proves_the_end_of_what_ran_there() {
    let (mut kube, watch, read) = held("b-1");
    kube.handle_response(read, KubeResponse::Object(Box::new(booted(5, "b-1"))), NOW);
    let later = NOW + Span::secs(60);
    assert_eq!(read_of(&kube.poll(later)), None, "it is known");
    let failed = Event::RunFailed { job: JobId(1), attempt: Attempt(1), exit_code: 137, node_fault: Some(NodeId(1)) };
    assert!(!events(&mut kube).contains(&failed), "it is held");
    let change = WatchChange::Applied(Box::new(booted(11, "b-2")));
    kube.handle_watch(WatchEvent { watch, change }, later);
    let _ = kube.poll(later);
    let events = events(&mut kube);
    assert!(events.contains(&failed), "{events:?}");
}

#[test]
fn a_node_that_does_not_say_its_boot_is_asked_again_after_a_pause() {
    let (mut kube, _, read) = held("");
    kube.handle_response(read, KubeResponse::Object(Box::new(booted(5, ""))), NOW);
    assert_eq!(read_of(&kube.poll(Timestamp((NOW + Span::secs(30)).0 - 1))), None);
    assert!(read_of(&kube.poll(NOW + Span::secs(30))).is_some());
}
