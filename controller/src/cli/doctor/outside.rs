//! Brokers, queues and the store of checkpoints: one probe for each entry of the configuration, side by side.
//!
//! Never: a probe with settings that cannot be, or with a secret that is not there.

use super::{Checked, Ground, Task};
use crate::cli::outcome::Failure;
use crate::config::Config;
use crate::config::secret::Secret;
use crate::sources::adapter::{self, SourceAdapter};
use forebay_source::Diagnostic;
use std::sync::Arc;
use tokio::runtime::Handle;

/// The heading of the real cloud.
const CLOUD: &str = "ec2";

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
            all.get(at).map(|one| probe(*one, &group, &runtime)).unwrap_or_default()
        })
    };
    let mut tasks = named.into_iter().enumerate().map(task).collect::<Result<Vec<_>, _>>()?;
    if config.checkpoints.is_some() {
        let (config, runtime) = (Arc::clone(config), runtime.clone());
        tasks.push(Task::start(CHECKPOINTS.to_owned(), move || checkpoints(&config, &runtime))?);
    }
    if config.ec2.is_some() {
        let (config, runtime) = (Arc::clone(config), runtime.clone());
        tasks.push(Task::start(CLOUD.to_owned(), move || cloud(&config, &runtime))?);
    }
    Ok(tasks)
}

fn cloud(config: &Config, runtime: &Handle) -> Vec<Checked> {
    let Some(ec2) = &config.ec2 else { return Vec::new() };
    if let Some(whose) = missing(ec2.secrets()) {
        return vec![settings(CLOUD, format!("not tried: the secret of {whose} is not there"))];
    }
    labelled(CLOUD, crate::cloud::probe(config, runtime))
}

/// Whether the store of checkpoints can be asked.
fn checkpoints(config: &Config, runtime: &Handle) -> Vec<Checked> {
    let Some(given) = &config.checkpoints else { return Vec::new() };
    if let Err(error) = crate::checkpoints::check(given) {
        return vec![settings(CHECKPOINTS, error.to_string())];
    }
    if let Some(whose) = missing(given.secrets()) {
        return vec![settings(CHECKPOINTS, format!("not tried: the secret of {whose} is not there"))];
    }
    labelled(CHECKPOINTS, crate::checkpoints::probe(given, runtime))
}

/// Whose secret is not there, of several.
fn missing<'a>(secrets: impl IntoIterator<Item = (String, &'a Secret)>) -> Option<String> {
    let missing = |(whose, secret): &(String, &Secret)| secret.read(whose, &mut Vec::new()).is_err();
    secrets.into_iter().find(missing).map(|(whose, _)| whose)
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

fn probe(one: &dyn SourceAdapter, group: &str, runtime: &Handle) -> Vec<Checked> {
    if let Err(error) = one.check() {
        return vec![settings(group, error.to_string())];
    }
    if let Some(whose) = missing(one.secrets()) {
        return vec![settings(group, format!("not tried: the secret of {whose} is not there"))];
    }
    labelled(group, one.probe(runtime))
}
