//! The stages, one verb each. `plan.rs` has their order.
//!
//! A stage reads the state, asks [rules](crate::rules) and decides; `Engine::decide` applies at once. What several stages decide alike
//! is in [`moves`](crate::moves). Never: calls another stage, or changes a row in any other way. A test in `lib.rs` holds the first,
//! the types hold the second.

pub(crate) mod admit;
pub(crate) mod backfill;
pub(crate) mod consolidate;
pub(crate) mod deadline;
pub(crate) mod drain;
pub(crate) mod grow;
pub(crate) mod preempt;
pub(crate) mod provision;
pub(crate) mod scale;
pub(crate) mod settle;
pub(crate) mod start;
pub(crate) mod start_target;
