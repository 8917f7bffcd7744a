//! A place beside another of the same batch: on a GPU that both share, so that it costs no further one.
//!
//! Never: without the consent of both, and never beyond the pool's time slices or the GPU's memory.

use super::room::takes;
use super::{Ask, NodeScope, all_ready};
use crate::effect::WorkerPlace;
use crate::ids::{ClassId, JobId, PoolId};
use crate::job::Gang;
use crate::rules::{allowances, budget, launch, quota, supply};
use crate::state::State;
use crate::state::places::slot_mem;

/// A place for a single worker on a GPU that another of its batch is on already, if both consent to sharing.
pub(crate) fn beside(state: &State, job: JobId, class: ClassId) -> Option<(PoolId, WorkerPlace)> {
    let shape = &state.classes[class].shape;
    let Gang::Workers { min: 1, max: 1, each } = &shape.gang else {
        return None;
    };
    let others = state.index.holding.get(&class)?.iter().flat_map(|other| &state.jobs[*other].places);
    let free = |place: &WorkerPlace| {
        let node = state.nodes.get(&place.node).filter(|node| node.open())?;
        let (pool, offering) = (node.pool, node.offering);
        let most = quota::available(state, class, pool);
        let ask = Ask::of(state, job, class, pool, NodeScope::InFlight, most);
        let share = ask.share.filter(|share| *share < 1000 && place.share < 1000 && place.slice.is_none())?;
        let slot = node.slots.get(place.gpus.trailing_zeros() as usize)?;
        let mem = slot_mem(each.gpu_mem, share, state.offerings[offering.index()].offer.gpu_mem);
        let slices = launch::sharing_slices(state, pool);
        let room = slot.free >= share && slot.mem_free >= mem && u32::from(slot.workers) < slices;
        let may = quota::refusal(state, class, pool, quota::share(state, class, pool)).is_none()
            && allowances::refusal(state, job, pool).is_none()
            && supply::fits(state, class, pool).binary_search(&offering).is_ok()
            && budget::affordable(state, job, class, pool, offering);
        (room && may && takes(state, node, &ask)).then(|| (pool, WorkerPlace { share, ..place.clone() }))
    };
    others
        .filter_map(free)
        .min_by_key(|(_, place)| (!all_ready(state, core::slice::from_ref(place)), place.node, place.gpus))
}
