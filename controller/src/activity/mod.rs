//! What the agents observe of running workers, and the engine events that follow from it.
//!
//! ```text
//! report --view--> which of its workers are ours, there, and current (one question to the engine)
//!        --book--> a bounded memory of each: busy, idle for how long, resident; old and doubled reports change nothing
//!        --rules-> RunIdle        all workers of a run have been idle together
//!                  ServiceDemand  the GPUs of a service contradict the demand that is known for it
//!        --figures-> metrics by queue
//! ```
//!
//! Idleness is what agents have observed. Where a worker of a run is not observed, nothing follows: time in which an agent, the driver or this
//! controller was away is never idle. The memory may be lost at any time; the next reports bring it back.
//!
//! Never: stops anything. What follows from idleness is the policy's, and the engine's to decide.

mod book;
mod figures;
mod rules;
pub mod view;

#[cfg(test)]
mod tests;

pub use book::{ActivityBook, TakenReport, WorkerStanding};
