//! Buying from EC2, giving back, and being taken back from: `cargo xtask test integration ec2`.
//!
//! ```text
//! stand    engine + journal + the adapter's machine and SDK calls + the loopback EC2's region, in virtual time, with faults
//! billed   the real binary, fed by a Kafka, with nodes that are taken back: its bill is the one that is made again from its journal
//! ```

/// The bill that is made again from a journal alone, as the controller's own tests have it.
#[allow(dead_code, reason = "the tests of the controller use the rest of it")]
#[path = "../../../../controller/tests/bill/again.rs"]
mod again;
mod billed;
mod boots;
mod ceiling;
mod contested;
mod doctor;
mod killed;
mod older_copy;
mod planned;
mod prices;
mod reclaim;
mod reserved;
mod scarce;
mod stand;
mod sweep;
mod throttled;
