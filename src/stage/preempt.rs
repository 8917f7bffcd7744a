//! preempt: when neither places nor nodes can be had, runs of lower tiers lose workers or are stopped, from their last checkpoint on.
//! When it is quota that is missing, see `reclaim`.
//!
//! ```text
//! candidates = running, of a tier that this one may stop, past minRun and protection; cheapest loss first
//! take one after the other on the undo log until the gang fits; then try each back, dearest first (victims.rs)
//! ```
//!
//! Never: within a tier or upwards, so that no two jobs can stop each other in turn; never more than is needed (each victim is tried
//! back); never below a tier's `minShare`; never twice for one job while the first victims are still stopping.

use super::order;
use super::place::{self, Reach};
use super::victims::{self, Case, Taken};
use super::{admit, provision, reclaim};
use crate::decision::{Decision, StopCause};
use crate::engine::Engine;
use crate::ids::{ClassId, JobId, NodeId, OfferingId, PoolId, TierId};
use crate::plan::{PlanReport, ToldNo};
use crate::policy::{Policy, Tier};
use crate::reason::Reason;
use crate::state::nodes::{Node, NodePhase};
use crate::state::places::nodes_of;
use crate::state::{Hurry, State};
use crate::units::{GpuTime, MilliGpu, Millis, Span};
use alloc::vec::Vec;

/// Candidates looked at for one job: bounds a pass; beyond it lies nothing cheaper.
const MOST_CANDIDATES: usize = 8192;
/// What was freed is kept for the job for so long past the victims' grace.
const RESERVE_FOR: Span = Span::mins(5);

/// Looks at the heads that were told no, in their order. One that rests is looked at again when something is taken for one before it.
pub(crate) fn run(engine: &mut Engine, waiting: &[ToldNo], report: &mut PlanReport) {
    let (began, looked) = (engine.state.freed, engine.memo.preempted);
    for (head, reason, rests) in waiting {
        if rests.is_some_and(|freed| freed == engine.state.freed && looked == Some(freed)) {
            continue;
        }
        let capacity = matches!(
            reason,
            Reason::Ceiling { .. }
                | Reason::Stockout { .. }
                | Reason::LaunchRefused { .. }
                | Reason::NothingIdle
                | Reason::TopologyUnsatisfied { .. }
        );
        let helps = capacity || matches!(reason, Reason::WaitingForQuota { .. });
        // A job that is ahead of its deadline waits for cheap capacity because it can: nobody is stopped for it.
        let can_wait = engine.state.classes[head.class.ix()].shape.hurry == Hurry::Relaxed;
        if helps && !can_wait && head.line == order::Line::Queued {
            stop_for(engine, head.key.job, head.class, capacity, report);
        }
    }
    engine.memo.preempted = Some(began);
}

fn stop_for(engine: &mut Engine, job: JobId, class: ClassId, capacity: bool, report: &mut PlanReport) {
    let now = engine.state.now;
    if engine.state.jobs[job.ix()].reserved_until.is_some_and(|until| until > now) {
        return;
    }
    let pools: Vec<PoolId> = engine.state.classes[class.ix()].fits.iter().map(|f| f.0).collect();
    for pool in pools {
        let asked = admit::share(&engine.state, class, pool);
        let stopped = match admit::quota_says(&engine.state, class, pool, asked) {
            Some(_) => reclaim::run(engine, job, class, pool, report),
            None => capacity && make_room(engine, job, class, pool, asked, report),
        };
        if stopped {
            return;
        }
    }
}

/// Stops or shrinks runs of lower tiers for a job that has quota and no places. Whether it did.
fn make_room(
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
    let Some(found) = victims::find(engine, &runs, &Room { job, pool, asked, room, bounded }) else { return false };
    let until = victims::take(engine, &found.losses, StopCause::Preempted { by: job }, report);
    reserve(engine, job, found.nodes, until);
    true
}

/// Keeps what victims free for the job for which they are stopped.
pub(super) fn reserve(engine: &mut Engine, job: JobId, nodes: Vec<NodeId>, until: Millis) {
    if !nodes.is_empty() {
        engine.decide(Decision::Reserve { job, nodes, until: until + RESERVE_FOR });
    }
}

