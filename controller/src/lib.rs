//! The controller: the binary's library. The command line, the HTTP API, the live driver, its journal, intake and the policy as written.
//!
//! ```no_run
//! // The whole of the binary: it reads the command line and ends with the exit code that `forebay --help` lists.
//! let exit: std::process::ExitCode = forebay::cli::main();
//! ```
//!
//! Never: a scheduling rule; those are the planner's.

pub mod activity;
pub mod api;
pub mod audit_log;
pub mod checkpoints;
pub mod cli;
pub mod clock;
pub mod cloud;
pub mod cluster;
pub mod config;
pub mod cost;
pub mod demand;
pub mod document;
pub mod driver;
mod files;
pub mod intake;
pub mod key;
pub mod metrics;
pub mod past;
mod pasted;
pub mod policy;
pub mod segments;
pub mod show;
pub mod sources;
pub mod status;

pub use forebay_journal as journal;
