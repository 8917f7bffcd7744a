//! Whether each queue could ever start a job: some pool, some offering that its tier accepts, under every ceiling.
//!
//! Never: asks for a particular job's size; that is decided when it comes.

use super::super::fault::{Pos, shown};
use super::super::written::{WrittenBuys, WrittenCeiling};
use super::pools::forbids;
use super::{Check, PoolStock};
use forebay_kernel::catalog::{CapacityType, Offering};

impl Check<'_> {
    pub(super) fn reach(&mut self, stock: &[PoolStock]) {
        let queues: Vec<(String, Option<String>, Vec<String>)> = self
            .filled
            .queues
            .iter()
            .flatten()
            .map(|(path, q)| (path.clone(), q.tier.clone(), q.pools.clone().unwrap_or_default()))
            .collect();
        let mut reported: Vec<Pos> = Vec::new();
        for (path, tier, pools) in queues {
            let buys = tier.and_then(|t| self.filled.tiers.as_ref()?.get(&t)?.buys).unwrap_or(WrittenBuys::Nothing);
            let mut first: Option<(Vec<String>, String)> = None;
            let reachable = pools.iter().any(|pool| match self.pool_reach(pool, buys, stock) {
                Ok(()) => true,
                Err(why) => {
                    first.get_or_insert(why);
                    false
                }
            });
            let Some((at, why)) = first.filter(|_| !reachable) else {
                continue;
            };
            let at: Vec<&str> = at.iter().map(String::as_str).collect();
            let pos = self.tree.value_pos(&at);
            // One ceiling may bar a hundred queues: it is reported once.
            if reported.contains(&pos) {
                continue;
            }
            reported.push(pos);
            let what = format!("queue `{}` can never start a job: {why}", shown(&path));
            self.fault(pos, what, "raise it, give the queue another pool, or give it a tier that buys something else");
        }
    }

    /// Why a tier can get no node of a pool: the path of the culprit and the cause.
    fn pool_reach(&self, pool: &str, buys: WrittenBuys, stock: &[PoolStock]) -> Result<(), (Vec<String>, String)> {
        let path = |parts: &[&str]| parts.iter().map(|p| (*p).to_owned()).collect::<Vec<String>>();
        let Some((at, _, rules)) = self.filled.pools.as_ref().and_then(|p| p.get_full(pool)) else {
            return Ok(());
        };
        let accepts = |o: &&Offering| match buys {
            WrittenBuys::OnDemand => o.capacity != CapacityType::Spot,
            WrittenBuys::Spot => o.capacity != CapacityType::OnDemand,
            WrittenBuys::SpotThenOnDemand | WrittenBuys::Nothing => true,
        };
        let mut offerings = stock.get(at).into_iter().flat_map(|s| &s.offerings).filter(accepts).peekable();
        if offerings.peek().is_none() {
            return Err((path(&["pools", pool]), format!("pool `{pool}` offers nothing that its tier may use")));
        }
        let own = rules.ceiling.unwrap_or_default();
        let all: WrittenCeiling = self.filled.limits.unwrap_or_default();
        let mut cause = None;
        for offering in offerings {
            match (forbids(&own, offering), forbids(&all, offering)) {
                (None, None) => return Ok(()),
                (Some((field, bound)), _) => {
                    cause.get_or_insert((
                        path(&["pools", pool, "ceiling", field]),
                        format!("pool `{pool}` is bound to {bound}"),
                    ));
                }
                (None, Some((field, bound))) => {
                    cause.get_or_insert((path(&["limits", field]), format!("all pools together are bound to {bound}")));
                }
            }
        }
        cause.map_or(Ok(()), Err)
    }
}
