//! The ready-made policies: each compiles without advice, explains itself to the same policy, fits the schema, and keeps what
//! its comments promise.

use forebay_catalog::Catalogue;
use forebay_kernel::ids::PoolId;
use forebay_kernel::policy::{Buys, QueueOrder, Undeclared};
use forebay_kernel::state::quota::QuotaTree;
use forebay_kernel::units::MilliGpu;
use forebay_policy::{Compiled, compile, schema};
use serde_json::{Value, json};

/// Not a ready-made one: it has every field once.
const EVERYTHING: &str = "../crates/policy/tests/data/everything.yaml";
const READY: [&str; 7] = [
    "spot-first.yaml",
    "on-demand-only.yaml",
    "teams.yaml",
    "deadline.yaml",
    "inference.yaml",
    "mig.yaml",
    "notebooks.yaml",
];

fn text(name: &str) -> String {
    std::fs::read_to_string(format!("../../policies/{name}")).unwrap()
}

fn ready(name: &str) -> Compiled {
    compile(name, &text(name), &Catalogue::builtin()).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn each_compiles_without_advice_and_is_bounded() {
    for name in READY {
        let compiled = ready(name);
        assert_eq!(compiled.advice, [], "{name}");
        assert!(compiled.policy.limits.nodes.is_some() && compiled.policy.limits.spend.is_some(), "{name}");
    }
}

#[test]
fn what_explain_prints_compiles_to_the_same_policy() {
    for name in READY.iter().chain(&[EVERYTHING]) {
        let first = ready(name);
        let explained = first.explain();
        let second = compile("explained", &explained, &Catalogue::builtin()).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(first.policy, second.policy, "{name}");
        assert!(!second.explain().contains("# default"), "{name}: an explained policy has no default left");
    }
}

#[test]
fn explain_says_which_rules_undeclared_queues_have() {
    let note = |text: &str| {
        let explained = compile("p.yaml", text, &Catalogue::builtin()).unwrap_or_else(|e| panic!("{e}")).explain();
        let line = explained.lines().find(|line| line.trim_start().starts_with("under:")).unwrap().to_owned();
        line.split_once("  # ").map(|(_, note)| note.to_owned())
    };
    let below = "not declared: it has the rules of `research`: tier `normal`, pools `h100`, `a10g`";
    assert_eq!(note(&text(EVERYTHING)).as_deref(), Some(below));
    let alone = text(EVERYTHING).replace("under: research/other", "under: rest").replace(", borrow: 4", "");
    let nothing = "not declared: it has the rules of a queue that states nothing: tier `normal`, pools `h100`, `a10g`, \
                   `rest`, `slices`, `lab`";
    assert_eq!(note(&alone).as_deref(), Some(nothing));
    assert_eq!(note(&alone.replace("under: rest", "under: idle")), None, "it is declared");
}

#[test]
fn a_queue_orders_its_jobs_as_its_parent_does_unless_it_says_otherwise() {
    let stated = text(EVERYTHING).replacen("order: shortest-expected", "order: arrival", 1);
    let stated = stated.replacen("    weight: 2\n", "    weight: 2\n    order: shortest-expected\n", 1);
    let queues = compile("p.yaml", &stated, &Catalogue::builtin()).unwrap_or_else(|e| panic!("{e}")).policy.queues;
    assert_eq!(queues["research/language/prod"].order, QueueOrder::ShortestExpected, "as `research`");
    assert_eq!(queues["research/vision"].order, QueueOrder::Arrival, "as it says");
    assert_eq!(queues["interactive"].order, QueueOrder::Arrival, "by default");
}

#[test]
fn each_fits_the_schema() {
    let validator = jsonschema::validator_for(&schema()).unwrap();
    for name in READY.iter().chain(&[EVERYTHING]) {
        let json: serde_json::Value = serde_saphyr::from_str(&text(name)).unwrap();
        let faults: Vec<String> = validator.iter_errors(&json).map(|e| format!("{}: {e}", e.instance_path)).collect();
        assert!(faults.is_empty(), "{name}: {faults:#?}");
    }
    let mut broken: serde_json::Value = serde_saphyr::from_str(&text("teams.yaml")).unwrap();
    broken["limitz"] = serde_json::json!({});
    assert!(!validator.is_valid(&broken), "a misspelt key must not fit");
}

/// JSON pointers to all values below this one, which is at `at`.
fn pointers(value: &Value, at: &str, out: &mut Vec<String>) {
    let below: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields.iter().map(|(key, value)| (key.replace('/', "~1"), value)).collect(),
        Value::Array(items) => items.iter().enumerate().map(|(at, item)| (at.to_string(), item)).collect(),
        _ => Vec::new(),
    };
    for (step, value) in below {
        let at = format!("{at}/{step}");
        pointers(value, &at, out);
        out.push(at);
    }
}

