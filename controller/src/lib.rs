//! The controller.

pub mod driver;
pub mod intake;
pub mod journal;
pub mod policy;
pub mod status;
