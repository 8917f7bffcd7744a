//! The engine: the loop's one object. Events in, a plan pass, decisions and effects out.
//!
//! ```text
//! open(tick) -> handle_event(..)* -> plan() -> close() -> Unsaved { batch }
//!     journal the batch, then  unsaved.saved() -> Released { effects, statuses }
//! ```
//!
//! Call `open` again at [`Engine::poll_timeout`] at the latest, with or without events.
//! Never: IO, a clock, a thread. What may leave only after it is durable is kept apart by type.

use crate::apply;
use crate::audit;
use crate::decision::Decision;
use crate::effect::{Action, Effect, Status};
use crate::event::{Event, Tick};
use crate::floors;
use crate::ids::{ClassId, JobId, Seq};
use crate::journal::Batch;
use crate::plan::{self, PlanReport};
use crate::reason::Reason;
use crate::stage::{idle, provision, serve};
use crate::state::State;
use crate::state::index::Index;
use crate::state::jobs::Phase;
use crate::state::nodes::NodePhase;
use crate::units::{Millis, Span};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// The engine.
#[derive(Clone, Debug, Default)]
pub struct Engine {
    pub(crate) state: State,
    pub(crate) memo: Memo,
    open: Option<Open>,
    dirty: bool,
}

/// The batch that is being put together.
#[derive(Clone, Debug)]
struct Open {
    batch: Batch,
    effects: Vec<Effect>,
    first_status: u64,
}

/// What a stage remembers between passes to spare itself work. Transparent: without it the decisions are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memo {
    pub parked: BTreeMap<ClassId, Parked>,
    /// Classes of booked jobs for which no ready places were found.
    pub rebooked: BTreeMap<ClassId, Parked>,
    /// What had been freed when victims were last looked for: who rests since then needs none to be looked for again.
    pub preempted: Option<u64>,
    /// Switched off by the audit, to show that it changes nothing.
    pub off: bool,
}

/// A class that was told no.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parked {
    /// The head that was told.
    pub head: JobId,
    /// `State::freed` at that time: nothing that could help was given back while it is the same.
    pub freed: u64,
    /// At that time: nothing that could help has come of age since, unless [`State::woke_at`] is later.
    pub at: Millis,
    /// What it was told.
    pub reason: Reason,
    /// It is asked again then: the time that its reason names, or when a budget lets it have something dearer.
    pub until: Option<Millis>,
}

/// A closed batch whose effects are held back until it is durable.
#[derive(Debug)]
#[must_use = "journal the batch, then call saved() for its effects"]
pub struct Unsaved {
    batch: Arc<Batch>,
    released: Released,
}

/// What may leave now.
#[derive(Debug, Default)]
pub struct Released {
    /// Durable effects, in the order of their decisions.
    pub effects: Vec<Effect>,
    /// Status messages, in the order of their numbers.
    pub statuses: Vec<Status>,
}

impl Unsaved {
    /// What has to be journaled.
    #[must_use]
    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    /// The same, to be kept until it is durable.
    #[must_use]
    pub fn share(&self) -> Arc<Batch> {
        Arc::clone(&self.batch)
    }

    /// What is going to leave, for whoever has something to write down with the batch. Not to be carried out yet.
    pub fn pending(&self) -> impl Iterator<Item = &Effect> + '_ {
        self.released.effects.iter()
    }

    /// To be called when the batch is durable, and only then.
    #[must_use]
    pub fn saved(self) -> Released {
        self.released
    }
}

impl Engine {
    /// An engine that knows nothing. Configure it with [`Event::Configured`].
    #[must_use]
    pub fn new() -> Engine {
        Engine::default()
    }

    /// What it knows.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Opens a batch. Time never goes back: an earlier `now` is taken as the last one.
    ///
    /// A batch that was left open is closed first and lost; drivers do not do that.
    pub fn open(&mut self, tick: Tick) {
        let tick = Tick { now: tick.now.max(self.state.now), ..tick };
        let first_seq = Seq(self.state.counters.next_seq);
        let first_status = self.state.counters.statuses + 1;
        apply::tick(&mut self.state, tick);
        let batch = Batch { first_seq, tick, events: Vec::new(), decisions: Vec::new() };
        self.open = Some(Open { batch, effects: Vec::new(), first_status });
        self.dirty |= tick.resumed;
    }

