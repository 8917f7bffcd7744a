//! consolidate: which nodes are not worth their price.
//!
//! ```text
//! empty    idle past their time, dearest first, floors kept
//! in use   the node's price against what its work would cost elsewhere, once in a while:
//!          what the move saves over the time that the work is expected to go on  >=  worthIt x what the move costs
//! ```
//!
//! Work that has run for some time is expected to run for as long again (run times are heavy-tailed), counted up to an hour.
//! A move costs both nodes for a boot and a restart. Source of the rule: balanced consolidation in Karpenter, savings over disruption.
//!
//! Never: moves work that cannot save its progress or is protected, a gang over several nodes, or anything to capacity whose stock
//! was last found wanting; never takes a node that a job has reserved; never goes below a pool's `keepReady`.

use super::{provision, settle};
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

/// Work is not expected to go on for longer than this, whatever its age.
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
        if node.idle_since.is_some() && node.due <= now && node.reserved.is_none() {
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
        let left = spare
            .entry(pool)
            .or_insert_with(|| provision::spare(state, pool));
        if *left > floor(pool) {
            *left -= 1;
            leave.push(id);
        }
    }
    for node in leave {
        report.drained += 1;
        engine.decide(Decision::Drain {
            node,
            why: DrainWhy::Idle,
            check_at: now + settle,
        });
    }
}

/// A node whose work would cost less elsewhere.
struct Move {
    saves: Rate,
    node: NodeId,
    jobs: Vec<JobId>,
}

fn move_work(engine: &mut Engine, rules: Consolidation, report: &mut PlanReport) {
    let state = &engine.state;
    let mut elsewhere = Elsewhere::new();
    let mut ready = 0u64;
    let mut moves: Vec<Move> = Vec::new();
    for node in state.nodes.values().filter(|n| n.phase == NodePhase::Ready) {
        ready += 1;
        moves.extend(worth_moving(state, node, rules, &mut elsewhere));
    }
    moves.sort_unstable_by_key(|m| (core::cmp::Reverse(m.saves), m.node));
    // What an hour allows, spread over the looks in it.
    let hourly = ready * u64::from(rules.moves_per_hour) / 1000;
    let budget = (hourly * rules.every.0 / crate::units::HOUR_MS).max(1);
    let settle_for = state
        .policy
        .as_deref()
        .map_or(Span::secs(10), |p| p.lifecycle.drain_settle);
    for chosen in moves
        .into_iter()
        .take(usize::try_from(budget).unwrap_or(usize::MAX))
    {
        report.drained += 1;
        let check_at = engine.state.now + settle_for;
        engine.decide(Decision::Drain {
            node: chosen.node,
            why: DrainWhy::Moved,
            check_at,
        });
        for job in chosen.jobs {
            report.stopped += 1;
            settle::stop(engine, job, StopCause::Moved);
        }
    }
}

fn worth_moving(
    state: &State,
    node: &Node,
    rules: Consolidation,
    elsewhere: &mut Elsewhere,
) -> Option<Move> {
    if node.holds.is_empty() || !node.open() || node.reserved.is_some() {
        return None;
    }
    let mut jobs = node.holds.clone();
    jobs.sort_unstable();
    jobs.dedup();
    let mut there = Rate(0);
    let mut horizon = LONGEST_HORIZON;
    let mut restart = Span::ZERO;
    for id in &jobs {
        let age = movable(state, *id, node.id)?;
        let job = &state.jobs[id.ix()];
        let key = (job.class, node.pool);
        let price = *elsewhere
            .entry(key)
            .or_insert_with(|| provision::cheapest_proven(state, key.0, key.1));
        there = there + price?;
        horizon = horizon.min(age);
        restart = restart.max(state.specs[id.ix()].restart);
    }
    let saves = node.price - there;
    let boot = state.offerings[node.offering.ix()].offer.boot;
    let cost = (node.price + there).over(boot + restart);
    let gain = saves.over(horizon);
    let enough = gain.0.saturating_mul(1000) >= cost.0.saturating_mul(u128::from(rules.worth_it));
    (saves > Rate(0) && enough).then_some(Move {
        saves,
        node: node.id,
        jobs,
    })
}

/// For how long a run has lasted, if it may be moved off its node.
fn movable(state: &State, id: JobId, node: NodeId) -> Option<Span> {
    let (job, spec) = (&state.jobs[id.ix()], &state.specs[id.ix()]);
    let here = job.places.iter().all(|p| p.node == node);
    let free = job.phase == Phase::Running && job.broken.is_none() && !job.cancel_asked;
    let past = job.protected_until <= state.now;
    (here && free && spec.checkpoint.is_some() && past).then(|| state.now.since(job.since))
}
