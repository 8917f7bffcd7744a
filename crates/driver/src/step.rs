//! One batch: opened with a tick, filled with events, planned and closed, made durable, released.
//!
//! ```text
//! BatchStep (open) --plan--> PlannedBatch (closed, not durable) --append--> Released (may leave)
//!                                         '--push--> GroupCommit --commit--> effects, statuses
//! ```
//!
//! The states are types, so that nothing can leave too early. A crash is a value that is dropped: before [`BatchStep::plan`] nothing
//! has happened, before the append nothing is durable, after it effects may or may not have left.
//!
//! Never: IO, a clock, a choice of what enters, but for the spot prices that another policy would take back.

use forebay_engine::engine::{Engine, Released, Unsaved};
use forebay_engine::plan::PlanReport;
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::effect::{Effect, Status};
use forebay_kernel::event::{Event, EventOutcome, Tick};
use forebay_kernel::ids::{JobId, OfferingId, Seq};
use forebay_kernel::job::JobSpec;
use forebay_kernel::journal::Batch;
use forebay_kernel::policy::Policy;
use forebay_kernel::state::State;
use forebay_kernel::state::billing::BatchCharges;
use forebay_kernel::state::jobs::Job;
use forebay_kernel::state::retire::FinishedJob;
use forebay_kernel::units::Rate;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::journal::{BatchLog, JournalEntry, Positions};

/// Counts what enters batches, and how long they take. It is called on the driver's thread, which waits for it.
///
/// Never: part of a decision. What it is called with may not become durable, if the process ends first.
pub trait BatchObserver: fmt::Debug + Send + Sync {
    /// An event enters a batch. `state`: as it is before it.
    fn enters(&self, state: &State, event: &Event);

    /// A batch was put together and planned, and that took so long by the clock.
    fn planned(&self, took: Duration);
}

/// A batch that is open: it takes events.
#[derive(Debug)]
#[must_use = "an open batch is planned, or what it took is lost"]
pub struct BatchStep<'e> {
    engine: &'e mut Engine,
    observer: Option<&'e dyn BatchObserver>,
}

impl<'e> BatchStep<'e> {
    /// Opens a batch. Time never goes back: an earlier `now` is taken as the last one.
    pub fn open(engine: &'e mut Engine, tick: Tick) -> BatchStep<'e> {
        engine.open(tick);
        BatchStep { engine, observer: None }
    }

    /// Shows an observer each event from here on, before it is taken.
    pub fn observed_by(self, observer: Option<&'e dyn BatchObserver>) -> BatchStep<'e> {
        BatchStep { observer, ..self }
    }

    /// The state with everything that this batch has taken so far.
    #[must_use]
    pub fn state(&self) -> &State {
        self.engine.state()
    }

    /// Takes an event, and returns what it came to.
    pub fn handle_event(&mut self, event: Event) -> EventOutcome {
        if let Some(observer) = self.observer {
            observer.enters(self.engine.state(), &event);
        }
        self.engine.handle_event(event)
    }

    /// Plans on everything that was taken, and closes the batch.
    pub fn plan(self) -> PlannedBatch {
        let report = self.engine.plan();
        let (finished, charges) = (self.engine.state().finished(), self.engine.state().charged());
        PlannedBatch { report, finished, charges, unsaved: self.engine.close() }
    }
}

/// A batch that puts a policy in force: the first one of every journal, and one for each later policy.
///
/// A policy has the spot prices of its catalogue. Those that the market has moved enter the same batch once more, up to what the policy lets be
/// paid: until the market is asked the next time, they are nearer to what the cloud bills.
pub fn configure(engine: &mut Engine, tick: Tick, policy: Policy) -> PlannedBatch {
    let mut step = BatchStep::open(engine, tick);
    let moved = moved_prices(step.state());
    step.handle_event(Event::Configured(Box::new(policy)));
    for (offering, price) in moved {
        let Some(row) = step.state().offerings().get(offering.index()) else { continue };
        let (price, listed) = (price.min(row.offer.max_price), row.offer.price);
        if price != listed {
            step.handle_event(Event::PriceChanged { offering, price });
        }
    }
    step.plan()
}

/// Spot offerings whose price is not the one that the policy in force lists: the market has moved it.
fn moved_prices(state: &State) -> Vec<(OfferingId, Rate)> {
    let Some(policy) = state.policy() else { return Vec::new() };
    let listed: BTreeMap<(&str, &str, CapacityType), Rate> =
        policy.offerings.iter().map(|offer| (offer.key(), offer.price)).collect();
    let mut moved = Vec::new();
    for (id, row) in (0u32..).map(OfferingId).zip(state.offerings()) {
        let offer = &row.offer;
        if offer.capacity == CapacityType::Spot && listed.get(&offer.key()).is_some_and(|price| *price != offer.price) {
            moved.push((id, offer.price));
        }
    }
    moved
}

/// A batch that is applied to the engine and not durable yet. Its effects and statuses are held back.
#[derive(Debug)]
#[must_use = "append the batch to its journal: nothing leaves before"]
pub struct PlannedBatch {
    report: PlanReport,
    finished: Vec<FinishedJob>,
    charges: BatchCharges,
    unsaved: Unsaved,
}

impl PlannedBatch {
    /// What the plan pass did.
    pub fn report(&self) -> &PlanReport {
        &self.report
    }

    /// What is to be journaled.
    #[must_use]
    pub fn batch(&self) -> &Batch {
        self.unsaved.batch()
    }

    /// What it adds to the bill.
    #[must_use]
    pub fn charges(&self) -> &BatchCharges {
        &self.charges
    }

    /// What is going to leave, so that requests can be frozen in the same transaction. Not to be carried out yet.
    pub fn pending_effects(&self) -> impl Iterator<Item = &Effect> + '_ {
        self.unsaved.pending()
    }

    /// The jobs that are over with this batch, as the archive takes them. The state may not know them any more with the next batch.
    #[must_use]
    pub fn finished(&self) -> &[FinishedJob] {
        &self.finished
    }

    /// The row and the specification of a job that this batch touched, also when the batch ended it. `state`: as this batch left it.
    #[must_use]
    pub fn job<'a>(&'a self, state: &'a State, id: JobId) -> Option<(&'a Job, &'a JobSpec)> {
        let over = || self.finished.iter().find(|one| one.job.id == id);
        state.job(id).or_else(|| over().map(|one| (&one.job, &*one.spec)))
    }

