//! The figures of what a job lacks: which bound, its limit and its use, who holds it, and what would be enough.
//!
//! They are computed from the state when a reason is shown; the records keep the reason alone.
//! Never: decides, or walks all jobs for one that is shown; who holds what is counted once for a list.

use super::write::dollars;
use forebay_engine::{kept_from, least_added, least_rate};
use forebay_kernel::catalog::{CapacityType, Offering};
use forebay_kernel::ids::{ClassId, JobId, OfferingId, PoolId, QuotaId};
use forebay_kernel::job::{Gang, WorkerAsk};
use forebay_kernel::policy::{Buys, Ceiling, Pool};
use forebay_kernel::reason::Bound;
use forebay_kernel::state::allowances::Allowance;
use forebay_kernel::state::budget::BudgetAccount;
use forebay_kernel::state::node_reserves::NodeRoom;
use forebay_kernel::state::quota::QuotaTree;
use forebay_kernel::state::{Held, State};
use forebay_kernel::units::{Mib, MilliCpu, MilliGpu, Rate};
use forebay_wire::document::reason::gpus as number;
use serde_json::{Map, Value, json};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Who holds GPUs: a queue, one of its tiers, and whether the queue borrows.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Holder {
    queue: String,
    tier: String,
    borrows: bool,
    quota: Option<QuotaId>,
}

/// GPUs in thousandths and jobs.
type Uses = BTreeMap<Holder, (u64, u32)>;

/// Who is named of those that hold a pool.
const MOST_HOLDERS: usize = 5;

/// Who holds GPUs, by pool, once somebody has asked.
#[derive(Default)]
pub struct Holders {
    pools: Option<BTreeMap<Option<PoolId>, Uses>>,
}

impl Holders {
    /// Those that hold most of a pool, or of all: queue, tier, GPUs, runs, and whether the queue borrows. `within`: only queues at this node of the
    /// quota tree and below it.
    fn of(&mut self, state: &State, pool: Option<PoolId>, within: Option<QuotaId>) -> Vec<Value> {
        let uses = self.pools.get_or_insert_with(|| counted(state)).get(&pool);
        let mut all: Vec<_> =
            uses.into_iter().flatten().filter(|(holder, _)| is_within(state, holder.quota, within)).collect();
        all.sort_by_key(|(holder, (share, _))| (Reverse(*share), *holder));
        let view = |(holder, (share, jobs)): (&Holder, &(u64, u32))| json!({ "queue": holder.queue, "tier": holder.tier, "borrows": holder.borrows, "gpus": number(*share), "jobs": jobs });
        all.into_iter().take(MOST_HOLDERS).map(view).collect()
    }
}

fn is_within(state: &State, mut quota: Option<QuotaId>, within: Option<QuotaId>) -> bool {
    let Some(within) = within else { return true };
    while let Some(at) = quota.filter(|at| *at != within) {
        quota = state.quota().parent(at);
    }
    quota.is_some()
}

fn counted(state: &State) -> BTreeMap<Option<PoolId>, Uses> {
    let mut sums: BTreeMap<Option<PoolId>, Uses> = BTreeMap::new();
    for (class, jobs) in &state.index().holding {
        let Some(shape) = state.classes().get(*class).map(|class| &class.shape) else { continue };
        let mut by_pool: BTreeMap<PoolId, (u64, u32)> = BTreeMap::new();
        for (row, _) in jobs.iter().filter_map(|id| state.job(*id)) {
            let Some(pool) = row.pool else { continue };
            let sum = by_pool.entry(pool).or_default();
            *sum = (sum.0 + row.share.0, sum.1 + 1);
        }
        let tier = state.policy().and_then(|p| p.tiers.get(shape.tier.index())).map(|t| t.name.clone());
        let Some(queue) = state.queues().get(shape.queue) else { continue };
        let quota = queue.rule.as_ref().map(|rule| rule.quota);
        for (pool, (share, jobs)) in by_pool {
            // A pool that is only kept has no quotas.
            let borrows = quota.is_some_and(|quota| state.quota().borrows(quota, pool)) && !state.is_kept_pool(pool);
            let (queue, tier) = (queue.path.clone(), tier.clone().unwrap_or_default());
            let key = Holder { queue, tier, borrows, quota };
            for within in [Some(pool), None] {
                let sum = sums.entry(within).or_default().entry(key.clone()).or_default();
                *sum = (sum.0 + share, sum.1 + jobs);
            }
        }
    }
    sums
}

