//! Tells the stories in `scenarios/`: given (the policy), when (`at ...`), then (`expect at ...`).
//!
//! ```text
//! # What the story shows.
//! offering spot gpus=2 price=1 | limits nodes=3 | pool, tier, queue, quota, undeclared, lifecycle, sharing ...
//! at 0s submit big workers=8x1         at 9s lose node-1       at 9s cloud spot out-of-stock
//! expect at 60s big queued Ceiling     expect at 60s nodes ready=3     expect at 60s started a b
//! ```
//!
//! docs of every verb: its arm below. Never: an expectation that the engine computed.

use crate::cluster::Cluster;
use crate::given::{given, job, layout};
use crate::making::{self, DOLLAR};
use crate::then::then;
use crate::words::{Words, number, time};
use forebay_kernel::event::{Event, GoneWhy, LaunchError};
use forebay_kernel::ids::{Attempt, JobId, NodeId, OfferingId, PoolId, TierId};
use forebay_kernel::job::JobSpec;
use forebay_kernel::policy::{Policy, Tier};
use forebay_kernel::state::brakes::Brake;
use forebay_kernel::units::{Rate, Span, Timestamp};

/// Tells one story and panics with its line where it does not come out.
pub fn tell(name: &str) {
    let path = format!("tests/engine/scenarios/{name}.txt");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    assert!(text.starts_with("# "), "{name}.txt opens with what it shows");
    let mut story = Story::default();
    for (at, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let told = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| story.line(line)));
        if told.is_err() {
            let again = format!("cargo test -p forebay-engine --test engine stories::{name}");
            panic!("{name}.txt:{}: `{line}` does not hold; again: {again}", at + 1);
        }
    }
}

#[derive(Default)]
struct Story {
    policy: Option<Policy>,
    world: Option<Cluster>,
    names: Vec<String>,
}

impl Story {
    fn line(&mut self, line: &str) {
        let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
        let expects = first == "expect";
        let rest = if expects { rest.trim_start_matches("at ") } else { rest };
        if !expects && first != "at" {
            let policy = self.policy.get_or_insert_with(|| {
                let mut policy = making::policy(Vec::new());
                policy.pools.clear();
                policy
            });
            return given(policy, &mut self.names, first, Words::of(rest));
        }
        let (when, what) = rest.split_once(' ').expect("a time and what happens");
        if self.world.is_none() {
            let mut policy = self.policy.take().expect("at least one offering");
            if policy.pools.is_empty() {
                policy.pools.push(making::pool("main", policy.offerings.len()));
            }
            self.world = Some(Cluster::new(policy));
        }
        let world = self.world.as_mut().expect("just made");
        assert!(time(when) >= world.now, "time goes on from line to line");
        world.run_until(time(when));
        let (verb, rest) = what.split_once(' ').unwrap_or((what, ""));
        // submit-all NAME[*COUNT] ...; NAME ...: in one pass, in this order. `a*3` is a0, a1 and a2
        if verb == "submit-all" {
            let all: Vec<JobSpec> = rest.split(';').flat_map(|line| jobs(world, line.trim())).collect();
            world.submit_all(all);
        } else if expects {
            then(world, &self.names, verb, Words::of(rest));
        } else {
            when_it(world, &self.names, verb, Words::of(rest));
        }
    }
}

/// Some jobs alike: `NAME*COUNT`, and the words of `submit`.
fn jobs(world: &mut Cluster, line: &str) -> Vec<JobSpec> {
    let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
    let names = match name.split_once('*') {
        Some((name, count)) => (0..number::<u32>(count)).map(|at| format!("{name}{at}")).collect(),
        None => vec![name.to_owned()],
    };
    let mut one = |name: String| {
        let line = format!("{name} {rest}");
        let mut w = Words::of(&line);
        let spec = submitted(world, &mut w);
        w.end();
        spec
    };
    names.into_iter().map(&mut one).collect()
}

/// NAME ... [work=TIME: it completes by itself]
fn submitted(world: &mut Cluster, w: &mut Words) -> JobSpec {
    if let Some(work) = w.time("work") {
        world.work.insert(w.at(0).into(), work);
    }
    job(w)
}

fn offering_named(names: &[String], name: &str) -> OfferingId {
    let at = names.iter().position(|n| n == name);
    OfferingId(at.unwrap_or_else(|| panic!("no offering is called {name}")) as u32)
}

fn node_named(word: &str) -> NodeId {
    NodeId(number(word.trim_start_matches("node-")))
}

fn instance(world: &Cluster, word: &str) -> String {
    world.instance(node_named(word)).unwrap_or_else(|| panic!("{word} is no instance"))
}

