//! The controller.

pub mod driver;
pub mod journal;