/// The node of the quota tree that lets a queue have no more in a pool: its own, or the first above it whose bound is nearer.
fn binding(tree: &QuotaTree, quota: QuotaId, pool: PoolId) -> QuotaId {
    let binds = |at: QuotaId| {
        let left = tree.bound(at, pool).map(|most| most - tree.usage(at, pool));
        left.is_some_and(|left| left <= tree.available(at, pool))
    };
    let mut at = quota;
    while let Some(parent) = tree.parent(at).filter(|_| !binds(at)) {
        at = parent;
    }
    at
}

/// A job whose lack is looked at.
#[derive(Clone, Copy)]
pub struct Asker<'a> {
    state: &'a State,
    job: JobId,
    class: ClassId,
    quota: Option<QuotaId>,
}

impl<'a> Asker<'a> {
    /// A job that is there.
    #[must_use]
    pub fn of(state: &'a State, job: JobId) -> Option<Asker<'a>> {
        let (row, _) = state.job(job)?;
        let quota = state.queues().get(row.queue)?.rule.as_ref().map(|rule| rule.quota);
        Some(Asker { state, job, class: row.class, quota })
    }

    fn pool(self, id: PoolId) -> Option<&'a Pool> {
        self.state.policy()?.pools.get(id.index())
    }

    /// The pools with an offering that holds one of its workers, in its queue's order.
    fn pools(self) -> impl Iterator<Item = PoolId> + 'a {
        let class = self.state.classes().get(self.class);
        class
            .into_iter()
            .flat_map(|class| class.fits.iter().filter(|(_, fits)| !fits.is_empty()).map(|(pool, _)| *pool))
    }

    fn gang(self) -> Option<&'a Gang> {
        self.state.classes().get(self.class).map(|class| &class.shape.gang)
    }

    fn asked(self) -> Value {
        number(self.gang().map_or(0, |gang| gang.gpu_share().0))
    }

    /// A ceiling that leaves no room: its limit, what is held against it, what the job adds at the least, and who holds it.
    #[must_use]
    pub fn ceiling(self, bound: Bound, holders: Option<&mut Holders>) -> LackFigures {
        let mut lack = LackFigures::default();
        lack.set("bound", json!(bound.as_str()));
        lack.set("asked_gpus", self.asked());
        let Some(UsedBound { pool, limit, used, adds }) = self.used_bound(bound) else { return lack };
        let unit = unit(bound);
        let (limit, used) = (amount(bound, limit), amount(bound, used));
        lack.sentence = format!("{used} of {limit} {} in use", spoken(bound));
        lack.set(&format!("limit_{unit}"), limit);
        lack.set(&format!("used_{unit}"), used);
        if let Some(name) = pool.and_then(|id| self.pool(id)).map(|p| p.name.clone()) {
            lack.sentence.push_str(&format!(" in pool `{name}`"));
            lack.set("pool", json!(name));
        }
        if let Some(adds) = adds.map(|adds| amount(bound, adds)) {
            lack.sentence.push_str(&format!(", nodes for all of it add at least {adds}"));
            lack.set(&format!("adds_{unit}"), adds);
        }
        self.kept(&mut lack, bound, pool);
        self.held_by(&mut lack, pool, None, holders);
        lack
    }

    /// The ceiling of this kind that is in the way: over all pools, or of its queue's pools the first that has no room for what the job adds there, else
    /// the one with the least room. `None`: the policy has none.
    fn used_bound(self, bound: Bound) -> Option<UsedBound> {
        if !bound.is_of_pool() {
            let limit = limit(bound, &self.state.policy()?.limits)?;
            let used = counted_against(bound, self.state.totals().all);
            let adds = self.pools().filter_map(|pool| self.adds(bound, pool)).min();
            return Some(UsedBound { pool: None, limit, used, adds });
        }
        let of_pool = |pool: PoolId| {
            let limit = limit(bound, &self.pool(pool)?.ceiling)?;
            let used = counted_against(bound, self.state.totals().pools.get(pool.index()).copied().unwrap_or_default());
            Some(UsedBound { pool: Some(pool), limit, used, adds: self.adds(bound, pool) })
        };
        self.pools().filter_map(of_pool).min_by_key(|found| (!found.is_over(), found.limit.saturating_sub(found.used)))
    }

    /// What the job adds against a bound at the least, where it is bought for in this pool.
    fn adds(self, bound: Bound, pool: PoolId) -> Option<u64> {
        least_added(self.state, self.job, pool, |held| counted_against(bound, held))
    }

    /// What of a ceiling is kept for other jobs, which are to start first.
    fn kept(self, lack: &mut LackFigures, bound: Bound, pool: Option<PoolId>) {
        let (mut kept, mut first) = (Held::default(), None);
        let Some(asks) = pool.or_else(|| self.pools().next()) else { return };
        let rooms = kept_from(self.state, Some((self.job, asks)));
        for room in rooms.filter(|room| pool.is_none_or(|pool| pool == room.pool)) {
            kept = kept.plus(if pool.is_some() { room.own } else { room.held });
            first = first.or(Some(room.job));
        }
        let kept = counted_against(bound, kept);
        let Some(job) = first.filter(|_| kept > 0) else { return };
        let amount = amount(bound, kept);
        lack.sentence.push_str(&format!(", and {amount} kept for {}, which is before it", self.known_as(job)));
        lack.set(&format!("kept_{}", unit(bound)), amount);
        lack.set("kept_for", json!(job.to_string()));
    }

    /// Another job: by its subject to its own tenant, else by its number.
    #[must_use]
    pub fn known_as(self, other: JobId) -> String {
        let tenant = |job| self.state.job(job).map(|(_, spec)| spec.tenant.as_str());
        let subject = self.state.job(other).map(|(_, spec)| spec.subject.as_str());
        let own = subject.filter(|_| tenant(other) == tenant(self.job));
        own.map_or_else(|| other.to_string(), |subject| format!("`{subject}`"))
    }

    fn held_by(
        self,
        lack: &mut LackFigures,
        pool: Option<PoolId>,
        within: Option<QuotaId>,
        holders: Option<&mut Holders>,
    ) {
        let Some(holders) = holders else { return };
        let held = holders.of(self.state, pool, within);
        if let Some(most) = held.first() {
            let text = |key: &str| most[key].as_str().unwrap_or_default().to_owned();
            let borrows = if most["borrows"] == json!(true) { ", borrowing" } else { "" };
            let (queue, tier) = (text("queue"), text("tier"));
            lack.sentence
                .push_str(&format!("; the largest holder of GPUs is `{queue}` ({tier}{borrows}): {}", most["gpus"]));
        }
        lack.set("held_by", Value::Array(held));
    }

    /// Quota that is in use: which node of the tree bounds it, its quota and use, and by whom.
    #[must_use]
    pub fn quota(self, available: MilliGpu, holders: Option<&mut Holders>) -> LackFigures {
        let mut lack = LackFigures::default();
        let Some(quota) = self.quota else { return lack };
        let tree = self.state.quota();
        // The figure is of one pool, and all others have to be of the same one. It may have changed since.
        let by_distance = |pool: &PoolId| tree.available(quota, *pool).0.abs_diff(available.0);
        let Some(pool) = self.pools().min_by_key(by_distance) else { return lack };
        let binding = binding(tree, quota, pool);
        let node = self.state.policy().and_then(|p| p.quotas.get(binding.index()));
        let pool_name = self.pool(pool).map(|p| p.name.clone()).unwrap_or_default();
        let whose = match node {
            Some(node) if binding != quota => format!("`{}`, above its queue,", node.name),
            _ => "its queue".to_owned(),
        };
        if let Some(node) = node {
            lack.set("bound", json!(format!("quota of {}", node.name)));
        }
        lack.set("pool", json!(pool_name));
        let used = number(tree.usage(binding, pool).0);
        lack.set("used_gpus", used.clone());
        if let Some(own) = tree.subtree(binding, pool).map(|own| number(own.0)) {
            lack.set("limit_gpus", own.clone());
            let borrow = node.and_then(|node| node.limits.get(&pool)).and_then(|limit| limit.borrow);
            let borrow = borrow.filter(|_| tree.parent(binding).is_some()).map(|borrow| number(borrow.0));
            let more = borrow.as_ref().map(|borrow| format!(", and may borrow {borrow},")).unwrap_or_default();
            lack.sentence = format!("{whose} uses {used} of its own {own}{more} in pool `{pool_name}`");
            if let Some(borrow) = borrow {
                lack.set("borrow_gpus", borrow);
            }
        } else {
            lack.sentence = format!("{whose} borrows in pool `{pool_name}`, and uses {used}");
        }
        let borrowed = tree.borrowed(binding, pool);
        if borrowed > MilliGpu(0) && tree.parent(binding).is_some() {
            lack.set("borrowed_gpus", number(borrowed.0));
        }
        self.held_by(&mut lack, Some(pool), Some(binding), holders);
        lack
    }

    /// The nodes of the quota tree from its queue up.
    fn lineage(self) -> impl Iterator<Item = QuotaId> + 'a {
        std::iter::successors(self.quota, move |at| self.state.quota().parent(*at))
    }

    /// The budget that leaves its queue least.
    fn tightest_budget(self) -> Option<(QuotaId, BudgetAccount)> {
        // What a node leaves is the least of its own and of all above it: one that leaves as much as those above has no part in it.
        let least = self.state.budget_room(self.quota?)?;
        let at = self.lineage().take_while(|at| self.state.budget_room(*at) == Some(least)).last()?;
        Some((at, self.state.budgets.holding(at)?))
    }

    /// A budget that is spent: whose, its amount, and what is spent of it.
    #[must_use]
    pub fn budget(self, holders: Option<&mut Holders>) -> LackFigures {
        let mut lack = LackFigures::default();
        let Some((id, account)) = self.tightest_budget() else { return lack };
        let account = account.at(self.state.now());
        let (amount, spent) = (dollars(account.budget.amount), dollars(account.spent.micro_dollars()));
        let running = dollars((account.started + account.booked).0);
        let name = self.whose_budget(&mut lack, id, account);
        lack.sentence =
            format!("`{name}` has spent {spent:.2} of {amount:.2} USD, and what runs costs {running:.2} USD/h");
        if let Some(asked) = least_rate(self.state, self.job) {
            lack.runs_end_first = account.started + account.booked + asked > Rate(account.budget.amount);
            let asked = dollars(asked.0);
            lack.sentence.push_str(&format!(", it asks at least {asked:.2} USD/h"));
            lack.set("asked_usd_per_hour", json!(asked));
        }
        lack.set("limit_usd", json!(amount));
        lack.set("spent_usd", json!(spent));
        lack.set("running_usd_per_hour", json!(running));
        self.held_by(&mut lack, None, Some(id), holders);
        lack
    }

    /// A budget in which an hour of the job alone does not fit: whose it is.
    #[must_use]
    pub fn hourly_budget(self, budget: Rate) -> LackFigures {
        let mut lack = LackFigures::default();
        let of = |at| Some((at, self.state.budgets.holding(at)?));
        let mut accounts = self.lineage().filter_map(of);
        if let Some((id, account)) = accounts.find(|(_, account)| account.budget.amount == budget.0) {
            let name = self.whose_budget(&mut lack, id, account);
            lack.sentence = format!("the budget is that of `{name}`");
        }
        lack
    }

    fn whose_budget(self, lack: &mut LackFigures, id: QuotaId, account: BudgetAccount) -> String {
        let name = self.quota_name(id);
        lack.set("bound", json!(format!("budget of {name}")));
        lack.set("queue", json!(name));
        lack.set("per", json!(account.budget.per));
        name
    }

    fn quota_name(self, id: QuotaId) -> String {
        let nodes = self.state.policy().map(|p| p.quotas.as_slice()).unwrap_or_default();
        nodes.get(id.index()).map(|node| node.name.clone()).unwrap_or_default()
    }

    /// More than all that its queue could have: which node of the tree lets it have no more.
    #[must_use]
    pub fn most_quota(self, most: MilliGpu) -> LackFigures {
        let mut lack = LackFigures::default();
        let Some(quota) = self.quota else { return lack };
        let tree = self.state.quota();
        let Some(pool) = self.pools().find(|pool| tree.potential(quota, *pool) == most) else { return lack };
        let nodes = self.state.policy().map(|p| p.quotas.as_slice()).unwrap_or_default();
        let borrow = |at: QuotaId| nodes.get(at.index()).and_then(|node| node.limits.get(&pool)).and_then(|l| l.borrow);
        // The first that could have no more than its own and what it may borrow, or the one at the top.
        let binds = |at: &QuotaId| {
            let most = borrow(*at).zip(tree.subtree(*at, pool)).map(|(borrow, own)| own + borrow);
            most == Some(tree.potential(*at, pool)) || tree.parent(*at).is_none()
        };
        let Some(at) = self.lineage().find(binds) else { return lack };
        let (name, pool_name) = (self.quota_name(at), self.pool(pool).map(|p| p.name.clone()).unwrap_or_default());
        lack.set("bound", json!(format!("quota of {name}")));
        lack.set("pool", json!(pool_name));
        if let Some(own) = tree.subtree(at, pool).map(|own| number(own.0)) {
            lack.sentence = format!("the quota of `{name}` in pool `{pool_name}` is {own}");
            lack.set("limit_gpus", own);
        }
        if let Some(borrow) = borrow(at).filter(|_| tree.parent(at).is_some()).map(|borrow| number(borrow.0)) {
            lack.sentence.push_str(&format!(", and it may borrow {borrow}"));
            lack.set("borrow_gpus", borrow);
        }
        lack
    }

    /// What is kept for a job before it: a quota or a budget, and whose.
    #[must_use]
    pub fn kept_for(self, other: JobId) -> LackFigures {
        let mut lack = LackFigures::default();
        let above: Vec<QuotaId> = self.lineage().collect();
        let mut kept =
            self.state.allowances().iter().filter(|(of, kept)| kept.job == other && above.contains(&of.node()));
        let Some((of, _)) = kept.next() else { return lack };
        let name = self.quota_name(of.node());
        let what = if matches!(of, Allowance::Budget(_)) { "budget" } else { "quota" };
        lack.set("bound", json!(format!("{what} of {name}")));
        lack.sentence = format!("the {what} of `{name}`");
        lack
    }

    /// Places that are kept for it: in which pool, on how many nodes.
    #[must_use]
    pub fn reserved(self) -> LackFigures {
        let mut lack = LackFigures::default();
        let Some((pool, made)) = self.state.reservations().iter().find(|(_, made)| made.job == self.job) else {
            return lack;
        };
        let name = self.pool(*pool).map(|p| p.name.clone()).unwrap_or_default();
        lack.sentence = format!("{} nodes of pool `{name}`", made.nodes.len());
        lack.set("pool", json!(name));
        lack.set("nodes", json!(made.nodes.len()));
        lack
    }

    /// Of the offerings that hold one of its workers, how many are out of stock or refused for now.
    #[must_use]
    pub fn stock(self) -> LackFigures {
        let mut lack = LackFigures::default();
        let Some(class) = self.state.classes().get(self.class) else { return lack };
        let all: BTreeSet<OfferingId> = class.fits.iter().flat_map(|(_, fits)| fits.iter().copied()).collect();
        let rows = self.state.offerings();
        let out = all.iter().filter_map(|id| rows.get(id.index())).filter(|row| row.blocked_until > self.state.now());
        let out = out.count();
        lack.set("offerings", json!(all.len()));
        lack.set("refused_offerings", json!(out));
        lack.sentence =
            format!("{out} of the {} offerings that hold one of its workers are refused for now", all.len());
        lack
    }

    /// Every ceiling that bounds the job, for one that would break one with nothing else running, and which are too low for it.
    #[must_use]
    pub fn ceilings(self) -> LackFigures {
        let mut lack = LackFigures::default();
        lack.set("asked_gpus", self.asked());
        let (mut limits, mut too_low) = (Vec::new(), Vec::new());
        let mut add = |pool: Option<PoolId>, ceiling: &Ceiling| {
            let name = pool.and_then(|id| self.pool(id)).map(|pool| pool.name.as_str());
            for bound in if pool.is_some() { POOL_BOUNDS } else { ALL_BOUNDS } {
                let Some(limit) = limit(bound, ceiling) else { continue };
                let adds = match pool {
                    Some(pool) => self.adds(bound, pool),
                    None => self.pools().filter_map(|pool| self.adds(bound, pool)).min(),
                };
                let mut row = Map::new();
                row.insert("bound".to_owned(), json!(bound.as_str()));
                row.insert("pool".to_owned(), json!(name));
                row.insert(format!("limit_{}", unit(bound)), amount(bound, limit));
                if let Some(adds) = adds {
                    row.insert(format!("asked_{}", unit(bound)), amount(bound, adds));
                }
                limits.push(Value::Object(row));
                if let Some(adds) = adds.filter(|adds| *adds > limit) {
                    let of = name.map(|name| format!(" of pool `{name}`")).unwrap_or_default();
                    let (adds, limit, spoken) = (amount(bound, adds), amount(bound, limit), spoken(bound));
                    too_low.push(format!("at least {adds} {spoken}, where `{}`{of} is {limit}", bound.as_str()));
                }
            }
        };
        if let Some(policy) = self.state.policy() {
            add(None, &policy.limits);
            for id in self.pools() {
                if let Some(pool) = self.pool(id) {
                    add(Some(id), &pool.ceiling);
                }
            }
            if let Some(amount) = self.quota.and_then(|quota| self.state.budget_amount(quota)) {
                lack.set("budget_usd", json!(dollars(amount.0)));
            }
        }
        too_low.truncate(MOST_TOO_LOW);
        let asked = self.asked();
        lack.sentence = if too_low.is_empty() {
            format!("it asks {asked} GPUs at once")
        } else {
            format!("it asks {asked} GPUs at once: {}", too_low.join("; "))
        };
        lack.set("limits", Value::Array(limits));
        lack
    }

    /// The offering that comes nearest to holding one of its workers, and what that lacks.
    #[must_use]
    pub fn nearest(self) -> LackFigures {
        let mut lack = LackFigures::default();
        let Some(class) = self.state.classes().get(self.class) else { return lack };
        let ask = match &class.shape.gang {
            Gang::Workers { each, .. } => *each,
            Gang::Spanning { per_gpu, .. } => WorkerAsk { gpus: 1, share: 1000, ..*per_gpu },
        };
        lack.set("asked_gpus", json!(ask.gpus));
        let models: Vec<String> =
            class.shape.models.iter().filter_map(|id| self.state.models.get(*id).cloned()).collect();
        let buys = self.state.policy().and_then(|p| p.tiers.get(class.shape.tier.index())).map(|tier| tier.buys);
        let wanted = WantedWorker { ask, models, spot: class.shape.spot, buys };
        let asked = [("gpu_mem_mib", ask.gpu_mem.0), ("cpu_milli", ask.cpu.0), ("mem_mib", ask.mem.0)];
        for (name, value) in asked.into_iter().filter(|(_, value)| *value > 0) {
            lack.set(&format!("asked_{name}"), json!(value));
        }
        if !wanted.models.is_empty() {
            lack.set("asked_models", json!(wanted.models));
        }
        let of_class = class.fits.iter().map(|(pool, _)| *pool);
        let offerings = of_class.filter_map(|id| self.pool(id)).flat_map(|pool| pool.offerings.iter());
        let offers = offerings.filter_map(|at| self.state.policy()?.offerings.get(*at as usize));
        let offers = offers.map(|offer| self.for_work(offer));
        let Some(nearest) = offers.min_by_key(|offer| (wanted.lacks(offer).len(), wanted.short(offer), offer.price))
        else {
            lack.sentence = "its queue has no pool".to_owned();
            return lack;
        };
        let lacks = wanted.lacks(&nearest);
        lack.sentence = if lacks.is_empty() {
            format!("{} would hold one worker alone, but not as the pool shares its GPUs", nearest.instance_type)
        } else {
            format!("the nearest, {}, has {}", nearest.instance_type, lacks.join(", "))
        };
        let kept = self.state.node_reserve(&nearest.instance_type).all();
        if kept != NodeRoom::default() {
            let (cpu, mem) = (kept.cpu.0, kept.mem.0);
            let own = "its system and DaemonSets";
            lack.sentence.push_str(&format!("; {own} take {cpu} thousandths of a core and {mem} MiB of a node"));
            lack.set("reserved", json!({"cpu_milli": cpu, "mem_mib": mem}));
        }
        lack.set(
            "nearest",
            json!({
                "instance_type": nearest.instance_type,
                "capacity_type": nearest.capacity,
                "gpus": nearest.gpus,
                "gpu_mem_mib": nearest.gpu_mem.0,
                "cpu_milli": nearest.cpu.0,
                "mem_mib": nearest.mem.0,
                "models": nearest.models,
            }),
        );
        lack
    }

    /// An offering as work finds it: without what of a node is not for work.
    fn for_work(&self, offer: &Offering) -> Offering {
        let kept = self.state.node_reserve(&offer.instance_type).all();
        let cpu = MilliCpu(offer.cpu.0.saturating_sub(kept.cpu.0));
        Offering { cpu, mem: Mib(offer.mem.0.saturating_sub(kept.mem.0)), ..offer.clone() }
    }
}

