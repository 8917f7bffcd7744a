//! Money by queue, tier and billed label, and what was wasted: the lines of the accounts as counters.
//!
//! Never: a point for what was never spent; a product of queue, tier and label.

use super::catalogue;
use super::family::Family;
use crate::cost::{AccountLine, AccountSum};
use forebay_sim::score::money::decimal;
use std::collections::BTreeMap;

/// Thousandths of a GPU x milliseconds in a GPU-second.
const A_GPU_SECOND: f64 = 1_000_000.0;

/// The accounts as metrics.
#[must_use]
pub fn families(accounts: &BTreeMap<AccountLine, AccountSum>) -> Vec<Family> {
    let mut queues = Family::of(&catalogue::QUEUE_SPEND);
    let mut tiers = Family::of(&catalogue::TIER_SPEND);
    let mut labels = Family::of(&catalogue::LABEL_SPEND);
    let mut waste = Family::of(&catalogue::WASTE);
    let mut gpu_time = Family::of(&catalogue::WASTE_GPU_TIME);
    for (line, sum) in accounts {
        let dollars = decimal(sum.micro_dollars);
        match line {
            AccountLine::Queue(queue, capacity) => {
                queues.set(&[("queue", queue), ("capacity_type", capacity.as_str())], dollars);
            }
            AccountLine::Tier(tier, capacity) => {
                tiers.set(&[("tier", tier), ("capacity_type", capacity.as_str())], dollars);
            }
            AccountLine::Label(label, value, capacity) => {
                labels.set(&[("label", label), ("value", value), ("capacity_type", capacity.as_str())], dollars);
            }
            AccountLine::Waste(kind, pool) => {
                let labels = [("kind", kind.as_str()), ("pool", pool.as_str())];
                waste.set(&labels, dollars);
                gpu_time.set(&labels, sum.gpu_time as f64 / A_GPU_SECOND);
            }
        }
    }
    vec![queues, tiers, labels, waste, gpu_time]
}
