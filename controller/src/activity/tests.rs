//! The memory of reports against agents whose reports are lost, doubled, late and reordered, that are started again, and that have a
//! controller that is.

use super::book::{ActivityBook, Entries, QueueSums, WorkerStanding};
use super::view::{ObservedRun, ObservedService, ReportView};
use crate::metrics::family;
use forebay_kernel::event::Event;
use forebay_kernel::ids::{Attempt, JobId};
use forebay_kernel::policy::Lifecycle;
use forebay_kernel::units::Span;
use forebay_node_agent::{ActivityReport, WorkerActivity, WorkerName};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const LINGER: Span = Span::secs(300);

fn name(worker: u32) -> WorkerName {
    WorkerName { job: 7, attempt: 2, worker }
}

/// A worker that is idle for so many seconds, computes (`Some(0)`), or of which nothing is known.
fn worker(number: u32, idle: Option<u64>) -> WorkerActivity {
    WorkerActivity {
        worker: name(number),
        gpus: 1,
        memory_mib: Some(100),
        observed_ms: 1000,
        busy_ms: 0,
        resident_ms: 1000,
        computes: idle.map(|idle| idle == 0),
        idle_ms: idle.filter(|idle| *idle > 0).map(|idle| idle * 1000),
        ended: false,
    }
}

fn report(instance: &str, start: u64, sequence: u64, workers: Vec<WorkerActivity>) -> ActivityReport {
    ActivityReport {
        instance: instance.to_owned(),
        start,
        sequence,
        since: 0,
        source: "nvml".to_owned(),
        gpus: Some(1),
        problem: None,
        dropped: 0,
        workers,
    }
}

/// A run of these workers, each on the instance of its number.
fn run(workers: u32) -> ObservedRun {
    let workers = (0..workers).map(|n| (name(n), Arc::from(format!("i-{n}")))).collect();
    ObservedRun { job: JobId(7), attempt: Attempt(2), runs_for: Span::mins(600), workers }
}

