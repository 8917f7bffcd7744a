//! Buying from EC2, giving back, and being taken back from: `cargo xtask test integration ec2`.
//!
//! ```text
//! stand    engine + journal + the adapter's machine and SDK calls + the loopback EC2's region, in virtual time, with faults
//! ```

mod boots;
mod ceiling;
mod contested;
mod doctor;
mod killed;
mod planned;
mod prices;
mod reclaim;
mod reserved;
mod scarce;
mod stand;
mod sweep;
mod throttled;
