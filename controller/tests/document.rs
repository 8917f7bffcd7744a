//! The state document from outside: what is exported is planned on as it was, and what is written by hand becomes that state.

use forebay::document::plan::{plan, plan_until_steady};
use forebay::document::state::{StreamedState, load, state_document};
use forebay_catalog::Catalogue;
use forebay_kernel::job::{Level, TopologyConstraint};
use forebay_kernel::policy::Policy;
use forebay_policy::compile;
use forebay_wire::document::plan::PlanDocument;
use forebay_wire::document::seconds::Seconds;
use forebay_wire::document::state::StateDocument;
use forebay_wire::document::views::{JobPhase, NodePhaseView};
use serde_json::{Value, json};

fn policy() -> Policy {
    let text = include_str!("../../policies/teams.yaml");
    compile("teams.yaml", text, &Catalogue::builtin()).expect("the policy is good").policy
}

/// Five jobs on three nodes.
fn written() -> Value {
    let zone = Catalogue::SIMULATED_ZONES[0];
    let node = |name: &str, kind: &str, capacity: &str, phase: &str| json!({ "node": name, "instanceType": kind, "zone": zone, "capacityType": capacity, "phase": phase });
    json!({
        "apiVersion": "forebay/v1", "kind": "State", "now_s": 1000,
        "jobs": [
            { "job": "gang", "queue": "vision/batch", "gpus": 8, "workers": 2, "phase": "running", "nodes": ["a", "b"],
              "submit_s": 5, "since_s": 100, "progress_s": 60 },
            { "job": "coming", "queue": "vision/batch", "gpus": 4, "workers": 1, "phase": "booked", "nodes": ["c"], "submit_s": 900 },
            { "job": "big", "queue": "vision/batch", "gpus": 16, "workers": 2, "phase": "queued", "submit_s": 10,
              "batchKey": "resnet", "within": {"prefer": "rack"} },
            { "job": "impossible", "queue": "vision/batch", "gpus": 60, "workers": 1, "phase": "queued" },
            { "job": "old", "queue": "vision/batch", "gpus": 1, "phase": "completed" },
        ],
        "nodes": [
            node("a", "g5.12xlarge", "spot", "ready"),
            node("b", "g5.12xlarge", "on-demand", "ready"),
            node("c", "g5.12xlarge", "spot", "booting"),
        ],
    })
}

fn loaded(document: &Value) -> forebay::document::state::Loaded {
    let parsed = StateDocument::parse(&document.to_string()).expect("parses");
    load(&parsed, Some(policy())).expect("loads")
}

fn planned(document: &Value) -> PlanDocument {
    plan(loaded(document))
}

#[test]
fn what_is_written_by_hand_becomes_that_state() {
    let loaded = loaded(&written());
    let state = state_document(&loaded.engine).unwrap();
    let streamed = serde_json::to_value(StreamedState::new(&loaded.engine).unwrap()).unwrap();
    assert_eq!(streamed, serde_json::to_value(&state).unwrap(), "as it is streamed it is the same document");
    let of = |subject: &str| state.jobs.iter().find(|j| j.subject.as_deref() == Some(subject)).expect("the job");
    assert_eq!(state.now_s, Some(Seconds(1_000_000)));
    assert_eq!(of("gang").phase, JobPhase::Running);
    assert_eq!(of("gang").nodes.len(), 2);
    assert_eq!((of("gang").submit_s, of("gang").since_s), (Some(Seconds(5_000)), Some(Seconds(100_000))));
    assert_eq!(of("gang").progress_s, Some(Seconds(60_000)));
    assert_eq!(of("coming").phase, JobPhase::Booked);
    let near = TopologyConstraint { level: Level::Rack, required: false };
    assert_eq!((of("big").batch_key.as_deref(), of("big").within.map(|w| w.0)), (Some("resnet"), Some(near)));
    assert!(!state.jobs.iter().any(|j| j.subject.as_deref() == Some("old")), "jobs that are over are left out");
    let phases: Vec<_> = state.nodes.iter().map(|n| n.phase).collect();
    assert_eq!(phases.iter().filter(|p| **p == NodePhaseView::Ready).count(), 2);
    let free: f64 = state.nodes.iter().filter_map(|n| n.gpus_free).sum();
    assert!((free - 0.0).abs() < 1e-9, "three nodes of four GPUs hold twelve: {free} are free");
    assert_eq!(loaded.engine.audit(), Vec::<String>::new());
}

