//! Attacks on a running controller from its network, one at a time, on loopback, bounded in number and time.
//!
//! Each is a line of docs/THREATS.md. The small form runs everywhere in seconds; with `FOREBAY_HURT_FULL=1` each is as large as it says
//! there, and prints its figures (`-- --nocapture`).
//!
//! Never: another address than loopback's; an attack that goes on after its test.

mod clients;
mod reads;
mod roles;
mod routes;
mod tenants;
mod wire;

/// Whether the attacks are as large as they can be.
fn full() -> bool {
    std::env::var_os("FOREBAY_HURT_FULL").is_some_and(|value| value == "1")
}

/// The small number, or the full one.
fn many(small: usize, all: usize) -> usize {
    if full() { all } else { small }
}
