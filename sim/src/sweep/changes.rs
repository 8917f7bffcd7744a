//! What another policy must leave as it is: what runs in a pool that it does not have or names otherwise, the pool's name in the bill, and what was
//! spent of a budget.
//!
//! ```text
//! runs of a pool that goes or has another name   go on: they keep their places, and nobody takes them who could not use what they hold
//! node time by offering and pool                 == what is charged to the pool's name, or to its other one, after every change and at the end
//! spent of a budget that goes and comes back     not less than before, in one period
//! ```
//!
//! POLICY-CHANGES.md: "Nothing that runs is stopped because a number changed"; the kernel's journal.rs, version 5: "a pool that a policy no longer
//! has keeps its nodes and what runs there; what was spent [..] stays known until its period ends".
//!
//! Never: a node's or a run's pool by the position that the engine has for it now, once it was seen for the first time.

use std::collections::{BTreeMap, BTreeSet};

use forebay_kernel::catalog::CapacityType;
use forebay_kernel::decision::{Decision, StopCause};
use forebay_kernel::event::Event;
use forebay_kernel::ids::{Attempt, JobId, NodeId, OfferingId};
use forebay_kernel::job::Gang;
use forebay_kernel::journal::Batch;
use forebay_kernel::policy::{Ceiling, Period, Policy};
use forebay_kernel::state::State;
use forebay_kernel::state::billing::{Charge, all_shares};
use forebay_kernel::state::jobs::Job;
use forebay_kernel::state::nodes::NodePhase;
use forebay_kernel::units::Timestamp;

use super::checks::open_jobs;
use super::deaths::may_end;
use super::operators::first_name;

/// Node time is counted by what was bought and in which pool, by the pool's first name.
type Billed = (OfferingId, String);

/// A run as it is until the next batch.
#[derive(Clone, Debug)]
struct PoolRun {
    attempt: Attempt,
    /// By its first name.
    pool: String,
    places: usize,
}

/// What was spent of a budget, by when.
#[derive(Clone, Copy, Debug)]
struct Spent {
    amount: u128,
    by: Timestamp,
}

/// What has to outlive policies.
#[derive(Debug, Default)]
pub(super) struct PolicyChanges {
    /// The pools of the policy in force, as they are named there. Empty: none was seen yet.
    pools: BTreeSet<String>,
    /// The pool of each node that was bought, by its first name.
    nodes: BTreeMap<NodeId, String>,
    runs: BTreeMap<JobId, PoolRun>,
    /// Shares of nodes that are paid for until the next batch.
    passing: BTreeMap<Billed, u64>,
    since: Timestamp,
    /// Shares x ms that nodes were there.
    was_there: BTreeMap<Billed, i128>,
    charged: BTreeMap<Billed, i128>,
    /// Of the budgets in force, after the last batch.
    spent: BTreeMap<(String, Period), Spent>,
    /// Of budgets that the policy in force does not have.
    removed: BTreeMap<(String, Period), Spent>,
    pub found: Vec<String>,
}

impl PolicyChanges {
    /// A batch is durable and applied, and charges this.
    pub fn batch(&mut self, batch: &Batch, charges: &[Charge], state: &State) {
        let Some(policy) = state.policy() else { return };
        let entered = batch.events.iter().rev().find_map(|event| match event {
            Event::Configured(entered) => Some(&**entered),
            _ => None,
        });
        let before = match entered {
            _ if self.pools.is_empty() => std::mem::replace(&mut self.pools, names(entered.unwrap_or(policy))),
            Some(entered) => std::mem::replace(&mut self.pools, names(entered)),
            None => BTreeSet::new(),
        };
        let changed: BTreeSet<&str> = before.difference(&self.pools).map(|name| first_name(name)).collect();
        let mut found = self.dropped(&changed, batch, state);
        found.extend(batch.decisions.iter().filter_map(|decision| self.taken(decision, policy, state)));
        self.found.append(&mut found);
        self.bill(charges, state);
        if entered.is_some() {
            self.bill_holds(state);
        }
        self.budgets(entered.is_some(), policy, state);
        self.follow(policy, state);
    }

