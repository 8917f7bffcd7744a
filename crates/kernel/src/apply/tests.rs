//! Records whose meaning shows only in what comes before them: brakes and policies under start targets, and reclaims that are announced twice;
//! refusals in a row; and the labels of statuses.

use crate::decision::{Decision, StopCause};
use crate::effect::{StatusKind, Terms, WorkerPlace};
use crate::event::{Event, EventOutcome, LaunchError, Tick};
use crate::ids::{Attempt, JobId, OfferingId, PoolId, PurchaseId};
use crate::job::{Gang, JobSpec, Service, WorkerAsk};
use crate::journal::APPLY_VERSION;
use crate::machine::StateMachine;
use crate::making::offering;
use crate::policy::{Policy, Pool, QueueRule, QuotaNode, StartTarget, Tier, WhenLate};
use crate::reason::Reason;
use crate::state::brakes::Brake;
use crate::state::index::Index;
use crate::state::jobs::{Job, Phase};
use crate::units::{Rate, Span, Timestamp};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

const JOB: JobId = JobId(0);

fn minute(minutes: u64) -> Timestamp {
    Timestamp(0) + Span::mins(minutes)
}

/// A queue whose jobs are to start within so many minutes, and a node with two GPUs to be bought for them.
fn policy(start: Option<(u64, WhenLate)>) -> Policy {
    let start = start.map(|(minutes, when_late)| StartTarget { within: Span::mins(minutes), when_late });
    let rule = QueueRule { pools: vec![PoolId(0)], start, ..QueueRule::default() };
    Policy {
        tiers: vec![Tier::default()],
        quotas: vec![QuotaNode::default()],
        queues: [(String::from("team/q"), rule)].into(),
        pools: vec![Pool { name: "main".into(), offerings: vec![0], ..Pool::default() }],
        offerings: vec![offering("small")],
        ..Policy::default()
    }
}

/// One event, in a batch of its own.
fn happens(machine: &mut StateMachine, minutes: u64, version: u32, event: &Event) -> EventOutcome {
    machine.apply_tick(Tick { now: minute(minutes), resumed: false, delivered: 0 }, version);
    machine.apply_event(event)
}

fn configured(start: Option<(u64, WhenLate)>) -> Event {
    Event::Configured(Box::new(policy(start)))
}

/// A job that waits since its first minute.
fn waiting(start: Option<(u64, WhenLate)>, version: u32) -> StateMachine {
    let mut machine = StateMachine::default();
    let _ = happens(&mut machine, 0, version, &configured(start));
    let gang = Gang::Workers { min: 1, max: 2, each: WorkerAsk { gpus: 1, share: 1000, ..WorkerAsk::default() } };
    let spec = JobSpec { subject: "a".into(), queue: "team/q".into(), gang, ..JobSpec::default() };
    let _ = happens(&mut machine, 1, version, &Event::JobSubmitted(Box::new(spec)));
    let _ = machine.apply_decision(&Decision::Resume { job: JOB });
    machine
}

fn row(machine: &StateMachine) -> &Job {
    &machine.jobs[JOB]
}

/// In which minute a job is late.
fn late_in(machine: &StateMachine) -> Option<u64> {
    row(machine).start_target.map(|target| target.by.0 / 60_000)
}

fn set(brake: &Brake, until: Option<u64>) -> Event {
    Event::BrakeSet { brake: brake.clone(), by: "ops".into(), why: String::new(), until: until.map(minute) }
}

fn release(brake: &Brake) -> Event {
    Event::BrakeReleased { brake: brake.clone(), by: "ops".into() }
}

#[test]
fn who_would_be_rejected_has_its_whole_start_target_when_a_brake_ends() {
    let team = || Brake::Queue("team".into());
    for (brake, when_late, version, expected) in [
        (Brake::Admission, WhenLate::Reject, APPLY_VERSION, 310),
        (team(), WhenLate::Reject, APPLY_VERSION, 310),
        // It held nobody of the queue.
        (Brake::Queue("other".into()), WhenLate::Reject, APPLY_VERSION, 11),
        (Brake::Preemption, WhenLate::Reject, APPLY_VERSION, 11),
        // Nothing could be bought for it.
        (Brake::Buying, WhenLate::Reject, APPLY_VERSION, 310),
        (Brake::Pool("main".into()), WhenLate::Reject, APPLY_VERSION, 310),
        (Brake::Pool("other".into()), WhenLate::Reject, APPLY_VERSION, 11),
        (Brake::Buying, WhenLate::Wait, APPLY_VERSION, 11),
        (Brake::Buying, WhenLate::Reject, 4, 11),
        // Nothing is lost by being late.
        (team(), WhenLate::Wait, APPLY_VERSION, 11),
        (team(), WhenLate::BuyOnDemand, APPLY_VERSION, 11),
        // A record of before means what it meant.
        (team(), WhenLate::Reject, 4, 11),
    ] {
        let mut machine = waiting(Some((10, when_late)), version);
        let _ = happens(&mut machine, 2, version, &set(&brake, None));
        assert_eq!(late_in(&machine), Some(11), "{brake:?}");
        let mut by_itself = machine.clone();
        let _ = happens(&mut machine, 300, version, &release(&brake));
        assert_eq!(late_in(&machine), Some(expected), "{brake:?} {when_late:?} {version}");
        let _ = happens(&mut by_itself, 3, version, &set(&brake, Some(300)));
        by_itself.apply_tick(Tick { now: minute(300), resumed: false, delivered: 0 }, version);
        assert_eq!(late_in(&by_itself), Some(expected), "{brake:?} {when_late:?} {version}, by itself");
        assert_eq!(*machine.index(), Index::rebuilt(&machine));
    }
}