    /// Takes an event into the open batch. Without an open batch it does nothing.
    pub fn handle_event(&mut self, event: Event) {
        let Some(open) = &mut self.open else { return };
        apply::event(&mut self.state, &event);
        open.batch.events.push(event);
        self.dirty = true;
    }

    /// One plan pass over everything that changed. Without anything due it costs next to nothing.
    pub fn plan(&mut self) -> PlanReport {
        if self.open.is_none() || !(self.dirty || self.due()) {
            return PlanReport::default();
        }
        self.dirty = false;
        plan::pass(self)
    }

    /// Closes the batch.
    pub fn close(&mut self) -> Unsaved {
        let Some(open) = self.open.take() else {
            let batch = Batch {
                first_seq: Seq(self.state.counters.next_seq),
                tick: Tick { now: self.state.now, resumed: false, delivered: 0 },
                events: Vec::new(),
                decisions: Vec::new(),
            };
            return Unsaved { batch: Arc::new(batch), released: Released::default() };
        };
        let first = open.first_status;
        let statuses = self.state.stream.iter().filter(|s| s.number >= first).cloned().collect();
        Unsaved { batch: Arc::new(open.batch), released: Released { effects: open.effects, statuses } }
    }

    /// When `open` must be called at the latest. `None`: nothing is due until something enters.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Millis> {
        let after = Millis(self.state.now.0.saturating_add(1));
        let row = self.state.ix.timers.range((after, crate::decision::EffectOf::Job(JobId(0)))..).next().map(|t| t.0);
        row.into_iter()
            .chain(self.state.wakes_at())
            .chain(self.state.ahead_due())
            .chain(self.state.ix.hasten.range((after, JobId(0))..).next().map(|h| h.0))
            .chain(self.state.consolidation_due())
            .chain(self.state.scales_at())
            .chain(self.memo.due(&self.state))
            .chain(self.state.policy().and_then(|policy| floors::next_change(policy, self.state.now)))
            .chain(idle::next(&self.state))
            .min()
            .filter(|at| *at != Millis::NEVER)
    }

    /// Applies a journaled batch: the only thing that recovery does.
    pub fn replay(&mut self, batch: &Batch) {
        apply::tick(&mut self.state, batch.tick);
        for event in &batch.events {
            apply::event(&mut self.state, event);
        }
        for decision in &batch.decisions {
            let _ = apply::decision(&mut self.state, decision);
        }
        self.dirty = true;
    }

    /// The bytes of the state: a snapshot, and what digests are made of.
    #[must_use]
    pub fn snapshot(&self) -> Vec<u8> {
        self.state.encode()
    }

    /// An engine from a snapshot.
    pub fn restore(bytes: &[u8]) -> Result<Engine, postcard::Error> {
        Ok(Engine { state: State::decode(bytes)?, memo: Memo::default(), open: None, dirty: true })
    }

    /// Effects whose outcome is not journaled: to be released again after a recovery.
    #[must_use]
    pub fn open_effects(&self) -> Vec<Effect> {
        let state = &self.state;
        let mut effects: Vec<Effect> = state.purchases.values().map(|p| launch(state, p.id)).collect();
        let terminating = state.nodes.values().filter(|n| n.phase == NodePhase::Terminating);
        effects.extend(terminating.filter_map(|n| terminate(state, n.id)));
        effects.extend(state.ix.open_jobs.iter().filter_map(|&job| start_or_stop(state, job)));
        effects.sort_by_key(|e| e.id);
        effects
    }

    /// Why a job is where it is. `None` for a job that does not exist, runs undisturbed or is completed.
    #[must_use]
    pub fn why(&self, job: JobId) -> Option<Reason> {
        plan::why(self, job)
    }

    /// Checks everything that must always hold. An empty list is what it should be.
    #[must_use]
    pub fn audit(&self) -> Vec<String> {
        audit::full(&self.state)
    }

    /// Checks the rows that a batch of this engine touched: cheap enough for every pass.
    #[must_use]
    pub fn audit_rows(&self, batch: &Batch) -> Vec<String> {
        audit::rows(&self.state, batch)
    }

    /// Switches memos off, so that an audit can show that they change nothing.
    pub fn forget_memos(&mut self, off: bool) {
        self.memo = Memo { off, ..Memo::default() };
    }

    /// A copy of the lookups made from nothing, for the audit.
    #[must_use]
    pub fn rebuilt_index(&self) -> Index {
        Index::rebuilt(&self.state)
    }

    /// Makes a decision: applies it, records it, and keeps its effect back until the batch is durable.
    pub(crate) fn decide(&mut self, decision: Decision) {
        let effect = apply::decision(&mut self.state, &decision);
        let Some(open) = &mut self.open else { return };
        open.batch.decisions.push(decision);
        open.effects.extend(effect);
    }

    /// While jobs wait a pass is made with every tick: classes that were told no rest until something could help.
    fn due(&self) -> bool {
        let ix = &self.state.ix;
        !ix.queued.is_empty()
            || self.state.floor_short()
            || serve::due(&self.state)
            || self.state.consolidation_due().is_some_and(|at| at <= self.state.now)
            || ix.hasten.first().is_some_and(|h| h.0 <= self.state.now)
            || ix.timers.first().is_some_and(|t| t.0 <= self.state.now)
            || idle::leaving(&self.state).iter().any(|(at, _)| *at <= self.state.now)
    }
}