    /// At the end all node time is in the bill, under the names that it was bought under.
    pub fn end(&mut self, state: &State) {
        self.bill_holds(state);
    }

    /// Runs of these pools that have lost places though nothing has happened to them.
    fn dropped(&self, changed: &BTreeSet<&str>, batch: &Batch, state: &State) -> Vec<String> {
        let of_them = self.runs.iter().filter(|(_, run)| changed.contains(run.pool.as_str()));
        let dropped = of_them.filter(|(id, run)| {
            let as_it_was = |row: &Job| row.attempt == run.attempt && row.alive() && row.places.len() == run.places;
            let kept = state.job(**id).is_some_and(|(row, _)| as_it_was(row));
            !kept && !batch.events.iter().any(|event| may_end(event, **id))
        });
        let (at, why) = (state.now().0, "though only its pool went or has another name");
        dropped.map(|(id, run)| format!("at {at}: {id} in `{}` has lost what it held {why}", run.pool)).collect()
    }

    /// Whether a decision takes a run of a pool that the policy does not have, for a job that can use nothing of what that frees.
    fn taken(&self, decision: &Decision, policy: &Policy, state: &State) -> Option<String> {
        let (Decision::Stop { job, cause, .. } | Decision::Shrink { job, cause, .. }) = decision else { return None };
        let (StopCause::Preempted { by } | StopCause::QuotaReclaimed { by } | StopCause::Overran { by }) = cause else {
            return None;
        };
        let run = self.runs.get(job)?;
        let there = self.pools.iter().any(|name| first_name(name) == run.pool);
        (!there && has_room(*by, policy, state)).then(|| {
            let (at, pool) = (state.now().0, &run.pool);
            format!("at {at}: {job} is stopped with {cause:?}, its pool `{pool}` is gone and no ceiling holds {by}")
        })
    }

    /// Time passes for nodes as they were after the last batch, and more of it is charged.
    fn bill(&mut self, charges: &[Charge], state: &State) {
        let ms = i128::from(state.now().since(self.since).0);
        self.since = self.since.max(state.now());
        for (billed, shares) in &self.passing {
            *self.was_there.entry(billed.clone()).or_default() += i128::from(*shares) * ms;
        }
        charge(&mut self.charged, charges, state);
    }

    fn bill_holds(&mut self, state: &State) {
        // A ledger that began later does not know what was before.
        if state.billing().is_none_or(|billing| billing.began().at > Timestamp(0)) {
            return;
        }
        let mut charged = self.charged.clone();
        charge(&mut charged, &state.open_charges(), state);
        let all: BTreeSet<&Billed> = charged.keys().chain(self.was_there.keys()).collect();
        for billed in all {
            let of = |sums: &BTreeMap<Billed, i128>| sums.get(billed).copied().unwrap_or(0);
            let (says, was) = (of(&charged), of(&self.was_there));
            if says != was {
                let (at, (offering, pool)) = (state.now().0, billed);
                self.found.push(format!("at {at}: {offering} in `{pool}` was there for {was}, it is charged {says}"));
            }
        }
    }

    /// What was spent of a budget that is back is not less than when it went.
    fn budgets(&mut self, changed: bool, policy: &Policy, state: &State) {
        let now = state.now();
        let accounts = state.budgets.accounts().filter_map(|(quota, account)| {
            let name = policy.quotas.get(quota.index())?.name.clone();
            Some(((name, account.budget.per), Spent { amount: account.at(now).spent.0, by: now }))
        });
        let before = std::mem::replace(&mut self.spent, accounts.collect());
        if !changed {
            return;
        }
        self.removed.extend(before.into_iter().filter(|(budget, _)| !self.spent.contains_key(budget)));
        for (budget, is) in &self.spent {
            let Some(was) = self.removed.remove(budget) else { continue };
            let same = budget.1.began(was.by) == budget.1.began(now);
            if same && is.amount < was.amount {
                let (at, is, was, by) = (now.0, is.amount, was.amount, was.by.0);
                self.found.push(format!("at {at}: {budget:?} is back with {is} spent, it was {was} at {by}"));
            }
        }
    }

