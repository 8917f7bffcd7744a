//! start_target: a job whose queue has a start target may wait. It takes what is free whenever it can, and is bought for in time to
//! start by its target.
//!
//! ```text
//! defer        before jobs are served: a new job that may wait learns until when
//! reevaluate   after all that is free has been given out: who waits no longer, and for which release of places the others wait
//! ```
//!
//! What is promised is decided and journaled: the places of one run are promised to one job, and the job is tried again when that
//! time has come or the promise is broken. So nothing here depends on the order in which jobs are tried.
//!
//! Never: buys. Never lets a job wait again that is due.

use crate::decision::{Decision, EffectOf};
use crate::engine::Engine;
use crate::ids::{ClassId, JobId};
use crate::plan::PlanReport;
use crate::policy::WhenLate;
use crate::reason::Reason;
use crate::rules::{batch, settings, start_targets};
use crate::state::State;
use crate::state::index::OrderKey;
use crate::state::jobs::Phase;
use crate::units::{Span, Timestamp};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Before anybody is served: new jobs that may wait learn until when.
pub(crate) fn defer(engine: &mut Engine) {
    let key = |job: &JobId| OrderKey::of(&engine.state.jobs[*job], engine.state.index.ageing);
    let mut new: Vec<OrderKey> = engine.state.index.newly_deferred.iter().map(key).collect();
    new.sort_unstable();
    for OrderKey { job, .. } in new {
        let until = start_targets::asked_from(&engine.state, job);
        if until > engine.state.now && !start_targets::waits_for_promises_alone(&engine.state, job) {
            engine.decide(Decision::Defer { job, until, run: None });
        }
    }
}

/// After all that is free has been given out: who waits no longer, and for what the others do. Returns whether any job is over: floors are kept
/// for jobs that are known.
pub(crate) fn reevaluate(engine: &mut Engine, report: &mut PlanReport) -> bool {
    let open = engine.state.open_jobs();
    late(engine, report);
    let rejected = engine.state.open_jobs() != open;
    for (_, class, jobs) in asked(&engine.state) {
        let promises = start_targets::promises(engine, class, &jobs);
        let mut lane = start_targets::Lane::default();
        for OrderKey { job, .. } in jobs {
            let promise = promises.get(&job).map(|promise| (promise.until, Some((promise.node, promise.run))));
            let alone = start_targets::waits_for_promises_alone(&engine.state, job);
            let in_lane = |lane: &mut start_targets::Lane| Some((lane.takes_on(&engine.state, job)?, None));
            let waits = promise.or_else(|| if alone { None } else { in_lane(&mut lane) });
            engine.decide(match waits {
                Some((until, run)) => Decision::Defer { job, until, run },
                None => Decision::Due { job },
            });
        }
    }
    rejected
}

/// What becomes of jobs that have not started by their target.
fn late(engine: &mut Engine, report: &mut PlanReport) {
    // It may start on what has become free while nobody watched.
    if engine.state.is_unseen() {
        return;
    }
    let now = engine.state.now;
    for job in due_rows(&engine.state) {
        let row = &engine.state.jobs[job];
        let Some(start_target) = row.start_target.filter(|p| p.by <= now) else { continue };
        report.settled += 1;
        match start_target.when_late {
            WhenLate::Wait => {}
            WhenLate::BuyOnDemand => engine.decide(Decision::Late { job }),
            // Once something may be bought for it again it has the whole of its target.
            WhenLate::Reject if engine.state.is_unbought(row.queue) => {}
            // Its batch lets it wait, or runs are being stopped for it: as one that is booked it is served.
            WhenLate::Reject if batch::refusal(&engine.state, job).is_some() || row.reserved_until.is_some() => {}
            WhenLate::Reject => {
                // Less than from its arrival, where a brake held it or a policy came since.
                let whole = engine.state.start_target(row.queue, row.arrival, &engine.state.specs[job]);
                let whole = whole.map_or(Span(u64::MAX), |whole| whole.by.since(row.arrival));
                let within = start_target.by.since(row.arrival).min(whole);
                engine.decide(Decision::Reject { job, reason: Reason::StartTooLate { within } });
            }
        }
    }
}

/// Waiting jobs whose timers have run out.
fn due_rows(state: &State) -> Vec<JobId> {
    let due = state.index.timers.iter().take_while(|t| t.0 <= state.now);
    let job = |of| match of {
        EffectOf::Job(job) => Some(job),
        _ => None,
    };
    let jobs = due.filter_map(|t| job(t.1));
    jobs.filter(|id| state.jobs[*id].phase == Phase::Queued).collect()
}

