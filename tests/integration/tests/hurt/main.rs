//! Attacks on a controller, one at a time: each holds, or is refused with what is wrong and the way out.
//!
//! `cargo xtask test integration hurt` runs the small form; `FOREBAY_HURT=full` makes it the whole one, and `FOREBAY_SEED=n` begins its
//! seeds there, so that a run that was broken off goes on. docs/THREATS.md has a line for each attack.
//!
//! Never: sleeps to wait, or takes the word of what it attacks for what was lost.

mod clock;
mod folder;
mod journal;
mod restore;
