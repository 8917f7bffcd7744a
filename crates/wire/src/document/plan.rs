//! The plan over a state, of one pass or of all until nothing changes: what would be decided, and why every job that waits does.
//!
//! Never: what was decided. A plan is thrown away with its engine.

use super::memory::PlaceView;
use super::seconds::Seconds;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What one pass would do, or all passes until nothing changes.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct PlanDocument {
    /// In the order in which they would be made.
    pub decisions: Vec<PlannedDecision>,
    /// Every job that waits after the pass, or at the end.
    pub pending: Vec<PendingJob>,
    /// With `--until steady`: the passes that decided something, in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passes: Option<Vec<PlannedPass>>,
    /// With `--until steady`: whether it came to rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steady: Option<bool>,
    /// The state's time, from which the passes went on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began_s: Option<Seconds>,
    /// The engine's time at the end, from which `eta_s` counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_s: Option<Seconds>,
}

/// One pass among many.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PlannedPass {
    /// The engine's time of it.
    pub at_s: Seconds,
    /// In the order in which they would be made.
    pub decisions: Vec<PlannedDecision>,
}

/// One decision.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PlannedDecision {
    /// For which job. Null for decisions about nodes alone.
    pub job: Option<String>,
    /// The job's subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// What. Of jobs: `reject`, `hold`, `requeue`, `finish`, `give-up`, `book`, `unbook`, `start`, `stop`, `shrink`, `keep`, `reserve`,
    /// `unreserve`, `backfill`, `defer`, `due`, `late`, `hasten`, `replicate`, `warn`, `reserve-ahead`, `release-ahead`, `keep-ahead`,
    /// `release-kept`. Of nodes: `buy`, `release`, `drain`, `undrain`, `terminate`, `suspect`. Of a request without an answer: `repeat`.
    pub action: String,
    /// On which nodes; for `buy`, the nodes that it will bring.
    pub nodes: Vec<String>,
    /// What is bought, such as `g5.xlarge in us-east-1a (spot)`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offering: Option<String>,
    /// Why, for a decision that has a reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The reason in words, with what to do about it; or what is kept, where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The reason's figures; units are in their names.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub figures: Map<String, Value>,
    /// For which other job a run is stopped, or a node kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// For `book` and `start`: where each worker goes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<PlaceView>,
}

/// A job that waits.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PendingJob {
    /// Which.
    pub job: String,
    /// Its subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The stable code of why.
    pub reason: String,
    /// The same in words, with what to do about it.
    pub message: String,
    /// The code's figures.
    pub figures: Map<String, Value>,
    /// Seconds from the state's time until it is expected to move on. Null: not known.
    pub eta_s: Option<Seconds>,
}
