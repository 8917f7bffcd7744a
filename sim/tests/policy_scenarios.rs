//! Why each ready-made policy is there: a small day under it, and the figure that it is for.
//!
//! Never: a comparison with a policy that was made worse for it. The others are the ready-made ones as they are.

use forebay_catalog::Catalogue;
use forebay_engine::engine::Engine;
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::event::{Event, Tick};
use forebay_kernel::job::{Gang, JobSpec, Level, Service, WorkerAsk};
use forebay_kernel::policy::Policy;
use forebay_kernel::units::Timestamp;
use forebay_policy::compile;
use forebay_sim::drive::{AuditSchedule, SimOptions, simulate};
use forebay_sim::market::Market;
use forebay_sim::score::Scorecard;
use forebay_sim::trace::{Trace, TraceFormat, TraceJob};
use forebay_sim::world::{World, WorldOptions, spot_pairs};
use std::collections::BTreeMap;

const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;

fn policy(name: &str) -> Policy {
    let path = format!("../policies/{name}");
    let text = std::fs::read_to_string(&path).unwrap();
    compile(name, &text, &Catalogue::builtin()).unwrap_or_else(|e| panic!("{e}")).policy
}

/// A day in a market without surprises but for a time without any spot.
fn day(name: &str, jobs: &[TraceJob], drought: Option<(u64, u64)>) -> Scorecard {
    let policy = policy(name);
    let calm = Market::calm(&spot_pairs(&policy));
    let market = match drought {
        Some((from, to)) => calm.with_drought(from, to),
        None => calm,
    };
    let mut jobs = jobs.to_vec();
    jobs.sort_by_key(|j| j.submit_ms);
    let trace = Trace { name: "day".into(), format: TraceFormat::Normalized, jobs, notes: Vec::new() };
    let options = SimOptions { audit: AuditSchedule::AtEnd, ..SimOptions::new(1, market) };
    let outcome = simulate(policy, &trace, options).unwrap_or_else(|e| panic!("{name}: {e}"));
    let card = outcome.scorecard;
    assert_eq!(outcome.violations, Vec::<String>::new(), "{name}");
    assert_eq!((card.completed, card.nodes_at_end), (trace.jobs.len() as u64, 0), "{name}");
    card
}

fn job(id: String, queue: &str, submit_ms: u64, duration_ms: u64) -> TraceJob {
    TraceJob {
        id,
        submit_ms,
        duration_ms,
        gpus: 1,
        workers: Some(1),
        gpu_milli: 1000,
        queue: Some(queue.to_owned()),
        gpu_models: vec!["a10g".to_owned()],
        estimate_ms: Some(duration_ms),
        checkpoint_every_ms: Some(10 * MINUTE),
        restart_ms: Some(MINUTE),
        ..TraceJob::default()
    }
}

/// Jobs of 2 hours with 10 hours for them, and 2 hours in the middle without any spot.
#[test]
fn deadlines_are_met_for_less_than_on_demand() {
    let dated = |n: u64| TraceJob {
        deadline_ms: Some(n * 15 * MINUTE + 10 * HOUR),
        ..job(format!("dated-{n}"), "dated", n * 15 * MINUTE, 2 * HOUR)
    };
    let jobs: Vec<TraceJob> = (0..24).map(dated).collect();
    let drought = Some((2 * HOUR, 4 * HOUR));
    let (ours, on_demand) = (day("deadline.yaml", &jobs, drought), day("on-demand-only.yaml", &jobs, drought));
    assert_eq!((ours.deadline_misses, on_demand.deadline_misses), (0, 0));
    assert!(ours.cost_usd < 0.6 * on_demand.cost_usd, "{} against {}", ours.cost_usd, on_demand.cost_usd);
    // Whoever had time waited for spot, and nobody paid for what is not taken back.
    assert!(ours.spot_ratio > Some(0.99), "{:?}", ours.spot_ratio);
}

/// Two hours of slack and a night without spot: on-demand in time, which the same jobs without the tier for it do not get.
#[test]
fn deadlines_hold_through_a_night_without_spot() {
    let dated = |n: u64| TraceJob {
        deadline_ms: Some(n * 10 * MINUTE + 5 * HOUR),
        ..job(format!("dated-{n}"), "dated", n * 10 * MINUTE, 3 * HOUR)
    };
    let jobs: Vec<TraceJob> = (0..12).map(dated).collect();
    let night = Some((HOUR, 12 * HOUR));
    let card = day("deadline.yaml", &jobs, night);
    assert_eq!(card.deadline_misses, 0);
    let some = card.spot_ratio > Some(0.0) && card.spot_ratio < Some(1.0);
    assert!(some, "spot while there was some: {:?}", card.spot_ratio);
    let whenever: Vec<TraceJob> =
        jobs.into_iter().map(|j| TraceJob { queue: Some("whenever".to_owned()), ..j }).collect();
    assert!(day("deadline.yaml", &whenever, night).deadline_misses > 0);
}

/// Seven jobs that ask for a slice each: one GPU, where time slices would have let them take each other's memory, and one job a GPU
/// would have bought seven.
#[test]
fn seven_small_jobs_run_side_by_side_on_one_partitioned_gpu() {
    let slice = |n: u64| TraceJob {
        gpu_milli: 142,
        gpu_mem_mib: 9_728,
        gpu_models: vec!["h100".to_owned()],
        ..job(format!("small-{n}"), "research", 0, HOUR)
    };
    let jobs: Vec<TraceJob> = (0..7).map(slice).collect();
    let card = day("mig.yaml", &jobs, None);
    assert_eq!(card.nodes_peak, 1);
    assert!(card.makespan_s < 3600.0 * 1.25, "all at once: {} s", card.makespan_s);
    // What does not fit a slice gets a GPU of its own.
    let large = TraceJob { gpu_milli: 600, gpu_mem_mib: 60_000, ..slice(7) };
    let card = day("mig.yaml", &[jobs, vec![large]].concat(), None);
    assert_eq!(card.nodes_peak, 2);
}