#[test]
fn a_job_that_is_over_stays_over() {
    let old = |submit: u32, since: u32| {
        let mut document = written();
        document["memory"] = json!({});
        document["jobs"][4]["submit_s"] = json!(submit);
        document["jobs"][4]["since_s"] = json!(since);
        document
    };
    for since in [5, 50, 900] {
        let state = state_document(&loaded(&old(50, since)).engine).unwrap();
        let row = state.jobs.iter().find(|job| job.subject.as_deref() == Some("old")).expect("it is known");
        assert_eq!((row.phase, row.since_s), (JobPhase::Completed, Some(Seconds(u64::from(since.max(50)) * 1000))));
    }
    let parsed = StateDocument::parse(&old(50, 1001).to_string()).expect("parses");
    let fault = load(&parsed, Some(policy())).expect_err("it ends after now").to_string();
    assert!(fault.contains("jobs[4].since_s"), "{fault}");
}

#[test]
fn every_pending_job_has_a_reason_and_names_are_the_documents() {
    let planned = planned(&written());
    let pending: Vec<&str> = planned.pending.iter().map(|p| p.job.as_str()).collect();
    assert!(pending.contains(&"big") && pending.contains(&"coming"), "{pending:?}");
    for job in &planned.pending {
        assert!(!job.reason.is_empty() && job.reason != "Accepted", "{job:?}");
    }
    let rejected: Vec<_> = planned.decisions.iter().filter(|d| d.action == "reject").collect();
    assert_eq!(rejected[0].job.as_deref(), Some("impossible"));
    assert_eq!(rejected[0].reason.as_deref(), Some("NoMatchingPool"));
    assert!(planned.decisions.iter().any(|d| d.action == "buy" && !d.nodes.is_empty()));
}

#[test]
fn an_export_is_planned_on_as_it_was() {
    let live = loaded(&written()).engine;
    let text = serde_json::to_string_pretty(&state_document(&live).unwrap()).expect("writes");
    let back = load(&StateDocument::parse(&text).expect("parses"), None).expect("loads");
    assert_eq!(back.engine.snapshot(), live.snapshot());
    // Without its snapshot it is still the same state to whoever plans on it.
    let mut document: Value = serde_json::from_str(&text).expect("JSON");
    document.as_object_mut().expect("an object").remove("snapshot");
    let by_hand = planned(&document);
    let exact = plan(back);
    let actions = |p: &PlanDocument| p.decisions.iter().map(|d| (d.action.clone(), d.job.clone())).collect::<Vec<_>>();
    assert_eq!(actions(&by_hand), actions(&exact));
}

#[test]
fn brakes_and_labels_are_there_again_without_the_snapshot() {
    let mut document = written();
    document["jobs"][2]["labels"] = json!({ "team": "vision" });
    let brakes = json!([
        { "brake": "buying", "by": "ops", "why": "the bill", "since_s": 900, "until_s": 5000 },
        { "brake": "queue", "target": "vision", "by": "ops", "since_s": 800 },
        { "brake": "node", "target": "a", "by": "ops", "since_s": 700 },
    ]);
    document["memory"] = json!({ "brakes": brakes });
    let state = state_document(&loaded(&document).engine).unwrap();
    let memory = state.memory.as_ref().expect("a memory");
    let of = |at: usize| (memory.brakes[at].brake.as_str(), memory.brakes[at].since_s, memory.brakes[at].until_s);
    assert_eq!(of(0), ("buying", Seconds(900_000), Some(Seconds(5_000_000))));
    assert_eq!((of(1), of(2)), (("queue", Seconds(800_000), None), ("node", Seconds(700_000), None)));
    assert_eq!(state.jobs.iter().find(|job| !job.labels.is_empty()).expect("labels").labels["team"], "vision");
    assert!(state.nodes.iter().find(|node| node.node == "node-0").expect("the node").drained.is_some());
    let planned = planned(&document);
    assert!(planned.decisions.iter().all(|d| d.action != "buy"), "{:?}", planned.decisions);
    let big = planned.pending.iter().find(|one| one.job == "big").expect("it waits");
    assert_eq!(big.reason, "QueueHeld");
    document["memory"]["brakes"][2]["target"] = json!("nobody");
    let fault =
        load(&StateDocument::parse(&document.to_string()).expect("parses"), Some(policy())).expect_err("a fault");
    assert_eq!(fault.path, "memory.brakes[2]");
}

