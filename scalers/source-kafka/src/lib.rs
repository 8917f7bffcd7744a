//! Job events in from Kafka topics, statuses and rejected events out to them.
//!
//! ```text
//! topic --consumer--> reader: messages by partition --MessageBatch--> SourceHandle --> controller: journal
//!                        ^                                                '----- Receipt: committed within a second
//!   reading starts at the positions of the journal; committed offsets only serve monitoring and are never read back
//! watchdog (a client of its own): backlog, missing topics, a reader that hangs --> a new reader
//! ```
//!
//! Events are not decoded here, and no more messages are received than there are permits for.
//!
//! ```
//! use forebay_source_kafka::KafkaSettings;
//!
//! let settings = KafkaSettings {
//!     brokers: "127.0.0.1:9092".to_owned(),
//!     topics: vec!["jobs".to_owned()],
//!     ..KafkaSettings::default()
//! };
//! // Settings are validated without a broker.
//! assert!(settings.check(["statuses"]).is_ok());
//! assert!(settings.check(["^all.*"]).is_err(), "a pattern is not a topic's name");
//! ```

mod blocking;
mod context;
mod error;
mod partition;
mod probe;
mod probe_client;
mod reader;
mod settings;
mod shared;
mod sink;
mod source;
mod start_offset;
mod submission;
#[cfg(test)]
mod tests;
mod watchdog;

pub use error::KafkaError;
pub use probe::probe;
pub use settings::{BrokerSecurity, KafkaSettings, SecurityProtocol};
pub use sink::KafkaSink;
pub use source::KafkaSource;
