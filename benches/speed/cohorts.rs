//! The workloads over time: jobs of fractions of a second in cohorts whose queues borrow from each other, and take back.
//!
//! ```text
//! kueue-15k  30 queues in 5 cohorts, 500 jobs a queue     kueue-50k  1,000 queues in 10 cohorts, 50 jobs a queue
//! ```
//!
//! A unit of quota is a GPU, and a job of so many units a gang of as many workers with one each. As many GPUs as all queues own are there from the
//! beginning. How long a job runs is not stated. A job that is stopped begins again from nothing.
//!
//! `makespan_s` is time of the workload, from its beginning to the end of its last job: what is asked for happens at once, and what the engine takes
//! is not in it. `engine_s` is what the engine takes in all, with every event.
//!
//! Never: a pause that the workload does not name.

use std::collections::{BTreeMap, BTreeSet};

use forebay_kernel::effect::Action;
use forebay_kernel::event::Event;
use forebay_kernel::ids::{Attempt, JobId, TierId};
use forebay_kernel::job::{Gang, JobSpec};
use forebay_kernel::policy::{Policy, PreemptWithin};
use forebay_kernel::units::{Span, Timestamp};

use super::fleet::{Fleet, ask, gpus, job, offering, policy, queue, quota, submissions};
use super::report::{Figure, Peer, Report};

/// What a queue owns, and what it may borrow.
const NOMINAL: u64 = 20;
const BORROW: u64 = 100;

/// Equal jobs that come to each queue, one after the other.
struct Stream {
    jobs: u64,
    every: Span,
    units: u32,
    runs: Span,
    priority: i32,
}

/// A workload.
struct Cohorts {
    name: &'static str,
    cohorts: u64,
    streams: [Stream; 3],
}

const KUEUE_15K: Cohorts = Cohorts {
    name: "kueue-15k",
    cohorts: 5,
    streams: [
        Stream { jobs: 350, every: Span(100), units: 1, runs: Span(200), priority: 50 },
        Stream { jobs: 100, every: Span(500), units: 5, runs: Span(500), priority: 100 },
        Stream { jobs: 50, every: Span(1200), units: 20, runs: Span(1000), priority: 200 },
    ],
};

const KUEUE_50K: Cohorts = Cohorts {
    name: "kueue-50k",
    cohorts: 10,
    streams: [
        Stream { jobs: 35, every: Span(60), units: 1, runs: Span(150), priority: 50 },
        Stream { jobs: 11, every: Span(300), units: 5, runs: Span(350), priority: 100 },
        Stream { jobs: 4, every: Span(700), units: 20, runs: Span(700), priority: 200 },
    ],
};

/// 15,000 jobs in 30 queues.
pub fn kueue_15k(report: &mut Report, queues: u64) {
    let peers = [("kueue, client limit of its test", 379.0), ("kueue, client limit of production", 261.0)];
    played(report, &KUEUE_15K, queues, &[&peers[..], &[("kueue published", 351.0), ("bound", 66.0)]].concat());
}

/// 50,000 jobs in 1,000 queues.
pub fn kueue_50k(report: &mut Report, queues: u64) {
    played(report, &KUEUE_50K, queues, &[("kueue published", 1179.0), ("bound", 4.0)]);
}

fn played(report: &mut Report, of: &Cohorts, queues: u64, peers: &[Peer]) {
    let nodes = (queues * NOMINAL).div_ceil(8) as u32;
    let mut play = Play::new(Fleet::ready(of.policy(queues, nodes), nodes), of.arrivals(queues));
    let (makespan, engine) = play.play_out(of);
    report.push(Figure::of(of.name, "makespan_s", makespan.0 as f64 / 1e3, "s", peers));
    report.push(Figure::of(of.name, "engine_s", engine as f64 / 1e9, "s", &[]));
}

