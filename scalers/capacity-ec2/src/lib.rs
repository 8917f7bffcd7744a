//! Nodes bought from and given back to EC2; prices, stock and interruptions in.
//!
//! ```text
//! effect -> Request (frozen, journaled) -> Desk -> Call -> wire -> EC2
//! engine events <- look::events, outcomes <- Desk <- Answer <-+
//! engine events <- notice::events <- queue of EventBridge's messages, changes that EC2 has planned
//! catalogue, prices <- offerings <- EC2
//! ```
//!
//! Never: decides what to buy. That is the engine's.

pub mod call;
pub mod changes;
pub mod desk;
pub mod look;
pub mod notice;
pub mod offerings;
pub mod pace;
pub mod probe;
pub mod queue;
pub mod request;
pub mod settings;
pub mod trouble;
pub mod wire;

pub use call::{Answer, Call, InstanceState, Seen};
pub use desk::{Desk, Look, Report};
pub use request::{Order, Request};
pub use settings::{Launch, Reservation, Settings};
