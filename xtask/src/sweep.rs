//! The seeded fault sweep: crashes, lost and late effects, stock-outs, one run a seed.
//!
//! The sweep itself is the simulator's (`sim/examples/sweep.rs`); a failing seed prints the command that replays it.

use std::process::Command;

use crate::Failure;
use crate::command::{cargo, run as run_command};
use crate::workspace::Workspace;

/// What `cargo xtask sweep` takes.
#[derive(clap::Args)]
pub struct Args {
    /// How many seeds to run
    #[arg(long, value_name = "N")]
    pub seeds: u64,
    /// The first seed
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub from: u64,
    /// How many to run at once; the sweep's own default where it is not given
    #[arg(long, value_name = "J")]
    pub jobs: Option<u32>,
}

/// Builds the sweep and runs it.
pub fn run(workspace: &Workspace, args: &Args) -> Result<(), Failure> {
    run_command(&mut command(workspace, args)?)
}

/// The sweep as a command, once it is known to be there.
pub fn command(workspace: &Workspace, args: &Args) -> Result<Command, Failure> {
    let sweep = ("forebay-sim".to_owned(), "sweep".to_owned());
    if !workspace.targets("example").contains(&sweep) {
        return Err(Failure::new(
            "no sweep here: sim/examples/sweep.rs is missing; it must take --seeds N --from S [--jobs J]",
        ));
    }
    let mut command = cargo(workspace.root());
    command.args(["run", "--release", "-p", "forebay-sim", "--example", "sweep", "--"]);
    command.args(["--seeds", &args.seeds.to_string(), "--from", &args.from.to_string()]);
    if let Some(jobs) = args.jobs {
        command.args(["--jobs", &jobs.to_string()]);
    }
    Ok(command)
}