    /// What is there until the next batch.
    fn follow(&mut self, policy: &Policy, state: &State) {
        self.passing.clear();
        for node in state.bought_nodes() {
            let Some(pool) = policy.pools.get(node.pool.index()) else { continue };
            let name = self.nodes.entry(node.id).or_insert_with(|| first_name(&pool.name).to_owned());
            if node.phase != NodePhase::Requested {
                let offer = &state.offerings()[node.offering.index()].offer;
                *self.passing.entry((node.offering, name.clone())).or_default() += all_shares(offer);
            }
        }
        self.nodes.retain(|id, _| state.node(*id).is_some());
        let of = |job: &Job| {
            let pool = self.nodes.get(&job.places.first()?.node)?.clone();
            Some((job.id, PoolRun { attempt: job.attempt, pool, places: job.places.len() }))
        };
        self.runs = open_jobs(state).filter(|job| job.alive()).filter_map(of).collect();
    }
}

/// The names of a policy's pools.
fn names(policy: &Policy) -> BTreeSet<String> {
    policy.pools.iter().map(|pool| pool.name.clone()).collect()
}

/// Adds charges up by what was bought and in which pool. What nobody bought is no part of it.
fn charge(sums: &mut BTreeMap<Billed, i128>, charges: &[Charge], state: &State) {
    let pools = state.billing().map_or(&[][..], |billing| billing.pools());
    for Charge { key, amount } in charges {
        let bought = |offering: OfferingId| {
            state.offerings().get(offering.index()).is_some_and(|row| row.offer.capacity != CapacityType::Owned)
        };
        if bought(key.offering) {
            let name = pools.get(usize::from(key.pool.0)).map_or("?", |name| first_name(name));
            *sums.entry((key.offering, name.to_owned())).or_default() += amount;
        }
    }
}

/// Whether no ceiling over all pools keeps nodes from a job, even if each of its workers needs one. Room that is kept for somebody counts as taken.
fn has_room(id: JobId, policy: &Policy, state: &State) -> bool {
    let Some((_, spec)) = state.job(id) else { return false };
    let most = match &spec.gang {
        Gang::Workers { max, .. } => *max as usize,
        Gang::Spanning { gpus, .. } => *gpus as usize,
    };
    let Ceiling { nodes, on_demand_nodes, gpus, spend } = &policy.limits;
    let other = on_demand_nodes.is_some() || gpus.is_some() || spend.is_some();
    let used = state.bought_nodes().count() + most;
    !other && state.reservations().is_empty() && nodes.is_none_or(|nodes| used <= nodes as usize)
}

#[cfg(test)]
mod tests {
    use super::super::broken::{Life, Step, job, policy};
    use super::*;
    use forebay_kernel::policy::{Budget, Pool, WhenSpent};
    use forebay_kernel::state::jobs::Phase;
    use forebay_kernel::units::Span;

    const RUN: JobId = JobId(0);
    const OTHER: JobId = JobId(1);

    fn followed(life: &Life) -> PolicyChanges {
        let mut changes = PolicyChanges::default();
        for step in &life.steps {
            changes.batch(&step.batch, &step.charges, &step.state);
        }
        assert_eq!(changes.found, [""; 0]);
        assert_eq!(changes.runs.len(), life.state().open_job_ids().count(), "all run");
        changes
    }

