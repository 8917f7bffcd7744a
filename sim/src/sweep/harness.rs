//! One seed's run: the loop of a driver that everything happens to.
//!
//! ```text
//! inputs, messages, lists -> batch -> journal -> [crash?] -> effects -> channel -> world
//! ```
//!
//! Never: helps the engine. What it does not get, it has to find out as in life: by repeating effects and by lists.

use std::collections::{BTreeMap, VecDeque};

use forebay_engine::decision::{Decision, StopCause};
use forebay_engine::effect::{Action, Effect, StatusKind};
use forebay_engine::engine::{Engine, Released};
use forebay_engine::event::{Event, Tick};
use forebay_engine::ids::{JobId, OfferingId};
use forebay_engine::journal::{Batch, Journal};
use forebay_engine::reconcile::{self, Listing};
use forebay_engine::units::{Millis, Span};

use super::checks::Checks;
use super::workload::{self, Input, TENANT};
use super::{Sabotage, SweepFailure, SweepReport};
use crate::drive::difference;
use crate::faults::{Channel, FaultPlan};
use crate::market::Market;
use crate::memory::MemoryJournal;
use crate::policies::{self, features::without_floors};
use crate::world::{Truths, World, WorldOptions, spot_pairs};

/// Nothing goes wrong after this.
const FAULTS_UNTIL: Millis = Millis(4 * 3_600_000);
/// What is still open then is cancelled: some policies leave a job waiting for ever, and say so.
const CANCEL_AT: Millis = Millis(72 * 3_600_000);
/// Everything must be over by then.
const OVER_BY: Millis = Millis(96 * 3_600_000);
const BEAT: Span = Span::mins(5);
/// One batch in so many is also given to an engine without memos.
const SHADOW_ONE_IN: u64 = 2;
const MOST_BATCHES: u64 = 60_000;
/// How long the process may be down, in ms.
const DOWN: u64 = 1_800_000;
/// How far the wall clock may step, in ms.
const STEP: u64 = 600_000;

/// When the process dies, seen from a batch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Crash {
    /// Before the batch is written.
    Unwritten,
    /// While the batch is written.
    Torn,
    /// After the batch is written, before all of its effects have left.
    Unreleased,
}

pub(super) struct Harness {
    seed: u64,
    sabotage: Option<Sabotage>,
    engine: Engine,
    journal: MemoryJournal,
    world: World,
    /// What the world was made of, for when it dies with the process.
    options: WorldOptions,
    truths: Truths,
    /// Ends of work in worlds that died.
    completions: BTreeMap<JobId, u32>,
    channel: Channel,
    checks: Checks,
    inputs: VecDeque<Input>,
    now: Millis,
    next_beat: Millis,
    /// A list that was taken and not looked at yet.
    list: Option<(Millis, Listing)>,
    resumed: bool,
    cancelled_all: bool,
    hung: u64,
    report: SweepReport,
}

impl Harness {
    pub fn new(seed: u64, sabotage: Option<Sabotage>) -> Harness {
        let policy = policies::random(seed);
        let pairs = spot_pairs(&policy);
        let market = match seed % 4 {
            0 => Market::calm(&pairs),
            _ => Market::seeded(seed, &pairs, 24 * 3_600_000),
        };
        let work = workload::random(seed);
        let mut report = SweepReport { seeds: 1, jobs: work.truths.len() as u64, ..SweepReport::default() };
        report.tally.named(&policy, &work);
        let mut engine = Engine::new();
        let mut journal = MemoryJournal::new();
        engine.open(Tick { now: Millis(0), resumed: false, delivered: 0 });
        engine.handle_event(Event::Configured(Box::new(policy)));
        let _ = engine.plan();
        let unsaved = engine.close();
        let _ = journal.append(unsaved.batch());
        let _ = unsaved.saved();
        let options = FaultPlan::world(seed, market);
        let mut world = World::new(options.clone(), engine.state());
        let named = work.truths.iter().map(|(subject, truth)| ((TENANT.to_owned(), subject.clone()), *truth));
        let truths: Truths = named.collect();
        for ((tenant, subject), truth) in &truths {
            world.learn(tenant, subject, *truth);
        }
        Harness {
            seed,
            sabotage,
            engine,
            journal,
            world,
            options,
            truths,
            completions: BTreeMap::new(),
            channel: Channel::new(seed, FaultPlan::random(seed, FAULTS_UNTIL)),
            checks: Checks::default(),
            inputs: work.inputs.into(),
            now: Millis(0),
            next_beat: Millis(0) + BEAT,
            list: None,
            resumed: false,
            cancelled_all: false,
            hung: 0,
            report,
        }
    }

