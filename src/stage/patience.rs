//! patience: start targets. A job whose queue has one may wait: it takes what is free whenever it can, and is bought for in time to
//! start by its target.
//!
//! ```text
//! arrival                 target - boot                          target
//!    |--- the burst is noise ---|--- a run is expected to end -------|    wait for that, and say so
//!                               |--- none is: bought for ------------|    late: wait on, on-demand, or rejected
//! ```
//!
//! What is promised is decided and journaled: the release of one run's places goes to one job, and the job is asked again when that
//! time has come or the promise is broken. So nothing here depends on who else happened to ask.
//!
//! Never: buys. Never a second wait for the sake of the first: a job that is due stays due.

use super::{cart, place, provision};
use crate::decision::Decision;
use crate::demand;
use crate::engine::Engine;
use crate::ids::{ClassId, JobId, NodeId, PoolId};
use crate::plan::PlanReport;
use crate::policy::WhenLate;
use crate::reason::Reason;
use crate::state::State;
use crate::state::index::OrderKey;
use crate::state::jobs::{Phase, Wait};
use crate::state::nodes::NodePhase;
use crate::units::{Millis, Span};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Runs looked at for the promises to one class: those that end first.
const MOST_RUNS: usize = 512;

/// Before anybody is served: new jobs that may wait learn until when.
pub(crate) fn greet(engine: &mut Engine) {
    let new: Vec<JobId> = engine.state.ix.unheard.iter().copied().collect();
    for job in new {
        let until = buys_from(&engine.state, job);
        if until > engine.state.now {
            engine.decide(Decision::Defer { job, until, run: None });
        }
    }
}

/// After all that is free has been given out: who waits no longer, and for what the others do.
pub(crate) fn look(engine: &mut Engine, report: &mut PlanReport) {
    late(engine, report);
    for (_, class, jobs) in asked(&engine.state) {
        let promises = promises(engine, class, &jobs);
        for key in jobs {
            match promises.get(&key.job) {
                Some(&(until, node, run)) => {
                    engine.decide(Decision::Defer { job: key.job, until, run: Some((node, run)) });
                }
                None => engine.decide(Decision::Due { job: key.job }),
            }
        }
    }
}

/// Why a job is not bought for yet. `None`: it is, as soon as may be.
pub(crate) fn waits(state: &State, job: JobId) -> Option<Reason> {
    match state.jobs[job.ix()].patience?.wait {
        Wait::New => Some(Reason::BurstIsNoise { until: state.now }),
        Wait::Noise { until } => Some(Reason::BurstIsNoise { until }),
        Wait::Promised { until, .. } => Some(Reason::WaitingByDesign { until }),
        Wait::Over => None,
    }
}

/// When buying for a job has to begin: its target less a boot of the cheapest that could be had for it.
fn buys_from(state: &State, job: JobId) -> Millis {
    let row = &state.jobs[job.ix()];
    let Some(patience) = row.patience else { return Millis(0) };
    let pools = state.classes[row.class.ix()].fits.iter().map(|f| f.0);
    let boots = pools.filter_map(|pool| boot_of_cheapest(state, row.class, pool));
    // The longest over its pools: it may have to go to any of them. Where nothing is ever bought there is nothing to wait for.
    boots.max().map_or(Millis(0), |boot| patience.by - boot)
}

fn boot_of_cheapest(state: &State, class: ClassId, pool: PoolId) -> Option<Span> {
    let shape = &state.classes[class.ix()].shape;
    let bought = provision::bought(state, class, pool);
    let carts = cart::carts(state, class, pool, &bought, &[]);
    let cheapest = carts.into_iter().min_by_key(|c| c.rank(state, shape))?;
    cheapest.lines.iter().map(|(id, _)| demand::boot_p90(state, *id)).max()
}

/// What becomes of jobs that have not started by their target.
fn late(engine: &mut Engine, report: &mut PlanReport) {
    let now = engine.state.now;
    for job in due_rows(&engine.state) {
        let row = &engine.state.jobs[job.ix()];
        let Some(patience) = row.patience.filter(|p| p.by <= now) else { continue };
        report.settled += 1;
        match patience.when_late {
            WhenLate::Wait => {}
            WhenLate::BuyOnDemand => engine.decide(Decision::Late { job }),
            WhenLate::Reject => {
                let within = patience.by.since(row.arrival);
                engine.decide(Decision::Reject { job, reason: Reason::StartTooLate { within } });
            }
        }
    }
}

/// Waiting jobs whose timers have run out.
fn due_rows(state: &State) -> Vec<JobId> {
    let due = state.ix.timers.iter().take_while(|t| t.0 <= state.now);
    let job = |of| match of {
        crate::decision::EffectOf::Job(job) => Some(job),
        _ => None,
    };
    let jobs = due.filter_map(|t| job(t.1));
    jobs.filter(|id| state.jobs[id.ix()].phase == Phase::Queued).collect()
}

