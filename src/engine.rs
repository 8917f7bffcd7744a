//! The engine: the loop's one object. Events in, a plan pass, decisions and effects out.
//!
//! ```text
//! open(tick) -> handle_event(..)* -> plan() -> close() -> Unsaved { batch }
//!     journal the batch, then  unsaved.saved() -> Released { effects, statuses }
//! ```
//!
//! Call `open` again at [`Engine::poll_timeout`] at the latest, with or without events.
//! Never: IO, a clock, a thread. What may leave only after it is durable is kept apart by type.

use crate::audit;
use crate::decision::Decision;
use crate::effect::{Effect, Status};
use crate::event::{Event, EventOutcome, Tick};
use crate::floors;
use crate::ids::{JobId, PoolId, Seq};
use crate::journal::{APPLY_VERSION, Batch};
use crate::machine::StateMachine;
use crate::memo::{HolderNoted, LaggingNoted, Memo, ParkedMark};
use crate::plan::{self, PlanReport};
use crate::reason::Reason;
use crate::rules::feasibility::{self, Impossible};
use crate::rules::placement::LiveMix;
use crate::rules::{forecast, growth, idle, replicas, start_targets, timing};
use crate::state::State;
use crate::state::index::Index;
use crate::state::undo::Mark;
use crate::units::Timestamp;
use crate::why;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// The engine.
#[derive(Clone, Debug, Default)]
pub struct Engine {
    pub(crate) state: StateMachine,
    pub(crate) memo: Memo,
    /// The work of late as the pass found it.
    pub(crate) live: Option<LiveMix>,
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

/// A place in the open batch to come back to.
#[derive(Debug)]
#[must_use = "a try is taken back or kept"]
pub(crate) struct Try {
    mark: Mark,
    decisions: usize,
    effects: usize,
    /// Who was parked later may rest on what the try did.
    parked: ParkedMark,
    rebooked: ParkedMark,
    borrows: BTreeMap<PoolId, HolderNoted>,
    lagging: Option<LaggingNoted>,
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

    /// The effects that will be released, for a driver that stores something with the batch. They must not be carried out yet.
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

    /// An engine that knows nothing and whose state keeps so many jobs that are over: none makes every question about them one for the
    /// archive. What replays its journal must be made with the same number.
    #[must_use]
    pub fn keeping_finished(jobs: u32) -> Engine {
        Engine { state: StateMachine::keeping_finished(jobs), ..Engine::default() }
    }

    /// The state that this engine plans on.
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
        let epoch = self.state.capacity_epoch;
        self.state.apply_tick(tick, APPLY_VERSION);
        let batch = Batch { version: APPLY_VERSION, first_seq, tick, events: Vec::new(), decisions: Vec::new() };
        self.open = Some(Open { batch, effects: Vec::new(), first_status });
        // A brake has ended, or an owned node has left.
        self.dirty |= tick.resumed || self.state.capacity_epoch != epoch;
    }

    /// Takes an event into the open batch and returns its outcome. Without an open batch it is ignored.
    pub fn handle_event(&mut self, event: Event) -> EventOutcome {
        let Some(open) = &mut self.open else { return EventOutcome::Ignored };
        let outcome = self.state.apply_event(&event);
        open.batch.events.push(event);
        self.dirty = true;
        outcome
    }

    /// One plan pass over everything that changed. Without anything due it costs next to nothing.
    pub fn plan(&mut self) -> PlanReport {
        if self.open.is_none() || !(self.dirty || self.due()) {
            return PlanReport::default();
        }
        self.dirty = false;
        self.live = LiveMix::of(&self.state);
        plan::pass(self)
    }

