//! An EC2 on loopback: the real Query protocol and the instance metadata paths, on top of the simulated market. It has what no emulator has:
//! stock-outs for each (type, zone, capacity type), partial fills, gang buys, rates, moving spot prices, boot times, warnings, reclaims with and
//! without one, describes that lag behind.
//!
//! ```text
//! RegionOptions -> Region: call(now, Params) -> Reply      advance(now) -> Messages     (pure: the same seed and calls, the same bytes)
//!                    ^
//! Desk: requests as HTTP has them -> calls, metadata, the queue of messages, what people do by hand
//!                    ^
//! Loopback: a port on 127.0.0.1, on the wall clock or on one that a test sets
//! ```
//!
//! ```
//! use forebay_engine::units::Span;
//! use forebay_loopback_ec2::{Params, Region, RegionOptions, Reply};
//!
//! let mut region = Region::new(RegionOptions::default());
//! let now = region.now() + Span::secs(1);
//! let run = Params::new("RunInstances").with("InstanceType", "g5.xlarge").with("ImageId", "ami-1");
//! let Reply::Answer { status: 200, .. } = region.call(now, &run.with("MinCount", "1").with("MaxCount", "1")) else { panic!() };
//! assert_eq!(region.instances().count(), 1);
//! ```
//!
//! Never: an address other than loopback's, an answer that EC2 would not give, a figure that is not a whole number.

mod calls;
mod desk;
mod options;
mod params;
mod refusal;
mod region;
mod server;
mod xml;

pub use desk::{Desk, Outcome, Request, Response};
pub use options::{
    Arrival, DEFAULT_TEMPLATE, LaunchTemplate, Quotas, RegionOptions, Reservation, ReservationKind, Subnet,
    builtin_types,
};
pub use params::Params;
pub use refusal::Refusal;
pub use region::{CallCount, Instance, InstanceState, Message, Region, Reply, Why};
pub use server::{Clock, Loopback, RegionGuard, StartError, VirtualClock};
