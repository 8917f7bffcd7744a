//! Two weeks of the sharing bench, so that its figures cannot go unnoticed: `cargo xtask bench sharing` is the whole of it.

use forebay_catalog::Catalogue;
use forebay_policy::compile;
use forebay_sim::drive::{AuditSchedule, SimOptions, simulate};
use forebay_sim::market::Market;
use forebay_sim::score::Scorecard;
use forebay_sim::trace::{Trace, TraceFormat, generate_sharing};
use forebay_sim::world::spot_pairs;

const SEED: u64 = 1;
const DAY_MS: u64 = 86_400_000;

fn two_weeks() -> Trace {
    Trace {
        name: "two-weeks".into(),
        format: TraceFormat::Normalized,
        jobs: generate_sharing(SEED, 14),
        notes: Vec::new(),
    }
}

fn card(policy: &str, trace: &Trace) -> Scorecard {
    let path = format!("../benches/sharing/{policy}.yaml");
    let text = std::fs::read_to_string(&path).unwrap();
    let compiled = compile(&path, &text, &Catalogue::builtin()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(compiled.advice, [], "{policy}");
    let market = Market::seeded(SEED, &spot_pairs(&compiled.policy), 30 * DAY_MS);
    let options = SimOptions { audit: AuditSchedule::AtEnd, ..SimOptions::new(SEED, market) };
    let outcome = simulate(compiled.policy, trace, options).unwrap_or_else(|e| panic!("{policy}: {e}"));
    assert_eq!(outcome.violations, Vec::<String>::new(), "{policy}");
    assert_eq!(outcome.scorecard.gpu_memory_violations, 0, "{policy}");
    outcome.scorecard
}

#[test]
fn sharing_spot_and_tiers_do_what_the_report_says() {
    let trace = two_weeks();
    let (before, after) = (card("one-job-a-gpu", &trace), card("forebay", &trace));
    let (was, is) = (before.utilization.unwrap(), after.utilization.unwrap());
    assert!((0.28..=0.34).contains(&was), "one job a GPU: {was}");
    assert!(is >= 0.70, "shared: {is}");
    assert!(after.spot_ratio >= Some(0.72), "spot {:?}", after.spot_ratio);
    let lower = 1.0 - after.cost_usd / before.cost_usd;
    assert!(lower >= 0.70, "spend is lower by {lower}");
    assert!(after.wait_s.p95 < 240.0, "p95 wait {} s", after.wait_s.p95);
    assert_eq!((after.completed, after.lost), (trace.jobs.len() as u64, 0));
}
