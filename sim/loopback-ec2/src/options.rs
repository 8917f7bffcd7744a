//! The options of a region: its seed, market, stock and faults, and the resources of the account. The default is a calm region.
//!
//! Options do not change while the region exists. Methods of [`crate::Region`] change it from a test.

use std::collections::BTreeSet;

use forebay_catalog::PriceRow;
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::units::{Span, Timestamp};
use forebay_sim::market::Market;
use forebay_sim::world::Stock;

/// The options of a region.
#[derive(Clone, Debug)]
pub struct RegionOptions {
    /// The seed of all random draws.
    pub seed: u64,
    /// The time at which the market and the region begin.
    pub origin: Timestamp,
    /// The name of the region, such as `us-east-1`.
    pub name: String,
    /// The zones. The first is used for a request without one.
    pub zones: Vec<String>,
    /// The account id, 12 digits.
    pub account: String,
    /// The instance types with their prices.
    pub types: Vec<PriceRow>,
    /// Spot stock and spot prices over time. They are constant for pairs that it does not have.
    pub market: Market,
    /// The most spot instances of a (type, zone) at full availability. `None`: unlimited at full availability, 400 below it.
    pub depth: Option<u32>,
    /// Further limits on the instances of some (type, zone, capacity type).
    pub stock: Vec<Stock>,
    /// Additional stock over time, on top of `stock`, or of 0 where `stock` has no limit.
    pub arrivals: Vec<StockArrival>,
    /// The vCPU quotas of the account.
    pub quotas: VcpuQuotas,
    /// Whether calls above EC2's rate limits are refused.
    pub rate_limits: bool,
    /// Periods in which every call is throttled.
    pub throttled: Vec<(Timestamp, Timestamp)>,
    /// The share of calls that fail with a server error and have no effect, in 1/1000.
    pub server_error_permille: u16,
    /// The share of calls whose connection closes before they have an effect, in 1/1000.
    pub lost_before_permille: u16,
    /// The share of calls that take effect and have no response, in 1/1000.
    pub lost_after_permille: u16,
    /// `DescribeInstances` returns each instance as it was up to this long ago, drawn for each call and instance.
    pub max_staleness: Span,
    /// The mean time from pending to running. It is drawn from 20 % less to 50 % more.
    pub boot_time: Span,
    /// The mean time from shutting-down to terminated, drawn the same way.
    pub shutdown_time: Span,
    /// Periods in which launched instances fail to boot, as with a disk key that they may not use.
    pub failed_boots: Vec<(Timestamp, Timestamp)>,
    /// The share of instances that stay pending forever, in 1/1000.
    pub hanging_boot_permille: u16,
    /// The share of reclaims by the market with a warning two minutes ahead, in 1/1000.
    pub warning_permille: u16,
    /// The share of these with a rebalance recommendation too, in 1/1000.
    pub rebalance_permille: u16,
    /// Whether there is a message for each state change of an instance.
    pub state_messages: bool,
    /// Reserved capacity.
    pub reservations: Vec<ReservationOptions>,
    /// The subnets of the VPC.
    pub subnets: Vec<Subnet>,
    /// The launch templates.
    pub launch_templates: Vec<LaunchTemplate>,
    /// The actions that the caller is not permitted.
    pub denied: BTreeSet<String>,
}

/// Additional stock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StockArrival {
    /// When it becomes available.
    pub at: Timestamp,
    /// The instance type.
    pub instance_type: String,
    /// The zone.
    pub zone: String,
    /// The capacity type, spot or on-demand.
    pub capacity: CapacityType,
    /// How many instances.
    pub count: u32,
}

/// The quotas of an account in vCPUs, over all instance types. `None`: no quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VcpuQuotas {
    /// For on-demand and reserved capacity.
    pub on_demand: Option<u64>,
    /// For spot.
    pub spot: Option<u64>,
}

/// Reserved capacity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservationOptions {
    /// `cr-` with 17 hex digits.
    pub id: String,
    /// The instance type.
    pub instance_type: String,
    /// The zone.
    pub zone: String,
    /// For how many instances.
    pub count: u32,
    /// Whether it is a Capacity Block.
    pub kind: ReservationKind,
}

/// The kind of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservationKind {
    /// A targeted On-Demand Capacity Reservation without an end.
    OnDemand,
    /// A Capacity Block. A warning is sent 40 minutes before its end, and its instances are terminated 30 minutes before its end.
    Block {
        /// When it ends.
        ends: Timestamp,
    },
}

/// A subnet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subnet {
    /// `subnet-` with 17 hex digits.
    pub id: String,
    /// The zone.
    pub zone: String,
    /// The number of free addresses at the start.
    pub free: u32,
}

/// A launch template. It has no content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchTemplate {
    /// `lt-` with 17 hex digits.
    pub id: String,
    /// The unique name.
    pub name: String,
}

/// The name of the launch template in the default options.
pub const DEFAULT_TEMPLATE: &str = "forebay-node";

impl Default for RegionOptions {
    /// `us-east-1` from 2026 on, with three zones, the built-in prices, a subnet with 4,091 addresses in each zone and one launch template.
    /// All types are in stock at their mean prices, boots take about 30 s, each reclaim has a warning, and there are no limits and no faults.
    fn default() -> Self {
        let zones: Vec<String> = ["us-east-1a", "us-east-1b", "us-east-1c"].map(str::to_owned).into();
        let subnet = |(nth, zone): (usize, &String)| Subnet {
            id: format!("subnet-{:017x}", nth + 1),
            zone: zone.clone(),
            free: 4091,
        };
        RegionOptions {
            seed: 1,
            origin: Timestamp(1_767_225_600_000),
            name: "us-east-1".to_owned(),
            account: "000000000000".to_owned(),
            types: builtin_types(),
            market: Market::calm(&[]),
            depth: None,
            stock: Vec::new(),
            arrivals: Vec::new(),
            quotas: VcpuQuotas::default(),
            rate_limits: false,
            throttled: Vec::new(),
            server_error_permille: 0,
            lost_before_permille: 0,
            lost_after_permille: 0,
            max_staleness: Span::ZERO,
            boot_time: Span::secs(30),
            shutdown_time: Span::secs(10),
            failed_boots: Vec::new(),
            hanging_boot_permille: 0,
            warning_permille: 1000,
            rebalance_permille: 0,
            state_messages: true,
            reservations: Vec::new(),
            subnets: zones.iter().enumerate().map(subnet).collect(),
            launch_templates: vec![LaunchTemplate { id: format!("lt-{:017x}", 1), name: DEFAULT_TEMPLATE.to_owned() }],
            denied: BTreeSet::new(),
            zones,
        }
    }
}

/// The AWS types of the built-in catalog.
#[must_use]
pub fn builtin_types() -> Vec<PriceRow> {
    let mut types = forebay_catalog::builtin();
    types.retain(|row| row.provider == "aws");
    types
}
