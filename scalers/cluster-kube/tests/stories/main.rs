//! Stories of single nodes and gangs: a drain while a pod binds, a node that gets ready, a name that is taken, a kubelet that refuses.

mod adopted;
mod endings;
mod outages;
mod strangers;

use forebay_cluster_kube::request::WorkerRequest;
use forebay_cluster_kube::view::{ClaimPhase, ClaimView, RunStage, RunView, StoppedFrom};
use forebay_cluster_kube::{
    EngineView, GangRequest, GangStart, KubeCall, KubeCallId, KubeError, KubeMachine, KubeObject, KubeReport,
    KubeResponse, KubeSettings, ObjectSelector, Resource, RunId, RunToken, WatchChange, WatchEvent,
};
use forebay_kernel::event::Event;
use forebay_kernel::ids::{Attempt, JobId, NodeId};
use forebay_kernel::units::{Span, Timestamp};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

const NOW: Timestamp = Timestamp(1_800_000_000_000);

fn run() -> RunId {
    RunId { job: JobId(1), attempt: Attempt(1) }
}

fn start() -> GangStart {
    GangStart::Run(Box::new(request("j", "j-7")))
}

/// A gang of one on the node, for an effect of a journal.
fn request(journal: &str, effect: &str) -> GangRequest {
    let worker =
        WorkerRequest { instance: Some("i-1".into()), gpus: 1, requests: BTreeMap::new(), limits: BTreeMap::new() };
    GangRequest {
        effect: effect.into(),
        journal: journal.into(),
        job: 1,
        attempt: 1,
        subject: "a".into(),
        namespace: "jobs".into(),
        service: "gang-1-1-x".into(),
        pod: json!({"spec": {"containers": [{"name": "worker"}]}}),
        container: "worker".into(),
        workers: vec![worker],
        min_workers: 1,
        master_port: 29_500,
        env: Vec::new(),
    }
}

/// What the engine knows of that gang while it runs.
fn run_view(confirmed_dead: BTreeSet<u32>) -> RunView {
    RunView {
        tenant: "me".into(),
        subject: "a".into(),
        namespace: "jobs".into(),
        stage: RunStage::Running,
        workers: BTreeMap::from([(0, Some("i-1".to_owned()))]),
        done: BTreeSet::new(),
        left: BTreeSet::new(),
        confirmed_dead,
    }
}

fn view(phase: ClaimPhase) -> EngineView {
    let offers = BTreeMap::from([("nvidia.com/gpu".to_owned(), 1)]);
    let claim = ClaimView { node: NodeId(1), phase, offers, owned: None };
    EngineView { claims: BTreeMap::from([("i-1".to_owned(), claim)]), ..EngineView::default() }
}

fn node(version: u64, spec: Value) -> KubeObject {
    let mut spec = spec;
    spec["providerID"] = json!("aws:///z/i-1");
    let json = json!({"metadata": {"name": "n", "uid": "u", "resourceVersion": version.to_string()}, "spec": spec,
        "status": {"allocatable": {"nvidia.com/gpu": "1"}, "conditions": [{"type": "Ready", "status": "True"}]}});
    KubeObject::of_json(Resource::Nodes, json).unwrap()
}

fn pod(version: u64, extra: Value) -> KubeObject {
    let mut json =
        json!({"metadata": {"name": "p", "namespace": "others", "uid": "p", "resourceVersion": version.to_string()}});
    for (name, value) in extra.as_object().unwrap() {
        json[name] = value.clone();
    }
    KubeObject::of_json(Resource::Pods, json).unwrap()
}

fn page(objects: Vec<KubeObject>) -> KubeResponse {
    KubeResponse::Page { objects, continue_token: None, resource_version: "10".into() }
}

/// A machine that has listed one node, and nothing else.
fn listed(phase: ClaimPhase, node: KubeObject) -> KubeMachine {
    listed_with(KubeSettings::new("jobs", "forebay:1"), phase, node)
}

fn listed_with(settings: KubeSettings, phase: ClaimPhase, node: KubeObject) -> KubeMachine {
    let mut kube = KubeMachine::new(settings, "j");
    kube.begin(view(phase));
    for (id, call) in kube.poll(NOW) {
        let KubeCall::List { resource, .. } = call else { panic!("{call:?}") };
        let objects = if resource == Resource::Nodes { vec![node.clone()] } else { Vec::new() };
        kube.handle_response(id, page(objects), NOW);
    }
    assert_eq!(kube.take_reports(), [KubeReport::Listed]);
    let watches = kube.poll(NOW);
    assert!(watches.iter().filter(|(_, call)| matches!(call, KubeCall::Watch { .. })).count() == 3, "{watches:?}");
    kube
}

fn one(calls: Vec<(KubeCallId, KubeCall)>) -> (KubeCallId, KubeCall) {
    assert_eq!(calls.len(), 1, "{calls:?}");
    calls.into_iter().next().unwrap()
}