    /// Makes the batch durable in a transaction of its own, and releases what it held back.
    ///
    /// # Errors
    /// Those of the log. The engine is then ahead of its journal: the process ends and recovers.
    pub fn append<L: BatchLog>(self, log: &mut L) -> Result<Released, L::Error> {
        let (finished, charges) = (&self.finished[..], &self.charges);
        log.append_many(&[JournalEntry { finished, charges, ..JournalEntry::of(self.unsaved.batch()) }])?;
        Ok(self.unsaved.saved())
    }
}

/// What becomes durable with a batch, beside the batch itself. See [`Entry`].
#[derive(Clone, Debug, Default)]
pub struct SideRecords {
    /// How far sources and sinks have moved with this batch.
    pub positions: Positions,
    /// The text of the policy that this batch puts in force.
    pub policy: Option<String>,
    /// The ids of the batch's events.
    pub seen: Vec<u128>,
    /// The frozen requests of the batch's effects.
    pub requests: Vec<(Seq, Vec<u8>)>,
}

/// What becomes of carried out effects when this process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EffectLifetime {
    /// They outlive the process: an effect waits until its batch is durable.
    OutlivesProcess,
    /// They die with the process, so that one which reaches its executor has not left: it need not wait.
    DiesWithProcess,
}

#[derive(Debug)]
struct PendingBatch {
    batch: Arc<Batch>,
    finished: Vec<FinishedJob>,
    charges: BatchCharges,
    beside: SideRecords,
}

impl PendingBatch {
    fn entry(&self) -> JournalEntry<'_> {
        let SideRecords { positions, policy, seen, requests } = &self.beside;
        JournalEntry {
            batch: &self.batch,
            positions,
            policy: policy.as_deref(),
            seen,
            requests,
            finished: &self.finished,
            charges: &self.charges,
        }
    }
}

/// Batches that share a transaction: each is planned on the one before it, and all of them become durable together.
#[derive(Debug, Default)]
pub struct GroupCommit {
    /// Applied and not durable yet, in order.
    pending: Vec<PendingBatch>,
    effects: Vec<Effect>,
    statuses: Vec<Status>,
}