    pub fn run(mut self) -> Result<SweepReport, SweepFailure> {
        while !self.over() {
            self.step()?;
            if self.report.batches > MOST_BATCHES || self.now > OVER_BY {
                return Err(self.unfinished());
            }
        }
        self.finish()
    }

    fn over(&self) -> bool {
        self.inputs.is_empty() && !self.open()
    }

    fn open(&self) -> bool {
        let state = self.engine.state();
        state.open_jobs() > 0
            || state.nodes().next().is_some()
            || state.purchases().next().is_some()
            || self.world.instances() > 0
            || self.world.runs_alive() > 0
            || self.channel.next().is_some()
    }

    fn step(&mut self) -> Result<(), SweepFailure> {
        let next = [
            self.inputs.front().map(|i| i.at),
            self.world.next_event(),
            self.channel.next(),
            self.engine.poll_timeout(),
            self.open().then_some(self.next_beat),
            self.list.as_ref().map(|(at, _)| *at),
            (!self.cancelled_all).then_some(CANCEL_AT),
        ];
        let due = next.into_iter().flatten().min().unwrap_or(CANCEL_AT);
        self.now = self.now.max(due);
        self.step_clock();
        for effect in self.channel.arrived_effects(self.now) {
            self.act(&effect);
        }
        for event in self.world.take_until(self.now) {
            self.channel.receive(self.now, event);
        }
        let mut events = self.inputs();
        events.extend(self.channel.arrived_events(self.now));
        self.take_list(&mut events);
        self.cancel_all(&mut events);
        self.lift_floors(&mut events);
        let timeout = self.engine.poll_timeout().is_some_and(|t| t <= self.now);
        if events.is_empty() && !timeout && !self.resumed {
            return Ok(());
        }
        self.batch(events)
    }

    /// The wall clock steps forward now and then; backward steps are in the tick.
    fn step_clock(&mut self) {
        let plan = self.channel.plan();
        if self.channel.happens(self.now, plan.clock_step) {
            self.report.clock_steps += 1;
            self.now = self.now + Span(self.channel.pick(STEP));
        }
    }

    fn inputs(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while self.inputs.front().is_some_and(|i| i.at <= self.now) {
            let Some(input) = self.inputs.pop_front() else { break };
            let lose = self.sabotage == Some(Sabotage::LostSubmission) && events.is_empty();
            if let (Event::JobSubmitted(spec), true) = (&input.event, lose) {
                self.checks.acknowledged(&spec.tenant, &spec.subject);
                self.sabotage = None;
                continue;
            }
            events.push(input.event);
        }
        events
    }

    /// Takes a list on the beat, and looks at it now or up to a minute later.
    fn take_list(&mut self, events: &mut Vec<Event>) {
        if self.next_beat <= self.now {
            let missed = self.now.since(self.next_beat).0 / BEAT.0 + 1;
            self.next_beat = self.next_beat + Span(missed * BEAT.0);
            self.new_list();
        }
        let due = self.list.as_ref().is_some_and(|(at, _)| *at <= self.now);
        if let Some((_, list)) = self.list.take_if(|_| due) {
            let found = reconcile::differences(self.engine.state(), &list);
            self.report.found_by_list += found.len() as u64;
            events.extend(found);
        }
    }

    fn new_list(&mut self) {
        let plan = self.channel.plan();
        let stale = self.channel.happens(self.now, plan.stale_list);
        let late = if stale { self.channel.pick(60_000) } else { 0 };
        self.report.stale_lists += u64::from(stale);
        self.list = Some((self.now + Span(late), self.world.list(self.now)));
    }

