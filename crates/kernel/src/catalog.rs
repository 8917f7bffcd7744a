//! What can be bought: offerings, their shapes and prices. What is known of their stock lives in the state.
//!
//! Never: reads a file or asks a cloud. Catalogues are compiled outside and enter with the policy.

use crate::units::{Mib, MilliCpu, Rate, Span};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// How capacity is paid for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CapacityType {
    /// Paid for already.
    Reserved,
    /// Cheap; may be taken back by the cloud.
    Spot,
    /// Full price; kept until it is given back.
    OnDemand,
    /// Nodes that are there without having been bought: used, and never bought, drained or given back.
    Owned,
}

impl CapacityType {
    /// All of them, in the order in which accounts by capacity type are kept.
    pub const ALL: [CapacityType; 4] =
        [CapacityType::Reserved, CapacityType::Spot, CapacityType::OnDemand, CapacityType::Owned];

    /// As it is written in policies, tables and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            CapacityType::Reserved => "reserved",
            CapacityType::Spot => "spot",
            CapacityType::OnDemand => "on-demand",
            CapacityType::Owned => "owned",
        }
    }
}

impl fmt::Display for CapacityType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One thing that can be bought: instance type x zone x capacity type.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Offering {
    /// As the cloud names it.
    pub instance_type: String,
    /// As the cloud names it.
    pub zone: String,
    /// How it is paid for.
    pub capacity: CapacityType,
    /// Whole GPUs on one node; 0 for CPU-only nodes, at most 64.
    pub gpus: u16,
    /// Memory of each GPU.
    pub gpu_mem: Mib,
    /// GPU model names that this offering answers to, lower case.
    pub models: Vec<String>,
    /// CPU that work may use.
    pub cpu: MilliCpu,
    /// Memory that work may use.
    pub mem: Mib,
    /// What it costs now.
    pub price: Rate,
    /// What it may cost at most: ceilings book spot at this price. Equals `price` for the others.
    pub max_price: Rate,
    /// The on-demand price of the same instance type, for comparison.
    pub on_demand: Rate,
    /// From launch to ready: what to expect (median).
    pub boot: Span,
    /// GPUs joined by NVLink, in groups of so many by index. 0: none.
    pub nvlink: u16,
    /// GPUs of one NUMA node, in groups of so many by index. 0: not known.
    pub numa: u16,
}

impl Offering {
    /// The key that stays the same when prices and policies change.
    #[must_use]
    pub fn key(&self) -> (&str, &str, CapacityType) {
        (&self.instance_type, &self.zone, self.capacity)
    }
}

impl fmt::Display for Offering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {} ({})", self.instance_type, self.zone, self.capacity)
    }
}
