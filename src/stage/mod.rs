//! The stages, one file a verb, in the order in which a pass runs them.
//!
//! ```text
//! settle -> deadline -> (order -> admit -> place -> provision, job by job) -> preempt -> consolidate -> drain -> ahead
//! ```
//!
//! A stage reads the state and decides; `Engine::decide` applies at once. Never: changes a row in any other way.

pub(crate) mod admit;
pub(crate) mod afford;
pub(crate) mod ahead;
pub(crate) mod cart;
pub(crate) mod consolidate;
pub(crate) mod deadline;
pub(crate) mod drain;
pub(crate) mod idle;
pub(crate) mod order;
pub(crate) mod patience;
pub(crate) mod place;
pub(crate) mod preempt;
pub(crate) mod provision;
mod reclaim;
pub(crate) mod serve;
pub(crate) mod settle;
mod victims;
