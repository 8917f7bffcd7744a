//! The driver: owns the engine, the journal and the executor on one thread, and turns the loop under a real or replayed clock.
//!
//! ```text
//! Settings -> start -> Running { handle } -> join -> Finished
//!                          |
//!                       Handle: submit, query, watch, statuses, stop
//! ```
//!
//! Never: decides. What may leave, and when, is the engine's and the journal's business.

mod clock;
mod cycle;
mod error;
mod executor;
mod feed;
mod figures;
pub mod handle;
pub mod hands;
mod mailbox;
pub mod post;
mod reception;
mod replay;
mod seen;
mod start;
mod stream;
#[cfg(test)]
pub(crate) mod tests;

pub use clock::Clock;
pub(crate) use clock::wall_ms;
pub use cycle::End;
pub use error::DriverError;
pub use feed::{Feed, Item, SOURCE, What};
pub use handle::{Accepted, Busy, Context, Handle, Outcome, Progress, Stopped};
pub use hands::{Act, Hands, Outside};
pub use mailbox::{MOST_EVENTS, MOST_QUERIES};
pub use post::{Answer, Content, Item as PostItem, Original, Post};
pub use reception::REJECTED;
pub use replay::{Loaded, load, new_folder};
pub use start::{Finished, Running, Settings, WorldMaker, start};
pub use stream::{StatusStream, StreamEnd};