#[test]
fn a_queue_is_held_until_its_last_brake_ends() {
    let mut machine = waiting(Some((10, WhenLate::Reject)), APPLY_VERSION);
    let (all, one) = (Brake::Admission, Brake::Queue("team/q".into()));
    let _ = happens(&mut machine, 2, APPLY_VERSION, &set(&all, None));
    let _ = happens(&mut machine, 3, APPLY_VERSION, &set(&one, None));
    let _ = happens(&mut machine, 100, APPLY_VERSION, &release(&all));
    assert_eq!(late_in(&machine), Some(11));
    let _ = happens(&mut machine, 200, APPLY_VERSION, &release(&one));
    assert_eq!(late_in(&machine), Some(210));
    // A policy that says the same takes nothing back, and gives nothing more.
    let _ = happens(&mut machine, 205, APPLY_VERSION, &configured(Some((10, WhenLate::Reject))));
    assert_eq!(late_in(&machine), Some(210));
    let _ = happens(&mut machine, 300, APPLY_VERSION, &configured(Some((10, WhenLate::Reject))));
    assert_eq!(late_in(&machine), Some(210));
}

#[test]
fn who_was_held_for_its_price_has_its_whole_start_target_when_it_waits_again() {
    for (when_late, version, expected) in [
        (WhenLate::Reject, APPLY_VERSION, 310),
        // Nothing is lost by being late.
        (WhenLate::Wait, APPLY_VERSION, 11),
        (WhenLate::BuyOnDemand, APPLY_VERSION, 11),
        // A record of before means what it meant.
        (WhenLate::Reject, 4, 11),
    ] {
        let mut machine = waiting(Some((10, when_late)), version);
        let reason = Reason::BeyondBudget { least: Rate(2), budget: Rate(1), bound: None };
        let _ = machine.apply_decision(&Decision::Hold { job: JOB, reason });
        machine.apply_tick(Tick { now: minute(300), resumed: false, delivered: 0 }, version);
        let _ = machine.apply_decision(&Decision::Resume { job: JOB });
        assert_eq!(late_in(&machine), Some(expected), "{when_late:?} {version}");
        assert_eq!(*machine.index(), Index::rebuilt(&machine));
    }
}

#[test]
fn a_queue_that_is_held_and_not_bought_for_waits_for_both_brakes() {
    for (first, last) in [(Brake::Buying, Brake::Admission), (Brake::Admission, Brake::Buying)] {
        let mut machine = waiting(Some((10, WhenLate::Reject)), APPLY_VERSION);
        let _ = happens(&mut machine, 2, APPLY_VERSION, &set(&first, None));
        let _ = happens(&mut machine, 3, APPLY_VERSION, &set(&last, None));
        let _ = happens(&mut machine, 100, APPLY_VERSION, &release(&first));
        assert_eq!(late_in(&machine), Some(11), "{first:?}");
        let _ = happens(&mut machine, 200, APPLY_VERSION, &release(&last));
        assert_eq!(late_in(&machine), Some(210), "{last:?}");
    }
}

#[test]
fn a_policy_rejects_nobody_for_the_time_before_it() {
    use WhenLate::{BuyOnDemand, Reject, Wait};
    for (before, after, now, expected) in [
        (None, (10, Reject), 300, 310),
        (Some((10, Wait)), (10, Reject), 300, 310),
        (Some((600, Reject)), (10, Reject), 300, 310),
        // The whole of the shorter one, but no more than it had.
        (Some((600, Reject)), (400, Reject), 300, 601),
        (Some((600, Reject)), (10, Reject), 595, 601),
        (Some((10, Reject)), (600, Reject), 5, 601),
        // The same, and longer than that: it is as late as before.
        (Some((10, Reject)), (10, Reject), 5, 11),
        (Some((10, Reject)), (10, Reject), 300, 11),
        // Nothing is lost by being late.
        (None, (10, Wait), 300, 11),
        (Some((600, Reject)), (10, BuyOnDemand), 300, 11),
    ] {
        let mut machine = waiting(before, APPLY_VERSION);
        let _ = happens(&mut machine, now, APPLY_VERSION, &configured(Some(after)));
        assert_eq!(late_in(&machine), Some(expected), "{before:?} -> {after:?} in minute {now}");
        let mut machine = waiting(before, 4);
        let _ = happens(&mut machine, now, 4, &configured(Some(after)));
        assert_eq!(late_in(&machine), Some(1 + after.0), "{before:?} -> {after:?} in minute {now}, as it was");
    }
}

