//! The state machine: the state, and the only ways to change it.
//!
//! ```text
//! for good     apply_tick, apply_event, apply_decision, replay
//! in a trial   checkpoint -> release_places, hold_places, take_quota, ... -> rollback
//!              checkpoint -> apply_decision, ... -> rollback or commit
//! ```
//!
//! It reads as the [`State`] that it holds. A `&mut State` never leaves this crate, so nobody else can write a row.
//!
//! Never: decides, fails, does IO.

use crate::apply;
use crate::decision::Decision;
use crate::effect::{Effect, WorkerPlace};
use crate::event::{Event, EventOutcome, Tick};
use crate::ids::{ClassId, JobId, PoolId, QueueId};
use crate::journal::Batch;
use crate::state::State;
use crate::state::allowances::{Allowance, AllowanceReservation};
use crate::state::jobs::{Kept, Phase};
use crate::state::places::Hold;
use crate::state::reservations::Reservation;
use crate::state::undo::Mark;
use crate::units::{MilliGpu, Rate, Span};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::ops::Deref;

/// The state with the records applied so far.
#[derive(Clone, Debug, Default)]
pub struct StateMachine {
    state: State,
}

impl Deref for StateMachine {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl StateMachine {
    /// A new machine whose state keeps so many jobs that are over, instead of [`crate::state::retire::KEPT_FINISHED`].
    #[must_use]
    pub fn keeping_finished(jobs: u32) -> StateMachine {
        StateMachine { state: State { keeps_finished: Some(jobs), ..State::default() } }
    }

    /// Opens a batch: time moves on, delivered statuses are forgotten. Time never goes back.
    /// `version`: what the records of the batch mean, [`crate::journal::APPLY_VERSION`] for a new one.
    pub fn apply_tick(&mut self, tick: Tick, version: u32) {
        apply::tick(&mut self.state, tick, version);
    }

    /// Takes in what happened outside. An event that does not fit the state is counted and changes nothing else.
    pub fn apply_event(&mut self, event: &Event) -> EventOutcome {
        apply::event(&mut self.state, event)
    }

    /// Takes in what was decided. Returns the effect that the decision releases once its batch is durable.
    pub fn apply_decision(&mut self, decision: &Decision) -> Option<Effect> {
        apply::decision(&mut self.state, decision)
    }

    /// Applies a journaled batch: the only thing that recovery does.
    pub fn replay(&mut self, batch: &Batch) {
        self.apply_tick(batch.tick, batch.version);
        for event in &batch.events {
            let _ = self.apply_event(event);
        }
        for decision in &batch.decisions {
            let _ = self.apply_decision(decision);
        }
    }

    /// A machine that goes on from the bytes of [`State::encode`].
    ///
    /// # Errors
    ///
    /// The bytes are damaged, or another version wrote them.
    pub fn restore(bytes: &[u8]) -> Result<StateMachine, postcard::Error> {
        Ok(StateMachine { state: State::decode(bytes)? })
    }

    /// Takes out the jobs that ended first, beyond those that a state keeps, as the next tick would.
    pub fn retire(&mut self) {
        self.state.retire();
    }

    /// A machine that goes on from a state that was put together again.
    #[must_use]
    pub fn from_state(state: State) -> StateMachine {
        StateMachine { state }
    }

    /// The state, to be put together again.
    pub(crate) fn state_mut(&mut self) -> &mut State {
        &mut self.state
    }

    /// Takes the booked jobs with a node that became ready since they were last taken. Not part of the state's meaning.
    pub fn take_woken(&mut self) -> BTreeSet<JobId> {
        core::mem::take(&mut self.state.woken)
    }
}

// A trial: a stage changes what is held, looks at what would be possible, and takes everything back.
impl StateMachine {
    /// Opens a trial. Trials nest.
    pub fn checkpoint(&mut self) -> Mark {
        self.state.checkpoint()
    }

    /// Ends a trial and takes back everything since its checkpoint, byte for byte.
    pub fn rollback(&mut self, mark: Mark) {
        self.state.rollback(mark);
    }

