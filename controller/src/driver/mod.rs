//! The driver: owns the engine, the journal and the executor on one thread, and turns the loop under a real or replayed clock.

pub mod handle;
mod mailbox;
mod stream;

pub use handle::{Accepted, Busy, Context, Handle, Outcome, Progress, Stopped};
pub use mailbox::{MOST_EVENTS, MOST_QUERIES};
pub use stream::{StatusStream, StreamEnd};