#[test]
fn a_replica_is_rejected_by_no_policy() {
    let service = Some(Service { min: 1, max: 2, target: 1, spread: None });
    let mut machine = StateMachine::default();
    let reject = configured(Some((10, WhenLate::Reject)));
    let _ = happens(&mut machine, 0, APPLY_VERSION, &reject);
    let spec = JobSpec { subject: "s".into(), queue: "team/q".into(), service, ..JobSpec::default() };
    let _ = happens(&mut machine, 1, APPLY_VERSION, &Event::JobSubmitted(Box::new(spec)));
    let _ = machine.apply_decision(&Decision::Replicate { service: JOB });
    let of_replica = |machine: &StateMachine| machine.jobs[JobId(1)].start_target.map(|t| (t.when_late, t.by));
    assert_eq!(of_replica(&machine), Some((WhenLate::Wait, minute(11))));
    let _ = happens(&mut machine, 300, APPLY_VERSION, &reject);
    assert_eq!(of_replica(&machine), Some((WhenLate::Wait, minute(11))));
}

/// A gang of two runs on the instance `i-1` since the second minute.
fn running(version: u32) -> StateMachine {
    let mut machine = waiting(None, version);
    let (pool, purchase, offering) = (PoolId(0), PurchaseId(0), OfferingId(0));
    let buy = Decision::Buy { purchase, pool, offering, count: 1, at_least: 1, terms: Terms::default() };
    let _ = machine.apply_decision(&buy);
    let node = *machine.nodes.keys().next().unwrap();
    let place = |gpu: u32| WorkerPlace { node, gpus: 1 << gpu, share: 1000, slice: None };
    let places = (0..2).map(place).collect();
    let _ = machine.apply_decision(&Decision::Book { job: JOB, pool, places });
    let instances = vec!["i-1".into()];
    let _ = machine.apply_event(&Event::LaunchOutcome { purchase, instances, error: None });
    let _ = machine.apply_event(&Event::NodeReady { instance: "i-1".into() });
    let _ = machine.apply_decision(&Decision::Start { job: JOB });
    let started = Event::RunStarted { job: JOB, attempt: Attempt(1) };
    assert_eq!(happens(&mut machine, 2, version, &started), EventOutcome::Applied);
    machine
}

fn notice(at: Timestamp) -> Event {
    Event::ReclaimNotice { instance: "i-1".into(), at }
}

fn goes_at(machine: &StateMachine) -> Option<Timestamp> {
    machine.nodes.values().next().and_then(|node| node.reclaim_at)
}

#[test]
fn of_two_reclaim_notices_the_earlier_time_counts() {
    use EventOutcome::{Applied, Ignored};
    for (second, version, outcome, expected) in [
        (minute(12), APPLY_VERSION, Applied, minute(12)),
        (minute(50), APPLY_VERSION, Ignored, minute(40)),
        (minute(40), APPLY_VERSION, Ignored, minute(40)),
        // The same, put on the engine's clock a moment later.
        (Timestamp(minute(40).0 - 999), APPLY_VERSION, Ignored, minute(40)),
        (minute(12), 4, Ignored, minute(40)),
    ] {
        let mut machine = running(version);
        assert_eq!(happens(&mut machine, 3, version, &notice(minute(40))), Applied);
        assert_eq!(happens(&mut machine, 10, version, &notice(second)), outcome, "{second:?} {version}");
        assert_eq!(goes_at(&machine), Some(expected), "{second:?} {version}");
        assert_eq!(machine.counters().reclaims, 1);
    }
}

