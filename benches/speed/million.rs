//! A million queued jobs on 10,000 full nodes: what one event costs, how much memory it takes, and how long a start.
//!
//! ```text
//! million         40 classes: 10 queues, gangs of 1, 2, 4 and 8 GPUs on a node
//! million-4k      4,000 classes: 1,000 queues of three levels, each with a quota of its own, all of it in use
//! million-100k    100,000 classes: no two of 10,000 shapes in each of 10 queues ask for the same CPU or the same memory of as many GPUs
//! million-cohort  5 classes of one GPU: of 10 queues with equal quotas five use all, and borrow half of it; a tenth of the submissions are of the
//!                 owners
//! million-idle    10,000 idle nodes, kept by a floor, and nothing that waits
//! ```
//!
//! After all of it is there: 500 times, in a cohort 20 times, a tick, a submission and the completion of a run, each a batch of its own, and what follows from it, one
//! batch after the other. How long each job runs is stated.
//!
//! `event_*` is of all batches but ticks. `peak_mib` is the most that was resident in all that time, `recovery_peak_mib` while it was recovered.
//! `recovery_s` is from a file with a snapshot, written before these times, and the batches after it, to a state machine: see `records`.
//! `first_pass_ms` is the first pass of an engine after that.
//!
//! Never: a judgement of a figure.

use forebay_engine::engine::Engine;
use forebay_kernel::event::{Event, Tick};
use forebay_kernel::ids::{JobId, TierId};
use forebay_kernel::job::JobSpec;
use forebay_kernel::policy::{Drain, Policy};
use forebay_kernel::units::Span;

use super::fleet::{Draws, Fleet, ask, cpu_nanos, gpus, job, offering, policy, queue, quota, submissions};
use super::memory;
use super::records::Records;
use super::report::{Figure, Report};

/// GPUs of a node.
const WIDE: u64 = 8;
/// Jobs that are submitted at once while it is filled.
const AT_ONCE: u64 = 10_000;
/// Ticks, submissions and completions that are measured: fewer in a cohort, where each takes a search for what borrowers may lose.
const TIMES: u64 = 500;
const TIMES_IN_COHORT: u64 = 20;

/// A form of the workload.
struct Form {
    name: &'static str,
    nodes: u64,
    /// Jobs that wait before anything is measured.
    waiting: u64,
    policy: Policy,
    /// Whose jobs run, wait and are submitted.
    queues: Vec<String>,
    /// Who owns a part of what others use.
    owners: Vec<String>,
    /// Different jobs in each queue.
    shapes: u64,
    /// Ticks, submissions and completions that are measured.
    times: u64,
}

/// All forms, of 1,000 jobs and 10 nodes a unit of size.
pub fn million(report: &mut Report, size: u64) {
    for form in [flat, tree, shapes, cohort, idle] {
        form(size).measure(report);
    }
}

fn flat(size: u64) -> Form {
    let mut policy = full(10 * size);
    let queues: Vec<String> = (0..10).map(|at| format!("q{at}")).collect();
    for name in &queues {
        let node = quota(&mut policy, name, None, None);
        queue(&mut policy, name, node, TierId(0));
    }
    let (nodes, waiting) = (10 * size, 1000 * size);
    Form { name: "million", nodes, waiting, policy, queues, owners: Vec::new(), shapes: 4, times: TIMES }
}

/// A queue a unit of size, each of which owns what ten nodes have.
fn tree(size: u64) -> Form {
    let mut form = Form { name: "million-4k", policy: full(10 * size), queues: Vec::new(), ..flat(size) };
    for at in 0..size {
        let parts = [at / 100, at / 10 % 10, at % 10].map(|part| part.to_string());
        let (top, mid) = (parts[0].clone(), parts[..2].join("/"));
        let mut above = None;
        for (path, limit) in [(top, None), (mid, None), (parts.join("/"), Some(gpus(10 * WIDE, None)))] {
            let known = form.policy.quotas.iter().position(|node| node.name == path);
            let known = known.and_then(|at| u16::try_from(at).ok()).map(forebay_kernel::ids::QuotaId);
            above = Some(known.unwrap_or_else(|| quota(&mut form.policy, &path, above, limit)));
        }
        let path = parts.join("/");
        queue(&mut form.policy, &path, above.unwrap_or_default(), TierId(0));
        form.queues.push(path);
    }
    form
}

