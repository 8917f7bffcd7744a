//! The words of `forebay logs`.
//!
//! Never: behaviour. Defaults that have a reason name it.

use super::ServerArgs;
use clap::Args;

/// The most lines of a worker's log that a server gives.
pub const MOST_LINES: u32 = 10_000;

/// `forebay logs`.
#[derive(Debug, Args)]
pub struct LogsArgs {
    /// Its subject, or its number such as job-17.
    pub job: String,
    /// One worker alone. Default: all, 64 at most.
    #[arg(long, value_name = "N")]
    pub worker: Option<u32>,
    /// Which attempt. Default: the last one.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub attempt: Option<u32>,
    /// The last lines of each worker; of these, the last 64 KiB. With --follow: what it begins with.
    #[arg(long, value_name = "LINES", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_LINES)))]
    pub tail: u32,
    /// Go on with what is printed from now on, until the job is over. A lost connection is made again.
    #[arg(long, conflicts_with = "json")]
    pub follow: bool,
    /// Whom to ask.
    #[command(flatten)]
    pub server: ServerArgs,
}
