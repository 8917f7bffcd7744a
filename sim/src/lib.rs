//! The engine under a virtual clock.

pub mod market;
pub mod prices;
pub mod trace;
