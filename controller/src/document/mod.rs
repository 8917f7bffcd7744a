//! From an engine to the documents in which people and programs read it, and back from a state document to an engine.
//!
//! ```text
//! Engine -> views -> API answers, tables
//! Engine -> State document -> file -> Engine -> one pass -> Plan document
//! ```
//!
//! Never: changes an engine that runs. A plan is made on an engine of its own.

mod guess;
mod lacks;
mod owned;
mod places;
pub mod plan;
pub mod reason;
pub mod rebuild;
mod recall;
pub mod remember;
mod spec;
pub mod state;
pub mod steady;
pub mod write;
