//! consolidate: which nodes are not worth their price.
//!
//! ```text
//! empty    idle past their time, dearest first, floors kept
//! in use   the node's price against what its work would cost elsewhere, once in a while:
//!          what the move saves over the time that the work is expected to go on  >=  worthIt x what the move costs
//! ```
//!
//! A gang over several nodes that nobody else is on is left as one: its nodes' prices together against what the gang would cost.
//!
//! A node that has been of use for some time is expected to be for as long again (run times are heavy-tailed), counted up to an
//! hour. It gets no new work; what is on it leaves as its protection ends. A move costs both nodes for a boot and a restart. Source of the rule: balanced consolidation in Karpenter, savings over disruption.
//!
//! Never: moves work that cannot save its progress or is protected, a gang over several nodes that shares one of them, or anything
//! to capacity whose stock was last found wanting; never takes a node that a job has reserved; never goes below a pool's `keepReady`,
//! but to make room that a gang has reserved.

use super::cart::Cart;
use super::{ahead, idle, provision, settle};
use crate::catalog::CapacityType;
use crate::decision::{Decision, DrainWhy, StopCause};
use crate::demand;
use crate::engine::Engine;
use crate::ids::{ClassId, JobId, NodeId, OfferingId, PoolId};
use crate::plan::PlanReport;
use crate::policy::Consolidation;
use crate::state::State;
use crate::state::jobs::Phase;
use crate::state::nodes::{Node, NodePhase};
use crate::state::places::nodes_of;
use crate::units::{HOUR_MS, Rate, Span};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// A node's use is not expected to go on for longer than this, whatever its age.
const LONGEST_HORIZON: Span = Span::mins(60);

