//! How many of which override: the order of the strategy, one type or one zone where asked, the minimum or nothing.
//!
//! Never: a launch. A plan is counts and reasons.

use forebay_engine::catalog::CapacityType;

use crate::refusal::Refusal;
use crate::region::{Bid, Planned, Region, Room};

/// In which order overrides are filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strategy {
    LowestPrice,
    Prioritized,
    MostStock,
    PriceAndStock,
    Even,
}

impl Strategy {
    pub(super) fn read(name: &str, spot: bool) -> Option<Strategy> {
        match name {
            "lowest-price" => Some(Strategy::LowestPrice),
            "prioritized" if !spot => Some(Strategy::Prioritized),
            "diversified" if spot => Some(Strategy::Even),
            "capacity-optimized" if spot => Some(Strategy::MostStock),
            "capacity-optimized-prioritized" if spot => Some(Strategy::Prioritized),
            "price-capacity-optimized" if spot => Some(Strategy::PriceAndStock),
            _ => None,
        }
    }
}

/// What is asked of one kind of capacity.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub target: u32,
    /// Nothing is launched below it.
    pub least: u32,
    pub single_type: bool,
    pub single_zone: bool,
    pub strategy: Strategy,
}

/// An override with what decides its place.
#[derive(Clone, Debug)]
pub(super) struct Ranked {
    pub ix: usize,
    pub bid: Bid,
    room: Result<Room, Refusal>,
    price: u64,
    priority: u64,
}

impl Ranked {
    pub(super) fn new(region: &Region, ix: usize, bid: Bid, priority: Option<u64>) -> Ranked {
        let price = match bid.capacity {
            CapacityType::Spot => region.spot_price(&bid.instance_type, &bid.zone),
            _ => region.types.get(&bid.instance_type).map_or(0, |row| row.on_demand_micros_per_hour),
        };
        let room = region.room(&bid, &Planned::default());
        // Without a priority it comes after all that have one.
        Ranked { ix, bid, room, price, priority: priority.unwrap_or(u64::MAX) }
    }

    fn most(&self) -> u32 {
        self.room.as_ref().map_or(0, |room| room.most)
    }

    /// What is sorted by, lowest first; the request's order decides between equals.
    fn key(&self, terms: &Terms) -> (u64, u64, usize) {
        let scarce = u64::from(u32::MAX - self.most());
        match terms.strategy {
            Strategy::LowestPrice | Strategy::Even => (self.price, 0, self.ix),
            Strategy::Prioritized => (self.priority, 0, self.ix),
            Strategy::MostStock => (scarce, self.price, self.ix),
            Strategy::PriceAndStock => (u64::from(self.most() < terms.target), self.price, self.ix),
        }
    }

    /// What an override shares with those that may be launched together with it.
    fn group(&self, terms: &Terms) -> (&str, &str) {
        (
            if terms.single_type { &self.bid.instance_type } else { "" },
            if terms.single_zone { &self.bid.zone } else { "" },
        )
    }
}

/// How many of which override, and for which there were fewer than asked.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    pub counts: Vec<(usize, u32)>,
    pub short: Vec<(usize, Refusal)>,
    total: u32,
}

/// The first group in the strategy's order that fills the target, or else the one that comes nearest; nothing where that is below
/// the minimum.
pub(super) fn plan(region: &Region, overrides: &[Ranked], terms: &Terms) -> Plan {
    let mut ranked: Vec<&Ranked> = overrides.iter().collect();
    ranked.sort_by_key(|r| r.key(terms));
    let mut groups: Vec<(&str, &str)> = Vec::new();
    for one in &ranked {
        if !groups.contains(&one.group(terms)) {
            groups.push(one.group(terms));
        }
    }
    let mut best = Plan::default();
    let mut short = Vec::new();
    for group in groups {
        let of_group: Vec<&Ranked> = ranked.iter().copied().filter(|r| r.group(terms) == group).collect();
        let plan = if terms.strategy == Strategy::Even {
            even(region, &of_group, terms)
        } else {
            greedy(region, &of_group, terms)
        };
        short.extend(plan.short.clone());
        if plan.total > best.total {
            best = plan;
        }
        if best.total >= terms.target {
            break;
        }
    }
    best.short = short;
    if best.total < terms.least {
        best.counts.clear();
        for (ix, why) in &mut best.short {
            if overrides.iter().any(|r| r.ix == *ix && r.most() > 0) {
                *why = unfulfillable();
            }
        }
    }
    best.short.sort_by_key(|(ix, _)| *ix);
    best
}

/// As much as there is of each in turn.
fn greedy(region: &Region, group: &[&Ranked], terms: &Terms) -> Plan {
    let (mut plan, mut planned) = (Plan::default(), Planned::default());
    for one in group {
        let rest = terms.target - plan.total;
        if rest == 0 {
            break;
        }
        match region.room(&one.bid, &planned) {
            Ok(room) => {
                let count = room.most.min(rest);
                planned.add(region, &one.bid, count);
                plan.take(one.ix, count);
                if count < rest {
                    plan.short.push((one.ix, room.short));
                }
            }
            Err(refusal) => plan.short.push((one.ix, refusal)),
        }
    }
    plan
}

/// One of each in turn, round and round.
fn even(region: &Region, group: &[&Ranked], terms: &Terms) -> Plan {
    let (mut plan, mut planned) = (Plan::default(), Planned::default());
    let mut open: Vec<&Ranked> = group.to_vec();
    while plan.total < terms.target && !open.is_empty() {
        open.retain(|one| {
            if plan.total == terms.target {
                return true;
            }
            let refusal = match region.room(&one.bid, &planned) {
                Ok(room) if room.most > 0 => {
                    planned.add(region, &one.bid, 1);
                    plan.take(one.ix, 1);
                    return true;
                }
                Ok(room) => room.short,
                Err(refusal) => refusal,
            };
            plan.short.push((one.ix, refusal));
            false
        });
    }
    plan
}

impl Plan {
    fn take(&mut self, ix: usize, count: u32) {
        if count == 0 {
            return;
        }
        self.total += count;
        match self.counts.iter_mut().find(|(of, _)| *of == ix) {
            Some((_, n)) => *n += count,
            None => self.counts.push((ix, count)),
        }
    }
}

fn unfulfillable() -> Refusal {
    let message =
        "Unable to fulfill capacity due to your request configuration. Please adjust your request and try again.";
    Refusal::new(400, "UnfulfillableCapacity", message)
}