    fn cancel_all(&mut self, events: &mut Vec<Event>) {
        if self.cancelled_all || self.now < CANCEL_AT {
            return;
        }
        self.cancelled_all = true;
        let state = self.engine.state();
        self.report.starved += state.open_jobs() as u64;
        for id in state.open_job_ids() {
            if let Some((_, spec)) = state.job(id) {
                let (tenant, subject) = (spec.tenant.clone(), spec.subject.clone());
                events.push(Event::JobCancelled { tenant, subject, by: None, sent: None });
            }
        }
    }

    /// When all work is over, a policy that keeps nodes is replaced by the same one without: then they go back to zero too.
    fn lift_floors(&mut self, events: &mut Vec<Event>) {
        let state = self.engine.state();
        if self.inputs.is_empty() && events.is_empty() && state.open_jobs() == 0 {
            let without = state.policy().and_then(without_floors);
            events.extend(without.map(|policy| Event::Configured(Box::new(policy))));
        }
    }

    fn batch(&mut self, events: Vec<Event>) -> Result<(), SweepFailure> {
        let plan = self.channel.plan();
        let crash = self.channel.happens(self.now, plan.crash).then(|| match self.channel.pick(4) {
            0 => Crash::Unwritten,
            1 => Crash::Torn,
            _ => Crash::Unreleased,
        });
        let before = crash.map(|_| self.engine.snapshot());
        let tick = self.tick();
        let shadow = self.shadow(tick, &events);
        let mut promised = Vec::new();
        self.engine.open(tick);
        for event in &events {
            promised.extend(Checks::promised(event, self.engine.state()));
            self.engine.handle_event(event.clone());
        }
        let report = self.engine.plan();
        let unsaved = self.engine.close();
        self.report.batches += 1;
        if let Some(shadow) = shadow.filter(|shadow| shadow != unsaved.batch()) {
            let (with, without) = (&unsaved.batch().decisions, &shadow.decisions);
            let parts = with.iter().zip(without).position(|(a, b)| a != b).unwrap_or(with.len().min(without.len()));
            let (with, without) = (with.get(parts), without.get(parts));
            return Err(self.failure(format!("memos change decision {parts}: with {with:?}, without {without:?}")));
        }
        if let (Some(before), Some(Crash::Unwritten | Crash::Torn)) = (before, crash) {
            if crash == Some(Crash::Torn) {
                let keep = u16::try_from(self.channel.pick(1000)).unwrap_or(0);
                self.journal.tear(unsaved.batch(), keep);
                self.report.torn += 1;
            } else {
                self.report.unwritten += 1;
            }
            self.send_again(events);
            return self.recover(&before);
        }
        let drop_it = self.sabotage == Some(Sabotage::DroppedBatch) && !unsaved.batch().decisions.is_empty();
        if drop_it {
            self.sabotage = None;
        } else if self.journal.append(unsaved.batch()).is_err() {
            return Err(self.failure("the journal cannot be written".into()));
        }
        self.resumed = false;
        let gives_up = |d: &&Decision| matches!(d, Decision::GiveUp { .. });
        self.hung += unsaved.batch().decisions.iter().filter(gives_up).count() as u64;
        self.report.taken_back += taken_back(unsaved.batch());
        self.report.tally.batch(unsaved.batch(), &report);
        self.checks.batch(unsaved.batch(), &report, self.engine.state(), promised);
        let released = unsaved.saved();
        self.acknowledge(&events);
        if crash == Some(Crash::Unreleased) {
            self.report.unreleased += 1;
            let some = self.channel.pick(released.effects.len() as u64 + 1) as usize;
            for effect in released.effects.into_iter().take(some) {
                self.send(effect);
            }
            let live = self.live_snapshot();
            return self.recover(&live);
        }
        self.release(released);
        self.judge()
    }

    /// The same batch by an engine that remembers nothing between passes: memos must not change a decision.
    fn shadow(&mut self, tick: Tick, events: &[Event]) -> Option<Batch> {
        if self.channel.pick(SHADOW_ONE_IN) != 0 {
            return None;
        }
        let mut shadow = self.engine.clone();
        shadow.forget_memos(true);
        shadow.open(tick);
        events.iter().for_each(|event| shadow.handle_event(event.clone()));
        let _ = shadow.plan();
        Some(shadow.close().batch().clone())
    }