/// Everything, with one value after another replaced by nothing.
#[test]
fn the_schema_refuses_a_key_with_nothing_after_it_where_the_compiler_does() {
    let (schema, catalogue) = (schema(), Catalogue::builtin());
    let validator = jsonschema::validator_for(&schema).unwrap();
    let mut whole: Value = serde_saphyr::from_str(&text(EVERYTHING)).unwrap();
    whole["billing"] = json!({"labels": ["team"], "zone": "Europe/Berlin"});
    whole["impossible"] = json!("hold");
    whole["nodeOverhead"] = json!("0.1 USD/h");
    for section in schema["properties"].as_object().unwrap().keys() {
        assert!(whole.get(section).is_some(), "`{section}` is not tried here");
    }
    let mut places = Vec::new();
    pointers(&whole, "", &mut places);
    let is_about_nothing = |said: &str| {
        let words = ["nothing stands", "is missing", "no pool is declared", "no tier is declared"];
        words.iter().any(|words| said.contains(words))
    };
    let (mut taken, mut refused) = (Vec::new(), Vec::new());
    for at in places {
        let mut emptied = whole.clone();
        *emptied.pointer_mut(&at).unwrap() = Value::Null;
        let fits = validator.is_valid(&emptied);
        match compile("p.yaml", &serde_json::to_string_pretty(&emptied).unwrap(), &catalogue) {
            Ok(_) => {
                assert!(fits, "{at}: the compiler takes nothing there, the schema does not");
                taken.push(at);
            }
            Err(errors) if is_about_nothing(&errors.to_string()) => {
                assert!(!fits, "{at}: the schema takes nothing there, the compiler does not:\n{errors}");
                refused.push(at);
            }
            Err(_) => {}
        }
    }
    for section in ["/billing", "/consolidation", "/fairness", "/lifecycle", "/routes", "/queues/research~1vision"] {
        assert!(taken.iter().any(|at| at == section), "{section} may be empty: {taken:?}");
    }
    assert!(refused.len() > 100, "{refused:?}");
}

#[test]
fn spot_first_and_on_demand_only_differ_in_what_they_buy_and_nothing_else() {
    let (spot, mut on_demand) = (ready("spot-first.yaml").policy, ready("on-demand-only.yaml").policy);
    assert!(spot.tiers.iter().any(|t| t.buys == Buys::SpotThenOnDemand));
    assert!(on_demand.tiers.iter().all(|t| t.buys == Buys::OnDemand));
    on_demand.name.clone_from(&spot.name);
    for (theirs, ours) in on_demand.tiers.iter_mut().zip(&spot.tiers) {
        theirs.buys = ours.buys;
    }
    // Spot is not even offered where nobody buys it.
    on_demand.offerings.clone_from(&spot.offerings);
    for (theirs, ours) in on_demand.pools.iter_mut().zip(&spot.pools) {
        theirs.offerings.clone_from(&ours.offerings);
    }
    assert_eq!(spot, on_demand);
}

#[test]
fn every_type_of_the_catalogue_can_be_bought_and_undeclared_queues_share_one_quota() {
    let catalogue = Catalogue::builtin();
    for name in READY {
        let policy = ready(name).policy;
        for row in &catalogue.rows {
            let offered = policy.offerings.iter().any(|o| o.instance_type == row.instance_type);
            // Parts of a GPU are had by name only.
            assert_eq!(offered, !row.is_fractional(), "{name}: {}", row.instance_type);
        }
        let Undeclared::Under { rule, .. } = &policy.undeclared else { panic!("{name} rejects undeclared queues") };
        assert_eq!(rule.pools.len(), policy.pools.len(), "{name}");
        assert!(policy.pools.iter().all(|p| p.keep_ready == 0), "{name} never drains to zero");
    }
}

/// A cohort's written quota is the total of all below it; the engine counts a cohort's own beside its children's.
#[test]
fn the_engine_grants_what_the_written_quotas_say() {
    let policy = ready("teams.yaml").policy;
    let tree = QuotaTree::new(&policy);
    let pool = |name: &str| policy.pools.iter().position(|p| p.name == name).map(|at| PoolId(at as u16)).unwrap();
    let grants = |queue: &str, name: &str| tree.potential(policy.queues[queue].quota, pool(name));
    for (queue, name, gpus) in [
        ("vision", "small", 600),
        ("vision/batch", "small", 600),    // its 300 and all that its team has to spare
        ("vision/backfill", "large", 200), // nothing of its own, but the team's
        ("language/interactive", "large", 64), // 32 and at most 32 more
        ("search/batch", "small", 300),    // interactive keeps 100 of its 200 to itself
        ("search/interactive", "small", 400),
    ] {
        assert_eq!(grants(queue, name), MilliGpu::whole(gpus), "{queue} {name}");
    }
    let Undeclared::Under { rule, .. } = &policy.undeclared else { panic!("undeclared queues are rejected") };
    assert_eq!(tree.potential(rule.quota, pool("small")), MilliGpu::whole(3000));
    // Nobody names a quota for the CPU pool: the ceilings are its bound.
    assert!(grants("vision/batch", "cpu") > MilliGpu::whole(100_000_000));
}

#[test]
fn the_schema_is_the_committed_one() {
    let committed = text("schema/policy.json");
    let fresh = serde_json::to_string_pretty(&schema()).expect("JSON") + "\n";
    let differs = fresh.lines().zip(committed.lines()).position(|(a, b)| a != b);
    assert!(fresh == committed, "policies/schema/policy.json differs at line {differs:?}; run `cargo xtask schema`");
}
