//! Whole simulations: every job comes out, the nodes go back to zero, the books agree, and a crash changes nothing.

use forebay_kernel::ids::PoolId;
use forebay_kernel::policy::{Policy, Pool, Undeclared};
use forebay_kernel::state::owned::OwnedPool;
use forebay_kernel::units::Rate;
use forebay_sim::convert::OwnedFault;
use forebay_sim::drive::{AuditSchedule, SimError, SimOptions, SimOutcome, simulate};
use forebay_sim::market::Market;
use forebay_sim::policies;
use forebay_sim::trace::{Trace, TraceFormat, TraceJob, TraceNode, generate_trace};
use forebay_sim::world::spot_pairs;

const DAY_MS: u64 = 24 * 3_600_000;

fn trace(jobs: Vec<TraceJob>) -> Trace {
    Trace { name: "made".into(), format: TraceFormat::Normalized, jobs, notes: Vec::new() }
}

fn market() -> Market {
    Market::seeded(3, &spot_pairs(&policies::spot_first()), 20 * DAY_MS)
}

fn run<'a>(trace: &'a Trace, change: impl FnOnce(&mut SimOptions<'a>)) -> SimOutcome {
    let mut options = SimOptions::new(3, market());
    options.audit = AuditSchedule::Every(50);
    change(&mut options);
    simulate(policies::spot_first(), trace, options).expect("it ends")
}

fn json(outcome: &SimOutcome) -> String {
    serde_json::to_string_pretty(&outcome.scorecard).expect("it can be written")
}

#[test]
fn every_job_comes_out_and_the_books_agree() {
    let jobs = 400;
    let outcome = run(&trace(generate_trace(5, jobs)), |_| {});
    let card = &outcome.scorecard;
    assert_eq!(outcome.violations, Vec::<String>::new());
    assert_eq!((card.jobs, card.completed), (400, 400));
    assert_eq!((card.rejected, card.failed, card.lost, card.nodes_at_end), (0, 0, 0, 0));
    assert!(card.is_sound());
    assert!(card.reclaims > 0 && card.spot_ratio > Some(0.0), "spot comes and goes");
    assert!(card.cost_lower_bound_usd < card.cost_usd && card.cost_usd < card.cost_on_demand_only_usd);
    assert!(card.gpu_hours_bought > card.gpu_hours_allocated);
    let wasted = &card.gpu_hours_wasted;
    let kinds = card.gpu_hours_allocated + wasted.boot + wasted.idle + wasted.fragmentation + wasted.booked;
    assert!((kinds - card.gpu_hours_bought).abs() < 1e-3, "kinds add up to what was bought");
    assert_eq!(card.gpu_hours_busy, None, "the trace does not state it");
    let by_kind = card.cost_usd_by_kind.as_ref().expect("a simulation knows it");
    assert!((by_kind.values().sum::<f64>() - card.cost_usd).abs() < 1e-6, "{by_kind:?} of {}", card.cost_usd);
    assert!(by_kind["boot"] > 0.0 && by_kind["worked"] > by_kind["boot"], "{by_kind:?}");
    let wakeups = card.wakeups_per_day.expect("it lasted");
    assert!(wakeups > 0.0 && wakeups * card.makespan_s / 86_400.0 <= card.nodes_launched as f64 + 0.5, "{wakeups}");
    assert!(card.node_ticks_short.expect("a simulation counts them") <= card.nodes_launched * 3, "boots take minutes");
}

#[test]
fn who_has_waited_long_enough_is_taken_back() {
    let job = |id: &str, wait: Option<u64>| TraceJob {
        id: id.into(),
        gpus: 8,
        gpu_milli: 1000,
        duration_ms: 3_600_000,
        max_wait_ms: wait,
        ..TraceJob::default()
    };
    let fleet =
        [TraceNode { id: "n".into(), cpu_milli: 96_000, mem_mib: 786_432, gpus: 8, line: 2, ..TraceNode::default() }];
    let jobs = [
        job("first", Some(60_000)),
        job("patient", None),
        job("gone", Some(1_800_000)),
        job("served", Some(8_000_000)),
    ];
    let made = trace(jobs.to_vec());
    for crash in [None, Some(1)] {
        let outcome = run(&made, |o| (o.nodes, o.crash_every) = (Some(&fleet[..]), crash));
        let card = &outcome.scorecard;
        assert_eq!((card.completed, card.cancelled, card.lost, card.open), (3, 1, 0, 0), "{:?}", outcome.violations);
        assert!(card.wait_s.p99 > 7_200.0 && card.wait_s.p99 < 8_000.0, "{:?}", card.wait_s);
        assert!(card.assumptions.iter().any(|a| a.starts_with("3 jobs state max_wait_s")), "{:?}", card.assumptions);
    }
}

