//! Adopted objects on nodes of their own: how many are looked at for one event, and whether a look at all of them finds anything that was missed.

use super::label_of_job;
use crate::adoption::{ANNOTATION_ADMITTED, LABEL_QUEUE, Workload, WorkloadId, WorkloadKind};
use crate::api_call::{KubeCall, KubeResponse};
use crate::machine::KubeMachine;
use crate::names::{LABEL_ATTEMPT, LABEL_JOB, LABEL_JOURNAL, RunId};
use crate::objects::{KubeNode, KubePod};
use crate::request::AdoptedStart;
use crate::settings::KubeSettings;
use crate::view::{AdoptedRunView, AdoptedView, AdoptedWait, ClaimPhase, ClaimView, EngineView, RunStage};
use forebay_kernel::ids::{Attempt, JobId, NodeId};
use forebay_kernel::units::Timestamp;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

const NOW: Timestamp = Timestamp(1_800_000_000_000);
const UNTHROTTLED: u32 = 1_000_000;

fn uid(number: u64) -> String {
    format!("u-{number}")
}

fn object(number: u64) -> WorkloadId {
    let (namespace, name) = ("team-a".to_owned(), format!("o-{number}"));
    WorkloadId { namespace, kind: WorkloadKind::Job, name, uid: uid(number) }
}

fn known(number: u64, run: Option<RunStage>) -> AdoptedView {
    let run = run.map(|stage| AdoptedRunView {
        attempt: Attempt(1),
        stage,
        workers: BTreeMap::from([(0, format!("i-{number}"))]),
        confirmed_dead: BTreeSet::new(),
    });
    let waits = run.is_none().then(|| AdoptedWait { code: "Quota", words: "full".to_owned() });
    let (tenant, attempt) = ("me".to_owned(), Attempt(1));
    AdoptedView { object: object(number), job: JobId(number), tenant, open: true, attempt, waits, run }
}

/// What an object is: unsuspended for its attempt, or not.
#[derive(Clone, Copy, PartialEq)]
enum Is {
    Suspended,
    Admitted,
}

