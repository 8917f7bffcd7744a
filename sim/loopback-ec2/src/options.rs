//! What a region is like: its seed, its market and stock, its faults, and what an account has there. The default is a calm one.
//!
//! Never: a value that changes while the region lives. What a test changes by hand are methods of `Region`.

use std::collections::BTreeSet;

use forebay_engine::catalog::CapacityType;
use forebay_engine::units::{Millis, Span};
use forebay_sim::market::Market;
use forebay_sim::prices::{self, PriceRow};
use forebay_sim::world::Stock;

/// Everything that makes a region what it is.
#[derive(Clone, Debug)]
pub struct RegionOptions {
    /// What every draw is made from.
    pub seed: u64,
    /// The market's time zero, in Unix time. Instances cannot be launched before it.
    pub origin: Millis,
    /// Such as `us-east-1`.
    pub name: String,
    /// Its zones, in order: the first is taken where a request names none.
    pub zones: Vec<String>,
    /// Twelve digits.
    pub account: String,
    /// The types that there are.
    pub types: Vec<PriceRow>,
    /// Spot stock and spot prices over time. A pair that it does not have is calm.
    pub market: Market,
    /// Spot instances of one (type, zone) at full availability. `None`: no bound at full availability, 400 below it.
    pub depth: Option<u32>,
    /// The most instances that may exist at once, for some (type, zone, capacity type), whatever the market says.
    pub stock: Vec<Stock>,
    /// Stock that comes later, on top of what `stock` says. Without an entry there it counts from 0.
    pub arrivals: Vec<Arrival>,
    /// How many vCPUs the account may have at once.
    pub quotas: Quotas,
    /// Whether calls are refused beyond EC2's rates.
    pub rates: bool,
    /// From when until when every call is refused as one too many.
    pub throttled: Vec<(Millis, Millis)>,
    /// Calls that fail by EC2's own fault, in 1/1000; nothing is done.
    pub server_error_permille: u16,
    /// Calls whose connection closes before anything is done, in 1/1000.
    pub lost_before_permille: u16,
    /// Calls that are carried out and whose answer is lost, in 1/1000.
    pub lost_after_permille: u16,
    /// `DescribeInstances` shows each instance as it was up to so long ago, drawn for each call and instance.
    pub stale: Span,
    /// From pending to running; drawn from 20 % shorter to 50 % longer.
    pub running_after: Span,
    /// From shutting-down to terminated; drawn likewise.
    pub gone_after: Span,
    /// From when to when instances that are launched end before they run, as with a disk key that they may not use.
    pub failed_boots: Vec<(Millis, Millis)>,
    /// Instances that stay pending for ever, in 1/1000.
    pub no_boot_permille: u16,
    /// Reclaims by the market that are announced two minutes ahead, in 1/1000.
    pub warning_permille: u16,
    /// Announced reclaims that come with a rebalance recommendation too, in 1/1000.
    pub rebalance_permille: u16,
    /// Whether each change of an instance's state is a message.
    pub state_messages: bool,
    /// Capacity paid for already.
    pub reservations: Vec<Reservation>,
    /// The subnets of the one VPC.
    pub subnets: Vec<Subnet>,
    /// Launch templates by id and name.
    pub launch_templates: Vec<LaunchTemplate>,
    /// Actions that the caller may not do.
    pub denied: BTreeSet<String>,
}

/// Stock that comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When.
    pub at: Millis,
    /// Of which type.
    pub instance_type: String,
    /// In which zone.
    pub zone: String,
    /// Spot or on-demand.
    pub capacity: CapacityType,
    /// How many more there are.
    pub count: u32,
}

/// The account's limits in vCPUs, over all types. `None`: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quotas {
    /// On demand and reserved.
    pub on_demand: Option<u64>,
    /// Spot.
    pub spot: Option<u64>,
}

/// Capacity paid for already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// `cr-` with 17 hex digits.
    pub id: String,
    /// Of which type.
    pub instance_type: String,
    /// In which zone.
    pub zone: String,
    /// How many instances it holds.
    pub count: u32,
    /// For how long.
    pub kind: ReservationKind,
}

/// What sort of reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservationKind {
    /// An On-Demand Capacity Reservation, targeted, without an end.
    OnDemand,
    /// A Capacity Block: 40 minutes before `ends` a warning, from 30 minutes before it its instances are ended.
    Block {
        /// When it is over.
        ends: Millis,
    },
}

/// A subnet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subnet {
    /// `subnet-` with 17 hex digits.
    pub id: String,
    /// Where it lies.
    pub zone: String,
    /// Addresses that nobody has, at first.
    pub free: u32,
}

/// A launch template; only its names matter here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchTemplate {
    /// `lt-` with 17 hex digits.
    pub id: String,
    /// Unique.
    pub name: String,
}

/// The template of the default region.
pub const DEFAULT_TEMPLATE: &str = "forebay-node";

impl Default for RegionOptions {
    /// `us-east-1` from 2026 on, three zones, the built-in prices, a subnet in each zone with 4,091 addresses, one
    /// launch template; everything is there at its mean price, boots take about 30 s, every reclaim is announced, no rates, no faults.
    fn default() -> Self {
        let zones: Vec<String> = ["us-east-1a", "us-east-1b", "us-east-1c"].map(str::to_owned).into();
        let subnet = |(nth, zone): (usize, &String)| Subnet {
            id: format!("subnet-{:017x}", nth + 1),
            zone: zone.clone(),
            free: 4091,
        };
        RegionOptions {
            seed: 1,
            origin: Millis(1_767_225_600_000),
            name: "us-east-1".to_owned(),
            account: "000000000000".to_owned(),
            types: builtin_types(),
            market: Market::calm(&[]),
            depth: None,
            stock: Vec::new(),
            arrivals: Vec::new(),
            quotas: Quotas::default(),
            rates: false,
            throttled: Vec::new(),
            server_error_permille: 0,
            lost_before_permille: 0,
            lost_after_permille: 0,
            stale: Span::ZERO,
            running_after: Span::secs(30),
            gone_after: Span::secs(10),
            failed_boots: Vec::new(),
            no_boot_permille: 0,
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

/// AWS's types of the built-in catalogue.
#[must_use]
pub fn builtin_types() -> Vec<PriceRow> {
    let mut types = prices::builtin();
    types.retain(|row| row.provider == "aws");
    types
}
