//! Places for a gang: as close together as it asks, and otherwise over as few domains as hold it.
//!
//! ```text
//! one NVLink group -> one node -> one rack -> one zone -> anywhere      the first that holds it
//! within a domain: one node for all that is left, the tightest; else the node that holds the most
//! ```
//!
//! An elastic gang takes as many workers as it may first, unless it prefers to stay together. Never: a part of a gang.

use super::one::one;
use super::room::{carve, units};
use super::{Ask, ranks, topology};
use crate::effect::WorkerPlace;
use crate::ids::{NodeId, OfferingId, PurchaseId, RackId};
use crate::job::{Level, TopologyConstraint, WorkerAsk};
use crate::state::State;
use crate::state::nodes::Node;
use crate::units::{Mib, MilliCpu, Rate};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// A node and how many workers it takes.
struct Spot<'a> {
    node: &'a Node,
    rank: u8,
    price: Rate,
    zone: &'a str,
    units: u32,
}

/// So many workers on these GPUs of a node.
type Part<'a> = (&'a Node, u64, u32);

/// A way to place a gang and how good it is: the least is best.
struct Way<'a> {
    key: (core::cmp::Reverse<u32>, u8, usize, u32, Rate, NodeId),
    parts: Vec<Part<'a>>,
}

/// Levels from the nearest on. `None`: anywhere.
const LEVELS: [Option<Level>; 6] =
    [Some(Level::Numa), Some(Level::Nvlink), Some(Level::Node), Some(Level::Rack), Some(Level::Zone), None];

/// How many workers a gang has.
#[derive(Clone, Copy)]
pub(super) struct Size {
    pub min: u32,
    pub max: u32,
}

/// Places for a gang of this size.
pub(super) fn together(
    state: &State,
    offerings: &[OfferingId],
    ask: &Ask<'_>,
    size: Size,
    within: Option<TopologyConstraint>,
) -> Option<Vec<WorkerPlace>> {
    let within = within.map(|w| TopologyConstraint { level: clear(ask, w.level), ..w });
    if let Some(places) = on_one_node(state, offerings, ask, size, within) {
        return Some(places);
    }
    let spots = spots(state, offerings, ask);
    if sum(&spots) < u64::from(size.min) {
        return None;
    }
    let asked = within.and_then(|w| at(state, &spots, ask, Some(w.level), size));
    let widest = match (asked, within) {
        (Some(way), Some(w)) => (way, Some(w.level)),
        (None, Some(w)) if w.required => return None,
        _ => (at(state, &spots, ask, None, size)?, None),
    };
    let count = widest.0.key.0.0;
    let nearest = within.filter(|w| w.level == Level::Numa).map_or(Level::Nvlink, |w| w.level);
    let nearer = LEVELS.into_iter().filter(|l| l.is_some_and(|l| l >= nearest)).take_while(|l| *l != widest.1);
    let way = nearer
        .filter_map(|level| at(state, &spots, ask, level, Size { min: count, max: count }))
        .next()
        .unwrap_or(widest.0);
    let places = way.parts.into_iter().flat_map(|(node, mask, count)| carve(state, node, ask, mask, count));
    Some(places.collect())
}

/// How many workers there is room for beside some nodes, up to `most`.
pub(super) fn room(state: &State, offerings: &[OfferingId], ask: &Ask<'_>, most: u32, gone: &[NodeId]) -> u32 {
    u32::try_from(sum(&beside(state, offerings, ask, gone)).min(u64::from(most))).unwrap_or(most)
}

/// Free places for so many workers at most beside some nodes, on the fewest that have them.
pub(super) fn part(
    state: &State,
    offerings: &[OfferingId],
    ask: &Ask<'_>,
    most: u32,
    gone: &[NodeId],
) -> Vec<WorkerPlace> {
    let mut spots = beside(state, offerings, ask, gone);
    spots.sort_by_key(|spot| (core::cmp::Reverse(spot.units), spot.node.id));
    let mut left = most;
    let mut places = Vec::new();
    for spot in spots {
        let count = spot.units.min(left);
        left -= count;
        if count > 0 {
            places.extend(carve(state, spot.node, ask, u64::MAX, count));
        }
    }
    places
}

