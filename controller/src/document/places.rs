//! Where the workers of a written job are, on the nodes that it names: as the document says, or as they fit.
//!
//! Never: two jobs on one share of a GPU. What does not fit is a fault.

use forebay_kernel::effect::WorkerPlace;
use forebay_kernel::ids::{JobId, NodeId, PoolId};
use forebay_kernel::job::{Gang, WorkerAsk};
use forebay_kernel::layouts;
use forebay_kernel::state::State;
use forebay_kernel::state::nodes::{Node, Partition};
use forebay_kernel::units::Mib;
use forebay_wire::document::DocumentFault;
use forebay_wire::document::memory::PlaceView;
use std::collections::BTreeMap;

/// A written job whose places are looked for.
#[derive(Clone, Copy)]
pub struct Placed<'a> {
    /// Its position in the document.
    pub at: usize,
    /// Its id.
    pub job: JobId,
    /// The nodes that it names.
    pub nodes: &'a [NodeId],
    /// Whether it has started: then the nodes have to be there.
    pub running: bool,
    /// Workers that it has now.
    pub workers: Option<u32>,
}

/// What is free on one GPU while places are looked for.
#[derive(Clone, Copy)]
struct Gpu {
    free: u16,
    workers: u16,
    /// Free slices, a bit each.
    slices: u8,
}

/// What is free on a node.
#[derive(Clone)]
struct FreeGpus {
    gpus: Vec<Gpu>,
    partition: Option<Partition>,
}

impl FreeGpus {
    fn of(node: &Node) -> FreeGpus {
        let gpus = node.slots.iter().map(|s| Gpu { free: s.free, workers: s.workers, slices: s.slices }).collect();
        FreeGpus { gpus, partition: node.partition.clone() }
    }
}

impl Placed<'_> {
    fn fault<T>(&self, field: &str, message: &str, remedy: &str) -> Result<T, DocumentFault> {
        Err(DocumentFault::at(format!("jobs[{}].{field}", self.at), message, remedy))
    }

    /// The pool of the nodes, and what is free on them.
    fn free(&self, state: &State) -> Result<(PoolId, BTreeMap<NodeId, FreeGpus>), DocumentFault> {
        let mut pool = None;
        let mut free: BTreeMap<NodeId, FreeGpus> = BTreeMap::new();
        for (position, &id) in self.nodes.iter().enumerate() {
            let Some(node) = state.node(id) else { continue };
            let field = format!("nodes[{position}]");
            if self.running && node.phase.is_coming() {
                return self.fault(
                    &field,
                    "the node is not ready, so nothing runs on it",
                    "write its phase `ready`, or the job's `booked`",
                );
            }
            if *pool.get_or_insert(node.pool) != node.pool {
                return self.fault(&field, "the nodes are of different pools", "name nodes of one pool");
            }
            if free.insert(id, FreeGpus::of(node)).is_some() {
                return self.fault(&field, "the node is named twice", "name each once");
            }
        }
        match pool {
            Some(pool) => Ok((pool, free)),
            None => self.fault("nodes", "no node is named", "name the nodes that it runs on"),
        }
    }
}

/// The pool and the places of a job on the nodes that it names.
///
/// # Errors
/// When a node is not ready, belongs to another pool, or has not what the job needs; the field is named.
pub fn find(state: &State, placed: Placed<'_>) -> Result<(PoolId, Vec<WorkerPlace>), DocumentFault> {
    let (pool, mut free) = placed.free(state)?;
    let Some((row, spec)) = state.job(placed.job) else {
        return placed.fault("nodes", "no node is named", "name the nodes that it runs on");
    };
    let smallest =
        state.policy().and_then(|p| p.pools.get(pool.index())).and_then(|p| p.sharing).map_or(0, |s| s.smallest);
    let places = match &spec.gang {
        Gang::Workers { min, each, .. } => {
            let count = placed.workers.unwrap_or(*min);
            let shape = state.classes().get(row.class).map(|class| &class.shape);
            let slice = shape.and_then(|shape| layouts::wanted(shape, each));
            workers(&mut free, placed.nodes, count, WorkerSearch { each, smallest, slice })
        }
        Gang::Spanning { gpus, .. } => spanning(&mut free, placed.nodes, *gpus),
    };
    match places {
        Some(places) => Ok((pool, places)),
        None => placed.fault(
            "nodes",
            "its workers do not fit on these nodes beside the jobs above",
            "name more nodes, or fewer GPUs",
        ),
    }
}