    fn tick(&mut self) -> Tick {
        let plan = self.channel.plan();
        let mut now = self.now;
        if self.channel.happens(now, plan.clock_step) {
            self.report.clock_steps += 1;
            now = now - Span(self.channel.pick(STEP));
        }
        Tick { now, resumed: self.resumed, delivered: self.checks.delivered() }
    }

    /// What sources were not told is done comes again. What the world said is gone.
    fn send_again(&mut self, events: Vec<Event>) {
        for event in events.into_iter().rev() {
            if matches!(event, Event::JobSubmitted(_) | Event::JobCancelled { .. } | Event::ServiceDemand { .. }) {
                self.inputs.push_front(Input { at: self.now, event });
            }
        }
    }

    fn acknowledge(&mut self, events: &[Event]) {
        for event in events {
            if let Event::JobSubmitted(spec) = event {
                self.checks.acknowledged(&spec.tenant, &spec.subject);
            }
        }
    }

    fn release(&mut self, released: Released) {
        for status in &released.statuses {
            self.deliver(status);
        }
        for effect in released.effects {
            self.send(effect);
        }
    }

    fn deliver(&mut self, status: &forebay_engine::effect::Status) {
        if self.sabotage == Some(Sabotage::SkippedStatus) && status.number == 3 {
            self.sabotage = None;
            return;
        }
        self.report.tally.says(status);
        self.checks.status(status);
    }

    fn send(&mut self, mut effect: Effect) {
        match (self.sabotage, &mut effect.action) {
            (Some(Sabotage::HalfGang), Action::Start { workers, .. }) if workers.len() > 1 => {
                workers.pop();
            }
            (Some(Sabotage::ChangedRequest), Action::Launch { count, .. }) if self.now.0.is_multiple_of(2) => {
                *count += 1;
            }
            (Some(Sabotage::Zombies), Action::Stop { job, attempt, .. }) => {
                self.world.make_undead(*job, *attempt);
            }
            _ => {}
        }
        self.checks.effect(&effect, self.engine.state());
        self.checks.observer.starts(std::slice::from_ref(&effect), self.engine.state());
        self.channel.send(self.now, effect);
    }

    fn act(&mut self, effect: &Effect) {
        self.world.act(self.now, effect, self.engine.state());
    }

    fn live_snapshot(&mut self) -> Vec<u8> {
        if self.sabotage == Some(Sabotage::PhantomNode) {
            self.engine.open(Tick { now: self.now, resumed: false, delivered: 0 });
            self.engine.handle_event(Event::OrphanSeen { instance: "i-phantom".into(), offering: OfferingId(0) });
            let _ = self.engine.close().saved();
        }
        self.engine.snapshot()
    }

    /// The process dies and comes back, at once or after a while.
    fn recover(&mut self, live: &[u8]) -> Result<(), SweepFailure> {
        self.report.crashes += 1;
        let recovered = match self.journal.recover() {
            Ok(recovered) => recovered,
            Err(error) => return Err(self.failure(format!("the journal cannot be read: {error}"))),
        };
        let replayed = recovered.engine.snapshot();
        if replayed != live {
            let how = difference(live, &replayed);
            return Err(self.failure(format!("the recovered state differs: {how}")));
        }
        self.engine = recovered.engine;
        if self.channel.pick(3) == 0 {
            let snapshot = self.journal.snapshot(&replayed);
            debug_assert!(snapshot.is_ok());
        }
        if self.channel.pick(2) == 0 {
            self.report.downtimes += 1;
            self.now = self.now + Span(self.channel.pick(DOWN));
        }
        if self.channel.pick(4) == 0 {
            self.lose_world();
        }
        // What happened meanwhile was said to nobody, or waits in a queue.
        for effect in self.channel.arrived_effects(self.now) {
            self.act(&effect);
        }
        let said = self.world.take_until(self.now);
        if self.channel.pick(2) == 0 {
            self.channel.forget_events();
        } else {
            for event in said {
                self.channel.receive(self.now, event);
            }
        }
        self.resumed = true;
        self.new_list();
        let statuses = self.engine.state().undelivered().cloned().collect();
        let effects = self.engine.open_effects();
        self.release(Released { effects, statuses });
        self.judge()
    }