#[test]
fn what_is_being_stopped_has_until_the_earlier_notice() {
    let cause = StopCause::Reclaimed;
    let stop = |by: u64| Decision::Stop { job: JOB, cause, checkpoint: true, deadline: minute(by) };
    let shrink = |by: u64| Decision::Shrink { job: JOB, cause, leave: vec![1], deadline: minute(by) };
    let deadline = |machine: &StateMachine| match (row(machine).phase, &row(machine).leaving) {
        (Phase::Stopping { deadline, .. }, _) => Some(deadline),
        (_, leaving) => leaving.as_ref().map(|leaving| leaving.deadline),
    };
    for (decision, sooner) in [(stop(33), true), (shrink(33), true), (stop(11), false), (shrink(11), false)] {
        let mut machine = running(APPLY_VERSION);
        let _ = happens(&mut machine, 3, APPLY_VERSION, &notice(minute(40)));
        let _ = machine.apply_decision(&decision);
        let before = row(&machine).clone();
        let _ = happens(&mut machine, 10, APPLY_VERSION, &notice(minute(12)));
        let after = row(&machine);
        if sooner {
            assert_eq!(deadline(&machine), Some(minute(12)), "{decision:?}");
            assert_eq!(after.effect.map(|effect| effect.next_try), Some(minute(10)), "asked again at once");
            assert_eq!(after.effect.map(|effect| effect.id), before.effect.map(|effect| effect.id));
        } else {
            assert_eq!(*after, before, "{decision:?}");
        }
        if let (Decision::Stop { .. }, true) = (&decision, sooner) {
            assert_eq!(after.must_end_by, minute(12) + machine.lifecycle().hang_after);
        }
        assert_eq!(*machine.index(), Index::rebuilt(&machine));
    }
}

#[test]
fn what_has_hung_gives_no_place_back() {
    let mut machine = running(APPLY_VERSION);
    let cause = StopCause::Preempted { by: JOB };
    let _ = machine.apply_decision(&Decision::Stop { job: JOB, cause, checkpoint: false, deadline: minute(11) });
    assert_eq!(machine.index().ending_for.get(&JOB), Some(&1));
    let _ = machine.apply_decision(&Decision::GiveUp { job: JOB });
    assert_eq!(machine.index().ending_for.get(&JOB), None);
    assert_eq!(*machine.index(), Index::rebuilt(&machine));
}

#[test]
fn an_earlier_notice_stops_nothing_on_another_node() {
    let mut machine = running(APPLY_VERSION);
    let other = Event::OrphanSeen { instance: "i-2".into(), offering: OfferingId(0) };
    let _ = happens(&mut machine, 3, APPLY_VERSION, &other);
    let stop = Decision::Stop { job: JOB, cause: StopCause::Cancelled, checkpoint: false, deadline: minute(33) };
    let _ = machine.apply_decision(&stop);
    let before = row(&machine).clone();
    for at in [40, 12] {
        let event = Event::ReclaimNotice { instance: "i-2".into(), at: minute(at) };
        assert_eq!(happens(&mut machine, 10, APPLY_VERSION, &event), EventOutcome::Applied);
    }
    assert_eq!(*row(&machine), before);
    let other = machine.nodes.values().find(|node| node.instance.as_deref() == Some("i-2"));
    assert_eq!(other.and_then(|node| node.reclaim_at), Some(minute(12)));
}

#[test]
fn in_a_row_of_refusals_the_smallest_size_is_remembered_until_the_row_doubles() {
    let sizes = [5, 4, 5, 5, 3, 5, 5, 5];
    for (version, expected) in [(APPLY_VERSION, [5, 4, 4, 5, 3, 3, 3, 5]), (4, sizes)] {
        let mut machine = waiting(None, version);
        let mut remembered = Vec::new();
        for (nth, count) in (0..).zip(sizes) {
            let (pool, purchase, offering) = (PoolId(0), PurchaseId(nth), OfferingId(0));
            let buy = Decision::Buy { purchase, pool, offering, count, at_least: count, terms: Terms::default() };
            let _ = machine.apply_decision(&buy);
            let refused = Event::LaunchOutcome { purchase, instances: Vec::new(), error: Some(LaunchError::Capacity) };
            // Later than the longest pause.
            assert_eq!(happens(&mut machine, 20 * (nth + 1), version, &refused), EventOutcome::Applied);
            remembered.push(machine.offerings()[0].refused_size);
        }
        assert_eq!(remembered, expected, "{version}");
    }
}

#[test]
fn statuses_have_the_labels_of_their_job_and_a_refusal_those_of_its_submission() {
    let mut machine = waiting(None, APPLY_VERSION);
    for (digest, team) in [(1, "vision"), (2, "search")] {
        let labels = [(String::from("team"), String::from(team))].into();
        let (subject, queue) = (String::from("b"), String::from("team/q"));
        let spec = JobSpec { subject, queue, digest, labels, ..JobSpec::default() };
        let _ = happens(&mut machine, 2, APPLY_VERSION, &Event::JobSubmitted(Box::new(spec)));
    }
    let _ = machine.apply_decision(&Decision::Resume { job: JobId(1) });
    let of = machine.undelivered().map(|status| (status.kind, status.labels.get("team").map(String::as_str)));
    let expected =
        [(StatusKind::Queued, None), (StatusKind::Rejected, Some("search")), (StatusKind::Queued, Some("vision"))];
    assert_eq!(of.collect::<Vec<_>>(), expected);
}
