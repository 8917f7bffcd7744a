//! What a placement leaves behind that the jobs of late could not use, CPU and memory counted: a free GPU whose node has no CPU left is worth nothing.
//!
//! ```text
//! useless(node, kind) = (what is free and no worker of the kind could use now  +  what is left when the node is filled with the kind) / 2
//! F(node)             = sum over kinds:  how many there are of late x useless(node, kind)
//! kinds               those that the node suits best, 60 % of all; what asks for a model that the node has counts in any case
//! ```
//!
//! The candidate whose F grows least is taken, whether its node is empty or not. Only where work of late could use up CPU or memory of a node before its
//! GPUs; elsewhere nodes with as many GPUs free are equal, and fragment.rs has the same by what changes alone.
//!
//! Source: FGD (Weng et al., USENIX ATC 2023). Never: a node of the state; the caller says what is free.

use crate::ids::{ClassId, OfferingId, PoolId};
use crate::job::Gang;
use crate::rules::{settings, supply};
use crate::state::State;
use crate::state::mix::WorkKind;
use crate::state::nodes::Node;
use crate::units::{Mib, MilliCpu};
use alloc::vec::Vec;

/// Kinds that are counted: the most frequent ones.
const MOST_KINDS: usize = 32;
/// The part of the mix that counts on a node, in thousandths: the kinds that it suits best.
const SUITED: u64 = 600;
/// GPUs that a node has at most.
const MOST_GPUS: usize = 64;

/// A kind of work and how many of it there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct LiveKind {
    class: ClassId,
    /// GPUs of one node that it takes at best, however many a node has.
    gpus: u32,
    share: u16,
    /// CPU with these.
    cpu: MilliCpu,
    /// Memory with these.
    mem: Mib,
    count: u64,
    /// It asks for a model of GPU.
    bound: bool,
}

/// The jobs of late by what they ask.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LiveMix {
    kinds: Vec<LiveKind>,
    /// The most CPU that one of them asks with a GPU.
    cpu_per_gpu: MilliCpu,
    /// The most memory that one of them asks with a GPU.
    mem_per_gpu: Mib,
}

impl LiveMix {
    /// The mix of the jobs that a state has. `None`: it says too little, or nothing of CPU and memory.
    pub(crate) fn of(state: &State) -> Option<LiveMix> {
        if !state.mix.known() {
            return None;
        }
        let frequent = state.index.known.most_frequent();
        let kinds = frequent.filter_map(|(class, count)| LiveKind::of(state, class, count));
        let kinds: Vec<LiveKind> = kinds.take(MOST_KINDS).collect();
        let cpu_per_gpu = MilliCpu(kinds.iter().map(|kind| kind.per_gpu(kind.cpu.0)).max().unwrap_or(0));
        let mem_per_gpu = Mib(kinds.iter().map(|kind| kind.per_gpu(kind.mem.0)).max().unwrap_or(0));
        let says = cpu_per_gpu > MilliCpu(0) || mem_per_gpu > Mib(0);
        says.then_some(LiveMix { kinds, cpu_per_gpu, mem_per_gpu })
    }

    /// Whether one of its kinds could use up CPU or memory of a node of one of these offerings before its GPUs. Where none could, GPUs alone
    /// say what a node is worth.
    pub(super) fn binds(&self, state: &State, offerings: &[OfferingId]) -> bool {
        offerings.iter().any(|id| {
            let row = &state.offerings[id.index()];
            let (gpus, room) = (u64::from(row.offer.gpus), row.room());
            self.cpu_per_gpu.0.saturating_mul(gpus) > room.cpu.0 || self.mem_per_gpu.0.saturating_mul(gpus) > room.mem.0
        })
    }

    /// The part of it that has to do with nodes of an offering in a pool.
    pub(super) fn on(&self, state: &State, pool: PoolId, offering: OfferingId) -> NodeMix {
        let gpus = u32::from(state.offerings[offering.index()].offer.gpus.max(1));
        let smallest = settings::pool(state, pool).and_then(|rules| rules.sharing).map_or(1000, |rules| rules.smallest);
        let of = |kind: &LiveKind| {
            let fits = supply::fits(state, kind.class, pool);
            let holds = fits.binary_search(&offering).is_ok();
            // What is larger than a node takes all of it.
            let here = kind.gpus.min(gpus);
            let part = |all: u64| all.saturating_mul(u64::from(here)) / u64::from(kind.gpus);
            let asks = WorkKind { gpus: u16::try_from(here).unwrap_or(u16::MAX), share: kind.share.max(smallest) };
            let (cpu, mem) = (MilliCpu(part(kind.cpu.0)), Mib(part(kind.mem.0)));
            let (bound, count) = (kind.bound, kind.count);
            // What goes to no node of the pool, and what wants another model, has nothing to lose here.
            (holds || !(fits.is_empty() || bound)).then_some(NodeKind { asks, cpu, mem, count, bound, holds })
        };
        NodeMix::new(self.kinds.iter().filter_map(of))
    }
}

