//! The live driver's wiring: the journal on SQLite, the logs of statuses and of the rejected, replays, simulated and real adapters.
//!
//! ```text
//! Settings -> start: journal, logs, feed, adapters -> forebay_driver::live -> Running { handle } -> join -> Finished
//! ```
//!
//! Never: turns the loop; that is `forebay_driver`'s.

mod feed;
mod observed;
mod replay;
mod resume;
mod retention;
mod start;
#[cfg(test)]
pub(crate) mod tests;
mod witness;

pub use feed::{Feed, FeedContent, FeedItem};
pub use forebay_driver::adapters::{EffectExecutor, EffectOrigin, EffectRequest};
pub use forebay_driver::live::{
    Accepted, ClockMode, DriverError, DriverHandle, DriverStopped, HeldShare, ItemContent, ItemOutcome, LiveProgress,
    LoopEnd, MOST_EVENTS, MOST_QUERIES, MailboxError, Original, QueryContext, REJECTED, ReplyTo, Shares, StatusStream,
    StreamEnd, Submission, SubmissionSender, SubmittedItem, wall_ms,
};
pub use replay::{LoadedFeed, load, new_folder};
pub(crate) use resume::LogPositions;
pub use resume::{Consent, StartClock, TimeConsent, refuse_what_is_left};
pub use retention::Retention;
pub use start::{Finished, RealAdapters, Running, Settings, WorldMaker, start};
pub use witness::{AskWitness, GivenOut, Witness};
