//! The world's own billing: what the cloud would bill for each instance, at the prices that it announced, and what work was lost.
//! Kept apart from the engine's ledger, so that one can be checked against the other to the millisecond.
//!
//! Never: reads the engine's state. Never rounds.

use forebay_kernel::catalog::{CapacityType, Offering};
use forebay_kernel::ids::OfferingId;
use forebay_kernel::units::{GpuTime, MilliGpu, Rate, Span, Spend, Timestamp};

/// Time and money of instances of one capacity type, from launch to gone; of owned nodes, for as long as they are there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bill {
    /// Node time.
    pub node_time: Span,
    /// GPU time of all GPUs.
    pub gpu_time: GpuTime,
    /// What it cost.
    pub cost: Spend,
    /// What it would have cost at the on-demand price.
    pub cost_on_demand: Spend,
}

/// An offering and the prices at which it could be had.
#[derive(Clone, Debug)]
struct Line {
    capacity: CapacityType,
    gpus: u16,
    on_demand: Rate,
    /// Each price with the time from which it held.
    prices: Vec<(Timestamp, Rate)>,
}

/// All bills, and what was counted beside them.
#[derive(Clone, Debug, Default)]
pub struct Billing {
    lines: Vec<Line>,
    bills: [Bill; 4],
    /// Instances that exist now.
    pub instances: u64,
    /// The most that existed at once.
    pub instances_peak: u64,
    /// Times that the last one went.
    pub times_at_zero: u64,
    /// Instances that were ever launched.
    pub launched: u64,
    /// Instances that the cloud took back, or announced to take and we gave back first.
    pub reclaims: u64,
    /// Of these, how many without a warning.
    pub unwarned: u64,
    /// Runs that were under way on an instance when the cloud took it back.
    pub reclaimed_runs: u64,
    /// Work done since the last verified checkpoint by runs that ended before their job did.
    pub lost: GpuTime,
    /// Of this, by runs that were under way on an instance when the cloud took it back.
    pub lost_to_reclaims: GpuTime,
    /// True GPU activity of runs whose truth states it.
    pub busy: GpuTime,
    /// Times that the jobs on a GPU needed more memory than it has.
    pub out_of_memory: u64,
    /// GPU time held by runs whose work was done.
    pub lingering: GpuTime,
    /// Runs that were started.
    pub runs: u64,
    /// Runs that brought their job to its end.
    pub completions: u64,
}

impl Billing {
    /// The bill of a capacity type.
    #[must_use]
    pub fn of(&self, capacity: CapacityType) -> &Bill {
        &self.bills[capacity as usize]
    }

    /// All bills together.
    #[must_use]
    pub fn all(&self) -> Bill {
        self.bills.iter().fold(Bill::default(), |mut sum, bill| {
            sum.node_time += bill.node_time;
            sum.gpu_time += bill.gpu_time;
            sum.cost += bill.cost;
            sum.cost_on_demand += bill.cost_on_demand;
            sum
        })
    }

    /// GPU time of what was bought: owned nodes are there anyway.
    #[must_use]
    pub fn bought(&self) -> GpuTime {
        GpuTime(self.all().gpu_time.0 - self.of(CapacityType::Owned).gpu_time.0)
    }

    /// The lowest price at which an offering was ever to be had.
    #[must_use]
    pub fn cheapest(&self, offering: OfferingId) -> Option<Rate> {
        self.lines.get(offering.index())?.prices.iter().map(|(_, price)| *price).min()
    }

    pub(super) fn know(&mut self, at: Timestamp, offer: &Offering) {
        let prices = vec![(at, offer.price)];
        self.lines.push(Line { capacity: offer.capacity, gpus: offer.gpus, on_demand: offer.on_demand, prices });
    }

    pub(super) fn reprice(&mut self, at: Timestamp, offering: OfferingId, price: Rate) {
        if let Some(line) = self.lines.get_mut(offering.index()) {
            line.prices.push((at, price));
        }
    }

    pub(super) fn launched(&mut self) {
        self.launched += 1;
        self.instances += 1;
        self.instances_peak = self.instances_peak.max(self.instances);
    }

    /// An instance that existed from `from` to `to` is billed and gone.
    pub(super) fn gone(&mut self, offering: OfferingId, from: Timestamp, to: Timestamp) {
        self.bill(offering, from, to);
        self.instances = self.instances.saturating_sub(1);
        self.times_at_zero += u64::from(self.instances == 0);
    }

    pub(super) fn bill(&mut self, offering: OfferingId, from: Timestamp, to: Timestamp) {
        let Some(line) = self.lines.get(offering.index()) else { return };
        let span = to.since(from);
        let bill = &mut self.bills[line.capacity as usize];
        bill.node_time += span;
        bill.gpu_time += MilliGpu::whole(u64::from(line.gpus)).over(span);
        bill.cost_on_demand += line.on_demand.over(span);
        let first = line.prices.partition_point(|(at, _)| *at <= from).saturating_sub(1);
        let mut until = line.prices.iter().skip(first + 1).map(|(at, _)| *at);
        for (at, price) in line.prices.iter().skip(first) {
            let end = until.next().unwrap_or(Timestamp::NEVER).min(to);
            bill.cost += price.over(end.since((*at).max(from)));
            if end == to {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_kernel::units::{Mib, MilliCpu};

    fn spot() -> Offering {
        Offering {
            instance_type: "x.large".into(),
            zone: "a".into(),
            capacity: CapacityType::Spot,
            gpus: 2,
            gpu_mem: Mib(1),
            models: Vec::new(),
            cpu: MilliCpu(1),
            mem: Mib(1),
            price: Rate(100),
            max_price: Rate(1000),
            on_demand: Rate(300),
            boot: Span::secs(1),
            nvlink: 0,
            numa: 0,
        }
    }

    #[test]
    fn an_instance_is_billed_at_each_price_for_as_long_as_it_held() {
        let mut billing = Billing::default();
        billing.know(Timestamp(0), &spot());
        billing.reprice(Timestamp(1000), OfferingId(0), Rate(200));
        billing.reprice(Timestamp(3000), OfferingId(0), Rate(50));
        billing.launched();
        billing.gone(OfferingId(0), Timestamp(500), Timestamp(3500));
        let bill = billing.of(CapacityType::Spot);
        assert_eq!(bill.cost, Spend(500 * 100 + 2000 * 200 + 500 * 50));
        assert_eq!(bill.node_time, Span(3000));
        assert_eq!(bill.gpu_time, GpuTime(2000 * 3000));
        assert_eq!(bill.cost_on_demand, Spend(3000 * 300));
        assert_eq!((billing.instances, billing.instances_peak, billing.times_at_zero), (0, 1, 1));
        assert_eq!(billing.cheapest(OfferingId(0)), Some(Rate(50)));
    }

    #[test]
    fn an_instance_that_ends_before_the_next_price_never_sees_it() {
        let mut billing = Billing::default();
        billing.know(Timestamp(0), &spot());
        billing.reprice(Timestamp(1000), OfferingId(0), Rate(200));
        billing.bill(OfferingId(0), Timestamp(0), Timestamp(1000));
        assert_eq!(billing.all().cost, Spend(1000 * 100));
    }
}