/// What work of a class would cost elsewhere, looked up once a look.
type Elsewhere = BTreeMap<(ClassId, PoolId), Option<Cart>>;

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
    for (_, id) in idle::leaving(state).into_iter().filter(|(at, _)| *at <= now) {
        if let Some(node) = state.nodes.get(&id) {
            over.push((core::cmp::Reverse(node.price), id, node.pool));
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
    let floor = |pool: PoolId| policy.pools.get(pool.ix()).map_or(0, |p| p.kept(now));
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

/// Nodes whose work would cost less elsewhere: one, or all of one gang.
struct Move {
    saves: Rate,
    pool: PoolId,
    nodes: Vec<NodeId>,
}

fn move_work(engine: &mut Engine, rules: Consolidation, report: &mut PlanReport) {
    let state = &engine.state;
    let mut elsewhere = Elsewhere::new();
    let mut ready: BTreeMap<PoolId, u64> = BTreeMap::new();
    let mut moves: Vec<Move> = Vec::new();
    for node in state.nodes.values().filter(|n| n.phase == NodePhase::Ready) {
        *ready.entry(node.pool).or_default() += 1;
        let nodes = together(state, node);
        let first = nodes.first() == Some(&node.id);
        let free = |n: &Node| n.open() && n.reserved.is_none() && !ahead::keeps(state, n);
        if first && nodes.iter().filter_map(|id| state.nodes.get(id)).all(free) {
            let saves = worth_leaving(state, &nodes, rules, &mut elsewhere);
            moves.extend(saves.map(|saves| Move { saves, pool: node.pool, nodes }));
        }
    }
    moves.sort_unstable_by(|a, b| b.saves.cmp(&a.saves).then_with(|| a.nodes.cmp(&b.nodes)));
    // What an hour allows in each pool, spread over the looks in it.
    let looks = |nodes: u64| (nodes * u64::from(rules.moves_per_hour) / 1000 * rules.every.0 / HOUR_MS).max(1);
    let mut budgets: BTreeMap<PoolId, (u64, bool)> =
        ready.into_iter().map(|(pool, n)| (pool, (looks(n), true))).collect();
    for chosen in moves {
        let takes = chosen.nodes.len() as u64;
        let Some((budget, first)) = budgets.get_mut(&chosen.pool) else { continue };
        // A gang larger than what one look allows would never be moved: it goes when it is worth the most, and alone.
        if takes > *budget && !*first {
            continue;
        }
        (*budget, *first) = (budget.saturating_sub(takes), false);
        for node in chosen.nodes {
            report.drained += 1;
            leave(engine, node, report);
        }
    }
}

/// The nodes that are left together with this one: those of its gang, where a gang over several nodes has it. In order.
fn together(state: &State, node: &Node) -> Vec<NodeId> {
    let spread =
        holders(node).into_iter().map(|id| nodes_of(&state.jobs[id.ix()].places)).find(|nodes| nodes.len() > 1);
    spread.unwrap_or_else(|| alloc::vec![node.id])
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
    let nodes = together(&engine.state, node);
    let still =
        node.holds.iter().all(leaving) || worth_leaving(&engine.state, &nodes, rules, &mut Elsewhere::new()).is_some();
    if still {
        leave(engine, id, report);
    } else {
        engine.decide(Decision::Undrain { node: id });
    }
}

/// What leaving nodes saves an hour, if that is worth it and all that is on them is on nothing else.
fn worth_leaving(state: &State, nodes: &[NodeId], rules: Consolidation, elsewhere: &mut Elsewhere) -> Option<Rate> {
    let rows = || nodes.iter().filter_map(|id| state.nodes.get(id));
    let mut jobs: Vec<(JobId, PoolId)> = rows().flat_map(|n| holders(n).into_iter().map(|job| (job, n.pool))).collect();
    jobs.sort_unstable();
    jobs.dedup();
    // On several nodes there is one gang, whole, and nothing beside it.
    if jobs.is_empty() || (nodes.len() > 1 && jobs.len() > 1) || rows().any(|n| n.holds.is_empty() || !may_leave(n)) {
        return None;
    }
    let mut there = Rate(0);
    let mut restart = Span::ZERO;
    let mut risk = 0u128;
    for (id, pool) in jobs {
        let job = &state.jobs[id.ix()];
        let spec = &state.specs[id.ix()];
        let here = job.places.iter().all(|p| nodes.contains(&p.node));
        if !here || spec.checkpoint.is_none() || job.phase == Phase::Booked {
            return None;
        }
        let key = (job.class, pool);
        let cart = elsewhere.entry(key).or_insert_with(|| provision::cheapest_proven(state, key.0, key.1));
        let cart = cart.as_ref()?;
        there = there + cart.cost(state);
        risk += cart.lines.iter().map(|(id, n)| at_risk(state, *id, spec.restart) * u128::from(*n)).sum::<u128>();
        restart = restart.max(spec.restart);
    }
    let here = rows().map(|n| n.price).fold(Rate(0), |a, b| a + b);
    let risk_here = rows().map(|n| at_risk(state, n.offering, restart)).sum::<u128>();
    let hourly = |price: Rate, risk: u128| Rate(price.0.saturating_add(u64::try_from(risk).unwrap_or(u64::MAX)));
    let saves = hourly(here, risk_here) - hourly(there, risk);
    // Nodes that have been of use for some time, the youngest of them, are expected to be for as long again.
    let horizon = rows().map(|n| state.now.since(n.decided_at)).min()?.min(LONGEST_HORIZON);
    let boot = rows().map(|n| state.offerings[n.offering.ix()].offer.boot).max()?;
    let cost = (here + there).over(boot + restart);
    let gain = saves.over(horizon);
    let enough = gain.0.saturating_mul(1000) >= cost.0.saturating_mul(u128::from(rules.worth_it));
    (saves > Rate(0) && enough).then_some(saves)
}

/// Up, or being left already; neither condemned nor taken back by the cloud.
fn may_leave(node: &Node) -> bool {
    let being_left = matches!(node.phase, NodePhase::Draining { why: DrainWhy::Moved, .. });
    (being_left || node.phase == NodePhase::Ready) && !node.condemned && node.reclaim_at.is_none()
}

/// What reclaims of one node of an offering are expected to cost an hour, in micro-dollars: a boot and a restart each, at its price.
fn at_risk(state: &State, id: OfferingId, restart: Span) -> u128 {
    let offer = &state.offerings[id.ix()].offer;
    if offer.capacity != CapacityType::Spot {
        return 0;
    }
    let lost = offer.price.over(offer.boot + restart).0 / u128::from(HOUR_MS);
    lost.saturating_mul(u128::from(demand::reclaims_per_hour(state, id))) / 1_000_000
}

/// The jobs with workers on a node, each once.
fn holders(node: &Node) -> Vec<JobId> {
    let mut jobs = node.holds.clone();
    jobs.sort_unstable();
    jobs.dedup();
    jobs
}
