//! The last empty large node: small work that can go elsewhere leaves it whole.
//!
//! ```text
//! a one-GPU job, and the only place that is ready is the last empty 8-GPU node
//!   -> a place in flight on another node, or a smaller node that can be bought, if it may wait that long
//!   -> else it goes there: a GPU that idles while a job waits is worse than a node in two parts
//! ```
//!
//! It may wait: up to its queue's start target, or without one for as long as gangs of eight GPUs come in. Never: a job that waits
//! for nothing; what cannot be served without this rule cannot be served with it, and the other way round.

use super::{Ask, NodeScope, search};
use crate::effect::WorkerPlace;
use crate::ids::{JobId, OfferingId, PoolId};
use crate::job::Gang;
use crate::rules::{demand, supply};
use crate::state::State;
use crate::state::nodes::{LARGE, Node};
use crate::units::{MilliGpu, Timestamp};
use alloc::vec::Vec;

/// Whether an ask takes a small part of a large node.
pub(super) fn large(gpus: u16, asks: u16) -> bool {
    gpus >= LARGE && asks > 0 && asks <= gpus / 2
}

/// Whether a pool has but one ready large node with nothing on its GPUs.
pub(super) fn last(state: &State, pool: PoolId) -> bool {
    let of_pool = (pool, OfferingId(0))..=(pool, OfferingId(u32::MAX));
    let empty = state.index.free.range(of_pool).flat_map(|((_, id), free)| {
        let gpus = state.offerings[id.index()].offer.gpus;
        let full = (0, gpus, crate::ids::NodeId(0))..(0, gpus + 1, crate::ids::NodeId(0));
        free.whole.range(full).filter(move |_| gpus >= LARGE)
    });
    empty.take(2).count() == 1
}

/// The node that a gang of one would split, if it is the last of its kind.
fn split<'a>(state: &'a State, job: JobId, places: &[WorkerPlace]) -> Option<&'a Node> {
    let class = state.jobs[job].class;
    let [place] = places else { return None };
    if !matches!(&state.classes[class].shape.gang, Gang::Workers { max: 1, .. } | Gang::Spanning { gpus: 1, .. }) {
        return None;
    }
    let node = state.nodes.get(&place.node)?;
    let gpus = node.slots.len() as u16;
    let asks = place.gpus.count_ones() as u16;
    (large(gpus, asks) && node.whole_free() == gpus && last(state, node.pool)).then_some(node)
}

/// Whether a job may wait for another place: by its start target, or because there is something to keep the node whole for.
fn may_wait(state: &State, job: JobId, ready_at: Option<Timestamp>) -> bool {
    let row = &state.jobs[job];
    let target = state.queues[row.queue].rule.as_ref().and_then(|rule| rule.start);
    match (target, ready_at) {
        (Some(target), Some(at)) => at <= row.arrival + target.within,
        (Some(_), None) => true,
        (None, _) => state.mix.has_big(),
    }
}

/// Where a job that would split the last empty large node may go instead.
pub(crate) struct Detour {
    job: JobId,
    pool: PoolId,
    most: MilliGpu,
    /// GPUs of the node that it would split.
    gpus: u16,
}

impl Detour {
    /// `None`: the job splits nothing, or has to start at once.
    pub(crate) fn of(
        state: &State,
        job: JobId,
        pool: PoolId,
        most: MilliGpu,
        places: &[WorkerPlace],
    ) -> Option<Detour> {
        let gpus = split(state, job, places)?.slots.len() as u16;
        may_wait(state, job, None).then_some(Detour { job, pool, most, gpus })
    }

    /// Another place for it, ready or in flight, as long as it may wait for that.
    pub(crate) fn places(&self, state: &State) -> Option<Vec<WorkerPlace>> {
        let found = elsewhere(state, self.job, self.pool, NodeScope::InFlight, self.most)?;
        let eta = found.iter().filter_map(|p| state.nodes.get(&p.node)).map(|n| supply::ready_at(state, n)).max()?;
        may_wait(state, self.job, Some(eta)).then_some(found)
    }

    /// Whether a node of an offering is smaller and comes in time.
    pub(crate) fn is_served_by(&self, state: &State, id: OfferingId) -> bool {
        let offer = &state.offerings[id.index()].offer;
        offer.gpus < self.gpus
            && offer.gpus < LARGE
            && may_wait(state, self.job, Some(state.now + demand::boot_p90(state, id)))
    }
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
    elsewhere(state, job, pool, NodeScope::Ready, most)
}

/// Places that leave the last empty large node whole.
fn elsewhere(state: &State, job: JobId, pool: PoolId, scope: NodeScope, most: MilliGpu) -> Option<Vec<WorkerPlace>> {
    let class = state.jobs[job].class;
    let ask = Ask { spares: true, ..Ask::of(state, job, class, pool, scope, most) };
    search(state, class, state.classes[class].shape.within, ask, most)
}

/// Whether a gang of one would take a small part of a large node with nothing on it.
pub(crate) fn would_split(state: &State, job: JobId, node: &Node) -> bool {
    let asks = match &state.classes[state.jobs[job].class].shape.gang {
        Gang::Workers { max: 1, each, .. } => each.gpus,
        Gang::Spanning { gpus: 1, .. } => 1,
        _ => return false,
    };
    large(node.slots.len() as u16, asks)
}

/// Where a booked job that waits for a node goes instead, of what is ready. `None`: it stays with its node rather than split the last empty large one.
/// That such a node is there keeps it from no other place.
pub(crate) fn or_stay(
    state: &State,
    job: JobId,
    pool: PoolId,
    most: MilliGpu,
    places: Vec<WorkerPlace>,
) -> Option<Vec<WorkerPlace>> {
    if !stays(state, job, &places) {
        return Some(places);
    }
    elsewhere(state, job, pool, NodeScope::Ready, most)
}

/// Whether a booked job that waits for a node stays with it rather than split the last empty large one.
fn stays(state: &State, job: JobId, places: &[WorkerPlace]) -> bool {
    let Some(node) = split(state, job, places) else { return false };
    let row = &state.jobs[job];
    let awaited = row.places.first().and_then(|p| state.nodes.get(&p.node));
    // Its own node would be left as empty and as large: then nothing is kept whole by waiting.
    let same = awaited.is_some_and(|own| own.slots.len() >= node.slots.len() && own.holds.len() == 1);
    !same && may_wait(state, job, None)
}
