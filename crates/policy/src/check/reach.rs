//! Whether each queue, and those that are not declared, could ever start a job: some pool, some offering that its tier accepts, under every ceiling.
//!
//! Never: asks for a particular job's size; that is decided when it comes.

use super::super::fault::{Pos, shown};
use super::super::undeclared::undeclared_rule;
use super::super::written::{WrittenBuys, WrittenQueue};
use super::pools::forbids;
use super::{Check, PoolStock};
use forebay_kernel::catalog::{CapacityType, Offering};

impl Check<'_> {
    pub(super) fn reach(&mut self, stock: &[PoolStock]) {
        let filled = self.filled;
        let mut reported: Vec<Pos> = Vec::new();
        for (path, queue) in filled.queues.iter().flatten() {
            let Some((pos, why, mend)) = self.bars(queue, stock) else { continue };
            // One ceiling may bar a hundred queues: it is reported once.
            if reported.contains(&pos) {
                continue;
            }
            reported.push(pos);
            let what = format!("queue `{}` can never start a job: {why}", shown(path));
            self.fault(
                pos,
                what,
                format!("{mend}, give the queue another pool, or give it a tier that buys something else"),
            );
        }
        // Where a declared queue states the rules of undeclared ones, it was asked above.
        let rule = undeclared_rule(filled).filter(|rule| rule.stated_by.is_none());
        let barred = rule.and_then(|rule| self.bars(&rule.queue, stock));
        if let Some((shared, (pos, why, mend))) = filled.shared().zip(barred)
            && !reported.contains(&pos)
        {
            let what = format!("undeclared queues can never start a job: {why}");
            let under = shown(&shared.under);
            let remedy = format!("{mend}, or declare `{under}` with another pool or a tier that buys something else");
            self.fault(pos, what, remedy);
        }
    }

    /// Why a queue can get no node of any of its pools, and what mends the first of them; `None` where it can.
    fn bars(&self, queue: &WrittenQueue, stock: &[PoolStock]) -> Option<(Pos, String, &'static str)> {
        let buys = self.filled.buys(queue).unwrap_or(WrittenBuys::Nothing);
        let pools = queue.pools.iter().flatten();
        let barred: Option<Vec<_>> = pools.map(|pool| self.barred(pool, buys, stock)).collect();
        barred?.into_iter().next()
    }

    /// Why a tier can get no node of a pool, where that is said, and what mends it; `None` where it can.
    fn barred(&self, pool: &str, buys: WrittenBuys, stock: &[PoolStock]) -> Option<(Pos, String, &'static str)> {
        let (at, _, rules) = self.filled.pools.as_ref()?.get_full(pool)?;
        // Which nodes there are, the cluster says.
        if rules.owned.is_some() {
            return None;
        }
        let accepts = |o: &&Offering| match buys {
            WrittenBuys::OnDemand => o.capacity != CapacityType::Spot,
            WrittenBuys::Spot => o.capacity != CapacityType::OnDemand,
            WrittenBuys::SpotThenOnDemand | WrittenBuys::Nothing => true,
        };
        let (own, all) = (rules.ceiling.unwrap_or_default(), self.filled.limits.unwrap_or_default());
        let mut cause = None;
        for offering in stock.get(at).into_iter().flat_map(|s| &s.offerings).filter(accepts) {
            let found = if let Some((field, bound)) = forbids(&own, offering) {
                let pos = self.tree.value_pos(&["pools", pool, "ceiling", field]);
                (pos, format!("pool `{pool}` is bound to {bound}"), "raise it")
            } else {
                // Nothing forbids this one: the tier can get it.
                let (field, bound) = forbids(&all, offering)?;
                (
                    self.tree.value_pos(&["limits", field]),
                    format!("all pools together are bound to {bound}"),
                    "raise it",
                )
            };
            cause.get_or_insert(found);
        }
        Some(cause.unwrap_or_else(|| self.nothing_of(pool, stock.get(at))))
    }

    /// Why a pool offers nothing that a tier accepts: all spot is dearer than it bids, or it has not what the tier buys.
    fn nothing_of(&self, pool: &str, stock: Option<&PoolStock>) -> (Pos, String, &'static str) {
        if stock.is_some_and(|stock| !stock.outbid.is_empty()) {
            let pos = self.tree.value_pos(&["pools", pool, "spot", "maxPrice"]);
            return (pos, format!("pool `{pool}` bids less than any spot costs that its tier may use"), "raise it");
        }
        let why = format!("pool `{pool}` offers nothing that its tier may use");
        (self.tree.value_pos(&["pools", pool]), why, "name other instance types or zones")
    }
}
