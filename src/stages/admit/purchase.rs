//! What is bought, or kept from leaving, for a head that has quota and no places.
//!
//! Never: for a job that may wait and would split the last empty large node.

use super::together::Together;
use crate::decision::{Decision, DrainWhy};
use crate::effect::WorkerPlace;
use crate::engine::Engine;
use crate::ids::{JobId, NodeId, OfferingId, PoolId};
use crate::job::Level;
use crate::moves::{self, Purchase};
use crate::plan::PlanReport;
use crate::reason::Reason;
use crate::rules::placement::spare::Detour;
use crate::rules::placement::{self, NodeScope};
use crate::rules::supply::{ANY, These};
use crate::rules::{budget, reservations, start_targets, supply};
use crate::state::State;
use crate::state::nodes::{Node, NodePhase};
use crate::units::MilliGpu;
use alloc::vec::Vec;

/// Buys for a job. `Ok`: the claims are in the table and the job will fit on them.
pub(super) fn buy_for(
    engine: &mut Engine,
    job: JobId,
    pool: PoolId,
    together: &mut Together,
    report: &mut PlanReport,
) -> Result<(), Reason> {
    buy_of(engine, job, pool, ANY, together, report).map_err(|no| placement::too_far(&engine.state, job, pool, no))
}

/// Buys for a job, of these offerings only.
fn buy_of(
    engine: &mut Engine,
    job: JobId,
    pool: PoolId,
    these: These<'_>,
    together: &mut Together,
    report: &mut PlanReport,
) -> Result<(), Reason> {
    let class = engine.state.jobs[job].class;
    let carried = placement::carried(engine, job, class, pool);
    let option = supply::choose(&engine.state, Some(job), class, pool, &carried, these)?;
    let close = engine.state.classes[class].shape.within.is_some_and(|w| w.level == Level::Rack);
    let single = option.nodes() == 1 && !option.part;
    let more = if single { supply::worth_adding(&engine.state, job, pool, option.counts[0].0) } else { 0 };
    together.open(engine, report);
    for (offering, count) in option.counts {
        // Of an elastic gang as many as its fewest workers need.
        let fewest = option.size.map_or(count, |size| size.fewest.min(count));
        let at_least = if more > 0 { 1 } else { fewest };
        let purchase = Purchase { pool, offering, count: count + more, at_least, close, layout: option.layout };
        moves::buy(engine, purchase, report);
    }
    Ok(())
}

/// Another place for a job that would split the last empty large node, in flight or bought. `None`: it takes what it has.
pub(super) fn spare_large_node(
    engine: &mut Engine,
    job: JobId,
    pool: PoolId,
    most: MilliGpu,
    places: &[WorkerPlace],
    together: &mut Together,
    report: &mut PlanReport,
) -> Option<Vec<WorkerPlace>> {
    let detour = Detour::of(&engine.state, job, pool, most, places)?;
    if let Some(found) = detour.places(&engine.state) {
        return Some(found);
    }
    let smaller = |state: &State, id: &OfferingId| detour.is_served_by(state, *id);
    buy_of(engine, job, pool, &smaller, together, report).ok()?;
    detour.places(&engine.state)
}

/// An empty node on its way out that would hold the whole gang stays, and the gang goes there. Not for one that may wait and would
/// split it.
pub(super) fn keep_leaving_node(
    engine: &mut Engine,
    job: JobId,
    pool: PoolId,
    most: MilliGpu,
) -> Option<Vec<WorkerPlace>> {
    let state = &engine.state;
    let class = state.jobs[job].class;
    let waits = start_targets::reason_to_wait(state, job).is_some();
    let fits = supply::fits(state, class, pool);
    let good = |node: &&Node| {
        let leaving = matches!(node.phase, NodePhase::Draining { why: DrainWhy::Idle, .. });
        leaving
            && reservations::lets_in(state, node, job)
            && node.pool == pool
            && node.reclaim_at.is_none()
            && !node.condemned
            && !node.cordoned
            && node.holds.is_empty()
            && fits.binary_search(&node.offering).is_ok()
            && budget::affordable(state, job, class, pool, node.offering)
            && placement::would_hold(state, job, node, most)
            && !(waits && placement::spare::would_split(state, job, node))
    };
    let draining = state.index.draining.iter().filter_map(|id| state.nodes.get(id));
    let node: NodeId = draining.filter(good).min_by_key(|n| (n.price, n.id)).map(|n| n.id)?;
    engine.decide(Decision::Undrain { node });
    placement::find(engine, job, pool, NodeScope::Ready, most)
}
