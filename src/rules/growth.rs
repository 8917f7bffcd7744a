//! Elastic gangs that run with fewer workers than they may have: what they would have room for, and whether that is worth a restart.
//!
//! ```text
//! more workers   the work that is left takes as much less time
//! costs          the restart and the grace to save in, of the whole gang; a boot of each node that is bought
//! worth it       it saves at least twice the time of a restart, the gang has run for ten times as long since it started, and what is left
//!                costs a tenth more at most
//! ```
//!
//! Tries are made on the undo log and rolled back. Never: stops anything. Never for work that cannot save, or that has lost workers a moment
//! ago; never while anybody waits in its pool; never beyond what its queue owns.

use super::launch::LaunchOption;
use super::placement::{self, NodeScope};
use super::{budget, demand, floors, launch, quota, reservations, settings, supply};
use crate::effect::WorkerPlace;
use crate::engine::Engine;
use crate::ids::{ClassId, JobId, NodeId, OfferingId, PoolId};
use crate::job::{Gang, Level};
use crate::state::State;
use crate::state::jobs::Phase;
use crate::state::places::{Hold, nodes_of, share_of};
use crate::units::{MilliGpu, Span, Timestamp};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// A restart takes no less than this, whatever a job says of it: workers are started anew.
const LEAST_RESTART: Span = Span::mins(1);
/// It saves so many times what a restart takes.
const SAVES: u64 = 2;
/// So many times of what a restart takes lie between a start and the next: at most a tenth of the time goes into them.
const APART: u64 = 10;

/// From when on each gang that could have more workers may be stopped for that.
pub(crate) fn candidates(state: &State) -> Vec<(Timestamp, JobId)> {
    let elastic = |class: &ClassId| {
        let shape = &state.classes[*class].shape;
        let sizes = matches!(&shape.gang, Gang::Workers { min, max, .. } if min < max);
        sizes && shape.service.is_none() && shape.batch.is_none()
    };
    let classes = state.index.holding.iter().filter(|(class, _)| elastic(class));
    classes.flat_map(|(_, jobs)| jobs).filter_map(|job| Some((may_grow_from(state, *job)?, *job))).collect()
}

fn may_grow_from(state: &State, job: JobId) -> Option<Timestamp> {
    let row = &state.jobs[job];
    let Gang::Workers { max, .. } = &state.classes[row.class].shape.gang else { return None };
    let whole = row.phase == Phase::Running && row.broken.is_none() && row.leaving.is_none() && !row.cancel_asked;
    let good = whole && row.places.len() < *max as usize && row.workers_done.is_empty() && row.backfill_for.is_none();
    let since = row.running_since.filter(|_| good)?;
    Some(since + restart(state, job)?.times(APART))
}

/// How long a gang does not work when it is stopped and started again. `None`: it would lose what it has done.
fn restart(state: &State, job: JobId) -> Option<Span> {
    let spec = &state.specs[job];
    let grace = spec.checkpoint?.grace;
    Some((spec.restart + grace).max(LEAST_RESTART))
}

/// When a gang may be stopped for more workers that could not before, or there may be stock for them.
pub(crate) fn next(state: &State) -> Option<Timestamp> {
    let candidates = candidates(state);
    let now = candidates.iter().any(|(from, _)| *from <= state.now);
    let stock = state.offerings.iter().map(|row| row.blocked_until).filter(|_| now);
    candidates.iter().map(|(from, _)| *from).chain(stock).filter(|at| *at > state.now).min()
}

/// Where a gang would go on with more workers, on nodes that are ready.
pub(crate) fn places(engine: &mut Engine, job: JobId) -> Option<Vec<WorkerPlace>> {
    let (class, pool) = (engine.state.jobs[job].class, engine.state.jobs[job].pool?);
    let found = without(engine, job, |engine, most| {
        let found = placement::find(engine, job, pool, NodeScope::Ready, most);
        found.filter(|places| is_own(&engine.state, class, pool, share_of(places)))
    })?;
    let state = &engine.state;
    let row = &state.jobs[job];
    let new = |id: &NodeId| row.places.iter().all(|place| place.node != *id);
    let new: Vec<NodeId> = nodes_of(&found).into_iter().filter(new).collect();
    let own = |id: &NodeId| state.index.reserved.contains(&(job, *id));
    let taken = new.iter().filter(|id| !own(id) && state.index.idle.contains(id)).count() as u32;
    let floor = settings::pool(state, pool).map_or(0, |p| p.kept(state.now));
    let spare = taken == 0 || floor == 0 || floors::filled(state, pool) >= floor.saturating_add(taken);
    let good = spare && state.classes[class].impossible.is_none() && !anybody_waits(state, pool);
    (good && saves(state, job, found.len() as u32)).then_some(found)
}

