//! Three hundred seeds of faults with crashes at every step of a purchase.

use crate::stand::{Faults, Stand};
use forebay_integration::dice::Dice;
use forebay_kernel::event::Event;
use forebay_kernel::job::{Checkpointing, Gang, JobSpec, WorkerAsk};
use forebay_kernel::policy::{Network, Policy};
use forebay_kernel::units::{Mib, MilliCpu, Rate, Span};
use forebay_loopback_ec2::{RegionOptions, StockArrival, Subnet, VcpuQuotas};
use forebay_sim::market::Market;
use forebay_sim::world::{Stock, spot_pairs};
use std::collections::BTreeMap;

const SEEDS: u64 = 300;
const ZONES: [&str; 3] = ["za", "zb", "zc"];

/// Nothing goes wrong after two hours; whatever is still open after eight is cancelled, and by twenty all has to be over.
const FAULTS: Span = Span::mins(120);
const CANCEL: Span = Span::mins(480);
const OVER: Span = Span::mins(1200);

/// What a seed went through.
#[derive(Default)]
struct Went {
    crashes: BTreeMap<&'static str, u64>,
    calls: BTreeMap<&'static str, u64>,
    errors: BTreeMap<String, u64>,
    jobs: u64,
    instances: usize,
}

fn policy(seed: u64, dice: &mut Dice) -> Policy {
    let mut policy = forebay_sim::policies::random(seed);
    for pool in &mut policy.pools {
        // Zero has to be reached.
        (pool.keep_ready, pool.floors) = (0, Vec::new());
        pool.network = Network { cluster: dice.below(3) == 0, efa: dice.below(12) == 0 };
    }
    if dice.below(2) == 0 {
        policy.limits.gpus = Some(8 + dice.below(24) as u32);
    }
    if dice.below(2) == 0 {
        policy.limits.spend = Some(Rate(5_000_000 + dice.below(40_000_000)));
    }
    policy
}

fn options(seed: u64, policy: &Policy, dice: &mut Dice) -> RegionOptions {
    let pairs = spot_pairs(policy);
    let origin = RegionOptions::default().origin;
    let rare = |dice: &mut Dice, most: u64| if dice.below(2) == 0 { 0 } else { dice.below(most) as u16 };
    let mut options = RegionOptions {
        seed,
        zones: ZONES.map(str::to_owned).into(),
        subnets: ZONES.iter().zip(1u64..).map(|(z, n)| subnet(z, n)).collect(),
        market: if seed.is_multiple_of(4) { Market::calm(&pairs) } else { Market::seeded(seed, &pairs, 86_400_000) },
        depth: Some(1 + dice.below(6) as u32),
        rate_limits: true,
        server_error_permille: rare(dice, 150),
        lost_before_permille: rare(dice, 150),
        lost_after_permille: rare(dice, 300),
        max_staleness: Span(dice.below(60_000)),
        hanging_boot_permille: rare(dice, 200),
        warning_permille: 500,
        quotas: VcpuQuotas { on_demand: (dice.below(4) == 0).then_some(96), spot: (dice.below(4) == 0).then_some(96) },
        ..RegionOptions::default()
    };
    if dice.below(4) == 0 {
        let from = origin + Span(dice.below(3_600_000));
        options.throttled.push((from, from + Span::mins(10)));
    }
    for offer in &policy.offerings {
        if dice.below(3) == 0 {
            let (instance_type, zone, capacity) = (offer.instance_type.clone(), offer.zone.clone(), offer.capacity);
            options.stock.push(Stock { instance_type, zone, capacity, count: dice.below(3) as u32 });
            let (instance_type, zone) = (offer.instance_type.clone(), offer.zone.clone());
            let at = origin + Span(dice.below(7_200_000));
            options.arrivals.push(StockArrival { at, instance_type, zone, capacity, count: 1 + dice.below(3) as u32 });
        }
    }
    options
}

fn subnet(zone: &str, number: u64) -> Subnet {
    Subnet { id: format!("subnet-{number:017x}"), zone: zone.to_owned(), free: 4091 }
}

fn job(number: u64, dice: &mut Dice) -> JobSpec {
    let each = WorkerAsk { gpus: 1, share: 1000, gpu_mem: Mib(0), cpu: MilliCpu(500), mem: Mib(500) };
    let gang = match dice.below(4) {
        0 | 1 => Gang::Workers { min: 1, max: 1, each },
        2 => {
            let workers = 2 + dice.below(4) as u32;
            Gang::Workers { min: workers, max: workers, each }
        }
        _ => Gang::Spanning { gpus: 1 + dice.below(8) as u32, per_gpu: each },
    };
    JobSpec {
        tenant: "t".into(),
        subject: format!("job-{number}"),
        principal: "p".into(),
        queue: forebay_sim::policies::QUEUES[dice.below(4) as usize].into(),
        gang,
        checkpoint: (dice.below(2) == 0).then_some(Checkpointing { every: Span::mins(2), grace: Span::secs(30) }),
        ..JobSpec::default()
    }
}