impl LiveKind {
    fn of(state: &State, class: ClassId, count: u32) -> Option<LiveKind> {
        let shape = &state.classes[class].shape;
        let work = WorkKind::of(shape)?;
        let (each, workers) = match &shape.gang {
            // By shares each worker is on its own; what takes whole GPUs is best on one node.
            Gang::Workers { min, each, .. } => (each, if work.share < 1000 { 1 } else { (*min).max(1) }),
            Gang::Spanning { gpus, per_gpu } => (per_gpu, *gpus),
        };
        let gpus = if matches!(shape.gang, Gang::Spanning { .. }) { 1 } else { u32::from(each.gpus) };
        Some(LiveKind {
            class,
            gpus: gpus.saturating_mul(workers).max(1),
            share: work.share,
            cpu: MilliCpu(each.cpu.0.saturating_mul(u64::from(workers))),
            mem: Mib(each.mem.0.saturating_mul(u64::from(workers))),
            count: u64::from(count),
            bound: !shape.models.is_empty(),
        })
    }

    /// What it asks of something with a whole GPU, rounded down.
    fn per_gpu(&self, all: u64) -> u64 {
        all.saturating_mul(1000) / (u64::from(self.gpus) * u64::from(self.share.max(1)))
    }
}

/// A kind as nodes of one offering see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct NodeKind {
    asks: WorkKind,
    cpu: MilliCpu,
    mem: Mib,
    count: u64,
    bound: bool,
    /// A node with nothing on it holds it.
    holds: bool,
}

/// The mix as nodes of one offering see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct NodeMix {
    kinds: Vec<NodeKind>,
    /// How many of those that ask for no model count.
    suited: u64,
}

impl NodeMix {
    fn new(all: impl Iterator<Item = NodeKind>) -> NodeMix {
        let kinds: Vec<NodeKind> = all.take(MOST_KINDS).collect();
        let any: u64 = kinds.iter().filter(|kind| !kind.bound).map(|kind| kind.count).sum();
        NodeMix { kinds, suited: any * SUITED / 1000 }
    }

    /// How F grows when what is free becomes less.
    pub(super) fn grows(&self, before: &Rest, after: &Rest) -> i64 {
        self.wasted(after) - self.wasted(before)
    }

    /// F of a node of which so much is free.
    fn wasted(&self, rest: &Rest) -> i64 {
        let groups = rest.groups();
        // By what is useless to it, the place of each kind that asks for no model: in one number they are put in order fastest.
        let mut useless = [0u64; MOST_KINDS];
        let (mut found, mut sum) = (0, 0u64);
        for (kind, at) in self.kinds.iter().zip(0u64..) {
            let wasted = rest.useless(&groups, kind);
            if kind.bound {
                sum = sum.saturating_add(wasted.saturating_mul(kind.count));
            } else {
                useless[found] = wasted * MOST_KINDS as u64 + at;
                found += 1;
            }
        }
        useless[..found].sort_unstable();
        let mut left = self.suited;
        for both in &useless[..found] {
            let (wasted, at) = (both / MOST_KINDS as u64, both % MOST_KINDS as u64);
            let counted = left.min(self.kinds[at as usize].count);
            sum = sum.saturating_add(wasted.saturating_mul(counted));
            left -= counted;
            if left == 0 {
                break;
            }
        }
        i64::try_from(sum).unwrap_or(i64::MAX)
    }
}

/// What is free of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rest {
    gpus: [u16; MOST_GPUS],
    count: usize,
    free: u64,
    cpu: MilliCpu,
    mem: Mib,
}

/// How many GPUs of a node have how much free: those with nothing free left out.
struct Groups {
    of: [(u16, u16); MOST_GPUS],
    count: usize,
}

impl Rest {
    pub(super) fn of(node: &Node) -> Rest {
        let whole = node.whole_mask();
        let mut rest = Rest { gpus: [0; MOST_GPUS], count: 0, free: 0, cpu: node.cpu_left(), mem: node.mem_left() };
        for (at, slot) in node.slots.iter().take(MOST_GPUS).enumerate() {
            // A GPU that others hold is free of our work, and not for it.
            let ours = slot.workers > 0 || whole & (1 << at) != 0;
            rest.gpus[at] = if ours { slot.free } else { 0 };
            rest.count = at + 1;
            rest.free += u64::from(rest.gpus[at]);
        }
        rest
    }

