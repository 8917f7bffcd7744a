//! Placement: where a gang fits with the least waste. Best fit over GPUs (whole, slices, fractions, memory), CPU and memory of nodes that
//! are there or on their way, as close together as it asks; the gang goes whole or not at all.
//!
//! ```text
//! one worker    one.rs       the tightest fit, ready nodes first, cheaper first; fragment.rs and live.rs say what a fit costs the next
//! a gang        gang.rs      one NVLink group, one node, one rack, one zone, anywhere: the first that holds it; the fewest nodes
//! which GPUs    topology.rs  one NVLink or NUMA group, the tightest; slices.rs the smallest slice; room.rs what a node holds
//! a batch       beside.rs    a GPU that another of it shares already
//! a service     spread.rs    where the fewest replicas are
//! the last one  spare.rs     the last empty large node is left whole while there is another way
//! ```
//!
//! Never: puts work on a node that takes none, shares a GPU without consent of job and pool, splits a gang over models, or over
//! what it requires to stay within.

mod beside;
mod fragment;
mod gang;
mod live;
mod one;
mod room;
pub(crate) mod slices;
pub(crate) mod spare;
pub(crate) mod spread;
pub(crate) mod topology;

pub(crate) use beside::beside;
pub(crate) use live::LiveMix;

use super::{budget, quota, reservations, settings, supply};
use crate::effect::WorkerPlace;
use crate::engine::Engine;
use crate::ids::{ClassId, JobId, ModelId, NodeId, OfferingId, PoolId};
use crate::job::{Gang, Level, TopologyConstraint, WorkerAsk};
use crate::reason::Reason;
use crate::state::{Shape, State};
use crate::units::{Mib, MilliGpu, Rate};
use alloc::string::String;
use alloc::vec::Vec;

/// Which nodes may be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NodeScope {
    /// Ready ones: the gang starts at once.
    Ready,
    /// Ones in flight too.
    InFlight,
}

/// What one worker asks, or one GPU of a gang that may span nodes.
#[derive(Clone, Copy, Debug)]
struct Ask<'a> {
    job: JobId,
    pool: PoolId,
    each: WorkerAsk,
    /// The share that it takes of GPUs that are not partitioned. `None`: it does not go there.
    share: Option<u16>,
    /// The least slice that it may go to, by share and memory. `None`: it does not go to one.
    slice: Option<(u16, Mib)>,
    /// It may hold so much at most, by quota.
    cap: u64,
    scope: NodeScope,
    /// Its GPUs are all of one group of this level.
    group: Option<Level>,
    service: Option<JobId>,
    /// One place a node, with as many GPUs as go there.
    spans: bool,
    /// It does not take a part of an empty large node.
    spares: bool,
    /// It may have what is kept in its pool for another.
    may_have_kept: bool,
    /// What it leaves is judged by the work of late, CPU and memory counted. `None`: by its GPUs alone.
    live: Option<&'a LiveMix>,
}

impl Ask<'_> {
    fn of(state: &State, job: JobId, class: ClassId, pool: PoolId, scope: NodeScope, most: MilliGpu) -> Self {
        let shape = &state.classes[class].shape;
        let (each, least, spans) = match &shape.gang {
            Gang::Workers { min, each, .. } => (*each, *min, false),
            Gang::Spanning { gpus, per_gpu } => (WorkerAsk { gpus: 1, share: 1000, ..*per_gpu }, *gpus, true),
        };
        let slice = slices::wanted(shape, &each);
        let cut = slice.is_some() && slices::chosen(state, pool, shape, &each).is_some_and(|c| c.held.is_some());
        Ask {
            job,
            pool,
            each,
            share: (!cut).then(|| effective_share(state, shape, pool, &each)),
            slice,
            cap: most.0 / u64::from(least.max(1)),
            scope,
            group: None,
            service: shape.service,
            spans,
            spares: false,
            may_have_kept: reservations::may_have_kept(state, job, pool),
            live: None,
        }
    }
}

/// Places for a gang of a job's class, or nothing. `most`: what quota leaves.
pub(crate) fn find(
    engine: &Engine,
    job: JobId,
    pool: PoolId,
    scope: NodeScope,
    most: MilliGpu,
) -> Option<Vec<WorkerPlace>> {
    let class = engine.state.jobs[job].class;
    let ask = Ask { live: engine.live.as_ref(), ..Ask::of(&engine.state, job, class, pool, scope, most) };
    search(&engine.state, class, engine.state.classes[class].shape.within, ask, most)
}

