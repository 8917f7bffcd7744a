//! Another policy while the loop turns: the same batch as at a start, between two others.
//!
//! ```text
//! DriverHandle::change_policy -> all batches so far durable -> Configured, planned -> batch and text in one transaction -> release -> answer
//! ```
//!
//! Never: stops what runs because a policy changed; lets a batch see half of a policy, or the journal have a policy without its text.

use super::error::DriverError;
use super::holds::Stopwatch;
use super::live_loop::LiveLoop;
use super::start::{PolicySource, is_in_force};
use crate::journal::Journal;
use crate::step::{SideRecords, configure};
use forebay_kernel::event::Tick;
use forebay_kernel::ids::Seq;
use forebay_kernel::units::Timestamp;
use std::sync::Arc;
use tokio::sync::oneshot;

/// What became of a policy that a running driver was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyOutcome {
    /// It is in force, and durable.
    InForce {
        /// Position of the batch that put it in force.
        seq: Seq,
        /// The engine's time at that batch.
        at: Timestamp,
    },
    /// It was in force already: the same text, and it means the same. Nothing was done.
    Same,
}

/// A policy on its way to the loop, and who waits for it.
pub(super) struct PolicyChange {
    pub source: PolicySource,
    pub answer: oneshot::Sender<PolicyOutcome>,
}

impl<J: Journal> LiveLoop<J> {
    /// Puts another policy in force.
    ///
    /// # Errors
    /// The journal or a log cannot be written.
    pub fn change_policy(&mut self, change: PolicyChange) -> Result<(), DriverError> {
        let PolicyChange { source, answer } = change;
        if is_in_force(&self.journal, &self.engine, &source) {
            // Whoever asked may have gone; that is their business.
            let _ = answer.send(PolicyOutcome::Same);
            return Ok(());
        }
        self.save()?;
        let now = self.clock.now(self.engine.state().now(), None);
        let resumed = std::mem::take(&mut self.resumed);
        let tick = Tick { now, resumed, delivered: self.statuses.delivered() };
        let PolicySource { text, compiled } = source;
        let watch = Stopwatch::start();
        let planned = configure(&mut self.engine, tick, compiled);
        self.planned(&watch);
        self.journal.note_finished(planned.finished());
        self.input.tenants.finished(planned.finished());
        self.context.report = planned.report().clone();
        let seq = planned.batch().first_seq;
        let requests = self.executor.freeze(planned.pending_effects(), self.engine.state());
        let beside = SideRecords { policy: Some(text.clone()), ..self.input.side_records(requests) };
        self.commit.push(planned, beside);
        let at = self.engine.state().now();
        self.active_at = at;
        self.save_batches()?;
        self.context.policy_source = Some(Arc::from(text));
        self.release_effects();
        let _ = answer.send(PolicyOutcome::InForce { seq, at });
        self.saved()
    }
}