#[test]
fn an_edited_or_damaged_export_is_refused() {
    let text = serde_json::to_string(&state_document(&loaded(&written()).engine).unwrap()).expect("writes");
    let load = |document: &Value| {
        let parsed = StateDocument::parse(&document.to_string()).expect("parses");
        load(&parsed, None).expect_err("a fault")
    };
    let good: Value = serde_json::from_str(&text).expect("JSON");
    let mut edited = good.clone();
    edited["jobs"][1]["priority"] = json!(7);
    assert_eq!(load(&edited).path, "jobs[1]");
    let mut damaged = good.clone();
    let bytes = damaged["snapshot"]["bytes"].as_str().expect("text").replacen('A', "B", 1);
    damaged["snapshot"]["bytes"] = json!(bytes);
    assert!(load(&damaged).message.contains("digest"));
    let mut newer = good;
    newer["snapshot"]["applyVersion"] = json!(99);
    assert!(load(&newer).message.contains("newer"));
}

#[test]
fn faults_name_their_path_and_a_remedy() {
    let cases: [(&str, Value, &str); 9] = [
        ("/jobs/2/gpus", json!(15), "jobs[2].gpus"),
        ("/jobs/0/nodes", json!(["a", "nowhere"]), "jobs[0].nodes[1]"),
        ("/jobs/0/nodes", json!([]), "jobs[0].nodes"),
        ("/jobs/0/nodes", json!(["a"]), "jobs[0].nodes"),
        ("/jobs/2/job", json!("gang"), "jobs[2].job"),
        ("/jobs/2/submit_s", json!(2000), "jobs[2].submit_s"),
        ("/jobs/2/tier", json!("golden"), "jobs[2].tier"),
        ("/nodes/0/instanceType", json!("g5.13xlarge"), "nodes[0].instanceType"),
        ("/nodes/0/pool", json!("cellar"), "nodes[0].pool"),
    ];
    for (pointer, value, path) in cases {
        let mut document = written();
        let (parent, field) = pointer.rsplit_once('/').expect("a pointer");
        document.pointer_mut(parent).expect("there")[field] = value.clone();
        let parsed = StateDocument::parse(&document.to_string()).expect("parses");
        let fault = load(&parsed, Some(policy())).expect_err("a fault");
        assert_eq!(fault.path, path, "{pointer} = {value}: {fault}");
        assert!(!fault.remedy.is_empty());
    }
}

#[test]
fn the_schema_takes_what_is_written_and_what_is_exported() {
    let schema = serde_json::to_value(schemars::schema_for!(StateDocument)).expect("a schema");
    let validator = jsonschema::validator_for(&schema).expect("a sound schema");
    let exported = serde_json::to_value(state_document(&loaded(&written()).engine).unwrap()).expect("writes");
    for document in [written(), exported] {
        let wrong: Vec<String> = validator.iter_errors(&document).map(|e| e.to_string()).collect();
        assert_eq!(wrong, Vec::<String>::new());
    }
    let mut misspelt = written();
    misspelt["jobs"][0]["queu"] = json!("x");
    assert!(!validator.is_valid(&misspelt));
}

#[test]
fn the_schema_of_events_takes_the_example_day() {
    let schema = serde_json::to_value(schemars::schema_for!(forebay_wire::intake::JobEvent)).expect("a schema");
    let validator = jsonschema::validator_for(&schema).expect("a sound schema");
    let mut checked = 0;
    for line in include_str!("../../examples/day.jsonl").lines() {
        let event: Value = serde_json::from_str(line).expect("JSON");
        if event["type"].as_str().is_some_and(|t| t.starts_with("job.")) {
            let wrong: Vec<String> =
                validator.iter_errors(&event).map(|e| format!("{}: {e}", e.instance_path)).collect();
            assert_eq!(wrong, Vec::<String>::new(), "{line}");
            checked += 1;
        }
    }
    assert!(checked > 500, "{checked} events");
}