fn workload(number: u64, version: u64, is: Is) -> Workload {
    let mut metadata = json!({"name": format!("o-{number}"), "namespace": "team-a", "uid": uid(number),
        "resourceVersion": version.to_string(), "labels": {LABEL_QUEUE: "research"}});
    if is == Is::Admitted {
        metadata["annotations"] = json!({ANNOTATION_ADMITTED: format!("job-{number}/1")});
    }
    let pod = json!({"containers": [{"resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]});
    let spec = json!({"suspend": is == Is::Suspended, "parallelism": 1, "completions": 1, "podReplacementPolicy": "Failed",
        "template": {"spec": pod}});
    Workload::of_json(WorkloadKind::Job, json!({"metadata": metadata, "spec": spec})).unwrap()
}

/// What a node says.
struct NodeSays {
    version: u64,
    ready: bool,
    labelled: bool,
    boot: u64,
}

fn node(number: u64, says: &NodeSays) -> KubeNode {
    let mut metadata = json!({"name": format!("n-{number}"), "uid": "n", "resourceVersion": says.version.to_string()});
    if says.labelled {
        metadata["labels"] = json!({label_of_job(JobId(number)): "1"});
    }
    let status = json!({"conditions": [{"type": "Ready", "status": if says.ready { "True" } else { "False" }}],
        "nodeInfo": {"bootID": says.boot.to_string()}});
    let spec = json!({"providerID": format!("aws:///z/i-{number}")});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap()
}

fn pod(number: u64, version: u64, phase: &str) -> KubePod {
    let labels = json!({LABEL_JOURNAL: "j", LABEL_JOB: format!("job-{number}"), LABEL_ATTEMPT: "1",
        crate::adoption::LABEL_ADOPTED: "true"});
    let metadata = json!({"name": format!("p-{number}"), "namespace": "team-a", "uid": format!("p-{number}"),
        "resourceVersion": version.to_string(), "labels": labels});
    let state = if phase == "Running" { json!({"running": {}}) } else { json!({"terminated": {"exitCode": 0}}) };
    let status = json!({"phase": phase, "containerStatuses": [{"name": "c", "state": state}]});
    let spec = json!({"nodeName": format!("n-{number}"), "containers": [{"name": "c"}]});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap()
}

/// So many objects that run, each on a node of its own.
struct Adopted {
    kube: KubeMachine,
    view: EngineView,
    version: u64,
}

impl Adopted {
    fn new(count: u64) -> Adopted {
        let mut settings = KubeSettings::new("jobs", "forebay:1");
        settings.adopt.insert("team-a".to_owned());
        settings.rates.write_burst = UNTHROTTLED;
        settings.rates.read_burst = UNTHROTTLED;
        settings.rates.in_flight = usize::MAX;
        let claim = |number: u64| {
            let offers = BTreeMap::new();
            let claim = ClaimView { node: NodeId(number), phase: ClaimPhase::Ready, offers, owned: None };
            (format!("i-{number}"), claim)
        };
        let view = EngineView {
            claims: (0..count).map(claim).collect(),
            adopted: (0..count).map(|number| (uid(number), known(number, Some(RunStage::Running)))).collect(),
            ..EngineView::default()
        };
        let mut kube = KubeMachine::new(settings, "j");
        kube.begin(view.clone());
        for _ in 0..3 {
            for (id, call) in kube.poll(NOW) {
                if let KubeCall::List { .. } = call {
                    let resource_version = "1".to_owned();
                    let page = KubeResponse::Page { objects: Vec::new(), continue_token: None, resource_version };
                    kube.handle_response(id, page, NOW);
                }
            }
        }
        let mut adopted = Adopted { kube, view, version: 10 };
        for number in 0..count {
            let version = adopted.next();
            adopted.kube.see_node(node(number, &NodeSays { version, ready: true, labelled: true, boot: 1 }));
            adopted.kube.see_workload(workload(number, version, Is::Admitted));
            adopted.kube.see_pod(pod(number, version, "Running"));
        }
        adopted.settle();
        adopted
    }

    fn next(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    /// Polls until nothing is left to do. Calls are not answered.
    fn settle(&mut self) {
        while self.kube.adoptions.is_changed() {
            self.kube.poll(NOW);
        }
        self.kube.take_reports();
    }

    /// Nothing comes of a look at all objects and all nodes.
    fn nothing_was_missed(&mut self, after: &str) {
        let changes = &mut self.kube.adoptions.changes;
        changes.objects.extend(self.view.adopted.keys().chain(self.kube.adoptions.workloads.keys()).cloned());
        changes.nodes.extend(self.kube.nodes.keys().cloned());
        while self.kube.adoptions.is_changed() {
            assert_eq!(self.kube.poll(NOW), [], "{after}");
        }
        assert_eq!(self.kube.take_reports(), [], "{after}");
    }
}

#[test]
fn an_event_looks_at_the_object_and_the_node_that_it_concerns() {
    let mut adopted = Adopted::new(200);
    let version = adopted.next();
    let says = |version, labelled| NodeSays { version, ready: true, labelled, boot: 1 };
    for (case, objects, nodes) in [
        ("a node changes", 1, 1),
        ("a node loses its label", 1, 1),
        ("an object changes", 1, 1),
        ("a pod changes", 1, 1),
        ("the same view again", 0, 0),
        ("an instance is gone", 1, 1),
    ] {
        adopted.kube.adoptions.examined = (0, 0);
        match case {
            "a node changes" => adopted.kube.see_node(node(7, &says(version, true))),
            "a node loses its label" => adopted.kube.see_node(node(8, &says(version, false))),
            "an object changes" => adopted.kube.see_workload(workload(9, version, Is::Admitted)),
            "a pod changes" => adopted.kube.see_pod(pod(10, version, "Running")),
            "the same view again" => adopted.kube.handle_state(adopted.view.clone()),
            _ => {
                adopted.view.claims.remove("i-11");
                adopted.kube.handle_state(adopted.view.clone());
            }
        }
        adopted.settle();
        assert_eq!(adopted.kube.adoptions.examined, (objects, nodes), "{case}");
    }
}

#[test]
fn what_has_changed_is_all_that_a_look_at_all_objects_finds() {
    const OBJECTS: u64 = 6;
    for seed in 0..100u64 {
        let mut state = seed;
        let mut below = |n: u64| {
            // An LCG by Knuth: its upper bits are random enough here.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % n
        };
        let mut adopted = Adopted::new(OBJECTS);
        for step in 0..60 {
            let (number, version) = (below(OBJECTS), adopted.next());
            let what = below(9);
            let run = RunId { job: JobId(number), attempt: Attempt(1) };
            match what {
                0 | 1 => {
                    let (ready, labelled, boot) = (below(2) == 0, below(2) == 0, below(2));
                    adopted.kube.see_node(node(number, &NodeSays { version, ready, labelled, boot }));
                }
                2 => {
                    let is = if below(2) == 0 { Is::Suspended } else { Is::Admitted };
                    adopted.kube.see_workload(workload(number, version, is));
                }
                3 => adopted.kube.forget_workload(&workload(number, version, Is::Suspended)),
                4 => adopted.kube.see_pod(pod(number, version, if below(2) == 0 { "Running" } else { "Succeeded" })),
                5 => {
                    let last = pod(number, version, "Running");
                    adopted.kube.forget_adopted_pod(&crate::machine::PodKey::of(&last.metadata), last);
                }
                6 => _ = adopted.kube.stop_adopted(run),
                7 => {
                    let stages = [None, Some(RunStage::Starting), Some(RunStage::Running)];
                    let stage = stages[usize::try_from(below(3)).unwrap()];
                    adopted.view.adopted.insert(uid(number), known(number, stage));
                    let instance = format!("i-{number}");
                    if below(4) == 0 {
                        adopted.view.claims.remove(&instance);
                    }
                    adopted.kube.handle_state(adopted.view.clone());
                }
                _ => adopted.kube.start_adopted(AdoptedStart {
                    effect: "j-7".to_owned(),
                    journal: "j".to_owned(),
                    job: number,
                    attempt: 1,
                    object: object(number).to_string(),
                    tenant: "me".to_owned(),
                    instances: vec![Some(format!("i-{number}"))],
                }),
            }
            adopted.settle();
            adopted.nothing_was_missed(&format!("seed {seed}, step {step}: {what} of {number}"));
        }
    }
}
