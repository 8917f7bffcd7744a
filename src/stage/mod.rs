//! The stages, one file a verb, in the order in which a pass runs them.
//!
//! ```text
//! settle -> (order -> admit -> place -> provision, job by job) -> preempt -> consolidate -> drain
//! ```
//!
//! A stage reads the state and decides; `Engine::decide` applies at once. Never: changes a row in any other way.

pub(crate) mod admit;
pub(crate) mod cart;
pub(crate) mod consolidate;
pub(crate) mod drain;
pub(crate) mod order;
pub(crate) mod place;
pub(crate) mod preempt;
pub(crate) mod provision;
mod reclaim;
pub(crate) mod settle;
mod victims;
