//! The benches of the workspace, all or one by name: those that cargo knows, and those that compare simulations (`sharing`).

mod sharing;

use std::path::PathBuf;

use crate::ChoreFailure;
use crate::command::{cargo, run as run_command};
use crate::workspace::Workspace;

/// What `cargo xtask bench` takes.
#[derive(clap::Args)]
pub struct BenchArgs {
    /// Which bench; all of them where it is not given
    name: Option<String>,
    /// The seed of a bench that generates its input
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Where a bench that compares figures writes them as a list
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Passed to the bench as it is
    #[arg(last = true)]
    extra: Vec<String>,
}

/// Its benches start the binary.
const FROM_OUTSIDE: &str = "forebay-integration";

/// Its inputs, policies and figures are in `bench/sharing.rs`.
const SHARING: &str = "sharing";

/// Runs the benches that match. Fails where there is none, with the list of those that are there.
pub fn run(workspace: &Workspace, args: &BenchArgs) -> Result<(), ChoreFailure> {
    let all = workspace.targets("bench");
    let chosen: Vec<_> = all.iter().filter(|(_, bench)| args.name.as_ref().is_none_or(|name| name == bench)).collect();
    let sharing = args.name.as_ref().is_none_or(|name| name == SHARING);
    if let Some(name) = args.name.as_ref().filter(|_| chosen.is_empty() && !sharing) {
        let names: Vec<&str> = all.iter().map(|(_, bench)| bench.as_str()).chain([SHARING]).collect();
        return Err(ChoreFailure::new(format!("no bench named {name}; there are: {}", names.join(", "))));
    }
    for (package, bench) in chosen {
        let mut command = cargo(workspace.root());
        // It runs the binary, which must be that of now.
        if package == FROM_OUTSIDE {
            run_command(cargo(workspace.root()).args(["build", "--release", "-p", "forebay"]))?;
            command.env("FOREBAY_BIN", workspace.forebay_binary());
        }
        run_command(command.args(["bench", "-p", package, "--bench", bench, "--"]).args(&args.extra))?;
    }
    if sharing { sharing::run(workspace, args.seed, args.json.as_deref()) } else { Ok(()) }
}
