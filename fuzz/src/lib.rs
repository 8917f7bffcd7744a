//! Fuzzing on the stable compiler: made-up inputs for every decoder that takes bytes from outside, and what must hold of each.
//!
//! ```text
//! (seed, n) -> target, bytes -> decode, watched -> what must hold -> counted
//!                                                        |
//!        a finding: what broke, and the one command that makes it again
//! ```
//!
//! Input `n` of a seed is the same bytes on every machine, as long as the corpus and the generators are the same.
//! Never: the network, or a file outside of a folder of its own.

pub mod corpus;
mod documents;
mod generate;
mod holds;
pub mod input;
mod logs;
pub mod memory;
mod mutate;
mod ready;
mod reports;
pub mod run;
mod sizes;
pub mod targets;
mod vary;
mod vocabulary;
