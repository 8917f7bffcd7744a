//! Policies that change under load, with crashes in between: ceilings fall, quotas are halved, the tier gets other names, busy queues go. No
//! run is stopped, no job changes its tier, nothing that was acknowledged is lost.
//!
//! `FOREBAY_RELOADS=200` reloads so often; `FOREBAY_SEED` plays another one.

use forebay::driver::{ClockMode, DriverHandle, Running, Settings, WorldMaker, start};
use forebay::{journal, segments};
use forebay_catalog::Catalogue;
use forebay_driver::live::{PolicyOutcome, PolicySource};
use forebay_kernel::event::Event;
use forebay_kernel::ids::Attempt;
use forebay_kernel::job::{Gang, JobSpec, WorkerAsk};
use forebay_kernel::state::State;
use forebay_kernel::units::{Mib, MilliCpu};
use forebay_policy::compile;
use forebay_sim::market::Market;
use forebay_sim::world::WorldOptions;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

const QUEUES: [&str; 4] = ["vision", "team/a", "team/b", "search"];

/// Names that the one tier has in turn.
const TIERS: [&str; 3] = ["normal", "standard", "usual"];

/// Everything is in stock.
fn world() -> WorldMaker {
    Box::new(|_, origin| WorldOptions { origin, ..WorldOptions::new(7, Market::calm(&[])) })
}

/// How many jobs run before the first reload.
const RUNNING: usize = 16;

struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

fn asked(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(otherwise)
}

fn source(text: String) -> PolicySource {
    let compiled = compile("reload", &text, &Catalogue::builtin()).unwrap_or_else(|e| panic!("{e}\n{text}")).policy;
    PolicySource { text, compiled }
}

/// Wide: everything is declared, and there is room.
fn wide() -> PolicySource {
    source(written(TIERS[0], 64, 64, &QUEUES))
}

fn written(tier: &str, nodes: u64, gpus: u64, queues: &[&str]) -> String {
    let queue = |name: &&str| match *name {
        "search" => format!("  search: {{tier: {tier}}}\n"),
        "vision" => format!("  vision: {{tier: {tier}, quota: {{big: {{gpus: {gpus}}}}}}}\n"),
        name => format!("  {name}: {{tier: {tier}, quota: {{big: {{gpus: {gpus}, borrow: all}}}}}}\n"),
    };
    let queues: String = queues.iter().map(queue).collect();
    format!(
        "apiVersion: forebay/v1\nkind: Policy\nmetadata: {{name: reload}}\nlimits: {{nodes: {nodes}}}\n\
         tiers:\n  {tier}: {{priority: 500, buys: on-demand, minRun: 30d}}\n\
         queues:\n  team: {{tier: {tier}, quota: {{big: {{gpus: {}}}}}}}\n{queues}\
         pools:\n  big: {{instanceTypes: [g5.xlarge]}}\n",
        2 * gpus
    )
}

/// Any policy that takes something away.
fn narrow(dice: &mut Dice) -> PolicySource {
    let queues: Vec<&str> = QUEUES.into_iter().filter(|_| dice.below(4) > 0).collect();
    let tier = TIERS[usize::try_from(dice.below(3)).unwrap()];
    source(written(tier, 1 + dice.below(40), 64 >> dice.below(7), &queues))
}

fn job(subject: &str, queue: &str) -> Event {
    let each = WorkerAsk { gpus: 1, share: 1000, gpu_mem: Mib(0), cpu: MilliCpu(0), mem: Mib(0) };
    Event::JobSubmitted(Box::new(JobSpec {
        tenant: "default".into(),
        subject: subject.into(),
        principal: "local".into(),
        queue: queue.into(),
        gang: Gang::Workers { min: 1, max: 1, each },
        digest: 1,
        run: br#"{"simulation":{"durationS":8000000}}"#.to_vec(),
        ..JobSpec::default()
    }))
}

fn begin(folder: &Path, resume: bool, dies_after: Option<u64>) -> Running {
    let policy = (!resume).then(wide).map(|source| (source.text, source.compiled));
    let clock = ClockMode::Scaled(600);
    start(Settings { resume, policy, clock, dies_after, ..Settings::new(folder.to_owned(), world()) }).unwrap()
}

/// By subject: the name of its tier, and its attempt if it has places.
type Jobs = BTreeMap<String, (String, Option<Attempt>)>;

fn jobs(state: &State) -> Jobs {
    let tier = |at: usize| state.policy().map_or_else(String::new, |policy| policy.tiers[at].name.clone());
    let rows = state.jobs().filter(|(job, _)| !job.done());
    rows.map(|(job, spec)| {
        let attempt = job.alive().then_some(job.attempt);
        (spec.subject.clone(), (tier(job.tier.index()), attempt))
    })
    .collect()
}

/// What was acknowledged so far.
#[derive(Default)]
struct Load {
    known: Jobs,
    submitted: u64,
    /// The policy that was acknowledged last.
    in_force: String,
    crashes: u32,
}

