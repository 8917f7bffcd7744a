//! Start targets: until when a job may wait, and what is expected to be free for it by then.
//!
//! ```text
//! arrival                 target - boot                          target
//!    |--- the burst is noise ---|--- a run is expected to end -------|    wait for that, and say so
//!                               |--- none is: bought for ------------|    late: wait on, on-demand, or rejected
//! ```
//!
//! Jobs of one class whose length is known make a lane: one node is to do them one after the other. It is bought so early that the last of
//! them starts by its target; what is too much for one lane begins another.
//!
//! ```text
//! bought            ready                                        target
//!    |----- boot -----|-- first --|-- second --|-- third --|-- last
//! ```
//!
//! Never: promises one release of places to two jobs at a time.

use super::launch::LaunchOption;
use super::placement::{self, NodeScope};
use super::{allowances, demand, launch, quota, settings, slack, supply};
use crate::effect::WorkerPlace;
use crate::engine::Engine;
use crate::ids::{ClassId, JobId, NodeId, OfferingId, PoolId};
use crate::reason::Reason;
use crate::state::State;
use crate::state::index::OrderKey;
use crate::state::jobs::{Phase, Wait};
use crate::state::nodes::{Node, NodePhase};
use crate::state::places::Hold;
use crate::units::{MilliGpu, Span, Timestamp};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// From the end of one run until the next one works, where the image is there.
const A_START: Span = Span::secs(5);

/// Runs looked at for the promises to one class: those that end first.
const MOST_RUNS: usize = 512;

/// Why a job is not bought for yet. `None`: it is, as soon as may be.
pub(crate) fn reason_to_wait(state: &State, job: JobId) -> Option<Reason> {
    match state.jobs[job].start_target?.wait {
        Wait::New => Some(Reason::BurstIsNoise { until: state.now }),
        Wait::Noise { until } => Some(Reason::BurstIsNoise { until }),
        Wait::Promised { until, .. } => Some(Reason::WaitingByDesign { until }),
        Wait::Over => None,
    }
}

/// Whether a booked job waits for nodes that come after its start target, and may be given others. Once the target is over nobody is in time, and
/// nothing is taken for it. Under a brake it could not be admitted again: it keeps the nodes that it has.
pub(crate) fn comes_late(state: &State, job: JobId) -> bool {
    let row = &state.jobs[job];
    let by = row.start_target.map(|target| target.by);
    by.is_some_and(|by| by > state.now && supply::eta(state, job) > by) && state.queue_brake(row.queue).is_none()
}

/// Whether a job that is booked comes late: it may be given what others hold.
pub(crate) fn any_comes_late(state: &State) -> bool {
    state.index.booked_by_target.iter().any(|job| comes_late(state, *job))
}

/// Whether a job waits for nothing but what is expected to come: a wait that brings it no place is a loss.
pub(crate) fn waits_for_promises_alone(state: &State, job: JobId) -> bool {
    let queue = state.jobs[job].queue;
    state.queues[queue].rule.as_ref().is_some_and(|rule| rule.wait_per_gpu_hour.is_some())
}

/// When a new job is asked again: when the node of its lane has to be bought, or its own.
pub(crate) fn asked_from(state: &State, job: JobId) -> Timestamp {
    let alone = buys_from(state, job);
    behind_the_last(state, job, alone).unwrap_or(alone)
}

/// When buying for a job alone begins: so early that what is tried for want of stock is answered before it has to be bought otherwise, and that
/// the answer to a launch makes no node late of which no boots were seen yet.
pub(crate) fn buys_from(state: &State, job: JobId) -> Timestamp {
    let narrow = |id: OfferingId| state.offerings[id.index()].window < supply::MOST_AT_ONCE;
    let early = |(id, _): &(OfferingId, u32)| narrow(*id) || !demand::boot_is_seen(state, *id);
    before_target(state, job, |option| {
        let answer = if option.counts.iter().any(early) { state.lifecycle().launch_retry } else { Span::ZERO };
        option.boot(state) + answer
    })
}

/// When it has to have been bought for: its target less a boot of the cheapest that could be had for it.
pub(crate) fn bought_by(state: &State, job: JobId) -> Timestamp {
    before_target(state, job, |option| option.boot(state))
}

/// Until when a job may wait for its start: its target, or until its deadline lets it wait no longer, if that is sooner. `None`: it has no target.
fn waits_until(state: &State, job: JobId) -> Option<Timestamp> {
    let row = &state.jobs[job];
    let by = row.start_target?.by;
    let line = slack::to_meet(state, job)
        .map(|(deadline, expected)| slack::MoveTime::of(state, job).line_at(deadline, expected - row.progress));
    Some(line.map_or(by, |line| line.min(by)))
}

fn before_target(state: &State, job: JobId, takes: impl Fn(&LaunchOption) -> Span) -> Timestamp {
    let row = &state.jobs[job];
    let Some(by) = waits_until(state, job) else { return Timestamp(0) };
    // Where nothing is ever bought there is nothing to wait for.
    longest(state, row.class, takes).map_or(Timestamp(0), |longest| by - longest)
}