/// What one worker wants of a node.
struct WantedWorker {
    ask: WorkerAsk,
    models: Vec<String>,
    spot: bool,
    /// What its tier buys. `None`: it has none.
    buys: Option<Buys>,
}

impl WantedWorker {
    /// In words, what an offering has too little of.
    fn lacks(&self, offer: &Offering) -> Vec<String> {
        let mut lacks = Vec::new();
        if offer.gpus < self.ask.gpus {
            lacks.push(format!("{} GPUs of the {} asked", offer.gpus, self.ask.gpus));
        }
        if self.ask.gpus > 0 && offer.gpu_mem < self.ask.gpu_mem {
            lacks.push(format!("{} MiB on a GPU of the {} asked", offer.gpu_mem.0, self.ask.gpu_mem.0));
        }
        if offer.cpu < self.ask.cpu {
            lacks.push(format!("{} thousandths of a core of the {} asked", offer.cpu.0, self.ask.cpu.0));
        }
        if offer.mem < self.ask.mem {
            lacks.push(format!("{} MiB of memory of the {} asked", offer.mem.0, self.ask.mem.0));
        }
        if !self.models.is_empty() && !offer.models.iter().any(|model| self.models.contains(model)) {
            lacks.push(format!("model {} where {} is asked", offer.models.join("/"), self.models.join(" or ")));
        }
        match (offer.capacity, self.buys) {
            (CapacityType::Spot, _) if !self.spot => lacks.push("spot, which it may not run on".to_owned()),
            (CapacityType::Spot, Some(Buys::OnDemand)) => lacks.push("spot, which its tier does not buy".to_owned()),
            (CapacityType::OnDemand, Some(Buys::Spot)) => {
                lacks.push("on-demand capacity, which its tier does not buy".to_owned());
            }
            _ => {}
        }
        lacks
    }

