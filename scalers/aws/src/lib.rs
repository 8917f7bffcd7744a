//! What Forebay's AWS adapters share: how the region, the credentials and TLS are found, how long to wait between attempts, and what the
//! error codes mean that all services have in common.
//!
//! ```text
//! AwsSettings (configuration) -> load_client_config -> AwsClientConfig { sdk } -> the adapter's own client: SQS, EC2, S3
//!                                                                         '- SdkError -> CallError -> FailureKind: what helps
//! ```
//!
//! The SDK's own retries are switched off, because only the caller knows what a second attempt costs.
//!
//! ```
//! use forebay_aws::{FailureKind, RetryDelays, classify_code};
//! use std::time::Duration;
//!
//! let mut delays = RetryDelays::new(Duration::from_millis(200), Duration::from_secs(20));
//! assert_eq!(classify_code("ThrottlingException", 400), FailureKind::Transient);
//! assert!(delays.next_delay() <= Duration::from_millis(200));
//! ```

mod call_error;
mod client_config;
mod credentials;
mod retry;
mod settings;

pub use call_error::{CallError, FailureKind, classify_code, error_chain, truncate};
pub use client_config::{AwsClientConfig, NoRegion, load_client_config};
pub use credentials::describe_credentials;
pub use retry::{RetryDelays, delay_builder};
pub use settings::{AccessKey, AwsSettings, is_valid_endpoint, printable, queue_name};