fn shapes(size: u64) -> Form {
    Form { name: "million-100k", shapes: 10 * size, ..flat(size) }
}

fn cohort(size: u64) -> Form {
    let mut form = Form { name: "million-cohort", policy: full(10 * size), ..flat(size) };
    let all = quota(&mut form.policy, "all", None, None);
    let own = form.nodes * WIDE / form.queues.len() as u64;
    for name in &form.queues {
        let node = quota(&mut form.policy, name, Some(all), Some(gpus(own, None)));
        queue(&mut form.policy, name, node, TierId(0));
    }
    form.owners = form.queues.split_off(form.queues.len() / 2);
    Form { shapes: 1, times: TIMES_IN_COHORT, ..form }
}

fn idle(size: u64) -> Form {
    let mut form = Form { name: "million-idle", waiting: 0, ..flat(size) };
    form.policy.pools[0].keep_ready = form.nodes as u32;
    form.policy.pools[0].drain = Drain::Auto;
    form
}

fn full(nodes: u64) -> Policy {
    policy(vec![offering("node", WIDE as u16, 192_000, 2 << 20, 30_000_000)], Some(nodes as u32))
}

/// What each batch took, in ns.
#[derive(Default)]
struct Batches {
    ticks: Vec<u64>,
    timeouts: Vec<u64>,
    submissions: Vec<u64>,
    /// Submissions of those who own what others use.
    reclaims: Vec<u64>,
    completions: Vec<u64>,
    /// What is said of starts and stops.
    outcomes: Vec<u64>,
}

impl Form {
    fn measure(self, report: &mut Report) {
        memory::forget_peak();
        let mut fleet = self.filled();
        let mut records = Records::of(fleet.engine.state());
        fleet.batches = Some(Vec::new());
        self.events(&mut fleet).report(report, self.name);
        self.peak(report, "peak_mib");
        fleet.batches.take().into_iter().flatten().for_each(|batch| records.append(&batch));
        let (now, counters) = (fleet.now, *fleet.engine.state().counters());
        drop(fleet);
        memory::forget_peak();
        let begun = cpu_nanos();
        let machine = records.recovered();
        report.push(Figure::of(self.name, "recovery_s", (cpu_nanos() - begun) as f64 / 1e9, "s", &[]));
        self.peak(report, "recovery_peak_mib");
        assert_eq!(*machine.counters(), counters, "the state is as it was");
        let mut engine = Engine::recovered(machine);
        let begun = cpu_nanos();
        engine.open(Tick { now, resumed: true, delivered: counters.statuses });
        let _ = engine.plan();
        let _ = engine.close().saved();
        report.push(Figure::ms(self.name, "first_pass_ms", cpu_nanos() - begun, &[]));
    }

    fn peak(&self, report: &mut Report, metric: &'static str) {
        if let Some(peak) = memory::peak_mib() {
            report.push(Figure::of(self.name, metric, peak, "MiB", &[]));
        }
    }

    /// All nodes are full, unless nothing waits, and all that is to wait does.
    fn filled(&self) -> Fleet {
        let mut fleet = Fleet::ready(self.policy.clone(), self.nodes as u32);
        if self.waiting == 0 {
            return fleet;
        }
        let runs = self.nodes * WIDE;
        fleet.step(submissions((0..runs).map(|n| self.job(n, &self.queues, 0))));
        fleet.answer();
        assert_eq!(fleet.served() as u64, runs, "all nodes are full");
        for from in (0..self.waiting).step_by(AT_ONCE as usize) {
            fleet.now = fleet.now + Span(100);
            let numbers = from..(from + AT_ONCE).min(self.waiting);
            let jobs = numbers.map(|n| self.job(runs + n, &self.queues, n / self.queues.len() as u64));
            fleet.step(submissions(jobs));
            fleet.answer();
        }
        assert_eq!(fleet.engine.state().open_jobs() as u64, runs + self.waiting, "all are there");
        assert_eq!(fleet.served() as u64, runs, "what waits has nothing");
        fleet
    }