impl State {
    /// When running work is looked at again, to move it. `None`: there is none, or it is never moved.
    fn consolidation_due(&self) -> Option<Millis> {
        let rules = self.policy.as_deref()?.consolidation;
        (rules.worth_it > 0 && !self.ix.running.is_empty()).then_some(self.consolidate_at)
    }

    /// Whether a pool has fewer ready or coming nodes to spare than its floor asks for.
    fn floor_short(&self) -> bool {
        let pools = self.policy.as_deref().map_or(&[][..], |p| &p.pools);
        let short = |(at, pool): (usize, &crate::policy::Pool)| {
            let floor = pool.kept(self.now);
            floor > 0 && provision::spare(self, crate::ids::PoolId(at as u16)) < floor
        };
        pools.iter().enumerate().any(short)
    }

    /// When something comes of age next that could help a job that waits: stock is tried again, a run may be stopped.
    fn wakes_at(&self) -> Option<Millis> {
        if self.ix.queued.is_empty() && !self.floor_short() {
            return None;
        }
        let after = Millis(self.now.0.saturating_add(1));
        let guard = self.ix.guards.range((after, JobId(0))..).next().map(|g| g.0);
        let stock = self.offerings.iter().map(|o| o.blocked_until).filter(|at| *at > self.now).min();
        guard.into_iter().chain(stock).min()
    }

    /// When something of that kind last came of age.
    pub(crate) fn woke_at(&self) -> Millis {
        let now = (self.now, JobId(u64::MAX));
        let guard = self.ix.guards.range(..=now).next_back().map(|g| g.0);
        let stock = self.offerings.iter().map(|o| o.blocked_until).filter(|at| *at <= self.now).max();
        guard.into_iter().chain(stock).max().unwrap_or_default()
    }
}

/// The launch of a purchase, as its record froze it.
pub(crate) fn launch(state: &State, id: crate::ids::PurchaseId) -> Effect {
    let p = &state.purchases[&id];
    let (count, at_least) = (p.nodes.len() as u32, p.at_least);
    let action = Action::Launch { purchase: id, offering: p.offering, count, at_least, terms: p.terms };
    Effect { id: p.effect.id, action }
}

/// The termination of a claim, if one is out.
pub(crate) fn terminate(state: &State, id: crate::ids::NodeId) -> Option<Effect> {
    let node = state.nodes.get(&id)?;
    let (effect, instance) = (node.effect?, node.instance.clone()?);
    Some(Effect { id: effect.id, action: Action::Terminate { node: id, instance } })
}

/// The start, stop or shrinking of a job, if one is out.
pub(crate) fn start_or_stop(state: &State, id: JobId) -> Option<Effect> {
    let job = state.jobs.get(id.ix())?;
    let effect = job.effect?;
    let action = match job.phase {
        Phase::Starting => {
            Action::Start { job: id, attempt: job.attempt, workers: job.places.clone(), resume_from: job.resume_from }
        }
        Phase::Stopping { deadline, checkpoint, .. } => {
            Action::Stop { job: id, attempt: job.attempt, checkpoint, deadline }
        }
        Phase::Running => {
            let leaving = job.leaving.clone()?;
            let (leave, deadline) = (leaving.workers, leaving.deadline);
            Action::Shrink { job: id, attempt: job.attempt, leave, deadline }
        }
        _ => return None,
    };
    Some(Effect { id: effect.id, action })
}

/// The pause before an effect without an outcome is released again: 30 s, doubling, at most 5 min.
pub(crate) fn repeat_pause(first: Span, tries: u32) -> Span {
    first.doubled(tries.saturating_sub(1), Span::mins(5))
}
