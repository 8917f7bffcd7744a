//! What every source of job events gives, gets and tells, and what every sink takes. Adapters are written against this, the
//! controller serves it.
//!
//! ```text
//! adapter: desk.room(n) -> receive -> desk.hand_in(parcel, slot) --> controller: decode, de-duplicate, engine, journal (durable)
//!          commit, delete  <------------------ Receipt ------------------------------------------------------'
//! ```
//!
//! Never: IO, or a judgement of what a letter says.

mod desk;
mod finding;
mod health;
mod letter;
mod sink;

pub use desk::{Closed, Desk, Durable, Incoming, Posted, Slot, desk};
pub use finding::{Finding, Outcome};
pub use health::{Backlog, Condition, Health, Seen};
pub use letter::{Letter, Parcel, Receipt, Stream};
pub use sink::{Note, Sink, SinkError};

/// A source that runs.
pub trait Source: Send {
    /// Ends it: nothing is received any more, and what was received and is not durable goes back where the transport can. Returns
    /// within some 10 s.
    fn stop(self: Box<Self>);
}
