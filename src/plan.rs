//! The order of the stages, nothing else, and what a pass reports.
//!
//! Never: a rule of its own. Each stage is a file in `stages/`.

use crate::engine::Engine;
use crate::ids::ClassId;
use crate::reason::Reason;
use crate::stages::{
    admit, backfill, consolidate, deadline, drain, preempt, provision, scale, settle, start, start_target,
};
use crate::why;
use alloc::vec::Vec;

/// What one pass did and what it waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "a report says why jobs wait"]
pub struct PlanReport {
    /// settle, start_target: rows that were settled.
    pub settled: u32,
    /// admit: jobs that got quota and places.
    pub booked: u32,
    /// admit, start: gangs whose start was sent out.
    pub started: u32,
    /// admit, provision: claims decided on.
    pub bought: u32,
    /// preempt, deadline, consolidate, backfill: runs that are to stop.
    pub stopped: u32,
    /// consolidate: nodes that take no more work.
    pub drained: u32,
    /// drain: nodes given back.
    pub terminated: u32,
    /// Classes that wait, and why their heads do.
    pub waiting: Vec<(ClassId, Reason)>,
}

/// Rounds of a pass at most. Two or three are the rule; the bound is for unforeseen cases.
const MOST_ROUNDS: u32 = 16;

/// One pass.
pub(crate) fn pass(engine: &mut Engine) -> PlanReport {
    let mut report = PlanReport::default();
    for _ in 0..MOST_ROUNDS {
        let before = engine.state.capacity_epoch;
        round(engine, &mut report);
        if engine.state.capacity_epoch == before {
            break;
        }
    }
    report.waiting = why::waiting(engine);
    report
}

/// All stages once. What one job gave up may be what one before it waits for, so rounds are made until none gives anything up.
fn round(engine: &mut Engine, report: &mut PlanReport) {
    settle::run(engine, report);
    scale::run(engine, report);
    deadline::run(engine, report);
    start::run(engine, report);
    start_target::defer(engine);
    let before = engine.state.capacity_epoch;
    let unschedulable = admit::run(engine, report);
    // Nothing is taken from anyone while there is still something to be given out.
    if engine.state.capacity_epoch == before {
        preempt::run(engine, &unschedulable, report);
    }
    provision::run(engine, report);
    consolidate::run(engine, report);
    drain::run(engine, report);
    start_target::reevaluate(engine, report);
    // Last, for it has to make reservations anew that the others give up.
    backfill::run(engine, report);
}