impl GroupCommit {
    /// Adds a batch with what is kept beside it. What it held back stays here.
    pub fn push(&mut self, planned: PlannedBatch, beside: SideRecords) {
        let PlannedBatch { finished, charges, unsaved, .. } = planned;
        self.pending.push(PendingBatch { batch: unsaved.share(), finished, charges, beside });
        let released = unsaved.saved();
        self.effects.extend(released.effects);
        self.statuses.extend(released.statuses);
    }

    /// How many batches are not durable yet.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// How many statuses are held back.
    #[must_use]
    pub fn held_statuses(&self) -> usize {
        self.statuses.len()
    }

    /// Makes all batches durable, and returns how far sources and sinks have come with them. Without any it does nothing.
    ///
    /// # Errors
    /// Those of the log. Nothing is lost: the same batches are tried again with the next call.
    pub fn commit<L: BatchLog>(&mut self, log: &mut L) -> Result<Positions, L::Error> {
        if self.pending.is_empty() {
            return Ok(Positions::new());
        }
        let entries: Vec<JournalEntry<'_>> = self.pending.iter().map(PendingBatch::entry).collect();
        log.append_many(&entries)?;
        let mut moved = Positions::new();
        self.pending.drain(..).for_each(|one| moved.extend(one.beside.positions));
        Ok(moved)
    }

    /// Takes the effects that may leave now, in the order of their decisions.
    pub fn take_effects(&mut self, lifetime: EffectLifetime) -> Vec<Effect> {
        if self.pending.is_empty() || lifetime == EffectLifetime::DiesWithProcess {
            return std::mem::take(&mut self.effects);
        }
        Vec::new()
    }

