//! start: booked gangs whose last node became ready.
//!
//! Never: looks for other places.

use crate::decision::Decision;
use crate::engine::Engine;
use crate::plan::PlanReport;
use crate::rules::placement;
use crate::state::jobs::Phase;

/// Runs the stage.
pub(crate) fn run(engine: &mut Engine, report: &mut PlanReport) {
    let woken = engine.state.take_woken();
    for job in woken {
        // A replayed journal wakes jobs that have left the state since.
        let Some(row) = engine.state.jobs.get(job) else { continue };
        if row.phase == Phase::Booked && placement::all_ready(&engine.state, &row.places) {
            report.started += 1;
            engine.decide(Decision::Start { job });
        }
    }
}
