//! What is sent: events in, statuses out, and the documents in which people and programs read state and plans.
//!
//! ```
//! use forebay_kernel::event::Event;
//! use forebay_wire::intake::{Caller, Intake, NoRoutes};
//!
//! let caller = Caller::local();
//! let intake = Intake { caller: &caller, routes: &NoRoutes, key: None };
//! let sent = br#"{"type": "job.submitted", "subject": "train", "data": {"gang": {"each": {"gpus": 8}}}}"#;
//! assert!(matches!(intake.decode(sent)?.event, Event::JobSubmitted(job) if job.subject == "train"));
//!
//! let wrong = br#"{"type": "job.submitted", "subject": "train", "data": {"gang": {"each": {"gpus": 1.5}}}}"#;
//! let error = intake.decode(wrong).expect_err("GPUs are whole, or a share of one");
//! assert_eq!(error.path, "data.gang.each.gpus");
//! # Ok::<(), forebay_wire::intake::Rejected>(())
//! ```
//!
//! Never: IO, or a decision. What fills the documents knows the engine, and is not here.

pub mod document;
pub mod intake;
pub mod status;
