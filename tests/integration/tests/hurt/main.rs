//! Attacks on a controller, one at a time: each holds, or is refused with what is wrong and the way out.
//!
//! `cargo xtask test integration hurt` runs the small form. With `--full` it is the whole one (`FOREBAY_HURT=full`), one attack at a time, with
//! its figures and 1,000 `kill -9`; a run that was broken off goes on behind what has passed. `FOREBAY_SEED=n` begins the seeds of files there.
//! docs/THREATS.md has a line for each attack. Those from the network are on loopback, bounded in number and time.
//!
//! Never: sleeps to wait, takes the word of what it attacks for what was lost, or another address than loopback's.

mod checker;
mod clients;
mod clock;
mod folder;
mod journal;
mod ledger;
mod nothing;
mod queue;
mod reads;
mod restore;
mod roles;
mod routes;
mod started;
mod stepped;
mod tenants;
mod wire;

/// Whether the attacks are as large as they can be.
fn full() -> bool {
    std::env::var_os("FOREBAY_HURT").is_some_and(|value| value == "full")
}

/// The small number, or the full one.
fn many(small: usize, all: usize) -> usize {
    if full() { all } else { small }
}
