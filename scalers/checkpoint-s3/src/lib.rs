//! Verifies checkpoints in S3 or in a file system that the controller and the nodes share. A manifest counts only once everything that it
//! names was found there. docs/CHECKPOINTS.md has the contract for those who write workloads.
//!
//! ```text
//! checkpoint.uri = s3://bucket/prefix/
//!   step-000900/model.bin ...                     first: the files, anywhere below the address
//!   manifests/0000000003-0000000007.json          last: the manifest of these files (attempt 3, sequence 7)
//!
//! report -> CheckpointVerifier::verify(manifest) | ::latest -> read, parse -> job, attempt -> each file: exists? size? checksum?
//!     -> VerifiedCheckpoint { progress }  |  Refused (what, where, remedy)  |  Unavailable (no response: progress is unknown, not zero)
//! ```
//!
//! Nothing is written, and an outage is never taken for a missing checkpoint.
//!
//! ```
//! use forebay_checkpoint_s3::{CheckpointAddress, ManifestName};
//!
//! let address = CheckpointAddress::parse("s3://ckpt/resnet-0412").expect("an address");
//! assert_eq!(address.to_string(), "s3://ckpt/resnet-0412/");
//! let name = ManifestName { attempt: 3, sequence: 7 };
//! assert_eq!(name.key(), "manifests/0000000003-0000000007.json");
//! ```

mod address;
mod error;
mod manifest;
mod probe;
mod s3;
mod settings;
mod shared_folder;
mod store;
mod verify;

pub use address::CheckpointAddress;
pub use error::{CheckError, CheckpointRefusal, StoreUnavailable};
pub use forebay_aws::{AccessKey, AwsSettings};
pub use manifest::{MAX_FILES, MAX_MANIFEST_BYTES, ManifestName};
pub use probe::probe;
pub use settings::{CheckpointSettings, CheckpointSettingsError, CheckpointTimeouts, S3Settings};
pub use verify::{CheckpointVerifier, VerifiedCheckpoint, VerifyRequest};
