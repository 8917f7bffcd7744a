//! Makes offerings for the tests: plain defaults, changed where a test says so.
//!
//! Never: decides what is expected.

use crate::catalog::{CapacityType, Offering};
use crate::units::{Mib, MilliCpu, Rate, Span};
use alloc::vec::Vec;

/// A spot node with two GPUs of 40,960 MiB, at a micro-dollar an hour, booting in a minute.
pub(crate) fn offering(instance_type: &str) -> Offering {
    Offering {
        instance_type: instance_type.into(),
        zone: "a".into(),
        capacity: CapacityType::Spot,
        gpus: 2,
        gpu_mem: Mib(40_960),
        models: Vec::new(),
        cpu: MilliCpu(16_000),
        mem: Mib(131_072),
        price: Rate(1),
        max_price: Rate(1),
        on_demand: Rate(1),
        boot: Span::mins(1),
        nvlink: 0,
        numa: 0,
    }
}
