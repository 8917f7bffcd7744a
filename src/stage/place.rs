//! place: where a gang fits with the least waste. Best fit over GPUs (fractions, memory), CPU and memory of nodes that are there or
//! on their way; the gang goes whole or not at all.
//!
//! ```text
//! one worker:   the tightest fit, ready nodes first, cheaper first
//! a gang:       worker by worker on the undo log; all of one GPU model
//! spanning:     one node if one can hold it; else the emptiest nodes first, so that it spans the fewest
//! ```
//!
//! Never: puts work on a node that takes none, shares a GPU without consent of job and pool, or splits a gang over models.

use super::{ahead, cart, provision};
use crate::effect::WorkerPlace;
use crate::engine::Engine;
use crate::ids::{ClassId, JobId, ModelId, NodeId, OfferingId, PoolId};
use crate::job::{Gang, WorkerAsk};
use crate::state::index::Free;
use crate::state::nodes::Node;
use crate::state::places::{Needs, slot_mem};
use crate::state::{Shape, State};
use crate::units::{MilliGpu, Rate};
use alloc::vec::Vec;

/// Which nodes may be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reach {
    /// Ready ones: the gang starts at once.
    Ready,
    /// Ones in flight too.
    InFlight,
}

/// A free place and how good it is: the least is best.
type Candidate = (u8, u32, Rate, NodeId, u64);

/// Places for a gang of a job's class, or nothing. `most`: quota for elastic gangs.
pub(crate) fn find(
    engine: &mut Engine,
    job: JobId,
    pool: PoolId,
    reach: Reach,
    most: MilliGpu,
) -> Option<Vec<WorkerPlace>> {
    let class = engine.state.jobs[job.ix()].class;
    let row = &engine.state.classes[class.ix()];
    let present = present(&engine.state, class, pool);
    if present.is_empty() {
        return None;
    }
    let shape = row.shape.clone();
    match &shape.gang {
        Gang::Workers { min: 1, max: 1, each } => {
            let share = effective_share(&engine.state, &shape, pool, each);
            one(&engine.state, job, &present, pool, each, share, reach).map(|p| alloc::vec![p])
        }
        Gang::Workers { min, max, each } => {
            let share = effective_share(&engine.state, &shape, pool, each);
            let per_worker = u64::from(each.gpus) * u64::from(share);
            let allowed = most.0.checked_div(per_worker).map_or(*max, |n| u32::try_from(n).unwrap_or(u32::MAX));
            let count = (*min, (*max).min(allowed).max(*min));
            by_model(&engine.state, &present)
                .into_iter()
                .find_map(|group| gang(engine, job, class, &group, pool, (each, share), count, reach))
        }
        Gang::Spanning { gpus, per_gpu } => by_model(&engine.state, &present)
            .into_iter()
            .find_map(|group| spanning(engine, job, class, &group, pool, (*gpus, per_gpu), reach)),
    }
}

/// What free places, ready or in flight, carry of a gang that does not fit whole: workers or GPUs by model. Empty for single workers.
pub(crate) fn carried(engine: &mut Engine, job: JobId, class: ClassId, pool: PoolId) -> Vec<(Option<ModelId>, u32)> {
    let row = &engine.state.classes[class.ix()];
    let shape = row.shape.clone();
    if matches!(shape.gang, Gang::Workers { min: 1, .. } | Gang::Spanning { gpus: 1, .. }) {
        return Vec::new();
    }
    let present = present(&engine.state, class, pool);
    let mut carried = Vec::new();
    for group in by_model(&engine.state, &present) {
        let model = group.first().and_then(|id| engine.state.offerings[id.ix()].models.first().copied());
        let count = match &shape.gang {
            Gang::Workers { min, each, .. } => {
                let share = effective_share(&engine.state, &shape, pool, each);
                let places = gang(engine, job, class, &group, pool, (each, share), (0, *min), Reach::InFlight);
                places.map_or(0, |p| p.len() as u32)
            }
            Gang::Spanning { gpus, per_gpu } => {
                span(engine, job, class, &group, pool, (*gpus, per_gpu), Reach::InFlight).1
            }
        };
        carried.push((model, count));
    }
    carried
}

