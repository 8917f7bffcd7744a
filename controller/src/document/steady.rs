//! Passes with the outcomes of their own decisions, in a world where all goes well, until nothing changes.
//!
//! ```text
//! pass -> effects -> outcomes: launches and starts succeed at once, stops save and stop, nodes are gone when they are given back,
//!    ^                         nodes are ready after their boot, and are taken back when the cloud has said so
//!    '------- at the time of the next outcome, or of what the engine waits for by the clock
//! ```
//!
//! At rest nothing is under way, and for [`QUIET`] the clock alone changes nothing. Work never completes: nobody knows when it would.
//! Never: a fault, a stock-out, a submission.

use super::state::Loaded;
use forebay_driver::journal::NullJournal;
use forebay_driver::step::BatchStep;
use forebay_kernel::decision::Decision;
use forebay_kernel::effect::{Action, Effect};
use forebay_kernel::event::{Event, GoneWhy, Tick};
use forebay_kernel::ids::NodeId;
use forebay_kernel::state::State;
use forebay_kernel::state::jobs::Job;
use forebay_kernel::state::nodes::NodePhase;
use forebay_kernel::units::{Span, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// For so long the clock alone must change nothing: longer than a protection, a pause or a review of running work usually is.
pub const QUIET: Span = Span::mins(60);

/// Passes at most. Each start, stop and purchase takes a few, and many go together.
pub const MOST_PASSES: usize = 10_000;

/// A pass that decided something.
#[derive(Clone, Debug)]
pub struct Pass {
    /// When.
    pub at: Timestamp,
    /// What.
    pub decisions: Vec<Decision>,
}

/// How it ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rest {
    /// Nothing changes any more.
    Steady,
    /// It still changed after [`MOST_PASSES`].
    Restless,
}

/// Outcomes that are due, in order.
#[derive(Default)]
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

/// What a run has done by now, without the time that its start took.
fn done(row: &Job, restart: Span, now: Timestamp) -> Span {
    row.running_since.map_or(row.progress, |since| (row.resume_from + (now.since(since) - restart)).max(row.progress))
}

/// Whether a decision is a change to people: that running work was reviewed, or what a policy makes impossible judged, is none.
fn changes(decision: &Decision) -> bool {
    match decision {
        Decision::Consolidated { .. } | Decision::Reassess { .. } => false,
        Decision::Judge { impossible } => !impossible.is_empty(),
        _ => true,
    }
}

/// Plays passes until rest. `seen` is told of each as soon as it is made.
pub fn play(loaded: &mut Loaded, mut seen: impl FnMut(&Loaded, Pass)) -> Rest {
    let mut outcomes = Outcomes::default();
    for effect in loaded.engine.open_effects() {
        outcomes.of_effect(loaded.engine.state(), &effect);
    }
    let mut now = loaded.engine.state().now();
    let mut changed = now;
    // The first pass looks at the state as it is; the outcomes of what was decided before come with the second.
    let mut events = Vec::new();
    for _ in 0..MOST_PASSES {
        let mut step = BatchStep::open(&mut loaded.engine, Tick { now, resumed: false, delivered: u64::MAX });
        for event in events {
            step.handle_event(event);
        }
        let planned = step.plan();
        let decisions = planned.batch().decisions.clone();
        let Ok(released) = planned.append(&mut NullJournal);
        let state = loaded.engine.state();
        for effect in &released.effects {
            outcomes.of_effect(state, effect);
        }
        outcomes.of_nodes(state);
        if decisions.iter().any(changes) {
            changed = now;
            seen(loaded, Pass { at: now, decisions });
        }
        let timer = loaded.engine.poll_timeout().filter(|at| at.since(changed) <= QUIET);
        let Some(next) = outcomes.next().into_iter().chain(timer).min() else { return Rest::Steady };
        now = now.max(next);
        events = outcomes.take_until(now);
        changed = if events.is_empty() { changed } else { now };
    }
    Rest::Restless
}