/// Jobs that wait no longer unless something is promised to them, by class in the order of tiers and targets.
fn asked(state: &State) -> Vec<((i64, Timestamp), ClassId, Vec<OrderKey>)> {
    let broken = state.index.pledges.iter().map(|p| p.1).filter(|job| start_targets::broken(state, *job));
    let over = due_rows(state).into_iter().filter(|job| start_targets::over(state, *job));
    let with_lane = |job: JobId| start_targets::lane(state, job).into_iter().chain([job]);
    let over = over.flat_map(with_lane);
    let all: BTreeSet<JobId> = state.index.newly_deferred.iter().copied().chain(broken).chain(over).collect();
    let mut classes: BTreeMap<ClassId, Vec<OrderKey>> = BTreeMap::new();
    for job in all {
        let row = &state.jobs[job];
        classes.entry(row.class).or_default().push(OrderKey::of(row, state.index.ageing));
    }
    let order = |(class, mut jobs): (ClassId, Vec<OrderKey>)| {
        jobs.sort_unstable();
        let tier = state.classes[class].shape.tier;
        let priority = settings::priority(state, tier);
        let first = jobs.first().map_or(Timestamp(0), |key| key.arrival);
        ((-i64::from(priority), first), class, jobs)
    };
    let mut all: Vec<_> = classes.into_iter().map(order).collect();
    all.sort_unstable();
    all
}

#[cfg(test)]
mod tests {
    use crate::catalog::{CapacityType, Offering};
    use crate::engine::Engine;
    use crate::event::{Event, Tick};
    use crate::ids::{JobId, PoolId};
    use crate::job::JobSpec;
    use crate::policy::{Ceiling, Policy, Pool, QueueRule, QuotaNode, StartTarget, Tier, WhenLate};
    use crate::reason::Reason;
    use crate::state::brakes::Brake;
    use crate::state::jobs::Phase;
    use crate::units::{Mib, MilliCpu, Rate, Span, Timestamp};
    use alloc::boxed::Box;
    use alloc::string::String;
    use alloc::vec;
    use alloc::vec::Vec;

    const TARGET: Span = Span::mins(10);

    /// One node of one GPU may be bought, and late jobs of `strict` are rejected.
    fn policy() -> Policy {
        let offering = Offering {
            instance_type: "small".into(),
            zone: "a".into(),
            capacity: CapacityType::OnDemand,
            gpus: 1,
            gpu_mem: Mib(40_960),
            models: Vec::new(),
            cpu: MilliCpu(8_000),
            mem: Mib(65_536),
            price: Rate(1),
            max_price: Rate(1),
            on_demand: Rate(1),
            boot: Span::mins(1),
            nvlink: 0,
            numa: 0,
        };
        let plain = QueueRule { pools: vec![PoolId(0)], ..QueueRule::default() };
        let start = Some(StartTarget { within: TARGET, when_late: WhenLate::Reject });
        let strict = QueueRule { start, ..plain.clone() };
        Policy {
            limits: Ceiling { nodes: Some(1), ..Ceiling::default() },
            tiers: vec![Tier::default()],
            quotas: vec![QuotaNode::default()],
            queues: [("plain".into(), plain), ("strict".into(), strict)].into(),
            pools: vec![Pool { name: "main".into(), offerings: vec![0], ..Pool::default() }],
            offerings: vec![offering],
            ..Policy::default()
        }
    }

    fn submit(subject: &str, queue: &str) -> Event {
        let spec = JobSpec { subject: subject.into(), queue: queue.into(), ..JobSpec::default() };
        Event::JobSubmitted(Box::new(spec))
    }

    fn pass(engine: &mut Engine, now: Timestamp, events: Vec<Event>) {
        engine.open(Tick { now, resumed: false, delivered: 0 });
        for event in events {
            let _ = engine.handle_event(event);
        }
        let _ = engine.plan();
        let _ = engine.close().saved();
    }

    fn waits(engine: &Engine, job: JobId) -> bool {
        engine.state().job(job).is_some_and(|(row, _)| row.phase == Phase::Queued)
    }

    #[test]
    fn the_end_of_a_hold_rejects_nobody_and_names_the_target() {
        rejected_a_target_after(Brake::Queue("strict".into()));
    }

    #[test]
    fn nobody_is_rejected_while_nothing_may_be_bought() {
        rejected_a_target_after(Brake::Buying);
        rejected_a_target_after(Brake::Pool("main".into()));
    }

    fn rejected_a_target_after(brake: Brake) {
        let mut engine = Engine::new();
        // The first of them takes the one node that there may be.
        let events = vec![Event::Configured(Box::new(policy())), submit("first", "plain"), submit("late", "strict")];
        pass(&mut engine, Timestamp(1), events);
        let late = JobId(1);
        assert!(waits(&engine, late), "{:?}", engine.state().job(late));
        let set = Event::BrakeSet { brake: brake.clone(), by: "ops".into(), why: String::new(), until: None };
        pass(&mut engine, Timestamp(2), vec![set]);
        pass(&mut engine, Timestamp(0) + Span::mins(200), Vec::new());
        assert!(waits(&engine, late), "{:?}", engine.state().job(late));
        let released = Timestamp(0) + Span::mins(300);
        pass(&mut engine, released, vec![Event::BrakeReleased { brake, by: "ops".into() }]);
        assert!(waits(&engine, late), "{:?}", engine.state().job(late));
        pass(&mut engine, Timestamp((released + TARGET).0 - 1), Vec::new());
        assert!(waits(&engine, late), "{:?}", engine.state().job(late));
        pass(&mut engine, released + TARGET, Vec::new());
        let reason = engine.state().job(late).and_then(|(row, _)| row.reason);
        assert_eq!(reason, Some(Reason::StartTooLate { within: TARGET }), "{:?}", engine.state().job(late));
    }
}
