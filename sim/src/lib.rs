//! The engine under a virtual clock.

pub mod convert;
pub mod drive;
pub mod faults;
pub mod market;
pub mod memory;
pub mod policies;
pub mod prices;
pub mod score;
pub mod sweep;
pub mod trace;
pub mod world;