/// A policy of one pool of one node, with these rules of the pool.
fn one_node(types: &str, rules: &str) -> Policy {
    let text = format!(
        "apiVersion: forebay/v1\nkind: Policy\nmetadata: {{name: one}}\nconsolidation: {{worthIt: 0}}\ntiers:\n  \
         normal: {{priority: 500, buys: on-demand, stoppableBy: [critical]}}\n  critical: {{priority: 1000, buys: on-demand}}\n\
         queues: {{q: {{tier: normal, tiers: [normal, critical]}}}}\npools:\n  main: {{instanceTypes: [{types}], ceiling: {{nodes: 1}}, drain: {{after: 300d}}{rules}}}\n"
    );
    let old = text.replace(", tiers: [normal, critical]", "");
    let compiled =
        compile("one.yaml", &text, &Catalogue::builtin()).or_else(|_| compile("one.yaml", &old, &Catalogue::builtin()));
    compiled.expect("the policy is good").policy
}

fn on_one_node(kind: &str, jobs: Vec<Value>) -> Value {
    let zone = Catalogue::SIMULATED_ZONES[0];
    json!({ "apiVersion": "forebay/v1", "kind": "State", "now_s": 100_000, "jobs": jobs, "nodes": [
        { "node": "a", "instanceType": kind, "zone": zone, "capacityType": "on-demand", "phase": "ready", "since_s": 50_000 }
    ] })
}

#[test]
fn a_ceiling_says_what_is_kept_for_another_job() {
    let text = "apiVersion: forebay/v1\nkind: Policy\nmetadata: {name: kept}\nlimits: {gpus: 16}\n\
        tiers: {normal: {priority: 500, buys: on-demand}}\nqueues: {q: {tier: normal}, other: {tier: normal}}\n\
        pools: {main: {instanceTypes: [p4d.24xlarge, g5.xlarge], drain: {after: 300d}}}\n";
    let policy = compile("kept.yaml", text, &Catalogue::builtin()).expect("the policy is good").policy;
    let jobs = json!([
        { "job": "run", "queue": "other", "gpus": 1, "phase": "running", "nodes": ["a"], "submit_s": 90_000, "since_s": 90_000, "expected_s": 20_000 },
        { "job": "big", "queue": "q", "gpus": 16, "workers": 2, "phase": "queued", "submit_s": 95_000, "expected_s": 3600 },
        { "job": "small", "queue": "other", "gpus": 1, "phase": "queued", "submit_s": 96_000, "expected_s": 360_000 },
    ]);
    let document = on_one_node("g5.xlarge", jobs.as_array().expect("a list").clone());
    let planned = plan(load_under(&document, policy));
    let small = planned.pending.iter().find(|p| p.job == "small").expect("it waits");
    assert_eq!(small.reason, "Ceiling", "{}", small.message);
    assert!(small.message.contains("kept for `big`, which is before it"), "{}", small.message);
    assert_eq!((&small.figures["kept_for"], &small.figures["kept_gpus"]), (&json!("job-1"), &json!(15)));
}

fn load_under(document: &Value, policy: Policy) -> forebay::document::state::Loaded {
    load(&StateDocument::parse(&document.to_string()).expect("parses"), Some(policy)).expect("loads")
}

fn actions<'a>(planned: &'a PlanDocument, action: &str) -> Vec<&'a str> {
    let of = planned.decisions.iter().filter(|d| d.action == action);
    of.filter_map(|d| d.job.as_deref()).collect()
}

