//! Drives the engine: one batch step, shared by the live controller, the simulator and the fault sweep.
//!
//! ```text
//! BatchStep::open(tick) -> handle_event* -> plan -> PlannedBatch
//!     PlannedBatch::append(log)      -> Released           one batch, one transaction
//!     GroupCommit::push .. commit(journal)                 several batches, one transaction
//! ```
//!
//! A step does no IO of its own: the journal is a trait, time comes with the tick, and effects are handed back to the caller.
//!
//! ```
//! use forebay_driver::journal::NullJournal;
//! use forebay_driver::step::BatchStep;
//! use forebay_engine::engine::Engine;
//! use forebay_kernel::{event::Tick, units::Timestamp};
//!
//! let mut engine = Engine::new();
//! let step = BatchStep::open(&mut engine, Tick { now: Timestamp(1_000), resumed: false, delivered: 0 });
//! // step.handle_event(..) for everything that has arrived
//! let planned = step.plan();
//! assert_eq!(planned.report().started, 0);
//! let released = planned.append(&mut NullJournal)?;
//! assert!(released.effects.is_empty());
//! # Ok::<(), core::convert::Infallible>(())
//! ```
//!
//! Never: decides (the engine does), or lets an effect or a status leave before its batch is durable.

pub mod adapters;
pub mod archive;
pub mod live;
pub mod step;

pub use forebay_kernel::storage as journal;