    /// How much of what is asked is missing, in thousandths, over all that is asked.
    fn short(&self, offer: &Offering) -> u64 {
        let missing = |has: u64, asked: u64| asked.saturating_sub(has).saturating_mul(1000) / asked.max(1);
        missing(u64::from(offer.gpus), u64::from(self.ask.gpus))
            + missing(offer.gpu_mem.0, self.ask.gpu_mem.0)
            + missing(offer.cpu.0, self.ask.cpu.0)
            + missing(offer.mem.0, self.ask.mem.0)
    }
}

const ALL_BOUNDS: [Bound; 4] = [Bound::Nodes, Bound::OnDemandNodes, Bound::Gpus, Bound::Spend];
const POOL_BOUNDS: [Bound; 4] = [Bound::PoolNodes, Bound::PoolOnDemandNodes, Bound::PoolGpus, Bound::PoolSpend];

/// Ceilings that a sentence names at most.
const MOST_TOO_LOW: usize = 2;

/// A ceiling and what counts against it: nodes, GPUs, or micro-dollars an hour.
struct UsedBound {
    /// `None`: over all pools.
    pool: Option<PoolId>,
    limit: u64,
    used: u64,
    /// What the job adds at the least. `None`: nothing that it may have adds any.
    adds: Option<u64>,
}