/// Room that a gang lacks on nodes that are ready.
struct Room {
    job: JobId,
    pool: PoolId,
    asked: MilliGpu,
    /// What is free there: without more than is missing no place needs to be looked for.
    room: MilliGpu,
    bounded: bool,
}

impl Case for Room {
    fn prepare(&self, _: &mut State) {}

    /// Its tier keeps its share of all that is in use.
    fn allows(&self, state: &State, taken: &Taken, victim: JobId) -> bool {
        let tier = state.jobs[victim.ix()].tier;
        let rule = state.policy.as_deref().and_then(|p| p.tiers.get(tier.ix()));
        let Some(least) = rule.map(|t| t.min_share).filter(|s| *s > 0) else { return true };
        let all = state.ix.used_by_all().0;
        let own = state.ix.in_use.get(&tier).map_or(MilliGpu(0), |held| held.staying);
        let left = own - taken.of(state, |job| job.tier == tier);
        u128::from(left.0) * 1000 >= u128::from(all) * u128::from(least)
    }

    fn enough(&self, engine: &mut Engine, taken: &Taken) -> Option<Vec<NodeId>> {
        if self.asked > self.room + taken.share {
            return None;
        }
        place::find(engine, self.job, self.pool, Reach::Ready, self.asked).map(|places| nodes_of(&places))
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
    let fits = provision::fits(state, class, pool);
    let of_pool = (pool, OfferingId(0))..=(pool, OfferingId(u32::MAX));
    let open = state.ix.free.range(of_pool).filter(|((_, id), _)| fits.binary_search(id).is_ok());
    let nodes = open.flat_map(|(_, free)| &free.whole).filter_map(|(_, _, id)| state.nodes.get(id));
    let free = |node: &Node| node.slots.iter().map(|s| u64::from(s.free)).sum::<u64>();
    MilliGpu(nodes.map(free).sum())
}

/// Runs that may be stopped for a class, lowest tier first, then the least work lost.
fn candidates(state: &State, class: ClassId, pool: PoolId) -> Vec<JobId> {
    let Some(policy) = state.policy.as_deref() else {
        return Vec::new();
    };
    let by = state.classes[class.ix()].shape.tier;
    let fits = provision::fits(state, class, pool);
    let mut found: Vec<(i32, GpuTime, JobId)> = Vec::new();
    for (at, tier) in policy.tiers.iter().enumerate() {
        let named = tier.stoppable_by.contains(&by);
        if !named && !stoppable_when_overdue(policy, tier, by) {
            continue;
        }
        let running = state.ix.running.get(&TierId(at as u16));
        for id in running.into_iter().flatten() {
            let job = &state.jobs[id.ix()];
            let helps = job.places.iter().any(|p| useful(state, p.node, fits, pool));
            let due = named || job.overdue_at <= state.now;
            if due && helps && may_be_stopped(state, *id) {
                found.push((tier.priority, job.share.over(job.unsaved(state.now)), *id));
            }
        }
    }
    found.sort_unstable();
    found.truncate(MOST_CANDIDATES);
    found.into_iter().map(|f| f.2).collect()
}

/// A run that has lasted as long as it may while others wait gives way to any higher tier.
fn stoppable_when_overdue(policy: &Policy, tier: &Tier, by: TierId) -> bool {
    let higher = policy.tiers.get(by.ix()).is_some_and(|t| t.priority > tier.priority);
    tier.max_run_while_others_wait.is_some() && higher
}

fn useful(state: &State, node: NodeId, fits: &[OfferingId], pool: PoolId) -> bool {
    let good = |n: &Node| n.phase == NodePhase::Ready && n.open() && n.pool == pool && fits.contains(&n.offering);
    state.nodes.get(&node).is_some_and(good)
}

/// Past its protection, which holds minRun, a restart's catching up, and ends at `maxRunWhileOthersWait` at the latest; and nothing
/// is being taken from it already.
pub(super) fn may_be_stopped(state: &State, id: JobId) -> bool {
    let job = &state.jobs[id.ix()];
    job.broken.is_none() && job.leaving.is_none() && job.running_since.is_some() && job.protected_until <= state.now
}