/// The pool and the places of a job as the document has them.
///
/// # Errors
/// When a place is not there, or not free; it is named.
pub fn given(
    state: &State,
    placed: Placed<'_>,
    views: &[PlaceView],
    names: &BTreeMap<String, NodeId>,
) -> Result<(PoolId, Vec<WorkerPlace>), DocumentFault> {
    let (pool, mut free) = placed.free(state)?;
    let mut places = Vec::new();
    for (position, view) in views.iter().enumerate() {
        let field = format!("places[{position}]");
        let node = names.get(&view.node).filter(|id| free.contains_key(id));
        let Some((&node, left)) = node.and_then(|id| Some((id, free.get_mut(id)?))) else {
            return placed.fault(&format!("{field}.node"), "it is not among the job's `nodes`", "name it there too");
        };
        let Some(place) = take_given(left, node, view) else {
            return placed.fault(
                &field,
                "the node has no such GPU or slice, or not so much of it is free beside the jobs above",
                "give it another place, or leave `places` out",
            );
        };
        places.push(place);
    }
    Ok((pool, places))
}

fn take_given(free: &mut FreeGpus, node: NodeId, view: &PlaceView) -> Option<WorkerPlace> {
    let mut mask = 0;
    for &gpu in &view.gpus {
        let slot = free.gpus.get_mut(usize::from(gpu)).filter(|_| gpu < 64)?;
        slot.free = slot.free.checked_sub(view.share_milli)?;
        slot.workers += 1;
        if let Some(slice) = view.slice {
            let bit = 1u8.checked_shl(u32::from(slice)).filter(|bit| slot.slices & bit != 0)?;
            slot.slices &= !bit;
        }
        mask |= 1 << gpu;
    }
    Some(WorkerPlace { node, gpus: mask, share: view.share_milli, slice: view.slice })
}

/// What a worker asks of a node.
#[derive(Clone, Copy)]
struct WorkerSearch<'a> {
    each: &'a WorkerAsk,
    /// The smallest share that the pool gives out.
    smallest: u16,
    /// The least slice that will do.
    slice: Option<(u16, Mib)>,
}

/// Each worker on one node, spread over the nodes in turn.
fn workers(
    free: &mut BTreeMap<NodeId, FreeGpus>,
    nodes: &[NodeId],
    count: u32,
    ask: WorkerSearch<'_>,
) -> Option<Vec<WorkerPlace>> {
    let each = ask.each;
    let share = if each.share < 1000 && each.gpus > 0 { each.share.max(ask.smallest) } else { each.share };
    let mut places = Vec::new();
    for worker in 0..count as usize {
        let turn = (0..nodes.len()).map(|i| nodes[(worker + i) % nodes.len()]);
        let place = turn.into_iter().find_map(|node| {
            let left = free.get_mut(&node)?;
            if left.partition.is_some() && each.gpus > 0 {
                return take_slice(left, node, ask.slice?);
            }
            let mask = take(&mut left.gpus, u32::from(each.gpus), share)?;
            Some(WorkerPlace { node, gpus: mask, share, slice: None })
        })?;
        places.push(place);
    }
    Some(places)
}

/// The smallest free slice that holds a worker.
fn take_slice(free: &mut FreeGpus, node: NodeId, (share, mem): (u16, Mib)) -> Option<WorkerPlace> {
    let cuts = &free.partition.as_ref()?.slices;
    let fitting = free.gpus.iter().enumerate().flat_map(|(gpu, slot)| {
        let of =
            cuts.iter().enumerate().filter(|(at, cut)| slot.slices & (1 << at) != 0 && layouts::holds(cut, share, mem));
        of.map(move |(at, cut)| (cut.held, gpu, at))
    });
    let (held, gpu, at) = fitting.min()?;
    let slot = &mut free.gpus[gpu];
    slot.slices &= !(1 << at);
    slot.workers += 1;
    slot.free = slot.free.saturating_sub(held);
    Some(WorkerPlace { node, gpus: 1 << gpu, share: held, slice: u8::try_from(at).ok() })
}