/// NAME [attempt=N]: the run that is alive, or the one that is named; `job-99` may be a job that there never was.
fn run_of(world: &Cluster, w: &mut Words) -> (JobId, Attempt) {
    let name = w.at(0);
    let by_number = || name.strip_prefix("job-").map(|n| JobId(number(n)));
    let job = world.id(name).or_else(by_number).unwrap_or_else(|| panic!("no job {name}"));
    let current = world.state().job(job).map_or(Attempt(1), |(row, _)| row.attempt);
    (job, w.number("attempt").map_or(current, Attempt))
}

fn brake_named(verb: &str, what: &str) -> Brake {
    match (verb, what) {
        ("pause", "buying") => Brake::Buying,
        ("pause", "admission") => Brake::Admission,
        ("pause", "preemption") => Brake::Preemption,
        ("hold", queue) => Brake::Queue(queue.into()),
        ("drain", node) if node.starts_with("node-") => Brake::Node(node_named(node)),
        ("drain", pool) => Brake::Pool(pool.into()),
        _ => panic!("nothing is stopped by `{verb} {what}`"),
    }
}

/// Whether somebody asks, or an operator.
fn by(w: &mut Words) -> Option<String> {
    w.take("by").map(String::from)
}

/// When: something happens.
fn when_it(world: &mut Cluster, names: &[String], verb: &str, mut w: Words) {
    let event = match verb {
        "submit" => Event::JobSubmitted(Box::new(submitted(world, &mut w))),
        // cancel NAME [by=PRINCIPAL] [sent=TIME]: without `by` an operator's
        "cancel" => {
            let (by, sent) = (by(&mut w), w.time("sent").map(Timestamp));
            Event::JobCancelled { tenant: "t".into(), subject: w.at(0).into(), by, sent }
        }
        // complete NAME [worker=N] [attempt=N]; an attempt may be named in all reports
        "complete" => {
            let (job, attempt) = run_of(world, &mut w);
            Event::RunCompleted { job, attempt, worker: w.number("worker") }
        }
        "fail" => {
            let (job, attempt) = run_of(world, &mut w);
            let exit_code = w.number("code").unwrap_or(1);
            let node_fault = w.take("blame").map(node_named);
            Event::RunFailed { job, attempt, exit_code, node_fault }
        }
        "checkpoint" => {
            let (job, attempt) = run_of(world, &mut w);
            let progress = Span(w.time("progress").expect("progress="));
            Event::RunCheckpointed { job, attempt, progress }
        }
        // demand NAME N [by=PRINCIPAL]: so many requests at once
        "demand" => {
            let (subject, concurrency) = (w.at(0).into(), number(w.at(1)));
            Event::ServiceDemand { tenant: "t".into(), subject, by: by(&mut w), concurrency }
        }
        // shrunk NAME left=N,N [blame=NODE]: these workers are gone, the rest goes on
        "shrunk" => {
            let (job, attempt) = run_of(world, &mut w);
            let left = w.list("left").into_iter().map(number).collect();
            let node_fault = w.take("blame").map(node_named);
            Event::RunShrunk { job, attempt, left, node_fault }
        }
        "idle" => {
            let (job, attempt) = run_of(world, &mut w);
            let idle = Span(w.time("for").expect("for="));
            Event::RunIdle { job, attempt, idle }
        }
        // the run is dead without having finished
        "drop" => {
            let (job, attempt) = run_of(world, &mut w);
            Event::RunStopped { job, attempt, progress: None }
        }
        // a quota of the cluster's own is full: the run was never started
        "deny" => {
            let (job, attempt) = run_of(world, &mut w);
            Event::RunDenied { job, attempt }
        }
        // lose NODE [failing=NAME]: in one batch, with what then fails for want of it
        "lose" if let Some(name) = w.take("failing") => {
            let job = world.id(name).unwrap_or_else(|| panic!("no job {name}"));
            let attempt = world.alive(job).unwrap_or_else(|| panic!("{name} does not run"));
            return world.fails_with(instance(world, w.at(0)), (job, attempt));
        }
        "lose" => Event::NodeGone { instance: instance(world, w.at(0)), why: GoneWhy::Lost },
        "take" => Event::NodeGone { instance: instance(world, w.at(0)), why: GoneWhy::Reclaimed },
        // reclaim NODE in=TIME: a warning, and then the node is gone
        "reclaim" => {
            let (instance, delay) = (instance(world, w.at(0)), w.time("in").expect("in="));
            let why = GoneWhy::Reclaimed;
            world.soon(delay, Event::NodeGone { instance: instance.clone(), why });
            Event::ReclaimNotice { instance, at: Timestamp(world.now + delay) }
        }
        "price" => {
            let price = Rate(number::<u64>(w.at(1)) * DOLLAR);
            Event::PriceChanged { offering: offering_named(names, w.at(0)), price }
        }
        // placed NODE RACK: the cloud says where it stands
        "placed" => Event::NodePlaced { instance: instance(world, w.at(0)), rack: w.at(1).into() },
        // layouts POOL LAYOUT ...: from now on its nodes are partitioned so
        "layouts" => {
            let mut policy = world.state().policy().expect("a policy").clone();
            let pool = policy.pools.iter_mut().find(|p| p.name == w.at(0)).expect("a pool");
            pool.layouts = w.plain[1..].iter().map(|word| layout(word)).collect();
            Event::Configured(Box::new(policy))
        }
        // policy LINE: from now on that line of the policy is so; `policy without QUEUE`, `policy without-pool POOL` (the last one): it does not
        // declare it any more
        "policy" => {
            let mut policy = world.state().policy().expect("a policy").clone();
            policy.pools.truncate(world.state().declared_pools());
            match w.plain.remove(0) {
                // A tier before all others: the positions of those move.
                "tier-first" => {
                    let priority = w.number("priority").expect("a priority");
                    policy.tiers.insert(0, Tier { name: w.at(0).into(), priority, ..Tier::default() });
                    let next = |tier: &mut TierId| *tier = TierId(tier.0 + 1);
                    policy.tiers.iter_mut().flat_map(|tier| &mut tier.stoppable_by).for_each(next);
                    policy.queues.values_mut().for_each(|rule| next(&mut rule.tier));
                }
                "without" => drop(policy.queues.remove(w.at(0)).expect("a queue")),
                "without-pool" => {
                    assert_eq!(policy.pools.pop().expect("a pool").name, w.at(0), "the last pool");
                    let gone = PoolId(policy.pools.len() as u16);
                    policy.queues.values_mut().for_each(|rule| rule.pools.retain(|pool| *pool != gone));
                    policy.quotas.iter_mut().for_each(|node| _ = node.limits.remove(&gone));
                }
                line => given(&mut policy, &mut names.to_vec(), line, core::mem::replace(&mut w, Words::of(""))),
            }
            Event::Configured(Box::new(policy))
        }
        // submitters QUEUE NAME ...: from now on it takes jobs from these alone
        "submitters" => {
            let mut policy = world.state().policy().expect("a policy").clone();
            let rule = policy.queues.get_mut(w.at(0)).expect("a queue");
            rule.submitters = w.plain[1..].iter().map(|word| String::from(*word)).collect();
            Event::Configured(Box::new(policy))
        }
        // pause buying|admission|preemption | hold QUEUE | drain POOL|NODE, [until=TIME]; resume with the same words lets it go on
        "pause" | "hold" | "drain" => {
            let until = w.time("until").map(Timestamp);
            let (brake, by, why) = (brake_named(verb, w.at(0)), "ops".into(), "a test".into());
            Event::BrakeSet { brake, by, why, until }
        }
        "resume" => Event::BrakeReleased { brake: brake_named(w.at(0), w.at(1)), by: "ops".into() },
        "stray" => return world.stray(w.at(0), offering_named(names, w.at(1))),
        // cloud OFFERING out-of-stock | throttled | refused | plenty | never-ready | left=N
        "cloud" => {
            let stock = world.stock.entry(offering_named(names, w.at(0))).or_default();
            stock.left = w.number("left");
            stock.never_ready = w.plain.get(1) == Some(&"never-ready");
            stock.refuses = match w.plain.get(1).copied() {
                Some("out-of-stock") => Some(LaunchError::Capacity),
                Some("throttled") => Some(LaunchError::Throttled),
                Some("refused") => Some(LaunchError::Auth),
                _ => None,
            };
            return w.end();
        }
        // deaf launch|start|stop|terminate: the world does not hear it, until `hears`
        "deaf" | "hears" => {
            let on = verb == "deaf";
            match w.at(0) {
                "launch" => world.deaf.launch = on,
                "start" => world.deaf.start = on,
                "stop" => world.deaf.stop = on,
                _ => world.deaf.terminate = on,
            }
            return;
        }
        // hangs NAME: its runs never answer a stop
        "hangs" => {
            let job = world.id(w.at(0)).unwrap_or_else(|| panic!("no job {}", w.at(0)));
            world.hangs.insert(job);
            return w.end();
        }
        // down UNTIL: nobody watches until then
        "down" => {
            world.now = time(w.at(0));
            return world.step(Vec::new(), true);
        }
        _ => panic!("nothing happens by `{verb}`"),
    };
    w.end();
    world.step(vec![event], false);
}
