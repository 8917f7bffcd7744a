//! The contract between Forebay's controller and its event sources and sinks. An adapter such as `forebay-source-kafka` implements
//! [`Source`] and [`Sink`]; the controller holds the other end of each [`SourceHandle`].
//!
//! ```text
//! adapter: handle.reserve(n) -> receive -> handle.submit(batch, permit) --> controller: decode, de-duplicate, engine, journal (durable)
//!          commit or delete  <------------------ Receipt --------------------------------------------------'
//! ```
//!
//! This crate does no IO and never looks into a message.
//!
//! ```
//! use forebay_source::{DurablePositions, Message, MessageBatch, Receipt, SourceHandle};
//! use std::sync::Arc;
//! use tokio::sync::Semaphore;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (handle, mut incoming) = SourceHandle::new(Arc::new(Semaphore::new(100)), DurablePositions::default());
//! // The adapter reserves memory, receives, and submits what it received.
//! let permit = handle.try_reserve(1).expect("nothing is reserved so far");
//! let batch = MessageBatch { messages: vec![Message::default()], ..MessageBatch::default() };
//! let receipt = handle.submit(batch, permit)?;
//! // The controller journals the batch and answers. From then on the adapter may commit or delete.
//! let submitted = incoming.batches.try_recv()?;
//! drop(submitted.permit);
//! submitted.receipt.send(Receipt { taken: 1, ..Receipt::default() }).expect("the adapter waits for it");
//! assert_eq!(receipt.blocking_recv()?.taken, 1);
//! # Ok(())
//! # }
//! ```

mod diagnostic;
mod handle;
mod health;
mod message;
mod sink;

pub use diagnostic::{Diagnostic, Severity};
pub use handle::{ControllerStopped, DurablePositions, IncomingBatches, MessagePermit, SourceHandle, SubmittedBatch};
pub use health::{Backlog, Condition, Health, HealthSnapshot, Remark};
pub use message::{Message, MessageBatch, Receipt, StreamPosition};
pub use sink::{OutgoingMessage, Sink, SinkError};

/// A running event source.
pub trait Source: Send {
    /// Stops receiving. Messages that are received and not yet durable are returned to the broker where the transport can do that.
    /// Blocks for at most about 10 s.
    fn stop(self: Box<Self>);
}