impl UsedBound {
    /// Whether what the job adds breaks it.
    fn is_over(&self) -> bool {
        self.used.saturating_add(self.adds.unwrap_or(1)) > self.limit
    }
}

/// The limit of a bound: nodes, GPUs, or micro-dollars an hour. `None`: there is none.
fn limit(bound: Bound, ceiling: &Ceiling) -> Option<u64> {
    match bound {
        Bound::Nodes | Bound::PoolNodes => ceiling.nodes.map(u64::from),
        Bound::OnDemandNodes | Bound::PoolOnDemandNodes => ceiling.on_demand_nodes.map(u64::from),
        Bound::Gpus | Bound::PoolGpus => ceiling.gpus.map(u64::from),
        Bound::Spend | Bound::PoolSpend => ceiling.spend.map(|limit| limit.0),
    }
}

/// What counts against a bound of what is held, as its limit is counted.
fn counted_against(bound: Bound, held: Held) -> u64 {
    match bound {
        Bound::Nodes | Bound::PoolNodes => u64::from(held.nodes),
        Bound::OnDemandNodes | Bound::PoolOnDemandNodes => u64::from(held.on_demand_nodes),
        Bound::Gpus | Bound::PoolGpus => u64::from(held.gpus),
        Bound::Spend | Bound::PoolSpend => held.spend.0,
    }
}

