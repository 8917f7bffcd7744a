//! The order of the stages, nothing else, and what a pass reports.
//!
//! Never: a rule of its own. Each stage is a file in `stage/`.

use crate::engine::Engine;
use crate::ids::{ClassId, JobId};
use crate::reason::Reason;
use alloc::vec::Vec;

/// What one pass did and what it waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "a report says why jobs wait"]
pub struct PlanReport {
    /// settle: rows looked at.
    pub settled: u32,
    /// admit, place: jobs that got quota and places.
    pub booked: u32,
    /// place: gangs whose start was sent out.
    pub started: u32,
    /// provision: claims decided on.
    pub bought: u32,
    /// preempt: runs that are to stop.
    pub stopped: u32,
    /// consolidate: nodes that take no more work.
    pub drained: u32,
    /// drain: nodes given back.
    pub terminated: u32,
    /// Classes that wait, and why, in the order in which they were looked at.
    pub waiting: Vec<(ClassId, Reason)>,
}

/// One pass.
pub(crate) fn pass(engine: &mut Engine) -> PlanReport {
    let _ = engine;
    PlanReport::default()
}

/// Why a job is where it is.
pub(crate) fn why(engine: &Engine, job: JobId) -> Option<Reason> {
    let _ = (engine, job);
    None
}
