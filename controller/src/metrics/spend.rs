//! Money by queue, tier and billed label, and what was wasted: the lines of the accounts as counters.
//!
//! Never: a point for what was never spent; a product of queue, tier and label.

use super::family::Family;
use crate::cost::{AccountLine, AccountSum};
use forebay_sim::score::money::decimal;
use std::collections::BTreeMap;

/// Thousandths of a GPU x milliseconds in a GPU-hour.
const A_GPU_HOUR: f64 = 3_600_000_000.0;

/// The accounts as metrics.
#[must_use]
pub fn families(accounts: &BTreeMap<AccountLine, AccountSum>) -> Vec<Family> {
    let money = |name, help| Family::counter(name, help).unit("usd");
    let mut queues = money("queue_spend", "What the jobs of a queue have cost, by how capacity was paid for.");
    let mut tiers = money("tier_spend", "What the jobs of a tier have cost, by how capacity was paid for.");
    let mut labels = money("label_spend", "What jobs have cost by the labels that the policy bills by.");
    let mut waste = money("waste", "What was spent on anything but work, by what it was.");
    let mut hours =
        Family::counter("waste_gpu_hours", "GPU-hours of bought and owned nodes that were not work, by what it was.");
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
                hours.set(&labels, sum.gpu_time as f64 / A_GPU_HOUR);
            }
        }
    }
    vec![queues, tiers, labels, waste, hours]
}
