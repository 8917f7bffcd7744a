//! Holding and giving back places: the arithmetic of what workers take on nodes. Used by `apply` for good, and by stages in tries.
//!
//! Never: chooses a place.

use super::State;
use super::billing::share_of_worker;
use super::nodes::Node;
use crate::effect::WorkerPlace;
use crate::ids::{ClassId, JobId, OfferingId};
use crate::job::Gang;
use crate::policy::Drain;
use crate::state::nodes::NodePhase;
use crate::units::{Mib, MilliCpu, MilliGpu, Span};
use alloc::vec::Vec;

/// In what way places are held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hold {
    /// They are kept for workers which have not started.
    Booked,
    /// Workers run on them, or are being started.
    Running,
}

/// What one worker takes on its node.
#[derive(Clone, Copy)]
pub struct WorkerNeeds {
    /// GPU memory on each of its GPUs, in MiB; 0: in proportion to its share.
    pub gpu_mem: Mib,
    /// Processor time, in thousandths of a core.
    pub cpu: MilliCpu,
    /// Memory of the node, in MiB.
    pub mem: Mib,
}

impl WorkerNeeds {
    /// Of a worker of `gang` at `place`.
    pub(crate) fn of(gang: &Gang, place: &WorkerPlace) -> WorkerNeeds {
        match gang {
            Gang::Workers { each, .. } => WorkerNeeds { gpu_mem: each.gpu_mem, cpu: each.cpu, mem: each.mem },
            Gang::Spanning { per_gpu, .. } => {
                let n = u64::from(place.gpus.count_ones());
                WorkerNeeds {
                    gpu_mem: per_gpu.gpu_mem,
                    cpu: MilliCpu(per_gpu.cpu.0.saturating_mul(n)),
                    mem: Mib(per_gpu.mem.0.saturating_mul(n)),
                }
            }
        }
    }
}

/// Memory that a share takes on a GPU: all of it when it is the whole GPU; its proportion when nothing is stated.
pub fn slot_mem(stated: Mib, share: u16, gpu_mem: Mib) -> Mib {
    if share >= 1000 {
        gpu_mem
    } else if stated == Mib(0) {
        Mib(gpu_mem.0 * u64::from(share) / 1000)
    } else {
        stated
    }
}

impl State {
    /// Takes places on nodes for a job. What is booked and what runs are counted apart.
    pub(crate) fn hold_places(&mut self, job: JobId, class: ClassId, places: &[WorkerPlace], hold: Hold) {
        let service = self.classes[class].shape.service;
        for place in places {
            let needs = WorkerNeeds::of(&self.classes[class].shape.gang, place);
            let gpu_mem = self.gpu_mem(place);
            let part = self.part_of_node(place, needs);
            self.edit_node(place.node, |node| {
                node.part_in(job, part, hold);
                service.into_iter().for_each(|service| node.replica_in(service));
                let mem = taken_mem(node, place, needs.gpu_mem, gpu_mem);
                for_slots(node, place.gpus, |slot| {
                    slot.free = slot.free.saturating_sub(place.share);
                    slot.mem_free = Mib(slot.mem_free.0.saturating_sub(mem.0));
                    slot.workers += 1;
                    slot.slices &= !slice_bit(place);
                });
                node.cpu_free = MilliCpu(node.cpu_free.0.saturating_sub(needs.cpu.0));
                node.mem_free = Mib(node.mem_free.0.saturating_sub(needs.mem.0));
                node.holds.push(job);
                node.idle_since = None;
                let held = if hold == Hold::Running { &mut node.allocated } else { &mut node.booked };
                *held = *held + place.gpu_share();
            });
        }
    }

