//! Adopted objects as the machine is told of them, beside a walk over all jobs.

use super::adopted::submitted;
use super::{KnownAdopted, engine_view};
use forebay_cluster_kube::adoption::{Workload, WorkloadKind, submission};
use forebay_cluster_kube::view::AdoptedView;
use forebay_cluster_kube::{EngineView, KubeSettings, WaitingScope};
use forebay_engine::engine::Engine;
use forebay_kernel::event::{Event, Tick};
use forebay_kernel::ids::{Attempt, JobId};
use forebay_kernel::state::owned::{ForeignUse, OwnedNode, OwnedShape};
use forebay_kernel::units::{Mib, MilliCpu, Timestamp};
use serde_json::json;
use std::collections::BTreeMap;

const POLICY: &str = "
apiVersion: forebay/v1
kind: Policy
metadata: {name: t}
limits: {nodes: 1, spend: 1000 USD/h}
tiers:
  idle: {priority: 0, buys: nothing}
queues:
  research: {submitters: ['kube:team-a', me], tier: idle, pools: [home]}
pools:
  home: {owned: {nodes: {example.com/team: [lab]}, price: 1 USD/h}}
";

fn settings() -> KubeSettings {
    let mut settings = KubeSettings::new("jobs", "forebay:1");
    settings.adopt.insert("team-a".to_owned());
    settings
}

/// The submission of an object.
fn object(number: u64) -> Event {
    let requests = json!({"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"});
    let pod = json!({"containers": [{"resources": {"requests": requests}}]});
    let job = json!({"parallelism": 1, "completions": 1, "podReplacementPolicy": "Failed", "template": {"spec": pod}});
    let labels = json!({"forebay.dev/queue": "research"});
    let metadata =
        json!({"name": format!("o-{number}"), "namespace": "team-a", "uid": format!("u-{number}"), "labels": labels});
    let workload = Workload::of_json(WorkloadKind::Job, json!({"metadata": metadata, "spec": job})).unwrap();
    let demand = workload.demand(&settings()).unwrap();
    let submitted = submitted(workload.id(), &submission(&workload, &demand)).map_err(|(_, why)| why).unwrap();
    submitted.event().clone()
}

/// The same work of somebody else.
fn plain(number: u64) -> Event {
    let mut event = object(number);
    if let Event::JobSubmitted(spec) = &mut event {
        spec.principal = "me".to_owned();
        spec.subject = format!("plain-{number}");
    }
    event
}

fn identity(event: &Event) -> (String, String) {
    let Event::JobSubmitted(spec) = event else { panic!("a submission") };
    (spec.tenant.clone(), spec.subject.clone())
}

fn batch(engine: &mut Engine, now: u64, events: Vec<Event>) {
    engine.open(Tick { now: Timestamp(now), resumed: false, delivered: 0 });
    events.into_iter().for_each(|event| _ = engine.handle_event(event));
    let _ = engine.plan();
    let _ = engine.close().saved();
}

/// An engine with a node of two GPUs that nobody bought.
fn engine() -> Engine {
    let compiled = forebay_policy::compile("p.yaml", POLICY, &forebay_catalog::Catalogue::builtin()).unwrap();
    let shape = OwnedShape { gpus: 2, cpu: MilliCpu(64_000), mem: Mib(1 << 20), ..OwnedShape::default() };
    let (name, pool) = ("n-1".to_owned(), "home".to_owned());
    let node = OwnedNode { name, pool, shape, open: true, foreign: ForeignUse::default() };
    let mut engine = Engine::keeping_finished(3);
    batch(&mut engine, 1, vec![Event::Configured(Box::new(compiled.policy)), Event::OwnedNodeSeen(Box::new(node))]);
    engine
}

/// Why one waits is asked seldom, and changes all the time.
fn without_waits(adopted: BTreeMap<String, AdoptedView>) -> BTreeMap<String, AdoptedView> {
    adopted.into_iter().map(|(uid, known)| (uid, AdoptedView { waits: None, ..known })).collect()
}

#[test]
fn what_has_changed_adds_up_to_a_walk_over_all_jobs() {
    let (mut most_alive, mut left) = (0, 0);
    for seed in 0..30u64 {
        let mut state = seed;
        let mut below = |n: u64| {
            // An LCG by Knuth: its upper bits are random enough here.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % n
        };
        let (mut engine, mut adopted, settings) = (engine(), KnownAdopted::default(), settings());
        for step in 0..80u64 {
            let alive: Vec<(JobId, Attempt)> =
                engine.state().alive_jobs().map(|(job, _)| (job.id, job.attempt)).collect();
            most_alive = most_alive.max(alive.len());
            let one = alive.get(usize::try_from(below(2)).unwrap()).copied();
            let events = match (below(6), one) {
                (0 | 1, _) => vec![object(step)],
                (2, _) => vec![plain(step)],
                (3, _) => {
                    let (tenant, subject) = identity(&object(below(step + 1)));
                    vec![Event::JobCancelled { tenant, subject, by: None, sent: None }]
                }
                (4, Some((job, attempt))) => vec![Event::RunStarted { job, attempt }],
                (_, Some((job, attempt))) if below(2) == 0 => vec![Event::RunCompleted { job, attempt, worker: None }],
                (_, Some((job, attempt))) => vec![Event::RunStopped { job, attempt, progress: None }],
                (_, None) => Vec::new(),
            };
            batch(&mut engine, 1000 * (step + 2), events);
            let scope = if below(4) == 0 { WaitingScope::All } else { WaitingScope::IfEnded };
            let view = adopted.view(engine_view(&engine, &settings, &adopted.jobs, scope), scope);
            let all = EngineView::of(engine.state(), &settings);
            assert_eq!(without_waits(view.adopted), without_waits(all.adopted), "seed {seed}, step {step}");
            assert_eq!((view.runs, view.claims), (all.runs, all.claims), "seed {seed}, step {step}");
        }
        left += engine.state().counters().retired;
    }
    assert!(most_alive == 2 && left > 100, "{most_alive} were alive, and {left} left");
}

#[test]
fn jobs_that_wait_are_looked_at_where_one_has_ended() {
    let (mut engine, adopted, settings) = (engine(), KnownAdopted::default(), settings());
    batch(&mut engine, 2000, (0..50).map(object).chain((50..100).map(plain)).collect());
    let looks = |engine: &Engine, scope| engine_view(engine, &settings, &adopted.jobs, scope).adopted.len();
    assert_eq!(looks(&engine, WaitingScope::IfEnded), 50, "all are new");
    assert_eq!(looks(&engine, WaitingScope::IfEnded), 2, "those that run");
    batch(&mut engine, 3000, vec![object(100)]);
    assert_eq!(looks(&engine, WaitingScope::IfEnded), 3, "and the new one");
    let (tenant, subject) = identity(&object(30));
    batch(&mut engine, 4000, vec![Event::JobCancelled { tenant, subject, by: None, sent: None }]);
    assert_eq!(looks(&engine, WaitingScope::IfEnded), 51, "all that wait or run, and the one that has ended");
    assert_eq!(looks(&engine, WaitingScope::IfEnded), 2);
    assert_eq!(looks(&engine, WaitingScope::All), 50);
}