impl Load {
    /// Submits jobs to every queue; what is acknowledged is kept in mind. `false`: the driver died.
    fn submit(&mut self, handle: &DriverHandle, jobs: u64) -> bool {
        let events: Vec<Event> = (self.submitted..self.submitted + jobs)
            .map(|n| job(&format!("j{n}"), QUEUES[usize::try_from(n).unwrap() % QUEUES.len()]))
            .collect();
        self.submitted += jobs;
        handle.submit(events).is_ok()
    }

    /// Every job of before is there, in its tier, and what had a run has the same one.
    fn check(&mut self, now: Jobs, policy: Option<&str>) {
        assert_eq!(policy, Some(self.in_force.as_str()), "after {} crashes", self.crashes);
        for (subject, (tier, attempt)) in &self.known {
            let (tier_now, attempt_now) = now.get(subject).unwrap_or_else(|| panic!("{subject} is lost"));
            assert_eq!(tier_now, tier, "{subject} is in another tier");
            assert!(attempt.is_none() || attempt_now == attempt, "{subject}: {attempt:?}, then {attempt_now:?}");
        }
        self.known = now;
    }

    fn look(&mut self, handle: &DriverHandle) -> bool {
        let look = handle.query(|engine, context| (jobs(engine.state()), context.policy_source.clone()));
        look.map(|(now, policy)| self.check(now, policy.as_deref())).is_ok()
    }
}

fn runs_of(load: &Load) -> usize {
    load.known.values().filter(|(_, attempt)| attempt.is_some()).count()
}

#[test]
fn no_run_is_stopped_by_policies_that_change_under_load() {
    let (seed, reloads) = (asked("FOREBAY_SEED", 20_261_125), asked("FOREBAY_RELOADS", 40));
    println!("FOREBAY_SEED={seed} FOREBAY_RELOADS={reloads}");
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (mut dice, mut load) = (Dice(seed), Load { in_force: wide().text, ..Load::default() });
    let mut running = begin(folder.path(), false, None);
    load.submit(&running.handle, 32);
    let until = Instant::now() + Duration::from_secs(60);
    while load.look(&running.handle) && runs_of(&load) < RUNNING {
        assert!(Instant::now() < until, "{} run", runs_of(&load));
        std::thread::park_timeout(Duration::from_millis(20));
    }
    let (mut taken, mut most) = (0, 0);
    for reload in 0..reloads {
        let offered = if dice.below(4) == 0 { wide() } else { narrow(&mut dice) };
        let text = offered.text.clone();
        let lives = load.submit(&running.handle, 1 + dice.below(3));
        let outcome = runtime.block_on(running.handle.change_policy(offered));
        match outcome {
            Ok(PolicyOutcome::InForce { .. }) => (load.in_force, taken) = (text.clone(), taken + 1),
            Ok(PolicyOutcome::Same) => assert_eq!(load.in_force, text),
            // It died before, or in the middle: the journal has one of the two, whole.
            Err(_) => {}
        }
        let lives = lives && load.look(&running.handle);
        most = most.max(runs_of(&load));
        if !lives || reload % 10 == 9 {
            running.handle.stop();
            running.join().unwrap();
            load.crashes += u32::from(!lives);
            let journaled = journal::policy_in_force(folder.path()).unwrap().unwrap();
            assert!(journaled == load.in_force || !lives && journaled == text, "the journal has neither policy");
            load.in_force = journaled;
            journal::verify(folder.path()).unwrap();
            running = begin(folder.path(), true, Some(dice.below(12)));
        }
    }
    running.handle.stop();
    let finished = running.join().unwrap();
    assert_eq!(finished.audit, [""; 0]);
    let verified = journal::verify(folder.path()).unwrap();
    let stopped: Vec<String> = segments::read_all(&folder.path().join("status"))
        .unwrap()
        .iter()
        .map(|line| String::from_utf8_lossy(line).into_owned())
        .filter(|line| {
            ["preempting", "preempted", "requeued", "failed", "cancelled"]
                .iter()
                .any(|kind| line.contains(&format!("status.{kind}")))
        })
        .collect();
    assert_eq!(stopped, [""; 0], "a run was stopped");
    println!(
        "{taken} policies taken, {} jobs, {most} runs at most, {} crashes, {verified:?}",
        load.submitted, load.crashes
    );
    assert!(taken * 10 >= reloads * 6 && most >= RUNNING, "{taken} of {reloads}, {most} runs");
}

#[test]
fn a_policy_that_is_in_force_is_not_taken_again_and_one_that_is_taken_is_journaled_with_its_text() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let running = begin(folder.path(), false, None);
    let change = |source| runtime.block_on(running.handle.change_policy(source)).unwrap();
    assert_eq!(change(wide()), PolicyOutcome::Same);
    let narrow = source(written(TIERS[1], 2, 4, &QUEUES[..1]));
    let PolicyOutcome::InForce { seq, .. } = change(narrow.clone()) else { panic!("it is another one") };
    // A driver that was killed here: what is on disk.
    let texts = running.archive.policies().unwrap();
    assert_eq!(
        texts.first().map(|policy| (policy.text.as_str(), policy.seq > seq)),
        Some((narrow.text.as_str(), true))
    );
    running.handle.stop();
    let finished = running.join().unwrap();
    let replayed = journal::recover(folder.path()).unwrap().machine.encode().unwrap();
    assert!(finished.engine.snapshot().unwrap() == replayed, "the journal replays to another state");
}
