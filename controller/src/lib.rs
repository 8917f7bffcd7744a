//! The controller.

pub mod policy;
