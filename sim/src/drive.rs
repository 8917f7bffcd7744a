//! Simulates a trace: the batch step under a virtual clock, with a simulated cloud and cluster on the other side.
//!
//! ```text
//! now = earliest of (next submission, world, engine's time-out, next comparison)
//! everything of that instant -> one batch: open, handle_event*, plan, close -> journal -> effects -> world
//! ```
//!
//! Never: real time, threads, files. The same policy, trace, market and seed give the same scorecard but for `engine_s`.

mod interface;

use std::collections::{BTreeMap, BTreeSet};

use forebay_driver::step::{self, BatchStep};
use forebay_engine::engine::{Engine, Released};
use forebay_kernel::event::{Event, Tick};
use forebay_kernel::policy::Policy;
use forebay_kernel::reconcile;
use forebay_kernel::state::State;
use forebay_kernel::state::owned::OwnedNode;
use forebay_kernel::units::{Span, Timestamp};

use crate::convert::{self, Converter};
use crate::memory::MemoryJournal;
use crate::score::figures::from_nanos;
use crate::score::observer::Observer;
use crate::score::timeline::{JobHistory, Timeline};
use crate::score::{Sources, disagreements};
use crate::trace::Trace;
use crate::world::{World, WorldOptions};
pub use interface::{AuditSchedule, SimError, SimOptions, SimOutcome, SimProgress};

/// The world is compared with the state this often while anything is open.
const COMPARE_EVERY: Span = Span::mins(5);
/// Batches between two snapshots of the memory journal.
const SNAPSHOT_EVERY: usize = 4096;
/// Full audits examine at most so many jobs for each batch, on average: they take a part of the time, not most of it.
const AUDITED_JOBS_A_BATCH: u64 = 8;
/// Batches without a job's end, after which the run counts as stuck: more than any trace of a million jobs needs between two.
const MOST_PASSES_WITHOUT_AN_END: u64 = 2_000_000;
/// Comparisons with nothing between them but price changes, while no run is under way: a week of them. Jobs that are open then wait for ever.
const MOST_IDLE_COMPARISONS: u64 = 2016;
/// Virtual time after the last submission or end of a job: the longest public run lasts 60 days.
const LONGEST_WITHOUT_AN_END: Span = Span::mins(60 * 24 * 400);

/// Simulates a trace under a policy.
///
/// # Errors
/// A run that is stuck, a recovery that differs, an audit that finds something: see [`SimError`].
pub fn simulate<'a>(policy: Policy, trace: &'a Trace, options: SimOptions<'a>) -> Result<SimOutcome, SimError> {
    let mut drive = Drive::new(policy, trace, options)?;
    drive.see_owned()?;
    while !drive.over() && !drive.idle() {
        drive.step()?;
    }
    drive.finish()
}

struct Drive<'a> {
    trace: &'a Trace,
    options: SimOptions<'a>,
    converter: Converter,
    engine: Engine,
    world: World,
    journal: Option<MemoryJournal>,
    timeline: Timeline,
    observer: Observer,
    next_row: usize,
    /// When jobs are taken back that have not started, by their rows.
    patience: BTreeSet<(Timestamp, usize)>,
    compare_at: Timestamp,
    violations: Vec<String>,
    /// Nodes that are there from the beginning, until they have been seen.
    owned: Vec<OwnedNode>,
    extra_assumptions: Vec<String>,
    tally: Tally,
}

/// Counts on the way.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    batches: u64,
    events: u64,
    decisions: u64,
    crashes: u64,
    decisions_at_crash: u64,
    engine_nanos: u64,
    ended: u64,
    batches_at_end: u64,
    last_end: Timestamp,
    idle_comparisons: u64,
    batches_at_audit: u64,
}

