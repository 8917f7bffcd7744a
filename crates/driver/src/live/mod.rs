//! The live loop: owns the engine, the journal and the adapters on one thread, and turns the batch step under a real or replayed clock.
//!
//! ```text
//! LiveSettings -> start -> RunningDriver { handle } -> join -> FinishedDriver
//!                              |
//!                           DriverHandle: submit, query, change_policy, watch, statuses, stop
//! ```
//!
//! What it works with comes through traits: [`Journal`](crate::journal::Journal), [`Adapters`](crate::adapters::Adapters),
//! [`StatusWriter`], [`RejectionWriter`], [`EventFeed`].
//!
//! Never: decides. What may leave, and when, is the business of the engine and of the journal.

mod clock;
mod error;
mod executor;
mod feed;
mod figures;
mod handle;
mod holds;
mod input;
mod live_loop;
mod mailbox;
mod output;
mod policy;
mod recent_ids;
mod retention;
mod shares;
mod start;
mod stream;
mod submission;
mod tenants;
#[cfg(test)]
mod tests;
mod turns;

pub use clock::{ClockMode, wall_ms};
pub use error::DriverError;
pub use feed::{EventFeed, FedItem, REPLAY};
pub use handle::{Accepted, DriverHandle, DriverStopped, ItemOutcome, LiveProgress, MailboxError, QueryContext};
pub use holds::LoopHolds;
pub use input::REJECTED;
pub use live_loop::LoopEnd;
pub use mailbox::{MOST_EVENTS, MOST_QUERIES};
pub use output::{RejectionWriter, StatusWriter};
pub use policy::PolicyOutcome;
pub use shares::{HeldShare, Shares};
pub use start::{
    AdapterMaker, AdapterStart, FinishedDriver, LiveSettings, NewPolicy, PolicySource, RunningDriver, StartKind, start,
};
pub use stream::{StatusStream, StreamEnd};
pub use submission::{
    ItemContent, Original, Rejection, ReplyTo, SenderRule, SourceObserver, Submission, SubmissionSender, SubmittedItem,
    refused_path,
};
pub use tenants::{TenantLimit, TenantLimits};
