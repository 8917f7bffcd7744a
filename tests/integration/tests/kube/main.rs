//! The real binary with a real API server and the loopback EC2: an event becomes pods on nodes that were bought for them, and nothing is left.
//! `cargo xtask test integration kube`.
//!
//! ```text
//! Kafka or HTTP -> forebay run -> loopback EC2 --bridge--> nodes -> pods, played by kwok -> statuses
//!                                                           '-> watcher: no worker past its barrier before its gang, none twice
//! ```

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "real servers are waited for by the real clock"
)]

mod adopt;
mod agents;
mod chain;
mod checkpoint;
mod doctor;
mod gangs;
mod logs;
mod owned;
mod stand;
mod throughput;
mod watcher;
