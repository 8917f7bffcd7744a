//! One seed's run: the loop of a driver that everything happens to.
//!
//! ```text
//! inputs, messages, lists -> batch -> journal -> [crash?] -> effects -> channel -> world
//! ```
//!
//! Never: helps the engine. What it does not get, it has to find out as in life: by repeating effects and by lists.

use std::collections::{BTreeMap, VecDeque};

use forebay_driver::archive::{EventIdentity, identity_of, with_earlier_job};
use forebay_driver::journal::NullJournal;
use forebay_driver::step::{self, BatchStep, PlannedBatch};
use forebay_engine::engine::{Engine, Released};
use forebay_kernel::decision::{Decision, StopCause};
use forebay_kernel::effect::{Action, Effect, StatusKind};
use forebay_kernel::event::{EarlierJob, Event, Tick};
use forebay_kernel::ids::{JobId, OfferingId};
use forebay_kernel::journal::Batch;
use forebay_kernel::policy::Policy;
use forebay_kernel::reason::Reason;
use forebay_kernel::reconcile::{self, Listing};
use forebay_kernel::state::State;
use forebay_kernel::state::retire::FinishedJob;
use forebay_kernel::units::{Span, Timestamp};

use super::checks::{Checks, Notes};
use super::operators::{self, Operators};
use super::reasons;
use super::workload::{self, Input, TENANT, Workload};
use super::{BatchWatch, Sabotage, SweepFailure, SweepReport};
use crate::drive::difference;
use crate::faults::{FaultPlan, Faults, Link};
use crate::market::Market;
use crate::memory::MemoryJournal;
use crate::policies::{self, features::without_floors};
use crate::world::{Truths, World, WorldOptions, spot_pairs};

/// Nothing goes wrong after this.
const FAULTS_UNTIL: Timestamp = Timestamp(4 * 3_600_000);
/// What is still open then is cancelled: some policies leave a job waiting for ever, and their check warns of it. No period of a budget begins or ends
/// then: what was said before would not hold any more.
const CANCEL_AT: Timestamp = Timestamp(72 * 3_600_000 + 1_800_000);
/// Who waits for what still runs is judged by then at the latest.
const JUDGED_BY: Timestamp = Timestamp(CANCEL_AT.0 + 12 * 3_600_000);
/// Everything must be over by then.
const OVER_BY: Timestamp = Timestamp(96 * 3_600_000);
const COMPARE_EVERY: Span = Span::mins(5);
/// One batch in so many is also given to an engine without memos.
const SHADOW_ONE_IN: u64 = 2;
const MOST_BATCHES: u64 = 60_000;
/// So many jobs are asked why they are where they are, at each listing.
const ASKED_WHY: usize = 8;
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

/// The last job of each identity that is over, by durable batches.
#[derive(Debug, Default)]
struct Archive(BTreeMap<(String, String), EarlierJob>);

impl Archive {
    fn take(&mut self, finished: &FinishedJob) {
        if let Some(earlier) = finished.identity() {
            self.0.insert((finished.spec.tenant.clone(), finished.spec.subject.clone()), earlier);
        }
    }

    /// An event as the engine needs it: with the earlier job of an identity that the state does not know any more.
    fn complete(&self, event: Event, state: &State) -> Event {
        let Some(EventIdentity { tenant, subject }) = identity_of(&event) else { return event };
        let known = state.job_of(tenant, subject).is_some();
        let earlier = self.0.get(&(tenant.to_owned(), subject.to_owned())).filter(|_| !known).copied();
        match earlier {
            Some(earlier) => with_earlier_job(event, earlier),
            None => event,
        }
    }
}

pub(super) struct Harness {
    seed: u64,
    /// Its workload is one of hundreds of jobs of many shapes.
    crowd: bool,
    sabotage: Option<Sabotage>,
    operators: Option<Operators>,
    /// The seed's own, which is in force at the end.
    policy: Policy,
    watch: Option<Box<dyn BatchWatch>>,
    engine: Engine,
    journal: MemoryJournal,
    archive: Archive,
    world: World,
    /// What the world was made of, for when it dies with the process.
    options: WorldOptions,
    truths: Truths,
    /// Ends of work in worlds that died.
    completions: BTreeMap<JobId, u32>,
    faults: Faults,
    effects: Link<Effect>,
    events: Link<Event>,
    checks: Checks,
    inputs: VecDeque<Input>,
    now: Timestamp,
    compare_at: Timestamp,
    /// A listing that was taken and is not compared yet.
    list: Option<(Timestamp, Listing)>,
    resumed: bool,
    cancelled_all: bool,
    /// When what is still open is judged, and cancelled.
    cancel_at: Timestamp,
    hung: u64,
    report: SweepReport,
}

