//! `forebay uninstall`: our finalizers are removed from the pods of a cluster, without a journal.
//!
//! Never: ends a pod, or touches a pod without our label. Without `--yes` nothing is changed.

use super::args::UninstallArgs;
use super::doctor::configuration;
use super::outcome::{Exit, Failure, print};
use crate::cluster::{self, FinalizerRemoval};

pub(super) fn run(args: &UninstallArgs) -> Result<Exit, Failure> {
    let config = args.config.as_deref().map(|path| configuration(Some(path))).transpose()?;
    let removal = FinalizerRemoval {
        config: config.as_ref(),
        namespaces: args.namespaces.iter().cloned().collect(),
        journal: args.journal.clone(),
        dry: !args.yes,
    };
    let found = cluster::remove_finalizers(&removal).map_err(Failure::input)?;
    for pod in &found.pods {
        print(&format!("{pod}\n"))?;
    }
    let count = found.pods.len();
    let said = match (count, args.yes) {
        (0, _) => "no pod has a finalizer of Forebay's".to_owned(),
        (_, true) => format!("removed from {count} pods"),
        (_, false) => format!("{count} pods have one; nothing was changed: say --yes to remove it"),
    };
    print(&format!("{said}\n"))?;
    if found.failures.is_empty() {
        return Ok(Exit::Done);
    }
    Err(Failure::outside(format_args!(
        "{}: grant list and patch of pods there, and run it again",
        found.failures.join("; ")
    )))
}