#[test]
fn a_node_to_which_a_pod_binds_while_it_is_drained_is_not_given_back() {
    let mut kube = listed(ClaimPhase::Leaving, node(5, json!({})));
    kube.drain("i-1");
    let (id, call) = one(kube.poll(NOW));
    let KubeCall::Apply { resource: Resource::Nodes, body, .. } = call else { panic!("{call:?}") };
    assert_eq!(body["spec"]["unschedulable"], true);
    kube.handle_response(id, KubeResponse::Object(Box::new(node(11, json!({"unschedulable": true})))), NOW);
    // Nothing is asked before a Binding that was decided has had time to arrive.
    let settled = NOW + Span::secs(10);
    assert!(kube.poll(Timestamp(settled.0 - 1)).is_empty() && kube.take_reports().is_empty());
    let (id, call) = one(kube.poll(settled));
    assert!(matches!(call, KubeCall::List { selector: ObjectSelector::OnNode(_), .. }), "{call:?}");
    kube.handle_response(id, page(vec![pod(12, json!({"spec": {"nodeName": "n"}}))]), settled);
    assert_eq!(
        kube.take_reports(),
        [KubeReport::DrainBlocked { instance: "i-1".into(), pods: vec!["others/p".into()] }]
    );
    // The foreign pod is asked to go, as its budget allows, and its uid says that it is this one.
    let (id, call) = one(kube.poll(settled));
    assert_eq!(call, KubeCall::Evict { namespace: "others".into(), pod: "p".into(), uid: "p".into() });
    kube.handle_response(id, KubeResponse::Done, settled);
    // A list that fails is no empty one.
    let (id, _) = one(kube.poll(settled + Span::secs(10)));
    kube.handle_response(
        id,
        KubeResponse::Refused(KubeError::of_status(403, "Forbidden", "no")),
        settled + Span::secs(10),
    );
    assert!(kube.take_reports().is_empty());
    let (id, _) = one(kube.poll(settled + Span::secs(20)));
    let daemon = json!({"spec": {"nodeName": "n"}, "metadata": {"name": "d", "ownerReferences": [{"kind": "DaemonSet", "name": "d"}]}});
    let ended = json!({"spec": {"nodeName": "n"}, "status": {"phase": "Succeeded"}});
    kube.handle_response(id, page(vec![pod(13, daemon), pod(14, ended)]), settled + Span::secs(20));
    assert_eq!(kube.take_reports(), [KubeReport::Drained { instance: "i-1".into() }]);
}