/// The share of each GPU that a worker takes: all of it unless job and pool both consent to sharing.
pub(crate) fn effective_share(state: &State, shape: &Shape, pool: PoolId, ask: &WorkerAsk) -> u16 {
    let sharing = state.policy.as_deref().and_then(|p| p.pools.get(pool.ix())).and_then(|p| p.sharing);
    match sharing {
        Some(rules) if shape.shares && ask.gpus == 1 && ask.share < 1000 => ask.share.max(rules.smallest).min(1000),
        _ => 1000,
    }
}

/// Offerings that a class fits and that have open nodes in a pool.
fn present(state: &State, class: ClassId, pool: PoolId) -> Vec<OfferingId> {
    let fits = provision::fits(state, class, pool);
    let of_pool = (pool, OfferingId(0))..=(pool, OfferingId(u32::MAX));
    let there = state.ix.free.range(of_pool).map(|((_, id), _)| *id);
    there.filter(|id| fits.binary_search(id).is_ok()).collect()
}

/// Offerings by their first model, cheapest model first, so that no gang mixes models.
fn by_model(state: &State, offerings: &[OfferingId]) -> Vec<Vec<OfferingId>> {
    let mut groups: Vec<(Option<ModelId>, Rate, Vec<OfferingId>)> = Vec::new();
    for id in offerings {
        let row = &state.offerings[id.ix()];
        let model = row.models.first().copied();
        match groups.iter_mut().find(|g| g.0 == model) {
            Some(group) => {
                group.1 = group.1.min(row.offer.price);
                group.2.push(*id);
            }
            None => groups.push((model, row.offer.price, alloc::vec![*id])),
        }
    }
    groups.sort_by_key(|g| (g.1, g.0));
    groups.into_iter().map(|g| g.2).collect()
}

/// The best place for one worker.
fn one(
    state: &State,
    job: JobId,
    offerings: &[OfferingId],
    pool: PoolId,
    ask: &WorkerAsk,
    share: u16,
    reach: Reach,
) -> Option<WorkerPlace> {
    let mut best: Option<Candidate> = None;
    for id in offerings {
        let Some(free) = state.ix.free.get(&(pool, *id)) else {
            continue;
        };
        let price = state.offerings[id.ix()].offer.price;
        let found = if share < 1000 { part_of_gpu(state, job, free, *id, ask, share, reach, price) } else { None };
        let found = found.or_else(|| whole_gpus(state, job, free, ask, reach, price));
        if let Some(candidate) = found
            && best.is_none_or(|b| candidate < b)
        {
            best = Some(candidate);
        }
    }
    best.map(|(_, _, _, node, gpus)| WorkerPlace { node, gpus, share, slice: None })
}

/// The fullest GPU in use that still has room for the share.
#[allow(clippy::too_many_arguments, reason = "the question has that many parts; a struct for one call would hide them")]
fn part_of_gpu(
    state: &State,
    job: JobId,
    free: &Free,
    offering: OfferingId,
    ask: &WorkerAsk,
    share: u16,
    reach: Reach,
    price: Rate,
) -> Option<Candidate> {
    let gpu_mem = state.offerings[offering.ix()].offer.gpu_mem;
    let need = slot_mem(ask.gpu_mem, share, gpu_mem);
    for rank in ranks(reach) {
        let from = (rank, share, NodeId(0), 0);
        let to = (rank + 1, 0, NodeId(0), 0);
        for (_, left, id, at) in free.part.range(from..to) {
            let Some(node) = state.nodes.get(id) else {
                continue;
            };
            let slices = cart::sharing_slices(state, node.pool);
            let slot = &node.slots[usize::from(*at)];
            if slot.mem_free >= need && u32::from(slot.workers) < slices && takes(state, node, job, ask) {
                // A part of a GPU in use beats a fresh GPU: 0 whole GPUs are left behind.
                return Some((rank, u32::from(left - share), price, *id, 1 << at));
            }
        }
    }
    None
}

