//! consolidate: which nodes are not worth their price.
//!
//! ```text
//! empty    idle past their time, dearest first, floors kept
//! in use   the node's price against what its work would cost elsewhere, once in a while:
//!          what the move saves over the time that the work is expected to go on  >=  worthIt x what the move costs
//! ```
//!
//! A node that has been of use for some time is expected to be for as long again (run times are heavy-tailed), counted up to an
//! hour. It gets no new work; what is on it leaves as its protection ends. A move costs both nodes for a boot and a restart. Source of the rule: balanced consolidation in Karpenter, savings over disruption.
//!
//! Never: moves work that cannot save its progress or is protected, a gang over several nodes, or anything to capacity whose stock
//! was last found wanting; never takes a node that a job has reserved; never goes below a pool's `keepReady`,
//! but to make room that a gang has reserved.

use super::{ahead, provision, settle};
use crate::decision::{Decision, DrainWhy, StopCause};
use crate::engine::Engine;
use crate::ids::{ClassId, JobId, NodeId, PoolId};
use crate::plan::PlanReport;
use crate::policy::Consolidation;
use crate::state::State;
use crate::state::jobs::Phase;
use crate::state::nodes::{Node, NodePhase};
use crate::units::{Rate, Span};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// A node's use is not expected to go on for longer than this, whatever its age.
const LONGEST_HORIZON: Span = Span::mins(60);

/// What work of a class would cost elsewhere, looked up once a look.
type Elsewhere = BTreeMap<(ClassId, PoolId), Option<Rate>>;

/// Runs the stage.
pub(crate) fn run(engine: &mut Engine, report: &mut PlanReport) {
    drain_idle(engine, report);
    let Some(rules) = engine.state.policy.as_deref().map(|p| p.consolidation) else {
        return;
    };
    let due = engine.state.consolidate_at <= engine.state.now;
    if rules.worth_it > 0 && due && !engine.state.ix.running.is_empty() {
        move_work(engine, rules, report);
        let next = engine.state.now + rules.every;
        engine.decide(Decision::Consolidated { next });
    }
}

fn drain_idle(engine: &mut Engine, report: &mut PlanReport) {
    let state = &engine.state;
    let now = state.now;
    let mut over: Vec<(core::cmp::Reverse<Rate>, NodeId, PoolId)> = Vec::new();
    for id in &state.ix.idle {
        let Some(node) = state.nodes.get(id) else {
            continue;
        };
        let due = node.due <= now || ahead::vacates(state, node);
        if node.idle_since.is_some() && due && node.reserved.is_none() && !ahead::keeps(state, node) {
            over.push((core::cmp::Reverse(node.price), *id, node.pool));
        }
    }
    if over.is_empty() {
        return;
    }
    over.sort_unstable();
    let Some(policy) = state.policy.as_deref() else {
        return;
    };
    let settle = policy.lifecycle.drain_settle;
    let floor = |pool: PoolId| policy.pools.get(pool.ix()).map_or(0, |p| p.keep_ready);
    let mut spare: BTreeMap<PoolId, u32> = BTreeMap::new();
    let mut leave: Vec<NodeId> = Vec::new();
    for (_, id, pool) in over {
        let left = spare.entry(pool).or_insert_with(|| provision::spare(state, pool));
        let vacates = state.nodes.get(&id).is_some_and(|n| ahead::vacates(state, n));
        if *left > floor(pool) || vacates {
            *left = left.saturating_sub(1);
            leave.push(id);
        }
    }
    for node in leave {
        report.drained += 1;
        engine.decide(Decision::Drain { node, why: DrainWhy::Idle, check_at: now + settle });
    }
}

/// A node whose work would cost less elsewhere.
struct Move {
    saves: Rate,
    node: NodeId,
}