    /// Closes the batch.
    pub fn close(&mut self) -> Unsaved {
        let Some(open) = self.open.take() else {
            let batch = Batch {
                version: APPLY_VERSION,
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
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let after = Timestamp(self.state.now.0.saturating_add(1));
        let row =
            self.state.index.timers.range((after, crate::decision::EffectOf::Job(JobId(0)))..).next().map(|t| t.0);
        row.into_iter()
            .chain(timing::wakes_at(&self.state))
            .chain(timing::reservation_due(&self.state))
            .chain(self.state.next_brake_end())
            .chain(timing::seen_at(&self.state))
            .chain(self.state.index.reassess.range((after, JobId(0))..).next().map(|h| h.0))
            .chain(timing::consolidation_due(&self.state))
            .chain(self.state.scales_at())
            .chain(self.memo.due(&self.state))
            .chain(self.state.policy().and_then(|policy| floors::next_change(policy, self.state.now)))
            .chain(idle::next(&self.state))
            .chain(growth::next(&self.state))
            .min()
            .filter(|at| *at != Timestamp::NEVER)
    }

    /// Applies a journaled batch: the only thing that recovery does.
    pub fn replay(&mut self, batch: &Batch) {
        self.state.replay(batch);
        self.dirty = true;
    }

    /// The bytes of the state: a snapshot, and what digests are made of.
    ///
    /// # Errors
    ///
    /// A row cannot be encoded, which is a fault of this program.
    pub fn snapshot(&self) -> Result<Vec<u8>, postcard::Error> {
        self.state.encode()
    }

    /// An engine from a snapshot.
    ///
    /// # Errors
    ///
    /// The bytes are damaged, or another version wrote them.
    pub fn restore(bytes: &[u8]) -> Result<Engine, postcard::Error> {
        Ok(Engine::recovered(StateMachine::restore(bytes)?))
    }

    /// An engine that goes on where a state machine is.
    #[must_use]
    pub fn recovered(state: StateMachine) -> Engine {
        Engine { state, dirty: true, ..Engine::default() }
    }

    /// The state machine that this engine planned on. An open batch is lost.
    #[must_use]
    pub fn into_machine(self) -> StateMachine {
        self.state
    }

    /// Effects whose outcome is not journaled: to be released again after a recovery.
    #[must_use]
    pub fn open_effects(&self) -> Vec<Effect> {
        self.state.open_effects()
    }

    /// Why a job is where it is. `None` for a job that does not exist, runs undisturbed or is completed.
    #[must_use]
    pub fn why(&self, job: JobId) -> Option<Reason> {
        why::why(self, job)
    }

    /// When a job that holds places is as likely to have given them back as not, by what it states and what work of its queue and size was seen to last.
    /// Always later than now. `None`: it holds none.
    #[must_use]
    pub fn usual_end(&self, job: JobId) -> Option<Timestamp> {
        let holds = self.state.jobs.get(job).is_some_and(|row| !row.places.is_empty());
        holds.then(|| forecast::usual_end(&self.state, job))
    }

    /// Why no job of a job's class can ever run under the policy in force, whatever is free. `None`: one can.
    #[must_use]
    pub fn why_impossible(&self, job: JobId) -> Option<Reason> {
        feasibility::class_impossible(&self.state, self.state.jobs.get(job)?.class).map(Impossible::reason)
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
    pub fn disable_memos(&mut self) {
        self.memo = Memo { off: true, ..Memo::default() };
    }

    /// A copy of the lookups made from nothing, for the audit.
    #[must_use]
    pub fn rebuilt_index(&self) -> Index {
        Index::rebuilt(&self.state)
    }

    /// Makes a decision: applies it, records it, and keeps its effect back until the batch is durable.
    pub(crate) fn decide(&mut self, decision: Decision) {
        let effect = self.state.apply_decision(&decision);
        self.memo.note(&decision, &self.state);
        let Some(open) = &mut self.open else { return };
        open.batch.decisions.push(decision);
        open.effects.extend(effect);
    }

    /// Opens a try in which decisions are made.
    pub(crate) fn open_try(&mut self) -> Try {
        let (decisions, effects) = self.open.as_ref().map_or((0, 0), |o| (o.batch.decisions.len(), o.effects.len()));
        let (parked, rebooked) = (self.memo.parked.open_try(), self.memo.rebooked.open_try());
        let (borrows, lagging) = (self.memo.borrows.clone(), self.memo.lagging.clone());
        Try { mark: self.state.checkpoint(), decisions, effects, parked, rebooked, borrows, lagging }
    }

    /// Takes back all decisions of a try, and what was remembered on their account.
    pub(crate) fn take_back(&mut self, tried: Try) {
        self.state.rollback(tried.mark);
        if let Some(open) = &mut self.open {
            open.batch.decisions.truncate(tried.decisions);
            open.effects.truncate(tried.effects);
        }
        self.memo.borrows = tried.borrows;
        self.memo.lagging = tried.lagging;
        self.memo.parked.take_back(tried.parked);
        self.memo.rebooked.take_back(tried.rebooked);
    }

    /// Keeps the decisions of a try.
    pub(crate) fn keep(&mut self, tried: Try) {
        self.state.commit(tried.mark);
        self.memo.parked.keep(tried.parked);
        self.memo.rebooked.keep(tried.rebooked);
    }

    /// While jobs wait, or wait for nodes that come too late, every tick makes a pass; classes that cannot be served rest until something could
    /// help, so that it costs little.
    fn due(&self) -> bool {
        let index = &self.state.index;
        !index.queued.is_empty()
            || timing::floor_short(&self.state)
            || start_targets::any_comes_late(&self.state)
            || replicas::due(&self.state)
            || timing::consolidation_due(&self.state).is_some_and(|at| at <= self.state.now)
            || index.reassess.first().is_some_and(|h| h.0 <= self.state.now)
            || index.timers.first().is_some_and(|t| t.0 <= self.state.now)
            || idle::is_due(&self.state)
            || growth::candidates(&self.state).iter().any(|(from, _)| *from <= self.state.now)
    }
}
