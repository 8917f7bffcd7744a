//! Partitioned GPUs (MIG): which layout a node is bought with, and which slice a worker goes to.
//!
//! ```text
//! layouts   0: 7 x 1g.10gb    1: 3g.40gb + 4g.40gb    2: (no slices: a whole GPU)
//! ask       share 300, 30 GiB       -> layout 1, its 3g.40gb: the smallest that holds it
//! ```
//!
//! A pool with layouts has whole GPUs only where one of its layouts has no slices. Never: changes the layout of a node.

use crate::ids::PoolId;
use crate::job::WorkerAsk;
pub(crate) use crate::layouts::{Chosen, holds, layout_for, wanted};
use crate::rules::settings;
use crate::state::nodes::{Cut, Partition};
use crate::state::{Shape, State};
use crate::units::Mib;

/// The layout with the smallest slice that holds a worker, the first of equal ones; one of whole GPUs where no slice does.
/// `None`: the pool has no layouts, or none that holds it.
pub(crate) fn chosen(state: &State, pool: PoolId, shape: &Shape, ask: &WorkerAsk) -> Option<Chosen> {
    layout_for(settings::pool(state, pool)?, shape, ask)
}

/// How many workers one GPU of an empty node holds, when it is bought with that layout. `None`: its GPUs are whole.
pub(crate) fn a_gpu(
    state: &State,
    pool: PoolId,
    shape: &Shape,
    ask: &WorkerAsk,
    chosen: Chosen,
    gpu_mem: Mib,
) -> Option<u32> {
    let layout = settings::pool(state, pool)?.layouts.get(usize::from(chosen.layout))?;
    let cuts = Partition::of(chosen.layout, layout, gpu_mem)?.slices;
    // A larger slice than the smallest that fits may be more than quota allows: it is not counted on.
    let good =
        |c: &&Cut| chosen.held == Some(c.held) && wanted(shape, ask).is_some_and(|(share, mem)| holds(c, share, mem));
    Some(cuts.iter().filter(good).count() as u32)
}