    /// What is left when a worker takes a share of each of these GPUs, CPU and memory.
    pub(super) fn without(mut self, gpus: u64, share: u16, cpu: MilliCpu, mem: Mib) -> Rest {
        for at in (0..self.count).filter(|at| gpus & (1 << at) != 0) {
            let taken = share.min(self.gpus[at]);
            self.gpus[at] -= taken;
            self.free -= u64::from(taken);
        }
        self.cpu = MilliCpu(self.cpu.0.saturating_sub(cpu.0));
        self.mem = Mib(self.mem.0.saturating_sub(mem.0));
        self
    }

    /// Its GPUs by what of each is free.
    fn groups(&self) -> Groups {
        let mut groups = Groups { of: [(0, 0); MOST_GPUS], count: 0 };
        for free in self.gpus[..self.count].iter().filter(|free| **free > 0) {
            match groups.of[..groups.count].iter_mut().find(|group| group.0 == *free) {
                Some(group) => group.1 += 1,
                None => {
                    groups.of[groups.count] = (*free, 1);
                    groups.count += 1;
                }
            }
        }
        groups
    }

    /// Twice the free share that is of no use to a kind: what it could not use now, and what is left when as many as may be are here.
    fn useless(&self, groups: &Groups, kind: &NodeKind) -> u64 {
        let (asks, share) = (u64::from(kind.asks.gpus), kind.asks.share.max(1));
        if !kind.holds || self.cpu < kind.cpu || self.mem < kind.mem {
            return 2 * self.free;
        }
        let (mut good, mut small, mut takes) = (0u64, 0u64, 0u64);
        for (free, gpus) in &groups.of[..groups.count] {
            if *free < share {
                small += u64::from(*free) * u64::from(*gpus);
            } else {
                good += u64::from(*gpus);
                takes += u64::from(*free / share) * u64::from(*gpus);
            }
        }
        if good < asks {
            return 2 * self.free;
        }
        let by_cpu = self.cpu.0.checked_div(kind.cpu.0).unwrap_or(u64::MAX);
        let by_mem = self.mem.0.checked_div(kind.mem.0).unwrap_or(u64::MAX);
        let workers = (takes / asks.max(1)).min(by_cpu).min(by_mem);
        small + self.free.saturating_sub(workers * asks * u64::from(share))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rest(gpus: &[u16], cpu: u64) -> Rest {
        let mut all = [0; MOST_GPUS];
        all[..gpus.len()].copy_from_slice(gpus);
        let free = gpus.iter().map(|free| u64::from(*free)).sum();
        Rest { gpus: all, count: gpus.len(), free, cpu: MilliCpu(cpu), mem: Mib(1_000_000) }
    }

    fn kind(gpus: u16, share: u16, cpu: u64, count: u64) -> NodeKind {
        let asks = WorkKind { gpus, share };
        NodeKind { asks, cpu: MilliCpu(cpu), mem: Mib(0), count, bound: false, holds: true }
    }

    fn useless(rest: Rest, kind: &NodeKind) -> u64 {
        rest.useless(&rest.groups(), kind)
    }

    #[test]
    fn a_gpu_without_cpu_is_of_no_use() {
        let one = kind(1, 1000, 8_000, 1);
        assert_eq!(useless(rest(&[1000, 1000], 16_000), &one), 0);
        // One more goes there, and then the other GPU is lost.
        assert_eq!(useless(rest(&[1000, 1000], 15_999), &one), 1000);
        assert_eq!(useless(rest(&[1000, 1000], 7_999), &one), 4000);
        assert_eq!(useless(rest(&[1000, 400], 16_000), &one), 800, "the rest of a GPU in part taken, twice");
        assert_eq!(useless(rest(&[1000, 0], 16_000), &kind(2, 1000, 0, 1)), 2000, "too few GPUs");
        assert_eq!(useless(rest(&[900, 500], 99_000), &kind(1, 450, 1_000, 1)), 50, "three of them leave 50");
    }

    #[test]
    fn what_a_node_suits_least_does_not_count_and_what_is_bound_to_it_does() {
        let ones = kind(1, 1000, 0, 60);
        let eights = kind(8, 1000, 0, 40);
        let free = rest(&[1000, 1000], 1_000);
        assert_eq!(NodeMix::new([ones, eights].into_iter()).wasted(&free), 0, "60 % go there");
        let bound = NodeKind { bound: true, ..eights };
        assert_eq!(NodeMix::new([ones, bound].into_iter()).wasted(&free), 40 * 4000);
        let less = free.without(0b1, 1000, MilliCpu(0), Mib(0));
        assert_eq!(NodeMix::new([ones, bound].into_iter()).grows(&free, &less), -40 * 2000);
    }
}
