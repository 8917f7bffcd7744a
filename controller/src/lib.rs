//! The controller: the binary's library. The command line, the HTTP API, the live driver, its journal, intake and the policy as written.

pub mod api;
pub mod checkpoints;
pub mod cli;
pub mod cloud;
pub mod config;
pub mod document;
pub mod driver;
pub mod intake;
pub mod journal;
pub mod key;
pub mod metrics;
pub mod policy;
pub mod show;
pub mod sources;
pub mod status;