/// The node with the fewest free GPUs that still has enough of them.
fn whole_gpus(state: &State, job: JobId, free: &Free, ask: &WorkerAsk, reach: Reach, price: Rate) -> Option<Candidate> {
    for rank in ranks(reach) {
        let range = free.whole.range((rank, ask.gpus, NodeId(0))..(rank + 1, 0, NodeId(0)));
        for (_, whole, id) in range {
            let Some(node) = state.nodes.get(id) else {
                continue;
            };
            if takes(state, node, job, ask) {
                let left = u32::from(whole - ask.gpus) * 1000 + 1000;
                return Some((rank, left, price, *id, first_free(node, ask.gpus)));
            }
        }
    }
    None
}

fn ranks(reach: Reach) -> core::ops::RangeInclusive<u8> {
    0..=u8::from(reach == Reach::InFlight)
}

/// Whether a node takes a worker, GPUs apart.
fn takes(state: &State, node: &Node, job: JobId, ask: &WorkerAsk) -> bool {
    let reserved = node.reserved.is_some_and(|(owner, _)| owner != job);
    !reserved && node.cpu_free >= ask.cpu && node.mem_free >= ask.mem && ahead::lets_in(state, node, job)
}

/// The first `n` GPUs with nothing on them, as a mask.
fn first_free(node: &Node, n: u16) -> u64 {
    let mut mask = 0;
    let mut left = n;
    for (at, slot) in node.slots.iter().enumerate() {
        if left == 0 {
            break;
        }
        if slot.workers == 0 {
            mask |= 1 << at;
            left -= 1;
        }
    }
    mask
}

/// A gang of equal workers, as many as fit up to `count.1`, at least `count.0`.
#[allow(clippy::too_many_arguments, reason = "the question has that many parts; a struct for one call would hide them")]
fn gang(
    engine: &mut Engine,
    job: JobId,
    class: ClassId,
    group: &[OfferingId],
    pool: PoolId,
    (each, share): (&WorkerAsk, u16),
    count: (u32, u32),
    reach: Reach,
) -> Option<Vec<WorkerPlace>> {
    let mark = engine.state.checkpoint();
    let mut places = Vec::new();
    while (places.len() as u32) < count.1 {
        let Some(place) = one(&engine.state, job, group, pool, each, share, reach) else {
            break;
        };
        engine.state.hold(job, class, core::slice::from_ref(&place), false);
        places.push(place);
    }
    engine.state.rollback(mark);
    (places.len() as u32 >= count.0).then_some(places)
}

/// Whole GPUs over the fewest nodes, all or none.
fn spanning(
    engine: &mut Engine,
    job: JobId,
    class: ClassId,
    group: &[OfferingId],
    pool: PoolId,
    ask: (u32, &WorkerAsk),
    reach: Reach,
) -> Option<Vec<WorkerPlace>> {
    let (places, found) = span(engine, job, class, group, pool, ask, reach);
    (found == ask.0).then_some(places)
}

/// Whole GPUs over the fewest nodes, as many as there are.
fn span(
    engine: &mut Engine,
    job: JobId,
    class: ClassId,
    group: &[OfferingId],
    pool: PoolId,
    (gpus, per_gpu): (u32, &WorkerAsk),
    reach: Reach,
) -> (Vec<WorkerPlace>, u32) {
    let mark = engine.state.checkpoint();
    let mut places = Vec::new();
    let mut left = gpus;
    while left > 0 {
        let place = tightest(&engine.state, job, class, group, pool, left, per_gpu, reach)
            .or_else(|| emptiest(&engine.state, job, class, group, pool, left, reach));
        let Some(place) = place else { break };
        left -= place.gpus.count_ones().min(left);
        engine.state.hold(job, class, core::slice::from_ref(&place), false);
        places.push(place);
    }
    engine.state.rollback(mark);
    (places, gpus - left)
}