fn boot(state: &State, class: ClassId) -> Option<Span> {
    longest(state, class, |option| option.boot(state))
}

/// The longest over the pools of a class: a job may have to go to any of them.
fn longest(state: &State, class: ClassId, takes: impl Fn(&LaunchOption) -> Span) -> Option<Span> {
    settings::pools(state, class).filter_map(|pool| cheapest(state, class, pool)).map(|option| takes(&option)).max()
}

/// When the last lane of its class has to be bought, if a job is done after the others of it. `None`: it has to begin a lane, for the node
/// would have had to be bought before now.
fn behind_the_last(state: &State, job: JobId, alone: Timestamp) -> Option<Timestamp> {
    let row = &state.jobs[job];
    let key = OrderKey::of(row, state.index.ageing);
    let deferred = state.index.deferred.get(&row.class)?;
    let new = |key: &OrderKey| state.jobs[key.job].start_target.is_some_and(|target| target.wait == Wait::New);
    // One that goes before others makes all of them later.
    let next = deferred.range(key..).nth(1);
    let last = deferred.range(..key).next_back().filter(|_| next.is_none_or(new))?.job;
    let opens = opens_at(state, last)?;
    let ahead = buys_from(state, last).since(opens) + takes(state, last)?;
    Some(opens.min(alone - ahead)).filter(|opens| *opens > state.now)
}

/// When the lane of a job is bought. `None`: it has been.
fn opens_at(state: &State, job: JobId) -> Option<Timestamp> {
    match state.jobs[job].start_target?.wait {
        Wait::Noise { until } => Some(until).filter(|until| *until <= buys_from(state, job)),
        _ => None,
    }
}

/// How long a job keeps the one after it waiting: as long as it lasts in nine cases of ten, an eighth more for what is not known, and the start
/// of the next.
fn takes(state: &State, job: JobId) -> Option<Span> {
    let lasts = demand::remaining_p90(state, job).filter(|span| *span > Span::ZERO)?;
    Some(lasts + Span(lasts.0 / 8) + A_START)
}

/// The jobs that are to be done before one in its lane, as far as nobody has bought for them.
pub(crate) fn lane(state: &State, job: JobId) -> Vec<JobId> {
    let row = &state.jobs[job];
    let alone = |job: JobId| opens_at(state, job).is_none_or(|opens| opens == buys_from(state, job));
    let Some(deferred) = state.index.deferred.get(&row.class).filter(|_| !alone(job)) else { return Vec::new() };
    let before = deferred.range(..OrderKey::of(row, state.index.ageing)).rev().map(|key| key.job);
    let mut found = Vec::new();
    for before in before.take_while(|before| opens_at(state, *before).is_some()) {
        found.push(before);
        if alone(before) {
            break;
        }
    }
    found
}

/// A lane that is bought now: when it has done the work that was given to it.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Lane {
    free: Option<Timestamp>,
}

impl Lane {
    /// Until when a job waits for it. `None`: it would start too late there, and begins another lane.
    pub(crate) fn takes_on(&mut self, state: &State, job: JobId) -> Option<Timestamp> {
        let row = &state.jobs[job];
        let by = waits_until(state, job)?;
        let starts = self.free.filter(|free| *free <= by);
        let from = starts.or_else(|| Some(state.now + boot(state, row.class)?));
        self.free = from.and_then(|from| Some(from + takes(state, job)?));
        // It is not asked while there is time to buy for it alone.
        starts.map(|starts| starts.max(buys_from(state, job) + Span(1)))
    }
}

fn cheapest(state: &State, class: ClassId, pool: PoolId) -> Option<LaunchOption> {
    let shape = &state.classes[class].shape;
    let bought = supply::bought(state, class, pool);
    let options = launch::options(state, class, pool, &bought, &[]);
    launch::first_of(state, shape, options)
}

/// Whether the time that a job was to wait is over.
pub(crate) fn over(state: &State, job: JobId) -> bool {
    let wait = state.jobs[job].start_target.map(|p| p.wait);
    match wait {
        Some(Wait::Noise { until } | Wait::Promised { until, .. }) => until <= state.now,
        _ => false,
    }
}

/// Whether what was promised to a job will not come: the run is over and its place went to another, or the node takes no work.
pub(crate) fn broken(state: &State, job: JobId) -> bool {
    let Some(Wait::Promised { node, run, until }) = state.jobs[job].start_target.map(|p| p.wait) else {
        return false;
    };
    // Or one that was to be done before it has its turn.
    let in_time = |run: &JobId| demand::remaining_p90(state, *run).is_some_and(|left| state.now + left <= until);
    let good = |n: &Node| {
        n.open()
            && n.phase == NodePhase::Ready
            && n.reserved.iter().all(|(owner, _)| *owner == job)
            && (n.holds.contains(&run) || n.holds.iter().any(in_time))
    };
    !state.nodes.get(&node).is_some_and(good)
}

/// A release of places that is expected in time, and promised to one job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Promise {
    /// When the run is expected to end.
    pub until: Timestamp,
    pub node: NodeId,
    pub run: JobId,
}

