//! A world where all goes well: passes of an engine with the outcomes of their own decisions.
//!
//! ```text
//! pass -> effects -> outcomes: launches and starts succeed at once, stops save and stop, nodes are gone when they are given back,
//!    ^                         nodes are ready after their boot, and are taken back when the cloud has said so
//!    '------- at the time of the next outcome, or of what the engine waits for by the clock
//! ```
//!
//! Never: a fault, a stock-out, a submission.

use forebay_driver::journal::NullJournal;
use forebay_driver::step::BatchStep;
use forebay_engine::engine::Engine;
use forebay_kernel::decision::Decision;
use forebay_kernel::effect::{Action, Effect};
use forebay_kernel::event::{Event, GoneWhy, Tick};
use forebay_kernel::ids::{JobId, NodeId};
use forebay_kernel::state::State;
use forebay_kernel::state::jobs::{Job, Phase};
use forebay_kernel::state::nodes::NodePhase;
use forebay_kernel::units::{Span, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// What becomes of runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Runs {
    /// They never end by themselves: nobody knows when they would.
    GoOn,
    /// They complete when they are as likely over as not.
    EndAsUsual,
}

/// One pass and what it decided.
#[derive(Clone, Debug)]
pub struct Pass {
    /// When.
    pub at: Timestamp,
    /// What.
    pub decisions: Vec<Decision>,
}

/// The outcomes that an engine's decisions have in this world.
#[derive(Debug)]
pub struct IdealWorld {
    outcomes: Outcomes,
    runs: Runs,
    now: Timestamp,
    /// When something last came of a decision, or was one.
    changed: Timestamp,
    events: Vec<Event>,
}

impl IdealWorld {
    /// The world around an engine, with what it has decided before under way.
    #[must_use]
    pub fn around(engine: &Engine, runs: Runs) -> IdealWorld {
        let now = engine.state().now();
        let mut outcomes = Outcomes::default();
        for effect in engine.open_effects() {
            outcomes.of_effect(engine.state(), &effect);
        }
        if runs == Runs::EndAsUsual {
            let alive = engine.state().open_job_ids();
            alive.for_each(|id| outcomes.of_run(engine, id));
        }
        // The first pass looks at the state as it is; the outcomes of what was decided before come with the second.
        IdealWorld { outcomes, runs, now, changed: now, events: Vec::new() }
    }

    /// One pass.
    pub fn pass(&mut self, engine: &mut Engine) -> Pass {
        let started: Vec<JobId> = self.events.iter().filter_map(started).collect();
        let mut step = BatchStep::open(engine, Tick { now: self.now, resumed: false, delivered: u64::MAX });
        for event in self.events.drain(..) {
            step.handle_event(event);
        }
        let planned = step.plan();
        let decisions = planned.batch().decisions.clone();
        let Ok(released) = planned.append(&mut NullJournal);
        for effect in &released.effects {
            self.outcomes.of_effect(engine.state(), effect);
        }
        self.outcomes.of_nodes(engine.state());
        if self.runs == Runs::EndAsUsual {
            started.into_iter().for_each(|id| self.outcomes.of_run(engine, id));
        }
        if decisions.iter().any(changes) {
            self.changed = self.now;
        }
        Pass { at: self.now, decisions }
    }

    /// On to the next pass. `quiet`: for so long the clock alone may change nothing. Whether there is one.
    pub fn advance(&mut self, engine: &Engine, quiet: Span) -> bool {
        let timer = engine.poll_timeout().filter(|at| at.since(self.changed) <= quiet);
        let Some(next) = self.outcomes.next().into_iter().chain(timer).min() else { return false };
        self.now = self.now.max(next);
        self.events = self.outcomes.take_until(self.now);
        if !self.events.is_empty() {
            self.changed = self.now;
        }
        true
    }
}

