//! The words of brakes on the command line: what is paused, held or drained, why and until when.
//!
//! Never: behaviour.

use super::ServerArgs;
use clap::{Args, ValueEnum};

/// What `forebay pause` stops.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Pausable {
    /// Buying nodes.
    Buying,
    /// Admitting jobs.
    Admission,
    /// Stopping runs for other jobs.
    Preemption,
    /// All three.
    All,
}

/// `forebay pause`.
#[derive(Debug, Args)]
pub struct PauseArgs {
    /// What.
    pub what: Pausable,
    /// Why and until when.
    #[command(flatten)]
    pub order: BrakeOrderArgs,
    /// Whom to ask.
    #[command(flatten)]
    pub server: ServerArgs,
}

/// `forebay resume`.
#[derive(Debug, Args)]
pub struct ResumeArgs {
    /// What.
    pub what: Pausable,
    /// Whom to ask.
    #[command(flatten)]
    pub server: ServerArgs,
}

/// `forebay hold` and `forebay drain`.
#[derive(Debug, Args)]
pub struct BrakeArgs {
    /// What is stopped.
    pub target: String,
    /// Why and until when.
    #[command(flatten)]
    pub order: BrakeOrderArgs,
    /// Whom to ask.
    #[command(flatten)]
    pub server: ServerArgs,
}

/// `forebay release` and `forebay undrain`.
#[derive(Debug, Args)]
pub struct BrakeReleaseArgs {
    /// What goes on.
    pub target: String,
    /// Whom to ask.
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Why something is stopped, and until when.
#[derive(Debug, Args)]
pub struct BrakeOrderArgs {
    /// Why: whoever waits for it is told.
    #[arg(long, value_name = "TEXT")]
    pub why: Option<String>,
    /// It ends by itself then: so long from now, such as 2h, or an instant such as 2026-11-25T18:00:00Z. Default: when it is let go on.
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
}