fn view(report: &ActivityReport, run: &ObservedRun) -> ReportView {
    let idle = report.workers.iter().any(|worker| worker.computes == Some(false));
    ReportView {
        rules: Lifecycle { linger_after: LINGER, ..Lifecycle::default() },
        has_gpus: true,
        standings: vec![WorkerStanding::Current; report.workers.len()],
        queues: report.workers.iter().map(|worker| (worker.worker, "q".to_owned())).collect(),
        runs: idle.then(|| run.clone()).into_iter().collect(),
        services: Vec::new(),
    }
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The seconds of idleness that are sent to the engine at this time.
fn idleness(entries: &mut Entries, now: u64, report: &ActivityReport, run: &ObservedRun) -> Option<u64> {
    let taken = entries.take(secs(now), report, &view(report, run));
    entries.sent.record(secs(now), &taken.events);
    match taken.events.as_slice() {
        [] => None,
        [Event::RunIdle { job: JobId(7), attempt: Attempt(2), idle }] => Some(idle.0 / 1000),
        other => panic!("{other:?}"),
    }
}

#[test]
fn idleness_is_sent_every_minute_and_when_the_policys_time_is_reached() {
    let (mut entries, run) = (Entries::default(), run(1));
    let mut sent = Vec::new();
    for n in 0..40 {
        let report = report("i-0", 1, n + 1, vec![worker(0, Some(n * 10))]);
        sent.extend(idleness(&mut entries, n * 10, &report, &run));
    }
    assert_eq!(sent, [60, 120, 180, 240, 300, 360]);
    // It computes, and pauses again: that is another idleness.
    assert_eq!(idleness(&mut entries, 400, &report("i-0", 1, 100, vec![worker(0, Some(0))]), &run), None);
    assert_eq!(idleness(&mut entries, 450, &report("i-0", 1, 101, vec![worker(0, Some(50))]), &run), None);
    assert_eq!(idleness(&mut entries, 460, &report("i-0", 1, 102, vec![worker(0, Some(60))]), &run), Some(60));
    // Between two minutes, but over the policy's time.
    assert_eq!(idleness(&mut entries, 690, &report("i-0", 1, 103, vec![worker(0, Some(290))]), &run), Some(290));
    assert_eq!(idleness(&mut entries, 701, &report("i-0", 1, 104, vec![worker(0, Some(301))]), &run), Some(301));
}

#[test]
fn pauses_that_are_shorter_than_the_policys_time_never_add_up() {
    let (mut entries, run) = (Entries::default(), run(1));
    for n in 0..200_u64 {
        // 50 s idle, 10 s busy.
        let report = report("i-0", 1, n + 1, vec![worker(0, Some(n % 6 * 10))]);
        assert_eq!(idleness(&mut entries, n * 10, &report, &run), None, "{n}");
    }
}

#[test]
fn a_run_is_idle_only_while_all_of_its_workers_are_and_are_observed() {
    for (why, other, wanted) in [
        ("both idle", Some((995, worker(1, Some(500)))), Some(500)),
        ("the other one computes", Some((995, worker(1, Some(0)))), None),
        ("not known of the other one", Some((995, worker(1, None))), None),
        ("the other one has paused for a moment", Some((995, worker(1, Some(20)))), None),
        ("its report is old", Some((960, worker(1, Some(500)))), None),
        ("it was never reported", None, None),
    ] {
        let (mut entries, run) = (Entries::default(), run(2));
        if let Some((at, activity)) = other {
            let _ = idleness(&mut entries, at, &report("i-1", 1, 1, vec![activity]), &run);
        }
        assert_eq!(
            idleness(&mut entries, 1000, &report("i-0", 1, 1, vec![worker(0, Some(700))]), &run),
            wanted,
            "{why}"
        );
    }
}

#[test]
fn idleness_never_begins_before_the_run() {
    let (mut entries, mut run) = (Entries::default(), run(1));
    run.runs_for = Span::secs(70);
    assert_eq!(idleness(&mut entries, 1, &report("i-0", 1, 1, vec![worker(0, Some(7000))]), &run), Some(70));
}

#[test]
fn old_reports_change_nothing_and_an_agent_that_was_started_again_begins_anew() {
    let (mut entries, run) = (Entries::default(), run(1));
    let mut take = |now: u64, start: u64, sequence: u64, idle: u64| {
        let report = report("i-0", start, sequence, vec![worker(0, Some(idle))]);
        entries.take(secs(now), &report, &view(&report, &run)).new
    };
    assert!(take(0, 1000, 1, 10) && take(10, 1000, 3, 30));
    assert!(!take(11, 1000, 3, 30), "the same again");
    assert!(!take(12, 1000, 2, 20), "one that was overtaken");
    assert!(take(20, 2000, 1, 1), "started again");
    assert!(!take(21, 1000, 4, 40), "late, of the start before");
    assert!(take(30, 2000, 2, 11));
    assert!(take(91, 500, 1, 1), "its clock was set back, and the other one is silent");
}

#[test]
fn what_is_not_ours_is_ignored_and_counted() {
    let (mut entries, run) = (Entries::default(), run(1));
    let report = report("i-0", 1, 1, (0..4).map(|n| worker(n, Some(900))).collect());
    let mut seen = view(&report, &run);
    seen.standings = vec![
        WorkerStanding::NotCurrent,
        WorkerStanding::Elsewhere,
        WorkerStanding::UnknownJob,
        WorkerStanding::NotCurrent,
    ];
    let taken = entries.take(secs(1), &report, &seen);
    assert_eq!((taken.new, taken.ignored, taken.events), (true, 4, vec![]));
    assert_eq!(entries.ignored, BTreeMap::from([("not-current", 2), ("elsewhere", 1), ("unknown-job", 1)]));
    assert_eq!(entries.sums, BTreeMap::new());
    assert!(entries.worker(secs(1), name(0), "i-0").is_none());
}

#[test]
fn an_agent_without_figures_fails_only_where_its_node_has_gpus() {
    let book = ActivityBook::default();
    for (instance, gpus, has_gpus) in [("i-0", Some(1), true), ("i-1", None, true), ("i-2", None, false)] {
        let problem = gpus.is_none().then(|| "no GPU: the driver lists none".to_owned());
        let report = ActivityReport { gpus, problem, ..report(instance, 1, 1, Vec::new()) };
        assert!(book.take(&report, &ReportView { has_gpus, ..view(&report, &run(1)) }).new);
    }
    let text = family::text(book.agent_families()).expect("written");
    for (state, agents) in [("reading", 1), ("failing", 1)] {
        let wanted = format!("forebay_agents{{source=\"nvml\",state=\"{state}\"}} {agents}\n");
        assert!(text.contains(&wanted), "no {wanted} in {text}");
    }
}

/// A service with two replicas, of which each is a worker of job 7 here.
fn service(demand: u32) -> ObservedService {
    let of = |n: u32| ObservedRun { workers: vec![(name(n), Arc::from(format!("i-{n}")))], ..run(1) };
    ObservedService {
        service: JobId(3),
        tenant: "t".to_owned(),
        subject: "llm".to_owned(),
        demand,
        target: 4,
        replicas: vec![of(0), of(1)],
    }
}

/// The demand that follows when the replicas have been idle for so many seconds.
fn demand(entries: &mut Entries, now: u64, known: u32, idle: [Option<u64>; 2]) -> Option<u32> {
    let mut sent = None;
    for (n, idle) in idle.into_iter().enumerate() {
        let report = report(&format!("i-{n}"), 1, now + 1, vec![worker(n as u32, idle)]);
        let seen = ReportView { runs: Vec::new(), services: vec![service(known)], ..view(&report, &run(1)) };
        let events = entries.take(secs(now), &report, &seen).events;
        entries.sent.record(secs(now), &events);
        for event in events {
            let Event::ServiceDemand { concurrency, by: None, .. } = event else { panic!("{event:?}") };
            sent = Some(concurrency);
        }
    }
    sent
}

#[test]
fn demand_that_the_gpus_contradict_is_corrected() {
    let entries = &mut Entries::default();
    assert_eq!(demand(entries, 0, 5, [Some(299), Some(290)]), None, "a pause");
    assert_eq!(demand(entries, 40, 5, [Some(339), None]), None, "one is not known");
    assert_eq!(demand(entries, 50, 5, [Some(349), Some(0)]), None, "one computes");
    assert_eq!(demand(entries, 60, 5, [Some(359), Some(301)]), Some(0), "nobody asks anything of it");
    assert_eq!(demand(entries, 90, 0, [Some(389), Some(331)]), None);
    assert_eq!(demand(entries, 110, 0, [Some(409), Some(0)]), Some(1), "one replica is enough");
    assert_eq!(demand(entries, 130, 1, [Some(429), Some(20)]), None);
    assert_eq!(demand(entries, 145, 1, [Some(444), Some(35)]), Some(0), "what was measured ends sooner");
    assert_eq!(demand(entries, 160, 9, [Some(459), Some(50)]), None, "whoever reports demand is believed again");
    assert_eq!(demand(entries, 500, 9, [Some(799), Some(390)]), Some(0), "until its GPUs contradict that too");
    assert_eq!(demand(entries, 501, 9, [Some(800), Some(391)]), None, "not again at once");
}

/// What happens in the life of an agent and its controller.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// So many seconds of computing, or of idleness.
    Works(u64, bool),
    /// The next report is lost, taken without its acknowledgement, or taken.
    Lost,
    Unacknowledged,
    Delivered,
    /// An earlier report comes again.
    Again(usize),
    /// The agent, or the controller, is started again after so many seconds.
    AgentRestarts(u64),
    ControllerRestarts(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1_u64..120, any::<bool>()).prop_map(|(s, busy)| Step::Works(s, busy)),
        2 => Just(Step::Lost),
        2 => Just(Step::Unacknowledged),
        6 => Just(Step::Delivered),
        3 => (0_usize..50).prop_map(Step::Again),
        1 => (1_u64..900).prop_map(Step::AgentRestarts),
        1 => (1_u64..900).prop_map(Step::ControllerRestarts),
    ]
}

