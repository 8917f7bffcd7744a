//! Room: runs of lower tiers are stopped or shrink for a job that has quota and no places.
//!
//! ```text
//! candidates = running, of a tier that this one may stop, past minRun and protection; cheapest loss first
//! ```
//!
//! Never: within a tier or upwards, so that no two jobs can stop each other in turn; never below a tier's `minShare`.

use super::victims::{self, Case, Taken};
use super::{reclaim, reserve};
use crate::decision::StopCause;
use crate::engine::Engine;
use crate::ids::{ClassId, JobId, NodeId, OfferingId, PoolId, TierId};
use crate::machine::StateMachine;
use crate::plan::PlanReport;
use crate::rules::placement::{self, NodeScope};
use crate::rules::{protection, settings, supply};
use crate::state::State;
use crate::state::nodes::{Node, NodePhase};
use crate::state::places::nodes_of;
use crate::units::{GpuTime, MilliGpu};
use alloc::vec::Vec;

/// Candidates looked at for one job: bounds a pass; beyond it lies nothing cheaper.
const MOST_CANDIDATES: usize = 8192;

/// Stops or shrinks runs of lower tiers for a job that has quota and no places. Whether it did.
pub(super) fn run(
    engine: &mut Engine,
    job: JobId,
    class: ClassId,
    pool: PoolId,
    asked: MilliGpu,
    report: &mut PlanReport,
) -> bool {
    let mut runs = candidates(&engine.state, class, pool);
    reclaim::leave_owners(&engine.state, job, pool, asked, &mut runs);
    if runs.is_empty() {
        return false;
    }
    let room = room(&engine.state, class, pool);
    let bounded = engine.state.policy.as_deref().is_some_and(|p| p.tiers.iter().any(|t| t.min_share > 0));
    let Some(found) = victims::find(engine, &runs, &RoomCase { job, pool, asked, room, bounded }) else { return false };
    let until = victims::take(engine, &found.losses, StopCause::Preempted { by: job }, report);
    reserve(engine, job, found.nodes, until);
    true
}

/// RoomCase that a gang lacks on nodes that are ready.
struct RoomCase {
    job: JobId,
    pool: PoolId,
    asked: MilliGpu,
    /// What is free there. While this and what was taken are less than what is asked, no place needs to be searched for.
    room: MilliGpu,
    bounded: bool,
}

impl Case for RoomCase {
    fn prepare(&self, _: &mut StateMachine) {}

    /// Its tier keeps its share of all that is in use.
    fn allows(&self, state: &State, taken: &Taken, victim: JobId) -> bool {
        let tier = state.jobs[victim].tier;
        let rule = settings::tier(state, tier);
        let Some(least) = rule.map(|t| t.min_share).filter(|s| *s > 0) else { return true };
        let all = state.index.used_by_all().0;
        let own = state.index.in_use.get(&tier).map_or(MilliGpu(0), |held| held.staying);
        let left = own - taken.of(state, |job| job.tier == tier);
        u128::from(left.0) * 1000 >= u128::from(all) * u128::from(least)
    }

    fn enough(&self, engine: &mut Engine, taken: &Taken) -> Option<Vec<NodeId>> {
        if self.asked > self.room + taken.share {
            return None;
        }
        placement::find(engine, self.job, self.pool, NodeScope::Ready, self.asked).map(|places| nodes_of(&places))
    }

    fn bounded(&self) -> bool {
        self.bounded
    }

    fn quota(&self) -> bool {
        false
    }
}

/// GPU share that is free on the ready nodes that a class fits.
fn room(state: &State, class: ClassId, pool: PoolId) -> MilliGpu {
    let fits = supply::fits(state, class, pool);
    let of_pool = (pool, OfferingId(0))..=(pool, OfferingId(u32::MAX));
    let open = state.index.free.range(of_pool).filter(|((_, id), _)| fits.binary_search(id).is_ok());
    let nodes = open.flat_map(|(_, free)| &free.whole).filter_map(|(_, _, id)| state.nodes.get(id));
    let free = |node: &Node| node.slots.iter().map(|s| u64::from(s.free)).sum::<u64>();
    MilliGpu(nodes.map(free).sum())
}

/// Runs that may be stopped for a class, lowest tier first, then the least work lost.
fn candidates(state: &State, class: ClassId, pool: PoolId) -> Vec<JobId> {
    let Some(policy) = state.policy.as_deref() else {
        return Vec::new();
    };
    let by = state.classes[class].shape.tier;
    let fits = supply::fits(state, class, pool);
    let mut found: Vec<(i32, GpuTime, JobId)> = Vec::new();
    for (at, tier) in policy.tiers.iter().enumerate() {
        let named = tier.stoppable_by.contains(&by);
        if !named && !protection::stoppable_when_overdue(policy, tier, by) {
            continue;
        }
        let running = state.index.running.get(&TierId(at as u16));
        for id in running.into_iter().flatten() {
            let job = &state.jobs[*id];
            let helps = job.places.iter().any(|p| useful(state, p.node, fits, pool));
            let due = named || job.overdue_at <= state.now;
            if due && helps && protection::may_be_stopped(state, *id) {
                found.push((tier.priority, job.share.over(job.unsaved(state.now)), *id));
            }
        }
    }
    found.sort_unstable();
    found.truncate(MOST_CANDIDATES);
    found.into_iter().map(|f| f.2).collect()
}

fn useful(state: &State, node: NodeId, fits: &[OfferingId], pool: PoolId) -> bool {
    let good = |n: &Node| n.phase == NodePhase::Ready && n.open() && n.pool == pool && fits.contains(&n.offering);
    state.nodes.get(&node).is_some_and(good)
}
