//! The world alone, with an engine that only keeps the tables: events are put in by hand, and effects acted on directly.

use forebay_engine::engine::Engine;
use forebay_kernel::effect::{Action, Effect, Terms, WorkerPlace};
use forebay_kernel::event::{Event, GoneWhy, LaunchError, Tick};
use forebay_kernel::ids::{Attempt, JobId, NodeId, OfferingId, PurchaseId, Seq};
use forebay_kernel::job::{Completion, Gang, JobSpec, WorkerAsk};
use forebay_kernel::reconcile::RunStatus;
use forebay_kernel::units::{Mib, MilliCpu, Span, Timestamp};

use super::{JobTruth, World, WorldOptions, spot_pairs};
use crate::convert::{Assumptions, Converter, TENANT};
use crate::market::Market;
use crate::policies;
use crate::trace::TraceJob;

/// An engine and a world side by side, and the events that were exchanged.
struct Pair {
    engine: Engine,
    world: World,
    now: Timestamp,
}

impl Pair {
    fn new(change: impl FnOnce(&mut WorldOptions)) -> Pair {
        let policy = policies::spot_first();
        let mut options = WorldOptions::new(1, Market::calm(&spot_pairs(&policy)));
        change(&mut options);
        let mut engine = Engine::new();
        let _ = step(&mut engine, Timestamp(0), vec![Event::Configured(Box::new(policy))]);
        let world = World::new(options, engine.state());
        Pair { engine, world, now: Timestamp(0) }
    }

    /// Submits a job of one GPU and lets the two work until `done` holds; returns the world's events.
    fn run(&mut self, row: &TraceJob, truth: JobTruth, done: impl FnMut(&Event) -> bool) -> Vec<Event> {
        let policy = policies::spot_first();
        let (spec, _) = Converter::new(&policy, Assumptions::default()).job(row);
        self.run_spec(spec, truth, done)
    }

    fn run_spec(&mut self, spec: JobSpec, truth: JobTruth, mut done: impl FnMut(&Event) -> bool) -> Vec<Event> {
        self.world.learn(&spec.tenant, &spec.subject, truth);
        self.exchange(vec![Event::JobSubmitted(Box::new(spec))]);
        let mut seen = Vec::new();
        for _ in 0..200 {
            let times = [self.world.next_event(), self.engine.poll_timeout()];
            let Some(next) = times.into_iter().flatten().min() else { break };
            self.now = next.max(self.now);
            let events = self.world.take_until(self.now);
            seen.extend(events.iter().cloned());
            let stop = events.iter().any(&mut done);
            self.exchange(events);
            if stop {
                break;
            }
        }
        seen
    }

    fn exchange(&mut self, events: Vec<Event>) {
        for effect in step(&mut self.engine, self.now, events) {
            self.world.act(self.now, &effect, self.engine.state());
        }
    }

    fn launch(&mut self, purchase: u64, count: u32, at_least: u32) -> Option<Event> {
        let id = PurchaseId(purchase);
        let action = Action::Launch { purchase: id, offering: OfferingId(0), count, at_least, terms: Terms::default() };
        self.world.act(self.now, &Effect { id: Seq(purchase), action }, self.engine.state());
        self.now = self.now + Span::secs(5);
        self.world.take_until(self.now).into_iter().find(|e| matches!(e, Event::LaunchOutcome { .. }))
    }
}

fn step(engine: &mut Engine, now: Timestamp, events: Vec<Event>) -> Vec<Effect> {
    engine.open(Tick { now, resumed: false, delivered: u64::MAX });
    events.into_iter().for_each(|e| _ = engine.handle_event(e));
    let _ = engine.plan();
    engine.close().saved().effects
}

fn row(duration_s: u64) -> TraceJob {
    TraceJob { id: "a".into(), gpus: 1, gpu_milli: 1000, duration_ms: duration_s * 1000, ..TraceJob::default() }
}