#[test]
fn twice_is_the_same_and_a_crash_changes_nothing() {
    let trace = trace(generate_trace(6, 300));
    let (first, second) = (run(&trace, |_| {}), run(&trace, |_| {}));
    assert_eq!(json(&first), json(&second));
    for every in [5, 40, 500] {
        let crashed = run(&trace, |o| o.crash_every = Some(every));
        assert!(crashed.crashes > 1, "every {every}: {}", crashed.crashes);
        assert_eq!(json(&crashed), json(&first), "every {every}");
        assert_eq!(crashed.violations, Vec::<String>::new());
    }
    let other = run(&trace, |o| o.seed = 4);
    assert_ne!(json(&other), json(&first), "another seed is another world");
}

#[test]
fn progress_is_seen_and_time_inside_the_engine_is_measured_by_the_callers_clock() {
    let trace = trace(generate_trace(6, 300));
    let mut seen = Vec::new();
    let mut listen = |p: &forebay_sim::drive::SimProgress| seen.push(*p);
    let outcome = run(&trace, |o| {
        o.clock = || 0;
        o.progress = None;
    });
    assert_eq!(outcome.scorecard.engine_s.to_bits(), 0);
    let mut options = SimOptions::new(3, market());
    options.progress = Some(&mut listen);
    simulate(policies::spot_first(), &trace, options).expect("it ends");
    assert!(!seen.is_empty());
    assert!(seen.windows(2).all(|w| w[0].now <= w[1].now && w[0].ended <= w[1].ended));
}

#[test]
fn jobs_that_nothing_can_hold_are_rejected_and_the_rest_goes_on() {
    let mut jobs = generate_trace(6, 20);
    jobs[3].gpu_models = vec!["no-such-model".into()];
    let outcome = run(&trace(jobs), |_| {});
    assert_eq!((outcome.scorecard.completed, outcome.scorecard.rejected), (19, 1));
    assert!(outcome.violations.is_empty());
}

#[test]
fn utilization_is_counted_where_the_trace_has_it() {
    let mut jobs = generate_trace(6, 20);
    jobs.iter_mut().for_each(|j| j.gpu_util_permille = Some(500));
    let trace = trace(jobs);
    let calm = run(&trace, |o| o.market = Market::calm(&spot_pairs(&policies::spot_first()))).scorecard;
    assert_eq!((calm.completed, calm.reclaims), (20, 0), "nothing is taken back in a calm market");
    let busy = calm.gpu_hours_busy.expect("the trace states it");
    // What a run loses is done again, and keeps GPUs busy again.
    let worked = calm.gpu_hours_requested + calm.work_lost_gpu_hours;
    assert!((busy / worked - 0.5).abs() < 0.01, "half of the work: {busy} of {worked}");
    let drawn = run(&trace, |_| {}).scorecard;
    let busy = drawn.gpu_hours_busy.expect("the trace states it");
    assert_eq!(drawn.completed, 20);
    let requested = drawn.gpu_hours_requested;
    assert!(busy > 0.495 * requested, "each job is done at least once: {busy} of {requested}");
    for card in [calm, drawn] {
        assert!(card.busy_over_allocated.is_some_and(|r| r > 0.3 && r <= 0.5), "{:?}", card.busy_over_allocated);
    }
}

#[test]
fn a_node_that_is_kept_ready_stays_at_the_end_and_is_no_violation() {
    let mut policy = policies::spot_first();
    policy.pools[0].keep_ready = 1;
    let made = trace(generate_trace(6, 5));
    let options = SimOptions::new(3, Market::calm(&spot_pairs(&policy)));
    let outcome = simulate(policy, &made, options).expect("it ends");
    let card = &outcome.scorecard;
    assert_eq!(outcome.violations, Vec::<String>::new());
    assert_eq!((card.completed, card.nodes_at_end, card.nodes_kept_ready, card.nodes_left()), (5, 1, 1, 0));
    assert!(card.is_sound());
    let beyond = forebay_sim::score::Scorecard { nodes_at_end: 2, ..card.clone() };
    assert!(!beyond.is_sound(), "one node more than the floor keeps was not given back");
}

#[test]
fn a_fixed_fleet_is_used_up_to_its_size() {
    let node = |n: usize| TraceNode {
        id: format!("n{n}"),
        cpu_milli: 64_000,
        mem_mib: 262_144,
        gpus: 8,
        gpu_model: Some("v100".into()),
        ..TraceNode::default()
    };
    let fleet: Vec<TraceNode> = (0..4).map(node).collect();
    let trace = trace(generate_trace(6, 200));
    let card = run(&trace, |o| o.nodes = Some(&fleet)).scorecard;
    assert_eq!(card.completed, 200);
    assert_eq!(card.cost_usd.to_bits(), 0);
    assert!((1..=4).contains(&card.nodes_peak), "{} nodes", card.nodes_peak);
}

