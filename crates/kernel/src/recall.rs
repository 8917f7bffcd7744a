//! What is remembered and does not follow from a history that can be told again: for a state that is put together from a document.
//!
//! ```text
//! document -> events and decisions in the order of its times (replay) -> what these cannot say (recall) -> the state as it was
//! ```
//!
//! Lookups, totals, quota and money follow each change, as they do in `apply`.
//!
//! Never: used on an engine that runs. Nothing here is journaled.

use crate::ids::{ClassId, JobId, NodeId, OfferingId, PoolId, PurchaseId, QuotaId};
use crate::machine::StateMachine;
use crate::reason::Reason;
use crate::state::allowances::{Allowance, AllowanceReservation};
use crate::state::brakes::{Brake, BrakeOrder};
use crate::state::fair::DecayedUsage;
use crate::state::jobs::Job;
use crate::state::mix::WorkKind;
use crate::state::nodes::{Node, OfferingRow, Purchase};
use crate::state::observed_stats::ObservedStats;
use crate::state::pending_cancels::{PendingCancel, PendingCancelKey};
use crate::state::reservations::Reservation;
use crate::state::services::ServiceState;
use crate::state::streaks::Streak;
use crate::state::{Shape, Urgency};
use crate::units::{GpuTime, MilliGpu, Rate, Spend, Timestamp};
use alloc::vec::Vec;

/// What a deadline and a start target have made of a job: parts of its class.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Standing {
    /// How its deadline bears on what it may run on.
    pub urgency: Urgency,
    /// It has not started by its queue's target, and may be bought on-demand for that.
    pub late: bool,
}

impl StateMachine {
    /// Sets what is known of a job. Where it is, and what it costs, is left as it was: that follows from its places.
    pub fn recall_job(&mut self, id: JobId, edit: impl FnOnce(&mut Job)) {
        if self.state_mut().jobs.get(id).is_some() {
            self.state_mut().edit_job(id, edit);
        }
    }

    /// Sets a brake, with since when it is on.
    pub fn recall_brake(&mut self, brake: Brake, order: BrakeOrder) {
        self.state_mut().recall_brake(brake, order);
    }

    /// Sets how much quota a job holds, where that is more than its places come to: those of a run that has lost a node.
    pub fn recall_share(&mut self, id: JobId, share: MilliGpu) {
        let state = self.state_mut();
        let Some((queue, pool, had)) = state.jobs.get(id).and_then(|row| Some((row.queue, row.pool?, row.share)))
        else {
            return;
        };
        if share > had {
            state.take_quota(queue, pool, share - had);
        } else {
            state.give_quota_back(queue, pool, had - share);
        }
        state.edit_job(id, |row| row.share = share);
    }

    /// Moves a job to the class of its shape with this standing.
    pub fn recall_standing(&mut self, id: JobId, standing: Standing) {
        let state = self.state_mut();
        let Some(was) = state.jobs.get(id).map(|row| row.class) else { return };
        let Standing { urgency, late } = standing;
        let shape = Shape { urgency, late, ..state.classes[was].shape.clone() };
        let class = state.class_id(shape);
        state.edit_job(id, |row| row.class = class);
    }

    /// Sets what a change of policy has put in the way of a class.
    pub fn recall_class(&mut self, id: ClassId, impossible: Option<Reason>) {
        if let Some(row) = self.state_mut().classes.get_mut(id) {
            row.impossible = impossible;
        }
    }

    /// Sets what is known of a claim. What is free on it follows from the jobs there.
    pub fn recall_node(&mut self, id: NodeId, edit: impl FnOnce(&mut Node)) {
        self.state_mut().edit_node(id, edit);
    }

    /// Sets what a claim costs, and with it what the work on it costs.
    pub fn recall_price(&mut self, id: NodeId, price: Rate) {
        self.state_mut().reprice(id, price);
    }

    /// Where an instance stands.
    pub fn recall_rack(&mut self, id: NodeId, rack: &str) {
        let state = self.state_mut();
        let rack = state.rack_id(rack);
        state.edit_node(id, |row| row.rack = Some(rack));
    }

