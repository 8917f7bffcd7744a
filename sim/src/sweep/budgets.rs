//! What the runs of each budget have cost in its period, counted apart from the engine, and what may start on it.
//!
//! POLICY.md, `queues.*.budget`, `whenSpent`:
//!
//! ```text
//! hold  "A job starts only while what is left pays for it and for all that runs, for an hour more or until the period ends, whichever is
//!        sooner [..]. No run is stopped for it."
//!        so each booking leaves   spent + (what runs or is booked) x min(1 h, time left)  within the amount; what runs on may spend more
//! warn  "It is reported only."    so nobody waits with `Budget` where no budget holds
//! ```
//!
//! Never: `State::budgets`. Prices are those of the nodes; what is not a whole micro-dollar an hour is left out, in favour of the engine.

use std::collections::BTreeMap;

use forebay_kernel::decision::Decision;
use forebay_kernel::effect::WorkerPlace;
use forebay_kernel::ids::{ClassId, JobId, QueueId, QuotaId};
use forebay_kernel::job::{Gang, JobSpec, WorkerAsk};
use forebay_kernel::journal::Batch;
use forebay_kernel::policy::{Budget, Period, Policy, WhenSpent};
use forebay_kernel::reason::Reason;
use forebay_kernel::state::State;
use forebay_kernel::state::jobs::{Job, Phase};
use forebay_kernel::units::{HOUR_MS, Timestamp};

use super::checks::open_jobs;

/// A budget's period: a sweep ends within January 1970.
const DAY_MS: u64 = 24 * HOUR_MS;
const JANUARY_MS: u64 = 31 * DAY_MS;

/// What was spent in the period of `since`, by then.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    since: Timestamp,
    /// Micro-dollars an hour x ms.
    spent: u128,
    /// What started places cost an hour.
    rate: u128,
}

/// Every budget of the policy in force.
#[derive(Debug, Default)]
pub(super) struct Budgets {
    accounts: BTreeMap<QuotaId, Account>,
    /// The budgets that these accounts are of: by path and period what is spent outlives a policy.
    of: BTreeMap<QuotaId, (String, Period)>,
    /// Budgets that the policy in force does not have, with what was spent of them by then. What their work costs meanwhile is left out, in favour
    /// of the engine.
    removed: BTreeMap<(String, Period), Account>,
    pub found: Vec<String>,
}

impl Budgets {
    /// A batch is durable and applied.
    pub fn batch(&mut self, batch: &Batch, waiting: &[(ClassId, Reason)], state: &State) {
        let Some(policy) = state.policy() else { return };
        self.follow(policy, state.now());
        for (id, account) in &mut self.accounts {
            let budget = policy.quotas.get(id.index()).and_then(|node| node.budget);
            account.pass(budget.map_or(Period::Month, |budget| budget.per), state.now());
        }
        for job in booked(batch) {
            self.started(job, policy, state);
        }
        for (class, reason) in waiting {
            self.waits(*class, *reason, policy, state);
        }
        self.rates(policy, state);
    }

    /// The budgets of the policy in force. POLICY.md says "in this time": what was spent of a budget stays spent under another policy, and under one
    /// that has it again.
    fn follow(&mut self, policy: &Policy, now: Timestamp) {
        let nodes = (0u16..).map(QuotaId).zip(&policy.quotas);
        let of: BTreeMap<QuotaId, (String, Period)> =
            nodes.filter_map(|(id, node)| Some((id, (node.name.clone(), node.budget?.per)))).collect();
        if of == self.of {
            return;
        }
        for (id, name) in &self.of {
            let Some(mut account) = self.accounts.get(id).copied() else { continue };
            account.pass(name.1, now);
            account.rate = 0;
            self.removed.insert(name.clone(), account);
        }
        let removed = &mut self.removed;
        self.accounts = of.iter().map(|(id, name)| (*id, removed.remove(name).unwrap_or_default())).collect();
        self.of = of;
    }

