//! How a record learns more without becoming another record.
//!
//! ```text
//! bytes of a record = the struct as version 2 had it, then, if there is anything to add: a list of terms
//! ```
//!
//! A struct of the records keeps its fields for ever, because its bytes do not say which they are. What it learned later is a field that
//! serde skips, and a variant of its terms: `terms` says the fields that are not at their default, `learn` sets one. A record without
//! terms has the bytes that it had before.
//!
//! To add one: a field with `#[serde(skip)]` and a default that means what was there before, a variant at the end of the enum below, and a
//! line in `terms` and in `learn`. The tests here say every variant once.
//!
//! Never: takes a variant away, or gives one another meaning.

use crate::effect::RunFacts;
use crate::ids::NodeId;
use crate::ids::{JobId, TierId};
use crate::job::JobSpec;
use crate::policy::{
    BillingRule, Policy, PreemptWithin, QueueOrder, QueueRule, Reclaim, Undeclared, Watermarks, WhenImpossible,
};
use crate::state::allowances::{Allowance, AllowanceReservation};
use crate::state::billing::{BillingBegan, BillingLedger, WorkKey};
use crate::state::brakes::{Brake, BrakeOrder};
use crate::state::budget::RemovedBudget;
use crate::state::fair::DecayedUsage;
use crate::state::jobs::{Job, PutBack};
use crate::state::ledger::Account;
use crate::state::node_reserves::NodeReserve;
use crate::state::observed_stats::FamilyOfWork;
use crate::state::owned::{Owned, OwnedPool};
use crate::state::streaks::Streak;
use crate::state::{SharedSpec, State};
use crate::units::{GpuTime, Rate, Span, Timestamp};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A struct of the records that has learned something since version 2.
pub(crate) trait Grown {
    /// One thing that it has learned.
    type Term: Serialize + DeserializeOwned;

    /// What is to be said beside its bytes, always in the same order.
    fn terms(&self) -> Vec<Self::Term>;

    /// Takes in what was said.
    fn learn(&mut self, term: Self::Term);
}

/// What a policy says beside the fields of version 2.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum PolicyTerm {
    /// [`Policy::node_overhead`].
    NodeOverhead(Rate),
    /// [`Policy::impossible`].
    Impossible(WhenImpossible),
    /// Of the rule of a queue, by its path. `None`: of the one that undeclared queues share.
    Queue(Option<String>, QueueTerm),
    /// [`crate::policy::Pool::owned`], by the pool's position.
    OwnedPool(u16, OwnedPool),
    /// [`Policy::billing`].
    Billing(BillingRule),
    /// [`crate::policy::Pool::watermarks`], by the pool's position.
    Watermarks(u16, Watermarks),
}

/// What the rule of a queue says beside the fields of version 2.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum QueueTerm {
    /// [`QueueRule::tiers`].
    Tiers(Vec<TierId>),
    /// [`QueueRule::reclaim`].
    Reclaim(Reclaim),
    /// [`QueueRule::preempt_within`].
    PreemptWithin(PreemptWithin),
    /// [`QueueRule::wait_per_gpu_hour`].
    WaitPerGpuHour(Span),
    /// [`QueueRule::order`].
    Order(QueueOrder),
}

impl Grown for QueueRule {
    type Term = QueueTerm;

    fn terms(&self) -> Vec<QueueTerm> {
        let tiers = self.tiers.clone().map(QueueTerm::Tiers);
        let reclaim = (self.reclaim != Reclaim::Any).then_some(QueueTerm::Reclaim(self.reclaim));
        let within = self.preempt_within;
        let within = (within != PreemptWithin::LowerTiers).then_some(QueueTerm::PreemptWithin(within));
        let wait = self.wait_per_gpu_hour.map(QueueTerm::WaitPerGpuHour);
        let order = (self.order != QueueOrder::Arrival).then_some(QueueTerm::Order(self.order));
        tiers.into_iter().chain(reclaim).chain(within).chain(wait).chain(order).collect()
    }

    fn learn(&mut self, term: QueueTerm) {
        match term {
            QueueTerm::Tiers(tiers) => self.tiers = Some(tiers),
            QueueTerm::Reclaim(reclaim) => self.reclaim = reclaim,
            QueueTerm::PreemptWithin(within) => self.preempt_within = within,
            QueueTerm::WaitPerGpuHour(wait) => self.wait_per_gpu_hour = Some(wait),
            QueueTerm::Order(order) => self.order = order,
        }
    }
}

