//! Checkpoints in S3, or in a file system that controller and nodes share: a manifest counts only once what it names has been
//! found there. docs/CHECKPOINTS.md has the contract for those who write workloads.
//!
//! ```text
//! checkpoint.uri = s3://bucket/prefix/
//!   step-000900/model.bin ...                     first: the files, anywhere below the address
//!   manifests/0000000003-0000000007.json          last: what they are (attempt 3, sequence 7)
//!
//! report -> Checkpoints::verify(manifest) | ::latest -> read, parse -> job, attempt -> each file: there? size? checksum?
//!     -> Verified { progress }  |  Refused (what, where, remedy)  |  Unknown (the store did not answer: never zero)
//! ```
//!
//! Never: writes, believes what it has not seen, or takes an outage for a missing checkpoint.

mod address;
mod error;
mod files;
mod manifest;
mod probe;
mod s3;
mod settings;
mod store;
mod verify;

pub use address::Address;
pub use error::{CheckError, Refusal, Unknown};
pub use forebay_aws::{Keys, Place};
pub use manifest::{MOST_FILES, MOST_MANIFEST, Name};
pub use probe::probe;
pub use settings::{Pace, S3Settings, Settings, SettingsError};
pub use verify::{Ask, Checkpoints, Verified};
