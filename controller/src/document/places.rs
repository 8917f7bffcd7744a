//! Where the workers of a written job are, on the nodes that it names.
//!
//! Never: two jobs on one share of a GPU. What does not fit is a fault.

use forebay_kernel::effect::WorkerPlace;
use forebay_kernel::ids::{JobId, NodeId, PoolId};
use forebay_kernel::job::{Gang, WorkerAsk};
use forebay_kernel::state::State;
use forebay_wire::document::DocumentFault;
use std::collections::BTreeMap;

/// What is free on one GPU while places are looked for.
#[derive(Clone, Copy)]
struct Gpu {
    free: u16,
    workers: u16,
}

/// The pool and the places of a job on the nodes that it names. `running`: the nodes have to be there.
///
/// # Errors
/// When a node is not ready, belongs to another pool, or has not what the job needs; the field is named.
pub fn find(
    state: &State,
    at: usize,
    job: JobId,
    nodes: &[NodeId],
    running: bool,
) -> Result<(PoolId, Vec<WorkerPlace>), DocumentFault> {
    let fault = |field: String, message: &str, remedy: &str| {
        Err(DocumentFault::at(format!("jobs[{at}].{field}"), message, remedy))
    };
    let mut pool = None;
    let mut free: BTreeMap<NodeId, Vec<Gpu>> = BTreeMap::new();
    for (position, &id) in nodes.iter().enumerate() {
        let Some(node) = state.node(id) else { continue };
        let there = !node.phase.is_coming();
        if running && !there {
            return fault(
                format!("nodes[{position}]"),
                "the node is not ready, so nothing runs on it",
                "write its phase `ready`, or the job's `booked`",
            );
        }
        if *pool.get_or_insert(node.pool) != node.pool {
            return fault(format!("nodes[{position}]"), "the nodes are of different pools", "name nodes of one pool");
        }
        let gpus = node.slots.iter().map(|s| Gpu { free: s.free, workers: s.workers }).collect();
        if free.insert(id, gpus).is_some() {
            return fault(format!("nodes[{position}]"), "the node is named twice", "name each once");
        }
    }
    let (Some(pool), Some((_, spec))) = (pool, state.job(job)) else {
        return fault("nodes".to_owned(), "no node is named", "name the nodes that it runs on");
    };
    let smallest =
        state.policy().and_then(|p| p.pools.get(pool.index())).and_then(|p| p.sharing).map_or(0, |s| s.smallest);
    let places = match &spec.gang {
        Gang::Workers { min, each, .. } => workers(&mut free, nodes, *min, each, smallest),
        Gang::Spanning { gpus, .. } => spanning(&mut free, nodes, *gpus),
    };
    match places {
        Some(places) => Ok((pool, places)),
        None => fault(
            "nodes".to_owned(),
            "its workers do not fit on these nodes beside the jobs above",
            "name more nodes, or fewer GPUs",
        ),
    }
}

/// Each worker on one node, spread over the nodes in turn.
fn workers(
    free: &mut BTreeMap<NodeId, Vec<Gpu>>,
    nodes: &[NodeId],
    count: u32,
    each: &WorkerAsk,
    smallest: u16,
) -> Option<Vec<WorkerPlace>> {
    let share = if each.share < 1000 && each.gpus > 0 { each.share.max(smallest) } else { each.share };
    let mut places = Vec::new();
    for worker in 0..count as usize {
        let turn = (0..nodes.len()).map(|i| nodes[(worker + i) % nodes.len()]);
        let place = turn.into_iter().find_map(|node| {
            let mask = take(free.get_mut(&node)?, u32::from(each.gpus), share)?;
            Some(WorkerPlace { node, gpus: mask, share, slice: None })
        })?;
        places.push(place);
    }
    Some(places)
}

/// Whole GPUs over all nodes named, as many as fit on the first while each gets one.
fn spanning(free: &mut BTreeMap<NodeId, Vec<Gpu>>, nodes: &[NodeId], gpus: u32) -> Option<Vec<WorkerPlace>> {
    let mut left = gpus;
    let mut places = Vec::new();
    for (position, &node) in nodes.iter().enumerate() {
        let slots = free.get_mut(&node)?;
        let whole = slots.iter().filter(|g| g.workers == 0).count() as u32;
        let for_others = (nodes.len() - 1 - position) as u32;
        let here = whole.min(left.checked_sub(for_others)?);
        let mask = take(slots, here, 1000).filter(|_| here > 0)?;
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

    const EMPTY: Gpu = Gpu { free: 1000, workers: 0 };

    #[test]
    fn gangs_spread_and_shares_pack() {
        let nodes = [NodeId(1), NodeId(2)];
        let mut free: BTreeMap<NodeId, Vec<Gpu>> = nodes.iter().map(|&n| (n, vec![EMPTY; 4])).collect();
        let each = WorkerAsk { gpus: 2, share: 1000, ..WorkerAsk::default() };
        let places = workers(&mut free, &nodes, 2, &each, 0).expect("fits");
        assert_eq!(places.iter().map(|p| (p.node, p.gpus)).collect::<Vec<_>>(), [(NodeId(1), 0b11), (NodeId(2), 0b11)]);
        let small = WorkerAsk { gpus: 1, share: 100, ..WorkerAsk::default() };
        let places = workers(&mut free, &nodes[..1], 2, &small, 250).expect("fits");
        assert_eq!(places.iter().map(|p| (p.gpus, p.share)).collect::<Vec<_>>(), [(0b100, 250), (0b100, 250)]);
        assert!(spanning(&mut free.clone(), &nodes, 4).is_none(), "one GPU on the first node, two on the second");
        assert_eq!(spanning(&mut free, &nodes, 3).expect("fits").len(), 2);
    }
}