#[test]
fn a_partitioned_node_by_hand_is_as_its_jobs_need_it() {
    let mig = ", sharing: {mig: [\"7 x 1g.10gb\", \"3g.40gb + 2 x 2g.20gb\", \"whole\"]}";
    let policy = || one_node("p4de.24xlarge", mig);
    let job = |name: &str, milli: u32, mib: u32, more: Value| {
        let mut job = json!({ "job": name, "queue": "q", "gpus": 1, "phase": "queued", "submit_s": 99_900,
            "gpuMilli": milli, "gpuMemMib": mib });
        more.as_object().expect("an object").iter().for_each(|(key, value)| job[key] = value.clone());
        job
    };
    let small = |name: &str| job(name, 140, 8000, json!({}));
    // Idle: as for those that wait, the first layout or another.
    for (milli, mib, fits) in [(140, 8000, 56), (250, 18_000, 24), (400, 38_000, 8)] {
        let jobs = (0..60).map(|n| job(&format!("f{n}"), milli, mib, json!({}))).collect();
        let planned = plan(load_under(&on_one_node("p4de.24xlarge", jobs), policy()));
        assert_eq!(actions(&planned, "start").len(), fits, "{milli}");
        assert!(planned.decisions.iter().filter(|d| d.action == "start").all(|d| d.workers[0].slice.is_some()));
    }
    // With a run: as for that one.
    let running =
        job("r", 140, 8000, json!({ "phase": "running", "nodes": ["a"], "submit_s": 90_000, "since_s": 90_000 }));
    let jobs = std::iter::once(running).chain((0..9).map(|n| small(&format!("f{n}")))).collect();
    let planned = plan(load_under(&on_one_node("p4de.24xlarge", jobs), policy()));
    assert_eq!(actions(&planned, "start").len(), 9);
    // As it is said.
    let mut said = on_one_node("p4de.24xlarge", vec![small("f0")]);
    said["nodes"][0]["layout"] = json!(2);
    let loaded = load_under(&said, policy());
    assert!(loaded.engine.state().nodes().all(|node| node.partition.is_none()));
}

#[test]
fn a_stopping_job_by_hand_is_not_stopped_again() {
    let job = |name: &str, more: Value| {
        let mut job =
            json!({ "job": name, "queue": "q", "gpus": 4, "workers": 1, "phase": "queued", "submit_s": 99_900 });
        more.as_object().expect("an object").iter().for_each(|(key, value)| job[key] = value.clone());
        job
    };
    let jobs = vec![
        job("v", json!({ "phase": "stopping", "nodes": ["a"], "submit_s": 90_000, "since_s": 90_000 })),
        job("w", json!({ "tier": "critical" })),
    ];
    let document = on_one_node("g5.12xlarge", jobs);
    let policy = || one_node("g5.12xlarge", "");
    let planned = plan(load_under(&document, policy()));
    assert_eq!(planned.decisions, []);
    assert_eq!(planned.pending[0].reason, "WaitingForPreemption");
    // It goes on as it would have: the run stops once, and the other one starts.
    let steady = plan_until_steady(load_under(&document, policy()));
    assert_eq!((steady.steady, actions(&steady, "stop").len()), (Some(true), 0));
    assert_eq!(actions(&steady, "start"), ["w"]);
    let start = steady.decisions.iter().find(|d| d.action == "start").expect("a start");
    assert_eq!(
        (start.nodes.as_slice(), start.workers[0].gpus.as_slice()),
        (["a".to_owned()].as_slice(), [0, 1, 2, 3].as_slice())
    );
    assert_eq!(steady.pending.iter().map(|p| p.job.as_str()).collect::<Vec<_>>(), ["v"]);
}

#[test]
fn an_elastic_gang_has_as_many_workers_as_is_said() {
    let job = json!({ "job": "e", "queue": "q", "gpus": 1, "workers": 1, "workersMax": 4, "workersNow": 3, "phase": "running",
        "nodes": ["a"], "submit_s": 90_000, "since_s": 90_000 });
    let loaded = load_under(&on_one_node("g5.12xlarge", vec![job]), one_node("g5.12xlarge", ""));
    let exported = state_document(&loaded.engine).expect("a document");
    assert_eq!((exported.jobs[0].places.len(), exported.jobs[0].workers_now), (3, Some(3)));
    assert_eq!(exported.nodes[0].gpus_free, Some(1.0));
    assert_eq!(loaded.engine.audit(), Vec::<String>::new());
}

#[test]
fn passes_come_to_rest_and_say_what_they_did() {
    let steady = plan_until_steady(loaded(&written()));
    assert_eq!(steady.steady, Some(true));
    let passes = steady.passes.as_deref().expect("passes");
    assert!(passes.len() > 1, "what is bought is ready later, and started on");
    assert!(passes.windows(2).all(|two| two[0].at_s <= two[1].at_s));
    let all: usize = passes.iter().map(|pass| pass.decisions.len()).sum();
    assert_eq!(all, steady.decisions.len());
    assert!(actions(&steady, "start").contains(&"coming") && actions(&steady, "start").contains(&"big"));
}