impl Grown for Policy {
    type Term = PolicyTerm;

    fn terms(&self) -> Vec<PolicyTerm> {
        let overhead = (self.node_overhead != Rate(0)).then_some(PolicyTerm::NodeOverhead(self.node_overhead));
        let impossible = (self.impossible != WhenImpossible::Hold).then_some(PolicyTerm::Impossible(self.impossible));
        let shared = match &self.undeclared {
            Undeclared::Under { rule, .. } => Some((None, rule)),
            Undeclared::Reject => None,
        };
        let rules = self.queues.iter().map(|(path, rule)| (Some(path), rule)).chain(shared);
        let of = |(path, rule): (Option<&String>, &QueueRule)| {
            let path = path.cloned();
            rule.terms().into_iter().map(move |term| PolicyTerm::Queue(path.clone(), term))
        };
        let owned = (0..).zip(&self.pools).filter_map(|(at, pool)| Some((at, pool.owned.clone()?)));
        let owned = owned.map(|(at, pool)| PolicyTerm::OwnedPool(at, pool));
        let billing = self.billing.clone().map(PolicyTerm::Billing);
        let marks = (0..).zip(&self.pools).filter_map(|(at, pool)| Some(PolicyTerm::Watermarks(at, pool.watermarks?)));
        let first = overhead.into_iter().chain(impossible).chain(rules.flat_map(of));
        first.chain(owned).chain(billing).chain(marks).collect()
    }

    fn learn(&mut self, term: PolicyTerm) {
        match term {
            PolicyTerm::NodeOverhead(rate) => self.node_overhead = rate,
            PolicyTerm::Impossible(what) => self.impossible = what,
            PolicyTerm::Queue(Some(path), term) => {
                if let Some(rule) = self.queues.get_mut(&path) {
                    rule.learn(term);
                }
            }
            PolicyTerm::Queue(None, term) => {
                if let Undeclared::Under { rule, .. } = &mut self.undeclared {
                    rule.learn(term);
                }
            }
            PolicyTerm::OwnedPool(at, owned) => {
                if let Some(pool) = self.pools.get_mut(usize::from(at)) {
                    pool.owned = Some(owned);
                }
            }
            PolicyTerm::Billing(rule) => self.billing = Some(rule),
            PolicyTerm::Watermarks(at, marks) => {
                if let Some(pool) = self.pools.get_mut(usize::from(at)) {
                    pool.watermarks = Some(marks);
                }
            }
        }
    }
}

/// What a specification says beside the fields of version 2.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum SpecTerm {
    /// [`crate::job::Retry::start_failures`].
    StartFailures(u32),
    /// [`JobSpec::labels`]: one of them.
    Label(String, String),
}

impl Grown for JobSpec {
    type Term = SpecTerm;

    fn terms(&self) -> Vec<SpecTerm> {
        let labels = self.labels.iter().map(|(name, value)| SpecTerm::Label(name.clone(), value.clone()));
        self.retry.start_failures.map(SpecTerm::StartFailures).into_iter().chain(labels).collect()
    }

    fn learn(&mut self, term: SpecTerm) {
        match term {
            SpecTerm::StartFailures(most) => self.retry.start_failures = Some(most),
            SpecTerm::Label(name, value) => _ = self.labels.insert(name, value),
        }
    }
}

impl Grown for SharedSpec {
    type Term = SpecTerm;

    fn terms(&self) -> Vec<SpecTerm> {
        (**self).terms()
    }

    fn learn(&mut self, term: SpecTerm) {
        self.edit().learn(term);
    }
}

/// What a job's row says beside the fields of version 2.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum JobTerm {
    /// [`Job::last_run`].
    LastRun(Box<RunFacts>),
    /// [`Job::confirmed_dead`].
    ConfirmedDead(BTreeSet<u32>),
    /// [`Job::turn_over_at`].
    TurnOverAt(Timestamp),
    /// [`Job::put_back`].
    PutBack(PutBack),
    /// [`Job::not_before`].
    NotBefore(Timestamp),
    /// [`Job::denials`].
    Denials(u32),
}

impl Grown for Job {
    type Term = JobTerm;

