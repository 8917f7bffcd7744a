//! `data.run`: what the executor will run. Names of templates, secrets and volumes are fine; pod specifications and the values of
//! secrets are not, because the journal never forgets.
//!
//! Never: reads what a name stands for.

use super::json_cursor::{JsonCursor, shown};
use super::scalar::{MOST_NAME, schema};
use super::shape::WireType;
use super::submission::RunShape;
use super::{RejectCode, Rejected};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value;
use std::borrow::Cow;

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

/// What runs, whose content is never repeated: it may hold a secret.
#[derive(Clone, PartialEq, Debug)]
pub struct RunRequest(pub RunShape);

/// The name of a secret or a volume, and nothing that could be its content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReferenceName;

/// Environment variables: names and texts. A name that ends like a secret's is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Environment;

impl WireType for RunRequest {
    fn read(at: &JsonCursor<'_>, warnings: &mut Vec<String>) -> Result<RunRequest, Rejected> {
        let run = at.veiled();
        for (name, value) in run.object()? {
            if POD.contains(&name.as_str()) {
                let message = format!("pod specifications are not taken: {TEMPLATE}");
                return Err(Rejected::new(RejectCode::Inline, &run.field(name, value).path(), message));
            }
        }
        RunShape::read(&run, warnings).map(RunRequest)
    }
}

impl WireType for ReferenceName {
    fn read(at: &JsonCursor<'_>, _: &mut Vec<String>) -> Result<ReferenceName, Rejected> {
        let plain = |name: &str| name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
        if at.value.as_str().is_some_and(|name| (1..=MOST_NAME).contains(&name.len()) && plain(name)) {
            return Ok(ReferenceName);
        }
        // What was sent may be the secret itself: it is not repeated.
        let message = "not a name; give the name of a secret or volume that the template allows, never its content";
        Err(Rejected::new(RejectCode::Inline, &at.path(), message))
    }
}

impl WireType for Environment {
    fn read(env: &JsonCursor<'_>, _: &mut Vec<String>) -> Result<Environment, Rejected> {
        for (name, value) in env.object()? {
            let at = env.field(name, value);
            if SECRET.iter().any(|end| ends_with(name, end)) {
                let message = "looks like a secret: name it in `run.secrets` instead, the journal keeps every byte";
                return Err(Rejected::new(RejectCode::Inline, &at.path(), message));
            }
            at.text()?;
        }
        Ok(Environment)
    }
}

impl JsonSchema for RunRequest {
    fn schema_name() -> Cow<'static, str> {
        RunShape::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        RunShape::json_schema(generator)
    }
}

schema!([] ReferenceName, "ReferenceName", |_g| {
    json_schema!({ "type": "string", "maxLength": MOST_NAME, "pattern": "^[A-Za-z0-9_.-]+$" })
});
schema!([] Environment, "Environment", |_g| {
    json_schema!({ "type": "object", "additionalProperties": { "type": "string" } })
});

/// Whether a name ends so, in capitals or not.
fn ends_with(name: &str, end: &str) -> bool {
    let tail = name.len().checked_sub(end.len()).and_then(|from| name.as_bytes().get(from..));
    tail.is_some_and(|tail| tail.eq_ignore_ascii_case(end.as_bytes()))
}

/// Checks that no text and no field's name in `data` is a key, whatever it is called: all of it is journaled, or said in an error.
pub(super) fn no_keys(data: &Value) -> Result<(), Rejected> {
    let Some(steps) = way_to_key(data, MOST_STEPS) else { return Ok(()) };
    let message = "holds a key: name it in `run.secrets` instead, the journal keeps every byte";
    Err(Rejected::new(RejectCode::Inline, &format!("data{steps}"), message))
}

/// So much of the way to a key is said.
const MOST_STEPS: usize = 5;

/// The first `most` steps of the way to a key in a value, if there is one. A field that has one for a name is not on it.
fn way_to_key(value: &Value, most: usize) -> Option<String> {
    let left = most.saturating_sub(1);
    let way = |step: String, rest: String| if most > 0 { step + &rest } else { rest };
    match value {
        Value::String(text) => is_key(text).then(String::new),
        Value::Array(items) => {
            let mut items = items.iter().enumerate();
            items.find_map(|(n, item)| way_to_key(item, left).map(|rest| way(format!("[{n}]"), rest)))
        }
        Value::Object(fields) => fields.iter().find_map(|(name, field)| {
            let within = || way_to_key(field, left).map(|rest| way(format!(".{}", shown(name)), rest));
            if is_key(name) { Some(String::new()) } else { within() }
        }),
        _ => None,
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
