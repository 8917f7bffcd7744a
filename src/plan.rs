//! The order of the stages, nothing else, and what a pass reports.
//!
//! Never: a rule of its own. Each stage is a file in `stages/`.

use crate::engine::Engine;
use crate::ids::ClassId;
use crate::reason::Reason;
use crate::rules::settings;
use crate::stages::{
    admit, backfill, consolidate, deadline, drain, grow, preempt, provision, scale, settle, start, start_target,
};
use crate::why;
use alloc::collections::BTreeSet;
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
    /// admit, provision, grow: claims decided on.
    pub bought: u32,
    /// preempt, deadline, grow, consolidate, backfill: runs that are to stop.
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
        let before = (engine.state.capacity_epoch, engine.state.counters.next_seq);
        let left = !engine.state.allowances().is_empty();
        let rejected = round(engine, &mut report);
        // Who has to leave what it needs to another takes nothing, and may have to when others got it.
        let left = left || !engine.state.allowances().is_empty();
        let after = (engine.state.capacity_epoch, engine.state.counters.next_seq);
        // For whom places are kept may have come to borrow when others got something: who owns goes before that one then. Tiers may have come to be below
        // their `minShare`, or not any more: then others go before it as well.
        let shares = settings::has_min_shares(&engine.state);
        let mut pools = engine.state.reservations().keys();
        let outranked = pools.any(|pool| shares || engine.state.has_quotas(*pool));
        // What was given out may break what was promised to a job behind.
        let promised = engine.state.index.keeps_anything() || left || outranked;
        if after.0 == before.0 && !(promised && after.1 != before.1) && !rejected {
            break;
        }
    }
    report.waiting = why::waiting(engine);
    report
}

/// What is free is given out until a head lacks something. What it may take, or what is to be kept for it, is found before anything that it
/// needs is given to others.
fn serve(engine: &mut Engine, report: &mut PlanReport) {
    let mut serving = admit::Serving::new(engine);
    let came = serving.run(engine, admit::Until::Lack, report);
    let before = engine.state.counters.next_seq;
    let broken = preempt::run(engine, report);
    backfill::run(engine, &broken, report);
    let decided = engine.state.counters.next_seq != before;
    if decided {
        serving = admit::Serving::new(engine);
    }
    if decided || came == admit::Came::ToLack {
        let _ = serving.run(engine, admit::Until::End, report);
    }
}

/// All stages once. What one job gave up may be what one before it waits for, so rounds are made until none gives anything up. Returns whether
/// jobs were rejected in the end.
fn round(engine: &mut Engine, report: &mut PlanReport) -> bool {
    settle::run(engine, report);
    scale::run(engine, report);
    deadline::run(engine, report);
    start::run(engine, report);
    start_target::defer(engine);
    serve(engine, report);
    provision::run(engine, report);
    grow::run(engine, report);
    consolidate::run(engine, report);
    drain::run(engine, report);
    let rejected = start_target::reevaluate(engine, report);
    // Again, for it has to make reservations anew that the others give up.
    backfill::run(engine, &BTreeSet::new(), report);
    rejected
}
