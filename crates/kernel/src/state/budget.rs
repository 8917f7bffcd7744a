//! Money by queue and cohort: what the runs of a subtree cost now, and what they have cost in this period.
//!
//! ```text
//! a worker costs   the node's price x its part of the node's GPUs; without GPUs, its part of the node's CPU or memory,
//!                  whichever is more; rounded up to a micro-dollar an hour for each GPU
//! spent            price x time of started places, exact. Booked places cost nothing yet, but are counted on.
//! one more may     if  spent + (all that is started and booked + the new one) x h  is within the amount,
//!                  h = an hour, or what is left of the period if that is less
//!                  and an hour of all of it is within the amount
//! ```
//!
//! The period's turn is made up lazily: nothing is to do at midnight for budgets that nobody looks at.
//!
//! Never: stops a run. A price that rises may take a budget above its amount; then nothing starts.

use super::State;
use super::places::WorkerNeeds;
use crate::catalog::Offering;
use crate::effect::WorkerPlace;
use crate::ids::{ClassId, JobId, NodeId, QuotaId};
use crate::policy::{Budget, Period, Policy, WhenSpent};
use crate::state::jobs::Phase;
use crate::units::{HOUR_MS, Rate, Span, Spend, Timestamp};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// All budgets, by node of the quota tree.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Budgets {
    accounts: BTreeMap<QuotaId, BudgetAccount>,
}

/// One budget and what is counted against it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BudgetAccount {
    /// The rule.
    pub budget: Budget,
    /// Spent in the period of `since`, up to then.
    pub spent: Spend,
    /// What started places cost.
    pub started: Rate,
    /// What booked places will cost.
    pub booked: Rate,
    /// Counted up to then.
    pub since: Timestamp,
}

impl BudgetAccount {
    /// The same, counted up to `now`. A new period begins with nothing spent.
    #[must_use]
    pub fn at(self, now: Timestamp) -> BudgetAccount {
        let began = self.budget.per.began(now);
        let mut spent = if began > self.since { Spend::default() } else { self.spent };
        spent += self.started.over(now.since(self.since.max(began)));
        BudgetAccount { spent, since: self.since.max(now), ..self }
    }

    /// The amount, in the unit of what is spent.
    fn amount(&self) -> u128 {
        u128::from(self.budget.amount) * u128::from(HOUR_MS)
    }

    fn holds(&self) -> bool {
        self.budget.when_spent == WhenSpent::Hold
    }

    /// The dearest gang that may still start at `now`.
    fn room(self, now: Timestamp) -> Rate {
        let own = self.at(now);
        let running = u128::from((own.started + own.booked).0);
        let left = self.budget.per.ends(now).since(now).0.clamp(1, HOUR_MS);
        let by_period = own.amount().saturating_sub(own.spent.0) / u128::from(left);
        let most = by_period.min(u128::from(self.budget.amount));
        Rate(u64::try_from(most.saturating_sub(running)).unwrap_or(u64::MAX))
    }

    /// When a gang of this rate may start if runs end at these times, the first one first, and how many of them have to.
    #[must_use]
    pub fn opens_after(self, now: Timestamp, rate: Rate, ends: &[(Timestamp, Rate)]) -> (Timestamp, usize) {
        let mut own = self.at(now);
        (own.started, own.booked) = (own.started + own.booked, Rate(0));
        let mut at = now;
        for (count, (end, less)) in ends.iter().enumerate() {
            let opens = if own.room(at) >= rate { at } else { own.opens(at, rate) };
            if opens < *end && own.at(opens).room(opens) >= rate {
                return (opens, count);
            }
            at = at.max(*end);
            own = own.at(at);
            own.started = own.started - *less;
        }
        (if own.room(at) >= rate { at } else { own.opens(at, rate) }, ends.len())
    }

