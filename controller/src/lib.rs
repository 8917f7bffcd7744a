//! The controller.

pub mod driver;
