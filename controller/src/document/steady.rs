//! Passes in an ideal world until nothing changes.
//!
//! At rest nothing is under way, and for [`QUIET`] the clock alone changes nothing. Work never completes: nobody knows when it would.
//! Never: the outcomes themselves. Those are `forebay_estimate::ideal`'s.

use super::state::Loaded;
use forebay_estimate::ideal::{self, IdealWorld, Pass, Runs};
use forebay_kernel::units::Span;

/// For so long the clock alone must change nothing: longer than a protection, a pause or a review of running work usually is.
pub const QUIET: Span = Span::mins(60);

/// Passes at most. Each start, stop and purchase takes a few, and many go together.
pub const MOST_PASSES: usize = 10_000;

/// How it ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rest {
    /// Nothing changes any more.
    Steady,
    /// It still changed after [`MOST_PASSES`].
    Restless,
}

/// Plays passes until rest. `seen` is told of each that changes something as soon as it is made.
pub fn play(loaded: &mut Loaded, mut seen: impl FnMut(&Loaded, Pass)) -> Rest {
    let mut world = IdealWorld::around(&loaded.engine, Runs::GoOn);
    for _ in 0..MOST_PASSES {
        let pass = world.pass(&mut loaded.engine);
        if pass.decisions.iter().any(ideal::changes) {
            seen(loaded, pass);
        }
        if !world.advance(&loaded.engine, QUIET) {
            return Rest::Steady;
        }
    }
    Rest::Restless
}