    /// The dearest that may start now beside a gang that is to start at `from`, when runs of a rate of `less` are gone. `lasts`: it is over by then.
    #[must_use]
    pub fn beside(self, now: Timestamp, from: Timestamp, gang: Rate, less: Rate, lasts: Option<Span>) -> Rate {
        let mut own = self.at(now);
        (own.started, own.booked) = (own.started + own.booked, Rate(0));
        let stays = u128::from((own.started - less + gang).0);
        let at_once = u128::from(self.budget.amount).saturating_sub(if lasts.is_some() { 0 } else { stays });
        let per = self.budget.per;
        let left = per.ends(from).since(from).0.clamp(1, HOUR_MS);
        // An hour of what runs is within the amount at any time: what was spent before says nothing more.
        let slack = own.amount().saturating_sub(own.at(from).spent.0 + stays * u128::from(left));
        let before = from.since(now.max(per.began(from))).0;
        let paid = lasts.map_or(before + left, |lasts| lasts.0.min(before)).max(1);
        let in_all = if per == Period::Hour { at_once } else { slack / u128::from(paid) };
        Rate(u64::try_from(at_once.min(in_all)).unwrap_or(u64::MAX))
    }

    /// When a gang of this rate may start if nothing else changes. Within the period's last hour the demand on what is left falls
    /// from moment to moment: `spent + started T + (running + rate) (end - T)` reaches the amount at an instant that is computed
    /// here; at the next period's beginning at the latest.
    fn opens(self, now: Timestamp, rate: Rate) -> Timestamp {
        let own = self.at(now);
        let end = self.budget.per.ends(now);
        let all = (own.started + own.booked + rate).0;
        let falls = u128::from((own.booked + rate).0);
        if all > self.budget.amount || falls == 0 {
            return end;
        }
        let left = end.since(now).0;
        let over = (own.spent.0 + u128::from(all) * u128::from(left)).saturating_sub(own.amount());
        let wait = u64::try_from(over.div_ceil(falls)).unwrap_or(u64::MAX).max(left.saturating_sub(HOUR_MS));
        Timestamp(now.0.saturating_add(wait).min(end.0))
    }
}

impl Budgets {
    /// Budgets as they were last counted.
    pub fn accounts(&self) -> impl Iterator<Item = (QuotaId, BudgetAccount)> + '_ {
        self.accounts.iter().map(|(quota, account)| (*quota, *account))
    }

    /// The budget of a node, if it holds anything back.
    #[must_use]
    pub fn holding(&self, node: QuotaId) -> Option<BudgetAccount> {
        self.accounts.get(&node).copied().filter(BudgetAccount::holds)
    }

    /// Whether the policy has none.
    pub fn none(&self) -> bool {
        self.accounts.is_empty()
    }
}

/// What `n` GPUs of a node cost, each with this share of it, or a worker without GPUs.
pub fn part_of(price: Rate, offer: &Offering, gpus: u64, share: u16, needs: WorkerNeeds) -> Rate {
    let part = |of: u64, all: u64| {
        let up = (u128::from(price.0) * u128::from(of)).checked_div(u128::from(all.max(1))).unwrap_or(0);
        let exact = up * u128::from(all.max(1)) == u128::from(price.0) * u128::from(of);
        Rate(u64::try_from(up + u128::from(!exact)).unwrap_or(u64::MAX))
    };
    if gpus > 0 {
        part(u64::from(share), 1000 * u64::from(offer.gpus)).times(gpus)
    } else {
        part(needs.cpu.0, offer.cpu.0).max(part(needs.mem.0, offer.mem.0))
    }
}

impl State {
    /// What places of a class cost now. Nodes that are gone cost nothing.
    pub fn cost_of(&self, class: ClassId, places: &[WorkerPlace]) -> Rate {
        let of = |place: &WorkerPlace| {
            let node = self.nodes.get(&place.node)?;
            let offer = &self.offerings[node.offering.index()].offer;
            let needs = WorkerNeeds::of(&self.classes[class].shape.gang, place);
            Some(part_of(node.price, offer, u64::from(place.gpus.count_ones()), place.share, needs))
        };
        places.iter().filter_map(of).fold(Rate(0), |all, one| all + one)
    }

    /// Takes what a job costs out of the budgets above it. Always followed by [`State::cost_in`] or the end of its places.
    pub(crate) fn cost_out(&mut self, id: JobId) {
        self.discharge(id, self.jobs[id].rate, Span::ZERO);
        self.edit_job_quietly(id, |job| job.rate = Rate(0));
    }

    /// Counts what a job's places cost.
    pub(crate) fn cost_in(&mut self, id: JobId) {
        let job = &self.jobs[id];
        let rate = self.cost_of(job.class, &job.places);
        self.charge(id, rate, Span::ZERO);
        self.edit_job_quietly(id, |job| job.rate = rate);
    }