/// Jobs that wait no longer unless something is promised to them, by class in the order of tiers and targets.
fn asked(state: &State) -> Vec<((i64, Millis), ClassId, Vec<OrderKey>)> {
    let broken = state.ix.pledges.iter().map(|p| p.1).filter(|job| broken(state, *job));
    let over = due_rows(state).into_iter().filter(|job| over(state, *job));
    let all: BTreeSet<JobId> = state.ix.unheard.iter().copied().chain(broken).chain(over).collect();
    let mut classes: BTreeMap<ClassId, Vec<OrderKey>> = BTreeMap::new();
    for job in all {
        let row = &state.jobs[job.ix()];
        classes.entry(row.class).or_default().push(OrderKey::of(row, state.ix.ageing));
    }
    let order = |(class, mut jobs): (ClassId, Vec<OrderKey>)| {
        jobs.sort_unstable();
        let tier = state.classes[class.ix()].shape.tier;
        let priority = state.policy.as_deref().and_then(|p| p.tiers.get(tier.ix())).map_or(0, |t| t.priority);
        let first = jobs.first().map_or(Millis(0), |key| key.arrival);
        ((-i64::from(priority), first), class, jobs)
    };
    let mut all: Vec<_> = classes.into_iter().map(order).collect();
    all.sort_unstable();
    all
}

/// Whether the time that a job was to wait is over.
fn over(state: &State, job: JobId) -> bool {
    let wait = state.jobs[job.ix()].patience.map(|p| p.wait);
    match wait {
        Some(Wait::Noise { until } | Wait::Promised { until, .. }) => until <= state.now,
        _ => false,
    }
}

/// Whether what was promised to a job will not come: the run is over and its place went to another, or the node takes no work.
fn broken(state: &State, job: JobId) -> bool {
    let Some(Wait::Promised { node, run, .. }) = state.jobs[job.ix()].patience.map(|p| p.wait) else {
        return false;
    };
    let kept = |(owner, _): (JobId, Millis)| owner == job;
    let good = |n: &crate::state::nodes::Node| {
        n.open() && n.phase == NodePhase::Ready && n.reserved.is_none_or(kept) && n.holds.contains(&run)
    };
    !state.nodes.get(&node).is_some_and(good)
}

/// What is expected to be free for each of these jobs by its target: when, where, and after which run.
fn promises(engine: &mut Engine, class: ClassId, jobs: &[OrderKey]) -> BTreeMap<JobId, (Millis, NodeId, JobId)> {
    let mut found = BTreeMap::new();
    let pools: Vec<PoolId> = engine.state.classes[class.ix()].fits.iter().map(|f| f.0).collect();
    for pool in pools {
        let asked = super::admit::share(&engine.state, class, pool);
        let available = super::admit::available(&engine.state, class, pool);
        let by_quota = usize::try_from(available.0.checked_div(asked.0).unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
        let left = jobs.iter().map(|key| key.job).filter(|job| !found.contains_key(job)).take(by_quota);
        let left: Vec<JobId> = left.collect();
        let latest = left.iter().filter_map(|job| by(&engine.state, *job)).max();
        let ends = latest.map_or(Vec::new(), |latest| ends(&engine.state, class, pool, latest));
        if !ends.is_empty() {
            let mark = engine.state.checkpoint();
            in_turn(engine, class, pool, &left, &ends, &mut found);
            engine.state.rollback(mark);
        }
    }
    found
}

/// In a try: runs end one after the other, and each job takes the first places that it fits.
fn in_turn(
    engine: &mut Engine,
    class: ClassId,
    pool: PoolId,
    jobs: &[JobId],
    ends: &[(Millis, JobId)],
    found: &mut BTreeMap<JobId, (Millis, NodeId, JobId)>,
) {
    let asked = super::admit::share(&engine.state, class, pool);
    let mut ended: BTreeMap<NodeId, (Millis, JobId)> = BTreeMap::new();
    let mut ends = ends.iter().peekable();
    for &job in jobs {
        let Some(by) = by(&engine.state, job) else { continue };
        let places = loop {
            if let Some(places) = place::find(engine, job, pool, place::Reach::Ready, asked) {
                break places;
            }
            let Some((end, run)) = ends.next_if(|(end, _)| *end <= by) else { break Vec::new() };
            let (of, nodes) = (engine.state.jobs[run.ix()].class, engine.state.jobs[run.ix()].places.clone());
            engine.state.let_go(*run, of, &nodes, true);
            ended.extend(nodes.iter().map(|place| (place.node, (*end, *run))));
        };
        // The one that ends last is what it waits for.
        let last = places.iter().filter_map(|p| Some((*ended.get(&p.node)?, p.node))).max();
        engine.state.hold(job, class, &places, false);
        if let Some(((end, run), node)) = last.filter(|((end, _), _)| *end <= by) {
            found.insert(job, (end, node, run));
        }
    }
}

fn by(state: &State, job: JobId) -> Option<Millis> {
    state.jobs[job.ix()].patience.map(|p| p.by).filter(|by| *by > state.now)
}

/// Runs in a pool that are expected to end by then and whose nodes are promised to nobody, in the order of their ends.
fn ends(state: &State, class: ClassId, pool: PoolId, latest: Millis) -> Vec<(Millis, JobId)> {
    let fits = provision::fits(state, class, pool);
    let free = |node: NodeId| {
        let fits = state.nodes.get(&node).is_some_and(|n| fits.binary_search(&n.offering).is_ok());
        fits && state.ix.pledges.range((node, JobId(0))..=(node, JobId(u64::MAX))).next().is_none()
    };
    let end = |run: &JobId| {
        let row = &state.jobs[run.ix()];
        let useful = row.pool == Some(pool) && row.broken.is_none() && row.places.iter().all(|p| free(p.node));
        let left = if useful { demand::remaining_p90(state, *run) } else { None };
        left.map(|left| (state.now + left, *run)).filter(|(end, _)| *end <= latest && *end > state.now)
    };
    let mut ends: Vec<(Millis, JobId)> = state.ix.running.values().flatten().filter_map(end).collect();
    ends.sort_unstable();
    ends.truncate(MOST_RUNS);
    ends
}