/// Places for a gang on one node, which is there or on its way.
pub(crate) fn on_node(
    engine: &Engine,
    job: JobId,
    pool: PoolId,
    most: MilliGpu,
    node: NodeId,
) -> Option<Vec<WorkerPlace>> {
    let state = &engine.state;
    let class = state.jobs[job].class;
    let node = state.nodes.get(&node).filter(|node| node.open() && node.pool == pool)?;
    let ask = Ask::of(state, job, class, pool, NodeScope::InFlight, most);
    let count = state.classes[class].shape.gang.fewest();
    let holds = room::units(state, node, &ask, u64::MAX) >= count;
    let affordable = budget::affordable(state, job, class, pool, node.offering);
    (holds && affordable).then(|| room::carve(state, node, &ask, u64::MAX, count))
}

/// Why nothing is bought for a job, more exactly where that is known: there is room, but not as close together as it requires.
pub(crate) fn too_far(state: &State, job: JobId, pool: PoolId, no: Reason) -> Reason {
    let class = state.jobs[job].class;
    let within = state.classes[class].shape.within.filter(|w| w.required);
    let full = matches!(no, Reason::Ceiling { .. } | Reason::NothingIdle | Reason::OwnedNodesFull { .. });
    let Some(within) = within.filter(|_| full) else { return no };
    let most = quota::available(state, class, pool);
    let ask = Ask::of(state, job, class, pool, NodeScope::InFlight, most);
    match search(state, class, None, ask, most) {
        Some(_) => Reason::TopologyUnsatisfied { level: within.level },
        None => no,
    }
}

fn search(
    state: &State,
    class: ClassId,
    within: Option<TopologyConstraint>,
    ask: Ask<'_>,
    most: MilliGpu,
) -> Option<Vec<WorkerPlace>> {
    let shape = &state.classes[class].shape;
    let present = present(state, ask.job, class, ask.pool);
    let size = match &shape.gang {
        Gang::Workers { min, max, .. } => {
            let per_worker = u64::from(ask.each.gpus) * u64::from(ask.share.unwrap_or(1000));
            let by_quota = if ask.slice.is_some() { None } else { most.0.checked_div(per_worker) };
            let allowed = by_quota.map_or(*max, |n| u32::try_from(n).unwrap_or(u32::MAX));
            gang::Size { min: *min, max: (*max).min(allowed).max(*min) }
        }
        Gang::Spanning { gpus, .. } => gang::Size { min: *gpus, max: *gpus },
    };
    if size.max <= 1 {
        return alone(state, &present, ask, within);
    }
    let groups = by_model(state, &present);
    let mut places = groups.into_iter().find_map(|group| gang::together(state, &group, &ask, size, within))?;
    // Slices differ in size: what is beyond the fewest goes only as far as quota does.
    let mut held = 0;
    let within = |p: &WorkerPlace| {
        held += p.gpu_share().0;
        held <= most.0
    };
    let paid = places.iter().map(within).take_while(|ok| *ok).count();
    if ask.slice.is_some() {
        places.truncate(paid.max(size.min as usize));
    }
    Some(places)
}

/// A gang of one.
fn alone(
    state: &State,
    present: &[OfferingId],
    ask: Ask<'_>,
    within: Option<TopologyConstraint>,
) -> Option<Vec<WorkerPlace>> {
    let close = within.filter(|w| w.level <= Level::Nvlink && ask.each.gpus > 1);
    let near = close.and_then(|w| one::one(state, present, &Ask { group: Some(w.level), ..ask }));
    let far = || if close.is_some_and(|w| w.required) { None } else { one::one(state, present, &ask) };
    near.or_else(far).map(|place| alloc::vec![place])
}

/// What free places, ready or in flight, carry of a gang: workers or GPUs of one model, in one zone where that is required.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Carried {
    pub model: Option<ModelId>,
    /// What is bought beside it has to be in this zone.
    pub zone: Option<String>,
    pub count: u32,
}

/// What free places carry of a gang that does not fit whole. Empty for single workers and for gangs that go to one node or rack.
pub(crate) fn carried(engine: &Engine, job: JobId, class: ClassId, pool: PoolId) -> Vec<Carried> {
    carried_beside(engine, job, class, pool, &[])
}

/// The same where some nodes are given back.
pub(crate) fn carried_beside(
    engine: &Engine,
    job: JobId,
    class: ClassId,
    pool: PoolId,
    gone: &[NodeId],
) -> Vec<Carried> {
    let state = &engine.state;
    let shape = &state.classes[class].shape;
    let needed = shape.gang.fewest();
    let required = shape.within.filter(|w| w.required).map(|w| w.level);
    if needed <= 1 || required.is_some_and(|level| level < Level::Zone) {
        return Vec::new();
    }
    let most = quota::available(state, class, pool);
    let ask = Ask::of(state, job, class, pool, NodeScope::InFlight, most);
    let mut carried = Vec::new();
    for group in by_model(state, &present(state, job, class, pool)) {
        let model = group.first().and_then(|id| state.offerings[id.index()].models.first().copied());
        let parts = if required.is_some() { topology::by_zone(state, &group) } else { alloc::vec![(None, group)] };
        for (zone, offerings) in parts {
            let count = gang::room(state, &offerings, &ask, needed, gone);
            carried.push(Carried { model, zone, count });
        }
    }
    carried
}