/// What is expected to be free for each of these jobs by its target: when, where, and after which run.
pub(crate) fn promises(engine: &mut Engine, class: ClassId, jobs: &[OrderKey]) -> BTreeMap<JobId, Promise> {
    let mut found = BTreeMap::new();
    let pools: Vec<PoolId> = settings::pools(&engine.state, class).collect();
    for pool in pools {
        let asked = quota::share(&engine.state, class, pool);
        let first = jobs.iter().map(|key| key.job).find(|job| !found.contains_key(job));
        let available = first.map_or(MilliGpu(0), |first| allowances::available(&engine.state, first, pool));
        let by_quota = usize::try_from(available.0.checked_div(asked.0).unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
        let left = jobs.iter().map(|key| key.job).filter(|job| !found.contains_key(job)).take(by_quota);
        let left: Vec<JobId> = left.collect();
        let latest = left.iter().filter_map(|job| by(&engine.state, *job)).max();
        let ends = latest.map_or(BTreeSet::new(), |latest| ends(&engine.state, class, pool, latest));
        if !ends.is_empty() {
            let mark = engine.state.checkpoint();
            in_turn(engine, class, pool, &left, ends, &mut found);
            engine.state.rollback(mark);
        }
    }
    found
}

/// In a try: runs end one after the other, and each job takes the first places that it fits, until it has ended too.
fn in_turn(
    engine: &mut Engine,
    class: ClassId,
    pool: PoolId,
    jobs: &[JobId],
    mut ends: BTreeSet<(Timestamp, JobId)>,
    found: &mut BTreeMap<JobId, Promise>,
) {
    let asked = quota::share(&engine.state, class, pool);
    let mut ended: BTreeMap<NodeId, (Timestamp, JobId)> = BTreeMap::new();
    let mut held: BTreeMap<JobId, Vec<WorkerPlace>> = BTreeMap::new();
    for &job in jobs {
        let Some(by) = by(&engine.state, job) else { continue };
        let places = loop {
            if let Some(places) = placement::find(engine, job, pool, NodeScope::Ready, asked) {
                break places;
            }
            let Some((end, run)) = ends.first().copied().filter(|(end, _)| *end <= by) else { break Vec::new() };
            ends.pop_first();
            let of = engine.state.jobs[run].class;
            let (nodes, hold) = match held.remove(&run) {
                Some(places) => (places, Hold::Booked),
                None => (engine.state.jobs[run].places.clone(), Hold::Running),
            };
            engine.state.release_places(run, of, &nodes, hold);
            ended.extend(nodes.iter().map(|place| (place.node, (end, run))));
        };
        // The one that ends last is what it waits for.
        let last = places.iter().filter_map(|p| Some((*ended.get(&p.node)?, p.node))).max();
        engine.state.hold_places(job, class, &places, Hold::Booked);
        if let Some(((end, run), node)) = last.filter(|((end, _), _)| *end <= by) {
            let run = found.get(&run).map_or(run, |before| before.run);
            found.insert(job, Promise { until: end, node, run });
            let next = takes(&engine.state, job).map(|takes| end + takes);
            ends.extend(next.map(|next| (next, job)));
            held.insert(job, places);
        }
    }
}

fn by(state: &State, job: JobId) -> Option<Timestamp> {
    waits_until(state, job).filter(|by| *by > state.now)
}

/// Runs in a pool that are expected to have ended by then, with all to whom their nodes are promised, in the order of their ends.
fn ends(state: &State, class: ClassId, pool: PoolId, latest: Timestamp) -> BTreeSet<(Timestamp, JobId)> {
    let fits = supply::fits(state, class, pool);
    // When the last to whom a node is promised has done its work. `None`: it is not known.
    let promised = |node: NodeId| {
        let fits = state.nodes.get(&node).is_some_and(|n| fits.binary_search(&n.offering).is_ok());
        let pledged = state.index.pledges.range((node, JobId(0))..=(node, JobId(u64::MAX))).map(|p| p.1);
        let done = |job: JobId| match state.jobs[job].start_target?.wait {
            Wait::Promised { until, .. } => Some(until + takes(state, job)?),
            _ => None,
        };
        let done = pledged.map(done).try_fold(state.now, |last, done| Some(last.max(done?)));
        done.filter(|_| fits)
    };
    let end = |run: &JobId| {
        let row = &state.jobs[*run];
        let useful = matches!(row.phase, Phase::Starting | Phase::Running) && row.broken.is_none();
        let ends = state.now + demand::remaining_p90(state, *run).filter(|left| useful && *left > Span::ZERO)?;
        let last = row.places.iter().map(|p| promised(p.node)).try_fold(ends, |last, end| Some(last.max(end?)))?;
        (last <= latest).then_some((last, *run))
    };
    let runs = state.nodes.values().filter(|n| n.pool == pool && n.phase == NodePhase::Ready && n.open());
    let mut ends: BTreeSet<(Timestamp, JobId)> = runs.flat_map(|n| &n.holds).filter_map(end).collect();
    if let Some(rest) = ends.iter().nth(MOST_RUNS).copied() {
        ends.split_off(&rest);
    }
    ends
}