#[test]
fn a_lack_says_its_figures() {
    let job = |name: &str, gpus: u32, more: Value| {
        let mut job =
            json!({ "job": name, "queue": "q", "gpus": gpus, "workers": 1, "phase": "queued", "submit_s": 99_900 });
        more.as_object().expect("an object").iter().for_each(|(key, value)| job[key] = value.clone());
        job
    };
    let jobs = vec![
        job("r", 3, json!({ "phase": "running", "nodes": ["a"], "submit_s": 90_000, "since_s": 90_000 })),
        job("waits", 2, json!({})),
        job("large", 16, json!({})),
    ];
    let planned = plan(load_under(&on_one_node("g5.12xlarge", jobs), one_node("g5.12xlarge", "")));
    let waits = planned.pending.iter().find(|p| p.job == "waits").expect("it waits");
    assert_eq!(waits.reason, "Ceiling");
    assert_eq!((&waits.figures["limit_nodes"], &waits.figures["used_nodes"]), (&json!(1), &json!(1)));
    assert_eq!(
        waits.figures["held_by"],
        json!([{ "queue": "q", "tier": "normal", "borrows": false, "gpus": 3, "jobs": 1 }])
    );
    assert!(
        waits.message.contains("1 of 1 nodes in use in pool `main`, nodes for all of it add at least 1; the largest holder of GPUs is `q` (normal): 3"),
        "{}",
        waits.message
    );
    let reject = planned.decisions.iter().find(|d| d.action == "reject").expect("a rejection");
    assert_eq!(reject.figures["asked_gpus"], json!(16));
    assert_eq!(reject.figures["nearest"]["gpus"], json!(4));
}

/// Queues `r/a` and `r/c` below `r`, which owns six GPUs; `r/c` may borrow two beside its own two, `r/a` more than there are.
#[test]
fn a_lack_of_quota_names_the_node_that_binds() {
    let text = "apiVersion: forebay/v1\nkind: Policy\nmetadata: {name: t}\ntiers:\n  normal: {priority: 500, buys: on-demand}\nqueues:\n  \
         r: {tier: normal, quota: {main: {gpus: 6}}}\n  r/a: {quota: {main: {gpus: 2, borrow: 20}}}\n  r/c: {quota: {main: {gpus: 2, borrow: 2}}}\npools:\n  \
         main: {instanceTypes: [g5.48xlarge], drain: {after: 300d}}\n";
    let policy = || compile("t.yaml", text, &Catalogue::builtin()).unwrap_or_else(|e| panic!("{e}")).policy;
    let job = |name: &str, queue: &str, gpus: u32| json!({ "job": name, "queue": queue, "gpus": gpus, "workers": 1, "phase": "queued", "submit_s": 99_900 });
    let runs = |name: &str, queue: &str, gpus: u32| json!({ "job": name, "queue": queue, "gpus": gpus, "workers": 1, "phase": "running", "nodes": ["a"], "submit_s": 90_000, "since_s": 90_000 });
    let waits = |jobs: Vec<Value>| {
        let planned = plan(load_under(&on_one_node("g5.48xlarge", jobs), policy()));
        let waits = planned.pending.iter().find(|p| p.job == "waits").expect("it waits");
        assert_eq!(waits.reason, "WaitingForQuota", "{}", waits.message);
        (waits.figures.clone(), waits.message.clone())
    };
    let (figures, message) = waits(vec![runs("one", "r/a", 5), job("waits", "r/a", 6)]);
    assert_eq!(
        (&figures["bound"], &figures["limit_gpus"], &figures["used_gpus"]),
        (&json!("quota of r"), &json!(6), &json!(5))
    );
    assert!(message.contains("`r`, above its queue, uses 5 of its own 6 in pool `main`"), "{message}");
    let (figures, message) = waits(vec![runs("one", "r/c", 3), job("waits", "r/c", 2)]);
    assert_eq!(
        (&figures["bound"], &figures["limit_gpus"], &figures["borrow_gpus"]),
        (&json!("quota of r/c"), &json!(2), &json!(2))
    );
    assert!(message.contains("its queue uses 3 of its own 2, and may borrow 2, in pool `main`"), "{message}");
}

