//! Rules: the questions that stages ask. They read the state and answer; what is tried out is rolled back.
//!
//! ```text
//! may it run      feasibility, quota, budget, batch, capacity, start_targets, protection
//! where, with what  placement (where it fits), launch (what would hold it), supply (what can be had), purchases (what all together need),
//!                   reservations, forecast, ending
//! in what order   order
//! what is it worth  demand, idle, relocation, packing, growth, floors, replicas
//! when            timing
//! ```
//!
//! Never: makes a decision, or knows a stage. A test in `lib.rs` holds that.

pub(crate) mod allowances;
pub(crate) mod asked;
pub(crate) mod batch;
pub(crate) mod budget;
pub(crate) mod capacity;
pub(crate) mod demand;
pub(crate) mod ending;
pub(crate) mod feasibility;
pub(crate) mod floors;
pub(crate) mod forecast;
pub(crate) mod fruitless;
pub(crate) mod growth;
pub(crate) mod idle;
pub(crate) mod launch;
pub(crate) mod order;
pub(crate) mod packing;
pub(crate) mod placement;
pub(crate) mod protection;
pub(crate) mod purchases;
pub(crate) mod quota;
pub(crate) mod rank;
pub(crate) mod relocation;
pub(crate) mod replicas;
pub(crate) mod reservations;
pub(crate) mod settings;
pub(crate) mod slack;
pub(crate) mod start_targets;
pub(crate) mod supply;
pub(crate) mod timing;
