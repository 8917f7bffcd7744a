//! Scenario and property tests of the engine: stories as text, properties against independent oracles.
//!
//! ```text
//! stories     scenarios/*.txt: given, when, then
//! properties  random inputs; a failure prints the seed and the command that replays it
//! speed       the workloads of `cargo xtask bench speed` in their smallest form
//! ```
//!
//! Never: the simulator, but where a workload is a trace. These tests drive the engine directly, with a cloud and cluster of a page (`cluster`).

extern crate alloc;

mod cluster;
mod given;
mod making;
mod properties;
mod scenario;
mod speed;
mod stories;
mod then;
mod words;
