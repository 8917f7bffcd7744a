//! The way to AWS that its adapters share: region, credentials, TLS, and what its refusals mean.
//!
//! ```text
//! Place (configuration) -> find -> Way { shared } -> each adapter's own client: SQS, EC2, S3
//!                                                        '- SdkError -> Answer -> Kind: what helps
//! ```
//!
//! Never: retries by itself (who calls knows what a second try costs), or waits long for a machine's metadata that is not there.

mod answer;
mod backoff;
mod credentials;
mod place;
mod way;

pub use answer::{Answer, Kind, chain, cut, kind_of};
pub use backoff::{Backoff, jittered};
pub use credentials::describe;
pub use place::{Keys, Place, is_endpoint, shown};
pub use way::{NoRegion, Way, find};