/// The same pool, and one of owned nodes at this price before it.
fn with_owned(price: Rate) -> Policy {
    let mut policy = policies::spot_first();
    let owned = OwnedPool { labels: [("rack".to_owned(), vec!["ours".to_owned()])].into(), price };
    policy.pools.push(Pool { name: "ours".to_owned(), owned: Some(owned), ..Pool::default() });
    let Undeclared::Under { rule, .. } = &mut policy.undeclared else { panic!("anybody may submit") };
    // As the compiler orders them.
    rule.pools.insert(0, PoolId(1));
    policy
}

#[test]
fn owned_nodes_are_filled_first_and_what_they_lack_is_bought() {
    let node = |n: usize| TraceNode {
        id: format!("n{n}"),
        cpu_milli: 96_000,
        mem_mib: 393_216,
        gpus: 8,
        gpu_model: Some("t4".into()),
        ..TraceNode::default()
    };
    let trace = trace(generate_trace(6, 200));
    let of = |count: usize, price: u64, every: Option<u64>| {
        let fleet: Vec<TraceNode> = (0..count).map(node).collect();
        let mut options = SimOptions::new(3, market());
        options.audit = AuditSchedule::Every(50);
        options.crash_every = every;
        options.nodes = Some(&fleet);
        let outcome = simulate(with_owned(Rate(price)), &trace, options).expect("it ends");
        assert_eq!(outcome.violations, Vec::<String>::new(), "{count} nodes");
        outcome.scorecard
    };
    let without = run(&trace, |_| {}).scorecard;
    let [few, many] = [2, 200].map(|count| of(count, 0, None));
    assert_eq!([few.completed, many.completed], [200, 200]);
    assert!(few.cost_usd < without.cost_usd && few.cost_usd > 0.0 && few.nodes_launched > 0, "{few:?}");
    assert_eq!((many.cost_usd.to_bits(), many.nodes_launched, many.spot_ratio), (0, 0, None), "{many:?}");
    assert!(many.assumptions.iter().any(|a| a.starts_with("200 owned nodes")), "{:?}", many.assumptions);
    // Two nodes at 3 USD an hour, from the beginning to the end.
    let priced = of(2, 3_000_000, None);
    let by_kind = priced.cost_usd_by_kind.as_ref().expect("a simulation knows it");
    assert!((by_kind.values().sum::<f64>() - priced.cost_usd).abs() < 1e-6, "{by_kind:?} of {}", priced.cost_usd);
    assert!(
        priced.cost_usd - few.cost_usd > 2.0 * 3.0 * few.makespan_s / 3600.0 - 1.0,
        "{} {}",
        priced.cost_usd,
        few.cost_usd
    );
    let crashed = of(2, 3_000_000, Some(20));
    assert_eq!(
        serde_json::to_string(&crashed).unwrap(),
        serde_json::to_string(&priced).unwrap(),
        "a crash changes nothing"
    );
}

#[test]
fn an_owned_node_without_a_pool_is_told_with_its_line() {
    let node = |pool: &str| TraceNode {
        id: "n".into(),
        gpus: 1,
        pool: Some(pool.to_owned()),
        line: 7,
        ..TraceNode::default()
    };
    let trace = trace(generate_trace(6, 5));
    let fault = |nodes: &[TraceNode], policy: Policy| {
        let mut options = SimOptions::new(3, market());
        options.nodes = Some(nodes);
        match simulate(policy, &trace, options) {
            Err(SimError::Owned(fault)) => fault,
            other => panic!("{other:?}"),
        }
    };
    let policy = with_owned(Rate(0));
    let unknown = fault(&[node("theirs")], policy.clone());
    let pools = vec!["ours".to_owned()];
    assert_eq!(unknown, OwnedFault::UnknownPool { line: 7, pool: "theirs".into(), pools });
    assert_eq!(unknown.to_string(), "line 7: `theirs` is no pool of owned nodes in the policy; there are: ours");
    let many = TraceNode { gpus: 72, ..node("ours") };
    assert!(matches!(fault(&[many], policy.clone()), OwnedFault::TooManyGpus { line: 7, gpus: 72 }));
    let mut two = policy;
    let mine = Pool { name: "mine".to_owned(), ..two.pools[1].clone() };
    two.pools.push(mine);
    assert!(matches!(fault(&[TraceNode { pool: None, ..node("") }], two), OwnedFault::NoPool { line: 7, .. }));
}

#[test]
fn a_market_without_spot_and_a_tier_that_wants_nothing_else_is_said_to_be_stuck() {
    let mut policy = policies::spot_first();
    policy.tiers[0].buys = forebay_kernel::policy::Buys::Nothing;
    let trace = trace(generate_trace(6, 5));
    let stuck = simulate(policy, &trace, SimOptions::new(3, market())).expect("it gives up after a week");
    assert_eq!((stuck.scorecard.open, stuck.scorecard.lost), (5, 0));
    assert!(!stuck.scorecard.is_sound());
    let text = stuck.violations.join("; ");
    assert!(text.contains("5 jobs open") && text.contains("NothingIdle"), "{text}");
}
