//! When a waiting job is expected to start.
//!
//! ```text
//! a copy of the engine -> ideal world: its decisions succeed at once, nodes boot as usual, runs end when they usually do
//!                      -> the pass that starts the job: the estimate
//! starts that came     -> how far off estimates were, by what was waited for -> the interval of the next one
//! ```
//!
//! Never: touches the engine that decides, the world, or a clock.

pub mod error;
pub mod ideal;
pub mod position;
pub mod start;
