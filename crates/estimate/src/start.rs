//! When a waiting job starts, if all goes as usual and nothing else is submitted.
//!
//! Never: plays for longer than it is allowed.

use crate::ideal::{IdealWorld, Runs};
use forebay_engine::engine::Engine;
use forebay_kernel::ids::JobId;
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

/// Whether a job waits for its next start.
#[must_use]
pub fn waits(row: &Job) -> bool {
    matches!(row.phase, Phase::New | Phase::BackingOff { .. } | Phase::Queued | Phase::Booked)
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