impl<'a> Drive<'a> {
    fn new(policy: Policy, trace: &'a Trace, options: SimOptions<'a>) -> Result<Drive<'a>, SimError> {
        let owns = policy.pools.iter().any(|pool| pool.owned.is_some());
        let mut extra_assumptions = trace.notes.clone();
        let (policy, stock, owned) = match options.nodes {
            Some(nodes) if owns => {
                let what = "owned nodes are there from the beginning to the end, and nobody else uses them";
                extra_assumptions.push(format!("{} {what}", nodes.len()));
                let owned = convert::owned_fleet(&policy, nodes)?;
                (policy, Vec::new(), owned)
            }
            Some(nodes) => {
                let what = "nodes are the fleet, free of charge; ceilings on nodes and GPUs are lifted";
                extra_assumptions.push(format!("{} {what}", nodes.len()));
                let (policy, stock) = convert::fixed_fleet(policy, nodes);
                (policy, stock, Vec::new())
            }
            None => (policy, Vec::new(), Vec::new()),
        };
        let boots = options.boots.clone();
        let measured: usize = boots.values().map(Vec::len).sum();
        if measured > 0 {
            extra_assumptions.push(format!("{measured} measured boots of {} offerings are drawn from", boots.len()));
        }
        let world_options = WorldOptions { stock, boots, ..WorldOptions::new(options.seed, options.market.clone()) };
        let mut engine = Engine::new();
        let mut journal = options.crash_every.map(|_| MemoryJournal::new());
        let converter = Converter::new(&policy, options.assumptions);
        let mut policy = policy;
        policy.admit_recorded_tiers();
        // What node time cost by kind is in the scorecard.
        policy.billing.get_or_insert_default();
        let first = step::configure(&mut engine, Tick { now: Timestamp(0), resumed: false, delivered: 0 }, policy);
        // The world is made from the state that this batch leaves. What the batch asks of the world (nodes for a floor) is therefore lost,
        // and asked again when the engine finds it overdue.
        let _ = first.append(&mut journal).map_err(|source| SimError::Journal { batch: 1, source })?;
        let world = World::new(world_options, engine.state());
        Ok(Drive {
            trace,
            options,
            converter,
            engine,
            world,
            journal,
            timeline: Timeline::default(),
            observer: Observer::default(),
            next_row: 0,
            patience: BTreeSet::new(),
            compare_at: Timestamp(0) + COMPARE_EVERY,
            violations: Vec::new(),
            owned,
            extra_assumptions,
            tally: Tally { batches: 1, events: 1, ..Tally::default() },
        })
    }

    /// Owned nodes are seen before anything is submitted.
    fn see_owned(&mut self) -> Result<(), SimError> {
        let now = Timestamp(0);
        let seen: Vec<Event> = self.owned.drain(..).map(|node| Event::OwnedNodeSeen(Box::new(node))).collect();
        if seen.is_empty() {
            return Ok(());
        }
        self.batch(now, seen)?;
        let state = self.engine.state();
        for node in state.nodes().filter(|node| node.owned.is_some()) {
            if let Some(name) = &node.instance {
                self.world.own(now, name, node.offering, state);
            }
        }
        Ok(())
    }

    /// Whether everything was submitted, everything is over and no node is left but those that are kept ready.
    fn over(&self) -> bool {
        let state = self.engine.state();
        self.next_row == self.trace.jobs.len() && state.open_jobs() == 0 && state.holds_only_floors()
    }

    /// Whether nothing moves any more: jobs wait for what the policy never gives them.
    fn idle(&self) -> bool {
        let submitted = self.next_row == self.trace.jobs.len();
        let waits = !self.patience.is_empty();
        self.tally.idle_comparisons > MOST_IDLE_COMPARISONS && submitted && !waits && self.world.runs_working() == 0
    }

    /// Whether there are claims or purchases.
    fn holds(&self) -> bool {
        let state = self.engine.state();
        state.bought_nodes().next().is_some() || state.purchases().next().is_some()
    }

    /// One instant.
    fn step(&mut self) -> Result<(), SimError> {
        let submission = self.trace.jobs.get(self.next_row).map(|j| Timestamp(j.submit_ms));
        let open = self.engine.state().open_jobs() > 0 || self.holds();
        let comparison = open.then_some(self.compare_at);
        let timeout = self.engine.poll_timeout();
        let patience = self.patience.first().map(|(at, _)| *at).filter(|_| open);
        let times = [submission, patience, self.world.next_event(), timeout, comparison];
        let Some(now) = times.into_iter().flatten().min() else {
            return Err(self.stuck("nothing is due"));
        };
        let mut events = self.submissions(now);
        events.extend(self.withdrawals(now));
        events.extend(self.world.take_until(now));
        if !events.is_empty() || timeout.is_some_and(|t| t <= now) {
            self.batch(now, events)?;
        }
        if self.compare_at <= now {
            // Comparisons for which nothing was open are left out.
            let missed = now.since(self.compare_at).0 / COMPARE_EVERY.0 + 1;
            self.compare_at = self.compare_at + Span(missed * COMPARE_EVERY.0);
            if open {
                self.observer.tick(now, self.engine.state());
                self.compare(now)?;
            }
        }
        self.guard(now)
    }

    fn submissions(&mut self, now: Timestamp) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(row) = self.trace.jobs.get(self.next_row).filter(|r| r.submit_ms <= now.0) {
            let (spec, truth) = self.converter.job(row);
            self.world.learn(&spec.tenant, &spec.subject, truth);
            self.timeline.submitted(row);
            if let Some(wait) = row.max_wait_ms {
                self.patience.insert((now + Span(wait), self.next_row));
            }
            events.push(Event::JobSubmitted(Box::new(spec)));
            self.next_row += 1;
        }
        events
    }

    /// Jobs that have not started in the time that they wait are taken back.
    fn withdrawals(&mut self, now: Timestamp) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some((at, row)) = self.patience.first().copied().filter(|(at, _)| *at <= now) {
            self.patience.remove(&(at, row));
            let waits = |h: &&JobHistory| h.started.is_none() && h.ended.is_none();
            if self.timeline.histories().get(row).filter(waits).is_some() {
                let (tenant, subject) = (convert::TENANT.to_owned(), self.trace.jobs[row].id.clone());
                events.push(Event::JobCancelled { tenant, subject, by: None, sent: None });
            }
        }
        events
    }

    /// Everything of one instant goes in as one batch; what it frees goes to the world.
    fn batch(&mut self, now: Timestamp, events: Vec<Event>) -> Result<(), SimError> {
        let entered = (self.options.clock)();
        let tick = Tick { now, resumed: false, delivered: self.timeline.delivered() };
        let mut step = BatchStep::open(&mut self.engine, tick);
        events.into_iter().for_each(|event| _ = step.handle_event(event));
        let planned = step.plan();
        self.tally.engine_nanos += (self.options.clock)().saturating_sub(entered);
        self.tally.batches += 1;
        self.tally.events += planned.batch().events.len() as u64;
        self.tally.decisions += planned.batch().decisions.len() as u64;
        let moves = |e: &Event| !matches!(e, Event::PriceChanged { .. });
        if !planned.batch().decisions.is_empty() || planned.batch().events.iter().any(moves) {
            self.tally.idle_comparisons = 0;
        }
        self.observer.batch(planned.batch(), self.engine.state());
        self.observer.charged(planned.charges());
        let found = self.engine.audit_rows(planned.batch());
        stop_at(found, self.tally.batches, now)?;
        let released = planned.append(&mut self.journal);
        let released = released.map_err(|source| SimError::Journal { batch: self.tally.batches, source })?;
        self.observer.starts(&released.effects, self.engine.state());
        let released = self.maybe_crash(now, released)?;
        for status in &released.statuses {
            self.timeline.take(status);
        }
        for effect in &released.effects {
            self.world.act(now, effect, self.engine.state());
        }
        if let Some(watch) = &mut self.options.watch {
            watch(&self.engine);
        }
        self.audit(now)?;
        self.report(now);
        Ok(())
    }

    /// Drops the engine and recovers it, when its time has come: every second time before its effects have left.
    fn maybe_crash(&mut self, now: Timestamp, mut released: Released) -> Result<Released, SimError> {
        let (Some(every), Some(journal)) = (self.options.crash_every, &mut self.journal) else {
            return Ok(released);
        };
        if self.tally.decisions - self.tally.decisions_at_crash >= every.max(1) {
            let batch = self.tally.batches;
            let live = crate::memory::state_bytes(&self.engine);
            let recovered = journal.recover().map_err(|source| SimError::Journal { batch, source })?;
            let replayed = crate::memory::state_bytes(&recovered.engine);
            if replayed != live {
                let what = difference(&live, &replayed);
                return Err(SimError::Diverged { batch, now: now.0, what });
            }
            self.engine = recovered.engine;
            self.tally.crashes += 1;
            self.tally.decisions_at_crash = self.tally.decisions;
            if self.tally.crashes.is_multiple_of(2) {
                // They left before the crash; those without an outcome leave again.
                for effect in &released.effects {
                    self.world.act(now, effect, self.engine.state());
                }
            }
            released.effects = self.engine.open_effects();
            released.statuses = self.engine.state().undelivered().cloned().collect();
            stop_at(self.engine.audit(), batch, now)?;
        }
        let Some(journal) = &mut self.journal else { return Ok(released) };
        if journal.tail() >= SNAPSHOT_EVERY {
            journal.snapshot(crate::memory::state_bytes(&self.engine));
        }
        Ok(released)
    }

    /// Compares the world with the state. Without faults there is nothing to find.
    fn compare(&mut self, now: Timestamp) -> Result<(), SimError> {
        self.tally.idle_comparisons += 1;
        let list = self.world.list(now);
        let missing = reconcile::differences(self.engine.state(), &list);
        if missing.is_empty() {
            return Ok(());
        }
        self.violations.push(format!("at {}: the listing has what no event has reported: {missing:?}", now.0));
        self.batch(now, missing)
    }

    /// The full audit examines every job: the more there are, the longer it is until the next one.
    fn audit(&mut self, now: Timestamp) -> Result<(), SimError> {
        let AuditSchedule::Every(n) = self.options.audit else { return Ok(()) };
        let since = self.tally.batches - self.tally.batches_at_audit;
        if since < n.max(1) || since < self.next_row as u64 / AUDITED_JOBS_A_BATCH {
            return Ok(());
        }
        self.tally.batches_at_audit = self.tally.batches;
        stop_at(self.engine.audit(), self.tally.batches, now)
    }

    fn report(&mut self, now: Timestamp) {
        if !self.tally.batches.is_multiple_of(1024) {
            return;
        }
        let progress = SimProgress {
            now,
            jobs: self.trace.jobs.len() as u64,
            submitted: self.next_row as u64,
            ended: self.engine.state().counters().outcomes.iter().sum(),
            running: self.world.runs_alive() as u64,
            nodes: by_capacity(self.engine.state()),
            spent: self.world.billing(now).all().cost.micro_dollars(),
        };
        if let Some(report) = &mut self.options.progress {
            report(&progress);
        }
    }

    /// Ends a run that would never end.
    fn guard(&mut self, now: Timestamp) -> Result<(), SimError> {
        let ended = self.engine.state().counters().outcomes.iter().sum();
        let submitting = self.next_row < self.trace.jobs.len();
        if ended != self.tally.ended || submitting {
            self.tally.ended = ended;
            self.tally.last_end = now;
            self.tally.batches_at_end = self.tally.batches;
        }
        if self.tally.batches - self.tally.batches_at_end > MOST_PASSES_WITHOUT_AN_END {
            return Err(self.stuck("too many batches without the end of a job"));
        }
        if now.since(self.tally.last_end) > LONGEST_WITHOUT_AN_END {
            return Err(self.stuck("too long without the end of a job"));
        }
        Ok(())
    }

    fn stuck(&self, what: &'static str) -> SimError {
        let state = self.engine.state();
        let mut reasons: BTreeMap<String, (u64, String)> = BTreeMap::new();
        for id in state.open_job_ids() {
            let why = self.engine.why(id);
            let code = why.map_or("none", |r| r.code()).to_owned();
            let phase = state.job(id).map(|(job, _)| format!("{id}: {:?}", job.phase));
            let first = || (0, phase.unwrap_or_default());
            reasons.entry(code).or_insert_with(first).0 += 1;
        }
        let reasons: Vec<String> =
            reasons.into_iter().map(|(code, (count, first))| format!("{count} {code} ({first})")).collect();
        SimError::Stuck {
            now: state.now().0,
            what,
            open: state.open_jobs(),
            nodes: state.bought_nodes().count(),
            purchases: state.purchases().count(),
            reasons: reasons.join(", "),
        }
    }

    fn finish(mut self) -> Result<SimOutcome, SimError> {
        let state = self.engine.state();
        let now = state.now();
        stop_at(self.engine.audit(), self.tally.batches, now)?;
        let sources = Sources {
            trace: &self.trace.jobs,
            state,
            billing: self.world.billing(now),
            timeline: &self.timeline,
            observer: &self.observer,
            instances_at_end: self.world.instances() as u64,
        };
        let mut scorecard = sources.scorecard();
        let mut assumptions = self.converter.assumptions();
        assumptions.append(&mut self.extra_assumptions);
        scorecard.trace.clone_from(&self.trace.name);
        scorecard.market = self.options.market.describe();
        scorecard.seed = self.options.seed;
        scorecard.assumptions = assumptions;
        scorecard.events = self.tally.events;
        scorecard.decisions = self.tally.decisions;
        scorecard.passes = self.tally.batches;
        scorecard.engine_s = from_nanos(self.tally.engine_nanos);
        let mut violations = std::mem::take(&mut self.violations);
        if state.open_jobs() > 0 {
            violations.push(self.stuck("nothing has moved for a week and nothing runs").to_string());
        }
        violations.extend(self.observer.messages.iter().cloned());
        if !self.observer.recounted(state) {
            violations.push("the observer lost count of what jobs hold".to_owned());
        }
        violations.extend(self.timeline.violations().iter().cloned());
        violations.extend(self.world.violations().iter().cloned());
        violations.extend(disagreements(&state.ledger_now(), &sources.billing));
        Ok(SimOutcome { scorecard, violations, crashes: self.tally.crashes })
    }
}

/// Claims by capacity type: reserved, spot, on-demand.
fn by_capacity(state: &State) -> [u64; 3] {
    let mut nodes = [0; 3];
    for node in state.bought_nodes() {
        nodes[state.capacity_of(node) as usize] += 1;
    }
    nodes
}

/// What an audit found ends the simulation.
fn stop_at(findings: Vec<String>, batch: u64, now: Timestamp) -> Result<(), SimError> {
    if findings.is_empty() {
        return Ok(());
    }
    Err(SimError::Audit { batch, now: now.0, findings: findings.join("; ") })
}

/// Where two encoded states part.
pub(crate) fn difference(live: &[u8], replayed: &[u8]) -> String {
    let at = live.iter().zip(replayed).position(|(a, b)| a != b);
    let at = at.unwrap_or(live.len().min(replayed.len()));
    format!("{} bytes live, {} replayed, the first other one at {at}", live.len(), replayed.len())
}