    fn terms(&self) -> Vec<JobTerm> {
        let dead = (!self.confirmed_dead.is_empty()).then(|| JobTerm::ConfirmedDead(self.confirmed_dead.clone()));
        let turn = (self.turn_over_at != Timestamp::NEVER).then_some(JobTerm::TurnOverAt(self.turn_over_at));
        let put_back = self.put_back.map(JobTerm::PutBack);
        let pause = (self.not_before != Timestamp(0)).then_some(JobTerm::NotBefore(self.not_before));
        let denials = (self.denials > 0).then_some(JobTerm::Denials(self.denials));
        let run = self.last_run.clone().map(JobTerm::LastRun);
        run.into_iter().chain(dead).chain(turn).chain(put_back).chain(pause).chain(denials).collect()
    }

    fn learn(&mut self, term: JobTerm) {
        match term {
            JobTerm::LastRun(run) => self.last_run = Some(run),
            JobTerm::ConfirmedDead(workers) => self.confirmed_dead = workers,
            JobTerm::TurnOverAt(at) => self.turn_over_at = at,
            JobTerm::PutBack(last) => self.put_back = Some(last),
            JobTerm::NotBefore(until) => self.not_before = until,
            JobTerm::Denials(times) => self.denials = times,
        }
    }
}

/// What an event of a batch says beside the fields of version 2.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum EventTerm {
    /// Of the policy that it brings.
    Policy(PolicyTerm),
    /// Of the specification that it brings.
    Spec(SpecTerm),
}

impl Grown for crate::event::Event {
    type Term = EventTerm;

    fn terms(&self) -> Vec<EventTerm> {
        use crate::event::Event::{Configured, JobSubmitted, JobSubmittedAgain};
        match self {
            Configured(policy) => policy.terms().into_iter().map(EventTerm::Policy).collect(),
            JobSubmitted(spec) | JobSubmittedAgain { spec, .. } => {
                spec.terms().into_iter().map(EventTerm::Spec).collect()
            }
            _ => Vec::new(),
        }
    }

    fn learn(&mut self, term: EventTerm) {
        use crate::event::Event::{Configured, JobSubmitted, JobSubmittedAgain};
        match (self, term) {
            (Configured(policy), EventTerm::Policy(term)) => policy.learn(term),
            (JobSubmitted(spec) | JobSubmittedAgain { spec, .. }, EventTerm::Spec(term)) => spec.learn(term),
            (_, EventTerm::Policy(_) | EventTerm::Spec(_)) => {}
        }
    }
}

/// What the state says beside the fields of version 2, but for the tables of jobs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum StateTerm {
    /// Of the policy in force.
    Policy(PolicyTerm),
    /// Of a specification. Written where the whole state is one piece.
    Spec(JobId, SpecTerm),
    /// Of a job's row. Written where the whole state is one piece.
    Job(JobId, JobTerm),
    /// [`State::streaks`]: of one job.
    Streak(JobId, Streak),
    /// [`State::resumed_at`].
    ResumedAt(Timestamp),
    /// [`State::allowances`]: one of them.
    Allowance(Allowance, AllowanceReservation),
    /// [`crate::state::nodes::Node::owned`], of one node.
    Owned(NodeId, Owned),
    /// [`crate::state::ledger::Ledger::owned`].
    OwnedAccount(Box<Account>),
    /// [`crate::state::ledger::Ledger::foreign`].
    ForeignTime(GpuTime),
    /// [`crate::effect::Status::run`], of the status with this number.
    StatusRun(u64, Box<RunFacts>),
    /// [`State::node_reserve`], of one instance type.
    NodeReserve(String, NodeReserve),
    /// [`crate::state::billing::BillingLedger::began`]: it has begun.
    Billing(Box<BillingBegan>),
    /// [`crate::state::billing::BillingLedger::pools`]: one of them, in order.
    BilledPool(String),
    /// [`crate::state::billing::BillingLedger::unsaved`]: of one run and slot.
    Work(WorkKey, u64),
    /// [`State::brakes`]: one of them.
    Brake(Brake, BrakeOrder),
    /// Durations by family, of [`State::observed`]: one of them, the completion that was its last, and its counts by bucket.
    Family(FamilyOfWork, u64, Vec<(u8, u32)>),
    /// [`crate::effect::Status::named`], of the status with this number.
    StatusNamed(u64, Box<str>),
    /// [`crate::state::budget::Budgets::removed()`]: one of them, by the path of its queue or cohort.
    RemovedBudget(String, RemovedBudget),
    /// [`State::removed_use`], of one queue or cohort.
    RemovedUse(String, DecayedUsage),
    /// [`State::kept_pools`].
    KeptPools(u16),
    /// [`crate::effect::Status::labels`], of the status with this number.
    StatusLabels(u64, BTreeMap<String, String>),
}

