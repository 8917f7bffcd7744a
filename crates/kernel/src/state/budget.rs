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
//! ```text
//! a policy without the budget   its account is removed, and still counted, until its period ends
//! a policy with it              same name and kind of period: it goes on from what is counted; else from nothing
//! ```
//!
//! Never: stops a run. A price that rises may take a budget above its amount; then nothing starts.

use super::State;
use super::places::WorkerNeeds;
use crate::catalog::Offering;
use crate::effect::WorkerPlace;
use crate::ids::{ClassId, JobId, NodeId, QueueId, QuotaId};
use crate::policy::{Budget, Period, Policy, WhenSpent};
use crate::state::jobs::Phase;
use crate::units::{HOUR_MS, Rate, Span, Spend, Timestamp};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Removed budgets that are kept at most: more than any policy has. The ones that were removed first go.
const MOST_REMOVED: usize = 10_000;

/// All budgets, by node of the quota tree.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Budgets {
    accounts: BTreeMap<QuotaId, BudgetAccount>,
    /// Those that the policy in force does not have. Shared with the checkpoints of trials that do not change them.
    #[serde(skip)]
    removed: Arc<RemovedBudgets>,
}

/// What a budget is found by when it comes back: the path of its queue or cohort, and its kind of period.
type BudgetKey = (String, Period);

/// Removed budgets by what finds them.
type RemovedBudgets = BTreeMap<BudgetKey, RemovedBudget>;

/// A budget that a policy took away within its period.
///
/// What was spent stays, and what its runs spend without it is counted as well, exactly. While the queue or cohort is in the policy, these
/// are the runs below it. Once that is gone too, they are the runs of the queues that were below it last, wherever these are now: the runs
/// that a queue without a rule still has, and all work of a queue that another cohort has taken.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct RemovedBudget {
    /// The last rule, and what is counted.
    pub(crate) account: BudgetAccount,
    /// When the policy came that does not have it. It is kept until the period of then ends.
    pub(crate) at: Timestamp,
    /// Whose runs count.
    pub(crate) runs: RunsCounted,
}

/// Whose runs a removed budget counts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum RunsCounted {
    /// Those below this node of the policy in force.
    Below(QuotaId),
    /// Those of these queues, sorted.
    Of(Vec<QueueId>),
}

impl RemovedBudget {
    /// Whether its period is over, so that nothing of it matters any more.
    fn is_over(&self, now: Timestamp) -> bool {
        self.account.budget.per.ends(self.at) <= now
    }

    /// Whether it counts the runs of a queue that is below these nodes.
    fn counts(&self, queue: QueueId, above: &[QuotaId]) -> bool {
        match &self.runs {
            RunsCounted::Below(node) => above.contains(node),
            RunsCounted::Of(queues) => queues.binary_search(&queue).is_ok(),
        }
    }
}