/// Nodes to buy for a gang, like those that it has.
pub(crate) fn purchase(engine: &mut Engine, job: JobId) -> Option<(OfferingId, u32)> {
    let state = &engine.state;
    let row = &state.jobs[job];
    let (class, pool) = (row.class, row.pool?);
    let shape = &state.classes[class].shape;
    let Gang::Workers { max, .. } = &shape.gang else { return None };
    let near = shape.within.is_some_and(|within| within.required && within.level < Level::Zone);
    let cut = settings::pool(state, pool).is_none_or(|rules| !rules.layouts.is_empty());
    let offerings: BTreeSet<OfferingId> =
        row.places.iter().filter_map(|place| Some(state.nodes.get(&place.node)?.offering)).collect();
    let offering = offerings.first().copied().filter(|_| offerings.len() == 1 && !near && !cut)?;
    let braked = supply::no_purchase(state, pool).is_some();
    if braked || !supply::bought(state, class, pool).contains(&offering) || anybody_waits(state, pool) {
        return None;
    }
    let offer = &state.offerings[offering.index()].offer;
    let per_node = launch::units_a_node(state, shape, pool, offering, offer.gpus).max(1);
    let (has, most) = (row.places.len() as u32, *max);
    let one = quota::share_of_one(state, class, pool).0;
    let allowed = without(engine, job, |engine, share| {
        let allowed = share.0.checked_div(one).map_or(most, |n| u32::try_from(n).unwrap_or(u32::MAX)).min(most);
        let own = |workers: &u32| is_own(&engine.state, class, pool, MilliGpu(one.saturating_mul(u64::from(*workers))));
        (has + 1..=allowed).rev().find(own)
    })?;
    let state = &engine.state;
    let (all, own) = reservations::held(state, pool, Some(job));
    // The most that is worth it: with one node more each is dearer.
    (1..=allowed.saturating_sub(has).div_ceil(per_node)).rev().find_map(|nodes| {
        let workers = has.saturating_add(nodes * per_node).min(allowed);
        let option = LaunchOption::of(offering, nodes);
        let good = supply::may_be_had(state, &option)
            && launch::bound_hit(state, pool, &option, all, own).is_none()
            && budget::pays(state, class, option.bill(state))
            && saves(state, job, workers)
            && is_as_cheap(state, job, workers, nodes, option.boot(state));
        good.then_some((offering, nodes))
    })
}

/// Whether a gang of so many GPUs is all within what its queue owns. What it would borrow could be taken back, and it would grow again.
fn is_own(state: &State, class: ClassId, pool: PoolId, asked: MilliGpu) -> bool {
    let owns = || !quota::borrows(state, class, pool) && quota::is_own(state, class, pool, asked);
    !state.has_quotas(pool) || owns()
}

/// Whether anybody waits who may be in a pool. What a gang gives back until it starts again, or takes then, could be theirs: then each would take
/// from the other, again and again.
pub(crate) fn anybody_waits_beside(state: &State, job: JobId) -> bool {
    state.jobs[job].pool.is_some_and(|pool| anybody_waits(state, pool))
}

fn anybody_waits(state: &State, pool: PoolId) -> bool {
    state.index.queued.keys().any(|class| settings::pools(state, *class).any(|other| other == pool))
}

/// In a try: a run has given back all that it holds. What quota and budgets leave then.
fn without<T>(engine: &mut Engine, job: JobId, find: impl Fn(&mut Engine, MilliGpu) -> Option<T>) -> Option<T> {
    let row = &engine.state.jobs[job];
    let (class, queue, pool, places) = (row.class, row.queue, row.pool?, row.places.clone());
    let (share, rate) = (row.share, row.rate);
    let mark = engine.state.checkpoint();
    engine.state.release_places(job, class, &places, Hold::Running);
    engine.state.give_quota_back(queue, pool, share);
    engine.state.discharge(job, rate, Span::ZERO);
    let most = budget::most(&engine.state, class, pool);
    let found = find(engine, most);
    engine.state.rollback(mark);
    found
}

/// How long its work goes on with the workers that it has.
fn left(state: &State, job: JobId) -> Span {
    demand::remaining_p90(state, job).unwrap_or(demand::UNKNOWN)
}

/// Whether so many workers save enough time.
fn saves(state: &State, job: JobId, workers: u32) -> bool {
    let has = state.jobs[job].places.len() as u64;
    let more = u64::from(workers).saturating_sub(has);
    let saved = left(state, job).0.saturating_mul(more) / u64::from(workers.max(1));
    restart(state, job).is_some_and(|restart| saved >= restart.times(SAVES).0 && more > 0)
}

/// Whether what is left costs hardly more with so many workers, of which some go on nodes that are bought: node time is compared, for the nodes are
/// alike.
fn is_as_cheap(state: &State, job: JobId, workers: u32, bought: u32, boot: Span) -> bool {
    let row = &state.jobs[job];
    let nodes = nodes_of(&row.places).len() as u128;
    let (has, left) = (row.places.len() as u128, u128::from(left(state, job).0));
    let stops = restart(state, job).unwrap_or_default();
    let with = nodes + u128::from(bought);
    let now = nodes.saturating_mul(left);
    let then = with.saturating_mul(left * has / u128::from(workers.max(1)) + u128::from(stops.0));
    let then = then + u128::from(bought) * u128::from(boot.0);
    then <= now + now / u128::from(launch::AS_CHEAP)
}
