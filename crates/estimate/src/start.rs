//! When a waiting job starts, if all goes as usual and nothing else is submitted.
//!
//! Never: plays for longer than it is allowed.

use crate::ideal::{IdealWorld, Runs};
use forebay_engine::engine::Engine;
use forebay_kernel::ids::JobId;
use forebay_kernel::state::State;
use forebay_kernel::state::jobs::{Job, Phase};
use forebay_kernel::units::{Span, Timestamp};

/// Passes that are played at most.
pub const MOST_PASSES: usize = 4_096;

/// For so long the clock alone may change nothing: longer than the period of a budget.
const QUIET: Span = Span::mins(32 * 24 * 60);

/// What came of playing on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StartEstimate {
    /// Its workers run then.
    At(Timestamp),
    /// Until then it was played on, and the job still waited.
    After(Timestamp),
    /// All that is under way ends without a start of the job: something has to be changed or given first.
    NotByItself,
}

/// Whether a job waits for its next start. A replica of a service is no job.
#[must_use]
pub fn waits(row: &Job) -> bool {
    let phase = matches!(row.phase, Phase::New | Phase::BackingOff { .. } | Phase::Queued | Phase::Booked);
    phase && row.service.is_none()
}

/// The jobs that wait for their first start, in the order in which they were accepted. Those that an operator holds back wait for him.
pub fn wait_for_first(state: &State) -> impl Iterator<Item = JobId> + '_ {
    let first = |id: &JobId| state.job(*id).is_some_and(|(row, _)| waits(row) && row.first_start.is_none());
    state.open_job_ids().filter(first).filter(|id| !state.is_held_back(*id))
}

/// Plays a copy of an engine on until a job starts. `go_on` is asked before each pass.
#[must_use]
pub fn of(mut engine: Engine, job: JobId, mut go_on: impl FnMut() -> bool) -> StartEstimate {
    let mut world = IdealWorld::around(&engine, Runs::EndAsUsual);
    for _ in 0..MOST_PASSES {
        if !go_on() {
            break;
        }
        let _ = world.pass(&mut engine);
        match engine.state().job(job).map(|(row, _)| row) {
            Some(row) if row.phase == Phase::Running => return StartEstimate::At(engine.state().now()),
            Some(row) if row.ended.is_none() => {}
            _ => return StartEstimate::NotByItself,
        }
        if !world.advance(&engine, QUIET) {
            return StartEstimate::NotByItself;
        }
    }
    StartEstimate::After(engine.state().now())
}