impl Grown for State {
    type Term = StateTerm;

    fn terms(&self) -> Vec<StateTerm> {
        let specs =
            self.specs.iter().flat_map(|(id, spec)| spec.terms().into_iter().map(move |t| StateTerm::Spec(id, t)));
        let jobs = self.jobs.iter().flat_map(|(id, job)| job.terms().into_iter().map(move |t| StateTerm::Job(id, t)));
        let policy = self.policy.iter().flat_map(|policy| policy.terms()).map(StateTerm::Policy);
        let streaks = self.streaks.iter().map(|(id, streak)| StateTerm::Streak(*id, streak.clone()));
        let resumed = (self.resumed_at != Timestamp(0)).then_some(StateTerm::ResumedAt(self.resumed_at));
        let allowances = self.allowances.iter().map(|(of, kept)| StateTerm::Allowance(*of, kept.clone()));
        let owned = self.nodes.iter().filter_map(|(id, node)| Some(StateTerm::Owned(*id, *node.owned.clone()?)));
        let account =
            (self.ledger.owned != Account::default()).then(|| StateTerm::OwnedAccount(Box::new(self.ledger.owned)));
        let foreign = (self.ledger.foreign != GpuTime(0)).then_some(StateTerm::ForeignTime(self.ledger.foreign));
        let ledger = account.into_iter().chain(foreign);
        let runs =
            self.stream.iter().filter_map(|status| Some(StateTerm::StatusRun(status.number, status.run.clone()?)));
        let named =
            self.stream.iter().filter_map(|status| Some(StateTerm::StatusNamed(status.number, status.named.clone()?)));
        let labels = self.stream.iter().filter(|status| !status.labels.is_empty());
        let labels = labels.map(|status| StateTerm::StatusLabels(status.number, status.labels.clone()));
        let reserves = self.node_reserves.iter().map(|(of, reserve)| StateTerm::NodeReserve(of.clone(), *reserve));
        let families = self.observed.all_families();
        let families = families.map(|(of, last, counts)| StateTerm::Family(of, last, counts.collect()));
        let budgets = self.budgets.removed(self.now);
        let budgets = budgets.map(|(path, row)| StateTerm::RemovedBudget(path.clone(), row.clone()));
        let uses = self.removed_use().map(|(path, past)| StateTerm::RemovedUse(path.clone(), past));
        policy
            .chain(specs)
            .chain(jobs)
            .chain(streaks)
            .chain(resumed)
            .chain(allowances)
            .chain(owned)
            .chain(ledger)
            .chain(reserves)
            .chain(runs)
            .chain(self.billing.iter().flat_map(|billing| billing_terms(billing)))
            .chain(self.brakes.iter().map(|(brake, order)| StateTerm::Brake(brake.clone(), order.clone())))
            .chain(families)
            .chain(named)
            .chain(budgets)
            .chain(uses)
            .chain((self.kept_pools > 0).then_some(StateTerm::KeptPools(self.kept_pools)))
            .chain(labels)
            .collect()
    }