impl Harness {
    pub fn new(seed: u64, sabotage: Option<Sabotage>) -> Harness {
        Harness::with(seed, workload::random(seed), sabotage)
    }

    /// A run with many classes that wait side by side.
    pub fn of_crowd(seed: u64) -> Harness {
        Harness { crowd: true, ..Harness::with(seed, workload::crowd(seed), None) }
    }

    fn with(seed: u64, mut work: Workload, sabotage: Option<Sabotage>) -> Harness {
        let operators = Operators::of(seed);
        let policy = policies::random(seed);
        let policy = operators.map_or(policy.clone(), |operators| operators.policy(policy));
        let pairs = spot_pairs(&policy);
        let market = match seed % 4 {
            0 => Market::calm(&pairs),
            _ => Market::seeded(seed, &pairs, 24 * 3_600_000),
        };
        let mut report = SweepReport { seeds: 1, jobs: work.truths.len() as u64, ..SweepReport::default() };
        report.tally.named(&policy, &work);
        if let Some(operators) = operators {
            report.tally.operators(operators.named());
            work.inputs.extend(operators.inputs(&policy));
            work.inputs.sort_by_key(|input| input.at);
        }
        // None and few finished jobs in the state make their identities a question for the archive.
        let mut journal = match seed % 3 {
            0 => MemoryJournal::new(),
            1 => MemoryJournal::keeping_finished(0),
            _ => MemoryJournal::keeping_finished(2),
        };
        let mut engine = journal.new_engine();
        let tick = Tick { now: Timestamp(0), resumed: false, delivered: 0 };
        let first = step::configure(&mut engine, tick, policy.clone());
        // What it asks of a world that is not made yet is lost. The engine has to find that out.
        let _ = first.append(&mut journal);
        let options = FaultPlan::world(seed, market);
        let options = operators.map_or(options.clone(), |operators| operators.world(options));
        let mut world = World::new(options.clone(), engine.state());
        let named = work.truths.iter().map(|(subject, truth)| ((TENANT.to_owned(), subject.clone()), *truth));
        let truths: Truths = named.collect();
        for ((tenant, subject), truth) in &truths {
            world.learn(tenant, subject, *truth);
        }
        let plan = FaultPlan::random(seed, FAULTS_UNTIL);
        Harness {
            seed,
            crowd: false,
            sabotage,
            operators,
            policy,
            watch: None,
            engine,
            journal,
            archive: Archive::default(),
            world,
            options,
            truths,
            completions: BTreeMap::new(),
            faults: Faults::new(seed, plan),
            effects: Link::new(plan.effects),
            events: Link::new(plan.events),
            checks: Checks::default(),
            inputs: work.inputs.into(),
            now: Timestamp(0),
            compare_at: Timestamp(0) + COMPARE_EVERY,
            list: None,
            resumed: false,
            cancelled_all: false,
            cancel_at: CANCEL_AT,
            hung: 0,
            report,
        }
    }

    /// The same run, looked at by somebody.
    pub fn watched(self, watch: Box<dyn BatchWatch>) -> Harness {
        Harness { watch: Some(watch), ..self }
    }

