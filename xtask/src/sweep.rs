//! The seeded fault sweep: crashes, lost and late effects, stock-outs, one run a seed.
//!
//! The sweep itself is the simulator's (`sim/src/bin/forebay-sweep.rs`); a failing seed prints the command that replays it. The profile `sweep`
//! checks what the debug build of `cargo xtask test` checks, so that what failed there fails here too.

use std::path::PathBuf;
use std::process::Command;

use crate::ChoreFailure;
use crate::command::{cargo, run as run_command};
use crate::workspace::Workspace;

/// What `cargo xtask sweep` takes.
#[derive(Default, clap::Args)]
pub struct SweepArgs {
    /// How many seeds to run
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub seeds: u64,
    /// The first seed
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub from: u64,
    /// How many to run at once; the sweep's own default where it is not given
    #[arg(long, value_name = "J")]
    pub jobs: Option<u32>,
    /// Hundreds of jobs of many shapes instead of a few
    #[arg(long)]
    pub crowd: bool,
    /// Write a digest of all decisions of each seed: two builds that decide the same write the same file
    #[arg(long, value_name = "FILE")]
    pub digests: Option<PathBuf>,
}

/// The program of the simulator's package.
const PROGRAM: &str = "forebay-sweep";

/// The profile of Cargo.toml that it is built with: as fast as a release, with a debug build's checks.
const PROFILE: &str = "sweep";

/// Builds the sweep and runs it.
pub fn run(workspace: &Workspace, args: &SweepArgs) -> Result<(), ChoreFailure> {
    let mut command = cargo(workspace.root());
    command.args(["run", "--profile", PROFILE, "-p", "forebay-sim", "--bin", PROGRAM, "--"]);
    run_command(with(&mut command, args))
}

/// Runs the sweep that is built beside the tests: what both are built on is built once.
pub fn run_built(workspace: &Workspace, args: &SweepArgs) -> Result<(), ChoreFailure> {
    let mut command = Command::new(workspace.debug(PROGRAM));
    command.current_dir(workspace.root());
    run_command(with(&mut command, args))
}

fn with<'a>(command: &'a mut Command, args: &SweepArgs) -> &'a mut Command {
    command.args(["--seeds", &args.seeds.to_string(), "--from", &args.from.to_string()]);
    if let Some(jobs) = args.jobs {
        command.args(["--jobs", &jobs.to_string()]);
    }
    if args.crowd {
        command.arg("--crowd");
    }
    if let Some(path) = &args.digests {
        command.arg("--digests").arg(path);
    }
    command
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: SweepArgs,
    }

    #[test]
    fn no_seed_at_all_is_refused() {
        assert!(Line::try_parse_from(["sweep", "--seeds", "0"]).is_err());
        let line = Line::try_parse_from(["sweep", "--from", "7", "--seeds", "1"]).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((line.args.from, line.args.seeds), (7, 1));
    }

    #[test]
    fn a_replay_checks_what_the_debug_build_checks() {
        let manifest = include_str!("../../Cargo.toml");
        let table = manifest.split(&format!("[profile.{PROFILE}]\n")).nth(1).expect("the profile");
        let table = table.split("\n[").next().unwrap_or_default();
        let set: Vec<&str> = table.lines().filter(|line| line.contains(" = ")).collect();
        assert_eq!(set, ["inherits = \"release\"", "overflow-checks = true", "debug-assertions = true"]);
    }
}
