//! What a job that waits is told of what it lacks: the bound that is in the way, what it would take, and a time only where one is known.

use forebay::document::plan::plan;
use forebay::document::state::load;
use forebay_catalog::Catalogue;
use forebay_policy::compile;
use forebay_wire::document::plan::{PendingJob, PlanDocument};
use forebay_wire::document::state::StateDocument;
use serde_json::{Value, json};

/// What a plan says under a policy with these queues, pools and limits.
fn planned(rest: &str, jobs: &[Value], nodes: &[(&str, &str)]) -> PlanDocument {
    let text = format!(
        "apiVersion: forebay/v1\nkind: Policy\nmetadata: {{name: lacks}}\ntiers: {{normal: {{priority: 500, buys: on-demand}}, cheap: {{priority: 500, buys: spot}}}}\n{rest}"
    );
    let policy = compile("lacks.yaml", &text, &Catalogue::builtin()).unwrap_or_else(|e| panic!("{e}")).policy;
    let zone = Catalogue::SIMULATED_ZONES[0];
    let node = |(name, kind): &(&str, &str)| json!({ "node": name, "instanceType": kind, "zone": zone, "capacityType": "on-demand", "phase": "ready" });
    let nodes: Vec<Value> = nodes.iter().map(node).collect();
    let document =
        json!({ "apiVersion": "forebay/v1", "kind": "State", "now_s": 100_000, "jobs": jobs, "nodes": nodes });
    let document = StateDocument::parse(&document.to_string()).expect("parses");
    plan(load(&document, Some(policy)).expect("loads"))
}

fn running(job: &str, queue: &str, gpus: u32, node: &str) -> Value {
    json!({ "job": job, "queue": queue, "gpus": gpus, "phase": "running", "submit_s": 90_000, "firstStart_s": 90_100, "nodes": [node] })
}

fn waiting(job: &str, queue: &str, gpus: u32, workers: u32) -> Value {
    json!({ "job": job, "queue": queue, "gpus": gpus, "workers": workers, "phase": "queued", "submit_s": 99_000 })
}

fn of<'p>(plan: &'p PlanDocument, job: &str, code: &str) -> &'p PendingJob {
    let found = plan.pending.iter().find(|p| p.job == job).unwrap_or_else(|| panic!("{job} waits: {plan:?}"));
    assert_eq!(found.reason, code, "{}", found.message);
    found
}

#[test]
fn a_ceiling_of_a_pool_is_that_of_the_pool_that_has_no_room() {
    let rest = "queues: {q: {pools: [a, b]}}\npools:\n  a: {instanceTypes: [g5.xlarge], ceiling: {gpus: 1, spend: 100 USD/h}}\n  \
                b: {instanceTypes: [g6.xlarge], ceiling: {spend: 1 USD/h}}\nlimits: {nodes: 50}\n";
    let jobs = [running("r1", "q", 1, "n1"), running("r2", "q", 1, "n2"), waiting("w", "q", 1, 1)];
    let plan = planned(rest, &jobs, &[("n1", "g5.xlarge"), ("n2", "g6.xlarge")]);
    let w = of(&plan, "w", "Ceiling");
    let number = |name: &str| w.figures[name].as_f64().unwrap_or_else(|| panic!("{name} in {:?}", w.figures));
    match w.figures["bound"].as_str() {
        Some("ceiling.spend") => {
            assert_eq!(w.figures["pool"], "b", "{}", w.message);
            assert!(number("used_usd_per_hour") + number("adds_usd_per_hour") > number("limit_usd_per_hour"));
        }
        Some("ceiling.gpus") => assert_eq!(w.figures["pool"], "a", "{}", w.message),
        other => panic!("{other:?}: {}", w.message),
    }
}

