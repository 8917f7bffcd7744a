//! provision: buys what a pool's floor (`keepReady`) asks for and does not have. What jobs need is bought with their admission.
//!
//! With watermarks nothing is bought down to the low one, and then at once up to the high one. Which nodes: rules/floors.rs. Never: while room is made for a gang in the pool; never what is not in stock or above a ceiling.

use crate::engine::Engine;
use crate::ids::PoolId;
use crate::moves;
use crate::plan::PlanReport;
use crate::rules::{floors, reservations};
use alloc::vec::Vec;

/// Runs the stage.
pub(crate) fn run(engine: &mut Engine, report: &mut PlanReport) {
    let Some(policy) = engine.state.policy.as_deref() else { return };
    let pools = policy.pools.iter().enumerate();
    let now = engine.state.now;
    let floors = pools.map(|(at, p)| (PoolId(at as u16), p.filled_below(now), p.emptied_above(now)));
    let floors: Vec<(PoolId, u32, u32)> = floors.filter(|f| f.1 > 0).collect();
    for (pool, low, high) in floors {
        // A floor is filled again when a gang that needs the room has started.
        if reservations::makes_room(&engine.state, pool) {
            continue;
        }
        let filled = floors::filled_or_lent(&engine.state, pool, low);
        if filled >= low {
            continue;
        }
        for _ in filled..high {
            let Some(offering) = floors::next(&engine.state, pool) else { break };
            moves::buy_spare(engine, pool, offering, report);
        }
    }
}
