//! Advice about budgets of a day or a month that do not pay for an hour of the least that their queue may use.
//!
//! Never: refuses. The cheapest is most often spot, and its price changes. Where a budget of an hour is too small, that is a fault and belongs to
//! `check`.

use super::advice::Advice;
use super::check::{PoolStock, cheapest_hour};
use super::tree::YamlNode;
use super::written::{WrittenBudget, WrittenPeriod, WrittenPolicy, WrittenWhenSpent};
use forebay_kernel::catalog::Offering;
use forebay_kernel::units::Rate;
use forebay_quantity::Money;

/// All of it, in the order of the file.
pub(super) fn advise(tree: &YamlNode, filled: &WrittenPolicy, stock: &[PoolStock]) -> Vec<Advice> {
    let of_gpu = |offering: &Offering| offering.price.0 / u64::from(offering.gpus.max(1));
    let cheapest = stock.iter().filter_map(|stock| stock.offerings.iter().map(of_gpu).min());
    // A queue may use one of these pools, and its cheapest hour is no dearer than an hour of a whole GPU there. Budgets above that of all pools
    // are not asked about one by one.
    let most = cheapest.max().unwrap_or(0);
    let budgets = filled.queues.iter().flatten().filter_map(|(path, queue)| Some((path, queue.budget?)));
    let small = budgets.filter(|(_, budget)| budget.amount.0 < most);
    small.filter_map(|(path, budget)| advice(tree, path, budget, cheapest_hour(filled, path, stock)?)).collect()
}

/// About one budget. `least`: what an hour of the least that its queue may use costs.
fn advice(tree: &YamlNode, path: &str, budget: WrittenBudget, least: Rate) -> Option<Advice> {
    let WrittenBudget { amount, per, when_spent } = budget;
    let period = match per {
        WrittenPeriod::Hour => return None,
        WrittenPeriod::Day => "a day",
        WrittenPeriod::Month => "a month",
    };
    // One that only warns holds nothing back.
    if amount.0 >= least.0 || when_spent == Some(WrittenWhenSpent::Warn) {
        return None;
    }
    let least = Money(least.0);
    let text = format!(
        "queue `{path}` may spend {amount} {period}, but an hour of the least that it may use costs {least} as prices are: no job that needs so much \
         can start; write {least} or more"
    );
    let keys = ["queues", path, "budget", "amount"];
    Some(Advice { pos: tree.key_pos(&keys), path: Vec::from(keys.map(str::to_owned)), text })
}