    /// Counts what places cost for the queue of a job, in a trial: as if they had not been discharged for a while to come.
    pub(crate) fn charge(&mut self, id: JobId, rate: Rate, still: Span) {
        self.edit_accounts(id, |costs, spent| {
            *costs = *costs + rate;
            *spent = Spend(spent.0.saturating_sub(rate.over(still).0));
        });
    }

    /// Takes what a job costs out of the budgets of its queue, in a trial, once it has cost that for a while still.
    pub(crate) fn discharge(&mut self, id: JobId, rate: Rate, still: Span) {
        self.edit_accounts(id, |costs, spent| {
            *costs = *costs - rate;
            *spent += rate.over(still);
        });
    }

    /// Edits, in every budget above a job, what those of its kind cost (booked or started) and what was spent.
    fn edit_accounts(&mut self, id: JobId, edit: impl Fn(&mut Rate, &mut Spend)) {
        let (now, job) = (self.now, &self.jobs[id]);
        let rule = self.queues[job.queue].rule.as_ref();
        let booked = job.phase == Phase::Booked;
        let mut at = rule.map(|rule| rule.quota).filter(|_| !self.budgets.none());
        while let Some(quota) = at {
            if let Some(account) = self.budgets.accounts.get_mut(&quota) {
                *account = account.at(now);
                let BudgetAccount { booked: booked_costs, started, spent, .. } = account;
                edit(if booked { booked_costs } else { started }, spent);
            }
            at = self.quota.parent(quota);
        }
    }

    /// A node's price moves, and with it what the work on it costs.
    pub(crate) fn reprice(&mut self, node: NodeId, price: Rate) {
        let Some(row) = self.nodes.get(&node).filter(|row| row.price != price) else {
            return;
        };
        let mut jobs = row.holds.clone();
        jobs.sort_unstable();
        jobs.dedup();
        for job in &jobs {
            self.cost_out(*job);
        }
        self.edit_node(node, |row| row.price = price);
        for job in &jobs {
            self.cost_in(*job);
        }
    }

    /// Counts a job whose places take a budget that only warns above its amount.
    pub(crate) fn count_over_budget(&mut self, id: JobId) {
        let rule = self.queues[self.jobs[id].queue].rule.as_ref();
        let warns = |quota: QuotaId| self.budgets.accounts.get(&quota).is_some_and(|a| !a.holds() && self.over(*a));
        let over = rule.is_some_and(|rule| self.lineage(rule.quota).any(warns));
        self.counters.over_budget += u64::from(over);
    }

    fn over(&self, account: BudgetAccount) -> bool {
        let now = account.at(self.now);
        let left = account.budget.per.ends(self.now).since(self.now).0.min(HOUR_MS);
        now.spent.0 + u128::from((now.started + now.booked).0) * u128::from(left) > account.amount()
    }

    /// The dearest gang that budgets still let start at this node of the quota tree. `None`: none of them holds anything.
    pub fn budget_room(&self, quota: QuotaId) -> Option<Rate> {
        self.holding(quota).map(|(_, account)| account.room(self.now)).min()
    }