/// What a job that waits or is refused is told, under queues `q`, `q/small` with a quota of its own and `q/poor` with a budget.
fn told(job: Value) -> (String, String, serde_json::Map<String, Value>) {
    let text = "apiVersion: forebay/v1\nkind: Policy\nmetadata: {name: t}\n\
        tiers:\n  normal: {priority: 500, buys: spot}\n  sure: {priority: 400, buys: on-demand}\n\
        queues:\n  q: {tier: normal, tiers: [normal, sure], quota: {main: {gpus: 64}}}\n  \
        q/small: {quota: {main: {gpus: 2, borrow: 2}}}\n  q/poor: {budget: {amount: 1 USD, per: day, whenSpent: hold}}\n\
        pools:\n  main: {instanceTypes: [g5.12xlarge], ceiling: {nodes: 8}}\n";
    let policy = compile("t.yaml", text, &Catalogue::builtin()).unwrap_or_else(|e| panic!("{e}")).policy;
    let mut written = json!({ "job": "a", "phase": "queued", "workers": 1, "submit_s": 900 });
    job.as_object().expect("an object").iter().for_each(|(key, value)| written[key] = value.clone());
    let document = json!({ "apiVersion": "forebay/v1", "kind": "State", "now_s": 1000, "jobs": [written] });
    let planned = plan(load_under(&document, policy));
    if let Some(reject) = planned.decisions.iter().find(|d| d.action == "reject") {
        return (reject.reason.clone().unwrap(), reject.message.clone().unwrap(), reject.figures.clone());
    }
    let waits = planned.pending.into_iter().find(|p| p.job == "a").expect("it waits");
    (waits.reason, waits.message, waits.figures)
}

#[test]
fn a_tier_that_does_not_buy_what_fits_is_said_so() {
    let (code, message, figures) = told(json!({ "queue": "q", "gpus": 4, "spot": false }));
    assert_eq!((code.as_str(), &figures["nearest"]["instance_type"]), ("NoMatchingPool", &json!("g5.12xlarge")));
    assert!(
        message.contains("which it may not run on") || message.contains("which its tier does not buy"),
        "{message}"
    );
    let (code, ..) = told(json!({ "queue": "q", "gpus": 4, "spot": false, "tier": "sure" }));
    assert_eq!(code, "AwaitingNodes");
}

#[test]
fn more_than_all_quota_names_the_node_that_bounds_it() {
    let (code, message, figures) = told(json!({ "queue": "q/small", "gpus": 6, "workers": 2 }));
    assert_eq!(code, "ExceedsMaxQuota", "{message}");
    assert_eq!((&figures["bound"], &figures["pool"]), (&json!("quota of q/small"), &json!("main")));
    assert_eq!(
        (&figures["limit_gpus"], &figures["borrow_gpus"], &figures["most_gpus"]),
        (&json!(2), &json!(2), &json!(4))
    );
    assert!(message.contains("the quota of `q/small` in pool `main` is 2, and it may borrow 2"), "{message}");
}

#[test]
fn a_budget_that_an_hour_is_beyond_says_whose_it_is() {
    let (code, message, figures) = told(json!({ "queue": "q/poor", "gpus": 4 }));
    assert_eq!((code.as_str(), &figures["queue"]), ("BeyondBudget", &json!("q/poor")), "{message}");
    assert_eq!((&figures["bound"], &figures["budget_usd"]), (&json!("budget of q/poor"), &json!(1.0)));
    assert!(message.contains("the budget is that of `q/poor`"), "{message}");
}

#[test]
fn a_deadline_that_can_only_be_counted_is_said_beside_why_it_waits() {
    let (_, message, figures) = told(json!({ "queue": "q", "gpus": 4, "deadline_s": 90_000 }));
    assert_eq!((&figures["deadline"], &figures["deadline_s"]), (&json!("only-counted"), &json!(90_000)));
    assert!(message.contains("its deadline is only counted: state `expectedRun`"), "{message}");
    let (_, _, figures) = told(json!({ "queue": "q", "gpus": 4, "deadline_s": 90_000, "expected_s": 60 }));
    assert!(!figures.contains_key("deadline"), "{figures:?}");
}
