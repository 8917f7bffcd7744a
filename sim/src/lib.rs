//! The engine under a virtual clock.

pub mod convert;
pub mod drive;
pub mod market;
pub mod memory;
pub mod policies;
pub mod prices;
pub mod score;
pub mod trace;
pub mod world;
