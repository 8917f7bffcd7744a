//! Start targets: until when a job may wait, and what is expected to be free for it by then.
//!
//! ```text
//! arrival                 target - boot                          target
//!    |--- the burst is noise ---|--- a run is expected to end -------|    wait for that, and say so
//!                               |--- none is: bought for ------------|    late: wait on, on-demand, or rejected
//! ```
//!
//! Never: promises one release of places to two jobs.

use super::placement::{self, NodeScope};
use super::{demand, launch, quota, supply};
use crate::engine::Engine;
use crate::ids::{ClassId, JobId, NodeId, PoolId};
use crate::reason::Reason;
use crate::state::State;
use crate::state::index::OrderKey;
use crate::state::jobs::Wait;
use crate::state::nodes::{Node, NodePhase};
use crate::state::places::Hold;
use crate::units::{Span, Timestamp};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

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

/// When buying for a job has to begin: its target less a boot of the cheapest that could be had for it.
pub(crate) fn buys_from(state: &State, job: JobId) -> Timestamp {
    let row = &state.jobs[job];
    let Some(start_target) = row.start_target else { return Timestamp(0) };
    let pools = state.classes[row.class].fits.iter().map(|f| f.0);
    let boots = pools.filter_map(|pool| boot_of_cheapest(state, row.class, pool));
    // The longest over its pools: it may have to go to any of them. Where nothing is ever bought there is nothing to wait for.
    boots.max().map_or(Timestamp(0), |boot| start_target.by - boot)
}

fn boot_of_cheapest(state: &State, class: ClassId, pool: PoolId) -> Option<Span> {
    let shape = &state.classes[class].shape;
    let bought = supply::bought(state, class, pool);
    let options = launch::options(state, class, pool, &bought, &[]);
    let cheapest = options.into_iter().min_by_key(|c| c.rank(state, shape))?;
    cheapest.counts.iter().map(|(id, _)| demand::boot_p90(state, *id)).max()
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
    let Some(Wait::Promised { node, run, .. }) = state.jobs[job].start_target.map(|p| p.wait) else {
        return false;
    };
    let good = |n: &Node| {
        n.open()
            && n.phase == NodePhase::Ready
            && n.reserved.iter().all(|(owner, _)| *owner == job)
            && n.holds.contains(&run)
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
    let pools: Vec<PoolId> = engine.state.classes[class].fits.iter().map(|f| f.0).collect();
    for pool in pools {
        let asked = quota::share(&engine.state, class, pool);
        let available = quota::available(&engine.state, class, pool);
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
    ends: &[(Timestamp, JobId)],
    found: &mut BTreeMap<JobId, Promise>,
) {
    let asked = quota::share(&engine.state, class, pool);
    let mut ended: BTreeMap<NodeId, (Timestamp, JobId)> = BTreeMap::new();
    let mut ends = ends.iter().peekable();
    for &job in jobs {
        let Some(by) = by(&engine.state, job) else { continue };
        let places = loop {
            if let Some(places) = placement::find(engine, job, pool, NodeScope::Ready, asked) {
                break places;
            }
            let Some((end, run)) = ends.next_if(|(end, _)| *end <= by) else { break Vec::new() };
            let (of, nodes) = (engine.state.jobs[*run].class, engine.state.jobs[*run].places.clone());
            engine.state.release_places(*run, of, &nodes, Hold::Running);
            ended.extend(nodes.iter().map(|place| (place.node, (*end, *run))));
        };
        // The one that ends last is what it waits for.
        let last = places.iter().filter_map(|p| Some((*ended.get(&p.node)?, p.node))).max();
        engine.state.hold_places(job, class, &places, Hold::Booked);
        if let Some(((end, run), node)) = last.filter(|((end, _), _)| *end <= by) {
            found.insert(job, Promise { until: end, node, run });
        }
    }
}

fn by(state: &State, job: JobId) -> Option<Timestamp> {
    state.jobs[job].start_target.map(|p| p.by).filter(|by| *by > state.now)
}

/// Runs in a pool that are expected to end by then and whose nodes are promised to nobody, in the order of their ends.
fn ends(state: &State, class: ClassId, pool: PoolId, latest: Timestamp) -> Vec<(Timestamp, JobId)> {
    let fits = supply::fits(state, class, pool);
    let free = |node: NodeId| {
        let fits = state.nodes.get(&node).is_some_and(|n| fits.binary_search(&n.offering).is_ok());
        fits && state.index.pledges.range((node, JobId(0))..=(node, JobId(u64::MAX))).next().is_none()
    };
    let end = |run: &JobId| {
        let row = &state.jobs[*run];
        let useful = row.pool == Some(pool) && row.broken.is_none() && row.places.iter().all(|p| free(p.node));
        let left = if useful { demand::remaining_p90(state, *run) } else { None };
        left.map(|left| (state.now + left, *run)).filter(|(end, _)| *end <= latest && *end > state.now)
    };
    let mut ends: Vec<(Timestamp, JobId)> = state.index.running.values().flatten().filter_map(end).collect();
    ends.sort_unstable();
    ends.truncate(MOST_RUNS);
    ends
}
