//! Brokers and queues: one probe for each entry of the configuration, side by side.
//!
//! Never: a probe with settings that cannot be, or with a secret that is not there.

use super::{Checked, Ground, Task};
use crate::cli::outcome::Failure;
use crate::config::Config;
use crate::sources::open::{self, Open};
use forebay_source::Finding;
use std::sync::Arc;
use tokio::runtime::Handle;

/// Begins with each.
pub(super) fn start(config: &Arc<Config>, runtime: &Handle) -> Result<Vec<Task>, Failure> {
    let named = match open::all(config) {
        Ok(all) => all.iter().map(|one| one.name()).collect::<Vec<_>>(),
        Err(error) => {
            let finding = Finding::bad("features", error.to_string());
            let checked = Checked::new("features", Ground::Files, finding);
            return Ok(vec![Task::start("features".to_owned(), move || vec![checked])?]);
        }
    };
    let task = |(at, name): (usize, String)| {
        let (config, runtime, group) = (Arc::clone(config), runtime.clone(), name.clone());
        Task::start(name, move || {
            let all = open::all(&config).unwrap_or_default();
            all.get(at).map(|one| probe(*one, &group, &runtime)).unwrap_or_default()
        })
    };
    named.into_iter().enumerate().map(task).collect()
}

fn settings(group: &str, said: String) -> Checked {
    Checked { label: "settings".to_owned(), ..Checked::new(group, Ground::Files, Finding::bad(group, said)) }
}

fn probe(one: &dyn Open, group: &str, runtime: &Handle) -> Vec<Checked> {
    if let Err(error) = one.check() {
        return vec![settings(group, error.to_string())];
    }
    let missing = one.secrets().into_iter().find(|(whose, secret)| secret.read(whose, &mut Vec::new()).is_err());
    if let Some((whose, _)) = missing {
        return vec![settings(group, format!("not tried: the secret of {whose} is not there"))];
    }
    let labelled = |finding: Finding| {
        let label = finding.what.split_once(": ").map_or("connection", |(_, rest)| rest).to_owned();
        Checked { label, ..Checked::new(group, Ground::Outside, finding) }
    };
    one.probe(runtime).into_iter().map(labelled).collect()
}
