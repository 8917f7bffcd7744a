//! preempt: runs are stopped, or lose workers, for a head that can have neither places nor nodes. They go on from their last
//! checkpoint.
//!
//! ```text
//! quota is missing    reclaim.rs   from those who have borrowed it
//! room is missing     room.rs      from runs of lower tiers that this one may stop
//! how little          victims.rs   take one after the other on the undo log until the gang fits, then try to give each back
//! ```
//!
//! Never: for one job twice while its first victims are still stopping; never more than is needed.

mod reclaim;
mod room;
mod victims;

use crate::decision::Decision;
use crate::engine::Engine;
use crate::ids::{ClassId, JobId, NodeId, PoolId};
use crate::plan::PlanReport;
use crate::reason::Reason;
use crate::rules::order::{ClassQueue, Unschedulable};
use crate::rules::quota;
use crate::state::Urgency;
use crate::units::{Span, Timestamp};
use alloc::vec::Vec;

/// What was freed is kept for the job for so long past the victims' grace.
const RESERVE_FOR: Span = Span::mins(5);

/// What keeps a head from starting that a stop could give it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lack {
    /// Places, stock, or room under a ceiling.
    Room,
    Quota,
}

impl Lack {
    /// `None`: it waits for something that no stop would help with.
    fn of(reason: Reason) -> Option<Lack> {
        match reason {
            Reason::WaitingForQuota { .. } => Some(Lack::Quota),
            Reason::Ceiling { .. }
            | Reason::Stockout { .. }
            | Reason::LaunchRefused { .. }
            | Reason::NothingIdle
            | Reason::TopologyUnsatisfied { .. } => Some(Lack::Room),
            _ => None,
        }
    }
}

/// Runs the stage for the heads that can not be served, in their order. A head that rests is tried again when something was taken
/// for one before it.
pub(crate) fn run(engine: &mut Engine, waiting: &[Unschedulable], report: &mut PlanReport) {
    let (began, looked) = (engine.state.capacity_epoch, engine.memo.preempted);
    for Unschedulable { head, reason, rests_since } in waiting {
        if rests_since.is_some_and(|capacity_epoch| {
            capacity_epoch == engine.state.capacity_epoch && looked == Some(capacity_epoch)
        }) {
            continue;
        }
        let Some(lack) = Lack::of(*reason) else { continue };
        // A job that is ahead of its deadline waits for cheap capacity by choice: nothing is stopped for it.
        let can_wait = engine.state.classes[head.class].shape.urgency == Urgency::Relaxed;
        if !can_wait && head.class_queue == ClassQueue::Queued {
            stop_for(engine, head.key.job, head.class, lack, report);
        }
    }
    engine.memo.preempted = Some(began);
}

fn stop_for(engine: &mut Engine, job: JobId, class: ClassId, lack: Lack, report: &mut PlanReport) {
    let now = engine.state.now;
    if engine.state.jobs[job].reserved_until.is_some_and(|until| until > now) {
        return;
    }
    let pools: Vec<PoolId> = engine.state.classes[class].fits.iter().map(|f| f.0).collect();
    for pool in pools {
        let asked = quota::share(&engine.state, class, pool);
        let stopped = match quota::refusal(&engine.state, class, pool, asked) {
            Some(_) => reclaim::run(engine, job, class, pool, report),
            None => lack == Lack::Room && room::run(engine, job, class, pool, asked, report),
        };
        if stopped {
            return;
        }
    }
}

/// Keeps what victims free for the job for which they are stopped.
fn reserve(engine: &mut Engine, job: JobId, nodes: Vec<NodeId>, until: Timestamp) {
    if !nodes.is_empty() {
        engine.decide(Decision::Reserve { job, nodes, until: until + RESERVE_FOR });
    }
}
