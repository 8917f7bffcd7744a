//! A reason as it is written: its stable code, its figures with units in their names, its words, and when the job moves on.
//!
//! Never: other words than the engine's own.

use super::seconds::Seconds;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Why a job waits, was stopped, or is over.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReasonView {
    /// The stable code, such as `WaitingForQuota`.
    pub code: String,
    /// For people, with what to do about it.
    pub message: String,
    /// The code's figures; units are in their names.
    pub figures: Map<String, Value>,
    /// Seconds until the job is expected to move on, where that is known.
    #[serde(default)]
    pub eta_s: Option<Seconds>,
}
