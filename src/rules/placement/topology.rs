//! Which GPUs are close together: groups by NVLink and NUMA within a node, racks and zones above it.
//!
//! ```text
//! 4 of 8 GPUs, NUMA groups of 4    x x . . | . . . .   ->  the second group, which the first two do not split
//! 1 of 8 GPUs                      x x . . | . . . .   ->  the first group, so that the second stays whole
//! ```
//!
//! Never: a GPU that is not free.

use crate::catalog::Offering;
use crate::ids::OfferingId;
use crate::job::Level;
use crate::state::State;
use alloc::string::String;
use alloc::vec::Vec;

/// The GPUs of each group of a level, as masks. None where nothing is known of such groups.
pub(crate) fn groups(offer: &Offering, level: Level) -> Vec<u64> {
    let size = match level {
        Level::Numa => offer.numa,
        Level::Nvlink => offer.nvlink,
        Level::Node | Level::Rack | Level::Zone => offer.gpus,
    };
    by_size(offer.gpus, size)
}

fn by_size(gpus: u16, size: u16) -> Vec<u64> {
    if size == 0 {
        return Vec::new();
    }
    let gpus = gpus.min(64);
    let group = |from: u16| first(size.min(gpus - from)) << from;
    (0..gpus).step_by(usize::from(size)).map(group).collect()
}

/// A mask of the lowest `n` bits.
fn first(n: u16) -> u64 {
    if n >= 64 { u64::MAX } else { (1 << n) - 1 }
}

/// `n` of the free GPUs: of one NVLink group if one has as many, else of one NUMA group, else of as few groups as may be. Of the groups
/// that hold them the tightest, so that whole groups stay whole. `None`: there are fewer.
pub(super) fn pick(offer: &Offering, free: u64, n: u16) -> Option<u64> {
    let gpus = offer.gpus;
    let (linked, near) = (by_size(gpus, offer.nvlink), by_size(gpus, offer.numa));
    let holds = |groups: &[u64], within: u64| tightest(groups, &near, free & within, n);
    if u32::from(n) > free.count_ones() {
        return None;
    }
    if let Some(group) = holds(&linked, u64::MAX) {
        // Within it as near as may be.
        let inner = holds(&near, group).unwrap_or(group);
        return Some(lowest(free & group & inner, n));
    }
    if let Some(group) = holds(&near, u64::MAX) {
        return Some(fewest(&linked, free & group, n));
    }
    Some(fewest(if offer.nvlink > offer.numa { &linked } else { &near }, free, n))
}

/// Whether so many free GPUs have no NVLink group in common, where there is NVLink.
pub(super) fn apart(offer: &Offering, free: u64, n: u16) -> bool {
    n > 1 && offer.nvlink > 0 && tightest(&by_size(offer.gpus, offer.nvlink), &[], free, n).is_none()
}

/// The group with the fewest free GPUs that holds `n`; of equal ones the one in the fuller NUMA group.
fn tightest(groups: &[u64], near: &[u64], free: u64, n: u16) -> Option<u64> {
    let left = |mask: u64| (free & mask).count_ones();
    let around = |mask: u64| near.iter().find(|g| **g & mask == mask).map_or(0, |g| left(*g));
    let good = groups.iter().copied().filter(|g| left(*g) >= u32::from(n));
    good.min_by_key(|g| (left(*g), around(*g), g.trailing_zeros()))
}

/// The fullest groups first, and the tightest for what is left: as few as may be.
fn fewest(groups: &[u64], free: u64, n: u16) -> u64 {
    let (mut rest, mut taken): (u64, u64) = (free, 0);
    loop {
        let wanted = n - taken.count_ones() as u16;
        if let Some(group) = tightest(groups, &[], rest, wanted) {
            return taken | lowest(rest & group, wanted);
        }
        let most = groups.iter().copied().max_by_key(|g| ((rest & g).count_ones(), g.leading_zeros()));
        match most.map(|g| rest & g).filter(|part| *part != 0) {
            Some(part) => (taken, rest) = (taken | part, rest & !part),
            None => return taken | lowest(rest, wanted),
        }
    }
}

/// The lowest `n` of the bits.
pub(super) fn lowest(bits: u64, n: u16) -> u64 {
    let (mut mask, mut left) = (0, bits);
    for _ in 0..n {
        mask |= left & left.wrapping_neg();
        left &= left.wrapping_sub(1);
    }
    mask
}

/// Offerings by their zone, in the order of the first of each.
pub(crate) fn by_zone(state: &State, offerings: &[OfferingId]) -> Vec<(Option<String>, Vec<OfferingId>)> {
    let mut zones: Vec<(Option<String>, Vec<OfferingId>)> = Vec::new();
    for id in offerings {
        let zone = &state.offerings[id.index()].offer.zone;
        match zones.iter_mut().find(|z| z.0.as_ref() == Some(zone)) {
            Some(found) => found.1.push(*id),
            None => zones.push((Some(zone.clone()), alloc::vec![*id])),
        }
    }
    zones
}