    /// Ends a trial and keeps everything since its checkpoint: the decisions made in it stay.
    pub fn commit(&mut self, mark: Mark) {
        self.state.commit(mark);
    }

    /// Takes places on nodes for a job, in a trial.
    pub fn hold_places(&mut self, job: JobId, class: ClassId, places: &[WorkerPlace], hold: Hold) {
        debug_assert!(self.state.undo.active(), "rows change outside of a trial by decisions only");
        self.state.hold_places(job, class, places, hold);
    }

    /// Gives places back, in a trial. Nodes that are gone are passed over.
    pub fn release_places(&mut self, job: JobId, class: ClassId, places: &[WorkerPlace], hold: Hold) {
        debug_assert!(self.state.undo.active(), "rows change outside of a trial by decisions only");
        self.state.release_places(job, class, places, hold);
    }

    /// Takes quota of a queue in a pool, in a trial.
    pub fn take_quota(&mut self, queue: QueueId, pool: PoolId, amount: MilliGpu) {
        debug_assert!(self.state.undo.active(), "rows change outside of a trial by decisions only");
        self.state.take_quota(queue, pool, amount);
    }

    /// Gives quota of a queue in a pool back, in a trial.
    pub fn give_quota_back(&mut self, queue: QueueId, pool: PoolId, amount: MilliGpu) {
        debug_assert!(self.state.undo.active(), "rows change outside of a trial by decisions only");
        self.state.give_quota_back(queue, pool, amount);
    }

    /// Counts money for the queue of a job, in a trial: as if it had not been given back for a while to come.
    pub fn charge(&mut self, job: JobId, rate: Rate, still: Span) {
        debug_assert!(self.state.undo.active(), "rows change outside of a trial by decisions only");
        self.state.charge(job, rate, still);
    }

    /// Gives money of the queue of a job back, in a trial, once it has cost that for a while still.
    pub fn discharge(&mut self, job: JobId, rate: Rate, still: Span) {
        debug_assert!(self.state.undo.active(), "rows change outside of a trial by decisions only");
        self.state.discharge(job, rate, still);
    }

    /// Sets or removes the reservation of a pool, in a trial.
    pub fn set_reservation(&mut self, pool: PoolId, reservation: Option<Reservation>) {
        debug_assert!(self.state.undo.active(), "rows change outside of a trial by decisions only");
        self.state.set_reservation(pool, reservation);
    }

    /// Keeps an allowance for a job, in a trial.
    pub fn set_allowance(&mut self, of: Allowance, reservation: AllowanceReservation) {
        debug_assert!(self.state.undo.active(), "rows change outside of a trial by decisions only");
        self.state.set_allowance(of, Some(reservation));
    }

    /// Keeps no allowance for a job, in a trial in which it holds what it asks.
    pub fn end_allowances(&mut self, job: JobId) {
        debug_assert!(self.state.undo.active(), "rows change outside of a trial by decisions only");
        self.state.end_allowances(job);
    }

    /// Says what is kept of quota for a job, in a trial in which it holds it.
    pub fn set_kept(&mut self, job: JobId, kept: Option<Kept>) {
        debug_assert!(self.state.undo.active(), "rows change outside of a trial by decisions only");
        self.state.edit_job(job, |row| row.kept = kept);
    }

    /// Says that a job is booked, or waits, in a trial in which it looks for other places.
    pub fn set_phase(&mut self, job: JobId, phase: Phase) {
        debug_assert!(self.state.undo.active(), "rows change outside of a trial by decisions only");
        self.state.edit_job(job, |row| row.phase = phase);
    }

    /// Forgets the nodes that are kept for a job, in a trial in which it holds places.
    pub fn forget_reserved(&mut self, job: JobId) {
        debug_assert!(self.state.undo.active(), "rows change outside of a trial by decisions only");
        self.state.free_reserved(job);
    }

    /// The jobs that are being stopped or of which workers leave: a copy, to be changed while it is walked.
    #[must_use]
    pub fn ending_jobs(&self) -> Vec<JobId> {
        self.state.index.ending.iter().copied().collect()
    }
}
