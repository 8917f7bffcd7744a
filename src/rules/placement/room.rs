//! What a node holds: how many workers of one ask, and where on its GPUs each of them goes.
//!
//! Never: chooses a node.

use super::{Ask, slices, topology};
use crate::effect::WorkerPlace;
use crate::ids::JobId;
use crate::rules::reservations;
use crate::state::State;
use crate::state::nodes::{Node, Slot};
use crate::state::places::slot_mem;
use crate::units::Mib;
use alloc::vec::Vec;

/// Whether a node takes a worker, GPUs apart.
pub(super) fn takes(state: &State, node: &Node, ask: &Ask<'_>) -> bool {
    // What is kept for one job is kept for its class: the first in the class queue goes first.
    let class = |job: JobId| state.jobs[job].class;
    let mut owners = node.reserved.iter().map(|(owner, _)| class(*owner));
    let reserved = !node.reserved.is_empty() && !owners.any(|owner| owner == class(ask.job));
    let room = node.cpu_left() >= ask.each.cpu && node.mem_left() >= ask.each.mem;
    !reserved && room && reservations::lets_in_one(state, node, ask.job, || ask.may_have_kept)
}

/// GPUs with nothing on them that are not partitioned, as a mask.
pub(super) fn whole(node: &Node) -> u64 {
    node.whole_mask()
}

/// How many workers a node takes on these of its GPUs.
pub(super) fn units(state: &State, node: &Node, ask: &Ask<'_>, mask: u64) -> u32 {
    if !takes(state, node, ask) {
        return 0;
    }
    let by_cpu = node.cpu_left().0.checked_div(ask.each.cpu.0).unwrap_or(u64::MAX);
    let by_mem = node.mem_left().0.checked_div(ask.each.mem.0).unwrap_or(u64::MAX);
    let by_gpu = match (ask.each.gpus, &node.partition, ask.share) {
        (0, _, _) => u64::MAX,
        (_, Some(partition), _) => {
            let good = |slot: &Slot| {
                let cuts = partition.slices.iter().enumerate().filter(|(at, _)| slot.slices & (1 << at) != 0);
                cuts.filter(|(_, c)| fits(c, ask)).count() as u64
            };
            within(node, mask).map(|(_, slot)| good(slot)).sum()
        }
        (_, None, None) => 0,
        (1, None, Some(share)) if share < 1000 => {
            let (need, slices) = part_of(state, node, ask, share);
            within(node, mask).map(|(_, slot)| u64::from(parts(slot, share, need, slices))).sum()
        }
        (gpus, None, Some(_)) => u64::from((whole(node) & mask).count_ones()) / u64::from(gpus),
    };
    u32::try_from(by_gpu.min(by_cpu).min(by_mem)).unwrap_or(u32::MAX)
}

fn within(node: &Node, mask: u64) -> impl Iterator<Item = (usize, &Slot)> + '_ {
    node.slots.iter().enumerate().filter(move |(at, _)| mask & (1 << at) != 0)
}

/// Whether a slice is large enough, and no larger than quota allows.
pub(super) fn fits(cut: &crate::state::nodes::Cut, ask: &Ask<'_>) -> bool {
    ask.slice.is_some_and(|(share, mem)| slices::holds(cut, share, mem)) && u64::from(cut.held) <= ask.cap
}

/// The memory that a share takes on a GPU of a node, and how many workers may share one.
pub(super) fn part_of(state: &State, node: &Node, ask: &Ask<'_>, share: u16) -> (Mib, u32) {
    let gpu_mem = state.offerings[node.offering.index()].offer.gpu_mem;
    (slot_mem(ask.each.gpu_mem, share, gpu_mem), crate::rules::launch::sharing_slices(state, node.pool))
}

fn parts(slot: &Slot, share: u16, need: Mib, slices: u32) -> u32 {
    if slot.workers > 0 && slot.free == 0 {
        return 0;
    }
    let by_mem = slot.mem_free.0.checked_div(need.0).unwrap_or(u64::MAX);
    let by_share = u64::from(slot.free.checked_div(share).unwrap_or(0));
    let left = u64::from(slices).saturating_sub(u64::from(slot.workers));
    by_share.min(by_mem).min(left) as u32
}

/// Where so many workers go on these GPUs of a node. There is room for them.
pub(super) fn carve(state: &State, node: &Node, ask: &Ask<'_>, mask: u64, count: u32) -> Vec<WorkerPlace> {
    let offer = &state.offerings[node.offering.index()].offer;
    let place = |gpus: u64, share: u16, slice: Option<u8>| WorkerPlace { node: node.id, gpus, share, slice };
    let sliced = node.partition.is_some() && ask.each.gpus > 0;
    let share = ask.share.unwrap_or(1000);
    if sliced || (ask.each.gpus == 1 && share < 1000) {
        let mut rest = node.clone();
        let mut places = Vec::new();
        for _ in 0..count {
            let next = if sliced { slice_of(&rest, ask, mask) } else { fraction_of(state, &rest, ask, share, mask) };
            let Some((gpu, share, slice)) = next else { break };
            let slot = &mut rest.slots[gpu];
            slot.free = slot.free.saturating_sub(share);
            slot.mem_free = Mib(slot.mem_free.0.saturating_sub(part_of(state, node, ask, share).0.0));
            slot.workers += 1;
            slot.slices &= !slice.map_or(0, |at| 1 << at);
            places.push(place(1 << gpu, share, slice));
        }
        return places;
    }
    let n = u16::try_from(u64::from(ask.each.gpus) * u64::from(count)).unwrap_or(u16::MAX);
    let mut free = topology::pick(offer, whole(node) & mask, n).unwrap_or(0);
    if ask.spans {
        return alloc::vec![place(free, share, None)];
    }
    let mut worker = || {
        let gpus = topology::pick(offer, free, ask.each.gpus).unwrap_or(0);
        free &= !gpus;
        place(gpus, share, None)
    };
    (0..count).map(|_| worker()).collect()
}

/// The smallest free slice that holds a worker: GPU, what it holds, position.
fn slice_of(node: &Node, ask: &Ask<'_>, mask: u64) -> Option<(usize, u16, Option<u8>)> {
    let cuts = &node.partition.as_ref()?.slices;
    let free = |(gpu, slot): (usize, &Slot)| {
        let bits = slot.slices;
        let good = cuts.iter().enumerate().filter(move |(at, c)| bits & (1 << at) != 0 && fits(c, ask));
        good.map(move |(at, c)| (c.share, c.mem, gpu, at as u8, c.held))
    };
    let best = within(node, mask).flat_map(free).min()?;
    Some((best.2, best.4, Some(best.3)))
}

/// The fullest GPU in use with room for a share, else a fresh one.
fn fraction_of(state: &State, node: &Node, ask: &Ask<'_>, share: u16, mask: u64) -> Option<(usize, u16, Option<u8>)> {
    let (need, slices) = part_of(state, node, ask, share);
    let good = |(_, slot): &(usize, &Slot)| slot.workers > 0 && parts(slot, share, need, slices) > 0;
    let used = within(node, mask).filter(good).min_by_key(|(at, slot)| (slot.free, *at)).map(|(at, _)| at);
    let offer = &state.offerings[node.offering.index()].offer;
    let fresh = || topology::pick(offer, whole(node) & mask, 1).map(|gpu| gpu.trailing_zeros() as usize);
    Some((used.or_else(fresh)?, share, None))
}
