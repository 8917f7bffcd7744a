//! Queues, undeclared queues and routes: paths and names that hold.
//!
//! Never: sums quotas (that is `quota`).

use super::super::defaults::{ancestors, default_tier, parent};
use super::super::fault::{Pos, meant, shown};
use super::super::routes;
use super::super::words::UndeclaredQueues;
use super::super::written::{WrittenOrder, WrittenPreemptWithin, WrittenQueue, WrittenQuota};
use super::{Check, MAX_LEVELS, MAX_PATH, MAX_QUEUES, NAME_RULE, is_name};
use forebay_quantity::{GpuBound, GpuCount};
use indexmap::IndexMap;

impl Check<'_> {
    pub(super) fn queues(&mut self) {
        let Some(queues) = &self.written.queues else {
            return;
        };
        self.at_most("queues", queues.len(), MAX_QUEUES, "let `undeclaredQueues` take those that share a rule");
        for (path, queue) in queues {
            self.path(path, &["queues", path]);
            self.queue(path, queue);
        }
    }

    fn path(&mut self, path: &str, at: &[&str]) {
        let segments: Vec<&str> = path.split('/').collect();
        if path.starts_with('/') || path.ends_with('/') || path.contains("//") {
            let remedy = "write names with one `/` between them, such as `research/vision`";
            self.at_key(at, format!("`{}` is not a queue's path", shown(path)), remedy);
        } else if segments.len() > MAX_LEVELS || path.len() > MAX_PATH {
            let what = format!(
                "the path `{}` is deeper than {MAX_LEVELS} levels or longer than {MAX_PATH} characters",
                shown(path)
            );
            self.at_key(at, what, "shorten it");
        } else if let Some(bad) = segments.iter().find(|s| !is_name(s)) {
            self.at_key(at, format!("`{}` cannot be a part of a queue's path", shown(bad)), NAME_RULE);
        }
    }

    fn queue(&mut self, path: &str, queue: &WrittenQueue) {
        let filled = self.filled;
        let tiers = || filled.tiers.iter().flat_map(|tiers| tiers.keys()).map(String::as_str);
        match &queue.tier {
            Some(tier) if !tiers().any(|known| known == tier) => {
                let what = format!("there is no tier `{}`", shown(tier));
                self.at(&["queues", path, "tier"], what, meant(tier, tiers()));
            }
            None if filled.queue(path).is_some_and(|q| q.tier.is_none()) => {
                let what = format!("queue `{}` has no tier, and there is none called `normal`", shown(path));
                self.at_key(&["queues", path], what, format!("add `tier:`; {}", meant("", tiers())));
            }
            _ => {}
        }
        if let Some(listed) = &queue.tiers {
            self.listed_tiers(path, listed);
        }
        let ages = self.written.fairness.is_some_and(|fairness| fairness.ageing.is_some());
        if queue.preempt_within == Some(WrittenPreemptWithin::LowerPriority) && ages {
            let what = format!(
                "queue `{}` stops runs for a higher priority number, and `fairness.ageing` lets jobs go before a higher number: each would undo the other",
                shown(path)
            );
            let remedy = "remove `fairness.ageing`, or write `preemptWithin: lower-tiers`";
            self.at(&["queues", path, "preemptWithin"], what, remedy);
        }
        let full = filled.queue(path);
        let by_length = full.is_some_and(|queue| queue.preempt_within == Some(WrittenPreemptWithin::LongerExpected));
        let in_order = full.is_some_and(|queue| queue.order == Some(WrittenOrder::ShortestExpected));
        if by_length && !in_order && (queue.preempt_within.is_some() || queue.order.is_some()) {
            let what = format!(
                "queue `{}` stops long runs for short jobs, and its jobs go in the order of their arrival: who was stopped would go first again",
                shown(path)
            );
            let remedy = "write `order: shortest-expected`, or `preemptWithin: lower-tiers`";
            let field = if queue.preempt_within.is_some() { "preemptWithin" } else { "order" };
            self.at(&["queues", path, field], what, remedy);
        }
        if let Some(pools) = &queue.pools {
            if pools.is_empty() {
                let what = format!("queue `{}` may use no pool, so none of its jobs can start", shown(path));
                self.at_key(&["queues", path, "pools"], what, "name a pool, or leave `pools` out for all");
            }
            for (at, pool) in pools.iter().enumerate() {
                let place = at.to_string();
                let place = ["queues", path, "pools", &place];
                self.pool_name(pool, self.tree.value_pos(&place));
                if pools[..at].contains(pool) {
                    self.at(&place, format!("pool `{}` is named twice", shown(pool)), "keep the first");
                }
            }
        }
        if queue.submitters.as_ref().is_some_and(Vec::is_empty) {
            let what = format!("queue `{}` has an empty list of submitters", shown(path));
            let remedy = "name who may submit, or leave `submitters` out for anyone who may submit at all";
            self.at_key(&["queues", path, "submitters"], what, remedy);
        }
        if queue.weight.is_some_and(|w| w.0 == 0) {
            let what = format!("queue `{}` has a weight of 0: it would get nothing of what is free", shown(path));
            self.at(&["queues", path, "weight"], what, "write more than 0, such as `0.1`");
        }
        if let Some(quota) = &queue.quota {
            self.quotas(quota, &["queues", path, "quota"], path, parent(path).is_some());
        }
    }

    /// The tiers that a queue's jobs may ask for: they exist, and its own is among them.
    fn listed_tiers(&mut self, path: &str, listed: &[String]) {
        let filled = self.filled;
        let known: Vec<&str> = filled.tiers.iter().flat_map(|tiers| tiers.keys()).map(String::as_str).collect();
        for (at, tier) in listed.iter().enumerate() {
            let place = ["queues", path, "tiers", &at.to_string()];
            if !known.contains(&tier.as_str()) {
                self.at(&place, format!("there is no tier `{}`", shown(tier)), meant(tier, known.iter().copied()));
            } else if listed[..at].contains(tier) {
                self.at(&place, format!("tier `{}` is named twice", shown(tier)), "keep the first");
            }
        }
        let own = filled.queue(path).and_then(|queue| queue.tier.as_deref()).unwrap_or_default();
        if !own.is_empty() && !listed.iter().any(|tier| tier == own) {
            let what = format!("queue `{}` is of tier `{}`, which is not among its `tiers`", shown(path), shown(own));
            let remedy = format!("add `{}` to the list, or give the queue a `tier` of the list", shown(own));
            self.at_key(&["queues", path, "tiers"], what, remedy);
        }
    }

    /// The figures of one queue's quotas, each by itself.
    fn quotas(&mut self, quotas: &IndexMap<String, WrittenQuota>, at: &[&str], path: &str, has_parent: bool) {
        for (pool, quota) in quotas {
            let place = [at, &[pool.as_str()]].concat();
            self.pool_name(pool, self.tree.key_pos(&place));
            if let Some(GpuBound::GpuCount(lend)) = quota.lend
                && lend > quota.gpus
            {
                let what = format!(
                    "queue `{}` lends {lend} GPUs of pool `{pool}`, but its quota is {}",
                    shown(path),
                    quota.gpus
                );
                self.at(&[&place[..], &["lend"]].concat(), what, format!("lend at most {}, or `all`", quota.gpus));
            }
            let borrows = quota.borrow.is_some_and(|b| b != GpuBound::GpuCount(GpuCount::default()));
            if borrows && !has_parent {
                let what =
                    format!("queue `{}` borrows in pool `{pool}`, but has no parent to borrow from", shown(path));
                let remedy = format!("put it below a cohort, such as `research/{}`, or remove `borrow`", shown(path));
                self.at(&[&place[..], &["borrow"]].concat(), what, remedy);
            }
        }
    }

    fn pool_name(&mut self, pool: &str, pos: Pos) {
        let names: Vec<&str> = self.filled.pools.iter().flatten().map(|(n, _)| n.as_str()).collect();
        if !names.contains(&pool) {
            self.fault(pos, format!("there is no pool `{}`", shown(pool)), meant(pool, names));
        }
    }

    pub(super) fn undeclared(&mut self) {
        let declared = self.written.queues.as_ref();
        match &self.written.undeclared_queues {
            None | Some(UndeclaredQueues::Reject) => {
                if declared.is_none_or(IndexMap::is_empty) {
                    let what = "no queue is declared and undeclared ones are rejected, so no job can run";
                    self.at_key(&["queues"], what, "declare a queue, or write `undeclaredQueues: {under: shared}`");
                }
            }
            Some(UndeclaredQueues::Shared(shared)) => {
                let at = ["undeclaredQueues", "under"];
                self.path(&shared.under, &at);
                let is_declared = declared.is_some_and(|q| q.contains_key(&shared.under));
                let no_tier = self.filled.tiers.as_ref().is_some_and(|t| default_tier(t).is_none());
                // One that is not declared has the tier of the nearest declared queue above it.
                let inherits = declared.is_some_and(|q| ancestors(&shared.under).any(|path| q.contains_key(path)));
                if !inherits && no_tier {
                    let what =
                        format!("queue `{}` has no tier, and there is none called `normal`", shown(&shared.under));
                    self.at(&at, what, format!("declare `{}` among the queues, with its tier", shown(&shared.under)));
                }
                if shared.at_most == Some(0) {
                    let what = "atMost is 0, so every undeclared queue is rejected";
                    self.at(&["undeclaredQueues", "atMost"], what, "write `undeclaredQueues: reject`");
                }
                if let Some(quota) = &shared.quota_together {
                    let has_parent = is_declared || parent(&shared.under).is_some();
                    self.quotas(quota, &["undeclaredQueues", "quotaTogether"], &shared.under, has_parent);
                }
            }
        }
    }

    pub(super) fn routes(&mut self) -> Vec<(routes::RouteExpression, String)> {
        let mut out = Vec::new();
        for (at, route) in self.written.routes.iter().flatten().enumerate() {
            let place = at.to_string();
            let queues = self.written.queues.as_ref();
            if !queues.is_some_and(|q| q.contains_key(&route.queue)) {
                let names: Vec<&str> = queues.iter().flat_map(|q| q.keys()).map(String::as_str).collect();
                let what = format!("the route leads to `{}`, which is not declared", shown(&route.queue));
                self.at(&["routes", &place, "queue"], what, meant(&route.queue, names));
            }
            let earlier =
                self.written.routes.iter().flatten().take(at).position(|r| r.when.trim() == route.when.trim());
            if let Some(first) = earlier {
                let what = format!("the route can never be taken: route {} asks the same before it", first + 1);
                self.at(&["routes", &place, "when"], what, "remove one of them");
            }
            match routes::compile(&route.when) {
                Ok(program) => out.push((program, route.queue.clone())),
                Err((what, remedy)) => self.at(&["routes", &place, "when"], what, remedy),
            }
        }
        out
    }
}
