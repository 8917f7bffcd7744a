//! Two traces that were slow once, through the simulator: many shapes at a ceiling, and many equal jobs on a large fleet whose GPUs may be shared.
//!
//! Timed is what the engine takes of the run; the world, its audits and the scorecard are not in it.
//!
//! Never: a market that moves.

use forebay_kernel::policy::{Ceiling, Policy};
use forebay_sim::drive::{AuditSchedule, SimOptions, simulate};
use forebay_sim::market::Market;
use forebay_sim::policies;
use forebay_sim::trace::{Trace, TraceFormat, TraceJob};
use forebay_sim::world::spot_pairs;

use super::fleet::cpu_nanos;
use super::report::{Figure, Report};

/// 3,000 one-GPU jobs, no two of which ask for the same CPU, two a second, on 50 nodes of 8.
pub fn shapes(report: &mut Report, size: u64) {
    let jobs = (0..size).map(|n| TraceJob { cpu_milli: 1000 + n, ..one(n, n * 500, 600) });
    let nodes = (size / 60).max(1) as u32;
    let policy =
        Policy { limits: Ceiling { nodes: Some(nodes), ..Ceiling::default() }, ..policy(&["g5.48xlarge"], false) };
    run(report, "shapes-3k", policy, jobs.collect());
}

/// 10,000 equal jobs of 5 s, a hundred a second, on 3,000 nodes in a pool that shares its GPUs.
pub fn sharing(report: &mut Report, size: u64) {
    let jobs = (0..size).map(|n| TraceJob { estimate_ms: Some(5_000), ..one(n, n * 10, 5) });
    let nodes = (size * 3 / 10) as u32;
    let policy = Policy {
        limits: Ceiling { nodes: Some(nodes), ..Ceiling::default() },
        ..policy(&["g5.xlarge", "g5.12xlarge", "g5.48xlarge"], true)
    };
    run(report, "sharing-10k", policy, jobs.collect());
}

fn policy(types: &[&str], shares: bool) -> Policy {
    let mut policy = policies::spot_first();
    policy.offerings = policies::offerings(types, &["us-east-1a", "us-east-1b", "us-east-1c"]);
    policy.pools[0].offerings = (0..policy.offerings.len() as u32).collect();
    if !shares {
        policy.pools[0].sharing = None;
    }
    policy
}

fn one(number: u64, submit_ms: u64, seconds: u64) -> TraceJob {
    TraceJob {
        id: format!("j{number}"),
        submit_ms,
        duration_ms: seconds * 1000,
        gpus: 1,
        workers: Some(1),
        gpu_milli: 1000,
        ..TraceJob::default()
    }
}

fn run(report: &mut Report, name: &str, policy: Policy, jobs: Vec<TraceJob>) {
    let market = Market::calm(&spot_pairs(&policy));
    let trace = Trace { name: name.to_owned(), format: TraceFormat::Normalized, jobs, notes: Vec::new() };
    let mut options = SimOptions::new(1, market);
    options.audit = AuditSchedule::AtEnd;
    options.clock = cpu_nanos;
    let outcome = simulate(policy, &trace, options).expect("it ends");
    assert_eq!(outcome.scorecard.completed, trace.jobs.len() as u64, "all are done");
    report.push(Figure::of(name, "engine_s", outcome.scorecard.engine_s, "s", &[]));
}