    fn learn(&mut self, term: StateTerm) {
        match term {
            StateTerm::Policy(term) => {
                if let Some(policy) = &mut self.policy {
                    policy.learn(term);
                }
            }
            StateTerm::Spec(id, term) => {
                if let Some(spec) = self.specs.get_mut(id) {
                    spec.learn(term);
                }
            }
            StateTerm::Job(id, term) => {
                if let Some(job) = self.jobs.get_mut(id) {
                    job.learn(term);
                }
            }
            StateTerm::Streak(id, streak) => _ = self.streaks.insert(id, streak),
            StateTerm::ResumedAt(at) => self.resumed_at = at,
            StateTerm::Allowance(of, kept) => _ = self.allowances.insert(of, kept),
            StateTerm::Owned(id, owned) => {
                if let Some(node) = self.nodes.get_mut(&id) {
                    node.owned = Some(Box::new(owned));
                }
            }
            StateTerm::OwnedAccount(account) => self.ledger.owned = *account,
            StateTerm::ForeignTime(time) => self.ledger.foreign = time,
            StateTerm::StatusRun(number, run) => {
                if let Ok(at) = self.stream.binary_search_by_key(&number, |status| status.number) {
                    self.stream[at].run = Some(run);
                }
            }
            StateTerm::StatusNamed(number, name) => {
                if let Ok(at) = self.stream.binary_search_by_key(&number, |status| status.number) {
                    self.stream[at].named = Some(name);
                }
            }
            StateTerm::StatusLabels(number, labels) => {
                if let Ok(at) = self.stream.binary_search_by_key(&number, |status| status.number) {
                    self.stream[at].labels = labels;
                }
            }
            StateTerm::NodeReserve(of, reserve) => self.recall_node_reserve(&of, reserve),
            StateTerm::Billing(began) => self.billing.get_or_insert_default().began = *began,
            StateTerm::BilledPool(name) => self.billing.get_or_insert_default().pools.push(name),
            StateTerm::Brake(brake, order) => _ = self.brakes.insert(brake, order),
            StateTerm::Family(of, last, counts) => self.observed.recall_family(of, last, counts),
            StateTerm::RemovedBudget(path, row) => self.budgets.recall_removed(path, row),
            StateTerm::RemovedUse(path, past) => self.fair.recall_removed(path, past),
            StateTerm::KeptPools(pools) => self.kept_pools = pools,
            StateTerm::Work(work, amount) => _ = self.billing.get_or_insert_default().unsaved.insert(work, amount),
        }
    }
}

fn billing_terms(billing: &BillingLedger) -> impl Iterator<Item = StateTerm> + '_ {
    let began = core::iter::once(StateTerm::Billing(Box::new(billing.began)));
    let pools = billing.pools.iter().cloned().map(StateTerm::BilledPool);
    began.chain(pools).chain(billing.unsaved.iter().map(|(work, amount)| StateTerm::Work(*work, *amount)))
}

/// Several in a row: each term with the position of whose it is.
impl<T: Grown> Grown for [T] {
    type Term = (u32, T::Term);

    fn terms(&self) -> Vec<(u32, T::Term)> {
        let numbered = (0..).zip(self);
        numbered.flat_map(|(at, one)| one.terms().into_iter().map(move |term| (at, term))).collect()
    }

    fn learn(&mut self, (at, term): (u32, T::Term)) {
        if let Some(one) = self.get_mut(at as usize) {
            one.learn(term);
        }
    }
}

/// Adds what a record says beside its bytes, if it says anything.
pub(crate) fn say<T: Grown + ?Sized>(bytes: &mut Vec<u8>, of: &T) -> Result<(), postcard::Error> {
    let terms = of.terms();
    if !terms.is_empty() {
        bytes.extend(postcard::to_allocvec(&terms)?);
    }
    Ok(())
}

