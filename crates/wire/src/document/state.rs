//! The state document: everything a plan needs, readable by people and programs, written by `forebay state export` or by hand.
//!
//! ```text
//! with snapshot:     digest checked -> engine, byte for byte; the views must agree with the snapshot
//! without snapshot:  jobs + nodes + memory + a policy -> an engine in which all of it has happened
//! ```
//!
//! Never: half of both. An edited export is refused until its snapshot is removed.

use super::DocumentFault;
use super::memory::StateMemory;
use super::seconds::Seconds;
use super::views::{JobView, NodeView, OfferingView, QueueView};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The version of the document that this build reads and writes.
pub const API_VERSION: &str = "forebay/v1";

/// Whose subjects they are where nothing else is said.
pub const DEFAULT_TENANT: &str = "default";

/// A state, as a document.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StateDocument {
    /// `forebay/v1`.
    pub api_version: String,
    /// `State`.
    pub kind: DocumentKind,
    /// The engine's time: seconds since 1970 in production, since the trace's zero in a replay. Default: the latest time named below.
    #[serde(default, rename = "now_s", skip_serializing_if = "Option::is_none")]
    pub now_s: Option<Seconds>,
    /// The policy's name, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Jobs, in order of acceptance.
    #[serde(default)]
    pub jobs: Vec<JobView>,
    /// Nodes.
    #[serde(default)]
    pub nodes: Vec<NodeView>,
    /// Queues. Written by Forebay, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queues: Option<Vec<QueueView>>,
    /// What can be bought. Written by Forebay, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offerings: Option<Vec<OfferingView>>,
    /// What Forebay remembers beyond its rows: reservations, money, past use, statistics. Leave it out by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Box<StateMemory>>,
    /// The whole state, for `plan`. Left out by hand; remove it to plan on an edited export.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<Snapshot>,
}

/// The kind of a state document.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub enum DocumentKind {
    /// A state.
    State,
}

/// The whole state as bytes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Snapshot {
    /// The version of its meaning.
    pub apply_version: u32,
    /// BLAKE3 of the bytes, in hex.
    pub blake3: String,
    /// The bytes, in base64.
    pub bytes: String,
}

impl StateDocument {
    /// Reads a document.
    ///
    /// # Errors
    /// What is wrong with the text, where, and what to do.
    pub fn parse(text: &str) -> Result<StateDocument, DocumentFault> {
        let mut from = serde_json::Deserializer::from_str(text);
        let document: StateDocument = serde_path_to_error::deserialize(&mut from).map_err(|e| {
            let path = e.path().to_string();
            let path = if path == "." { String::new() } else { path };
            let remedy = "see `forebay schema state` for what may stand here";
            DocumentFault::at(path, e.inner().to_string(), remedy)
        })?;
        from.end().map_err(|e| {
            DocumentFault::at("", e.to_string(), "a state file is one JSON object: remove what follows it")
        })?;
        if document.api_version != API_VERSION {
            let message = format!("`{}` is not a version known here", document.api_version);
            return Err(DocumentFault::at(
                "apiVersion",
                message,
                format!("write `{API_VERSION}`, or use a newer forebay"),
            ));
        }
        Ok(document)
    }
}
