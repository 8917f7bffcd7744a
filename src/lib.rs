//! The engine of Forebay: pure and deterministic. Job and node events go in; decisions and effects come out.
//!
//! ```text
//! message / watch -> Event -> batch: tick + events -> apply -> one plan pass -> Decisions
//!     -> ONE journal transaction -> Effects released -> outcome comes back as just another Event
//! ```
//!
//! It knows jobs, queues, quotas, nodes, prices. It does not know Kafka, Kubernetes, a cloud's API, files, threads, clocks,
//! randomness or floats: `no_std` says so, and the same inputs give the same decisions on any machine, byte for byte.
//!
//! The loop, whole:
//!
//! ```
//! use forebay_engine::{engine::Engine, event::Tick, units::Millis};
//!
//! let mut engine = Engine::new();
//! engine.open(Tick { now: Millis(1_000), resumed: false, delivered: 0 });
//! // engine.handle_event(..) for everything that has arrived
//! let report = engine.plan();
//! assert_eq!(report.started, 0);
//! let unsaved = engine.close();
//! // journal.append(unsaved.batch()) makes it durable, and only then:
//! let released = unsaved.saved();
//! assert!(released.effects.is_empty());
//! ```
#![no_std]
extern crate alloc;

mod apply;
pub mod audit;
pub mod calendar;
pub mod catalog;
pub mod decision;
mod demand;
pub mod effect;
pub mod engine;
pub mod event;
mod floors;
pub mod ids;
pub mod job;
pub mod journal;
pub mod plan;
pub mod policy;
pub mod reason;
pub mod reconcile;
mod stage;
pub mod state;
pub mod units;
