//! The controller.

pub mod document;
pub mod driver;
