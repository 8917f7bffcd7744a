//! The kernel of Forebay: what is. Ids, units, events, decisions, effects, reasons, the compiled policy, the state and the only code that
//! changes it.
//!
//! ```text
//! tick, event, decision -> StateMachine::apply_* -> rows, indices of facts, ledger -> Effect, Status
//!                          checkpoint .. rollback     a stage tries something and takes it back
//! ```
//!
//! A record means for ever what it meant when it was written, so nothing that decides is linked here: no stage, no rule, no order of
//! preference. `no_std`: no clock, no IO, no threads, no randomness, no floats. Equal records give equal states, byte for byte.
//!
//! Replaying a journal needs this crate alone:
//!
//! ```
//! use forebay_kernel::event::Tick;
//! use forebay_kernel::ids::Seq;
//! use forebay_kernel::journal::{APPLY_VERSION, Batch};
//! use forebay_kernel::machine::StateMachine;
//! use forebay_kernel::units::Timestamp;
//!
//! let tick = Tick { now: Timestamp(1_000), resumed: false, delivered: 0 };
//! let batch = Batch { version: APPLY_VERSION, first_seq: Seq(0), tick, events: Vec::new(), decisions: Vec::new() };
//! let mut machine = StateMachine::default();
//! machine.replay(&batch);
//! assert_eq!(machine.now(), Timestamp(1_000));
//! assert_eq!(machine.counters().next_seq, batch.next_seq().0);
//! ```
#![no_std]
extern crate alloc;

mod apply;
pub mod audit;
pub mod calendar;
pub mod catalog;
pub mod decision;
pub mod effect;
pub mod event;
pub mod floors;
mod grown;
pub mod ids;
pub mod job;
pub mod journal;
pub mod layouts;
pub mod machine;
#[cfg(test)]
mod making;
pub mod outbox;
pub mod policy;
pub mod reason;
pub mod recall;
pub mod reconcile;
pub mod state;
pub mod storage;
pub mod units;