    /// Sets what is known of a purchase without an outcome.
    pub fn recall_purchase(&mut self, id: PurchaseId, edit: impl FnOnce(&mut Purchase)) {
        self.state_mut().edit_purchase(id, edit);
    }

    /// Sets what is known of an offering's stock and price.
    pub fn recall_offering(&mut self, id: OfferingId, edit: impl FnOnce(&mut OfferingRow)) {
        if self.state_mut().offerings.get(id.index()).is_some() {
            self.state_mut().edit_offering(id, edit);
        }
    }

    /// Sets what is known of a service.
    pub fn recall_service(&mut self, id: JobId, edit: impl FnOnce(&mut ServiceState)) {
        if let Some(row) = self.state_mut().services.get_mut(&id) {
            edit(row);
        }
    }

    /// Sets the reservation of a pool.
    pub fn recall_reservation(&mut self, pool: PoolId, reservation: Reservation) {
        self.state_mut().set_reservation(pool, Some(reservation));
    }

    /// Keeps what a queue or cohort has of a quota or a budget for a job. Nothing happens where there is no such queue.
    pub fn recall_allowance(&mut self, name: &str, of: impl FnOnce(QuotaId) -> Allowance, kept: AllowanceReservation) {
        let state = self.state_mut();
        if let Some(quota) = state.quota_named(name) {
            state.set_allowance(of(quota), Some(kept));
        }
    }

    /// Sets what was spent of the budget of a queue or cohort in this period. Nothing happens where it has none.
    pub fn recall_spent(&mut self, name: &str, spent: Spend) {
        let state = self.state_mut();
        if let Some(quota) = state.quota_named(name) {
            state.set_spent(quota, spent);
        }
    }

    /// Sets the past use of a queue or cohort, decayed up to now. What it holds now is counted from its jobs.
    pub fn recall_use(&mut self, name: &str, time: GpuTime) {
        let state = self.state_mut();
        let Some(quota) = state.quota_named(name) else { return };
        let was = DecayedUsage { time, counted_to: state.now, ..state.fair.counted(quota) };
        state.put_past_back(quota, was);
    }

    /// Sets what was seen of durations, boots, reclaims and needs.
    pub fn recall_observed(&mut self, observed: ObservedStats) {
        self.state_mut().observed = observed;
    }

    /// Sets what has been asked for of late.
    pub fn recall_mix(&mut self, kinds: Vec<(WorkKind, u32)>) {
        self.state_mut().mix.recall(kinds);
    }

    /// Sets when running work is looked at again, to move it. The policy in force has been judged.
    pub fn recall_review(&mut self, consolidate_at: Timestamp) {
        let state = self.state_mut();
        state.consolidate_at = consolidate_at;
        state.unjudged = false;
    }

    /// The policy in force is still to be judged.
    pub fn recall_unjudged(&mut self) {
        self.state_mut().unjudged = true;
    }

    /// Sets what a job has come to since its last verified progress.
    pub fn recall_streak(&mut self, id: JobId, streak: Streak) {
        self.state_mut().streaks.insert(id, streak);
    }

    /// Sets when the controller came back after down time.
    pub fn recall_resumed(&mut self, at: Timestamp) {
        self.state_mut().resumed_at = at;
    }

    /// Keeps a cancel for a submission that may still come.
    pub fn recall_cancel(&mut self, key: PendingCancelKey, row: PendingCancel) {
        let state = self.state_mut();
        state.index.pending_cancels.insert((row.seen, key.clone()));
        state.pending_cancels.insert(key, row);
    }

    /// Knows a queue that the policy does not declare, by its path, so that it counts among those in use in its turn.
    pub fn recall_queue(&mut self, path: &str) {
        let _ = self.state_mut().queue_id(path);
    }

    /// Forgets messages that came to be while a history was told again: nobody waits for them.
    pub fn recall_silence(&mut self) {
        self.state_mut().stream.clear();
    }
}