    /// A job was given places: all that its budgets hold pays for it.
    fn started(&mut self, id: JobId, policy: &Policy, state: &State) {
        // What costs nothing needs nothing to pay for it.
        let Some((job, _)) = state.job(id).filter(|(job, _)| cost(job, state) > 0) else { return };
        for quota in lineage(job.queue, policy, state) {
            let budget = policy.quotas[quota.index()].budget.filter(|b| b.when_spent == WhenSpent::Hold);
            let Some((budget, account)) = budget.zip(self.accounts.get(&quota)) else { continue };
            let under = |job: &&Job| !job.places.is_empty() && lineage(job.queue, policy, state).any(|at| at == quota);
            let own = open_jobs(state).filter(under);
            let rate: u128 = own.map(|job| cost(job, state)).sum();
            if let Some(over) = account.over(budget, rate, state.now()) {
                self.found.push(format!("at {}: {id} takes {quota} above {budget:?}: {over}", state.now().0));
            }
        }
    }

    /// A budget that only warns keeps nobody waiting.
    fn waits(&mut self, class: ClassId, reason: Reason, policy: &Policy, state: &State) {
        if !matches!(reason, Reason::Budget { .. }) {
            return;
        }
        let queue = state.classes()[class].shape.queue;
        let holds =
            |quota: QuotaId| policy.quotas[quota.index()].budget.is_some_and(|b| b.when_spent == WhenSpent::Hold);
        if !lineage(queue, policy, state).any(holds) {
            self.found.push(format!("{class} waits with {reason:?}, no budget of its queue holds anything"));
        }
    }

    /// What runs costs until the next batch.
    fn rates(&mut self, policy: &Policy, state: &State) {
        self.accounts.values_mut().for_each(|account| account.rate = 0);
        if self.accounts.is_empty() {
            return;
        }
        for job in open_jobs(state).filter(|job| !job.places.is_empty() && job.phase != Phase::Booked) {
            let cost = cost(job, state);
            for quota in lineage(job.queue, policy, state) {
                self.accounts.entry(quota).and_modify(|account| account.rate += cost);
            }
        }
    }
}

impl Account {
    /// Time passes, and what runs costs. A new period begins with nothing spent.
    fn pass(&mut self, per: Period, now: Timestamp) {
        let began = Timestamp(now.0 - now.0 % length(per));
        if began > self.since {
            (self.spent, self.since) = (0, began);
        }
        self.spent += self.rate * u128::from(now.since(self.since).0);
        self.since = self.since.max(now);
    }

    /// By what a booking breaks the promise, where this much an hour runs and is booked with it.
    fn over(&self, budget: Budget, rate: u128, now: Timestamp) -> Option<String> {
        let ends = now.0 - now.0 % length(budget.per) + length(budget.per);
        let pays_for = u128::from((ends - now.0).min(HOUR_MS));
        let (needs, amount) = (self.spent + rate * pays_for, u128::from(budget.amount) * u128::from(HOUR_MS));
        let hour = u128::from(HOUR_MS);
        (needs > amount).then(|| format!("{} is spent, {rate} an hour runs for {pays_for} ms more", self.spent / hour))
    }
}

fn length(per: Period) -> u64 {
    match per {
        Period::Hour => HOUR_MS,
        Period::Day => DAY_MS,
        Period::Month => JANUARY_MS,
    }
}

/// Jobs that a batch gives places to, and that did not give others back for them.
pub(super) fn booked(batch: &Batch) -> impl Iterator<Item = JobId> + '_ {
    let again = |job: &JobId| batch.decisions.iter().any(|d| matches!(d, Decision::Unbook { job: id } if id == job));
    let books = batch.decisions.iter().filter_map(|decision| match decision {
        Decision::Book { job, .. } => Some(*job),
        _ => None,
    });
    books.filter(move |job| !again(job))
}

/// The nodes of the quota tree from a queue's up to the root.
pub(super) fn lineage<'a>(
    queue: QueueId,
    policy: &'a Policy,
    state: &State,
) -> impl Iterator<Item = QuotaId> + use<'a> {
    let leaf = state.queues().get(queue).and_then(|queue| queue.rule.as_ref()).map(|rule| rule.quota);
    std::iter::successors(leaf, |at| policy.quotas.get(at.index())?.parent)
}

/// What the places of a job cost in an hour: its part of each node's GPUs, and without GPUs of its CPU or memory, whichever is more.
fn cost(job: &Job, state: &State) -> u128 {
    let Some((_, spec)) = state.job(job.id) else { return 0 };
    let of = |place: &WorkerPlace| {
        let node = state.node(place.node)?;
        let offer = &state.offerings()[node.offering.index()].offer;
        let part = |of: u64, all: u64| (u128::from(node.price.0) * u128::from(of)).checked_div(u128::from(all));
        if place.gpus > 0 {
            return part(place.gpu_share().0, 1000 * u64::from(offer.gpus));
        }
        let WorkerAsk { cpu, mem, .. } = each(spec);
        part(cpu.0, offer.cpu.0).max(part(mem.0, offer.mem.0))
    };
    job.places.iter().filter_map(of).sum()
}

