//! Adopted objects that this process did not unsuspend: whose start the journal has lost, and whose pod is gone without its kubelet's word.

use super::strangers::{JOURNAL, effect, restored};
use super::{NOW, node, page, view};
use forebay_cluster_kube::adoption::{WorkloadId, WorkloadKind};
use forebay_cluster_kube::request::AdoptedStart;
use forebay_cluster_kube::view::{AdoptedRunView, AdoptedView, ClaimPhase, RunStage, StoppedFrom};
use forebay_cluster_kube::{
    EngineView, GangStart, KubeCall, KubeCallId, KubeMachine, KubeObject, KubeReport, KubeResponse, KubeSettings,
    ObjectSelector, Resource, RunId, RunToken, WatchChange, WatchEvent,
};
use forebay_kernel::event::Event;
use forebay_kernel::ids::{Attempt, JobId, Seq};
use forebay_kernel::storage::{JournalId, JournalIdentity};
use forebay_kernel::units::{Span, Timestamp};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

fn object() -> WorkloadId {
    WorkloadId { namespace: "team".into(), kind: WorkloadKind::Job, name: "train".into(), uid: "o".into() }
}

/// The object as the API server has it, after it was unsuspended for attempt 1 by an effect.
fn job(effect: &str, version: u64, suspended: bool) -> KubeObject {
    let annotations = json!({"forebay.dev/admitted": "job-1/1", "forebay.dev/effect": effect});
    let condition = json!([{"type": "Suspended", "status": if suspended { "True" } else { "False" }}]);
    let pod = json!({"containers": [{"name": "worker", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]});
    let spec = json!({"suspend": suspended, "parallelism": 1, "completions": 1, "podReplacementPolicy": "Failed", "template": {"spec": pod}});
    let metadata = json!({"name": "train", "namespace": "team", "uid": "o", "resourceVersion": version.to_string(),
        "labels": {"forebay.dev/queue": "q"}, "annotations": annotations});
    let status = json!({"conditions": condition, "active": u8::from(!suspended)});
    KubeObject::of_json(Resource::Jobs, json!({"metadata": metadata, "spec": spec, "status": status})).unwrap()
}

/// Its pod on the node, running, or being deleted.
fn pod(effect: &str, version: u64) -> KubeObject {
    let labels = json!({"forebay.dev/adopted": "true", "forebay.dev/journal": JOURNAL, "forebay.dev/job": "job-1", "forebay.dev/attempt": "1"});
    let metadata = json!({"name": "train-x", "namespace": "team", "uid": "p", "resourceVersion": version.to_string(), "labels": labels,
        "annotations": {"forebay.dev/effect": effect}});
    let status = json!({"phase": "Running", "containerStatuses": [{"name": "worker", "state": {"running": {}}}]});
    let spec = json!({"nodeName": "n", "containers": [{"name": "worker"}]});
    KubeObject::of_json(Resource::Pods, json!({"metadata": metadata, "spec": spec, "status": status})).unwrap()
}

/// What the engine knows: the job waits, or has a run.
fn known(run: Option<(RunStage, &[u32])>) -> EngineView {
    let run = run.map(|(stage, dead)| AdoptedRunView {
        attempt: Attempt(1),
        stage,
        workers: BTreeMap::from([(0, "i-1".to_owned())]),
        confirmed_dead: dead.iter().copied().collect::<BTreeSet<u32>>(),
    });
    let attempt = Attempt(u32::from(run.is_some()));
    let (tenant, waits) = ("default".to_owned(), None);
    let adopted = AdoptedView { object: object(), job: JobId(1), tenant, open: true, attempt, waits, run };
    EngineView { adopted: BTreeMap::from([("o".to_owned(), adopted)]), ..view(ClaimPhase::Ready) }
}

fn start(effect: &str) -> GangStart {
    GangStart::Adopted(Box::new(AdoptedStart {
        effect: effect.to_owned(),
        journal: JOURNAL.to_owned(),
        job: 1,
        attempt: 1,
        object: object().to_string(),
        tenant: "default".to_owned(),
        instances: vec![Some("i-1".to_owned())],
    }))
}

type Calls = Vec<(KubeCallId, KubeCall)>;

/// A machine that has listed the node and these objects, its watches by what they are of, and the calls that it makes then.
fn listed(view: EngineView, objects: &[KubeObject]) -> (KubeMachine, BTreeMap<Resource, KubeCallId>, Calls) {
    listed_by(|kube| kube.with_lineage(restored()), view, objects)
}

/// The same of a journal that the machine is told of.
fn listed_by(
    told: impl FnOnce(KubeMachine) -> KubeMachine,
    view: EngineView,
    objects: &[KubeObject],
) -> (KubeMachine, BTreeMap<Resource, KubeCallId>, Calls) {
    let settings = KubeSettings { adopt: ["team".to_owned()].into(), ..KubeSettings::new("jobs", "forebay:1") };
    let mut kube = told(KubeMachine::new(settings, JOURNAL));
    kube.begin(view);
    let of = |resource: Resource| match resource {
        Resource::Nodes => vec![node(5, json!({}))],
        Resource::Jobs => objects.iter().filter(|o| matches!(o, KubeObject::Workload(_))).cloned().collect(),
        Resource::Pods => objects.iter().filter(|o| matches!(o, KubeObject::Pod(_))).cloned().collect(),
        _ => Vec::new(),
    };
    for (id, call) in kube.poll(NOW) {
        let KubeCall::List { resource, .. } = call else { panic!("{call:?}") };
        kube.handle_response(id, page(of(resource)), NOW);
    }
    let mut watches = BTreeMap::new();
    let calls = pending(&mut kube, NOW);
    for (id, call) in &calls {
        if let KubeCall::Watch { resource, .. } = call {
            watches.entry(*resource).or_insert(*id);
        }
    }
    (kube, watches, calls)
}

/// The calls that are made now; Events are written at once.
fn pending(kube: &mut KubeMachine, now: Timestamp) -> Calls {
    let mut calls = Vec::new();
    loop {
        let next = kube.poll(now);
        if next.is_empty() {
            return calls;
        }
        for (id, call) in next {
            if let KubeCall::Create { resource: Resource::Events, .. } = &call {
                kube.handle_response(id, KubeResponse::Done, now);
            } else {
                calls.push((id, call));
            }
        }
    }
}

/// The change of the object among the calls.
fn change(calls: &[(KubeCallId, KubeCall)]) -> Option<Value> {
    calls.iter().find_map(|(_, call)| match call {
        KubeCall::Merge { resource: Resource::Jobs, body, .. } => Some((**body).clone()),
        _ => None,
    })
}

fn told_lost(reports: &[KubeReport]) -> usize {
    reports.iter().filter(|report| matches!(report, KubeReport::LostObject { .. })).count()
}

/// The journal's folder was replaced by an older copy of itself, which has decided less.
#[test]
fn an_object_whose_start_the_journal_does_not_know_at_its_own_start_runs_on() {
    let first = JournalIdentity { id: JournalId { uuid: 7, incarnation: 0 }, ..JournalIdentity::default() };
    for (position, is_lost) in [(99, false), (100, true), (150, true)] {
        let told = |kube: KubeMachine| kube.with_lineage(first.clone()).before_effect(Seq(100));
        let (mut kube, _, calls) = listed_by(told, known(None), &[job(&effect(0, position), 9, false)]);
        assert_eq!(told_lost(&kube.take_reports()), usize::from(is_lost), "{position}");
        assert_eq!(change(&calls).is_some(), !is_lost, "{position}: it is suspended where it is not its turn");
    }
}

#[test]
fn an_object_whose_start_is_lost_runs_on_and_its_job_waits_for_it() {
    let lost = effect(0, 150);
    // Of a start that the journal knows, it is suspended: it is not its turn.
    let (mut kube, _, calls) = listed(known(None), &[job(&effect(0, 50), 9, false)]);
    assert_eq!(told_lost(&kube.take_reports()), 0);
    assert_eq!(change(&calls).map(|body| body["spec"]["suspend"].clone()), Some(json!(true)));
    // Of one that is lost, it is work that somebody paid for.
    let (mut kube, watches, calls) = listed(known(None), &[job(&lost, 9, false), pod(&lost, 9)]);
    assert_eq!(told_lost(&kube.take_reports()), 1);
    assert_eq!(change(&calls), None);

    // Its job is not started beside it, though its attempt has the number that the object names.
    kube.start(start(&effect(1, 160)), RunToken::new("t".to_owned()));
    let calls = pending(&mut kube, NOW + Span::mins(60));
    assert!(calls.iter().all(|(_, call)| !matches!(call, KubeCall::Merge { .. })), "nothing is changed: {calls:?}");
    let reports = kube.take_reports();
    let words = reports.iter().find_map(|report| match report {
        KubeReport::Waiting { words, .. } => words.clone(),
        _ => None,
    });
    assert!(words.is_some_and(|w| w.contains("after the backup") && w.contains("suspend it")), "{reports:?}");
    assert!(reports.iter().all(|report| !matches!(report, KubeReport::Event(_))), "{reports:?}");

    // Whoever suspends it has it start anew: its node gets its label, and then it is unsuspended.
    let applied = |kube: &mut KubeMachine, resource: Resource, object: KubeObject| {
        kube.handle_watch(
            WatchEvent { watch: watches[&resource], change: WatchChange::Applied(Box::new(object)) },
            NOW,
        );
    };
    let gone = WatchChange::Deleted(Box::new(ended_pod(&lost, 21)));
    applied(&mut kube, Resource::Jobs, job(&lost, 20, true));
    kube.handle_watch(WatchEvent { watch: watches[&Resource::Pods], change: gone }, NOW);
    let calls = pending(&mut kube, NOW + Span::mins(60));
    let (label, _) = calls
        .iter()
        .find(|(_, call)| matches!(call, KubeCall::Merge { resource: Resource::Nodes, .. }))
        .expect("the node gets the attempt's label");
    let mut labelled = json!({"metadata": {"name": "n", "uid": "u", "resourceVersion": "30", "labels": {"gang.forebay.dev/job-1": "1"}},
        "spec": {"providerID": "aws:///z/i-1"}});
    labelled["status"] =
        json!({"allocatable": {"nvidia.com/gpu": "1"}, "conditions": [{"type": "Ready", "status": "True"}]});
    let labelled = KubeObject::of_json(Resource::Nodes, labelled).unwrap();
    kube.handle_response(*label, KubeResponse::Object(Box::new(labelled)), NOW);
    let calls = pending(&mut kube, NOW + Span::mins(60));
    let admitted = change(&calls).expect("it is its turn");
    assert_eq!(admitted["spec"]["suspend"], json!(false));
    assert_eq!(admitted["metadata"]["annotations"]["forebay.dev/effect"], json!(effect(1, 160)));
    assert!(kube.take_reports().iter().any(|report| matches!(report, KubeReport::Waiting { words: None, .. })));
}

/// The pod, whose container has ended.
fn ended_pod(effect: &str, version: u64) -> KubeObject {
    let KubeObject::Pod(mut pod) = pod(effect, version) else { unreachable!("a pod") };
    pod.status = serde_json::from_value(json!({"phase": "Failed",
        "containerStatuses": [{"name": "worker", "state": {"terminated": {"exitCode": 143}}}]}))
    .unwrap();
    KubeObject::Pod(pod)
}

#[test]
fn a_stop_of_an_attempt_that_waits_for_a_lost_object_leaves_that_object() {
    let lost = effect(0, 150);
    let (mut kube, _, _) = listed(known(None), &[job(&lost, 9, false), pod(&lost, 9)]);
    kube.start(start(&effect(1, 160)), RunToken::new("t".to_owned()));
    pending(&mut kube, NOW);
    kube.stop(RunId { job: JobId(1), attempt: Attempt(1) }, NOW + Span::secs(10));
    let calls = pending(&mut kube, NOW);
    let reports = kube.take_reports();
    assert_eq!(change(&calls), None);
    assert!(reports.iter().any(|report| matches!(report, KubeReport::Event(Event::RunStopped { .. }))), "{reports:?}");
}

/// A watch of pods has lost its place, and the list that follows has these.
fn relisted(kube: &mut KubeMachine, watch: KubeCallId, pods: &[KubeObject]) {
    kube.handle_watch(WatchEvent { watch, change: WatchChange::Expired }, NOW);
    for (id, call) in pending(kube, NOW) {
        if let KubeCall::List { resource: Resource::Pods, .. } = call {
            kube.handle_response(id, page(pods.to_vec()), NOW);
        }
    }
}

#[test]
fn a_pod_that_is_gone_without_its_kubelets_word_holds_its_attempt_until_an_operator_confirms_it() {
    held_until_confirmed(|kube, watch| {
        let gone = WatchChange::Deleted(Box::new(pod(&effect(1, 160), 20)));
        kube.handle_watch(WatchEvent { watch, change: gone }, NOW);
    });
}

/// It was deleted by force while the watch had lost its place.
#[test]
fn a_pod_that_a_list_does_not_have_any_more_holds_its_attempt_as_one_that_a_watch_saw_go() {
    let own = effect(1, 160);
    held_until_confirmed(|kube, watch| relisted(kube, watch, &[]));
    // Somebody has made another one of its name, which the kubelet refuses.
    let KubeObject::Pod(mut again) = pod(&own, 10) else { unreachable!("a pod") };
    again.metadata.uid = "another".to_owned();
    again.status = serde_json::from_value(json!({"phase": "Failed", "reason": "OutOfnvidia.com/gpu"})).unwrap();
    held_until_confirmed(|kube, watch| relisted(kube, watch, &[KubeObject::Pod(again)]));

    // What had ended by its kubelet's word before holds nothing.
    let running = known(Some((RunStage::Running, &[])));
    let (mut kube, watches, _) = listed(running, &[job(&own, 9, false), ended_pod(&own, 9)]);
    relisted(&mut kube, watches[&Resource::Pods], &[]);
    let reports = kube.take_reports();
    assert!(reports.iter().all(|report| !matches!(report, KubeReport::Unproven { .. })), "{reports:?}");
}

/// An attempt whose pod is gone is held until an operator confirms that it has ended. `goes`: how the machine learns that it is gone.
fn held_until_confirmed(goes: impl FnOnce(&mut KubeMachine, KubeCallId)) {
    let own = effect(1, 160);
    let stopping = RunStage::Stopping { from: StoppedFrom::Running };
    let (mut kube, watches, _) = listed(known(Some((RunStage::Running, &[]))), &[job(&own, 9, false), pod(&own, 9)]);
    kube.take_reports();
    goes(&mut kube, watches[&Resource::Pods]);
    let reports = kube.take_reports();
    let unproven = |report: &KubeReport| matches!(report, KubeReport::Unproven { worker, instance } if worker.worker == 0 && instance.as_deref() == Some("i-1"));
    assert!(reports.iter().any(unproven), "an operator has to know: {reports:?}");

    kube.stop(RunId { job: JobId(1), attempt: Attempt(1) }, NOW + Span::secs(10));
    let calls = pending(&mut kube, NOW);
    assert!(change(&calls).is_some_and(|body| body["spec"]["suspend"] == json!(true)), "{calls:?}");
    let KubeObject::Workload(mut stopped) = job(&own, 21, true) else { unreachable!("a Job") };
    stopped.metadata.annotations.insert("forebay.dev/stopped".to_owned(), "job-1/1".to_owned());
    let stopped = WatchChange::Applied(Box::new(KubeObject::Workload(stopped)));
    kube.handle_watch(WatchEvent { watch: watches[&Resource::Jobs], change: stopped }, NOW);
    let later = NOW + Span::mins(60);
    let over = |kube: &mut KubeMachine| {
        for (id, call) in pending(kube, later) {
            if let KubeCall::List { selector: ObjectSelector::Labels(_), .. } = call {
                kube.handle_response(id, page(Vec::new()), later);
            }
        }
        pending(kube, later);
        let reports = kube.take_reports();
        reports.iter().any(|report| matches!(report, KubeReport::Event(Event::RunStopped { .. })))
    };
    assert!(!over(&mut kube), "nothing proves that it has ended");
    kube.handle_state(known(Some((stopping, &[7]))));
    assert!(!over(&mut kube), "another worker");
    kube.handle_state(known(Some((stopping, &[0]))));
    assert!(over(&mut kube), "the operator's word");
}

#[test]
fn the_time_to_start_does_not_count_while_images_are_pulled() {
    let own = effect(1, 160);
    let waiting = |version: u64, reason: &str| {
        let KubeObject::Pod(mut pod) = pod(&own, version) else { unreachable!("a pod") };
        let state = json!({"waiting": {"reason": reason}});
        pod.status = serde_json::from_value(
            json!({"phase": "Pending", "containerStatuses": [{"name": "worker", "state": state}]}),
        )
        .unwrap();
        KubeObject::Pod(pod)
    };
    let starting = known(Some((RunStage::Starting, &[])));
    let (mut kube, watches, _) = listed(starting, &[job(&own, 9, false), waiting(9, "ContainerCreating")]);
    let refused = |kube: &mut KubeMachine, now: Timestamp| {
        pending(kube, now);
        kube.take_reports().iter().any(|report| matches!(report, KubeReport::Refused { .. }))
    };
    let later = NOW + Span::mins(30);
    assert!(!refused(&mut kube, NOW) && !refused(&mut kube, later));
    // From here on its images are there.
    let change = WatchChange::Applied(Box::new(waiting(20, "CreateContainerConfigError")));
    kube.handle_watch(WatchEvent { watch: watches[&Resource::Pods], change }, later);
    assert!(!refused(&mut kube, later));
    assert!(refused(&mut kube, later + Span::mins(10)));
}
