//! The last empty large node: small work that can go elsewhere leaves it whole.
//!
//! ```text
//! a one-GPU job, and the only place that is ready is the last empty 8-GPU node
//!   -> a place in flight on another node, or a smaller node that can be bought, if it may wait that long
//!   -> else it goes there: a GPU that idles while a job waits is worse than a node in two parts
//! ```
//!
//! It may wait: up to its queue's start target, or without one for as long as gangs of eight GPUs come in. Never: a job that waits
//! for nothing; whatever is told no without this rule is told no with it, and the other way round.

use super::{Ask, Reach, search};
use crate::effect::WorkerPlace;
use crate::engine::Engine;
use crate::ids::{JobId, OfferingId, PoolId};
use crate::job::Gang;
use crate::plan::PlanReport;
use crate::stage::provision;
use crate::state::State;
use crate::state::nodes::{LARGE, Node};
use crate::units::{MilliGpu, Millis};
use alloc::vec::Vec;

/// Whether an ask takes a small part of a large node.
pub(super) fn large(gpus: u16, asks: u16) -> bool {
    gpus >= LARGE && asks > 0 && asks <= gpus / 2
}

/// Whether a pool has but one ready large node with nothing on its GPUs.
pub(super) fn last(state: &State, pool: PoolId) -> bool {
    let of_pool = (pool, OfferingId(0))..=(pool, OfferingId(u32::MAX));
    let empty = state.ix.free.range(of_pool).flat_map(|((_, id), free)| {
        let gpus = state.offerings[id.ix()].offer.gpus;
        let full = (0, gpus, crate::ids::NodeId(0))..(0, gpus + 1, crate::ids::NodeId(0));
        free.whole.range(full).filter(move |_| gpus >= LARGE)
    });
    empty.take(2).count() == 1
}

/// The node that a gang of one would split, if it is the last of its kind.
fn split<'a>(state: &'a State, job: JobId, places: &[WorkerPlace]) -> Option<&'a Node> {
    let class = state.jobs[job.ix()].class;
    let [place] = places else { return None };
    if !matches!(&state.classes[class.ix()].shape.gang, Gang::Workers { max: 1, .. } | Gang::Spanning { gpus: 1, .. }) {
        return None;
    }
    let node = state.nodes.get(&place.node)?;
    let gpus = node.slots.len() as u16;
    let asks = place.gpus.count_ones() as u16;
    (large(gpus, asks) && node.whole_free() == gpus && last(state, node.pool)).then_some(node)
}

/// Whether a job may wait for another place: by its start target, or because there is something to keep the node whole for.
fn may_wait(state: &State, job: JobId, ready_at: Option<Millis>) -> bool {
    let row = &state.jobs[job.ix()];
    let target = state.queues[row.queue.ix()].rule.as_ref().and_then(|rule| rule.start);
    match (target, ready_at) {
        (Some(target), Some(at)) => at <= row.arrival + target.within,
        (Some(_), None) => true,
        (None, _) => state.mix.has_big(),
    }
}

/// Another place for a job that would split the last empty large node, in flight or bought. `None`: it takes what it has.
pub(crate) fn elsewhere(
    engine: &mut Engine,
    job: JobId,
    pool: PoolId,
    most: MilliGpu,
    places: &[WorkerPlace],
    report: &mut PlanReport,
) -> Option<Vec<WorkerPlace>> {
    let state = &engine.state;
    let gpus = split(state, job, places)?.slots.len() as u16;
    if !may_wait(state, job, None) {
        return None;
    }
    let class = state.jobs[job.ix()].class;
    let other = |state: &State| {
        let ask = Ask { spares: true, ..Ask::of(state, job, class, pool, Reach::InFlight, most) };
        let found = search(state, class, state.classes[class.ix()].shape.within, ask, most)?;
        let eta = found.iter().filter_map(|p| state.nodes.get(&p.node)).map(|n| provision::ready_at(state, n)).max()?;
        may_wait(state, job, Some(eta)).then_some(found)
    };
    if let Some(found) = other(state) {
        return Some(found);
    }
    let smaller = |state: &State, id: &OfferingId| {
        let offer = &state.offerings[id.ix()].offer;
        offer.gpus < gpus && offer.gpus < LARGE && may_wait(state, job, Some(state.now + offer.boot))
    };
    provision::buy_of(engine, job, pool, &smaller, report).ok()?;
    other(&engine.state)
}

/// A place that is ready for a job that may wait by design: it does not split the last empty large node.
pub(crate) fn or_wait(
    state: &State,
    job: JobId,
    pool: PoolId,
    most: MilliGpu,
    places: Vec<WorkerPlace>,
) -> Option<Vec<WorkerPlace>> {
    if split(state, job, &places).is_none() {
        return Some(places);
    }
    let class = state.jobs[job.ix()].class;
    let ask = Ask { spares: true, ..Ask::of(state, job, class, pool, Reach::Ready, most) };
    search(state, class, state.classes[class.ix()].shape.within, ask, most)
}

/// Whether a gang of one would take a small part of a large node with nothing on it.
pub(crate) fn would_split(state: &State, job: JobId, node: &Node) -> bool {
    let asks = match &state.classes[state.jobs[job.ix()].class.ix()].shape.gang {
        Gang::Workers { max: 1, each, .. } => each.gpus,
        Gang::Spanning { gpus: 1, .. } => 1,
        _ => return false,
    };
    large(node.slots.len() as u16, asks)
}

/// Whether a booked job that waits for a node stays with it rather than split the last empty large one.
pub(crate) fn stays(state: &State, job: JobId, places: &[WorkerPlace]) -> bool {
    let Some(node) = split(state, job, places) else { return false };
    let row = &state.jobs[job.ix()];
    let awaited = row.places.first().and_then(|p| state.nodes.get(&p.node));
    // Its own node would be left as empty and as large: then nothing is kept whole by waiting.
    let same = awaited.is_some_and(|own| own.slots.len() >= node.slots.len() && own.holds.len() == 1);
    !same && may_wait(state, job, None)
}