    /// Takes the statuses that may leave now, in the order of their numbers: none while a batch is not durable.
    pub fn take_statuses(&mut self) -> Vec<Status> {
        if self.pending.is_empty() { std::mem::take(&mut self.statuses) } else { Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::NullJournal;
    use forebay_kernel::catalog::Offering;
    use forebay_kernel::ids::PurchaseId;
    use forebay_kernel::units::{Mib, MilliCpu, Span, Timestamp};
    use std::sync::Mutex;

    /// A log that is full until it is not, and counts what it keeps.
    #[derive(Default)]
    struct FullDisk {
        refusals: u32,
        kept: Vec<Seq>,
        transactions: u32,
    }

    impl BatchLog for FullDisk {
        type Error = &'static str;

        fn append_many(&mut self, entries: &[JournalEntry<'_>]) -> Result<(), &'static str> {
            if self.refusals > 0 {
                self.refusals -= 1;
                return Err("no space left");
            }
            self.kept.extend(entries.iter().map(|entry| entry.batch.first_seq));
            self.transactions += 1;
            Ok(())
        }
    }

    fn tick(now: u64) -> Tick {
        Tick { now: Timestamp(now), resumed: false, delivered: 0 }
    }

    /// A submission to no queue: the policy has none, so it is rejected, with statuses.
    fn submission(subject: &str) -> Event {
        Event::JobSubmitted(Box::new(JobSpec { tenant: "t".into(), subject: subject.into(), ..JobSpec::default() }))
    }

    fn planned(engine: &mut Engine, now: u64, subject: &str) -> PlannedBatch {
        let mut step = BatchStep::open(engine, tick(now));
        step.handle_event(submission(subject));
        step.plan()
    }

    /// Whether a policy was in force before each event that entered.
    #[derive(Debug, Default)]
    struct EntryLog(Mutex<Vec<bool>>);

    impl BatchObserver for EntryLog {
        fn enters(&self, state: &State, _: &Event) {
            self.0.lock().unwrap().push(state.policy().is_some());
        }

        fn planned(&self, _: Duration) {}
    }

    #[test]
    fn an_observer_has_each_event_with_the_state_before_it() {
        let (mut engine, log) = (Engine::new(), EntryLog::default());
        let mut step = BatchStep::open(&mut engine, tick(0)).observed_by(Some(&log));
        step.handle_event(Event::Configured(Box::default()));
        step.handle_event(submission("a"));
        let _ = step.plan().append(&mut NullJournal).unwrap();
        assert_eq!(*log.0.lock().unwrap(), [false, true]);
    }

    #[test]
    fn nothing_leaves_before_its_batch_is_durable() {
        let mut engine = Engine::new();
        let mut log = FullDisk { refusals: 1, ..FullDisk::default() };
        let first = configure(&mut engine, tick(0), Policy::default());
        assert_eq!(first.append(&mut log).unwrap_err(), "no space left");
        let _ = configure(&mut engine, tick(1), Policy::default()).append(&mut log).unwrap();
        let released = planned(&mut engine, 2, "a").append(&mut log).unwrap();
        assert!(!released.statuses.is_empty());
        assert_eq!(log.transactions, 2);
    }

    /// A policy with one spot offering at this price and bound.
    fn selling_spot(price: u64, most: u64) -> Policy {
        let offering = Offering {
            instance_type: "g5.xlarge".into(),
            zone: "a".into(),
            capacity: CapacityType::Spot,
            gpus: 1,
            gpu_mem: Mib(24_576),
            models: vec!["a10g".into()],
            cpu: MilliCpu(4_000),
            mem: Mib(16_384),
            price: Rate(price),
            max_price: Rate(most),
            on_demand: Rate(1_000),
            boot: Span::ZERO,
            nvlink: 0,
            numa: 0,
        };
        Policy { offerings: vec![offering], ..Policy::default() }
    }

    #[test]
    fn another_policy_keeps_the_prices_that_the_market_has_moved() {
        let mut engine = Engine::new();
        let mut price_under = |policy: Policy, now: u64, market: Option<u64>| {
            let events = configure(&mut engine, tick(now), policy).batch().events.len();
            let price = engine.state().offerings()[0].offer.price;
            if let Some(price) = market {
                let mut step = BatchStep::open(&mut engine, tick(now));
                step.handle_event(Event::PriceChanged { offering: OfferingId(0), price: Rate(price) });
                let _ = step.plan();
            }
            (events, price)
        };
        assert_eq!(price_under(selling_spot(400, 900), 1, None), (1, Rate(400)));
        // Nothing has moved it: the catalogue's counts, which may be another.
        assert_eq!(price_under(selling_spot(450, 900), 2, Some(700)), (1, Rate(450)));
        assert_eq!(price_under(selling_spot(450, 900), 3, None), (2, Rate(700)));
        // Never more than the policy lets be paid.
        assert_eq!(price_under(selling_spot(450, 600), 4, None), (2, Rate(600)));
    }

    #[test]
    fn batches_share_a_transaction_and_are_tried_again_together() {
        let mut engine = Engine::new();
        let mut log = FullDisk::default();
        let _ = configure(&mut engine, tick(0), Policy::default()).append(&mut log).unwrap();
        let mut commit = GroupCommit::default();
        for (now, subject) in [(1, "a"), (2, "b")] {
            let positions = Positions::from([("source".to_owned(), now)]);
            commit.push(planned(&mut engine, now, subject), SideRecords { positions, ..SideRecords::default() });
        }
        assert!(commit.held_statuses() > 0 && commit.take_statuses().is_empty());
        log.refusals = 1;
        assert!(commit.commit(&mut log).is_err());
        assert_eq!((commit.pending(), commit.take_statuses().len()), (2, 0), "nothing is lost, and nothing has left");
        let moved = commit.commit(&mut log).unwrap();
        assert_eq!((moved.get("source"), log.transactions, log.kept.len()), (Some(&2), 2, 3));
        let numbers: Vec<u64> = commit.take_statuses().iter().map(|status| status.number).collect();
        assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]) && !numbers.is_empty());
    }

    #[test]
    fn effects_wait_for_their_batch_only_where_they_outlive_the_process() {
        let effect = Effect {
            id: Seq(1),
            action: forebay_kernel::effect::Action::Launch {
                purchase: PurchaseId(0),
                offering: forebay_kernel::ids::OfferingId(0),
                count: 1,
                at_least: 1,
                terms: forebay_kernel::effect::Terms::default(),
            },
        };
        let mut engine = Engine::new();
        let mut commit = GroupCommit::default();
        commit.push(configure(&mut engine, tick(0), Policy::default()), SideRecords::default());
        commit.effects.push(effect.clone());
        assert!(commit.take_effects(EffectLifetime::OutlivesProcess).is_empty());
        assert_eq!(commit.take_effects(EffectLifetime::DiesWithProcess), std::slice::from_ref(&effect));
        commit.effects.push(effect.clone());
        assert!(commit.commit(&mut NullJournal).is_ok());
        assert_eq!(commit.take_effects(EffectLifetime::OutlivesProcess), [effect]);
    }
}