fn lasting(secs: u64) -> JobTruth {
    JobTruth::lasting(Span::secs(secs))
}

fn instances(outcome: &Event) -> (usize, Option<LaunchError>) {
    match outcome {
        Event::LaunchOutcome { instances, error, .. } => (instances.len(), *error),
        other => panic!("not an outcome: {other:?}"),
    }
}

fn completed(event: &Event) -> bool {
    matches!(event, Event::RunCompleted { .. })
}

#[test]
fn a_job_boots_a_node_runs_saves_and_ends() {
    let mut pair = Pair::new(|_| {});
    let seen = pair.run(&row(4000), lasting(4000), completed);
    let started = seen.iter().position(|e| matches!(e, Event::RunStarted { .. })).expect("it starts");
    assert!(seen[..started].iter().any(|e| matches!(e, Event::NodeReady { .. })));
    let saves: Vec<u64> = seen.iter().filter_map(progress).collect();
    assert_eq!(saves.len(), 2, "4000 s of work, saved every 30 min on the minute: {saves:?}");
    assert!(saves.iter().all(|ms| *ms >= 1_800_000));
    assert_eq!(pair.world.completions()[&JobId(0)], 1);
}

fn progress(event: &Event) -> Option<u64> {
    match event {
        Event::RunCheckpointed { progress, .. } => Some(progress.0),
        Event::RunStopped { progress: Some(progress), .. } => Some(progress.0),
        _ => None,
    }
}

#[test]
fn a_job_fails_as_often_as_its_truth_says() {
    let mut pair = Pair::new(|_| {});
    let truth = JobTruth { failures: 2, exit_code: 9, ..lasting(100) };
    let seen = pair.run(&row(100), truth, completed);
    let codes: Vec<i32> = seen
        .iter()
        .filter_map(|e| match e {
            Event::RunFailed { exit_code, .. } => Some(*exit_code),
            _ => None,
        })
        .collect();
    assert_eq!(codes, [9, 9]);
    assert!(seen.iter().any(completed));
}

#[test]
fn lingering_is_reported_on_the_minute_and_then_the_process_ends() {
    let mut pair = Pair::new(|_| {});
    let truth = JobTruth { linger: Some(Span::secs(150)), ..lasting(60) };
    let seen = pair.run(&row(60), truth, completed);
    let idle: Vec<u64> = seen
        .iter()
        .filter_map(|e| match e {
            Event::RunIdle { idle, .. } => Some(idle.0),
            _ => None,
        })
        .collect();
    assert_eq!(idle, [60_000, 120_000]);
    assert!(seen.iter().any(completed));
}

#[test]
fn the_same_launch_again_brings_the_same_instances_and_no_more() {
    let mut pair = Pair::new(|_| {});
    let first = pair.launch(7, 3, 3);
    assert_eq!(pair.launch(7, 3, 3), first);
    assert_eq!(pair.world.instances(), 3);
}

#[test]
fn a_launch_is_partial_or_refused_by_depth() {
    let mut pair = Pair::new(|o| o.depth = Some(4));
    let outcome = pair.launch(0, 3, 3);
    assert_eq!(outcome.as_ref().map(instances), Some((3, None)));
    let outcome = pair.launch(1, 3, 1);
    assert_eq!(outcome.as_ref().map(instances), Some((1, Some(LaunchError::Capacity))), "one is left");
    let outcome = pair.launch(2, 2, 2);
    assert_eq!(outcome.as_ref().map(instances), Some((0, Some(LaunchError::Capacity))));
    let mut pair = Pair::new(|o| o.throttle_permille = 1000);
    let outcome = pair.launch(0, 1, 1);
    assert_eq!(outcome.as_ref().map(instances), Some((0, Some(LaunchError::Throttled))));
}

