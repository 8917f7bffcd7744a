//! The benches of the workspace, all or one by name: those that cargo knows, of which `speed` takes the name of a workload and `quality` that of an
//! experiment, and those that compare simulations (`sharing`).

mod sharing;

use std::path::PathBuf;
use std::process::Command;

use crate::ChoreFailure;
use crate::command::{cargo, run as run_command};
use crate::workspace::Workspace;

/// What `cargo xtask bench` takes.
#[derive(clap::Args)]
pub struct BenchArgs {
    /// Which bench; all of them where it is not given
    name: Option<String>,
    /// Which workload of `speed`; all where it is not given
    workload: Option<String>,
    /// So many thousandths of the jobs and nodes of `speed`
    #[arg(long, value_name = "P")]
    size: Option<u64>,
    /// The seed of a bench that generates its input
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Where a bench that compares figures writes them as a list
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The trace that `quality` takes instead of the published one
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// The windows that `quality` takes instead of the published ones
    #[arg(long, value_name = "FILE")]
    windows: Option<PathBuf>,
    /// The nodes that `quality` takes instead of the published ones
    #[arg(long, value_name = "FILE")]
    nodes: Option<PathBuf>,
    /// Passed to the bench as it is
    #[arg(last = true)]
    extra: Vec<String>,
}

/// Its benches start the binary.
const FROM_OUTSIDE: &str = "forebay-integration";

/// It has its workloads by name, and writes its figures itself.
const SPEED: &str = "speed";

/// It has its experiments by name, and writes its figures itself.
const QUALITY: &str = "quality";

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
        command.args(["bench", "-p", package, "--bench", bench, "--"]);
        if bench == SPEED || bench == QUALITY {
            own_figures(&mut command, args)?;
        }
        run_command(command.args(&args.extra))?;
    }
    if sharing { sharing::run(workspace, args.seed, args.json.as_deref()) } else { Ok(()) }
}

/// What a bench takes that writes its figures itself. It runs in the folder of its package, so that a file is named from the root.
fn own_figures(command: &mut Command, args: &BenchArgs) -> Result<(), ChoreFailure> {
    command.args(&args.workload);
    if let Some(size) = args.size {
        command.args(["--size", &size.to_string()]);
    }
    // Without a name every bench runs, and the list is the one of `sharing`.
    let json = args.json.as_ref().filter(|_| args.name.is_some());
    let files = [
        ("--json", json),
        ("--trace", args.trace.as_ref()),
        ("--windows", args.windows.as_ref()),
        ("--nodes", args.nodes.as_ref()),
    ];
    for (option, path) in files.into_iter().filter_map(|(option, path)| Some((option, path?))) {
        let path = std::path::absolute(path).map_err(|e| ChoreFailure::new(format!("{}: {e}", path.display())))?;
        command.arg(option).arg(path);
    }
    Ok(())
}