fn beside<'a>(state: &'a State, offerings: &[OfferingId], ask: &Ask<'_>, gone: &[NodeId]) -> Vec<Spot<'a>> {
    let mut spots = spots(state, offerings, ask);
    spots.retain(|spot| !gone.contains(&spot.node.id));
    spots
}

fn sum(spots: &[Spot<'_>]) -> u64 {
    spots.iter().map(|s| u64::from(s.units)).sum()
}

/// GPU groups mean nothing to work without GPUs.
fn clear(ask: &Ask<'_>, level: Level) -> Level {
    if ask.each.gpus == 0 { level.max(Level::Node) } else { level }
}

/// A gang of whole GPUs on one node is looked up like one worker that asks as much.
fn on_one_node(
    state: &State,
    offerings: &[OfferingId],
    ask: &Ask<'_>,
    Size { min, max }: Size,
    within: Option<TopologyConstraint>,
) -> Option<Vec<WorkerPlace>> {
    let gpus = u64::from(ask.each.gpus) * u64::from(min);
    let simple = min == max && ask.share == Some(1000) && ask.slice.is_none() && ask.service.is_none();
    if !simple || gpus == 0 || gpus > 64 {
        return None;
    }
    let each = WorkerAsk {
        gpus: gpus as u16,
        cpu: MilliCpu(ask.each.cpu.0.saturating_mul(u64::from(min))),
        mem: Mib(ask.each.mem.0.saturating_mul(u64::from(min))),
        ..ask.each
    };
    let all = Ask { each, ..*ask };
    let close = within.filter(|w| w.level <= Level::Nvlink);
    let near = close.and_then(|w| one(state, offerings, &Ask { group: Some(w.level), ..all }));
    let far = || if close.is_some_and(|w| w.required) { None } else { one(state, offerings, &all) };
    let place = near.or_else(far)?;
    let node = state.nodes.get(&place.node)?;
    Some(carve(state, node, ask, place.gpus, min))
}

/// The nodes that take a worker at all.
fn spots<'a>(state: &'a State, offerings: &[OfferingId], ask: &Ask<'_>) -> Vec<Spot<'a>> {
    let mut spots = Vec::new();
    // Nodes without a free GPU are passed over where whole ones are asked for.
    let least = if ask.share == Some(1000) && ask.slice.is_none() { ask.each.gpus } else { 0 };
    for id in offerings {
        let Some(free) = state.index.free.get(&(ask.pool, *id)) else {
            continue;
        };
        let offer = &state.offerings[id.index()].offer;
        for rank in ranks(ask.scope) {
            for (_, _, id) in free.whole.range((rank, least, NodeId(0))..(rank + 1, 0, NodeId(0))) {
                let Some(node) = state.nodes.get(id) else { continue };
                let units = units(state, node, ask, u64::MAX);
                if units > 0 {
                    spots.push(Spot { node, rank, price: offer.price, zone: &offer.zone, units });
                }
            }
        }
    }
    spots
}

/// The best way within one domain of a level.
fn at<'a>(state: &State, spots: &[Spot<'a>], ask: &Ask<'_>, level: Option<Level>, size: Size) -> Option<Way<'a>> {
    let ways: Vec<Way<'a>> = match level {
        Some(level @ (Level::Numa | Level::Nvlink)) => {
            spots.iter().flat_map(|spot| in_groups(state, spot, ask, level, size)).collect()
        }
        Some(Level::Node) => spots.iter().filter_map(|spot| on_node(spot, size)).collect(),
        Some(Level::Rack) => racks(spots).iter().filter_map(|domain| fill(domain, size)).collect(),
        Some(Level::Zone) => zones(spots).iter().filter_map(|domain| fill(domain, size)).collect(),
        None => fill(&spots.iter().collect::<Vec<_>>(), size).into_iter().collect(),
    };
    ways.into_iter().min_by_key(|way| way.key)
}