    /// The budgets above a node that do not let a gang of this rate start now.
    pub fn budgets_closed(&self, quota: QuotaId, rate: Rate) -> impl Iterator<Item = QuotaId> + '_ {
        self.holding(quota).filter(move |(_, account)| account.room(self.now) < rate).map(|(at, _)| at)
    }

    /// When a gang of this rate may start there, if it may not now and nothing else changes.
    pub fn budget_opens(&self, quota: QuotaId, rate: Rate) -> Option<Timestamp> {
        let closed = self.holding(quota).filter(|(_, account)| account.room(self.now) < rate);
        closed.map(|(_, account)| account.opens(self.now, rate)).max()
    }

    /// Whether what is left for a gang becomes more by time alone: within the last hour of a period.
    pub fn budget_grows(&self, quota: QuotaId) -> bool {
        self.budget_period_ends(quota).is_some_and(|end| end.since(self.now).0 <= HOUR_MS)
    }

    /// When the first period of a budget ends that holds here.
    pub fn budget_period_ends(&self, quota: QuotaId) -> Option<Timestamp> {
        self.holding(quota).map(|(_, account)| account.budget.per.ends(self.now)).min()
    }

    /// The least of the amounts that an hour of a gang has to fit in.
    pub fn budget_amount(&self, quota: QuotaId) -> Option<Rate> {
        self.holding(quota).map(|(_, account)| Rate(account.budget.amount)).min()
    }

    /// The budgets above a node that hold anything back.
    fn holding(&self, quota: QuotaId) -> impl Iterator<Item = (QuotaId, &BudgetAccount)> + '_ {
        let quota = (!self.budgets.none()).then_some(quota);
        let lineage = quota.into_iter().flat_map(|quota| self.lineage(quota));
        let accounts = lineage.filter_map(|at| Some((at, self.budgets.accounts.get(&at)?)));
        accounts.filter(|(_, account)| account.holds())
    }

    /// Sets what was spent of a budget in this period, up to now. Nothing happens where there is none.
    pub(crate) fn set_spent(&mut self, quota: QuotaId, spent: Spend) {
        let now = self.now;
        if let Some(account) = self.budgets.accounts.get_mut(&quota) {
            *account = BudgetAccount { spent, since: now, ..account.at(now) };
        }
    }

    /// Budgets under a new policy: what is spent follows the path, unless the kind of period is another one. Rates are counted anew
    /// by [`State::count_costs_anew`].
    pub(super) fn carried_budgets(&self, policy: &Policy) -> Budgets {
        let old = self.policy.as_deref().map_or(&[][..], |p| &p.quotas);
        let spent = |name: &str, budget: &Budget| {
            let at = old.iter().position(|q| q.name == name && q.budget.is_some_and(|b| b.per == budget.per))?;
            Some(self.budgets.accounts.get(&QuotaId(at as u16))?.at(self.now).spent)
        };
        let account = |(at, node): (usize, &crate::policy::QuotaNode)| {
            let budget = node.budget?;
            let spent = spent(&node.name, &budget).unwrap_or_default();
            let account = BudgetAccount { budget, spent, started: Rate(0), booked: Rate(0), since: self.now };
            Some((QuotaId(at as u16), account))
        };
        Budgets { accounts: policy.quotas.iter().enumerate().filter_map(account).collect() }
    }

    /// Counts what all jobs with places cost, from nothing.
    pub(super) fn count_costs_anew(&mut self) {
        let holders: Vec<JobId> = self.index.holding.values().flatten().copied().collect();
        for job in holders {
            self.cost_in(job);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(amount: u64, per: Period, spent: u64, started: u64) -> BudgetAccount {
        let budget = Budget { amount, per, when_spent: WhenSpent::Hold };
        let spent = Spend(u128::from(spent) * u128::from(HOUR_MS));
        BudgetAccount { budget, spent, started: Rate(started), booked: Rate(0), since: Timestamp(0) }
    }

    #[test]
    fn a_gang_opens_at_the_first_instant_at_which_there_is_room_for_it() {
        for (amount, spent, started, rate) in
            [(100, 40, 2, 7), (100, 90, 0, 30), (60, 10, 2, 5), (10, 0, 3, 8), (7, 3, 0, 6)]
        {
            let own = account(amount, Period::Day, spent, started);
            let closed = (0..24 * 60).map(|m| Timestamp(m * 60_000)).find(|at| own.room(*at) < Rate(rate));
            let Some(now) = closed else { continue };
            let opens = own.opens(now, Rate(rate));
            let end = Period::Day.ends(now);
            if opens < end {
                assert!(own.room(opens) >= Rate(rate), "{own:?} {rate} at {opens:?}");
            }
            for before in [opens.0 - 1, (now.0 + opens.0) / 2, now.0] {
                assert!(own.room(Timestamp(before)) < Rate(rate), "{own:?} {rate} at {before}");
            }
        }
    }

    #[test]
    fn an_hourly_budget_bounds_the_rate() {
        let own = account(10, Period::Hour, 0, 4);
        assert_eq!((own.room(Timestamp(0)), own.room(Timestamp(HOUR_MS - 1))), (Rate(6), Rate(6)));
        assert_eq!(own.opens(Timestamp(5), Rate(7)), Timestamp(HOUR_MS));
    }

    #[test]
    fn a_new_period_begins_with_what_runs() {
        let own = account(100, Period::Hour, 50, 4).at(Timestamp(3 * HOUR_MS + HOUR_MS / 2));
        assert_eq!(own.spent, Rate(4).over(crate::units::Span(HOUR_MS / 2)));
    }
}