/// Whole GPUs over all nodes named, as many as fit on the first while each gets one.
fn spanning(free: &mut BTreeMap<NodeId, FreeGpus>, nodes: &[NodeId], gpus: u32) -> Option<Vec<WorkerPlace>> {
    let mut left = gpus;
    let mut places = Vec::new();
    for (position, &node) in nodes.iter().enumerate() {
        let on = free.get_mut(&node).filter(|on| on.partition.is_none())?;
        let whole = on.gpus.iter().filter(|g| g.workers == 0).count() as u32;
        let for_others = (nodes.len() - 1 - position) as u32;
        let here = whole.min(left.checked_sub(for_others)?);
        let mask = take(&mut on.gpus, here, 1000).filter(|_| here > 0)?;
        places.push(WorkerPlace { node, gpus: mask, share: 1000, slice: None });
        left -= here;
    }
    (left == 0).then_some(places)
}

/// Takes a share of so many GPUs of a node: the mask of which. Shares go where least is left.
fn take(slots: &mut [Gpu], count: u32, share: u16) -> Option<u64> {
    let mut fitting: Vec<usize> = (0..slots.len().min(64)).filter(|&i| fits(slots[i], share)).collect();
    fitting.sort_by_key(|&i| (slots[i].free, i));
    let chosen = fitting.get(..count as usize)?;
    let mut mask = 0;
    for &i in chosen {
        mask |= 1 << i;
        slots[i].free -= share;
        slots[i].workers += 1;
    }
    Some(mask)
}

fn fits(gpu: Gpu, share: u16) -> bool {
    if share == 1000 { gpu.workers == 0 } else { gpu.free >= share }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_kernel::state::nodes::Cut;

    const EMPTY: Gpu = Gpu { free: 1000, workers: 0, slices: 0 };

    fn whole(each: &WorkerAsk, smallest: u16) -> WorkerSearch<'_> {
        WorkerSearch { each, smallest, slice: None }
    }

    #[test]
    fn gangs_spread_and_shares_pack() {
        let nodes = [NodeId(1), NodeId(2)];
        let empty = FreeGpus { gpus: vec![EMPTY; 4], partition: None };
        let mut free: BTreeMap<NodeId, FreeGpus> = nodes.iter().map(|&n| (n, empty.clone())).collect();
        let each = WorkerAsk { gpus: 2, share: 1000, ..WorkerAsk::default() };
        let places = workers(&mut free, &nodes, 2, whole(&each, 0)).expect("fits");
        assert_eq!(places.iter().map(|p| (p.node, p.gpus)).collect::<Vec<_>>(), [(NodeId(1), 0b11), (NodeId(2), 0b11)]);
        let small = WorkerAsk { gpus: 1, share: 100, ..WorkerAsk::default() };
        let places = workers(&mut free, &nodes[..1], 2, whole(&small, 250)).expect("fits");
        assert_eq!(places.iter().map(|p| (p.gpus, p.share)).collect::<Vec<_>>(), [(0b100, 250), (0b100, 250)]);
        assert!(spanning(&mut free.clone(), &nodes, 4).is_none(), "one GPU on the first node, two on the second");
        assert_eq!(spanning(&mut free, &nodes, 3).expect("fits").len(), 2);
    }

    #[test]
    fn a_slice_holds_one_worker() {
        let cut = |share, mem| Cut { share, held: share, mem: Mib(mem) };
        let partition = Partition { layout: 1, slices: vec![cut(429, 40_000), cut(286, 20_000), cut(285, 20_000)] };
        let mut free = FreeGpus { gpus: vec![Gpu { slices: 0b111, ..EMPTY }; 2], partition: Some(partition) };
        let mut slices = Vec::new();
        while let Some(place) = take_slice(&mut free, NodeId(1), (200, Mib(20_000))) {
            slices.push((place.gpus, place.slice.expect("a slice"), place.share));
        }
        assert_eq!(slices, [(1, 2, 285), (2, 2, 285), (1, 1, 286), (2, 1, 286), (1, 0, 429), (2, 0, 429)]);
    }
}