    /// Runs the seed to its end.
    ///
    /// # Errors
    /// A check failed, or the run does not end.
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
            || state.bought_nodes().next().is_some()
            || state.purchases().next().is_some()
            || self.world.instances() > 0
            || self.world.runs_alive() > 0
            || self.effects.next().is_some()
            || self.events.next().is_some()
    }

    fn step(&mut self) -> Result<(), SweepFailure> {
        let next = [
            self.inputs.front().map(|i| i.at),
            self.world.next_event(),
            self.effects.next(),
            self.events.next(),
            self.engine.poll_timeout(),
            self.open().then_some(self.compare_at),
            self.list.as_ref().map(|(at, _)| *at),
            (!self.cancelled_all).then_some(self.cancel_at),
        ];
        let due = next.into_iter().flatten().min().unwrap_or(self.cancel_at);
        self.now = self.now.max(due);
        self.step_clock();
        for effect in self.effects.arrived(self.now) {
            self.world.act(self.now, &effect, self.engine.state());
        }
        for event in self.world.take_until(self.now) {
            self.events.send(self.now, event, &mut self.faults);
        }
        let mut events = self.inputs();
        events.extend(self.events.arrived(self.now));
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
        if self.faults.happens(self.now, self.faults.plan.clock_step) {
            self.report.clock_steps += 1;
            self.now = self.now + Span(self.faults.pick(STEP));
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
            match input.event {
                Event::Configured(policy) => events.extend(operators::configured(policy, self.engine.state())),
                event => events.push(event),
            }
        }
        events
    }

    /// Takes a listing every five minutes, and compares it now or up to a minute later.
    fn take_list(&mut self, events: &mut Vec<Event>) {
        if self.compare_at <= self.now {
            let missed = self.now.since(self.compare_at).0 / COMPARE_EVERY.0 + 1;
            self.compare_at = self.compare_at + Span(missed * COMPARE_EVERY.0);
            self.new_list();
        }
        let due = self.list.as_ref().is_some_and(|(at, _)| *at <= self.now);
        if let Some((_, list)) = self.list.take_if(|_| due) {
            let found = reconcile::differences(self.engine.state(), &list);
            self.report.found_by_list += found.len() as u64;
            events.extend(found);
            events.extend(self.operators.map_or_else(Vec::new, |operators| operators.deaths(self.engine.state())));
        }
    }

    fn new_list(&mut self) {
        let stale = self.faults.happens(self.now, self.faults.plan.stale_list);
        let late = if stale { self.faults.pick(60_000) } else { 0 };
        self.report.stale_lists += u64::from(stale);
        self.list = Some((self.now + Span(late), self.world.list(self.now)));
        let asked = self.engine.state().open_job_ids().take(ASKED_WHY).filter_map(|id| self.engine.why(id));
        asked.for_each(|reason| self.report.tally.why(reason));
    }

    fn cancel_all(&mut self, events: &mut Vec<Event>) {
        if self.cancelled_all || self.now < self.cancel_at {
            return;
        }
        // What daily budgets have put off may run only now, and others wait for it: then they are judged later, but not for ever.
        if reasons::goes_on(self.engine.state()) && self.cancel_at < JUDGED_BY {
            self.cancel_at = self.cancel_at + Span::mins(60);
            return;
        }
        self.cancelled_all = true;
        let state = self.engine.state();
        self.report.starved += state.open_jobs() as u64;
        let kept = reasons::kept_by_right(&self.engine);
        for id in state.open_job_ids() {
            if let Some((job, spec)) = state.job(id) {
                if job.service.is_none() && !reasons::holds_places(job) {
                    let reason = self.engine.why(id);
                    self.report.tally.starved(reason);
                    let for_quota = matches!(reason, Some(Reason::WaitingForQuota { .. }));
                    if !(for_quota && reasons::lacks_what_is_kept(state, id, &kept)) {
                        self.checks.starved(id, reason, self.now);
                    }
                }
                let (tenant, subject) = (spec.tenant.clone(), spec.subject.clone());
                events.push(Event::JobCancelled { tenant, subject, by: None, sent: None });
            }
        }
    }

    /// When all work is over, a policy that keeps nodes is replaced by the same one without: then they go back to zero too.
    fn lift_floors(&mut self, events: &mut Vec<Event>) {
        let state = self.engine.state();
        if self.inputs.is_empty() && events.is_empty() && state.open_jobs() == 0 {
            // The policy of the state may have in it what earlier ones left there.
            let keeps = state.policy().and_then(without_floors).is_some();
            let without = without_floors(&self.policy).filter(|_| keeps);
            events.extend(without.map(|policy| Event::Configured(Box::new(policy))));
        }
    }

    fn batch(&mut self, events: Vec<Event>) -> Result<(), SweepFailure> {
        let crash = self.faults.happens(self.now, self.faults.plan.crash).then(|| match self.faults.pick(4) {
            0 => Crash::Unwritten,
            1 => Crash::Torn,
            _ => Crash::Unreleased,
        });
        let before = crash.map(|_| crate::memory::state_bytes(&self.engine));
        let tick = self.tick();
        let shadow = self.shadow(tick, &events);
        let mut notes = Notes::default();
        if let Some(watch) = &mut self.watch {
            watch.before(&self.engine);
        }
        let mut step = BatchStep::open(&mut self.engine, tick);
        for event in &events {
            let event = self.archive.complete(event.clone(), step.state());
            notes.event(&event, step.state());
            step.handle_event(event);
        }
        let planned = step.plan();
        if let Some(watch) = &mut self.watch {
            watch.after(planned.batch());
        }
        self.report.batches += 1;
        if let Some(differs) = shadow.and_then(|shadow| memos_differ(planned.batch(), &shadow)) {
            return Err(self.failure(differs));
        }
        if let (Some(before), Some(Crash::Unwritten | Crash::Torn)) = (before, crash) {
            if crash == Some(Crash::Torn) {
                let keep = u16::try_from(self.faults.pick(1000)).unwrap_or(0);
                self.journal.tear(planned.batch(), keep);
                self.report.torn += 1;
            } else {
                self.report.unwritten += 1;
            }
            self.send_again(events);
            return self.recover(&before);
        }
        self.check(&planned, notes);
        let Some(released) = self.append(planned) else {
            return Err(self.failure("the journal cannot be written".into()));
        };
        self.resumed = false;
        self.own_nodes(&events);
        self.confirm_deaths(&events);
        self.acknowledge(&events);
        if crash == Some(Crash::Unreleased) {
            self.report.unreleased += 1;
            let some = self.faults.pick(released.effects.len() as u64 + 1) as usize;
            for effect in released.effects.into_iter().take(some) {
                self.send(effect);
            }
            let live = self.live_snapshot();
            return self.recover(&live);
        }
        self.release(released);
        self.judge()
    }

    /// Counts and checks a batch that is going to be durable.
    fn check(&mut self, planned: &PlannedBatch, notes: Notes) {
        let batch = planned.batch();
        let gives_up = |d: &&Decision| matches!(d, Decision::GiveUp { .. });
        self.hung += batch.decisions.iter().filter(gives_up).count() as u64;
        self.report.taken_back += taken_back(batch);
        self.report.tally.batch(batch, planned.report());
        self.checks.batch(planned, self.engine.state(), notes, FAULTS_UNTIL);
    }

    /// Makes a batch durable, unless it is the one to be dropped. `None`: the journal could not be written.
    fn append(&mut self, planned: PlannedBatch) -> Option<Released> {
        if self.sabotage == Some(Sabotage::DroppedBatch) && !planned.batch().decisions.is_empty() {
            self.sabotage = None;
            return planned.append(&mut NullJournal).ok();
        }
        let finished = planned.finished().to_vec();
        let released = planned.append(&mut self.journal).ok()?;
        finished.iter().for_each(|job| self.archive.take(job));
        Some(released)
    }

    /// The same batch by an engine that remembers nothing between passes: memos must not change a decision.
    fn shadow(&mut self, tick: Tick, events: &[Event]) -> Option<Batch> {
        if self.faults.pick(SHADOW_ONE_IN) != 0 {
            return None;
        }
        let mut shadow = self.engine.clone();
        shadow.disable_memos();
        let mut step = BatchStep::open(&mut shadow, tick);
        for event in events {
            step.handle_event(self.archive.complete(event.clone(), step.state()));
        }
        Some(step.plan().batch().clone())
    }

    fn tick(&mut self) -> Tick {
        let mut now = self.now;
        if self.faults.happens(now, self.faults.plan.clock_step) {
            self.report.clock_steps += 1;
            now = now - Span(self.faults.pick(STEP));
        }
        Tick { now, resumed: self.resumed, delivered: self.checks.delivered() }
    }

    /// What was not acknowledged to its source comes again. Events of the world are lost.
    fn send_again(&mut self, events: Vec<Event>) {
        for event in events.into_iter().rev() {
            let asked =
                matches!(event, Event::JobSubmitted(_) | Event::JobCancelled { .. } | Event::ServiceDemand { .. });
            if asked || operators::is_said_again(&event) {
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

    /// Nodes that nobody bought, and that the state takes in, are in the world too.
    fn own_nodes(&mut self, events: &[Event]) {
        for event in events {
            let Event::OwnedNodeSeen(seen) = event else { continue };
            let state = self.engine.state();
            if let Some(node) = state.node_of(&seen.name) {
                self.world.own(self.now, &seen.name, node.offering, state);
            }
        }
    }

    /// What an operator confirms, the cluster takes for true where the node does not say otherwise.
    fn confirm_deaths(&mut self, events: &[Event]) {
        for event in events {
            if let Event::DeathConfirmed { job, attempt, workers, .. } = event {
                self.world.confirm_dead(self.now, (*job, *attempt), workers);
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

    fn deliver(&mut self, status: &forebay_kernel::effect::Status) {
        if self.sabotage == Some(Sabotage::SkippedStatus) && status.number == 3 {
            self.sabotage = None;
            return;
        }
        self.report.tally.status(status);
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
                self.world.keep_alive_after_stop(*job, *attempt);
            }
            _ => {}
        }
        self.checks.effect(&effect, self.engine.state());
        self.checks.observer.starts(std::slice::from_ref(&effect), self.engine.state());
        self.effects.send(self.now, effect, &mut self.faults);
    }

    fn live_snapshot(&mut self) -> Vec<u8> {
        if self.sabotage == Some(Sabotage::PhantomNode) {
            let tick = Tick { now: self.now, resumed: false, delivered: 0 };
            let mut step = BatchStep::open(&mut self.engine, tick);
            step.handle_event(Event::OrphanSeen { instance: "i-phantom".into(), offering: OfferingId(0) });
            let _ = step.plan();
        }
        crate::memory::state_bytes(&self.engine)
    }

    /// The process dies and comes back, at once or after a while.
    fn recover(&mut self, live: &[u8]) -> Result<(), SweepFailure> {
        self.report.crashes += 1;
        let recovered = match self.journal.recover() {
            Ok(recovered) => recovered,
            Err(error) => return Err(self.failure(format!("the journal cannot be read: {error}"))),
        };
        let replayed = crate::memory::state_bytes(&recovered.engine);
        if replayed != live {
            let how = difference(live, &replayed);
            return Err(self.failure(format!("the recovered state differs: {how}")));
        }
        self.engine = recovered.engine;
        if self.faults.pick(3) == 0 {
            self.journal.snapshot(replayed);
        }
        if self.faults.pick(2) == 0 {
            self.report.downtimes += 1;
            self.now = self.now + Span(self.faults.pick(DOWN));
        }
        if self.faults.pick(4) == 0 {
            self.lose_world();
        }
        // What happened meanwhile was reported to nobody, or waits in a queue.
        for effect in self.effects.arrived(self.now) {
            self.world.act(self.now, &effect, self.engine.state());
        }
        let events = self.world.take_until(self.now);
        if self.faults.pick(2) == 0 {
            self.events.forget();
        } else {
            for event in events {
                self.events.send(self.now, event, &mut self.faults);
            }
        }
        self.resumed = true;
        self.new_list();
        let statuses = self.engine.state().undelivered().cloned().collect();
        let effects = self.engine.open_effects();
        self.release(Released { effects, statuses });
        self.judge()
    }

    /// A simulated world dies with its process, and is put together again from what the journal knows.
    fn lose_world(&mut self) {
        self.report.worlds_lost += 1;
        for (&job, times) in self.world.completions() {
            *self.completions.entry(job).or_default() += times;
        }
        let billing = self.world.billing(self.now);
        self.report.reclaims += billing.reclaims;
        self.report.unwarned += billing.unwarned;
        self.effects.forget();
        self.events.forget();
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
        SweepFailure { seed: self.seed, crowd: self.crowd, batch: self.report.batches, now: self.now.0, what }
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
        self.checks.end(self.engine.state());
        self.judge()?;
        let state = self.engine.state();
        let mut wrong = Vec::new();
        for (job, end) in self.checks.jobs() {
            let done: u32 = [self.world.completions(), &self.completions].iter().filter_map(|all| all.get(&job)).sum();
            match end {
                Some(StatusKind::Completed) => self.report.completed += 1,
                Some(StatusKind::Failed) => self.report.failed += 1,
                Some(StatusKind::Cancelled) => self.report.cancelled += 1,
                Some(StatusKind::Rejected) => self.report.rejected += 1,
                _ => wrong.push(format!("{job} has no end")),
            }
            self.report.redone += u64::from(done > 1);
            if end == Some(StatusKind::Completed) && done == 0 {
                wrong.push(format!("{job} is completed, its work was never done"));
            }
            if done > 1 && self.events.tally.lost + self.events.tally.late == 0 && self.report.crashes == 0 {
                wrong.push(format!("{job} was done {done} times though no message was lost"));
            }
        }
        if !self.checks.observer.recounted(state) {
            wrong.push("the observer lost count of what jobs hold".to_owned());
        }
        let counters = state.counters();
        let billing = self.world.billing(self.now);
        self.report.preemptions = counters.preemptions;
        self.report.replicas = counters.replicas;
        self.report.hung = self.hung;
        self.report.shrinks = counters.shrinks;
        self.report.reclaims += billing.reclaims;
        self.report.unwarned += billing.unwarned;
        self.report.effects = self.effects.tally;
        self.report.messages = self.events.tally;
        if wrong.is_empty() { Ok(self.report) } else { Err(self.failure(wrong.join("; "))) }
    }
}

/// Where the decisions of two engines part, one of which has its memos switched off. `None`: nowhere.
fn memos_differ(batch: &Batch, without_memos: &Batch) -> Option<String> {
    if batch == without_memos {
        return None;
    }
    let (with, without) = (&batch.decisions, &without_memos.decisions);
    let parts = with.iter().zip(without).position(|(a, b)| a != b).unwrap_or(with.len().min(without.len()));
    let (with, without) = (with.get(parts), without.get(parts));
    Some(format!("memos change decision {parts}: with {with:?}, without {without:?}"))
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
