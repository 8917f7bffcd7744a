//! Partitioned GPUs (MIG): which layout of a pool holds a worker, and what the worker takes there.
//!
//! ```text
//! layouts   0: 7 x 1g.10gb    1: 3g.40gb + 4g.40gb    2: (no slices: a whole GPU)
//! ask       share 300, 30 GiB       -> layout 1, its 3g.40gb: the smallest that holds it
//! ```
//!
//! Never: asks what is free, or changes the layout of a node.

use crate::job::WorkerAsk;
use crate::policy::Pool;
use crate::state::Shape;
use crate::state::nodes::{Cut, Partition};
use crate::units::Mib;

/// What a node for a worker is bought with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chosen {
    /// Position in the pool's layouts.
    pub layout: u8,
    /// What the worker holds there. `None`: whole GPUs.
    pub held: Option<u16>,
}

/// The least slice that a worker may go to: its share and memory. `None`: it asks for whole GPUs, or does not consent to less.
pub fn wanted(shape: &Shape, ask: &WorkerAsk) -> Option<(u16, Mib)> {
    (shape.shares && ask.gpus == 1 && ask.share < 1000).then_some((ask.share, ask.gpu_mem))
}

/// Whether a slice holds a worker of this share, in thousandths of a GPU, and this memory.
pub fn holds(cut: &Cut, share: u16, mem: Mib) -> bool {
    cut.share >= share && cut.mem >= mem && cut.held > 0
}

/// The layout with the smallest slice that holds a worker, the first of equal ones; one of whole GPUs where no slice does.
/// `None`: the pool has no layouts, or none that holds it.
pub fn layout_for(rules: &Pool, shape: &Shape, ask: &WorkerAsk) -> Option<Chosen> {
    let layouts = || (0u8..).zip(&rules.layouts);
    if ask.gpus == 0 {
        return layouts().next().map(|(layout, _)| Chosen { layout, held: None });
    }
    let smallest = |(at, layout)| {
        let cuts = Partition::of(at, layout, Mib(u64::MAX))?.slices;
        let held = cuts
            .iter()
            .filter(|c| wanted(shape, ask).is_some_and(|(share, mem)| holds(c, share, mem)))
            .map(|c| c.held)
            .min()?;
        Some((held, at))
    };
    let slice = layouts().filter_map(smallest).min().map(|(held, layout)| Chosen { layout, held: Some(held) });
    let whole = || layouts().find(|(_, l)| l.slices.is_empty()).map(|(layout, _)| Chosen { layout, held: None });
    slice.or_else(whole)
}

/// Whether a pool's layouts, if it has any, can hold a worker.
pub fn can_be_held(rules: &Pool, shape: &Shape, ask: &WorkerAsk) -> bool {
    rules.layouts.is_empty() || layout_for(rules, shape, ask).is_some()
}
