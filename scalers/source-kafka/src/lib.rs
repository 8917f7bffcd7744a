//! Kafka: job events from topics, statuses and rejected events to them.
//!
//! ```text
//! topic --consumer--> reader: letters, by partition --Parcel--> Desk --> controller: journal
//!                        ^                                        '------ Receipt: committed within a second
//!   positions of the journal say where to begin; committed offsets are for those who look from outside, never read back
//! watch (a client of its own): backlog, topics that are gone, a reader that stands still --> a new reader
//! ```
//!
//! Never: decodes an event, begins at a committed offset, or takes more than the desk has room for.

mod client;
mod context;
mod error;
mod intake;
mod partition;
mod place;
mod probe;
mod reader;
mod settings;
mod shared;
mod sink;
mod source;
#[cfg(test)]
mod tests;
mod wait;
mod watch;

pub use error::KafkaError;
pub use probe::probe;
pub use settings::{Protocol, Security, Settings};
pub use sink::KafkaSink;
pub use source::Kafka;