/// Outcomes that are due, in order.
#[derive(Debug, Default)]
struct Outcomes {
    due: BTreeMap<(Timestamp, u64), Event>,
    made: u64,
    /// Nodes whose readiness or end is on its way.
    expected: BTreeSet<(NodeId, bool)>,
}

impl Outcomes {
    fn add(&mut self, at: Timestamp, event: Event) {
        self.made += 1;
        self.due.insert((at, self.made), event);
    }

    fn next(&self) -> Option<Timestamp> {
        self.due.keys().next().map(|key| key.0)
    }

    fn take_until(&mut self, now: Timestamp) -> Vec<Event> {
        let later = self.due.split_off(&(Timestamp(now.0.saturating_add(1)), 0));
        std::mem::replace(&mut self.due, later).into_values().collect()
    }

    /// What an effect brings about.
    fn of_effect(&mut self, state: &State, effect: &Effect) {
        let now = state.now();
        match &effect.action {
            Action::Launch { purchase, count, .. } => {
                let instances = (0..*count).map(|nth| format!("plan:{purchase}:{nth}")).collect();
                self.add(now, Event::LaunchOutcome { purchase: *purchase, instances, error: None });
            }
            Action::Terminate { instance, .. } => {
                self.add(now, Event::NodeGone { instance: instance.clone(), why: GoneWhy::Terminated });
            }
            Action::Start { job, attempt, .. } => {
                self.add(now, Event::RunStarted { job: *job, attempt: *attempt });
            }
            Action::Stop { job, attempt, checkpoint, .. } => {
                let progress = state.job(*job).filter(|_| *checkpoint).map(|(row, spec)| done(row, spec.restart, now));
                self.add(now, Event::RunStopped { job: *job, attempt: *attempt, progress });
            }
            Action::Shrink { job, attempt, leave, .. } => {
                let mut left = state.job(*job).map(|(row, _)| row.left.clone()).unwrap_or_default();
                left.extend(leave);
                left.sort_unstable();
                left.dedup();
                self.add(now, Event::RunShrunk { job: *job, attempt: *attempt, left, node_fault: None });
            }
        }
    }

    /// When a run completes. A replica of a service never does.
    fn of_run(&mut self, engine: &Engine, id: JobId) {
        let row = engine.state().job(id).map(|(row, _)| row).filter(|row| row.service.is_none());
        let Some(row) = row.filter(|row| row.phase == Phase::Running) else { return };
        if let Some(at) = engine.usual_end(id) {
            self.add(at, Event::RunCompleted { job: id, attempt: row.attempt, worker: None });
        }
    }

    /// What comes of nodes by themselves.
    fn of_nodes(&mut self, state: &State) {
        let now = state.now();
        for node in state.nodes() {
            let Some(instance) = node.instance.clone() else { continue };
            if node.phase == NodePhase::Booting && self.expected.insert((node.id, true)) {
                let ready = (node.decided_at + state.usual_boot(node.offering)).max(now);
                self.add(ready, Event::NodeReady { instance: instance.clone() });
            }
            if let Some(at) = node.reclaim_at.filter(|_| node.phase != NodePhase::Terminating)
                && self.expected.insert((node.id, false))
            {
                self.add(at.max(now), Event::NodeGone { instance, why: GoneWhy::Reclaimed });
            }
        }
    }
}

fn started(event: &Event) -> Option<JobId> {
    match event {
        Event::RunStarted { job, .. } => Some(*job),
        _ => None,
    }
}

/// What a run has done by now, without the time that its start took.
fn done(row: &Job, restart: Span, now: Timestamp) -> Span {
    row.running_since.map_or(row.progress, |since| (row.resume_from + (now.since(since) - restart)).max(row.progress))
}

/// Whether a decision is a change to people: that running work was reviewed, or what a policy makes impossible judged, is none.
#[must_use]
pub fn changes(decision: &Decision) -> bool {
    match decision {
        Decision::Consolidated { .. } | Decision::Reassess { .. } => false,
        Decision::Judge { impossible } => !impossible.is_empty(),
        _ => true,
    }
}
