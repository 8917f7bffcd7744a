//! The state document: everything a plan needs, readable by people and programs, written by `forebay state export` or by hand.
//!
//! ```text
//! with snapshot:     digest checked -> engine, byte for byte; the views must say what the snapshot says
//! without snapshot:  jobs + nodes + a policy -> an engine in which all of it has happened
//! ```
//!
//! Never: half of both. An edited export is refused until its snapshot is removed.

use super::rebuild;
use super::seconds::Seconds;
use super::views::{JobView, NodeView, OfferingView, QueueView};
use super::{Fault, write};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use forebay_engine::engine::Engine;
use forebay_engine::ids::JobId;
use forebay_engine::ids::NodeId;
use forebay_engine::journal::APPLY_VERSION;
use forebay_engine::policy::Policy;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

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

/// An engine made from a document, and the names that the document has for its rows.
#[derive(Debug)]
pub struct Loaded {
    /// The engine, ready for a pass.
    pub engine: Engine,
    /// Jobs whose name in the document is not `job-N`.
    pub jobs: BTreeMap<JobId, String>,
    /// Nodes whose name in the document is not `node-N`.
    pub nodes: BTreeMap<NodeId, String>,
}

impl StateDocument {
    /// The document of an engine.
    #[must_use]
    pub fn of(engine: &Engine) -> StateDocument {
        let bytes = engine.snapshot();
        let state = engine.state();
        StateDocument {
            api_version: API_VERSION.to_owned(),
            kind: DocumentKind::State,
            now_s: Some(state.now().into()),
            policy: state.policy().map(|p| p.name.clone()),
            jobs: state.jobs().map(|(job, spec)| write::job_view(engine, job, spec)).collect(),
            nodes: write::nodes(state),
            queues: Some(write::queues(state)),
            offerings: Some(write::offerings(state)),
            snapshot: Some(Snapshot {
                apply_version: APPLY_VERSION,
                blake3: blake3::hash(&bytes).to_hex().to_string(),
                bytes: STANDARD.encode(&bytes),
            }),
        }
    }

    /// Reads a document. A fault says where and what to do.
    pub fn parse(text: &str) -> Result<StateDocument, Fault> {
        let mut from = serde_json::Deserializer::from_str(text);
        let document: StateDocument = serde_path_to_error::deserialize(&mut from).map_err(|e| {
            let path = e.path().to_string();
            let path = if path == "." { String::new() } else { path };
            let remedy = "see `forebay schema state` for what may stand here";
            Fault::at(path, e.inner().to_string(), remedy)
        })?;
        from.end()
            .map_err(|e| Fault::at("", e.to_string(), "a state file is one JSON object: remove what follows it"))?;
        if document.api_version != API_VERSION {
            let message = format!("`{}` is not a version known here", document.api_version);
            return Err(Fault::at("apiVersion", message, format!("write `{API_VERSION}`, or use a newer forebay")));
        }
        Ok(document)
    }

    /// An engine in this state. `policy` replaces the snapshot's own; a document without a snapshot needs one.
    pub fn load(&self, policy: Option<Policy>) -> Result<Loaded, Fault> {
        match (&self.snapshot, policy) {
            (Some(snapshot), policy) => {
                let mut engine = snapshot.restore()?;
                self.agrees_with(&engine)?;
                if let Some(policy) = policy {
                    rebuild::configure(&mut engine, policy);
                }
                Ok(Loaded { engine, jobs: BTreeMap::new(), nodes: BTreeMap::new() })
            }
            (None, Some(policy)) => rebuild::engine(self, policy),
            (None, None) => {
                Err(Fault::at("snapshot", "a state without a snapshot has no policy", "give one with --policy"))
            }
        }
    }

    /// Whether the readable part still says what the snapshot says.
    fn agrees_with(&self, engine: &Engine) -> Result<(), Fault> {
        let truth = StateDocument { snapshot: self.snapshot.clone(), ..StateDocument::of(engine) };
        if *self == truth {
            return Ok(());
        }
        let remedy = "remove `snapshot` to plan on the edited document, or export it again";
        let differ = |path: String| Err(Fault::at(path, "differs from what the snapshot holds", remedy));
        let first =
            |a: usize, b: usize, same: &dyn Fn(usize) -> bool| (0..a.max(b)).find(|&i| i >= a || i >= b || !same(i));
        if let Some(at) = first(self.jobs.len(), truth.jobs.len(), &|i| self.jobs[i] == truth.jobs[i]) {
            return differ(format!("jobs[{at}]"));
        }
        if let Some(at) = first(self.nodes.len(), truth.nodes.len(), &|i| self.nodes[i] == truth.nodes[i]) {
            return differ(format!("nodes[{at}]"));
        }
        let other = [
            ("now_s", self.now_s != truth.now_s),
            ("policy", self.policy != truth.policy),
            ("queues", self.queues != truth.queues),
            ("offerings", self.offerings != truth.offerings),
        ];
        differ(other.iter().find(|o| o.1).map_or_else(String::new, |o| o.0.to_owned()))
    }
}

impl Snapshot {
    fn restore(&self) -> Result<Engine, Fault> {
        let again = "export the state again";
        if self.apply_version > APPLY_VERSION {
            let message =
                format!("written by a newer version ({}, this one reads up to {APPLY_VERSION})", self.apply_version);
            return Err(Fault::at("snapshot.applyVersion", message, "use the forebay that wrote it, or a newer one"));
        }
        let bytes =
            STANDARD.decode(&self.bytes).map_err(|e| Fault::at("snapshot.bytes", format!("not base64: {e}"), again))?;
        if blake3::hash(&bytes).to_hex().as_str() != self.blake3 {
            return Err(Fault::at("snapshot.bytes", "damaged: its digest is not `snapshot.blake3`", again));
        }
        Engine::restore(&bytes)
            .map_err(|e| Fault::at("snapshot.bytes", format!("not a state of this version: {e}"), again))
    }
}