#[test]
fn spot_is_taken_back_with_and_without_a_warning() {
    let drought = |warning| {
        move |o: &mut WorldOptions| {
            o.market = o.market.clone().with_drought(600_000, 900_000);
            o.warning_permille = warning;
        }
    };
    let mut pair = Pair::new(drought(1000));
    assert!(pair.launch(0, 2, 2).is_some());
    let events = pair.world.take_until(Timestamp(600_000));
    let notices = events.iter().filter(|e| matches!(e, Event::ReclaimNotice { at, .. } if *at == Timestamp(720_000)));
    assert_eq!(notices.count(), 2);
    assert_eq!(pair.world.instances(), 2);
    let gone = |events: &[Event]| {
        let taken = |e: &&Event| matches!(e, Event::NodeGone { why: GoneWhy::Reclaimed, .. });
        events.iter().filter(taken).count()
    };
    assert_eq!(gone(&pair.world.take_until(Timestamp(720_000))), 2);
    let mut pair = Pair::new(drought(0));
    assert!(pair.launch(0, 2, 2).is_some());
    assert_eq!(gone(&pair.world.take_until(Timestamp(600_000))), 2, "at once");
    assert_eq!(pair.world.billing(Timestamp(600_000)).unwarned, 2);
    pair.now = Timestamp(600_000);
    assert_eq!(pair.launch(1, 1, 1).as_ref().map(instances), Some((0, Some(LaunchError::Capacity))));
}

#[test]
fn a_termination_ends_once_and_is_billed_to_the_end() {
    let mut pair = Pair::new(|_| {});
    let outcome = pair.launch(0, 1, 1);
    let Some(Event::LaunchOutcome { instances, .. }) = outcome else { panic!("no outcome") };
    let instance = instances[0].clone();
    let action = Action::Terminate { node: NodeId(0), instance: instance.clone() };
    let effect = Effect { id: Seq(9), action };
    for _ in 0..3 {
        pair.world.act(pair.now, &effect, pair.engine.state());
    }
    let gone = Event::NodeGone { instance, why: GoneWhy::Terminated };
    let events = pair.world.take_until(pair.now + Span::secs(60));
    assert_eq!(events.iter().filter(|e| **e == gone).count(), 1);
    let billing = pair.world.billing(pair.now + Span::secs(60));
    let time = billing.all().node_time;
    assert!((6000..21_000).contains(&time.0), "launched 1 to 3 s in, gone 5 to 15 s after 5 s: {time}");
    pair.world.act(pair.now, &effect, pair.engine.state());
    assert_eq!(pair.world.take_until(pair.now + Span::secs(60)), [gone], "reported again");
}

#[test]
fn a_stop_that_comes_before_its_start_wins() {
    let mut pair = Pair::new(|_| {});
    let (job, attempt) = (JobId(0), Attempt(1));
    let stop = Action::Stop { job, attempt, checkpoint: false, deadline: Timestamp(90_000) };
    pair.world.act(Timestamp(0), &Effect { id: Seq(2), action: stop }, pair.engine.state());
    let policy = policies::spot_first();
    let (spec, _) = Converter::new(&policy, Assumptions::default()).job(&row(10));
    let _ = step(&mut pair.engine, Timestamp(0), vec![Event::JobSubmitted(Box::new(spec))]);
    let workers = vec![WorkerPlace { node: NodeId(0), gpus: 1, share: 1000, slice: None }];
    let start = Action::Start { job, attempt, workers, resume_from: Span::ZERO };
    pair.world.act(Timestamp(10), &Effect { id: Seq(1), action: start }, pair.engine.state());
    let seen = pair.world.take_until(Timestamp(60_000));
    let stopped = Event::RunStopped { job, attempt, progress: None };
    assert_eq!(seen, [stopped.clone(), stopped], "never started");
}