    /// A batch in which another policy enters, and this is decided.
    fn change(life: &Life, policy: Policy, decisions: Vec<Decision>) -> Batch {
        let Step { batch, .. } = life.steps.last().unwrap();
        Batch { events: vec![Event::Configured(Box::new(policy))], decisions, ..batch.clone() }
    }

    /// A policy that has another pool instead of the only one.
    fn without() -> Policy {
        let other = policy();
        let pools = other.pools.iter().map(|pool| Pool { name: "other".to_owned(), ..pool.clone() }).collect();
        Policy { pools, ..other }
    }

    #[test]
    fn a_run_that_ends_with_its_pool_is_found() {
        let life = Life::running(policy(), vec![job("a")]);
        let (batch, mut state) = (change(&life, without(), Vec::new()), life.state());
        let mut changes = followed(&life);
        changes.batch(&batch, &[], &state);
        assert_eq!(changes.found, [""; 0], "it goes on");
        state.jobs[RUN].phase = Phase::Queued;
        let mut changes = followed(&life);
        changes.batch(&batch, &[], &state);
        assert!(changes.found[0].contains("has lost what it held"), "{:?}", changes.found);
        let mut changes = followed(&life);
        changes.batch(&change(&life, policy(), Vec::new()), &[], &state);
        assert_eq!(changes.found, [""; 0], "its pool is there: others look at what stops it");
    }

    #[test]
    fn a_run_that_is_taken_from_a_pool_that_is_gone_is_found() {
        let life = Life::running(policy(), vec![job("a"), job("b")]);
        let (cause, deadline) = (StopCause::Preempted { by: OTHER }, Timestamp::NEVER);
        let stop = vec![Decision::Stop { job: RUN, cause, checkpoint: true, deadline }];
        let mut renamed = policy();
        renamed.pools[0].name.push_str("-renamed");
        let policies = [(without(), 2000, 1), (without(), 1, 0), (policy(), 2000, 0), (renamed, 2000, 0)];
        for (entered, limit, count) in policies {
            let (mut changes, mut state) = (followed(&life), life.state());
            state.policy.as_mut().unwrap().limits.nodes = Some(limit);
            changes.batch(&change(&life, entered, stop.clone()), &[], &state);
            assert_eq!(changes.found.len(), count, "{:?}", changes.found);
        }
    }

    #[test]
    fn node_time_that_is_charged_to_another_pool_is_found() {
        let life = Life::running(policy(), vec![job("a")]);
        let mut changes = followed(&life);
        changes.end(&life.state());
        assert_eq!(changes.found, [""; 0]);
        for name in changes.nodes.values_mut() {
            *name = "another".to_owned();
        }
        let mut state = life.state();
        changes.follow(&policy(), &state);
        state.now = state.now + Span::mins(1);
        changes.batch(&Batch { events: Vec::new(), ..life.steps.last().unwrap().batch.clone() }, &[], &state);
        changes.end(&state);
        assert!(changes.found.iter().any(|found| found.contains("in `another` was there")), "{:?}", changes.found);
    }

    #[test]
    fn a_budget_that_comes_back_with_less_is_found() {
        let mut with = policy();
        let budget = Budget { amount: 100_000_000, per: Period::Day, when_spent: WhenSpent::Hold };
        with.quotas[0].budget = Some(budget);
        let (life, none) = (Life::running(with.clone(), vec![job("a")]), Life::running(policy(), vec![job("a")]));
        for (less, count) in [(0, 0), (1, 1)] {
            let (mut changes, state) = (PolicyChanges::default(), life.state());
            changes.budgets(false, &with, &state);
            let spent = changes.spent.values().next().unwrap().amount;
            changes.budgets(true, &policy(), &none.state());
            assert_eq!((changes.spent.len(), changes.removed.len()), (0, 1));
            let was = changes.removed.values_mut().next().unwrap();
            was.amount = spent + less;
            changes.budgets(true, &with, &state);
            assert_eq!(changes.found.len(), count, "{:?}", changes.found);
        }
    }
}
