//! consolidate: nodes that are not worth their price take no new work.
//!
//! ```text
//! empty    idle past their time, dearest first, floors kept
//! in use   from time to time: those whose work fits on what is free of others (rules/packing.rs), then where moving the work to what is bought
//!          for it saves enough (rules/relocation.rs), the best moves first
//! tried    where it would, but for stock that was short: one node of it, to see whether it can be had
//! ```
//!
//! A gang over several nodes that no other job is on is judged as one: the prices of its nodes together against what the gang
//! would cost elsewhere. What is on a node that is left goes as its protection ends.
//!
//! Never: moves work that cannot save its progress or is protected, a gang over several nodes that shares one of them, or anything
//! to capacity whose stock was last found wanting; never takes a node that a job has reserved; never goes below a pool's `keepReady`,
//! except to make room that a gang has reserved.

use crate::decision::{Decision, DrainWhy};
use crate::engine::Engine;
use crate::ids::{NodeId, OfferingId, PoolId};
use crate::moves;
use crate::plan::PlanReport;
use crate::policy::Consolidation;
use crate::rules::launch::{self, LaunchOption};
use crate::rules::packing::{self, Packed};
use crate::rules::relocation::{
    Destination, Elsewhere, Leaving, goes_to, may_go_onto_dearer, move_share, together, worth_leaving,
};
use crate::rules::{floors, idle, quota, reservations, supply};
use crate::state::State;
use crate::state::nodes::{Node, NodePhase};
use crate::units::{HOUR_MS, Rate};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::Reverse;

/// Runs the stage.
pub(crate) fn run(engine: &mut Engine, report: &mut PlanReport) {
    drain_idle(engine, report);
    let Some(rules) = engine.state.policy.as_deref().map(|p| p.consolidation) else {
        return;
    };
    let due = engine.state.consolidate_at <= engine.state.now;
    if rules.worth_it > 0 && due && !engine.state.index.running.is_empty() {
        move_work(engine, rules, report);
        let next = engine.state.now + rules.every;
        engine.decide(Decision::Consolidated { next });
    }
}

