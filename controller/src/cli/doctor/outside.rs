//! Brokers, queues and the store of checkpoints: one probe for each entry of the configuration, side by side.
//!
//! Never: a probe with settings that cannot be, or with a secret that is not there.

use super::{Checked, Ground, Task};
use crate::cli::outcome::Failure;
use crate::config::Config;
use crate::config::secret::Secret;
use crate::sources::adapter;
use forebay_source::Diagnostic;
use std::convert::Infallible;
use std::fmt::Display;
use std::sync::Arc;
use tokio::runtime::Handle;

/// The heading of the real cloud.
const CLOUD: &str = "ec2";

/// The heading of the real cluster.
const CLUSTER: &str = "kubernetes";

/// The heading of the store of checkpoints.
const CHECKPOINTS: &str = "checkpoints";

/// Begins with each.
pub(super) fn start(config: &Arc<Config>, runtime: &Handle) -> Result<Vec<Task>, Failure> {
    let named = match adapter::adapters(config) {
        Ok(all) => all.iter().map(|one| one.name()).collect::<Vec<_>>(),
        Err(error) => {
            let finding = Diagnostic::error("features", error.to_string());
            let checked = Checked::new("features", Ground::Files, finding);
            return Ok(vec![Task::start("features".to_owned(), move || vec![checked])?]);
        }
    };
    let task = |(at, name): (usize, String)| {
        let (config, runtime, group) = (Arc::clone(config), runtime.clone(), name.clone());
        Task::start(name, move || {
            let all = adapter::adapters(&config).unwrap_or_default();
            let Some(one) = all.get(at) else { return Vec::new() };
            tried(&group, one.check(), one.secrets(), || one.probe(&runtime))
        })
    };
    let mut tasks = named.into_iter().enumerate().map(task).collect::<Result<Vec<_>, _>>()?;
    if let Some(given) = config.checkpoints.clone() {
        let runtime = runtime.clone();
        tasks.push(Task::start(CHECKPOINTS.to_owned(), move || {
            let check = crate::checkpoints::check(&given);
            tried(CHECKPOINTS, check, given.secrets(), || crate::checkpoints::probe(&given, &runtime))
        })?);
    }
    if let Some(ec2) = config.ec2.clone() {
        let (config, runtime) = (Arc::clone(config), runtime.clone());
        tasks.push(Task::start(CLOUD.to_owned(), move || {
            tried(CLOUD, Ok::<_, Infallible>(()), ec2.secrets(), || crate::cloud::probe(&config, &runtime))
        })?);
    }
    if config.kubernetes.is_some() {
        let (config, runtime) = (Arc::clone(config), runtime.clone());
        tasks.push(Task::start(CLUSTER.to_owned(), move || {
            let none: [(String, &Secret); 0] = [];
            tried(CLUSTER, crate::cluster::check(&config), none, || crate::cluster::probe(&config, &runtime))
        })?);
    }
    Ok(tasks)
}

/// What a probe finds, where the settings can be and all secrets are there.
fn tried<'a>(
    group: &str,
    check: Result<(), impl Display>,
    secrets: impl IntoIterator<Item = (String, &'a Secret)>,
    probe: impl FnOnce() -> Vec<Diagnostic>,
) -> Vec<Checked> {
    let is_missing = |(whose, secret): &(String, &Secret)| secret.read(whose, &mut Vec::new()).is_err();
    if let Err(error) = check {
        vec![settings(group, error.to_string())]
    } else if let Some((whose, _)) = secrets.into_iter().find(is_missing) {
        vec![settings(group, format!("not tried: the secret of {whose} is not there"))]
    } else {
        labelled(group, probe())
    }
}

fn labelled(group: &str, findings: Vec<Diagnostic>) -> Vec<Checked> {
    let labelled = |finding: Diagnostic| {
        let label = finding.subject.split_once(": ").map_or("connection", |(_, rest)| rest).to_owned();
        Checked { label, ..Checked::new(group, Ground::Outside, finding) }
    };
    findings.into_iter().map(labelled).collect()
}

fn settings(group: &str, said: String) -> Checked {
    Checked { label: "settings".to_owned(), ..Checked::new(group, Ground::Files, Diagnostic::error(group, said)) }
}