impl Cohorts {
    /// A queue may take back what it owns from whoever borrows it, and within itself what has a lower priority.
    fn policy(&self, queues: u64, nodes: u32) -> Policy {
        let mut policy = policy(vec![offering("node", 8, 96_000, 1 << 20, 30_000_000)], Some(nodes));
        let cohorts: Vec<_> = (0..self.cohorts).map(|at| quota(&mut policy, &format!("c{at}"), None, None)).collect();
        for at in 0..queues {
            let name = path(at);
            let cohort = cohorts[(at % self.cohorts) as usize];
            let node = quota(&mut policy, &name, Some(cohort), Some(gpus(NOMINAL, Some(BORROW))));
            queue(&mut policy, &name, node, TierId(0));
        }
        policy.queues.values_mut().for_each(|rule| rule.preempt_within = PreemptWithin::LowerPriority);
        policy
    }

    /// When which jobs come.
    fn arrivals(&self, queues: u64) -> BTreeMap<Span, Vec<JobSpec>> {
        let mut arrivals: BTreeMap<Span, Vec<JobSpec>> = BTreeMap::new();
        let mut number = 0;
        for at in 0..queues {
            for stream in &self.streams {
                for nth in 1..=stream.jobs {
                    let gang = Gang::Workers { min: stream.units, max: stream.units, each: ask(1, 0, 0) };
                    let spec = JobSpec { gang, priority: stream.priority, ..job(number, &path(at), ask(1, 0, 0)) };
                    arrivals.entry(stream.every.times(nth)).or_default().push(spec);
                    number += 1;
                }
            }
        }
        arrivals
    }

    /// How long a job of so many workers runs.
    fn runs(&self, workers: usize) -> Span {
        let stream = self.streams.iter().find(|stream| stream.units as usize == workers);
        stream.unwrap_or_else(|| panic!("no job has {workers} workers")).runs
    }
}

fn path(queue: u64) -> String {
    format!("q{queue}")
}

/// A workload as it goes on.
struct Play {
    fleet: Fleet,
    begun: Timestamp,
    arrivals: BTreeMap<Span, Vec<JobSpec>>,
    /// When which run ends.
    ends: BTreeSet<(Timestamp, JobId, Attempt)>,
    left: usize,
    /// What the engine has taken so far, in ns.
    engine: u64,
}

impl Play {
    fn new(fleet: Fleet, arrivals: BTreeMap<Span, Vec<JobSpec>>) -> Play {
        let left = arrivals.values().map(Vec::len).sum();
        Play { begun: fleet.now, fleet, arrivals, ends: BTreeSet::new(), left, engine: 0 }
    }

    /// How long all of it takes, and what the engine takes for it in ns.
    fn play_out(&mut self, of: &Cohorts) -> (Span, u64) {
        while self.left > 0 {
            self.fleet.now = self.next();
            let mut events = self.due();
            self.left -= events.iter().filter(|event| matches!(event, Event::RunCompleted { .. })).count();
            loop {
                self.engine += self.fleet.step(events).all();
                if self.fleet.asked().is_empty() {
                    break;
                }
                self.note_asked(of);
                events = self.fleet.answers();
            }
        }
        (self.fleet.now.since(self.begun), self.engine)
    }

    /// When something happens next.
    fn next(&self) -> Timestamp {
        let arrival = self.arrivals.keys().next().map(|after| self.begun + *after);
        let end = self.ends.first().map(|end| end.0);
        let next = [arrival, end, self.fleet.engine.poll_timeout()].into_iter().flatten().min();
        next.unwrap_or_else(|| panic!("{} jobs wait for ever", self.left))
    }

    /// What happens now.
    fn due(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some((at, job, attempt)) = self.ends.pop_first() {
            if at > self.fleet.now {
                self.ends.insert((at, job, attempt));
                break;
            }
            events.push(Event::RunCompleted { job, attempt, worker: None });
        }
        if let Some(jobs) = self.arrivals.remove(&self.fleet.now.since(self.begun)) {
            events.extend(submissions(jobs.into_iter()));
        }
        events
    }

    /// What starts ends when it has run; what is stopped does not.
    fn note_asked(&mut self, of: &Cohorts) {
        for effect in self.fleet.asked() {
            match &effect.action {
                Action::Start { job, attempt, workers, .. } => {
                    self.ends.insert((self.fleet.now + of.runs(workers.len()), *job, *attempt));
                }
                Action::Stop { job, attempt, .. } => self.ends.retain(|end| (end.1, end.2) != (*job, *attempt)),
                _ => {}
            }
        }
    }
}
