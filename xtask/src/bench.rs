//! The benches of the workspace, all or one by name.

use crate::Failure;
use crate::command::{cargo, run as run_command};
use crate::workspace::Workspace;

/// What `cargo xtask bench` takes.
#[derive(clap::Args)]
pub struct Args {
    /// Which bench; all of them where it is not given
    name: Option<String>,
    /// Passed to the bench as it is
    #[arg(last = true)]
    extra: Vec<String>,
}

/// Runs the benches that match. Fails where there is none, with the list of those that are there.
pub fn run(workspace: &Workspace, args: &Args) -> Result<(), Failure> {
    let all = workspace.targets("bench");
    let chosen: Vec<_> = all.iter().filter(|(_, bench)| args.name.as_ref().is_none_or(|name| name == bench)).collect();
    if chosen.is_empty() {
        let names: Vec<&str> = all.iter().map(|(_, bench)| bench.as_str()).collect();
        return Err(Failure::new(nothing_to_run(args.name.as_deref(), &names)));
    }
    for (package, bench) in chosen {
        run_command(cargo(workspace.root()).args(["bench", "-p", package, "--bench", bench, "--"]).args(&args.extra))?;
    }
    Ok(())
}

fn nothing_to_run(name: Option<&str>, there: &[&str]) -> String {
    let list = if there.is_empty() { "none yet".to_owned() } else { there.join(", ") };
    match name {
        Some(name) => format!("no bench named {name}; there are: {list}"),
        None => format!("no bench to run; there are: {list}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_name_lists_the_right_ones() {
        assert_eq!(nothing_to_run(Some("plam"), &["plan", "replay"]), "no bench named plam; there are: plan, replay");
        assert_eq!(nothing_to_run(Some("plan"), &[]), "no bench named plan; there are: none yet");
    }
}