/// What one worker of a job asks for, or of a gang that spans nodes what goes with each GPU.
pub(super) fn each(spec: &JobSpec) -> WorkerAsk {
    match &spec.gang {
        Gang::Workers { each, .. } => *each,
        Gang::Spanning { per_gpu, .. } => *per_gpu,
    }
}

#[cfg(test)]
mod tests {
    use super::super::broken::{Life, job, policy};
    use super::*;

    fn with(amount: u64, when_spent: WhenSpent) -> Policy {
        let mut policy = policy();
        policy.quotas[0].budget = Some(Budget { amount, per: Period::Day, when_spent });
        policy
    }

    /// What is found where the amount turns out to be this much.
    fn found_with(life: &Life, amount: u64) -> Vec<String> {
        let mut budgets = Budgets::default();
        for step in &life.steps {
            let mut state = step.state.clone();
            state.policy.as_mut().unwrap().quotas[0].budget.as_mut().unwrap().amount = amount;
            budgets.batch(&step.batch, &[], &state);
        }
        budgets.found
    }

    #[test]
    fn a_booking_that_the_budget_does_not_pay_for_is_found() {
        let life = Life::running(with(100_000_000, WhenSpent::Hold), vec![job("a"), job("b")]);
        assert_eq!(found_with(&life, 100_000_000), [""; 0]);
        assert!(found_with(&life, 1).iter().any(|found| found.contains("takes")));
    }

    #[test]
    fn what_was_spent_before_counts_until_the_period_ends() {
        let budget = Budget { amount: 10, per: Period::Day, when_spent: WhenSpent::Hold };
        let mut account = Account { rate: 4, ..Account::default() };
        account.pass(Period::Day, Timestamp(2 * HOUR_MS));
        assert_eq!(account.spent, 8 * u128::from(HOUR_MS));
        assert!(account.over(budget, 4, Timestamp(2 * HOUR_MS)).is_some());
        assert_eq!(account.over(budget, 2, Timestamp(2 * HOUR_MS)), None);
        account.pass(Period::Day, Timestamp(25 * HOUR_MS));
        assert_eq!(account.spent, 4 * u128::from(HOUR_MS));
        // Within the last hour of a period what runs is paid for until it ends.
        let late = Account { spent: 9 * u128::from(HOUR_MS), since: Timestamp(DAY_MS - 1), rate: 4 };
        assert_eq!(late.over(budget, 4, Timestamp(DAY_MS - 1)), None);
    }

    #[test]
    fn what_was_spent_of_a_budget_that_comes_back_counts_until_the_period_ends() {
        let (with, without) = (with(100, WhenSpent::Hold), policy());
        for (back, spent) in [(2 * HOUR_MS, 4 * u128::from(HOUR_MS)), (DAY_MS, 0)] {
            let mut budgets = Budgets::default();
            budgets.follow(&with, Timestamp(0));
            budgets.accounts.get_mut(&QuotaId(0)).unwrap().rate = 4;
            budgets.follow(&without, Timestamp(HOUR_MS));
            assert!(budgets.accounts.is_empty());
            budgets.follow(&with, Timestamp(back));
            let account = budgets.accounts.get_mut(&QuotaId(0)).unwrap();
            account.pass(Period::Day, Timestamp(back));
            assert_eq!(account.spent, spent, "back at {back}");
        }
    }

    #[test]
    fn a_wait_for_a_budget_that_only_warns_is_found() {
        for (when_spent, count) in [(WhenSpent::Hold, 0), (WhenSpent::Warn, 1)] {
            let life = Life::running(with(100_000_000, when_spent), vec![job("a")]);
            let (step, state) = (&life.steps[0], life.state());
            let class = state.jobs().next().unwrap().0.class;
            let mut budgets = Budgets::default();
            budgets.batch(&step.batch, &[(class, Reason::Budget { until: Timestamp(DAY_MS) })], &state);
            assert_eq!(budgets.found.len(), count, "{:?}", budgets.found);
        }
    }
}
