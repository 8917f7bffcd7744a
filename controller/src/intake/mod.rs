//! What becomes of events between their decoder and the engine: which queue the policy's routes choose, and where rejected ones are kept.
//!
//! Never: decodes an event. `forebay_wire::intake` does.

pub mod rejected;
mod routes;

pub use routes::PolicyRoutes;