    /// An embedded world dies with its process, and is put together again from what the journal knows.
    fn lose_world(&mut self) {
        self.report.worlds_lost += 1;
        for (job, _) in self.engine.state().jobs() {
            *self.completions.entry(job.id).or_default() += self.world.completions(job.id);
        }
        let books = self.world.books(self.now);
        self.report.reclaims += books.reclaims;
        self.report.unwarned += books.unwarned;
        self.channel.forget_effects();
        self.channel.forget_events();
        self.list = None;
        self.world = World::rebuild(self.options.clone(), self.engine.state(), self.truths.clone());
    }

    fn judge(&mut self) -> Result<(), SweepFailure> {
        self.checks.nobody_lost(self.engine.state());
        let mut found = self.engine.audit();
        found.extend(self.checks.found());
        found.extend(self.world.violations().iter().cloned());
        if found.is_empty() {
            return Ok(());
        }
        found.truncate(5);
        Err(self.failure(found.join("; ")))
    }

    fn failure(&self, what: String) -> SweepFailure {
        SweepFailure { seed: self.seed, batch: self.report.batches, now: self.now.0, what }
    }

    fn unfinished(&self) -> SweepFailure {
        let state = self.engine.state();
        let jobs = state.open_job_ids().take(3).map(|id| {
            let phase = state.job(id).map(|(job, _)| format!("{:?}", job.phase)).unwrap_or_default();
            format!("{id} {phase} {:?}", self.engine.why(id))
        });
        let jobs: Vec<String> = jobs.collect();
        let nodes: Vec<String> = state.nodes().take(3).map(|n| format!("{} {:?}", n.id, n.phase)).collect();
        let (instances, runs) = (self.world.instances(), self.world.runs_alive());
        let what = format!(
            "it does not end: {} jobs open {jobs:?}, nodes {nodes:?}, {} purchases, {instances} instances, {runs} runs",
            state.open_jobs(),
            state.purchases().count(),
        );
        self.failure(what)
    }

    /// At the end: everything is over, nothing is left, and the world agrees.
    fn finish(mut self) -> Result<SweepReport, SweepFailure> {
        self.judge()?;
        let state = self.engine.state();
        let mut wrong = Vec::new();
        for (job, _) in state.jobs().filter(|(job, _)| job.of.is_none()) {
            let end = self.checks.ended(job.id);
            let done = self.world.completions(job.id) + self.completions.get(&job.id).copied().unwrap_or_default();
            match end {
                Some(StatusKind::Completed) => self.report.completed += 1,
                Some(StatusKind::Failed) => self.report.failed += 1,
                Some(StatusKind::Cancelled) => self.report.cancelled += 1,
                Some(StatusKind::Rejected) => self.report.rejected += 1,
                _ => wrong.push(format!("{} has no end", job.id)),
            }
            self.report.redone += u64::from(done > 1);
            if end == Some(StatusKind::Completed) && done == 0 {
                wrong.push(format!("{} is completed, its work was never done", job.id));
            }
            if done > 1
                && self.channel.tally.lost_events + self.channel.tally.late_events == 0
                && self.report.crashes == 0
            {
                wrong.push(format!("{} was done {done} times though no message was lost", job.id));
            }
        }
        if !self.checks.observer.recounted(state) {
            wrong.push("the observer lost count of what jobs hold".to_owned());
        }
        let counters = state.counters();
        let books = self.world.books(self.now);
        self.report.preemptions = counters.preemptions;
        self.report.replicas = counters.replicas;
        self.report.hung = self.hung;
        self.report.shrinks = counters.shrinks;
        self.report.reclaims += books.reclaims;
        self.report.unwarned += books.unwarned;
        self.report.faults = self.channel.tally;
        if wrong.is_empty() { Ok(self.report) } else { Err(self.failure(wrong.join("; "))) }
    }
}

/// Runs from which a batch takes something because of quota.
fn taken_back(batch: &Batch) -> u64 {
    let takes = |d: &&Decision| match d {
        Decision::Stop { cause, .. } | Decision::Shrink { cause, .. } => {
            matches!(cause, StopCause::QuotaReclaimed { .. })
        }
        _ => false,
    };
    batch.decisions.iter().filter(takes).count() as u64
}