fn on_node<'a>(spot: &Spot<'a>, size: Size) -> Option<Way<'a>> {
    (spot.units >= size.min).then(|| whole_way(spot, u64::MAX, spot.units, size.max))
}

fn in_groups<'a>(state: &State, spot: &Spot<'a>, ask: &Ask<'_>, level: Level, size: Size) -> Vec<Way<'a>> {
    let offer = &state.offerings[spot.node.offering.index()].offer;
    let groups = topology::groups(offer, level);
    if groups.is_empty() && ask.each.gpus <= 1 && size.min <= 1 {
        // One GPU is a group of its own, and two are not known to be one.
        return alloc::vec![whole_way(spot, u64::MAX, spot.units, 1)];
    }
    let way = |mask: u64| {
        let units = units(state, spot.node, ask, mask);
        (units >= size.min).then(|| whole_way(spot, mask, units, size.max))
    };
    groups.into_iter().filter_map(way).collect()
}

fn whole_way<'a>(spot: &Spot<'a>, mask: u64, units: u32, most: u32) -> Way<'a> {
    let taken = units.min(most);
    let key = (core::cmp::Reverse(taken), spot.rank, 1, units - taken, spot.price, spot.node.id);
    Way { key, parts: alloc::vec![(spot.node, mask, taken)] }
}

/// Nodes of one rack: of one name, or of one placement group. A node of neither is its own.
fn racks<'a, 's>(spots: &'s [Spot<'a>]) -> Vec<Vec<&'s Spot<'a>>> {
    let mut named: BTreeMap<RackId, Vec<&Spot<'a>>> = BTreeMap::new();
    let mut grouped: BTreeMap<PurchaseId, Vec<&Spot<'a>>> = BTreeMap::new();
    let mut own = Vec::new();
    for spot in spots {
        if let Some(rack) = spot.node.rack {
            named.entry(rack).or_default().push(spot);
        }
        if spot.node.cluster {
            grouped.entry(spot.node.purchase).or_default().push(spot);
        }
        if spot.node.rack.is_none() && !spot.node.cluster {
            own.push(alloc::vec![spot]);
        }
    }
    named.into_values().chain(grouped.into_values()).chain(own).collect()
}

fn zones<'a, 's>(spots: &'s [Spot<'a>]) -> Vec<Vec<&'s Spot<'a>>> {
    let mut zones: BTreeMap<&str, Vec<&Spot<'a>>> = BTreeMap::new();
    for spot in spots {
        zones.entry(spot.zone).or_default().push(spot);
    }
    zones.into_values().collect()
}

/// A gang over the fewest nodes of a domain.
fn fill<'a>(domain: &[&Spot<'a>], Size { min, max }: Size) -> Option<Way<'a>> {
    let total: u64 = domain.iter().map(|s| u64::from(s.units)).sum();
    let goal = u32::try_from(total.min(u64::from(max))).unwrap_or(max);
    if goal < min {
        return None;
    }
    // The fullest first: as long as none holds all that is left, the one with the most room is next.
    let mut order: Vec<&Spot<'a>> = domain.to_vec();
    order.sort_unstable_by_key(|s| (core::cmp::Reverse(s.units), s.rank, s.price, s.node.id));
    let (mut parts, mut left, mut rank, mut at) = (Vec::new(), goal, 0, 0);
    while left > 0 {
        let rest = order.get(at..)?;
        let holds = rest.iter().filter(|s| s.units >= left);
        let last = holds.min_by_key(|s| (s.rank, s.units, s.price, s.node.id));
        let spot = last.or_else(|| rest.first())?;
        let taken = spot.units.min(left);
        parts.push((spot.node, u64::MAX, taken));
        rank = rank.max(spot.rank);
        left -= taken;
        at += 1;
    }
    let price = order.first().map_or(Rate(0), |s| s.price);
    let room = u32::try_from(total - u64::from(goal)).unwrap_or(u32::MAX);
    let key = (core::cmp::Reverse(goal), rank, parts.len(), room, price, parts.first()?.0.id);
    Some(Way { key, parts })
}
