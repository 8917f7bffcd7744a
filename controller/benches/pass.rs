//! One pass in which owners take quota back: borrowers run everywhere, and each owner that waits asks for something of its own.
//!
//! `cargo bench -p forebay --bench pass [-- BORROWERS OWNERS]` prints the time of the pass, the least of five. With 3,000 borrowers and 750
//! owners, the default, it fails above 50 ms.

use forebay::document::plan::plan;
use forebay::document::state::load;
use forebay_catalog::Catalogue;
use forebay_driver::step::BatchStep;
use forebay_kernel::event::Tick;
use forebay_policy::compile;
use forebay_wire::document::state::StateDocument;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Borrowers and owners for which the bound is stated.
const STATED: (usize, usize) = (3_000, 750);
const BOUND: Duration = Duration::from_millis(50);

fn main() {
    let mut asked = std::env::args().filter_map(|word| word.parse::<usize>().ok());
    let (borrowers, owners) = (asked.next().unwrap_or(STATED.0), asked.next().unwrap_or(STATED.1));
    let catalogue = Catalogue::builtin().with_zones(["sim-1a"].into_iter());
    let policy = compile("bench.yaml", &policy(borrowers).to_string(), &catalogue).expect("it compiles").policy;
    let document = StateDocument::parse(&state(borrowers, owners).to_string()).expect("it is a state");
    let fresh = || load(&document, Some(policy.clone())).expect("it can be loaded");
    let planned = plan(fresh());
    let served = planned.pending.iter().filter(|waits| waits.reason == "WaitingForPreemption").count();
    assert_eq!(served, owners, "something is stopped for each owner");
    let pass = || {
        let mut loaded = fresh();
        let now = loaded.engine.state().now();
        let begun = Instant::now();
        let planned = BatchStep::open(&mut loaded.engine, Tick { now, resumed: false, delivered: 0 }).plan();
        let took = begun.elapsed();
        assert!(!planned.batch().decisions.is_empty(), "it decides");
        took
    };
    let least = (0..5).map(|_| pass()).min().expect("five");
    println!("{borrowers} borrowers, {owners} owners   {:>8.1} ms a pass", least.as_secs_f64() * 1e3);
    assert!((borrowers, owners) != STATED || least <= BOUND, "more than {BOUND:?}");
}

fn policy(borrowers: usize) -> Value {
    json!({
        "apiVersion": "forebay/v1",
        "kind": "Policy",
        "metadata": {"name": "bench"},
        "tiers": {"normal": {"priority": 500, "buys": "on-demand"}},
        "queues": {
            "all": {"quota": {"main": {"gpus": borrowers}}},
            "all/borrower": {"quota": {"main": {"gpus": 0, "borrow": "all"}}},
            "all/owner": {"quota": {"main": {"gpus": borrowers, "borrow": 0}}},
        },
        "pools": {"main": {
            "instanceTypes": ["g5.48xlarge"],
            "ceiling": {"nodes": borrowers.div_ceil(8)},
            "drain": {"after": "300d"},
        }},
    })
}

fn state(borrowers: usize, owners: usize) -> Value {
    let nodes = (0..borrowers.div_ceil(8)).map(|n| {
        json!({"node": format!("n{n}"), "instanceType": "g5.48xlarge", "zone": "sim-1a", "capacityType": "on-demand", "phase": "ready", "since_s": 50_000})
    });
    let runs = (0..borrowers).map(|n| {
        let since = 80_000 + n;
        json!({"job": format!("b{n}"), "queue": "all/borrower", "gpus": 1, "phase": "running", "nodes": [format!("n{}", n / 8)], "submit_s": since, "since_s": since})
    });
    let waiting = (0..owners).map(|n| {
        json!({"job": format!("o{n}"), "queue": "all/owner", "gpus": 1, "memMib": 1_000 + n, "phase": "queued", "submit_s": 99_900})
    });
    let jobs: Vec<Value> = runs.chain(waiting).collect();
    json!({"apiVersion": "forebay/v1", "kind": "State", "now_s": 100_000, "nodes": nodes.collect::<Vec<_>>(), "jobs": jobs})
}
