//! Whether each queue could ever start a job: some pool, some offering that its tier accepts, under every ceiling.
//!
//! Never: asks for a particular job's size; that is decided when it comes.

use super::super::fault::{Pos, shown};
use super::super::written::WrittenBuys;
use super::pools::forbids;
use super::{Check, PoolStock};
use forebay_kernel::catalog::{CapacityType, Offering};

impl Check<'_> {
    pub(super) fn reach(&mut self, stock: &[PoolStock]) {
        let mut reported: Vec<Pos> = Vec::new();
        for (path, queue) in self.filled.queues.iter().flatten() {
            let buys = self.filled.buys(queue).unwrap_or(WrittenBuys::Nothing);
            let pools = queue.pools.iter().flatten();
            let barred: Result<Vec<_>, ()> = pools.map(|pool| self.barred(pool, buys, stock).ok_or(())).collect();
            let Some((pos, why, mend)) = barred.ok().and_then(|causes| causes.into_iter().next()) else { continue };
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
