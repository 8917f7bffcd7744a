//! Nodes bought from and given back to EC2; prices, stock and interruptions in.
//!
//! Never: decides what to buy. That is the engine's.

pub mod notice;
pub mod queue;