/// The removed budgets that stay if so many may: those removed last; of those removed at once, the last ones by name.
fn removed_last(mut removed: RemovedBudgets, most: usize) -> RemovedBudgets {
    let too_many = removed.len().saturating_sub(most);
    if too_many > 0 {
        let mut by_age: Vec<(Timestamp, BudgetKey)> = removed.iter().map(|(key, row)| (row.at, key.clone())).collect();
        by_age.sort_unstable();
        for (_, key) in by_age.into_iter().take(too_many) {
            removed.remove(&key);
        }
    }
    removed
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

    /// Removed budgets whose period is not over, by path, in a fixed order.
    pub(crate) fn removed(&self, now: Timestamp) -> impl Iterator<Item = (&String, &RemovedBudget)> + '_ {
        self.removed.iter().filter(move |(_, row)| !row.is_over(now)).map(|((path, _), row)| (path, row))
    }

    /// Takes in a removed budget, as [`Budgets::removed()`] has it.
    pub(crate) fn recall_removed(&mut self, path: String, row: RemovedBudget) {
        Arc::make_mut(&mut self.removed).insert((path, row.account.budget.per), row);
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
        let (queue, booked) = (job.queue, job.phase == Phase::Booked);
        let lowest = self.queues[queue].rule.as_ref().map(|rule| rule.quota);
        let change = |account: &mut BudgetAccount| {
            *account = account.at(now);
            let BudgetAccount { booked: booked_costs, started, spent, .. } = account;
            edit(if booked { booked_costs } else { started }, spent);
        };
        let mut at = lowest.filter(|_| !self.budgets.none());
        while let Some(quota) = at {
            if let Some(account) = self.budgets.accounts.get_mut(&quota) {
                change(account);
            }
            at = self.quota.parent(quota);
        }
        if !self.budgets.removed.is_empty() {
            let above: Vec<QuotaId> = lowest.into_iter().flat_map(|quota| self.lineage(quota)).collect();
            self.edit_removed(queue, &above, change);
        }
    }

    /// Edits the removed budgets that count the runs of a queue below these nodes.
    fn edit_removed(&mut self, queue: QueueId, above: &[QuotaId], change: impl Fn(&mut BudgetAccount)) {
        let now = self.now;
        // The calendar is asked last, and of few.
        let counts = |row: &RemovedBudget| row.counts(queue, above) && !row.is_over(now);
        // Nothing is copied for a queue that none of them counts.
        if self.budgets.removed.values().any(counts) {
            let removed = Arc::make_mut(&mut self.budgets.removed);
            removed.values_mut().filter(|row| counts(row)).for_each(|row| change(&mut row.account));
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

    /// The same for each budget there, by its node.
    pub fn budget_rooms(&self, quota: QuotaId) -> impl Iterator<Item = (QuotaId, Rate)> + '_ {
        self.holding(quota).map(|(at, account)| (at, account.room(self.now)))
    }

    /// The budgets above a node that do not let a gang of this rate start now.
    pub fn budgets_closed(&self, quota: QuotaId, rate: Rate) -> impl Iterator<Item = QuotaId> + '_ {
        self.holding(quota).filter(move |(_, account)| account.room(self.now) < rate).map(|(at, _)| at)
    }

    /// When a gang of this rate may start there, if it may not now and nothing else changes.
    pub fn budget_opens(&self, quota: QuotaId, rate: Rate) -> Option<Timestamp> {
        self.budget_opens_beside(quota, rate, |_| Rate(0))
    }

    /// The same beside what else is as good as spent of the budget of a node.
    pub fn budget_opens_beside(
        &self,
        quota: QuotaId,
        rate: Rate,
        beside: impl Fn(QuotaId) -> Rate,
    ) -> Option<Timestamp> {
        let asked = self.holding(quota).map(|(at, account)| (account, rate + beside(at)));
        let closed = asked.filter(|(account, rate)| account.room(self.now) < *rate);
        closed.map(|(account, rate)| account.opens(self.now, rate)).max()
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
    /// by [`State::count_costs_anew`]. In records before version 5 a budget that a policy does not have is forgotten at once.
    pub(super) fn carried_budgets(&self, policy: &Policy) -> Budgets {
        let mut known = self.known_spend();
        let mut accounts = BTreeMap::new();
        for (at, node) in policy.quotas.iter().enumerate() {
            let Some(budget) = node.budget else { continue };
            let spent = known.get(&(node.name.clone(), budget.per)).map(|row| row.account.spent).unwrap_or_default();
            let account = BudgetAccount { budget, spent, started: Rate(0), booked: Rate(0), since: self.now };
            accounts.insert(QuotaId(at as u16), account);
        }
        if self.apply_version < 5 {
            return Budgets { accounts, ..Budgets::default() };
        }
        for node in &policy.quotas {
            if let Some(budget) = node.budget {
                known.remove(&(node.name.clone(), budget.per));
            }
        }
        Budgets { accounts, removed: Arc::new(removed_last(self.counted_under(policy, known), MOST_REMOVED)) }
    }

    /// What is spent in the periods that go on, up to now: of the budgets in force, and of those that were removed.
    fn known_spend(&self) -> RemovedBudgets {
        let now = self.now;
        let nodes = self.policy.as_deref().map_or(&[][..], |p| &p.quotas);
        let mut known = BTreeMap::new();
        for (at, node) in nodes.iter().enumerate() {
            let quota = QuotaId(at as u16);
            if let Some(account) = self.budgets.accounts.get(&quota) {
                let row = RemovedBudget { account: account.at(now), at: now, runs: RunsCounted::Below(quota) };
                known.entry((node.name.clone(), account.budget.per)).or_insert(row);
            }
        }
        for (key, row) in self.budgets.removed.iter().filter(|(_, row)| !row.is_over(now)) {
            let counted = || RemovedBudget { account: row.account.at(now), ..row.clone() };
            known.entry(key.clone()).or_insert_with(counted);
        }
        known
    }

    /// Removed budgets under a new policy, with nothing that costs: whose runs they count is another question there.
    fn counted_under(&self, policy: &Policy, mut removed: RemovedBudgets) -> RemovedBudgets {
        let nodes = policy.quotas.iter().enumerate();
        let nodes: BTreeMap<&str, QuotaId> = nodes.map(|(at, q)| (q.name.as_str(), QuotaId(at as u16))).collect();
        let below = self.queues_below();
        for ((path, _), row) in &mut removed {
            (row.account.started, row.account.booked) = (Rate(0), Rate(0));
            if let Some(quota) = nodes.get(path.as_str()) {
                row.runs = RunsCounted::Below(*quota);
            } else if let RunsCounted::Below(quota) = row.runs {
                row.runs = RunsCounted::Of(below.get(&quota).cloned().unwrap_or_default());
            }
        }
        removed
    }

    /// The queues whose work counts at each node of the policy in force, sorted.
    fn queues_below(&self) -> BTreeMap<QuotaId, Vec<QueueId>> {
        let mut below: BTreeMap<QuotaId, Vec<QueueId>> = BTreeMap::new();
        for (id, queue) in self.queues.iter() {
            for at in queue.rule.iter().flat_map(|rule| self.lineage(rule.quota)) {
                below.entry(at).or_default().push(id);
            }
        }
        below
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
    use crate::event::{Event, EventOutcome, Tick};
    use crate::job::JobSpec;
    use crate::journal::APPLY_VERSION;
    use crate::machine::StateMachine;
    use crate::policy::{QueueRule, QuotaNode, Tier};
    use alloc::boxed::Box;

    const MINUTE: u64 = 60_000;

    /// The queue `lab/a` below the cohort `lab`. A budget of the cohort of this kind; `None`: it has none.
    fn policy(per: Option<Period>) -> Policy {
        let budget = per.map(|per| Budget { amount: 100, per, when_spent: WhenSpent::Hold });
        let lab = QuotaNode { name: "lab".into(), budget, ..QuotaNode::default() };
        let queue = QuotaNode { name: "lab/a".into(), parent: Some(QuotaId(0)), ..QuotaNode::default() };
        let rule = QueueRule { quota: QuotaId(1), ..QueueRule::default() };
        Policy {
            tiers: [Tier::default()].into(),
            quotas: [lab, queue].into(),
            queues: [("lab/a".into(), rule)].into(),
            ..Policy::default()
        }
    }

    /// Neither the queue nor its cohort.
    fn without_the_queue() -> Policy {
        Policy { tiers: [Tier::default()].into(), ..Policy::default() }
    }

    fn event(machine: &mut StateMachine, now: u64, version: u32, event: &Event) -> EventOutcome {
        machine.apply_tick(Tick { now: Timestamp(now), resumed: false, delivered: 0 }, version);
        machine.apply_event(event)
    }

    fn configure(machine: &mut StateMachine, now: u64, policy: Policy) {
        let _ = event(machine, now, APPLY_VERSION, &Event::Configured(Box::new(policy)));
    }

    /// A budget of which 3 (micro-dollars an hour x milliseconds) are spent after a minute, and a job that waits in the queue.
    fn spent(per: Period) -> (StateMachine, JobId) {
        let mut machine = StateMachine::default();
        configure(&mut machine, 0, policy(Some(per)));
        let spec = JobSpec { subject: "j".into(), queue: "lab/a".into(), ..JobSpec::default() };
        let EventOutcome::Submitted(job) =
            event(&mut machine, MINUTE, APPLY_VERSION, &Event::JobSubmitted(Box::new(spec)))
        else {
            panic!("not submitted");
        };
        machine.state_mut().set_spent(QuotaId(0), Spend(3));
        (machine, job)
    }

    fn spent_now(machine: &StateMachine) -> Option<Spend> {
        machine.budgets.accounts().next().map(|(_, account)| account.at(machine.now()).spent)
    }

    fn again(machine: &StateMachine) -> StateMachine {
        StateMachine::restore(&machine.encode().unwrap()).unwrap()
    }

    #[test]
    fn a_budget_that_comes_back_within_its_period_goes_on_from_what_was_spent() {
        for (per, last) in [(Period::Hour, HOUR_MS - 1), (Period::Day, 24 * HOUR_MS - 1), (Period::Month, 40 * HOUR_MS)]
        {
            for between in [policy(None), without_the_queue()] {
                let (mut machine, _) = spent(per);
                configure(&mut machine, 2 * MINUTE, between.clone());
                assert_eq!(spent_now(&machine), None);
                // Another policy without it changes nothing, and neither does a restart.
                configure(&mut machine, 3 * MINUTE, without_the_queue());
                machine = again(&machine);
                configure(&mut machine, 4 * MINUTE, between);
                configure(&mut machine, last, policy(Some(per)));
                assert_eq!(spent_now(&machine), Some(Spend(3)), "{per:?}");
                assert!(machine.budgets.removed.is_empty());
            }
        }
    }

    #[test]
    fn it_begins_with_nothing_in_a_new_period() {
        for (per, next) in [(Period::Hour, HOUR_MS), (Period::Day, 24 * HOUR_MS), (Period::Month, 31 * 24 * HOUR_MS)] {
            let (mut machine, job) = spent(per);
            configure(&mut machine, 2 * MINUTE, policy(None));
            machine.state_mut().charge(job, Rate(4), Span::ZERO);
            assert_eq!(machine.budgets.removed(Timestamp(next - 1)).count(), 1);
            assert_eq!(machine.budgets.removed(Timestamp(next)).count(), 0);
            configure(&mut machine, next, policy(Some(per)));
            assert_eq!(spent_now(&machine), Some(Spend(0)), "{per:?}");
            assert!(machine.budgets.removed.is_empty());
        }
    }

    #[test]
    fn another_kind_of_period_begins_with_nothing_and_the_first_kind_goes_on() {
        let (mut machine, _) = spent(Period::Day);
        configure(&mut machine, 2 * MINUTE, policy(Some(Period::Hour)));
        assert_eq!(spent_now(&machine), Some(Spend(0)));
        machine.state_mut().set_spent(QuotaId(0), Spend(1));
        configure(&mut machine, 3 * MINUTE, policy(Some(Period::Day)));
        assert_eq!(spent_now(&machine), Some(Spend(3)));
        configure(&mut machine, 4 * MINUTE, policy(Some(Period::Hour)));
        assert_eq!(spent_now(&machine), Some(Spend(1)));
    }

    #[test]
    fn what_runs_without_the_budget_is_counted_on() {
        for between in [policy(None), without_the_queue()] {
            let (mut machine, job) = spent(Period::Day);
            configure(&mut machine, 2 * MINUTE, between);
            machine.state_mut().charge(job, Rate(4), Span::ZERO);
            let mut machine = again(&machine);
            machine.apply_tick(Tick { now: Timestamp(5 * MINUTE), resumed: false, delivered: 0 }, APPLY_VERSION);
            let before = machine.encode().unwrap();
            let mark = machine.checkpoint();
            machine.discharge(job, Rate(4), Span::ZERO);
            machine.rollback(mark);
            assert_eq!(machine.encode().unwrap(), before, "a trial leaves a trace");
            machine.state_mut().discharge(job, Rate(4), Span::ZERO);
            configure(&mut machine, 9 * MINUTE, policy(Some(Period::Day)));
            assert_eq!(spent_now(&machine), Some(Spend(3 + 4 * 3 * u128::from(MINUTE))));
        }
    }

    #[test]
    fn records_before_version_five_forget_it_at_once() {
        let (mut machine, _) = spent(Period::Day);
        for (minute, per) in [(2, None), (3, Some(Period::Day))] {
            let _ = event(&mut machine, minute * MINUTE, 4, &Event::Configured(Box::new(policy(per))));
        }
        assert_eq!(spent_now(&machine), Some(Spend(0)));
    }

    #[test]
    fn of_too_many_the_ones_that_were_removed_first_are_forgotten() {
        let row = |at: u64| RemovedBudget {
            account: account(100, Period::Day, 1, 0),
            at: Timestamp(at),
            runs: RunsCounted::Of(Vec::new()),
        };
        let rows = [(3, "a"), (1, "b"), (2, "c"), (1, "d")];
        let removed: RemovedBudgets = rows.map(|(at, path)| ((String::from(path), Period::Day), row(at))).into();
        let left = |most: usize| {
            let left = removed_last(removed.clone(), most);
            left.keys().map(|(path, _)| path.as_str()).collect::<String>()
        };
        assert_eq!([left(9), left(4), left(3), left(2), left(0)], ["abcd", "abcd", "acd", "ac", ""]);
    }

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
