//! Plans a fleet: how many instances of which override, by the allocation strategy, with one type or one zone if requested, and at least the
//! minimum or none.

use forebay_kernel::catalog::CapacityType;

use crate::fault::Ec2Fault;
use crate::region::{Availability, LaunchSpec, Planned, Region};

/// The allocation strategy.
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

/// The request for one capacity type.
#[derive(Clone, Copy, Debug)]
pub(super) struct FleetTerms {
    pub target: u32,
    /// Nothing is launched below this number.
    pub least: u32,
    pub single_type: bool,
    pub single_zone: bool,
    pub strategy: Strategy,
}

/// An override with what determines its rank.
#[derive(Clone, Debug)]
pub(super) struct Ranked {
    pub ix: usize,
    pub spec: LaunchSpec,
    availability: Result<Availability, Ec2Fault>,
    price: u64,
    priority: u64,
}

impl Ranked {
    pub(super) fn new(region: &Region, ix: usize, spec: LaunchSpec, priority: Option<u64>) -> Ranked {
        let price = match spec.capacity {
            CapacityType::Spot => region.spot_price(&spec.instance_type, &spec.zone),
            _ => region.types.get(&spec.instance_type).map_or(0, |row| row.on_demand_micros_per_hour),
        };
        let availability = region.availability(&spec, &Planned::default());
        // An override without a priority comes last.
        Ranked { ix, spec, availability, price, priority: priority.unwrap_or(u64::MAX) }
    }

    fn most(&self) -> u32 {
        self.availability.as_ref().map_or(0, |availability| availability.most)
    }

    /// The sort key. The order of the request decides between equals.
    fn key(&self, terms: &FleetTerms) -> (u64, u64, usize) {
        let scarce = u64::from(u32::MAX - self.most());
        match terms.strategy {
            Strategy::LowestPrice | Strategy::Even => (self.price, 0, self.ix),
            Strategy::Prioritized => (self.priority, 0, self.ix),
            Strategy::MostStock => (scarce, self.price, self.ix),
            Strategy::PriceAndStock => (u64::from(self.most() < terms.target), self.price, self.ix),
        }
    }

    /// The type and zone that the overrides of a group share, where that is requested.
    fn group(&self, terms: &FleetTerms) -> (&str, &str) {
        (
            if terms.single_type { &self.spec.instance_type } else { "" },
            if terms.single_zone { &self.spec.zone } else { "" },
        )
    }
}

/// The number of instances by override, and the faults of those with fewer than requested.
#[derive(Clone, Debug, Default)]
pub(super) struct FleetPlan {
    pub counts: Vec<(usize, u32)>,
    pub short: Vec<(usize, Ec2Fault)>,
    total: u32,
}

/// The first group in the order of the strategy that fills the target, or else the one with the most instances. It is empty below the minimum.
pub(super) fn plan(region: &Region, overrides: &[Ranked], terms: &FleetTerms) -> FleetPlan {
    let mut ranked: Vec<&Ranked> = overrides.iter().collect();
    ranked.sort_by_key(|r| r.key(terms));
    let mut groups: Vec<(&str, &str)> = Vec::new();
    for one in &ranked {
        if !groups.contains(&one.group(terms)) {
            groups.push(one.group(terms));
        }
    }
    let mut best = FleetPlan::default();
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
        for (ix, end_reason) in &mut best.short {
            if overrides.iter().any(|r| r.ix == *ix && r.most() > 0) {
                *end_reason = unfulfillable();
            }
        }
    }
    best.short.sort_by_key(|(ix, _)| *ix);
    best
}

/// Fills one override after the other.
fn greedy(region: &Region, group: &[&Ranked], terms: &FleetTerms) -> FleetPlan {
    let (mut plan, mut planned) = (FleetPlan::default(), Planned::default());
    for one in group {
        let rest = terms.target - plan.total;
        if rest == 0 {
            break;
        }
        match region.availability(&one.spec, &planned) {
            Ok(availability) => {
                let count = availability.most.min(rest);
                planned.add(region, &one.spec, count);
                plan.take(one.ix, count);
                if count < rest {
                    plan.short.push((one.ix, availability.short));
                }
            }
            Err(fault) => plan.short.push((one.ix, fault)),
        }
    }
    plan
}

/// Fills the overrides in turns with one instance each.
fn even(region: &Region, group: &[&Ranked], terms: &FleetTerms) -> FleetPlan {
    let (mut plan, mut planned) = (FleetPlan::default(), Planned::default());
    let mut open: Vec<&Ranked> = group.to_vec();
    while plan.total < terms.target && !open.is_empty() {
        open.retain(|one| {
            if plan.total == terms.target {
                return true;
            }
            let fault = match region.availability(&one.spec, &planned) {
                Ok(availability) if availability.most > 0 => {
                    planned.add(region, &one.spec, 1);
                    plan.take(one.ix, 1);
                    return true;
                }
                Ok(availability) => availability.short,
                Err(fault) => fault,
            };
            plan.short.push((one.ix, fault));
            false
        });
    }
    plan
}

impl FleetPlan {
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

fn unfulfillable() -> Ec2Fault {
    let message =
        "Unable to fulfill capacity due to your request configuration. Please adjust your request and try again.";
    Ec2Fault::new(400, "UnfulfillableCapacity", message)
}