/// Takes in what stands behind the bytes of a record: nothing, or its terms.
pub(crate) fn hear<T: Grown + ?Sized>(rest: &[u8], of: &mut T) -> Result<(), postcard::Error> {
    if rest.is_empty() {
        return Ok(());
    }
    let terms: Vec<T::Term> = postcard::from_bytes(rest)?;
    terms.into_iter().for_each(|term| of.learn(term));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Grown;
    use crate::catalog::{CapacityType, Offering};
    use crate::effect::{RunFacts, RunNode, Status, StatusKind};
    use crate::event::{Event, Tick};
    use crate::ids::Seq;
    use crate::ids::{Attempt, NodeId};
    use crate::ids::{QueueId, QuotaId, TierId};
    use crate::job::JobSpec;
    use crate::journal::{APPLY_VERSION, Batch};
    use crate::machine::StateMachine;
    use crate::policy::{
        BillingRule, Budget, Period, Policy, Pool, PreemptWithin, QueueOrder, QueueRule, Reclaim, Watermarks,
        WhenImpossible, WhenSpent,
    };
    use crate::reason::Reason;
    use crate::state::allowances::{Allowance, AllowanceReservation};
    use crate::state::billing::{BilledPool, LedgerSlot, WorkKey};
    use crate::state::brakes::Brake;
    use crate::state::budget::{BudgetAccount, RemovedBudget, RunsCounted};
    use crate::state::fair::DecayedUsage;
    use crate::state::freeze::Thaw;
    use crate::state::jobs::PutBack;
    use crate::state::node_reserves::{NodeReserve, NodeRoom};
    use crate::state::observed_stats::FamilyOfWork;
    use crate::state::owned::{ForeignUse, OwnedNode, OwnedPool, OwnedShape};
    use crate::units::{GpuTime, Mib, MilliCpu, Rate, Span, Spend, Timestamp};
    use alloc::boxed::Box;
    use alloc::vec;
    use alloc::vec::Vec;

    /// Everything that can be said is said here.
    fn policy() -> Policy {
        let rule = QueueRule {
            tiers: Some(vec![TierId(0)]),
            reclaim: Reclaim::LowerTiers,
            preempt_within: PreemptWithin::Never,
            wait_per_gpu_hour: Some(Span::mins(5)),
            order: QueueOrder::ShortestExpected,
            ..QueueRule::default()
        };
        let impossible = WhenImpossible::Reject;
        let queues = [("q".into(), rule)].into();
        let owned = OwnedPool { labels: [("team".into(), vec!["lab".into()])].into(), price: Rate(7) };
        let marked = Pool { watermarks: Some(Watermarks { low: 1, high: 9 }), ..Pool::default() };
        let pools = vec![Pool { name: "lab".into(), owned: Some(owned), ..Pool::default() }, marked];
        let labels = vec!["team".into()];
        let billing = Some(BillingRule { labels, zone: "Asia/Kolkata".into(), offsets: vec![(Timestamp(0), 19_800)] });
        Policy { node_overhead: Rate(100_000), impossible, queues, pools, billing, ..Policy::default() }
    }

    fn spec() -> JobSpec {
        let mut spec = JobSpec { subject: "a".into(), ..JobSpec::default() };
        spec.retry.start_failures = Some(7);
        spec.labels = [("team".into(), "vision".into())].into();
        spec
    }

    fn offering() -> Offering {
        let (cpu, mem) = (MilliCpu(96_000), Mib(1_000_000));
        Offering { gpus: 8, cpu, mem, boot: Span::ZERO, ..crate::making::offering("large") }
    }

    fn batch(events: Vec<Event>) -> Batch {
        let tick = Tick { now: Timestamp(1_000), resumed: false, delivered: 0 };
        Batch { version: APPLY_VERSION, first_seq: Seq(0), tick, events, decisions: Vec::new() }
    }

    #[test]
    fn what_was_learned_comes_back_with_its_event() {
        let plain = Event::JobSubmitted(Box::default());
        let events = vec![plain, Event::JobSubmitted(Box::new(spec())), Event::Configured(Box::new(policy()))];
        let written = batch(events);
        assert_eq!(Batch::decode(&written.encode().unwrap()), Ok(written));
    }

    #[test]
    fn without_terms_the_bytes_are_those_of_before() {
        let plain = batch(vec![Event::Configured(Box::default()), Event::JobSubmitted(Box::default())]);
        assert_eq!(plain.encode().unwrap(), postcard::to_allocvec(&(plain.version, &plain)).unwrap());
    }

    #[test]
    fn it_comes_back_with_the_state_in_one_piece_and_in_chunks() {
        let mut machine = StateMachine::default();
        let mut rule = policy();
        rule.undeclared = crate::policy::Undeclared::Under {
            rule: QueueRule { preempt_within: PreemptWithin::LowerPriority, ..QueueRule::default() },
            at_most: 1,
        };
        rule.tiers.push(crate::policy::Tier::default());
        rule.quotas.push(crate::policy::QuotaNode::default());
        let shape = OwnedShape { gpus: 4, ..OwnedShape::default() };
        let foreign = ForeignUse { gpus: 1, by: "ml/a".into(), ..ForeignUse::default() };
        let daemons = NodeRoom { cpu: MilliCpu(350), mem: Mib(512) };
        let reserve = NodeReserve { system: NodeRoom { cpu: MilliCpu(70), mem: Mib(2_048) }, daemons };
        rule.offerings.push(offering());
        let seen = OwnedNode { name: "n".into(), pool: "lab".into(), shape, open: true, foreign };
        let events = vec![
            Event::Configured(Box::new(rule)),
            Event::JobSubmitted(Box::new(spec())),
            Event::OwnedNodeSeen(Box::new(seen.clone())),
            Event::NodeReserved { instance_type: "large".into(), reserve },
            Event::BrakeSet {
                brake: Brake::Buying,
                by: "ops".into(),
                why: "bill".into(),
                until: Some(Timestamp(9_000)),
            },
        ];
        machine.replay(&batch(events));
        let tick = Tick { now: Timestamp(2_000), ..batch(Vec::new()).tick };
        let busier = OwnedNode { foreign: ForeignUse { gpus: 2, ..seen.foreign.clone() }, ..seen };
        let events = vec![Event::OwnedNodeSeen(Box::new(busier))];
        machine.replay(&Batch { tick, first_seq: Seq(6), ..batch(events) });
        assert_ne!((machine.ledger().owned.bought.0, machine.ledger().foreign.0), (0, 0));
        let mut state = crate::state::State::decode(&machine.encode().unwrap()).unwrap();
        state.observed.recall_family(FamilyOfWork { queue: QueueId(0), size: 1, family: 7 }, 3, [(9, 2)]);
        state.note_taken(crate::ids::JobId(0), crate::ids::OfferingId(1));
        state.resumed_at = Timestamp(9);
        let node =
            RunNode { node: NodeId(0), instance: None, instance_type: "large".into(), capacity: CapacityType::Spot };
        let run = RunFacts { attempt: Attempt(1), nodes: vec![node], more: 0, exit_code: Some(3) };
        state.jobs[crate::ids::JobId(0)].last_run = Some(Box::new(run.clone()));
        state.jobs[crate::ids::JobId(0)].confirmed_dead.insert(2);
        state.jobs[crate::ids::JobId(0)].turn_over_at = Timestamp(9);
        state.jobs[crate::ids::JobId(0)].put_back = Some(PutBack { at: Timestamp(9), times: 2 });
        state.jobs[crate::ids::JobId(0)].not_before = Timestamp(9);
        state.jobs[crate::ids::JobId(0)].denials = 4;
        let status = Status {
            number: state.counters.statuses + 1,
            at: Timestamp(9),
            tenant: "t".into(),
            subject: "a".into(),
            job: None,
            attempt: Attempt(1),
            seq: 1,
            kind: StatusKind::Started,
            reason: Some(Reason::PreemptedBy { queue: QueueId(0) }),
            named: Some("research".into()),
            run: Some(Box::new(run)),
            labels: [("team".into(), "vision".into())].into(),
        };
        state.stream.push_back(status);
        let work = WorkKey {
            job: crate::ids::JobId(0),
            slot: LedgerSlot(2),
            pool: BilledPool(0),
            offering: crate::ids::OfferingId(0),
            price: Rate(7),
        };
        state.billing.as_mut().unwrap().unsaved.insert(work, 9);
        let kept = AllowanceReservation {
            job: crate::ids::JobId(0),
            pool: crate::ids::PoolId(0),
            from: Timestamp(10),
            known: true,
            delayed: false,
            runs: vec![crate::ids::JobId(1)],
        };
        state.set_allowance(Allowance::Budget(crate::ids::QuotaId(0)), Some(kept));
        let (at, since) = (Timestamp(1_000), Timestamp(1_500));
        let budget = Budget { amount: 100, per: Period::Day, when_spent: WhenSpent::Warn };
        let account = BudgetAccount { budget, spent: Spend(7), started: Rate(2), booked: Rate(1), since };
        for (path, runs) in [("a", RunsCounted::Below(QuotaId(0))), ("b", RunsCounted::Of(vec![QueueId(0)]))] {
            state.budgets.recall_removed(path.into(), RemovedBudget { account, at, runs });
        }
        let used = DecayedUsage { time: GpuTime(9), counted_to: since, ..DecayedUsage::default() };
        state.fair.recall_removed("c".into(), used);
        state.kept_pools = 1;
        let machine = StateMachine::from_state(state);
        assert_eq!(machine.specs.len(), 1);
        assert!(!machine.terms().is_empty(), "nothing is said");
        let whole = StateMachine::restore(&machine.encode().unwrap()).unwrap();
        assert_eq!(whole.terms(), machine.terms());
        assert!(whole.queues.rows().eq(machine.queues.rows()), "the rules of the queues are others");
        let mut thaw = Thaw::default();
        for chunk in machine.freeze().into_chunks() {
            thaw.take(chunk.id, &chunk.content.encode().unwrap()).unwrap();
        }
        let thawed = thaw.finish().unwrap();
        assert_eq!(thawed.terms(), machine.terms());
        for state in [&whole, &thawed] {
            assert_eq!(state.offerings[0].room(), NodeRoom { cpu: MilliCpu(95_580), mem: Mib(997_440) });
        }
    }
}
