//! The controller.

pub mod api;
pub mod document;
pub mod driver;
pub mod show;