fn drain_idle(engine: &mut Engine, report: &mut PlanReport) {
    let state = &engine.state;
    let now = state.now;
    let mut over: Vec<(Reverse<Rate>, NodeId, PoolId)> = Vec::new();
    for id in idle::over(state) {
        if let Some(node) = state.nodes.get(&id) {
            over.push((Reverse(node.price), id, node.pool));
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
    let of = |pool: PoolId| policy.pools.get(pool.index());
    // Up to the high watermark all that is there is kept.
    let floor = |pool: PoolId| {
        let high = of(pool).map_or(0, |p| p.emptied_above(now));
        let kept = of(pool).map_or(0, |p| p.kept(now));
        if high > kept && floors::filled(state, pool) <= high { high } else { kept }
    };
    let floors_now: BTreeMap<PoolId, u32> = over.iter().map(|of| (of.2, floor(of.2))).collect();
    let mut spare: BTreeMap<PoolId, u32> = BTreeMap::new();
    let mut leave: Vec<NodeId> = Vec::new();
    // Under a floor those that alone serve somebody are the last to go.
    for last in [false, true] {
        over.retain(|(_, id, pool)| {
            let Some(node) = state.nodes.get(id) else { return false };
            let (vacates, kept) = (reservations::vacates(state, node), floors_now.get(pool).copied().unwrap_or(0));
            let goes = kept == 0 || !floors::counts(state, node) || {
                let left = spare.entry(*pool).or_insert_with(|| floors::filled(state, *pool));
                let goes = vacates || (*left > kept && (last || !floors::serves_alone(state, node, &leave)));
                *left -= u32::from(goes).min(*left);
                goes
            };
            leave.extend(goes.then_some(*id));
            !goes
        });
    }
    for node in leave {
        report.drained += 1;
        engine.decide(Decision::Drain { node, why: DrainWhy::Idle, check_at: now + settle });
    }
}

/// Nodes whose work would cost less elsewhere: one, or all of one gang.
struct Move {
    saves: Rate,
    to: Vec<Destination>,
    pool: PoolId,
    nodes: Vec<NodeId>,
}

fn move_work(engine: &mut Engine, rules: Consolidation, report: &mut PlanReport) {
    let mut budgets = budgets(&engine.state, rules);
    let (mut packed, mut elsewhere) = (Packed::default(), Elsewhere::new());
    // What is promised to one is nobody else's in the same review.
    let mark = engine.state.checkpoint();
    for (pool, budget) in &mut budgets {
        let leave = packing::find(engine, *pool, rules, budget.left, &mut packed, &mut elsewhere);
        budget.take(leave);
    }
    let Packed { mut leaves, takes } = packed;
    let state = &engine.state;
    let mut moves: Vec<Move> = Vec::new();
    let mut tries: BTreeSet<(PoolId, OfferingId)> = BTreeSet::new();
    for node in state.bought_nodes().filter(|n| n.phase == NodePhase::Ready) {
        let nodes = together(state, node);
        let first = nodes.first() == Some(&node.id);
        let packed = |id: &NodeId| leaves.contains(id) || takes.contains(id);
        let free = |n: &Node| n.open() && n.reserved.is_empty() && !reservations::keeps(state, n);
        if first && !nodes.iter().any(packed) && nodes.iter().filter_map(|id| state.nodes.get(id)).all(free) {
            match worth_leaving(state, &nodes, rules, &mut elsewhere) {
                Leaving::Stays => {}
                Leaving::Tries(bought) => tries.extend(bought),
                Leaving::Leaves { saves, to } => moves.push(Move { saves, to, pool: node.pool, nodes }),
            }
        }
    }
    moves.sort_unstable_by(|a, b| b.saves.cmp(&a.saves).then_with(|| a.nodes.cmp(&b.nodes)));
    let mut bought: Vec<Destination> = Vec::new();
    for chosen in moves {
        let takes = chosen.nodes.len() as u64;
        let Some(budget) = budgets.get_mut(&chosen.pool) else { continue };
        // A gang larger than what one review allows would never be moved: it goes when it is worth the most, and alone.
        if (takes > budget.left && !budget.first) || !all_go(engine, &chosen, &mut bought, &mut elsewhere) {
            continue;
        }
        budget.take(takes);
        leaves.extend(chosen.nodes);
    }
    engine.state.rollback(mark);
    for node in leaves {
        report.drained += 1;
        moves::leave_node(engine, node, report);
    }
    for (pool, offering) in tries {
        try_stock(engine, pool, offering, report);
    }
}

/// Whether all that is moved goes where it was judged to, beside what was moved to other pools before. If so it has its quota there from now on, in the trial.
fn all_go(engine: &mut Engine, chosen: &Move, bought: &mut Vec<Destination>, elsewhere: &mut Elsewhere) -> bool {
    let mark = engine.state.checkpoint();
    let before = bought.len();
    for to in &chosen.to {
        let mut goes = goes_to(engine, to.job, to.pool, elsewhere) && !may_go_onto_dearer(&engine.state, to);
        if to.pool != chosen.pool {
            bought.push(to.clone());
            goes &= !breaks_a_ceiling(&engine.state, to.pool, bought);
        }
        if !goes {
            bought.truncate(before);
            engine.state.rollback(mark);
            return false;
        }
        let share = quota::share(&engine.state, engine.state.jobs[to.job].class, to.pool);
        move_share(engine, to.job, to.pool, share);
    }
    engine.state.commit(mark);
    true
}

/// Whether all that is to be bought in a pool for work of others is more than a ceiling leaves.
fn breaks_a_ceiling(state: &State, pool: PoolId, bought: &[Destination]) -> bool {
    let counts = bought.iter().filter(|to| to.pool == pool).flat_map(|to| to.option.counts.iter().copied()).collect();
    let (all, own) = reservations::held(state, pool, None);
    launch::bound_hit(state, pool, &LaunchOption { counts, ..LaunchOption::default() }, all, own).is_some()
}

/// Nodes that one look may take out of a pool.
#[derive(Clone, Copy)]
struct Budget {
    left: u64,
    /// None was taken yet.
    first: bool,
}

impl Budget {
    fn take(&mut self, nodes: u64) {
        self.left = self.left.saturating_sub(nodes);
        self.first &= nodes == 0;
    }
}

/// What an hour allows in each pool, spread over the looks in it.
fn budgets(state: &State, rules: Consolidation) -> BTreeMap<PoolId, Budget> {
    let mut ready: BTreeMap<PoolId, u64> = BTreeMap::new();
    for node in state.bought_nodes().filter(|n| n.phase == NodePhase::Ready) {
        *ready.entry(node.pool).or_default() += 1;
    }
    let looks = |nodes: u64| (nodes * u64::from(rules.moves_per_hour) / 1000 * rules.every.0 / HOUR_MS).max(1);
    ready.into_iter().map(|(pool, nodes)| (pool, Budget { left: looks(nodes), first: true })).collect()
}

/// Asks for one node, to see whether it can be had. Nobody needs it: its boot is ended as any such boot is, or somebody takes it.
fn try_stock(engine: &mut Engine, pool: PoolId, offering: OfferingId, report: &mut PlanReport) {
    let state = &engine.state;
    let there = supply::spare_nodes(state, pool).any(|node| node.offering == offering);
    let (all, own) = reservations::held(state, pool, None);
    let bound = launch::bound_hit(state, pool, &LaunchOption::of(offering, 1), all, own);
    if there || bound.is_some() || !supply::is_to_be_had(state, offering) || supply::is_tried(state, offering) {
        return;
    }
    moves::buy_spare(engine, pool, offering, report);
}