/// Hands that are not the controller's: they end, stop and retag instances.
fn meddle(stand: &mut Stand, dice: &mut Dice) {
    let ids: Vec<String> = stand.region.with(|r| r.instances().map(|i| i.id.clone()).collect());
    if ids.is_empty() {
        return;
    }
    let id = &ids[dice.below(ids.len() as u64) as usize];
    let now = stand.now;
    stand.region.with(|r| match dice.below(6) {
        0 => r.terminate_as_user(now, id),
        1 => r.stop_as_user(now, id),
        2 => r.retag(now, id, "forebay:pool", Some("another")),
        3 => r.retag(now, id, "forebay:cluster", None),
        4 => r.reclaim(now, id, None),
        _ => r.reclaim(now, id, Some(Span::secs(30))),
    });
}

fn run(seed: u64) -> Result<Went, String> {
    let mut dice = Dice::new(seed);
    let policy = policy(seed, &mut dice);
    let options = options(seed, &policy, &mut dice);
    let begin = options.origin;
    let meddles = dice.below(2) == 0;
    let faults = Faults { crash_one_in: [0, 8, 25, 60][dice.below(4) as usize], until: begin + FAULTS };
    let mut stand = Stand::new(policy, options, faults, seed);
    let jobs = 4 + dice.below(30);
    for number in 0..jobs {
        let at = begin + Span(1000 + dice.below(3_600_000));
        let spec = job(number, &mut dice);
        let (tenant, subject) = (spec.tenant.clone(), spec.subject.clone());
        stand.input(at, Event::JobSubmitted(Box::new(spec)));
        stand.input(begin + CANCEL, Event::JobCancelled { tenant, subject, by: None, sent: None });
    }
    let mut steps = 0;
    let wrong = |stand: &mut Stand, what: String| Err(format!("at {} s: {what}", stand.now.since(begin).0 / 1000));
    while !stand.is_over() {
        stand.step(begin + OVER);
        steps += 1;
        if meddles && stand.now < begin + FAULTS && dice.below(200) == 0 {
            meddle(&mut stand, &mut dice);
        }
        let found = stand.found();
        if !found.is_empty() {
            return wrong(&mut stand, found.join("; "));
        }
        if stand.now >= begin + OVER || steps > 200_000 {
            let (claims, purchases) = (stand.state().nodes().count(), stand.state().purchases().count());
            let (open, existing) = (stand.state().open_jobs(), stand.existing());
            return wrong(
                &mut stand,
                format!(
                    "not over after {steps} steps: {open} jobs, {claims} claims, {purchases} purchases, {existing} instances"
                ),
            );
        }
    }
    let unaccounted = stand.unaccounted();
    if !unaccounted.is_empty() {
        return wrong(&mut stand, format!("unaccounted: {unaccounted:?}"));
    }
    let audit = stand.engine.audit();
    if !audit.is_empty() {
        return wrong(&mut stand, audit.join("; "));
    }
    let errors = stand.errors.iter().map(|(e, n)| (format!("{e:?}"), *n)).collect();
    let instances = stand.region.with(|r| r.calls().get("CreateFleet").map_or(0, |c| c.total as usize));
    Ok(Went { crashes: stand.crashes.clone(), calls: stand.made.clone(), errors, jobs, instances })
}

#[test]
fn three_hundred_seeds_of_faults_leave_nothing_doubled_halved_or_forgotten() {
    let only = std::env::var("FOREBAY_EC2_SEED").ok().and_then(|s| s.parse::<u64>().ok());
    let seeds: Vec<u64> = only.map_or_else(|| (0..SEEDS).collect(), |seed| vec![seed]);
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let mut all = Went::default();
    let mut failures = Vec::new();
    std::thread::scope(|scope| {
        let part = |nth: usize| {
            let own = seeds.iter().copied().skip(nth).step_by(threads);
            own.map(|seed| (seed, run(seed))).collect::<Vec<_>>()
        };
        let parts: Vec<_> = (0..threads).map(|nth| scope.spawn(move || part(nth))).collect();
        for (seed, went) in parts.into_iter().flat_map(|p| p.join().unwrap()) {
            match went {
                Ok(went) => add(&mut all, went),
                Err(what) => failures.push(format!(
                    "seed {seed}, {what}\n  replay: FOREBAY_EC2_SEED={seed} cargo xtask test integration ec2 -- three_hundred"
                )),
            }
        }
    });
    println!(
        "{} seeds, {} jobs; crashes {:?}; calls {:?}; launches refused {:?}",
        seeds.len(),
        all.jobs,
        all.crashes,
        all.calls,
        all.errors
    );
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    if only.is_none() {
        for place in ["before a call", "before an answer", "before the journal", "before effects leave"] {
            assert!(all.crashes.get(place).is_some_and(|n| *n > 50), "too few crashes {place}");
        }
        assert!(all.instances > 1000, "{} launches are too few to show anything", all.instances);
    }
}

fn add(all: &mut Went, went: Went) {
    for (place, n) in went.crashes {
        *all.crashes.entry(place).or_default() += n;
    }
    for (call, n) in went.calls {
        *all.calls.entry(call).or_default() += n;
    }
    for (error, n) in went.errors {
        *all.errors.entry(error).or_default() += n;
    }
    all.jobs += went.jobs;
    all.instances += went.instances;
}