/// An agent as its documentation describes it.
#[derive(Default)]
struct Agent {
    start: u64,
    sequence: u64,
    since: u64,
    sums: QueueSums,
    idle: Option<u64>,
    busy: bool,
}

impl Agent {
    fn report(&mut self) -> ActivityReport {
        self.sequence += 1;
        let sums = self.sums;
        let activity = WorkerActivity {
            observed_ms: sums.observed,
            busy_ms: sums.busy,
            resident_ms: sums.resident,
            computes: Some(self.busy),
            idle_ms: self.idle.filter(|_| !self.busy).map(|idle| idle * 1000),
            ..worker(0, None)
        };
        ActivityReport { since: self.since, ..report("i-0", self.start, self.sequence, vec![activity]) }
    }
}

/// The answer was lost, and the agent could send nothing for an hour: what it sends then was counted in part.
#[test]
fn what_was_counted_before_a_long_silence_is_not_counted_again() {
    let (mut entries, run) = (Entries::default(), run(1));
    let first = report("i-0", 1, 1, vec![worker(0, None)]);
    let _ = entries.take(secs(1), &first, &view(&first, &run));
    let mut all = worker(0, None);
    all.observed_ms = 3_601_000;
    let second = report("i-0", 1, 2, vec![all]);
    let _ = entries.take(secs(3_601), &second, &view(&second, &run));
    assert_eq!(entries.sums["q"].observed, 3_601_000);
}

