//! The controller.

pub mod api;
pub mod document;
pub mod driver;
pub mod journal;
pub mod show;
