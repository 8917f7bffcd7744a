//! An EC2 on the loopback interface: the Query protocol of EC2, SQS and the instance metadata on top of the simulated market. Unlike an
//! emulator it has stock-outs for each (type, zone, capacity type), partial fills, gang purchases, rate limits, moving spot prices, boot
//! times, interruption warnings, reclaims with and without a warning, and describe calls with stale results.
//!
//! ```text
//! RegionOptions -> Region: call(now, Params) -> ApiReply   advance(now) -> EventMessages   (the same seed and calls give the same bytes)
//!                    ^
//! HttpFrontend: HTTP requests -> API calls, metadata, the message queue, control requests
//!                    ^
//! Loopback: a port on 127.0.0.1, with the wall clock or a virtual one
//! ```
//!
//! ```
//! use forebay_kernel::units::Span;
//! use forebay_loopback_ec2::{ApiReply, Params, Region, RegionOptions};
//!
//! let mut region = Region::new(RegionOptions::default());
//! let now = region.now() + Span::secs(1);
//! let run = Params::new("RunInstances").with("InstanceType", "g5.xlarge").with("ImageId", "ami-1");
//! let ApiReply::Response { status: 200, .. } = region.call(now, &run.with("MinCount", "1").with("MaxCount", "1")) else { panic!() };
//! assert_eq!(region.instances().count(), 1);
//! ```

mod calls;
mod fault;
mod http_frontend;
mod options;
mod params;
mod region;
mod server;
mod xml;

pub use fault::Ec2Fault;
pub use http_frontend::{EmptyReceive, HttpFrontend, HttpOutcome, HttpRequest, HttpResponse};
pub use options::{
    DEFAULT_TEMPLATE, LaunchTemplate, RegionOptions, ReservationKind, ReservationOptions, StockArrival, Subnet,
    VcpuQuotas, builtin_types,
};
pub use params::Params;
pub use region::{ApiReply, CallCount, EndReason, EventMessage, InstanceState, LoopbackInstance, Region};
pub use server::{Loopback, LoopbackClock, RegionGuard, StartError, VirtualClock};