    /// A job of the next of some queues, and of the next shape there.
    fn job(&self, number: u64, queues: &[String], shape: u64) -> JobSpec {
        let (shape, kinds) = (shape % self.shapes, (self.shapes / 4).max(1));
        let (wide, nth) = (1 << (shape % 4), shape / 4);
        // No two shapes ask for the same, and who asks for more of one thing does not for more of the other.
        let (cpu, mem) = (nth * 1009 % kinds, nth * 1511 % kinds);
        let each = ask(wide, u64::from(wide) * (1000 + 5 * cpu), u64::from(wide) * (4096 + 16 * mem));
        let queue = &queues[(number % queues.len() as u64) as usize];
        let expected = Some(Span::mins(60 + Draws(number).below(600)));
        JobSpec { spot: false, expected, ..job(number, queue, each) }
    }

    /// Ticks, submissions and completions, and what follows from each.
    fn events(&self, fleet: &mut Fleet) -> Batches {
        let (mut took, mut draws) = (Batches::default(), Draws(1));
        let mut runs: Vec<JobId> = fleet.engine.state().alive_jobs().map(|(job, _)| job.id).collect();
        let first = self.nodes * WIDE + self.waiting;
        for nth in 0..self.times {
            fleet.now = fleet.now + Span::secs(1);
            took.ticks.push(fleet.step(Vec::new()).all());
            took.outcomes.extend(outcomes(fleet));
            let owned = !self.owners.is_empty() && nth % 10 == 0;
            let queues = if owned { &self.owners } else { &self.queues };
            let submitted = self.job(first + nth, queues, draws.below(self.shapes));
            fleet.now = fleet.now + Span(100);
            let one = fleet.step(submissions([submitted].into_iter())).all();
            if owned {
                took.reclaims.push(one)
            } else {
                took.submissions.push(one)
            }
            took.outcomes.extend(outcomes(fleet));
            if self.waiting == 0 {
                runs = fleet.engine.state().alive_jobs().map(|(job, _)| job.id).collect();
            }
            fleet.now = fleet.now + Span(100);
            let ended = ended(fleet, &mut runs, &mut draws);
            took.completions.push(fleet.step(vec![ended]).all());
            took.outcomes.extend(outcomes(fleet));
            let begun = cpu_nanos();
            let _ = std::hint::black_box(fleet.engine.poll_timeout());
            took.timeouts.push(cpu_nanos() - begun);
        }
        took
    }
}

/// The completion of one of some runs that has not been stopped meanwhile.
fn ended(fleet: &Fleet, runs: &mut Vec<JobId>, draws: &mut Draws) -> Event {
    while !runs.is_empty() {
        let id = runs.swap_remove(draws.below(runs.len() as u64) as usize);
        if let Some((job, _)) = fleet.engine.state().job(id).filter(|(job, _)| job.alive()) {
            return Event::RunCompleted { job: id, attempt: job.attempt, worker: None };
        }
    }
    panic!("nothing runs any more")
}

/// Answers all that was asked for, until nothing more is: what each batch took.
fn outcomes(fleet: &mut Fleet) -> Vec<u64> {
    let mut took = Vec::new();
    while !fleet.asked().is_empty() {
        let events = fleet.answers();
        fleet.now = fleet.now + Span(1);
        took.push(fleet.step(events).all());
    }
    took
}

impl Batches {
    fn report(self, report: &mut Report, name: &str) {
        let events = [&self.submissions, &self.reclaims, &self.completions, &self.outcomes].map(Vec::as_slice).concat();
        let mut both = |p50, p99, mut all: Vec<u64>| {
            all.sort_unstable();
            for (metric, part) in [(p50, 50), (p99, 99)] {
                if let Some(at) = all.len().checked_sub(1) {
                    report.push(Figure::us(name, metric, all[at * part / 100]));
                }
            }
        };
        both("event_p50_us", "event_p99_us", events);
        both("submit_p50_us", "submit_p99_us", self.submissions);
        both("reclaim_p50_us", "reclaim_p99_us", self.reclaims);
        both("completion_p50_us", "completion_p99_us", self.completions);
        both("outcome_p50_us", "outcome_p99_us", self.outcomes);
        both("tick_us", "tick_p99_us", self.ticks);
        both("timeout_us", "timeout_p99_us", self.timeouts);
    }
}
