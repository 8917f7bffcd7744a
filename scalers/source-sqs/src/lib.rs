//! Job events in from SQS queues, statuses and rejected events out to them. It works with standard and FIFO queues of AWS, or of any
//! endpoint that speaks SQS's JSON protocol.
//!
//! ```text
//! handle.reserve(10) -> ReceiveMessage (long poll) -> handle.submit -> .. the journal has it .. -> Receipt -> DeleteMessageBatch
//!                                                    |  not yet: ChangeMessageVisibilityBatch, every half of the timeout
//!                                                    '- never (stopped): visibility 0, so that another consumer receives it at once
//! ```
//!
//! A message is never deleted before it is durable, and never decoded here. It does not become visible again only because the controller
//! is slow: its receive count would grow towards the dead-letter queue.
//!
//! ```
//! use forebay_source_sqs::SqsSettings;
//!
//! let settings = SqsSettings { queues: vec!["jobs.fifo".to_owned()], ..SqsSettings::default() };
//! assert!(settings.check_with(["statuses"]).is_ok());
//! let error = settings.check_with(["two words"]).expect_err("it has a space");
//! assert!(error.to_string().contains("give a name of 1 to 80 letters"));
//! ```

mod backlog;
mod call_failure;
mod client;
mod conditions;
mod context;
mod encoding;
mod in_flight;
mod message;
mod probe;
mod queue;
mod receiver;
mod settings;
mod sink;
mod source;

pub use forebay_aws::{AccessKey, AwsSettings};
pub use probe::probe;
pub use settings::{SqsError, SqsSettings, SqsTimings};
pub use sink::SqsSink;
pub use source::SqsSource;
