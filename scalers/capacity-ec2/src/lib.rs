//! Buys nodes from EC2 and terminates them, and reads its offers, its spot prices and its interruption notices.
//!
//! ```text
//! effect -> LaunchRequest (frozen, journaled) -> Ec2Machine -> Ec2Call -> sdk::execute -> EC2
//! engine events <- reconcile, outcomes <------ Ec2Machine <- Ec2Response <-----'
//! engine events <- notice::notice_events <- queue (EventBridge messages in SQS), scheduled_events
//! catalogue, prices <- offerings <- EC2
//! ```
//!
//! The engine decides what to buy. A purchase is frozen into a [`LaunchRequest`] and journaled with the decision:
//!
//! ```
//! use forebay_capacity_ec2::{Ec2Call, Ec2Machine, Ec2Settings, LaunchSettings};
//! use forebay_kernel::units::Timestamp;
//! use std::collections::BTreeSet;
//!
//! let settings = Ec2Settings::new("lab", "journal-1", LaunchSettings::default());
//! let mut machine = Ec2Machine::new(settings, BTreeSet::new(), 1);
//! let calls = machine.poll(Timestamp(1_800_000_000_000));
//! assert!(matches!(&calls[..], [(_, Ec2Call::List { .. })]), "nothing is bought before the instances are known");
//! ```

pub mod api_call;
pub mod clock;
pub mod error_class;
pub mod free_hour;
pub mod machine;
pub mod notice;
pub mod offerings;
pub mod probe;
pub mod queue;
pub mod rate_limiter;
pub mod reconcile;
pub mod request;
pub mod scheduled_events;
pub mod sdk;
pub mod settings;

pub use api_call::{DescribedInstance, Ec2Call, Ec2InstanceState, Ec2Response};
pub use clock::ClockReading;
pub use machine::{Ec2Machine, InstanceListing, MachineReport, PurchaseOrigin};
pub use request::{LaunchRequest, PurchaseOrder};
pub use settings::{Ec2Settings, JournalClaim, LaunchSettings, ReservedCapacity};