/// One node for all that is left of a spanning gang.
#[allow(clippy::too_many_arguments, reason = "the question has that many parts; a struct for one call would hide them")]
fn tightest(
    state: &State,
    job: JobId,
    class: ClassId,
    group: &[OfferingId],
    pool: PoolId,
    gpus: u32,
    per_gpu: &WorkerAsk,
    reach: Reach,
) -> Option<WorkerPlace> {
    let gpus = u16::try_from(gpus).ok().filter(|g| *g <= 64)?;
    let mask = if gpus == 64 { u64::MAX } else { (1 << gpus) - 1 };
    let needs = Needs::of(
        &state.classes[class.ix()].shape.gang,
        &WorkerPlace { node: NodeId(0), gpus: mask, share: 1000, slice: None },
    );
    let ask = WorkerAsk { gpus, share: 1000, gpu_mem: per_gpu.gpu_mem, cpu: needs.cpu, mem: needs.mem };
    one(state, job, group, pool, &ask, 1000, reach)
}

/// The node with the most free GPUs, as many of them as its CPU and memory carry.
fn emptiest(
    state: &State,
    job: JobId,
    class: ClassId,
    group: &[OfferingId],
    pool: PoolId,
    gpus: u32,
    reach: Reach,
) -> Option<WorkerPlace> {
    let mut best: Option<(core::cmp::Reverse<u16>, u8, Rate, NodeId)> = None;
    for id in group {
        let Some(free) = state.ix.free.get(&(pool, *id)) else {
            continue;
        };
        let price = state.offerings[id.ix()].offer.price;
        for rank in ranks(reach) {
            let range = free.whole.range((rank, 1, NodeId(0))..(rank + 1, 0, NodeId(0)));
            let bound = best.map_or(0, |b| b.0.0);
            for (_, whole, id) in range.rev() {
                if *whole < bound {
                    break;
                }
                let Some(node) = state.nodes.get(id) else {
                    continue;
                };
                let n = carries(state, node, job, class, (*whole).min(u16::try_from(gpus).unwrap_or(u16::MAX)));
                let candidate = (core::cmp::Reverse(n), rank, price, *id);
                if n > 0 && best.is_none_or(|b| candidate < b) {
                    best = Some(candidate);
                }
                // Nodes behind this one have no more free than it has.
                if n == (*whole).min(u16::try_from(gpus).unwrap_or(u16::MAX)) {
                    break;
                }
            }
        }
    }
    let (core::cmp::Reverse(n), _, _, id) = best?;
    let node = state.nodes.get(&id)?;
    Some(WorkerPlace { node: id, gpus: first_free(node, n), share: 1000, slice: None })
}

/// How many GPUs of a spanning gang a node's CPU and memory carry, up to `n`.
fn carries(state: &State, node: &Node, job: JobId, class: ClassId, n: u16) -> u16 {
    let Gang::Spanning { per_gpu, .. } = &state.classes[class.ix()].shape.gang else {
        return 0;
    };
    if node.reserved.is_some_and(|(owner, _)| owner != job) || !ahead::lets_in(state, node, job) {
        return 0;
    }
    let by = |free: u64, each: u64| free.checked_div(each).map_or(u64::from(n), |k| k.min(u64::from(n)));
    by(node.cpu_free.0, per_gpu.cpu.0).min(by(node.mem_free.0, per_gpu.mem.0)) as u16
}

/// Whether all places are on ready nodes.
pub(crate) fn all_ready(state: &State, places: &[WorkerPlace]) -> bool {
    let ready =
        |p: &WorkerPlace| state.nodes.get(&p.node).is_some_and(|n| n.phase == crate::state::nodes::NodePhase::Ready);
    places.iter().all(ready)
}