#[test]
fn a_disruption_budget_keeps_a_foreign_pod_until_the_operators_deadline_and_stops_nothing_else() {
    for (code, reason, budget) in [
        (429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget."),
        (
            500,
            "InternalError",
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
        ),
    ] {
        let settings = KubeSettings { evict_deadline: Some(Span::secs(60)), ..KubeSettings::new("jobs", "forebay:1") };
        let mut kube = listed_with(settings, ClaimPhase::Leaving, node(5, json!({})));
        kube.drain("i-1");
        let (id, _) = one(kube.poll(NOW));
        kube.handle_response(id, KubeResponse::Object(Box::new(node(11, json!({"unschedulable": true})))), NOW);
        let bound = || page(vec![pod(12, json!({"spec": {"nodeName": "n"}}))]);
        let mut blocked = Vec::new();
        for look in 1..=5 {
            let at = NOW + Span::secs(10 * look);
            let (id, call) = one(kube.poll(at));
            assert!(matches!(call, KubeCall::List { .. }), "{look}: {call:?}");
            kube.handle_response(id, bound(), at);
            // Asked again with each look, with no growing delay: a budget is no sign of too many calls.
            let (id, call) = one(kube.poll(at));
            assert!(matches!(call, KubeCall::Evict { .. }), "{look}: {call:?}");
            kube.handle_response(id, KubeResponse::Refused(KubeError::of_status(code, reason, budget)), at);
            blocked.extend(kube.take_reports());
        }
        let told = |pods: &str| KubeReport::DrainBlocked { instance: "i-1".into(), pods: vec![pods.into()] };
        assert_eq!(blocked, [told("others/p"), told(&format!("others/p ({budget})"))], "said once each");
        let at = NOW + Span::secs(60);
        let (id, _) = one(kube.poll(at));
        kube.handle_response(id, bound(), at);
        assert_eq!(kube.take_reports(), [KubeReport::Drained { instance: "i-1".into() }]);
    }
}

#[test]
fn a_node_is_ready_when_its_network_is_there_and_its_start_up_taint_is_gone() {
    let taint = |key: &str| json!({"key": key, "effect": "NoSchedule"});
    let starting = [taint("forebay.dev/starting"), taint("node.cilium.io/agent-not-ready"), taint("team")];
    let mut kube = listed(ClaimPhase::Booting, node(5, json!({"taints": starting})));
    assert!(kube.poll(NOW).is_empty() && kube.take_reports().is_empty());
    // Without the network's taint, its start-up taint goes, and that of others stays.
    let mut kube = KubeMachine::new(KubeSettings::new("jobs", "forebay:1"), "j");
    kube.begin(view(ClaimPhase::Booting));
    let seen = node(6, json!({"taints": [taint("forebay.dev/starting"), taint("team")]}));
    for (id, call) in kube.poll(NOW) {
        let of_nodes = matches!(call, KubeCall::List { resource: Resource::Nodes, .. });
        kube.handle_response(id, page(if of_nodes { vec![seen.clone()] } else { Vec::new() }), NOW);
    }
    let calls = kube.poll(NOW);
    let merge = calls
        .iter()
        .find_map(|(id, call)| if let KubeCall::Merge { body, .. } = call { Some((*id, body.clone())) } else { None });
    let (id, body) = merge.expect("the taints are set");
    assert_eq!(body["metadata"]["resourceVersion"], "6");
    assert_eq!(body["spec"]["taints"], json!([taint("team"), taint("forebay.dev/node")]));
    assert_eq!(kube.take_reports(), [KubeReport::Listed]);
    kube.handle_response(id, KubeResponse::Object(Box::new(node(11, json!({"taints": body["spec"]["taints"]})))), NOW);
    assert_eq!(kube.take_reports(), [KubeReport::Event(Event::NodeReady { instance: "i-1".into() })]);
}

/// A gang of one whose Service and ConfigMap exist, and the number of its pod's creation with the pod.
fn creating() -> (KubeMachine, KubeCallId, Value) {
    let mut kube = listed(ClaimPhase::Ready, node(5, json!({})));
    kube.start(start(), RunToken::new("t0ken".to_owned()));
    for (id, call) in kube.poll(NOW) {
        let KubeCall::Create { resource, mut body, .. } = call else { panic!("{call:?}") };
        body["metadata"]["uid"] = json!(if resource == Resource::Services { "s" } else { "c" });
        kube.handle_response(id, KubeResponse::Object(Box::new(KubeObject::of_json(resource, *body).unwrap())), NOW);
    }
    let (id, call) = one(kube.poll(NOW));
    assert!(!format!("{call:?}").contains("t0ken"), "it is not printed");
    let KubeCall::CreateSecret { body, .. } = call else { panic!("{call:?}") };
    let secret = body.reveal().clone();
    assert_eq!(secret["stringData"]["token"], "t0ken");
    assert_eq!(secret["metadata"]["ownerReferences"][0]["uid"], "s", "it goes with the Service");
    kube.handle_response(
        id,
        KubeResponse::Object(Box::new(KubeObject::of_json(Resource::Secrets, secret).unwrap())),
        NOW,
    );
    let (id, call) = one(kube.poll(NOW));
    let KubeCall::Create { resource: Resource::Pods, body, .. } = call else { panic!("{call:?}") };
    (kube, id, *body)
}

#[test]
fn a_role_that_an_api_server_has_not_read_yet_refuses_no_gang_and_one_that_is_not_there_does() {
    let words =
        "pods is forbidden: User \"f\" cannot create resource \"pods\" in API group \"\" in the namespace \"jobs\"";
    let (mut kube, mut id, _) = creating();
    let (mut now, mut tries) = (NOW, 0);
    let refused = loop {
        kube.handle_response(id, KubeResponse::Refused(KubeError::of_status(403, "Forbidden", words)), now);
        tries += 1;
        let reports = kube.take_reports();
        if let Some(KubeReport::Refused { words, .. }) =
            reports.iter().find(|report| matches!(report, KubeReport::Refused { .. }))
        {
            break words.clone();
        }
        let asked = loop {
            now = now + Span::secs(1);
            // What exists is not known: it is read, and is not there.
            let (creations, reads): (Vec<_>, Vec<_>) =
                kube.poll(now).into_iter().partition(|(_, call)| matches!(call, KubeCall::Create { .. }));
            for (read, _) in reads {
                kube.handle_response(read, KubeResponse::Refused(KubeError::of_status(404, "NotFound", "no")), now);
            }
            if let Some((creation, _)) = creations.first() {
                break *creation;
            }
            assert!(now < NOW + Span::mins(10), "it is tried again");
        };
        id = asked;
    };
    assert!(refused.contains("cannot create"), "{refused}");
    assert!(now >= NOW + Span::secs(60) && tries > 3, "{tries} tries until {now:?}");
}

fn stopped() -> KubeReport {
    KubeReport::Event(Event::RunStopped { job: JobId(1), attempt: Attempt(1), progress: None })
}

#[test]
fn what_the_api_server_denies_is_said_in_its_own_words() {
    let (mut kube, id, _) = creating();
    let words = "admission webhook \"images\" denied the request: not signed";
    kube.handle_response(id, KubeResponse::Refused(KubeError::of_status(400, "BadRequest", words)), NOW);
    assert!(kube.poll(NOW).is_empty());
    let refused = KubeReport::Refused { run: run(), words: format!("BadRequest: {words}") };
    assert_eq!(kube.take_reports(), [refused, stopped()]);
}

#[test]
fn a_name_that_is_taken_is_ours_only_if_its_effect_agrees() {
    for (effect, ours) in [("j-7", true), ("j-6", false), ("k-7", false)] {
        let (mut kube, id, mut body) = creating();
        kube.handle_response(id, KubeResponse::Refused(KubeError::of_status(409, "AlreadyExists", "exists")), NOW);
        let (id, call) = one(kube.poll(NOW));
        assert!(matches!(call, KubeCall::Get { resource: Resource::Pods, .. }), "{call:?}");
        body["metadata"]["annotations"]["forebay.dev/effect"] = json!(effect);
        kube.handle_response(
            id,
            KubeResponse::Object(Box::new(KubeObject::of_json(Resource::Pods, body).unwrap())),
            NOW,
        );
        let binds = kube.poll(NOW).iter().any(|(_, call)| matches!(call, KubeCall::Bind { .. }));
        assert_eq!(binds, ours, "{effect}");
        let refused = kube
            .take_reports()
            .iter()
            .any(|r| matches!(r, KubeReport::Refused { words, .. } if words.starts_with("AlreadyExists")));
        assert_eq!(refused, !ours, "{effect}");
    }
}

#[test]
fn a_kubelet_that_refuses_a_pod_uses_up_no_attempt() {
    let (mut kube, id, mut body) = creating();
    body["metadata"]["resourceVersion"] = json!("20");
    kube.handle_response(
        id,
        KubeResponse::Object(Box::new(KubeObject::of_json(Resource::Pods, body.clone()).unwrap())),
        NOW,
    );
    let (id, call) = one(kube.poll(NOW));
    assert!(matches!(&call, KubeCall::Bind { node, .. } if node == "n"), "{call:?}");
    kube.handle_response(id, KubeResponse::Done, NOW);
    let (id, _) = one(kube.poll(NOW));
    body["metadata"]["resourceVersion"] = json!("21");
    body["spec"]["nodeName"] = json!("n");
    body["status"] = json!({"phase": "Failed", "reason": "OutOfnvidia.com/gpu", "message": "requested 1, used 1"});
    // Here the refusal is seen by the response to a read, as a watch would show it.
    kube.handle_response(id, KubeResponse::Refused(KubeError::of_status(409, "Conflict", "changed")), NOW);
    for (id, call) in kube.poll(NOW) {
        let response = match call {
            KubeCall::Create { body, resource, .. } => {
                KubeResponse::Object(Box::new(KubeObject::of_json(resource, *body).unwrap()))
            }
            other => panic!("{other:?}"),
        };
        kube.handle_response(id, response, NOW);
    }
    let (id, _) = one(kube.poll(NOW));
    kube.handle_response(id, KubeResponse::Object(Box::new(KubeObject::Other(Default::default()))), NOW);
    let (id, call) = one(kube.poll(NOW));
    assert!(matches!(call, KubeCall::Merge { resource: Resource::Pods, .. }), "{call:?}");
    kube.handle_response(id, KubeResponse::Object(Box::new(KubeObject::of_json(Resource::Pods, body).unwrap())), NOW);
    assert!(kube.poll(NOW).is_empty());
    let refused = KubeReport::Refused { run: run(), words: "OutOfnvidia.com/gpu: requested 1, used 1".into() };
    assert_eq!(kube.take_reports(), [refused, stopped()]);
}

#[test]
fn a_namespace_whose_role_is_gone_keeps_no_other_from_being_listed() {
    let mut settings = KubeSettings::new("jobs", "forebay:1");
    settings.namespaces.insert("research".into(), "gone".into());
    let mut kube = KubeMachine::new(settings, "j");
    kube.begin(view(ClaimPhase::Ready));
    let (mut denied, mut listed) = (0, 0);
    for _ in 0..4 {
        for (id, call) in kube.poll(NOW) {
            let KubeCall::List { namespace, .. } = &call else { continue };
            let response = if namespace.as_deref() == Some("gone") {
                denied += 1;
                KubeResponse::Refused(KubeError::of_status(403, "Forbidden", "no role"))
            } else {
                listed += 1;
                page(Vec::new())
            };
            kube.handle_response(id, response, NOW);
        }
    }
    assert_eq!(
        (denied, listed),
        (2, 5),
        "Services and ConfigMaps of each namespace, and all pods, nodes and DaemonSets"
    );
    let reports = kube.take_reports();
    assert!(reports.contains(&KubeReport::Listed), "{reports:?}");
    assert!(reports.iter().any(|report| matches!(report, KubeReport::Failing { .. })), "{reports:?}");
}

/// A machine that begins with a worker that ended with 0 at 11:00:05, and whose pod was deleted then, with this grace; and what it reports.
fn deleted(settings: KubeSettings, deletion: &str, grace: u64) -> (KubeMachine, Vec<KubeReport>) {
    let ended = json!({"terminated": {"exitCode": 0, "finishedAt": "2026-11-24T11:00:05Z"}});
    let status = json!({"phase": "Succeeded", "containerStatuses": [{"name": "worker", "state": ended}]});
    deleted_with(settings, deletion, grace, status)
}

/// The same of a pod with this status.
fn deleted_with(settings: KubeSettings, deletion: &str, grace: u64, status: Value) -> (KubeMachine, Vec<KubeReport>) {
    let GangStart::Run(request) = start() else { panic!("a gang") };
    let mut body = request.pod_body(0).expect("a pod");
    body["metadata"]["uid"] = json!("u-1");
    body["metadata"]["resourceVersion"] = json!("9");
    body["metadata"]["deletionTimestamp"] = json!(deletion);
    body["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
    body["spec"]["nodeName"] = json!("n");
    body["status"] = status;
    let pod = KubeObject::of_json(Resource::Pods, body).unwrap();
    let mut view = view(ClaimPhase::Ready);
    view.runs.insert(run(), run_view(BTreeSet::new()));
    let mut kube = KubeMachine::new(settings, "j");
    kube.begin(view);
    for (id, call) in kube.poll(NOW) {
        let KubeCall::List { resource, .. } = call else { panic!("{call:?}") };
        let objects = match resource {
            Resource::Nodes => vec![node(5, json!({}))],
            Resource::Pods => vec![pod.clone()],
            _ => Vec::new(),
        };
        kube.handle_response(id, page(objects), NOW);
    }
    kube.poll(NOW);
    let reports = kube.take_reports();
    (kube, reports)
}

fn reports_of_deleted(deletion: &str, grace: u64) -> Vec<KubeReport> {
    deleted(KubeSettings::new("jobs", "forebay:1"), deletion, grace).1
}

/// Whether our finalizer is removed from a pod.
fn lets_go(kube: &mut KubeMachine, now: Timestamp) -> bool {
    kube.poll(now).iter().any(|(_, call)| matches!(call, KubeCall::Merge { resource: Resource::Pods, .. }))
}

#[test]
fn a_deleted_pod_goes_when_its_log_was_taken_or_nobody_has_for_long() {
    let wait = Span::secs(10);
    let over = |wait| {
        let settings = KubeSettings { log_wait: wait, ..KubeSettings::new("jobs", "forebay:1") };
        let (mut kube, reports) = deleted(settings, "2026-11-24T11:00:06Z", 0);
        assert!(reports.iter().any(|report| matches!(report, KubeReport::Event(Event::RunCompleted { .. }))));
        // Its outcome is journaled.
        kube.handle_state(view(ClaimPhase::Ready));
        kube
    };
    assert!(lets_go(&mut over(Span(0)), NOW), "nobody takes logs");

    let mut kube = over(wait);
    assert!(!lets_go(&mut kube, NOW) && kube.next_timeout(NOW) <= NOW + wait);
    assert!(!lets_go(&mut kube, Timestamp((NOW + wait).0 - 1)));
    assert!(lets_go(&mut kube, NOW + wait), "it is waited for no longer");

    let mut kube = over(wait);
    kube.logs_taken(run(), Some(&BTreeSet::from([1])));
    assert!(!lets_go(&mut kube, NOW), "another worker's");
    kube.logs_taken(run(), Some(&BTreeSet::from([0])));
    assert!(lets_go(&mut kube, NOW));

    let mut kube = over(wait);
    kube.logs_taken(run(), None);
    assert!(lets_go(&mut kube, NOW));
}

#[test]
fn a_worker_that_had_completed_before_its_pod_was_deleted_has_completed() {
    let completed = KubeReport::Event(Event::RunCompleted { job: JobId(1), attempt: Attempt(1), worker: Some(0) });
    let reports = reports_of_deleted("2026-11-24T11:00:06Z", 0);
    assert!(reports.contains(&completed), "{reports:?}");
    // By force while it ran, in the same second, or gracefully: it ended because it was told to.
    for (deletion, grace) in
        [("2026-11-24T11:00:04Z", 0), ("2026-11-24T11:00:05Z", 0), ("2026-11-24T11:00:35Z", 30), ("11:00:06Z", 0)]
    {
        let reports = reports_of_deleted(deletion, grace);
        assert!(!reports.contains(&completed), "{deletion}: {reports:?}");
        assert!(reports.iter().any(|r| matches!(r, KubeReport::Refused { words, .. } if words.contains("deleted"))));
    }
}

#[test]
fn an_evicted_pod_costs_no_attempt_and_has_not_completed() {
    let condition =
        |kind: &str| json!([{"type": kind, "status": "True", "reason": "EvictionByEvictionAPI", "message": "m"}]);
    let runs = json!({"running": {}});
    let ended = |code: i32| json!({"terminated": {"exitCode": code, "finishedAt": "2026-11-24T11:00:05Z"}});
    for (state, phase) in [
        (runs, "Running"),
        (ended(0), "Running"),
        (ended(0), "Succeeded"),
        (ended(0), "Failed"),
        (ended(143), "Failed"),
    ] {
        let reports = |kind: &str| {
            let status = json!({"phase": phase, "conditions": condition(kind), "containerStatuses": [{"name": "worker", "state": state}]});
            let settings = KubeSettings::new("jobs", "forebay:1");
            deleted_with(settings, "2026-11-24T11:00:35Z", 30, status).1
        };
        let evicted = reports("DisruptionTarget");
        let words = "EvictionByEvictionAPI: m".to_owned();
        assert!(evicted.contains(&KubeReport::Refused { run: run(), words }), "{phase} {state}: {evicted:?}");
        let costs = |report: &KubeReport| {
            matches!(report, KubeReport::Event(Event::RunFailed { .. } | Event::RunCompleted { .. }))
        };
        assert!(!evicted.iter().any(costs), "{phase} {state}: {evicted:?}");
        let stopped = KubeReport::Event(Event::RunStopped { job: JobId(1), attempt: Attempt(1), progress: None });
        assert_eq!(evicted.contains(&stopped), phase != "Running" || state["running"].is_null(), "{phase} {state}");
    }
}

#[test]
fn requests_that_a_limit_range_changes_are_told_and_the_gang_goes_on() {
    let (mut kube, id, mut body) = creating();
    body["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "500m", "memory": "256Mi"}});
    let created = KubeObject::of_json(Resource::Pods, body).unwrap();
    kube.handle_response(id, KubeResponse::Object(Box::new(created)), NOW);
    let (_, call) = one(kube.poll(NOW));
    assert!(matches!(call, KubeCall::Bind { .. }), "{call:?}");
    let reports = kube.take_reports();
    let [KubeReport::ChangedRequests { run: of, words }] = &reports[..] else { panic!("{reports:?}") };
    assert_eq!(*of, run());
    for part in ["LimitRange", "namespace jobs", "cpu 500m where 0m was asked", "memory 256Mi where 0Mi was asked"] {
        assert!(words.contains(part), "no `{part}` in {words}");
    }
}

#[test]
fn a_pod_that_does_not_start_is_asked_about_and_its_last_warning_is_told() {
    let (mut kube, id, mut body) = creating();
    let object =
        |body: &Value| KubeResponse::Object(Box::new(KubeObject::of_json(Resource::Pods, body.clone()).unwrap()));
    (body["metadata"]["uid"], body["metadata"]["resourceVersion"]) = (json!("p-1"), json!("20"));
    kube.handle_response(id, object(&body), NOW);
    let (id, _) = one(kube.poll(NOW));
    kube.handle_response(id, KubeResponse::Done, NOW);
    let (id, _) = one(kube.poll(NOW));
    kube.handle_response(id, KubeResponse::Object(Box::new(KubeObject::Other(Default::default()))), NOW);
    let (id, _) = one(kube.poll(NOW));
    body["metadata"]["resourceVersion"] = json!("21");
    body["metadata"]["annotations"]["forebay.dev/barrier"] = json!("open");
    body["spec"]["nodeName"] = json!("n");
    let waits = json!({"waiting": {"reason": "ContainerCreating"}});
    body["status"] = json!({"phase": "Pending", "containerStatuses": [{"name": "worker", "state": waits}]});
    kube.handle_response(id, object(&body), NOW);
    assert!(kube.poll(NOW).is_empty() && kube.take_reports().is_empty());

    let asked = NOW + Span::secs(20);
    let (id, call) = one(kube.poll(asked));
    let selector = ObjectSelector::WarningsOf("p-1".into());
    let namespace = Some("jobs".to_owned());
    assert_eq!(call, KubeCall::List { resource: Resource::PodEvents, namespace, selector, continue_token: None });
    let event = |reason: &str, at: &str| {
        let json = json!({"metadata": {"name": reason, "uid": reason, "resourceVersion": "1"}, "reason": reason, "lastTimestamp": at,
            "message": "MountVolume.SetUp failed for volume \"data\": claim not found"});
        KubeObject::of_json(Resource::PodEvents, json).unwrap()
    };
    let all = vec![event("FailedMount", "2026-11-24T11:00:09Z"), event("FailedAttachVolume", "2026-11-24T11:00:05Z")];
    kube.handle_response(id, page(all), asked);
    let worker = forebay_cluster_kube::WorkerId { run: run(), worker: 0 };
    let words = "FailedMount: MountVolume.SetUp failed for volume \"data\": claim not found".to_owned();
    assert_eq!(kube.take_reports(), [KubeReport::Waiting { worker, words: Some(words) }]);
    // Asked again while it waits, and not any more when it runs.
    let (id, _) = one(kube.poll(asked + Span::secs(60)));
    kube.handle_response(id, page(Vec::new()), asked + Span::secs(60));
    assert!(kube.take_reports().is_empty(), "what is known of it stays");
}

/// A machine with a run of one worker on a node whose kubelet is ready or not, and its pod, if there is one.
fn running(ready: bool, pod: Option<Value>, confirmed: bool) -> Vec<KubeReport> {
    let GangStart::Run(request) = start() else { panic!("a gang") };
    let mut view = view(ClaimPhase::Ready);
    view.runs.insert(run(), run_view(BTreeSet::new()));
    let pods = pod.map(|extra| {
        let mut body = request.pod_body(0).expect("a pod");
        (body["metadata"]["uid"], body["metadata"]["resourceVersion"]) = (json!("u-1"), json!("9"));
        body["spec"]["nodeName"] = json!("n");
        let runs = json!({"running": {}});
        body["status"] = json!({"phase": "Running", "containerStatuses": [{"name": "worker", "state": runs}]});
        for (key, value) in extra.as_object().expect("metadata") {
            body["metadata"][key] = value.clone();
        }
        KubeObject::of_json(Resource::Pods, body).unwrap()
    });
    let mut kube = KubeMachine::new(KubeSettings::new("jobs", "forebay:1"), "j");
    kube.begin(view.clone());
    let mut seen = node(5, json!({}));
    if let KubeObject::Node(node) = &mut seen {
        node.status.conditions[0].status = if ready { "True".into() } else { "Unknown".into() };
    }
    for (id, call) in kube.poll(NOW) {
        let KubeCall::List { resource, .. } = call else { panic!("{call:?}") };
        let objects = match resource {
            Resource::Nodes => vec![seen.clone()],
            Resource::Pods => pods.iter().cloned().collect(),
            _ => Vec::new(),
        };
        kube.handle_response(id, page(objects), NOW);
    }
    answer(&mut kube, &seen);
    let mut reports = kube.take_reports();
    if confirmed {
        view.runs.insert(run(), run_view(BTreeSet::from([0])));
        kube.handle_state(view);
        answer(&mut kube, &seen);
        reports.extend(kube.take_reports());
    }
    reports
}

/// Answers what is asked about the namespace, which is there, and the node, until nothing is asked any more.
fn answer(kube: &mut KubeMachine, node: &KubeObject) {
    for _ in 0..3 {
        for (id, call) in kube.poll(NOW) {
            let object = match call {
                KubeCall::Get { resource: Resource::Namespaces, .. } => KubeObject::Other(Default::default()),
                KubeCall::Get { resource: Resource::Nodes, .. } => node.clone(),
                _ => continue,
            };
            kube.handle_response(id, KubeResponse::Object(Box::new(object)), NOW);
        }
    }
}

/// When a node is reported drained whose worker no kubelet ever confirms to have ended, though it was to have by 30 s. `stage`: what the engine says
/// of its run.
fn drained_under(stage: RunStage) -> Option<Span> {
    let GangStart::Run(request) = start() else { panic!("a gang") };
    let mut body = request.pod_body(0).expect("a pod");
    (body["metadata"]["uid"], body["metadata"]["resourceVersion"]) = (json!("u-1"), json!("9"));
    body["spec"]["nodeName"] = json!("n");
    let runs = json!({"running": {}});
    body["status"] = json!({"phase": "Running", "containerStatuses": [{"name": "worker", "state": runs}]});
    let pod = KubeObject::of_json(Resource::Pods, body).unwrap();
    let cordoned = node(11, json!({"unschedulable": true}));
    let mut seen = view(ClaimPhase::Ready);
    seen.runs.insert(run(), run_view(BTreeSet::new()));
    let mut kube = KubeMachine::new(KubeSettings::new("jobs", "forebay:1"), "j");
    kube.begin(seen.clone());
    let mut began = false;
    for at in (0..600).step_by(10) {
        let now = NOW + Span::secs(at);
        for _ in 0..4 {
            for (id, call) in kube.poll(now) {
                let response = match call {
                    KubeCall::List { resource: Resource::Nodes, .. } => page(vec![node(5, json!({}))]),
                    KubeCall::List { resource: Resource::Pods, .. } => page(vec![pod.clone()]),
                    KubeCall::List { .. } => page(Vec::new()),
                    KubeCall::Watch { .. } => continue,
                    KubeCall::Apply { resource: Resource::Nodes, .. } => {
                        KubeResponse::Object(Box::new(cordoned.clone()))
                    }
                    KubeCall::Evict { .. } => panic!("our own pod is not evicted"),
                    KubeCall::Get { resource: Resource::Nodes, .. } => KubeResponse::Object(Box::new(cordoned.clone())),
                    _ => KubeResponse::Done,
                };
                kube.handle_response(id, response, now);
            }
        }
        if !std::mem::replace(&mut began, true) {
            kube.stop(run(), NOW + Span::secs(30));
            seen.runs.get_mut(&run()).unwrap().stage = stage;
            seen.claims.get_mut("i-1").unwrap().phase = ClaimPhase::Leaving;
            kube.handle_state(seen.clone());
            kube.drain("i-1");
        }
        if kube.take_reports().contains(&KubeReport::Drained { instance: "i-1".into() }) {
            return Some(now.since(NOW));
        }
    }
    None
}

#[test]
fn a_run_that_was_given_up_does_not_keep_its_node_whose_end_is_the_proof_of_its_own() {
    let at = drained_under(RunStage::Stopping { from: StoppedFrom::Running }).expect("the node is given back");
    assert!(at >= Span::secs(90) && at <= Span::secs(120), "{at:?}");
    assert_eq!(drained_under(RunStage::Running), None, "nobody gave it up");
}

#[test]
fn an_operators_word_counts_where_nobody_else_can_say_and_never_against_a_kubelet() {
    let ended = |reports: &[KubeReport]| {
        reports
            .iter()
            .any(|report| matches!(report, KubeReport::Event(Event::RunFailed { .. } | Event::RunStopped { .. })))
    };
    let deleted = json!({"deletionTimestamp": "2026-11-24T11:00:00Z", "deletionGracePeriodSeconds": 30});
    for (case, ready, pod, counts) in [
        ("its pod is gone", true, None, true),
        ("it runs", true, Some(json!({})), false),
        ("it runs by its last word, and its node does not answer", false, Some(json!({})), true),
        ("it is deleted, and its node does not answer", false, Some(deleted), true),
    ] {
        assert!(!ended(&running(ready, pod.clone(), false)), "{case}: without a word it is held");
        assert_eq!(ended(&running(ready, pod, true)), counts, "{case}");
    }
}

#[test]
fn a_booting_node_is_partitioned_by_the_mig_managers_label_before_it_takes_work() {
    let with = |version: u64, labels: Value, slices: &str| {
        let json = json!({"metadata": {"name": "n", "uid": "u", "resourceVersion": version.to_string(), "labels": labels},
            "spec": {"providerID": "aws:///z/i-1", "taints": [{"key": "forebay.dev/node", "effect": "NoSchedule"}]},
            "status": {"allocatable": {"nvidia.com/mig-1g.10gb": slices}, "conditions": [{"type": "Ready", "status": "True"}]}});
        KubeObject::of_json(Resource::Nodes, json).unwrap()
    };
    let offers = BTreeMap::from([("nvidia.com/mig-1g.10gb".to_owned(), 7)]);
    let claim = ClaimView { node: NodeId(1), phase: ClaimPhase::Booting, offers, owned: None };
    let view = EngineView { claims: BTreeMap::from([("i-1".to_owned(), claim)]), ..EngineView::default() };
    let capable = json!({"nvidia.com/mig.capable": "true", "nvidia.com/mig.config": "all-disabled", "nvidia.com/mig.config.state": "success"});
    let mut kube = KubeMachine::new(KubeSettings::new("jobs", "forebay:1"), "j");
    kube.begin(view);
    for (id, call) in kube.poll(NOW) {
        let of_nodes = matches!(call, KubeCall::List { resource: Resource::Nodes, .. });
        kube.handle_response(id, page(if of_nodes { vec![with(5, capable.clone(), "0")] } else { Vec::new() }), NOW);
    }
    assert_eq!(kube.take_reports(), [KubeReport::Listed]);
    let calls = kube.poll(NOW);
    let watches =
        |(_, call): &&(KubeCallId, KubeCall)| matches!(call, KubeCall::Watch { resource: Resource::Nodes, .. });
    let watch = calls.iter().find(watches).expect("nodes are watched").0;
    let merge = calls.into_iter().find(|(_, call)| matches!(call, KubeCall::Merge { .. })).expect("a label");
    let (id, KubeCall::Merge { body, .. }) = merge else { panic!("a merge") };
    assert_eq!(body["metadata"], json!({"uid": "u", "labels": {"nvidia.com/mig.config": "all-1g.10gb"}}));
    // The MIG manager is at it; the slices may be offered before it says that it is done.
    let mut labels = capable;
    labels["nvidia.com/mig.config"] = json!("all-1g.10gb");
    labels["nvidia.com/mig.config.state"] = json!("pending");
    kube.handle_response(id, KubeResponse::Object(Box::new(with(6, labels.clone(), "7"))), NOW);
    assert!(kube.poll(NOW).is_empty() && kube.take_reports().is_empty());
    labels["nvidia.com/mig.config.state"] = json!("success");
    let change = WatchChange::Applied(Box::new(with(11, labels, "7")));
    kube.handle_watch(WatchEvent { watch, change }, NOW);
    assert!(kube.poll(NOW).is_empty());
    assert_eq!(kube.take_reports(), [KubeReport::Event(Event::NodeReady { instance: "i-1".into() })]);
}