#[test]
fn a_stop_saves_within_grace_and_the_job_goes_on_from_there() {
    let mut pair = Pair::new(|_| {});
    let _ = pair.run(&row(4000), lasting(4000), |e| matches!(e, Event::RunStarted { .. }));
    let at = pair.now + Span::secs(600);
    let (job, attempt) = (JobId(0), Attempt(1));
    let deadline = at + Span::secs(60);
    let stop = Action::Stop { job, attempt, checkpoint: true, deadline };
    pair.world.take_until(at);
    pair.world.act(at, &Effect { id: Seq(99), action: stop }, pair.engine.state());
    let seen = pair.world.take_until(deadline);
    let saved: Vec<u64> = seen.iter().filter_map(progress).collect();
    assert_eq!(saved, [540_000], "600 s less 60 s of restart");
    assert_eq!(pair.world.saved(job), Span::secs(540));
    assert_eq!(pair.world.runs_alive(), 0);
}

/// The workers of an elastic gang: one has done its work, the other is asked to leave. Nobody is left who could end the run.
#[test]
fn a_run_is_over_when_its_last_worker_leaves() {
    let mut pair = Pair::new(|_| {});
    let (spec, _) = Converter::new(&policies::spot_first(), Assumptions::default()).job(&row(4000));
    let each = WorkerAsk { gpus: 1, share: 1000, ..WorkerAsk::default() };
    let gang = Gang::Workers { min: 1, max: 2, each };
    let spec = JobSpec { gang, completion: Completion::Any, ..spec };
    let _ = pair.run_spec(spec, lasting(4000), |e| matches!(e, Event::RunStarted { .. }));
    let place = pair.engine.state().job(JobId(0)).map(|(job, _)| job.places[0].clone()).expect("it runs");
    let (job, attempt, deadline) = (JobId(0), Attempt(2), Timestamp::NEVER);
    let start = Action::Start { job, attempt, workers: vec![place.clone(), place], resume_from: Span::ZERO };
    pair.world.act(pair.now, &Effect { id: Seq(98), action: start }, pair.engine.state());
    let mut done = None;
    while let Some(next) = pair.world.next_event().filter(|_| done.is_none()) {
        pair.now = next;
        done = pair.world.take_until(next).into_iter().find_map(|e| match e {
            Event::RunCompleted { attempt: Attempt(2), worker, .. } => worker,
            _ => None,
        });
    }
    let leave = vec![1 - done.expect("one of two is done first")];
    let shrink = Action::Shrink { job, attempt, leave, deadline };
    let before = pair.world.runs_alive();
    pair.world.act(pair.now, &Effect { id: Seq(99), action: shrink }, pair.engine.state());
    let _ = pair.world.take_until(pair.now + Span::secs(60));
    assert_eq!(pair.world.runs_alive(), before - 1);
}

#[test]
fn an_end_is_listed_once_its_message_has_had_time() {
    let mut pair = Pair::new(|_| {});
    let _ = pair.run(&row(30), lasting(30), completed);
    let listed = |now| pair.world.list(now).runs.iter().map(|r| r.status).collect::<Vec<_>>();
    assert_eq!(listed(pair.now + Span::secs(60)), []);
    assert_eq!(listed(pair.now + Span::mins(4)), [RunStatus::Completed]);
    assert_eq!(listed(pair.now + Span::mins(300)), []);
}

#[test]
fn a_rebuilt_world_goes_on_where_the_journal_was() {
    let mut pair = Pair::new(|_| {});
    let mut saves = 0;
    let _ = pair.run(&row(9000), lasting(9000), |e| {
        saves += usize::from(progress(e).is_some());
        saves == 2
    });
    let mut options = WorldOptions::new(1, Market::calm(&spot_pairs(&policies::spot_first())));
    options.warning_permille = 900;
    let truths = [((TENANT.to_owned(), "a".to_owned()), lasting(9000))].into();
    let mut again = World::rebuild(options, pair.engine.state(), truths);
    assert_eq!((again.instances(), again.runs_alive()), (pair.world.instances(), 1));
    let until = Timestamp(20_000_000);
    let ends = |world: &mut World| {
        let mut at = Vec::new();
        while let Some(next) = world.next_event().filter(|t| *t <= until) {
            at.extend(world.take_until(next).iter().filter(|e| completed(e)).map(|_| next));
        }
        at
    };
    assert_eq!(ends(&mut again), ends(&mut pair.world), "the same instant as if nothing had happened");
}

