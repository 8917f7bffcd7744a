//! Job events in from SQS queues, statuses and rejected events out to them. Standard and FIFO queues, of AWS or of any endpoint
//! that speaks its JSON protocol.
//!
//! ```text
//! desk.room(10) -> ReceiveMessage (long poll) -> desk.hand_in -> .. the journal has it .. -> Receipt -> DeleteMessageBatch
//!                                                    |  not yet: ChangeMessageVisibilityBatch, every half of the timeout
//!                                                    '- never (stopped): visibility 0, so that another takes it at once
//! ```
//!
//! Never: deletes what is not durable, receives without room, decodes a message, or lets one become visible again because the
//! controller is slow (its receive count would grow towards the dead-letter queue).

mod backlog;
mod board;
mod client;
mod context;
mod held;
mod letters;
mod probe;
mod queue;
mod receive;
mod settings;
mod sink;
mod source;
mod trouble;
mod wire;

pub use forebay_aws::Keys;
pub use probe::probe;
pub use settings::{Pace, Settings, SqsError};
pub use sink::SqsSink;
pub use source::Sqs;