fn move_work(engine: &mut Engine, rules: Consolidation, report: &mut PlanReport) {
    let state = &engine.state;
    let mut elsewhere = Elsewhere::new();
    let mut ready = 0u64;
    let mut moves: Vec<Move> = Vec::new();
    for node in state.nodes.values().filter(|n| n.phase == NodePhase::Ready) {
        ready += 1;
        if node.open() && node.reserved.is_none() && !ahead::keeps(state, node) {
            let saves = worth_leaving(state, node, rules, &mut elsewhere);
            moves.extend(saves.map(|saves| Move { saves, node: node.id }));
        }
    }
    moves.sort_unstable_by_key(|m| (core::cmp::Reverse(m.saves), m.node));
    // What an hour allows, spread over the looks in it.
    let hourly = ready * u64::from(rules.moves_per_hour) / 1000;
    let budget = (hourly * rules.every.0 / crate::units::HOUR_MS).max(1);
    for chosen in moves.into_iter().take(usize::try_from(budget).unwrap_or(usize::MAX)) {
        report.drained += 1;
        leave(engine, chosen.node, report);
    }
}

/// Takes a node out of placement, stops what can be moved off it now, and says when the rest is looked at.
fn leave(engine: &mut Engine, id: NodeId, report: &mut PlanReport) {
    let state = &engine.state;
    let Some(node) = state.nodes.get(&id) else {
        return;
    };
    let (mut now, mut later) = (Vec::new(), Vec::new());
    for job in holders(node) {
        let row = &state.jobs[job.ix()];
        match row.phase {
            Phase::Running if row.broken.is_none() && row.protected_until <= state.now => now.push(job),
            Phase::Running => later.push(row.protected_until),
            _ => {}
        }
    }
    let settle_for = state.lifecycle().drain_settle;
    let soon = state.now + settle_for;
    let check_at = if now.is_empty() { later.into_iter().min().map_or(soon, |at| at.max(soon)) } else { soon };
    engine.decide(Decision::Drain { node: id, why: DrainWhy::Moved, check_at });
    for job in now {
        report.stopped += 1;
        settle::stop(engine, job, StopCause::Moved);
    }
}

/// A node that is being left, looked at again: goes on, unless what made it worth it is over.
pub(super) fn go_on_leaving(engine: &mut Engine, id: NodeId, report: &mut PlanReport) {
    let rules = engine.state.policy.as_deref().map(|p| p.consolidation).unwrap_or_default();
    let Some(node) = engine.state.nodes.get(&id) else {
        return;
    };
    let leaving = |job: &JobId| matches!(engine.state.jobs[job.ix()].phase, Phase::Stopping { .. });
    let still =
        node.holds.iter().all(leaving) || worth_leaving(&engine.state, node, rules, &mut Elsewhere::new()).is_some();
    if still {
        leave(engine, id, report);
    } else {
        engine.decide(Decision::Undrain { node: id });
    }
}

/// What leaving a node saves an hour, if that is worth it.
fn worth_leaving(state: &State, node: &Node, rules: Consolidation, elsewhere: &mut Elsewhere) -> Option<Rate> {
    if node.holds.is_empty() {
        return None;
    }
    let mut there = Rate(0);
    let mut restart = Span::ZERO;
    for id in holders(node) {
        let job = &state.jobs[id.ix()];
        let spec = &state.specs[id.ix()];
        let here = job.places.iter().all(|p| p.node == node.id);
        if !here || spec.checkpoint.is_none() || job.phase == Phase::Booked {
            return None;
        }
        let key = (job.class, node.pool);
        let price = *elsewhere.entry(key).or_insert_with(|| provision::cheapest_proven(state, key.0, key.1));
        there = there + price?;
        restart = restart.max(spec.restart);
    }
    let saves = node.price - there;
    // A node that has been of use for some time is expected to be for as long again.
    let horizon = state.now.since(node.decided_at).min(LONGEST_HORIZON);
    let boot = state.offerings[node.offering.ix()].offer.boot;
    let cost = (node.price + there).over(boot + restart);
    let gain = saves.over(horizon);
    let enough = gain.0.saturating_mul(1000) >= cost.0.saturating_mul(u128::from(rules.worth_it));
    (saves > Rate(0) && enough).then_some(saves)
}

/// The jobs with workers on a node, each once.
fn holders(node: &Node) -> Vec<JobId> {
    let mut jobs = node.holds.clone();
    jobs.sort_unstable();
    jobs.dedup();
    jobs
}