proptest! {
    /// Whatever is lost, doubled or reordered, and whoever is started again: each second counts once at most, each second of an acknowledged
    /// report counts, and no idleness is sent that reaches back to where the worker has computed or its agent did not run.
    #[test]
    fn each_second_counts_once_and_no_idleness_is_invented(steps in prop::collection::vec(step(), 1..150)) {
        let (mut entries, run) = (Entries::default(), run(1));
        let mut agent = Agent { start: 1, ..Agent::default() };
        // Reports with when they were made, and how long the worker had been idle for certain then.
        let mut earlier: Vec<(ActivityReport, u64, u64)> = Vec::new();
        // What this controller may have counted at most, and must have counted.
        let (mut now, mut opened, mut most, mut least) = (0, 0, QueueSums::default(), 0);
        // Since when the worker has been idle for certain.
        let mut idle_since = 0;
        for step in steps.into_iter().chain([Step::Delivered]) {
            let taken = match step {
                Step::Works(seconds, busy) => {
                    now += seconds;
                    let ms = if busy { seconds * 1000 } else { 0 };
                    for sums in [&mut agent.sums, &mut most] {
                        (sums.observed, sums.busy, sums.resident) =
                            (sums.observed + seconds * 1000, sums.busy + ms, sums.resident + seconds * 1000);
                    }
                    agent.idle = (!busy).then(|| agent.idle.map_or(0, |idle| idle + seconds));
                    agent.busy = busy;
                    if busy {
                        idle_since = now;
                    }
                    continue;
                }
                Step::AgentRestarts(seconds) => {
                    now += seconds;
                    idle_since = now;
                    agent = Agent { start: agent.start + 1, ..Agent::default() };
                    continue;
                }
                Step::ControllerRestarts(seconds) => {
                    now += seconds;
                    entries = Entries::default();
                    // The agent has gone on all the while, without a change.
                    (opened, most, least) = (now, agent.sums, 0);
                    idle_since = now;
                    agent.idle = None;
                    continue;
                }
                // Longer than any request may take.
                Step::Again(at) => earlier.iter().rev().nth(at).filter(|(_, made, _)| now - made <= 30).cloned(),
                Step::Lost => {
                    earlier.push((agent.report(), now, now - idle_since));
                    None
                }
                Step::Unacknowledged | Step::Delivered => Some((agent.report(), now, now - idle_since)),
            };
            let Some((report, made, idle_for)) = taken else { continue };
            let fresh = report.start == agent.start && report.sequence == agent.sequence;
            // After a restart of the controller a report from before it may be taken for a new one, the agent's last one too: its sums were of an
            // earlier process.
            if (!fresh || made < opened) && entries.agents.is_empty() {
                continue;
            }
            let at = secs(now - opened);
            let answer = entries.take(at, &report, &view(&report, &run));
            entries.sent.record(at, &answer.events);
            for event in &answer.events {
                let Event::RunIdle { idle, .. } = event else { panic!("{event:?}") };
                prop_assert!(idle.0 <= idle_for * 1000, "{idle:?} at {now}, idle for {idle_for}");
            }
            let sums = entries.sums.get("q").copied().unwrap_or_default();
            prop_assert!(sums.observed <= most.observed && sums.busy <= most.busy, "{sums:?} of {most:?}");
            if fresh && matches!(step, Step::Delivered) {
                prop_assert!(answer.new);
                least += agent.sums.observed;
                prop_assert!(sums.observed >= least, "{sums:?}, acknowledged {least}");
                agent.since = report.sequence;
                agent.sums = QueueSums::default();
            }
            earlier.push((report, made, idle_for));
        }
    }
}
