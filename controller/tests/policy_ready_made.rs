//! The ready-made policies: each compiles without advice, explains itself to the same policy, fits the schema, and keeps what
//! its comments promise.

use forebay::policy::{Catalogue, Compiled, compile, schema};
use forebay_engine::policy::{Buys, Undeclared};

const READY: [&str; 3] = ["spot-first.yaml", "on-demand-only.yaml", "teams.yaml"];

fn text(name: &str) -> String {
    std::fs::read_to_string(format!("{}/../policies/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn ready(name: &str) -> Compiled {
    compile(name, &text(name), &Catalogue::builtin()).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn each_compiles_without_advice_and_is_bounded() {
    for name in READY {
        let compiled = ready(name);
        assert_eq!(compiled.advice, [], "{name}");
        assert!(compiled.is_bounded(), "{name}");
        println!("{}", compiled.report(name));
    }
}

#[test]
fn what_explain_prints_compiles_to_the_same_policy() {
    for name in READY {
        let first = ready(name);
        let explained = first.explain();
        println!("{explained}");
        let second = compile("explained", &explained, &Catalogue::builtin()).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(first.policy, second.policy, "{name}");
        assert!(!second.explain().contains("# default"), "{name}: an explained policy has no default left");
    }
}

#[test]
fn each_fits_the_schema() {
    let validator = jsonschema::validator_for(&schema()).unwrap();
    for name in READY {
        let json: serde_json::Value = serde_saphyr::from_str(&text(name)).unwrap();
        let faults: Vec<String> = validator.iter_errors(&json).map(|e| format!("{}: {e}", e.instance_path)).collect();
        assert!(faults.is_empty(), "{name}: {faults:#?}");
    }
    let mut broken: serde_json::Value = serde_saphyr::from_str(&text("teams.yaml")).unwrap();
    broken["limitz"] = serde_json::json!({});
    assert!(!validator.is_valid(&broken), "a misspelt key must not fit");
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
        for row in catalogue.rows() {
            assert!(policy.offerings.iter().any(|o| o.instance_type == row.instance_type), "{name}: {}", row.instance_type);
        }
        let Undeclared::Under { rule, .. } = &policy.undeclared else { panic!("{name} rejects undeclared queues") };
        assert_eq!(rule.pools.len(), policy.pools.len(), "{name}");
        assert!(policy.pools.iter().all(|p| p.keep_ready == 0), "{name} never drains to zero");
    }
}