    /// Gives places back. Nodes that are gone are passed over.
    pub(crate) fn release_places(&mut self, job: JobId, class: ClassId, places: &[WorkerPlace], hold: Hold) {
        let now = self.now;
        let service = self.classes[class].shape.service;
        for place in places {
            if !self.nodes.contains_key(&place.node) {
                continue;
            }
            let needs = WorkerNeeds::of(&self.classes[class].shape.gang, place);
            let gpu_mem = self.gpu_mem(place);
            let due = now + self.idle_allowed(place.node);
            let part = self.part_of_node(place, needs);
            self.edit_node(place.node, |node| {
                node.part_out(job, part, hold);
                service.into_iter().for_each(|service| node.replica_out(service));
                let mem = taken_mem(node, place, needs.gpu_mem, gpu_mem);
                for_slots(node, place.gpus, |slot| {
                    slot.free += place.share;
                    slot.mem_free = Mib(slot.mem_free.0 + mem.0);
                    slot.workers = slot.workers.saturating_sub(1);
                    slot.slices |= slice_bit(place);
                });
                node.cpu_free = MilliCpu(node.cpu_free.0 + needs.cpu.0);
                node.mem_free = Mib(node.mem_free.0 + needs.mem.0);
                if let Some(at) = node.holds.iter().position(|j| *j == job) {
                    node.holds.remove(at);
                }
                let held = if hold == Hold::Running { &mut node.allocated } else { &mut node.booked };
                *held = *held - place.gpu_share();
                if node.holds.is_empty() && node.phase == NodePhase::Ready && node.owned.is_none() {
                    node.idle_since = Some(now);
                    node.due = due;
                }
            });
        }
        self.capacity_epoch += 1;
    }

    /// Turns booked places into running ones.
    pub(crate) fn start_on(&mut self, job: JobId, places: &[WorkerPlace]) {
        let class = self.jobs[job].class;
        for place in places {
            let part = self.part_of_node(place, WorkerNeeds::of(&self.classes[class].shape.gang, place));
            self.edit_node(place.node, |node| {
                node.part_starts(job, part);
                node.booked = node.booked - place.gpu_share();
                node.allocated = node.allocated + place.gpu_share();
                node.reserved.retain(|(owner, _)| *owner != job);
            });
        }
    }

    /// How long a node may be idle before it is given back.
    pub(crate) fn idle_allowed(&self, id: crate::ids::NodeId) -> Span {
        let Some(node) = self.nodes.get(&id) else {
            return Span::ZERO;
        };
        let rule = self.policy.as_deref().and_then(|p| p.pools.get(node.pool.index())).map_or(Drain::Auto, |p| p.drain);
        match rule {
            Drain::After(span) => span,
            // Break-even: having it back costs one boot, so it is kept idle for one boot's time at most.
            // Up to version 2 the catalogue said how long that is.
            Drain::Auto if self.apply_version < 3 => self.offerings[node.offering.index()].offer.boot,
            Drain::Auto => self.usual_boot(node.offering),
        }
    }

    /// How long an offering usually takes from the decision to buy until it is ready: the median of what was seen, else what the catalogue states.
    #[must_use]
    pub fn usual_boot(&self, offering: OfferingId) -> Span {
        self.observed.boot(offering, 500).unwrap_or(self.offerings[offering.index()].offer.boot)
    }

    /// The share that a worker holds of its node.
    fn part_of_node(&self, place: &WorkerPlace, needs: WorkerNeeds) -> u64 {
        let offer = |node: &Node| &self.offerings[node.offering.index()].offer;
        self.nodes.get(&place.node).map_or(0, |node| share_of_worker(place, needs, offer(node)))
    }

    fn gpu_mem(&self, place: &WorkerPlace) -> Mib {
        self.nodes.get(&place.node).map_or(Mib(0), |n| self.offerings[n.offering.index()].offer.gpu_mem)
    }
}

/// Memory that a worker takes on its GPU: all of its slice, or what its share comes to.
fn taken_mem(node: &Node, place: &WorkerPlace, stated: Mib, gpu_mem: Mib) -> Mib {
    let slice = place.slice.and_then(|at| node.partition.as_ref()?.slices.get(usize::from(at)));
    slice.map_or_else(|| slot_mem(stated, place.share, gpu_mem), |cut| cut.mem)
}

fn slice_bit(place: &WorkerPlace) -> u8 {
    place.slice.map_or(0, |at| 1u8.checked_shl(u32::from(at)).unwrap_or(0))
}

/// GPU share of all places together.
pub fn share_of(places: &[WorkerPlace]) -> MilliGpu {
    MilliGpu(places.iter().map(|p| p.gpu_share().0).sum())
}

/// The nodes of places, each once, in order.
pub fn nodes_of(places: &[WorkerPlace]) -> Vec<crate::ids::NodeId> {
    let mut nodes: Vec<_> = places.iter().map(|p| p.node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

fn for_slots(node: &mut Node, mask: u64, mut edit: impl FnMut(&mut super::nodes::Slot)) {
    for (at, slot) in node.slots.iter_mut().enumerate() {
        if mask & (1 << at) != 0 {
            edit(slot);
        }
    }
}