#[test]
fn a_run_that_never_answers_its_stop_ends_when_its_deaths_are_confirmed() {
    let mut pair = Pair::new(|options| options.hang_for_ever_permille = 1000);
    let _ = pair.run(&row(4000), lasting(4000), |e| matches!(e, Event::RunStarted { .. }));
    let key = (JobId(0), Attempt(1));
    pair.world.confirm_dead(pair.now, key, &[0]);
    assert_eq!(pair.world.runs_alive(), 1, "it answers: nobody's word counts against that");
    let action = Action::Stop { job: key.0, attempt: key.1, checkpoint: false, deadline: pair.now };
    pair.world.act(pair.now, &Effect { id: Seq(99), action }, pair.engine.state());
    pair.now = pair.now + Span::mins(60);
    let _ = pair.world.take_until(pair.now);
    assert_eq!(pair.world.runs_alive(), 1, "it has hung");
    pair.world.confirm_dead(pair.now, key, &[]);
    assert_eq!(pair.world.runs_alive(), 1, "its worker may be alive");
    pair.world.confirm_dead(pair.now, key, &[0]);
    assert_eq!(pair.world.runs_alive(), 0);
    let events = pair.world.take_until(pair.now + Span::secs(1));
    assert!(events.iter().any(|e| matches!(e, Event::RunStopped { progress: None, .. })), "{events:?}");
}

#[test]
fn gpus_given_out_twice_and_two_attempts_at_once_are_found() {
    let mut pair = Pair::new(|_| {});
    let _ = pair.run(&row(4000), lasting(4000), |e| matches!(e, Event::RunStarted { .. }));
    let place = pair.engine.state().job(JobId(0)).map(|(job, _)| job.places[0].clone());
    let workers = vec![place.expect("it runs")];
    let start = Action::Start { job: JobId(0), attempt: Attempt(2), workers, resume_from: Span::secs(5) };
    pair.world.act(pair.now, &Effect { id: Seq(99), action: start }, pair.engine.state());
    let _ = pair.world.take_until(pair.now + Span::secs(5));
    let found = pair.world.violations().join("; ");
    for part in ["while a worker of attempt-1 is alive", "given out twice", "resumes from 5s, saved is 0s"] {
        assert!(found.contains(part), "{found}");
    }
}

#[test]
fn cpu_and_memory_given_out_twice_are_found() {
    let mut pair = Pair::new(|_| {});
    let (mut spec, _) = Converter::new(&policies::spot_first(), Assumptions::default()).job(&row(4000));
    let (Gang::Workers { each, .. } | Gang::Spanning { per_gpu: each, .. }) = &mut spec.gang;
    (each.cpu, each.mem) = (MilliCpu(3000), Mib(1000));
    let _ = pair.run_spec(spec, lasting(4000), |e| matches!(e, Event::RunStarted { .. }));
    assert_eq!(pair.world.violations(), [""; 0]);
    let place = pair.engine.state().job(JobId(0)).map(|(job, _)| job.places[0].clone());
    let workers = vec![place.expect("it runs")];
    let node = pair.engine.state().node(workers[0].node).expect("it is there");
    let room = &pair.engine.state().offerings()[node.offering.index()].offer;
    // So often that it is more than any node has.
    for attempt in 2..=2 + u32::try_from(room.cpu.0 / 3000).expect("no node is so large") {
        let action = Action::Start {
            job: JobId(0),
            attempt: Attempt(attempt),
            workers: workers.clone(),
            resume_from: Span::ZERO,
        };
        pair.world.act(pair.now, &Effect { id: Seq(99), action }, pair.engine.state());
    }
    let found = pair.world.violations().join("; ");
    assert!(found.contains("has CPU and memory"), "{found}");
}
