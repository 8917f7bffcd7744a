//! The engine under a virtual clock: traces and markets in, an embedded world on the other side, a scorecard out.
//!
//! ```text
//! trace -> convert -> drive <-> engine        drive -> score -> Scorecard
//!                       |                     sweep = drive + faults, for many seeds
//! market -> world <-----+
//! ```
//!
//! Never: a clock, a thread, a network, an unseeded draw. Files are read by `trace`, `prices` and `market` only.

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
