//! `data.run`: what the executor will run. Names of templates, secrets and volumes are fine; pod specifications and the values of
//! secrets are not, because the journal never forgets.
//!
//! Never: reads what a name stands for.

use super::look::At;
use super::{RejectCode, Rejected};
use serde_json::Value;

/// Fields that only a pod specification has.
const POD: [&str; 9] = [
    "spec",
    "podSpec",
    "podTemplate",
    "pod",
    "containers",
    "initContainers",
    "hostPath",
    "serviceAccountName",
    "securityContext",
];

/// The ends of names of environment variables that hold secrets.
const SECRET: [&str; 9] =
    ["PASSWORD", "PASSWD", "SECRET", "TOKEN", "API_KEY", "APIKEY", "ACCESS_KEY", "PRIVATE_KEY", "CREDENTIALS"];

const TEMPLATE: &str = "name a template that the operator keeps in `run.template`";

/// Checks it.
pub(super) fn check(run: &At<'_>) -> Result<(), Rejected> {
    for (name, value) in run.object()? {
        if POD.contains(&name.as_str()) {
            let message = format!("pod specifications are not taken: {TEMPLATE}");
            return Err(Rejected::new(RejectCode::Inline, &format!("{}.{name}", run.path()), message));
        }
        no_secret(value, &format!("{}.{name}", run.path()))?;
    }
    for name in ["template", "image"] {
        run.get(name).map(|at| at.word(1024).map(drop)).transpose()?;
    }
    for arg in run.get("args").map(|at| at.list()).transpose()?.unwrap_or_default() {
        arg.text()?;
    }
    for list in ["secrets", "volumes"] {
        for item in run.get(list).map(|at| at.list()).transpose()?.unwrap_or_default() {
            name_only(&item)?;
        }
    }
    run.get("env").map(|at| environment(&at)).transpose()?;
    Ok(())
}

/// A name, and nothing that could be a value.
fn name_only(item: &At<'_>) -> Result<(), Rejected> {
    let fits = |name: &str| {
        name.len() <= 253 && !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
    };
    if item.value.as_str().is_some_and(fits) {
        return Ok(());
    }
    // What was sent may be the secret itself: it is not repeated.
    let message = "not a name; give the name of a secret or volume that the template allows, never its content";
    Err(Rejected::new(RejectCode::Inline, item.path(), message))
}

fn environment(env: &At<'_>) -> Result<(), Rejected> {
    for (name, value) in env.object()? {
        let path = format!("{}.{name}", env.path());
        let upper = name.to_ascii_uppercase();
        if SECRET.iter().any(|end| upper.ends_with(end)) {
            let message = "looks like a secret: name it in `run.secrets` instead, the journal keeps every byte";
            return Err(Rejected::new(RejectCode::Inline, &path, message));
        }
        At::under(value, &path).text()?;
    }
    Ok(())
}

/// Texts that are keys whatever they are called.
fn no_secret(value: &Value, path: &str) -> Result<(), Rejected> {
    match value {
        Value::String(text) if text.contains("-----BEGIN ") || aws_key(text) => {
            let message = "holds a key: name it in `run.secrets` instead, the journal keeps every byte";
            Err(Rejected::new(RejectCode::Inline, path, message))
        }
        Value::Array(items) => items.iter().enumerate().try_for_each(|(n, v)| no_secret(v, &format!("{path}[{n}]"))),
        Value::Object(fields) => fields.iter().try_for_each(|(name, v)| no_secret(v, &format!("{path}.{name}"))),
        _ => Ok(()),
    }
}

/// `AKIA` or `ASIA` and 16 more capitals or digits, as AWS access keys are.
fn aws_key(text: &str) -> bool {
    let key = |at: usize| {
        text.as_bytes()
            .get(at + 4..at + 20)
            .is_some_and(|tail| tail.iter().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit()))
    };
    ["AKIA", "ASIA"].iter().any(|start| text.match_indices(start).any(|(at, _)| key(at)))
}
