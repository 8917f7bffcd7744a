//! The first tick after down time: clocks that wait for a report go on from where they stood.
//!
//! ```text
//! what has happened meanwhile is not known   ->  nothing that was due is judged before the world can have been listed
//! time in which nobody watched               ->  is not counted against boots, starts, promises and repeats
//! ```
//!
//! Never: makes a clock shorter. What is real whoever watches (a stock-out, a budget, a pause after a failure) goes on.

use crate::decision::EffectOf;
use crate::event::LaunchError;
use crate::ids::{JobId, NodeId, OfferingId};
use crate::state::State;
use crate::state::jobs::{Job, OpenEffect, Phase, Wait};
use crate::state::nodes::{Node, NodePhase};
use crate::units::{Span, Timestamp};
use alloc::vec::Vec;

/// How far clocks are set forward.
#[derive(Clone, Copy)]
struct Resumed {
    /// Nobody watched for so long.
    gap: Span,
    /// Nothing is judged before then.
    seen: Timestamp,
    /// An effect is not repeated before then: the driver has just released it again.
    repeat: Timestamp,
}

/// Sets clocks forward by the time since `before`.
pub(super) fn run(state: &mut State, before: Timestamp) {
    state.resumed_at = state.now;
    let repeat = state.now + state.lifecycle().launch_retry;
    let resumed = Resumed { gap: state.now.since(before), seen: state.unseen_until(), repeat };
    let rows: Vec<EffectOf> = state.index.timers.iter().map(|(_, of)| *of).collect();
    for row in rows {
        match row {
            EffectOf::Job(job) => resumed.job(state, job),
            EffectOf::Node(node) => resumed.node(state, node),
            EffectOf::Purchase(purchase) => state.edit_purchase(purchase, |row| resumed.effect(&mut row.effect)),
        }
    }
    resumed.known(&mut state.consolidate_at);
    let waits = |at: &usize| {
        let row = &state.offerings[*at];
        row.blocked_by == Some(LaunchError::Boot) && row.window == 0 && row.blocked_until > before
    };
    let probed: Vec<usize> = (0..state.offerings.len()).filter(waits).collect();
    for at in probed {
        state.edit_offering(OfferingId(at as u32), |row| resumed.later(&mut row.blocked_until));
    }
}

impl Resumed {
    /// What was to be judged at a time is judged as much later.
    fn later(self, at: &mut Timestamp) {
        if *at != Timestamp::NEVER {
            *at = (*at + self.gap).max(self.seen);
        }
    }

    /// What is judged at a time that is real is judged once it can be known.
    fn known(self, at: &mut Timestamp) {
        *at = (*at).max(self.seen);
    }

    fn effect(self, effect: &mut OpenEffect) {
        effect.next_try = effect.next_try.max(self.repeat);
    }

    fn job(self, state: &mut State, id: JobId) {
        state.edit_job(id, |job: &mut Job| {
            job.effect.iter_mut().for_each(|effect| self.effect(effect));
            match job.phase {
                Phase::Starting => self.later(&mut job.must_end_by),
                // It has run on.
                Phase::Running => self.known(&mut job.must_end_by),
                Phase::Queued => {
                    job.reserved_until.iter_mut().for_each(|until| self.later(until));
                    if let Some(Wait::Promised { until, .. }) = job.start_target.as_mut().map(|target| &mut target.wait)
                    {
                        self.known(until);
                    }
                }
                _ => {}
            }
        });
    }

    fn node(self, state: &mut State, id: NodeId) {
        state.edit_node(id, |node: &mut Node| {
            node.effect.iter_mut().for_each(|effect| self.effect(effect));
            node.reserved.iter_mut().for_each(|(_, until)| self.later(until));
            match &mut node.phase {
                NodePhase::Booting => self.later(&mut node.due),
                NodePhase::Draining { check_at, .. } => self.known(check_at),
                _ => {}
            }
        });
    }
}
