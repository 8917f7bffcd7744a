//! The words of lists on the command line: `jobs`, `nodes`, `queues`, `sources`, `brakes`, `events`, `types`, and how each is shown.
//!
//! Never: behaviour.

use super::{CatalogArgs, ServerArgs};
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// Between two looks at a list that is watched, at least.
const LEAST_PAUSE: Duration = Duration::from_secs(1);

/// A list of a running Forebay: how it is shown, and whom to ask.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// How it is shown.
    #[command(flatten)]
    pub columns: ColumnArgs,
    /// Ask again every so often, until Ctrl-C. Without a time: every 2 s. A lost connection is made again.
    #[arg(long, value_name = "EVERY", num_args = 0..=1, require_equals = true, default_missing_value = "2s", value_parser = pause, conflicts_with = "json", help_heading = "Output")]
    pub watch: Option<Duration>,
    /// Whom to ask.
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Which columns a table has.
#[derive(Debug, Args)]
pub struct ColumnArgs {
    /// These columns in this order, such as job,phase,why. One that is not there names those that are. Default: those that fit the terminal.
    #[arg(
        short = 'o',
        long,
        value_name = "COLUMN,..",
        value_delimiter = ',',
        conflicts_with = "json",
        help_heading = "Output"
    )]
    pub columns: Vec<String>,
}

/// `forebay jobs`.
#[derive(Debug, Args)]
pub struct JobsArgs {
    /// Those that are over too.
    #[arg(long)]
    pub all: bool,
    /// Those in this phase only, such as queued, running, failed.
    #[arg(long, value_name = "PHASE")]
    pub phase: Option<String>,
    /// Those of this queue only.
    #[arg(long, value_name = "QUEUE")]
    pub queue: Option<String>,
    /// Read this data folder instead of asking a server. One may be running on it.
    #[arg(long, value_name = "DIR", conflicts_with = "watch")]
    pub data: Option<PathBuf>,
    /// How it is shown, and whom to ask.
    #[command(flatten)]
    pub list: ListArgs,
}

/// `forebay events`.
#[derive(Debug, Args)]
pub struct EventsArgs {
    /// Those after this number only.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub after: u64,
    /// Go on with those that come, until Ctrl-C. A lost connection is made again.
    #[arg(long)]
    pub follow: bool,
    /// Whom to ask.
    #[command(flatten)]
    pub server: ServerArgs,
}

/// `forebay types`.
#[derive(Debug, Args)]
pub struct TypesArgs {
    /// Those that a job may run on that asks for this model, such as h100.
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,
    /// Those with so many whole GPUs; 0: those without any.
    #[arg(long, value_name = "N")]
    pub gpus: Option<u32>,
    /// What they are of.
    #[command(flatten)]
    pub catalog: CatalogArgs,
    /// How it is shown.
    #[command(flatten)]
    pub columns: ColumnArgs,
    /// JSON on stdout: {"types":[{"instanceType","provider","model","gpus",..}]}.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

fn pause(text: &str) -> Result<Duration, String> {
    super::span(text).and_then(
        |pause| {
            if pause < LEAST_PAUSE { Err("write at least 1s".to_owned()) } else { Ok(pause) }
        },
    )
}