#[test]
fn a_ceiling_says_how_much_more_it_takes() {
    let rest = "queues: {x: {}}\npools:\n  a: {instanceTypes: [g5.12xlarge], ceiling: {nodes: 4}}\nlimits: {nodes: 50, gpus: 17}\n";
    let jobs = [running("r1", "x", 4, "n1"), running("r2", "x", 4, "n2"), waiting("gang", "x", 12, 3)];
    let plan = planned(rest, &jobs, &[("n1", "g5.12xlarge"), ("n2", "g5.12xlarge")]);
    let gang = of(&plan, "gang", "Ceiling");
    let figures = ["bound", "limit_gpus", "used_gpus", "adds_gpus"].map(|name| gang.figures[name].clone());
    assert_eq!(figures, [json!("limits.gpus"), json!(17), json!(8), json!(12)], "{}", gang.message);
    assert!(gang.message.contains("8 of 17 GPUs in use, nodes for all of it add at least 12"), "{}", gang.message);
}

#[test]
fn what_no_ceiling_allows_names_the_ceiling_that_is_too_low() {
    let rest = "queues: {q: {}}\npools:\n  a: {instanceTypes: [g5.48xlarge], ceiling: {spend: 30 USD/h}}\nlimits: {nodes: 50}\n";
    let plan = planned(rest, &[waiting("x", "q", 16, 2)], &[]);
    let refused = plan
        .decisions
        .iter()
        .find(|d| d.job.as_deref() == Some("x") && ["hold", "reject"].contains(&d.action.as_str()));
    let message = refused.and_then(|d| d.message.clone()).unwrap_or_else(|| panic!("{:?}", plan.decisions));
    assert!(message.contains("at least 32.5") && message.contains("`ceiling.spend` of pool `a` is 30.0"), "{message}");
    assert!(!message.contains("budget") && !message.contains("limits.nodes"), "{message}");
}

#[test]
fn a_budget_that_the_clock_does_not_open_promises_no_time() {
    let rest = |amount: &str| {
        format!(
            "queues: {{q: {{budget: {{amount: {amount}, per: hour}}}}}}\npools:\n  a: {{instanceTypes: [g5.xlarge]}}\nlimits: {{nodes: 50}}\n"
        )
    };
    let jobs = [running("r1", "q", 1, "n1"), waiting("w", "q", 1, 1)];
    let plan = planned(&rest("1.5 USD"), &jobs, &[("n1", "g5.xlarge")]);
    let w = of(&plan, "w", "Budget");
    assert_eq!(w.eta_s, None, "{}", w.message);
    assert!(!w.message.contains("next period") && w.message.contains("it asks at least 1.0"), "{}", w.message);
}

#[test]
fn what_is_kept_for_another_names_it_and_promises_no_time_that_nobody_knows() {
    let rest = "queues:\n  x: {quota: {a: {gpus: 4}}}\npools:\n  a: {instanceTypes: [g5.xlarge], ceiling: {nodes: 4}}\nlimits: {nodes: 50}\n";
    let jobs = [
        running("r1", "x", 1, "n1"),
        running("r2", "x", 1, "n2"),
        waiting("gang", "x", 4, 4),
        waiting("small", "x", 1, 1),
    ];
    let plan = planned(rest, &jobs, &[("n1", "g5.xlarge"), ("n2", "g5.xlarge")]);
    let small = of(&plan, "small", "KeptForAnother");
    assert_eq!((small.eta_s, small.figures.get("until_s")), (None, None), "{}", small.message);
    assert!(small.message.contains("kept for `gang`, which is before it"), "{}", small.message);
}

#[test]
fn a_borrower_that_has_more_than_its_share_is_not_told_that_a_lender_wants_its_quota() {
    let rest = "queues:\n  c: {quota: {a: {gpus: 4}}}\n  c/x: {quota: {a: {gpus: 0, borrow: all}}}\n  c/y: {quota: {a: {gpus: 0, borrow: all}}}\n\
                pools:\n  a: {instanceTypes: [g5.12xlarge]}\nlimits: {nodes: 50}\n";
    let mut jobs: Vec<Value> = (1..=4).map(|nth| running(&format!("r{nth}"), "c/x", 1, "n1")).collect();
    jobs.push(waiting("w", "c/y", 1, 1));
    let plan = planned(rest, &jobs, &[("n1", "g5.12xlarge")]);
    let stops: Vec<_> = plan.decisions.iter().filter(|d| d.action == "stop").collect();
    assert!(!stops.is_empty(), "{:?}", plan.decisions);
    for stop in stops {
        let message = stop.message.clone().unwrap_or_default();
        assert!(!message.contains("wants its quota back"), "{message}");
    }
}