/// Eight hours of notebooks over a backlog of batch and backfill that could use every GPU there is.
#[test]
fn notebooks_start_in_minutes_and_the_rest_runs_cheaply_around_them() {
    let part = |queue: &str, n: u64, at: u64, milli: u32, length: u64| TraceJob {
        gpu_milli: milli,
        gpu_mem_mib: 20 * milli,
        ..job(format!("{queue}-{n}"), queue, at, length)
    };
    let mut jobs: Vec<TraceJob> = Vec::new();
    jobs.extend((0..60).map(|n| part("batch", n, n * 2 * MINUTE, [500, 1000][(n % 2) as usize], 90 * MINUTE)));
    jobs.extend((0..60).map(|n| part("backfill", n, n * 3 * MINUTE, [100, 200][(n % 2) as usize], 2 * HOUR)));
    let stays = |job: TraceJob| TraceJob { checkpoint_every_ms: None, estimate_ms: None, ..job };
    let notebook =
        |n: u64| stays(part("interactive", n, n * 4 * MINUTE, [100, 200, 500][(n % 3) as usize], 40 * MINUTE));
    jobs.extend((0..120).map(notebook));
    let (ours, on_demand) = (day("notebooks.yaml", &jobs, None), day("on-demand-only.yaml", &jobs, None));
    let interactive = &ours.wait_s_by_queue["interactive"];
    assert!(interactive.p95 <= 240.0, "{interactive:?}");
    assert!(ours.cost_usd < 0.75 * on_demand.cost_usd, "{} against {}", ours.cost_usd, on_demand.cost_usd);
    assert!(ours.spot_ratio > Some(0.3), "{:?}", ours.spot_ratio);
}

/// A policy under which events come between times, as traces cannot have them.
struct Live {
    engine: Engine,
    world: World,
    now: Timestamp,
}

impl Live {
    fn new(policy: Policy) -> Live {
        let market = Market::calm(&spot_pairs(&policy));
        let mut engine = Engine::new();
        engine.open(Tick { now: Timestamp(0), resumed: false, delivered: 0 });
        engine.handle_event(Event::Configured(Box::new(policy)));
        let _ = engine.plan();
        let _ = engine.close().saved();
        let world = World::new(WorldOptions::new(1, market), engine.state());
        Live { engine, world, now: Timestamp(0) }
    }

    fn batch(&mut self, now: Timestamp, events: Vec<Event>) {
        self.now = now;
        self.engine.open(Tick { now, resumed: false, delivered: u64::MAX });
        events.into_iter().for_each(|event| _ = self.engine.handle_event(event));
        let _ = self.engine.plan();
        for effect in self.engine.close().saved().effects {
            self.world.act(now, &effect, self.engine.state());
        }
    }

    /// Takes an event, and goes on to that time.
    fn take(&mut self, event: Event, until: u64) {
        self.batch(self.now, vec![event]);
        loop {
            let due = [self.world.next_event(), self.engine.poll_timeout()].into_iter().flatten().min();
            let Some(now) = due.filter(|at| at.0 <= until) else { break };
            let events = self.world.take_until(now);
            self.batch(now, events);
        }
        self.now = Timestamp(until);
        assert_eq!(self.engine.audit(), Vec::<String>::new());
    }

    /// Nodes with work on them: how many workers on each, of what capacity, in which zone.
    fn busy(&self) -> Vec<(usize, CapacityType, String)> {
        let state = self.engine.state();
        let busy = state.nodes().filter(|n| !n.holds.is_empty());
        busy.map(|n| {
            let offer = &state.offerings()[n.offering.0 as usize].offer;
            (n.holds.len(), offer.capacity, offer.zone.clone())
        })
        .collect()
    }
}

/// A service of one to four replicas, each for ten requests at once.
#[test]
fn replicas_follow_demand_within_their_band_on_nodes_that_stay() {
    let mut live = Live::new(policy("inference.yaml"));
    let each = WorkerAsk { gpus: 1, share: 1000, ..WorkerAsk::default() };
    let service = JobSpec {
        tenant: "shop".to_owned(),
        subject: "chat".to_owned(),
        queue: "serving".to_owned(),
        models: vec!["a10g".to_owned()],
        gang: Gang::Workers { min: 1, max: 1, each },
        service: Some(Service { min: 1, max: 4, target: 10, spread: Some(Level::Zone) }),
        // As intake has it for a service that does not mention spot.
        spot: false,
        ..JobSpec::default()
    };
    live.take(Event::JobSubmitted(Box::new(service)), HOUR);
    assert_eq!(live.busy().len(), 1, "the fewest that it may have");
    let demand =
        |concurrency| Event::ServiceDemand { tenant: "shop".into(), subject: "chat".into(), by: None, concurrency };
    for (n, (concurrency, replicas)) in (2u64..).zip([(10, 1), (11, 2), (35, 4), (500, 4), (20, 2), (0, 1)]) {
        live.take(demand(concurrency), n * HOUR);
        let busy = live.busy();
        assert_eq!(busy.len(), replicas, "{concurrency} requests at once: {busy:?}");
        assert!(busy.iter().all(|(workers, capacity, _)| (*workers, *capacity) == (1, CapacityType::OnDemand)));
        let mut zones: BTreeMap<&str, usize> = BTreeMap::new();
        busy.iter().for_each(|(_, _, zone)| *zones.entry(zone).or_default() += 1);
        assert!(zones.values().all(|n| *n <= replicas.div_ceil(2)), "spread over zones: {zones:?}");
    }
}