/// The places of what [`carried_beside`] counts, where the rest of the gang goes to new nodes of an offering.
pub(crate) fn part_beside(
    engine: &Engine,
    job: JobId,
    pool: PoolId,
    gone: &[NodeId],
    bought: OfferingId,
) -> Vec<WorkerPlace> {
    let (state, class) = (&engine.state, engine.state.jobs[job].class);
    let shape = &state.classes[class].shape;
    let row = &state.offerings[bought.index()];
    let zone = shape.within.filter(|w| w.required).map(|_| &row.offer.zone);
    let beside = |id: &OfferingId| {
        let other = &state.offerings[id.index()];
        other.models.first() == row.models.first() && zone.is_none_or(|zone| other.offer.zone == *zone)
    };
    let ask = Ask::of(state, job, class, pool, NodeScope::InFlight, quota::available(state, class, pool));
    let offerings: Vec<OfferingId> = present(state, job, class, pool).into_iter().filter(beside).collect();
    gang::part(state, &offerings, &ask, shape.gang.fewest(), gone)
}

/// The share of each GPU that a worker takes: all of it unless job and pool both consent to sharing. In a pool with layouts that of the
/// smallest slice that it fits.
pub(crate) fn effective_share(state: &State, shape: &Shape, pool: PoolId, ask: &WorkerAsk) -> u16 {
    let rules = settings::pool(state, pool);
    if rules.is_some_and(|p| !p.layouts.is_empty()) {
        return slices::chosen(state, pool, shape, ask).and_then(|c| c.held).unwrap_or(1000);
    }
    match rules.and_then(|p| p.sharing) {
        Some(rules) if shape.shares && ask.gpus == 1 && ask.share < 1000 => ask.share.max(rules.smallest).min(1000),
        _ => 1000,
    }
}

/// Offerings that a class fits, that its budgets allow, and that have open nodes in a pool.
fn present(state: &State, job: JobId, class: ClassId, pool: PoolId) -> Vec<OfferingId> {
    let fits = supply::fits(state, class, pool);
    let of_pool = (pool, OfferingId(0))..=(pool, OfferingId(u32::MAX));
    let there = state.index.free.range(of_pool).map(|((_, id), _)| *id);
    let good = |id: &OfferingId| fits.binary_search(id).is_ok() && budget::affordable(state, job, class, pool, *id);
    there.filter(good).collect()
}

/// Offerings by their first model, cheapest model first, so that no gang mixes models.
fn by_model(state: &State, offerings: &[OfferingId]) -> Vec<Vec<OfferingId>> {
    let mut groups: Vec<(Option<ModelId>, Rate, Vec<OfferingId>)> = Vec::new();
    for id in offerings {
        let row = &state.offerings[id.index()];
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

fn ranks(scope: NodeScope) -> core::ops::RangeInclusive<u8> {
    0..=u8::from(scope == NodeScope::InFlight)
}

/// Whether all places are on ready nodes.
pub(crate) fn all_ready(state: &State, places: &[WorkerPlace]) -> bool {
    let ready =
        |p: &WorkerPlace| state.nodes.get(&p.node).is_some_and(|n| n.phase == crate::state::nodes::NodePhase::Ready);
    places.iter().all(ready)
}

/// Whether a node with nothing on it, such as one on its way out, would hold a gang whole and as close together as it requires.
pub(crate) fn would_hold(state: &State, job: JobId, node: &crate::state::nodes::Node, most: MilliGpu) -> bool {
    let class = state.jobs[job].class;
    let shape = &state.classes[class].shape;
    let ask = Ask::of(state, job, class, node.pool, NodeScope::Ready, most);
    let (count, gpus) = match &shape.gang {
        Gang::Workers { min, each, .. } => (*min, u32::from(each.gpus).saturating_mul(*min)),
        Gang::Spanning { gpus, .. } => (*gpus, *gpus),
    };
    let offer = &state.offerings[node.offering.index()].offer;
    let close = shape.within.filter(|w| w.required && w.level <= Level::Nvlink && gpus > 1);
    let parts = close.map_or_else(|| alloc::vec![u64::MAX], |w| topology::groups(offer, w.level));
    parts.into_iter().any(|mask| room::units(state, node, &ask, mask) >= count)
}