/// As people read it: dollars where it is counted in micro-dollars.
fn amount(bound: Bound, counted: u64) -> Value {
    match bound {
        Bound::Spend | Bound::PoolSpend => json!(dollars(counted)),
        _ => json!(counted),
    }
}

fn unit(bound: Bound) -> &'static str {
    match bound {
        Bound::Nodes | Bound::PoolNodes => "nodes",
        Bound::OnDemandNodes | Bound::PoolOnDemandNodes => "on_demand_nodes",
        Bound::Gpus | Bound::PoolGpus => "gpus",
        Bound::Spend | Bound::PoolSpend => "usd_per_hour",
    }
}

fn spoken(bound: Bound) -> &'static str {
    match bound {
        Bound::Nodes | Bound::PoolNodes => "nodes",
        Bound::OnDemandNodes | Bound::PoolOnDemandNodes => "on-demand nodes",
        Bound::Gpus | Bound::PoolGpus => "GPUs",
        Bound::Spend | Bound::PoolSpend => "USD/h",
    }
}

/// Figures, and the part of a sentence that says them.
#[derive(Clone, Debug, Default)]
pub struct LackFigures {
    /// By name.
    pub figures: Map<String, Value>,
    /// In words. Empty: nothing is known beyond the reason.
    pub sentence: String,
    /// The clock alone will not give it: runs have to end.
    pub runs_end_first: bool,
}

impl LackFigures {
    fn set(&mut self, name: &str, value: Value) {
        self.figures.insert(name.to_owned(), value);
    }
}
