//! What an event says about what runs, as intake carried it: the fields of `data.run`, and the address of checkpoints.

use super::TemplateError;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The fields of an event that a template reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunFields {
    /// `run.template`.
    pub template: Option<String>,
    /// `run.image`.
    pub image: Option<String>,
    /// `run.args`.
    pub args: Option<Vec<String>>,
    /// `run.env`.
    pub env: BTreeMap<String, String>,
    /// `run.secrets`.
    pub secrets: Vec<String>,
    /// `run.volumes`.
    pub volumes: Vec<String>,
    /// `checkpoint.uri`.
    pub checkpoint_uri: Option<String>,
}

impl RunFields {
    /// Reads what intake carried: a JSON object, or nothing.
    ///
    /// # Errors
    /// It is not what intake carries.
    pub fn of(carried: &[u8]) -> Result<RunFields, TemplateError> {
        if carried.is_empty() {
            return Ok(RunFields::default());
        }
        let remedy = "send the job again";
        let not_json = |error: serde_json::Error| TemplateError::new("run", error.to_string(), remedy);
        let carried: Map<String, Value> = serde_json::from_slice(carried).map_err(not_json)?;
        let run = carried.get("run").and_then(Value::as_object).cloned().unwrap_or_default();
        let text = |name: &str| run.get(name).and_then(Value::as_str).map(str::to_owned);
        let env = run.get("env").and_then(Value::as_object).into_iter().flatten();
        Ok(RunFields {
            template: text("template"),
            image: text("image"),
            args: run.get("args").map(texts),
            env: env.map(|(name, value)| (name.clone(), text_of(value))).collect(),
            secrets: run.get("secrets").map(texts).unwrap_or_default(),
            volumes: run.get("volumes").map(texts).unwrap_or_default(),
            checkpoint_uri: carried.get("checkpoint.uri").and_then(Value::as_str).map(str::to_owned),
        })
    }
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(text_of).collect()
}

/// Intake takes texts only; a number is written as it was sent.
fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
