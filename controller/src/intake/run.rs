//! `data.run`: what the executor will run. Names of templates, secrets and volumes are fine; pod specifications and the values of
//! secrets are not, because the journal never forgets.
//!
//! Never: reads what a name stands for.

use super::look::{At, shown};
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
    let run = run.veiled();
    for (name, value) in run.object()? {
        if POD.contains(&name.as_str()) {
            let message = format!("pod specifications are not taken: {TEMPLATE}");
            return Err(Rejected::new(RejectCode::Inline, &run.field(name, value).path(), message));
        }
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
    Err(Rejected::new(RejectCode::Inline, &item.path(), message))
}

fn environment(env: &At<'_>) -> Result<(), Rejected> {
    for (name, value) in env.object()? {
        let at = env.field(name, value);
        if SECRET.iter().any(|end| ends_with(name, end)) {
            let message = "looks like a secret: name it in `run.secrets` instead, the journal keeps every byte";
            return Err(Rejected::new(RejectCode::Inline, &at.path(), message));
        }
        at.text()?;
    }
    Ok(())
}

/// Whether a name ends so, in capitals or not.
fn ends_with(name: &str, end: &str) -> bool {
    let tail = name.len().checked_sub(end.len()).and_then(|from| name.as_bytes().get(from..));
    tail.is_some_and(|tail| tail.eq_ignore_ascii_case(end.as_bytes()))
}

/// Checks that no text and no field's name in `data` is a key, whatever it is called: all of it is journaled, or said in an error.
pub(super) fn no_keys(data: &Value) -> Result<(), Rejected> {
    let mut steps = Vec::new();
    if !finds_key(data, &mut steps) {
        return Ok(());
    }
    let mut path = "data".to_owned();
    for step in steps.iter().rev().take(MOST_STEPS) {
        match step {
            Step::Field(name) => path.push_str(&format!(".{}", shown(name))),
            Step::Item(n) => path.push_str(&format!("[{n}]")),
        }
    }
    let message = "holds a key: name it in `run.secrets` instead, the journal keeps every byte";
    Err(Rejected::new(RejectCode::Inline, &path, message))
}

/// So much of the way to a key is said.
const MOST_STEPS: usize = 5;

/// One step on the way to a value.
enum Step<'a> {
    Field(&'a str),
    Item(usize),
}

/// Whether there is a key in a value, and the way to it, its last step first. A field that has one for a name is not on it.
fn finds_key<'a>(value: &'a Value, steps: &mut Vec<Step<'a>>) -> bool {
    match value {
        Value::String(text) => is_key(text),
        Value::Array(items) => items.iter().enumerate().any(|(n, item)| {
            let found = finds_key(item, steps);
            if found {
                steps.push(Step::Item(n));
            }
            found
        }),
        Value::Object(fields) => fields.iter().any(|(name, field)| {
            let named = is_key(name);
            let found = named || finds_key(field, steps);
            if found && !named {
                steps.push(Step::Field(name));
            }
            found
        }),
        _ => false,
    }
}

/// Whether a text holds a key in PEM, or one of AWS: `AKIA` or `ASIA` and 16 more capitals or digits.
fn is_key(text: &str) -> bool {
    let bytes = text.as_bytes();
    // Neither is shorter than a PEM header's beginning; most texts are.
    if bytes.len() < PEM.len() {
        return false;
    }
    bytes.iter().enumerate().any(|(at, byte)| match byte {
        b'-' => bytes.get(at..).is_some_and(|rest| rest.starts_with(PEM)),
        b'A' => bytes.get(at..at + 20).is_some_and(|key| {
            let (start, tail) = key.split_at(4);
            (start == b"AKIA" || start == b"ASIA") && tail.iter().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit())
        }),
        _ => false,
    })
}

const PEM: &[u8] = b"-----BEGIN ";
