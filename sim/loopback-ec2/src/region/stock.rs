//! What is available at which price: the market's spot stock, fixed limits, arrivals, addresses, reservations and quotas.

use forebay_kernel::catalog::CapacityType;
use forebay_kernel::units::{Span, Timestamp};
use forebay_sim::market::MarketState;

use super::{Region, before};
use crate::options::{ReservationKind, ReservationOptions};

/// Instances that share one limit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StockPool {
    pub instance_type: String,
    pub zone: String,
    pub capacity: CapacityType,
}

impl StockPool {
    pub(crate) fn new(instance_type: &str, zone: &str, capacity: CapacityType) -> StockPool {
        StockPool { instance_type: instance_type.to_owned(), zone: zone.to_owned(), capacity }
    }
}

impl Region {
    /// How many more instances of a pool are available. `None`: unlimited.
    pub(crate) fn left(&self, pool: &StockPool) -> Option<u32> {
        let bound = self.market_bound(pool).into_iter().chain(self.fixed_bound(pool)).min()?;
        Some(bound.saturating_sub(self.existing.get(pool).copied().unwrap_or(0)))
    }

    /// The most instances of a pool by the market.
    pub(super) fn market_bound(&self, pool: &StockPool) -> Option<u32> {
        if pool.capacity != CapacityType::Spot {
            return None;
        }
        self.market_state(&pool.instance_type, &pool.zone).nodes(self.options.depth)
    }

    fn fixed_bound(&self, pool: &StockPool) -> Option<u32> {
        if let Some(bound) = self.stock_overrides.get(pool) {
            return *bound;
        }
        let same = |t: &str, z: &str, c| pool.instance_type == t && pool.zone == z && pool.capacity == c;
        let fixed = self.options.stock.iter().find(|s| same(&s.instance_type, &s.zone, s.capacity));
        let mut arrivals =
            self.options.arrivals.iter().filter(|a| same(&a.instance_type, &a.zone, a.capacity)).peekable();
        if fixed.is_none() && arrivals.peek().is_none() {
            return None;
        }
        let arrived = arrivals.filter(|a| a.at <= self.now).map(|a| a.count);
        Some(arrived.fold(fixed.map_or(0, |s| s.count), u32::saturating_add))
    }

    /// The present spot price of a (type, zone), in micro-dollars per hour: the mean times the factor of the market, rounded up, at most the
    /// on-demand price. It is 0 for an unknown type.
    #[must_use]
    pub fn spot_price(&self, instance_type: &str, zone: &str) -> u64 {
        let Some(row) = self.types.get(instance_type) else { return 0 };
        let permille = u64::from(self.market_state(instance_type, zone).price_permille);
        let moved = row.spot_micros_per_hour().saturating_mul(permille).div_ceil(1000);
        moved.min(row.on_demand_micros_per_hour)
    }

    fn market_state(&self, instance_type: &str, zone: &str) -> MarketState {
        let pair = self.pair(instance_type, zone);
        pair.map_or(MarketState::CALM, |ix| self.options.market.state_at(ix, self.now.since(self.options.origin).0))
    }

    pub(super) fn pair(&self, instance_type: &str, zone: &str) -> Option<usize> {
        // The map has owned keys.
        self.pairs.get(&(instance_type.to_owned(), zone.to_owned())).copied()
    }

    /// When the state of a market pair changes next.
    pub(super) fn market_changes(&self, pair: usize) -> Option<Timestamp> {
        let next = self.options.market.next_change_after(pair, self.now.since(self.options.origin).0)?;
        Some(self.options.origin + Span(next)).filter(|at| *at > self.now)
    }

    /// The vCPUs that are left of a quota. `None`: no quota.
    pub(super) fn quota_left(&self, capacity: CapacityType) -> Option<u64> {
        let used = |kind| self.vcpus.get(&kind).copied().unwrap_or(0);
        let quotas = self.options.quotas;
        match capacity {
            CapacityType::Spot => quotas.spot.map(|most| most.saturating_sub(used(CapacityType::Spot))),
            CapacityType::OnDemand | CapacityType::Reserved | CapacityType::Owned => {
                let both = used(CapacityType::OnDemand).saturating_add(used(CapacityType::Reserved));
                quotas.on_demand.map(|most| most.saturating_sub(both))
            }
        }
    }

    /// The free addresses of a subnet.
    pub(crate) fn free_addresses(&self, subnet: &str) -> Option<u32> {
        let free = self.options.subnets.iter().find(|s| s.id == subnet)?.free;
        Some(free.saturating_sub(self.addresses.get(subnet).copied().unwrap_or(0)))
    }

    /// The free instances of a reservation. A Capacity Block has none shortly before its end.
    pub(crate) fn reservation_left(&self, reservation: &ReservationOptions) -> u32 {
        if matches!(reservation.kind, ReservationKind::Block { ends } if self.now >= before(ends, super::changes::BLOCK_RECLAIM_LEAD))
        {
            return 0;
        }
        reservation.count.saturating_sub(self.in_reservation.get(&reservation.id).copied().unwrap_or(0))
    }

    /// Sets the most instances of a pool that may exist, in place of the options. `None`: no limit. Existing instances stay.
    pub fn set_stock(&mut self, instance_type: &str, zone: &str, capacity: CapacityType, most: Option<u32>) {
        self.stock_overrides.insert(StockPool::new(instance_type, zone, capacity), most);
    }
}
